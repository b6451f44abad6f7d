# SPDX-License-Identifier: Apache-2.0
"""The two compiled libraries, as files: kernels that need neither torch nor Python, and bindings that need no Python."""

import re
import struct
from pathlib import Path

import pytest

import torch_lod as tl

KERNELS, BINDINGS = (Path(tl.__file__).parent / name for name in ("_kernels.so", "_C.so"))
built = pytest.mark.skipif(not KERNELS.is_file(), reason="no libraries: not built, or built as one")
PYTHON = re.compile(r"_?Py[A-Z_]")
TORCH = re.compile(r"N?K?(2at|3c10|5caffe2?|5torch)\w|^(aoti_)?torch_(?!lod_)")


class Library:
    """What an ELF file of 64 bits says to the loader: names that it defines, names and libraries that it needs."""

    def __init__(self, path: Path):
        data = path.read_bytes()
        assert data[:5] == b"\x7fELF\x02"
        at, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]

        def name(table: int, offset: int) -> str:
            begin = sections[table][4] + offset
            return data[begin : data.index(b"\0", begin)].decode()

        self.defined, self.undefined, self.needed, self.path = set(), set(), set(), ""
        for _, kind, _, _, begin, length, link, *_ in sections:
            if kind == 11:  # SHT_DYNSYM
                for entry in range(begin + 24, begin + length, 24):
                    word, _, _, section = struct.unpack_from("<IBBH", data, entry)
                    (self.defined if section else self.undefined).add(name(link, word))
            if kind == 6:  # SHT_DYNAMIC
                for tag, value in struct.iter_unpack("<QQ", data[begin : begin + length]):
                    if tag == 1:  # DT_NEEDED
                        self.needed.add(name(link, value))
                    elif tag in (15, 29):  # DT_RPATH, DT_RUNPATH
                        self.path = name(link, value)


@built
def test_kernels_need_neither_torch_nor_python():
    kernels = Library(KERNELS)
    assert not [name for name in kernels.undefined | kernels.defined if PYTHON.match(name) or TORCH.search(name)]
    assert not [name for name in kernels.needed if re.match(r"lib(torch|c10|python|gomp)", name)]
    assert "torch_lod_set_cpu_level" in kernels.defined
    assert {name for name in kernels.defined if "lod" in name} > {"_ZN3lod7kernels12copy_offsetsEPKlPll"}


@built
def test_bindings_need_kernels_and_torch_but_no_python():
    bindings = Library(BINDINGS)
    assert not [name for name in bindings.undefined if PYTHON.match(name)]
    assert not [name for name in bindings.needed if re.match(r"lib(torch_)?python", name)]
    assert "_kernels.so" in bindings.needed and bindings.path.split(":")[0] == "$ORIGIN"
    assert [name for name in bindings.undefined if TORCH.search(name)]
    wanted = {name for name in bindings.undefined if name.startswith("_ZN3lod")}
    assert len(wanted) > 40 and wanted <= Library(KERNELS).defined
