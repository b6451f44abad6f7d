# SPDX-License-Identifier: Apache-2.0
"""What C++ does in one call of what LoDTensors do most often: the same as the Python code that stands beside it."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl
from torch_lod import ops
from torch_lod.dynamo import DYNAMIC

pytestmark = pytest.mark.skipif(not ops.COMPILED, reason="the Python code runs")

STRUCTURES = {
    "one level": [[3, 1, 2]],
    "empty ones": [[0, 3, 0, 2, 0]],
    "equal": [[2, 2, 2]],
    "no sequences": [[]],
    "no rows": [[0, 0]],
    "two levels": [[3, 1, 2], [3, 2, 4, 1, 2, 3]],
    "three levels": [[2, 0, 1], [1, 2, 1], [2, 1, 0, 2]],
}
ROWS = {
    "floats": lambda n: torch.arange(2.0 * n).view(n, 2),
    "a number each": lambda n: torch.arange(n),
    "matrices": lambda n: torch.arange(6 * n, dtype=torch.float64).view(n, 2, 3),
    "bfloat16": lambda n: torch.arange(2.0 * n).view(n, 2).to(torch.bfloat16),
    "bool": lambda n: torch.arange(n) % 3 == 0,
    "complex": lambda n: torch.arange(n) * 1j,
    "every second": lambda n: torch.arange(4.0 * n).view(2 * n, 2)[::2],
    "transposed": lambda n: torch.arange(2.0 * n).view(2, n).t(),
}


def batch(structure, rows="floats", names=True):
    lod = tl.LoD.from_lengths(STRUCTURES[structure])
    names = "abc"[: lod.depth] if names else None
    return tl.from_lengths(ROWS[rows](lod.rows), STRUCTURES[structure], level_names=names and list(names))


def turned(n):
    return torch.arange(n - 1, -1, -1)


CALLS = {
    "head": lambda x: x.head(2),
    "tail": lambda x: x.tail(2),
    "head of none": lambda x: x.head(0),
    "slice": lambda x: tl.sequence_slice(x, (x.lengths() > 1).long(), (x.lengths() > 1).long(), level=-1),
    "slice of the outermost": lambda x: tl.sequence_slice(
        x, x.lengths(0) // 2, x.lengths(0) - x.lengths(0) // 2, level=0
    ),
    "slice by a column": lambda x: tl.sequence_slice(x, x.lengths()[:, None] * 0, x.lengths()[:, None] // 2),
    "seq": lambda x: x.seq[turned(x.num_sequences())],
    "seq twice": lambda x: x.seq[[*range(x.num_sequences())] * 2],
    "permuted": lambda x: x.permute_sequences(turned(x.num_sequences())),
    "expanded": lambda x: tl.sequence_expand(x, tl.LoD.from_lengths([[i % 3 for i in range(x.num_sequences())]])),
    "padded": lambda x: x.to_padded(1 if x.dtype == torch.bool else 7),
    "padded further": lambda x: x.to_padded(max_length=x.max_length() + 1, side="left"),
    "padded outermost": lambda x: x.to_padded(level=0),
    "padded all": lambda x: x.to_padded(level="all"),
    "unpadded": lambda x: tl.from_padded(x.to_padded()[0], x.lengths()),
    "unpadded from the right": lambda x: tl.from_padded(
        x.to_padded(max_length=x.max_length() + 1)[0], x.lengths() // 2, side="left", level_names=["words"]
    ),
    "cat": lambda x: tl.cat([x, x]),
    "cat of three": lambda x: tl.cat([x, x.head(1), x]),
    "concat": lambda x: tl.sequence_concat([x, x.head(1)]),
    "concat of three": lambda x: tl.sequence_concat([x, x, x]),
    "torch's cat": lambda x: torch.cat([x, x]),
}


def parts(found):
    return found if isinstance(found, tuple) else (found,)


def flat(found):
    for part in parts(found):
        yield from flat(part) if isinstance(part, tuple) else (part,)


@pytest.fixture
def by_python(monkeypatch):
    """Runs a call without what C++ does at once."""

    def run(call):
        with monkeypatch.context() as without:
            for name in ("rearranged", "joined", "padded", "unpadded"):
                without.setattr(ops, name, lambda *given: None)
            return call()

    return run


def same(ours, wanted):
    for a, b in itertools.zip_longest(flat(ours), flat(wanted)):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad
        if isinstance(a, tl.LoDTensor):
            assert a.lod == b.lod and a.level_names == b.level_names and type(a.lod) is type(b.lod)
            assert [a.lod.longest_at(k) for k in range(a.lod_level)] == [
                b.lod.longest_at(k) for k in range(b.lod_level)
            ]
            assert a.lod.rows == b.lod.rows and a.lod._symbols == b.lod._symbols and a.lod.counted == b.lod.counted
            assert all(t.grad_fn is None and not t.is_inference() for t in a.lod.levels)
            tl.LoD(a.lod.to_list())
            a, b = a.values(), b.values()
        assert torch.equal(a, b)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_results(by_python, call, structure):
    for rows, names in itertools.product(ROWS, (True, False)):
        x = batch(structure, rows, names)
        same(CALLS[call](x), by_python(lambda x=x: CALLS[call](x)))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_gradients(by_python, call, structure):
    def gradient(run):
        x = batch(structure, "matrices").requires_grad_()
        out = next(flat(run(lambda: CALLS[call](x))))
        assert out.requires_grad
        weight = torch.arange(out.numel(), dtype=out.dtype).view(out.shape)
        return torch.autograd.grad((out.values() if isinstance(out, tl.LoDTensor) else out).mul(weight).sum(), x)[0]

    ours, wanted = gradient(lambda call: call()), gradient(by_python)
    assert torch.equal(torch.as_tensor(ours), torch.as_tensor(wanted))


@pytest.mark.parametrize("call", CALLS)
def test_where_something_looks_on(by_python, call):
    x = batch("two levels")
    with torch.inference_mode():
        same(CALLS[call](x), by_python(lambda: CALLS[call](x)))
    seen = []

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **kwargs or {})

    with Looking():
        found = CALLS[call](x)
    assert seen
    same(found, CALLS[call](x))

    def first(values):
        out = next(flat(CALLS[call](x.with_values(values))))
        return out.values() if isinstance(out, tl.LoDTensor) else out

    tangent = torch.func.jvp(first, (x.values(),), (torch.ones(len(x), 2),))[1]
    assert set(tangent.unique().tolist()) <= {0.0, 1.0}
    rows = torch.func.vmap(first)(torch.stack([x.values()] * 3))
    assert torch.equal(rows[2], first(x.values()))


def test_rows_that_a_loss_ignored_go_along(by_python):
    x = batch("two levels")
    counted = x.with_lod(x.lod.counting(torch.arange(15) % 2 == 0))
    for call in ("head", "seq", "permuted", "cat"):
        ours, wanted = CALLS[call](counted), by_python(lambda call=call: CALLS[call](counted))
        assert torch.equal(ours.lod.counted[0], wanted.lod.counted[0])


def test_errors_are_those_of_the_python_code(by_python):
    x, freed = batch("one level"), batch("one level")
    freed.untyped_storage().resize_(0)
    other = tl.from_lengths(torch.zeros(6, 3), [[3, 3]])
    for call in (
        lambda: tl.sequence_slice(x, [0, 0, 1], [3, 1, 2]),
        lambda: tl.sequence_slice(x, [0, 0], [3, 1]),
        lambda: tl.sequence_slice(x, torch.tensor([0, 0, 1]), torch.tensor([3, 1, 2])),
        lambda: tl.sequence_slice(x, None, torch.tensor([3, 1, 2])),
        lambda: tl.sequence_slice(x, torch.tensor([0, 0, 1]), None),
        lambda: tl.sequence_slice(x, torch.tensor([0.0, 0, 0]), torch.tensor([1, 1, 1])),
        lambda: tl.sequence_slice(x, torch.tensor([0, 0, -1]), torch.tensor([1, 1, 1])),
        lambda: x.seq[[3]],
        lambda: x.permute_sequences([0, 0, 1]),
        lambda: x.to_padded(max_length=2),
        lambda: freed.to_padded(),
        lambda: freed.head(1),
        lambda: tl.cat([x, freed]),
        lambda: tl.cat([x, other]),
        lambda: tl.sequence_concat([x, other]),
        lambda: tl.sequence_concat([x, tl.from_lengths(torch.zeros(6, 2), [[3, 3]])]),
        lambda: tl.from_padded(torch.zeros(3, 2), torch.tensor([2, 0, 3])),
        lambda: tl.from_padded(torch.zeros(3, 2), torch.tensor([2, 0, -1]), side="left"),
        lambda: tl.from_padded(torch.zeros(3, 2), torch.tensor([2, 0, 1]), level_names=["a", "b"]),
        lambda: tl.from_padded(freed.values().view(3, 2, 2), torch.tensor([2, 0, 1])),
    ):
        with pytest.raises(tl.LoDError) as wanted:
            by_python(call)
        with pytest.raises(type(wanted.value)) as found:
            call()
        assert str(found.value) == str(wanted.value)


ODD = (None, 0, -1, 2**70, "x", (), [], [1], (torch.ones(2),), torch.ones(2), int, torch.Tensor, tl.LoDTensor, object())


@pytest.mark.parametrize("name", ["described", "rearranged", "joined", "padded", "unpadded", "kept"])
def test_other_arguments_are_refused_or_left_to_the_python_code(name):
    x = batch("two levels")
    own = torch.tensor([0])
    right = {
        "described": (object.__new__(tl.LoD), None, (own,), 3, (1,), *DYNAMIC),
        "rearranged": (x, 0, None, own, own, 1, False, tl.LoD, *DYNAMIC),
        "joined": ([x, x], False, tl.LoD, *DYNAMIC),
        "padded": (x, own, own, own, 1, 3, 0),
        "unpadded": (torch.zeros(1, 2, 3), own, own + 1, None, tl.LoDTensor, tl.LoD, *DYNAMIC),
        "kept": (torch.zeros(x.lod.rows), (own,), x.lod, tl.LoDTensor),
    }[name]
    call = getattr(ops, name)
    for count in range(len(right)):
        with pytest.raises(TypeError):
            call(*right[:count])
    for i, odd in itertools.product(range(len(right)), ODD):
        try:
            call(*right[:i], odd, *right[i + 1 :])
        except (TypeError, ValueError, IndexError, AttributeError, OverflowError, RuntimeError):
            pass
    one = type("One", (), {"_lod": x.lod, "levels": (own,), "counted": (), "_longest": 3, "_rows": "x"})()
    if name == "joined":
        assert call([one, one], *right[1:]) is None


def test_results_that_are_kept():
    lod = tl.LoD.from_lengths([[1, 2]])

    def kept(result, *arguments):
        return ops.kept(result, arguments, lod, tl.LoDTensor)

    fresh = torch.zeros(3, 2)
    found = kept(fresh, 1, None)
    assert found is fresh and type(fresh) is tl.LoDTensor and fresh.lod is lod
    given = torch.zeros(3)
    assert kept(given, 1, given) is given and type(given) is torch.Tensor
    for other in (torch.zeros(2), torch.zeros(()), torch.nn.Parameter(torch.zeros(3)), fresh, 3):
        before = type(other)
        assert kept(other) is None and type(other) is before
    assert ops.kept(given, [], lod, tl.LoDTensor) is None
    for wrong in ((), (given,) * 3, (given, (), None, tl.LoDTensor), (given, (), lod, int)):
        with pytest.raises((TypeError, AttributeError)):
            ops.kept(*wrong)
