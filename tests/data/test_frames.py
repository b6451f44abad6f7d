# SPDX-License-Identifier: Apache-2.0
"""tl.data.from_frame on columns that can do what those of pandas can; tests/data/check_frames.py has the libraries. Ids of records."""

import numpy as np
import pytest
import torch
from frames import Frame

import torch_lod as tl

USER = ["b", "a", "b", "c", "b", "a"]
TIME = [50, 20, 10, 5, 12, 20]
EVENTS = Frame(user=USER, time=TIME, item=[0, 1, 2, 3, 4, 5], page=[1, 1, 2, 1, 2, 2])


def test_sessions_of_unsorted_events():
    record = tl.data.from_frame(EVENTS, "user", sort_by="time", gap=30)
    assert record["item"].to_list() == [[[2, 4], [0]], [[1, 5]], [[3]]]
    assert record["time"].to_list() == [[[10, 12], [50]], [[20, 20]], [[5]]]
    assert record.lod.level_names == ("user", "session") and list(record.ids) == ["user"]
    assert record.ids["user"].tolist() == ["b", "a", "c"] and set(record) == {"time", "item", "page"}
    assert tl.data.from_frame(EVENTS, ["user", "visit"], sort_by="time", gap=30).lod.level_names == ("user", "visit")
    assert tl.data.from_frame(EVENTS, "user", sort_by="time", gap=39)["item"].to_list()[0] == [[2, 4, 0]]


def test_columns_make_levels():
    for sort_keys in (False, True):
        record = tl.data.from_frame(EVENTS, ["user", "page"], sort_keys=sort_keys)
        expected = [[[0], [2, 4]], [[1], [5]], [[3]]]
        order = [1, 0, 2] if sort_keys else [0, 1, 2]
        assert record["item"].to_list() == [expected[i] for i in order]
        assert record.ids["user"].tolist() == [["b", "a", "c"][i] for i in order]
        assert record.ids["page"].tolist() == [1, 2, 1, 2, 1]
    record = tl.data.from_frame(EVENTS, ["page", "user"])
    assert record["item"].to_list() == [[[0], [1], [3]], [[2, 4], [5]]]
    assert record.ids["user"].tolist() == ["b", "a", "c", "b", "a"]


WIDE = 2**40
#: Times of every dtype that sorts, with equal ones, and where all bits count.
TIMES = {
    "int64": [-(2**63), 2**63 - 1, -1, 0, 1, 5 * WIDE],
    "uint64": [2**64 - 1, 2**63, 2**63 - 1, 0, 1],
    "int8": [-128, 127, 0],
    "bool": [True, False],
    "float16": [-2.0, 0.5, np.inf, -np.inf, 6e-8],
    "float64": [-0.0, 0.0, 1.0, -1.0, np.inf, -np.inf, 5e-324, -5e-324, 1 + 2**-52, -1e300],
    "datetime64[ns]": [-(2**62), 0, 1, 2**62],
}


@pytest.mark.parametrize("dtype", TIMES)
def test_a_large_table_is_as_a_loop_groups_it(dtype):
    draw = np.random.default_rng(0)
    for wide in (5, WIDE):
        user = draw.integers(-4, 5, 500) * wide
        time = draw.choice(np.array(TIMES[dtype], dtype.replace("datetime64[ns]", "int64")), 500).astype(dtype)
        for sort_keys in (False, True):
            frame = Frame(user=user, time=time, row=np.arange(500))
            record = tl.data.from_frame(frame, "user", sort_by="time", sort_keys=sort_keys)
            rows = sorted(range(500), key=lambda i: (time[i], i))
            users = sorted(set(user.tolist())) if sort_keys else list(dict.fromkeys(user.tolist()))
            assert record["row"].to_list() == [[i for i in rows if user[i] == key] for key in users]
            assert record.ids["user"].tolist() == users


def test_keys_sort_as_well():
    for dtype in (np.float64, np.longdouble):
        key = np.array([3, 1, 2, 1], dtype)
        record = tl.data.from_frame(Frame(a=[0, 0, 0, 0], key=key, row=np.arange(4)), ["a", "key"], sort_by="key")
        assert record["row"].to_list() == [[[0], [1, 3], [2]]]


def test_rows_are_looked_up_by_their_key():
    users = Frame(user=["a", "b", "c", "d"], age=[1, 2, 3, 4])
    record = tl.data.from_frame(EVENTS, "user")
    for ids in (record.ids["user"], ["b", "a", "c"], np.array(["b", "a", "c"], object)):
        found = tl.data.lookup(users, "user", ids)
        assert list(found) == ["age"] and found["age"].tolist() == [2, 1, 3]
    dataset = tl.data.LoDDataset({**record, **found})
    assert dataset[1]["age"] == 1 and dataset[1]["item"].tolist() == [1, 5]
    items = Frame(item=[5, 3, 1, 0, 2, 4], price=[0.5, 0.3, 0.1, 0.0, 0.2, 0.4])
    found = tl.data.lookup(items, "item", record["item"])
    assert isinstance(found, tl.data.Record) and found.lod is record.lod
    assert found["price"].to_list() == [[0.0, 0.2, 0.4], [0.1, 0.5], [0.3]]
    exact = Frame(key=[2**53, 2**53 + 1], x=[0, 1])
    assert tl.data.lookup(exact, "key", [2**53 + 1])["x"].tolist() == [1]
    assert tl.data.lookup(exact, "key", np.array([2.0**53]))["x"].tolist() == [0]
    assert tl.data.lookup(exact, "key", [])["x"].tolist() == []


KEYS = Frame(key=[1, 2, 1], x=[0, 1, 2])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: tl.data.lookup(KEYS, "key", [2]),
            "expected one row for each key, got 1 at rows 0 and 2 in column 'key'",
        ),
        (
            lambda: tl.data.lookup(KEYS, "x", [2, 3]),
            "expected a row for each id in column 'x', got none for 3 at index 1",
        ),
        (lambda: tl.data.lookup(KEYS, "x", ["2"]), "expected ids that can be compared with column 'x', got '<' not"),
        (lambda: tl.data.lookup(KEYS, "y", [2]), "expected key among the columns ['key', 'x'], got 'y'"),
        (lambda: tl.data.lookup(KEYS, "x", [[2]]), "expected ids with one key for each row, got shape (1, 1)"),
        (lambda: tl.data.lookup(KEYS, "x", torch.ones(1, device="meta")), "expected ids with data, got a meta tensor"),
        (lambda: tl.data.lookup({"x": [1]}, "x", [1]), "expected frame as a DataFrame of pandas or polars, got dict"),
        (lambda: tl.data.lookup(Frame(x=[1]), "x", [1]), "expected columns besides the key, got ['x'] alone"),
        (lambda: tl.data.lookup(Frame(k=[1, 2], x=["a", "b"]), "k", [1]), "got str in column 'x'; number them"),
    ],
)
def test_errors_of_lookup(call, said):
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    assert str(raised.value).startswith("lookup: ") and said in str(raised.value)
    assert isinstance(raised.value, tl.LoDError)


def test_ids_follow_the_sequences():
    record = tl.data.from_frame(EVENTS, ["user", "page"])

    pages = EVENTS["page"].to_numpy()
    for key in (slice(1, 3), [2, 0], torch.tensor([True, False, True]), slice(None, None, -1), np.array([1, 1])):
        part = record.seq[key]
        rows = [row for user in part["item"].to_list() for page in user for row in page]
        assert part.ids["user"].tolist() == [USER[user[0][0]] for user in part["item"].to_list()], rows
        assert part.ids["page"].tolist() == [pages[page[0]] for user in part["item"].to_list() for page in user]
    alone = record.seq[1]
    assert alone.ids["page"].tolist() == [1, 2] and list(alone.ids) == ["page"]
    assert record.seq[:, 0:1].ids == {}
    empty = record.filter_rows(record["item"] > 3)
    assert empty.ids["user"].tolist() == ["b", "a", "c"] and empty.ids["page"].tolist() == [1, 2, 1, 2, 1]
    kept = record.filter(torch.tensor([True, False, False, True, True]), level="user")
    assert kept.ids["user"].tolist() == ["b", "a", "c"] and kept.ids["page"].tolist() == [1, 2, 1]
    assert kept["item"].to_list() == [[[0]], [[5]], [[3]]]
    assert record.filter(record["item"] > 1).ids["page"].tolist() == [1, 2, 1, 2, 1]
    assert record.to(torch.float64).ids["user"].tolist() == ["b", "a", "c"]
    assert record.map(torch.neg).ids["user"].tolist() == ["b", "a", "c"]
    assert record.map(lambda x: x.head(1)).ids == {} and tl.data.Record({"x": record["item"]}).ids == {}
    sessions = tl.data.from_frame(EVENTS, "user", sort_by="time", gap=30).seq[[1, 0]]
    assert sessions.ids["user"].tolist() == ["a", "b"] and list(sessions.ids) == ["user"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tl.data.from_frame(Frame(k=[1], x=["a"]), "k"), "got str in column 'x'; number them"),
        (
            lambda: tl.data.from_frame(Frame(k=[1], x=["a"]), "k", sort_by="x"),
            "got str in column 'x'; see pandas.to_datetime",
        ),
        (lambda: tl.data.from_frame(Frame(k=[1], x=[2**70]), "k"), "got int in column 'x'; see .astype(float)"),
        (
            lambda: tl.data.from_frame(Frame(session=[1], x=[1]), "session", sort_by="x", gap=1),
            "expected a name for the level of gaps, as the last of keys, since column 'session' is a key",
        ),
        (
            lambda: tl.data.from_frame(Frame(k=[1], x=[None]), "k"),
            "expected values without missing values, got one in column",
        ),
        (lambda: tl.data.from_frame(Frame(k=["a", None], x=[1, 2]), "k"), "got one in column 'k' at row 1; fill it or"),
        (
            lambda: tl.data.from_frame(Frame(k=[1], t=[np.nan]), "k", sort_by="t"),
            "without NaN, got one in column 't' at row 0",
        ),
        (
            lambda: tl.data.from_frame(Frame(k=[1], t=[1j]), "k", sort_by="t"),
            "expected sort_by of numbers or times, got complex",
        ),
        (lambda: tl.data.from_frame(EVENTS, "user", sort_by="time", gap=float("nan")), "expected gap >= 0, got nan"),
        (lambda: tl.data.from_frame({"k": [1]}, "k"), "expected frame as a DataFrame of pandas or polars, got dict"),
    ],
)
def test_errors(call, said):
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    assert str(raised.value).startswith("from_frame: ") and said in str(raised.value)
