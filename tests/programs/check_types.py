# SPDX-License-Identifier: Apache-2.0
"""What mypy and pyright say to users' programs, with the package installed and editable: `make lint`."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
README = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
OTHERS = """
import torch
import torch_lod as tl
from torch_lod import LoDTensor, paddle

x = tl.lod_tensor([[1.0, 2.0], [3.0]])
rows: LoDTensor = 2 * (x + 1).relu().to(torch.float64)
total: torch.Tensor = tl.sequence_pool(x, "sum")
largest, row = tl.sequence_pool(x, "max", return_index=True)
print(largest.shape, row.shape, x.seq[0].shape, x.seq[:1].lod, [part.lod for part in x.sequences()])
y, (h, c) = tl.nn.LSTM(1, 2)(rows)
print(y.lod, h.shape, c.shape, tl.nn.GRU(2, 2)(y)[0].lod, tl.nn.SequenceConv1d(2, 2, 3)(y).lod)
dense, lengths = x.to_padded()
print(dense.shape, lengths.shape, tl.from_padded(dense, lengths).lod, tl.scan, tl.ops.attention)
print(tl.dynamic_lstm, paddle.dynamic_lstm, tl.paddle.sequence_pad(x))
"""
#: A program with a mistake, and what both say of it.
WRONG = {
    "keyword": ("import torch_lod as tl\n\ntl.sequence_softmax(tl.lod_tensor([[1.0]]), levle=0)\n", "levle"),
    "pool": ('import torch_lod as tl\n\ntl.sequence_pool(tl.lod_tensor([[1.0]]), "sum", levle=0)\n', ""),
    "module": ("import torch_lod as tl\n\ntl.nn.LSTM(1, 2)(tl.lod_tensor([[1.0]]), levle=0)\n", "levle"),
    "name": ("import torch_lod as tl\n\ntl.sequence_poll\n", "sequence_poll"),
    "plain": ("import torch\nimport torch_lod as tl\ntl.sequence_softmax(torch.ones(3))\n", "LoDTensor"),
    "lod": ("import torch_lod as tl\n\ntl.lod_tensor([[1.0]]).lods\n", "lods"),
}
CHECKERS = {
    "mypy": ["mypy", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache/programs"), "--python-executable"],
    "pyright": ["basedpyright", "--level", "error", "--pythonpath"],
}


def setup(*commands):
    command = [sys.executable, str(ROOT / "setup.py"), "-q", *map(str, commands)]
    env = {**os.environ, "CXX": "none"}  # types need no operators
    subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True)


@pytest.fixture(scope="module", params=["installed", "editable"])
def python(request, tmp_path_factory) -> Path:
    """A Python that has this package and the torch of this one."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "venv", symlinks=True)
    [site] = folder.glob("venv/lib/python*/site-packages")
    (site / "torch.pth").write_text(str(Path(torch.__file__).parents[1]))
    egg_info = ["egg_info", "--egg-base", folder]
    if request.param == "installed":
        setup(*egg_info, "build_py", "--build-lib", site)
    else:
        setup(*egg_info, "editable_wheel", "--dist-dir", folder)
        [wheel] = folder.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(site)
    return folder / "venv/bin/python"


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    for path in ROOT.glob("examples/*.py"):
        shutil.copy(path, folder)
    (folder / "readme.py").write_text(README)
    (folder / "others.py").write_text(OTHERS)
    for name, (text, _) in WRONG.items():
        (folder / f"wrong_{name}.py").write_text(text)
    return folder


@pytest.mark.parametrize("checker", CHECKERS)
def test_programs_are_right_and_mistakes_are_found(checker, python, programs):
    command = [sys.executable, "-m", *CHECKERS[checker], str(python), *(path.name for path in programs.glob("*.py"))]
    said = subprocess.run(command, cwd=programs, capture_output=True, text=True)
    errors = [line for line in said.stdout.splitlines() if "error:" in line]
    unexpected = [line for line in errors if "wrong_" not in line]
    assert not unexpected, "\n".join(unexpected)
    assert errors, said.stdout + said.stderr
    for name, (_, words) in WRONG.items():
        assert any(f"wrong_{name}.py:3" in line for line in errors), f"{name}: not found\n{said.stdout}"
        assert words in said.stdout
