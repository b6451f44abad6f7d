# SPDX-License-Identifier: Apache-2.0
"""Samples to batches."""

import dataclasses
from collections.abc import Callable, Mapping
from numbers import Number

import numpy as np
import torch
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from .construct import from_tensors, lod_tensor, opened
from .errors import LoDError, LoDTypeError, LoDValueError, public
from .tensor import LoDTensor, made

__all__ = ["batch"]


@public
def batch(items, name: str | None = None):
    """Samples as a batch: what is of variable length gets one more outer level, of as many sequences as there are samples.

    A `collate_fn` for torch.utils.data.DataLoader. Torch's own `default_collate` does the same with LoDTensors.

        >>> import torch, torch_lod as tl
        >>> a, b = tl.lod_tensor([[1, 2, 3], [4]]), tl.lod_tensor([[5, 6]])
        >>> tl.batch([a, b]).recursive_sequence_lengths()
        [[2, 1], [3, 1, 2]]
        >>> samples = [{"words": [7, 8, 9], "label": 0}, {"words": [3], "label": 1}]
        >>> tl.batch(samples)["words"].recursive_sequence_lengths(), tl.batch(samples)["label"]
        ([[3, 1]], tensor([0, 1]))

    Args:
        items: a list of samples of one kind. LoDTensors of equal depth; tensors or arrays with rows, each of them one
            sequence; (nested) lists of numbers, tensors or arrays; numbers, or tensors without dims, which make a plain
            tensor (samples,); strings and other objects, which stay a list; or dicts, tuples and dataclasses of these,
            whose fields are made batches one by one.
        name: of the new level.

    Raises:
        TypeError: for samples of different kinds; the message names the field and the positions.
        ValueError: for no samples, for fields, depths or shapes of rows that differ.
    """
    if not isinstance(items, (list, tuple)):
        raise LoDTypeError(f"expected items as a list of samples, got {type(items).__name__}")
    if not items:
        raise LoDValueError("expected at least 1 sample, got none")
    return _batch(items, name, "")


def _batch(items, name, field: str):
    kinds = [_kind(item) for item in items]
    for i, other in enumerate(kinds):
        if other != kinds[0]:
            raise LoDTypeError(
                f"expected samples of one kind{field}, got {kinds[0]} at index 0 and {other} at index {i}"
            )
    first, kind = items[0], type(items[0])
    try:
        if kinds[0] in _MAKERS:
            return _named(_MAKERS[kinds[0]](list(items)), name)
    except LoDError as error:
        said = str(error).removeprefix(f"{error.call}: ")
        raise type(error)(f"{said}{field}") from None
    if isinstance(first, Mapping):
        for i, item in enumerate(items):
            if item.keys() != first.keys():
                raise LoDValueError(
                    f"expected equal keys{field}, got {list(first)} at index 0 and {list(item)} at index {i}"
                )
        return kind({key: _batch([item[key] for item in items], name, f" in {key!r}{field}") for key in first})
    if dataclasses.is_dataclass(first):
        names = [f.name for f in dataclasses.fields(first)]
        values = {key: _batch([getattr(item, key) for item in items], name, f" in {key!r}{field}") for key in names}
        return dataclasses.replace(first, **values)  # type: ignore[type-var]
    if isinstance(first, tuple):
        count = len(first)
        for i, item in enumerate(items):
            if len(item) != count:
                raise LoDValueError(
                    f"expected tuples of equal length{field}, got {count} at index 0 and {len(item)} at index {i}"
                )
        parts = [_batch([item[i] for item in items], name, f" at position {i}{field}") for i in range(count)]
        return kind(*parts) if hasattr(first, "_fields") else tuple(parts)
    return list(items)


def _kind(item) -> str:
    """What a sample is, in words."""
    if isinstance(item, LoDTensor):
        return "LoDTensor"
    if isinstance(item, (Tensor, np.ndarray)):
        return "tensor with rows" if item.ndim else "number"
    if isinstance(item, list):
        return "list"
    return "number" if isinstance(item, Number) else type(item).__name__


def _of_lists(items: list) -> LoDTensor:
    _, leaves = opened(items)
    of_rows = any(isinstance(leaf, (Tensor, np.ndarray)) and leaf.ndim for leaf in leaves)
    return from_tensors(items) if of_rows else lod_tensor(items)


def _of_numbers(items: list) -> Tensor:
    return torch.stack([torch.as_tensor(item) for item in items])


_MAKERS: dict[str, Callable[[list], Tensor]] = {
    "LoDTensor": from_tensors,
    "tensor with rows": from_tensors,
    "list": _of_lists,
    "number": _of_numbers,
}


def _named(x: Tensor, name: str | None) -> Tensor:
    """x with another name of its outermost level."""
    if name is None or not isinstance(x, LoDTensor):
        return x
    names = x.level_names or (None,) * x.lod_level
    return made(x.values(), x.lod.named([name, *names[1:]]))


default_collate_fn_map[LoDTensor] = lambda items, *, collate_fn_map=None: batch(items)
