# SPDX-License-Identifier: Apache-2.0
"""tl.data.save and load: what was written comes back, and nothing else does."""

import contextlib
import functools
import json
import math
import os
import zlib

import numpy as np
import pytest
import torch

import torch_lod as tl

X = tl.from_lengths(torch.arange(12.0).view(6, 2), [[2, 1], [1, 2, 3]], level_names=("text", None))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


def equal(a, b):
    if isinstance(b, tl.LoDTensor):
        assert isinstance(a, tl.LoDTensor) and a.lod == b.lod and a.level_names == b.level_names
        a, b = a.values(), b.values()
    assert a.dtype == b.dtype and a.shape == b.shape and a.device == b.device
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    assert torch.equal(a, b)


DTYPES = (
    "bool uint8 int8 float8_e4m3fn float8_e5m2 int16 uint16 float16 bfloat16 int32 uint32 float32 int64 uint64 float64"
)


@pytest.mark.parametrize("mmap", [False, True])
def test_what_was_saved_comes_back(path, mmap):
    for name in [*DTYPES.split(), "complex64"]:
        x = tl.from_lengths(torch.arange(10).to(getattr(torch, name)).view(5, 2), [[2, 0, 3]])
        tl.data.save(x, path)
        equal(tl.data.load(path, mmap=mmap), x)
    empty = tl.from_lengths(torch.zeros(0, 3), [[0, 2], [0, 0]])
    for x in (X, X[:, 0], X.to(torch.int8).t().t(), empty, tl.from_lengths(torch.zeros(0), [[]]), X.requires_grad_()):
        tl.data.save(x, str(path))
        found = tl.data.load(str(path), mmap=mmap)
        equal(found, x.detach())
        assert not found.requires_grad


def test_fields_share_their_structure(path):
    y = X.with_values(torch.arange(6))
    other = tl.LoDTensor(torch.ones(6), X.lod.with_level_names(None))
    fields = {"é/x": X, "y": y, "other": other, "label": torch.tensor([1, 0]), "one": torch.tensor(2.5)}
    tl.data.save(fields, path)
    for mmap in (False, True):
        found = tl.data.load(path, mmap=mmap)
        assert list(found) == list(fields)
        for name, x in fields.items():
            equal(found[name], x)
        assert found["é/x"].lod is found["y"].lod is not found["other"].lod
    assert sum(name.startswith("offsets.") for name in parts(path)[0]) == 4
    assert os.listdir(path.parent) == [path.name]


def test_what_became_of_rows_is_refused(path):
    for moved, how in ((X.t(), "at dim 1"), (X.mean(0), "lost in mean")):
        with pytest.raises(TypeError, match=rf"save: expected .* got rows of one {how}.* as 'm'; see .values\(\)"):
            tl.data.save({"x": X, "m": moved}, path)
        tl.data.save({"x": X, "m": moved.values()}, path)


def test_a_file_stays_where_it_is_and_whose_it_is(path, tmp_path):
    path.touch()
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path.name)
    tl.data.save(X, link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    equal(tl.data.load(path), X.detach())
    fresh = tmp_path / "fresh"
    dangling = tmp_path / "dangling"
    dangling.symlink_to(fresh)
    tl.data.save(X, dangling)
    tmp_path.joinpath("plain").touch()
    assert fresh.stat().st_mode == tmp_path.joinpath("plain").stat().st_mode and dangling.is_symlink()


def test_mapped_rows_stay_in_the_file(path):
    tl.data.save(X, path)
    before = path.read_bytes()
    x = tl.data.load(path, mmap=True)
    x.values().zero_()
    assert path.read_bytes() == before and tl.data.load(path)[1, 1] == 3
    changed = before[:-1] + bytes([before[-1] ^ 1])  # of the rows, which come last unless offsets do
    path.write_bytes(changed)
    try:
        tl.data.load(path, mmap=True)
    except ValueError:
        pytest.fail("rows are not read when a file is mapped")
    for options in ({"mmap": True, "verify": True}, {}):
        with pytest.raises(ValueError, match=r"load: expected 'values' with the checksum .* changed or damaged"):
            tl.data.load(path, **options)
    assert tl.data.load(path, verify=False).shape == (6, 2)
    at = len(before) - X.values().nbytes - 8  # the last of the offsets, which are always read
    path.write_bytes(before[:at] + b"\7" + before[at + 1 :])
    with pytest.raises(ValueError, match=r"load: expected 'offsets.0.1' with the checksum"):
        tl.data.load(path, mmap=True)


def test_a_file_is_complete_or_not_there(path, monkeypatch):
    tl.data.save(X, path)
    good = path.read_bytes()

    def fails(a, b):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        tl.data.save(X[:, :1], path)
    assert os.listdir(path.parent) == [path.name] and path.read_bytes() == good


# -- damage


def refused(path, data, said="expected"):
    path.write_bytes(data)
    for options in ({}, {"mmap": True, "verify": True}):
        with pytest.raises(ValueError, match=said) as raised:
            tl.data.load(path, **options)
        assert isinstance(raised.value, tl.LoDError) and len(str(raised.value)) < 600


def test_damaged_files_are_refused(path):
    """A sample of the bits; of all 5,440 none is accepted."""
    tl.data.save(X, path)
    good = path.read_bytes()
    for bit in range(0, 8 * len(good), 29):
        refused(path, good[: bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8]) + good[bit // 8 + 1 :])
    for length in range(0, len(good), 23):
        refused(path, good[:length])
    for tail in (b"\0", b" ", good):
        refused(path, good + tail, "cut short, or continued")


# -- readers and writers of others, after docs/data.md


def parts(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def checksum(header):
    metadata = header["__metadata__"]
    text = "".join(f"{key}={metadata[key]}\n" for key in sorted(metadata) if key != "checksum")
    for name in sorted(set(header) - {"__metadata__"}):
        entry = header[name]
        text += f"{name} {entry['dtype']} {','.join(map(str, entry['shape']))}\n"
    return f"{zlib.crc32(text.encode()):08x}"


def written(path, header, buffer, fit=True):
    """With the right checksums, whatever the rest is."""
    if fit:
        metadata = header["__metadata__"]
        sums = {}
        for name in set(header) - {"__metadata__"}:
            begin, end = header[name]["data_offsets"]
            sums[name] = f"{zlib.crc32(buffer[begin:end]):08x}"
        metadata["checksums"] = json.dumps(sums)
        metadata["checksum"] = checksum(header)
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + buffer
    path.write_bytes(data)
    return data


def test_others_can_read_it(path):
    tl.data.save({"odd": torch.ones(3).bool(), "label": torch.tensor([3, 4], dtype=torch.int16), "x": X}, path)
    header, buffer = parts(path)
    about = json.loads(header["__metadata__"]["torch_lod"])
    assert about["version"] == 1 and about["fields"] == {"odd": None, "x": 0, "label": None} and not about["single"]

    def array(name, dtype):
        begin, end = header[name]["data_offsets"]
        return np.frombuffer(buffer[begin:end], dtype).reshape(header[name]["shape"])

    assert [array(name, "<i8").tolist() for name in about["lods"][0]["levels"]] == X.lod.to_list()
    assert about["lods"][0]["level_names"] == ["text", None]
    assert array("x", "<f4").tolist() == X.values().tolist() and array("label", "<i2").tolist() == [3, 4]
    assert header["__metadata__"]["checksum"] == checksum(header)
    sizes = {
        "BOOL": 1,
        "I16": 2,
        "F32": 4,
        "I64": 8,
    }  # every number begins at a multiple of its size, as tensors want it
    assert not any(e["data_offsets"][0] % sizes[e["dtype"]] for n, e in header.items() if n != "__metadata__")
    assert (len(path.read_bytes()) - len(buffer)) % 64 == 0
    for name, begin_end in ((n, e["data_offsets"]) for n, e in header.items() if n != "__metadata__"):
        found = f"{zlib.crc32(buffer[slice(*begin_end)]):08x}"
        assert json.loads(header["__metadata__"]["checksums"])[name] == found


def made(about=None, entry=None, values=None, **changed):
    """A file that was written by hand: one LoDTensor of 3 rows in 2 sequences."""
    rows, offsets = np.arange(3, dtype="<f4").tobytes(), np.array([0, 1, 3], dtype="<i8").tobytes()
    description = {"version": 1, "single": True, "fields": {"values": 0}, "lods": [{"levels": ["o"]}], **(about or {})}
    header = {
        "__metadata__": {"torch_lod": json.dumps(description)},
        "values": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12], **(entry or {})},
        "o": {"dtype": "I64", "shape": [3], "data_offsets": [12, 36]},
        **changed,
    }
    return header, (rows if values is None else values) + offsets


def test_others_can_write_it(path):
    written(path, *made())
    for mmap in (False, True):
        equal(tl.data.load(path, mmap=mmap), tl.from_lengths(torch.arange(3.0), [[1, 2]]))
    header, buffer = made({"lods": [{"levels": ["o"], "level_names": ["line"], "more": 1}]})
    written(path, header, b"\7" + buffer[12:] + buffer[:12])  # offsets of the wrong place
    header = {
        **header,
        "odd": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "o": {"dtype": "I64", "shape": [3], "data_offsets": [1, 25]},
        "values": {"dtype": "F32", "shape": [3], "data_offsets": [25, 37]},
    }
    written(path, header, b"\7" + buffer[12:] + buffer[:12])
    for mmap in (False, True):  # numbers that begin at odd bytes are copied
        x = tl.data.load(path, mmap=mmap)
        assert x.to_list() == [[0], [1, 2]] and x.level_names == ("line",) and x.values().data_ptr() % 4 == 0


FALLS = np.array([0, 4, 3], dtype="<i8").tobytes()
LIES = {
    "another version": (made({"version": 2}), "expected version 1 in .*, got 2"),
    "no version": (made({"version": None}), "expected version 1"),
    "a flag as version": (made({"version": True}), "expected version 1"),
    "fields that are not there": (made({"fields": {"values": 0, "y": 0}, "single": False}), "expected fields"),
    "a LoD that is not there": (made({"fields": {"values": 1}}), "expected fields"),
    "a negative LoD": (made({"fields": {"values": -1}}), "expected fields"),
    "levels that are not there": (made({"lods": [{"levels": ["p"]}]}), "expected fields"),
    "no levels": (made({"lods": [{"levels": []}]}), "expected fields"),
    "levels of floats": (made({"lods": [{"levels": ["values"]}]}), "expected fields"),
    "lods of numbers": (made({"lods": [3]}), "expected fields"),
    "one tensor of another name": (made({"fields": {"o": None}}), "expected fields"),
    "names of another kind": (made({"lods": [{"levels": ["o"], "level_names": [3]}]}), "expected level_names"),
    "other numbers of names": (made({"lods": [{"levels": ["o"], "level_names": ["a", "b"]}]}), "expected level_names"),
    "one tensor of offsets for two levels": (
        made({"lods": [{"levels": ["o", "o"]}]}),
        "offsets of its own for every level",
    ),
    "one tensor of offsets for two LoDs": (
        made({"lods": [{"levels": ["o"]}] * 2}),
        "offsets of its own for every level",
    ),
    "fewer rows": (made(None, {"shape": [1, 3]}), "expected the 1-level LoD to cover the 1 rows"),
    "an unknown dtype": (made(None, {"dtype": "F31"}), "expected a dtype of"),
    "a dtype in a list": (made(None, {"dtype": ["F32"]}), "expected a dtype of"),
    "a negative size": (made(None, {"shape": [-3]}), "expected a dtype of"),
    "a size in floats": (made(None, {"shape": [3.0]}), "expected a dtype of"),
    "a flag as size": (made(None, {"shape": [3, True]}), "expected a dtype of"),
    "a size past 2**63": (made(None, {"shape": [2**40, 2**40, 0]}), "less than 2\\*\\*63 numbers"),
    "65 dims": (made(None, {"shape": [3] + [1] * 64}), "at most 64 dims"),
    "another size": (made(None, {"shape": [4]}), "from byte 0 on, with 4 numbers of 4 bytes, got bytes 0 to 12"),
    "a hole": (made(None, {"data_offsets": [0, 8], "shape": [2]}), "expected 'o' from byte 8 on"),
    "an overlap": (made(None, {"data_offsets": [0, 16], "shape": [4]}), "expected 'o' from byte 16 on"),
    "ends before beginnings": (made(None, {"data_offsets": [12, 0]}), "expected 'values' from byte"),
    "three offsets": (made(None, {"data_offsets": [0, 12, 12]}), "expected a dtype of"),
    "a tensor that is a number": (made(o=3), "expected a dtype of"),
}


@pytest.mark.parametrize("name", LIES)
def test_files_that_lie_are_refused(path, name):
    (header, buffer), said = LIES[name]
    header = json.loads(json.dumps(header))
    written(path, *made())
    header["__metadata__"] = {**parts(path)[0]["__metadata__"], **header["__metadata__"]}
    try:
        data = written(path, header, buffer)
    except (TypeError, ValueError):  # no checksum of such a header
        data = written(path, header, buffer, fit=False)
    refused(path, data, said)


def test_structure_that_lies_is_refused(path):
    twice = {"dtype": "I64", "shape": [3], "data_offsets": [36, 60]}
    header, buffer = made({"lods": [{"levels": ["p", "o"]}]}, p=twice)
    refused(path, written(path, header, buffer + buffer[12:]), "expected the last of offsets")
    header, buffer = made()
    refused(path, written(path, header, buffer[:12] + FALLS), "load: expected offsets.* not to decrease, got 4 then 3")
    far = np.array([0, 1, 2**62], dtype="<i8").tobytes()
    refused(path, written(path, header, buffer[:12] + far), "expected .*LoD to cover the 3 rows")


def test_the_number_of_dims_is_checked_before_they_are_multiplied(path, monkeypatch):
    """A product of n large integers takes n * n."""
    prod = math.prod

    def counted(numbers):
        numbers = list(numbers)
        assert len(numbers) <= 64
        return prod(numbers)

    header, buffer = made(None, {"shape": [2**63 - 1] * 65})
    data = written(path, header, buffer)
    monkeypatch.setattr(math, "prod", counted)
    refused(path, data, "at most 64 dims")


DEEP = functools.reduce(lambda inner, _: [inner], range(200), [])
WRONG = [None, True, -1, 2**70, 1.5, "x", "values", [], [[]], [None], ["x"], {}, {"values": []}, DEEP, {"values": DEEP}]
FIELDS = [
    ("torch_lod", "version"),
    ("torch_lod", "single"),
    ("torch_lod", "fields"),
    ("torch_lod", "fields", "values"),
    ("torch_lod", "lods"),
    ("torch_lod", "lods", 0),
    ("torch_lod", "lods", 0, "levels"),
    ("torch_lod", "lods", 0, "levels", 0),
    ("torch_lod", "lods", 0, "level_names"),
    ("torch_lod", "lods", 0, "level_names", 0),
    ("checksums",),
    ("checksums", "values"),
    ("values",),
    ("values", "dtype"),
    ("values", "shape"),
    ("values", "shape", 0),
    ("values", "data_offsets"),
    ("values", "data_offsets", 0),
]
#: Which of them are right: a tensor without a LoD, levels of other names.
VALID = {
    ("torch_lod", "single"): [True],
    ("torch_lod", "fields", "values"): [None],
    ("torch_lod", "lods", 0, "level_names"): [None, [None], ["x"]],
    ("torch_lod", "lods", 0, "level_names", 0): [None, "x", "values"],
}


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(map(str, field)))
def test_every_field_of_every_type(path, field):
    """With the right checksum of the header wherever there is one."""
    header, buffer = made({"lods": [{"levels": ["o"], "level_names": ["line"]}]})
    written(path, header, buffer)
    for value in WRONG:
        whole = json.loads(json.dumps(header))
        metadata = whole["__metadata__"]
        texts = {key: json.loads(metadata[key]) for key in ("torch_lod", "checksums")}
        place = {**whole, **texts}
        for key in field[:-1]:
            place = place[key]
        if field[0] == "values" and len(field) == 1:
            whole["values"] = value
        elif field == ("checksums",):
            texts["checksums"] = value
        else:
            place[field[-1]] = value
        metadata |= {key: json.dumps(text) for key, text in texts.items()}
        with contextlib.suppress(TypeError, KeyError):  # no checksum of such a header
            metadata["checksum"] = checksum(whole)
        data = written(path, whole, buffer, fit=False)
        if any(value is other or value == other for other in VALID.get(field, [])):
            assert tl.data.load(path).tolist() == [0, 1, 2]
        else:
            refused(path, data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected a header of at most 0 bytes"),
        (b"\xff" * 100, "expected a header of at most 92 bytes, got one of 18446744073709551615"),
        (b"\2" + b"\0" * 7 + b"{}", "among its metadata"),
        (b"\2" + b"\0" * 7 + b"[]", "among its metadata"),
        (b"\1" + b"\0" * 7 + b"\xff", "expected a header in JSON"),
        ((40_000).to_bytes(8, "little") + b"[" * 40_000, "expected a header in JSON"),
        ((40_000).to_bytes(8, "little") + b"1" * 40_000, "expected a header in JSON"),
        (b"\x0d" + b"\0" * 7 + b'{"a":1,"a":2}', "a name occurs twice"),
    ],
)
def test_what_is_no_header_is_refused(path, data, said):
    refused(path, data, said)


def test_metadata_must_be_strings(path):
    header, buffer = made()
    written(path, header, buffer)
    header["__metadata__"]["more"] = 3
    refused(path, written(path, header, buffer, fit=False), "expected metadata of strings")
    header["__metadata__"] |= {"more": "3", "torch_lod": "[" * 9999}
    refused(path, written(path, header, buffer), "expected a header in JSON")


def test_only_files_are_opened(tmp_path):
    with pytest.raises(FileNotFoundError):
        tl.data.load(tmp_path / "none")
    with pytest.raises(ValueError, match="got a folder"):
        tl.data.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    with pytest.raises(ValueError, match=r"load: expected a regular file at .*pipe, got a pipe"):
        tl.data.load(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda p: tl.data.save(torch.ones(3), p),
            "save: expected data as a LoDTensor or a dict of tensors, got Tensor",
        ),
        (lambda p: tl.data.save({"offsets.x": X}, p), "strings that begin neither with 'offsets.' nor '__'"),
        (lambda p: tl.data.save({3: X}, p), "expected names as strings"),
        (lambda p: tl.data.save({"x": [1]}, p), "a dtype that safetensors has, got list as 'x'"),
        (lambda p: tl.data.save({"x": torch.ones(2).to_sparse()}, p), "got torch.float32, torch.sparse_coo as 'x'"),
        (lambda p: tl.data.save({"x": torch.ones(2, dtype=torch.complex128)}, p), "got torch.complex128"),
        (lambda p: tl.data.save({"x": torch.ones(2, device="meta")}, p), "safetensors has, got a meta tensor as"),
        (lambda p: tl.data.save(X, 3), "expected file as a path, got int"),
        (lambda p: tl.data.load(b"x"), "load: expected file as a path, got bytes"),
        (lambda p: tl.data.load(p, mmap=1), "expected mmap True or False, got 1"),
        (lambda p: tl.data.load(p, verify="no"), "expected verify True or False, got 'no'"),
    ],
)
def test_errors(path, call, said):
    with pytest.raises(TypeError) as raised:
        call(path)
    assert said in str(raised.value) and isinstance(raised.value, tl.LoDError)
    with pytest.raises(ValueError, match="got one with a zero character"):
        tl.data.load("a\0b")
