# SPDX-License-Identifier: Apache-2.0
"""torch._foreach_*, the functions of lists that optimizers and averages of models call, follow the rules of the function
of one tensor."""

import pytest
import torch
from torch import nn

import torch_lod as tl

LENGTHS = [[2, 1]]


def rows(lengths=LENGTHS, value: float = 0.0) -> tl.LoDTensor:
    return tl.from_lengths(torch.full((3, 2), value), lengths)


def other() -> tl.LoDTensor:
    return rows([[1, 2]], 1.0)


WRONG = {
    "copy_, another LoD": (lambda x: torch._foreach_copy_([x], [other()]), "copy: expected operands with equal LoDs"),
    "sub_, a mean of all": (lambda x: torch._foreach_sub_([x], [x.mean(0)]), "sub: expected operands whose rows"),
    "lerp_": (lambda x: torch._foreach_lerp_([x], [other()], 0.5), "lerp: expected operands with equal LoDs"),
    "addcmul_": (lambda x: torch._foreach_addcmul_([x], [x], [other()], 0.5), "addcmul: expected operands with equal"),
    "add": (lambda x: torch._foreach_add([x], [other()]), "add: expected operands with equal LoDs"),
    "into a plain tensor": (lambda x: torch._foreach_copy_([torch.zeros(3, 2)], [x]), "copy: expected a plain tensor"),
    "second of a list": (lambda x: torch._foreach_mul_([x, x], [x, other()]), "mul: expected operands with equal LoDs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_do_not_correspond_are_refused(name):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        call(rows())


def test_rows_that_correspond_keep_their_structure():
    x, plain = rows(), torch.ones(2)
    beside = rows(value=1.0)
    calls = [
        lambda a, b: torch._foreach_add_(a, b, alpha=2),
        lambda a, b: torch._foreach_copy_(a, b),
        lambda a, b: torch._foreach_addcmul_(a, b, b, 3.0),
        lambda a, b: torch._foreach_addcdiv_(a, b, b, [2.0, 4.0]),
        lambda a, b: torch._foreach_addcdiv_(a, b, b, value=0.5),
        lambda a, b: torch._foreach_lerp_(a, b, 0.25),
        lambda a, b: torch._foreach_maximum_(a, b),
        lambda a, b: torch._foreach_maximum_(a, 0.5),
        lambda a, b: torch._foreach_mul_(a, torch.tensor(3.0)),
        lambda a, b: torch._foreach_pow_(a, [2, 3]),
        lambda a, b: torch._foreach_zero_(a),
        lambda a, b: torch._foreach_sqrt(b),
        lambda a, b: torch._foreach_sub(a, b, alpha=2),
        lambda a, b: torch._foreach_pow(2.0, b),
        lambda a, b: torch._foreach_minimum(a, [0.5, -1.0]),
    ]
    for call in calls:
        x.values().copy_(torch.arange(6.0).view(3, 2))
        wide = [x, plain.clone()], [beside, torch.full((2,), 2.0)]
        far = [[t.values() if isinstance(t, tl.LoDTensor) else t for t in tensors] for tensors in wide]
        far = [[t.clone() for t in tensors] for tensors in far]
        got, want = call(*wide), call(*far)
        got, want = (wide[0], far[0]) if want is None or want is far[0] else (got, want)
        assert isinstance(got[0], tl.LoDTensor)
        assert got[0].lod == x.lod
        assert type(got[1]) is torch.Tensor
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a.as_subclass(torch.Tensor), b, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD"])
def test_optimizers_of_lists(name):
    """A parameter with a LoD takes the steps of a plain one."""
    start = torch.randn(3, 2)
    ends = []
    for given in (tl.from_lengths(start.clone(), LENGTHS), start.clone()):
        parameter = nn.Parameter(given)
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1, foreach=True)
        for _ in range(3):
            optimizer.zero_grad()
            parameter.square().sum().backward()
            optimizer.step()
        ends.append(parameter.detach())
    assert isinstance(ends[0], tl.LoDTensor)
    torch.testing.assert_close(ends[0].values(), ends[1], rtol=0, atol=0)


def test_averages_of_models():
    def model(lengths, value):
        layer = nn.Module()
        layer.register_buffer("rows", rows(lengths, value))
        return layer

    average = torch.optim.swa_utils.AveragedModel(
        model(LENGTHS, 0.0), multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5), use_buffers=True
    )
    average.update_parameters(model(LENGTHS, 2.0))
    average.update_parameters(model(LENGTHS, 4.0))
    assert average.module.rows.values().unique().tolist() == [3.0]
    with pytest.raises(ValueError, match="equal LoDs"):
        average.update_parameters(model([[1, 2]], 4.0))
