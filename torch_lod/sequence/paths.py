# SPDX-License-Identifier: Apache-2.0
"""The implementation of linear-chain conditional random fields, for tl.nn's module and for Paddle's operators."""

import torch
from torch import Tensor

from .. import ops
from ..dynamo import failing, holds
from ..errors import LoDIndexError, LoDTypeError, LoDValueError
from ..structure.partition import together
from ..structure.validate import a_float, whole_dtype, with_memory
from ..tensor.lod_tensor import LoDTensor, rows_of, unmoved
from .operator import Along, along, autocast_dtype


def emissions(x, transition, level: int | str = -1, what: str = "x") -> Along:
    """The sequences of x, whose rows hold a score for every tag."""
    s = along(x, level, what)
    a_float(s.rows, what)
    if s.rows.dim() != 2 or not holds(s.rows.shape[1] >= 1):
        raise LoDValueError(f"expected {what} of shape (rows, tags), got {tuple(s.rows.shape)}")
    tags = s.rows.shape[1]
    if not isinstance(transition, Tensor):
        raise LoDTypeError(f"expected transition as a tensor, got {type(transition).__name__}")
    if transition.dim() != 2 or not holds(transition.shape[0] == tags + 2) or not holds(transition.shape[1] == tags):
        raise LoDValueError(
            f"expected transition of shape (tags + 2, tags), {(tags + 2, tags)} for {what} of {tags} tags, got "
            f"{tuple(transition.shape)}"
        )
    if transition.device != s.rows.device:
        raise LoDTypeError(f"expected transition on {s.rows.device}, as {what}, got one on {transition.device}")
    with_memory(s.rows, transition)
    return s


def tags_of(s: Along, given, what: str) -> Tensor:
    """A tag for every row, int64: of a LoDTensor with the structure of s, or of a plain tensor."""
    if not isinstance(given, Tensor):
        raise LoDTypeError(f"expected {what} as a tensor, got {type(given).__name__}")
    whole_dtype(what, given)
    with_memory(given)
    tags, count = _like_rows(s, given, what), s.rows.shape[1]
    if tags.dim() == 2 and tags.shape[1] == 1:
        tags = tags.squeeze(1)
    if tags.dim() != 1:
        raise LoDValueError(f"expected {what} of shape (rows,) or (rows, 1), got {tuple(tags.shape)}")
    tags = tags.to(torch.int64)
    for i in failing((tags < 0) | (tags >= count), f"linear_chain_crf: {what} hold a tag out of range"):
        sequence = int(torch.searchsorted(s.offsets, i, right=True)) - 1
        raise LoDIndexError(
            f"expected {what} in [0, {count - 1}], got {int(tags[i])} at position {i - int(s.offsets[sequence])} of "
            f"sequence {sequence}"
        )
    return tags if tags.is_cpu else tags.clamp(0, count - 1)  # on a GPU a later call raises


def allowed_of(s: Along, given, what: str) -> Tensor:
    """The tags that every row may have, bool, (rows, tags)."""
    with_memory(given)
    allowed = _like_rows(s, given, what)
    if allowed.shape != s.rows.shape:
        raise LoDValueError(f"expected {what} of shape (rows, tags), {tuple(s.rows.shape)}, got {tuple(allowed.shape)}")
    return allowed


def _like_rows(s: Along, given: Tensor, what: str) -> Tensor:
    if isinstance(given, LoDTensor):
        s.lod.agreed(given.lod)
        given = rows_of(given)
    unmoved(what, given)
    if given.dim() < 1 or not holds(given.shape[0] == s.lod.rows):
        raise LoDValueError(f"expected {what} with {s.lod.rows} rows, got shape {tuple(given.shape)}")
    if given.device != s.rows.device:
        raise LoDTypeError(f"expected {what} on {s.rows.device}, as the scores, got them on {given.device}")
    return given


def _wide(s: Along, transition: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and transitions in the dtype in which scores are added up: no half type."""
    dtype = torch.promote_types(torch.promote_types(s.rows.dtype, transition.dtype), torch.float32)
    return s.rows.to(dtype), transition.to(dtype)


def _as_scores(s: Along, t: Tensor) -> Tensor:
    """In the dtype of the scores; under autocast not in a half type, as torch's losses."""
    kept = s.rows.dtype.itemsize < 4 and autocast_dtype(s.rows.device) is not None
    return t if kept else t.to(s.rows.dtype)


def log_partition(s: Along, transition: Tensor) -> Tensor:
    """(sequences,)"""
    values, transition = _wide(s, transition)
    return _as_scores(s, ops.chain_logsumexp(values, transition, s.offsets)[0])


def loss(s: Along, transition: Tensor, tags: Tensor) -> Tensor:
    """The negative log-likelihood of every sequence's tags, (sequences,); or of the tags that a bool mask allows.

    What a tag adds to the score of its path is taken off all scores of its row, so that the loss is the logarithm of a sum
    itself and not a small difference of large numbers.
    """
    values, transition = _wide(s, transition)
    count = values.shape[1]
    offsets, sequence = together(values.device, (s.lod.row_offsets_at, s.k), (s.lod.segment_ids_at, s.k))
    if tags.dtype == torch.bool:
        some = torch.where(tags, values, float("-inf"))
        found = ops.chain_logsumexp(some, transition, offsets)[0]
        every = ops.chain_logsumexp(values, transition, offsets)[0]
        return _as_scores(s, torch.where(found == float("-inf"), float("inf"), every - found))
    edge = torch.ones_like(tags[:1], dtype=torch.bool)
    changes = sequence[1:] != sequence[:-1]
    begins, ends = torch.cat([edge, changes]), torch.cat([changes, edge])
    before = torch.where(begins, 0, tags.roll(1) + 2)  # the row of `transition`: start first
    score = values.gather(1, tags[:, None]).squeeze(1)
    score = score + transition.flatten().index_select(0, before * count + tags)
    score = score + torch.where(ends, transition[1].index_select(0, tags), 0)
    never = score == float("-inf")
    score = torch.where(never, 0, score)
    found = ops.chain_logsumexp(values - score[:, None], transition, offsets)[0]
    impossible = ops.segment_reduce(never.to(torch.int64), offsets, "max") > 0
    return _as_scores(s, torch.where(impossible, float("inf"), found))


def best(s: Along, transition: Tensor, n: int = 1) -> tuple[Tensor, Tensor]:
    """Scores (sequences, n) and tags (rows, n)."""
    values, transition = _wide(s, transition)
    scores, tags = ops.chain_argmax(values, transition, s.offsets, n)
    return _as_scores(s, scores), tags


def marginals(s: Along, transition: Tensor) -> Tensor:
    """The probability of every tag at every row, (rows, tags)."""
    values, transition = _wide(s, transition)
    return _as_scores(s, ops.chain_marginals(values, transition, s.offsets))


def drawn(s: Along, transition: Tensor, n: int, generator: torch.Generator | None) -> Tensor:
    """Paths drawn at random, (rows, n)."""
    values, transition = (t.detach() for t in _wide(s, transition))
    state = ops.chain_logsumexp(values, transition, s.offsets)[1]
    given: dict = (
        {} if generator is None else {"generator": generator}
    )  # a traced call takes no generator, not even None
    uniform = torch.rand(values.shape[0], n, dtype=state.dtype, device=state.device, **given)
    return ops.chain_sample(state, transition, s.offsets, uniform)
