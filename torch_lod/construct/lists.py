# SPDX-License-Identifier: Apache-2.0
"""From nested lists of numbers, arrays and tensors."""

import itertools
from array import array
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, constructor, no_memory, shown
from ..structure.lod import LoD
from ..structure.validate import an_int, with_memory
from ..tensor.lod_tensor import LoDTensor, made
from .joined import all_lod, joined, on_one_device
from .offsets import from_lengths
from .rows import of_a_table, tensor_of

__all__ = ["from_tensors", "lod_tensor"]

_DEEPEST = 1000
NUMBERS = frozenset({int, float, bool, complex})
_LEAVES = NUMBERS | {Tensor}
_STRINGS = "tl.batch(data, strings=...) makes numbers of strings"


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


@constructor
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
    if depth is not None:
        an_int("depth >= 1", depth, 1)
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


@constructor
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
    rows = _as_tensors(items, kinds)
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


def _as_tensors(items: list, kinds: set[type]) -> list[Tensor]:
    """Arrays of one shape and dtype are one tensor."""
    if kinds == {np.ndarray} and len({(a.dtype, a.shape[1:], a.ndim) for a in items}) == 1:
        return [tensor_of("tensors", np.concatenate(items) if items[0].ndim else items[0])]
    return items if kinds == {Tensor} else [tensor_of("tensors", item, _OF_NUMBERS) for item in items]
