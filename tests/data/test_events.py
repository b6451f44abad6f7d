# SPDX-License-Identifier: Apache-2.0
"""Structure from what rows say about themselves: flags, ids in any order, positions, keys of several columns."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch

import torch_lod as tl

V = torch.arange(6.0)


# -- flags


@pytest.mark.parametrize(
    "flags",
    [
        torch.tensor([False, True, False, False, True, False]),
        torch.tensor([True, True, False, False, True, False]),
        torch.tensor([0, 1, 0, 0, 1, 0], dtype=torch.uint8),
        np.array([0, 1, 0, 0, 1, 0]),
        np.array([False, True, False, False, True, False]),
        [False, True, False, False, True, False],
        [0, 1, 0, 0, 1, 0],
        [torch.tensor([0, 1, 0, 0, 1, 0])],
    ],
    ids=str,
)
def test_a_flag_begins_a_sequence_and_so_does_the_first_row(flags):
    x = tl.from_boundaries(V, flags, level_names=["event"])
    assert x.lod.to_lengths() == [[1, 3, 2]] and x.data_ptr() == V.data_ptr() and x.level_names == ("event",)


def test_flags_of_several_levels():
    draw = np.random.default_rng(0)
    for count in (0, 1, 2, 7, 40):
        flags = draw.random((3, count)) < 0.3
        x = tl.from_boundaries(torch.arange(count), list(flags))
        tree: list = []
        for row in range(count):
            begins = [row == 0 or flags[: k + 1, row].any() for k in range(3)]
            if begins[0]:
                tree.append([])
            if begins[1]:
                tree[-1].append([])
            if begins[2]:
                tree[-1][-1].append([])
            tree[-1][-1][-1].append(row)
        assert x.to_list() == tree and x.lod_level == 3


def test_flags_are_the_way_back_from_positions():
    x = tl.from_lengths(V, [[2, 1], [1, 2, 3]])
    lod = x.lod
    assert tl.from_boundaries(V, [lod.position_ids(k) == 0 for k in range(2)]).lod == lod


def test_gaps_in_time_are_a_flag():
    seconds = torch.tensor([0, 4, 5, 90, 93, 200])
    user = torch.tensor([1, 1, 1, 1, 2, 2])
    gap = seconds.diff(prepend=seconds[:1]) > 60
    assert tl.from_boundaries(V, gap).to_list() == [[0, 1, 2], [3, 4], [5]]
    other = user.diff(prepend=user[:1]) != 0
    assert tl.from_boundaries(V, [other, gap]).to_list() == [[[0, 1, 2], [3]], [[4], [5]]]


def test_rows_keep_their_gradient():
    rows = torch.rand(6, 2, requires_grad=True)
    tl.sequence_pool(tl.from_boundaries(rows, V % 2 > 0), "sum").square().sum().backward()
    assert rows.grad is not None and rows.grad.any(1).all()


# -- ids in any order


def test_ids_in_any_order_are_sorted_and_the_way_back_is_known():
    draw = torch.Generator().manual_seed(0)
    for count in (0, 1, 30):
        ids = torch.randint(0, 7, (count,), generator=draw)
        rows = torch.rand(count, 2, requires_grad=True)
        for given in (ids, ids.tolist(), ids.numpy(), ids.to(torch.int8)):
            x, order = tl.from_segment_ids(rows, given, 8, sort=True)
            assert torch.equal(x.values(), rows[order]) and x.lod.segment_ids().tolist() == sorted(ids.tolist())
            assert x.num_sequences() == 8 and order.dtype == torch.int64
            assert torch.equal(x.values()[order.argsort()], rows)
            assert all((order[a:b].diff() > 0).all() for a, b in zip(x.row_offsets(), x.row_offsets()[1:]))
        x.values().square().sum().backward()
        assert torch.equal(rows.grad, 2 * rows.detach())
    x, order = tl.from_segment_ids(np.arange(3), [2, 0, 2], sort=True, level_names=["node"])
    assert x.to_list() == [[1], [], [0, 2]] and x.level_names == ("node",)


# -- positions


def test_positions_of_a_batch():
    dense, ids = torch.rand(2, 4, 3), torch.tensor([[0, 1, 0, 1], [0, 0, 1, 2]])
    for given in (ids, ids.numpy(), ids.to(torch.int32)):
        x = tl.data.from_position_ids(dense, given)
        assert x.lod.to_lengths() == [[2, 2, 1, 3]] and x.data_ptr() == dense.data_ptr() and x.shape == (8, 3)
    assert tl.data.from_position_ids(V[None], torch.arange(6)[None] % 4).lod.to_lengths() == [[4, 2]]


def test_positions_that_start_anywhere():
    x = tl.data.from_position_ids(V, [7, 8, 0, 1, 4, 5], any_start=True)
    assert x.lod.to_lengths() == [[2, 2, 2]]
    x = tl.data.from_position_ids(V.view(2, 3), torch.tensor([[5, 6, 7], [8, 9, 9]]), any_start=True)
    assert x.lod.to_lengths() == [[3, 2, 1]]  # entries of a batch are apart, also where the positions go on


def test_positions_of_three_numbers():
    text, image = torch.arange(2).expand(3, 2), torch.tensor([[2, 2, 2, 2], [2, 2, 3, 3], [2, 3, 2, 3]])
    first = image - 2  # an image at the beginning of a sequence
    ids = torch.cat([text, image, first, text], 1)
    x = tl.data.from_position_ids(torch.arange(12)[None], ids[:, None])
    assert x.lod.to_lengths() == [[6, 4, 2]]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (3, 2, 0), (3, 0, 2)])
def test_no_positions_are_no_sequences(shape):
    x = tl.data.from_position_ids(torch.zeros(shape[-2:]), torch.zeros(shape, dtype=torch.int64))
    assert x.lod.to_list() == [[0]]


# -- columns, and records


COLUMNS = {"price": torch.rand(6, requires_grad=True), "item": np.arange(12).reshape(6, 2)}
USER, DAY = ["b", "a", "b", "b", "a", "b"], [1, 1, 2, 1, 1, 0]


def test_columns_are_sorted_once():
    record, names = tl.data.from_keys(COLUMNS, USER, DAY, level_names=["user", "day"])
    assert type(record) is tl.data.Record and list(record) == ["price", "item"]
    for name, column in COLUMNS.items():
        alone, own = tl.data.from_keys(column, USER, DAY)
        assert torch.equal(record[name].values(), alone.values()) and record[name].lod == alone.lod
        assert record[name].lod is record.lod and [list(n) for n in names] == [list(n) for n in own]
    assert record.lod.level_names == ("user", "day")
    record["price"].values().sum().backward()
    assert torch.equal(COLUMNS["price"].grad, torch.ones(6))


def a_record():
    x = tl.from_lengths(V, [[2, 1], [1, 2, 3]], level_names=["a", "b"])
    return tl.data.Record({"x": x, "y": tl.LoDTensor(V.long()[:, None], tl.LoD(x.lod.to_list()))})


def test_fields_have_one_lod():
    record = a_record()
    assert record["y"].lod is record["x"].lod is record.lod and len(record) == 2
    assert repr(record) == "Record({'x': torch.float32 (), 'y': torch.int64 (1,)}, lod=" + repr(record.lod) + ")"
    more = tl.data.Record({**record, "z": record["x"] * 2})
    assert list(more) == ["x", "y", "z"] and list(record) == ["x", "y"]
    with pytest.raises(TypeError):
        record["x"] = record["y"]


@pytest.mark.parametrize(
    "key", [0, -1, slice(1, None), slice(None, None, -1), [1, 0], torch.tensor([True, False]), (0, 1)]
)
def test_sequences_of_a_record_are_those_of_its_fields(key):
    record = a_record()
    found = record.seq[key]
    plain = not isinstance(record["x"].seq[key], tl.LoDTensor)
    assert type(found) is (dict if plain else tl.data.Record) and len(record.seq) == 2
    for name, x in record.items():
        expected = x.seq[key]
        assert torch.equal(found[name], expected) and getattr(found[name], "lod", 0) == getattr(expected, "lod", 0)
    assert [list(r) for r in record.seq] == [["x", "y"]] * 2


def test_what_moves_rows_moves_those_of_all_fields():
    record = a_record()
    kept = record.filter_rows(record["x"] % 2 > 0)
    assert kept["x"].to_list() == [[[], [1]], [[3, 5]]] and kept["y"].to_list() == [[[], [[1]]], [[[3], [5]]]]
    assert kept.lod is kept["y"].lod
    assert record.filter(record["x"] % 2 > 0)["y"].to_list() == kept["y"].to_list()
    outer = record.filter(torch.tensor([False, True, True]), level=0)
    assert outer["x"].to_list() == record["x"].filter(torch.tensor([False, True, True]), level=0).to_list()
    assert outer.lod is outer["y"].lod and outer.lod.to_lengths() != record.lod.to_lengths()
    half = record.to(torch.float16)
    assert {x.dtype for x in half.values()} == {torch.float16} and half.lod is record.lod
    assert record.map(lambda x: x.head(1))["y"].to_list() == [[[[0]], [[1]]], [[[3]]]]
    assert record.map(lambda x: tl.sequence_pool(x, "sum")).lod.to_lengths() == [[2, 1]]
    assert {name: tuple(t.shape) for name, t in record.map(tl.LoDTensor.values).items()} == {
        "x": (6,),
        "y": (6, 1),
    }


def test_records_go_where_mappings_go(tmp_path):
    record = a_record()
    batch = tl.batch([record.seq[:1], record.seq[1:]])
    assert type(batch) is tl.data.Record and batch.lod.to_lengths() == [[1, 1], [2, 1], [1, 2, 3]]
    tl.data.save(record, tmp_path / "record")
    loaded = tl.data.Record(tl.data.load(tmp_path / "record"))
    assert loaded.lod == record.lod
    loader = torch.utils.data.DataLoader(tl.data.LoDDataset(record), batch_size=2, collate_fn=tl.data.collate)
    (one,) = loader
    assert one["x"].lod == record.lod
    for other in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert other.lod == record.lod and torch.equal(other["y"], record["y"]) and other["x"].lod is other["y"].lod
    assert record == record and record != a_record() and len({record, a_record()}) == 2


# -- wrong calls

COLUMN, HALF = a_record()["x"], a_record()["x"].head(1)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: tl.from_boundaries(V, [0, 2, 0, 0, 0, 0]), ValueError, "starts of 0 and 1, got 2 at index 1"),
        (lambda: tl.from_boundaries(V, [0, -1, 0, 0, 0, 0]), ValueError, "starts of 0 and 1, got -1 at index 1"),
        (lambda: tl.from_boundaries(V, V), TypeError, "starts as a bool tensor, got torch.float32; see starts > 0"),
        (lambda: tl.from_boundaries(V, [True]), ValueError, "starts of shape (6,), a flag for each row, got (1,)"),
        (lambda: tl.from_boundaries(V, V[:, None] > 0), ValueError, "a flag for each row, got (6, 1)"),
        (lambda: tl.from_boundaries(V, [V > 0, V[1:] > 0]), ValueError, "starts[1] of shape (6,), a flag for each"),
        (lambda: tl.from_boundaries(V, (V > 0).to("meta")), TypeError, "starts with data, got a meta tensor"),
        (lambda: tl.from_boundaries(V, None), TypeError, "starts as a tensor or an array, got NoneType"),
        (lambda: tl.from_boundaries(V, ["a"] * 6), TypeError, "starts[0] as a tensor or an array, got str"),
        (lambda: tl.from_boundaries(V, [True, 2] * 3), TypeError, "starts[0] to be an integer, got True"),
        (
            lambda: tl.from_boundaries([1.0], [True]),
            TypeError,
            "values as a tensor or an array, got list; see tl.lod_t",
        ),
        (lambda: tl.from_boundaries(V[0], []), ValueError, "values with rows, at least 1 dimension, got a scalar"),
        (lambda: tl.from_boundaries(V, V > 0, level_names=["a", "b"]), ValueError, "level_names with 1 different"),
        (
            lambda: tl.from_segment_ids(V, [1, 0] * 3),
            ValueError,
            "index 1; sort=True sorts the rows, tl.data.from_keys",
        ),
        (lambda: tl.from_segment_ids(V, [1, 0], sort=True), ValueError, "an id for each of 6 rows, got 2"),
        (lambda: tl.from_segment_ids(V, [1, -1] * 3, sort=True), ValueError, "ids >= 0, got -1"),
        (lambda: tl.from_segment_ids(V, [1, 0] * 3, 1, sort=True), ValueError, "ids below num_sequences 1, got 1"),
        (lambda: tl.from_segment_ids(V, [1, 0] * 3, sort=1), TypeError, "sort as a bool, got 1"),
        (lambda: tl.data.from_position_ids(V, [3, 4, 0, 1, 2, 3]), ValueError, "0; any_start=True takes any first"),
        (lambda: tl.data.from_position_ids(V, [3, -4, 0, 1, 2, 3], any_start=True), ValueError, ">= 0, got 3 then -4"),
        (lambda: tl.data.from_position_ids(V, [0] * 6, any_start=0), TypeError, "any_start as a bool, got 0"),
        (
            lambda: tl.data.from_position_ids(V.view(2, 3), torch.tensor([[0, 1, 2], [0, 2, 3]])),
            ValueError,
            "count up from 0, got 0 then 2 at index [1, 1]",
        ),
        (
            lambda: tl.data.from_position_ids(V, torch.arange(6)[None]),
            ValueError,
            "values of shape (1, 6) and more, as position_ids, got (6,); for packed rows pass position_ids.flatten()",
        ),
        (
            lambda: tl.data.from_position_ids(V[None], torch.ones(3, 1, 6, dtype=torch.int64)),
            ValueError,
            "all 0 where an entry of the batch begins, and >= 0, got [1, 1, 1] at index [0, 0]",
        ),
        (
            lambda: tl.data.from_position_ids(V[None], torch.zeros(3, 1, 6, dtype=torch.int64), any_start=True),
            ValueError,
            "any_start with one position for each row, got three",
        ),
        (
            lambda: tl.data.from_position_ids(V[None], torch.zeros(4, 1, 6, dtype=torch.int64)),
            ValueError,
            "(rows,), (batch, length) or (3, batch, length), got (4, 1, 6)",
        ),
        (
            lambda: tl.data.from_position_ids(V[None], V[None]),
            TypeError,
            "position_ids of an integer dtype, got torch.fl",
        ),
        (lambda: tl.data.from_keys({}, [1]), ValueError, "values of at least 1 column, got none"),
        (lambda: tl.data.from_keys({"a": V}), ValueError, "values['a'] with rows and at least 1 key for each, got"),
        (lambda: tl.data.from_keys({"a": [1]}, [1]), TypeError, "values['a'] as a tensor or an array, got list"),
        (
            lambda: tl.data.from_keys({"a": V, "b": V[:2]}, [1] * 6),
            ValueError,
            "columns of equally many rows, got 6 in 'a' and 2 in 'b'",
        ),
        (lambda: tl.data.Record({}), ValueError, "at least 1 field, got none"),
        (lambda: tl.data.Record([COLUMN]), TypeError, "fields as a dict of LoDTensors by name, got"),
        (lambda: tl.data.Record({1: COLUMN}), TypeError, "fields as a dict of LoDTensors by name, got"),
        (lambda: tl.data.Record({"a": V}), TypeError, "fields of LoDTensors, got a torch.float32 Tensor of shape (6,)"),
        (
            lambda: tl.data.Record({"a": COLUMN, "b": HALF}),
            ValueError,
            "fields of equal LoDs, got LoDs that differ: 'a' and 'b' at level 1, sequence 1: lengths 2 and 1",
        ),
        (lambda: a_record().map(3), TypeError, "a function of a LoDTensor, got 3"),
        (lambda: a_record().seq[5], IndexError, "expected path[0] in [-2, 1], got 5"),
        (lambda: a_record().filter_rows(V), TypeError, "expected a bool mask of shape (6,)"),
        (lambda: a_record().filter(V), TypeError, "expected mask as a bool tensor"),
        (lambda: a_record().filter(V > 0, level=5), IndexError, "expected level in [-2, 1] or one of"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError) and raised.value.call


def test_an_error_of_the_users_own_passes_through():
    def wrong(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        a_record().map(wrong)


@pytest.mark.parametrize("lengths", [[[3, 0, 2]], [[0, 0]], [[]], [[2, 1], [2, 0, 3]]], ids=str)
def test_neighbours_are_the_sources_of_every_target(lengths):
    g = torch.Generator().manual_seed(3)
    x = tl.from_lengths(torch.arange(float(sum(lengths[-1]))), lengths)
    counts = [3 * (n > 0) for n in lengths[-1]]
    pairs = [torch.randint(0, n, (2,), generator=g).tolist() for n, m in zip(lengths[-1], counts) for _ in range(m)]
    edges = tl.from_lengths(torch.tensor(pairs, dtype=torch.int64).view(-1, 2), [*lengths[:-1], counts])
    near, order = tl.from_edges(edges, x)
    assert near.lod.outer(x.lod_level) == x.lod and sorted(order.tolist()) == list(range(len(pairs)))
    begin = x.row_offsets()[edges.segment_ids()]
    of_all = edges.with_values(edges.values() + begin[:, None])
    for node, sources in enumerate(near.sequences(-1)):
        expected = [e[0] for e, (_, target) in zip(pairs, of_all.tolist()) if target == node]
        assert sources.tolist() == expected
    assert torch.equal(edges.values()[order, 0], near.values())
    absolute, same = tl.from_edges(of_all, x, absolute=True)
    assert absolute.lod == near.lod and torch.equal(order, same)
    given = tl.sequence_gather(x, near, level=x.lod_level - 1)
    assert torch.equal(given.values(), tl.sequence_gather(x, absolute, absolute=True).values())


def test_edges_that_are_refused():
    x = tl.from_lengths(torch.ones(5), [[3, 2]])

    def edges(*pairs, lengths=(1, 1), dtype=torch.int64):
        return tl.from_lengths(torch.tensor(pairs, dtype=dtype), [list(lengths)])

    for wrong in ([0, 2], [-1, 0], [2**62, 0], [0, 2**63 - 1]):
        said = re.escape(
            f"from_edges: expected edges between nodes in [0, 1] in graph 1, got {wrong} at edge 1; if nodes"
        )
        with pytest.raises(ValueError, match=said):
            tl.from_edges(edges([0, 1], wrong), x)
    with pytest.raises(ValueError, match=r"nodes in \[3, 4\] in graph 1, got \[0, 3\] at edge 1$"):
        tl.from_edges(edges([0, 1], [0, 3]), x, absolute=True)
    with pytest.raises(ValueError, match="from_edges: expected edges with as many sequences as x, 2, got 1"):
        tl.from_edges(edges([0, 1], lengths=[1]), x)
    with pytest.raises(
        ValueError, match=r"from_edges: expected edges of shape \(edges, 2\) with the 1 levels of x, got \(2, 3\)"
    ):
        tl.from_edges(edges([0, 1, 1], [0, 1, 1]), x)
    with pytest.raises(TypeError, match="from_edges: expected edges of a signed integer dtype"):
        tl.from_edges(edges([0, 1], [0, 1], dtype=torch.float32), x)
    with pytest.raises(TypeError, match="from_edges: expected edges as a LoDTensor, got"):
        tl.from_edges(edges([0, 1], [0, 1]).values(), x)
    with pytest.raises(TypeError, match="from_edges: expected x as a LoDTensor, got"):
        tl.from_edges(edges([0, 1], [0, 1]), x.values())
    with pytest.raises(TypeError, match="from_edges: expected absolute as a bool, got 1"):
        tl.from_edges(edges([0, 1], [0, 1]), x, absolute=1)
