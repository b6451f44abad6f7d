# SPDX-License-Identifier: Apache-2.0
"""What must not happen to some rows of a batch: rows of one sequence are not combined with rows of another."""

import torch
from torch import Tensor

from ...errors import LoDValueError, named
from ...structure.validate import as_int
from ..provenance import Provenance, provenance_of
from .arguments import OUT, name_of
from .indices import tensors_of

LOOP = (
    "integers and slices index the rows of the whole batch; along each sequence: tl.scan(cell, x) or tl.nn.LSTM, for neighbours "
    f"tl.sequence_shift, for one sequence after the other x.sequences(); {OUT}"
)
_CATS = ("cat", "concat", "concatenate")


def refuse_other_sequence(func, kind: str | None, args, kwargs, one: Provenance, other: Provenance) -> None:
    """Raises if some rows of one sequence and some of another are combined, by a function of that kind: a loop along the rows
    would go on from the last row of a sequence to the first of the next one."""
    if one.part is None or other.part is None or one.part == other.part:
        return
    if kind not in ("join", "matmul") and not (name_of(func) in _CATS and _side_by_side(args, kwargs)):
        return
    offsets = one.lod.levels[-1]
    begin, end = min(one.part[0], other.part[0]), max(one.part[1], other.part[1])
    after = int(torch.searchsorted(offsets, begin, right=True))
    if after < offsets.shape[0] and end <= int(offsets[after]):
        return
    rows = [f"row {a}" if b - a == 1 else f"rows {a} to {b}" for a, b in (one.part, other.part)]
    raise named(LoDValueError(f"expected rows of one sequence, got {rows[0]} and {rows[1]}: {LOOP}"), name_of(func))


def _side_by_side(args, kwargs) -> bool:
    """Whether cat puts features of rows side by side, and not rows below one another."""
    tensors = tensors_of(args, kwargs)
    dim = as_int(args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("axis", 0)))
    if not all(isinstance(t, Tensor) and t.dim() for t in tensors) or not isinstance(dim, int):
        return False
    origins = [provenance_of(t) for t in tensors]
    if any(m is not None and m.dim is not None and m.dim in (dim, dim + t.dim()) for m, t in zip(origins, tensors)):
        return False
    return any(-t.dim() <= dim < t.dim() and t.shape[dim] != 1 for t in tensors)
