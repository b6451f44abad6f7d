# SPDX-License-Identifier: Apache-2.0
"""Several fields of one structure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, border, public, shown
from ..structure.lod import LoD
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

    __slots__ = ("_fields",)
    _fields: dict[str, LoDTensor]

    @public
    def __init__(self, fields: Mapping[str, LoDTensor]):
        if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields.keys()):
            raise LoDTypeError(f"expected fields as a dict of LoDTensors by name, got {shown(fields)}")
        self._fields = {}
        lod: LoD | None = None
        for name in fields.keys():
            x = fields[name]
            if not isinstance(x, LoDTensor):
                raise LoDTypeError(f"expected fields of LoDTensors, got {shown(x)} as {name!r}")
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

    @border("Record")
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

    @public
    def map(self, function: Callable[[LoDTensor], Any]) -> Any:
        """What a function makes of every field: a Record where all of it is LoDTensors, a dict otherwise.

        `record.map(lambda x: x.head(3))`, and whatever else one LoDTensor can be asked for."""
        if not callable(function):
            raise LoDTypeError(f"expected a function of a LoDTensor, got {shown(function)}")
        return self._each(function)

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
        return self._each(lambda x: x.to(*args, **kwargs))

    @public
    def filter_rows(self, mask: Tensor) -> "Record":
        """The rows where a boolean mask is true, as `LoDTensor.filter_rows`."""
        return self._each(lambda x: x.filter_rows(mask))

    @public
    def filter(self, mask: Tensor, *, level: int | str = -1) -> "Record":
        """The elements of a level where a boolean mask is true, as `LoDTensor.filter`: rows at the innermost level, whole
        sub-sequences at an outer one."""
        return self._each(lambda x: x.filter(mask, level=level))

    # what is equal would be a question for every row
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class RecordSequences:
    """`record.seq`."""

    def __init__(self, record: Record):
        self._record = record

    def __len__(self) -> int:
        return self._record.lod.num_sequences()

    def __getitem__(self, key: Any) -> Any:
        return self._record._each(lambda x: x.seq[key])

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))
