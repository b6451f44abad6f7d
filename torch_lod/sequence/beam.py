# SPDX-License-Identifier: Apache-2.0
"""Beam search: the best sequences of words under any step function, for all sources together. Sources that are finished
leave the batch."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import LoDTypeError, LoDValueError, boundary, public, shown
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import a_bool, integer, number, sums, traverse, whole_dtype, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, returned, sequences_at, values_of
from .cache import Cache, taken
from .loop import each_a_sequence

__all__ = ["BeamSearch"]


class Hypotheses(NamedTuple):
    """What `BeamSearch` returns."""

    #: The words, int64, without the end; a level of hypotheses below the sources, best first, and one of their words.
    tokens: LoDTensor
    #: The score of every hypothesis, by which they are ordered.
    scores: LoDTensor
    #: Whether the hypothesis has ended, bool; otherwise it was cut off at max_length.
    ended: LoDTensor


torch.serialization.add_safe_globals([Hypotheses])


class BeamSearch:
    """The best sequences of words under a step function, by beam search.

        search = tl.BeamSearch(step, end=2, beam=5)
        found = search(torch.full((sources,), 1), state)  # every source begins with the word 1
        print(found.tokens.to_list(), found.scores.to_list())

    A step extends every hypothesis of every source by every word; of a source the `beam` best go on. Hypotheses that end
    among them are set aside. A source is finished when none of its hypotheses can still overtake its `n_best` ended ones,
    and then leaves the batch. No score may be above 0, as is so for logarithms of probabilities; otherwise a source may be
    finished too early.

    Args:
        step: a module or function, called as step(tokens, state), or step(tokens, state, static): tokens are the last words
            of all hypotheses, int64, (rows,), the hypotheses of a source next to one another. It returns (log_probs, state):
            log_probs (rows, words) of a floating dtype; -inf rules a word out.
        end: the word that ends a hypothesis.
        beam: how many hypotheses of a source go on.
        n_best: how many hypotheses of a source are returned, at most `beam`.
        max_length: how many steps there are at most. What has not ended then counts as it is.
        length_penalty: alpha of the division of a score by ((5 + n) / 6) ** alpha, n being the number of words with the
            end (Wu et al. 2016, equation 14, without coverage); 0 prefers short hypotheses, 0.6 to 1 are usual.
        early_stop: a source is finished as soon as `beam` hypotheses have ended, even if others could overtake them.

    A search is called as search(first, state=None, static=None), and runs without gradient.

    Args:
        first: the word that every source begins with, of an integer dtype, (sources,); plain, or a LoDTensor whose rows are
            the sources.
        state: the first state, any nesting of tuples, lists and dicts. A tensor has a row per source, a tl.Cache a sequence per
            source, a LoDTensor with more levels than `first` as well; a step gets and returns it with one per hypothesis, and they follow
            their hypotheses. What is no tensor is handed on as it is.
        static: what stays the same, like `state`; a step gets it with what belongs to the source of every hypothesis. A
            LoDTensor is what a decoder attends to, as for `scan`.

    Returns:
        a named tuple (tokens, scores, ended) of LoDTensors: words (int64), scores and bools of hypotheses. They have the
        levels of `first`, then a level of at most n_best hypotheses per source, best first; tokens have one more, of the
        words of a hypothesis, without `first` and without the end. A source all of whose words are ruled out has none.

    Raises:
        ValueError: where log_probs or states do not have a row per hypothesis, or a score is NaN or infinity; the message
            names the step, the source and the word. What the step raises passes through as it is.

    Source: beam search as in Sutskever et al. 2014; the length penalty of Wu et al. 2016.
    """

    @public
    def __init__(
        self,
        step: Callable,
        *,
        end: int,
        beam: int = 5,
        n_best: int = 1,
        max_length: int = 100,
        length_penalty: float = 0.0,
        early_stop: bool = False,
    ):
        if not callable(step):
            raise LoDTypeError(f"expected step as a module or function, got {type(step).__name__}")
        self.step = step
        self.end, self.beam = integer("end", end, 0), integer("beam", beam, 1, 2**20)
        self.n_best = integer("n_best", n_best, 1, self.beam)
        self.max_length = integer("max_length", max_length)
        number("length_penalty", length_penalty)
        most = min(100.0, 700 / max(1.0, math.log((5 + max_length) / 6)))  # exp(700) is a number
        if not 0 <= length_penalty <= most:
            raise LoDValueError(f"expected length_penalty in [0, {most:.4g}], got {shown(length_penalty)}")
        a_bool("early_stop", early_stop)
        self.length_penalty, self.early_stop = float(length_penalty), early_stop

    def __repr__(self) -> str:
        options = "end beam n_best max_length length_penalty early_stop".split()
        return f"BeamSearch({', '.join(f'{name}={getattr(self, name)}' for name in options)})"

    @boundary("BeamSearch")
    def __call__(self, first: Tensor, state: Any = None, static: Any = None) -> Hypotheses:
        """The search; the arguments are explained at the class."""
        if not isinstance(first, Tensor):
            raise LoDTypeError(f"expected first as a tensor, got {type(first).__name__}")
        whole_dtype("first", first)
        if first.dim() != 1:
            raise LoDValueError(f"expected first of shape (sources,), got {tuple(first.shape)}")
        with_data("first", first)
        with_memory(first)
        outer = first.lod if isinstance(first, LoDTensor) else None
        with torch.no_grad():
            run = _Run(self, _plain(first).long(), state, static, outer)
            for t in range(self.max_length):
                if run.active.numel() == 0:
                    break
                run.advance(t)
            return run.result(outer)


class _Run:
    """A search under way. Hypotheses are rectangular, (active sources, width), the best first; scores of -inf are none."""

    def __init__(self, search: BeamSearch, first: Tensor, state, static, outer: LoD | None):
        self.search, self.tokens, self.k = search, first, outer.depth if outer else 0
        k = self.k
        self.sources, self.device = first.shape[0], first.device
        self.active = torch.arange(self.sources, device=self.device)
        self.scores = torch.zeros(self.sources, 1, device=self.device)
        _check("state", state, self.sources, "sources", k, outer)
        self.state = _picked(state, self.active, k)
        self.static = self.of_active = None
        if static is not None:
            _check("static", static, self.sources, "sources", k, outer)
            self.static, self.of_active = static, _picked(static, self.active, k)
        #: Of every step the words of the rows after it, and the rows of the step before that these continue.
        self.history: list[tuple[Tensor, Tensor]] = []
        #: The ended hypotheses, (sources, beam), best first: score, number of words, row after the last of these steps.
        self.ended = torch.full((self.sources, search.beam), -torch.inf, device=self.device)
        self.lengths = torch.zeros_like(self.ended, dtype=torch.int64)
        self.rows = torch.zeros_like(self.lengths)
        self.complete = torch.zeros_like(self.ended, dtype=torch.bool)

    def penalty(self, words: int) -> float:
        return ((5 + words) / 6) ** self.search.length_penalty

    def advance(self, t: int) -> None:
        search, (count, width) = self.search, self.scores.shape
        log_probs, state = self.call(t)
        words = log_probs.shape[1]
        self.widen(log_probs.dtype)
        # every hypothesis has one end, so that among twice as many there are enough that go on
        top, parent, word = best_words(self.scores, log_probs, min(2 * search.beam, width * words))
        for s, j in (~(top < torch.inf)).nonzero()[:1].tolist():  # nan is the largest of all
            raise LoDValueError(
                f"expected log_probs that are numbers below infinity, got {float(top[s, j])} for word {int(word[s, j])} "
                f"of hypothesis {int(parent[s, j])} of source {int(self.active[s])} at step {t}"
            )
        row = parent + width * torch.arange(count, device=self.device)[:, None]
        end = word == search.end
        within = torch.arange(top.shape[1], device=self.device) < search.beam
        self.set_aside(top.masked_fill(~(end & within), -torch.inf) / self.penalty(t + 1), t, row, True)
        on = end.long().argsort(dim=1, stable=True)[:, : min(search.beam, width * (words - 1))]
        self.scores, word, row = (x.gather(1, on) for x in (top, word, row))
        unfinished = self.unfinished()
        if t + 1 == search.max_length:
            rows = torch.arange(word.numel(), device=self.device).view(word.shape)
            left = self.scores.masked_fill(~unfinished[:, None], -torch.inf)
            self.set_aside(left / self.penalty(t + 1), t + 1, rows, False)
            self.history.append((word.flatten(), row.flatten()))
            return
        going = unfinished.nonzero().flatten()
        self.scores, word, row = (x[going] for x in (self.scores, word, row))
        self.history.append((word.flatten(), row.flatten()))
        self.tokens, self.state = word.flatten(), _picked(state, row.flatten())
        if self.static is not None and (going.shape[0] < count or word.shape[1] != width):
            self.of_active = _picked(self.static, self.active[going].repeat_interleave(word.shape[1]), self.k)
        self.active = self.active[going]

    def call(self, t: int) -> tuple[Tensor, Any]:
        given = (self.tokens, self.state) if self.static is None else (self.tokens, self.state, self.of_active)
        gave = self.search.step(*given)
        returned(f"state after step {t}", gave)
        if not isinstance(gave, tuple) or len(gave) != 2:
            got = type(gave).__name__
            raise LoDTypeError(f"expected the step to return (log_probs, state), got {got} at step {t}")
        log_probs, state = gave
        rows = self.tokens.shape[0]
        if not isinstance(log_probs, Tensor) or not log_probs.is_floating_point():
            raise LoDTypeError(f"expected log_probs of a floating dtype, got {shown(log_probs)} at step {t}")
        if log_probs.dim() != 2 or log_probs.shape[0] != rows or log_probs.shape[1] <= self.search.end:
            raise LoDValueError(
                f"expected log_probs of shape ({rows}, words) with more words than {self.search.end}, the end, got "
                f"{tuple(log_probs.shape)} at step {t}"
            )
        if log_probs.device != self.device:
            raise LoDTypeError(f"expected log_probs on {self.device}, as first, got them on {log_probs.device}")
        with_data("log_probs", log_probs)
        with_memory(log_probs)
        _check(f"state after step {t}", state, rows, "hypotheses")
        return _plain(log_probs), state

    def widen(self, dtype: torch.dtype) -> None:
        """Scores are summed in float32 at least."""
        if dtype == torch.float64 and self.scores.dtype != dtype:
            self.scores, self.ended = self.scores.double(), self.ended.double()

    def set_aside(self, scores: Tensor, length: int, rows: Tensor, complete: bool) -> None:
        """Hypotheses (active, any) into the ended ones; the earlier first where scores are equal."""
        lengths, done = torch.full_like(rows, length), torch.full_like(rows, complete, dtype=torch.bool)
        new = {"ended": scores, "lengths": lengths, "rows": rows, "complete": done}
        both = {name: torch.cat([getattr(self, name)[self.active], part], 1) for name, part in new.items()}
        order = both["ended"].argsort(dim=1, descending=True, stable=True)[:, : self.search.beam]
        for name, part in both.items():
            getattr(self, name)[self.active] = part.gather(1, order)

    def unfinished(self) -> Tensor:
        """Which active sources have a hypothesis that may still come before the n_best ended ones."""
        if self.scores.shape[1] == 0:
            return torch.zeros(self.scores.shape[0], dtype=torch.bool, device=self.device)
        ended, best = self.ended[self.active], self.scores[:, 0]
        # no word adds to a score: the most that a hypothesis can reach is its score, divided by the largest penalty
        reach = best / self.penalty(self.search.max_length)
        going = (reach > ended[:, self.search.n_best - 1]) & (best > -torch.inf)
        return going & (ended[:, -1] == -torch.inf) if self.search.early_stop else going

    def result(self, outer: LoD | None) -> Hypotheses:
        n = self.search.n_best
        there = self.ended[:, :n] > -torch.inf
        scores, lengths, rows, complete = (
            part[:, :n][there] for part in (self.ended, self.lengths, self.rows, self.complete)
        )
        offsets = sums(lengths.cpu())
        tokens = torch.zeros(int(offsets[-1]), dtype=torch.int64, device=self.device)
        first = upload(offsets[:-1], self.device)
        for t in range(int(lengths.max()) - 1 if lengths.numel() else -1, -1, -1):
            words, parents = self.history[t]
            mine = (lengths > t).nonzero().flatten()
            tokens[first[mine] + t] = words[rows[mine]]
            rows = rows.index_copy(0, mine, parents[rows[mine]])
        above = [*(outer.levels if outer else ()), sums(there.sum(1).cpu())]
        names = [*outer.level_names, None] if outer and outer.level_names else None
        lod = LoD.checked("offsets", above, names)
        of_words = LoD.checked("offsets", [*above, offsets], names and [*names, None])
        return Hypotheses(LoDTensor(tokens, of_words), LoDTensor(scores, lod), LoDTensor(complete, lod))


#: The words of a block, and a number that divides that of blocks, which vectors of the CPU divide.
_BLOCK, _LANES = 64, 32


def best_words(before: Tensor, log_probs: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest of before[s, h] + log_probs[s * width + h, word] for every source s: scores, hypotheses h, words; all
    (sources, k), the largest first.

    The scores are read once, for the largest of each block of words; the k best are in the k blocks with the largest ones.
    """
    (sources, width), words = before.shape, log_probs.shape[1]
    blocks = _LANES * -(-words // (_LANES * _BLOCK))
    if width * blocks < 4 * k or words < 2 * blocks:
        top, index = (before[..., None] + log_probs.reshape(sources, width, words)).flatten(1).topk(k)
        return top, index // words, index % words
    # block b has the words b, b + blocks, b + 2 blocks ..., so that neighbours in memory are compared with neighbours
    size = words // blocks
    largest = log_probs[:, : size * blocks].unflatten(1, (size, blocks)).amax(1)
    rest = log_probs[:, size * blocks :]
    largest[:, : rest.shape[1]] = torch.maximum(largest[:, : rest.shape[1]], rest)
    index = (before[..., None] + largest.view(sources, width, blocks)).flatten(1).topk(k).indices
    hypothesis, block = index // blocks, index % blocks
    word = block[..., None] + blocks * torch.arange(size + 1, device=index.device)
    row = hypothesis + width * torch.arange(sources, device=index.device)[:, None]
    inside = word < words
    found = log_probs[row[..., None], word.clamp(max=words - 1)] + before.gather(1, hypothesis)[..., None]
    top, at = found.masked_fill(~inside, -torch.inf).flatten(1).topk(k)
    return top, hypothesis.gather(1, at // (size + 1)), word.flatten(1).gather(1, at)


def _check(what: str, tree: Any, count: int, of: str, k: int = 0, above: LoD | None = None) -> None:
    for i, leaf in enumerate(traverse(what, pytree.tree_leaves, tree)):
        if isinstance(leaf, Cache):
            if leaf.num_sequences() != count:
                raise LoDValueError(
                    f"expected {what} with a sequence for each of {count} {of}, got {leaf!r} at index {i}"
                )
        elif isinstance(leaf, LoDTensor):
            each_a_sequence(what, leaf, i, above, k, count)
        elif isinstance(leaf, Tensor):
            if leaf.dim() == 0 or leaf.shape[0] != count:
                raise LoDValueError(
                    f"expected {what} with a row for each of {count} {of}, got {tuple(leaf.shape)} at index {i}"
                )
            with_memory(leaf)


def _plain(t: Tensor) -> Tensor:
    """The rows, which are those of hypotheses now, whatever they were rows of."""
    return values_of(t).as_subclass(Tensor)


def _picked(tree: Any, index: Tensor, k: int = 0) -> Any:
    """The rows of the tensors, and the sequences of level k of the LoDTensors that have it, at `index`."""

    def picked(leaf):
        if isinstance(leaf, LoDTensor) and leaf.lod_level > k:
            return sequences_at(leaf, k, index.cpu())
        if isinstance(leaf, Cache):
            return taken(leaf, index)
        return _plain(leaf).index_select(0, upload(index, leaf.device)) if isinstance(leaf, Tensor) else leaf

    return pytree.tree_map(picked, tree)
