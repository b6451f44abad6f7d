# SPDX-License-Identifier: Apache-2.0
"""torch.lstm, gru, rnn_tanh and rnn_relu, which torch.nn's recurrent modules call: along every innermost sequence."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..engine.recurrence import Direction, run_layers
from ..errors import LoDTypeError, LoDValueError
from ..lod import LoD
from ..moved_rows import moved_rows
from ..sequence_operator import along
from ..tensor import LoDTensor, made
from .routes import at_dim, route, structured


def _recurrence(kind: str, count: int):
    def along_sequences(
        input, hx, params, has_biases, num_layers, dropout=0.0, train=False, bidirectional=False, batch_first=False
    ):
        """Without a batch dim, or with a batch of one, the rows are the steps of the innermost sequences. In a batch
        (rows, steps, features) every row is a sequence of its own, as with plain tensors. States are (layers, sequences,
        width) in every layout."""
        if isinstance(has_biases, (tuple, list)):  # the PackedSequence overload
            raise LoDTypeError("expected a LoDTensor as input, got a PackedSequence of one; pass the LoDTensor itself")
        if not structured(input):
            raise LoDTypeError(
                f"expected a LoDTensor as input, got {type(input).__name__}, and a LoDTensor among the others"
            )
        states = [getattr(t, _STATES, t) for t in (hx if count == 2 else [hx])]
        _refuse_structured("initial states", states)
        _refuse_structured("weights", params)
        if len(states) != count or type(num_layers) is not int or not 0 < num_layers <= len(params):
            raise LoDValueError(f"expected {count} initial states and weights of every layer, got {len(states)}")
        rows, lod = _steps(input, batch_first)
        k, directions = len(lod.levels) - 1, num_layers * (1 + bool(bidirectional))
        weights = _directions(params, directions, has_biases, kind == "lstm")
        initial = [_for_each(t, directions, lod.levels[k].shape[0] - 1) for t in states]
        out, finals = run_layers(kind, rows, lod, k, weights, initial, bool(bidirectional), dropout if train else 0.0)
        if not isinstance(input, LoDTensor):
            return (moved_rows(out.unsqueeze(0), lod, 1, input._mark.call), *finals)
        if batch_first:  # a batch keeps torch's shapes
            return (made(out.view(*input.shape[:2], out.shape[1]), input.lod), *finals)
        return (made(out.unsqueeze(1), lod), *finals)

    return along_sequences


def _refuse_structured(what: str, given) -> None:
    for t in given:
        if structured(t) or not isinstance(t, Tensor):
            raise LoDTypeError(f"expected {what} as plain tensors, got {type(t).__name__}")


def _steps(input: Tensor, batch_first: bool) -> tuple[Tensor, LoD]:
    """The steps of all sequences as rows, and the sequences that they make."""
    if at_dim(input, -2) and input.dim() == 3 and input.shape[0] == 1 and batch_first:
        return input.values().squeeze(0), input.lod  # type: ignore[attr-defined]
    if isinstance(input, LoDTensor) and input.dim() == 3 and (batch_first or input.shape[1] == 1):
        s = along(input)
        if not batch_first:
            return s.rows.squeeze(1), s.lod
        rows, steps = input.shape[:2]
        return s.rows.flatten(0, 1), s.lod.append([steps] * rows)
    raise LoDValueError(
        f"expected rows (rows, features), one step each, with batch_first a batch of one, x[None], or a sequence in every "
        f"row, got {tuple(input.shape)} with batch_first={bool(batch_first)}"
    )


def _directions(params, count: int, has_biases: bool, projects: bool) -> list[Direction]:
    """The weights of every direction of every layer."""
    each, biases = len(params) // max(count, 1), 2 if has_biases else 0
    if each * count != len(params) or each not in (2 + biases, 2 + biases + projects):
        raise LoDValueError(f"expected {2 + biases} weights for each of {count} directions, got {len(params)}")
    parts = [params[i : i + each] for i in range(0, len(params), each)]
    return [Direction(*p[: 2 + biases], *[None] * (2 - biases), *p[2 + biases :]) for p in parts]


def _for_each(state: Tensor, directions: int, sequences: int) -> Tensor:
    """Initial states (directions, 1, width), the same for every sequence, or (directions, sequences, width)."""
    if state.dim() != 3 or state.shape[0] != directions or state.shape[1] not in (1, sequences):
        raise LoDValueError(
            f"expected initial states of shape ({directions}, 1 or {sequences}, width), got {tuple(state.shape)}"
        )
    return state.expand(-1, sequences, -1)


#: The attribute of a stand-in for states that torch's modules, which check their sizes, would not pass on.
_STATES = "_states_of_sequences"


def _stand_in(module: nn.RNNBase, state, width: int):
    """For states (layers, sequences, width) the ones that torch's module asks for: of a batch of one."""
    layers = module.num_layers * (1 + bool(module.bidirectional))
    if not isinstance(state, Tensor) or state.dim() != 3 or state.shape[::2] != (layers, width):
        return state
    alone = state.new_zeros(layers, 1, width)
    setattr(alone, _STATES, state)
    return alone


def _called(cls: type) -> None:
    """`__call__` of a recurrent module, whose states are (layers, sequences, width) for a LoDTensor in every layout: what
    one call returns another one takes."""
    before: Callable = cls.__call__

    def __call__(self, *args, **kwargs):
        input = args[0] if args else kwargs.get("input")
        if not structured(input) or not isinstance(self, nn.RNNBase):
            return before(self, *args, **kwargs)
        hx = args[1] if len(args) > 1 else kwargs.get("hx")
        dim, dims = 0 if self.batch_first else 1, input.dim()
        states = hx if isinstance(hx, tuple) else (hx,)
        given = any(isinstance(t, Tensor) and t.dim() == 3 for t in states)
        if given and (dims == 2 or (dims == 3 and input.shape[dim] == 1 and at_dim_of_steps(input, 1 - dim))):
            widths = self.proj_size or self.hidden_size, self.hidden_size
            states = tuple([_stand_in(self, t, width) for t, width in zip(states, widths)])
            hx = states if isinstance(hx, tuple) else states[0]
            if dims == 2:
                out, last = before(self, input.unsqueeze(dim), hx)
                return out.squeeze(dim), last
            return before(self, input, hx)
        out, last = before(self, *args, **kwargs)
        if dims != 2:
            return out, last
        # of a single sequence torch's modules take it to be the batch dim, and remove it
        every = tuple([t.unsqueeze(1) if t.dim() == 2 else t for t in (last if isinstance(last, tuple) else (last,))])
        return out, every if isinstance(last, tuple) else every[0]

    cls.__call__ = __call__  # type: ignore[method-assign, assignment]


def at_dim_of_steps(x, dim: int) -> bool:
    """Whether the rows of x are its steps."""
    return dim == 0 if isinstance(x, LoDTensor) else at_dim(x, dim - 3)


for _module in (nn.RNN, nn.LSTM, nn.GRU):
    _called(_module)

for _function, _count in ((torch.lstm, 2), (torch.gru, 1), (torch.rnn_tanh, 1), (torch.rnn_relu, 1)):
    _ours = _recurrence(_function.__name__, _count)
    route(_function, elsewhere=_ours)(_ours)
