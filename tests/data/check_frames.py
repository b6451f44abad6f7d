# SPDX-License-Identifier: Apache-2.0
"""tl.data.from_frame beside a loop over groups, with pandas and polars: `make formats`."""

import contextlib
import datetime
import io
import itertools
import re
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import programs

from_frame = tl.data.from_frame
DRAW = np.random.default_rng(0)


def events(rows, kind):
    """Unsorted, with equal times and keys of every kind."""
    keys = {
        "int": DRAW.integers(-3, 4, rows),
        "str": DRAW.choice(["x", "a", "mm"], rows),
        "float": DRAW.choice([0.5, -1.0, 2.0], rows),
        "bool": DRAW.integers(0, 2, rows) > 0,
        "day": np.array("2026-03-01", "datetime64[D]").astype("datetime64[us]")
        + DRAW.integers(0, 3, rows) * np.timedelta64(1, "D"),
    }
    keys["category"] = keys["str"]
    return {
        "user": keys[kind],
        "time": DRAW.integers(0, 30, rows) * 60 + DRAW.integers(0, 2, rows),
        "visit": DRAW.integers(0, 3, rows),
        "price": DRAW.random(rows).astype(np.float32),
        "flag": DRAW.integers(0, 2, rows) > 0,
    }


def frame_of(library, columns, category=False):
    if library == "pandas":
        frame = pd.DataFrame(columns)
        return frame.astype({"user": "category"}) if category else frame
    frame = pl.DataFrame(columns)
    return frame.with_columns(pl.col("user").cast(pl.Categorical)) if category else frame


def grouped(columns, keys, sort_by, gap, sort_keys):
    """Row numbers in nested dicts of lists, by loops; with a gap the innermost lists are cut."""
    tree: dict = {}
    rows = range(len(columns["user"]))
    for row in rows:
        inner = tree
        for key in keys:
            inner = inner.setdefault(columns[key][row], {})
        inner.setdefault("rows", []).append(row)

    def lists(inner):
        if "rows" not in inner:
            return [lists(inner[key]) for key in (sorted(inner) if sort_keys else inner)]
        found = inner["rows"]
        if sort_by is not None:
            found = sorted(found, key=lambda i: [columns[name][i] for name in sort_by])
        if gap is None:
            return found
        cut = [[found[0]]]
        for before, row in itertools.pairwise(found):
            if columns[sort_by[0]][row] - columns[sort_by[0]][before] > gap:
                cut.append([])
            cut[-1].append(row)
        return cut

    def names(inner, depth):
        order = sorted(inner) if sort_keys else list(inner)
        return order if depth == 0 else [name for key in order for name in names(inner[key], depth - 1)]

    return lists(tree), [names(tree, k) for k in range(len(keys))]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", ["int", "str", "float", "bool", "day", "category"])
@pytest.mark.parametrize("sort_keys", [False, True])
def test_groups_are_those_of_a_loop(library, kind, sort_keys):
    for rows in (1, 2, 7, 60):
        columns = events(rows, kind)
        frame = frame_of(library, {**columns, "row": np.arange(rows)}, kind == "category")
        for keys in (["user"], ["visit", "user"], ["user", "visit", "flag"]):
            for sort_by in (None, ["time"], ["time", "price"]):
                for gap in (None, 60, 119.5) if sort_by == ["time"] else (None,):
                    found = from_frame(frame, keys, sort_by=sort_by, gap=gap, sort_keys=sort_keys)
                    expected, names = grouped(columns, keys, sort_by, gap, sort_keys)
                    assert found["row"].to_list() == expected
                    assert found.lod.level_names == (*keys, *["session"] * (gap is not None))
                    assert set(found) == {"row", *columns} - set(keys)
                    assert [list(found.ids[key]) for key in keys] == names
                    order = found["row"].values().numpy()
                    for name in set(found) - {"row"}:
                        assert np.array_equal(found[name].values().numpy(), columns[name][order])
                        assert found[name].values().numpy().dtype == columns[name].dtype
    for frame in (frame_of(library, events(0, kind)),):
        found = from_frame(frame, ["user", "visit"], sort_by="time", gap=3, sort_keys=sort_keys)
        assert found.lod.to_lengths() == [[], [], []] and [len(ids) for ids in found.ids.values()] == [0, 0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_groups_are_those_of_the_library(library):
    columns = events(1000, "int")
    frame = frame_of(library, columns)
    found = from_frame(frame, "user", sort_by=["time", "price"])
    if library == "pandas":
        parts = frame.sort_values(["time", "price"], kind="stable").groupby("user", sort=False)
        parts = {key: part["price"].to_numpy() for key, part in parts}
    else:
        parts = frame.sort("time", "price", maintain_order=True).partition_by("user", as_dict=True)
        parts = {key: part["price"].to_numpy() for (key,), part in parts.items()}
    assert len(parts) == len(found.seq)
    for key, rows in zip(found.ids["user"], found["price"].sequences()):
        assert np.array_equal(rows.numpy(), parts[key])


TIMES = ["2026-01-01 10:00", "2026-01-01 09:00", "2026-01-01 10:31", "2026-01-01 10:30", "2026-01-02 10:30"]


def timed(library, unit="us", zone=None):
    times = [datetime.datetime.fromisoformat(text) for text in TIMES]
    if library == "pandas":
        series = pd.Series(pd.to_datetime(times)).dt.as_unit(unit)
        return pd.DataFrame({"user": list("abaaa"), "time": series.dt.tz_localize(zone) if zone else series})
    series = pl.Series(times).cast(pl.Datetime(unit))
    series = series.dt.replace_time_zone(zone) if zone else series
    return pl.DataFrame({"user": list("abaaa"), "time": series})


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_and_their_gaps(library, unit, zone):
    frame = timed(library, unit, zone)
    minutes = datetime.timedelta(minutes=30)
    for gap in ("30min", "30m", "0.5h", "1800s", "1800000ms", minutes, np.timedelta64(30, "m"), pd.Timedelta(minutes)):
        record = from_frame(frame, ["user", "visit"], sort_by="time", gap=gap)
        assert record.lod.level_names == ("user", "visit") and record.lod.to_lengths() == [[2, 1], [3, 1, 1]]
    for gap in ("29min", "29.99m", np.timedelta64(1799, "s")):
        assert from_frame(frame, "user", sort_by="time", gap=gap).lod.to_lengths() == [[3, 1], [1, 2, 1, 1]]
    found = from_frame(frame, "user", sort_by="time")["time"]
    local = np.array(TIMES, f"datetime64[{unit}]") - (np.timedelta64(1, "h") if zone else 0)
    assert found.dtype == torch.int64
    assert found.seq[0].tolist() == sorted(local.view(np.int64)[[0, 2, 3, 4]].tolist())
    with pytest.raises(
        TypeError, match=r"expected gap as a duration such as '30min', since column 'time' is of datetime64"
    ):
        from_frame(frame, "user", sort_by="time", gap=30)


def test_dates_durations_and_columns_of_arrow():
    frame = pl.DataFrame({"user": [1, 1, 1], "day": [datetime.date(2026, 1, d) for d in (9, 1, 2)]})
    found = from_frame(frame, "user", sort_by="day", gap="1d")
    assert found["day"].to_list() == [[[20454, 20455], [20462]]]
    frame = pd.DataFrame({"user": [1, 1, 1], "since": pd.to_timedelta(["90s", "0s", "30s"])})
    assert from_frame(frame, "user", sort_by="since", gap="30s").lod.to_lengths() == [[2], [2, 1]]
    frame = pd.DataFrame({"user": pd.Series(["b", "a", "b"], dtype="string[pyarrow]"), "x": pd.Series([1, 2, 3])})
    for kind in ("int64[pyarrow]", "Int64", "float64[pyarrow]", "Float32"):
        found = from_frame(frame.astype({"x": kind}), "user")
        assert found["x"].to_list() == [[1, 3], [2]] and found.ids["user"].tolist() == ["b", "a"]
        assert found["x"].is_floating_point() == ("loat" in kind)
    vectors = pl.DataFrame({"user": [1, 2, 1], "v": pl.Series([[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.Int16, 2))})
    assert from_frame(vectors, "user")["v"].to_list() == [[[1, 2], [5, 6]], [[3, 4]]]


SIZES = ["small", "large", "medium", "small"]
ORDER = ["small", "medium", "large"]


@pytest.mark.parametrize(
    "column",
    [
        pd.Categorical(SIZES, categories=["huge", *ORDER]),
        pd.Categorical(SIZES, categories=ORDER, ordered=True),
        pl.Series(SIZES, dtype=pl.Enum(["huge", *ORDER])),
    ],
    ids=["categories", "ordered", "enum"],
)
def test_categories_have_an_order_of_their_own(column):
    kind = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    frame = kind({"size": column, "row": range(4)})
    record = from_frame(frame, "size", sort_keys=True)
    assert list(record.ids["size"]) == ORDER and record["row"].to_list() == [[0, 3], [2], [1]]
    theirs = (
        frame.sort("size", maintain_order=True) if kind is pl.DataFrame else frame.sort_values("size", kind="stable")
    )
    assert record["row"].values().tolist() == theirs["row"].to_list()


def test_times_of_arrow_in_pandas():
    times = pd.Series(pd.to_datetime(["2026-01-02 00:00", "2026-01-01 23:00"]))
    zoned = times.dt.tz_localize("Europe/Berlin")
    micro = (times.astype("int64") // (1000 if times.dtype == "datetime64[ns]" else 1)).tolist()
    for column, expected in (
        (times.astype("timestamp[us][pyarrow]"), micro),
        (zoned.astype("timestamp[us, tz=Europe/Berlin][pyarrow]"), [t - 3600 * 10**6 for t in micro]),
        (zoned.dt.as_unit("us"), [t - 3600 * 10**6 for t in micro]),
        (times.dt.date.astype("date32[pyarrow]"), [20455, 20454]),
        ((times - times[1]).astype("duration[ms][pyarrow]"), [3600_000, 0]),
    ):
        record = from_frame(pd.DataFrame({"k": [1, 1], "t": column}), "k", sort_by="t")
        assert record["t"].to_list() == [expected[::-1]], column.dtype


MISSING = {
    "pandas None": pd.DataFrame({"k": ["a", None], "x": [1, 2]}),
    "pandas NaN": pd.DataFrame({"k": [1.0, np.nan], "x": [1, 2]}),
    "pandas NaT": pd.DataFrame({"k": pd.to_datetime(["2026-01-01", None]), "x": [1, 2]}),
    "pandas category": pd.DataFrame({"k": pd.Categorical(["a", None]), "x": [1, 2]}),
    "pandas NA": pd.DataFrame({"k": pd.Series([1, pd.NA], dtype="Int64"), "x": [1, 2]}),
    "polars null": pl.DataFrame({"k": [1, None], "x": [1, 2]}),
    "polars text": pl.DataFrame({"k": ["a", None], "x": [1, 2]}),
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_values_are_refused_with_their_column(name):
    frame = MISSING[name]
    with pytest.raises(
        ValueError, match="from_frame: expected keys without missing values, got one in column 'k' at row 1"
    ):
        from_frame(frame, "k")
    number = name not in ("pandas None", "pandas category", "polars text")
    if number:
        with pytest.raises(
            ValueError, match=r"expected sort_by without (missing values|NaN), got one in column 'k' at row 1"
        ):
            from_frame(frame, "x", sort_by="k")
    if number and name != "pandas NaN":  # NaN is a number like others
        with pytest.raises(ValueError, match="expected values without missing values, got one in column 'k' at row 1"):
            from_frame(frame, "x")
    assert from_frame(MISSING["pandas NaN"], "x")["k"].seq[1].isnan().all()
    with pytest.raises(ValueError, match="expected keys without NaN, got one in column 'k'"):
        from_frame(pl.DataFrame({"k": [1.0, float("nan")], "x": [1, 2]}), "k")


FRAME = pd.DataFrame({"user": ["a", "b"], "time": [1, 2], "name": ["p", "q"]})


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: from_frame(FRAME, "user"), TypeError, "expected values of numbers or times, got str in column 'name'"),
        (lambda: from_frame(pl.from_pandas(FRAME), "user"), TypeError, "got str in column 'name'"),
        (
            lambda: from_frame(pd.DataFrame({"k": [1, 2], "x": [1, "a"]}), "k"),
            TypeError,
            "got int and str in column 'x'",
        ),
        (
            lambda: from_frame(pl.DataFrame({"k": [1], "x": [[1, 2]]}), "k"),
            TypeError,
            "in column 'x'; see tl.data.from_arrow for columns of lists",
        ),
        (lambda: from_frame(FRAME, "user", sort_by="name"), TypeError, "expected sort_by of numbers or times, got str"),
        (
            lambda: from_frame(pd.DataFrame({"k": [[1], [2]], "x": [1, 2]}), "k"),
            TypeError,
            "expected keys that can be compared, got column 'k'",
        ),
        (
            lambda: from_frame(pd.DataFrame({"k": [1, "a"], "x": [1, 2]}), "k", sort_keys=True),
            TypeError,
            "expected keys that can be compared, got column 'k'",
        ),
        *(
            (lambda kind=kind, x=x: from_frame(kind({"k": [1, 2], "x": x}), "k"), error, said)
            for kind, x, error, said in (
                (pd.DataFrame, [Decimal(1), Decimal(2)], TypeError, "got Decimal in column 'x'; see .astype(float)"),
                (pl.DataFrame, [Decimal(1), Decimal(2)], TypeError, "got Decimal in column 'x'; see .astype(float)"),
                (pd.DataFrame, [datetime.date(2026, 1, 2)] * 2, TypeError, "column 'x'; see pandas.to_datetime"),
                (pd.DataFrame, [b"a", b"b"], TypeError, "got bytes in column 'x'; number them"),
                (
                    pl.DataFrame,
                    [{"a": 1}] * 2,
                    TypeError,
                    "got fields in column 'x'; make columns of its fields, as fr",
                ),
                (
                    pl.DataFrame,
                    pl.Series([1, 2], dtype=pl.Int128),
                    TypeError,
                    "got Int128 in column 'x': cannot convert",
                ),
                (
                    pl.DataFrame,
                    pl.Series([[1, 2], [3, None]], dtype=pl.Array(pl.Int64, 2)),
                    ValueError,
                    "expected values without missing values, got one in column 'x' at row 1",
                ),
            )
        ),
        (
            lambda: from_frame(FRAME[["user", "time"]], "user", sort_by="user"),
            TypeError,
            "got str in column 'user'; see pandas.to_datetime, polars .str.to_datetime()",
        ),
        *(
            (
                lambda x=x: from_frame(pl.DataFrame({"k": [x, x], "x": [1, 2]}), "k"),
                TypeError,
                "expected keys that can be compared, got column 'k': its values are of ",
            )
            for x in ([1], {"a": 1})
        ),
        (
            lambda: from_frame(FRAME.set_index("user"), "user"),
            ValueError,
            "expected keys among the columns ['time', 'name'], got 'user'; see .reset_index()",
        ),
        (
            lambda: from_frame(pd.DataFrame([[1, 2, 3]], columns=["k", "x", "x"]), "k"),
            ValueError,
            "expected columns of different names, got 'x' twice",
        ),
        (lambda: from_frame(pd.DataFrame([[1, 2]]), "k"), TypeError, "expected names of columns as strings, got 0"),
        (
            lambda: from_frame(FRAME, "id"),
            ValueError,
            "expected keys among the columns ['user', 'time', 'name'], got 'id'",
        ),
        (lambda: from_frame(FRAME, "user", sort_by="t"), ValueError, "expected sort_by among the columns"),
        (lambda: from_frame(FRAME, []), ValueError, "expected keys of at least 1 column, all different, got []"),
        (lambda: from_frame(FRAME, ["user", "user"]), ValueError, "expected keys of at least 1 column, all different"),
        (lambda: from_frame(FRAME, 3), TypeError, "expected keys as a column or a list of columns, got 3"),
        (
            lambda: from_frame(FRAME, "user", gap=3),
            ValueError,
            "expected sort_by as the column of times that gap counts in",
        ),
        (
            lambda: from_frame(FRAME[["user", "time"]], "user", sort_by="time", gap="30min"),
            TypeError,
            "expected gap as a number in its unit, since column 'time' is of int64, got '30min'",
        ),
        (
            lambda: from_frame(timed("pandas"), "user", sort_by="time", gap="30 moons"),
            TypeError,
            "expected gap as a duration such as '30min', since column 'time' is of datetime64[us], got '30 moons'",
        ),
        (
            lambda: from_frame(FRAME[["user", "time"]], "user", sort_by="time", gap=-1),
            ValueError,
            "expected gap >= 0, got -1",
        ),
        (
            lambda: from_frame(FRAME[["user", "time"]], "user", sort_by="time", gap=True),
            TypeError,
            "expected gap as a number",
        ),
        (
            lambda: from_frame(FRAME[["user"]], "user"),
            ValueError,
            "expected columns besides the keys, got ['user'] alone",
        ),
        (lambda: from_frame(FRAME, "user", sort_keys=1), TypeError, "expected sort_keys True or False, got 1"),
        (lambda: from_frame([1], "user"), TypeError, "expected frame as a DataFrame of pandas or polars, got list"),
        (lambda: from_frame(pl.from_pandas(FRAME).lazy(), "user"), TypeError, "got LazyFrame; see .collect()"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value).startswith("from_frame: ") and said in str(raised.value)
    assert isinstance(raised.value, tl.LoDError)


def test_differences_that_need_all_bits():
    ends = np.array([-(2**63), 2**63 - 1, 0], np.int64)
    frame = pd.DataFrame({"user": [1, 1, 1], "time": ends})
    assert from_frame(frame, "user", sort_by="time", gap=2**63 - 1).lod.to_lengths() == [[2], [1, 2]]
    frame["time"] = ends.view(np.uint64)
    assert from_frame(frame, "user", sort_by="time", gap=2**63 - 1)["time"].to_list() == [[[0, 2**63 - 1, 2**63]]]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("title", ["Sessions", "Interest"])
def test_programs_equal_their_twins(library, title, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", pd if library == "pandas" else pl)
    pair = programs.paired(title, programs.programs()[title])
    assert pair.apart <= programs.TOLERANCE and pair.names["right"] > 0.85, pair.printed


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", ["int", "str", "float", "bool", "day", "category"])
def test_rows_that_are_looked_up_are_those_of_a_loop(library, kind):
    columns = events(60, kind)
    frame = frame_of(library, columns, kind == "category")
    record = from_frame(frame, "user")
    last = {key: i for i, key in enumerate(columns["user"].tolist())}  # a row for each user
    at = np.array(list(last.values()))
    users = frame_of(library, {name: column[at] for name, column in columns.items()}, kind == "category")
    found = tl.data.lookup(users, "user", record.ids["user"])
    assert set(found) == set(columns) - {"user"} and type(found["price"]) is torch.Tensor
    keys = list(dict.fromkeys(columns["user"].tolist()))
    for name, rows in found.items():
        assert rows.tolist() == [columns[name][last[key]] for key in keys]
    if kind == "int":  # of every row
        again = tl.data.lookup(users, "user", record["visit"].with_values(torch.tensor(columns["user"])))
        assert again.lod is record.lod
        assert again["time"].values().tolist() == [columns["time"][last[key]] for key in columns["user"].tolist()]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_lookup_of_wrong_ids(kind):
    users = kind({"user": ["a", "b"], "age": [3, 4]})
    days = kind({"day": np.array([1, 2], "M8[us]"), "x": [1, 2]})
    for call, error, said in (
        (lambda: tl.data.lookup(users, "user", [1]), TypeError, "can be compared with column 'user', got '<' not supp"),
        (lambda: tl.data.lookup(users[["age"]], "age", [3]), ValueError, "columns besides the key, got ['age'] alone"),
        (lambda: tl.data.lookup(users, "age", [3]), TypeError, "got str in column 'user'; number them"),
        (lambda: tl.data.lookup(days, "day", [1]), TypeError, "with column 'day', got int64 for datetime64[us]"),
        (lambda: tl.data.lookup(days, "day", np.array([1], "M8[ms]")), TypeError, "got datetime64[ms] for datetime64"),
        (lambda: tl.data.lookup(MISSING["pandas NA"], "k", [1]), ValueError, "got one in column 'k' at row 1"),
    ):
        with pytest.raises(error) as raised:
            call()
        assert str(raised.value).startswith("lookup: ") and said in str(raised.value), raised.value
    zoned = pd.DataFrame({"k": pd.to_datetime(["2026-01-02", "2026-01-01"]).tz_localize("Asia/Tokyo"), "x": [1, 2]})
    assert tl.data.lookup(zoned, "k", from_frame(zoned, "k", sort_keys=True).ids["k"])["x"].tolist() == [2, 1]


PAGE = (Path(__file__).parents[2] / "docs/events.md").read_text()


@pytest.mark.parametrize(("code", "expected"), re.findall(r"```py\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.S))
def test_the_page_prints_what_it_says(code, expected):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/events.md", "exec"), {})
    assert printed.getvalue() == expected
