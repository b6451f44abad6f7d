# SPDX-License-Identifier: Apache-2.0
"""Conversions of tl.data that need torch and numpy alone. tests/data/check_formats.py has those of other libraries."""

import copy
import random
import sys

import conversions
import numpy as np
import pytest
import torch

import torch_lod as tl

DATA = tl.data


def test_masks_of_every_side():
    draw = random.Random(0)
    for count, length in ((0, 3), (3, 0), (1, 1), (5, 7)):
        for trial in range(20):
            lengths = [draw.randint(0, length) for _ in range(count)]
            first = [{0: 0, 1: length - n}.get(trial % 3, draw.randint(0, length - n)) for n in lengths]
            mask = torch.zeros(count, length, dtype=torch.bool)
            for i, (a, n) in enumerate(zip(first, lengths)):
                mask[i, a : a + n] = True
            dense = torch.rand(count, length, 2, requires_grad=True)
            for given in (mask, mask.int(), mask.numpy(), mask.to(torch.uint8).numpy()):
                x = DATA.from_mask(dense, given, level_names=["a"])
                assert x.lod.to_lengths() == [lengths] and torch.equal(x.values(), dense[mask])
                assert x.level_names == ("a",)
            x.values().square().sum().backward()
            assert torch.equal(dense.grad, torch.where(mask[..., None], 2 * dense, 0).detach())


def test_positions_say_where_sequences_begin():
    x = tl.from_lengths(torch.rand(7, 2), [[3, 1, 2, 1]])
    y = DATA.from_position_ids(x.values(), x.lod.position_ids(), level_names=["a"])
    assert y.lod == x.lod and y.data_ptr() == x.data_ptr() and y.level_names == ("a",)
    assert DATA.from_position_ids(torch.rand(0), []).lod.to_list() == [[0]]
    assert DATA.from_position_ids(np.arange(2), [0, 0]).lod.to_lengths() == [[1, 1]]


def test_keys_group_rows():
    draw = np.random.default_rng(0)
    for count in (0, 1, 5, 60):
        outer, inner = draw.choice(["x", "a", "m"], count), draw.integers(-2, 3, count)
        rows = torch.rand(count, 2)
        x, names = DATA.from_keys(rows, outer, torch.from_numpy(inner), level_names=["a", "b"])
        groups = {}
        for i in range(count):
            groups.setdefault(outer[i], {}).setdefault(int(inner[i]), []).append(i)
        expected = [[groups[a][b] for b in sorted(groups[a])] for a in sorted(groups)]
        assert names[0].tolist() == sorted(groups)
        assert names[1].tolist() == [b for a in sorted(groups) for b in sorted(groups[a])]
        order = [i for a in expected for b in a for i in b]
        assert x.lod.to_lengths() == [[*map(len, expected)], [len(b) for a in expected for b in a]]
        assert torch.equal(x.values(), rows[order]) and x.level_names == ("a", "b")
    rows = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x, names = DATA.from_keys(rows, ["b", "a", "b"])
    assert x.to_list() == [[2.0], [1.0, 3.0]] and names[0].tolist() == ["a", "b"]
    x.values()[0].backward()
    assert rows.grad.tolist() == [0, 1, 0]
    days = np.array(["2026-03-01", "2026-01-01", "2026-03-01"], "datetime64[D]")
    assert DATA.from_keys(np.arange(3), days, np.array(["q", "p", "q"], dtype=object))[0].to_list() == [[[1]], [[0, 2]]]


def test_keys_are_not_changed_before_they_are_compared():
    whole = [2**53, 2**53 + 1, 0.5]
    x, (names,) = tl.data.from_keys(torch.arange(3), whole)
    assert x.to_list() == [[2], [0], [1]] and names.tolist() == [0.5, *whole[:2]]
    x, (names,) = tl.data.from_keys(torch.arange(3), [2**63, 2**63 + 1, -1])
    assert x.to_list() == [[2], [0], [1]]
    x, (names,) = tl.data.from_keys(torch.arange(3), [1.5, 2, 1.5])
    assert x.to_list() == [[0, 2], [1]] and names.dtype == np.float64
    with pytest.raises(TypeError, match=r"keys\[0\] that can be ordered"):
        tl.data.from_keys(torch.arange(2), [1, "1"])


M = 2**64 - 1


@pytest.mark.parametrize(
    "keys",
    [
        [np.uint64(M), np.uint64(M - 1), 1],
        [np.uint64(M), np.uint64(M - 1), np.int64(-1)],
        [np.int64(2**53 + 1), np.int64(2**53), np.float32(1)],
        [np.int64(2**53 + 1), np.float64(2**53), np.float16(1)],
        [np.array(2**53 + 1), np.array(2**53), np.array(0.5)],
        [torch.tensor(2**53 + 1), torch.tensor(2**53), torch.tensor(0.5)],
        [np.bool_(True), np.uint64(M), -1.0],
    ],
    ids=str,
)
def test_numbers_of_several_types_are_not_rounded(keys):
    """As Python compares numbers; numpy and torch would compare them in a type of both, most often float64."""
    exact = [key.item() if hasattr(key, "item") else key for key in keys]
    expected = [[exact.index(key)] for key in sorted(exact)]
    objects = np.empty(3, dtype=object)
    objects[:] = keys
    for given in (keys, tuple(keys), objects):
        x, (names,) = DATA.from_keys({"a": torch.arange(3)}, given)
        assert x["a"].to_list() == expected and names.tolist() == sorted(exact)


def test_times_of_several_units():
    day, ns = np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00:00:00.5", "ns")
    assert DATA.from_keys(torch.arange(3), [ns, day, ns])[0].to_list() == [[1], [0, 2]]
    for far, near in ((np.datetime64("3000-01-01"), ns), (np.timedelta64(2**62, "s"), np.timedelta64(1, "ns"))):
        for given in ([near, far], np.array([near, far, None], dtype=object)[:2]):
            with pytest.raises(
                ValueError, match=r"from_keys: expected keys\[0\] within the range of .*\[ns\], got .* index 1"
            ):
                DATA.from_keys(torch.arange(2), given)
    with pytest.raises(TypeError, match=r"keys\[0\] that can be ordered"):
        DATA.from_keys(torch.arange(2), [np.complex64(1), 2**53 + 1])


def test_masked_elements_are_refused():
    masked = np.ma.array([1, 2], mask=[False, True])
    for make in (tl.batch, tl.from_tensors):
        with pytest.raises(ValueError, match="without masked elements, got 1 of them"):
            make([masked])
        assert make([np.ma.array([1, 2])]).to_list() == [[1, 2]]
    rows, x = torch.arange(2.0), tl.from_lengths(torch.arange(2.0), [[1, 1]])
    for call in (
        lambda: DATA.from_keys(rows, masked),
        lambda: DATA.from_keys(rows, np.ma.array(["a", "b"], mask=[False, True])),
        lambda: DATA.from_position_ids(rows, masked - 1),
        lambda: DATA.TokenBudgetSampler(masked, 9),
        lambda: DATA.TokenBudgetSampler([1, 2], 9, cost=lambda lengths: masked),
        lambda: tl.from_lengths(rows, [masked]),
        lambda: tl.from_segment_ids(rows, masked - 1),
        lambda: tl.batch([np.ma.masked]),
        lambda: np.add(x, np.ma.array(rows.numpy(), mask=[False, True])),
    ):
        with pytest.raises(ValueError, match=r"expected .* without masked elements, got 1 of them; see .filled\(\)"):
            call()
    with pytest.raises(ValueError, match=r"a key for each row in keys\[0\], got masked at index 1"):
        DATA.from_keys(rows, ["a", np.ma.masked])
    assert tl.from_lengths(rows, [np.ma.array([1, 1])]).lod == x.lod


def test_sparse_there_and_back():
    for lengths in ([2, 0, 3, 0], [], [0, 0], [1]):
        for element in ((), (2,)):
            rows = torch.rand(sum(lengths), *element, requires_grad=True)
            x = tl.from_lengths(rows, [lengths])
            sparse = DATA.to_sparse(x)
            assert torch.equal(sparse.to_dense(), x.to_padded()[0]) and sparse.is_coalesced()
            back = DATA.from_sparse(sparse, level_names=["a"])
            assert back.lod == x.lod and torch.equal(back.values(), rows) and back.level_names == ("a",)
            back.values().square().sum().backward()
            assert torch.equal(rows.grad, 2 * rows.detach())
    twice = torch.sparse_coo_tensor([[1, 0, 1], [0, 0, 0]], [1.0, 2.0, 3.0], (3, 4))
    assert DATA.from_sparse(twice).to_list() == [[2.0], [4.0], []]
    assert DATA.to_sparse(tl.from_lengths(torch.rand(3), [[2, 1]]).to("meta")).is_meta


def test_records_are_saved_as_such(tmp_path):
    lod = tl.LoD.from_lengths([[2, 1], [1, 2, 3]], level_names=["user", "visit"])
    record = DATA.Record({"a": tl.rand(lod, 2), "b": tl.ones(lod, dtype=torch.int32)})
    torch.save({"r": record}, tmp_path / "t")
    DATA.save(record, tmp_path / "s")
    for found in (
        torch.load(tmp_path / "t")["r"],
        DATA.load(tmp_path / "s"),
        DATA.load(tmp_path / "s", mmap=True),
        copy.deepcopy(record),
    ):
        assert type(found) is DATA.Record and list(found) == ["a", "b"] and found.lod == lod
        assert found["a"].lod is found["b"].lod and found.lod.level_names == lod.level_names
        assert all(torch.equal(found[name].values(), record[name].values()) for name in record)
    assert len(DATA.LoDDataset(tmp_path / "s")) == 2
    DATA.save({**record}, tmp_path / "d")
    assert type(DATA.load(tmp_path / "d")) is dict
    other = DATA.file._structured
    about = {"version": 1, "single": False, "fields": {"a": None}, "lods": [], "record": True}
    for wrong in (about, {**about, "record": 1}):
        with pytest.raises(ValueError, match="expected a record of here to have one structure for all fields"):
            other(wrong, {"a": torch.ones(1)}, "here")


class Series:
    def to_numpy(self):
        return np.zeros(2)

    def __len__(self):
        return 2


class DataFrame(Series):
    columns, shape = ["a"], (2, 1)


def test_tables_and_columns_are_sent_on():
    rows = torch.zeros(2)
    one = tl.from_lengths(rows, [[2]])
    for call in (
        tl.lod_tensor,
        tl.from_tensors,
        tl.batch,
        DATA.LoDDataset,
        lambda given: DATA.from_keys(given, [1, 1]),
    ):
        with pytest.raises(TypeError, match=r"got Series; see .to_numpy\(\), and tl.data.from_arrow for lists"):
            call(Series())
        with pytest.raises(TypeError, match=r"got DataFrame; see tl.data.from_frame\(df, keys=\[...\]\)"):
            call(DataFrame())
    for call, said in (
        (lambda: tl.from_tensors([[1, 2], [3]]), "got int; a nested list of numbers: tl.lod_tensor"),
        (lambda: tl.from_lengths(rows, [[1, 1]]).filter([True, False, True]), r"got \(3,\)$"),
        (
            lambda: tl.from_lengths(rows, [[2, 0, 0]]).filter([True, False, True]),
            r"whole sequences are taken with x.seq\[mask\]",
        ),
        (
            lambda: torch.nn.Linear(2, 1)(tl.from_lengths(rows, [[2]])),
            r"tl.data.collate\(items, stack=\[...\]\) stacks it",
        ),
        (lambda: torch.nn.LayerNorm(2)(one), r"tl.data.collate\(items, stack=\[...\]\) stacks it"),
        (lambda: torch.cat([one, torch.rand(1, 3)], -1), r"tl.data.collate\(items, stack=\[...\]\) stacks it"),
        (lambda: one + torch.rand(3, 2), r"tl.data.collate\(items, stack=\[...\]\) stacks it"),
        (lambda: tl.batch([Series(), Series()]), r"got Series; see .to_numpy\(\), and tl.data.from_arrow for lists"),
        (lambda: tl.batch([{"t": Series()}]), r"numbers in 't', got Series; see .to_numpy\(\)"),
        (lambda: tl.batch([DataFrame()]), r"got DataFrame; see tl.data.from_frame"),
        (lambda: DATA.Record(DataFrame()), "see tl.data.from_frame"),
        (lambda: DATA.Record({"t": Series()}), r"as 't'; see .to_numpy\(\)"),
        (lambda: DATA.LoDDataset({"x": one, "t": Series()}), r"as 't'; see .to_numpy\(\)"),
        (lambda: DATA.from_keys(rows, DataFrame()), r"got shape \(\); see tl.data.from_frame"),
    ):
        with pytest.raises((ValueError, TypeError), match=said):
            call()


def test_arrays_of_objects_there_and_back():
    for x in (
        tl.from_lengths(torch.rand(6, 2), [[2, 0, 1], [3, 0, 3]]),
        tl.from_lengths(torch.arange(6).int(), [[2, 0, 4]]),
        tl.from_lengths(torch.rand(0, 2), [[0, 1], [0]]),
    ):
        found = DATA.to_numpy(x)
        assert found.dtype == object and found.shape == (x.num_sequences(),)
        inner = found
        for _ in range(x.lod_level - 1):
            inner = np.concatenate(list(inner))
        assert [a.tolist() for a in inner] == [s.tolist() for s in x.sequences(-1)]
        if len(x):
            levels = tl.lod_tensor(found, depth=x.lod_level)
            for back in (
                tl.batch(found),
                tl.batch(list(found)),
                tl.from_tensors(found),
                tl.from_tensors(list(found)),
                levels,
            ):
                assert back.lod == x.lod and torch.equal(back.values(), x.values())
            inner[0][0] = 9
            assert (x[0] == 9).all()  # the same memory
    turned = torch.complex(torch.zeros(2), torch.arange(2.0)).conj()
    for rows, expected in ((turned, [0, -1j]), (turned.imag, [0, -1])):
        assert DATA.to_numpy(tl.from_lengths(rows, [[2]]))[0].tolist() == expected
    for dtype in (torch.bfloat16, torch.float8_e4m3fnuz, torch.float8_e8m0fnu):
        with pytest.raises(TypeError, match=f"to_numpy: expected a dtype that numpy has, got {dtype}; see x.float"):
            DATA.to_numpy(tl.from_lengths(torch.zeros(1).to(dtype), [[1]]))
    with pytest.raises(TypeError, match="to_numpy: expected x with data, got a meta tensor"):
        DATA.to_numpy(tl.from_lengths(torch.zeros(1, device="meta"), [[1]]))
    with pytest.raises(TypeError, match="to_numpy: expected x as a LoDTensor, got Tensor"):
        DATA.to_numpy(torch.zeros(1))


def test_the_table_of_layouts_has_a_check_for_every_line():
    assert list(conversions.table()) == list(conversions.foreign())


@pytest.mark.parametrize("layout", [name for name, found in conversions.foreign().items() if not found.needs])
def test_the_table_of_layouts(layout):
    row, how = conversions.table()[layout], conversions.foreign()[layout]
    conversions.words_of(row, conversions.checked(row, how))


class NAType:
    """As pandas.NA: its comparisons are neither true nor false."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


class Column:
    """Of a table, as those of pandas."""

    def to_numpy(self):
        return np.zeros(2)


ONES, HOLE = torch.ones(2, 3), torch.tensor([[1, 1, 0], [1, 0, 1]])


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (
            lambda: DATA.from_mask(ONES, HOLE),
            ValueError,
            "from_mask: expected rows that follow one another, got a hole at index [1, 1]",
        ),
        (lambda: DATA.from_mask(ONES, HOLE * 2), ValueError, "expected a mask of 0 and 1, got 2 at index [0, 0]"),
        (lambda: DATA.from_mask(ONES, -HOLE), ValueError, "expected a mask of 0 and 1, got -1 at index [0, 0]"),
        (lambda: DATA.from_mask(ONES, HOLE.float()), ValueError, "got torch.float32; see mask.bool()"),
        (
            lambda: DATA.from_mask(ONES, HOLE[:1]),
            ValueError,
            "expected a mask of shape (2, 3), got a torch.int64 Tensor",
        ),
        (lambda: DATA.from_mask(ONES, None), ValueError, "expected a mask of shape (2, 3), got None"),
        (lambda: DATA.from_mask(ONES[0], HOLE), ValueError, "expected dense of shape (sequences, length, ...)"),
        (lambda: DATA.from_position_ids(ONES, [0, 2]), ValueError, "count up from 0, got 0 then 2 at index 1"),
        (lambda: DATA.from_position_ids(ONES, [1, 2]), ValueError, "count up from 0, got 1 at index 0"),
        (lambda: DATA.from_position_ids(ONES, [-1, 0]), ValueError, "count up from 0, got -1 at index 0"),
        (lambda: DATA.from_position_ids(ONES, [0, 1, 2]), ValueError, "expected the 1-level LoD to cover the 2 rows"),
        (
            lambda: DATA.from_sparse(ONES),
            TypeError,
            "a sparse COO tensor, got a tensor of layout torch.strided; see .to_sp",
        ),
        (lambda: DATA.from_sparse([1]), TypeError, "expected a sparse COO tensor, got list"),
        (
            lambda: DATA.from_sparse(torch.ones(2).to_sparse()),
            ValueError,
            "expected 2 sparse dims, sequences and positions",
        ),
        (
            lambda: DATA.from_sparse(HOLE.to_sparse()),
            ValueError,
            "expected entries that fill each row from the left, got one at index [1, 2]",
        ),
        (
            lambda: DATA.to_sparse(tl.from_lengths(ONES, [[1], [2]])),
            ValueError,
            "expected 1 level, got 2; see flatten_levels",
        ),
        (lambda: DATA.from_keys(ONES), ValueError, "at least 1 key for each, got"),
        (
            lambda: DATA.from_keys(ONES, [1]),
            ValueError,
            "expected keys[0] with 2 keys, one for each row, got shape (1,)",
        ),
        (lambda: DATA.from_keys(ONES, [1, 2], [0.5, float("nan")]), ValueError, "in keys[1], got "),
        (lambda: DATA.from_keys(ONES, ["a", None]), ValueError, "a key for each row in keys[0], got None at index 1"),
        (lambda: DATA.from_keys(ONES, np.array(["a", NAType()])), ValueError, "in keys[0], got <"),
        (
            lambda: DATA.from_keys(Column(), ["a", "b"]),
            TypeError,
            "as a tensor or an array, got Column; see .to_numpy()",
        ),
        (
            lambda: DATA.from_keys(ONES, np.array(["a", 1], object)),
            TypeError,
            "expected keys[0] that can be ordered, got",
        ),
        (lambda: DATA.from_keys(ONES, [[1], [2, 3]]), TypeError, "expected keys[0] as an array or a list, got list"),
        (lambda: DATA.from_keys(torch.tensor(1), [1]), ValueError, "expected values with rows"),
    ],
)
def test_errors(call, error, said):
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)


@pytest.mark.parametrize("name", ["from_arrow", "to_arrow", "from_awkward", "to_awkward"])
def test_what_is_not_installed_is_named(name, monkeypatch):
    library = {"arrow": "pyarrow", "awkward": "awkward"}[name.partition("_")[2]]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=f"{name}: expected {library} to be installed, got none; pip install {library}"
    ):
        getattr(DATA, name)(tl.from_lengths(torch.zeros(1), [[1]]))
