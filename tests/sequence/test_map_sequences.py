# SPDX-License-Identifier: Apache-2.0
"""tl.map_sequences equals a loop over the sequences: functions drawn at random, results of every kind, every layout and level."""

import dataclasses
import random
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl

C = 4
LAYOUTS = {"batch_first": (0, 1), "length_first": (1, 0), "channels": (0, -1)}


class Named(NamedTuple):
    rows: Any
    last: Any


@dataclasses.dataclass
class Output:
    rows: Any
    state: Any


@dataclasses.dataclass
class Weights:
    """What the functions have besides their stacks."""

    square: torch.Tensor
    kernel: torch.Tensor
    table: torch.Tensor
    gru: torch.nn.GRU

    @classmethod
    def drawn(cls):
        new = [torch.randn(C, C), torch.randn(C, C, 3), torch.randn(32, C)]
        return cls(*(t.double().requires_grad_() for t in new), torch.nn.GRU(C, C, batch_first=True).double())

    def leaves(self):
        return [self.square, self.kernel, self.table, *self.gru.parameters()]


# -- functions of (batch, length, C), as people write them; each with what it returns


def attention(w, x):
    scores = (x @ w.square @ x.mT / C**0.5).masked_fill(~torch.ones(x.shape[1], x.shape[1]).tril().bool(), -1e9)
    weights = scores.softmax(-1)
    return weights @ x, weights


def loop_that_writes(w, x):
    out, state = torch.empty_like(x), x.new_zeros(x.shape[0], C)
    for t in range(x.shape[1]):
        state = torch.tanh(x[:, t] @ w.square + state)
        out[:, t] = state
    return [out, state]


def writes_into_its_input(w, x):
    x[:, 0] = 0
    return x * x


def strided(w, x):
    down = F.conv1d(x.mT, w.kernel, stride=2, padding=1)
    return down.repeat_interleave(2, -1)[..., : x.shape[1]].mT, down.amax(-1), down


def of_other_lengths(w, x):
    return {"twice": x.repeat_interleave(2, 1) @ w.square}


def recurrence(w, x):
    return w.gru(x)


def positions(w, x):
    return x.flip(1) + w.table[: x.shape[1]]


def spectrum(w, x):
    return torch.fft.fft(x, dim=1).abs()


def differences(w, x):
    return {"rows": F.pad(x[:, 1:] - x[:, :-1], (0, 0, 1, 0)), "mean": x.mean(1), "scores": x @ x.mT}


def transposed(w, x):
    return (x.cumsum(1) @ w.square).mT


def of_other_dtypes(w, x):
    return Named(x > x.mean(1, keepdim=True), x.argmax(1))


def states(w, x):
    return Output(x.cumsum(1), (x.sum(1)[None, None], x[:, -1]))


POOL = [
    (attention, ("rows", None)),
    (loop_that_writes, ["rows", "sequences"]),
    (writes_into_its_input, "rows"),
    (strided, ("rows", ("sequences", 0), ("resized", "channels"))),
    (of_other_lengths, {"twice": "resized"}),
    (recurrence, ("rows", ("sequences", 1))),
    (positions, "rows"),
    (spectrum, "rows"),
    (differences, {"mean": "sequences", "rows": "rows"}),
    (transposed, ("rows", "channels")),
    (of_other_dtypes, Named("rows", "sequences")),
    (states, Output("rows", (("sequences", 2), ("sequences", -2)))),
]


# -- a loop over the sequences


def is_leaf(spec):
    pair = type(spec) is tuple and len(spec) == 2 and isinstance(spec[0], str)
    return spec is None or isinstance(spec, str) or (pair and (spec[1] in LAYOUTS or type(spec[1]) is int))


def flat(spec, found):
    """The leaves of `results` with what was returned for them."""
    if is_leaf(spec):
        return [] if spec is None else [(spec, found)]
    if dataclasses.is_dataclass(spec):
        spec, found = vars(spec), vars(found)
    keys = spec if isinstance(spec, dict) else range(len(spec))
    return [pair for key in keys for pair in flat(spec[key], found[key])]


def alone(fn, x, others, level, layout, results, fill):
    """The leaves of the results, plain: fn on each sequence by itself."""

    def rows_of(t):
        return t.values() if isinstance(t, tl.LoDTensor) else t

    def stack(rows):
        return rows[None].movedim((0, 1), LAYOUTS[layout])

    inputs = [[stack(rows_of(part)) for part in x.sequences(level)]]
    for other in others:
        whole = isinstance(other, tl.LoDTensor) and other.lod_level > x.lod.level(level)
        inputs.append([stack(rows_of(s)) for s in other.sequences(level)] if whole else rows_of(other).split(1))
    found = [flat(results, fn(*stacks)) for stacks in zip(*inputs) if stacks[0].numel()]
    parts = []
    for i, (spec, first) in enumerate(found[0]):
        mine = [call[i][1] for call in found]
        kind = spec if isinstance(spec, str) else spec[0]
        if kind in ("rows", "resized"):
            dims = LAYOUTS[layout if isinstance(spec, str) else spec[1]]
            parts.append(torch.cat([t.movedim(dims, (0, 1))[0] for t in mine]))
            continue
        dim = 0 if isinstance(spec, str) else spec[1]
        each, taken = [], iter(mine)
        for stacks in inputs[0]:
            each.append(next(taken) if stacks.numel() else torch.full_like(first, fill))
        parts.append(torch.cat(each, dim))
    return parts


def draw_lod(rng, depth):
    """Levels of few sequences, some empty; at least one row."""
    while True:
        levels, count = [], rng.randint(1, 3)
        for _ in range(depth):
            levels.append([rng.choice([0, 1, 2, 3]) for _ in range(count)])
            count = sum(levels[-1])
        if 0 < count < 32:
            return tl.LoD.from_lengths(levels)


def in_layout(fn, layout, results):
    """A function of (batch, length, C) in another layout, results as well."""
    if layout == "batch_first":
        return fn
    dims = LAYOUTS[layout]

    def back(spec, found):
        if spec in ("rows", "resized"):
            return found.movedim((0, 1), dims)
        if is_leaf(spec):
            return found
        if dataclasses.is_dataclass(spec):
            return type(spec)(**{k: back(v, getattr(found, k)) for k, v in vars(spec).items()})
        if isinstance(spec, dict):
            return {key: back(spec.get(key), t) for key, t in found.items()}
        parts = [back(s, t) for s, t in zip(spec, found)]
        return type(spec)(*parts) if isinstance(spec, Named) else type(spec)(parts)

    return lambda x: back(results, fn(x.movedim(dims, (0, 1))))


def plain(t):
    return t.values() if isinstance(t, tl.LoDTensor) else t


def gradients(found, leaves):
    total = sum(t.sin().sum() for t in found if t.requires_grad)
    if not isinstance(total, torch.Tensor):
        return [None] * len(leaves)
    return torch.autograd.grad(total, leaves, allow_unused=True)


@pytest.mark.parametrize("seed", range(6 * len(POOL)))
def test_equals_a_loop_over_sequences(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    function, results = POOL[seed % len(POOL)]
    depth, layout, fill = rng.randint(1, 3), rng.choice(list(LAYOUTS)), rng.choice([0, 1])
    level = rng.randrange(-depth, depth)
    lod, w = draw_lod(rng, depth), Weights.drawn()
    values = torch.randn(lod.rows, C, dtype=torch.float64, requires_grad=True)
    x = tl.LoDTensor(values, lod)
    shapes = []

    def counted(stack):
        assert type(stack) is torch.Tensor and stack.is_contiguous()
        shapes.append(tuple(stack.shape))
        return fn(stack)

    fn = in_layout(lambda t: function(w, t), layout, results)
    found = tl.map_sequences(counted, x, level=level, layout=layout, results=results, fill=fill)
    want = alone(lambda t: fn(t.clone()), x, (), level, layout, results, fill)
    k = lod.level(level)
    lengths = sorted(set(lod.row_lengths(level).tolist()) - {0})
    assert [shape[LAYOUTS[layout][1]] for shape in shapes] == lengths
    assert type(found) is (tl.LoDTensor if is_leaf(results) else type(results))
    leaves = flat(results, found)
    assert len(leaves) == len(want)
    for (spec, t), expected in zip(leaves, want, strict=True):
        own = t.lod if isinstance(t, tl.LoDTensor) else None
        if spec in ("rows", ("rows", "channels")):
            assert own is lod
        elif "resized" in spec:
            rows = lod.row_lengths(level)
            assert own.levels[:k] == lod.levels[:k] and own.depth == k + 1
            assert own.lengths().tolist() == (2 * rows if spec == "resized" else (rows + 1) // 2).tolist()
        else:
            at_dim_0 = spec == "sequences" or spec[1] % t.dim() == 0
            assert own == (lod.outer(k) if at_dim_0 and k else None)
            assert t.is_contiguous()
        torch.testing.assert_close(plain(t), expected)
    given = [values, *w.leaves()]
    own = gradients([plain(t) for _, t in leaves], given)
    for g, e in zip(own, gradients(want, given), strict=True):
        assert (g is None) == (e is None)
        if g is not None:
            torch.testing.assert_close(g, e)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_others_go_with_the_sequences_of_x(layout, seed):
    """Of other lengths, with empty ones; a row for each sequence, plain or with the levels above."""
    rng = random.Random(seed)
    lengths = [3, 1, 0, 3, 1, 3, 2], [2, 0, 4, 2, 2, 5, 0]
    x, y = (
        tl.from_lengths(torch.randn(sum(n), C, dtype=torch.float64, requires_grad=True), [[4, 0, 3], n])
        for n in lengths
    )
    rng.shuffle(order := list(range(7)))
    bias = torch.randn(7, C, dtype=torch.float64, requires_grad=True)
    scale = tl.LoDTensor(bias.detach()[order] * 2, x.lod.outer(1))
    calls = []

    def cross(q, memory, bias, scale, power=1):
        calls.append((q.shape, memory.shape))
        q, memory = (t.movedim(LAYOUTS[layout], (0, 1)) for t in (q, memory))
        out = (q @ memory.mT).softmax(-1) @ memory * scale[:, None] ** power + bias[:, None]
        return out.movedim((0, 1), LAYOUTS[layout])

    found = tl.map_sequences(cross, x, y, bias, scale, layout=layout, power=2)
    assert found.lod is x.lod and len(calls) == 5 == len({pair for pair in zip(*lengths) if pair[0]}), calls
    (want,) = alone(lambda *given: cross(*given, power=2), x, (y, bias, scale), -1, layout, "rows", 0)
    torch.testing.assert_close(found.values(), want)
    for g, e in zip(gradients([found.values()], [x, y, bias]), gradients([want], [x, y, bias]), strict=True):
        torch.testing.assert_close(plain(g), plain(e))


def test_others_at_an_outer_level():
    """A sequence of an outer level is all rows under it, of every input; inner levels may differ."""
    x = tl.from_lengths(torch.randn(6, 2), [[2, 1], [1, 2, 3]])
    y = tl.from_lengths(torch.randn(4, 2), [[3, 1]])
    found = tl.map_sequences(lambda a, b: a.sum(1) - b.sum(1), x, y, level=0, results="sequences")
    torch.testing.assert_close(
        found, torch.stack([x.values()[:3].sum(0), x.values()[3:].sum(0)]) - tl.sequence_pool(y, "sum")
    )


# -- padding to buckets


def masked_attention(x, mask):
    scores = (x @ x.mT).masked_fill(~mask[:, None], -1e9)
    return scores.softmax(-1) @ x, (x * mask[..., None]).sum(1) / mask.sum(1)[:, None]


@pytest.mark.parametrize("buckets, calls", [([8, 4], 3), ((4,), 4), ([100], 1), ([1, 2, 3, 5, 6, 9], 6)])
def test_pads_to_the_next_length(buckets, calls):
    x = tl.from_lengths(torch.randn(26, C, dtype=torch.float64, requires_grad=True), [[3, 0, 1, 9, 5, 6, 2]])
    shapes = []

    def counted(stack, mask):
        shapes.append(stack.shape)
        assert mask.shape == stack.shape[:2] and mask.dtype == torch.bool and not stack[~mask].any()
        return masked_attention(stack, mask)

    results = "rows", "sequences"
    found = tl.map_sequences(counted, x, pad_to=buckets, results=results, fill=-1)
    want = tl.map_sequences(lambda t: masked_attention(t, torch.ones(t.shape[:2]).bool()), x, results=results, fill=-1)
    assert len(shapes) == calls and {s[1] for s in shapes} <= {*buckets, 9, 5, 6}
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(*(plain(gradients(map(plain, t), [x])[0]) for t in (found, want)))


def test_masks_of_several_inputs_are_a_tuple():
    x, y = (tl.from_lengths(torch.randn(sum(n), C), [n]) for n in ([3, 1, 0, 2], [1, 5, 2, 0]))
    seen = set()

    def cross(q, memory, mask):
        rows, keys = mask
        assert rows.sum(1).tolist() in ([3], [1], [2]) and keys.shape == memory.shape[:2]
        seen.add((q.shape[1], memory.shape[1]))
        return (q @ memory.mT).masked_fill(~keys[:, None], -1e9).softmax(-1) @ memory

    found = tl.map_sequences(cross, x, y, pad_to=[4])
    assert seen == {(4, 4), (4, 5), (4, 0)}
    torch.testing.assert_close(found, tl.map_sequences(lambda q, m: (q @ m.mT).softmax(-1) @ m, x, y))


# -- around the calls


def test_gradcheck():
    lod = tl.LoD.from_lengths([[2, 1], [2, 0, 3]])
    results = "rows", ("sequences", 1)

    def run(values, weight):
        found = tl.map_sequences(
            lambda t: (t.flip(1) @ weight, t.prod(1)[None]), tl.LoDTensor(values, lod), results=results
        )
        return tuple(map(plain, found))

    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 2), (2, 2))]
    assert torch.autograd.gradcheck(run, given) and torch.autograd.gradgradcheck(run, given)


def test_a_module_unedited_with_its_state():
    x = tl.from_lengths(torch.randn(8, C), [[3, 0, 2, 3]])
    lstm = torch.nn.LSTM(C, 3, 2, bidirectional=True)
    mapped = tl.nn.MapSequences(lstm, layout="length_first", results=("rows", (("sequences", 1),) * 2), fill=7)
    assert list(mapped.state_dict()) == [f"module.{name}" for name in lstm.state_dict()]
    out, (h, c) = mapped(x)
    want, (h_n, c_n) = lstm(x)
    torch.testing.assert_close(out, want)
    used = [0, 2, 3]
    torch.testing.assert_close((h[:, used], c[:, used]), (h_n[:, used], c_n[:, used]))
    assert (h[:, 1] == 7).all() and (c[:, 1] == 7).all() and h.is_contiguous()
    other = tl.nn.MapSequences(
        torch.nn.LSTM(C, 3, 2, bidirectional=True), layout="length_first", results=("rows", None)
    )
    other.load_state_dict(mapped.state_dict())
    assert torch.equal(other.module.weight_hh_l1, lstm.weight_hh_l1)
    assert repr(mapped).startswith(
        "MapSequences(\n  level=-1, layout='length_first', results=('rows', (('sequences', 1),"
    )


def test_hooks_run_once_for_each_length_shortest_first():
    x, seen = tl.from_lengths(torch.randn(9, C), [[3, 2, 1, 3, 0]]), []
    layer = torch.nn.Linear(C, C)
    layer.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape[:2])))
    tl.nn.MapSequences(layer)(x)
    assert seen == [(1, 1), (1, 2), (2, 3)]


def test_modes_of_a_module():
    """A batch norm in training takes the statistics of each stack, in eval those of its state."""
    x = tl.from_lengths(torch.randn(10, C), [[3, 2, 3, 2]])
    mapped = tl.nn.MapSequences(torch.nn.Sequential(torch.nn.BatchNorm1d(C), torch.nn.Dropout(0.5)), layout="channels")
    mapped.train()(x)
    assert int(mapped.module[0].num_batches_tracked) == 2
    norm = mapped.eval().module[0]
    torch.testing.assert_close(mapped(x).values(), norm(x.values()))


def test_autocast():
    x = tl.from_lengths(torch.randn(7, C), [[3, 0, 4]])
    mapped = tl.nn.MapSequences(torch.nn.Linear(C, C))
    with torch.autocast("cpu", torch.bfloat16):
        found = mapped(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), mapped(x), rtol=0.05, atol=0.05)


def test_a_compiled_function():
    x = tl.from_lengths(torch.randn(14, C, requires_grad=True), [[3, 0, 4, 2, 5]])
    layer = torch.nn.GRU(C, C, batch_first=True)

    def fn(t):
        return layer(t)[0].flip(1) + t

    compiled = torch.compile(fn, backend="aot_eager", dynamic=True)
    found, want = tl.map_sequences(compiled, x), tl.map_sequences(fn, x)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(*(gradients([t.values()], [x])[0] for t in (found, want)))


def test_stacks_are_copies():
    """What fn writes into a stack reaches neither x nor what an earlier call keeps for its gradient."""
    values = torch.randn(5, C, requires_grad=True)
    x = tl.from_lengths(values.detach().clone(), [[2, 3]])
    before = x.values().clone()
    tl.map_sequences(lambda t: t.zero_(), x)
    assert torch.equal(x.values(), before)
    tl.map_sequences(lambda t: t.mul_(2).square(), tl.from_lengths(values, [[2, 3]])).sum().backward()
    torch.testing.assert_close(values.grad, 8 * values.detach())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex128, torch.float16], ids=str)
def test_rows_of_any_dtype(dtype):
    values = torch.tensor([3, 0, 1, 1, 0, 2]).to(dtype)
    x = tl.from_lengths(values, [[1, 3, 0, 2]])
    found, last = tl.map_sequences(lambda t: (t.flip(1), t[:, -1]), x, results=("rows", "sequences"), fill=1)
    assert torch.equal(found.values(), tl.sequence_reverse(x).values()) and found.dtype == dtype
    assert torch.equal(last, torch.tensor([3, 1, 1, 2]).to(dtype))


def test_without_rows_fn_is_called_once_to_learn_the_shapes():
    shapes = []

    def fn(t, y):
        shapes.append((t.shape, y.shape))
        return t.new_zeros(*t.shape[:2], 5), t.sum(1)

    for lengths in ([[2, 0], [0, 0]], [[], []]):
        x = tl.from_lengths(torch.zeros(0, C, requires_grad=True), lengths)
        rows, each = tl.map_sequences(fn, x, x, results=("rows", "sequences"), fill=3)
        assert rows.shape == (0, 5) and rows.lod is x.lod
        assert each.values().shape == (sum(lengths[0]), C) and (each == 3).all() and each.lod == x.lod.outer(1)
    assert shapes == [((0, 1, C), (0, 1, C))] * 2
