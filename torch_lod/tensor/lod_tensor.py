# SPDX-License-Identifier: Apache-2.0
"""`LoDTensor`: packed rows and their LoD, as a subclass of torch.Tensor that every torch function accepts."""

import copy
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..dynamo import admit, before_the_first, compiling, failing, holds, rows_between, waiting
from ..errors import LoDTypeError, LoDValueError, boundary, named, public, refuse_as_argument, without_dispatch
from ..structure.lod import LoD, fitting
from ..structure.partition import Runs
from ..structure.validate import a_plain_tensor, host_integers, traverse, with_memory
from . import picking, table
from .attach import CLASSES
from .derived import DerivedTensor
from .dispatch import Tracked
from .other_forms import OtherForms
from .printing import tree
from .provenance import Provenance
from .typed import Rows


def _not_packed(x) -> Any:
    # the attribute that torch.nn.utils.rnn.pad_packed_sequence asks for first
    raise AttributeError(
        "'LoDTensor' object has no attribute 'batch_sizes': it is no PackedSequence; what pad_packed_sequence(..., "
        "batch_first=True) returns is x.to_padded()"
    )


class LoDTensor(Tracked, OtherForms, Rows):
    """Packed rows `(rows, *element)` with the structure that nests them.

    Functions that work row by row keep the LoD; functions that would mix the rows of different sequences raise an
    error; what functions give that torch_lod does not know has lost the structure ([list](torch_functions.md)). `x[...]`, `len(x)`
    and iteration work on rows, as for a plain tensor; `x.seq` gives sequences.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.arange(6.0), [[2, 1], [1, 2, 3]])
        >>> x.lod
        LoD([[2, 1], [1, 2, 3]])
        >>> x.seq[0, 1]
        tensor([1., 2.])

    Args:
        values: the rows; shared, not copied, and part of the same autograd graph.
        lod: a LoD that covers the same number of rows.

    Raises:
        TypeError: unless values is a dense tensor and lod a LoD.
        ValueError: if the numbers of rows differ.
    """

    def __init_subclass__(cls, **kwargs) -> None:
        # functions give LoDTensors: of a subclass they would not give what it adds
        raise named(
            LoDTypeError(
                f"expected no subclass, got {cls.__name__}: functions of LoDTensors give LoDTensors; keep one in an "
                "attribute of a class, or write functions of LoDTensors"
            ),
            "LoDTensor",
        )

    @staticmethod
    def __new__(cls, values: Tensor, lod: LoD) -> "LoDTensor":
        if not isinstance(values, Tensor):
            hint = "torch.from_numpy" if isinstance(values, np.ndarray) else "tl.lod_tensor"
            raise named(
                LoDTypeError(f"expected values as a tensor, got {type(values).__name__}; see {hint}"), "LoDTensor"
            )
        if not isinstance(lod, LoD):
            raise named(
                LoDTypeError(f"expected lod as a LoD, got {type(lod).__name__}; see tl.from_lengths"), "LoDTensor"
            )
        if isinstance(values, DerivedTensor) and not values._provenance.lod.differs(lod):
            try:
                unmoved("values", values)
            except LoDTypeError as error:
                raise named(error, "LoDTensor") from None
        if values.layout != torch.strided or values.is_quantized:
            got = values.dtype if values.is_quantized else f"layout {values.layout}"
            raise named(LoDTypeError(f"expected dense values, got {got}"), "LoDTensor")
        a_plain_tensor("values", values, "LoDTensor")
        before_the_first()
        with without_dispatch():
            return _wrap(fitting(values, lod), lod)

    # -- questions

    @property
    def lod(self) -> LoD:
        """The structure. Immutable and shared by every tensor that has it."""
        return self._provenance.lod

    _lod = lod

    @property
    def lod_level(self) -> int:
        """Number of levels."""
        return self._lod.depth

    @property
    def level_names(self) -> tuple[str | None, ...] | None:
        return self._lod.level_names

    def lengths(self, level: int | str = -1) -> Tensor:
        """See `LoD.lengths`; on the device of the values. What makes a structure takes `x.lod.lengths()`, in host memory."""
        return self._lod.lengths(level, self.device)

    def offsets(self, level: int | str = -1) -> Tensor:
        """See `LoD.offsets`."""
        return self._lod.offsets(level)

    def row_offsets(self, level: int | str = -1) -> Tensor:
        """See `LoD.row_offsets`; on the device of the values."""
        return self._lod.row_offsets(level, self.device)

    def cu_seqlens(self, level: int | str = -1) -> Tensor:
        """See `LoD.cu_seqlens`; on the device of the values."""
        return self._lod.cu_seqlens(level, self.device)

    def position_ids(self, level: int | str = -1) -> Tensor:
        """See `LoD.position_ids`; on the device of the values."""
        return self._lod.position_ids(level, self.device)

    def segment_ids(self, level: int | str = -1) -> Tensor:
        """See `LoD.segment_ids`; on the device of the values."""
        return self._lod.segment_ids(level, self.device)

    @public
    def is_first(self, level: int | str = -1) -> "LoDTensor":
        """bool, a row for each row: whether it is the first of its sequence of a level."""
        return LoDTensor(self.position_ids(level) == 0, self._lod)

    @public
    def is_last(self, level: int | str = -1) -> "LoDTensor":
        """bool, a row for each row: whether it is the last of its sequence of a level."""
        first = self.position_ids(level) == 0
        return LoDTensor(torch.cat([first[1:], torch.ones_like(first[:1])]), self._lod)

    def num_sequences(self, level: int | str = 0) -> int:
        """See `LoD.num_sequences`."""
        return self._lod.num_sequences(level)

    def max_length(self, level: int | str = -1) -> int:
        """See `LoD.max_length`."""
        return self._lod.max_length(level)

    batch_sizes = property(_not_packed)

    # -- slices

    @boundary(dispatch=False)
    def slice(self, level: int | str, begin: int, end: int | None = None) -> "LoDTensor":
        """Sequences [begin, end) of a level as a batch, with the levels below; without end the batch of one sequence,
        the <level, begin>-slice. A view: shares storage and gradient. IndexError if the level has no such sequences."""
        lod, first, last = self._lod.sliced(level, begin, end)
        return made(rows_between(rows_of(self), first, last), lod)

    @public
    def branch(self, *path: int) -> "LoDTensor":
        """The sequence at a path, as a batch of one: branch(2, 0) is the first element of sequence 2. A view."""
        k, j = self._lod.locate(path)
        return self.slice(k, j, j + 1)

    @property
    def seq(self) -> "picking.SequenceIndex[LoDTensor]":
        """Sequences by index: `x.seq[2]`, `x.seq[-1]`, `x.seq[1:3]`, `x.seq[[2, 0]]`, `x.seq[mask]`, `x.seq[2, 0]`,
        `x.seq[2, 0:1]`, `x.seq[:, :2]`, `x.seq[:, -1]`, `x.seq[:, mask]`: one index per level from the outside, the last
        of rows. An int drops the level that it addresses; slices, lists and masks keep it."""
        return picking.SequenceIndex(self, made)

    def __getitems__(self, indices) -> list:
        """Rows, for which a DataLoader asks by this name where the LoDTensor itself is its dataset."""
        warnings.warn(
            "DataLoader: expected a dataset of samples, got a LoDTensor, whose items are rows: those of "
            "tl.data.LoDDataset(x) are sequences; if rows are meant, pass x.values()",
            stacklevel=2,
        )
        return [self[i] for i in indices]

    @public
    def sequences(self, level: int | str = 0) -> "Iterator[MaybeLoD]":
        """The sequences of a level one by one: LoDTensors of the levels below, plain at the innermost. Views."""
        return itertools.starmap(made, picking.each_sequence(self.values(), self._lod, self._lod.level(level)))

    def unbind_sequences(self, level: int | str = 0) -> "list[MaybeLoD]":
        """`sequences` as a list."""
        return list(self.sequences(level))

    @boundary(dispatch=False)
    def filter(self, mask, *, level: int | str = -1) -> "LoDTensor":
        """The elements of a level where a bool mask is true, with their content; all levels stay, and sequences become
        shorter. The mask has an entry for each element of the level: a row at the innermost level, a sub-sequence at an
        outer one. A LoDTensor mask must have the levels of x down to this one. One sync if the mask is on a GPU."""
        return made(*picking.filtered(rows_of(self), self._lod, mask, self._lod.level(level)))

    @boundary(dispatch=False)
    def filter_rows(self, mask: Tensor) -> "LoDTensor":
        """`filter` at the innermost level: the rows where a boolean mask is true."""
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != self.shape[:1]:
            got = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            whole = isinstance(mask, Tensor) and mask.shape == (self.lod.num_sequences(0),)
            hint = "; whole sequences are taken with x.seq[mask]" if whole and mask.dtype == torch.bool else ""
            raise LoDTypeError(f"expected a bool mask of shape ({self.shape[0]},), got {got}{hint}")
        return made(*picking.filtered(rows_of(self), self._lod, mask, self._lod.depth - 1))

    @boundary(dispatch=False)
    def head(self, k: int, *, level: int | str = -1) -> "LoDTensor":
        """The first k elements of every sequence of a level, all of a shorter one: rows, or whole sub-sequences."""
        return made(*picking.part(rows_of(self), self._lod, k, level, last=False))

    @boundary(dispatch=False)
    def tail(self, k: int, *, level: int | str = -1) -> "LoDTensor":
        """The last k elements of every sequence of a level, all of a shorter one: rows, or whole sub-sequences."""
        return made(*picking.part(rows_of(self), self._lod, k, level, last=True))

    @boundary(dispatch=False)
    def nth(self, i: int, *, padding_value: float = 0.0, level: int | str = -1) -> "MaybeLoD":
        """Element i of every sequence of a level (negative: from its end), in place of that level: at the innermost level
        a row per sequence, with the outer levels; at an outer level a sub-sequence per sequence, with all other levels.
        A sequence that is too short has a row of `padding_value`, or an empty sub-sequence."""
        return made(*picking.nth(rows_of(self), self._lod, i, level, padding_value))

    @boundary(dispatch=False)
    def spans(self, start: "LoDTensor", end: "LoDTensor", *, level: int | str = -1) -> "LoDTensor":
        """The elements from `start` to `end` as one more level: a sequence for each row of start and end, two LoDTensors of
        integers with one LoD and as many sequences at the level as this one. Positions count within the sequence; end is
        behind the last element. `tl.sequence_pool(x.spans(start, end), "mean")` has a row per span."""
        return made(*picking.spans(rows_of(self), self._lod, start, end, self._lod.level(level)))

    @boundary(dispatch=False)
    def permute_sequences(self, order, *, level: int | str = 0) -> "LoDTensor":
        """The sequences of a level in another order, with the levels below. At an inner level each stays within its
        sequence of the level above."""
        k = self._lod.level(level)
        order = host_integers("order", order)
        n = self._lod.num_sequences(k)
        said = "expected order to be a permutation of the sequences"
        if not holds(order.numel() == n) or failing(
            order.sort().values != torch.arange(n, device="cpu"), f"permute_sequences: {said}"
        ):
            raise LoDValueError(f"expected order to be a permutation of {n} sequences, got {_list(order)}")
        if k > 0:
            parent = self._lod.parents_at(k - 1)
            said = "expected sequences to stay in their parent"
            for i in failing(parent[order] != parent, f"permute_sequences: {said}"):
                raise LoDValueError(f"{said}, got {int(order[i])} at index {i}")
        return made(*picking.sequences(rows_of(self), self._lod, k, order, all_of_it=True))

    # -- structure

    @public
    def with_values(self, values: Tensor) -> "LoDTensor":
        """A LoDTensor of other rows with this LoD. ValueError for a LoDTensor with another LoD, whose rows are those of other
        sequences; its `.values()` say that they are meant."""
        if isinstance(values, LoDTensor):
            self._lod.agreed(values._lod)
        return LoDTensor(values, self._lod)

    @public
    def with_lod(self, lod: LoD) -> "LoDTensor":
        """These rows with another LoD."""
        return LoDTensor(self.values(), self._counted_in(lod))

    @public
    def lod_reset(self, lod) -> "LoDTensor":
        """These rows with another structure: a LoD, that of a LoDTensor, or lengths (a list per level; or a tensor, for
        one level)."""
        if isinstance(lod, LoDTensor):
            lod = lod.lod
        elif not isinstance(lod, LoD):
            lod = LoD.parsed_lengths("lod", [lod] if isinstance(lod, Tensor) else lod, None)
        return self.with_lod(lod)

    def _counted_in(self, lod):
        """Another structure of these rows, in which no more of them count."""
        return lod.counting(*lod.counted_with(self._lod)) if self._lod.counted and isinstance(lod, LoD) else lod

    @public
    def lod_append(self, lengths, name: str | None = None) -> "LoDTensor":
        """With one more innermost level: the old innermost level then counts sequences, of the given lengths, instead
        of rows."""
        return self.with_lod(self._lod.append(lengths, name))

    @public
    def group(self, lengths, name: str | None = None) -> "LoDTensor":
        """With a new outermost level, which groups the outermost sequences by the given lengths."""
        return self.with_lod(self._lod.group(lengths, name))

    @public
    def drop_level(self, level: int | str) -> "MaybeLoD":
        """Without a level; plain if it was the only one."""
        return made(self.values(), self._lod.drop_level(level))

    @public
    def flatten_levels(self, first: int | str, last: int | str) -> "LoDTensor":
        """Levels `first` to `last` as one level."""
        return self.with_lod(self._lod.flatten(first, last))

    # -- Python's protocols

    def __repr__(self, *, tensor_contents=None) -> str:  # type: ignore[override]
        return tree(self)

    def _repr_html_(self) -> str:
        from .printing import html

        return html(self)

    def __reduce_ex__(self, protocol):
        if isinstance(self, torch.nn.Parameter):
            rows = LoDTensor(self.values().detach(), self._lod)
            return torch._utils._rebuild_parameter, (rows, self.requires_grad, OrderedDict())
        return _load_lod_tensor, (self.values().detach(), self._lod, self.requires_grad)

    def __deepcopy__(self, memo) -> "LoDTensor":
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError(
                    "only LoDTensors that are leaves of the autograd graph can be deep-copied; see detach()"
                )
            with_memory(self)
            made: Tensor = _load_lod_tensor(self.values().detach().clone(), self._lod, self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                made = torch.nn.Parameter(made, self.requires_grad)
            if self.grad is not None:
                made.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = made
        return memo[id(self)]


#: A LoDTensor, or a plain tensor if no level is left. For type checkers a LoDTensor, since they cannot count levels.
if TYPE_CHECKING:
    MaybeLoD: TypeAlias = LoDTensor
else:
    MaybeLoD = Tensor


def _wrap(values: Tensor, lod: LoD) -> LoDTensor:
    """A LoDTensor of values that are known to fit; runs without __torch_function__."""
    wrapped = values.as_subclass(LoDTensor)
    wrapped._provenance = Provenance(lod, 0)
    return wrapped


def a_lod_tensor(what: str, x) -> LoDTensor:
    if not isinstance(x, LoDTensor):
        if isinstance(x, DerivedTensor):
            got = f"{_moved_by(x)}; {table.functions.way_out(x._provenance)}"
        else:
            got = f"{type(x).__name__}; see tl.from_lengths"
        raise LoDTypeError(f"expected {what} as a LoDTensor, got {got}")
    return x


def unmoved(what: str, x, only_lost: bool = False) -> None:
    """TypeError for rows of which it is not known any more whether they correspond to those of the other arguments."""
    if isinstance(x, DerivedTensor) and (x.rows_dim is None or not only_lost):
        way_out = f"{table.functions.way_out(x._provenance)}; if they are in the right order, pass .values()"
        raise LoDTypeError(f"expected {what} as a LoDTensor or a plain tensor, got {_moved_by(x)}; {way_out}")


def returned(what: str, tree) -> None:
    """`unmoved` for what a function of the user's returned, tensors in any nesting."""
    for leaf in traverse(what, pytree.tree_leaves, tree):
        unmoved(what, leaf)


refuse_as_argument(DerivedTensor, unmoved, LoDTensor, LoD)


def _moved_by(x: DerivedTensor) -> str:
    _, dim, call, part = x._provenance
    if dim is None:
        return f"rows that lost their structure in {call}"
    return (
        f"rows {part[0]} to {part[1]} of a LoDTensor, through {call}" if part else f"rows at dim {dim}, moved by {call}"
    )


def _list(t: Tensor) -> str:
    return str(t.tolist()) if t.numel() <= 12 else f"{t[:12].tolist()[:-1] + ['...']}".replace("'", "")


def _load_lod_tensor(values: Tensor, lod: LoD, requires_grad: bool) -> LoDTensor:
    """Called by pickle and torch.load: a file is input like any other, so it is validated."""
    loaded = LoDTensor(values, lod)
    if requires_grad is True:
        if not (loaded.is_floating_point() or loaded.is_complex()):
            raise LoDTypeError(f"expected values of a floating dtype to require grad, got {loaded.dtype}")
        loaded.requires_grad_()
    return loaded


def made(fresh: Tensor, lod: LoD | None, p: Provenance | None = None) -> Any:
    """A new tensor, which no other object holds, with its structure; plain if no level is left. `p`: the provenance of
    another LoDTensor with this LoD, if there is one."""
    if lod is None:
        return fresh
    if type(fresh) is not Tensor or compiling() or torch.compiler._is_compiling_flag:
        return LoDTensor(fresh, lod)
    if waiting:
        before_the_first()
    fresh.__class__ = LoDTensor  # as `become`
    fresh._provenance = p or Provenance(lod, 0)  # type: ignore[attr-defined]
    return fresh


def values_of(x: Tensor) -> Tensor:
    """The values of a LoDTensor; a plain tensor as it is."""
    return x.values() if isinstance(x, LoDTensor) else x


def rows_of(x: Tensor) -> Tensor:
    """The values for an operator that runs under `without_dispatch`: there x itself behaves like a plain tensor, which
    saves a view in the autograd graph."""
    return x.values() if isinstance(x, LoDTensor) and compiling() else x


def moved(x: Tensor, lod: LoD, source: Runs | Tensor, apart: bool = False) -> LoDTensor:
    """The rows of x that `source` names, as runs or by index, with another structure. apart: an index names none twice."""
    with without_dispatch():
        return made(*picking.taken(rows_of(x), lod, source, apart))


def sequences_at(x: LoDTensor, k: int, index: Tensor) -> LoDTensor:
    """The sequences of level k at `index`, a host tensor; those of level 0, or as many within each of the level above."""
    with without_dispatch():
        return made(*picking.sequences(rows_of(x), x._lod, k, index))


CLASSES[0] = LoDTensor
torch.serialization.add_safe_globals([_load_lod_tensor])
admit(LoDTensor)
