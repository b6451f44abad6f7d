# SPDX-License-Identifier: Apache-2.0
"""Tables of pandas and polars: rows grouped by columns. Neither library is imported: a column says what it can do."""

import datetime
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import LoDTypeError, LoDValueError, declaring, shown
from ..tensor.construct import tensor_of
from ..tensor.lod_tensor import LoDTensor
from .convert import cut_by
from .record import Record

__all__ = ["from_frame"]

#: Nanoseconds, by the names that pandas and polars have for units of time.
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9, "m": 60 * 10**9, "min": 60 * 10**9}
_UNITS |= {"h": 3600 * 10**9, "d": 86400 * 10**9, "D": 86400 * 10**9, "w": 604800 * 10**9, "W": 604800 * 10**9}


@declaring
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
        sort_keys: sequences in the order of their keys. By default in that in which keys come first in the frame.

    Returns:
        a Record, whose `ids` are the keys of the sequences, an array for each level of keys.

    Raises:
        ValueError: for columns that are not there or twice, for missing values (None, NaT, pandas.NA, null; NaN in keys and
            in sort_by). TypeError: for columns of text or objects that are no keys. Both name the column.
    """
    columns = _columns(frame)
    levels, orders = _listed("keys", keys), _listed("sort_by", sort_by)
    session = None
    if gap is not None:
        session = levels.pop() if len(levels) > 1 and levels[-1] not in columns else "session"
        if len(orders) != 1:
            raise LoDValueError(f"expected sort_by as the column of times that gap counts in, got {shown(sort_by)}")
    for what, names in (("keys", levels), ("sort_by", orders)):
        for name in names:
            if name not in columns:
                raise LoDValueError(f"expected {what} among the columns {shown(list(columns))}, got {name!r}")
    if type(sort_keys) is not bool:
        raise LoDTypeError(f"expected sort_keys True or False, got {shown(sort_keys)}")
    fields = [name for name in columns if name not in levels]
    if not fields:
        raise LoDValueError(f"expected columns besides the keys, got {shown(list(columns))} alone")
    coded = [_codes(name, columns[name], sort_keys) for name in levels]
    times = [_numbers(name, columns[name], "sort_by", True) for name in orders]
    ranks = _ranks([codes for codes, _ in coded], [len(labels) for _, labels in coded], sort_keys)
    order = _order([*ranks, *map(_whole_times, times)])
    flags = [np.diff(rank[order], prepend=-1) != 0 for rank in ranks]
    if gap is not None:
        time = times[0][order]
        over = _over(gap, orders[0], time)
        flags.append(np.concatenate([np.ones(min(1, len(order)), bool), over]))
    lod, starts = cut_by(flags, [*levels, *([] if session is None else [session])])
    found = {}
    for name in fields:
        rows = np.take(_numbers(name, columns[name], "values"), order, axis=0)
        found[name] = LoDTensor(tensor_of(f"column {name!r}", _whole_times(rows)), lod)
    ids = [labels[codes[order[at]]] for (codes, labels), at in zip(coded, starts)]
    return Record(found)._with_ids([*ids, *([] if session is None else [None])])


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


def _complete(what: str, name: str, column) -> None:
    """ValueError where values are missing."""
    missing = np.asarray((column.is_null if hasattr(column, "is_null") else column.isna)().to_numpy(), dtype=bool)
    for i in np.flatnonzero(missing)[:1]:
        raise LoDValueError(
            f"expected {what} without missing values, got one in column {name!r} at row {i}; fill it or drop the row"
        )


def _numbers(name: str, column, what: str, ordered: bool = False) -> np.ndarray:
    """A column of numbers or times as an array; `ordered` ones have no NaN either."""
    dtype = column.dtype
    if not (isinstance(dtype, np.dtype) and dtype.kind == "f"):
        _complete(what, name, column)
    zoned = getattr(dtype, "tz", None) is not None
    array = column.to_numpy(dtype=f"datetime64[{dtype.unit}]") if zoned else column.to_numpy()
    if array.dtype.kind not in "biufcmM" or (ordered and (array.dtype.kind == "c" or array.ndim != 1)):
        kinds = sorted({type(value).__name__ for value in array.ravel()[:1000].tolist()})
        lists = array.dtype == object and any(hasattr(value, "__len__") for value in array[:1]) and "str" not in kinds
        hint = "number them (df[name].astype('category').cat.codes, polars: to_physical()), or leave the column out"
        hint = "see tl.data.from_arrow for columns of lists" if lists else hint
        raise LoDTypeError(
            f"expected {what} of numbers or times, got {' and '.join(kinds) or dtype} in column {name!r}; {hint}"
        )
    if ordered and array.dtype.kind == "f":
        for i in np.flatnonzero(np.isnan(array))[:1]:
            raise LoDValueError(f"expected {what} without NaN, got one in column {name!r} at row {i}")
    return array


def _whole_times(array: np.ndarray) -> np.ndarray:
    """Times as int64, in their unit."""
    return array.view(np.int64) if array.dtype.kind in "mM" else array


def _codes(name: str, column, sort_keys: bool) -> tuple[np.ndarray, np.ndarray]:
    """For every row which of the keys it has, and the keys: in their order, or in no certain one."""
    _complete("keys", name, column)
    try:
        if hasattr(column, "factorize"):
            codes, found = column.factorize()
            labels = np.asarray(found)
            if sort_keys:
                order = np.argsort(labels, kind="stable")
                rank = np.empty_like(order)
                rank[order] = np.arange(len(order))
                codes, labels = rank[codes], labels[order]
        else:
            if column.dtype.is_float() and column.is_nan().any():
                raise LoDValueError(f"expected keys without NaN, got one in column {name!r}")
            codes = column.rank("dense").to_numpy().astype(np.int64) - 1
            first = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
            first[codes] = np.arange(len(codes))  # any row with that key
            labels = column.gather(first).to_numpy()
    except TypeError as error:
        raise LoDTypeError(f"expected keys that can be compared, got column {name!r}: {error}") from None
    return codes.astype(np.int64, copy=False), labels


def _ranks(codes: list[np.ndarray], counts: list[int], sort_keys: bool) -> list[np.ndarray]:
    """For each level and row a number that says where its sequence stands among those of the sequence above."""
    if sort_keys:
        return codes
    found: list[np.ndarray] = []
    for own, count in zip(codes, counts):
        if found:  # a key in two sequences is two
            own = np.unique(found[-1] * count + own, return_inverse=True)[1].reshape(-1)
            count = int(own.max(initial=-1)) + 1
        first = np.zeros(count, np.int64)
        first[own[::-1]] = np.arange(len(own) - 1, -1, -1)  # of equal indices the last is written
        rank = np.empty(count, np.int64)
        rank[np.argsort(first)] = np.arange(count)
        found.append(rank[own])
    return found


def _order(by: list[np.ndarray]) -> np.ndarray:
    """The rows in the order of numbers, the first ones first, as they are where all are equal."""
    together, room = by[0], int(by[0].max(initial=0)) + 1
    for i, numbers in enumerate(by[1:], 1):
        if numbers.dtype.kind not in "biu":
            return np.lexsort([*by[i:][::-1], together])
        least = int(numbers.min(initial=0))
        wide = int(numbers.max(initial=0)) - least + 1
        if room * wide >= 2**62 or not -(2**62) < least < 2**62:
            return np.lexsort([*by[i:][::-1], together])
        together, room = together * wide + (numbers.astype(np.int64) - least), room * wide
    return np.argsort(together, kind="stable")


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
