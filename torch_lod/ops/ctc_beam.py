# SPDX-License-Identifier: Apache-2.0
"""The search for the most probable labelings in logarithms, a row of all sequences at a time, in float64."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from . import check
from .library import operator

__all__ = [
    "ctc_beam",
]


#: Of every prefix given the logarithms that are added where a class extends it, (prefixes, classes).
Model = Callable[[list[tuple[int, ...]]], Tensor]


class _Prefixes:
    """Every prefix that was reached has a number, the empty one 0."""

    def __init__(self) -> None:
        self.labels: list[tuple[int, ...]] = [()]
        self.numbers: dict[tuple[int, ...], int] = {(): 0}

    def extended(self, prefix: int, label: int) -> int:
        labels = (*self.labels[prefix], label)
        number = self.numbers.setdefault(labels, len(self.labels))
        if number == len(self.labels):
            self.labels.append(labels)
        return number


class _Scored:
    """What a model adds, asked once for a prefix while that is in a beam."""

    def __init__(self, model: Model, prefixes: _Prefixes):
        self.model, self.prefixes = model, prefixes
        self.rows: dict[int, int] = {}
        self.table: Tensor | None = None

    def of(self, numbers: Tensor, there: Tensor) -> Tensor:
        needed = numbers[there].unique().tolist()
        new = [i for i in needed if i not in self.rows]
        parts = [self.model([self.prefixes.labels[i] for i in new])] if new else []
        kept = [i for i in needed if i in self.rows]
        if kept and self.table is not None:
            parts.insert(0, self.table[[self.rows[i] for i in kept]])
        if not parts:
            return numbers.new_zeros(*numbers.shape, 1, dtype=torch.float64)
        self.table = torch.cat(parts)
        self.rows = {i: row for row, i in enumerate([*kept, *new])}
        places = [self.rows.get(i, 0) for i in numbers.flatten().tolist()]
        return self.table[torch.tensor(places, device=numbers.device)].unflatten(0, numbers.shape)


class _Beam:
    """Prefixes (sequences, width), the best first; -inf for none. Logarithms of the probabilities of the paths that end in a
    blank, and in the last label."""

    def __init__(self, sequences: int, device: torch.device):
        self.blank = torch.zeros(sequences, 1, dtype=torch.float64, device=device)
        self.label = torch.full_like(self.blank, -math.inf)
        self.number = torch.zeros(sequences, 1, dtype=torch.int64, device=device)
        self.parent, self.last = torch.full_like(self.number, -1), torch.full_like(self.number, -1)

    def part(self, on: Tensor) -> list[Tensor]:
        return [t[on] for t in (self.blank, self.label, self.number, self.parent, self.last)]

    def put(self, on: Tensor, parts: list[Tensor]) -> None:
        names = {"blank": -math.inf, "label": -math.inf, "number": 0, "parent": -1, "last": -1}
        for (name, fill), new in zip(names.items(), parts):
            old = getattr(self, name)
            width = max(old.shape[1], new.shape[1])
            old = F.pad(old, (0, width - old.shape[1]), value=fill)
            old[on] = F.pad(new, (0, width - new.shape[1]), value=fill)
            setattr(self, name, old)


def _advance(parts, scores, extends, blank, beam, prefixes, added) -> list[Tensor]:
    """The beams of some sequences after a row of scores (sequences, classes), by which classes in `extends` extend."""
    of_blank, of_label, number, parent, last = parts
    width, classes = last.shape[1], scores.shape[1]
    total = torch.logaddexp(of_blank, of_label)
    on_last = torch.where(last < 0, -math.inf, scores.gather(1, last.clamp(min=0)))
    stay_blank, stay_label = total + scores[:, blank, None], of_label + on_last
    repeated = torch.arange(classes, device=last.device) == last[..., None]
    longer = torch.where(repeated, of_blank[..., None], total[..., None]) + scores[:, None]
    if added is not None:
        longer = longer + added
    longer = torch.where(extends[:, None], longer, -math.inf)
    # a prefix that the beam has already takes what the extension of its parent adds
    there = total > -math.inf
    numbers, place = torch.where(there, number, -2).sort(dim=1)
    at = torch.searchsorted(numbers, parent).clamp(max=width - 1)
    s, j = ((numbers.gather(1, at) == parent) & there & (last >= 0)).nonzero(as_tuple=True)
    i = place[s, at[s, j]]
    stay_label[s, j] = torch.logaddexp(stay_label[s, j], longer[s, i, last[s, j]])
    longer[s, i, last[s, j]] = -math.inf
    all_of_them = torch.cat([torch.logaddexp(stay_blank, stay_label), longer.flatten(1)], 1)
    best, order = all_of_them.sort(dim=1, descending=True, stable=True)
    keep = min(beam, max(1, int((best > -math.inf).sum(1).max())))
    best, order = best[:, :keep], order[:, :keep]
    stays = order < width
    slot = torch.where(stays, order, (order - width) // classes)
    of_blank, of_label, number, parent, last = (
        t.gather(1, slot) for t in (stay_blank, stay_label, number, parent, last)
    )
    label = torch.where(stays, last, (order - width) % classes)
    parent = torch.where(stays, parent, number)
    s, j = (~stays & (best > -math.inf)).nonzero(as_tuple=True)
    new = [prefixes.extended(*both) for both in zip(parent[s, j].tolist(), label[s, j].tolist())]
    number[s, j] = number.new_tensor(new)
    return [torch.where(stays, of_blank, -math.inf), torch.where(stays, of_label, best), number, parent, label]


def search(values, row_offsets, blank, beam, n, threshold, model: Model | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """What `ctc_beam` returns. A model adds to the score of a prefix where it is extended."""
    rows, device, count = values.shape[0], values.device, row_offsets.shape[0] - 1
    labels = torch.full((rows, n), -1, dtype=torch.int64, device=device)
    lengths = torch.full((count, n), -1, dtype=torch.int64, device=device)
    if check.has_no_data(row_offsets) or count == 0:
        return labels, lengths, values.new_empty(count, n)
    log_probs = values.detach().double().log_softmax(1)
    extends = (log_probs >= (math.log(threshold) if threshold else -math.inf)) | (values == values.amax(1, True))
    extends[:, blank] = False
    starts = row_offsets[:-1]
    of = torch.repeat_interleave(row_offsets.diff(), output_size=rows)
    broken = torch.zeros(count, device=device).index_add(0, of, log_probs.isnan().any(1).float()) > 0
    steps = torch.where(broken, 0, row_offsets.diff())
    found, prefixes = _Beam(count, device), _Prefixes()
    scored = None if model is None else _Scored(model, prefixes)
    for t in range(int(steps.max())):
        on = (t < steps).nonzero()[:, 0]
        parts, row = found.part(on), starts[on] + t
        added = scored.of(parts[2], torch.maximum(parts[0], parts[1]) > -math.inf) if scored else None
        found.put(on, _advance(parts, log_probs[row], extends[row], blank, beam, prefixes, added))
    total = torch.logaddexp(found.blank, found.label)[:, :n]
    total = torch.where(broken[:, None], math.nan, F.pad(total, (0, n - total.shape[1]), value=-math.inf))
    total[:, 1:] = torch.where(broken[:, None], -math.inf, total[:, 1:])
    for s, j in (total != -math.inf).nonzero().tolist():
        own = [] if broken[s] else prefixes.labels[int(found.number[s, j])]
        lengths[s, j] = len(own)
        labels[starts[s] : starts[s] + len(own), j] = torch.tensor(own, dtype=torch.int64, device=device)
    return labels, lengths, total.to(values.dtype)


@operator
def ctc_beam(
    values: Tensor, row_offsets: Tensor, blank: int = 0, beam: int = 10, n: int = 1, threshold: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The n most probable labelings of every segment, by prefix beam search over all alignments, with the softmax inside.

    Args:
        values, row_offsets, blank: as for `ctc_loss`; fewer than 2**31 classes.
        beam: how many prefixes go on after a row, at most 2**20.
        n: how many labelings there are, at most `beam`.
        threshold: a class less probable than this in a row extends no prefix there, unless it is the most probable one.

    Returns:
        int64 (rows, n), in column j of the first rows of a segment the labels of its labeling j, then -1; int64 (segments,
        n), how many labels, -1 where there are fewer labelings; and (segments, n), their log-probabilities, best first, -inf
        where there are fewer, in the dtype of values. None has a gradient. Probabilities are in double precision with
        exponents of their own, whatever that dtype. A segment without rows has the empty labeling with the score 0, one with a row
        whose softmax is NaN has it with NaN. Takes memory linear in rows times beam of one segment per thread.

    Source: Graves, "Sequence Transduction with Recurrent Neural Networks", 2012; Hannun et al., "First-Pass Large
    Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent DNNs", 2014, algorithm 1.
    """
    op = "ctc_beam"
    check.segments(op, values, row_offsets)
    check.is_floating(op, "values", values)
    if values.dim() != 2:
        raise ValueError(f"{op}: expected values of shape (rows, classes), got {values.dim()} dimensions")
    classes = values.shape[1]
    if not 0 <= blank < classes:
        raise ValueError(f"{op}: expected blank as one of {classes} classes, got {blank}")
    if classes >= 2**31:
        raise ValueError(f"{op}: expected fewer than 2**31 classes, got {classes}")
    if not 1 <= beam <= 2**20:
        raise ValueError(f"{op}: expected beam in [1, 2**20], got {beam}")
    if not 1 <= n <= beam:
        raise ValueError(f"{op}: expected n in [1, {beam}], as the beam, got {n}")
    if not 0 <= threshold <= 1:
        raise ValueError(f"{op}: expected threshold in [0, 1], got {threshold:g}")
    check.offsets(op, row_offsets, values.shape[0])
    if check.is_batched(values):
        raise ValueError(
            f"{op}: expected values that can be read, got a batch of torch.vmap; loop over the batch instead"
        )
    return search(values, row_offsets, blank, beam, n, threshold)
