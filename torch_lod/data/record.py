# SPDX-License-Identifier: Apache-2.0
"""Several fields of one structure."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..construct.rows import of_a_table
from ..errors import LoDTypeError, LoDValueError, boundary, public, shown
from ..structure.lod import LoD
from ..structure.validate import is_int
from ..tensor.lod_tensor import LoDTensor

__all__ = ["Record"]


class Record(Mapping[str, LoDTensor]):
    """LoDTensors of one LoD by name, as the columns of a table: what picks or moves rows of one does so with all.

        >>> import torch, torch_lod as tl
        >>> words = tl.lod_tensor([[5, 6, 7], [8]])
        >>> record = tl.data.Record({"word": words, "weight": words / 8})
        >>> part = record.seq[:1].filter_rows(record.seq[:1]["word"] > 5)
        >>> part["word"].to_list(), part["weight"].to_list(), part.lod is part["weight"].lod
        ([[6, 7]], [[0.75, 0.875]], True)

    A mapping that does not change: `Record({**record, "length": x})` has one more field. `tl.batch`, `tl.data.save`,
    `LoDDataset` and DataLoaders take it as any mapping; `tl.batch` of records is a record.

    Args:
        fields: a mapping from names to LoDTensors with equal LoDs; all of them get the LoD of the first.

    Raises:
        TypeError: for a field that is no LoDTensor. ValueError: for none, and for LoDs that differ.
    """

    __slots__ = ("_fields", "_ids")
    _fields: dict[str, LoDTensor]
    #: Of every level, an id for each of its sequences, or None.
    _ids: tuple[np.ndarray | None, ...]

    @public
    def __init__(self, fields: Mapping[str, LoDTensor]):
        if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields.keys()):
            hint = of_a_table(fields)
            raise LoDTypeError(f"expected fields as a dict of LoDTensors by name, got {shown(fields)}{hint}")
        self._fields, self._ids = {}, ()
        lod: LoD | None = None
        for name in fields.keys():
            x = fields[name]
            if not isinstance(x, LoDTensor):
                raise LoDTypeError(f"expected fields of LoDTensors, got {shown(x)} as {name!r}{of_a_table(x)}")
            if lod is not None and x.lod is not lod:
                if lod.differs(x.lod):
                    first = next(iter(self._fields))
                    raise LoDValueError(
                        f"expected fields of equal LoDs, got LoDs that differ: {first!r} and {name!r} {lod.difference(x.lod)}"
                    )
                x = x.with_lod(lod)
            self._fields[name] = x
            lod = x.lod if lod is None else lod
        if lod is None:
            raise LoDValueError("expected at least 1 field, got none")

    @boundary("Record")
    def __getitem__(self, name: str) -> LoDTensor:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        kinds = (f"{name!r}: {x.dtype} {tuple(x.shape[1:])}" for name, x in self._fields.items())
        return f"Record({{{', '.join(kinds)}}}, lod={self.lod})"

    @property
    def lod(self) -> LoD:
        """The structure of all fields."""
        return next(iter(self._fields.values())).lod

    @property
    def ids(self) -> dict[str | int, np.ndarray]:
        """By level, an id for each of its sequences, outer ones first: the keys of `tl.data.from_frame`. `.seq`, `.filter`,
        `.filter_rows` and `.to` keep them; files, `tl.batch` and a `.map` to another structure do not."""
        names = self.lod.level_names or ()
        found = itertools.zip_longest(range(len(self._ids)), names[: len(self._ids)], self._ids)
        return {k if name is None else name: ids for k, name, ids in found if ids is not None}

    def _with_ids(self, ids: Iterable[np.ndarray | None]) -> "Record":
        self._ids = tuple(ids)
        return self

    def _follow(self, record: Any, first: int, pick: Callable[[LoDTensor], Any]) -> Any:
        """A record of parts of this one with its ids: those of levels before `first`, and of the others what `pick` takes of a
        LoDTensor with a row for each sequence of the level."""
        if not isinstance(record, Record) or not self._ids:
            return record
        kept = list(self._ids[:first])
        for k, ids in enumerate(self._ids[first:], first):
            count = torch.arange(self.lod.num_sequences(k), device="cpu")
            own = self.lod.outer(k) if k else LoD.from_lengths([torch.ones_like(count)])
            at = pick(LoDTensor(count, own)) if own is not None and ids is not None else None
            kept.append(None if ids is None or at is None else ids[at.numpy()])
        return record._with_ids(kept)

    @public
    def map(self, function: Callable[[LoDTensor], Any]) -> Any:
        """What a function makes of every field: a Record where all of it is LoDTensors, a dict otherwise.

        `record.map(lambda x: x.head(3))`, and whatever else one LoDTensor can be asked for."""
        if not callable(function):
            raise LoDTypeError(f"expected a function of a LoDTensor, got {shown(function)}")
        made = self._each(function)
        return made._with_ids(self._ids) if isinstance(made, Record) and made.lod is self.lod else made

    def _each(self, function: Callable[[LoDTensor], Any]) -> Any:
        made = {name: function(x) for name, x in self._fields.items()}
        return Record(made) if all(isinstance(x, LoDTensor) for x in made.values()) else made

    @property
    def seq(self) -> "RecordSequences":
        """Sequences by index, as `LoDTensor.seq`: `record.seq[2]`, `record.seq[1:3]`, `record.seq[mask]`. A dict of plain
        tensors where no level is left."""
        return RecordSequences(self)

    @public
    def to(self, *args, **kwargs) -> "Record":
        """`torch.Tensor.to` of every field."""
        return self._each(lambda x: x.to(*args, **kwargs))._with_ids(self._ids)

    @public
    def filter_rows(self, mask: Tensor) -> "Record":
        """The rows where a boolean mask is true, as `LoDTensor.filter_rows`."""
        return self._each(lambda x: x.filter_rows(mask))._with_ids(self._ids)

    @public
    def filter(self, mask: Tensor, *, level: int | str = -1) -> "Record":
        """The elements of a level where a boolean mask is true, as `LoDTensor.filter`: rows at the innermost level, whole
        sub-sequences at an outer one."""
        k = self.lod.level(level)
        made = self._each(lambda x: x.filter(mask, level=k))
        return self._follow(made, k + 1, lambda x: x.filter(mask, level=k).values())

    def __reduce__(self):
        return _load_record, (dict(self._fields),)

    # what is equal would be a question for every row
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _load_record(fields: dict[str, LoDTensor]) -> Record:
    """Called by pickle and torch.load."""
    return Record(fields)


torch.serialization.add_safe_globals([_load_record])  # not the class: see lod.py


class RecordSequences:
    """`record.seq`."""

    def __init__(self, record: Record):
        self._record = record

    def __len__(self) -> int:
        return self._record.lod.num_sequences()

    def __getitem__(self, key: Any) -> Any:
        record = self._record
        made = record._each(lambda x: x.seq[key])
        if isinstance(key, tuple):  # which may cut any level
            return made
        alone = is_int(key)

        def pick(x: LoDTensor) -> Tensor:
            found = x.seq[key]
            return found.values() if isinstance(found, LoDTensor) else found

        found = record._follow(made, 0, pick)
        return found._with_ids(found._ids[1:]) if alone and isinstance(found, Record) else found

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))
