# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/metrics.md, as the page has them, beside scikit-learn 1.9.1 and SciPy 1.17.1, whose values are recorded
here, and beside loops."""

import contextlib
import io
import itertools
import re
from pathlib import Path

import pytest
import torch

import torch_lod as tl

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
NAN = float("nan")
LENGTHS = [[2, 3, 1], [4, 0, 7, 5, 2, 9]]
SCORES = [19, 4, 10, 11, 26, 2, 25, 6, 16, 23, 3, 21, 8, 0, 20, 12, 18, 13, 7, 5, 17, 14, 22, 9, 24, 1, 15]
TIED = [1, 1, 0, 0, 0, 0, 2, 2, 2, 1, 2, 3, 1, 1, 3, 3, 3, 1, 2, 3, 2, 3, 2, 2, 1, 3, 0]
RELEVANCE = [2, 2, 3, 2, 1, 1, 1, 1, 2, 3, 0, 3, 2, 1, 2, 2, 1, 1, 2, 2, 2, 1, 3, 1, 1, 3, 1]
#: A relevant document a query.
ONE = [0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0]
TARGET = [0, 2, 1, 0, 0, 1, 2, 1, 2, 0, 0, 2, 2, 0, 0, 2, 1, 1, 0, 2, 1, 2, 2, 2, 0, 2, 0]
PREDICTED = [0, 2, 1, 0, 0, 2, 2, 2, 2, 0, 2, 0, 2, 2, 0, 2, 2, 2, 1, 2, 1, 2, 2, 2, 0, 2, 0]

#: A call of a recipe, what it gives for the empty sequence, and what the library gives for the others.
RECORDED = {
    "accuracy(predicted, target, -1)": (NAN, [1.0, 0.571429, 0.6, 0.0, 0.888889]),  # accuracy_score
    "f1(predicted, target, 3)": (  # f1_score(average=None, zero_division=0)
        [0.0] * 3,
        [[1.0, 1.0, 1.0], [0.8, 0.0, 0.571429], [0.5, 0.0, 0.666667], [0.0, 0.0, 0.0], [0.8, 0.666667, 1.0]],
    ),
    "ndcg(scores, relevance)": (0.0, [0.918344, 0.793934, 1.0, 1.0, 0.822652]),  # ndcg_score
    "ndcg(scores, relevance, 3)": (0.0, [0.904977, 0.657501, 1.0, 1.0, 0.660602]),
    # label_ranking_average_precision_score, where one document is relevant
    "reciprocal_rank(scores, one)": (0.0, [0.5, 0.333333, 0.5, 0.5, 1.0]),
    "average_precision(scores, relevance > 1)": (0.0, [1.0, 0.416667, 1.0, 0.0, 0.530159]),  # average_precision_score
    # recall_score and precision_score of the first two
    "recall_at(scores, relevance > 1, 2)": (0.0, [0.5, 0.0, 0.5, 0.0, 0.2]),
    "precision_at(scores, relevance > 1, 2)": (0.0, [1.0, 0.0, 1.0, 0.0, 0.5]),
    "auc(scores, relevance > 1)": (NAN, [NAN, 0.6, 1.0, NAN, 0.3]),  # roc_auc_score
    "auc(tied, relevance > 1)": (NAN, [NAN, 0.55, 0.875, NAN, 0.725]),
    "spearman(tied, relevance)": (0.0, [-0.57735, -0.153855, 0.645497, NAN, 0.417066]),  # scipy.stats.spearmanr
}
#: Twice scipy.stats.rankdata of TIED.
RANKS = [7, 7, 3, 3, 3, 3, 11, 11, 11, 6, 11, 8, 3, 3, 8, 8, 4, 2, 9, 16, 9, 16, 9, 9, 4, 16, 2]


@pytest.fixture(scope="module")
def recipes() -> dict:
    """Everything that the page defines."""
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        space: dict = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, "docs/metrics.md", "exec"), space)
        names |= {name: thing for name, thing in space.items() if callable(thing)}
    return names


def batch(numbers, dtype=torch.float32):
    return tl.from_lengths(torch.tensor(numbers, dtype=dtype), LENGTHS)


def given(dtype=torch.float32) -> dict:
    floats = {"scores": SCORES, "tied": TIED, "relevance": RELEVANCE, "one": ONE}
    found = {name: batch(numbers, dtype) for name, numbers in floats.items()}
    return found | {"target": batch(TARGET, torch.int64), "predicted": batch(PREDICTED, torch.int64)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("call", RECORDED)
def test_a_recipe_gives_what_the_library_gives(recipes, call, dtype):
    empty, values = RECORDED[call]
    got = eval(call, recipes, given(dtype))
    assert got.lod.to_lengths() == LENGTHS[:1]
    values = [values[0], empty, *values[1:]]
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(got.values().double(), torch.tensor(values).double(), equal_nan=True, **close)


def test_ranks_that_are_shared(recipes):
    assert (2 * recipes["shared_rank"](batch(TIED))).tolist() == RANKS


def test_levels(recipes):
    of = given()
    every = recipes["f1"](of["predicted"].group([3]), of["target"].group([3]), 3, level=0)
    torch.testing.assert_close(every, torch.tensor([[0.777778, 0.444444, 0.740741]]))  # f1_score of all rows
    rows = [slice(0, 4), slice(4, 18), slice(18, 27)]
    right = torch.tensor(PREDICTED) == torch.tensor(TARGET)
    expected = torch.stack([right[s].float().mean() for s in rows])
    torch.testing.assert_close(recipes["accuracy"](of["predicted"], of["target"], 0), expected)
    torch.testing.assert_close(recipes["accuracy"](of["predicted"], of["target"]), right.float().mean())
    masked = recipes["accuracy"](of["predicted"], of["target"], mask=of["target"] > 0)
    torch.testing.assert_close(masked, right[torch.tensor(TARGET) > 0].float().mean())
    assert recipes["exact_match"](of["predicted"], of["target"]).tolist() == [1, 1, 0, 0, 0, 0]
    assert recipes["exact_match"](of["predicted"], of["target"], level=0).tolist() == [1, 0, 0]


def lists():
    """(scores, relevance) of every query, by a loop."""
    of, g = LENGTHS[1], torch.Generator().manual_seed(0)
    scores = torch.randn(sum(of), generator=g, dtype=torch.float64)
    relevance = torch.randn(sum(of), generator=g, dtype=torch.float64)
    return scores, relevance, list(zip(scores.split(of), relevance.split(of)))


def list_net(scores, relevance):
    return -(relevance.softmax(0) * scores.log_softmax(0)).sum()


def list_mle(scores, relevance):
    """-log of the chance to draw the documents in the right order, one after the other."""
    left, loss = list(range(len(scores))), scores.new_zeros(())
    for best in relevance.argsort(descending=True).tolist():
        loss = loss + scores[left].logsumexp(0) - scores[best]
        left.remove(best)
    return loss


@pytest.mark.parametrize("loop", [list_net, list_mle], ids=lambda f: f.__name__)
def test_losses_of_lists(recipes, loop):
    scores, relevance, queries = lists()
    scores.requires_grad_()
    lod = tl.LoD.from_lengths(LENGTHS)

    def loss(scores):
        return recipes[loop.__name__](tl.LoDTensor(scores, lod), tl.LoDTensor(relevance, lod)).values()

    expected = torch.stack([loop(s, r) for s, r in zip(scores.split(LENGTHS[1]), (r for _, r in queries))])
    torch.testing.assert_close(loss(scores), expected)
    grads = [torch.autograd.grad(f.square().sum(), scores)[0] for f in (loss(scores), expected)]
    torch.testing.assert_close(*grads)
    assert torch.autograd.gradcheck(loss, scores) and torch.autograd.gradgradcheck(loss, scores)


def test_the_likelihoods_of_all_orders_add_up_to_one(recipes):
    scores = tl.from_lengths(torch.randn(4, dtype=torch.float64).repeat(24), [[4] * 24])
    orders = torch.tensor(list(itertools.permutations(range(4)))).double().flatten()
    likelihood = recipes["list_mle"](scores, scores.with_values(orders)).neg().exp()
    torch.testing.assert_close(likelihood.sum(), torch.ones((), dtype=torch.float64))
