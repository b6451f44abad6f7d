# SPDX-License-Identifier: Apache-2.0
"""Prefix beam search: against every alignment, against a search in dictionaries, and with a language model."""

import itertools
import math

import pytest
import torch
from reference import ctc as reference

import torch_lod as tl
from torch_lod.ops.ctc_beam import search

DOUBLE, SINGLE = torch.float64, torch.float32


def frames(lengths, classes, scale=1.0, seed=0, dtype=DOUBLE):
    g = torch.Generator().manual_seed(seed)
    return tl.from_lengths(
        torch.randn(sum(lengths), classes, generator=g, dtype=DOUBLE).mul(scale).to(dtype), [lengths]
    )


def by_alignments(rows, blank, model=lambda labels: 0.0):
    """Every labeling with the logarithm of its probability, the most probable first."""
    log_probs, found = rows.double().log_softmax(1), {}
    for string in itertools.product(range(rows.shape[1]), repeat=len(rows)):
        labels = tuple(c for c, _ in itertools.groupby(string) if c != blank)
        found.setdefault(labels, []).append(sum(float(log_probs[t, c]) for t, c in enumerate(string)))
    scores = {labels: float(torch.tensor(p, dtype=DOUBLE).logsumexp(0)) + model(labels) for labels, p in found.items()}
    return sorted(scores.items(), key=lambda item: -item[1])


def check_lists(labels, scores, wanted, rtol=1e-9):
    assert [[tuple(one) for one in of] for of in labels.to_list()] == [[own for own, _ in of] for of in wanted]
    flat = torch.tensor([score for of in wanted for _, score in of], dtype=DOUBLE)
    torch.testing.assert_close(scores.values().double(), flat, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("blank", [0, 1, 2])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_a_beam_that_holds_all_prefixes_is_exact(blank, scale):
    x = frames([5, 0, 6], 3, scale, blank)
    wanted = [by_alignments(rows, blank) for rows in x.sequences()]
    check_lists(*tl.ctc_beam_decode(x, beam=500, n_best=500, blank=blank), wanted)
    check_lists(*tl.ctc_beam_decode(x, beam=127, n_best=2, blank=blank), [of[:2] for of in wanted])


@pytest.mark.parametrize("beam", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.9])
def test_a_narrow_beam_is_that_of_dictionaries(beam, threshold):
    """Prefixes leave the beam and come back, also below ones that stayed."""
    least = math.log(threshold) if threshold else -math.inf
    for seed in range(8):
        x = frames([25, 1, 60], (2, 3, 6)[seed % 3], (0.5, 2.0)[seed % 2], seed)
        wanted = [list(reference.beam_of(rows, 1, beam, least).items())[:5] for rows in x.sequences()]
        given = {"beam": beam, "n_best": min(beam, 5), "blank": 1, "threshold": threshold}
        check_lists(*tl.ctc_beam_decode(x, **given), wanted)
    rows = x.values(), x.row_offsets(), 1, beam, min(beam, 5), threshold
    for got, composed in zip(tl.ops.ctc_beam(*rows), search(*rows)):
        torch.testing.assert_close(got, composed)


def test_the_most_probable_labels_are_not_those_of_the_best_path():
    x = tl.from_lengths(torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log(), [[2]])
    assert tl.ctc_decode(x).to_list() == [[]]
    labels, scores = tl.ctc_beam_decode(x, n_best=3)
    assert labels.to_list() == [[[1], []]]
    torch.testing.assert_close(scores.values(), torch.tensor([0.64, 0.36]).log())


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE, torch.float16])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_twenty_thousand_rows(dtype, scale):
    """Against the loss of the labels, of which the search saw nearly all alignments."""
    count, classes = 20_000 if tl.ops.COMPILED else 300, 4
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(count, classes, generator=g, dtype=DOUBLE) * scale
    spoken = torch.rand(count, generator=g) < 0.02
    rows[torch.arange(count), torch.where(spoken, 1 + torch.arange(count) % 3, 0)] += 12 * scale
    x = tl.from_lengths(rows.clamp(-6e4, 6e4).to(dtype), [[count]])
    labels, scores = tl.ctc_beam_decode(x)
    wide, wide_scores = tl.ctc_beam_decode(x.double())
    exact = -tl.nn.CTCLoss(reduction="none")(x.double(), labels.drop_level(0))
    assert len(labels.values()) > count / 100 and torch.equal(labels.values(), wide.values())
    missed = float(exact - wide_scores.values())  # by the alignments that left the beam
    assert -1e-9 * abs(float(exact)) <= missed < 0.01
    torch.testing.assert_close(scores.values(), wide_scores.values().to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_searched_in_double_precision(dtype):
    x = frames([50, 7], 9, dtype=dtype)
    labels, scores = tl.ctc_beam_decode(x, n_best=3)
    wide, wide_scores = tl.ctc_beam_decode(x.double(), n_best=3)
    assert labels.to_list() == wide.to_list() and scores.dtype == dtype
    assert torch.equal(scores.values(), wide_scores.values().to(dtype))


def test_equal_ones_keep_their_order():
    """All classes equal: of as many alignments the prefix that was ahead, then the smaller class."""
    labels, _ = tl.ctc_beam_decode(tl.from_lengths(torch.zeros(2, 4), [[2]]), blank=1, beam=20, n_best=20)
    once = [[0], [2], [3]]  # three alignments each; all others one
    assert labels.to_list()[0] == [*once, [], [0, 2], [0, 3], [2, 0], [2, 3], [3, 0], [3, 2]]


def test_threads_and_company_change_no_bit():
    x = frames([70, 300, 5, 0, 33], 37, dtype=SINGLE)
    threads, runs = torch.get_num_threads(), []
    for n in (1, 2):
        torch.set_num_threads(n)
        runs.append(tl.ctc_beam_decode(x, n_best=4))
    torch.set_num_threads(threads)
    assert runs[0][0].to_list() == runs[1][0].to_list() and torch.equal(runs[0][1].values(), runs[1][1].values())
    for s, rows in enumerate(x.sequences()):
        labels, scores = tl.ctc_beam_decode(tl.from_lengths(rows, [[len(rows)]]), n_best=4)
        assert labels.to_list()[0] == runs[0][0].to_list()[s]
        assert scores.to_list()[0] == runs[0][1].to_list()[s]


def test_what_is_not_finite_stays_in_its_sequence():
    x = frames([6] * 5, 4).values().clone()
    clean = tl.ctc_beam_decode(tl.from_lengths(x, [[6] * 5]), n_best=2)
    x[1], x[8, 2], x[13], x[20] = math.nan, math.inf, -math.inf, torch.tensor([-math.inf, 0, -math.inf, -math.inf])
    labels, scores = tl.ctc_beam_decode(tl.from_lengths(x, [[6] * 5]), n_best=2)
    assert labels.to_list()[:3] == [[[]]] * 3 and scores.values()[:3].isnan().all()
    assert scores.values()[3:].isfinite().all() and all(1 in own for own in labels.to_list()[3])
    assert labels.to_list()[4] == clean[0].to_list()[4]


def bigrams(classes, seed=0):
    table = torch.randn(classes, classes, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    return table, lambda labels: sum(float(table[a, b]) for a, b in itertools.pairwise((0, *labels)))


def test_with_a_language_model_an_exact_beam_is_scored_again():
    x = frames([5, 0, 6], 3)
    table, whole = bigrams(3)
    asked = []

    def model(prefixes):
        asked.append([tuple(own) for own in prefixes.to_list()])
        return table[tl.sequence_pool(prefixes, "last")]

    wanted = [by_alignments(rows, 0, whole) for rows in x.sequences()]
    check_lists(*tl.ctc_beam_decode(x, beam=200, n_best=200, language_model=model), wanted)
    # all sequences in one call: before every row what is new, once
    assert asked[0] == [()] and len(asked) == 6
    everything = [own for of in asked for own in of]
    assert len(everything) == len(set(everything)) == len(by_alignments(x.values()[:5], 0))


def test_a_language_model_steers_a_narrow_beam():
    x = frames([12, 9], 5, 0.3)
    plain, scores = tl.ctc_beam_decode(x, beam=6, n_best=6)
    same, same_scores = tl.ctc_beam_decode(
        x, beam=6, n_best=6, language_model=lambda p: torch.zeros(len(p.lengths()), 5)
    )
    assert plain.to_list() == same.to_list()
    torch.testing.assert_close(scores.values(), same_scores.values())

    def rising(prefixes):  # only labels above the last one
        last = tl.sequence_pool(prefixes, "last")
        return torch.where(torch.arange(5) > last[:, None], 0.0, -math.inf)

    for of in tl.ctc_beam_decode(x, beam=6, n_best=6, language_model=rising)[0].to_list():
        assert len(of) == 6 and all(own == sorted(set(own)) for own in of)


def test_a_source_without_hypotheses_and_errors_of_the_model():
    x = tl.from_lengths(torch.tensor([[-math.inf, 0.0, 0.0]] * 3), [[1, 2]])
    labels, scores = tl.ctc_beam_decode(x, language_model=lambda p: torch.full((len(p.lengths()), 3), -math.inf))
    assert labels.to_list() == [[], []] and scores.to_list() == [[], []]

    def broken(prefixes):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tl.ctc_beam_decode(x, language_model=broken)


def test_a_network_that_runs_along_prefixes_takes_no_gradient():
    embedding, unit = torch.nn.Embedding(4, 3), tl.nn.GRU(3, 4)

    def model(prefixes):
        return tl.sequence_pool(unit(embedding(prefixes))[0], "last").log_softmax(1)

    labels, scores = tl.ctc_beam_decode(frames([6, 0, 3], 4, dtype=SINGLE), n_best=2, language_model=model)
    assert not scores.requires_grad and len(labels.lengths()) == 5


def test_levels_go_on_above():
    x = tl.from_lengths(frames([7], 3).values(), [[2, 1], [3, 0, 4]], level_names=("talk", "clip"))
    labels, scores = tl.ctc_beam_decode(x, n_best=2)
    assert labels.level_names == ("talk", "clip", None) and scores.level_names == ("talk", "clip")
    assert scores.lod.to_lengths() == [[2, 1], [2, 1, 2]]
    whole, _ = tl.ctc_beam_decode(x, n_best=2, level="talk")
    assert whole.level_names == ("talk", None) and whole.lod.to_lengths()[0] == [2, 2]
