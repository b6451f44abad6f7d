# SPDX-License-Identifier: Apache-2.0
"""Attention equals torch's, sequence by sequence; so do the modules around it. A sequence's result is its own, bit for bit."""

import itertools
import math
import subprocess
import sys

import pytest
import torch
from attended import KEYS, LENGTHS, batch, by_definition, visible

import torch_lod as tl

F = torch.nn.functional


def by_torch(q, k, v, level, causal=False, window=None, bias=None, scale=None, alibi=None, **todays):
    """F.scaled_dot_product_attention of every sequence, with a dense mask; (rows, heads, width) each."""
    if todays:
        return by_definition(q, k, v, level, causal, window, scale, alibi, **todays)
    out, first = [], 0
    for rows, keys, values in zip(*(t.sequences(level) for t in (q, k, v))):
        rows, keys, values = (t.values() if isinstance(t, tl.LoDTensor) else t for t in (rows, keys, values))
        m, n, heads = len(rows), len(keys), rows.shape[1]
        added = torch.where(visible(m, n, causal, window), 0.0, -math.inf).to(q.dtype).expand(heads, m, n)
        if bias is not None:
            added = added + bias[first : first + m * n].view(m, n, bias.shape[1]).permute(2, 0, 1)
        if alibi is not None:
            distance = (torch.arange(n) - torch.arange(m)[:, None] - (n - m)).abs()
            added = added - alibi[:, None, None] * distance
        first += m * n
        rows, keys, values = (t.transpose(0, 1) for t in (rows, keys, values))
        found = F.scaled_dot_product_attention(
            rows[None], keys[None], values[None], added[None], scale=scale, enable_gqa=True
        )
        none = (added == -math.inf).all(2)[..., None]
        out.append(torch.where(none, 0, found[0]).transpose(0, 1))
    return torch.cat(out)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("window", [None, (2, 1), (0, 0), (4, 0)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "shared", "biased", "sloped", "scale"),
    [(2, 2, 0, False, None), (4, 2, 4, True, 0.3), (3, 1, 1, False, None), (1, 1, 0, True, -1.0)],
)
def test_equals_torchs_of_every_sequence(heads, shared, biased, sloped, scale, causal, window, cross):
    for level, dtype in itertools.product((0, 1), (torch.float64, torch.float32)):
        q = batch(LENGTHS, heads, 5, dtype=dtype)
        k, v = (batch(KEYS if cross else LENGTHS, shared, width, dtype=dtype, seed=width) for width in (5, 3))
        pairs = int((q.lod.row_lengths(level) * k.lod.row_lengths(level)).sum())
        g = torch.Generator().manual_seed(3)
        bias = torch.randn(pairs, biased, generator=g, dtype=dtype) if biased else None
        alibi = torch.rand(heads, generator=g, dtype=dtype) if sloped else None
        leaves = [t.requires_grad_() for t in (q.values(), k.values(), v.values(), bias, alibi) if t is not None]
        q, k, v = (x.with_values(t) for x, t in zip((q, k, v), leaves))
        got = tl.sequence_attention(
            q, k, v, level=level, causal=causal, window=window, bias=bias, scale=scale, enable_gqa=True, alibi=alibi
        )
        want = by_torch(q, k, v, level, causal, window, bias, scale, alibi)
        close = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
        assert got.lod is q.lod
        torch.testing.assert_close(got.values(), want, **close)
        weights = torch.linspace(-1, 1, want.numel(), dtype=dtype).view(want.shape)
        found = torch.autograd.grad(got.values(), leaves, weights, allow_unused=True)
        expected = torch.autograd.grad(want, leaves, weights, allow_unused=True)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b.nan_to_num(), **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"window": (40, 2), "alibi": True},
        {"softcap": 2.0, "sink": torch.linspace(-1, 1, 4), "block_size": 16},
        {"distance_bias": torch.linspace(-1, 1, 4 * 41).view(4, 41), "prefix": 37},
    ],
)
def test_a_sequence_is_bitwise_independent_of_the_others(dtype, options):
    """Also of the number of threads; forwards and backwards."""
    lengths = [5, 0, 300, 1, 33, 128, 64, 2]
    rows = [torch.randn(sum(lengths), 4, 20, dtype=dtype) for _ in range(4)]

    def results(parts, lengths):
        leaves = [t.clone().requires_grad_() for t in parts[:3]]
        out = tl.sequence_attention(*(tl.from_lengths(t, [lengths]) for t in leaves), **options).values()
        return (out, *torch.autograd.grad(out, leaves, parts[3]))

    threads = torch.get_num_threads()
    runs = []
    for n in (1, 2):
        torch.set_num_threads(n)
        runs.append(results(rows, lengths))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*runs))
    first = 0
    for n in lengths:
        alone = results([t[first : first + n] for t in rows], [n])
        for a, b in zip(alone, runs[0]):
            if tl.ops.COMPILED:
                assert torch.equal(a, b[first : first + n]), f"the sequence of {n} rows"
            else:
                torch.testing.assert_close(a, b[first : first + n])
        first += n


@pytest.mark.parametrize("width", [16, 20])
@pytest.mark.parametrize(
    ("shared", "biased", "options"),
    [
        (6, 0, {}),
        (2, 6, {"alibi": torch.linspace(0.1, 1, 6)}),
        (1, 1, {"causal": True}),
        (3, 0, {"window": (140, 0), "scale": 0.5}),
        (2, 0, {"softcap": 1.5, "sink": torch.linspace(-1, 2, 6), "causal": True}),
        (6, 0, {"distance_bias": torch.linspace(-1, 1, 6 * 201).view(6, 201), "prefix": 290}),
    ],
)
def test_few_queries_are_torchs_and_those_of_longer_batches(shared, biased, options, width):
    """Decoding: many keys, of which few queries read those of all heads where they lie."""
    lengths, keys = [1, 4, 0, 2, 3], [300, 129, 4, 0, 7]
    rows = [
        torch.randn(sum(n), heads, w)
        for n, heads, w in zip((lengths, keys, keys), (6, shared, shared), (width, width, 32))
    ]
    bias = torch.randn(sum(m * n for m, n in zip(lengths, keys)), biased) if biased else None

    def attended(parts, lengths, keys, bias):
        q, k, v = (tl.from_lengths(t, [n]) for t, n in zip(parts, (lengths, keys, keys)))
        return q, k, v, tl.sequence_attention(q, k, v, enable_gqa=True, bias=bias, **options).values()

    q, k, v, got = attended(rows, lengths, keys, bias)
    torch.testing.assert_close(got, by_torch(q, k, v, 0, bias=bias, **options), rtol=1e-5, atol=1e-5)
    longer = [torch.cat([t, torch.randn(9, *t.shape[1:])]) for t in rows]
    others = torch.cat([bias, torch.randn(81, biased)]) if biased else None
    threads = torch.get_num_threads()
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        alike = attended(rows, lengths, keys, bias)[-1], attended(longer, [*lengths, 9], [*keys, 9], others)[-1][:10]
        if tl.ops.COMPILED:
            assert all(torch.equal(t, got) for t in alike), n
    torch.set_num_threads(threads)


@pytest.mark.parametrize("queries", [1, 2, 4, 5, 257])
def test_the_weight_of_the_only_key_is_one_backwards_too(queries, device):
    """Whatever the scores: in another order of summation they would differ by more than 1."""
    g = torch.Generator().manual_seed(queries)
    q, k = (1e6 * torch.randn(queries, 2, 64, generator=g)).to(device), torch.randn(1, 2, 64, generator=g).to(device)
    v = torch.ones(1, 2, 8, device=device, requires_grad=True)
    out = tl.sequence_attention(*(tl.from_lengths(t, [[len(t)]]) for t in (q, k, v)))
    (slope,) = torch.autograd.grad(out.values().sum(), v)
    torch.testing.assert_close(slope, torch.full_like(v, queries), rtol=1e-6, atol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_large_self_attention_is_torchs_on_every_sequence(scale, causal, device):
    """Of so much work that a GPU leaves float32 to torch's kernels; widths of keys and values differ."""
    lengths = [[700, 1, 0, 257, 64]]
    wide = [batch(lengths, 8, width, seed=seed) for seed, width in enumerate((16, 16, 24))]
    q, k, v = (t.float().to(device).requires_grad_() for t in wide)
    g = torch.randn(sum(lengths[0]), 8, 24, dtype=torch.float64)
    out = tl.sequence_attention(q, k, v, causal=causal, scale=scale)
    got = torch.autograd.grad(out.values(), (q, k, v), g.float().to(device))
    exact = [t.requires_grad_() for t in wide]
    want = by_torch(*exact, -1, causal, scale=scale)
    torch.testing.assert_close(out.values().cpu().double(), want, rtol=1e-4, atol=1e-5)
    for a, b in zip(got, torch.autograd.grad(want, exact, g)):
        a, b = (t.values() if isinstance(t, tl.LoDTensor) else t for t in (a, b))
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-4)


def test_a_query_without_keys_gives_zeros_and_no_gradient():
    q, k = batch([[2, 3]], 2, 4), batch([[0, 1]], 2, 4, seed=1)
    leaf = q.values().clone().requires_grad_()
    out = tl.sequence_attention(q.with_values(leaf), k, k, causal=True).values()
    assert not out[:4].any() and torch.equal(out[4], k.values()[0])
    (grad,) = torch.autograd.grad(out.square().sum(), leaf)
    assert not grad[:4].any() and grad.isfinite().all()
    out, total = tl.ops.attention(q.values(), k.values(), k.values(), q.row_offsets(), k.row_offsets(), right=0)
    assert (total[:4] == -math.inf).all() and total[4].isfinite().all()


def test_the_last_queries_of_a_causal_sequence_need_all_keys_and_no_other_queries():
    """Decoding with a cache."""
    q, k, v = (batch([[6, 3]], 2, 4, seed=s) for s in range(3))
    together = tl.sequence_attention(q, k, v, causal=True, alibi=True)
    for last in (1, 2, 3):
        tail = q.tail(last)
        out = tl.sequence_attention(tail, k, v, causal=True, alibi=True)
        torch.testing.assert_close(out.values(), together.tail(last).values())


def test_a_bias_of_booleans_says_where_to_look():
    q, k = batch([[3, 2]], 2, 4), batch([[2, 4]], 2, 4, seed=1)
    where = torch.tensor([True, False] * 3 + [False] * 4 + [True, True, False, True])
    got = tl.sequence_attention(q, k, k, bias=where).values()
    parts = []
    for rows, keys, seen in zip(q.sequences(), k.sequences(), (where[:6].view(3, 2), where[6:].view(2, 4))):
        rows, keys = rows.transpose(0, 1), keys.transpose(0, 1)
        parts.append(F.scaled_dot_product_attention(rows, keys, keys, seen).transpose(0, 1))
    torch.testing.assert_close(got, torch.cat(parts).nan_to_num())
    assert not got[3].any()


def test_slopes_are_those_of_the_source():
    """Press et al.: 2^(-8 i / n) for n heads, n a power of two; else those of the power below, and every other of the one
    above."""
    from torch_lod.sequence.attend import _slopes_of

    eight = [2.0**-i for i in range(1, 9)]
    assert _slopes_of(True, torch.zeros(1, 8, 1)).tolist() == eight
    twelve = _slopes_of(True, torch.zeros(1, 12, 1))
    assert twelve[:8].tolist() == eight
    torch.testing.assert_close(twelve[8:], torch.tensor([2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_sets_a_part_of_the_weights_to_zero_and_raises_the_rest(dtype):
    lengths = [60, 0, 200, 40]
    q = batch([lengths], 3, 4, dtype=dtype)
    offsets, values, seed = q.row_offsets(), q.values(), torch.tensor(11)

    def weights(**options):
        """Values that tell keys apart: the weights of one sequence at a time, (rows, heads, keys)."""
        parts = []
        for rows, n in zip(values.split(lengths), lengths):
            cut = torch.tensor([0, n])
            one = torch.eye(n, dtype=dtype)[:, None].expand(n, 3, n) if n else rows.new_zeros(0, 3, 1)
            parts.append(tl.ops.attention(rows, rows, one, cut, cut, **options)[0])
        return parts[2]

    whole, dropped = weights(), weights(seed=seed, dropout=0.25)
    kept = dropped != 0
    assert abs(kept.double().mean() - 0.75) < 0.005
    assert (kept.double().mean((0, 1)) - 0.75).abs().max() < 0.1 and (
        kept.double().mean((1, 2)) - 0.75
    ).abs().max() < 0.1
    torch.testing.assert_close(dropped[kept], whole[kept] / 0.75)
    assert torch.equal(weights(seed=seed, dropout=0.25), dropped)
    other = weights(seed=seed + 1, dropout=0.25) != 0
    assert abs((other & kept).double().mean() - 0.75**2) < 0.01
    assert not weights(seed=seed, dropout=1.0).any()
    assert torch.equal(weights(seed=seed, dropout=0.0), whole)
    out, _ = tl.ops.attention(values, values, values, offsets, offsets, seed=seed, dropout=0.25)
    first, _ = tl.ops.attention(*[values[:60]] * 3, *[torch.tensor([0, 60])] * 2, seed=seed, dropout=0.25)
    assert torch.equal(out[:60], first)


def test_memory_is_linear_in_rows():
    """The scores of one sequence of 12,000 rows would take 1.1 GB, forwards and backwards more: plain, and with the options
    of today's models."""
    code = (
        "import resource, torch, torch_lod as tl\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "def run(n):\n"
        "    x = torch.randn(n, 2, 8, requires_grad=True)\n"
        "    cut = torch.tensor([0, n])\n"
        "    sink, table = torch.zeros(2, requires_grad=True), torch.zeros(2, 9, requires_grad=True)\n"
        "    todays = {'softcap': 2.0, 'sink': sink, 'distance_bias': table, 'key_ends': torch.arange(n)}\n"
        "    for options in ({}, todays):\n"
        "        tl.ops.attention(x, x, x, cut, cut, **options)[0].sum().backward()\n"
        "run(1000)\n"
        "before = used()\n"
        "run(12000)\n"
        "print(used() - before)\n"
    )
    if not tl.ops.COMPILED:
        code = "print(0)"  # the composition lays the scores of a sequence out
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100_000  # kilobytes


def test_parts_of_wider_rows_are_read_where_they_lie():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        joint = torch.randn(9, 3 * 8, dtype=dtype)
        parts = [t.unflatten(1, (2, 4)) for t in joint.chunk(3, 1)]
        cut = torch.tensor([0, 2, 9])
        got, want = (tl.ops.attention(*p, cut, cut)[0] for p in (parts, [t.contiguous() for t in parts]))
        assert torch.equal(got, want)


def test_products_of_turned_rows_depend_on_distance():
    q, k = torch.randn(1, 8, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)
    for interleaved in (True, False):
        turned = [
            tl.rotary_embedding(tl.from_lengths(t.expand(9, 8), [[5, 4]]), interleaved=interleaved) for t in (q, k)
        ]
        scores = turned[0].values() @ turned[1].values().t()
        for i, j in ((3, 1), (4, 2), (7, 5), (8, 6)):
            torch.testing.assert_close(scores[i, j], scores[2, 0])
        torch.testing.assert_close(turned[0].values()[5], q[0])
        later = tl.rotary_embedding(tl.from_lengths(q, [[1]]), interleaved=interleaved, start=torch.tensor([3]))
        torch.testing.assert_close(later.values()[0], turned[0].values()[3])


# -- modules


def sequences(x):
    return [t.values() if isinstance(t, tl.LoDTensor) else t for t in x.sequences(x.lod_level - 1)]


def gradients(out, parameters):
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    found = torch.autograd.grad(out, parameters, weights, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found)]


CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize(
    ("options", "cross"),
    [({}, False), ({"bias": False}, True), ({"kdim": 5, "vdim": 7}, True), ({"batch_first": True}, False)],
)
def test_multihead_attention_is_torchs_on_every_sequence(options, cross, average):
    torch.manual_seed(1)
    ours = tl.nn.MultiheadAttention(8, 2, dtype=torch.float64, **options)
    torch.manual_seed(1)
    theirs = torch.nn.MultiheadAttention(8, 2, dtype=torch.float64, **{**options, "batch_first": False})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))
    ours.load_state_dict(theirs.state_dict())
    query = batch(LENGTHS, 8)
    key = batch(KEYS, ours.kdim, seed=1) if cross else query
    value = batch(KEYS, ours.vdim, seed=2) if cross else query
    got, weights = ours(query, key, value, need_weights=True, average_attn_weights=average)
    without, none = ours(query, key, value)
    assert none is None and got.lod is query.lod
    torch.testing.assert_close(without, got, **CLOSE)
    assert weights.lod.to_lengths()[:-1] == LENGTHS and weights.lod_level == 3
    rows, dense = [], []
    for q, k, v in zip(*map(sequences, (query, key, value))):
        if len(q) and len(k):
            o, w = theirs(q[:, None], k[:, None], v[:, None], average_attn_weights=average)
            rows.append(o[:, 0])
            dense.append((w[0] if average else w[0].permute(1, 2, 0)).flatten(0, 1))
        else:  # without keys nothing is left but the output's bias
            zeros = theirs.out_proj(q.new_zeros(len(q), 8))
            rows.append(zeros)
    torch.testing.assert_close(got.values(), torch.cat(rows), **CLOSE)
    torch.testing.assert_close(weights.values(), torch.cat(dense), **CLOSE)
    pairs = zip(
        gradients(without.values(), list(ours.parameters())), gradients(torch.cat(rows), list(theirs.parameters()))
    )
    for a, b in pairs:
        torch.testing.assert_close(a, b, **CLOSE)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu"}, {"bias": False}])
def test_encoder_layers_are_torchs_on_every_sequence(options, level, causal):
    torch.manual_seed(1)
    ours = tl.nn.TransformerEncoderLayer(8, 2, 12, dtype=torch.float64, level=level, **options)
    torch.manual_seed(1)
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 12, dtype=torch.float64, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))
    stacked = torch.nn.TransformerEncoder(ours, 2, enable_nested_tensor=False).eval()
    reference = torch.nn.TransformerEncoder(theirs, 2, enable_nested_tensor=False).eval()
    reference.load_state_dict(stacked.state_dict())
    x = batch(LENGTHS, 8)
    got = stacked(x, is_causal=causal)
    assert got.lod == x.lod
    rows = []
    for s in x.sequences(level):
        s = s.values() if isinstance(s, tl.LoDTensor) else s
        mask = torch.nn.Transformer.generate_square_subsequent_mask(len(s), dtype=s.dtype) if causal else None
        rows.append(reference(s[:, None], mask, is_causal=causal)[:, 0] if len(s) else s)
    torch.testing.assert_close(got.values(), torch.cat(rows), **CLOSE)
    pairs = zip(gradients(got.values(), [*stacked.parameters()]), gradients(torch.cat(rows), [*reference.parameters()]))
    for a, b in pairs:
        torch.testing.assert_close(a, b, **CLOSE)


def test_modules_drop_weights_in_training_only():
    module = tl.nn.MultiheadAttention(8, 2, dropout=0.5)
    x = batch([[40, 3]], 8, dtype=torch.float32)
    torch.manual_seed(3)
    first, other = module(x)[0], module(x)[0]
    torch.manual_seed(3)
    assert torch.equal(module(x)[0], first) and not torch.equal(first, other)
    torch.manual_seed(3)
    again, weights = module(x, need_weights=True)
    torch.testing.assert_close(again, first)
    assert abs(module(x, need_weights=True, average_attn_weights=False)[1].eq(0).float().mean() - 0.5) < 0.05
    assert weights.lod.lengths().tolist() == [40] * 40 + [3] * 3
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])


def test_gradients_reach_every_parameter():
    layer = tl.nn.TransformerEncoderLayer(4, 2, 6, activation="gelu", dtype=torch.float64, causal=True, alibi=True)
    names = [n for n, _ in layer.named_parameters()]
    rows = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)

    def call(rows, *parameters):
        torch.manual_seed(0)
        x = tl.from_lengths(rows, [[3, 0, 2]])
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (x,)).values()

    assert torch.autograd.gradcheck(call, (rows, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_attends_in_the_half_type(dtype):
    module = tl.nn.MultiheadAttention(16, 4)
    x = batch(LENGTHS, 16, dtype=torch.float32)
    expected = module(x)[0]
    with torch.autocast("cpu", dtype):
        got = module(x)[0]
        heads = x.unflatten(1, (4, 4))
        assert tl.sequence_attention(heads, heads, heads).dtype == dtype
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), expected, rtol=5e-2, atol=5e-2)
    got.float().values().sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_encoder_compiles_whole(backend):
    torch._dynamo.reset()
    layer = tl.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, causal=True, alibi=True)
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    for lengths in ([[3, 0, 4]], [[2, 5, 1]], [[1, 6, 2]]):
        x = batch(lengths, 8, dtype=torch.float32)
        got, expected = compiled(x), layer(x)  # what the LoD keeps is made while tracing
        torch.testing.assert_close(got, expected)
        for a, b in zip(
            gradients(got.values(), [*layer.parameters()]), gradients(expected.values(), [*layer.parameters()])
        ):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda x: tl.nn.MultiheadAttention(8, 3),
            "MultiheadAttention: expected num_heads that divide embed_dim 8, got 3",
        ),
        (lambda x: tl.nn.MultiheadAttention(0, 1), "expected embed_dim as an int of at least 1, got 0"),
        (lambda x: tl.nn.MultiheadAttention(8, 2, dropout=1.5), "expected dropout in [0, 1], got 1.5"),
        (lambda x: tl.nn.MultiheadAttention(8, 2, add_zero_attn=True), "neither add_bias_kv nor add_zero_attn"),
        (lambda x: tl.nn.MultiheadAttention(8, 2)(x.values()), "expected query as a LoDTensor, got Tensor"),
        (lambda x: tl.nn.MultiheadAttention(4, 2)(x), "expected query of shape (rows, 4), got (5, 8)"),
        (lambda x: tl.nn.MultiheadAttention(8, 2)(x, x, x, torch.zeros(1)), "no key_padding_mask with LoDTensors"),
        (
            lambda x: tl.nn.MultiheadAttention(8, 2)(x, x, x, attn_mask=torch.zeros(1)),
            "use causal, window, alibi, or bias",
        ),
        (lambda x: tl.nn.MultiheadAttention(8, 2, level="a")(x), "expected level in [-1, 0]"),
        (
            lambda x: tl.nn.MultiheadAttention(8, 2)(x, batch([[5]], 8, dtype=torch.float32)),
            "as many sequences of keys as of queries",
        ),
        (
            lambda x: tl.nn.MultiheadAttention(8, 2)(x, x, batch([[5]], 8, dtype=torch.float32)),
            "value with the LoD of key",
        ),
        (
            lambda x: tl.nn.TransformerEncoderLayer(8, 2, activation="elu"),
            "expected activation 'relu', 'gelu' or a function",
        ),
        (lambda x: tl.nn.TransformerEncoderLayer(8, 2)(x, torch.zeros(1)), "no src_mask with LoDTensors"),
    ],
)
def test_wrong_calls_are_refused(call, words):
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        call(batch([[2, 3]], 8, dtype=torch.float32))
    assert words in str(caught.value), str(caught.value)
    assert isinstance(caught.value, tl.LoDError)


def test_rotate_half_is_the_layout_of_transformers():
    torch.manual_seed(0)
    x = tl.from_lengths(torch.randn(7, 2, 6), [[4, 0, 3]])
    angle = x.position_ids()[:, None] * 10000.0 ** (-torch.arange(3) / 3)
    cos, sin = (torch.cat([t, t], 1)[:, None] for t in (angle.cos(), angle.sin()))
    rows = x.values()
    half = torch.cat([-rows[..., 3:], rows[..., :3]], -1)  # transformers' rotate_half
    torch.testing.assert_close(tl.rotary_embedding(x, rotate_half=True).values(), rows * cos + half * sin)
    assert torch.equal(
        tl.rotary_embedding(x, rotate_half=True).values(), tl.rotary_embedding(x, interleaved=False).values()
    )
