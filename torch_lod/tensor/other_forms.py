# SPDX-License-Identifier: Apache-2.0
"""Methods of LoDTensor that give its rows another form: padded, packed, nested, lists."""

import itertools
import math
from typing import Any, Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, holds
from ..errors import LoDValueError, border, public, shown
from ..ops.steps import by_steps
from ..structure.lod import LoD
from ..structure.partition import uploaded_map
from ..structure.validate import as_int, filler, padded_rows, with_memory


class OtherForms:
    """A mixin of LoDTensor, which provides `values`, `shape` and the rest."""

    __slots__ = ()
    _lod: LoD

    @overload
    def to_padded(  # type: ignore[overload-overlap]
        self: Any,
        padding_value: float = 0,
        *,
        level: Literal["all"],
        max_length: None = None,
        side: str = "right",
    ) -> tuple[Tensor, tuple[Tensor, ...]]: ...
    @overload
    def to_padded(
        self: Any,
        padding_value: float = 0,
        *,
        level: int | str = -1,
        max_length: int | None = None,
        side: str = "right",
    ) -> tuple[Tensor, Tensor]: ...
    @border(policy=False)
    def to_padded(
        self: Any,
        padding_value: float = 0,
        *,
        level: int | str = -1,
        max_length: int | None = None,
        side: str = "right",
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """The sequences of a level as a padded tensor.

        Args:
            padding_value: stands where there is no row; has no gradient.
            level: the level whose sequences are padded; their rows are along dim 1. "all": a dim per level.
            max_length: size of dim 1. ValueError below the longest sequence: no row is ever cut off.
            side: "right" or "left", where the padding goes.

        Returns:
            dense, (sequences, length, *element), and the number of rows of every sequence, int64, on the device of the
            values. With level="all": dense is (n0, length0, length1, ..., *element), and the lengths are a tuple of one
            tensor per level; that of level k has the shape of the first k + 1 dims.
        """
        if side not in ("right", "left"):
            raise LoDValueError(f"expected side 'right' or 'left', got {shown(side)}")
        if type(padding_value) is not int or padding_value:
            filler("padding_value", padding_value, self.dtype)
        if level == "all":
            if max_length is not None:
                raise LoDValueError("expected no max_length with level='all', got one")
            return self._to_padded_all(padding_value, side)
        lod, max_length = self._lod, as_int(max_length)
        k = lod.level(level)
        longest = lod.longest_rows_at(k)
        if max_length is None:
            max_length = longest
        elif type(max_length) is not int or not holds(max_length >= longest):
            raise LoDValueError(
                f"expected max_length of at least the longest sequence, {longest}, got {shown(max_length)}"
            )
        n = lod.levels[k].shape[0] - 1
        x = self.values() if compiling() else self
        rows, shape = padded_rows(n, max_length, math.prod(x.shape[1:])), (n, max_length, *x.shape[1:])
        if not compiling() and rows == lod.rows:  # there is nothing to pad
            with_memory(x)
            dense = x.clone(memory_format=torch.contiguous_format)
            return dense.view(shape), torch.full((n,), max_length, device=x.device)
        starts = lod.padded_starts_at(k, max_length, side == "right", x.device)
        dense = ops.scatter_runs(x, starts, lod.row_offsets_at(k, x.device), rows, 1, padding_value)
        return dense.view(shape), lod.handed_out(lod.row_lengths_at(k, x.device))

    def _to_padded_all(self: Any, padding_value, side: str):
        dense = self.values()
        if self._lod.depth + dense.dim() > 64:  # what torch's own functions take
            raise LoDValueError(
                f"expected at most {64 - dense.dim()} levels with level='all' and rows of {dense.dim() - 1} dims, got "
                f"{self._lod.depth}; see flatten_levels"
            )
        if not compiling():
            sizes = [self._lod.longest_at(k) for k in range(self._lod.depth)]
            padded_rows(self._lod.num_sequences(), math.prod(sizes), math.prod(dense.shape[1:]))
        lengths: list[Tensor] = []
        for offsets in reversed(self._lod.levels):
            one = LoD.checked("offsets", [offsets])
            lengths = [type(self)(t, one).to_padded(side=side)[0] for t in lengths]
            dense, own = type(self)(dense, one).to_padded(padding_value, side=side)
            lengths.insert(0, own)
        return dense, tuple(lengths)

    @public
    def mask(self: Any, level: int | str = -1, max_length: int | None = None, side: str = "right") -> Tensor:
        """bool, (sequences, length): where `to_padded` has rows."""
        rows = self.with_values(torch.ones(self.shape[0], dtype=torch.bool, device=self.device))
        return rows.to_padded(False, level=level, max_length=max_length, side=side)[0]

    def to_list(self: Any) -> list:
        """Nested Python lists, a nesting per level."""
        items = self.values().tolist()
        for offsets in reversed(self._lod.levels):
            ends = offsets.tolist()
            items = [items[a:b] for a, b in itertools.pairwise(ends)]
        return items

    @public
    def to_packed_sequence(self: Any) -> torch.nn.utils.rnn.PackedSequence:
        """The innermost sequences as torch's PackedSequence. ValueError if one is empty: PackedSequence has none."""
        lod = self._lod
        lengths = lod.lengths()
        if lengths.numel() == 0 or lod.any_empty_at(lod.depth - 1):
            raise LoDValueError("expected no empty sequence, which a PackedSequence cannot hold")
        order = lengths.argsort(descending=True, stable=True)
        rank, step, sizes = by_steps(lengths[order])
        rows = uploaded_map(lod.row_offsets_at(lod.depth - 1)[order[rank]] + step, self.device, len(self))
        both = (uploaded_map(t, self.device, order.numel()) for t in (order, order.argsort()))
        return torch.nn.utils.rnn.PackedSequence(ops.gather_rows(self.values(), rows), sizes, *both)

    @public
    def to_nested(self: Any) -> Tensor:
        """torch.nested's jagged tensor over the same rows; it has one ragged level, so this LoDTensor must have one
        level."""
        if self._lod.depth != 1:
            raise LoDValueError(f"expected 1 level, got {self._lod.depth}; see flatten_levels")
        return torch.nested.nested_tensor_from_jagged(self.values(), offsets=self.row_offsets())
