# SPDX-License-Identifier: Apache-2.0
"""The operator against a loop: python -m pytest test_own_operator.py, once it is built."""

import os
import subprocess
import sys

import pytest
import torch
from own_operator import segment_norm, sequence_norm

import torch_lod as tl

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
LENGTHS = [[2, 0, 1, 1], [0, 3, 2, 0]]  # empty sequences on both levels


def batch(device="cpu", dtype=torch.float64, width=85):  # 85 channels are strips of 64, 16, 4 and 1
    return tl.from_lengths(torch.randn(5, width, dtype=dtype, device=device), LENGTHS)


def loop(x, level):
    pieces = x.values().double().split(x.row_offsets(level).diff().tolist())
    return torch.stack([rows.norm(dim=0) for rows in pieces])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("level", [0, 1])
def test_equals_a_loop(level, dtype, device):
    x = batch(device, dtype)
    norm = sequence_norm(x, level)
    assert norm.dtype == dtype and (level == 0 or norm.lod == x.lod.outer(1))
    rows = norm if level == 0 else norm.values()
    torch.testing.assert_close(rows, loop(x, level).to(dtype))


def test_elements_of_any_shape_and_stride():
    offsets = torch.tensor([0, 2, 5])
    values = torch.randn(3, 2, 5).transpose(0, 2)
    assert torch.equal(segment_norm(values, offsets), segment_norm(values.contiguous(), offsets))
    assert segment_norm(values, offsets).shape == (2, 2, 3)
    assert segment_norm(torch.ones(5), offsets).tolist() == pytest.approx([2**0.5, 3**0.5])
    assert segment_norm(torch.ones(0, 3), torch.tensor([0])).shape == (0, 3)
    assert segment_norm(torch.ones(0, 3), torch.tensor([0, 0])).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    x = batch(device, width=2).values().requires_grad_()
    offsets = torch.tensor([0, 0, 3, 5, 5], device=device)
    assert segment_norm(x, offsets).grad_fn.name() == "own_operator::SegmentNormBackward"
    assert torch.autograd.gradcheck(segment_norm, (x, offsets))
    assert torch.autograd.gradgradcheck(segment_norm, (x, offsets))
    torch.library.opcheck(segment_norm, (x, offsets))
    zero = torch.zeros(2, requires_grad=True)
    segment_norm(zero, torch.tensor([0, 2])).sum().backward()
    assert zero.grad.tolist() == [0, 0]


def test_gradients_flow_through_a_lod_tensor():
    x = batch().requires_grad_()
    sequence_norm(sequence_norm(x)).sum().backward()
    other = x.values().detach().requires_grad_()
    loop(tl.LoDTensor(other, x.lod), 0).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


@pytest.mark.parametrize(
    ("values", "offsets", "error", "message"),
    [
        (torch.ones(5, 2), [1, 5], ValueError, "segment_norm: expected row_offsets to start at 0, got 1"),
        (torch.ones(5, 2), [0, 4, 3, 5], ValueError, "segment_norm: .*not to decrease, got 4 then 3 at index 2"),
        (torch.ones(5, 2), [0, 6], ValueError, "segment_norm: .*to equal the 5 rows of values, got 6 at index 1"),
        (torch.ones(5, 2), [], ValueError, "segment_norm: expected row_offsets with at least 1 entry"),
        (torch.ones(5, 2), [0.0, 5.0], TypeError, "segment_norm: expected row_offsets of dtype int64, got Float"),
        (torch.ones(5, dtype=torch.int64), [0, 5], TypeError, "segment_norm: expected values of dtype float16"),
        (torch.ones(()), [0, 1], ValueError, "segment_norm: expected values with at least 1 dimension, got a scalar"),
    ],
)
def test_what_is_wrong_is_said(values, offsets, error, message):
    offsets = torch.tensor(offsets, dtype=torch.int64 if offsets == [] else None)
    with pytest.raises(error, match=message):
        segment_norm(values, offsets)


def test_sequences_are_asked_of_a_lod_tensor():
    with pytest.raises(TypeError, match="sequence_norm: expected x as a LoDTensor, got Tensor"):
        sequence_norm(torch.ones(3))
    with pytest.raises(IndexError, match=r"expected level in \[-2, 1\], got 2"):
        sequence_norm(batch(), 2)


def test_the_gradient_is_checked_as_well():
    values, offsets, norm = torch.ones(5, 2), torch.tensor([0, 5]), torch.ones(1, 2)
    backward = torch.ops.own_operator.segment_norm_backward
    with pytest.raises(ValueError, match=r"segment_norm_backward: expected grad of shape \[1, 2\], got \[3, 2\]"):
        backward(torch.ones(3, 2), norm, values, offsets)
    with pytest.raises(TypeError, match="segment_norm_backward: expected norm of dtype Float on cpu, got Double"):
        backward(norm, norm.double(), values, offsets)


@pytest.mark.parametrize("processor", ["avx2", "avx512"])
def test_every_instruction_level(processor):
    code = "import torch, test_own_operator as t\nfor d in (torch.float64, torch.bfloat16): t.test_equals_a_loop(1, d, 'cpu')"
    env = {**os.environ, "TORCH_LOD_CPU_CAPABILITY": processor, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=os.path.dirname(__file__), env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
