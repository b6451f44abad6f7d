# SPDX-License-Identifier: Apache-2.0
"""Methods of LoDTensor that give its rows another form: padded, packed, nested, lists."""

import itertools
import math
from typing import Any, Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, holds
from ..errors import LoDValueError, boundary, public, shown
from ..structure.lod import LoD
from ..structure.partition import together
from ..structure.validate import as_int, filler, one_of, padded_rows, with_memory


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
    @boundary(dispatch=False)
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
        one_of("side", side, "right", "left")
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
        element = x.shape[1:]
        rows, shape = padded_rows((n, max_length), math.prod(element)), (n, max_length, *element)
        if not compiling() and rows == lod.rows:  # there is nothing to pad
            with_memory(x)
            dense = x.clone(memory_format=torch.contiguous_format)
            return dense.view(shape), torch.full((n,), max_length, device=x.device)
        starts, offsets, lengths = lod.together_at(
            ("padded", k, max_length, side),
            x.device,
            lambda: (
                (lod.padded_starts_at, k, max_length, side == "right"),
                (lod.row_offsets_at, k),
                (lod.row_lengths_at, k),
            ),
        )
        dense = ops.scatter_runs(x, starts, offsets, rows, 1, padding_value)
        return dense.view(shape), lod.handed_out(lengths)

    def _to_padded_all(self: Any, padding_value, side: str):
        lod, x, right = self._lod, self.values() if compiling() else self, side == "right"
        if lod.depth + x.dim() > 64:  # what torch's own functions take
            raise LoDValueError(
                f"expected at most {64 - x.dim()} levels with level='all' and rows of {x.dim() - 1} dims, got "
                f"{lod.depth}; see flatten_levels"
            )
        sizes = [lod.num_sequences(), *(lod.longest_at(k) for k in range(lod.depth))]
        rows = padded_rows(sizes, math.prod(x.shape[1:]))
        cells = lod.spread_at(right)[0]
        parts = (cells.padded_starts_at, 0, sizes[-1], right), (cells.row_offsets_at, 0)
        of_levels = ((lod.dense_lengths_at, k, right) for k in range(lod.depth))
        starts, offsets, *lengths = together(x.device, *parts, *of_levels)
        dense = ops.scatter_runs(x, starts, offsets, rows, 1, padding_value).view(*sizes, *x.shape[1:])
        return dense, tuple(lod.handed_out(t).view(sizes[: k + 1]) for k, t in enumerate(lengths))

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
        k = lod.depth - 1
        if lod.num_sequences(k) == 0 or lod.any_empty_at(k):
            raise LoDValueError("expected no empty sequence, which a PackedSequence cannot hold")
        rows, *both = together(self.device, (lod.steps_at, k), (lod.rank_at, k), (lod.place_at, k))
        values, sizes = ops.gather_rows(self.values(), rows), lod.step_sizes_at(k).clone()
        return torch.nn.utils.rnn.PackedSequence(values, sizes, *map(lod.handed_out, both))

    @public
    def to_nested(self: Any) -> Tensor:
        """torch.nested's jagged tensor over the same rows; it has one ragged level, so this LoDTensor must have one
        level."""
        if self._lod.depth != 1:
            raise LoDValueError(f"expected 1 level, got {self._lod.depth}; see flatten_levels")
        return torch.nested.nested_tensor_from_jagged(self.values(), offsets=self.row_offsets())
