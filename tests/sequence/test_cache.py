# SPDX-License-Identifier: Apache-2.0
"""tl.Cache: attention that reads keys where they lie equals that of the packed rows, a step moves the bytes of its own rows,
and what does not fit is refused by name."""

import copy

import pytest
import torch
from torch.profiler import profile

import torch_lod as tl

STEPS = [[2, 0, 3, 1], [1, 2, 0, 0], [3, 4, 5, 2]]
OPTIONS = [
    {"causal": True},
    {"window": (3, 0)},
    {"causal": True, "alibi": True},
    {"softcap": 2.0},
    {"sink": torch.linspace(-1, 1, 4)},
    {"distance_bias": torch.linspace(-1, 1, 28).view(4, 7)},
    {"block_size": 2},
]


def rows(lengths, *element, seed=0, dtype=torch.float32):
    made = torch.randn(sum(lengths), *element, generator=torch.Generator().manual_seed(seed))
    return tl.from_lengths(made.to(dtype), [lengths])


def longer(cache, new):
    return new if cache is None else tl.cat([cache, new], along="within")


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(o))
@pytest.mark.parametrize(("capacity", "grow"), [([9, 7, 12, 4], None), ([0, 1, 2, 0], 1.5)])
def test_turns_of_any_lengths_equal_the_packed_rows(options, capacity, grow):
    cache, k, v = tl.Cache(capacity, grow=grow), None, None
    for turn, lengths in enumerate(STEPS):
        q, new, other = rows(lengths, 4, 8, seed=turn), rows(lengths, 2, 8, seed=9), rows(lengths, 2, 5, seed=10 + turn)
        k, v = longer(k, new), longer(v, other)
        cache.append(new, other)
        found = tl.sequence_attention(q, cache, enable_gqa=True, **options)
        assert torch.equal(found.values(), tl.sequence_attention(q, k, v, enable_gqa=True, **options).values())
        for copied, all_of_it in ((cache.keys(), k), (cache.values(), v)):
            assert copied.lod == all_of_it.lod and torch.equal(copied.values(), all_of_it.values())
        assert torch.equal(cache.lengths(), k.lod.lengths())
    assert (cache.capacity() >= cache.lengths()).all() and (grow or cache.capacity().tolist() == capacity)
    bias = torch.linspace(-2, 2, int((q.lod.lengths() * k.lod.lengths()).sum()))
    found = tl.sequence_attention(q, cache, bias=bias, enable_gqa=True)
    assert torch.equal(found.values(), tl.sequence_attention(q, k, v, bias=bias, enable_gqa=True).values())


@pytest.mark.parametrize("keep", [[True, False, True, False], [False] * 4, [True] * 4])
def test_sequences_that_end_leave(keep):
    cache, lengths = tl.Cache([9, 7, 12, 5]), STEPS[2]
    k, mask = rows(lengths, 4, 8), torch.tensor(keep)
    cache.append(k, k)
    cache.state = {"h": torch.arange(4), "rest": (torch.ones(4, 2), None)}
    cache.filter(mask if keep[0] else keep)
    assert cache.state["h"].tolist() == mask.nonzero().flatten().tolist() and cache.state["rest"][0].shape == (
        sum(keep),
        2,
    )
    new = rows([1] * sum(keep), 4, 8, seed=1)
    cache.append(new, new)
    k = longer(k.seq[mask], new)
    assert cache.num_sequences() == sum(keep) and torch.equal(cache.keys().values(), k.values())
    found = tl.sequence_attention(new, cache, causal=True)
    assert torch.equal(found.values(), tl.sequence_attention(new, k, k, causal=True).values())


def test_rows_without_heads_and_sequences_of_an_outer_level():
    x = tl.from_lengths(torch.randn(6, 8), [[2, 1], [1, 2, 3]], level_names=["text", "line"])
    for level, capacity in (("text", [6, 6]), (-1, [6, 6, 6])):
        cache = tl.Cache(capacity, level=level)
        cache.append(x, x)
        cache.append(x, x)
        found = tl.sequence_attention(x, cache, level=level)
        assert found.lod == x.lod
        for out, q in zip(*(t.values().split(x.lod.row_lengths(level).tolist()) for t in (found, x)), strict=True):
            both = torch.cat([q, q])
            expected = torch.nn.functional.scaled_dot_product_attention(q, both, both)
            torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)


def allocated(call) -> int:
    with profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    return sum(max(event.self_cpu_memory_usage, 0) for event in seen.events())


@pytest.mark.skipif(not tl.ops.COMPILED, reason="compositions lay out the scores")
def test_a_step_moves_the_bytes_of_its_own_rows():
    """Memory that a step takes, which is what it copies and computes: that of the rows, whatever is there and has room. The
    rows that are there keep their place."""
    moved = {}
    for room, there, new in ((40, 10, 1), (40, 10, 8), (9000, 8000, 1), (9000, 8000, 8)):
        cache, k, q = tl.Cache([room] * 4), rows([there] * 4, 2, 64), rows([new] * 4, 2, 64)
        cache.append(k, k)
        places = [part.data_ptr() for part in cache._parts]

        def step(cache=cache, q=q):
            cache.append(q, q)
            tl.sequence_attention(q, cache, causal=True)

        step()
        moved[room, new] = allocated(step)
        assert places == [part.data_ptr() for part in cache._parts]
    assert moved[9000, 1] == moved[40, 1] and moved[9000, 8] == moved[40, 8]
    own = 4 * 2 * 64 * 4  # bytes of one row of every sequence
    assert 7 * own <= moved[40, 8] - moved[40, 1] <= 5 * 7 * own


def test_growing_copies_a_few_times_what_is_there():
    cache, one = tl.Cache([1] * 4, grow=2), rows([1] * 4, 2, 64)
    step = lambda: cache.append(one, one)  # noqa: E731
    taken = sum(allocated(step) for _ in range(100))
    assert taken < 12 * 100 * 2 * 4 * 2 * 64 * 4 and cache.capacity().tolist() == [128] * 4


def test_hypotheses_have_caches_of_their_own():
    """A beam search whose state is a cache finds what one with packed keys finds, and leaves the cache as it was."""
    table = torch.randn(7, 2, 8, generator=torch.Generator().manual_seed(2))

    def scores(out):
        return torch.einsum("rhd,whd->rw", out.values(), table).log_softmax(1)

    def cached(tokens, state):
        q = tl.from_lengths(table[tokens], [[1] * len(tokens)])
        state["cache"].append(q, q)
        state["cache"].state = state["cache"].state + tokens
        return scores(tl.sequence_attention(q, state["cache"], causal=True)), state

    def packed(tokens, state):
        q = tl.from_lengths(table[tokens], [[1] * len(tokens)])
        k = tl.cat([state["k"], q], along="within")
        return scores(tl.sequence_attention(q, k, k, causal=True)), {"k": k}

    cache, k = tl.Cache([4, 2, 9], grow=2), rows([3, 0, 1], 2, 8)
    cache.append(k, k)
    cache.state = torch.tensor([10, 20, 30])
    found = [
        tl.BeamSearch(step, end=0, beam=3, n_best=3, max_length=6)(torch.tensor([1, 2, 3]), state)
        for step, state in ((cached, {"cache": cache}), (packed, {"k": k}))
    ]
    assert found[0].tokens.to_list() == found[1].tokens.to_list()
    assert torch.equal(found[0].scores.values(), found[1].scores.values())
    assert cache.lengths().tolist() == [3, 0, 1] and cache.state.tolist() == [10, 20, 30]


def test_in_inference_mode_and_after_it():
    cache, x = tl.Cache([9, 9]), rows([2, 1], 2, 8)
    with torch.inference_mode():
        cache.append(x, x)
    with torch.no_grad():
        cache.append(x, x)
    other = copy.deepcopy(cache)
    other.append(x, x)
    assert cache.lengths().tolist() == [4, 2] and other.lengths().tolist() == [6, 3]
    assert repr(cache) == "Cache(2 sequences, 6 of 18 rows, keys (2, 8), values (2, 8))"


def test_autocast_keeps_the_dtype_of_products():
    cache, x = tl.Cache([9, 9]), rows([2, 1], 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        cache.append(x, x)
        assert cache.keys().dtype == torch.bfloat16
        found = tl.sequence_attention(x, cache, causal=True)
        assert torch.equal(found.values(), tl.sequence_attention(x, x, x, causal=True).values())
    cache = filled()
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(tl.LoDError, match=r"a cache of torch\.bfloat16, as autocast"),
    ):
        tl.sequence_attention(x, cache)


def filled(lengths=(2, 1)):
    cache, x = tl.Cache([3, 4]), rows(list(lengths), 2, 8)
    cache.append(x, x)
    return cache


def ask(x, **options):
    return lambda: tl.sequence_attention(x, filled(), **options)


def append(k, v=None):
    return lambda: filled().append(k, k if v is None else v)


def with_state(given):
    filled().state = given


def in_documents():
    """As many documents as sentences, of other rows."""
    x = tl.from_lengths(torch.ones(3, 2, 8), [[2, 0], [2, 1]])
    cache = tl.Cache([3, 3])
    cache.append(x, x)
    return tl.sequence_attention(x, cache, level=0)


X = rows([2, 1], 2, 8)
WRONG = {
    "a row too many": (
        append(rows([2, 1], 2, 8)),
        "Cache.append: expected at most 3 rows in sequence 0, the capacity, got 2 and 2 more; see grow",
    ),
    "another batch": (append(rows([1, 1, 1], 2, 8)), "expected k with the 2 sequences of the cache, got 3"),
    "queries of another batch": (ask(rows([3], 2, 8)), "expected q with the 2 sequences of the cache, got 1"),
    "heads": (append(rows([1, 1], 3, 8)), "expected k with rows of (2, 8), as the cache, got (3, 8)"),
    "width of v": (append(rows([1, 1], 2, 8), rows([1, 1], 2, 5)), "expected v with rows of (2, 8), as the cache, got (2, 5)"),
    "heads of v": (append(rows([1, 1], 2, 8), rows([1, 1], 1, 8)), "expected v of shape (2, 2, 'width'), as k, got (2, 1, 8)"),
    "dtype": (append(rows([1, 1], 2, 8, dtype=torch.float64)), "expected k of torch.float32 on cpu, as the cache, got torch.float64"),
    "integers": (append(rows([1, 1], 2, 8).long()), "expected k of a floating dtype, got torch.int64"),
    "device": (append(rows([1, 1], 2, 8).to("meta")), "expected k of torch.float32 on cpu, as the cache, got torch.float32 on meta"),
    "dims": (append(rows([1, 1])), "expected k of shape (rows, width) or (rows, heads, width), got (2,)"),
    "another LoD": (append(rows([1, 1], 2, 8), rows([2, 0], 2, 8)), "expected v with the LoD of k"),
    "a plain tensor": (append(torch.ones(2, 2, 8)), "expected k as a LoDTensor, got Tensor"),
    "gradient": (append(rows([1, 1], 2, 8).requires_grad_()), "expected k that needs no gradient, got one that requires it"),
    "queries with gradient": (ask(rows([2, 1], 2, 8).requires_grad_()), "expected no gradient through a tl.Cache"),
    "queries of another dtype": (ask(X.double()), "expected keys of the cache of torch.float64, as q, got torch.float32"),
    "queries of another device": (ask(X.to("meta")), "expected keys of the cache on meta, as q, got one on cpu"),
    "queries of more heads": (ask(rows([2, 1], 4, 8)), "the 4 heads of q; see enable_gqa, got 2"),
    "values beside": (ask(X, v=X), "expected no v beside a tl.Cache, got a torch.float32 LoDTensor"),
    "prefix": (ask(X, prefix=1), "expected no prefix beside a tl.Cache, got 1"),
    "block_level": (ask(X, block_level=-1), "expected no block_level beside a tl.Cache, got -1"),
    "another level": (in_documents, "sequence_attention: expected level 1, that of the cache, got 0"),
    "nothing appended": (
        lambda: tl.sequence_attention(X, tl.Cache([3, 4])),
        "sequence_attention: expected a cache with keys, got one to which nothing was appended",
    ),
    "no keys": (lambda: tl.Cache([3, 4]).keys(), "Cache.keys: expected a cache with keys"),
    "no values": (lambda: tl.sequence_attention(X, X), "expected v as a LoDTensor, got NoneType"),
    "negative": (lambda: tl.Cache([3, -1]), "Cache: expected capacity in [0, 2**40], got -1 at index 1"),
    "huge": (lambda: tl.Cache([2**40, 2**40]), "expected a capacity of at most 2**40 rows in all"),
    "fractions": (lambda: tl.Cache([0.5]), "expected capacity[0] to be an integer, got 0.5"),
    "grow": (lambda: tl.Cache([3], grow=1), "expected grow above 1 and at most 1024, or None, got 1"),
    "level": (lambda: tl.Cache([3], level=None), "expected level as an int or a name, got None"),
    "keep of another batch": (lambda: filled().filter([True]), "expected keep as 2 bools, one per sequence, got shape (1,)"),
    "keep of numbers": (lambda: filled().filter([1, 0]), "Cache.filter: expected keep as 2 bools, one per sequence, got [1, 0]"),
    "state": (lambda: with_state((torch.ones(3),)), "Cache.state: expected a state with a row for each of 2 sequences"),
    "in torch.func": (
        lambda: torch.func.grad(lambda t: filled().append(X.with_values(t[:3]), X))(torch.ones(6, 2, 8)),
        "there is none through a cache",
    ),
    "in a beam search": (
        lambda: tl.BeamSearch(lambda tokens, state: None, end=0)(torch.tensor([1, 2, 3]), filled()),
        "BeamSearch: expected state with a sequence for each of 3 sources, got Cache(2 sequences",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_said(case):
    call, said = WRONG[case]
    with pytest.raises(tl.LoDError) as caught:
        call()
    assert said in str(caught.value), str(caught.value)


def test_a_refused_row_leaves_the_cache_as_it_was():
    cache = filled()
    before = cache.keys().values().clone()
    with pytest.raises(tl.LoDError):
        cache.append(rows([0, 9], 2, 8), rows([0, 9], 2, 8))
    assert cache.lengths().tolist() == [2, 1] and torch.equal(cache.keys().values(), before)


@pytest.mark.parametrize("use", ["append", "attention"])
def test_compiled_graphs_refuse_it_by_name(use):
    cache = filled()
    call = cache.append if use == "append" else lambda q, _: tl.sequence_attention(q, cache)
    with pytest.raises(Exception, match=r"expected no tl.Cache in a compiled graph"):
        torch.compile(lambda q: call(q, q), fullgraph=True, backend="eager")(rows([1, 1], 2, 8))
