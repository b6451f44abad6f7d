# SPDX-License-Identifier: Apache-2.0
"""Makes one wheel for every torch from 2.11 on (docs/releasing.md): `make wheel`.

From an sdist, unpacked in a clean folder: the kernels once, which know neither torch nor Python, and beside them a thin
library of bindings for each minor release of torch, compiled against the headers of its wheel. What of a torch wheel is
needed is fetched, or taken from --headers, one release at a time.
"""

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
#: The first release of each minor version: later patches keep its binary interface.
TORCH = ("2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0")
#: The oldest manylinux that torch's own wheels are for; nothing newer may be needed here.
PLATFORM = "manylinux_2_28_x86_64"
#: Of torch's libraries, those that bindings are linked to.
CPU_LIBRARIES, CUDA_LIBRARIES = ("libc10.so", "libtorch_cpu.so"), ("libc10_cuda.so", "libtorch_cuda.so")
#: What nvcc compiles for: the architectures of torch's wheels, and PTX for newer ones.
ARCHITECTURES = ("75", "80", "86", "90", "100", "120")
SHIM_FLAGS = ("-O2", "-fPIC", "-fvisibility=hidden", "-fno-builtin")
JOBS = int(os.environ.get("JOBS", "1"))


def run(*command: object, **options) -> str:
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE, **options)
    if done.returncode:
        raise SystemExit(f"wheel: {shlex.join(map(str, command))} failed\n{done.stdout}")
    return done.stdout


def unpacked_sdist(work: Path) -> Path:
    """The tree of an sdist of this checkout; only what is in it can come into the wheel."""
    run(sys.executable, "setup.py", "-q", "egg_info", "--egg-base", work, "sdist", "--dist-dir", work, cwd=ROOT)
    [archive] = work.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(work, filter="data")
    return work / archive.name.removesuffix(".tar.gz")


def recipe(tree: Path):
    """The sources and flags of setup.py, which runs in the tree."""
    os.chdir(tree)
    spec = importlib.util.spec_from_file_location("recipe", tree / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Builder:
    """Compiles sources of a tree into objects, and objects into libraries."""

    def __init__(self, tree: Path, work: Path, cuda: bool, architectures: Sequence[str] = ARCHITECTURES):
        os.environ["TORCH_LOD_CUDA"] = "0"  # the kernels for GPUs are compiled here
        self.tree, self.work, self.cuda, self.setup = tree, work, cuda, recipe(tree)
        self.architectures = architectures
        self.compiler = shlex.split(os.environ.get("CXX", "c++"))
        self.changed = max(path.stat().st_mtime for path in (tree / "csrc").rglob("*.*"))
        self.toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))

    def compile(self, sources: list[str], flags: list[str], folder: str) -> list[Path]:
        out = self.work / "objects" / folder
        out.mkdir(parents=True, exist_ok=True)
        objects = [out / (Path(source).stem + Path(source).suffix + ".o") for source in sources]

        def one(source: str, target: Path) -> None:
            if target.is_file() and target.stat().st_mtime > self.changed:
                return
            command = self.nvcc() if source.endswith(".cu") else [*self.compiler, "-fPIC", *self.common(), *flags]
            run(*command, "-c", source, "-o", target, cwd=self.tree)

        with ThreadPoolExecutor(JOBS) as pool:
            list(pool.map(one, sources, objects))
        return objects

    def common(self) -> list[str]:
        gpu = ["-DLOD_CUDA=1", f"-isystem{self.toolkit}/include"] if self.cuda else []
        return ["-Icsrc", "-DNDEBUG", *gpu]

    def nvcc(self) -> list[str]:
        newest = self.architectures[-1]
        codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in self.architectures]
        codes.append(f"-gencode=arch=compute_{newest},code=compute_{newest}")
        return [
            f"{self.toolkit}/bin/nvcc",
            "-O3",
            "-std=c++20",
            "-Xcompiler=-fPIC,-fvisibility=hidden",
            "-Icsrc",
            *codes,
        ]

    def link(self, target: Path, objects: list[Path], flags: list[str]) -> Path:
        shim = self.work / "objects/manylinux.o"
        run("cc", *SHIM_FLAGS, "-c", HERE / "manylinux.c", "-o", shim)
        run(*self.compiler, "-shared", "-s", *objects, shim, f"-Wl,-soname,{target.name}", *flags, "-o", target)
        return target

    def kernels(self, out: Path) -> Path:
        sources = list(self.setup.KERNELS)
        static = []
        if self.cuda:
            sources += sorted(str(p.relative_to(self.tree)) for p in (self.tree / "csrc/cuda").glob("*.cu"))
            static = [f"-L{self.toolkit}/lib64", "-lcudart_static", "-lrt", "-lpthread", "-ldl"]
        objects = self.compile(sources, [*self.setup.host, *self.setup.fast], "kernels")
        return self.link(out / "_kernels.so", objects, ["-Wl,-z,defs", *static])

    def bindings(self, out: Path, version: str, torch: Path) -> Path:
        """Without libgomp: the loop over threads is that of the runtime that torch has loaded, whatever its name is."""
        include = [f"-isystem{torch}/include", f"-isystem{torch}/include/torch/csrc/api/include"]
        flags = [*self.setup.host, "-O2", "-fopenmp", *include]
        objects = self.compile(self.setup.BINDINGS, flags, version)
        libraries = [torch / "lib" / name for name in CPU_LIBRARIES + CUDA_LIBRARIES * self.cuda]
        name = "_C_{}_{}.so".format(*version.split(".")[:2])
        flags = [f"-L{out}", "-l:_kernels.so", "-Wl,--no-as-needed", *map(str, libraries), "-Wl,--as-needed"]
        target = self.link(out / name, objects, [*flags, "-Wl,-rpath,$ORIGIN"])
        missing = symbols(target, "undefined") - symbols(out / "_kernels.so") - set().union(*map(symbols, libraries))
        if missing := {name for name in missing if re.match(r"_Z.*(2at|3c10|5torch|3lod)", name)}:
            raise SystemExit(f"wheel: torch {version} has no {', '.join(sorted(missing)[:5])}")
        return target


def symbols(library: Path, kind: str = "defined") -> set[str]:
    """Names of what a library has, or of what it must find in others."""
    lines = (line.split() for line in run("nm", "-D", f"--{kind}-only", library).splitlines() if line.strip())
    return {words[-1].partition("@")[0] for words in lines if words[-2] not in ("w", "v")}  # may be missing


#: What a library may need: torch's libraries, the kernels, and what manylinux lets every wheel need.
ALLOWED = {*CPU_LIBRARIES, *CUDA_LIBRARIES, "_kernels.so", "ld-linux-x86-64.so.2"}
ALLOWED |= {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
#: Of the C and C++ libraries, the newest symbols that PLATFORM has.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11)}


def faults(library: Path) -> list[str]:
    """What keeps a library from running wherever torch's own wheels run."""
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library)))
    found = [f"needs {name}" for name in sorted(needed - ALLOWED)]
    found += [
        f"needs {name} of Python" for name in sorted(symbols(library, "undefined")) if re.match("_?Py[A-Z_]", name)
    ]
    versions = set(re.findall(r"\((GLIBC|GLIBCXX|CXXABI)_([\d.]+)\)", run("objdump", "-T", library)))
    newer = [(name, v) for name, v in versions if tuple(map(int, v.split("."))) > NEWEST[name]]
    return found + [f"needs {name}_{v}" for name, v in sorted(newer)]


def torch_parts(version: str, headers: Path | None, work: Path, cuda: bool) -> Path:
    """A folder with the headers of a release of torch and the libraries that are linked, from its wheel."""
    if headers:
        return headers / version
    target = work / "torch" / version
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-cache-dir",
    ]
    command += ["--only-binary=:all:", "--python-version=3.12", f"--platform={PLATFORM}", "-d", target]
    run(*command, f"torch=={version}")
    [wheel] = target.glob("*.whl")
    wanted = tuple(f"torch/lib/{name}" for name in CPU_LIBRARIES + CUDA_LIBRARIES * cuda)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("torch/include/") or name in wanted:
                archive.extract(name, target)
    wheel.unlink()
    return target / "torch"


def packed(tree: Path, libraries: list[Path], work: Path, out: Path) -> Path:
    """The wheel: what setup.py installs without operators, the libraries, and the tag that they fit."""
    env = {**os.environ, "TORCH_LOD_OPERATORS": "0"}
    run(sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", work / "pure", cwd=tree, env=env)
    [pure] = (work / "pure").glob("*.whl")
    run(sys.executable, "-m", "wheel", "unpack", pure, "-d", work / "tree")
    [folder] = (work / "tree").iterdir()
    for library in libraries:
        shutil.copy(library, folder / "torch_lod")
    [about] = folder.glob("*.dist-info/WHEEL")
    about.write_text(about.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"))
    out.mkdir(parents=True, exist_ok=True)
    (work / "packed").mkdir()
    run(sys.executable, "-m", "wheel", "pack", folder, "-d", work / "packed")
    [plain] = (work / "packed").glob("*.whl")
    name = run(sys.executable, "-m", "wheel", "tags", "--platform-tag", PLATFORM, "--remove", plain).strip()
    return Path(shutil.move(plain.parent / Path(name).name, out / Path(name).name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="+", default=TORCH, metavar="VERSION")
    parser.add_argument(
        "--headers", type=Path, help="a folder with VERSION/include and VERSION/lib: nothing is fetched"
    )
    parser.add_argument("--cuda", action="store_true", help="with the kernels for GPUs, of the toolkit in CUDA_HOME")
    parser.add_argument(
        "--architectures", nargs="+", default=ARCHITECTURES, metavar="90", help="with --cuda, oldest first"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    out, headers = given.out.resolve(), given.headers and given.headers.resolve()
    work = ROOT / ("build/wheel-cuda" if given.cuda else "build/wheel")
    for folder in work.glob("*"):  # objects that are newer than the sources are kept: a build that broke off goes on
        if folder.name != "objects":
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    (work / "libraries").mkdir(parents=True)
    builder = Builder(unpacked_sdist(work), work, given.cuda, given.architectures)
    made = [builder.kernels(work / "libraries")]
    for version in given.torch:
        torch = torch_parts(version, headers, work, given.cuda)
        made.append(builder.bindings(work / "libraries", version, torch))
        shutil.rmtree(work / "torch", ignore_errors=True)
    for library in made:
        print(f"{library.name:<14} {library.stat().st_size / 2**20:6.1f} MiB")
        if found := faults(library):
            raise SystemExit(f"wheel: {library.name} {', '.join(found)}")
    print(packed(builder.tree, made, work, out))


if __name__ == "__main__":
    main()
