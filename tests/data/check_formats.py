# SPDX-License-Identifier: Apache-2.0
"""tl.data with the libraries whose formats it reads: `make formats`, in an environment of their own."""

import datetime
import io
import itertools
import re
import sys
from pathlib import Path

import awkward as ak
import conversions
import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import safetensors
import safetensors.torch
import torch
from tensordict import TensorDict
from torch_geometric.data import Batch, Data
from torchdata.stateful_dataloader import StatefulDataLoader

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import nested_three_ways

DATA = tl.data
NESTED = [[[1, 2], []], [], [[3], [4, 5, 6]]]
X = tl.lod_tensor(NESTED)


def equal(a, b):
    assert a.lod == b.lod and a.dtype == b.dtype and torch.equal(a.values(), b.values())


def column(dtype=None):
    return pa.array(NESTED, pa.list_(pa.list_(dtype or pa.int64())))


# -- the table of docs/data.md


@pytest.mark.parametrize("layout", [name for name, found in conversions.foreign().items() if found.needs])
def test_the_table_of_layouts(layout):
    row, how = conversions.table()[layout], conversions.foreign()[layout]
    conversions.words_of(row, conversions.checked(row, how))


def losses(words, labels):
    """Of a nested RNN of the examples, trained on batches of a dataset."""
    torch.manual_seed(0)
    model = nested_three_ways.Modules()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    sampler = DATA.TokenBudgetSampler(words.lod, budget=400)
    dataset = DATA.LoDDataset({"words": words, "label": labels})
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=DATA.collate)
    found = []
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, 8)):
        loss = torch.nn.functional.cross_entropy(model(batch["words"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_parquet_awkward_and_datasets_train_a_nested_rnn(tmp_path):
    torch.manual_seed(0)
    words, labels = nested_three_ways.batch(32)
    nested = words.to_list()
    pa.parquet.write_table(pa.table({"words": nested, "label": labels.tolist()}), tmp_path / "x", row_group_size=10)
    table = pa.parquet.read_table(tmp_path / "x")
    assert table["words"].num_chunks >= 1 and DATA.from_arrow(table["words"]).to_list() == nested
    expected = losses(tl.lod_tensor(nested), labels)
    assert sum(expected[-3:]) < 0.5 * sum(expected[:3])  # it learns
    assert losses(DATA.from_arrow(table["words"]), torch.tensor(table["label"].to_pylist())) == expected
    assert losses(DATA.from_awkward(ak.Array(nested)), labels) == expected
    table = datasets.Dataset.from_dict({"words": nested, "label": labels.tolist()}).with_format("arrow")[:]
    assert losses(DATA.from_arrow(table["words"]), torch.tensor(table["label"].to_pylist())) == expected


# -- pandas, PyG, TensorDict


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (pd.Series(["b", "a", "b", "b"]), ["a", "b"]),
        (pd.Series(["b", "a", "b", "b"], dtype="category"), ["a", "b"]),
        (pd.Series(["b", "a", "b", "b"], dtype="string"), ["a", "b"]),
        (pd.Series([7, 1, 7, 7], dtype="Int64"), [1, 7]),
        (pd.Series([True, False, True, True]), [False, True]),
        (pd.to_datetime(pd.Series(["2026-02-01", "2026-01-01", "2026-02-01", "2026-02-01"])), None),
    ],
)
def test_columns_of_pandas_are_keys(keys, names):
    df = pd.DataFrame({"key": keys, "x": [5.0, 6.0, 7.0, 8.0], "y": [1.0, 2.0, 3.0, 4.0]})
    x, found = DATA.from_keys(df[["x", "y"]].to_numpy(), df["key"])
    assert x.to_list() == [[[6, 2]], [[5, 1], [7, 3], [8, 4]]]
    assert names is None or found[0].tolist() == names
    grouped = [rows[["x", "y"]].to_numpy().tolist() for _, rows in df.groupby("key", observed=True)]
    assert x.to_list() == grouped


@pytest.mark.parametrize(
    "keys",
    [
        pd.Series(["b", None, "b"]),
        pd.Series(["b", pd.NA, "b"], dtype="string"),
        pd.Series(["b", pd.NA, "b"], dtype=object),
        pd.Series([1, pd.NA, 2], dtype="Int64"),
        pd.Series([1.5, float("nan"), 1.5]),
        pd.Series(["b", None, "b"], dtype="category"),
        pd.to_datetime(pd.Series(["2026-01-01", None, "2026-01-01"])),
    ],
)
def test_keys_that_are_missing_are_refused(keys):
    with pytest.raises(ValueError, match=r"from_keys: expected a key for each row in keys\[0\], got .* at index 1"):
        DATA.from_keys(np.zeros(3), keys)


def test_columns_are_no_rows():
    df = pd.DataFrame({"x": [1.0, 2.0]})
    for given, way in ((df, r"tl.data.from_frame\(df"), (df["x"], r".to_numpy\(\), and tl.data.from_arrow")):
        for call in (lambda g=given: DATA.from_keys(g, [1, 1]), lambda g=given: tl.from_lengths(g, [[2]])):
            with pytest.raises(TypeError, match=rf"as a tensor or an array, got \w+; see {way}"):
                call()


def test_edges_of_graphs():
    graphs = [Data(x=torch.rand(n, 2), edge_index=torch.randint(0, n, (2, 2 * n))) for n in (3, 1, 2)]
    data = Batch.from_data_list(graphs)
    edges = tl.from_segment_ids(data.edge_index.t(), data.batch[data.edge_index[0]], data.num_graphs)
    first = data.ptr[:-1].tolist()
    assert [(e - a).t().tolist() for e, a in zip(edges.sequences(), first)] == [g.edge_index.tolist() for g in graphs]
    assert edges.data_ptr() == data.edge_index.data_ptr()


def test_tensordicts_of_lod_tensors():
    td = TensorDict({"x": X, "y": torch.ones(3)}, [])
    equal(td["x"], X)
    equal(td.clone()["x"], X)
    assert td.to(torch.float64)["x"].lod == X.lod and (td["x"] + 1).lod == X.lod
    equal((td + 1)["x"], X + 1)
    samples = [TensorDict({"x": torch.rand(n, 2), "label": torch.tensor(n)}, []) for n in (2, 0, 3)]
    found = tl.batch(samples)
    assert found["x"].lod.to_lengths() == [[2, 0, 3]] and found["label"].tolist() == [2, 0, 3]
    with pytest.raises(ValueError, match="expected 1 level, got 2; see flatten_levels"):
        X.to_nested()


def test_the_page_of_tensordicts_prints_what_it_says(capsys):
    page = (Path(__file__).parents[2] / "docs/coming_from.md").read_text()
    code, said = re.search(r'title="in_a_tensordict.py"\n(.*?)```\n\n```text\n(.*?)```', page, re.S).groups()
    names: dict = {}
    exec(compile(code, "in_a_tensordict.py", "exec"), names)
    assert capsys.readouterr().out == said
    td, x = names["td"], names["td"]["seen"]
    assert td["seen"].lod.to_lengths() == [[2, 0, 3]] and td["seen"].values().equal(names["old"]["seen"].values())
    for kept in (td.clone(), td.detach(), td.apply(lambda t: t * 2), td + 1, td.state_dict()):
        assert kept["seen"].lod == x.lod
    file = io.BytesIO()
    torch.save(td, file)
    file.seek(0)
    assert torch.load(file, weights_only=False)["seen"].equal(x)
    with pytest.raises(RuntimeError, match="batch_dims==0"):
        td[0]
    with pytest.raises(ValueError, match="expected a plain tensor"):
        td.memmap()


# -- Arrow


def test_columns_of_every_number():
    for dtype in "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64".split():
        x = DATA.from_arrow(column(getattr(pa, dtype)()))
        assert x.dtype == getattr(torch, dtype) and x.to_list() == NESTED
    half = pa.array([[np.float16(1), np.float16(2)], []], pa.list_(pa.float16()))
    assert DATA.from_arrow(half).dtype == torch.float16
    flags = pa.array([[True, False], [], [True]])
    assert DATA.from_arrow(flags).to_list() == [[True, False], [], [True]]


def test_rows_share_memory_where_they_may_be_written_to(tmp_path):
    c = column()
    address = c.values.values.buffers()[1].address
    assert DATA.from_arrow(c).data_ptr() == address == DATA.from_arrow(c, copy=False).data_ptr()
    assert DATA.from_arrow(c, copy=True).data_ptr() != address
    pa.feather.write_feather(pa.table({"x": c}), str(tmp_path / "x"), compression="uncompressed")
    mapped = pa.feather.read_table(str(tmp_path / "x"), memory_map=True)["x"]
    x = DATA.from_arrow(mapped)
    x.values().zero_()  # a copy, since the file is mapped to be read only
    y = DATA.from_arrow(mapped, copy=False)
    assert y.to_list() == NESTED and y.data_ptr() == mapped.chunk(0).values.values.buffers()[1].address
    z = DATA.to_arrow(X)
    assert z.values.values.buffers()[1].address == X.data_ptr()


def test_slices_chunks_and_large_lists():
    c = column()
    large = c.cast(pa.large_list(pa.large_list(pa.int64())))
    for begin, end in itertools.combinations(range(4), 2):
        for given in (c, large):
            assert DATA.from_arrow(given[begin:end]).to_list() == NESTED[begin:end]
    chunked = pa.chunked_array([c[:1], c[1:1], c[1:], c[2:]])
    assert DATA.from_arrow(chunked).to_list() == [*NESTED, NESTED[2]]
    assert DATA.from_arrow(pa.chunked_array([], c.type)).lod.to_lengths() == [[], []]
    assert DATA.from_arrow(c[:0]).lod.to_lengths() == [[], []]


def test_lists_of_fixed_size_are_rows():
    c = pa.array([[[1.0, 2.0]], [], [[3.0, 4.0], [5.0, 6.0]]], pa.list_(pa.list_(pa.float32(), 2)))
    x = DATA.from_arrow(c)
    assert x.shape == (3, 2) and x.lod.to_lengths() == [[1, 0, 2]]
    assert DATA.to_arrow(x).to_pylist() == c.to_pylist()
    assert DATA.from_arrow(c[2:]).to_list() == [[[3.0, 4.0], [5.0, 6.0]]]


@pytest.mark.parametrize("write", ["parquet", "feather"])
def test_files_there_and_back(write, tmp_path):
    path = str(tmp_path / "x")
    table = pa.table({"x": DATA.to_arrow(X), "y": DATA.to_arrow(X.float()[:, None].expand(-1, 3))})
    if write == "parquet":
        pa.parquet.write_table(table, path, row_group_size=2)
        table = pa.parquet.read_table(path)
    else:
        pa.feather.write_feather(table, path)
        table = pa.feather.read_table(path)
    equal(DATA.from_arrow(table["x"]), X)
    assert torch.equal(DATA.from_arrow(table["y"]).values(), X.float()[:, None].expand(-1, 3).values())
    dataset = DATA.LoDDataset(DATA.from_arrow(table["x"]))
    assert dataset[2].to_list() == NESTED[2]


def test_out_of_every_dtype():
    for dtype in "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split():
        x = X.with_values(X.values().to(getattr(torch, dtype)))
        equal(DATA.from_arrow(DATA.to_arrow(x)), x)
        equal(DATA.from_awkward(DATA.to_awkward(x)), x)
    negative = tl.from_lengths(torch.complex(torch.ones(3), torch.arange(3.0)).conj().imag, [[2, 1]])
    lods = [[0, 1], [0]], [[2, 0], [2, 1]]
    empty = [
        tl.from_lengths(torch.zeros(sum(lod[-1]), *element), lod)
        for lod in lods
        for element in ((), (0,), (2, 0), (0, 2))
        if sum(lod[-1]) == 0 or element
    ]
    assert negative.is_neg()
    for x in (negative, *empty):
        equal(DATA.from_arrow(DATA.to_arrow(x)), x)
        equal(DATA.from_awkward(DATA.to_awkward(x)), x)
    for ones in (pa.chunked_array([DATA.to_arrow(empty[-1])] * 2), DATA.to_arrow(tl.batch([empty[-1]] * 3))[1:]):
        assert DATA.from_arrow(ones).shape == (6, 0, 2)


def test_what_is_handed_out_cannot_change_a_structure():
    lod = tl.LoD.from_lengths([[2, 0, 1], [2, 0, 1]])
    x = tl.LoDTensor(torch.zeros(3), lod)
    np.asarray(DATA.to_awkward(x).layout.offsets)[:] = 7
    np.frombuffer(DATA.to_arrow(x).buffers()[1])  # the offsets
    assert lod.to_lengths() == [[2, 0, 1], [2, 0, 1]]
    assert DATA.to_arrow(x).buffers()[1].address != lod.levels[0].data_ptr()


def test_nulls_are_refused_or_empty():
    holes = pa.array([[[1], None], None, [[2, 3]]])
    with pytest.raises(
        ValueError, match=r"from_arrow: expected lists without nulls, got one at index 1 of chunk 0 at level 0"
    ):
        DATA.from_arrow(holes)
    assert DATA.from_arrow(holes, nulls="empty").to_list() == [[[1], []], [], [[2, 3]]]
    # a null may hide numbers behind it
    hidden = pa.ListArray.from_arrays([0, 2, 5, 6], pa.array(range(6)), mask=pa.array([False, True, False]))
    assert DATA.from_arrow(hidden, nulls="empty").to_list() == [[0, 1], [], [5]]
    for nulls in ("refuse", "empty"):
        with pytest.raises(ValueError, match="expected rows without nulls, got one at row 1 of chunk 0"):
            DATA.from_arrow(pa.array([[1, None]]), nulls=nulls)
    fixed = pa.array([[[1, 2], None]], pa.list_(pa.list_(pa.int64(), 2)))
    with pytest.raises(ValueError, match="expected rows without nulls, got one at row 1"):
        DATA.from_arrow(fixed)


@pytest.mark.parametrize("offsets", [[0, 5, 2], [0, -(2**31), 3], [0, 3, 1], [2, 0, 3]])
def test_offsets_that_lie_are_refused(offsets):
    held = pa.py_buffer(np.array(offsets, np.int32))
    lying = pa.Array.from_buffers(pa.list_(pa.int64()), 2, [None, held], children=[pa.array(range(3))])
    for given in (lying, pa.chunked_array([lying])):
        with pytest.raises(ValueError, match="from_arrow: expected a valid column, got one that lies"):
            DATA.from_arrow(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pa.array([1, 2]), "expected a column of lists of numbers, got int64"),
        (pa.array([["a"]]), "expected a column of lists of numbers, got list<item: string>"),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), "expected a column of lists of numbers, got fixed_size_list"),
        ([[1, 2]], "expected column as a pyarrow.Array, ChunkedArray or Table, or with __arrow_c_stream__, got list"),
        (pa.table({"x": [[1], [2]], "y": ["a", "b"]}), "expected a column of numbers, got string in column 'y'"),
        (pl.Series([[{"a": [1]}]]), "expected structs of numbers in lists, got lists in 'a' of"),
        (pl.Series(["a"]), "expected a column of lists of numbers, got string_view"),
        (pd.DataFrame({"x": [1, "a"]}), "expected a column that Arrow can read, got DataFrame: "),
    ],
)
def test_other_columns_are_refused(given, said):
    with pytest.raises(TypeError) as raised:
        DATA.from_arrow(given)
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)


def test_options_of_columns():
    with pytest.raises(ValueError, match="expected nulls 'refuse' or 'empty', got 'drop'"):
        DATA.from_arrow(column(), nulls="drop")
    with pytest.raises(TypeError, match="expected copy True, False or None, got 1"):
        DATA.from_arrow(column(), copy=1)
    for x, said in (
        (X.bfloat16(), "a dtype that numpy has, got torch.bfloat16; see x.float()"),
        (X.to(torch.complex64), "integers, floats or bools, got torch.complex64; see torch.view_as_real"),
        (X.to("meta"), "x with data, got a meta tensor"),
    ):
        for to in (DATA.to_arrow, DATA.to_awkward):
            with pytest.raises(TypeError) as raised:
                to(x)
            assert f"{to.__name__}: expected {said}" in str(raised.value)
    assert DATA.from_arrow(column(), level_names=["a", "b"]).level_names == ("a", "b")


ARROW_LISTS = pd.ArrowDtype(pa.list_(pa.list_(pa.int64())))


@pytest.mark.parametrize(
    "given",
    [
        pl.Series(NESTED),
        pl.Series([[[9]], *NESTED])[1:],
        pl.concat([pl.Series(NESTED[:1]), pl.Series(NESTED[1:], dtype=pl.List(pl.List(pl.Int64)))], rechunk=False),
        pd.Series(NESTED, dtype=ARROW_LISTS),
        pa.array(NESTED, pa.list_view(pa.list_view(pa.int64()))),
        pa.array([[], *NESTED], pa.large_list_view(pa.large_list(pa.int64())))[1:],
    ],
    ids=str,
)
def test_columns_of_every_library_that_speaks_arrow(given):
    equal(DATA.from_arrow(given), X)
    assert DATA.from_arrow(given, level_names=["a", "b"]).level_names == ("a", "b")


def test_list_views_in_any_order():
    views = pa.ListViewArray.from_arrays([2, 0, 1, 1], [2, 1, 0, 3], pa.array([5, 6, 7, 8]))
    assert DATA.from_arrow(views).to_list() == views.to_pylist() == [[7, 8], [5], [], [6, 7, 8]]
    assert DATA.from_arrow(pa.array([[1], None], pa.list_view(pa.int64())), nulls="empty").to_list() == [[1], []]


def test_lists_of_fixed_size_are_a_level_on_request():
    pairs = pa.list_(pa.int64(), 2)
    assert DATA.from_arrow(pa.array([[1, 2], [3, 4]], pairs), fixed_lists="levels").to_list() == [[1, 2], [3, 4]]
    deep = pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pairs))
    x = DATA.from_arrow(deep, fixed_lists="levels")
    assert x.lod.to_lengths() == [[1, 0, 2], [2, 2, 2]] and DATA.from_arrow(deep).shape == (3, 2)
    holes = pa.array([[1, 2], None, [3, 4]], pairs)
    assert DATA.from_arrow(holes, fixed_lists="levels", nulls="empty").to_list() == [[1, 2], [], [3, 4]]
    with pytest.raises(ValueError, match="expected lists without nulls, got one at index 1 of chunk 0 at level 0"):
        DATA.from_arrow(holes, fixed_lists="levels")
    with pytest.raises(ValueError, match="expected fixed_lists 'dims' or 'levels', got 'rows'"):
        DATA.from_arrow(holes, fixed_lists="rows")


def test_structs_in_lists_are_a_record():
    events = [[{"item": 1, "price": 2.5}, {"item": 2, "price": 0.5}], [], [{"item": 3, "price": 1.0}]]
    for given in (pl.Series(events), pa.array(events), pa.array([[], *events], pa.array(events).type)[1:]):
        record = DATA.from_arrow(given)
        assert type(record) is DATA.Record and record["price"].lod is record["item"].lod
        assert record["item"].to_list() == [[1, 2], [], [3]] and record["price"].to_list() == [[2.5, 0.5], [], [1.0]]
    with pytest.raises(ValueError, match="expected rows without nulls, got one at row 1 of chunk 0"):
        DATA.from_arrow(pa.array([[{"a": 1}, None]]))


def test_times_are_int64():
    day = datetime.date(2026, 1, 2)
    time, since = datetime.datetime(2026, 1, 2, 3), datetime.timedelta(seconds=5)
    for value, kind, expected in (
        (time, pa.timestamp("s"), 1767322800),
        (time, pa.timestamp("ns", "UTC"), 1767322800 * 10**9),
        (day, pa.date32(), 20455),
        (day, pa.date64(), 20455 * 86400 * 1000),
        (since, pa.duration("ms"), 5000),
        (datetime.time(0, 1), pa.time32("s"), 60),
        (datetime.time(0, 1), pa.time64("us"), 60 * 10**6),
    ):
        x = DATA.from_arrow(pa.array([[value], [], [value, value]], pa.list_(kind)))
        assert x.dtype == torch.int64 and x.to_list() == [[expected], [], [expected] * 2]


def test_tables_are_fields_of_a_dataset():
    columns = {"words": [[1, 2], [], [3]], "label": [0, 1, 0], "ok": [True, False, True]}
    frame = pl.DataFrame(columns).with_columns(pl.Series("v", [[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.Float32, 2)))
    lists = pa.array(columns["words"])
    for given in (
        frame,
        pa.table({**columns, "v": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2))}),
        pd.DataFrame({**columns, "words": pd.Series(columns["words"], dtype=pd.ArrowDtype(lists.type))}),
        duckdb.sql("select * from frame"),
        pl.concat([frame[:1], frame[1:]], rechunk=False),
    ):
        found = DATA.from_arrow(given)
        assert found["words"].to_list() == columns["words"] and found["label"].tolist() == columns["label"]
        assert found["ok"].tolist() == columns["ok"] and found["ok"].dtype == torch.bool
        assert type(given) is pd.DataFrame or found["v"].tolist() == [[1, 2], [3, 4], [5, 6]]
        batch = DATA.collate(DATA.LoDDataset(found).__getitems__([2, 0]))
        assert batch["words"].to_list() == [[3], [1, 2]] and batch["label"].tolist() == [0, 0]
    assert DATA.from_arrow(frame[:0])["words"].lod.to_lengths() == [[]] and DATA.from_arrow(frame[:0])["v"].shape == (
        0,
        2,
    )
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match="expected columns of different names, got 'a' twice"):
        DATA.from_arrow(pa.chunked_array([pa.StructArray.from_arrays(twice.columns[0].chunks * 2, ["a", "a"])]))
    with pytest.raises(ValueError, match="got one at index 1 of chunk 0 at level 0; pass nulls='empty' in column 'x'"):
        DATA.from_arrow(pl.DataFrame({"x": [[1], None]}))


# -- awkward


def test_awkward_arrays():
    a = ak.Array(NESTED)
    equal(DATA.from_awkward(a), X)
    assert DATA.from_awkward(a).data_ptr() == np.asarray(ak.to_packed(a).layout.content.content.data).ctypes.data
    assert DATA.from_awkward(a[[2, 0]]).to_list() == [NESTED[2], NESTED[0]]
    assert DATA.from_awkward(a[1:]).to_list() == NESTED[1:]
    assert DATA.to_awkward(X).to_list() == NESTED
    assert np.asarray(DATA.to_awkward(X).layout.content.content.data).ctypes.data == X.data_ptr()
    rows = DATA.from_awkward(ak.Array([np.ones((2, 3)), np.zeros((1, 3))]))
    assert rows.lod.to_lengths() == [[2, 1], [3, 3, 3]]
    vectors = tl.from_lengths(torch.rand(3, 4), [[2, 1]])
    equal(DATA.from_awkward(DATA.to_awkward(vectors)), vectors)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (lambda: ak.Array([[1, None]]), ValueError, "without missing values"),
        (lambda: ak.Array([[1], None]), ValueError, "without missing values"),
        (lambda: ak.Array([1, 2]), TypeError, "expected nested lists of numbers, got 2 * int64"),
        (lambda: ak.Array([["ab"]]), TypeError, "expected nested lists of numbers"),
        (lambda: ak.Array([[{"x": 1}]]), TypeError, "expected nested lists of numbers"),
        (lambda: [[1]], TypeError, "expected array as an awkward array, got list"),
    ],
)
def test_other_awkward_arrays_are_refused(given, error, said):
    with pytest.raises(error) as raised:
        DATA.from_awkward(given())
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)


def test_awkward_arrays_that_lie_are_refused():
    offsets = ak.index.Index64(np.array([0, 2, 9]))
    lying = ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(np.arange(3))))
    with pytest.raises(ValueError, match="from_awkward: expected a valid array, got one that lies"):
        DATA.from_awkward(lying)


# -- safetensors


def test_its_library_reads_our_files_and_writes_ours(tmp_path):
    path = tmp_path / "x"
    DATA.save({"x": X, "y": torch.ones(2).bfloat16()}, path)
    found = safetensors.torch.load_file(path)
    assert torch.equal(found["x"], X.values()) and found["y"].dtype == torch.bfloat16
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    again = tmp_path / "again"  # with its own order and header, and our checksums
    safetensors.torch.save_file(found, again, metadata)
    for mmap in (False, True):
        equal(DATA.load(again, mmap=mmap)["x"], X)


# -- torchdata


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_loaders_resume(workers):
    lengths = np.random.default_rng(0).integers(0, 20, 300)
    samples = [[i] * (i % 7) for i in range(100)]

    def loaders():
        sampler = DATA.TokenBudgetSampler(lengths, 64)
        yield StatefulDataLoader(range(300), batch_sampler=sampler, num_workers=workers, collate_fn=list)
        stream = DATA.TokenBudgetStream(samples, 20, buffer=16)
        yield StatefulDataLoader(stream, batch_size=None, num_workers=workers, collate_fn=list)

    for loader, resumed in zip(loaders(), loaders()):
        batches = iter(loader)
        list(itertools.islice(batches, 5))
        state = loader.state_dict()
        tail = list(batches)
        resumed.load_state_dict(state)
        assert tail and list(resumed) == tail
