# SPDX-License-Identifier: Apache-2.0
"""Other layouts of ragged data, in and out; docs/data.md has the table of all."""

import itertools
from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..construct.rows import of_a_table, tensor_of
from ..errors import LoDTypeError, LoDValueError, constructor, public, shown
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import sums, unmasked, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor
from .record import Record

__all__ = ["from_keys", "from_mask", "from_sparse", "to_numpy", "to_sparse"]


@constructor
def from_mask(dense: Tensor | np.ndarray, mask: Tensor | np.ndarray, *, level_names=None) -> LoDTensor:
    """One level from a padded tensor and its mask, with the padding on the right, on the left, or on both sides; a mask with
    holes is refused, while `tl.from_padded(dense, mask=mask)` leaves them out.

        >>> import torch, torch_lod as tl
        >>> dense = torch.tensor([[7, 8, 0], [0, 0, 9]])
        >>> tl.data.from_mask(dense, dense != 0).to_list()
        [[7, 8], [9]]

    Args:
        dense: (sequences, length, *element).
        mask: (sequences, length), bool or integers 0 and 1: which positions are rows.

    Returns:
        a copy of the rows, with gradient.

    Raises:
        ValueError: for a mask of another shape, of other numbers, or whose rows do not follow one another.
    """
    if not isinstance(dense, (Tensor, np.ndarray)) or dense.ndim < 2:
        raise LoDValueError(f"expected dense of shape (sequences, length, ...), got {shown(dense)}")
    if not isinstance(mask, (Tensor, np.ndarray)) or tuple(mask.shape) != tuple(dense.shape[:2]):
        raise LoDValueError(f"expected a mask of shape {tuple(dense.shape[:2])}, got {shown(mask)}")
    rows, host = tensor_of("dense", dense), tensor_of("mask", mask)
    with_memory(rows, host)
    if host.is_floating_point() or host.is_complex():
        raise LoDValueError(f"expected a bool mask or one of integers, got {host.dtype}; see mask.bool()")
    host = host.cpu()
    for i, j in ((host != 0) & (host != 1)).nonzero()[:1].tolist():
        raise LoDValueError(f"expected a mask of 0 and 1, got {int(host[i, j])} at index {[i, j]}")
    count, length = host.shape
    kept = host.bool()
    lengths = kept.sum(1)
    first = kept.byte().argmax(1) if length else lengths
    position = torch.arange(length, device="cpu")
    expected = (position >= first[:, None]) & (position < (first + lengths)[:, None])
    for i, j in (expected & ~kept).nonzero()[:1].tolist():
        raise LoDValueError(
            f"expected rows that follow one another, got a hole at index {[i, j]}; tl.from_padded(dense, mask=mask) leaves holes "
            "out"
        )
    lod = LoD.checked("lengths", [sums(lengths)], level_names)
    starts = first + torch.arange(count, device="cpu") * length
    offsets = lod.row_offsets_at(0, rows.device)
    starts = upload(torch.where(lengths > 0, starts, 0), rows.device)
    return LoDTensor(ops.gather_runs(rows.flatten(0, 1), starts, offsets, lod.rows), lod)


@constructor
def from_sparse(sparse: Tensor, *, level_names=None) -> LoDTensor:
    """One level from a sparse COO tensor (sequences, length, ...) whose entries fill every row of it from the left; dense dims
    behind are those of a row. The way back is `to_sparse`.

        >>> import torch, torch_lod as tl
        >>> sparse = torch.tensor([[7, 8, 0], [9, 0, 0]]).to_sparse()
        >>> tl.data.from_sparse(sparse).to_list()
        [[7, 8], [9]]

    Returns:
        the values of the coalesced tensor, with gradient. One sync if they are on a GPU.

    Raises:
        TypeError: for another layout. ValueError: for other sparse dims, and where an entry has none before it.
    """
    if not isinstance(sparse, Tensor) or sparse.layout != torch.sparse_coo:
        got = f"a tensor of layout {sparse.layout}" if isinstance(sparse, Tensor) else type(sparse).__name__
        raise LoDTypeError(f"expected a sparse COO tensor, got {got}; see .to_sparse()")
    if sparse.sparse_dim() != 2:
        raise LoDValueError(f"expected 2 sparse dims, sequences and positions, got {sparse.sparse_dim()}")
    whole = sparse.coalesce()
    with_memory(whole.indices(), whole.values())
    sequence, position = with_data("sparse", whole.indices()).cpu()
    count = sparse.shape[0]
    inside = (sequence >= 0) & (sequence < count) & (position >= 0)
    offsets = sums(torch.bincount(sequence[inside], minlength=count))
    expected = torch.arange(len(sequence), device="cpu") - offsets[sequence.clamp(0, max(0, count - 1))]
    for i in (~inside | (position != expected)).nonzero().flatten()[:1].tolist():
        raise LoDValueError(
            f"expected entries that fill each row from the left, got one at index {[int(sequence[i]), int(position[i])]}"
        )
    return LoDTensor(whole.values(), LoD.checked("sparse", [offsets], level_names))


@public
def to_sparse(x: LoDTensor) -> Tensor:
    """A sparse COO tensor (sequences, longest, *element), coalesced, over the rows of x, with gradient; x has one level."""
    a_lod_tensor("x", x)
    with_memory(x)
    lod = x.lod
    if lod.depth != 1:
        raise LoDValueError(f"expected 1 level, got {lod.depth}; see flatten_levels")
    indices = torch.stack([x.segment_ids(), x.position_ids()])
    size = (lod.num_sequences(), lod.max_length(), *x.shape[1:])
    return torch.sparse_coo_tensor(indices, x.values(), size, is_coalesced=True, check_invariants=False)


@overload
def from_keys(
    values: Mapping[str, Tensor | np.ndarray], *keys, level_names=None
) -> tuple[Record, list[np.ndarray]]: ...
@overload
def from_keys(values: Tensor | np.ndarray, *keys, level_names=None) -> tuple[LoDTensor, list[np.ndarray]]: ...
@constructor
def from_keys(values, *keys, level_names=None):
    """Rows grouped by keys, as in a table: those with equal keys are a sequence, in the order in which they are.

        >>> import torch, torch_lod as tl
        >>> x, names = tl.data.from_keys(torch.tensor([5, 6, 7, 8]), ["b", "a", "b", "b"], [1, 1, 2, 1])
        >>> x.to_list(), names
        ([[[6]], [[5, 8], [7]]], [array(['a', 'b'], dtype='<U1'), array([1, 1, 2])])
        >>> columns = {"price": torch.tensor([5.0, 6.0, 7.0]), "item": torch.tensor([1, 2, 3])}
        >>> tl.data.from_keys(columns, ["b", "a", "b"])[0]["item"].to_list()
        [[2], [1, 3]]

    Args:
        values: (rows, *element); or columns by name, a dict of such, which are sorted once and get one LoD.
        keys: for each level, outermost first, a key for each row: an array, a list, a column of pandas. Numbers of several
            types are compared as Python compares them, without rounding.

    Returns:
        a copy of the rows, with gradient, or a `Record` of those of every column; and for each level the keys of its
        sequences, in ascending order.

    Raises:
        ValueError: for no keys, keys of another number than rows, keys that are missing (None, NaN, NaT, pandas.NA), times
            beyond the range of the finest unit among them.
        TypeError: for keys that cannot be ordered.
    """
    if not isinstance(values, Mapping):
        rows = tensor_of("values", values)
        order, lod, found = _sorted_by(keys, _with_rows("values", rows, keys), level_names)
        return _ordered(rows, order, lod), found
    columns = {name: tensor_of(f"values[{name!r}]", values[name]) for name in values.keys()}
    if not columns:
        raise LoDValueError("expected values of at least 1 column, got none")
    counts = {name: _with_rows(f"values[{name!r}]", rows, keys) for name, rows in columns.items()}
    (first, count), *others = counts.items()
    for name, other in others:
        if other != count:
            raise LoDValueError(
                f"expected columns of equally many rows, got {count} in {first!r} and {other} in {name!r}"
            )
    order, lod, found = _sorted_by(keys, count, level_names)
    return Record({name: _ordered(rows, order, lod) for name, rows in columns.items()}), found


def _with_rows(what: str, rows: Tensor, keys: tuple) -> int:
    """The number of rows."""
    with_memory(rows)
    if rows.dim() == 0 or not keys:
        raise LoDValueError(
            f"expected {what} with rows and at least 1 key for each, got {shown(rows)} and {len(keys)} keys"
        )
    return rows.shape[0]


def _ordered(rows: Tensor, order: Tensor, lod: LoD) -> LoDTensor:
    return LoDTensor(ops.gather_rows(rows, upload(order, rows.device)), lod)


def _sorted_by(keys: tuple, rows: int, level_names) -> tuple[Tensor, LoD, list[np.ndarray]]:
    """The rows in the order of their keys, how the keys group them, and for each level the keys of its sequences."""
    distinct_keys, ranks = zip(*(_ranked(f"keys[{k}]", key, rows) for k, key in enumerate(keys)))
    order = np.lexsort(ranks[::-1])
    lod, starts = cut_by([np.diff(rank[order], prepend=-1) != 0 for rank in ranks], level_names)
    found = [distinct[rank[order[at]]] for rank, distinct, at in zip(ranks, distinct_keys, starts)]
    return torch.from_numpy(order), lod, found


def cut_by(flags: list[np.ndarray], level_names) -> tuple[LoD, list[np.ndarray]]:
    """The structure of rows with flags of where sequences of each level begin, and the first row of every sequence. Where one
    begins at a level, one begins at all levels below."""
    rows = len(flags[0])
    starts = [np.flatnonzero(new) for new in itertools.accumulate(flags, np.logical_or)]
    levels = []
    for outer, inner in itertools.zip_longest(starts, starts[1:]):
        # of every sequence, which of the next level, or which row, is its first
        at = outer if inner is None else np.searchsorted(inner, outer)
        levels.append(np.append(at, rows if inner is None else len(inner)))
    return LoD.parsed_offsets("keys", levels, level_names), starts


def _ranked(what: str, given, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of a column, and for every row which of them it has."""
    column = key_column(what, given)
    if len(column) != rows:
        raise LoDValueError(f"expected {what} with {rows} keys, one for each row, got shape {column.shape}")
    _check_units(what, given if isinstance(given, (list, tuple)) else column)
    missing = column != column if column.dtype != object else np.array([_missing(v) for v in column], bool)
    for i in np.flatnonzero(missing)[:1]:
        raise LoDValueError(f"expected a key for each row in {what}, got {column[i]!r} at index {i}")
    try:
        distinct, rank = np.unique(column, return_inverse=True)
    except TypeError as error:
        raise LoDTypeError(f"expected {what} that can be ordered, got {error}") from None
    return distinct, rank.reshape(-1)


def key_column(what: str, given) -> np.ndarray:
    """Keys as an array with one dim, in which each is what it was given as."""
    if isinstance(given, Tensor):
        with_memory(given)
        given = with_data(what, given.detach()).cpu().numpy()
    unmasked(what, given)
    try:
        column = np.asarray(given)
        if isinstance(given, (list, tuple)):
            column = _unchanged(column, [_number(key) for key in given])
        elif column.dtype == object and column.ndim == 1:
            column = _unchanged(column, [_number(key) for key in column])
    except (TypeError, ValueError) as error:
        raise LoDTypeError(f"expected {what} as an array or a list, got {type(given).__name__}: {error}") from None
    if column.ndim != 1:
        raise LoDValueError(f"expected {what} with one key for each row, got shape {column.shape}{of_a_table(given)}")
    return column


def _number(key):
    """A number of numpy's or torch's as one of Python's, which are compared without rounding; anything else as it is."""
    if key is np.ma.masked or isinstance(key, np.timedelta64):  # a number of numpy's as well, without its unit
        return key
    no_dims = isinstance(key, (np.ndarray, Tensor)) and key.ndim == 0
    return key.item() if no_dims or isinstance(key, (np.number, np.bool_)) else key


def _unchanged(column: np.ndarray, keys: list) -> np.ndarray:
    """The column that numpy made of keys, or one of objects where it made others of some: texts of numbers, rounded numbers."""
    if column.dtype == object or (
        column.dtype.kind in "USfc"
        and any(a == a and (a != key or key is np.ma.masked) for a, key in zip(column.tolist(), keys))
    ):
        return np.array(keys, dtype=object)
    return column


def _check_units(what: str, keys: Sequence | np.ndarray) -> None:
    """numpy compares times in the finer of their units, and those that are beyond its range there become others."""
    if isinstance(keys, np.ndarray) and keys.dtype != object:
        return
    for kind in (np.datetime64, np.timedelta64):
        times = {i: key for i, key in enumerate(keys) if isinstance(key, kind)}
        finest = np.result_type(*{key.dtype for key in times.values()}) if times else None
        for i, key in times.items():
            if key == key and key.astype(finest).astype(key.dtype) != key:
                raise LoDValueError(f"expected {what} within the range of {finest}, got {key!r} at index {i}")


def _missing(key) -> bool:
    """None, NaN, NaT, what is masked, and pandas.NA, whose comparisons are neither true nor false."""
    if key is None or key is np.ma.masked:
        return True
    try:
        return bool(key != key)
    except (TypeError, ValueError):
        return type(key).__name__ == "NAType"


@public
def to_numpy(x: LoDTensor) -> np.ndarray:
    """Nested arrays of objects, one nesting for each level, whose innermost are arrays of rows that share the memory of x.

    `tl.batch` takes them back, and so does `tl.lod_tensor(arrays, depth=x.lod_level)`: without depth features are a level.
    """
    items = host_array(x)
    for offsets in reversed(x.lod.levels):
        ends = offsets.tolist()
        made = np.empty(len(ends) - 1, dtype=object)
        for i, (a, b) in enumerate(itertools.pairwise(ends)):
            made[i] = items[a:b]
        items = made
    return items


def host_array(x: LoDTensor) -> np.ndarray:
    """The rows as an array, which shares their memory where that is host memory."""
    a_lod_tensor("x", x)
    with_memory(x)
    values = x.values().detach()
    if values.is_meta:
        raise LoDTypeError("expected x with data, got a meta tensor")
    try:
        return values.cpu().resolve_conj().resolve_neg().numpy()
    except TypeError:
        raise LoDTypeError(f"expected a dtype that numpy has, got {values.dtype}; see x.float()") from None
