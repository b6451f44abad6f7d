# SPDX-License-Identifier: Apache-2.0
"""torch.lstm, gru, rnn_tanh and rnn_relu: what torch.nn's recurrent modules run, along every innermost sequence."""

from typing import Any

import torch
from torch import Tensor

from ..engine.recurrence import run_layers
from ..errors import LoDTypeError, LoDValueError
from ..tensor import LoDTensor
from .routes import OneSample, one_sample, route, structured

_FUNCTIONS: dict[str, Any] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "rnn_tanh": torch.rnn_tanh,
    "rnn_relu": torch.rnn_relu,
}


def _recurrence(kind: str, count: int):
    def along_sequences(
        input, hx, params, has_biases, num_layers, dropout=0.0, train=False, bidirectional=False, batch_first=False
    ):
        """An input without a batch, or of one column: its rows are the steps of the innermost sequences. Of a batch
        (rows, steps, features) every row is a sequence of its own, as with plain tensors."""
        if isinstance(has_biases, (tuple, list)):  # the form of which hx is the second argument but one
            raise LoDTypeError("expected no LoDTensor in a PackedSequence; pass the LoDTensor itself")
        if not structured(input):
            raise LoDTypeError("expected a LoDTensor as input, not among the others")
        states = _plain("initial states", hx if count == 2 else [hx])
        if len(states) != count or type(num_layers) is not int or not 0 < num_layers <= len(params):
            raise LoDValueError(f"expected {count} initial states and weights of every layer, got {len(states)}")
        x, shape = _steps(input, bool(batch_first))
        k, directions = x.lod.depth - 1, num_layers * (1 + bool(bidirectional))
        weights = _directions(_plain("weights", params), directions, has_biases, kind == "lstm")
        initial = [_for_each(t, directions, x.num_sequences(k)) for t in states]
        out, finals = run_layers(kind, x, k, weights, initial, bool(bidirectional), dropout if train else 0.0)
        if shape is not None:  # a batch keeps torch's shapes
            return (LoDTensor(out.values().view(*shape, out.shape[1]), input.lod), *finals)
        out = one_sample(out) if batch_first else LoDTensor(out.values().unsqueeze(1), x.lod)
        return (out, *(t.unsqueeze(1) for t in finals))

    along_sequences.__name__ = kind
    return along_sequences


def _plain(what: str, given) -> list[Tensor]:
    for t in given:
        if structured(t) or not isinstance(t, Tensor):
            raise LoDTypeError(f"expected {what} as plain tensors, got {type(t).__name__}")
    return list(given)


def _steps(input: Tensor, batch_first: bool) -> tuple[LoDTensor, torch.Size | None]:
    """The steps of all sequences as rows; and of a batch (rows, steps, features) its first two sizes."""
    if isinstance(input, OneSample) and batch_first:
        return input.rows, None
    if isinstance(input, LoDTensor) and input.dim() == 3 and (batch_first or input.shape[1] == 1):
        if not batch_first:
            return LoDTensor(input.values().squeeze(1), input.lod), None
        rows, steps = input.shape[:2]
        return LoDTensor(input.values().flatten(0, 1), input.lod.append([steps] * rows)), input.shape[:2]
    raise LoDValueError(
        f"expected rows (rows, features), one step each, or with batch_first a sequence in every row, got "
        f"{tuple(input.shape)} with batch_first={batch_first}"
    )


def _directions(params, count: int, has_biases: bool, projects: bool) -> list[list[Tensor | None]]:
    """The weights of every direction of every layer; None in the place of biases or of a projection that it has not."""
    each, biases = len(params) // max(count, 1), 2 if has_biases else 0
    if each * count != len(params) or each not in (2 + biases, 2 + biases + projects):
        raise LoDValueError(f"expected {2 + biases} weights for each of {count} directions, got {len(params)}")
    parts = [list(params[i : i + each]) for i in range(0, len(params), each)]
    return [[*part[:2], *(part[2:4] if biases else (None, None)), *(part[2 + biases :] or [None])] for part in parts]


def _for_each(state: Tensor, directions: int, sequences: int) -> Tensor:
    """Initial states (directions, 1, width), the same for every sequence, or (directions, sequences, width)."""
    if state.dim() != 3 or state.shape[0] != directions or state.shape[1] not in (1, sequences):
        raise LoDValueError(
            f"expected initial states of shape ({directions}, 1 or {sequences}, width), got {tuple(state.shape)}"
        )
    return state.expand(-1, sequences, -1)


for _kind, _function in _FUNCTIONS.items():
    route(_function, samples=True)(_recurrence(_kind, 2 if _kind == "lstm" else 1))
