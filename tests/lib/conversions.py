# SPDX-License-Identifier: Apache-2.0
"""The table of layouts in docs/data.md, run line by line: what comes back, and whether rows share memory.

`python tests/lib/conversions.py` prints it with the copies counted; tests/data/check_formats.py and tests/data/test_data_convert.py hold the
page to it. Rows of libraries that are not installed are left out.
"""

import importlib.util
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import torch_lod as tl

PAGE = Path(__file__).parents[2] / "docs/data.md"
FLAT = tl.from_lengths(torch.arange(12.0).view(6, 2), [[2, 1, 3]])
DEEP = tl.from_lengths(torch.arange(6.0), [[2, 0, 1], [3, 0, 3]])


DEEP_KEYS = tl.from_lengths(torch.arange(6.0), [[2, 1], [1, 2, 3]])  # what has keys has no empty sequences
FILE = os.path.join(tempfile.mkdtemp(), "rows.npy")


class Row(NamedTuple):
    """A line of the table: code that reads the layout and what becomes of the rows, code that writes it and the same."""

    into: list[str]
    rows_in: str
    out: list[str]
    rows_out: str


class Layout(NamedTuple):
    """How to check a line: `given` makes the layout of a LoDTensor, as names for the code; `made` makes such names of what the
    code of the way out gives; `rows` finds the memory of the rows among them, None where they are in a file."""

    x: tl.LoDTensor
    given: Callable[[tl.LoDTensor], dict[str, Any]]
    made: Callable[..., dict[str, Any]]
    rows: Callable[[dict[str, Any]], int | None]
    needs: tuple[str, ...] = ()


class JaggedTensor:
    """What of torchrec's class of this name is used here: torchrec itself needs a fbgemm_gpu that was built for the torch."""

    def __init__(self, values, lengths):
        self._values, self._lengths = values, lengths

    def values(self):
        return self._values

    def lengths(self):
        return self._lengths


class KeyedJaggedTensor(JaggedTensor):
    """The same: all samples of the first key, then all of the second."""

    def __init__(self, keys, values, lengths):
        super().__init__(values, lengths)
        self._keys = keys

    def keys(self):
        return self._keys

    def stride_per_key(self):
        return [len(self._lengths) // len(self._keys)] * len(self._keys)


def table() -> dict[str, Row]:
    """The table of the page by its first column."""
    text = PAGE.read_text().partition("## Other layouts\n")[2]
    rows = {}
    for line in re.findall(r"^\| (.*) \|$", text, re.M):
        if len(cells := line.split(" | ")) == 5 and cells[0] not in ("layout", ""):
            into, out = (re.findall(r"`([^`]*)`", cells[i]) for i in (1, 3))
            rows[cells[0]] = Row(into, cells[2], out, cells[4])
    return rows


def of(name: str):
    """The address of what has that name."""

    def address(names: dict) -> int:
        found = names[name]
        return found.ctypes.data if isinstance(found, np.ndarray) else found.data_ptr()

    return address


def named(*keys: str):
    return lambda *results: dict(zip(keys, results))


def lists(x: tl.LoDTensor, leaf) -> list:
    """Nested lists, with a leaf for every innermost sequence."""
    found = [leaf(rows.clone()) for rows in x.sequences()]
    for offsets in reversed(x.lod.levels[:-1]):
        ends = offsets.tolist()
        found = [found[a:b] for a, b in itertools.pairwise(ends)]
    return found


def objects(items: list) -> np.ndarray:
    """An array of objects for every list."""
    made = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        made[i] = objects(item) if isinstance(item, list) else item
    return made


def leaf_of(items):
    while isinstance(items, list) or (isinstance(items, np.ndarray) and items.dtype == object):
        items = items[0]
    return items.ctypes.data if isinstance(items, np.ndarray) else items.data_ptr()


def written(x: tl.LoDTensor) -> dict:
    path = os.path.join(tempfile.mkdtemp(), "rows.npy")
    np.save(path, x.values().numpy())
    return {"path": path, "lengths": x.lod.to_lengths()}


def saved(x: tl.LoDTensor) -> dict:
    path = os.path.join(tempfile.mkdtemp(), "x")
    tl.data.save(x, path)
    return {"path": path}


def sparse_of(x: tl.LoDTensor) -> torch.Tensor:
    index = [[i, j] for i, n in enumerate(x.lod.to_lengths()[0]) for j in range(n)]
    size = (x.num_sequences(), x.max_length(), *x.shape[1:])
    return torch.sparse_coo_tensor(torch.tensor(index).t(), x.values().clone(), size).coalesce()


def graphs(x: tl.LoDTensor) -> dict:
    from torch_geometric.data import Batch, Data

    edges = [torch.stack([torch.arange(len(s)), torch.arange(len(s)).flip(0)]) for s in x.sequences()]
    data = Batch.from_data_list([Data(x=s.clone(), edge_index=e) for s, e in zip(x.sequences(), edges)])
    return {"data": data}


def table_of(x: tl.LoDTensor) -> dict:
    import pandas as pd

    order = torch.tensor([3, 0, 4, 1, 5, 2])  # rows of other groups between those of one, in order within each
    where = [x.lod.segment_ids(level)[order].numpy() for level in (0, 1)]
    return {"df": pd.DataFrame({"user": where[0], "visit": where[1], "x": x.values()[order].numpy()})}


def column(x: tl.LoDTensor) -> dict:
    import pyarrow as pa

    return {"table": pa.table({"x": pa.array(x.to_list(), pa.list_(pa.list_(pa.float32())))})}


def arrow_rows(names: dict) -> int:
    return names["table"]["x"].chunk(0).values.values.buffers()[1].address


def awkward_rows(names: dict) -> int:
    import awkward as ak

    return np.asarray(ak.to_packed(names["array"]).layout.content.content.data).ctypes.data


def foreign() -> dict[str, Layout]:
    """The checks, by the first column of the table."""
    pad = torch.nn.utils.rnn.pad_sequence
    alone = lambda x: [s.clone() for s in x.sequences()]  # noqa: E731
    filled = lambda x: pad(alone(x), batch_first=True)  # noqa: E731
    mask = lambda x: torch.arange(3) < x.lengths()[:, None]  # noqa: E731
    lengths = lambda x: x.lod.to_lengths()  # noqa: E731
    in_file = lambda names: None  # noqa: E731
    packed = lambda x: torch.nn.utils.rnn.pack_sequence(alone(x), enforce_sorted=False)  # noqa: E731
    nested = lambda x: torch.nested.nested_tensor(alone(x), layout=torch.jagged)  # noqa: E731
    keyed = lambda x: KeyedJaggedTensor(["user", "item"], x.values().clone(), x.lengths())  # noqa: E731

    def dict_of(x):
        from tensordict import TensorDict

        return {"td": TensorDict({"x": nested(x)}, [x.num_sequences()])}

    def awkward(x):
        import awkward as ak

        return {"array": ak.values_astype(ak.Array(x.to_list()), "float32")}

    def arrow_made(array):
        import pyarrow as pa

        return {"table": pa.table({"x": array})}

    pairs = tl.from_lengths(torch.arange(6.0), [[3, 3], [1, 0, 2, 1, 2, 0]])  # two keys of three samples
    return {
        "rows and lengths": Layout(
            DEEP,
            lambda x: {"values": x.values().clone(), "lengths": lengths(x)},
            lambda values, *found: {"values": values, "lengths": [n.tolist() for n in found]},
            of("values"),
        ),
        "rows and offsets": Layout(
            DEEP,
            lambda x: {"values": x.values().clone(), "offsets": x.lod.to_list()},
            lambda values, offsets: {"values": values, "offsets": offsets},
            of("values"),
        ),
        "nested lists": Layout(DEEP, lambda x: {"lists": x.to_list()}, named("lists"), in_file),
        "lists of tensors, nested": Layout(
            FLAT,
            lambda x: {"tensors": lists(x, lambda rows: rows)},
            lambda found, *rest: {"tensors": list(found)},
            lambda names: leaf_of(names["tensors"]),
        ),
        "arrays in lists, or in arrays of objects, nested": Layout(
            DEEP,
            lambda x: {"arrays": objects(lists(x, torch.Tensor.numpy))},
            named("arrays"),
            lambda names: leaf_of(names["arrays"]),
        ),
        "an array in a file (.npy)": Layout(
            DEEP,
            written,
            lambda *saved: {"path": FILE, "lengths": lengths(DEEP)},
            in_file,
        ),
        "padded, and lengths": Layout(
            FLAT,
            lambda x: {"dense": filled(x), "lengths": x.lengths()},
            lambda found: {"dense": found[0], "lengths": found[1]},
            of("dense"),
        ),
        "padded, and a mask, bool or 0 and 1": Layout(
            FLAT,
            lambda x: {"dense": filled(x), "mask": mask(x)},
            lambda found, mask: {"dense": found[0], "mask": mask},
            of("dense"),
        ),
        "packed rows and `cu_seqlens`": Layout(
            FLAT,
            lambda x: {"values": x.values().clone(), "cu": x.cu_seqlens()},
            lambda values, cu: {"values": values, "cu": cu},
            of("values"),
        ),
        "packed rows and `position_ids`": Layout(
            FLAT,
            lambda x: {"values": x.values().clone(), "position_ids": x.lod.position_ids()},
            named("values", "position_ids"),
            of("values"),
        ),
        "rows and segment ids": Layout(
            FLAT,
            lambda x: {"values": x.values().clone(), "ids": x.lod.segment_ids(), "count": 3},
            lambda values, ids: {"values": values, "ids": ids, "count": 3},
            of("values"),
        ),
        "rows and segment ids in any order": Layout(
            FLAT,
            lambda x: {"values": x.values().clone(), "ids": x.lod.segment_ids()},
            named("values", "ids"),
            of("values"),
        ),
        "rows and flags, True where a sequence begins": Layout(
            FLAT,
            lambda x: {"values": x.values().clone(), "starts": x.lod.position_ids() == 0},
            named("values", "starts"),
            of("values"),
        ),
        "PyG: nodes of a `Batch`": Layout(
            FLAT,
            graphs,
            named("data"),
            lambda names: names["data"].x.data_ptr(),
            ("torch_geometric",),
        ),
        "rows of a table, with keys (pandas)": Layout(
            DEEP_KEYS, table_of, named("df"), lambda names: names["df"]["x"].to_numpy().ctypes.data, ("pandas",)
        ),
        "PackedSequence": Layout(
            FLAT, lambda x: {"packed": packed(x)}, named("packed"), lambda n: n["packed"][0].data_ptr()
        ),
        "torch.nested, jagged: one level": Layout(
            FLAT,
            lambda x: {"nested": nested(x)},
            lambda found, *rest: {"nested": found},
            lambda names: names["nested"].values().data_ptr(),
        ),
        "TensorDict, of such": Layout(
            FLAT, dict_of, named("td"), lambda names: names["td"]["x"].values().data_ptr(), ("tensordict",)
        ),
        "torchrec: `JaggedTensor`": Layout(
            FLAT,
            lambda x: {"j": JaggedTensor(x.values().clone(), x.lengths())},
            named("j"),
            lambda names: names["j"].values().data_ptr(),
        ),
        "torchrec: `KeyedJaggedTensor`; levels: key, sample": Layout(
            pairs,
            lambda x: {"k": keyed(x)},
            named("k"),
            lambda names: names["k"].values().data_ptr(),
        ),
        "Arrow: nested lists of a table of Parquet or Feather": Layout(
            DEEP, column, arrow_made, arrow_rows, ("pyarrow",)
        ),
        "awkward": Layout(DEEP, awkward, named("array"), awkward_rows, ("awkward",)),
        "sparse COO (sequences, longest, ...)": Layout(
            FLAT, lambda x: {"sparse": sparse_of(x)}, named("sparse"), lambda names: names["sparse"].values().data_ptr()
        ),
        "safetensors": Layout(DEEP, saved, lambda *nothing: {"path": FILE}, in_file),
    }


def names_for(row: Row, given: dict) -> dict:
    """What the code may use: packages, and stand-ins for classes of others."""
    names = {"tl": tl, "torch": torch, "numpy": np, "level": -1, "path": FILE, "keys": ["user", "item"]}
    names |= {"JaggedTensor": JaggedTensor, "KeyedJaggedTensor": KeyedJaggedTensor}
    for module, name in (("pandas", "pd"), ("tensordict", "tensordict"), ("torch_geometric.data", "pyg")):
        if any(f"{name}." in code for code in (*row.into, *row.out)):
            names[name] = importlib.import_module(module)
    return names | given


def equal(a: tl.LoDTensor, b: tl.LoDTensor) -> None:
    assert a.lod == b.lod and a.dtype == b.dtype and torch.equal(a.values(), b.values()), (a, b)


def checked(row: Row, layout: Layout) -> tuple[int | None, int | None]:
    """Copies of the rows on the way in and out, as counted; None for those that go to a file or to Python's numbers.

    Every code of the line runs: each way in gives x, and so does what the way out wrote.
    """
    x, given = layout.x, layout.given(layout.x)
    copies: list[bool] = []
    for code in row.into:
        found = eval(code, names_for(row, given))
        equal(found, x)
        copies.append(found.data_ptr() != layout.rows(given))
    assert len(set(copies)) == 1, f"{row.into}: some copy and some share"
    results = [eval(code, names_for(row, {"x": x})) for code in row.out]
    again = layout.made(*results)
    for code in row.into:
        equal(eval(code, names_for(row, again)), x)
    address = layout.rows(again)
    if address is None:
        return None, None
    return int(copies[0]), int(address != x.data_ptr())


def words_of(row: Row, copies: tuple[int | None, int | None]) -> None:
    """The page says of the rows what was counted."""
    for said, counted in zip((row.rows_in, row.rows_out), copies):
        kinds = {0: ("shared",), 1: ("copied",), None: ("copied", "mapped", "written")}[counted]
        assert said.split()[0].strip(",;") in kinds, f"{row.into}: the page says {said!r}, counted were {counted}"


def installed(layout: Layout) -> bool:
    return all(importlib.util.find_spec(name) for name in layout.needs)


def main() -> None:
    print("| layout | copies of the rows, in | out | back again |\n|---|---|---|---|")
    rows = table()
    for name, layout in foreign().items():
        if installed(layout):
            copies = checked(rows[name], layout)
            words_of(rows[name], copies)
            into, out = ("a file, or Python's numbers" if n is None else n for n in copies)
            print(f"| {name} | {into} | {out} | equal |")


if __name__ == "__main__":
    main()
