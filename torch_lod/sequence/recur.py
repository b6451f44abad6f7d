# SPDX-License-Identifier: Apache-2.0
"""The implementation of recurrent layers, for tl.nn's modules and for torch.nn's own on LoDTensors."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..structure.lod import LoD
from ..structure.partition import together
from .operator import autocast_dtype


class Direction(NamedTuple):
    """The weights of one direction of one layer, in torch.nn's order."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    weight_hr: Tensor | None = None


def run_layers(
    cell: str,
    rows: Tensor,
    lod: LoD,
    k: int,
    directions: list[Direction],
    states: list[Tensor | None],
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, list[Tensor]]:
    """Runs the layers along the sequences of level k. Runs without the table of torch's functions, so rows may be a LoDTensor.

    Args:
        cell: lstm, gru, rnn_tanh or rnn_relu.
        directions: those of all layers; two per layer with `bidirectional`.
        states: h_0 and for lstm c_0, (directions of all layers, sequences, columns) or None.
        dropout: between layers.

    Returns:
        the rows of the last layer, and the final states in the shapes of `states`.
    """
    offsets, device = lod.row_offsets_at(k), rows.device
    autocast = autocast_dtype(device)
    finals: list[list[Tensor]] = []
    ends = together(device, *((lod.end_rows_at, k, last) for last in (True, False)[: 1 + bidirectional]))
    for layer in range(len(directions) // (1 + bidirectional)):
        if layer and dropout:
            rows = torch.nn.functional.dropout(rows, dropout)
        if autocast is not None:
            rows = rows.to(autocast)
        sides = []
        for back in (False, True)[: 1 + bidirectional]:
            first: list[Any] = [t if t is None else _of(rows.dtype, t[len(finals)]) for t in states]
            weights = [_of(rows.dtype, t) for t in directions[len(finals)]]
            hidden, cells = _along(cell, rows, weights, first, offsets, back)
            end = ends[back]
            final = [ops.gather_rows(t, end) for t in (hidden, cells) if t is not None]
            if first[0] is not None and lod.any_empty_at(k):  # an empty sequence keeps its initial state
                final = [torch.where(end[:, None] < 0, a, b) for a, b in zip(first, final, strict=True)]
            finals.append(final)
            sides.append(hidden)
        rows = sides[0] if len(sides) == 1 else torch.cat(sides, 1)
    if len(finals) == 1:
        return rows, [state.unsqueeze(0) for state in finals[0]]
    return rows, [torch.stack(state) for state in zip(*finals, strict=True)]


def _of(dtype: torch.dtype, t: Tensor | None) -> Tensor | None:
    return t if t is None or t.dtype == dtype else t.to(dtype)


_OPERATORS = {"lstm": ops.lstm, "gru": ops.gru, "rnn_tanh": ops.rnn, "rnn_relu": ops.rnn}


def _along(
    cell: str, rows: Tensor, weights: list, first: list, offsets: Tensor, back: bool
) -> tuple[Tensor, Tensor | None]:
    """The state after every row, and for lstm the cells."""
    run: Any = _OPERATORS[cell]
    given = (rows, *weights[:4], *first, offsets, back)
    if cell == "lstm":
        return run(*given, weights[4])[:2]
    if cell == "gru":
        return run(*given)[0], None
    return run(*given, cell == "rnn_relu"), None
