# SPDX-License-Identifier: Apache-2.0
"""What torch's errors mean where rows of sequences are among the operands.

Code that was written for padded batches (batch, length, ...) fails on rows (rows, ...) with errors of torch that speak of
dims and sizes. `explain` adds to such an error what the tensor is and what is probably meant: a row of `ADVICE`. The error
stays the same object, and torch's own words come first.
"""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import foreign
from ..structure.lod import LoD
from ..tensor.dispatch import TORCHS
from ..tensor.provenance import Provenance, is_whole, provenance_of
from ..tensor.table import NAMED, UNKNOWN, name_of
from .placement import counterpart, of_padded, tensors_among
from .refusals import STACKED

#: Errors of these classes for which no row is written may be about anything, but for messages that speak of shapes.
_OF_SHAPES = re.compile(r"\b(dims?|dimension(s|al)?|shapes?|sizes?|batch(_size)?|[1-5]-?D|matrix|vector)\b", re.I)
_OF_MACHINES = re.compile(r"memory|overflow|^CUDA|^HIP|cuDNN|CUDNN|CUBLAS|cuBLAS|NCCL|^vmap|^functorch", re.I)


class Case(NamedTuple):
    """A call that torch refused."""

    names: tuple[str, ...]  # of the function
    args: tuple
    x: Tensor  # the first operand that has rows of sequences
    origin: Provenance
    operands: list[Tensor]
    others: list[Tensor]  # those that have none
    said: re.Match

    @property
    def lod(self) -> LoD:
        return self.origin.lod


def explain(error: Exception, func: Callable, args: tuple, kwargs: dict | None) -> None:
    """Adds to an error of a torch function what it means. Errors of other classes stay as they are, and so do those that
    code of the user's raised, for example a hook."""
    if torch.compiler.is_compiling():
        return
    if type(error) not in TORCHS or len(error.args) != 1 or not isinstance(error.args[0], str):
        return
    if foreign(error) or hasattr(error, "_explained"):
        return
    meaning = explanation(error, (*args, *(kwargs or {}).values()), (name_of(func),))
    if meaning is not None:
        error.args = (f"{error.args[0]}\n{meaning}",)
        error._explained = meaning  # type: ignore[attr-defined]


def explanation(error: Exception, operands: Iterable, names: Iterable[str] = ()) -> str | None:
    """What an error of torch, or of Python, means if it came of `operands`; `names`: the functions that were called. None
    if no operand has rows of sequences, or the error is about something else."""
    given = tuple(operands)
    tensors = tensors_among(given)
    x, said, called = next((t for t in tensors if provenance_of(t) is not None), None), str(error), tuple(names)
    if x is None or _OF_MACHINES.search(said):
        return None
    origin: Any = provenance_of(x)
    others = [t for t in tensors if provenance_of(t) is None]
    for functions, pattern, advice in ADVICE:
        match = re.search(pattern, said)
        if match is not None and (not functions or {*functions.split()} & {*called}):
            case = Case(called, given, x, origin, tensors, others, match)
            text = advice(case) if callable(advice) else advice
            if text:
                return f"{_what(x, origin)}.\nProbably meant: {text}."
    if type(error) is TypeError or not _OF_SHAPES.search(said):
        return None
    alone = f"; {STACKED}" if is_whole(origin) and x.dim() == 1 else ""
    return f"{_what(x, origin)}; {_PADDED if is_whole(origin) else _ELSEWHERE}{alone}."


_PADDED = (
    "where (batch, length, ...) is wanted, x[None] is a batch of one, x.to_padded()[0] a padded one, and tl.map_sequences(f, x) "
    "calls f unedited on stacks of equally long sequences"
)
_ELSEWHERE = (
    "where (batch, length, ...) is wanted, to_padded()[0] of the LoDTensor is a padded batch, and tl.map_sequences(f, x) calls f "
    "unedited on stacks of equally long sequences"
)


def _what(x: Tensor, origin: Provenance) -> str:
    shape, n = tuple(x.shape), origin.lod.num_sequences(-1)
    if origin.dim is None:
        return f"A tensor of shape {shape} is what a LoDTensor became in {origin.call}, which lost the structure of its rows"
    through = f", through {origin.call}" if origin.call else ""
    part = f"rows {origin.part[0]} to {origin.part[1]} of " if origin.part else ""
    kind, of = ("DerivedTensor", " of a LoDTensor") if origin.dim or origin.part else ("LoDTensor", "")
    return (
        f"Here x is a {kind} of shape {shape}: dim {origin.dim} has {part}the rows of {n} sequences{of}, one after another{through}, "
        "and no dim is a batch or a length"
    )


# -- advice that depends on the case; None where it would not be true


def _view(case: Case) -> str | None:
    sizes = [int(n) for n in case.said["sizes"].split(",")]
    rest = sizes[2:] if len(sizes) > 2 else sizes[1:]
    fits = math.prod(case.x.shape[1:])
    if not is_whole(case.origin) or not rest or rest.count(-1) > 1:
        return None
    known = math.prod(n for n in rest if n != -1)
    if known <= 0 or (fits % known if -1 in rest else fits != known):
        return f"leave dim 0 to the rows: x.view(x.size(0), ...); {_PADDED}"
    return f"leave dim 0 to the rows: x.view(x.size(0), {', '.join(map(str, rest))}); {_PADDED}"


def _dim(case: Case) -> str | None:
    got, along = int(case.said["got"]), NAMED.get(case.names[0], UNKNOWN).along if case.names else ""
    if not is_whole(case.origin) or got != int(case.said["last"]) + 1:
        return None
    moved = f"dim {got} of (batch, length, ...) is dim {got - 1} here"
    inside = f"along each sequence: {along}" if along else ""
    if got == 1:
        return inside or _sizes(case)
    return f"{moved}, or dim -1 if it is the last{'; ' if inside else ''}{inside}; {_PADDED}"


def _sizes(case: Case) -> str:
    features = "x.size(-1) has the features; " if case.x.dim() > 1 else ""
    return f"{features}x.num_sequences(), x.lengths() and x.max_length() tell about the sequences"


def _transpose(case: Case) -> str | None:
    dims = case.args[1:3]
    if not is_whole(case.origin) or len(dims) != 2 or not all(type(d) is int for d in dims):
        return None
    if sorted(dims) == [0, 1]:
        return _SWAP
    here = [d - 1 if d > 0 else d for d in dims]
    if 0 in dims or not all(-case.x.dim() <= d < case.x.dim() for d in here):
        return None
    return f"without the batch dim it is {case.names[0]}({here[0]}, {here[1]}); {_LAST}; {_PADDED}"


_SWAP = "it has no batch and length to be swapped; leave it out"
_LAST = "nn.Conv1d, pools and norms run along each sequence of x, and of x.t() as well"


def _permute(case: Case) -> str | None:
    given = case.args[1:]
    dims = list(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else list(given)
    if not is_whole(case.origin) or len(dims) != case.x.dim() + 1 or sorted(dims) != list(range(len(dims))):
        return None
    if dims[0]:
        return _SWAP if dims == [1, 0, *range(2, len(dims))] else None
    return f"without the batch dim it is x.permute({', '.join(str(d - 1) for d in dims[1:])}); {_LAST}; {_PADDED}"


def _index(case: Case) -> str | None:
    if not is_whole(case.origin):
        return None
    return (
        f"leave the index of the batch out{': x[:, k] is feature k of all rows' if case.x.dim() > 1 else ''}; the last rows of "
        "the sequences are x.nth(-1), the first k x.head(k), all but the "
        f"last x.seq[{':, ' * case.origin.lod.depth}:-1], some tl.sequence_slice(x, offset, length), sequence i is x.seq[i]"
    )


def _mask(case: Case) -> str | None:
    shape = [int(n) for n in case.said["shape"].split(",")]
    if len(shape) > 1:
        padded = shape[:2] == [case.lod.num_sequences(-1), case.lod.max_length()]
        return (
            f"no row is padding, so none has to be taken out; {_PADDED}" if padded and is_whole(case.origin) else None
        )
    return "x.seq[mask] takes whole sequences, x.filter_rows(mask) rows, by a mask with an entry for each"


def _beside(case: Case) -> str | None:
    """Operands that are of a padded batch, or have a row for each sequence."""
    if not is_whole(case.origin):
        return None
    rows, rank = case.x.shape[0], case.x.dim()
    for t in case.others:
        if t.shape[:1] != (rows,) and (advice := counterpart(case.lod, rank, t)) is not None:
            return f"t is the tensor of shape {tuple(t.shape)}; {advice}"
    return None


def _letters(case: Case) -> str | None:
    if int(case.said["letters"]) != int(case.said["dims"]) + 1:
        return None
    single = len(case.operands) == len(case.others) + 1 and all(
        t.shape[:1] != (case.lod.num_sequences(-1),) for t in case.others
    )
    return 'leave the letter of the batch out, as in "nd,de->ne"' if single else _PRODUCTS


def _targets(case: Case) -> str | None:
    if not is_whole(case.origin):
        return None
    return (
        f"it takes a target for each of the {case.x.shape[0]} rows, as a LoDTensor or plain: of a padded batch (batch, length) "
        f"{of_padded(case.lod, 'target')}; for one target per sequence pool the rows before: "
        'tl.sequence_pool(x, "mean")'
    )


def _product(case: Case) -> str | None:
    if not case.others:
        return _PRODUCTS
    n, wanted = case.x.shape[-1], int(case.said["k"])
    if not is_whole(case.origin) or int(case.said["rows"]) != case.x.shape[0]:
        return None
    steps = wanted // n if n and wanted % n == 0 else 0
    if steps > 1 and steps >= case.lod.max_length():
        return f"{wanted} features are {steps} steps: a row for each sequence is x.to_padded(max_length={steps})[0].flatten(1)"
    return f"the {n} features of a row are at dim -1, the matrix takes {wanted}"


_PRODUCTS = (
    "products of rows with rows of their sequence: tl.sequence_attention(q, k, v); with one matrix: x @ w; with a vector t for "
    "each sequence: (x * tl.sequence_expand_as(t, x)).sum(-1)"
)


def _unpack(case: Case) -> str | None:
    if case.names or not is_whole(case.origin):  # a function of torch unpacked something else
        return None
    return f"leave batch and length out; {_sizes(case)}; {_PADDED}"


_CELL = "a cell takes all rows in one step, without time: tl.scan(cell, x, state) runs along the sequences, and so does tl.nn.LSTM"
_OUT_OF_RANGE = r"Dimension out of range .*, (?P<last>-?\d+)\], but got (?P<got>-?\d+)"
_APART = (
    r"size of tensor a \(\d+\) must match the size of tensor b \(\d+\)"
    r"|except in dimension|equal size|same number of dimensions|do not match|same dimension"
)
_LOSSES = "cross_entropy nll_loss multi_margin_loss multilabel_margin_loss"

#: The functions, or nothing for any; a pattern of torch's message; what is meant, as a text or a function of the case. The
#: first row whose function and pattern fit, and whose text is not None, is written.
ADVICE: list[tuple[str, str, str | Callable[[Case], str | None]]] = [
    ("", r"shape '\[(?P<sizes>[-\d, ]+)\]' is invalid for input of size", _view),
    ("size", _OUT_OF_RANGE, _sizes),
    ("transpose swapaxes swapdims", _OUT_OF_RANGE, _transpose),
    ("", _OUT_OF_RANGE, _dim),
    ("permute", r"does not match the length of the desired ordering", _permute),
    ("", r"too many indices for tensor of dimension", _index),
    ("", r"The shape of the mask \[(?P<shape>[\d, ]+)\] at index 0", _mask),
    ("", r"expanded size of the tensor", "tl.sequence_expand_as(y, x) lays a row for each sequence over the rows of x"),
    ("bmm baddbmm", r"must be a 3D tensor", _PRODUCTS),
    ("", r"subscripts in the equation \((?P<letters>\d+)\) .* number of dimensions \((?P<dims>\d+)\)", _letters),
    ("", _APART, _beside),
    (_LOSSES, r"batch_size|target", _targets),
    ("", r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x\d+ and (?P<k>\d+)x", _product),
    ("", r"Input batch size \d+ doesn't match hidden|inconsistent (input|hidden)_size", _CELL),
    ("", r"Padding length should be", "F.pad(x.t(), (before, after)).t() makes every sequence longer"),
    ("", r"split_with_sizes expects", "x.unbind_sequences() splits it into its sequences"),
    ("", r"(not enough|too many) values to unpack|tuple index out of range", _unpack),
]
