# SPDX-License-Identifier: Apache-2.0
"""Products of cuBLAS and of torch on a GPU: on the emulated device, which `make test-emulated` builds."""

import os
import subprocess
import sys

import pytest
import torch

import torch_lod as tl

D = torch.device("emu", 0)

#: A recurrence in every dtype: captured, and then three times. It says which results are right, and how often cuBLAS
#: multiplied and torch, and how often the host waited. A process compares the first product of a dtype alone.
PRODUCTS = """
import sys
import torch
from emulated_gpu import emulated
emulated.start()
import torch_lod as tl
tl.structure.devices.PINNED.add("emu")

def called(layer, x):
    emulated.counts()
    out = layer(x)[0].values()
    counts = emulated.counts()
    waits = sum(n for what, n in counts.items() if "sync" in what)
    return out.cpu(), counts.get("product", 0), counts.get("op aten::mm", 0), waits

wrong = sys.argv[1] == "wrong"
torch.ops.emulated_gpu.wrong_products(wrong)
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    layer = tl.nn.LSTM(3, 4).to(dtype).requires_grad_(False)
    x = tl.from_lengths(torch.randn(15, 3, dtype=dtype), [[4, 0, 9, 2]])
    want = layer(x)[0].values()
    right = lambda got: torch.allclose(got.double(), want.double(), atol=3e-2 if dtype.itemsize == 2 else 1e-5)
    there, rows = layer.to("emu"), x.to("emu")
    torch.ops.emulated_gpu.capture(True)
    _, captured, compared, _ = called(there, rows)
    torch.ops.emulated_gpu.capture(False)
    first, second, third = (called(there, rows) for _ in range(3))
    outs, numbers = zip(*((one[0], one[1:]) for one in (first, second, third)))
    print(dtype, *map(right, outs), captured, compared, *sum(numbers, ()), flush=True)
"""


def products(kind: str, **env: str) -> tuple[list[list[str]], str]:
    """What the program says of every dtype, and the warnings."""
    done = subprocess.run(
        [sys.executable, "-c", PRODUCTS, kind], env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [line.split()[1:] for line in done.stdout.splitlines()], done.stderr


def test_the_first_product_is_compared_with_torchs():
    said, warned = products("right")
    assert said == [["True"] * 3 + "8 0 8 2 0 8 0 0 8 0 0".split()] * 4  # of nine steps, all but the first
    assert "cuBLAS" not in warned


def test_after_a_difference_products_are_torchs():
    said, warned = products("wrong")
    assert said == [["False", "True", "True", *"8 0 8 2 0 0 8 0 0 8 0".split()]] * 4
    assert warned.count("by cuBLAS differed from torch's") == 4 and "TORCH_LOD_CUBLAS=0" in warned


def test_products_of_cublas_can_be_switched_off():
    said, warned = products("wrong", TORCH_LOD_CUBLAS="0")
    assert said == [["True"] * 3 + "0 8 0 8 0 0 8 0 0 8 0".split()] * 4
    assert "cuBLAS" not in warned


def test_a_convolution_takes_some_positions_at_a_time():
    """All rows of all windows would be more than the device has."""
    lod = tl.LoD.from_lengths([[700, 0, 324]])
    given = [torch.randn(*shape, dtype=torch.float64) for shape in ((1024, 64), (550, 64, 1), (1,))]
    assert given[0].nbytes * len(given[1]) > 2**28
    found = []
    for device in ("cpu", D):
        leaves = [t.to(device).requires_grad_() for t in given]
        out = tl.ops.segment_conv(*leaves, lod.row_offsets().to(device), -3)
        found.append([out, *torch.autograd.grad(out, leaves, torch.ones_like(out))])
    for want, got in zip(*found):
        torch.testing.assert_close(got.cpu(), want)


def test_a_beam_that_cannot_be_counted_is_refused():
    values, offsets = torch.zeros(2048, 3).to(D), torch.tensor([0, 0, 2048]).to(D)
    with pytest.raises(ValueError, match="below 2\\*\\*31, got a beam of 1048576 and 2048 rows in sequence 1"):
        tl.ops.ctc_beam(values, offsets, 0, 2**20, 1)
