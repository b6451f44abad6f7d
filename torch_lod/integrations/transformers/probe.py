# SPDX-License-Identifier: Apache-2.0
"""Whether a model computes every sequence by itself: two short ones are tried."""

import inspect
from typing import Any

import torch
from torch import Tensor

from ...errors import LoDTypeError, LoDValueError, without_policy
from ...structure.lod import LoD
from ...tensor.lod_tensor import LoDTensor


def takes(parameters, name: str) -> bool:
    """Whether a forward takes a keyword argument."""
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def without_cache(model, parameters) -> dict[str, bool]:
    has_one = getattr(model.config, "use_cache", None) is not None
    return {"use_cache": False} if has_one and takes(parameters, "use_cache") else {}


class Probe:
    """Two short sequences, which a model computes one by one, and packed."""

    def __init__(self, model):
        self.model = model
        embedding = model.get_input_embeddings()
        count = getattr(embedding, "num_embeddings", 0)
        if getattr(model, "main_input_name", "input_ids") != "input_ids" or not count or embedding.weight.is_meta:
            raise LoDTypeError(
                f"expected a model with an embedding of ids to check, got {type(model).__name__}; pass check=False"
            )
        config = model.config
        skipped = {getattr(config, "pad_token_id", None), getattr(embedding, "padding_idx", None)}
        ids = [i for i in range(min(count, 64)) if i not in skipped] or [0]
        windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size", "window_size")]
        longest = max([5] + [n + 3 for n in windows if type(n) is int and 0 < n <= 64])
        draw = torch.Generator().manual_seed(0)
        device = embedding.weight.device
        self.samples, self.others = (
            [torch.tensor(ids)[torch.randint(len(ids), (n,), generator=draw)].to(device) for n in (longest, 4)]
            for _ in range(2)
        )

    def _run(self, *args, **kwargs):
        training = [module for module in self.model.modules() if module.training]
        config = dict(vars(self.model.config))  # of labels a classifier notes in it which kind they are
        self.model.eval()
        try:
            with torch.no_grad(), without_policy():
                return self.model(*args, **kwargs)
        finally:
            vars(self.model.config).update(config)
            for module in training:
                module.training = True

    def alone(self) -> tuple[list[dict[str, Tensor]], bool | None]:
        """The outputs of each sequence by itself, in the attention of the library; and whether the loss compares a row with
        the label of the next: then the label of the first row alone makes a mean over no rows."""
        parameters = inspect.signature(self.model.forward).parameters
        options = without_cache(self.model, parameters)
        found = [_tensors(self._run(ids.unsqueeze(0), **options)) for ids in self.samples]
        logits = found[0].get("logits")
        if logits is None or "labels" not in parameters:
            return found, None
        labels = torch.full_like(self.samples[0], -100).unsqueeze(0)
        labels[0, 0] = 0
        try:
            loss = self._run(self.samples[0].unsqueeze(0), labels=labels, **options)["loss"]
        except (ValueError, RuntimeError, IndexError):  # it takes labels of another kind
            return found, None
        return found, bool(loss.isnan())

    def compare(self, packing: Any, alone: list[dict[str, Tensor]]) -> None:
        """Fills `packing.kinds`; ValueError where packed sequences are not what they are alone."""
        lengths = [len(ids) for ids in self.samples]
        for name in alone[0]:
            by_row = all(part[name].shape[:2] == (1, n) for part, n in zip(alone, lengths))
            packing.kinds[name] = "rows" if by_row else "sequences"
        level, packing.level = packing.level, -1
        try:
            together = self._packed(packing, *self.samples)
            moved = [self._packed(packing, self.others[0], self.samples[1])[1]]
            moved.append(self._packed(packing, self.samples[0], self.others[1])[0])
        finally:
            packing.level = level
        for i, (found, expected) in enumerate(zip(together, alone)):
            self._equal("packed sequences to be those of each alone", found, expected, (1e-4, 1e-3, 5e-2))
            # shapes are the same now, so even rounding is, but for experts that share out rows
            said = "a sequence not to depend on the others"
            self._equal(said, moved[1 - i], found, (1e-9, 1e-5, 5e-3))

    def _packed(self, packing: Any, *samples: Tensor) -> list[dict[str, Tensor]]:
        """The outputs of two packed sequences, those of each."""
        lod = LoD.from_lengths([[len(ids) for ids in samples]])
        output = _tensors(self._run(LoDTensor(torch.cat(samples), lod)))
        parts: list[dict[str, Tensor]] = [{}, {}]
        for name, kind in packing.kinds.items():
            value = output[name]
            rows = value.values() if isinstance(value, LoDTensor) else value
            sizes = [len(ids) for ids in samples] if kind == "rows" else [1, 1]
            for part, piece in zip(parts, rows.split(sizes)):
                part[name] = piece.unsqueeze(0) if kind == "rows" else piece
        return parts

    def _equal(self, said: str, found: dict[str, Tensor], expected: dict[str, Tensor], allowed: tuple) -> None:
        for name, value in expected.items():
            share = allowed[{torch.float64: 0, torch.float32: 1}.get(value.dtype, 2)]
            error = float((found[name].double() - value.double()).abs().max())
            if not error <= share * max(float(value.double().abs().max()), 1e-6):
                raise LoDValueError(
                    f"expected {name} of {said}, got {error:.2g} of difference: {type(self.model).__name__} mixes rows outside of "
                    "attention, or does not take position_ids, or rounds differently; if only the last, pass check=False"
                )


def _tensors(output) -> dict[str, Tensor]:
    return {name: value for name, value in output.items() if isinstance(value, Tensor) and value.dim()}
