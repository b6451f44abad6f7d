# SPDX-License-Identifier: Apache-2.0
"""What today's models add to attention: softcap, sinks, biases by distance, prefixes and blocks."""

import itertools
import math

import pytest
import torch
from attended import KEYS, LENGTHS, batch, by_definition

import torch_lod as tl

F = torch.nn.functional
TABLE = torch.linspace(-1, 1, 4 * 5, dtype=torch.float64).view(4, 5)
SLOPES = torch.tensor([0.0, 0.3, 1.0, 0.1], dtype=torch.float64)
SINK = torch.tensor([-1.0, 0.5, 3.0, -math.inf], dtype=torch.float64)


@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("also", [{}, {"causal": True}, {"window": (2, 1)}, {"window": (1, -1)}])
@pytest.mark.parametrize(
    "options",
    [
        {"softcap": 0.7, "scale": 2.0},
        {"sink": SINK},
        {"distance_bias": TABLE},
        {"prefix": 2},
        {"block_size": 3},
        {"block_level": 1},
        {"softcap": 1.5, "sink": SINK, "distance_bias": TABLE, "prefix": 1, "block_size": 2, "alibi": SLOPES},
    ],
    ids=lambda options: " ".join(options),
)
def test_options_of_todays_models_are_their_definitions(options, also, cross, shared):
    """Empty sequences, two levels, and keys that are fewer or more than the queries."""
    for level, dtype in itertools.product((0, 1), (torch.float64, torch.float32, torch.bfloat16)):
        if level == 1 and "block_level" in options:
            continue
        q = batch(LENGTHS, 4, 5, dtype=dtype)
        k, v = (batch(KEYS if cross else LENGTHS, shared, width, dtype=dtype, seed=width) for width in (5, 3))
        learned = {n: t.to(torch.promote_types(dtype, torch.float32)) for n, t in options.items() if torch.is_tensor(t)}
        leaves = [t.requires_grad_() for t in (q.values(), k.values(), v.values(), *learned.values())]
        q, k, v = (x.with_values(t) for x, t in zip((q, k, v), leaves))
        given = {**options, **learned, **also}
        got = tl.sequence_attention(q, k, v, level=level, enable_gqa=True, **given)
        wide = [x.with_values(x.values().to(torch.promote_types(dtype, torch.float32))) for x in (q, k, v)]
        want = by_definition(*wide, level, **given)
        close = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}[dtype]
        close = {"rtol": close, "atol": close}
        assert got.lod is q.lod and got.dtype == dtype
        torch.testing.assert_close(got.values().to(want.dtype), want, **close)
        weights = torch.linspace(-1, 1, want.numel(), dtype=want.dtype).view(want.shape)
        found = torch.autograd.grad(got.values(), leaves, weights.to(dtype), allow_unused=True)
        expected = torch.autograd.grad(want, leaves, weights, allow_unused=True)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b.nan_to_num(), **close)


@pytest.mark.parametrize(
    "options, seen",
    [
        ({"window": (-1, 1)}, [2, 3, 4, 5, 6, 6]),
        ({"prefix": 4}, [4, 4, 4, 4, 5, 6]),
        ({"prefix": 4, "window": (-1, 1)}, [2, 3, 4, 4, 5, 6]),
        ({"prefix": 4, "window": 0}, [1] * 6),
        ({"block_size": 4, "window": (1, 2)}, [3, 4, 3, 2, 3, 2]),
        ({"block_level": 1, "window": (-1, 1), "causal": True}, [2, 3, 4, 4, 6, 6]),
        ({"prefix": 2, "block_size": 3, "window": (0, -1)}, [3, 2, 1, 3, 2, 1]),
    ],
    ids=str,
)
def test_a_window_holds_for_prefixes_and_blocks(options, seen):
    """Both of its numbers; equal scores, so that a query's weights are 1 / the number of keys that it sees."""
    q = tl.from_lengths(torch.zeros(6, 1, 4), [[2], [4, 2]])
    first = q.with_values(torch.eye(6)[:, None])
    out = tl.sequence_attention(q, q, first, level=0, **options).values()
    assert (out > 0).sum(2).flatten().tolist() == seen
    torch.testing.assert_close(out.amax(2).flatten(), 1 / torch.tensor(seen))


def test_gradients_of_todays_options_twice():
    sink, table = SINK[:2].clone().requires_grad_(), TABLE[:2].clone().requires_grad_()
    rows = [batch([[2, 0, 3]], *shape, seed=i).values().requires_grad_() for i, shape in enumerate(((2, 3), (1, 3)))]

    def call(queries, keys, sink, table):
        q, k = (tl.from_lengths(t, [[2, 0, 3]]) for t in (queries, keys))
        options = {"softcap": 0.9, "sink": sink, "distance_bias": table, "prefix": 2, "enable_gqa": True}
        return tl.sequence_attention(q, k, k, **options).values()

    assert torch.autograd.gradcheck(call, (*rows, sink, table))
    assert torch.autograd.gradgradcheck(call, (*rows, sink, table))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_sees_the_sink_alone_gives_zeros(dtype):
    """So do weights that underflow beside it; the logsumexp is the sink's logit."""
    q = batch([[2, 3]], 2, 4, dtype=dtype)
    none = torch.tensor([[0, 1]])
    k = batch(none.tolist(), 2, 4, dtype=dtype, seed=1)
    sink = torch.tensor([0.5, 1e4], dtype=dtype, requires_grad=True)
    out, total = tl.ops.attention(
        q.values(), k.values(), k.values(), q.row_offsets(), k.row_offsets(), right=0, sink=sink
    )
    assert not out[:4].any() and out[4, 0].any() and not out[4, 1].any()
    assert torch.equal(total[:4], sink.detach().expand(4, 2)) and total[4, 0] > 0.5 and total[4, 1] == 1e4
    (grad,) = torch.autograd.grad(out[:4].sum() + out[4, 1].sum(), sink)
    assert not grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softcap_near_zero_and_far_away(dtype):
    """Scores far below the cap stay as they are, to their last digits; those far above it are the cap."""
    close = {"rtol": 1e-6, "atol": 1e-7} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-13}
    q, k = torch.ones(1, 1, 1, dtype=dtype), torch.tensor([-3e38, -40, -1, -1e-3, 0, 1e-6, 0.02, 0.5, 1, 30, 3e38])
    k, cut = k.to(dtype)[:, None, None], torch.tensor([0, 11])
    for cap in (1e-3, 0.9, 50.0):
        scores = torch.stack(
            [
                tl.ops.attention(q, k[i : i + 1], q, *[torch.tensor([0, 1])] * 2, softcap=cap, scale=1.0)[1]
                for i in range(len(k))
            ]
        )
        want = cap * torch.tanh(k.double() / cap)
        torch.testing.assert_close(scores.double().flatten(), want.flatten(), rtol=4e-7, atol=0)
    out = tl.ops.attention(q, k, k.clamp(-9, 9), torch.tensor([0, 1]), cut, softcap=50.0, scale=1.0)[0]
    want = (k.double() / 50).tanh().mul(50).softmax(0).mul(k.double().clamp(-9, 9)).sum(0)
    torch.testing.assert_close(out[0], want.to(dtype), **close)


def test_one_graph_for_todays_options():
    """Whatever the lengths; prefixes are data."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    sink, table = torch.randn(2), torch.randn(2, 5)
    bias = tl.nn.RelativePositionBias(2)

    @torch.compile(backend=backend, fullgraph=True)
    def attend(x, prefix):
        inner = {"softcap": 2.0, "sink": sink, "block_size": 2}
        mid = tl.sequence_attention(x, x, x, level=0, prefix=prefix, block_level=1, distance_bias=table, **inner)
        return tl.sequence_attention(mid, x, x, distance_bias=bias())

    for lengths in ([[2, 1], [3, 2, 4]], [[1, 2], [5, 2, 2]], [[3, 0], [1, 6, 7]]):
        x = tl.from_lengths(torch.randn(sum(lengths[-1]), 2, 4), lengths)
        prefix = torch.tensor([1, 2])
        inner = {"softcap": 2.0, "sink": sink, "block_size": 2}
        mid = tl.sequence_attention(x, x, x, level=0, prefix=prefix, block_level=1, distance_bias=table, **inner)
        want = tl.sequence_attention(mid, x, x, distance_bias=bias())
        torch.testing.assert_close(attend(x, prefix).values(), want.values())
    assert len(graphs) == 1


def test_a_prefix_is_a_row_per_sequence():
    x = batch([[3, 0, 4]], 2, 4)
    per = torch.tensor([2, 5, 0])
    want = tl.sequence_attention(x, x, x, prefix=per)
    rows = tl.from_lengths(per[:, None], [[1, 1, 1]])
    for prefix in (rows, per.int()):
        assert torch.equal(tl.sequence_attention(x, x, x, prefix=prefix), want)
    whole = tl.sequence_attention(x, x, x)
    assert torch.equal(tl.sequence_attention(x, x, x, prefix=100), whole)
    assert torch.equal(tl.sequence_attention(x, x, x, block_size=100), whole)
    causal = tl.sequence_attention(x, x, x, causal=True)
    assert torch.equal(tl.sequence_attention(x, x, x, prefix=0), causal)
    assert torch.equal(tl.sequence_attention(x, x, x, block_size=1, causal=True), causal)


def t5_bucket(distance, buckets, furthest, bidirectional):
    """Raffel et al.: half of a direction's buckets are exact, the others grow by a factor; one distance at a time."""
    first = 0
    if bidirectional:
        buckets //= 2
        first, distance = (buckets if distance > 0 else 0), abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    grown = torch.log(torch.tensor(float(distance)) / exact) / math.log(furthest / exact) * (buckets - exact)
    return first + min(exact + int(grown), buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (4, 3)])
def test_relative_position_bias_is_t5s(buckets, furthest, bidirectional):
    module = tl.nn.RelativePositionBias(3, buckets, furthest, bidirectional, dtype=torch.float64)
    assert list(module.state_dict()) == ["weight"] and module.weight.shape == (buckets, 3)
    table = module()
    assert table.shape == (3, 2 * furthest + 1)
    lengths = [[2 * furthest, 0, 5]]
    q, k = batch(lengths, 3, 4), batch(lengths, 3, 4, seed=1)
    got = tl.sequence_attention(q, k, k, scale=1.0, distance_bias=table)
    pairs = []
    for n in lengths[0]:
        of = {d: t5_bucket(d, buckets, furthest, bidirectional) for d in range(-n, n)}
        ahead = torch.arange(n) - torch.arange(n)[:, None]
        pairs.append(torch.tensor([of[int(d)] for d in ahead.flatten()], dtype=torch.int64))
    bias = module.weight[torch.cat(pairs)]
    want = tl.sequence_attention(q, k, k, scale=1.0, bias=bias)
    torch.testing.assert_close(got.values(), want.values(), rtol=1e-10, atol=1e-12)
    found, expected = (torch.autograd.grad(out.values().square().sum(), module.weight)[0] for out in (got, want))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_relative_position_bias_moves_between_devices_and_refuses_sizes():
    with torch.device("meta"):
        module = tl.nn.RelativePositionBias(2)
    module = module.to_empty(device="cpu")
    module.reset_parameters()
    twin = tl.nn.RelativePositionBias(2)
    twin.load_state_dict(module.state_dict())
    assert torch.equal(module(), twin())
    for sizes in ((0,), (2, 3), (2, 32, 8), (2, 1, 8, False), (2, 32, 128, 1)):
        with pytest.raises(tl.LoDError, match=r"^RelativePositionBias: expected "):
            tl.nn.RelativePositionBias(*sizes)


def test_modules_hand_todays_options_on():
    module = tl.nn.MultiheadAttention(8, 2, dtype=torch.float64, softcap=0.5, sink=True, block_size=2)
    assert "sink" in module.state_dict() and not module.sink.any()
    torch.nn.init.normal_(module.sink)
    table, x = TABLE[:2], batch(LENGTHS, 8)
    q, k, v = (x.with_values(t).unflatten(1, (2, 4)) for t in module_parts(module, x.values()))
    options = {"softcap": 0.5, "sink": module.sink, "block_size": 2, "distance_bias": table, "prefix": 2}
    want = module.out_proj(tl.sequence_attention(q, k, v, **options).values().flatten(1))
    got, weights = module(x, distance_bias=table, prefix=2, need_weights=True)
    torch.testing.assert_close(got.values(), want)
    torch.testing.assert_close(module(x, distance_bias=table, prefix=2)[0].values(), want)
    assert (tl.sequence_pool(weights, "sum").values() < 1).all()  # the sink has a share
    layer = tl.nn.TransformerEncoderLayer(8, 2, 12, dtype=torch.float64, softcap=0.5, sink=True, block_size=2)
    layer.eval().self_attn.load_state_dict(module.state_dict())
    h = layer.norm1(x + got)
    torch.testing.assert_close(layer(x, distance_bias=table, prefix=2), layer.norm2(h + layer._fed(h)))
    assert "softcap=0.5, block_size=2, sink=True" in repr(layer)


def module_parts(module, rows):
    return F.linear(rows, module.in_proj_weight, module.in_proj_bias).chunk(3, 1)


def test_options_of_a_module_are_checked_when_it_is_made_or_when_they_are_set():
    wrong = {
        "causal": (1, "a bool"),
        "window": (-2, "a number of keys"),
        "softcap": (0.0, "above 0"),
        "block_size": (0, "in"),
    }
    module = tl.nn.MultiheadAttention(8, 2)
    for name, (value, words) in wrong.items():
        with pytest.raises(tl.LoDError, match=f"^MultiheadAttention: expected {name} .*{words}"):
            tl.nn.MultiheadAttention(8, 2, **{name: value})
        with pytest.raises(tl.LoDError, match=f"^expected {name} .*{words}"):
            setattr(module, name, value)
    module.causal, module.window = True, (1, 0)
    assert module.window == (1, 0) and "causal=True, window=(1, 0)" in repr(module)
    x = tl.from_lengths(torch.randn(5, 8), [[3, 2]])
    same = tl.nn.MultiheadAttention(8, 2, causal=True, window=1)
    same.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(x)[0].values(), same(x)[0].values())
