# SPDX-License-Identifier: Apache-2.0
"""Nested list columns of Arrow, and arrays of awkward: libraries that need not be there."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..construct.rows import tensor_of
from ..errors import LoDError, LoDTypeError, LoDValueError, constructor, library, public, shown
from ..structure.lod import LoD
from ..structure.validate import one_of
from ..tensor.lod_tensor import LoDTensor
from .convert import host_array
from .record import Record

__all__ = ["from_arrow", "from_awkward", "to_arrow", "to_awkward"]


@constructor
def from_arrow(
    column: Any, *, nulls: str = "refuse", copy: bool | None = None, fixed_lists: str = "dims", level_names=None
) -> Any:
    """A LoDTensor from a column of nested lists of numbers, as tables of Parquet and Feather, polars and duckdb have them.

    A level for every list of variable length; lists of fixed size below them are dims of a row. Offsets are read as lengths, 8
    bytes a sequence; rows of a column of one chunk share its memory where `copy` allows it, other columns are put together.
    Lists of structs are a `Record`, with a field for each of theirs. A table is a dict of its columns, as `LoDDataset` and
    `tl.data.save` take it: LoDTensors, and plain tensors of columns of numbers or of lists of fixed size.

    Args:
        column: a pyarrow.Array, ChunkedArray, RecordBatch or Table, or what has `__arrow_c_stream__` or `__arrow_c_array__`, such as
            a Series or a DataFrame of polars, one of pandas of types of Arrow, a relation of duckdb: lists, large lists
            or list views, of any depth, of integers, floats, bools, times or durations, which become int64 in their own unit.
        fixed_lists: "dims", or "levels": they are lists like others.
        nulls: a list that is null is refused ("refuse") or empty ("empty"). A number that is null is refused.
        copy: True: rows are copied. False: they share the memory of the column, which must not be written to: where it is a
            mapped file, that ends the process. None: they share memory that may be written to.

    Raises:
        ValueError: for nulls, and for offsets that lie: columns are validated in full.
        TypeError: for columns of anything else.
        ImportError: without pyarrow.
    """
    pa = library("pyarrow")
    one_of("nulls", nulls, "refuse", "empty")
    if copy is not None and type(copy) is not bool:
        raise LoDTypeError(f"expected copy True, False or None, got {shown(copy)}")
    one_of("fixed_lists", fixed_lists, "dims", "levels")
    column = _column(pa, column)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise LoDValueError(f"expected a valid column, got one that lies: {error!s:.200}") from None
    chunks = list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]
    how = _How(pa, nulls, copy, fixed_lists == "levels", level_names)
    if not pa.types.is_struct(column.type):
        return _read(how, chunks, column.type, False)
    _without_nulls(chunks)
    return {name: _said(name, _read, how, part, kind, True) for name, kind, part in _fields(chunks, column.type)}


class _How(NamedTuple):
    pa: Any
    nulls: str
    copy: bool | None
    all_levels: bool
    level_names: Any


def _column(pa, given):
    """A column of pyarrow; a table is one of structs."""
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return given
    if isinstance(given, (pa.Table, pa.RecordBatch)):
        return given.to_struct_array()
    try:
        if hasattr(given, "__arrow_c_stream__"):
            return pa.chunked_array(given)
        if hasattr(given, "__arrow_c_array__"):
            return pa.array(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise LoDTypeError(
            f"expected a column that Arrow can read, got {type(given).__name__}: {error!s:.200}"
        ) from None
    raise LoDTypeError(
        f"expected column as a pyarrow.Array, ChunkedArray or Table, or with __arrow_c_stream__, got {type(given).__name__}"
    )


def _fields(chunks: list, kind):
    """Name, type and chunks of every field of structs."""
    names = [kind.field(i).name for i in range(kind.num_fields)]
    parts = [chunk.flatten() for chunk in chunks]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise LoDValueError(f"expected columns of different names, got {name!r} twice")
        yield name, kind.field(i).type, [part[i] for part in parts]


def _said(name: str, function, *args):
    try:
        return function(*args)
    except LoDError as error:
        raise type(error)(f"{error} in column {name!r}") from None


def _read(how: _How, chunks: list, column, plain: bool):
    """What a column is; one without lists is `plain` only as a field of structs."""
    pa, nulls, copy = how.pa, how.nulls, how.copy
    pc = library("pyarrow.compute")
    count = sum(map(len, chunks))
    is_list = [pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view]
    is_list += [pa.types.is_fixed_size_list] if how.all_levels else []
    levels: list[np.ndarray] = []
    kind = column
    while any(is_one(kind) for is_one in is_list):
        lengths = []
        for i, chunk in enumerate(chunks):
            if chunk.null_count and nulls == "refuse":
                at = int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
                raise LoDValueError(
                    f"expected lists without nulls, got one at index {at} of chunk {i} at level {len(levels)}; pass "
                    "nulls='empty'"
                )
            found = pc.list_value_length(chunk).fill_null(0)
            lengths.append(found.to_numpy(zero_copy_only=False).astype(np.int64))
        levels.append(np.concatenate([np.empty(0, np.int64), *lengths]))
        chunks, kind = [chunk.flatten() for chunk in chunks], kind.value_type
    lod = LoD.parsed_lengths("lengths", levels, how.level_names) if levels else None
    if lod is not None and pa.types.is_struct(kind):
        _without_nulls(chunks)
        parts = {name: _said(name, _read, how, part, of, True) for name, of, part in _fields(chunks, kind)}
        for name, part in parts.items():
            if isinstance(part, LoDTensor):
                raise LoDTypeError(f"expected structs of numbers in lists, got lists in {name!r} of {column!s:.200}")
        return Record({name: LoDTensor(part, lod) for name, part in parts.items()})
    element: list[int] = []
    while pa.types.is_fixed_size_list(kind) and (levels or plain):
        element.append(kind.list_size)
        _without_nulls(chunks)
        chunks, kind = [chunk.flatten() for chunk in chunks], kind.value_type
    whole = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or whole
    if not (levels or plain) or not number:
        raise LoDTypeError(f"expected a column of {'' if plain else 'lists of '}numbers, got {column!s:.200}")
    _without_nulls(chunks)
    if whole:  # those of 32 bits are first the integers that they are
        narrow = pa.int32() if kind.bit_width == 32 else pa.int64()
        chunks, kind = [chunk.view(narrow).cast(pa.int64()) for chunk in chunks], pa.int64()
    rows = [_rows(chunk, copy) for chunk in chunks]
    if not rows:
        rows = [torch.from_numpy(np.empty(0, kind.to_pandas_dtype()))]
    values = rows[0] if len(rows) == 1 else torch.cat(rows)
    if element:
        values = values.view(count if lod is None else lod.rows, *element)
    return values if lod is None else LoDTensor(values, lod)


def _without_nulls(chunks: list) -> None:
    for i, chunk in enumerate(chunks):
        if chunk.null_count:
            at = int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
            raise LoDValueError(
                f"expected rows without nulls, got one at row {at} of chunk {i}; fill or drop them in pyarrow"
            )


def _rows(chunk, copy: bool | None) -> Tensor:
    array = chunk.to_numpy(zero_copy_only=False)
    buffer = chunk.buffers()[1]
    packed = array.dtype == bool  # in Arrow a bit each
    if packed or buffer is None or len(chunk) == 0:
        return tensor_of("rows", array)
    if copy or (copy is None and not buffer.is_mutable):
        return tensor_of("rows", array.copy())
    return torch.from_dlpack(chunk)


@public
def to_arrow(x: LoDTensor):
    """A pyarrow.LargeListArray, a nesting for every level. Rows share the memory of x, but for bools; rows of more
    dims are lists of fixed size. Level names are not kept. ImportError without pyarrow."""
    pa = library("pyarrow")
    values = _host_array(x)
    flat = values.reshape(-1)
    if flat.dtype == bool:
        found = pa.array(flat)
    else:
        found = pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])
    for dim in range(values.ndim - 1, 0, -1):
        kind = pa.list_(found.type, values.shape[dim])
        found = pa.Array.from_buffers(kind, math.prod(values.shape[:dim]), [None], children=[found])
    for offsets in reversed(x.lod.levels):
        held = pa.Array.from_buffers(pa.int64(), len(offsets), [None, pa.py_buffer(offsets.numpy().copy())])
        found = pa.LargeListArray.from_arrays(held, found)
    return found


def _host_array(x) -> np.ndarray:
    found = host_array(x)
    if found.dtype.kind == "c":
        raise LoDTypeError(f"expected integers, floats or bools, got {x.dtype}; see torch.view_as_real")
    return np.ascontiguousarray(found)


@constructor
def from_awkward(array, *, level_names=None) -> LoDTensor:
    """A LoDTensor from an awkward array of nested lists of numbers. Shares the memory of arrays that are packed and may be
    written to, copies others. ValueError for missing values, TypeError for records and strings, ImportError without awkward."""
    ak = library("awkward")
    if not isinstance(array, ak.Array):
        raise LoDTypeError(f"expected array as an awkward array, got {type(array).__name__}")
    if error := ak.validity_error(array):
        raise LoDValueError(f"expected a valid array, got one that lies: {error!s:.200}")
    layout = ak.to_layout(ak.to_packed(array))
    levels, element = [], []
    while isinstance(layout, (ak.contents.ListOffsetArray, ak.contents.RegularArray)):
        if layout.is_list and layout.parameter("__array__") in ("string", "bytestring"):
            break
        if isinstance(layout, ak.contents.RegularArray):
            element.append(layout.size)
        elif element:
            raise LoDTypeError(
                f"expected lists of variable length outside those of fixed size, got {array.type!s:.200}"
            )
        else:
            levels.append(np.asarray(layout.offsets).astype(np.int64))
        layout = layout.content
    if layout.is_option or layout.is_indexed:
        raise LoDValueError(
            "expected an array without missing values, got one with some; see awkward.fill_none, drop_none"
        )
    if not isinstance(layout, ak.contents.NumpyArray) or not levels:
        raise LoDTypeError(f"expected nested lists of numbers, got {array.type!s:.200}")
    values = tensor_of("array", np.asarray(layout.data))
    count = int(levels[-1][-1])
    values = values[: count * math.prod(element)].view(count, *element, *values.shape[1:])
    return LoDTensor(values, LoD.parsed_offsets("offsets", levels, level_names))


@public
def to_awkward(x: LoDTensor):
    """An awkward array, a list of variable length for every level. Rows share the memory of x. ImportError without
    awkward."""
    ak = library("awkward")
    layout = ak.contents.NumpyArray(_host_array(x))
    for offsets in reversed(x.lod.levels):
        layout = ak.contents.ListOffsetArray(ak.index.Index64(offsets.numpy().copy()), layout)
    return ak.Array(layout)
