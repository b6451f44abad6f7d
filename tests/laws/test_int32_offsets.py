# SPDX-License-Identifier: Apache-2.0
"""Offsets of int32, as flash-attn and torch keep cu_seqlens, in every operator of tl.ops."""

import pytest
import torch
from samples import OPS
from samples.words import assert_same

import torch_lod as tl


def places(name):
    arguments = getattr(torch.ops.torch_lod, name).default._schema.arguments
    return [i for i, a in enumerate(arguments) if a.name.endswith("offsets") and "[]" not in str(a.type)]


WITH_OFFSETS = [info for info in OPS if info.name in tl.ops.__all__ and places(info.name)]


@pytest.mark.parametrize("info", WITH_OFFSETS, ids=lambda info: info.name)
def test_int32_offsets_are_converted(info, device):
    function, at = getattr(tl.ops, info.name), places(info.name)
    compared = 0
    for sample in list(info.samples(info.dtypes[0], device))[:4]:
        args = [a.int() if i in at and isinstance(a, torch.Tensor) else a for i, a in enumerate(sample.args)]
        assert any(isinstance(a, torch.Tensor) and a.dtype == torch.int32 for a in args)
        assert_same(function(*args), function(*sample.args), sample.label)
        compared += 1
    assert compared


def test_int32_offsets_by_keyword_with_a_gradient_and_compiled(device):
    x = torch.arange(6.0, device=device).requires_grad_()
    cuts = torch.tensor([0, 2, 2, 6], dtype=torch.int32, device=device)

    def function(x, cuts):
        return tl.ops.segment_softmax(x, row_offsets=cuts)

    expected = tl.ops.segment_softmax(x, cuts.long())
    for call in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        found = call(x, cuts)
        assert torch.equal(found, expected)
        (gradient,) = torch.autograd.grad(found[1], x)
        assert torch.equal(gradient, torch.autograd.grad(expected[1], x, retain_graph=True)[0])


@pytest.mark.parametrize("dtype", [torch.int16, torch.float32, torch.bool], ids=str)
def test_offsets_of_other_dtypes_raise(dtype, device):
    with pytest.raises(TypeError, match="row_offsets of dtype int64"):
        tl.ops.segment_softmax(torch.ones(2, device=device), torch.tensor([0, 2], device=device).to(dtype))
