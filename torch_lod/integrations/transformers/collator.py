# SPDX-License-Identifier: Apache-2.0
"""`Collator`: samples to batches for the Trainer of transformers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...data.batch import batch
from ...errors import LoDTypeError, LoDValueError, public, shown
from ...structure.validate import a_bool
from ...tensor.lod_tensor import LoDTensor
from .model import packing_of

__all__ = ["Collator"]


class Collator:
    """The `data_collator` of a Trainer, or `collate_fn` of a DataLoader, for a model of `use`: samples to LoDTensors, without
    padding.

    A sample is a dict, such as a tokenizer or a row of a dataset gives: `input_ids` as a list, an array or a tensor, nested for
    more levels, and fields with as many rows (`labels`, `token_type_ids`). One number per sample (`label`, `labels`) becomes a
    plain tensor. Rows whose `attention_mask` is 0 are left out. Where the loss of the model compares a row with the label of the
    next, the first label of every sequence becomes -100, so that a Trainer counts the labels that the loss counts.

    Args:
        model: a model that `use` prepared, or a wrapper of one. It is not kept: workers get none.
        ids_are_labels: samples without labels get their ids as labels, as language models are trained.

    Raises:
        TypeError: for a model that `use` did not prepare; samples that are no dicts, or without ids.
        ValueError: for fields with other numbers of rows than the ids.
    """

    @public
    def __init__(self, model: torch.nn.Module, *, ids_are_labels: bool = False):
        modules = model.modules() if isinstance(model, torch.nn.Module) else ()
        for module in modules:
            packing = packing_of(module)
            if packing is not None:
                self._level, self._shifts = packing.level, packing.shifted(module)
                break
        else:
            raise LoDTypeError(
                f"expected a model that tl.integrations.transformers.use prepared, got {type(model).__name__}"
            )
        a_bool("ids_are_labels", ids_are_labels)
        self._ids_are_labels = ids_are_labels

    @public
    def __call__(self, samples: list) -> dict[str, Any]:
        """The batch: a dict of LoDTensors, and of plain tensors for one number per sample."""
        _check_samples(samples)
        found = batch([{_renamed(name): value for name, value in sample.items()} for sample in samples])
        ids = found["input_ids"]
        if not isinstance(ids, LoDTensor):
            raise LoDTypeError(f"expected input_ids with rows in every sample, got {shown(ids)}")
        if ids.dtype.is_floating_point and not len(ids):
            ids = found["input_ids"] = ids.long()
        for name, value in found.items():
            if isinstance(value, LoDTensor) and value.lod.differs(ids.lod):
                raise LoDValueError(
                    f"expected {name} with as many rows as input_ids, got others: {ids.lod.difference(value.lod)}"
                )
        found = _without_padding(found, found.pop("attention_mask", None))
        if self._ids_are_labels and "labels" not in found:
            found["labels"] = found["input_ids"].clone()
        labels = found.get("labels")
        if self._shifts and isinstance(labels, LoDTensor):
            first = labels.lod.position_ids(self._level) == 0
            found["labels"] = labels.with_values(labels.values().masked_fill(first, -100))
        return found


def _renamed(name: str) -> str:
    """The names under which data sets have labels."""
    return "labels" if name in ("label", "label_ids") else name


def _check_samples(samples) -> None:
    if not isinstance(samples, (list, tuple)) or not samples:
        raise LoDTypeError(f"expected samples as a list of at least 1 dict, got {shown(samples)}")
    for i, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or "input_ids" not in sample:
            got = f"one with {sorted(map(str, sample))[:9]}" if isinstance(sample, Mapping) else shown(sample)
            raise LoDTypeError(f"expected samples as dicts with input_ids, got {got} at index {i}")


def _without_padding(found: dict[str, Any], mask) -> dict[str, Any]:
    """The rows where the mask is not 0."""
    if not isinstance(mask, Tensor) or bool((mask != 0).all()):
        return found
    kept = mask.values() != 0 if isinstance(mask, LoDTensor) else mask != 0
    return {name: value.filter_rows(kept) if isinstance(value, LoDTensor) else value for name, value in found.items()}
