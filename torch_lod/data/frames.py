# SPDX-License-Identifier: Apache-2.0
"""Tables of pandas and polars: rows grouped by columns. Neither library is imported: a column says what it can do."""

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..construct.rows import tensor_of
from ..errors import LoDError, LoDTypeError, LoDValueError, constructor, public, shown
from ..structure.validate import a_bool
from ..tensor.lod_tensor import LoDTensor
from .convert import cut_by, key_column
from .record import Record

__all__ = ["from_frame", "lookup"]

#: Nanoseconds, by the names that pandas and polars have for units of time.
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9, "m": 60 * 10**9, "min": 60 * 10**9}
_UNITS |= {"h": 3600 * 10**9, "d": 86400 * 10**9, "D": 86400 * 10**9, "w": 604800 * 10**9, "W": 604800 * 10**9}


@constructor
def from_frame(
    frame: Any,
    keys: str | Sequence[str],
    *,
    sort_by: str | Sequence[str] | None = None,
    gap: float | str | datetime.timedelta | np.timedelta64 | None = None,
    sort_keys: bool = False,
) -> Record:
    """The rows of a table grouped by columns: those with equal keys are a sequence, and every other column is a field.

        events = pandas.DataFrame({"user": ["b", "a", "b"], "time": [30, 20, 10], "item": [7, 8, 9]})
        record = tl.data.from_frame(events, "user", sort_by="time")
        record["item"].to_list(), record.ids["user"]    # ([[9, 7], [8]], array(['b', 'a'], dtype=object))

    Args:
        frame: a DataFrame of pandas or polars. Columns of numbers and bools keep their dtype, times and durations become
            int64 in their own unit, arrays of one size (polars) are dims of a row.
        keys: a column for each level, outermost first, which gives the level its name: numbers, strings, categories, times.
        sort_by: rows of a sequence in the order of these columns of numbers or times, equal ones as they are in the frame. None:
            all as they are in the frame.
        gap: one more level, innermost: a new sequence where `sort_by` grows by more. A number in the unit of a column of numbers; of
            a column of times "30min", "1.5h" (ns, us, ms, s, min or m, h, d, w), a timedelta of Python, numpy or pandas. The level
            is called "session", or as the last of `keys` says if that is no column.
        sort_keys: sequences in the order of their keys, categories in that of theirs. By default in that in which keys come first
            in the frame.

    Returns:
        a Record, whose `ids` are the keys of the sequences, an array for each level of keys.

    Raises:
        ValueError: for columns that are not there or twice, for missing values (None, NaT, pandas.NA, null; NaN in keys and
            in sort_by). TypeError: for columns of text or objects that are no keys. Both name the column.
    """
    columns, orders = _columns(frame), _listed("sort_by", sort_by)
    levels, session = _levels(keys, columns, gap)
    if gap is not None and len(orders) != 1:
        raise LoDValueError(f"expected sort_by as the column of times that gap counts in, got {shown(sort_by)}")
    for what, names in (("keys", levels), ("sort_by", orders)):
        for name in names:
            if name not in columns:
                index = getattr(getattr(frame, "index", None), "names", ())
                raise LoDValueError(
                    f"expected {what} among the columns {shown(list(columns))}, got {name!r}"
                    f"{'; see .reset_index()' if name in index else ''}"
                )
    a_bool("sort_keys", sort_keys, "True or False")
    fields = [name for name in columns if name not in levels]
    if not fields:
        raise LoDValueError(f"expected columns besides the keys, got {shown(list(columns))} alone")
    coded = [_codes(name, columns[name], sort_keys) for name in levels]
    times = [_numbers(name, columns[name], "sort_by", True) for name in orders]
    ranks = _ranks([codes for codes, _ in coded], [len(labels) for _, labels in coded], sort_keys)
    order = _order([*ranks, *map(_whole_times, times)])
    flags = [np.diff(rank[order], prepend=-1) != 0 for rank in ranks]
    if gap is not None:
        over = _over(gap, orders[0], times[0][order])
        flags.append(np.concatenate([np.ones(min(1, len(order)), bool), over]))
    sessions = [] if session is None else [session]
    lod, starts = cut_by(flags, [*levels, *sessions])
    found = {}
    for name in fields:
        rows = np.take(_numbers(name, columns[name], "values"), order, axis=0)
        found[name] = LoDTensor(tensor_of(f"column {name!r}", _whole_times(rows)), lod)
    ids = [labels[codes[order[at]]] for (codes, labels), at in zip(coded, starts)]
    return Record(found)._with_ids([*ids, *([None] * len(sessions))])


@public
def lookup(frame: Any, key: str, ids: Any) -> Any:
    """For each of some ids, the row of a table that has it in its column `key`: every other column is a field.

        users = pandas.DataFrame({"user": ["a", "b", "c"], "age": [31, 48, 25]})
        tl.data.lookup(users, "user", record.ids["user"])["age"]    # tensor([48, 31]), for a record of users "b" and "a"
        items = pandas.DataFrame({"item": [7, 8, 9], "price": [0.5, 2.0, 1.0]})
        tl.data.lookup(items, "item", record["item"])["price"]      # a LoDTensor, with a price for each row

    Args:
        frame: a DataFrame of pandas or polars, with columns as in `from_frame`. It may have rows that no id asks for.
        key: the column of ids, each of which has one row.
        ids: an array or a list, such as `record.ids["user"]`, or a LoDTensor of integers.

    Returns:
        by column, a plain tensor (ids, *element), as `LoDDataset` takes it beside the fields of the record; for a
        LoDTensor a Record of its LoD. On the device of ids.

    Raises:
        ValueError: for an id without a row, or with two of them; for missing values. TypeError: for columns of text or
            objects, and for ids that cannot be compared with the column. Both name the column.
    """
    columns = _columns(frame)
    if not isinstance(key, str) or key not in columns:
        raise LoDValueError(f"expected key among the columns {shown(list(columns))}, got {shown(key)}")
    if len(columns) == 1:
        raise LoDValueError(f"expected columns besides the key, got {shown(list(columns))} alone")
    _complete("keys", key, columns[key], len(columns[key]))
    wanted = key_column("ids", ids.values() if isinstance(ids, LoDTensor) else ids)
    at = _found(key, key_column(f"column {key!r}", _array(columns[key])), wanted)
    found: dict[str, Any] = {}
    for name in columns:
        if name != key:
            rows = np.take(_numbers(name, columns[name], "values"), at, axis=0)
            made = tensor_of(f"column {name!r}", _whole_times(rows))
            found[name] = made.to(ids.device) if isinstance(ids, Tensor) else made
    if isinstance(ids, LoDTensor):
        return Record({name: LoDTensor(rows, ids.lod) for name, rows in found.items()})
    return found


def _found(name: str, keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each id that is wanted, which of the keys it is."""
    kinds = {keys.dtype.kind, wanted.dtype.kind}
    try:
        if keys.dtype != wanted.dtype and kinds & {"m", "M"}:
            raise TypeError(f"{wanted.dtype} for {keys.dtype}")
        if keys.dtype != wanted.dtype and kinds != {"i"} and kinds != {"u"}:
            keys, wanted = keys.astype(object), wanted.astype(object)  # compared without rounding, as Python does
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        for i in np.flatnonzero(ordered[1:] == ordered[:-1])[:1]:
            raise LoDValueError(
                f"expected one row for each key, got {ordered[i : i + 1].tolist()[0]!r} at rows {order[i]} and "
                f"{order[i + 1]} in column {name!r}"
            )
        at = np.searchsorted(ordered, wanted)
    except TypeError as error:
        raise LoDTypeError(f"expected ids that can be compared with column {name!r}, got {error!s:.100}") from None
    there = at < len(keys)
    there[there] = ordered[at[there]] == wanted[there]
    for i in np.flatnonzero(~there)[:1]:
        raise LoDValueError(
            f"expected a row for each id in column {name!r}, got none for {wanted[i : i + 1].tolist()[0]!r} at index {i}"
        )
    return order[at]


def _columns(frame) -> dict[str, Any]:
    """The columns by name."""
    if not hasattr(frame, "shape") or not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        hint = "; see .collect()" if hasattr(frame, "collect") else ""
        raise LoDTypeError(f"expected frame as a DataFrame of pandas or polars, got {type(frame).__name__}{hint}")
    names = list(frame.columns)
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise LoDTypeError(f"expected names of columns as strings, got {shown(name)}; see df.columns.map(str)")
        if name in names[:i]:
            raise LoDValueError(f"expected columns of different names, got {name!r} twice")
    return {name: frame[name] for name in names}


def _listed(what: str, names) -> list[str]:
    given = [names] if isinstance(names, str) else list(names) if isinstance(names, (list, tuple)) else None
    if given is None and names is None and what == "sort_by":
        return []
    if given is None or not all(isinstance(name, str) for name in given):
        raise LoDTypeError(f"expected {what} as a column or a list of columns, got {shown(names)}")
    if (not given and what == "keys") or len(set(given)) < len(given):
        raise LoDValueError(f"expected {what} of at least 1 column, all different, got {shown(names)}")
    return given


def _levels(keys, columns, gap) -> tuple[list[str], str | None]:
    """The columns of keys, and the name of the level of gaps."""
    levels = _listed("keys", keys)
    if gap is None:
        return levels, None
    session = levels.pop() if len(levels) > 1 and levels[-1] not in columns else "session"
    if session in levels:
        raise LoDValueError(
            f"expected a name for the level of gaps, as the last of keys, since column {session!r} is a key"
        )
    return levels, session


def _complete(what: str, name: str, column, rows: int) -> None:
    """ValueError where values are missing; a column of arrays is given value by value."""
    missing = np.asarray((column.is_null if hasattr(column, "is_null") else column.isna)().to_numpy(), dtype=bool)
    for i in np.flatnonzero(missing)[:1]:
        raise LoDValueError(
            f"expected {what} without missing values, got one in column {name!r} at row {i * rows // len(missing)}; fill it or "
            "drop the row"
        )


def _array(column) -> np.ndarray:
    """What the library makes of a column; times of Arrow or with a zone would become objects."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) or getattr(dtype, "kind", "") not in ("m", "M"):
        return column.to_numpy()
    days = str(dtype).startswith("date32")
    return column.to_numpy(
        dtype="datetime64[D]" if days else getattr(dtype, "numpy_dtype", None) or f"datetime64[{dtype.unit}]"
    )


#: By the types of the values of a column that is none of numbers, what makes it one.
_HINTS = {
    "lists": "see tl.data.from_arrow for columns of lists",
    "fields": "make columns of its fields, as frame.unnest of polars does",
    "date datetime time Timestamp": "see pandas.to_datetime",
    "int float bool Decimal": "see .astype(float), or polars .cast()",
    "": "number them (df[name].astype('category').cat.codes, polars: to_physical()), or leave the column out",
}


def _numbers(name: str, column, what: str, ordered: bool = False) -> np.ndarray:
    """A column of numbers or times as an array; `ordered` ones have no NaN either."""
    dtype = column.dtype
    if not (isinstance(dtype, np.dtype) and dtype.kind == "f"):
        _complete(what, name, column, len(column))
    try:
        array = _array(column)
    except Exception as error:  # of the library
        raise LoDTypeError(
            f"expected {what} of numbers or times, got {dtype} in column {name!r}: {error!s:.100}"
        ) from None
    a_struct = hasattr(dtype, "to_schema")
    if a_struct or array.dtype.kind not in "biufcmM" or (ordered and (array.dtype.kind == "c" or array.ndim != 1)):
        raise _no_numbers(name, array, what, "fields" if a_struct else "", ordered)
    if array.ndim > 1 and array.size:  # arrays, whose values may be missing
        flat = column
        for _ in range(array.ndim - 1):
            flat = flat.explode()
        _complete(what, name, flat, len(column))
    if ordered and array.dtype.kind == "f":
        for i in np.flatnonzero(np.isnan(array))[:1]:
            raise LoDValueError(f"expected {what} without NaN, got one in column {name!r} at row {i}")
    return array


def _no_numbers(name: str, array: np.ndarray, what: str, kind: str, ordered: bool) -> LoDTypeError:
    """The error for a column of something else, by its values."""
    if not kind and array.dtype == object and any(isinstance(value, (list, tuple, np.ndarray)) for value in array[:1]):
        kind = "lists"
    kinds = {kind} if kind else {type(value).__name__ for value in array.ravel()[:1000].tolist()}
    hint = next(hint for names, hint in _HINTS.items() if not names or kinds <= set(names.split()))
    if ordered and kinds == {"str"}:
        hint = "see pandas.to_datetime, polars .str.to_datetime()"
    got = " and ".join(sorted(kinds)) or array.dtype
    return LoDTypeError(f"expected {what} of numbers or times, got {got} in column {name!r}; {hint}")


def _whole_times(array: np.ndarray) -> np.ndarray:
    """Times as int64, in their unit."""
    return array.view(np.int64) if array.dtype.kind in "mM" else array


def _codes(name: str, column, sort_keys: bool) -> tuple[np.ndarray, np.ndarray]:
    """For every row which of the keys it has, and the keys: sorted, or in the order in which they come first."""
    _complete("keys", name, column, len(column))
    try:
        if hasattr(column, "factorize"):
            codes, found = column.factorize()
        else:
            if column.dtype.is_nested():
                raise TypeError(f"its values are of {column.dtype}")
            if column.dtype.is_float() and column.is_nan().any():
                raise LoDValueError(f"expected keys without NaN, got one in column {name!r}")
            found = column.unique(maintain_order=True)
            codes = column.replace_strict(found, np.arange(len(found))).to_numpy() if len(found) else np.empty(0)
        codes, labels = codes.astype(np.int64, copy=False), _array(found) if hasattr(found, "to_numpy") else found
        if sort_keys:  # as the library does: categories have an order of their own
            order = found.arg_sort().to_numpy() if hasattr(found, "arg_sort") else found.argsort(kind="stable")
            codes, labels = _inverse(order.astype(np.int64, copy=False))[codes], labels[order]
    except LoDError:
        raise
    except Exception as error:  # of the library, too
        raise LoDTypeError(f"expected keys that can be compared, got column {name!r}: {error!s:.100}") from None
    return codes, labels


def _inverse(order: np.ndarray) -> np.ndarray:
    """Where a permutation puts each index."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order))
    return found


def _ranks(codes: list[np.ndarray], counts: list[int], sort_keys: bool) -> list[np.ndarray]:
    """For each level and row a number that says where its sequence stands among those of the sequence above."""
    if sort_keys:
        return codes
    found = codes[:1]
    for own, count in zip(codes[1:], counts[1:]):  # a key in two sequences is two
        own = np.unique(found[-1] * count + own, return_inverse=True)[1].reshape(-1)
        first = np.zeros(int(own.max(initial=-1)) + 1, np.int64)
        first[own[::-1]] = np.arange(len(own) - 1, -1, -1)  # of equal indices the last is written
        found.append(_inverse(np.argsort(first))[own])
    return found


def _order(by: list[np.ndarray]) -> np.ndarray:
    """The rows in the order of numbers, the first ones first, as they are where all are equal."""
    order = np.arange(len(by[0]))
    for numbers in reversed(by):
        keys = torch.from_numpy(_as_ordered(numbers).take(order))
        order = order.take(keys.sort(stable=True).indices.numpy())
    return order


def _as_ordered(numbers: np.ndarray) -> np.ndarray:
    """int64 in the order of the numbers, without NaN, which sort in a tenth of the time of floats."""
    if numbers.dtype.kind == "f":
        numbers = numbers + numbers.dtype.type(0)  # -0.0 is 0.0
        if numbers.itemsize > 8:
            return np.unique(numbers, return_inverse=True)[1].reshape(-1)
        bits = numbers.astype(np.float64).view(np.int64)
        return bits ^ ((bits >> 63) & (2**63 - 1))  # of negative floats the larger bits are the smaller number
    if numbers.dtype == np.uint64:
        return (numbers ^ np.uint64(2**63)).view(np.int64)
    return numbers.astype(np.int64, copy=False)


def _over(gap, name: str, time: np.ndarray) -> np.ndarray:
    """Between which rows the time grows by more than the gap; it may decrease from one sequence to the next."""
    of_time = time.dtype.kind in "mM"
    most: Any = _nanoseconds(gap) if of_time else gap
    number = isinstance(gap, (int, float, np.integer, np.floating)) and not isinstance(gap, bool)
    if most is None or not (of_time or number):
        wanted = "a duration such as '30min'" if of_time else "a number in its unit"
        raise LoDTypeError(f"expected gap as {wanted}, since column {name!r} is of {time.dtype}, got {shown(gap)}")
    if not most >= 0:
        raise LoDValueError(f"expected gap >= 0, got {shown(gap)}")
    later, before = time[1:], time[:-1]
    if of_time:
        unit, count = np.datetime_data(time.dtype)
        most = most // (_UNITS[unit] * count)
    if time.dtype.kind == "f":
        grown = later - before
    else:  # of 64 bits without a sign: a difference may not fit into those with one
        grown = _whole_times(later).astype(np.uint64) - _whole_times(before).astype(np.uint64)
    return (later >= before) & (grown > most)  # what decreases is another sequence


def _nanoseconds(gap) -> int | None:
    """A duration."""
    if isinstance(gap, str):
        said = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", gap)
        return None if said is None or said[2] not in _UNITS else math.floor(float(said[1]) * _UNITS[said[2]])
    gap = gap.to_timedelta64() if hasattr(gap, "to_timedelta64") else gap
    if isinstance(gap, datetime.timedelta):
        return (gap.days * 86400 + gap.seconds) * 10**9 + gap.microseconds * 1000
    if not isinstance(gap, np.timedelta64) or np.isnat(gap):
        return None
    unit, count = np.datetime_data(gap.dtype)
    return int(gap.astype(np.int64)) * count * _UNITS[unit] if unit in _UNITS else None
