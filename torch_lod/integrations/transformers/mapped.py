# SPDX-License-Identifier: Apache-2.0
"""A forward that replaces a model's own, which calls it with stacks of equally long sequences: `tl.map_sequences` for what a
model of transformers takes and returns."""

import inspect
import types
from typing import Any

import torch
from torch import Tensor

from ...errors import LoDError, LoDTypeError, LoDValueError, shown
from ...sequence.map import run
from ...sequence.operator import along
from ...structure.validate import with_memory
from ...tensor.lod_tensor import LoDTensor
from .packing import Packing, check_ids, has_decoder, parameters_of, refuse
from .probe import counted, without_cache

#: Whose rows the outputs have, in this order.
_DECODED = ("decoder_input_ids", "decoder_inputs_embeds", "labels")
_GIVEN = ("input_ids", "inputs_embeds", "input_values")
#: Losses that are means over the labels that are not -100.
_MEANS = ("ForCausalLM", "ForMaskedLM", "ForTokenClassification", "ForSequenceClassification")


class Mapped:
    """The forward. Plain tensors pass through."""

    def __init__(self, model, packing: Packing):
        self.model, self.packing = model, packing
        #: a forward that other code put over the model's own
        self.before = vars(model).get("forward")

    @property
    def inner(self):
        return self.before or types.MethodType(type(self.model).forward, self.model)

    @property
    def __signature__(self) -> inspect.Signature:
        own = inspect.signature(self.inner)
        named = any(p.kind is p.POSITIONAL_OR_KEYWORD for p in own.parameters.values())
        return own if named else inspect.signature(types.MethodType(type(self.model).forward, self.model))

    def __call__(self, *args, **kwargs):
        given = {**dict(zip(parameters_of(self.model), args)), **kwargs}
        if not any(isinstance(value, LoDTensor) for value in given.values()):
            return self.inner(*args, **kwargs)
        try:
            return self._mapped(given)
        except LoDError as error:
            error.call = error.call or type(self.model).__name__
            raise

    def _mapped(self, given: dict[str, Any]):
        refuse(self.model, given, packed=False)
        if given.get("output_router_logits") or getattr(self.model.config, "output_router_logits", False):
            raise LoDTypeError("expected no output_router_logits, got True: their loss is one of the whole batch")
        two = has_decoder(self.model)
        name, x = self._rows(given, two)
        with_memory(*(value for value in given.values() if isinstance(value, LoDTensor)))
        s = along(x, self.packing.level)
        stacked: dict[str, Any] = {name: x}
        constants: dict[str, Any] = {}
        for other, value in given.items():
            if other == name or value is None:
                continue
            if isinstance(value, LoDTensor) or (isinstance(value, Tensor) and value.dim()):
                self._check(other, value, s, name, two)
                stacked[other] = value
            else:
                constants[other] = value
        constants |= without_cache(self.model, parameters_of(self.model))
        loss = _Loss(self, stacked.get("labels"), constants.pop("num_items_in_batch", None))
        call = _Call(self.inner, list(stacked), constants, loss, self.packing)
        found = run(call, s, list(stacked.values()), "batch_first", call.results_of, None, 0, {})
        return call.kind({"loss": loss.total(), **found} if loss.labels is not None else found)

    def _rows(self, given: dict[str, Any], two: bool) -> tuple[str, LoDTensor]:
        """The argument whose rows the outputs have."""
        x: Any = None
        encoded = [name for name in _GIVEN if given.get(name) is not None]
        if len(encoded) > 1:
            raise LoDTypeError("expected either input_ids or inputs_embeds, got both")
        for name in (*(_DECODED if two else ()), *encoded):
            x = given.get(name)
            if isinstance(x, LoDTensor):
                break
        if not encoded or not isinstance(given[encoded[0]], LoDTensor):
            others = [name for name, value in given.items() if isinstance(value, LoDTensor)]
            got = shown(given[encoded[0]]) if encoded else "none"
            raise LoDTypeError(f"expected input_ids or inputs_embeds as a LoDTensor, got {got} beside {others[0]}")
        check_ids(given[encoded[0]], encoded[0])
        if two and name == encoded[0]:
            raise LoDTypeError(
                f"expected decoder_input_ids or labels as a LoDTensor beside {name}, got none: {type(self.model).__name__} "
                "computes two sequences for each sample"
            )
        check_ids(x, name)
        return name, x

    def _check(self, name: str, value, s, first: str, two: bool) -> None:
        """An error for an argument that does not have the sequences, or for each of them a row."""
        x, level = value, s.k
        if not isinstance(x, LoDTensor):
            if name == "labels" and x.shape[0] == s.lod.num_sequences(level):
                return
            raise LoDTypeError(f"expected {name} as a LoDTensor with the LoD of the ids, got {shown(value)}")
        if not two or (name.startswith("decoder_") or name == "labels"):
            if x.lod.differs(s.lod):
                raise LoDValueError(
                    f"expected {name} with the LoD of {'the ids' if not two else first}, got one that differs: "
                    f"{s.lod.difference(x.lod)}"
                )
            return
        if x.lod_level <= level or x.num_sequences(level) != s.lod.num_sequences(level):
            raise LoDValueError(
                f"expected {name} with a sequence for each of {s.lod.num_sequences(level)} of {first}, got {shown(x)}"
            )
        lengths, own = x.lod.row_offsets_at(level).diff(), s.lod.row_offsets_at(level).diff()
        for i in ((lengths == 0) & (own > 0)).nonzero().flatten()[:1].tolist():
            raise LoDValueError(f"expected {name} with rows wherever {first} has some, got none in sequence {i}")


class _Call:
    """A call of the model with stacks."""

    def __init__(self, inner, names: list[str], constants: dict[str, Any], loss: "_Loss", packing: Packing):
        self.inner, self.names, self.constants, self.loss, self.packing = inner, names, constants, loss, packing
        self.stack: tuple[int, ...] = ()
        #: the class of what the model returns
        self.kind: Any = dict

    def __call__(self, *stacks: Tensor):
        given = {**dict(zip(self.names, stacks)), **self.constants}
        self.stack = tuple(stacks[0].shape[:2])
        output = self.loss.called(self.inner, given)
        if not hasattr(output, "items"):
            raise LoDTypeError(f"expected outputs by name, got {type(output).__name__}")
        self.kind = type(output)
        return output

    def results_of(self, output) -> dict[str, Any]:
        """What `tl.map_sequences` is told of the outputs; states and caches are left out, and what has lengths at
        another dim than 1."""
        found: dict[str, Any] = {}
        for name, value in output.items():
            if isinstance(value, Tensor) and value.dim() and self.packing.kinds.get(name) != "":
                found[name] = self._result(name, value)
            elif isinstance(value, tuple) and name.endswith("hidden_states"):
                found[name] = tuple(self._result("", part) for part in value)
        return found

    def _result(self, name: str, value: Tensor):
        kind = self.packing.kinds.get(name)
        if kind is None:
            rows = tuple(value.shape[:2]) == self.stack
            kind = "sequences" if value.dim() < 3 else "rows" if rows else "resized"
        return kind


class _Loss:
    """The mean over the labels of all calls that are not -100."""

    def __init__(self, mapped: Mapped, labels, items):
        model, packing = mapped.model, mapped.packing
        self.labels, self.items, self.shifts = labels, items, packing.shifted(model)
        self.parts: list[Tensor] = []
        self.counts: list[int] = []
        if labels is None:
            return
        mean = packing.mean if packing.mean is not None else getattr(model, "loss_type", None) in _MEANS
        if not mean:
            raise LoDTypeError(
                f"expected no labels, got {shown(labels)}: the loss of {type(model).__name__} is not known to be a mean over "
                "labels; compute one of its outputs, such as tl.sequence_loss"
            )

    def called(self, inner, given: dict[str, Any]):
        output = inner(**given)
        if self.labels is not None:
            self.parts.append(output["loss"])
            self.counts.append(counted(given["labels"], self.shifts))
            self.logits = output["logits"]
        return output

    def total(self) -> Tensor:
        """A call without labels has a loss of 0 / 0, which is left out, unless all are."""
        sums = [part * count for part, count in zip(self.parts, self.counts) if count]
        if self.items is not None:
            return (torch.stack(sums).sum() if sums else self.logits.sum() * 0) / self.items
        return torch.stack(sums).sum() / sum(self.counts) if sums else torch.stack(self.parts).sum()
