# SPDX-License-Identifier: Apache-2.0
"""Modules of torch.nn that raise before they call any function along rows, or whose function is right by itself and not what
the module is for.

They are not replaced: a module that asks its input for the number of dims, or calls F.pad, is recognised by its frame. Where
Dynamo traces them, torch's own errors about dims have to do.
"""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..dynamo import compiling, constant
from ..errors import LoDTypeError, LoDValueError, named, without_policy
from ..tensor import rules
from ..tensor.attach import PLAIN
from ..tensor.lod_tensor import LoDTensor
from . import windows as windows
from .routes import BETWEEN, caller


def _of_recurrence(self, input, hx, **others) -> int | None:
    """Refuses an initial state that torch.nn.LSTM does not take. With a state for each sequence rows (rows, features) are
    given as a batch is."""
    if hx is None or input.dim() not in (2, 3):
        return None
    sides = self.num_layers * (2 if self.bidirectional else 1)
    batch = () if input.dim() == 2 else (input.shape[0 if self.batch_first else 1],)
    widths = [self.proj_size or self.hidden_size, self.hidden_size][: 1 + (self.mode == "LSTM")]
    wanted, n = [(sides, *batch, width) for width in widths], _sequences(input, self.batch_first)
    given = hx if isinstance(hx, tuple) else (hx,)
    got = [tuple(t.shape) if isinstance(t, Tensor) else None for t in given]
    if n is not None and got == [(sides, n, width) for width in widths]:
        return 3
    if got != wanted:
        each = "" if n is None else f", or with ({sides}, {n}, width) one for each sequence"
        raise LoDValueError(
            f"expected an initial state of shape {' and '.join(map(str, wanted))}, the same for every sequence{each}, "
            f"got {' and '.join(map(str, got))}; leave the initial state out for zeros"
        )
    return None


def _sequences(x, batch_first: bool) -> int | None:
    """The number of sequences whose steps are the rows, as torch.nn's recurrences take them."""
    p = x._provenance
    steps = p.dim == 0 and (x.dim() == 2 or (x.dim() == 3 and not batch_first and x.shape[1] == 1))
    steps = steps or (p.dim == 1 and x.dim() == 3 and batch_first and x.shape[0] == 1)
    return p.lod.num_sequences(-1) if steps and p.part is None else None


def _of_input(input, **others) -> int | None:
    """What a recurrence checks: it has added a dim to rows without a batch, unless there is a state for each sequence."""
    return 3 if input.dim() == 2 and others["batch_sizes"] is None else None


def _of_cell(self, input, **others) -> None:
    if input.dim() > 2:
        raise LoDValueError(
            f"expected rows (rows, features), got {tuple(input.shape)}; a cell takes all rows in one step, without time: "
            "tl.scan(cell, x, state) runs along the sequences, and so does tl.nn.LSTM"
        )


def _of_transformer(self, src, tgt, **others) -> None:
    at = 0 if self.batch_first else 1
    if src.dim() == 3 == tgt.dim() and src.shape[at] != tgt.shape[at]:
        raise LoDValueError(
            f"expected src and tgt of one batch, got {tuple(src.shape)} and {tuple(tgt.shape)}; give src and tgt as they are, "
            "(rows, features), without a dim for the batch"
        )


#: Who asks for dims in functions that take no rows, by file and name: what is said.
_REFUSED = {
    ("/nn/attention/_utils.py", "_validate_sdpa_input"): (
        "flex_attention",
        "expected plain tensors (batch, heads, length, width), got a {}: queries would attend to the keys of all sequences; "
        "tl.sequence_attention(q, k, v) takes rows (rows, heads, width), with causal=, window=, bias= and alibi=; "
        "plain tensors (1, heads, rows, width) take block_mask=x.lod.block_mask()",
    ),
    ("/ao/nn/quantized/dynamic/modules/rnn.py", "check_input"): (
        None,
        "expected a padded batch or a PackedSequence, which quantized layers take, got a {}; pass x.to_packed_sequence(), and "
        "make the output a LoDTensor with tl.from_packed_sequence(output)",
    ),
}
_TORCH = torch.__file__.removesuffix("/__init__.py")

_LOOKS: dict[CodeType, Callable] = {
    **{cls.forward.__code__: _of_recurrence for cls in (nn.RNN, nn.LSTM, nn.GRU)},
    nn.RNNBase.check_input.__code__: _of_input,
    **{cls.forward.__code__: _of_cell for cls in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)},
    nn.Transformer.forward.__code__: _of_transformer,
}


def _dims(x) -> int:
    """Tensor.dim, which these modules call first."""
    if not compiling():
        frame: Any = caller()
        look = _LOOKS.get(frame.f_code) if frame is not None else None
        if look is not None and (dims := _looked(look, frame.f_locals)) is not None:
            return dims
        if look is None and frame is not None and frame.f_code.co_filename.startswith(_TORCH):
            name, said = _REFUSED.get(
                (frame.f_code.co_filename.removeprefix(_TORCH), frame.f_code.co_name), (None, None)
            )
            if said:
                raise named(LoDTypeError(said.format(type(x).__name__)), name or type(frame.f_locals["self"]).__name__)
    with without_policy():
        return Tensor.dim(x)


def _looked(look: Callable, given: dict[str, Any]) -> int | None:
    try:
        with without_policy():
            return look(**given)
    except (LoDValueError, LoDTypeError) as error:
        raise named(error, type(given["self"]).__name__) from None


_rule = rules.Route(_dims, None)
_rule.elsewhere, _rule.lost = _dims, True
rules.RULES[Tensor.dim] = _rule
PLAIN.pop(Tensor.dim)  # rows at another dim ask the rule, too

#: Where a recurrence computes which states it expects.
_EXPECTED = {
    getattr(cls, name).__code__
    for cls in (nn.RNNBase, nn.LSTM)
    for name in ("get_expected_hidden_size", "get_expected_cell_size")
    if hasattr(cls, name)
}


def _size(x, *args, **kwargs):
    """Tensor.size; where a recurrence asks for the batch and is given a state for each sequence, their number."""
    frame: Any = None if compiling() else sys._getframe(3)
    with without_policy():
        if frame is not None and frame.f_code in _EXPECTED:
            states = frame.f_back.f_locals.get("hidden")
            state = states[0] if isinstance(states, tuple) else states
            n = _sequences(x, frame.f_locals["self"].batch_first)
            if n is not None and isinstance(state, Tensor) and state.dim() == 3 and state.shape[1] == n:
                return n
        return Tensor.size(x, *args, **kwargs)


_rule = rules.Route(_size, None)
_rule.elsewhere, _rule.lost = _size, True
rules.RULES[Tensor.size] = _rule
PLAIN.pop(Tensor.size)

_PADS: CodeType = nn.ConstantPad1d.forward.__code__
_pad: Any = rules.RULES[F.pad]
_along_rows: Callable = _pad.ours


@constant
def _traced_in_a_module_that_pads() -> bool:
    """Whether that is the code which Dynamo traces: it has a tracer for every call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = getattr(frame.f_locals.get("self"), "f_code", None) if frame.f_code.co_name == "run" else None
        if isinstance(code, CodeType) and not code.co_filename.startswith(BETWEEN):
            return code is _PADS
        frame = frame.f_back
    return False


def _in_a_module_that_pads() -> bool:
    frame = caller()
    return frame is not None and frame.f_code is _PADS


def _padded(input, pad, *args, **kwargs):
    """F.pad; what nn.ConstantPad1d and nn.ZeroPad1d pad is positions, which torch has at the last dim, and not features."""
    if isinstance(input, LoDTensor) and len(input.shape) == len(pad) == 2 and any(pad):
        if _traced_in_a_module_that_pads() if compiling() else _in_a_module_that_pads():
            said = (
                "expected rows of several dims or rows at the last dim, got a LoDTensor of rows (rows, features), whose last dim "
                "holds the features; pad the positions of every sequence: F.pad(x.t(), (before, after)).t(); the features: "
                "F.pad(x, (before, after))"
            )
            raise named(LoDTypeError(said), "ConstantPad1d")
    return _along_rows(input, pad, *args, **kwargs)


_pad.ours = _padded
