# SPDX-License-Identifier: Apache-2.0
"""Operands of other classes with a `__torch_function__`, as quantised weights: they are asked as beside plain rows, and the LoD is
put around the result; where it cannot be, the call is refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.masked import masked_tensor
from torch.overrides import TorchFunctionMode

import torch_lod as tl
from torch_lod import LoDError, LoDTensor

LENGTHS = [[4, 0, 2]]


class Scaled(torch.Tensor):
    """Numbers, and a scale that its own functions apply."""

    @classmethod
    def of(cls, numbers, scale=2.0):
        scaled = numbers.as_subclass(cls)
        scaled.scale = scale
        return scaled

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def dense(v):
            if isinstance(v, (tuple, list)):
                return type(v)(map(dense, v))
            return v.as_subclass(torch.Tensor) * v.scale if isinstance(v, Scaled) else v

        with torch._C.DisableTorchFunctionSubclass():
            return func(*dense(args), **{name: dense(v) for name, v in (kwargs or {}).items()})


class Kept(Scaled):
    """Gives what it makes as its own class."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs or {})


class Stored(Scaled):
    """Answers with a tensor that it holds."""

    answer = torch.zeros(6, 4)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return cls.answer


def w(*shape, cls=Scaled):
    return cls.of(torch.randn(*shape, generator=torch.Generator().manual_seed(1)))


WEIGHT, ROW, TABLE = w(5, 4), w(4), w(7, 4)
#: Of rows (n, 4), or of LoDTensors; and of ids.
CALLS = {
    "linear": lambda x, ids: F.linear(x, WEIGHT, ROW.new_zeros(5)),
    "linear by name": lambda x, ids: F.linear(x, weight=WEIGHT),
    "a bias alone": lambda x, ids: F.linear(x, torch.ones(5, 4), w(5)),
    "embedding": lambda x, ids: F.embedding(ids, TABLE),
    "mul": lambda x, ids: x * ROW,
    "add": lambda x, ids: torch.add(x, ROW, alpha=2),
    "sub of x": lambda x, ids: x.sub(other=ROW),
    "where": lambda x, ids: torch.where(x > 0, x, ROW),
    "matmul": lambda x, ids: x @ w(4, 3),
    "layer_norm": lambda x, ids: F.layer_norm(x, (4,), ROW, w(4)),
    "rms_norm": lambda x, ids: F.rms_norm(x, (4,), weight=ROW),
    "prelu": lambda x, ids: F.prelu(x, w(4)),
    "compared": lambda x, ids: x == ROW,
    "a power": lambda x, ids: x.abs() ** ROW,
    "lerp": lambda x, ids: torch.lerp(x, x * 2, weight=ROW),
    "einsum": lambda x, ids: torch.einsum("ni,oi->no", x, WEIGHT),
    "bilinear": lambda x, ids: F.bilinear(x, x, w(3, 4, 4)),
    "addmm": lambda x, ids: torch.addmm(torch.zeros(3), x, w(4, 3)),
}


def batch(lengths=LENGTHS):
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    return tl.from_lengths(rows, lengths), tl.from_lengths(torch.tensor([1, 6, 2, 0, 3, 5]), lengths), rows


@pytest.mark.parametrize("lengths", [LENGTHS, [[2, 0, 1], [2, 2, 2]], [[6]]], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_class_is_asked(name, lengths):
    x, ids, rows = batch(lengths)
    found, wanted = CALLS[name](x, ids), CALLS[name](rows, ids.values())
    assert type(found) is LoDTensor and not found.lod.differs(x.lod)
    assert torch.equal(found.values(), wanted)
    if wanted.requires_grad:
        assert torch.equal(*[torch.autograd.grad(t.sin().sum(), rows)[0] for t in (found.values(), wanted)])


def test_rows_at_other_dims_too():
    x, _, rows = batch()
    found = F.linear(x[None], WEIGHT)
    assert found.rows_dim == 1 and torch.equal(found.values(), F.linear(rows[None], WEIGHT))
    assert type(found[0] + F.linear(x, WEIGHT)) is LoDTensor
    each = tl.per_sequence(torch.randn(3, 4))
    wanted = torch.addcmul(rows, each.values()[[0, 0, 0, 0, 2, 2]], ROW)
    assert torch.allclose(torch.addcmul(x, each, ROW).values(), wanted)


def test_the_rules_hold():
    x, _, rows = batch()
    with pytest.raises(LoDError, match="mean, which lost the structure"):
        torch.addcmul(x, x.mean(0), ROW)
    with pytest.raises(LoDError, match="rows"):
        x[None] * w(1, 6, 1)
    lost = x.mean(0) * ROW
    assert lost.rows_dim is None and torch.equal(lost.values(), rows.mean(0) * ROW)
    assert torch.equal(F.mse_loss(x, w(6, 4)), F.mse_loss(rows, w(6, 4)))
    assert torch.allclose(x, w(6, 4)) is False
    assert float(F.mse_loss(x, w(6, 4, cls=Kept))) == float(
        F.mse_loss(rows, w(6, 4, cls=Kept))
    )  # a number like any other


def test_under_modes():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    x, _, rows = batch()
    for mode in (Mode(), torch.device("cpu"), tl.strict()):
        with mode:
            found = F.linear(x, WEIGHT)
        assert torch.equal(found.values(), F.linear(rows, WEIGHT))


def test_what_a_class_holds_stays_plain():
    x, _, _ = batch()
    found = x * w(4, cls=Stored)
    assert type(found) is LoDTensor and type(Stored.answer) is torch.Tensor
    assert found.data_ptr() == Stored.answer.data_ptr()


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * w(4, cls=Kept),
        lambda x: torch.split(x * w(4, cls=Kept), 2),
        lambda x: x * masked_tensor(torch.ones(6, 4), torch.ones(6, 4) > 0),
        lambda x: F.conv1d(x.t()[None], w(2, 4, 3), padding=1),
        lambda x: x.clone().mul_(ROW),
        lambda x: torch._foreach_mul([x], [ROW]),
        lambda x: torch.unbind(x)[0] * w(4, cls=Kept),
    ],
)
def test_where_it_cannot_answer_it_is_refused(call):
    with pytest.raises(LoDError, match=r"got a \w+, whose class has a __torch_function__ of its own.* x.with_values"):
        call(batch()[0])


class Named(torch.Tensor):
    """Has the __torch_function__ of torch.Tensor."""


class Silent(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


@pytest.mark.parametrize("cls", [Named, Silent, nn.Parameter])
def test_classes_without_one_are_numbers(cls):
    x, _, rows = batch()
    v = cls(torch.full((4,), 3.0)) if cls is nn.Parameter else torch.full((4,), 3.0).as_subclass(cls)
    found = x * v
    assert type(found) is LoDTensor and torch.equal(found.values(), rows * 3)


class Doubled(torch.Tensor):
    """Of which Dynamo traces the __torch_function__."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*[v * 2 if isinstance(v, Doubled) else v for v in args], **(kwargs or {}))


def test_compiled():
    torch._dynamo.reset()
    x, _, rows = batch()
    weight, row = torch.randn(5, 4).as_subclass(Doubled), torch.randn(5).as_subclass(Doubled)

    def f(x, weight, row):
        return F.linear(x, weight) * row

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    found = compiled(x, weight, row)
    assert type(found) is LoDTensor and torch.equal(found.values(), f(rows, weight, row))
    assert torch.equal(compiled(x[None], weight, row).values(), f(rows[None], weight, row))
    with pytest.raises(Exception, match="whose class has a __torch_function__ of its own"):
        torch.compile(lambda x: x * Kept.of(torch.ones(4)), backend="eager", fullgraph=True)(x)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning")
def test_modules_that_torch_ao_quantised():
    """In float16 row by row; of int8 the scale of the input is one for the whole batch."""
    x, ids, rows = batch()
    layer = nn.Sequential(nn.Linear(4, 5))
    half = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.float16)
    assert type(half(x)) is LoDTensor and torch.equal(half(x).values(), half(rows))
    assert half(x[None]).rows_dim == 1
    with pytest.raises(LoDError, match="along dim 1, where t put the rows"):
        torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 5)), {nn.Linear}, dtype=torch.float16)(x.t())
    int8 = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear})
    moved = torch.cat([rows[:4], rows[4:] * 100])
    assert not torch.equal(int8(rows)[:4], int8(moved)[:4])
    for module in (int8, torch.ao.nn.quantized.dynamic.LSTMCell(4, 5), torch.ao.nn.quantized.dynamic.GRUCell(4, 5)):
        with pytest.raises(LoDError, match="its scale is taken from the rows of all sequences"):
            module(x)
    table = torch.ao.nn.quantized.Embedding(8, 4)
    assert type(table(ids)) is LoDTensor and torch.equal(table(ids).values(), table(ids.values()))
