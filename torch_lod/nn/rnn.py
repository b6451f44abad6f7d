# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: torch.nn's parameters and numbers, on sequences that are never padded."""

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, public
from ..lod_tensor import LoDTensor, maybe_lod
from ..sequence._common import level_of

__all__ = ["GRU", "LSTM", "last_state"]


class _Recurrent:
    """What LSTM and GRU share; the constructor, parameters and state_dict are those of the torch.nn module beside it."""

    input_size: int
    hidden_size: int
    num_layers: int
    proj_size: int
    bias: bool
    bidirectional: bool
    dropout: float
    training: bool

    def _set_level(self, level: int | str) -> None:
        if self.proj_size:
            raise LoDValueError(
                f"{type(self).__name__}: expected proj_size 0, got {self.proj_size}; projections are not built"
            )
        self.level = level

    def _check(self, x, states: dict[str, Tensor | None]) -> int:
        call = type(self).__name__
        k = level_of(call, x, self.level)
        if x.dim() != 2 or x.shape[1] != self.input_size:
            raise LoDValueError(f"{call}: expected rows of input_size {self.input_size}, got {tuple(x.shape)}")
        shape = (self.num_layers * (1 + self.bidirectional), x.num_sequences(k), self.hidden_size)
        for name, state in states.items():
            if state is None:
                continue
            if not isinstance(state, Tensor):
                raise LoDTypeError(f"{call}: expected {name} as a tensor, got {type(state).__name__}")
            if tuple(state.shape) != shape:
                raise LoDValueError(f"{call}: expected {name} of shape {shape}, got {tuple(state.shape)}")
        return k

    def _run(self, x: LoDTensor, k: int, direction) -> tuple[LoDTensor, list[list[Tensor]]]:
        """Layer after layer, both directions; `direction` runs one and returns its rows and final states."""
        values, finals = x.values(), list[list[Tensor]]()
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                values = torch.nn.functional.dropout(values, self.dropout)
            sides = []
            for back in range(1 + self.bidirectional):
                tail = f"_l{layer}{'_reverse' if back else ''}"
                weights = [getattr(self, f"weight_{part}{tail}") for part in ("ih", "hh")]
                weights += [getattr(self, f"bias_{part}{tail}") if self.bias else None for part in ("ih", "hh")]
                if torch.is_autocast_enabled(values.device.type):
                    dtype = torch.get_autocast_dtype(values.device.type)
                    values, weights = values.to(dtype), [t if t is None else t.to(dtype) for t in weights]
                rows, *states = direction(values, weights, len(finals), bool(back))
                sides.append(rows)
                finals.append(states)
            values = sides[0] if len(sides) == 1 else torch.cat(sides, 1)
        return LoDTensor(values, x.lod), finals

    @staticmethod
    def _final(rows: Tensor, x: LoDTensor, k: int, back: bool, initial: Tensor | None) -> Tensor:
        """The state after the last step of every sequence; an empty one keeps its initial state."""
        end = x.lod._end_rows(k, not back, x.device)
        state = ops.gather_rows(rows, end)
        if initial is not None and x.lod._any_empty(k):
            state = torch.where(end[:, None] < 0, initial.to(state.dtype), state)
        return state


class LSTM(_Recurrent, torch.nn.LSTM):
    """torch.nn.LSTM for LoDTensors: same constructor, state_dict and numbers, every sequence by itself, nothing padded.

    Args:
        input_size, hidden_size, num_layers, bias, dropout, bidirectional, device, dtype: as torch.nn.LSTM. `batch_first` is
            accepted and has no meaning: there is neither a batch dim nor a time dim. `proj_size` must be 0.
        level: the level whose sequences the recurrence runs along, over all rows below it.
    """

    def __init__(self, *args, level: int | str = -1, **kwargs):
        super().__init__(*args, **kwargs)
        self._set_level(level)

    @public
    def forward(self, input: LoDTensor, hx: tuple[Tensor, Tensor] | None = None):
        """
        Args:
            input: (rows, input_size).
            hx: h_0 and c_0, (num_layers * directions, sequences, hidden_size) each, in the order of the sequences; zeros
                if left out.

        Returns:
            the outputs (rows, hidden_size * directions) with the LoD of the input, and (h_n, c_n), plain, of torch's
            shapes. The final state of an empty sequence is its initial state; see also `last_state`.
        """
        if hx is not None and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise LoDTypeError(f"LSTM: expected hx as (h_0, c_0), got {type(hx).__name__}")
        h_0, c_0 = (None, None) if hx is None else hx
        k = self._check(input, {"h_0": h_0, "c_0": c_0})
        offsets = input.lod._row_offsets(k)

        def direction(values, weights, i, back):
            h, c = (None, None) if hx is None else (h_0[i].to(values.dtype), c_0[i].to(values.dtype))
            rows, cells, _ = ops.lstm(values, *weights, h, c, offsets, back)
            return rows, self._final(rows, input, k, back, h), self._final(cells, input, k, back, c)

        out, finals = self._run(input, k, direction)
        h_n, c_n = (torch.stack(states) for states in zip(*finals, strict=True))
        return out, (h_n, c_n)


class GRU(_Recurrent, torch.nn.GRU):
    """torch.nn.GRU for LoDTensors; arguments as `LSTM`."""

    def __init__(self, *args, level: int | str = -1, **kwargs):
        super().__init__(*args, **kwargs)
        self._set_level(level)

    @public
    def forward(self, input: LoDTensor, hx: Tensor | None = None):
        """
        Args:
            input: (rows, input_size).
            hx: h_0, (num_layers * directions, sequences, hidden_size); zeros if left out.

        Returns:
            the outputs (rows, hidden_size * directions) with the LoD of the input, and h_n, plain, of torch's shape.
        """
        k = self._check(input, {"h_0": hx})
        offsets = input.lod._row_offsets(k)

        def direction(values, weights, i, back):
            h = None if hx is None else hx[i].to(values.dtype)
            rows, _ = ops.gru(values, *weights, h, offsets, back)
            return rows, self._final(rows, input, k, back, h)

        out, finals = self._run(input, k, direction)
        return out, torch.stack([states[0] for states in finals])


@public
def last_state(h_n: Tensor, x: LoDTensor, level: int | str = -1) -> Tensor:
    """The last layer's final states as rows, directions side by side, with the levels above `level` of x.

    Args:
        h_n: (num_layers * directions, sequences, hidden), as LSTM and GRU return it (for LSTM, h_n or c_n).
        x: what the layer ran on.

    Returns:
        (sequences, hidden * directions); the directions are told from the number of states, so of a layer that ran in two
        directions pass the last two: `last_state(h_n[-2:], x)`. Otherwise `last_state(h_n[-1:], x)`.
    """
    k = level_of("last_state", x, level)
    if h_n.dim() != 3 or h_n.shape[1] != x.num_sequences(k):
        raise LoDValueError(
            f"last_state: expected h_n of shape (states, {x.num_sequences(k)}, hidden), got {tuple(h_n.shape)}"
        )
    return maybe_lod(h_n.transpose(0, 1).flatten(1), x.lod.outer(k))
