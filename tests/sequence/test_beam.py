# SPDX-License-Identifier: Apache-2.0
"""tl.BeamSearch equals a search for one source at a time in plain Python, and with a beam that is wide enough the
enumeration of every sequence of words."""

import itertools
import math
import re

import pytest
import torch
from test_static import PAGE, alone, decoder

import torch_lod as tl
from torch_lod.sequence.beam import best_words

WORDS, END = 5, 0


class Model:
    """Log-probabilities that depend on the state, which depends on all words so far. `calls` counts rows."""

    def __init__(self, seed=0, peak=2.0, dtype=torch.float64):
        g = torch.Generator().manual_seed(seed)
        self.embed, self.mix = (
            torch.randn(WORDS, 4, generator=g, dtype=dtype),
            torch.randn(4, 4, generator=g, dtype=dtype),
        )
        self.out, self.calls = torch.randn(4, WORDS, generator=g, dtype=dtype) * peak, []

    def __call__(self, tokens, state):
        self.calls.append(len(tokens))
        h = torch.tanh(state["h"] @ self.mix + self.embed[tokens])
        return (h @ self.out).log_softmax(1), {"h": h, "more": (h.sum(1), "as it is")}


def first_state(sources, seed=1):
    h = torch.randn(sources, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {"h": h, "more": (h.sum(1), "as it is")}


def lp(n, alpha):
    return ((5 + n) / 6) ** alpha


def search(model, token, state, beam, n_best, max_length, alpha=0.0, early_stop=False):
    """One source, hypothesis by hypothesis: [(score, words, ended)], and at which step it stops."""
    alive, ended = [(0.0, [], token, state)], []
    for t in range(max_length):
        found = []
        for score, words, last, at in alive:
            log_probs, new = model(torch.tensor([last]), at)
            found += [(score + float(p), words, w, new) for w, p in enumerate(log_probs[0]) if p > -math.inf]
        found.sort(key=lambda entry: -entry[0])
        ended += [(s / lp(t + 1, alpha), words, True) for s, words, w, _ in found[:beam] if w == END]
        ended = sorted(ended, key=lambda entry: -entry[0])[:beam]
        alive = [(s, [*words, w], w, new) for s, words, w, new in found if w != END][:beam]
        if not alive or (early_stop and len(ended) == beam):
            return ended[:n_best], t
    ended += [(s / lp(max_length, alpha), words, False) for s, words, _, _ in alive]
    return sorted(ended, key=lambda entry: -entry[0])[:n_best], max_length


def told(found):
    words, scores, ended = (part.to_list() for part in found)
    return [list(zip(*each, strict=True)) for each in zip(scores, words, ended, strict=True)]


def same(found, expected):
    assert len(found) == len(expected)
    for got, want in zip(found, expected):
        assert [g[1:] for g in got] == [(list(w[1]), w[2]) for w in want]
        torch.testing.assert_close(
            torch.tensor([g[0] for g in got]), torch.tensor([w[0] for w in want]).to(torch.float32)
        )


@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 1.2])
@pytest.mark.parametrize(("beam", "n_best", "max_length"), [(1, 1, 7), (3, 2, 6), (4, 4, 5), (30, 3, 3)])
def test_equals_a_search_for_each_source(beam, n_best, max_length, alpha, early_stop):
    """The other search never stops early: stopping when nothing can be overtaken any more changes nothing."""
    sources = 6
    model, state, options = Model(beam), first_state(sources), (beam, n_best, max_length)
    expected = [
        search(model, s % WORDS, {"h": state["h"][s : s + 1]}, *options, alpha, early_stop)[0] for s in range(sources)
    ]
    model.calls = []
    run = tl.BeamSearch(
        model,
        end=END,
        beam=beam,
        n_best=n_best,
        max_length=max_length,
        length_penalty=alpha,
        early_stop=early_stop,
    )
    found = run(torch.arange(sources) % WORDS, state)
    same(told(found), expected)
    assert found.scores.dtype == torch.float64 and found.tokens.dtype == torch.int64
    assert model.calls[0] == sources and max(model.calls) <= sources * beam


def test_finds_the_best_of_all_sequences():
    model, state, most = Model(7, 1.0), first_state(2, 3), 4
    every = []
    for s in range(2):
        found = []
        for n in range(most + 1):
            for words in itertools.product(range(1, WORDS), repeat=n):
                score, at, last = 0.0, {"h": state["h"][s : s + 1]}, 3
                for w in [*words, END][:most]:
                    log_probs, at = model(torch.tensor([last]), at)
                    score, last = score + float(log_probs[0, w]), w
                found.append((score / lp(min(n + 1, most), 0.8), words, n < most))
        every.append(sorted(found, key=lambda entry: -entry[0])[:9])
    run = tl.BeamSearch(model, end=END, beam=400, n_best=9, max_length=most, length_penalty=0.8)
    same(told(run(torch.tensor([3, 3]), state)), every)


def test_finished_sources_leave_the_batch():
    """Source 1 ends immediately, source 0 after three words."""
    chances = torch.full((WORDS, WORDS), 1e-6, dtype=torch.float64)
    for word, following in ((1, 2), (2, 3), (3, 4), (4, END), (0, END)):
        chances[word, following] = 1.0
    rows = []

    def step(tokens, state):
        rows.append(len(tokens))
        return (chances / chances.sum(1, keepdim=True)).log()[tokens], state

    found = tl.BeamSearch(step, end=END, beam=2, max_length=50)(torch.tensor([1, 4]))
    assert found.tokens.to_list() == [[[2, 3, 4]], [[]]] and rows == [2, 2, 2, 2]
    assert found.ended.to_list() == [[True], [True]]


def test_decodes_with_the_decoder_of_the_documentation():
    """Its step attends to the memory of the source of every hypothesis, which repeats with the beam; a source is empty."""
    model, g = decoder(), torch.Generator().manual_seed(5)
    memory = tl.from_lengths(torch.randn(6, 4, generator=g, dtype=torch.float64), [[2, 0, 4]])
    first = torch.randn(3, 4, generator=g, dtype=torch.float64)

    def step(word, h, source):
        out, h = model.step(word, h, source)
        return out.log_softmax(1), h

    found = tl.BeamSearch(step, end=END, beam=3, n_best=2, max_length=6)(
        torch.tensor([1, 1, 1]), first, {"memory": memory, "keys": model.key(memory)}
    )
    for s, (rows, words, scores, ended) in enumerate(zip(memory.seq, *(part.seq for part in found))):
        for word, score, end in zip(words.sequences(), scores, ended):
            whole = [1, *word.tolist()]
            outputs = torch.stack(alone(model, torch.tensor(whole), rows, first[s])).log_softmax(1)
            following = [*whole[1:], END] if end else whole[1:]
            total = sum(outputs[t, w] for t, w in enumerate(following))
            torch.testing.assert_close(total.detach(), score.detach())
        one = tl.from_lengths(rows, [[len(rows)]])
        apart = tl.BeamSearch(step, end=END, beam=3, n_best=2, max_length=6)(
            torch.tensor([1]), first[s : s + 1], {"memory": one, "keys": model.key(one)}
        )
        assert apart.tokens.to_list()[0] == found.tokens.to_list()[s]
    assert not found.scores.requires_grad


def test_the_documentation_searches(capsys):
    block = next(b for b in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.S) if "tl.BeamSearch" in b)
    model, memory = decoder().float(), tl.from_lengths(torch.randn(6, 4), [[2, 0, 4]])
    names = {"torch": torch, "tl": tl, "decoder": model, "memory": memory, "END": END}
    exec(block, names | {"begin": torch.tensor([1, 1, 1]), "first": torch.zeros(3, 4)})
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_levels_above_the_sources_stay():
    first = tl.from_lengths(torch.tensor([1, 2, 3]), [[2, 0, 1]], level_names=["article"])
    memory = tl.from_lengths(torch.ones(4, 2), [[2, 0, 1], [1, 3, 0]])

    def step(tokens, state, static):
        assert static[0].num_sequences() == len(tokens) == len(static[1]) and static[0].lod_level == 1
        return torch.zeros(len(tokens), 3).log_softmax(1) + static[1][:, None] * 0, state

    pooled = tl.sequence_pool(memory, "sum")[:, 0]
    found = tl.BeamSearch(step, end=END, beam=2, n_best=2, max_length=2)(first, None, (memory, pooled))
    assert found.scores.lod.to_lengths() == [[2, 0, 1], [2, 2, 2]] and found.tokens.lod_level == 3
    assert found.tokens.level_names == ("article", None, None)


def test_sequences_in_a_state_follow_their_hypotheses():
    """A cache of all words, which grows by a row in every step."""

    def step(tokens, cache):
        cache = tl.cat([cache, tl.from_lengths(tokens, [[1] * len(tokens)])], along="within")
        counts = torch.zeros(len(tokens), WORDS, dtype=torch.float64)
        for i, words in enumerate(cache.seq):
            counts[i] = torch.randn(WORDS, generator=torch.Generator().manual_seed(int((words * 7 + 3).sum())))
        return counts.log_softmax(1), cache

    def from_scratch(tokens, words):
        words = [*words, int(tokens)]
        g = torch.Generator().manual_seed(sum(w * 7 + 3 for w in words))
        return torch.randn(1, WORDS, generator=g).double().log_softmax(1), words

    empty = tl.from_lengths(torch.zeros(0, dtype=torch.int64), [[0, 0]])
    found = tl.BeamSearch(step, end=END, beam=3, n_best=3, max_length=5)(torch.tensor([1, 2]), empty)
    same(told(found), [search(from_scratch, word, [], 3, 3, 5)[0] for word in (1, 2)])


def test_rows_picked_from_a_batch_are_a_first_state():
    """The last row of every sentence: by name, or by .values() where they were picked by index."""
    x = tl.from_lengths(torch.randn(5, 4, dtype=torch.float64), [[2, 3]])
    last = x[torch.tensor([1, 4])]
    assert type(last) is not torch.Tensor
    model = Model()
    run = tl.BeamSearch(lambda tokens, h: (model(tokens, {"h": h})[0], h), end=END, beam=3, max_length=4)
    expected = told(run(torch.tensor([1, 2]), x.values()[[1, 4]]))
    for state in (x.nth(-1), last.values()):
        assert told(run(torch.tensor([1, 2]), state)) == expected
    with pytest.raises(TypeError, match="expected state as a LoDTensor or a plain tensor, got rows that lost"):
        run(torch.tensor([1, 2]), last)


@pytest.mark.parametrize("sources", [0, 2])
def test_nothing_to_find(sources):
    """No source at all; or every word ruled out."""
    step = lambda tokens, state: (torch.full((len(tokens), 3), -torch.inf), state)  # noqa: E731
    found = tl.BeamSearch(step, end=END)(torch.ones(sources, dtype=torch.int64))
    assert found.tokens.lod.to_lengths() == [[0] * sources, []] and found.scores.shape == (0,)


@pytest.mark.parametrize("words", [1, 5, 63, 64, 100, 2048, 2049, 2100])
def test_the_best_words_are_those_of_a_sort(words):
    g = torch.Generator().manual_seed(words)
    for (sources, width), dtype in itertools.product([(1, 1), (3, 2), (2, 7)], [torch.float32, torch.bfloat16]):
        before = torch.randn(sources, width, generator=g)
        scores = (torch.randn(sources * width, words, generator=g) - 30).to(dtype)
        scores[:, words // 2] = -torch.inf
        spread = torch.stack([scores, scores], 2)[..., 0]
        total = (before[..., None] + scores.view(sources, width, words)).flatten(1)
        for k in {1, min(6, width * words), min(16, width * words)}:
            want = total.sort(1, descending=True).values[:, :k]
            for given in (scores, spread):
                top, hypothesis, word = best_words(before, given, k)
                assert torch.equal(top, want) and torch.equal(total.gather(1, hypothesis * words + word), want)
                flat = hypothesis * words + word
                assert all(len(set(row)) == k for row in flat.tolist())


def bad(
    step=lambda tokens, state: (torch.zeros(len(tokens), 3), state), first=None, state=None, static=None, **options
):
    def call():
        run = tl.BeamSearch(step, **{"end": END, **options})
        return run(torch.tensor([1, 1]) if first is None else first, state, static)

    return call


def nan(tokens, state):
    log_probs = torch.zeros(len(tokens), 200).log_softmax(1)
    log_probs[-1, 150] = torch.nan
    return log_probs, state


def infinite(tokens, state):
    return torch.tensor([[0.0, -torch.inf, torch.inf]] * len(tokens)), state


def grows(tokens, state):
    return torch.zeros(len(tokens), 3), torch.zeros(len(tokens) + 1)


WRONG = {
    "step": (bad(3), "expected step as a module or function, got int"),
    "end": (bad(end=-1), "expected end in [0, 2**31], got -1"),
    "beam": (bad(beam=0), "expected beam in [1, 2**20], got 0"),
    "n_best": (bad(n_best=6), "expected n_best in [1, 5], got 6"),
    "max_length": (bad(max_length=None), "expected max_length in [1, 2**31], got None"),
    "length_penalty": (bad(length_penalty=-0.5), "expected length_penalty in [0, 100], got -0.5"),
    "length_penalty nan": (bad(length_penalty=math.nan), "expected length_penalty in [0, 100], got nan"),
    "length_penalty large": (bad(length_penalty=90, max_length=2**31), "length_penalty in [0, 35.54], got 90"),
    "early_stop": (bad(early_stop=1), "expected early_stop as a bool, got 1"),
    "first": (bad(first=[1, 2]), "expected first as a tensor, got list"),
    "floating first": (bad(first=torch.ones(2)), "expected first of an integer dtype, got torch.float32"),
    "wide first": (bad(first=torch.ones(2, 1).long()), "expected first of shape (sources,), got (2, 1)"),
    "state": (bad(state=(torch.ones(3),)), "expected state with a row for each of 2 sources, got (3,) at index 0"),
    "scalar": (bad(state=torch.tensor(1)), "expected state with a row for each of 2 sources, got () at index 0"),
    "static": (
        bad(static={"m": tl.from_lengths(torch.ones(2), [[2]])}),
        "expected static with a sequence of level 0 for each of 2, got 1 at index 0; if its rows are meant",
    ),
    "other levels": (
        bad(first=tl.from_lengths(torch.ones(2).long(), [[2]]), state=tl.from_lengths(torch.ones(2), [[1, 1]])),
        "expected state with the levels above level 1 that the others have, got LoDs that differ at index 0",
    ),
    "returned": (bad(lambda tokens, state: tokens), "return (log_probs, state), got Tensor at step 0"),
    "nothing": (bad(lambda tokens, state: (None, state)), "log_probs of a floating dtype, got None at step 0"),
    "rank": (
        bad(lambda tokens, state: (torch.zeros(2), state)),
        "log_probs of shape (2, words) with more words than 0",
    ),
    "rows": (bad(lambda tokens, state: (torch.zeros(3, 4), state)), "got (3, 4) at step 0"),
    "no end": (bad(end=7), "log_probs of shape (2, words) with more words than 7, the end, got (2, 3) at step 0"),
    "new state": (bad(grows), "expected state after step 0 with a row for each of 2 hypotheses, got (3,) at index 0"),
    "inf": (bad(infinite), "numbers below infinity, got inf for word 2 of hypothesis 0 of source 0 at step 0"),
    "nan": (bad(nan), "got nan for word 150 of hypothesis 0 of source 1 at step 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case):
    call, said = WRONG[case]
    with pytest.raises(tl.LoDError) as caught:
        call()
    assert str(caught.value).startswith("BeamSearch: expected ") and said in str(caught.value), str(caught.value)


def test_what_the_step_raises_passes_through():
    with pytest.raises(KeyError, match="mine"):
        bad(lambda tokens, state: {}["mine"])()


def test_fluids_search_step_by_step_finds_the_best_of_all_sequences():
    """beam_search and beam_search_decode with a beam as wide as everything."""
    model, state = Model(9, 1.0), first_state(2, 4)
    ids = tl.from_lengths(torch.tensor([3, 3]), [[1, 1], [1, 1]])
    scores = ids.with_values(torch.zeros(2, dtype=torch.float64))
    all_ids, all_scores = [ids], [scores]
    h = state["h"]
    for _ in range(3):
        log_probs, new = model(ids.values(), {"h": h})
        total = scores.values()[:, None] + log_probs
        ids, scores, row = tl.beam_search(ids, scores, None, total, 200, END, return_parent_idx=True)
        all_ids, all_scores, h = [*all_ids, ids], [*all_scores, scores], new["h"][row]
    words, values = tl.beam_search_decode(all_ids, all_scores, 4, END)
    expected = [search(model, 3, {"h": state["h"][s : s + 1]}, 200, 4, 3)[0] for s in range(2)]
    for got, scored, want in zip(words.to_list(), values.to_list(), expected):
        assert got == [[3, *w, *[END] * done] for _, w, done in want]
        torch.testing.assert_close(torch.tensor([s[-1] for s in scored]), torch.tensor([s for s, _, _ in want]))
