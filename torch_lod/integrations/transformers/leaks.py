# SPDX-License-Identifier: Apache-2.0
"""`check_packing`: whether a model computes packed samples as it computes each alone."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...errors import LoDTypeError, LoDValueError, public, shown
from ...structure.lod import LoD
from ...structure.validate import a_bool, with_memory
from ...tensor.lod_tensor import LoDTensor, returned
from .attention import Packed
from .model import _positions, packing_of

__all__ = ["check_packing"]

#: How the structure reaches the model.
PACKINGS = ("position_ids", "cu_seqlens", "seq_idx", "attention_mask", "lod_tensor")
_LENGTHS = (5, 1, 9, 3)
_MOST = 64
#: Differences from a sample alone that are rounding, relative to the largest output.
_ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-4}


class PackingReport:
    """What `check_packing` saw."""

    def __init__(self, said: str, lengths: list[int], changes: Tensor, differences: Tensor, dtype: torch.dtype):
        self._said, self.lengths, self.changes, self.differences = said, lengths, changes, differences
        least = 1e-12 if dtype == torch.float64 else 1e-6
        self.leaks = [(i, j) for i, j in (~(changes <= least)).nonzero().tolist() if i != j]
        self.wrong = (~(differences <= _ROUNDING.get(dtype, 5e-2))).nonzero().flatten().tolist()

    @property
    def ok(self) -> bool:
        return not self.leaks and not self.wrong

    def __repr__(self) -> str:
        count = len(self.lengths)
        lines = [f"PackingReport: {self._said}, {count} samples of {', '.join(map(str, self.lengths))} tokens"]
        for i in sorted({i for i, _ in self.leaks}):
            seen = ", ".join(f"{j} ({self.changes[i, j]:.1e})" for k, j in self.leaks if k == i)
            lines.append(f"  leak: the last token of sample {i} changes sample {seen}")
        if not self.leaks:
            lines.append("  no leak: no sample changes with the last token of another")
        if self.wrong:
            seen = ", ".join(f"{i} ({self.differences[i]:.1e})" for i in self.wrong)
            lines.append(f"  not as alone: sample {seen}")
        else:
            lines.append(f"  every sample is as alone, up to {float(self.differences.max()):.1e}")
        return "\n".join(lines)

    @public
    def check(self) -> "PackingReport":
        """The report; ValueError if it is not `ok`."""
        if not self.ok:
            raise LoDValueError(f"expected samples that are as alone, got {self!r}")
        return self


@public
def check_packing(
    model: Callable,
    packing: str | Callable | None = None,
    *,
    samples: Any = None,
    unpack: Callable | None = None,
    raises: bool = False,
    **options: Any,
) -> PackingReport:
    """Whether packed samples leak into one another: the last token of every sample is changed, and what the model says of the
    others may not change. Every sample is also compared with itself alone, which shows positions that do not restart.

    The model runs in eval mode, without gradients, once for each sample alone, once packed and once for each change.

    Args:
        model: a model of Hugging Face transformers, prepared by `use` or not, or any function of the keyword arguments that
            `packing` makes, and of `input_ids=` alone, (1, length).
        packing: how the structure is said. All but "lod_tensor" have input_ids, (1, rows), with the samples one after another,
            and position_ids that restart.
            "position_ids": nothing else. "cu_seqlens": cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k, as
            FlashAttention takes them. "seq_idx": the number of the sample, int32. "attention_mask": the number of the sample,
            from 1. "lod_tensor": input_ids is a LoDTensor; the default for models of `use`, that of others is "position_ids".
            A function: called with the list of samples, it returns the keyword arguments.
        samples: at most 64 lists or 1-d tensors of ids, or a LoDTensor; None: four of 5, 1, 9 and 3 ids that the model embeds.
        unpack: called with the output, returns a tensor for each sample. None: outputs with a row for each token.
        raises: raise where the report is not ok.
        options: passed to every call of the model, such as use_cache=False.

    Returns:
        PackingReport, which prints what leaks; `lengths` of the samples; `changes`, float64, (samples, samples): at [i, j] the
            largest change of an output of sample j after the last token of sample i was changed, relative to the largest
            output; `differences`, (samples,): those from the sample alone, likewise; `leaks`, the pairs (i, j) of different
            samples with a change above 1e-6 (1e-12 in float64); `wrong`, the samples with a difference above rounding; `ok`,
            whether there are neither; `check()`, which raises if not.

    Raises:
        ValueError: with `raises` for a leak; for fewer than two samples, and where no output changes with its own last token.
        TypeError: for samples that are no ids, and for outputs without a row for each token.
    """
    a_bool("raises", raises)
    if not callable(model):
        raise LoDTypeError(f"expected model as a module or a function, got {shown(model)}")
    if unpack is not None and not callable(unpack):
        raise LoDTypeError(f"expected unpack as a function or None, got {shown(unpack)}")
    if packing is None:
        packing = "position_ids" if packing_of(model) is None else "lod_tensor"
    if not callable(packing) and not (isinstance(packing, str) and packing in PACKINGS):
        raise LoDValueError(f"expected packing as one of {PACKINGS} or a function, got {shown(packing)}")
    ids = _samples(model, samples)
    check = _Check(model, packing, unpack, options)
    training = [module for module in model.modules() if module.training] if isinstance(model, torch.nn.Module) else []
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            report = check.report(ids)
    finally:
        for module in training:
            module.training = True
    return report.check() if raises else report


class _Check:
    def __init__(self, model, packing, unpack, options):
        self.model, self.packing, self.unpack, self.options = model, packing, unpack, options

    def report(self, samples: list[Tensor]) -> PackingReport:
        before = self.outputs(samples)
        largest = max(float(part.abs().max()) for part in before) or 1.0
        alone = [self.alone(sample) for sample in samples]
        differences = torch.tensor([_distance(*pair) for pair in zip(before, alone)], dtype=torch.float64) / largest
        changes = torch.zeros(len(samples), len(samples), dtype=torch.float64)
        for i, sample in enumerate(samples):
            changed = sample.clone()
            changed[-1] = next(n for n in torch.cat(samples).tolist() if n != int(sample[-1]))
            after = self.outputs([changed if j == i else other for j, other in enumerate(samples)])
            changes[i] = torch.tensor([_distance(*pair) for pair in zip(before, after)], dtype=torch.float64) / largest
            if not changes[i, i]:
                raise LoDValueError(f"expected outputs that depend on their tokens, got no change of sample {i} itself")
        said = self.packing if isinstance(self.packing, str) else getattr(self.packing, "__name__", "a function")
        name = getattr(self.model, "__name__", type(self.model).__name__)
        return PackingReport(f"{name} with {said}", [len(s) for s in samples], changes, differences, before[0].dtype)

    def outputs(self, samples: list[Tensor]) -> list[Tensor]:
        """The output of every packed sample."""
        output = self.model(**self.arguments(samples), **self.options)
        if self.unpack is not None:
            parts = self.unpack(output)
            returned("what unpack returns", parts)
            if not isinstance(parts, (list, tuple)) or len(parts) != len(samples):
                raise LoDTypeError(
                    f"expected unpack to return a tensor for each of {len(samples)} samples, got {shown(parts)}"
                )
            for part in parts:
                if not isinstance(part, Tensor):
                    raise LoDTypeError(f"expected unpack to return tensors, got {shown(part)}")
            return [_plain(part) for part in parts]
        lengths = [len(sample) for sample in samples]
        return _joined([value.split(lengths) for value in _by_row(output, sum(lengths))])

    def alone(self, sample: Tensor) -> Tensor:
        if self.packing == "lod_tensor":
            return self.outputs([sample])[0]
        output = self.model(input_ids=sample[None], **self.options)
        if self.unpack is not None:
            try:
                return _plain(self.unpack(output)[0])
            except (IndexError, KeyError, RuntimeError, ValueError):
                raise LoDTypeError("expected unpack to take the output of one sample alone") from None
        return _joined([[value] for value in _by_row(output, len(sample))])[0]

    def arguments(self, samples: list[Tensor]) -> dict[str, Any]:
        if callable(self.packing):
            made = self.packing([sample.clone() for sample in samples])
            if not isinstance(made, Mapping):
                raise LoDTypeError(f"expected packing to return keyword arguments as a dict, got {shown(made)}")
            returned("what packing returns", dict(made))
            return dict(made)
        lod = LoD.from_lengths([[len(sample) for sample in samples]])
        x = LoDTensor(torch.cat(samples), lod)
        if self.packing == "lod_tensor":
            return {"input_ids": x}
        positions = lod.position_ids(0, x.device)
        if isinstance(self.model, torch.nn.Module):
            positions = _positions(self.model, x, Packed(lod, 0), True)
        given: dict[str, Any] = {"input_ids": x.values()[None], "position_ids": positions[None]}
        number = lod.segment_ids_at(0).to(x.device)
        if self.packing == "cu_seqlens":
            offsets = lod.row_offsets_at(0, x.device).int()
            longest = max(len(sample) for sample in samples)
            given |= {
                "cu_seq_lens_q": offsets,
                "cu_seq_lens_k": offsets,
                "max_length_q": longest,
                "max_length_k": longest,
            }
        elif self.packing == "seq_idx":
            given["seq_idx"] = number.int()[None]
        elif self.packing == "attention_mask":
            given["attention_mask"] = number[None] + 1
        return given


def _samples(model, given) -> list[Tensor]:
    if given is None:
        return _drawn(model)
    count = given.num_sequences(-1) if isinstance(given, LoDTensor) else len(given) if hasattr(given, "__len__") else 0
    if count > _MOST:
        raise LoDValueError(f"expected at most {_MOST} samples, each of which is two calls of the model, got {count}")
    if isinstance(given, LoDTensor):
        with_memory(given)
        given = [_plain(part) for part in given.unbind_sequences(-1)]
    if not isinstance(given, (list, tuple)):
        raise LoDTypeError(f"expected samples as a list of ids for each, or a LoDTensor, got {shown(given)}")
    ids = []
    for i, sample in enumerate(given):
        if isinstance(sample, (list, tuple)) and not sample:
            continue
        try:
            part = _plain(sample) if isinstance(sample, Tensor) else torch.as_tensor(sample)
        except (TypeError, ValueError, RuntimeError):
            raise LoDTypeError(f"expected samples of ids, got {shown(sample)} at index {i}") from None
        if part.dim() != 1 or part.is_floating_point() or part.is_complex() or part.dtype == torch.bool:
            raise LoDTypeError(f"expected samples of ids, 1-d, got {shown(sample)} at index {i}")
        with_memory(part)
        if len(part):
            ids.append(part.long())
    if len(ids) < 2:
        raise LoDValueError(f"expected at least 2 samples with tokens, got {len(ids)}")
    if len(torch.cat(ids).unique()) < 2:
        raise LoDValueError("expected samples of at least 2 different ids, got one")
    return ids


def _drawn(model) -> list[Tensor]:
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    count = getattr(embedding, "num_embeddings", 0)
    if embedding is None or count < 3:
        raise LoDTypeError(f"expected samples for a model without an embedding of ids, got {shown(model)} alone")
    skipped = {getattr(getattr(model, "config", None), "pad_token_id", None), getattr(embedding, "padding_idx", None)}
    ids = torch.tensor([i for i in range(min(count, 64)) if i not in skipped])
    draw = torch.Generator().manual_seed(0)
    drawn = ids[torch.randint(len(ids), (sum(_LENGTHS),), generator=draw)]
    return list(drawn.to(embedding.weight.device).split(_LENGTHS))


def _plain(t: Tensor) -> Tensor:
    return t.values() if isinstance(t, LoDTensor) else t


def _by_row(output, rows: int) -> list[Tensor]:
    """The outputs with a row for each token, (rows, ...)."""
    returned("what the model returns", dict(output) if isinstance(output, Mapping) else output)
    if isinstance(output, Mapping):
        values = list(output.values())
    else:
        values = list(output) if isinstance(output, (list, tuple)) else [output]
    found = []
    for value in values:
        if isinstance(value, LoDTensor) and value.shape[0] == rows:
            found.append(value.values())
        elif isinstance(value, Tensor) and value.is_floating_point() and tuple(value.shape[:2]) == (1, rows):
            found.append(value[0])
    if not found:
        raise LoDTypeError(
            f"expected an output with a row for each of {rows} tokens, (1, {rows}, ...), got {shown(output)}; unpack= takes "
            "outputs of another form"
        )
    return found


def _joined(parts: list) -> list[Tensor]:
    """For every sample all of its outputs, as one tensor."""
    return [torch.cat([piece.reshape(-1) for piece in each]) for each in zip(*parts)]


def _distance(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        raise LoDTypeError(
            f"expected outputs of {tuple(expected.shape)} as of the sample alone, got {tuple(found.shape)}"
        )
    return float((found.double() - expected.double()).abs().max()) if found.numel() else 0.0
