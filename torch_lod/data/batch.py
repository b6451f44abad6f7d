# SPDX-License-Identifier: Apache-2.0
"""Samples to batches."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..construct.joined import on_one_device
from ..construct.lists import NUMBERS, is_list_or_objects, kinds_of, of_numbers, of_rows, opened
from ..construct.offsets import from_lengths
from ..construct.rows import of_a_table, tensor_of
from ..errors import LoDError, LoDTypeError, LoDValueError, constructor, shown
from ..structure.validate import traverse, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, made

__all__ = ["batch"]


class Samples(Sequence):
    """Samples that are already laid out as a batch, `batched`; a list of them for a caller that wants them one by one."""

    batched: Any


class Fields(dict):
    """One of `Samples` by name: by this class torch's default_collate finds `patches`."""


class FixedField(Tensor):
    """A field of an item that has one size in all items, so that `batch` stacks it; what functions make of it has, too."""

    def __repr__(self, *, tensor_contents=None) -> str:  # type: ignore[override]
        return repr(self.as_subclass(Tensor))


class SequenceField(FixedField):
    """A field of an item that is a sequence: `batch` makes a level of it. What functions make of both is one: torch gives
    the result the class that derives from the other."""


class _How(NamedTuple):
    """The options of a batch; `used` are those of `stack` that fields have."""

    strings: str | Callable | None
    stack: frozenset
    used: set


@constructor
def batch(
    items,
    name: str | None = None,
    *,
    strings: str | Callable | None = None,
    stack: Sequence[str | int] | None = None,
):
    """Samples as a batch: what is of variable length gets one more outer level, of as many sequences as there are samples.

    A `collate_fn` for torch.utils.data.DataLoader, also as `tl.data.collate`. Torch's own `default_collate` does the same
    with LoDTensors.

        >>> import torch, torch_lod as tl
        >>> a, b = tl.lod_tensor([[1, 2, 3], [4]]), tl.lod_tensor([[5, 6]])
        >>> tl.batch([a, b]).recursive_sequence_lengths()
        [[2, 1], [3, 1, 2]]
        >>> samples = [{"words": [7, 8, 9], "label": 0}, {"words": [3], "label": 1}]
        >>> tl.batch(samples)["words"].recursive_sequence_lengths(), tl.batch(samples)["label"]
        ([[3, 1]], tensor([0, 1]))
        >>> tl.batch(["to be", "or"], strings="bytes").to_list()
        [[116, 111, 32, 98, 101], [111, 114]]

    Args:
        items: a list, or an array of objects, of samples of one kind. LoDTensors of equal depth; tensors or arrays with rows, each of them one
            sequence; (nested) lists, or arrays of objects, of numbers, tensors, arrays or LoDTensors; numbers, or tensors
            without dims, which make a plain tensor (samples,); strings and other objects, which stay a list; or dicts,
            tuples and dataclasses of these, whose fields are made batches one by one. A list of dicts, named tuples or
            dataclasses is a level of each of their fields; tuples within lists are lists.
        name: of the new level.
        stack: names of fields, or positions in tuples, that have one size and no rows: vectors, images, rows of features. They
            become plain tensors (samples, *shape), whatever they are: tensors, arrays or lists of numbers. Items of a
            `LoDDataset` say so themselves.
        strings: what a string becomes. None: it stays as it is. "bytes": a sequence of its bytes in UTF-8, as uint8. A
            function, such as a tokenizer: what it returns for a string, in its place.

    Raises:
        TypeError: for samples of different kinds, for tensors or arrays of different dtypes; the message names the field and
            the positions. Python's numbers have no dtype: integers beside floats become floats, as in torch.tensor.
        ValueError: for no samples; for fields, depths or shapes of rows that differ; for names of `stack` that no field has;
            for a container that contains itself.
    """
    if not isinstance(items, Samples) and not is_list_or_objects(items):
        raise LoDTypeError(f"expected items as a list of samples, got {type(items).__name__}{of_a_table(items)}")
    if strings is not None and strings != "bytes" and not callable(strings):
        raise LoDTypeError(f"expected strings None, 'bytes' or a function, got {shown(strings)}")
    if len(items) == 0:
        raise LoDValueError("expected at least 1 sample, got none")
    how = _How(strings, _names(stack), set())
    if isinstance(items, Samples) and how.stack <= {key for key, x in _parts(items) if type(x) is Tensor}:
        return _renamed(items.batched, name)
    made = traverse("items", lambda given: _batch(list(given), name, "", how), items)
    for key in how.stack - how.used:
        raise LoDValueError(f"expected stack of fields that the samples have, got {shown(key)}")
    return made


def _names(stack) -> frozenset:
    if stack is None:
        return frozenset()
    if not isinstance(stack, (list, tuple)) or not all(isinstance(key, str) or type(key) is int for key in stack):
        raise LoDTypeError(f"expected stack as a list of names or positions of fields, got {shown(stack)}")
    return frozenset(stack)


def _parts(items: Samples):
    return items.batched.items() if isinstance(items.batched, Mapping) else ()


def _batch(items: list, name, field: str, how: _How):
    if how.strings is not None and all(isinstance(item, str) for item in items):
        items, how = _read(items, how.strings), how._replace(strings=None)
    kind = _kind(items[0])
    for i in _others(items):
        raise LoDTypeError(
            f"expected samples of one kind{field}, got {kind} at index 0 and {_kind(items[i])} at index {i}"
        )
    return _of_one_kind(items, name, field, how)


def _of_one_kind(items: list, name, field: str, how: _How):
    first, kind = items[0], _kind(items[0])
    if kind == "list":
        return _of_lists(items, name, field, how)
    if kind in _MAKERS:
        return _named(_said(field, _MAKERS[kind], items), name)
    if _is_record(first):
        return _of_records(items, field, lambda values, where, key: _of_field(values, where, key, name, how))
    if isinstance(first, tuple):
        count = len(first)
        for i, item in enumerate(items):
            if len(item) != count:
                raise LoDValueError(
                    f"expected tuples of equal length{field}, got {count} at index 0 and {len(item)} at index {i}"
                )
        fields = enumerate(zip(*items))
        return tuple(_of_field(list(values), f" at position {i}{field}", i, name, how) for i, values in fields)
    if hasattr(first, "__len__") and (hint := of_a_table(first)):
        raise LoDTypeError(f"expected samples of tensors, arrays, lists or numbers{field}, got {kind}{hint}")
    return items


def _of_field(values: list, where: str, key, name, how: _How):
    if key not in how.stack:
        return _batch(values, name, where, how)
    how.used.add(key)
    return _said(where, _stacked, values)


def _stacked(items: list):
    """Items of one size as a plain tensor, records and tuples of such as one of them."""
    if _is_record(items[0]):
        return _of_records(items, "", lambda values, where, _: _said(where, _stacked, values))
    kind = _kind(items[0])
    for i in _others(items):
        raise LoDTypeError(f"expected samples of one kind, got {kind} at index 0 and {_kind(items[i])} at index {i}")
    if kind == "list":
        found = of_numbers(items, set())
    elif kind not in _MAKERS or kind == "LoDTensor":
        raise LoDTypeError(f"expected tensors, arrays or numbers to stack, got {kind}")
    else:
        found = (_of_scalars if kind == "number" else _of_one_size)(items)
    return found


def _read(texts: list[str], strings) -> list:
    """What strings become."""
    if callable(strings):
        return [strings(text) for text in texts]
    try:
        return [np.frombuffer(bytearray(text, "utf-8"), dtype=np.uint8) for text in texts]
    except UnicodeEncodeError as error:
        raise LoDValueError(f"expected strings that UTF-8 can hold, got {shown(error.object)}") from None


def _of_records(items: list, field: str, batch_of: Callable):
    """A record of batches."""
    first = items[0]
    if isinstance(first, Mapping):
        keys = list(first.keys())  # a mapping may iterate over something else, as a TensorDict does
        for i, item in enumerate(items):
            if item.keys() != first.keys() and set(item.keys()) != set(keys):
                raise LoDValueError(
                    f"expected equal keys{field}, got {keys} at index 0 and {list(item.keys())} at index {i}"
                )
        values = {key: batch_of([item[key] for item in items], f" in {key!r}{field}", key) for key in keys}
        try:
            return values if type(first) is Fields else type(first)(values)  # type: ignore[call-arg]
        except TypeError:  # a class whose constructor takes something else
            return values
    names = first._fields if isinstance(first, tuple) else [f.name for f in dataclasses.fields(first)]  # type: ignore[attr-defined]
    values = {}
    for i, key in enumerate(names):
        where = f" at position {i}{field}" if isinstance(first, tuple) else f" in {key!r}{field}"
        values[key] = batch_of([getattr(item, key) for item in items], where, key)
    if isinstance(first, tuple):
        return type(first)(**values)
    if all(f.init for f in dataclasses.fields(first)) and not hasattr(first, "__post_init__"):  # type: ignore[arg-type]
        return dataclasses.replace(first, **values)
    record = type(first).__new__(type(first))  # type: ignore[call-overload]  # constructors are for one sample
    for key, value in values.items():
        object.__setattr__(record, key, value)
    return record


def _of_lists(items: list, name, field: str, how: _How):
    """Lists of numbers, rows, records or strings, nested to one depth."""
    levels, leaves, kinds = _said(field, opened, items, None, _is_list)
    if kinds <= NUMBERS:
        return _named(from_lengths(_said(field, of_numbers, leaves, kinds), levels), name)
    if how.strings is not None and all(isinstance(leaf, str) for leaf in leaves):
        leaves, how = _read(leaves, how.strings), how._replace(strings=None)
    for i in _others(leaves):
        raise LoDTypeError(
            f"expected lists of numbers, of tensors, of strings or of records{field}, got {_kind(leaves[0])} and, "
            f"{i} items later, {_kind(leaves[i])}"
        )
    if _is_record(leaves[0]):
        below = _of_records(leaves, field, lambda values, where, key: _of_field(values, where, key, None, how))
    else:
        below = _of_one_kind(leaves, None, field, how)
    return _under(below, levels, name)


def _under(below, levels: list[list[int]], name):
    """The batch of the innermost items of nested lists, under the levels of those lists."""
    if isinstance(below, LoDTensor):
        lod = below.lod
        for lengths in reversed(levels):
            lod = lod.group(lengths)
        return _named(made(below.values(), lod), name)
    if isinstance(below, Tensor):
        return _named(from_lengths(below, levels), name)
    if _is_record(below):
        return _mapped(below, lambda part: _under(part, levels, name))
    if isinstance(below, tuple):
        return tuple(_under(part, levels, name) for part in below)
    for lengths in reversed(levels):  # other objects: lists again
        ends = list(itertools.accumulate(lengths, initial=0))
        below = [below[a:b] for a, b in itertools.pairwise(ends)]
    return below


def _is_list(item) -> bool:
    """A record is none."""
    return is_list_or_objects(item) and not hasattr(item, "_fields")


def _is_record(item) -> bool:
    if isinstance(item, (Mapping, tuple)):
        return isinstance(item, Mapping) or hasattr(item, "_fields")
    return dataclasses.is_dataclass(item) and not isinstance(item, type)


def _mapped(record, function: Callable):
    """A record of what a function makes of its fields."""
    return _of_records([record], "", lambda values, *_: function(values[0]))


def _kind(item) -> str:
    """What a sample is, in words."""
    if isinstance(item, LoDTensor):
        return "LoDTensor"
    if isinstance(item, FixedField) and not isinstance(item, SequenceField) and item.ndim:
        return "tensor of one size"
    if isinstance(item, (Tensor, np.ndarray)):
        return "number" if not item.ndim else "list" if item.dtype == object else "tensor with rows"
    if isinstance(item, list):
        return "list"
    return "number" if isinstance(item, (*NUMBERS, np.number, np.bool_)) else type(item).__name__


def _others(items: list) -> list[int]:
    """The index of the first item of another kind than items[0], in a list; [] for one kind."""
    kinds = set(map(type, items))
    if len(kinds) == 1 and not kinds & {Tensor, np.ndarray}:
        return []
    if kinds == {Tensor} and len({item.dim() > 0 for item in items}) == 1:
        return []
    if kinds == {np.ndarray} and len({(item.ndim > 0, item.dtype == object) for item in items}) == 1:
        return []
    first = _kind(items[0])
    return [i for i, item in enumerate(items) if _kind(item) != first][:1]


def _of_one_dtype(items: list) -> None:
    """TypeError for tensors or arrays of different dtypes: which one is meant cannot be known."""
    if len({item.dtype for item in items}) > 1:
        names = [str(item.dtype).removeprefix("torch.") for item in items]
        for i, found in enumerate(names):
            if found != names[0]:
                raise LoDTypeError(f"expected rows of one dtype, got {names[0]} at index 0 and {found} at index {i}")


def _plain(items: list) -> list:
    return [item.as_subclass(Tensor) if isinstance(item, FixedField) else item for item in items]


def _of_one_size(items: list) -> Tensor:
    rows = [tensor_of("samples", item) for item in _plain(items)]
    with_memory(*rows)
    _of_one_dtype(rows)
    on_one_device(rows)
    for i, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise LoDValueError(
                f"expected tensors of one shape to stack, got {tuple(rows[0].shape)} at index 0 and {tuple(row.shape)} at "
                f"index {i}"
            )
    return torch.stack([row.values() if isinstance(row, DerivedTensor) else row for row in rows])


def _of_tensors(items: list) -> LoDTensor:
    items = _plain(items)
    _of_one_dtype(items)
    return of_rows(items, kinds_of(items), [])


def _of_scalars(items: list) -> Tensor:
    kinds = set(map(type, items))
    if kinds <= NUMBERS:
        return of_numbers(items, kinds)
    numbers = []
    for item in _plain(items):
        if isinstance(item, np.ndarray):
            item = tensor_of("samples", item)
        numbers.append(item.values() if isinstance(item, DerivedTensor) else torch.as_tensor(item))
    with_memory(*numbers)
    _of_one_dtype(numbers)
    on_one_device(numbers)
    return torch.stack(numbers)


_MAKERS: dict[str, Callable[[list], Tensor]] = {
    "LoDTensor": _of_tensors,
    "tensor with rows": _of_tensors,
    "tensor of one size": _of_one_size,
    "number": _of_scalars,
}


def _said(field: str, function: Callable, *args):
    """What a function returns; its error with the field."""
    try:
        return function(*args)
    except LoDError as error:
        said = str(error).removeprefix(f"{error.call}: ")
        raise type(error)(f"{said}{field}") from None


def _named(x: Tensor, name: str | None) -> Tensor:
    """x with another name of its outermost level."""
    if name is None or not isinstance(x, LoDTensor):
        return x
    names = x.level_names or (None,) * x.lod_level
    return made(x.values(), x.lod.with_level_names([name, *names[1:]]))


def _renamed(batched, name: str | None):
    return _mapped(batched, lambda x: _renamed(x, name)) if _is_record(batched) else _named(batched, name)
