# SPDX-License-Identifier: Apache-2.0
"""Which library of compiled operators fits the installed torch, and what to do if there is none.

A source build has one, `_C.so`, for the torch that it was built with. A wheel has one for each minor release of torch:
`_C_2_13.so` is for torch 2.13. The binary interface of torch is kept by patch releases only.
"""

import platform
import re
import struct
from pathlib import Path
from typing import NamedTuple

import torch

#: What csrc/bindings/version.cpp writes into a library, before the version.
_MARK = b"torch_lod was built for torch "


class Binding(NamedTuple):
    """A library to load; or None, why there is none, and what to do."""

    library: Path | None
    why: str = ""
    remedy: str = ""


def minor_release(version: str) -> str:
    """ "2.13" of "2.13.0+cpu"; a version that does not begin with two numbers is its own."""
    found = re.match(r"\d+\.\d+", version)
    return found[0] if found else version


def _is_release(version: str) -> bool:
    """Not a development version, whose binary interface may be that of no release."""
    return re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?(\+.*)?", version) is not None


def built_for(library: Path) -> str | None:
    """The version of torch that a library was built for; None if it does not say."""
    data = library.read_bytes()
    at = data.find(_MARK)
    if at < 0:
        return None
    return data[at + len(_MARK) : data.index(b"\0", at)].decode()


def _in_wheel(package: Path) -> dict[str, Path]:
    """The libraries of a wheel by the release of torch that they are for, oldest first."""
    found = [(re.fullmatch(r"_C_(\d+)_(\d+)\.so", path.name), path) for path in package.glob("_C_*.so")]
    numbered = sorted((int(name[1]), int(name[2]), path) for name, path in found if name)
    return {f"{major}.{minor}": path for major, minor, path in numbered}


def build_command(package: Path) -> str:
    """What compiles the operators for the torch that is installed."""
    checkout = package.parent
    if (checkout / "csrc/bindings/library.cpp").is_file():
        return f"with a C++ compiler, pip install --no-build-isolation -e {checkout}"
    if _in_wheel(package):
        return "with a C++ compiler, pip install --no-build-isolation --no-binary torch_lod --force-reinstall --no-deps torch_lod"
    return "with a C++ compiler, pip install --no-build-isolation <a checkout of torch_lod>"


def choose(package: Path, version: str) -> Binding:
    """The library of the folder `package` for this version of torch."""
    own, minor, wheel, build = package / "_C.so", minor_release(version), _in_wheel(package), build_command(package)
    built = built_for(own) if own.is_file() else None
    if own.is_file() and (built is None or minor_release(built) == minor):
        return Binding(own)
    if not wheel:
        why = f"they were built for torch {built}" if built else f"they were never built in {package}"
        return Binding(None, f"{why}, and torch is {version}" if built else why, build)
    if minor in wheel and _is_release(version):
        return Binding(wheel[minor])
    why = f"this wheel has them for releases of torch {', '.join(wheel)}, and torch is {version}"
    if _is_release(version) and _numbers(minor) > _numbers(next(reversed(wheel))):
        build = f"pip install --upgrade torch_lod, if a newer one knows torch {minor}; or, {build}"
    return Binding(None, why, build)


def _numbers(minor: str) -> list[int]:
    return [int(n) for n in minor.split(".")]


def processor() -> Binding | None:
    """Why compiled kernels cannot run on this processor; None if they can."""
    if platform.machine() not in ("x86_64", "AMD64") or torch.cpu._is_avx2_supported():
        return None
    return Binding(None, "they need a processor with AVX2, and this one has none", "use a processor with AVX2")


def cut_short(library: Path) -> Binding | None:
    """What to say where a library, or the kernels that it needs, was copied in part: loading it would end the process."""
    for path in (library, library.parent / "_kernels.so"):
        if path.is_file() and not _is_whole(path):
            return Binding(None, f"{path} is cut short", _install_again(path.parent))
    return None


def _install_again(package: Path) -> str:
    """What replaces a library that is damaged or does not fit this system."""
    again = "pip install --force-reinstall --no-deps torch_lod; or, " if _in_wheel(package) else ""
    return again + build_command(package)


_NAMES_OF_SECTIONS = struct.pack("<I", 3)  # the type of the section that has them


def _is_whole(library: Path) -> bool:
    """Whether an ELF file reaches to the end of its table of sections, which is its last part, and has one there, and no zeros, as a
    copy that was interrupted has; of other files the loader says what is wrong."""
    with library.open("rb") as opened:
        head = opened.read(64)
        if len(head) < 64 or head[:5] != b"\x7fELF\x02":
            return True
        (begin,), (size, count, names) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<HHH", head, 58)
        if begin + size * count > library.stat().st_size:
            return False
        opened.seek(begin + size * names + 4)
        return not count or opened.read(4) == _NAMES_OF_SECTIONS


def does_not_load(library: Path, error: OSError) -> Binding:
    """A library that was chosen and that the linker refuses."""
    said = str(error.__cause__ or error).splitlines()[0].replace(f"{library}: ", "")
    why = f"{library} does not load ({said})"
    if "_kernels.so" in said:
        why = f"they need {library.parent / '_kernels.so'}, which could not be loaded ({said})"
    return Binding(None, why, _install_again(library.parent))
