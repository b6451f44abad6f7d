# SPDX-License-Identifier: Apache-2.0
"""Ways to make a LoDTensor: from nested lists, lengths, offsets, padded tensors and other libraries' ragged forms."""

import functools
import itertools
import math
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import before_the_first, compiling, failing, holds
from ..errors import LoDTypeError, LoDValueError, border, declaring, no_memory, public, shown, without_policy
from ..ops.steps import exceeding
from ..structure.lod import LoD
from ..structure.partition import computed_there, together, uploaded_map, uploaded_runs
from ..structure.validate import (
    a_plain_tensor,
    host_integers,
    integers_to_copy,
    level_names_of,
    sums,
    unmasked,
    whole,
    with_memory,
)
from .derived import DerivedTensor
from .joined import chain, counted_each
from .levels import from_dims, per_level, where_true
from .lod_tensor import LoDTensor, made, rows_of, values_of

__all__ = [
    "cat",
    "empty",
    "from_cu_seqlens",
    "from_lengths",
    "from_nested",
    "from_offsets",
    "from_packed_sequence",
    "from_padded",
    "from_tensors",
    "full",
    "lod_tensor",
    "ones",
    "rand",
    "randn",
    "stack",
    "zeros",
]

_DEEPEST = 1000
NUMBERS = frozenset({int, float, bool, complex})
_LEAVES = NUMBERS | {Tensor}
_STRINGS = "tl.batch(data, strings=...) makes numbers of strings"


def tensor_of(what: str, given, hint: str = "") -> Tensor:
    """A plain tensor that shares the memory of a tensor or, where torch can do so, of an array."""
    if isinstance(given, np.ndarray):
        if compiling():  # compiled code sees an array as a tensor
            return torch.as_tensor(given)
        shared = unmasked(what, given).flags.writeable and min(given.strides, default=0) >= 0
        try:
            return torch.from_numpy(given if shared else given.copy())
        except (TypeError, ValueError):
            raise LoDTypeError(f"expected {what} of a dtype that torch has, got an array of {given.dtype}") from None
    if not isinstance(given, Tensor):
        if isinstance(given, (int, float)):
            hint = hint or "; see tl.lod_tensor for lists of numbers"
        hint = of_a_table(given) or hint
        raise LoDTypeError(f"expected {what} as a tensor or an array, got {type(given).__name__}{hint}")
    return values_of(a_plain_tensor(what, given))


def of_a_table(given) -> str:
    """What to do with a table or a column of pandas and its relatives, for the end of a message; "" for anything else."""
    if hasattr(given, "to_numpy") and hasattr(given, "columns"):
        return "; see tl.data.from_frame(df, keys=[...]), and tl.data.from_arrow(df) for columns of lists"
    if hasattr(given, "to_numpy") or hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return "; see .to_numpy(), and tl.data.from_arrow for lists"
    return ""


def _is_list(item) -> bool:
    return isinstance(item, (list, tuple))


def _is_list_or_array(item) -> bool:
    if isinstance(item, np.ndarray):
        return item.ndim == 1 if item.dtype == object else item.ndim > 0
    return _is_list(item)


def is_list_or_objects(item) -> bool:
    if isinstance(item, np.ndarray):
        return item.dtype == object and item.ndim == 1
    return _is_list(item)


def kinds_of(items) -> set[type]:
    """The types of items; all that one asks of many. Compiled code does not ask."""
    return set() if compiling() else set(map(type, items))


def _lists_among(items: list, opens) -> tuple[list[bool], set[type]]:
    """Which items are lists, and the types of the items; [] for none of many, and [True] for all of many, that are of one
    kind."""
    kinds = kinds_of(items)
    if kinds and kinds <= _LEAVES:
        return [], kinds
    alike = kinds == {list} or (kinds == {np.ndarray} and len({(a.dtype, a.ndim) for a in items}) == 1)
    return [opens(items[0])] if alike else [opens(item) for item in items], kinds


def _see(items: list, seen: dict, opens) -> None:
    """Notes lists that have lists in them; ValueError for one that was seen above."""
    may_recur = [item for item in items if _is_list(item) or item.dtype == object]
    here = {id(item): item for item in may_recur if any(opens(part) and len(part) for part in item)}
    if here.keys() & seen.keys():
        raise LoDValueError("expected nested lists, got a list that occurs inside itself")
    seen |= here


def opened(data, depth: int | None = None, opens=_is_list) -> tuple[list[list[int]], list, set[type]]:
    """The lengths of every nesting of `data` below the outermost list, the items of the innermost lists, and their types as
    kinds_of has them.

    Works level by level, without recursion: neither deep nesting nor a list that contains itself exhausts the stack.
    """
    if not opens(data):
        raise LoDTypeError(f"expected a list of sequences, got {type(data).__name__}{of_a_table(data)}")
    levels: list[list[int]] = []
    items, seen = list(data), {id(data): data}  # keeps the objects alive, so that no id is reused
    lists, kinds = _lists_among(items, opens)
    while depth is None or len(levels) < depth:
        if not any(lists):
            if items and depth is not None:
                raise LoDValueError(f"expected {depth} nestings below the batch, got {len(levels)}")
            break
        if not all(lists):
            i = lists.index(False)
            raise LoDValueError(f"expected sequences at nesting {len(levels) + 1}, got {shown(items[i])} beside lists")
        if len(levels) >= _DEEPEST:
            raise LoDValueError(f"expected at most {_DEEPEST} nestings, got more (a list inside itself?)")
        parts = list(itertools.chain.from_iterable(items))
        below, kinds = _lists_among(parts, opens)
        if any(below):
            _see(items, seen, opens)
        levels.append(list(map(len, items)))
        items, lists = parts, below
    if not levels and items:
        hint = "see tl.from_tensors" if isinstance(items[0], Tensor) else "without structure use torch.tensor"
        hint = _STRINGS if isinstance(items[0], str) else hint
        raise LoDValueError(f"expected a list of sequences, got a flat list; {hint}")
    levels += [[] for _ in range(max(depth or 1, 1) - len(levels))]
    return levels, items, kinds


def of_numbers(items: list, kinds: set[type], dtype=None, device=None) -> Tensor:
    """torch.tensor of a list of items of those types; of numbers by way of an array, which takes a quarter of the time."""
    try:
        if kinds == {int}:
            return torch.tensor(np.frombuffer(array("q", items), dtype=np.int64), dtype=dtype, device=device)
        if kinds and kinds <= {int, float}:
            numbers = np.frombuffer(array("d", items), dtype=np.float64)
            return torch.tensor(numbers, dtype=dtype or torch.get_default_dtype(), device=device)
        return torch.tensor(items, dtype=dtype, device=device)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        if no_memory(error):
            raise
        text = next((item for item in items if isinstance(item, str)), None)
        if text is not None:
            raise LoDValueError(f"expected numbers, got {shown(text)}; {_STRINGS}") from None
        raise LoDValueError(f"expected numbers in rows of one shape: {error}") from None


@declaring
def lod_tensor(
    data, *, depth: int | None = None, dtype=None, device=None, level_names=None, requires_grad: bool = False
) -> LoDTensor:
    """A LoDTensor from nested lists; copies, as torch.tensor does.

    The outermost list is the batch; every nesting inside it is a level. Sequences may be empty anywhere.

        >>> import torch_lod as tl
        >>> tl.lod_tensor([[[1., 2.], []], [], [[3.]]]).recursive_sequence_lengths()
        [[2, 0, 1], [2, 0, 1]]

    Args:
        data: nested lists, tuples or numpy arrays; an array counts as the nested list of its entries. The innermost
            items are numbers, or tensors of one shape; each is a row.
        depth: how many nestings are levels; needed if the rows are lists or arrays too. If None: the number of
            level_names if they are given, otherwise every nesting is a level.
        dtype, device, requires_grad: as for torch.tensor. If data has no number, dtype is torch's default floating
            dtype.

    Raises:
        ValueError: for sequences of different nesting, rows of different shape, or a list that contains itself.
    """
    if depth is not None and (type(depth) is not int or depth < 1):
        raise LoDValueError(f"expected depth >= 1, got {shown(depth)}")
    if depth is None and isinstance(level_names, (list, tuple)):
        depth = len(level_names) or None  # from empty sequences alone the depth is unknown
    levels, items, kinds = opened(data, depth, _is_list_or_array)
    lod = LoD.parsed_lengths("lengths", levels, level_names)
    if not (kinds and kinds <= NUMBERS) and any(isinstance(item, (Tensor, np.ndarray)) for item in items):
        if not all(isinstance(item, (Tensor, np.ndarray)) for item in items):
            raise LoDTypeError(f"expected leaves of one kind, got tensors and {type(items[0]).__name__}")
        rows = [tensor_of("leaves", item).detach() for item in items]
        shapes = {tuple(row.shape) for row in rows}
        if len(shapes) > 1:
            raise LoDValueError(f"expected rows of one shape, got {sorted(shapes)[:2]}")
        values = torch.stack(rows).to(dtype=dtype, device=device)
    else:
        values = of_numbers(items, kinds, dtype, device)
    x = LoDTensor(values, lod)
    x.requires_grad_(requires_grad)
    return x


def _with(values, lod: LoD) -> LoDTensor:
    rows = tensor_of("values", values, "; see tl.lod_tensor")
    return LoDTensor(rows.values() if isinstance(rows, DerivedTensor) else rows, lod)


@declaring
def from_lengths(values: Tensor | np.ndarray, lengths, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and recursive sequence lengths, outermost level first. Shares the memory of `values`, a
    tensor or a numpy array; a tensor also keeps its autograd graph."""
    return _with(values, LoD.parsed_lengths("lengths", lengths, level_names))


@declaring
def from_offsets(values: Tensor | np.ndarray, offsets, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and the offsets of every level, relative to the next level. Shares the memory of
    `values`."""
    return _with(values, LoD.parsed_offsets("offsets", offsets, level_names))


@declaring
def from_cu_seqlens(values: Tensor | np.ndarray, cu_seqlens, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and the row offsets (int32) of flash attention. Shares `values`. One sync if they are on a
    GPU."""
    offsets = host_integers("cu_seqlens", cu_seqlens)
    return _with(values, LoD.checked("cu_seqlens", [offsets], level_names))


@declaring
def from_tensors(tensors, *, level_names=None) -> LoDTensor:
    """A (nested) list of tensors or numpy arrays, each the rows of one innermost sequence. Copies, and keeps gradients.
    Arrays of objects are lists.

    LoDTensors of equal depth keep their levels, below those of the list: each of them is a sequence of its outermost
    sequences, and `from_tensors([x, y])` has one level more than x.

    Raises:
        ValueError: for no tensors, since the shape of a row would be unknown; for rows of different shapes.
        TypeError: for a tensor without rows; for LoDTensors beside tensors.
    """
    if not is_list_or_objects(tensors):
        apart = type(tensors) is Tensor or isinstance(tensors, (np.ndarray, Iterator))
        hint = "; a sequence for each of its entries: list(tensors)" if apart else of_a_table(tensors)
        raise LoDTypeError(f"expected a list of tensors, got {type(tensors).__name__}{hint}")
    levels, items, kinds = opened([tensors], opens=is_list_or_objects)
    if not items:
        raise LoDValueError("expected at least 1 tensor, got none: the shape of a row would be unknown")
    return of_rows(items, kinds, levels[1:], level_names)


_OF_NUMBERS = "; a nested list of numbers: tl.lod_tensor"


def of_rows(items: list, kinds: set[type], levels: list[list[int]], level_names=None) -> LoDTensor:
    """What from_tensors makes of tensors of those types under those levels."""
    if any(issubclass(kind, LoDTensor) for kind in kinds or map(type, items)):
        whole = joined(xs := all_lod(items))
        lod = whole.lod
        for lengths in ([x.num_sequences() for x in xs], *levels[::-1]):
            lod = lod.group(lengths)
        return made(whole.values(), lod if level_names is None else lod.with_level_names(level_names))
    if kinds == {np.ndarray} and len({(a.dtype, a.shape[1:], a.ndim) for a in items}) == 1:
        rows = [tensor_of("tensors", np.concatenate(items) if items[0].ndim else items[0])]
    else:
        rows = items if kinds == {Tensor} else [tensor_of("tensors", item, _OF_NUMBERS) for item in items]
    with_memory(*rows)
    on_one_device(rows)
    shapes = [t.shape for t in rows]
    distinct = set(shapes) if kinds == {Tensor} else shapes  # others may have sizes that are symbols
    if not all(map(len, distinct)):
        raise LoDTypeError("expected tensors with rows, got a scalar")
    elements = {tuple(shape[1:]) for shape in distinct}
    if len(elements) > 1:
        raise LoDValueError(f"expected elements of one shape, got {sorted(elements)[:2]}")
    lengths = [shape[0] for shape in (shapes if len(rows) == len(items) else [item.shape for item in items])]
    return from_lengths(torch.cat(rows), [*levels, lengths], level_names=level_names)


def on_one_device(tensors) -> None:
    """ValueError for tensors on different devices."""
    if compiling():
        return
    with without_policy():  # of LoDTensors, too, at the price of an attribute
        devices = [t.device for t in tensors]
    if len(set(devices)) > 1:
        i = next(i for i, device in enumerate(devices) if device != devices[0])
        raise LoDValueError(
            f"expected tensors on one device, got {devices[0]} at index 0 and {devices[i]} at index {i}"
        )


@declaring
def from_padded(
    dense: Tensor | np.ndarray,
    lengths=None,
    mask: Tensor | np.ndarray | None = None,
    *,
    side: str = "right",
    level_names=None,
) -> LoDTensor:
    """One level from a padded tensor (sequences, length, *element), or several from one with a dim per level; the inverse of
    `to_padded`, with gradient.

    Args:
        lengths: integers, (sequences,): the rows of every sequence. For several levels a list of them, outermost first: of
            a level, packed (a length per sequence) or in the shape of the dims before its own, as `to_padded(level="all")`
            gives them.
        side: where the padding is, "right" or "left", as for `to_padded`; a mask says it by itself.
        mask: bool, or integers 0 and 1, (sequences, length): True where there is a row, anywhere. That is the opposite of
            torch's `key_padding_mask`: pass `mask=~key_padding_mask`.

    Raises:
        ValueError: for a length beyond the padded one; for a mask with numbers other than 0 and 1; unless exactly one
            of lengths and mask is given.
    """
    if not isinstance(dense, (Tensor, np.ndarray)) or dense.ndim < 2:
        raise LoDValueError(f"expected dense of shape (sequences, length, ...), got {_shape(dense)}")
    if (lengths is None) == (mask is None):
        raise LoDValueError(f"expected either lengths or mask, got {'both' if mask is not None else 'neither'}")
    if side not in ("right", "left"):
        raise LoDValueError(f"expected side 'right' or 'left', got {shown(side)}")
    n, longest, dense = dense.shape[0], dense.shape[1], tensor_of("dense", dense)
    if mask is not None:
        if side != "right":
            raise LoDValueError(f"expected no side with a mask, which says where the rows are, got {shown(side)}")
        if not isinstance(mask, (Tensor, np.ndarray)):
            raise LoDValueError(f"expected a bool mask of shape ({n}, {longest}), got {type(mask).__name__}")
        return where_true(dense, tensor_of("mask", mask), level_names)
    if per_level(lengths):
        return from_dims(dense, lengths, side, level_names)
    lengths = (integers_to_copy if side == "right" else host_integers)("lengths", lengths)
    if lengths.numel() != n:
        raise LoDValueError(f"expected {n} lengths, one per sequence, got {lengths.numel()}")
    if not compiling():
        starts = None if side == "right" else longest - lengths
        try:
            names = level_names_of(level_names, 1)
            before_the_first()
            lod, runs = LoD.of_padded(n, longest, starts, lengths, names)
            rows = dense.flatten(0, 1)
            return made(ops.gather_runs(rows, *uploaded_runs(runs, rows, lod.rows, longest), lod.rows), lod)
        except (IndexError, TypeError, ValueError):
            lengths = host_integers("lengths", lengths)  # below, the error says what is wrong
    lod = LoD.checked("lengths", [sums(lengths)], level_names, by_length=True)
    for i in failing(lengths > longest, "from_padded: expected lengths within the padded length"):
        raise LoDValueError(f"expected lengths in [0, {longest}], got {int(lengths[i])} at index {i}")
    starts = lod.padded_starts_at(0, longest, side == "right", dense.device)
    offsets = lod.row_offsets_at(0, dense.device)
    return made(ops.gather_runs(dense.flatten(0, 1), starts, offsets, lod.rows), lod)


def _shape(given) -> str:
    array = isinstance(given, (Tensor, np.ndarray))
    return f"{given.dtype} {tuple(given.shape)}" if array else type(given).__name__


@declaring
def from_packed_sequence(packed: torch.nn.utils.rnn.PackedSequence, *, level_names=None) -> LoDTensor:
    """One level from torch's PackedSequence, sequences in their original order. Keeps the gradient."""
    if not isinstance(packed, torch.nn.utils.rnn.PackedSequence):
        raise LoDTypeError(f"expected packed as a PackedSequence, got {type(packed).__name__}")
    data, sizes = packed.data, host_integers("batch_sizes", packed.batch_sizes)
    if sizes.numel() == 0 or bool((sizes.diff() > 0).any()) or int(sizes[-1]) < 1 or int(sizes.sum()) != data.shape[0]:
        raise LoDValueError(
            f"expected batch_sizes that do not increase and add up to the {data.shape[0]} rows, got {sizes.tolist()[:12]}"
        )
    n = int(sizes[0])
    order = (
        torch.arange(n, device="cpu")
        if packed.sorted_indices is None
        else host_integers("sorted_indices", packed.sorted_indices)
    )
    if not torch.equal(order.sort().values, torch.arange(n, device="cpu")):
        raise LoDValueError(f"expected sorted_indices to be a permutation of {n} sequences, got {order.tolist()[:12]}")
    rank = order.argsort()
    offsets = sums(exceeding(sizes, n)[rank])
    sequence = torch.arange(n, device="cpu").repeat_interleave(offsets.diff())
    step = torch.arange(data.shape[0], device="cpu") - offsets[sequence]
    rows = sums(sizes)[step] + rank[sequence]
    lod = LoD.checked("lengths", [offsets], level_names)
    return LoDTensor(ops.gather_rows(data, uploaded_map(rows, data.device, data.shape[0])), lod)


@declaring
def from_nested(nested: Tensor, *, level_names=None) -> LoDTensor:
    """One level from torch.nested's jagged tensor (ragged dim 1, no holes). Shares the rows. One sync on a GPU."""
    if not (isinstance(nested, Tensor) and nested.is_nested and nested.layout == torch.jagged):
        got = f"a tensor of layout {nested.layout}" if isinstance(nested, Tensor) else type(nested).__name__
        raise LoDTypeError(f"expected a nested tensor of layout torch.jagged, got {got}")
    jagged: Any = nested  # type checkers do not know the attributes of a nested tensor
    if jagged.lengths() is not None or jagged._ragged_idx != 1:
        raise LoDValueError("expected ragged dim 1 without holes; call .contiguous() or transpose first")
    return from_offsets(jagged.values(), [jagged.offsets()], level_names=level_names)


# -- filled


def _shape_of(lod: LoD, element: tuple) -> tuple[int, ...]:
    if not isinstance(lod, LoD):
        raise LoDTypeError(f"expected a LoD, got {type(lod).__name__}; see tl.LoD.from_lengths")
    if compiling():
        return lod.rows, *element
    shape = (lod.rows, *(whole(f"element[{i}]", size) for i, size in enumerate(element)))
    if min(shape) < 0 or math.prod(size or 1 for size in shape) >= 2**63:
        raise LoDValueError(f"expected sizes >= 0 of less than 2**63 numbers in all, got {shape[1:]!r:.80}")
    return shape


def _filled(make, doc: str):
    def fill(lod: LoD, *element: int, **kwargs) -> LoDTensor:
        return LoDTensor(make(_shape_of(lod, element), **kwargs), lod)

    fill.__name__ = fill.__qualname__ = make.__name__
    fill.__doc__ = f"{doc} rows of shape `element` for every row of `lod`; keyword arguments as torch.{make.__name__}."
    return public(fill)


zeros, ones, empty = _filled(torch.zeros, "Zero"), _filled(torch.ones, "One"), _filled(torch.empty, "Uninitialised")
rand, randn = _filled(torch.rand, "Uniform random"), _filled(torch.randn, "Normal random")


@public
def full(lod: LoD, *element: int, fill_value, **kwargs) -> LoDTensor:
    """A LoDTensor with the structure `lod`, whose rows of shape `element` are filled with one value; keyword arguments
    as torch.full."""
    return LoDTensor(torch.full(_shape_of(lod, element), fill_value, **kwargs), lod)


# -- joining


def all_lod(xs) -> list[LoDTensor]:
    """LoDTensors of one depth; who gives them to a function of torch asks for their memory."""
    if not isinstance(xs, (list, tuple)):
        raise LoDTypeError(f"expected a list of LoDTensors, got {type(xs).__name__}")
    for x in xs:
        if not isinstance(x, LoDTensor):
            raise LoDTypeError(f"expected LoDTensors, got {type(x).__name__}")
    if not xs:
        raise LoDTypeError("expected LoDTensors, got none")
    if len({len(x._provenance.lod.levels) for x in xs}) > 1:
        raise LoDValueError(f"expected LoDTensors of equal depth, got depths {[x.lod_level for x in xs]}")
    return list(xs)


@border(policy=False)
def cat(xs, along: str = "sequences", dim: int = -1, *, level: int | str = -1) -> LoDTensor:
    """Joins LoDTensors.

    Args:
        along: "sequences": one batch after another. "within": sequence i of the result is sequence i of every x, one
            after another. "features": along `dim` of the rows, for equal LoDs.
        level: for "within": the level whose sequences are joined, the innermost unless another is given. The levels above
            must be equal.
    """
    with_memory(dim, level)
    if along not in ("sequences", "within", "features"):
        raise LoDValueError(f"expected along 'sequences', 'within' or 'features', got {shown(along)}")
    if along != "within" and level not in (0, -1):
        raise LoDValueError(f"expected level with along='within' only, got {shown(level)} with {shown(along)}")
    if along != "features" and dim != -1:
        raise LoDValueError(f"expected dim with along='features' only, got {shown(dim)} with {shown(along)}")
    xs = all_lod(xs)
    if along == "sequences":
        return joined(xs)
    if along == "within":
        return joined_within(xs, xs[0].lod.level(level))
    lod = functools.reduce(LoD.agreed, [x.lod for x in xs])
    with_memory(*xs)
    on_one_device(xs)
    if dim in (0, -xs[0].dim()):
        raise LoDValueError("expected a dim of the rows along features, got dim 0")
    return made(torch.cat([rows_of(x) for x in xs], dim), lod)


def joined(xs: list[LoDTensor]) -> LoDTensor:
    """One batch after another."""
    with without_policy():
        with_memory(*xs)
        parts = _alike([rows_of(x) for x in xs])
        lod = chain([x._provenance.lod for x in xs])  # before the rows: it says what is wrong with their number
        return made(torch.cat(parts), lod)


def _alike(rows: list[Tensor]) -> list[Tensor]:
    """Rows that torch.cat takes: on one device, and of one shape."""
    on_one_device(rows)
    wanted = rows[0].shape[1:]
    for i, t in enumerate(rows[1:], 1):
        if (own := t.shape[1:]) != wanted:
            raise LoDValueError(f"expected rows of one shape, got {tuple(wanted)} and, at index {i}, {tuple(own)}")
    return rows


def joined_within(xs: list[LoDTensor], k: int) -> LoDTensor:
    """Sequence i of level k of the result is sequence i of every x, one after another. Without the table of torch's functions."""
    lods = [x._provenance.lod for x in xs]
    counts = [lod.levels[k].shape[0] - 1 for lod in lods]
    if not all(holds(count == counts[0]) for count in counts[1:]):
        raise LoDValueError(f"expected equally many sequences, got {counts}")
    if k:
        functools.reduce(LoD.agreed, [lod.outer_at(k) or lod for lod in lods])
    parts = _alike([rows_of(x) for x in xs])
    if len({t.dtype for t in parts}) > 1:
        with_memory(*parts)
        dtype = functools.reduce(torch.promote_types, [t.dtype for t in parts])
        parts = [t.to(dtype) for t in parts]
    lod = _joined_in_graph(lods, k) if compiling() else LoD.joined(lods, k)
    if any(one.counted for one in lods):
        lod = lod.counting(_joined_by(lods, k, counted_each(lods)))
    return made(_joined_by(lods, k, parts), lod)


def _joined_in_graph(lods: list[LoD], k: int) -> LoD:
    """`LoD.joined`, within level k."""
    first = lods[0]
    if k == first.depth - 1:
        below = [functools.reduce(torch.add, [lod.levels[k] for lod in lods])]
    else:
        count = first.levels[k].shape[0] - 1
        order = torch.arange(count * len(lods), device="cpu").view(len(lods), count).t().flatten()
        own, *inner = chain(lods).take(k, order)[0].levels
        below = [own[:: len(lods)].contiguous(), *inner]
    return LoD.checked("offsets", [*first.levels[:k], *below], first.level_names)


def _joined_by(lods: list[LoD], k: int, parts: list[Tensor]) -> Tensor:
    """A tensor for every LoD, of its rows, joined as the sequences of level k are."""
    offsets = together(parts[0].device, *[(lod.row_offsets_at, k) for lod in lods])
    return _concat(list(zip(parts, offsets, strict=True)))


def _concat(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The rows of segments, given with their offsets, those of all parts joined two by two."""
    half = len(parts) // 2
    return ops.segment_concat(*_as_one(parts[:half]), *_as_one(parts[half:])) if half else parts[0][0]


def _as_one(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0]
    rows, offsets = _concat(parts), functools.reduce(torch.add, [offsets for _, offsets in parts])
    return rows, computed_there(offsets, rows.shape[0])


@public
def stack(xs, dim: int = 1) -> LoDTensor:
    """Stacks the rows of LoDTensors with equal LoDs along a new dim of the rows."""
    with_memory(dim)
    xs = all_lod(xs)
    with_memory(*xs)
    on_one_device(xs)
    lod = functools.reduce(LoD.agreed, [x.lod for x in xs])
    if dim in (0, -xs[0].dim() - 1):
        raise LoDValueError("expected a dim of the rows, got dim 0; see cat(along='sequences')")
    return LoDTensor(torch.stack([x.values() for x in xs], dim), lod)
