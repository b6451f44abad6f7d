# SPDX-License-Identifier: Apache-2.0
"""Fluid's beam search: a step of it and the way back; in torch's form it is `tl.BeamSearch`."""

from typing import Any

import torch
from torch import Tensor

from ..dynamo import failing, holds
from ..errors import LoDTypeError, LoDValueError
from ..sequence.operator import Along, along, one_column, sequence_operator
from ..structure.lod import LoD
from ..structure.validate import a_bool, filler, integer, sums, whole, whole_dtype, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor, made, rows_of, unmoved

__all__ = ["beam_search", "beam_search_decode"]


@sequence_operator
def beam_search(
    pre_ids: LoDTensor,
    pre_scores: Tensor,
    ids: Tensor | None,
    scores: Tensor,
    beam_size: int,
    end_id: int,
    *,
    level: int | str = 0,
    is_accumulated: bool = True,
    return_parent_idx: bool = False,
) -> tuple[Any, ...]:
    """The best continuations of the hypotheses of every source: one step of a beam search.

    The sequences of `level` are the sources, their rows the hypotheses so far. Of all continuations of all hypotheses of a
    source the beam_size best are selected. A hypothesis that has ended has one, which repeats end_id and keeps its score. A
    source of which nothing is selected but hypotheses that had ended before is finished, and has no rows any more.

    Args:
        pre_ids: the last word of every hypothesis, of an integer dtype, (rows,) or (rows, 1).
        pre_scores: their scores, (rows,) or (rows, 1), of a floating dtype.
        ids: the words of the continuations, (rows, candidates), of an integer dtype; None: the number of the column.
        scores: (rows, candidates), of a floating dtype; of hypothesis and word together, or, with is_accumulated=False, the
            probability of the word, whose logarithm is added to pre_scores.
        beam_size: how many continuations of a source are selected.
        end_id: the word that ends a hypothesis.
        level: the level of the sources, the outermost if not given.
        return_parent_idx: also return of which row every selected row is the continuation.

    Returns:
        selected_ids and selected_scores, (selected rows,), and parent_idx (int64) if wanted. In the LoD a source has its
        rows in pre_ids, each of these its continuations, the best first; the levels above `level` stay. Of equal scores
        either may be selected. The gradient goes to the scores selected. Make it the next step's pre_ids as it is.

    Raises:
        ValueError: where shapes or LoDs do not fit together, or for a score that is not a number (NaN); the message names
            sequence and position.

    Source: Paddle Fluid's beam_search.
    """
    s = along(pre_ids, level, "pre_ids")
    beam_size, end_id = integer("beam_size", beam_size), whole("end_id", end_id)
    last = one_column("pre_ids", pre_ids)
    words, scores, before = _candidates(s, last, pre_scores, ids, scores)
    filler("end_id", end_id, last.dtype)
    filler("end_id", end_id, torch.int64 if words is None else words.dtype)
    a_bool("is_accumulated", is_accumulated)
    a_bool("return_parent_idx", return_parent_idx)
    ended = last == end_id
    given, column = scores.topk(min(beam_size, scores.shape[1]), 1)  # of a hypothesis no more are selected
    top = given if is_accumulated else _in_all(given, before[:, None])
    choice = column if words is None else words.gather(1, column)
    if column.shape[1]:  # a hypothesis that has ended has its first candidate only, which is itself
        alone = torch.arange(column.shape[1], device=top.device) == 0
        top = torch.where(ended[:, None] & alone, before[:, None], top)
        choice = torch.where(ended[:, None], end_id, choice)
        possible = alone | ~ended[:, None]
    else:
        possible = torch.zeros_like(top, dtype=torch.bool)
    for bad in failing((top.isnan() & possible).any(1), "beam_search: a score is not a number"):
        hint = "" if is_accumulated else "; with is_accumulated=False they are probabilities"
        raise LoDValueError(f"expected scores that are numbers, got nan at {_place(s, bad)}{hint}")
    source = s.lod.segment_ids_at(s.k, top.device)
    kept = _best(top.detach(), possible, source, s, beam_size)
    row = kept // max(1, column.shape[1])
    goes_on = s.offsets.new_zeros(s.lod.num_sequences(s.k), dtype=torch.bool)
    goes_on = goes_on.index_put((source[row],), ~ended[row], accumulate=True)
    alive = goes_on[source[row]].nonzero().flatten()
    kept, row = kept[alive], row[alive]
    lod = _continued(s, row)
    # of the scores selected alone: the logarithm of another chance may be that of 0, whose slope is no number
    best, done = given.flatten()[kept], ended[row]
    if not is_accumulated:
        best = _in_all(torch.where(done, 1, best), before[row])
    selected = made(choice.flatten()[kept], lod), made(torch.where(done, before[row], best), lod)
    return (*selected, row) if return_parent_idx else selected


def _in_all(chances: Tensor, before: Tensor) -> Tensor:
    """The scores of hypotheses that go on with words of these probabilities."""
    return (chances.to(torch.promote_types(chances.dtype, torch.float32)).log() + before).to(chances.dtype)


def _candidates(s: Along, last: Tensor, pre_scores, ids, scores) -> tuple[Tensor | None, Tensor, Tensor]:
    """The words (rows, candidates) if there are any, the scores, and the scores so far (rows,)."""
    for what, t in (("pre_scores", pre_scores), ("ids", ids), ("scores", scores)):
        if t is None and what == "ids":
            continue
        if not isinstance(t, Tensor):
            raise LoDTypeError(f"expected {what} as a tensor, got {type(t).__name__}")
        unmoved(what, t)
        if isinstance(t, LoDTensor) and t.lod.differs(s.lod):
            raise LoDValueError(
                f"expected {what} with the LoD of pre_ids, got LoDs that differ: {s.lod.difference(t.lod)}"
            )
        if t.device != last.device:
            raise LoDTypeError(f"expected {what} on {last.device}, as pre_ids, got one on {t.device}")
    with_data("scores", scores)
    with_memory(pre_scores, ids, scores)
    rows, table, before = last.shape[0], rows_of(scores), rows_of(pre_scores)
    if not table.is_floating_point():
        raise LoDTypeError(f"expected scores of a floating dtype, got {table.dtype}")
    if table.dim() != 2 or not holds(table.shape[0] == rows):
        raise LoDValueError(f"expected scores of shape ({rows}, candidates), got {tuple(table.shape)}")
    if not before.is_floating_point():
        raise LoDTypeError(f"expected pre_scores of a floating dtype, got {before.dtype}")
    if before.dim() not in (1, 2) or not holds(before.shape[0] == rows) or before.shape[1:] not in ((), (1,)):
        raise LoDValueError(f"expected pre_scores of shape ({rows},) or ({rows}, 1), got {tuple(before.shape)}")
    before = before.reshape(-1)
    dtype = torch.promote_types(table.dtype, before.dtype)
    table, before = table.to(dtype), before.to(dtype)
    if ids is None:
        return None, table, before
    whole_dtype("ids", ids)
    if ids.shape != table.shape:
        raise LoDValueError(f"expected ids of the shape of scores, {tuple(table.shape)}, got {tuple(ids.shape)}")
    return rows_of(ids), table, before


def _place(s: Along, row: int) -> str:
    offsets = s.offsets.cpu()
    sequence = int(torch.searchsorted(offsets, row, right=True)) - 1
    return f"position {row - int(offsets[sequence])} of sequence {sequence}"


def _best(top: Tensor, possible: Tensor, source: Tensor, s: Along, beam_size: int) -> Tensor:
    """The numbers of the entries of `top` that are among the best of their source, in their own order."""
    entries = possible.flatten().nonzero().flatten()
    of = source[entries // max(1, top.shape[1])]
    order = top.flatten()[entries].argsort(descending=True, stable=True)
    order = order[of[order].argsort(stable=True)]
    count = torch.zeros(s.lod.num_sequences(s.k), dtype=torch.int64, device=top.device)
    count = count.index_put((of,), torch.ones_like(of), accumulate=True)
    first = count.cumsum(0) - count
    within = torch.arange(order.shape[0], device=top.device) - first[of[order]]
    return entries[order[within < beam_size].sort().values]


def _continued(s: Along, row: Tensor) -> LoD:
    """Sources, their rows, and of every row its continuations; `row` has the row of each."""
    children = torch.zeros(s.rows.shape[0], dtype=torch.int64, device=row.device)
    children = children.index_put((row,), torch.ones_like(row), accumulate=True)
    levels = [*s.lod.levels[: s.k], s.lod.row_offsets_at(s.k), sums(children.cpu())]
    names = None
    if s.lod.level_names:
        names = [*s.lod.level_names[: s.k + 1], s.lod.level_names[s.k + 1] if s.k + 2 == s.lod.depth else None]
    return LoD.checked("offsets", levels, names)


@sequence_operator
def beam_search_decode(
    ids: list[LoDTensor], scores: list[LoDTensor], beam_size: int, end_id: int
) -> tuple[LoDTensor, LoDTensor]:
    """The hypotheses that a beam search ended with, word by word, from what `beam_search` selected at every step.

    The hypotheses of a source are those of the last step at which it has rows. Of the words end_id of a hypothesis only one
    that is its last is kept.

    Args:
        ids: for every step the words selected, of an integer dtype, (rows,) or (rows, 1), with the levels source and
            hypothesis, and any above. The hypotheses of a step are the rows of the step before; those of the first step
            may be anything.
        scores: for every step the scores of these words, with the same LoDs.
        beam_size: how many hypotheses of a source are returned at most, the best.
        end_id: the word that ends a hypothesis.

    Returns:
        the words (rows,) and the scores of every word (rows,), with the levels source, hypothesis (the best last score
        first) and the levels above. The gradient goes to the scores.

    Raises:
        ValueError: where a step does not continue the rows of the step before it, LoDs differ, or a last score is not a
            number (NaN); the message names the step.

    Source: Paddle Fluid's beam_search_decode.
    """
    beam_size, end_id = integer("beam_size", beam_size), whole("end_id", end_id)
    words, values, lods = _steps(ids, scores)
    with_data("ids", words[0])
    filler("end_id", end_id, words[0].dtype)
    k, device = lods[0].depth - 2, values[0].device
    sources = lods[0].num_sequences(k)
    source = row = torch.zeros(0, dtype=torch.int64, device=device)  # of every hypothesis
    seen = torch.zeros(sources, dtype=torch.bool, device=device)
    final, found = [], []
    for step in range(len(words) - 1, -1, -1):
        lod = lods[step]
        of = lod.segment_ids_at(k, device)
        new = (~seen)[of].nonzero().flatten()  # of sources that have no rows at later steps
        final.append(values[step][new])
        for bad in failing(final[-1].isnan(), "beam_search_decode: a score is not a number"):
            raise LoDValueError(f"expected scores that are numbers, got nan at row {int(new[bad])} of step {step}")
        fresh = torch.arange(row.shape[0] + new.shape[0], device=device) >= row.shape[0]
        source, row = torch.cat([source, of[new]]), torch.cat([row, new])
        seen = seen.index_fill(0, of, True)
        kept = ((words[step][row] != end_id) | fresh).nonzero().flatten()
        found.append((kept, words[step][row[kept]], values[step][row[kept]]))
        row = lod.segment_ids_at(k + 1, device)[row]
    hypothesis, word, score = (torch.cat(parts) for parts in zip(*found[::-1], strict=True))
    order = torch.cat(final).detach().argsort(descending=True, stable=True)
    order = order[source[order].argsort(stable=True)]
    count = torch.zeros(sources, dtype=torch.int64, device=device)
    count = count.index_put((source,), torch.ones_like(source), accumulate=True)
    within = torch.arange(order.shape[0], device=device) - (count.cumsum(0) - count)[source[order]]
    order = order[within < beam_size]
    place = torch.full_like(source, -1).index_put((order,), torch.arange(order.shape[0], device=device))
    mine = (place[hypothesis] >= 0).nonzero().flatten()
    mine = mine[place[hypothesis[mine]].argsort(stable=True)]
    lengths = torch.zeros_like(order).index_put((place[hypothesis[mine]],), torch.ones_like(mine), accumulate=True)
    levels = [*lods[0].levels[:k], sums(count.clamp(max=beam_size).cpu()), sums(lengths.cpu())]
    lod = LoD.checked("offsets", levels, lods[0].level_names)
    return made(word[mine], lod), made(score[mine], lod)


def _steps(ids, scores) -> tuple[list[Tensor], list[Tensor], list[LoD]]:
    """Words, scores and structure of every step, which fit together."""
    for what, given in (("ids", ids), ("scores", scores)):
        if not isinstance(given, (list, tuple)):
            raise LoDTypeError(f"expected {what} as a list of LoDTensors, got {type(given).__name__}")
        if len(given) == 0:
            raise LoDValueError(f"expected {what} of at least 1 step, got none")
    if len(ids) != len(scores):
        raise LoDValueError(f"expected scores of the {len(ids)} steps of ids, got {len(scores)}")
    words, values, lods = [], [], []
    for step, (w, v) in enumerate(zip(ids, scores, strict=True)):
        lod = a_lod_tensor(f"ids[{step}]", w).lod
        words.append(one_column(f"ids[{step}]", w))
        value = rows_of(a_lod_tensor(f"scores[{step}]", v))
        with_memory(value)
        if v.lod.differs(lod):
            raise LoDValueError(
                f"expected scores with the LoDs of ids, got LoDs that differ at step {step}: {lod.difference(v.lod)}"
            )
        if not value.is_floating_point():
            raise LoDTypeError(f"expected scores of a floating dtype, got {value.dtype} at step {step}")
        if value.dim() not in (1, 2) or value.shape[1:] not in ((), (1,)):
            raise LoDValueError(
                f"expected scores of shape (rows,) or (rows, 1), got {tuple(value.shape)} at step {step}"
            )
        values.append(value.reshape(-1))
        lods.append(lod)
        first = lods[0]
        if lod.depth < 2 or lod.depth != first.depth:
            raise LoDValueError(
                f"expected ids with levels of sources and hypotheses, as many at every step, got {lod.depth} at step {step}"
            )
        if words[-1].dtype != words[0].dtype:
            raise LoDTypeError(f"expected ids of one dtype, got {words[-1].dtype} at step {step}")
        if words[-1].device != words[0].device or values[-1].device != words[0].device:
            raise LoDTypeError(f"expected steps on {words[0].device}, got {value.device} at step {step}")
        if step:
            _continues(lods[-2], lod, step)
    return words, values, lods


def _continues(before: LoD, lod: LoD, step: int) -> None:
    """ValueError unless the hypotheses of a step are the rows of the step before."""
    k = lod.depth - 2
    above, same = lod.outer_at(k), before.outer_at(k)
    if above is not None and same is not None and above.differs(same):
        raise LoDValueError(f"expected ids with the levels above the sources of step 0, got others at step {step}")
    rows = before.row_offsets_at(k)
    own = lod.levels[k]
    if not holds(rows.shape[0] == own.shape[0]):
        raise LoDValueError(f"expected {rows.shape[0] - 1} sources, got {own.shape[0] - 1} at step {step}")
    for i in failing(rows != own, "beam_search_decode: a step does not continue the rows of the step before"):
        raise LoDValueError(
            f"expected as many hypotheses as rows at the step before, {int(rows[i] - rows[i - 1])}, got "
            f"{int(own[i] - own[i - 1])} for source {i - 1} at step {step}"
        )
