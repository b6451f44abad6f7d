# SPDX-License-Identifier: Apache-2.0
"""Which library of operators an import loads, what is said where none fits, and `python -m torch_lod.check`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_lod as tl
from torch_lod import check, requirements
from torch_lod.check import families
from torch_lod.ops import binding

ROOT = Path(__file__).parents[2]
WHEEL = [f"_C_2_{minor}.so" for minor in (9, 11, 12, 13, 14, 15)]  # 9: sorted as numbers
AGAIN = "To get them: pip install --force-reinstall --no-deps torch_lod; or, with a C++ compiler, "
RELEASES = "this wheel has them for releases of torch 2.9, 2.11, 2.12, 2.13, 2.14, 2.15, and torch is "


def package(folder: Path, names=(), built: str | None = None, checkout: bool = False) -> Path:
    """A folder torch_lod with libraries that are stubs; _C.so says what it was built for."""
    here = folder / "torch_lod"
    here.mkdir()
    for name in names:
        (here / name).write_bytes(b"")
    if built is not None:
        (here / "_C.so").write_bytes(b"\x7fELF torch_lod was built for torch " + built.encode() + b"\0 rest")
    if checkout:
        (folder / "csrc/bindings").mkdir(parents=True)
        (folder / "csrc/bindings/library.cpp").write_text("")
    return here


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.14.1", "2.15.0+cu132", "2.15.0rc2"])
def test_a_wheel_has_a_library_per_release(version, tmp_path):
    here = package(tmp_path, WHEEL)
    minor = re.match(r"2\.(\d+)", version)[1]
    assert binding.choose(here, version) == (here / f"_C_2_{minor}.so", "", "")


@pytest.mark.parametrize("version", ["2.16.0", "3.0.1", "2.15.0.dev20260101", "2.13.0a0+git123", "2.10.0"])
def test_another_torch_than_a_wheel_knows_is_said(version, tmp_path):
    library, why, remedy = binding.choose(package(tmp_path, WHEEL), version)
    assert library is None and why == RELEASES + version
    assert "--no-binary torch_lod" in remedy and "C++ compiler" in remedy
    assert ("--upgrade" in remedy) == (version in ("2.16.0", "3.0.1")), "a newer wheel helps only a newer release"


def test_a_wheel_without_the_library_of_a_release_does_not_say_that_it_has_it(tmp_path):
    library, why, remedy = binding.choose(package(tmp_path, ["_C_2_11.so", "_C_2_15.so"]), "2.13.0")
    assert library is None and why == "this wheel has them for releases of torch 2.11, 2.15, and torch is 2.13.0"
    assert "--upgrade" not in remedy


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.13.1", "2.13.0.dev20260101+cpu"])
def test_a_source_build_is_for_the_minor_release_of_its_torch(version, tmp_path):
    here = package(tmp_path, built="2.13.0", checkout=True)
    assert binding.built_for(here / "_C.so") == "2.13.0"
    assert binding.choose(here, version).library == here / "_C.so"
    library, why, remedy = binding.choose(here, "2.14.0")
    assert library is None and why == "they were built for torch 2.13.0, and torch is 2.14.0"
    assert remedy.endswith(f"pip install --no-build-isolation -e {tmp_path}")


def test_a_source_build_comes_before_the_libraries_of_a_wheel(tmp_path):
    here = package(tmp_path, WHEEL, built="2.13.0")
    assert binding.choose(here, "2.13.0").library == here / "_C.so"
    assert binding.choose(here, "2.14.0").library == here / "_C_2_14.so"


def test_a_library_that_does_not_say_is_tried(tmp_path):
    here = package(tmp_path, ["_C.so"])
    assert binding.built_for(here / "_C.so") is None
    assert binding.choose(here, "2.13.0").library == here / "_C.so"


def test_no_library_at_all_is_said(tmp_path):
    here = package(tmp_path)
    library, why, remedy = binding.choose(here, "2.13.0")
    assert library is None and why == f"they were never built in {here}" and "<a checkout of torch_lod>" in remedy


@pytest.mark.parametrize("version", ["2.10.0", "1.13.1+cu117", "2.9.0a0"])
def test_a_torch_that_is_too_old_is_refused(version):
    with pytest.raises(ImportError, match=f"needs torch 2.11 or newer, got {re.escape(version)}: pip install"):
        requirements.check_torch(version)
    for fits in ("2.11.0", "2.13.0+cpu", "3.0", "of my own"):
        requirements.check_torch(fits)


IMPORTED = """
import os, sys, warnings
sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p, "torch_lod")) or p == os.environ["PYTHONPATH"]]
import torch
torch.__version__ = torch.torch_version.TorchVersion(sys.argv[1])
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import torch_lod as tl
print(*[w.message for w in seen if "torch_lod" in str(w.message)], sep="\\n")
print(tl.ops.COMPILED, tl.sequence_pool(tl.from_lengths(torch.ones(3), [[1, 2]]), "sum").tolist())
"""


def imported(folder: Path, version: str, code: str = IMPORTED):
    env = {**os.environ, "PYTHONPATH": str(folder), "TORCH_LOD_COMPOSED": "0"}
    return subprocess.run([sys.executable, "-c", code, version], capture_output=True, text=True, cwd=folder, env=env)


@pytest.fixture
def installed(tmp_path):
    """The package as a wheel installs it, with stubs of libraries, which do not load."""
    shutil.copytree(ROOT / "torch_lod", tmp_path / "torch_lod", ignore=shutil.ignore_patterns("_*.so", "__pycache__"))
    shutil.copytree(ROOT / "csrc/torch_lod", tmp_path / "torch_lod/include/torch_lod")
    for name in WHEEL:
        (tmp_path / "torch_lod" / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.99.0", RELEASES + "2.99.0"),
        ("2.13.0", "_C_2_13.so does not load (file too short)"),
        ("2.13.0", AGAIN),
    ],
)
def test_an_import_without_a_library_says_so_once_and_works(version, said, installed):
    done = imported(installed, version)
    warning, *rest = done.stdout.splitlines()
    assert warning.startswith("torch_lod runs without its compiled operators: ") and said in warning, done
    assert "Everything works" in warning and rest == ["False [1.0, 2.0]"], done


@pytest.mark.skipif(sys.platform != "linux", reason="the format of libraries is another")
@pytest.mark.parametrize("name", ["_C_2_13.so", "_kernels.so"])
@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("zeros", [False, True])
def test_an_import_with_a_library_that_was_copied_in_part_says_so(name, part, zeros, installed):
    for library in ("_C_2_13.so", "_kernels.so"):
        shutil.copy(Path(torch.__file__).parent / "lib/libc10.so", installed / "torch_lod" / library)
    cut = installed / "torch_lod" / name
    size = cut.stat().st_size
    os.truncate(cut, int(size * part))
    if zeros:
        os.truncate(cut, size)
    done = imported(installed, "2.13.0")
    assert done.returncode == 0, done
    warning, *rest = done.stdout.splitlines()
    assert f"{cut} is cut short" in warning and rest == ["False [1.0, 2.0]"], done
    assert AGAIN in warning


@pytest.mark.parametrize(
    ("machine", "avx2", "composed"), [("x86_64", False, True), ("x86_64", True, False), ("aarch64", False, False)]
)
def test_a_processor_without_avx2_composes(machine, avx2, composed, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx2_supported", lambda: avx2)
    monkeypatch.setattr("platform.machine", lambda: machine)
    found = binding.processor()
    assert (found is not None) == composed
    assert not composed or (found.library is None and "AVX2" in found.why and "AVX2" in found.remedy)


def test_an_import_on_a_processor_without_avx2_says_so(installed):
    done = imported(
        installed,
        "2.13.0",
        IMPORTED.replace("import torch\n", "import torch; torch.cpu._is_avx2_supported = lambda: False\n", 1),
    )
    warning, *rest = done.stdout.splitlines()
    assert "they need a processor with AVX2" in warning and rest == ["False [1.0, 2.0]"], done


def test_an_import_with_an_old_torch_is_one_sentence(installed):
    done = imported(installed, "2.10.0")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: torch_lod needs torch 2.11 or newer, got 2.10.0: pip install --upgrade torch"


TWICE = """
import sys
sys.argv[1] = "2.99.0"
import torch_lod, warnings
for name in [name for name in sys.modules if name.partition(".")[0] == "torch_lod"]:
    del sys.modules[name]
sys.path.insert(0, "other")
import torch_lod
"""


def test_a_second_copy_in_a_process_is_refused(installed):
    shutil.copytree(installed / "torch_lod", installed / "other/torch_lod")
    done = imported(installed, "2.99.0", TWICE)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: torch_lod was imported already in this process"), done
    assert str(installed / "other/torch_lod") in last and "one copy of it on sys.path" in last


def test_check_says_what_runs_here():
    done = subprocess.run([sys.executable, "-m", "torch_lod.check"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done
    said = done.stdout
    assert 8 <= len(said.splitlines()) <= 12, said
    assert f"torch      {torch.__version__}" in said and str(ROOT / "torch_lod") in said
    assert ("compiled, _C" in said) == tl.ops.COMPILED
    assert "sums [1.0, 0.0, 14.0], gradient [2.0, 2.0, 28.0, 28.0, 28.0, 28.0]: right" in said


def test_check_fails_where_a_sum_is_wrong(monkeypatch, capsys):
    assert check.main() == 0
    pool = tl.sequence_pool
    monkeypatch.setattr(tl, "sequence_pool", lambda x, how: pool(x, "mean"))
    assert check.main() == 1 and "WRONG" in capsys.readouterr().out


def test_check_compares_every_family_of_kernels(monkeypatch):
    assert all(right for right, _ in families.compared("cpu"))
    reverse, cumsum = tl.sequence_reverse, tl.sequence_cumsum
    on_gpu = iter([False, True])  # the device is asked before the CPU
    monkeypatch.setattr(tl, "sequence_reverse", lambda x: x if next(on_gpu) else reverse(x))
    monkeypatch.setattr(tl, "sequence_cumsum", lambda x: cumsum(x).unsqueeze(3))
    some = {name: families.FAMILIES[name] for name in ("rows", "so far", "order")}
    monkeypatch.setattr(families, "FAMILIES", some)
    (rows, said), (far, error), (order, _) = families.compared("cpu")
    assert not rows and re.match("rows: WRONG, .* from the CPU", said)
    assert not far and error.startswith("so far: WRONG, IndexError: ")
    assert order
    assert next(said for _, said in families.compared("cpu", limit=-1)) == "rows: not run, -1 seconds are over"


def test_check_names_other_copies(tmp_path, monkeypatch):
    here = package(tmp_path)
    (here / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    assert str(here) in check.other_copies() and str(ROOT / "torch_lod") not in check.other_copies()


@pytest.mark.skipif(not tl.ops.COMPILED or sys.platform != "linux", reason="no compiled operators that run on OpenMP")
def test_one_openmp_runtime_is_loaded():
    assert len(check.openmp()) == 1, check.openmp()


@pytest.mark.skipif(not tl.ops.COMPILED, reason="no compiled operators")
def test_asking_for_the_level_of_the_processor_leaves_it():
    assert check.cpu_level() == check.cpu_level() and check.cpu_level() in ("AVX2", "AVX-512")
