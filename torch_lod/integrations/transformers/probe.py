# SPDX-License-Identifier: Apache-2.0
"""Whether a model computes every sequence by itself: three short ones are tried."""

import itertools
from typing import Any

import torch
from torch import Tensor

from ...errors import LoDTypeError, LoDValueError
from ...structure.lod import LoD
from ...tensor.lod_tensor import LoDTensor
from .packing import Packing, has_decoder, parameters_of

#: Sequences of a decoder.
_DECODED = "decoder_input_ids"


def takes(parameters, name: str) -> bool:
    """Whether a forward takes a keyword argument."""
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def without_cache(model, parameters) -> dict[str, bool]:
    has_one = getattr(model.config, "use_cache", None) is not None
    return {"use_cache": False} if has_one and takes(parameters, "use_cache") else {}


def counted(labels: Tensor, shifted: bool | None) -> int:
    """Labels that a loss counts, of stacks (count, length), or one for each sequence."""
    if labels.dim() > 1 and shifted:
        labels = labels[:, 1:]
    return len(labels) if labels.is_floating_point() else int((labels != -100).sum())


def main_input(model) -> str:
    """The name of the argument that has the sequences; LoDTypeError for what is none of rows."""
    name = getattr(model, "main_input_name", "input_ids")
    if name not in ("input_ids", "input_values"):
        raise LoDTypeError(
            f"expected a model of input_ids or input_values, got {type(model).__name__}, which takes {name}; tl.map_sequences "
            "calls any function with stacks of equally long sequences"
        )
    return name


class Probe:
    """Three short sequences, which a model computes one by one and together. The last two are equally long."""

    def __init__(self, model):
        self.model, self.main = model, main_input(model)
        self.rows = _DECODED if has_decoder(model) else self.main
        if self.main == "input_values":
            self.samples, self.others = self._signals()
        else:
            self.samples, self.others = self._ids()

    def _signals(self):
        weight = next(self.model.parameters())
        step, draw = getattr(self.model.config, "inputs_to_logits_ratio", 1), torch.Generator().manual_seed(0)
        lengths = [step * n + 99 for n in (12, 7, 7)]
        return ([{self.main: torch.randn(n, generator=draw).to(weight)} for n in lengths] for _ in range(2))

    def _ids(self):
        model, config = self.model, self.model.config
        embedding = model.get_input_embeddings()
        weight = getattr(embedding, "weight", None)  # also of embeddings that are no nn.Embedding, as quantised ones
        count = len(weight) if isinstance(weight, Tensor) and weight.dim() == 2 else 0
        if not count or weight.is_meta:
            what = "on the meta device" if count else f"which has {type(embedding).__name__}"
            raise LoDTypeError(
                f"expected a model with an embedding of ids to check, got {type(model).__name__}, {what}; tl.map_sequences calls any "
                "function with stacks of equally long sequences"
            )
        skipped = {getattr(config, "pad_token_id", None), getattr(embedding, "padding_idx", None)}
        ids = [i for i in range(min(count, 64)) if i not in skipped] or [0]
        windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size", "window_size")]
        longest = max([5] + [n + 3 for n in windows if type(n) is int and 0 < n <= 64])
        draw = torch.Generator().manual_seed(0)
        lengths = {self.main: (longest, 4, 4)}
        if has_decoder(model):
            lengths[_DECODED] = (longest + 1, 3, 3)
        return (
            [
                {
                    name: torch.tensor(ids)[torch.randint(len(ids), (each[i],), generator=draw)].to(weight.device)
                    for name, each in lengths.items()
                }
                for i in range(3)
            ]
            for _ in range(2)
        )

    def _run(self, given: dict[str, Any], gradients: bool = False):
        training = [module for module in self.model.modules() if module.training]
        config = dict(vars(self.model.config))  # of labels a classifier notes in it which kind they are
        self.model.eval()
        try:
            with torch.set_grad_enabled(gradients):
                return self.model(**given)
        finally:
            vars(self.model.config).update(config)
            for module in training:
                module.training = True

    def alone(self, packing: Packing) -> list[dict[str, Tensor]]:
        """The outputs of each sequence by itself. Fills `packing.kinds` and what is known of the loss."""
        options = without_cache(self.model, parameters_of(self.model))
        found = [_tensors(self._run({**_stack(sample), **options})) for sample in self.samples]
        lengths = [len(sample[self.rows]) for sample in self.samples]
        for name, value in list(found[0].items()):
            if any(part[name].shape[2:] != value.shape[2:] for part in found):  # lengths at another dim
                packing.kinds[name] = ""
                for part in found:
                    del part[name]
                continue
            sizes = [part[name].shape[1:2] for part in found]
            by_row = all(size == (n,) for size, n in zip(sizes, lengths))
            resized = value.dim() > 2 and sizes[0] != sizes[1]
            packing.kinds[name] = "rows" if by_row else "resized" if resized else "sequences"
        if "logits" in found[0] and "labels" in parameters_of(self.model):
            try:
                self._losses(packing, options)
            except (
                ValueError,
                RuntimeError,
                IndexError,
                TypeError,
                KeyError,
                AttributeError,
            ):  # it takes labels of another kind
                pass
        return found

    def _losses(self, packing: Packing, options: dict) -> None:
        """Whether the loss compares a row with the label of the next, in which case the label of the first row alone makes a
        mean over no rows; and whether it is a mean over labels."""
        first, *both = self.samples
        if packing.kinds["logits"] == "rows":
            labels = torch.full_like(first[self.rows], -100, dtype=torch.int64)
            labels[0] = 0
            packing.shifts = bool(self._run({**_stack(first), "labels": labels[None], **options})["loss"].isnan())
        targets = [torch.zeros_like(sample[self.rows], dtype=torch.int64) for sample in both]
        if packing.kinds["logits"] == "sequences":
            targets = [target[0] for target in targets]
        else:
            targets[0][-1] = -100
        counts = [counted(target[None], packing.shifts) for target in targets]
        losses = [
            self._run({**_stack(sample), "labels": target[None], **options})["loss"]
            for sample, target in zip(both, targets)
        ]
        together = self._run({**_stack(*both), "labels": torch.stack(targets), **options})["loss"]
        expected = sum(loss * count for loss, count in zip(losses, counts)) / sum(counts)
        packing.mean = bool(torch.isclose(together.double(), expected.double(), rtol=1e-2))

    def compare(self, packing: Packing, alone: list[dict[str, Tensor]], why: str) -> None:
        """ValueError where sequences of a LoDTensor are not what they are alone; `why` that may be."""
        self.why = why
        level, packing.level = packing.level, -1
        try:
            together = self._parts(packing, self.samples)
            moved = [
                self._parts(packing, [mine if i == j else other for j, (mine, other) in enumerate(self._pairs())])[i]
                for i in range(len(self.samples))
            ]
        finally:
            packing.level = level
        for i, (found, expected) in enumerate(zip(together, alone)):
            self._equal("sequences in a batch to be those of each alone", found, expected, (1e-4, 1e-3, 5e-2))
            # shapes are the same now, so even rounding is, but for experts that share out rows
            said = "a sequence not to depend on the others"
            self._equal(said, moved[i], found, (1e-9, 1e-5, 5e-3))

    def _pairs(self):
        return zip(self.samples, self.others)

    def _packed(self, samples: list[dict[str, Tensor]], gradients: bool = False) -> dict[str, Any]:
        lods = {name: LoD.from_lengths([[len(sample[name]) for sample in samples]]) for name in samples[0]}
        given = {name: LoDTensor(torch.cat([sample[name] for sample in samples]), lod) for name, lod in lods.items()}
        return _tensors(self._run(given, gradients))

    def _parts(self, packing: Packing, samples: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        """The outputs of packed sequences, those of each."""
        output = self._packed(samples)
        parts: list[dict[str, Tensor]] = [{} for _ in samples]
        for name, kind in packing.kinds.items():
            if not kind:
                continue
            value = output[name]
            rows = value.values() if isinstance(value, LoDTensor) else value
            sizes = [1] * len(samples) if kind == "sequences" else value.lod.row_offsets_at(0).diff().tolist()
            for part, piece in zip(parts, rows.split(sizes)):
                part[name] = piece if kind == "sequences" else piece.unsqueeze(0)
        return parts

    def gradients(self, packing: Packing) -> None:
        """ValueError where the gradient of a sequence is not 0 in the embeddings of the others: that shows a state that hardly
        changes values."""
        embedded: list[Tensor] = []

        def keep(module, args, output):
            if not isinstance(module, torch.nn.Embedding):  # a head that shares the weight
                return output
            embedded.append(output.detach().requires_grad_())
            return embedded[-1]

        if torch.is_inference_mode_enabled():
            return
        level, packing.level = packing.level, -1
        weight = self.model.get_input_embeddings().weight
        hooks = [
            m.register_forward_hook(keep)
            for m in self.model.modules()
            if vars(m)["_parameters"].get("weight") is weight
        ]
        try:
            output = self._packed(self.samples, gradients=True)
            for name, kind in packing.kinds.items():
                if kind == "rows" and embedded and output[name].is_floating_point():
                    self._apart(name, output[name], embedded[0])
        except (RuntimeError, NotImplementedError):  # it has no gradients
            return
        finally:
            packing.level = level
            for hook in hooks:
                hook.remove()

    def _apart(self, name: str, value: LoDTensor, embedded: Tensor) -> None:
        offsets, rows = value.lod.row_offsets_at(0).tolist(), value.values()
        if embedded.shape[:2] != (1, len(rows)):
            return
        for begin, end in itertools.pairwise(offsets):
            part = rows[begin:end].float()
            weights = torch.linspace(-1, 1, part.numel(), device=part.device).view(part.shape)
            (gradient,) = torch.autograd.grad((part * weights).sum(), embedded, retain_graph=True, allow_unused=True)
            if gradient is None:
                return
            gradient = gradient[0].clone()
            gradient[begin:end] = 0
            if bool((gradient != 0).any()):
                raise LoDValueError(
                    f"expected {name} of a sequence without gradients in the embeddings of others, got up to "
                    f"{float(gradient.abs().max()):.2g}: {type(self.model).__name__} mixes rows outside of attention"
                )

    def _equal(self, said: str, found: dict[str, Tensor], expected: dict[str, Tensor], allowed: tuple) -> None:
        for name, value in expected.items():
            share = allowed[{torch.float64: 0, torch.float32: 1}.get(value.dtype, 2)]
            if found[name].shape != value.shape:
                raise LoDValueError(
                    f"expected {name} of {said}, got shapes {tuple(found[name].shape)} and {tuple(value.shape)}"
                )
            error = float((found[name].double() - value.double()).abs().max())
            if not error <= share * max(float(value.double().abs().max()), 1e-6):
                raise LoDValueError(
                    f"expected {name} of {said}, got {error:.2g} of difference: {type(self.model).__name__} {self.why}; if only "
                    "the last, pass check=False"
                )


def _stack(*samples: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def _tensors(output) -> dict[str, Any]:
    return {name: value for name, value in output.items() if isinstance(value, Tensor) and value.dim()}
