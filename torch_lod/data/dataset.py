# SPDX-License-Identifier: Apache-2.0
"""One large LoDTensor as a dataset."""

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..construct.rows import of_a_table
from ..errors import LoDError, LoDIndexError, LoDRuntimeError, LoDTypeError, LoDValueError, named, public, shown
from ..structure.lod import LoD
from ..structure.validate import a_bool, with_memory
from ..tensor.lod_tensor import LoDTensor, moved
from .batch import Fields, FixedField, Samples, SequenceField
from .file import _loaded, _path
from .items import Piece

__all__ = ["LoDDataset"]


class LoDDataset(Dataset):
    """The outermost sequences of a LoDTensor, in memory or in a file, as the items of a map-style dataset.

        >>> import torch, torch_lod as tl
        >>> words = tl.lod_tensor([[[1, 2], [3]], [[4, 5, 6]]])
        >>> dataset = tl.data.LoDDataset({"words": words, "label": torch.tensor([0, 1])})
        >>> len(dataset), dataset[1]["words"].lod, dataset[1]["label"]
        (2, LoD([[3]]), tensor(1))

    A DataLoader asks it for all items of a batch in one call, which are taken out of the rows in one pass: the cost is that of the
    batch, however many items there are, and `tl.data.collate` has nothing left to do. Workers that are forked read the same
    memory; to workers that are spawned, rows in memory move to shared memory, and a file is opened again.

    Items know what their fields are, through a dict of them, a `Subset` and other datasets around this one: `tl.data.collate` and
    torch's default_collate make a level of a sequence, and stack what has one size, such as a vector for each user.

    Args:
        data: a LoDTensor; or a dict of LoDTensors with equally many outermost sequences and of tensors with a row for each of
            them, whose items are dicts; or the path of a file of `tl.data.save`.
        mmap: of a file: leave its rows there, as `tl.data.load` does.
        transform: a function of an item, whose result is the item: for a DataLoader they are then taken one by one. What it
            makes of a sequence is a sequence, and what it makes of fields of one size has one; other tensors with rows are
            sequences unless `tl.data.collate(..., stack=[...])` names them.

    Raises:
        TypeError, ValueError: for other data, for fields of different lengths. IndexError for an item that is not there.
    """

    @public
    def __init__(
        self,
        data: LoDTensor | Mapping[str, Tensor] | str | os.PathLike,
        *,
        mmap: bool = True,
        transform: Callable[[Any], Any] | None = None,
    ):
        a_bool("mmap", mmap, "True or False")
        if transform is not None and not callable(transform):
            raise LoDTypeError(f"expected transform as a function of an item, got {shown(transform)}")
        self._transform = transform
        self._path, self._mmap, self._checksum = None, mmap, None
        if isinstance(data, (str, os.PathLike)):
            self._path = os.path.abspath(_path(data))
            data, self._checksum = _loaded(self._path, mmap, not mmap)
        self._fill(data)

    def _fill(self, data) -> None:
        self._single = isinstance(data, LoDTensor)
        fields = {"": data} if self._single else data
        if not isinstance(fields, Mapping) or not any(isinstance(x, LoDTensor) for x in fields.values()):
            raise LoDTypeError(
                f"expected data as a LoDTensor, a dict with one, or a path, got {type(data).__name__}{of_a_table(data)}"
            )
        for name, x in fields.items():
            if not isinstance(x, Tensor) or x.dim() == 0:
                hint = of_a_table(x)
                raise LoDTypeError(f"expected tensors with rows in data, got {shown(x)} as {name!r}{hint}")
            with_memory(x)
        self.fields: dict[str, Tensor] = dict(fields)
        counts = {name: _count(x) for name, x in fields.items()}
        if len(set(counts.values())) > 1:
            raise LoDValueError(f"expected fields of equally many items, got {counts}")
        self._count = next(iter(counts.values()))

    @property
    def lod(self) -> LoD:
        """The LoD of the first LoDTensor: what samplers take as lengths."""
        return next(x.lod for x in self.fields.values() if isinstance(x, LoDTensor))

    def __len__(self) -> int:
        return self._count

    @public
    def __getitem__(self, index: int | Piece):
        """An item: what `x.seq[index]` gives, of every field; or what `transform` makes of it."""
        item = self._item(index)
        return item if self._transform is None else self._transform(item)

    def _item(self, index):
        found = {}
        for name, x in self.fields.items():
            (at,), (piece,) = self._located([index])
            if piece is None or not isinstance(x, LoDTensor):
                found[name] = _one(x, at)
            else:
                found[name] = self._taken(x, torch.tensor([at]), [piece]).values().as_subclass(SequenceField)
        return found[""] if self._single else found

    @public
    def __getitems__(self, indices: Sequence) -> "Taken | list":
        """Items for a batch: a list of them for a caller that asks for them, and a batch for `tl.data.collate`."""
        if not isinstance(indices, (list, tuple)) or not indices:
            raise LoDTypeError(f"expected indices as a list of at least 1 index, got {shown(indices)}")
        numbers, pieces = self._located(indices)
        if self._transform is not None:
            return [self[index] for index in indices]
        at = torch.tensor(numbers, device="cpu")
        found = {}
        for name, x in self.fields.items():
            found[name] = self._taken(x, at, pieces) if isinstance(x, LoDTensor) else x[at.to(x.device)]
        return Taken(found[""] if self._single else found)

    def _located(self, indices) -> tuple[list[int], list[Piece | None]]:
        numbers: list[int] = []
        pieces: list[Piece | None] = []
        for given in indices:
            index = given.item if isinstance(given, Piece) else given
            try:
                if isinstance(index, bool):
                    raise TypeError
                number = operator.index(index)
            except TypeError:
                raise LoDTypeError(f"expected an index as an integer or a Piece, got {shown(given)}") from None
            if not -self._count <= number < self._count:
                raise LoDIndexError(f"expected an index in [{-self._count}, {self._count - 1}], got {shown(number)}")
            numbers.append(number % self._count)
            pieces.append(given if isinstance(given, Piece) else None)
        return numbers, pieces

    @staticmethod
    def _taken(x: LoDTensor, at: Tensor, pieces: list) -> LoDTensor:
        """A batch of items."""
        offsets = x.lod.levels[0]
        starts, lengths = offsets[at], offsets[at + 1] - offsets[at]
        for i, piece in enumerate(pieces):
            if piece is None:
                continue
            if x.lod_level > 1:
                raise LoDValueError(
                    f"expected Pieces of items of one level, got {piece} of items of {x.lod_level} levels"
                )
            bounds = piece[1:]
            if not all(type(n) is int for n in bounds) or not 0 <= bounds[0] <= bounds[1] <= int(lengths[i]):
                raise LoDIndexError(f"expected a Piece within the {int(lengths[i])} rows of its item, got {piece}")
            starts[i] += piece.begin
            lengths[i] = piece.end - piece.begin
        return moved(x, *x.lod.runs(0, starts, lengths))

    def __getstate__(self) -> dict:
        if self._path is None or not self._mmap:
            return self.__dict__
        return {"_path": self._path, "_mmap": True, "_checksum": self._checksum, "_transform": self._transform}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        if "fields" not in state:
            try:
                data, checksum = _loaded(state["_path"], True, False)
            except LoDError as error:
                raise named(error, "LoDDataset") from None
            if checksum != state["_checksum"]:
                raise named(
                    LoDRuntimeError(f"expected {self._path} as it was when it was opened, got another file"),
                    "LoDDataset",
                )
            self._fill(data)


def _count(x: Tensor) -> int:
    return x.num_sequences() if isinstance(x, LoDTensor) else x.shape[0]


class Taken(Samples):
    """Items of a LoDDataset, laid out as a batch."""

    batched: Any

    def __init__(self, batched):
        self.batched = batched

    def __len__(self) -> int:
        return _count(next(iter(self.batched.values())) if isinstance(self.batched, dict) else self.batched)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        if isinstance(self.batched, dict):
            return Fields({name: _one(x, index) for name, x in self.batched.items()})
        return _one(self.batched, index)

    def __iter__(self) -> Iterator:
        return (self[i] for i in range(len(self)))


def _one(x: Tensor, index: int) -> Tensor:
    """An item of a field, which says to `batch` what it is."""
    if not isinstance(x, LoDTensor):
        return x[index].as_subclass(FixedField)
    found = x.seq[index]
    return found if isinstance(found, LoDTensor) else found.as_subclass(SequenceField)
