# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: torch.nn's parameters and numbers, on sequences that are never padded."""

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, public
from ..lod_tensor import LoDTensor, maybe_lod
from ..sequence import scan
from ..sequence._common import level_of

__all__ = ["GRU", "LSTM", "DynamicRNN", "last_state"]


class _Recurrent(torch.nn.Module):
    """What LSTM and GRU share. Parameters, their names, order and initialisation are those of torch.nn's modules; not a
    subclass of them, since Dynamo refuses to trace those."""

    blocks: int  # of hidden units in the weights

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
        *,
        level: int | str = -1,
    ):
        super().__init__()
        call = type(self).__name__
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
        for name, size in sizes.items():
            if type(size) is not int or size < 1:
                raise LoDValueError(f"{call}: expected {name} as an int of at least 1, got {size!r}")
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise LoDValueError(f"{call}: expected dropout in [0, 1], got {dropout!r}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.level = level
        for layer in range(num_layers):
            features = hidden_size * (1 + bidirectional) if layer else input_size
            for tail in self._tails(layer):
                shapes: dict[str, tuple] = {"weight_ih": (features,), "weight_hh": (hidden_size,)}
                shapes |= {"bias_ih": (), "bias_hh": ()} if bias else {}
                for name, columns in shapes.items():
                    empty = torch.empty(self.blocks * hidden_size, *columns, device=device, dtype=dtype)
                    setattr(self, f"{name}_{tail}", torch.nn.Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(hidden_size), as torch.nn's."""
        for weight in self.parameters():
            torch.nn.init.uniform_(weight, -(self.hidden_size**-0.5), self.hidden_size**-0.5)

    def _tails(self, layer: int) -> list[str]:
        return [f"l{layer}", *([f"l{layer}_reverse"] if self.bidirectional else [])]

    def extra_repr(self) -> str:
        shown = {"num_layers": 1, "bias": True, "dropout": 0.0, "bidirectional": False, "level": -1}
        rest = [f", {name}={getattr(self, name)!r}" for name, usual in shown.items() if getattr(self, name) != usual]
        return f"{self.input_size}, {self.hidden_size}{''.join(rest)}"

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
        values = x.values()
        finals: list[list[Tensor]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                values = torch.nn.functional.dropout(values, self.dropout)
            sides = []
            for back, tail in enumerate(self._tails(layer)):
                parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                weights = [getattr(self, f"{part}_{tail}", None) for part in parts]
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


class LSTM(_Recurrent):
    """torch.nn.LSTM for LoDTensors: same arguments, state_dict and numbers, every sequence by itself, nothing padded.

    Args:
        input_size, hidden_size, num_layers, bias, dropout, bidirectional, device, dtype: as torch.nn.LSTM. `batch_first` is
            accepted and has no meaning: there is neither a batch dim nor a time dim. `proj_size` must be 0.
        level: the level whose sequences the recurrence runs along, over all rows below it.
    """

    blocks = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        level: int | str = -1,
    ):
        if proj_size:
            raise LoDValueError(f"LSTM: expected proj_size 0, got {proj_size!r}: projections are not built")
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(*sizes, bias, batch_first, dropout, bidirectional, device, dtype, level=level)

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


class GRU(_Recurrent):
    """torch.nn.GRU for LoDTensors; arguments as `LSTM`."""

    blocks = 3

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
def last_state(h_n: Tensor, x: LoDTensor, level: int | str = -1, *, bidirectional: bool = False) -> Tensor:
    """The last layer's final states as rows, with the levels above `level` of x.

    Args:
        h_n: (num_layers * directions, sequences, hidden), as LSTM and GRU return it (for LSTM, h_n or c_n).
        x: what the layer ran on.
        bidirectional: whether it ran in both directions; their states then stand side by side.

    Returns:
        (sequences, hidden * directions).
    """
    k = level_of("last_state", x, level)
    if not isinstance(h_n, Tensor):
        raise LoDTypeError(f"last_state: expected h_n as a tensor, got {type(h_n).__name__}; of (h_n, c_n) pass one")
    if h_n.dim() != 3 or h_n.shape[1] != x.num_sequences(k):
        raise LoDValueError(
            f"last_state: expected h_n of shape (states, {x.num_sequences(k)}, hidden), got {tuple(h_n.shape)}"
        )
    last = h_n[-2:] if bidirectional else h_n[-1:]
    return maybe_lod(last.transpose(0, 1).flatten(1), x.lod.outer(k))


class DynamicRNN(torch.nn.Module):
    """`tl.scan` with a cell of its own: any module or function of (x_t, state), along the elements of a level.

    Args:
        cell: as scan's. The cells of torch.nn (LSTMCell, GRUCell, RNNCell) start from zeros if no `init` is given.
        level: whose sequences.
        reverse: from the last element to the first.

    Returns (forward(x, init=None, static=None)):
        outputs and the last state of every sequence, as scan does.

    Source: Paddle Fluid's DynamicRNN.
    """

    def __init__(self, cell, level: int | str = -1, reverse: bool = False):
        super().__init__()
        if not callable(cell):
            raise LoDTypeError(f"DynamicRNN: expected cell as a module or function, got {type(cell).__name__}")
        self.cell, self.level, self.reverse = cell, level, reverse

    def forward(self, x, init=None, static=None):
        if init is None:
            first = x[0] if isinstance(x, tuple) else x
            count = first.num_sequences(level_of("DynamicRNN", first, self.level))
            if not isinstance(self.cell, torch.nn.RNNCellBase):
                kind = type(self.cell).__name__
                raise LoDValueError(
                    f"DynamicRNN: expected init for a cell that is none of torch.nn's, got none for {kind}"
                )
            zeros = self.cell.weight_hh.new_zeros(count, self.cell.hidden_size)
            init = (zeros, zeros) if isinstance(self.cell, torch.nn.LSTMCell) else zeros
        return scan(self.cell, x, init, self.level, self.reverse, static)

    def extra_repr(self) -> str:
        return f"level={self.level!r}, reverse={self.reverse}"
