# SPDX-License-Identifier: Apache-2.0
"""`use`: a model of transformers that takes LoDTensors. Its code and its parameters stay as they are; two hooks of torch.nn put
the rows in front of it as one sample, (1, rows), and take them back."""

import inspect
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...errors import LoDError, LoDTypeError, LoDValueError, library, public, shown, without_policy
from ...sequence import sequence_cumsum, sequence_pool
from ...structure.validate import with_memory
from ...tensor.lod_tensor import LoDTensor, made
from .attention import CURRENT, NAME, Packed, register
from .probe import Probe, takes, without_cache

__all__ = ["use"]

M = TypeVar("M", bound=torch.nn.Module)
#: Arguments of a forward that mean nothing for packed rows, or something else, and what to write.
_REFUSED = {
    "past_key_values": "a cache of packed rows; generate with model.set_attn_implementation('sdpa') and plain tensors",
    "cache_position": "a cache of packed rows; generate with model.set_attn_implementation('sdpa') and plain tensors",
    "encoder_hidden_states": "cross-attention; see tl.nn.MultiheadAttention",
    "encoder_attention_mask": "cross-attention; see tl.nn.MultiheadAttention",
    "head_mask": "a mask of heads; use model.set_attn_implementation('eager')",
    "logits_to_keep": "the last logits of the batch; take them of the result with tl.sequence_pool(logits, 'last')",
    "output_attentions": "attention weights, which are never made; use model.set_attn_implementation('eager')",
    "cu_seq_lens_q": "a structure besides that of the ids",
    "cu_seq_lens_k": "a structure besides that of the ids",
    "max_length_q": "a structure besides that of the ids",
    "max_length_k": "a structure besides that of the ids",
    "seq_idx": "a structure besides that of the ids",
}
_POOLERS = ("Pooler", "ClassificationHead")
_ROWS = ("last_hidden_state", "logits", "hidden_states")


@public
def use(model: M, *, level: int | str = -1, check: bool = True) -> M:
    """Lets a model of Hugging Face transformers take LoDTensors, without padding: `model(x)` and `model(input_ids=x, labels=y)`
    with a LoDTensor of ids, (rows,), or `inputs_embeds=`, (rows, features). Every sequence is computed by itself.

    Rows of the output (last_hidden_state, logits, hidden_states) are LoDTensors with the LoD of the ids; what the model makes
    of the first row of a sequence (pooler_output, logits of a sequence classifier) has a row for each sequence. The loss is the
    mean over the labels of all rows that are not -100, as for padded batches; a causal model predicts no row of another sequence.
    If all labels are -100 that is NaN, as for padded batches; the mean over tokens of `tl.sequence_loss` is 0 then.
    Labels and token_type_ids are LoDTensors with the LoD of the ids.

    The model and its parameters stay as they are: its attention implementation becomes "torch_lod", and hooks are added. Plain
    tensors raise, until `model.set_attn_implementation("sdpa")` brings back what was; a LoDTensor raises then.

    Args:
        model: a PreTrainedModel: an encoder or a decoder (BERT, RoBERTa, ModernBERT, GPT-2, Llama, Mistral, Qwen ...), on any
            device. Of a wrapper, the model within.
        level: attention runs within the sequences of this level, over all their rows, and positions count from their begin.
        check: compare two short sequences, packed, with each of them alone in the attention of the library, and see that neither
            changes with the other. That finds what mixes sequences outside of attention (convolutions, states, sums over the
            batch), and positions that do not restart. Without it there is no check. It runs the model six times on some ten rows,
            in eval mode.

    Returns:
        the model.

    Raises:
        ImportError: without transformers.
        TypeError: for what is no model of transformers, encoder-decoders, and models whose attention cannot be replaced.
        ValueError: for a model whose sequences do not come out as they do alone.
    """
    transformers = library("transformers")
    if not isinstance(model, transformers.PreTrainedModel):
        raise LoDTypeError(
            f"expected model as a transformers.PreTrainedModel, got {type(model).__name__}; of a wrapper the model within"
        )
    if type(check) is not bool:
        raise LoDTypeError(f"expected check as a bool, got {shown(check)}")
    if isinstance(level, bool) or not isinstance(level, (int, str)):
        raise LoDTypeError(f"expected level as an int or a name, got {shown(level)}")
    name = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise LoDTypeError(f"expected an encoder or a decoder, got {name}, whose decoder attends to its encoder")
    register()
    before = model.config._attn_implementation
    packing = Packing(level)
    try:
        if check:
            probe = Probe(model)
            model.set_attn_implementation("eager")
            alone, packing.shifts = probe.alone()
        _set_attention(model)
        _install(model, packing)
        if check:
            probe.compare(packing, alone)
    except BaseException:
        _remove(model)
        model.set_attn_implementation("eager" if before == NAME else before)
        raise
    return model


def _set_attention(model) -> None:
    model.set_attn_implementation(NAME)
    configs = {
        id(m.config): m for m in model.modules() if hasattr(m, "config") and hasattr(m, "set_attn_implementation")
    }
    for module in configs.values():
        if module.config._attn_implementation != NAME:
            raise LoDTypeError(
                f"expected a model whose attention can be replaced, got {type(module).__name__}, which has "
                f"{module.config._attn_implementation!r} only in this version of transformers"
            )


def _hooks(module) -> list[tuple[Any, int]]:
    """The hooks of ours that a module has."""
    found = []
    for hooks, with_kwargs in (
        (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs),
        (module._forward_hooks, module._forward_hooks_with_kwargs),
    ):
        found += [((hooks, with_kwargs), i) for i, hook in hooks.items() if isinstance(hook, (_Before, _After, _First))]
    return found


def _remove(model) -> None:
    for module in model.modules():
        for dicts, i in _hooks(module):
            for held in dicts:
                held.pop(i, None)


def _install(model, packing: "Packing") -> None:
    _remove(model)
    model.register_forward_pre_hook(_Before(packing), with_kwargs=True)
    model.register_forward_hook(_After(packing), always_call=True)
    for module in model.modules():
        if type(module).__name__.endswith(_POOLERS):
            module.register_forward_pre_hook(_First())


def packing_of(model) -> "Packing | None":
    """What `use` knows of a model; None for another."""
    for hook in getattr(model, "_forward_pre_hooks", {}).values():
        if isinstance(hook, _Before):
            return hook.packing
    return None


class Packing:
    """What is known of a model."""

    def __init__(self, level: int | str):
        self.level = level
        #: by the name of an output, whether it has a row for each row or for each sequence
        self.kinds: dict[str, str] = {}
        #: whether its loss compares a row with the label of the next; None: not known
        self.shifts: bool | None = None

    def shifted(self, model) -> bool:
        if self.shifts is None:
            return getattr(model, "loss_type", None) == "ForCausalLM"
        return self.shifts


class _Before:
    """In front of a forward: LoDTensors become one sample."""

    def __init__(self, packing: Packing):
        self.packing = packing

    def __call__(self, model, args, kwargs):
        CURRENT.set(None)
        try:
            return self.packed(model, args, kwargs)
        except LoDError as error:
            error.call = error.call or type(model).__name__
            raise

    def packed(self, model, args, kwargs):
        parameters = inspect.signature(model.forward).parameters
        given = {**dict(zip(parameters, args)), **kwargs}
        ids, embeds = given.get("input_ids"), given.get("inputs_embeds")
        x = ids if ids is not None else embeds
        ours = model.config._attn_implementation == NAME
        if not isinstance(x, LoDTensor):
            others = [name for name, value in given.items() if isinstance(value, LoDTensor)]
            if not ours and not others:
                return None
            got = f"{shown(x)} beside {others[0]}" if others else shown(x)
            raise LoDTypeError(
                f"expected input_ids or inputs_embeds as a LoDTensor, got {got}; plain tensors, and generate, take "
                "model.set_attn_implementation('sdpa')"
            )
        if not ours:
            raise LoDTypeError(
                f"expected plain tensors for the attention implementation {model.config._attn_implementation!r}, got a "
                "LoDTensor; call tl.integrations.transformers.use(model) again"
            )
        if ids is not None and embeds is not None:
            raise LoDTypeError("expected either input_ids or inputs_embeds, got both")
        if x.dim() != (1 if ids is not None else 2):
            raise LoDValueError(f"expected input_ids (rows,) or inputs_embeds (rows, features), got {shown(x)}")
        if not x.shape[0]:
            raise LoDValueError("expected at least 1 row, got none: a model of transformers computes no empty batch")
        with_memory(*(value for value in given.values() if isinstance(value, LoDTensor)))
        packed = Packed(x.lod, x.lod.level(self.packing.level))
        self._refuse(model, given)
        positions = _positions(model, x, packed, ids is not None)
        done = {}
        for name, value in given.items():
            if name == "attention_mask" or (name == "position_ids" and value is not None):
                _agree(name, value, x, positions if name == "position_ids" else torch.ones_like(positions))
            elif isinstance(value, LoDTensor):
                if value.lod.differs(x.lod):
                    raise LoDValueError(
                        f"expected {name} with the LoD of the ids, got one that differs: {x.lod.difference(value.lod)}"
                    )
                done[name] = value.values().unsqueeze(0)
            elif isinstance(value, Tensor) and value.dim():
                done[name] = self._plain(name, value, packed)
            else:
                done[name] = value
        labels = done.get("labels")
        if isinstance(given.get("labels"), LoDTensor) and self.packing.shifted(model):
            first = packed.lod.position_ids(packed.level, labels.device) == 0
            done["labels"] = labels.masked_fill(first, -100)
        if takes(parameters, "position_ids"):
            done["position_ids"] = positions.unsqueeze(0)
        done |= without_cache(model, parameters)
        if takes(parameters, NAME):
            done[NAME] = packed
        CURRENT.set(packed)
        return (), done

    def _refuse(self, model, given) -> None:
        for name, what in _REFUSED.items():
            value = given.get(name)
            if value is not None and value is not False and not (type(value) is int and value == 0):
                raise LoDTypeError(f"expected no {name}, got {shown(value)}: {what}")
        if given.get("use_cache"):
            raise LoDTypeError(f"expected no use_cache, got True: {_REFUSED['past_key_values']}")
        if given.get("return_dict") is False or not getattr(model.config, "return_dict", True):
            raise LoDTypeError("expected return_dict True, got False: outputs are told apart by their names")
        if getattr(model.config, "output_attentions", False):
            raise LoDTypeError(f"expected no config.output_attentions, got True: {_REFUSED['output_attentions']}")

    def _plain(self, name: str, value: Tensor, packed: Packed) -> Tensor:
        count = packed.lod.num_sequences(packed.level)
        if name == "labels" and self.packing.kinds.get("logits") == "sequences" and value.shape[0] == count:
            return value
        raise LoDTypeError(f"expected {name} as a LoDTensor with the LoD of the ids, got {shown(value)}")


class _After:
    """Behind a forward: rows become LoDTensors."""

    def __init__(self, packing: Packing):
        self.packing = packing

    def __call__(self, model, args, output):
        packed = CURRENT.get()
        CURRENT.set(None)
        if packed is None or output is None:  # plain tensors; an error
            return None
        try:
            for name, value in list(output.items()):
                output[name] = self.wrapped(name, value, packed)
        except LoDError as error:
            error.call = error.call or type(model).__name__
            raise
        return output

    def wrapped(self, name: str, value, packed: Packed):
        if isinstance(value, tuple):
            return tuple(self.wrapped(name, part, packed) for part in value)
        if not isinstance(value, Tensor) or value.dim() == 0 or isinstance(value, LoDTensor):
            return value
        kind = self.packing.kinds.get(name, "rows" if name in _ROWS else None)
        if kind == "rows" and value.shape[:2] == (1, packed.lod.rows):
            return LoDTensor(value.squeeze(0), packed.lod)
        count = packed.lod.num_sequences(packed.level)
        if kind == "sequences" and value.shape[0] == count:
            return made(value, packed.lod.outer_at(packed.level))
        raise LoDValueError(
            f"expected {name} with a row for each of {packed.lod.rows} rows or {count} sequences, got shape "
            f"{tuple(value.shape)}; take the last_hidden_state of the model without its head, or without its pooler "
            "(add_pooling_layer=False)"
        )


class _First:
    """In front of a pooler, which takes the first row of a sample: the first rows of the sequences, as samples of one row."""

    def __call__(self, module, args):
        packed = CURRENT.get()
        if packed is None or not args or not isinstance(args[0], Tensor) or args[0].shape[:2] != (1, packed.lod.rows):
            return None
        first = sequence_pool(LoDTensor(args[0].squeeze(0), packed.lod), "first", level=packed.level)
        rows = first.values() if isinstance(first, LoDTensor) else first
        return (rows.unsqueeze(1), *args[1:])


def _positions(model, x: LoDTensor, packed: Packed, are_ids: bool) -> Tensor:
    """The position of every row, (rows,), as the model counts them."""
    positions = packed.lod.position_ids(packed.level, x.device)
    padding = None
    for module in model.modules():
        if hasattr(
            type(module), "create_position_ids_from_input_ids"
        ):  # RoBERTa and its kin: ids that are padding do not count
            padding = module.padding_idx
    if padding is None:
        return positions
    if not are_ids:
        return positions + padding + 1
    with without_policy():
        counts = x.values() != padding
    number = sequence_cumsum(LoDTensor(counts.long(), packed.lod), level=packed.level).values()
    return number * counts + padding


def _agree(name: str, value, x: LoDTensor, expected: Tensor) -> None:
    """A mask or positions that say what the LoD says."""
    if value is None:
        return
    if not isinstance(value, LoDTensor) or value.lod.differs(x.lod) or value.shape != expected.shape:
        raise LoDTypeError(f"expected no {name}, or a LoDTensor with the LoD of the ids, got {shown(value)}")
    if not torch.equal(value.values().to(expected), expected):
        said = (
            "without zeros: give the rows that are no padding"
            if name == "attention_mask"
            else ("that count from the begin of every sequence; leave them out")
        )
        raise LoDValueError(f"expected {name} {said}, got others")
