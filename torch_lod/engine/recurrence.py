# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers below their two faces, tl.nn's modules and torch.nn's own on LoDTensors."""

from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..tensor import LoDTensor

_OPERATORS: dict[str, Any] = {"lstm": ops.lstm, "gru": ops.gru, "rnn_tanh": ops.rnn, "rnn_relu": ops.rnn}


def run_layers(
    cell: str,
    x: LoDTensor,
    k: int,
    weights: list[list[Tensor | None]],
    states: list[Tensor | None],
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> tuple[LoDTensor, list[Tensor]]:
    """Layer after layer, both directions, along the sequences of level k.

    Args:
        cell: lstm, gru, rnn_tanh or rnn_relu.
        weights: for every direction of every layer weight_ih, weight_hh, bias_ih, bias_hh, weight_hr.
        states: h_0 and for lstm c_0, (directions of all layers, sequences, columns) or None.
        dropout: between layers.

    Returns:
        the outputs of the last layer, and the final states in the shapes of `states`.
    """
    values, offsets = x.values(), x.lod.row_offsets_at(k)
    finals: list[list[Tensor]] = []
    for layer in range(len(weights) // (1 + bidirectional)):
        if layer and dropout:
            values = torch.nn.functional.dropout(values, dropout)
        if torch.is_autocast_enabled(values.device.type):
            values = values.to(torch.get_autocast_dtype(values.device.type))
        sides = []
        for back in (False, True)[: 1 + bidirectional]:
            *layer_weights, weight_hr = (t if t is None else t.to(values.dtype) for t in weights[len(finals)])
            first = [t if t is None else t[len(finals)].to(values.dtype) for t in states]
            args = [values, *layer_weights, *first, offsets, back]
            args += [weight_hr] if cell == "lstm" else [] if cell == "gru" else [cell == "rnn_relu"]
            rows = _OPERATORS[cell](*args)
            rows = (rows,) if isinstance(rows, Tensor) else rows[: len(first)]
            finals.append([_final(r, x, k, back, initial) for r, initial in zip(rows, first, strict=True)])
            sides.append(rows[0])
        values = sides[0] if len(sides) == 1 else torch.cat(sides, 1)
    return LoDTensor(values, x.lod), [torch.stack(state) for state in zip(*finals, strict=True)]


def _final(rows: Tensor, x: LoDTensor, k: int, back: bool, initial: Tensor | None) -> Tensor:
    """The state after the last step of every sequence; an empty one keeps its initial state."""
    end = x.lod.end_rows_at(k, not back, x.device)
    state = ops.gather_rows(rows, end)
    if initial is not None and x.lod.any_empty_at(k):
        state = torch.where(end[:, None] < 0, initial.to(state.dtype), state)
    return state
