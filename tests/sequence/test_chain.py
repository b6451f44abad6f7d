# SPDX-License-Identifier: Apache-2.0
"""Linear-chain conditional random fields. That the operators equal enumeration is a law (tests/lib/samples/ops/chain.py)."""

import copy
import itertools
import math

import pytest
import torch
from reference.paths import paths

import torch_lod as tl

TAGS = 4
LENGTHS = [[2, 0, 1], [3, 0, 4]]


def batch(seed=1, dtype=torch.float64, requires_grad=False):
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(7, TAGS, generator=g, dtype=dtype)
    x = tl.from_lengths(rows, LENGTHS)
    return x.requires_grad_(requires_grad), torch.randint(0, TAGS, (7,), generator=g)


def crf_of(dtype=torch.float64, **options):
    torch.manual_seed(1)
    crf = tl.nn.LinearChainCRF(TAGS, dtype=dtype, **options)
    for p in crf.parameters():
        torch.nn.init.normal_(p)
    return crf


def probabilities(crf, rows):
    """Every path of a sequence with its probability."""
    scores = paths(rows, crf.transition())
    return dict(zip([y for y, _ in scores], torch.stack([s for _, s in scores]).softmax(0)))


def test_module_equals_enumeration():
    crf, (x, y) = crf_of(), batch()
    losses, best, marginal = crf(x, y).values(), crf.decode(x), crf.marginals(x)
    for s, (rows, tags) in enumerate(zip(x.sequences(), x.with_values(y).sequences())):
        p = probabilities(crf, rows)
        torch.testing.assert_close(losses[s], -p[tuple(tags.tolist())].log())
        if len(rows):
            assert tuple(list(best.sequences())[s].tolist()) == max(p, key=p.get)
        for t, given in enumerate(list(marginal.sequences())[s]):
            expected = torch.stack([sum(q for path, q in p.items() if path[t] == tag) for tag in range(TAGS)])
            torch.testing.assert_close(given, expected)
    assert crf(x, y).lod.to_lengths() == LENGTHS[:1] and best.lod is x.lod


def test_n_best():
    crf, (x, _) = crf_of(), batch()
    tags, scores = crf.decode(x, 6)
    for s, rows in enumerate(x.sequences()):
        expected = sorted(paths(rows, crf.transition()), key=lambda one: -float(one[1]))[:6]
        found = list(tags.sequences())[s].t().tolist()
        assert [tuple(path) for path in found[: len(expected)]] == [y for y, _ in expected]
        torch.testing.assert_close(scores.values()[s, : len(expected)], torch.stack([v for _, v in expected]))
        assert all(set(path) <= {-1} for path in found[len(expected) :])


def test_partial_labels_sum_over_what_is_allowed():
    crf, (x, y) = crf_of(), batch()
    g = torch.Generator().manual_seed(3)
    allowed = (torch.rand(7, TAGS, generator=g) < 0.4) | torch.nn.functional.one_hot(y, TAGS).bool()
    loss = crf(x, x.with_values(allowed)).values()
    for s, (rows, some) in enumerate(zip(x.sequences(), x.with_values(allowed).sequences())):
        p = probabilities(crf, rows)
        kept = sum(q for path, q in p.items() if all(some[t, tag] for t, tag in enumerate(path)))
        torch.testing.assert_close(loss[s], -torch.as_tensor(kept).log())
    known = torch.nn.functional.one_hot(y, TAGS).bool()
    torch.testing.assert_close(crf(x, known).values(), crf(x, y).values())
    nothing = crf(x, torch.zeros(7, TAGS, dtype=torch.bool)).values()
    assert nothing.tolist() == [float("inf"), 0, float("inf")]


def test_forbidden_transitions():
    rule = torch.ones(TAGS, TAGS, dtype=torch.bool)
    rule[0, 1] = rule[2, 2] = False
    first, last = torch.tensor([True, True, False, True]), torch.tensor([False, True, True, True])
    crf, (x, y) = crf_of(allowed=rule, allowed_start=first, allowed_end=last), batch()

    def follows(path):
        return not path or (first[path[0]] and last[path[-1]] and all(rule[a, b] for a, b in itertools.pairwise(path)))

    drawn = crf.sample(x, 50, generator=torch.Generator().manual_seed(0))
    for found in (crf.decode(x, 5)[0], drawn):
        for rows in found.sequences():
            assert all(follows(path) for path in rows.t().tolist())
    for s, tags in enumerate(x.with_values(y).sequences()):
        assert bool(crf(x, y).values()[s].isinf()) is not bool(follows(tags.tolist()))
    right = crf.decode(x)
    crf(x, right).values().sum().backward()
    assert crf.transitions.grad[0, 1] == 0 == crf.transitions.grad[2, 2] and crf.transitions.grad.isfinite().all()
    assert crf.start_transitions.grad[2] == 0 == crf.end_transitions.grad[0]
    dead = crf_of(allowed=torch.zeros(TAGS, TAGS, dtype=torch.bool))
    assert dead.decode(x).values().eq(-1).all() and dead.sample(x).values().eq(-1).all()
    assert dead.log_partition(x).values().tolist() == [-float("inf"), 0, -float("inf")]
    loss = dead(x, y).values()
    assert loss.tolist() == [float("inf"), 0, float("inf")]
    loss.sum().backward()
    assert all(p.grad.isfinite().all() for p in dead.parameters())


def test_samples_are_as_frequent_as_they_are_probable():
    crf, (x, _) = crf_of(), batch()
    drawn = crf.sample(x, 4000, generator=torch.Generator().manual_seed(0))
    frequency = torch.stack([(drawn.values() == tag).double().mean(1) for tag in range(TAGS)], 1)
    torch.testing.assert_close(frequency, crf.marginals(x).values().detach(), rtol=0, atol=0.03)
    rows, paths_of = next(x.sequences()), next(drawn.sequences()).values().t()
    for path, p in probabilities(crf, rows).items():
        share = (paths_of == torch.tensor(path)).all(1).double().mean()
        assert abs(float(share) - float(p)) < 0.03


def test_marginals_are_differentiable():
    crf, (x, _) = crf_of(), batch()
    rows = x.values()

    def of(values):
        return crf.marginals(tl.LoDTensor(values, x.lod)).values()

    assert torch.autograd.gradcheck(of, (rows.clone().requires_grad_(),))
    with torch.no_grad():
        assert torch.equal(crf.marginals(x).values(), of(rows))


@pytest.mark.parametrize("lengths", [[[]], [[0, 0]], [[1, 0], [0]]])
def test_marginals_of_no_rows(lengths):
    crf, x = tl.nn.LinearChainCRF(3), tl.from_lengths(torch.zeros(0, 3), lengths)
    found = crf.marginals(x)
    assert found.shape == (0, 3) and found.lod == x.lod


@pytest.mark.parametrize("rows", [20_000])
def test_long_sequences_keep_their_digits(rows):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, TAGS, generator=g), torch.randint(0, TAGS, (rows,), generator=g)
    results = {}
    for dtype in (torch.float32, torch.float64):
        crf = crf_of(torch.float64).to(dtype)
        values = x.to(dtype, copy=True).requires_grad_()
        loss = crf(tl.from_lengths(values, [[rows]]), y)
        loss.sum().backward()
        results[dtype] = loss.detach(), values.grad, crf.transitions.grad
    for got, expected in zip(results[torch.float32], results[torch.float64]):
        error = (got.double() - expected).abs().max() / expected.abs().max()
        assert error < 1e-5, float(error)


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_scores_far_apart(scale):
    """exp of their differences is beyond float32; the gold path has a tiny or no probability."""
    g = torch.Generator().manual_seed(0)
    rows, y = torch.randn(40, TAGS, generator=g) * scale, torch.randint(0, TAGS, (40,), generator=g)
    results = {}
    for dtype in (torch.float32, torch.float64):
        crf = crf_of(torch.float64).to(dtype)
        with torch.no_grad():
            crf.transitions.mul_(scale)
            crf.transitions[0, 1] = crf.transitions[3] = -scale * 3
        values = rows.to(dtype, copy=True).requires_grad_()
        loss = crf(tl.from_lengths(values, [[30, 10]]), y)
        loss.sum().backward()
        results[dtype] = (
            loss.detach(),
            values.grad,
            crf.transitions.grad,
            crf.decode(tl.from_lengths(values, [[30, 10]])),
        )
    for got, expected in zip(results[torch.float32], results[torch.float64]):
        assert got.isfinite().all()
        torch.testing.assert_close(got.double(), expected.double(), rtol=1e-4, atol=1e-3)


def test_nan_and_infinities_end():
    crf, (x, y) = crf_of(), batch()
    for wrong in (float("nan"), float("inf"), -float("inf")):
        for row in range(7):
            bad = x.values().clone()
            bad[row] = wrong
            bad = tl.LoDTensor(bad, x.lod)
            loss, n_best = crf(bad, y).values(), crf.decode(bad, 3)[0]
            other = 2 if row < 3 else 0
            assert loss[other] == crf(x, y).values()[other]
            assert ((n_best.values() >= -1) & (n_best.values() < TAGS)).all()
            drawn = crf.sample(bad, 2).values()
            assert ((drawn >= -1) & (drawn < TAGS)).all()
    nothing = tl.LoDTensor(torch.full((7, TAGS), -float("inf"), dtype=torch.float64).requires_grad_(), x.lod)
    crf.log_partition(nothing).values()[1].backward()


@pytest.mark.parametrize("tags", [1, 2, 16, 17, 100])
def test_threads_change_nothing(tags):
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 60, (200,), generator=g)
    rows, t = torch.randn(int(lengths.sum()), tags, generator=g), torch.randn(tags + 2, tags, generator=g)
    offsets = tl.LoD.from_lengths([lengths]).row_offsets()
    results, threads = [], torch.get_num_threads()
    for n in (1, 2):
        torch.set_num_threads(n)
        leaves = rows.clone().requires_grad_(), t.clone().requires_grad_()
        total, _ = tl.ops.chain_logsumexp(*leaves, offsets)
        total.sum().backward()
        results.append((total.detach(), *(v.grad for v in leaves), *tl.ops.chain_argmax(rows, t, offsets)))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_module_is_a_module():
    crf, (x, y) = crf_of(torch.float32, allowed=torch.eye(TAGS).bool()), batch(dtype=torch.float32)
    assert set(crf.state_dict()) == {"start_transitions", "end_transitions", "transitions"}
    assert repr(crf) == "LinearChainCRF(4, forbidden=12)"
    y = torch.zeros_like(y)
    assert torch.equal(copy.deepcopy(crf)(x, y).values(), crf(x, y).values())
    assert crf.to(torch.float64)(x.double(), y).dtype == torch.float64
    half = crf.to(torch.bfloat16)(x.bfloat16(), y)
    assert half.dtype == torch.bfloat16
    with torch.autocast("cpu"):
        assert crf(x.bfloat16(), y).dtype == torch.float32
    assert tl.nn.LinearChainCRF(TAGS, level=0)(x, y).shape == (3,)


def test_compiles_whole():
    crf, (x, y) = crf_of(), batch(requires_grad=True)
    compiled = torch.compile(lambda x, y: crf(x, y), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y).values(), crf(x, y).values())
    compiled(x, y).values().sum().backward()
    found, x.grad = x.grad, None
    crf(x, y).values().sum().backward()
    torch.testing.assert_close(found, x.grad)


WRONG = {
    "tags": (lambda crf, x, y: crf(x, y + TAGS), IndexError, "tags in [0, 3], got "),
    "dtype of tags": (lambda crf, x, y: crf(x, y.double()), TypeError, "tags of an integer dtype, got torch.float64"),
    "no tags": (lambda crf, x, y: crf(x, None), TypeError, "tags as a tensor, got NoneType"),
    "allowed": (
        lambda crf, x, y: crf(x, x.values()[:, :2] > 0),
        ValueError,
        "tags of shape (rows, tags), (7, 4), got (7, 2)",
    ),
    "columns": (lambda crf, x, y: crf(x[:, :3], y), ValueError, "x of shape (rows, 4), got (7, 3)"),
    "plain": (lambda crf, x, y: crf.decode(x.values()), TypeError, "decode: expected x as a LoDTensor, got Tensor"),
    "n": (lambda crf, x, y: crf.decode(x, 0), ValueError, "expected n in [1, 2**16], got 0"),
    "drawn": (lambda crf, x, y: crf.sample(x, True), ValueError, "expected n in [1, 2**16], got True"),
    "num_tags": (lambda crf, x, y: tl.nn.LinearChainCRF(0), ValueError, "num_tags as an int of at least 1, got 0"),
    "rule": (
        lambda crf, x, y: tl.nn.LinearChainCRF(4, allowed=torch.ones(4, 4)),
        TypeError,
        "allowed as a tensor of dtype",
    ),
    "rule's shape": (
        lambda crf, x, y: tl.nn.LinearChainCRF(4, allowed_end=torch.ones(3).bool()),
        ValueError,
        "allowed_end of shape (4,), got (3,)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_are_refused(case):
    call, kind, said = WRONG[case]
    with pytest.raises(kind) as caught:
        call(crf_of(), *batch())
    assert isinstance(caught.value, tl.LoDError) and said in str(caught.value)


@pytest.mark.parametrize("dtype, far, step", [(torch.float32, -87.5, -85.0), (torch.float64, -746.0, -744.0)])
def test_sums_that_are_numbers_but_have_lost_a_part(dtype, far, step):
    """The second tag has no probability that a number holds, but it is the one that leads on; of the sum a part is left."""
    transition = torch.tensor([[0.0, 0.0], [0.0, -1e3], [step, -2e3], [0.0, -2e3]], dtype=dtype, requires_grad=True)
    values = torch.tensor([[0.0, far], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    found = tl.ops.chain_logsumexp(values, transition, torch.tensor([0, 2]))
    share = math.exp(far - step) / (1 + math.exp(far - step))
    torch.testing.assert_close(
        found[0], torch.tensor([step + math.log1p(math.exp(far - step))], dtype=dtype), rtol=1e-6, atol=0
    )
    slopes, counts = torch.autograd.grad(found[0].sum(), (values, transition))
    torch.testing.assert_close(slopes, torch.tensor([[1 - share, share], [1, 0]], dtype=dtype), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(counts[2:, 0], torch.tensor([1 - share, share], dtype=dtype), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_an_infinite_transition_is_not_taken_for_a_large_one(dtype):
    transition = torch.zeros(4, 2, dtype=dtype)
    transition[2, 0] = math.inf
    values = torch.zeros(3, 2, dtype=dtype, requires_grad=True)
    found = tl.ops.chain_logsumexp(values, transition, torch.tensor([0, 3]))[0]
    assert found.isnan().all() and torch.autograd.grad(found.sum(), values)[0].isnan().any()


def test_a_nan_beside_what_is_impossible_is_not_passed_over():
    for rows in ([[math.nan, -math.inf]], [[0.0, 0.0], [math.nan, -math.inf]]):
        values = torch.tensor(rows)
        assert tl.ops.chain_logsumexp(values, torch.zeros(4, 2), torch.tensor([0, len(rows)]))[0].isnan().all()


def test_tags_that_lost_their_order_are_refused():
    x = tl.from_lengths(torch.randn(5, 3), [[2, 3]])
    tags = x.with_values(torch.tensor([0, 1, 2, 2, 0]))
    mixed, crf = tags[torch.tensor([4, 3, 2, 1, 0])], tl.nn.LinearChainCRF(3)
    for call in (
        lambda: crf(x, mixed),
        lambda: tl.paddle.linear_chain_crf(x, mixed, torch.zeros(5, 3)),
        lambda: tl.paddle.crf_decoding(x, torch.zeros(5, 3), mixed),
    ):
        with pytest.raises(TypeError, match=r"rows that lost their structure in getitem; .* order, pass \.values"):
            call()
    torch.testing.assert_close(crf(x, mixed.values()), crf(x, tags.values().flip(0)))
