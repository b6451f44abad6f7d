# SPDX-License-Identifier: Apache-2.0
"""LoDTensors in files of safetensors' layout: eight bytes with the length of a header, the header, the tensors.

docs/data.md describes the format for readers and writers in other languages.
"""

import contextlib
import json
import math
import os
import secrets
import stat
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, boundary, public, shown
from ..structure.lod import LoD
from ..structure.validate import a_bool, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor
from .record import Record

__all__ = ["load", "save"]

_VERSION = 1
_LONGEST_HEADER = 100_000_000
_ALIGNED = 64
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
    "C64": torch.complex64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@boundary(rejects=False)  # names the tensor that it refuses
def save(data: LoDTensor | Mapping[str, Tensor], file: str | os.PathLike) -> None:
    """Writes a LoDTensor, or named LoDTensors and tensors, into a file that `load` and the safetensors library read.

    Rows, offsets, level names and a checksum of each; no gradients. LoDTensors with equal LoDs and names share them. Tensors on
    a GPU are copied to host memory.

    Saving is atomic: at any time, also after a crash, `file` is what it was or the new file, whole, and readers that have
    opened the old one go on reading it. The new one is written and synced to disk in the same folder, under a random name
    `.torch_lod-*.part`, and renamed; of several writers the last one to finish wins. It keeps the permissions of a file that is
    replaced, and a symbolic link to it. A failed call removes its part file; that of a process that was killed stays, and can
    be deleted. Tensors must not be written to during the call.

    Raises:
        TypeError: for anything else, among it what became of rows (`x.t()`, `x.mean(0)`); for dtypes that safetensors has not.
        ValueError: where `file` is a folder, a device, a pipe or a socket. OSError where it cannot be written.
    """
    path = _path(file)
    single = isinstance(data, LoDTensor)
    fields = {"values": data} if isinstance(data, LoDTensor) else data
    if not isinstance(fields, Mapping):
        raise LoDTypeError(f"expected data as a LoDTensor or a dict of tensors, got {type(data).__name__}")
    tensors: dict[str, Tensor] = {}
    lods: dict[tuple, int] = {}
    described: list[dict] = []
    structure: dict[str, int | None] = {}
    for name, x in fields.items():
        _check_field(name, x)
        structure[name] = None
        if isinstance(x, LoDTensor):
            key = (x.lod, x.level_names)
            structure[name] = lods.setdefault(key, len(lods))
            if structure[name] == len(described):
                levels = {f"offsets.{len(described)}.{k}": offsets for k, offsets in enumerate(x.lod.levels)}
                described.append({"levels": list(levels), "level_names": x.level_names})
                tensors |= levels
            x = x.values()
        tensors[name] = x.detach().cpu().contiguous().resolve_conj().resolve_neg()
    # numbers of many bytes first: then each tensor begins at a multiple of the size of its numbers
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    about = {"version": _VERSION, "single": single, "fields": structure, "lods": described}
    about |= {"record": True} if isinstance(data, Record) else {}
    metadata = {"format": "pt", "torch_lod": json.dumps(about)}
    metadata["checksums"] = json.dumps({name: _hex(zlib.crc32(_bytes(t))) for name, t in tensors.items()})
    header: dict = {"__metadata__": metadata}
    end = 0
    for name, t in tensors.items():
        begin, end = end, end + t.numel() * t.element_size()
        header[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
    metadata["checksum"] = _checksum(header)
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    if len(text) > _LONGEST_HEADER:
        raise LoDValueError(f"expected names and levels of at most {_LONGEST_HEADER} bytes, got {len(text)}")
    text += b" " * (-(len(text) + 8) % _ALIGNED)
    _replace(path, [len(text).to_bytes(8, "little") + text, *map(_bytes, tensors.values())])


def _replace(path: str, content: list) -> None:
    """Makes bytes the content of the file at `path`: all of them, on disk, or, after an exception, what was there before."""
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
    if mode is not None and not stat.S_ISREG(mode):
        raise LoDValueError(f"expected a regular file or nothing at {path}, got {_kind(mode)}")
    path = os.path.realpath(path)  # a symbolic link to it stays
    folder = os.path.dirname(path)
    part = os.path.join(folder, f".torch_lod-{secrets.token_hex(8)}.part")
    given, no_link = 0o666 if mode is None else stat.S_IMODE(mode), getattr(os, "O_NOFOLLOW", 0)
    try:
        out = open(part, "xb", opener=lambda name, flags: os.open(name, flags | no_link, given))  # x: O_EXCL
    except OSError as error:
        error.filename = path
        raise
    try:
        with out:
            if mode is not None:
                os.fchmod(out.fileno(), given)  # beyond the umask
            for piece in content:
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(part)
        raise
    with contextlib.suppress(PermissionError):  # of folders that may be written to and not be read
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)  # the new name
        finally:
            os.close(opened)


@public
def load(file: str | os.PathLike, *, mmap: bool = False, verify: bool | None = None):
    """What `save` wrote: a LoDTensor, a Record, or a dict of LoDTensors and tensors.

    A file is input like any other: the header, its numbers and the structure are checked, and checksums are compared, so that
    a file that was cut short, continued or changed in a bit is refused.

    Args:
        mmap: rows stay in the file, which is mapped: opening costs the structure alone, a batch what it reads. Rows may be
            written to; the file does not change. It must not be changed or cut short while it is mapped.
        verify: whether rows are compared with their checksums, for which all of them are read. None: unless they are mapped.

    Raises:
        ValueError: for a file that is not what `save` wrote; OSError for one that cannot be read.
    """
    for what, flag in (("mmap", mmap), ("verify", verify is True if verify is None else verify)):
        a_bool(what, flag, "True or False")
    return _loaded(_path(file), mmap, not mmap if verify is None else verify)[0]


def _loaded(path: str, mmap: bool, verify: bool) -> tuple[LoDTensor | Record | dict[str, Tensor], str]:
    """What a file has, and the checksum of its header."""
    with open(path, "rb", opener=_opener) as source:
        size = os.fstat(source.fileno()).st_size
        header, start = _header(source, size)
        metadata = header["__metadata__"]
        about, checksums = _parsed(metadata["torch_lod"]), _parsed(metadata["checksums"])
        if not isinstance(checksums, dict) or not all(isinstance(value, str) for value in checksums.values()):
            raise LoDValueError(f"expected checksums of {path} as an object of strings, got {shown(checksums)}")
        mapped = np.memmap(source, np.uint8, "c") if mmap else None
        found: dict[str, Tensor] = {}
        for name, (dtype, shape, begin, end) in _tensors(header).items():
            of_rows = not name.startswith("offsets.")
            if mapped is not None and (start + begin) % dtype.itemsize == 0:
                flat = torch.from_numpy(mapped[start + begin : start + end])
            else:
                flat = torch.empty(end - begin, dtype=torch.uint8, device="cpu")
                source.seek(start + begin)
                if source.readinto(flat.numpy().data) != end - begin:  # type: ignore[attr-defined]
                    raise LoDValueError(f"expected {end - begin} bytes of {name!r} in {path}, got fewer")
            if (verify or not of_rows) and checksums.get(name) != _hex(zlib.crc32(flat.numpy().data)):
                raise LoDValueError(
                    f"expected {name!r} with the checksum {checksums.get(name)!r:.20} in {path}, got "
                    f"{_hex(zlib.crc32(flat.numpy().data))}: the file has been changed or damaged"
                )
            found[name] = flat.view(dtype).view(shape)
    return _structured(about, found, path), metadata["checksum"]


def _opener(path, flags):
    """Without waiting for the other end of a pipe."""
    opened = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(opened).st_mode
    if not stat.S_ISREG(mode):
        os.close(opened)
        raise LoDValueError(f"expected a regular file at {path}, got {_kind(mode)}")
    return opened


def _kind(mode: int) -> str:
    """What is at a path, if it is no regular file."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _header(source, size: int) -> tuple[dict, int]:
    """The header, whose checksum is right, and where the tensors begin."""
    head = source.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise LoDValueError(
            f"expected a header of at most {max(0, min(size - 8, _LONGEST_HEADER))} bytes, got one of {length}: not a file of "
            "tl.data.save, or cut short"
        )
    header = _parsed(source.read(length))
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not {"torch_lod", "checksums", "checksum"} <= metadata.keys():
        raise LoDValueError(
            "expected a header with 'torch_lod', 'checksums' and 'checksum' among its metadata, got one without: not a file of "
            "tl.data.save"
        )
    if not all(isinstance(value, str) for value in metadata.values()):
        raise LoDValueError("expected metadata of strings, got others")
    ends = [0]
    for name, (dtype, shape, begin, end) in sorted(_tensors(header).items(), key=lambda item: item[1][2:]):
        if begin != ends[-1] or end - begin != math.prod(shape) * dtype.itemsize:
            raise LoDValueError(
                f"expected {name!r} from byte {ends[-1]} on, with {math.prod(shape)} numbers of {dtype.itemsize} bytes, got "
                f"bytes {begin} to {end}"
            )
        ends.append(end)
    if 8 + length + ends[-1] != size:
        raise LoDValueError(f"expected a file of {8 + length + ends[-1]} bytes, got {size}: cut short, or continued")
    if metadata["checksum"] != _checksum(header):
        raise LoDValueError(
            f"expected a header with the checksum {metadata['checksum']!r:.20}, got {_checksum(header)}: the file has been "
            "changed or damaged"
        )
    return header, 8 + length


def _tensors(header: dict) -> dict[str, tuple[torch.dtype, list[int], int, int]]:
    """dtype, shape, first and last byte of every tensor."""
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        given: Any = entry if isinstance(entry, dict) else {}
        dtype, shape, bounds = given.get("dtype"), given.get("shape"), given.get("data_offsets")
        lists = all(isinstance(x, list) and all(type(n) is int and 0 <= n < 2**63 for n in x) for x in (shape, bounds))
        if not isinstance(dtype, str) or dtype not in _DTYPES or not lists or len(bounds) != 2:
            raise LoDValueError(
                f"expected a dtype of {', '.join(_DTYPES)}, a shape and 2 offsets of {name!r:.60}, got {shown(entry)}"
            )
        # the number of dims first: a product of n large integers takes n * n
        if len(shape) > 64 or math.prod(n or 1 for n in shape) >= 2**63:
            raise LoDValueError(f"expected a shape of less than 2**63 numbers in at most 64 dims, got {shown(shape)}")
        found[name] = (_DTYPES[dtype], shape, *bounds)
    return found


def _check_field(name, x) -> None:
    if not isinstance(name, str) or not name or name.startswith(("offsets.", "__")):
        raise LoDTypeError(f"expected names as strings that begin neither with 'offsets.' nor '__', got {shown(name)}")
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.dtype not in _NAMES or x.is_meta:
        got = f"{x.dtype}, {x.layout}" if isinstance(x, Tensor) else type(x).__name__
        if isinstance(x, Tensor) and x.is_meta:
            got = "a meta tensor"
        raise LoDTypeError(f"expected dense tensors of a dtype that safetensors has, got {got} as {name!r}")
    if isinstance(x, DerivedTensor):
        where = f"lost in {x._provenance.call}" if x.rows_dim is None else f"at dim {x.rows_dim}"
        raise LoDTypeError(
            f"expected LoDTensors and plain tensors, got rows of one {where}, which a file does not note, as {name!r}; "
            "see .values()"
        )
    with_memory(x)


def _structured(about, tensors: dict[str, Tensor], path: str):
    """The LoDTensors that the header describes."""
    keys = ("version", "single", "fields", "lods")
    read: list[Any] = [about.get(key) for key in keys] if isinstance(about, dict) else [None] * 4
    version, single, fields, described = read
    if type(version) is not int or version != _VERSION:
        raise LoDValueError(f"expected version {_VERSION} in {path}, got {shown(version)}")
    known = isinstance(fields, dict) and isinstance(described, list) and isinstance(single, bool)
    known = known and _are_levels(described, tensors) and _are_fields(fields, len(described), tensors)
    if not known or (single and list(fields) != ["values"]):
        raise LoDValueError(
            f"expected fields of {path} among its tensors, with int64 offsets of its own for every level, got others"
        )
    lods = _lods(described, tensors)
    found = {name: tensors[name] if at is None else LoDTensor(tensors[name], lods[at]) for name, at in fields.items()}
    if about.get("record", False) is not False:
        if about["record"] is not True or single or set(fields.values()) != {0}:
            raise LoDValueError(f"expected a record of {path} to have one structure for all fields, got another")
        return Record(found)  # type: ignore[arg-type]
    return found["values"] if single else found


def _are_levels(described: list, tensors: dict[str, Tensor]) -> bool:
    """Whether every entry names int64 offsets, a tensor for each level: no more offsets are checked than the file has."""
    levels: list[Any] = [entry.get("levels") if isinstance(entry, dict) else None for entry in described]
    if not all(isinstance(names, list) and names for names in levels):
        return False
    offsets = [name for names in levels for name in names]
    if not all(isinstance(name, str) and name in tensors for name in offsets) or len(set(offsets)) != len(offsets):
        return False
    return all(tensors[name].dtype == torch.int64 and tensors[name].dim() == 1 for name in offsets)


def _lods(described: list[dict], tensors: dict[str, Tensor]) -> list[LoD]:
    given = [([tensors[name] for name in entry["levels"]], entry.get("level_names")) for entry in described]
    try:
        return [LoD.parsed_offsets("offsets", levels, names) for levels, names in given]
    except LoDTypeError as error:  # of names: in a file a wrong kind is a wrong value
        raise LoDValueError(str(error)) from None


def _are_fields(fields: dict, lods: int, tensors: dict[str, Tensor]) -> bool:
    """Whether every field names a tensor, and no LoD or one of so many."""
    return all(name in tensors and (at is None or (type(at) is int and 0 <= at < lods)) for name, at in fields.items())


def _path(file) -> str:
    if not isinstance(file, (str, os.PathLike)) or not isinstance(os.fspath(file), str):
        raise LoDTypeError(f"expected file as a path, got {type(file).__name__}")
    path = os.fspath(file)
    if "\0" in path:
        raise LoDValueError("expected file as a path, got one with a zero character")
    return path


def _bytes(t: Tensor):
    return t.reshape(-1).view(torch.uint8).numpy().data


def _hex(number: int) -> str:
    return f"{number:08x}"


def _checksum(header: dict) -> str:
    """Of everything in a header but where tensors lie: that their own checksums tell."""
    metadata = header["__metadata__"]
    lines = [f"{key}={metadata[key]}\n" for key in sorted(metadata) if key != "checksum"]
    for name in sorted(name for name in header if name != "__metadata__"):
        lines.append(f"{name} {header[name]['dtype']} {','.join(map(str, header[name]['shape']))}\n")
    return _hex(zlib.crc32("".join(lines).encode("utf-8", "surrogatepass")))


def _parsed(text):
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise LoDValueError(f"expected a header in JSON, got something else: {error!s:.80}") from None


def _once(pairs: list) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
