# SPDX-License-Identifier: Apache-2.0
"""Ways to make a LoDTensor: from nested lists, lengths, offsets, padded tensors and other libraries' ragged forms."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import ops
from .dynamo import failing, holds
from .errors import LoDTypeError, LoDValueError, public
from .lod import LoD, fitting
from .tensor import LoDTensor, made, values_of
from .torch_rules import chain
from .validate import host_integers, sums

__all__ = [
    "cat",
    "empty",
    "from_cu_seqlens",
    "from_lengths",
    "from_nested",
    "from_offsets",
    "from_packed_sequence",
    "from_padded",
    "from_segment_ids",
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


def _is_list(value) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _opened(data, depth: int | None, is_list=_is_list) -> tuple[list[list[int]], list]:
    """The lengths of every nesting of `data` below the outermost list, and what is inside the innermost.

    Goes level by level, so that neither depth nor a list inside itself can exhaust the stack.
    """
    if not is_list(data):
        raise LoDTypeError(f"expected a list of sequences, got {type(data).__name__}")
    levels: list[list[int]] = []
    items, seen = list(data), {id(data)}
    while depth is None or len(levels) < depth:
        lists = [is_list(item) for item in items]
        if not any(lists):
            if items and depth is not None:
                raise LoDValueError(f"expected {depth} nestings below the batch, got {len(levels)}")
            break
        if not all(lists):
            i = lists.index(False)
            raise LoDValueError(f"expected sequences at nesting {len(levels) + 1}, got {items[i]!r:.40} beside lists")
        if len(levels) >= _DEEPEST:
            raise LoDValueError(f"expected at most {_DEEPEST} nestings, got more (a list inside itself?)")
        for item in items if depth is None else ():
            if isinstance(item, np.ndarray) and item.ndim > 1:
                raise LoDValueError(
                    f"expected arrays of 1 dimension, got one of shape {item.shape}; if its rows are those of a sequence, "
                    "see tl.from_tensors, if every dimension is a nesting, pass depth="
                )
        here = {id(item) for item in items if any(isinstance(part, (list, tuple)) and part for part in item)}
        if here & seen:
            raise LoDValueError("expected nested lists, got a list that occurs inside itself")
        seen |= here
        levels.append([len(item) for item in items])
        items = [part for item in items for part in item]
    if not levels:
        if items:
            hint = "see tl.from_tensors" if isinstance(items[0], Tensor) else "without structure use torch.tensor"
            raise LoDValueError(f"expected a list of sequences, got a flat list; {hint}")
        levels = [[]]
    while depth is not None and len(levels) < depth:
        levels.append([])
    return levels, items


@public
def lod_tensor(
    data, *, depth: int | None = None, dtype=None, device=None, level_names=None, requires_grad: bool = False
) -> LoDTensor:
    """A LoDTensor from nested lists; copies, as torch.tensor does.

    Every nesting of lists but the outermost, which is the batch, is a level. Sequences may be empty anywhere.

        >>> import torch_lod as tl
        >>> tl.lod_tensor([[[1., 2.], []], [], [[3.]]]).recursive_sequence_lengths()
        [[2, 0, 1], [2, 0, 1]]

    Args:
        data: nested lists, tuples or arrays; the leaves are numbers, or tensors of one shape (then a leaf is a row).
        depth: how many nestings are levels, when the elements of rows are written as lists as well; as many as there are
            level_names if those are given.
        dtype, device, requires_grad: as for torch.tensor. Without any number dtype is torch's default, a floating one.

    Raises:
        ValueError: for sequences of different nesting, rows of different shape, or a list inside itself.
    """
    if depth is not None and (type(depth) is not int or depth < 1):
        raise LoDValueError(f"expected depth >= 1, got {depth!r}")
    if depth is None and isinstance(level_names, (list, tuple)):
        depth = len(level_names) or None  # a batch of empty sequences does not show how deep it is
    levels, items = _opened(data, depth)
    items = [_tensor(item) for item in items]
    lod = LoD.parsed_lengths("lengths", levels, level_names)
    if items and any(isinstance(item, Tensor) for item in items):
        if not all(isinstance(item, Tensor) for item in items):
            raise LoDTypeError(f"expected leaves of one kind, got tensors and {type(items[0]).__name__}")
        shapes = {tuple(item.shape) for item in items}
        if len(shapes) > 1:
            raise LoDValueError(f"expected rows of one shape, got {sorted(shapes)[:2]}")
        values = torch.stack([values_of(item).detach() for item in items]).to(dtype=dtype, device=device)
    else:
        try:
            values = torch.tensor(items, dtype=dtype, device=device)
        except (ValueError, TypeError, RuntimeError) as error:
            raise LoDValueError(f"expected numbers in rows of one shape: {error}") from None
    made = LoDTensor(values, lod)
    made.requires_grad_(requires_grad)
    return made


def _tensor(value):
    """An array as a tensor, anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    try:
        return torch.from_numpy(value.copy())  # which may be written to, and has no negative strides
    except TypeError:
        raise LoDTypeError(f"expected arrays of numbers, got one of dtype {value.dtype}") from None


def _made(values: Tensor, lod: LoD) -> LoDTensor:
    if not isinstance(values, Tensor):
        hint = "torch.from_numpy" if isinstance(values, np.ndarray) else "tl.lod_tensor"
        raise LoDTypeError(f"expected values as a tensor, got {type(values).__name__}; see {hint}")
    return LoDTensor(fitting(values, lod), lod)


@public
def from_lengths(values: Tensor, lengths, *, level_names=None) -> LoDTensor:
    """Rows and recursive sequence lengths, outermost level first. Shares `values` and its autograd graph."""
    return _made(values, LoD.parsed_lengths("lengths", lengths, level_names))


@public
def from_offsets(values: Tensor, offsets, *, level_names=None) -> LoDTensor:
    """Rows and offsets per level, each relative to the next level. Shares `values`."""
    return _made(values, LoD.parsed_offsets("offsets", offsets, level_names))


@public
def from_segment_ids(values: Tensor, ids, num_sequences: int | None = None, *, level_names=None) -> LoDTensor:
    """Rows and, for each, the number of its sequence; see `LoD.from_segment_ids`. Shares `values`."""
    return _made(values, LoD.parsed_ids(ids, num_sequences, level_names))


@public
def from_cu_seqlens(values: Tensor, cu_seqlens, *, level_names=None) -> LoDTensor:
    """Rows and the int32 row offsets of flash attention. Shares `values`. One sync if they are on a GPU."""
    offsets = host_integers("cu_seqlens", cu_seqlens)
    return _made(values, LoD.checked("cu_seqlens", [offsets], level_names))


@public
def from_tensors(tensors, *, level_names=None) -> LoDTensor:
    """A (nested) list of tensors or arrays, each the rows of one innermost sequence. Copies, and keeps their gradients.

    ValueError if there is none: the element shape would be unknown.
    """
    levels, items = _opened([tensors], None, lambda value: isinstance(value, (list, tuple)))
    levels, items = levels[1:], [_tensor(item) for item in items]
    if not items:
        raise LoDValueError("expected at least 1 tensor, got none: the shape of a row would be unknown")
    for item in items:
        if not isinstance(item, Tensor) or item.dim() == 0:
            got = "a scalar" if isinstance(item, Tensor) else type(item).__name__
            raise LoDTypeError(f"expected tensors with rows, got {got}")
    shapes = {tuple(item.shape[1:]) for item in items}
    if len(shapes) > 1:
        raise LoDValueError(f"expected elements of one shape, got {sorted(shapes)[:2]}")
    levels.append([item.shape[0] for item in items])
    return from_lengths(torch.cat([values_of(item) for item in items]), levels, level_names=level_names)


@public
def from_padded(
    dense: Tensor, lengths=None, mask: Tensor | None = None, *, side: str = "right", level_names=None
) -> LoDTensor:
    """One level from a padded tensor (sequences, length, *element); the inverse of `to_padded`, with gradient.

    Args:
        lengths: integers, (sequences,): the rows of every sequence.
        side: where the padding is, "right" or "left", as for `to_padded`.
        mask: bool, or integers 0 and 1, (sequences, length): which positions are rows, anywhere.

    Raises:
        ValueError: for a length beyond the padded one; unless exactly one of lengths and mask is given.
    """
    if not isinstance(dense, Tensor) or dense.dim() < 2:
        raise LoDValueError(f"expected dense of shape (sequences, length, ...), got {_shape(dense)}")
    if (lengths is None) == (mask is None):
        raise LoDValueError(f"expected either lengths or mask, got {'both' if mask is not None else 'neither'}")
    if side not in ("right", "left"):
        raise LoDValueError(f"expected side 'right' or 'left', got {side!r}")
    dense = values_of(dense)
    n, longest = dense.shape[:2]
    if mask is not None:
        mask = _tensor(mask)
        whole = isinstance(mask, Tensor) and not (mask.is_floating_point() or mask.is_complex())
        fits = whole and mask.dim() == 2
        if not fits or not (holds(mask.shape[0] == n) and holds(mask.shape[1] == longest)):
            hint = "" if whole or not isinstance(mask, Tensor) else "; see mask.bool()"
            raise LoDValueError(f"expected a bool mask of shape ({n}, {longest}), got {_shape(mask)}{hint}")
        host = values_of(mask).cpu()
        if host.dtype != torch.bool:
            wrong = ((host != 0) & (host != 1)).flatten()
            for i in failing(wrong, "expected a mask of 0 and 1"):
                raise LoDValueError(f"expected a mask of 0 and 1, got {host.flatten()[i]} in sequence {i // longest}")
            host = host.bool()
        lod = LoD.checked("lengths", [sums(host.sum(1))], level_names)
        return LoDTensor(ops.gather_rows(dense.flatten(0, 1), host.flatten().nonzero().flatten().to(dense.device)), lod)
    lengths = host_integers("lengths", lengths)
    if lengths.numel() != n:
        raise LoDValueError(f"expected {n} lengths, one per sequence, got {lengths.numel()}")
    lod = LoD.checked("lengths", [sums(lengths)], level_names, by_length=True)
    for i in failing(lengths > longest, "expected lengths within the padded length"):
        raise LoDValueError(f"expected lengths in [0, {longest}], got {int(lengths[i])} at index {i}")
    starts, offsets = (
        lod.padded_starts_at(0, longest, side == "right", dense.device),
        lod.row_offsets_at(0, dense.device),
    )
    return made(ops.gather_runs(dense.flatten(0, 1), starts, offsets, lod.rows), lod)


def _kind(value) -> str:
    return f"a tensor of layout {value.layout}" if isinstance(value, Tensor) else type(value).__name__


def _shape(value) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


@public
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
    place = order.argsort()
    alive = place[:, None] < sizes[None, :]
    rows = (sums(sizes)[:-1][None, :] + place[:, None])[alive]
    lod = LoD.checked("lengths", [sums(alive.sum(1))], level_names)
    return LoDTensor(ops.gather_rows(data, rows.to(data.device)), lod)


@public
def from_nested(nested: Tensor, *, level_names=None) -> LoDTensor:
    """One level from torch.nested's jagged tensor (ragged dim 1, no holes). Shares the rows. One sync on a GPU."""
    if not (isinstance(nested, Tensor) and nested.is_nested and nested.layout == torch.jagged):
        raise LoDTypeError(f"expected a nested tensor of layout torch.jagged, got {_kind(nested)}")
    jagged: Any = nested  # what torch.nested adds to Tensor is not in its type
    if jagged.lengths() is not None or jagged._ragged_idx != 1:
        raise LoDValueError("expected ragged dim 1 without holes; call .contiguous() or transpose first")
    return from_offsets(jagged.values(), [jagged.offsets()], level_names=level_names)


# -- filled


def _filled(make, doc: str):
    def fill(lod: LoD, *element: int, **kwargs) -> LoDTensor:
        if not isinstance(lod, LoD):
            raise LoDTypeError(f"expected a LoD, got {type(lod).__name__}; see tl.LoD.from_lengths")
        return LoDTensor(make(lod.rows, *element, **kwargs), lod)

    fill.__name__ = fill.__qualname__ = make.__name__
    fill.__doc__ = f"{doc} rows of shape `element` for every row of `lod`; keyword arguments as torch.{make.__name__}."
    return public(fill)


zeros, ones, empty = _filled(torch.zeros, "Zero"), _filled(torch.ones, "One"), _filled(torch.empty, "Uninitialised")
rand, randn = _filled(torch.rand, "Uniform random"), _filled(torch.randn, "Normal random")


@public
def full(lod: LoD, *element: int, fill_value, **kwargs) -> LoDTensor:
    """Rows of shape `element` of one value for every row of `lod`; keyword arguments as torch.full."""
    if not isinstance(lod, LoD):
        raise LoDTypeError(f"expected a LoD, got {type(lod).__name__}; see tl.LoD.from_lengths")
    return LoDTensor(torch.full((lod.rows, *element), fill_value, **kwargs), lod)


# -- joining


def all_lod(xs) -> list[LoDTensor]:
    if not isinstance(xs, (list, tuple)):
        raise LoDTypeError(f"expected a list of LoDTensors, got {type(xs).__name__}")
    if not xs or not all(isinstance(x, LoDTensor) for x in xs):
        got = "none" if not xs else next(type(x).__name__ for x in xs if not isinstance(x, LoDTensor))
        raise LoDTypeError(f"expected LoDTensors, got {got}")
    if len({x.lod_level for x in xs}) > 1:
        raise LoDValueError(f"expected LoDTensors of equal depth, got depths {[x.lod_level for x in xs]}")
    return list(xs)


@public
def cat(xs, along: str = "sequences", dim: int = -1, *, level: int | str | None = None) -> LoDTensor:
    """Joins LoDTensors.

    Args:
        along: "sequences", one batch after another; "within", the i-th sequence of each one after another; "features", along
            `dim` of the rows, for equal LoDs.
        level: whose sequences, for "within"; the outermost if None.
    """
    if level is not None and along != "within":
        raise LoDValueError(f"expected level with along='within' only, got level={level!r} with along={along!r:.40}")
    if along == "features":
        xs = all_lod(xs)
        for x in xs[1:]:
            xs[0].lod.agreed(x.lod)
        if dim in (0, -xs[0].dim()):
            raise LoDValueError("expected a dim of the rows along features, got dim 0")
        return LoDTensor(torch.cat([x.values() for x in xs], dim), xs[0].lod)
    if along not in ("sequences", "within"):
        raise LoDValueError(f"expected along 'sequences', 'within' or 'features', got {along!r}")
    xs = all_lod(xs)
    return joined(xs) if along == "sequences" else joined_within(xs, 0 if level is None else xs[0].lod.level(level))


def joined(xs: list[LoDTensor]) -> LoDTensor:
    """One batch after another."""
    for i, x in enumerate(xs):
        if x.shape[1:] != xs[0].shape[1:]:
            raise LoDValueError(
                f"expected rows of one shape, got {tuple(xs[0].shape[1:])} and, at index {i}, {tuple(x.shape[1:])}"
            )
    return LoDTensor(torch.cat([x.values() for x in xs]), chain([x.lod for x in xs]))


def joined_within(xs: list[LoDTensor], k: int) -> LoDTensor:
    """Sequence i of level k: that of every x, one after another."""
    counts = [x.num_sequences(k) for x in xs]
    if not all(holds(count == counts[0]) for count in counts):
        raise LoDValueError(f"expected equally many sequences, got {counts}")
    for x in xs[1:] if k else ():
        outer, other = xs[0].lod.outer(k), x.lod.outer(k)
        assert outer is not None and other is not None
        outer.agreed(other)
    turn = torch.arange(counts[0] * len(xs), device="cpu").view(len(xs), counts[0]).t().flatten()
    whole = joined(xs)
    lod, runs = whole.lod.take(k, turn)
    own = lod.levels[0][:: len(xs)].contiguous()
    levels = [*xs[0].lod.levels[:k], own, *lod.levels[1:]]
    return whole._moved(LoD.checked("offsets", levels, xs[0].level_names), runs)


@public
def stack(xs, dim: int = 1) -> LoDTensor:
    """Stacks the rows of LoDTensors with equal LoDs along a new dim of the rows."""
    xs = all_lod(xs)
    for x in xs[1:]:
        xs[0].lod.agreed(x.lod)
    if dim in (0, -xs[0].dim() - 1):
        raise LoDValueError("expected a dim of the rows, got dim 0; see cat(along='sequences')")
    return LoDTensor(torch.stack([x.values() for x in xs], dim), xs[0].lod)
