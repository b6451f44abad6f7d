# SPDX-License-Identifier: Apache-2.0
"""Methods of LoDTensor under the names of PaddlePaddle and of the first design of the LoD."""

from typing import Any

from ..errors import LoDTypeError, public
from ..structure.lod import LoD, fitting
from ..tensor.lod_tensor import LoDTensor
from ..tensor.provenance import Provenance


class PaddleMethods:
    """What this module adds to LoDTensor, which provides `lod`, `shape`, `slice` and the rest."""

    __slots__ = ()
    _lod: LoD

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Lengths as lists, outermost level first."""
        return self._lod.to_lengths()

    @public
    def set_recursive_sequence_lengths(self, lengths) -> None:
        """Replaces this tensor's LoD (never that of another tensor). If it does not fit: ValueError, and the old
        LoD stays."""
        self._replace(LoD.parsed_lengths("lengths", lengths, None))

    @public
    def set_lod(self, lod) -> None:
        """Replaces this tensor's LoD by a LoD or by lists of offsets. If it does not fit: ValueError, and the
        old one stays."""
        self._replace(lod if isinstance(lod, LoD) else LoD.parsed_offsets("lod", lod, None))

    def has_valid_recursive_sequence_lengths(self: Any) -> bool:
        """Whether the LoD covers the rows: always, by construction."""
        return self._lod.rows == self.shape[0]

    def levels(self) -> int:
        """Number of levels."""
        return self._lod.depth

    def elements(self, level: int | str = 0) -> int:
        """Number of sequences at a level."""
        return self._lod.num_sequences(level)

    def lod_slice(self: Any, level: int | str, begin: int, end: int):
        """`slice` as a copy."""
        part = self.slice(level, begin, end)
        return part.with_values(part.values().clone())

    def lod_slice_shared(self: Any, level: int | str, begin: int, end: int):
        """`slice`: shares storage."""
        return self.slice(level, begin, end)

    @public
    def share_lod_from(self, other):
        """Takes the LoD object of another tensor of as many rows."""
        return self._replace(_lod_of(other))

    @public
    def copy_lod_from(self, other):
        """Takes a LoD equal to that of another tensor, an object of its own."""
        lod = _lod_of(other)
        return self._replace(LoD(lod.to_list(), level_names=lod.level_names))

    def _replace(self: Any, lod: LoD):
        fitting(self, lod)
        self._provenance = Provenance(self._counted_in(lod), 0)
        return self


def _lod_of(other) -> LoD:
    if not isinstance(other, LoDTensor):
        raise LoDTypeError(f"expected other as a LoDTensor, got {type(other).__name__}; see tl.from_lengths")
    return other._lod


for _name, _method in vars(PaddleMethods).items():
    if callable(_method) and _name[:2] != "__":
        setattr(LoDTensor, _name, _method)
