# SPDX-License-Identifier: Apache-2.0
"""torch.lstm, gru, rnn_tanh and rnn_relu along every innermost sequence, and torch.nn's recurrent modules, which call them."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, without_dispatch
from ..patches import instead
from ..sequence.operator import along
from ..sequence.recur import Direction, run_layers
from ..structure.lod import LoD
from ..tensor.derived import rows_at
from ..tensor.lod_tensor import LoDTensor, made
from ..tensor.provenance import lod_of, provenance_of, provenances_of
from .layouts import at_dim, structured
from .packed import packed_of, run
from .refusals import OUT, STACKED, lost_meets, refusal, way_out
from .row import enter
from .signature import SCALED, refuse, signature

NO_FEATURES = f"rows of no features would be interpreted as the features of one row; see x.unsqueeze(1), or {STACKED}"


@signature("input, hx: rows")
def cell(func, input):
    """A step of a recurrence treats rows as a batch. Torch does not check the dims and crashes with more than 2."""
    if lod_of(input) is not None and input.dim() < 2:
        raise refusal(func, NO_FEATURES)
    if lod_of(input) is not None and input.dim() > 2:
        raise refusal(func, f"a step takes rows of features, not {tuple(input.shape)}; see x.flatten(1)")
    return True


def _recurrence(kind: str, count: int):
    def along_sequences(
        input, hx, params, has_biases, num_layers, dropout=0.0, train=False, bidirectional=False, batch_first=False
    ):
        """Without a batch dim, or with a batch of one, the rows are the steps of the innermost sequences. In a batch
        (rows, steps, features) every row is a sequence of its own, as with plain tensors. Last states are (layers, sequences,
        width) in every layout."""
        if isinstance(has_biases, (tuple, list)):  # the PackedSequence overload
            raise LoDTypeError("expected a LoDTensor as input, got a PackedSequence of one; pass the LoDTensor itself")
        if not structured(input):
            raise LoDTypeError(
                f"expected a LoDTensor as input, got {type(input).__name__}, and a LoDTensor among the others"
            )
        states = list(hx) if count == 2 else [hx]
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
            return (rows_at(out.unsqueeze(0), lod, 1, input._provenance.call), *finals)
        if input.dim() == 2:
            return (made(out, lod), *finals)
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
    if isinstance(input, LoDTensor) and input.dim() == 2:
        s = along(input)
        return s.rows, s.lod
    if isinstance(input, LoDTensor) and input.dim() == 3 and (batch_first or input.shape[1] == 1):
        s = along(input)
        if not batch_first:
            return s.rows.squeeze(1), s.lod
        rows, steps = input.shape[:2]
        return s.rows.flatten(0, 1), s.lod.append([steps] * rows)
    if (p := provenance_of(input)) is not None and p.part is not None:
        begin, end = p.part
        raise LoDValueError(
            f"expected rows (rows, features) of whole sequences, got rows {begin} to {end} of {p.lod.rows}: {way_out(p)}"
        )
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
    return state if state.shape[1] == sequences else state.expand(-1, sequences, -1)


_FUNCTIONS = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh, "RNN_RELU": torch.rnn_relu}


@instead(nn.RNN.forward, nn.LSTM.forward, nn.GRU.forward)
def forward(self, input, hx):
    """Torch's own, but that rows (rows, features) are no batch of one, whose states have a dim that is removed, and that a state
    for each sequence is taken."""
    if isinstance(input, PackedSequence) or (structured(input) and len(input.shape) not in (2, 3)):
        return NotImplemented
    self._update_flat_weights()
    with without_dispatch():
        states = _initial_states(self, input, hx)
        if structured(input):
            self.check_input(input, None if input.dim() == 3 else input)  # 2 dims are those of packed rows
    states = [t if t.dim() == 3 else t.unsqueeze(1) for t in states]  # which tl.strict follows
    two = self.mode == "LSTM"
    weights = self._flat_weights, self.bias
    options = self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first
    out, *last = _FUNCTIONS[self.mode](input, states if two else states[0], *weights, *options)
    return out, tuple(last) if two else last[0]


def _initial_states(module, input, hx) -> list[Tensor]:
    """The initial states of a module as its function takes them, if they have one of the shapes that are allowed."""
    given = [] if hx is None else list(hx) if isinstance(hx, (tuple, list)) else [hx]
    if not structured(input):
        return given
    sides = module.num_layers * (2 if module.bidirectional else 1)
    widths = [module.proj_size or module.hidden_size, module.hidden_size][: 1 + (module.mode == "LSTM")]
    batch = () if input.dim() == 2 else (input.shape[0 if module.batch_first else 1],)
    if hx is None:
        return [torch.zeros(sides, *(batch or (1,)), n, dtype=input.dtype, device=input.device) for n in widths]
    _refuse_structured("initial states", given)
    wanted, count = [(sides, *batch, n) for n in widths], _sequences(input, module.batch_first)
    got = [tuple(t.shape) for t in given]
    if got == wanted or (count is not None and got == [(sides, count, n) for n in widths]):
        return given
    each = "" if count is None else f", or with ({sides}, {count}, width) one for each sequence"
    raise LoDValueError(
        f"expected an initial state of shape {' and '.join(map(str, wanted))}, the same for every sequence{each}, "
        f"got {' and '.join(map(str, got))}; leave the initial state out for zeros"
    )


def _sequences(x, batch_first: bool) -> int | None:
    """The number of sequences whose steps are the rows, as torch.nn's recurrences take them."""
    p = x._provenance
    steps = p.dim == 0 and (x.dim() == 2 or (x.dim() == 3 and not batch_first and x.shape[1] == 1))
    steps = steps or (p.dim == 1 and x.dim() == 3 and batch_first and x.shape[0] == 1)
    return p.lod.num_sequences(-1) if steps and p.part is None else None


def _run_at_dim(function, ours):
    """The function for rows at another dim, and for packed rows."""

    def run_at_dim(input, *args, **kwargs):
        of_packed = len(args) > 2 and isinstance(args[2], (tuple, list))  # the weights
        if of_packed and packed_of(input) is not None and not compiling() and not provenances_of(args, kwargs):
            return run(function, input, *args, **kwargs)
        for p in provenances_of((input, *args), kwargs):
            if p.dim is None:
                raise lost_meets(function, p, "expected rows of sequences")
        return ours(input, *args, **kwargs)

    return run_at_dim


for _name, _count in (("lstm", 2), ("gru", 1), ("rnn_tanh", 1), ("rnn_relu", 1)):
    _use = {"lstm": "tl.nn.LSTM", "gru": "tl.nn.GRU"}.get(_name, f"tl.nn.LSTM or tl.nn.GRU; {OUT}")
    _ours = _recurrence(_name, _count)
    enter(
        "sequence-wise",
        refuse(f"the recurrence would run across sequences; use {_use}"),
        _name,
        (torch,),
        run=_ours,
        run_at_dim=_run_at_dim(getattr(torch, _name), _ours),
        takes_lost=True,
    )
enter(
    "refuse",
    refuse(f"the recurrence would run across sequences; use tl.nn.LSTM or tl.nn.GRU; {OUT}"),
    "miopen_rnn mkldnn_rnn_layer quantized_lstm quantized_gru",
    (torch,),
)
enter("join", cell, "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell", (torch,))
enter(
    "refuse",
    SCALED,
    "quantized_lstm_cell_dynamic quantized_gru_cell_dynamic quantized_rnn_relu_cell_dynamic quantized_rnn_tanh_cell_dynamic",
    (torch.ops.quantized,),
)
