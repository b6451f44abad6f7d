# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: torch.nn's parameters and results, without padding."""

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, boundary, public, shown
from ..sequence import scan
from ..sequence.operator import along, autocast_dtype
from ..sequence.recur import Direction, run_layers
from ..structure.validate import one_of, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, unmoved
from .module import at_least_one, unusual

__all__ = ["GRU", "LSTM", "RNN", "DynamicRNN", "last_state"]
_MOST_LAYERS = 10_000  # more would never end


class _Recurrent(torch.nn.Module):
    """What LSTM, GRU and RNN share, with GRU's signature. Parameters, their names, order and initialisation are those
    of torch.nn's modules. It is no subclass of theirs, since Dynamo refuses to trace those."""

    cell: str
    blocks: int  # how many blocks of hidden units the weights have
    proj_size = 0

    @public
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
        with_memory(bias, bidirectional)
        at_least_one(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if num_layers > _MOST_LAYERS:
            raise LoDValueError(f"expected num_layers of at most {_MOST_LAYERS}, got {num_layers}")
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise LoDValueError(f"expected dropout in [0, 1], got {shown(dropout)}")
        if dropout and num_layers == 1:
            said = f"dropout={dropout} has no effect with num_layers=1: it is between layers"
            warnings.warn(f"{type(self).__name__}: {said}", stacklevel=3)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.level = level
        columns, gates = self.proj_size or hidden_size, self.blocks * hidden_size
        self._names: list[dict[str, str]] = []  # names of the weights, per direction of every layer
        for layer in range(num_layers):
            features = columns * (1 + bidirectional) if layer else input_size
            for tail in ("", "_reverse")[: 1 + bidirectional]:
                shapes: dict[str, tuple] = {"weight_ih": (gates, features), "weight_hh": (gates, columns)}
                shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)} if bias else {}
                shapes |= {"weight_hr": (columns, hidden_size)} if self.proj_size else {}
                self._names.append({name: f"{name}_l{layer}{tail}" for name in shapes})
                for name, shape in shapes.items():
                    empty = torch.empty(shape, device=device, dtype=dtype)
                    setattr(self, self._names[-1][name], torch.nn.Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(hidden_size), as torch.nn's."""
        for weight in self.parameters():
            torch.nn.init.uniform_(weight, -(self.hidden_size**-0.5), self.hidden_size**-0.5)

    def extra_repr(self) -> str:
        usual: dict[str, Any] = {"num_layers": 1, "bias": True, "dropout": 0.0, "bidirectional": False, "proj_size": 0}
        usual |= {"level": -1} | ({"nonlinearity": "tanh"} if hasattr(self, "nonlinearity") else {})
        return f"{self.input_size}, {self.hidden_size}{unusual(self, usual)}"

    def _weight(self, name: str) -> Tensor:
        found = self._parameters.get(name)  # half the time of getattr, which finds what a parametrization makes
        return getattr(self, name) if found is None else found

    def _run(self, input: LoDTensor, states: dict[str, Tensor | None]) -> tuple[LoDTensor, list[Tensor]]:
        s = along(input, self.level, "input")
        if s.rows.dim() != 2 or s.rows.shape[1] != self.input_size:
            raise LoDValueError(f"expected rows of input_size {self.input_size}, got {tuple(input.shape)}")
        for name, state in states.items():
            if state is None:
                continue
            columns = self.proj_size or self.hidden_size if name == "h_0" else self.hidden_size
            shape = (len(self._names), s.lod.num_sequences(s.k), columns)
            if not isinstance(state, Tensor):
                raise LoDTypeError(f"expected {name} as a tensor, got {type(state).__name__}")
            if isinstance(state, DerivedTensor) and state.rows_dim is None:  # at dim 1 they are where they belong
                unmoved(name, state)
            if tuple(state.shape) != shape:
                raise LoDValueError(f"expected {name} of shape {shape}, got {tuple(state.shape)}")
        weights = [Direction(**{part: self._weight(name) for part, name in names.items()}) for names in self._names]
        expected, given = weights[0].weight_ih.dtype, s.rows.dtype
        if given != expected and autocast_dtype(s.rows.device) is None:
            raise LoDTypeError(f"expected input of {expected}, as the weights, got {given}")
        dropout, initial = self.dropout if self.training else 0.0, list(states.values())
        rows, finals = run_layers(self.cell, s.rows, s.lod, s.k, weights, initial, self.bidirectional, dropout)
        return s.keep(rows), finals


class LSTM(_Recurrent):
    """torch.nn.LSTM for LoDTensors: same arguments, state_dict and results; each sequence separately, without padding.

    Args:
        input_size, hidden_size, num_layers, bias, dropout, bidirectional, proj_size, device, dtype: as torch.nn.LSTM.
            `batch_first` is accepted and has no meaning: there is neither a batch dim nor a time dim.
        level: the recurrence runs along the sequences of this level, over all their rows.
    """

    cell, blocks = "lstm", 4

    @public
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
        with_memory(hidden_size)
        if type(proj_size) is not int or proj_size < 0 or (proj_size and proj_size >= hidden_size):
            raise LoDValueError(f"expected proj_size from 0 to below hidden_size {hidden_size}, got {shown(proj_size)}")
        self.proj_size = proj_size
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(*sizes, bias, batch_first, dropout, bidirectional, device, dtype, level=level)

    @boundary(dispatch=False, rejects="lost")
    def forward(
        self, input: LoDTensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[LoDTensor, tuple[Tensor, Tensor]]:
        """
        Args:
            input: (rows, input_size).
            hx: h_0 and c_0, (num_layers * directions, sequences, hidden_size) each, in the order of the sequences; zeros
                if left out. With proj_size h_0 has as many columns.

        Returns:
            the outputs (rows, (proj_size or hidden_size) * directions) with the LoD of the input; and (h_n, c_n), plain
            tensors of torch's shapes. The final state of an empty sequence is its initial state; see also `last_state`.
        """
        if hx is not None and not (isinstance(hx, (tuple, list)) and len(hx) == 2):
            raise LoDTypeError(f"expected hx as (h_0, c_0), got {type(hx).__name__}")
        h_0, c_0 = (None, None) if hx is None else hx
        if (h_0 is None) != (c_0 is None):
            raise LoDTypeError("expected hx as (h_0, c_0), got one of them")
        out, (h_n, c_n) = self._run(input, {"h_0": h_0, "c_0": c_0})
        return out, (h_n, c_n)

    if TYPE_CHECKING:

        def __call__(
            self, input: LoDTensor, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[LoDTensor, tuple[Tensor, Tensor]]: ...


class _OneState(_Recurrent):
    """`forward` of layers whose state is their output."""

    @boundary(dispatch=False, rejects="lost")
    def forward(self, input: LoDTensor, hx: Tensor | None = None) -> tuple[LoDTensor, Tensor]:
        """
        Args:
            input: (rows, input_size).
            hx: h_0, (num_layers * directions, sequences, hidden_size); zeros if left out.

        Returns:
            the outputs (rows, hidden_size * directions) with the LoD of the input; and h_n, a plain tensor of torch's
            shape.
        """
        out, (h_n,) = self._run(input, {"h_0": hx})
        return out, h_n

    if TYPE_CHECKING:

        def __call__(self, input: LoDTensor, hx: Tensor | None = None) -> tuple[LoDTensor, Tensor]: ...


class GRU(_OneState):
    """torch.nn.GRU for LoDTensors; arguments as `LSTM`, without proj_size."""

    cell, blocks = "gru", 3


class RNN(_OneState):
    """torch.nn.RNN for LoDTensors; arguments as `LSTM`, without proj_size.

    Args:
        nonlinearity: tanh or relu.
    """

    blocks = 1

    @public
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
        *,
        level: int | str = -1,
    ):
        one_of("nonlinearity", nonlinearity, "tanh", "relu")
        sizes = (input_size, hidden_size, num_layers)
        super().__init__(*sizes, bias, batch_first, dropout, bidirectional, device, dtype, level=level)
        self.nonlinearity, self.cell = nonlinearity, f"rnn_{nonlinearity}"


@boundary(dispatch=False, rejects="lost")
def last_state(h_n: Tensor, x: LoDTensor, *, level: int | str = -1, bidirectional: bool = False) -> MaybeLoD:
    """The last layer's final states as rows, with the levels above `level` of x.

    Args:
        h_n: (num_layers * directions, sequences, hidden), as LSTM, GRU and RNN return it (for LSTM, h_n or c_n).
        x: the input of the layer.
        bidirectional: whether it ran in both directions; their states are then concatenated along the columns.

    Returns:
        (sequences, hidden * directions).
    """
    s = along(x, level)
    if not isinstance(h_n, Tensor):
        raise LoDTypeError(f"expected h_n as a tensor, got {type(h_n).__name__}; of (h_n, c_n) pass one")
    count = s.lod.num_sequences(s.k)
    if h_n.dim() != 3 or h_n.shape[1] != count:
        raise LoDValueError(f"expected h_n of shape (states, {count}, hidden), got {tuple(h_n.shape)}")
    last = h_n[-2:] if bidirectional else h_n[-1:]
    return s.pool(last.transpose(0, 1).flatten(1))


class DynamicRNN(torch.nn.Module):
    """`tl.scan` as a module that holds its cell: any module or function of (x_t, state), along the elements of a level.

    Args:
        cell: as scan's. The cells of torch.nn (LSTMCell, GRUCell, RNNCell) start from zeros if no `init` is given.
        level: the level whose sequences it runs along.
        reverse: from the last element to the first.

    Returns (forward(x, init=None, static=None)):
        outputs and the last state of every sequence, as scan does.

    Source: Paddle Fluid's DynamicRNN.
    """

    cell: Any  # a module or a function

    @public
    def __init__(self, cell, *, level: int | str = -1, reverse: bool = False):
        super().__init__()
        if not callable(cell):
            raise LoDTypeError(f"expected cell as a module or function, got {type(cell).__name__}")
        self.cell, self.level, self.reverse = cell, level, reverse

    @public
    def forward(self, x, init=None, static=None):
        """
        Args:
            x: a LoDTensor (rows, *element), or a tuple of LoDTensors of one LoD: what the cell gets at a step.
            init: the state before the first step, a row for each sequence of the level; zeros if left out, for the cells
                of torch.nn.
            static: tensors with a row for each sequence, that the cell gets at every step.

        Returns:
            the outputs with the LoD of x, and the last state of every sequence.
        """
        if init is None:
            first = x[0] if isinstance(x, tuple) else x
            s = along(first, self.level)
            if not isinstance(self.cell, torch.nn.RNNCellBase):
                kind = type(self.cell).__name__
                raise LoDValueError(f"expected init for a cell that is none of torch.nn's, got none for {kind}")
            zeros = self.cell.weight_hh.new_zeros(s.lod.num_sequences(s.k), self.cell.hidden_size)
            init = (zeros, zeros) if isinstance(self.cell, torch.nn.LSTMCell) else zeros
        return scan(self.cell, x, init, level=self.level, reverse=self.reverse, static=static)

    def extra_repr(self) -> str:
        return f"level={self.level!r}, reverse={self.reverse}"
