# SPDX-License-Identifier: Apache-2.0
"""`use`: a model of transformers that takes LoDTensors. Its code and its parameters stay as they are. Packed, two hooks of
torch.nn put the rows in front of it as one sample, (1, rows), and take them back; for other models, see `Mapped`."""

import types
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...errors import LoDError, LoDTypeError, LoDValueError, library, named, public, shown, without_dispatch
from ...sequence import Cache, sequence_cumsum, sequence_pool
from ...structure.validate import a_bool, a_level, with_memory
from ...tensor.lod_tensor import LoDTensor, made
from .attention import CURRENT, NAME, Distances, Packed, register
from .mapped import Mapped
from .packing import Packing, Used, check_ids, has_decoder, parameters_of, refuse
from .private import POOLERS, biased_by_distance, implementation, say_if_newer
from .probe import Probe, main_input, takes, without_cache
from .states import replace

__all__ = ["use"]

M = TypeVar("M", bound=torch.nn.Module)
#: The ways of computing sequences of different lengths.
METHODS = ("packed", "map_sequences")
_ROWS = ("last_hidden_state", "logits", "hidden_states")


@public
def use(model: M, *, level: int | str = -1, method: str | None = None, check: bool = True) -> M:
    """Lets a model of Hugging Face transformers take LoDTensors, without padding: `model(x)` and `model(input_ids=x, labels=y)`
    with a LoDTensor of ids, (rows,), or `inputs_embeds=`, (rows, features). Every sequence is computed by itself.

    Rows of the output (last_hidden_state, logits, hidden_states) are LoDTensors with the LoD of the ids; what the model makes
    of the first row of a sequence (pooler_output, logits of a sequence classifier) has a row for each sequence. The loss is the
    mean over the labels of all rows that are not -100, as for padded batches; a causal model predicts no row of another sequence.
    If all labels are -100 that is NaN, as for padded batches; the mean over tokens of `tl.sequence_loss` is 0 then.
    Labels and token_type_ids are LoDTensors with the LoD of the ids.

    Packed, all rows are computed in one pass: the attention implementation of the model becomes "torch_lod", and hooks are added. Plain
    tensors raise, until `model.set_attn_implementation("sdpa")` brings back what was; a LoDTensor raises then. Models whose rows
    meet outside of what is replaced (states of Mamba, RWKV), and those whose attention cannot be replaced, are called with stacks of
    equally long sequences instead, once for each distinct length, as `tl.map_sequences` does; plain tensors pass through.
    `model.torch_lod` says which of the two it is, and why; `print(model)` begins with it.

        model.torch_lod.method    "packed" or "map_sequences"
        model.torch_lod.reason    why it is not "packed": what that raised

    Args:
        model: a PreTrainedModel of input_ids (BERT, ModernBERT, Llama, Qwen, T5, DeBERTa, Mamba ...) or of input_values (wav2vec),
            on any device. Of a wrapper, the model within.
        level: attention runs within the sequences of this level, over all their rows, and positions count from their begin.
        method: "packed" or "map_sequences" alone; None: packed where that is right, else map_sequences.
        check: compare three short sequences, computed together, with each of them alone in the attention of the library, and see
            that none changes with another; packed, that gradients do not reach others. That finds what mixes sequences outside of
            attention (convolutions, states, sums over the batch), and positions that do not restart. Without it there is no check.
            It runs the model some fifteen times on some ten rows, in eval mode.

    Returns:
        the model.

    Raises:
        ImportError: without transformers.
        TypeError: for what is no model of transformers, and for models of images or of spectrograms.
        ValueError: for a model whose sequences do not come out as they do alone in either way, or in `method`.
    """
    transformers = library("transformers")
    if not isinstance(model, transformers.PreTrainedModel):
        raise LoDTypeError(
            f"expected model as a transformers.PreTrainedModel, got {type(model).__name__}; of a wrapper the model within"
        )
    a_bool("check", check)
    a_level(level)
    if method is not None and not (isinstance(method, str) and method in METHODS):
        raise LoDValueError(f"expected method as one of {METHODS} or None, got {shown(method)}")
    main_input(model)
    say_if_newer()
    _remove(model)
    reason: Exception | None = None
    if method != "map_sequences":
        try:
            _use_packed(model, level, check)
            return _said(model, Used("packed", level))
        except Exception as error:
            if method == "packed":
                raise
            reason = error
    try:
        _use_mapped(model, level, check)
    except LoDError as error:
        if reason is not None:
            error.add_note(f"and packed: {_words(reason)}")
        raise
    except Exception as error:
        raise LoDValueError(
            f"expected a model that computes stacks of equally long sequences, got {type(model).__name__}, which raised "
            f"{type(error).__name__}: {error}"
        ) from error
    return _said(model, Used("map_sequences", level, _words(reason)))


def _words(reason: Exception | None) -> str | None:
    """What kept a model from being packed; of an error that is none of ours also who raised it."""
    if reason is None or isinstance(reason, LoDError):
        return None if reason is None else str(reason)
    return f"expected a model that can be packed, got one that raised {type(reason).__name__}: {reason}"


def _use_packed(model, level: int | str, check: bool) -> None:
    name = type(model).__name__
    if main_input(model) != "input_ids":
        raise LoDTypeError(f"expected a model of input_ids, got {name}, which takes {main_input(model)}")
    if has_decoder(model):
        raise LoDTypeError(f"expected an encoder or a decoder, got {name}, whose decoder attends to its encoder")
    states = replace(model)
    register()
    before = implementation(model)
    packing = Packing(level)
    packing.states = states
    try:
        if check:
            probe = Probe(model)
            model.set_attn_implementation("eager")
            alone = probe.alone(packing)
        _set_attention(model)
        _install(model, packing)
        if check:
            why = "mixes rows outside of attention, or does not take position_ids, or rounds differently"
            probe.compare(packing, alone, why)
            probe.gradients(packing)
    except BaseException:
        _remove(model)
        model.set_attn_implementation("eager" if before == NAME else before)
        raise


def _use_mapped(model, level: int | str, check: bool) -> None:
    packing = Packing(level)
    if implementation(model) == NAME:
        model.set_attn_implementation("eager")
    alone = None
    if check:
        probe = Probe(model)
        alone = probe.alone(packing)
    try:
        model.forward = Mapped(model, packing)
        if alone is not None:
            probe.compare(packing, alone, "mixes the sequences of a stack, or rounds differently")
    except BaseException:
        _remove(model)
        raise


class _Line:
    """The `extra_repr` of a model."""

    def __init__(self, text: str):
        self.text = text

    def __call__(self) -> str:
        return self.text


class _Generate:
    """The `generate` of a model: it looks at its arguments before any forward."""

    def __init__(self, model):
        self.model = model
        #: one that other code put over the model's own
        self.before = vars(model).get("generate")

    def __call__(self, *args, **kwargs):
        for value in (*args, *kwargs.values()):
            if isinstance(value, LoDTensor):
                packed = self.model.torch_lod.method == "packed"
                way_out = "after model.set_attn_implementation('sdpa') " if packed else ""
                raise named(
                    LoDTypeError(
                        f"expected plain tensors, got {shown(value)}: {way_out}generate takes a padded batch and its attention_mask, "
                        'or texts of one length: tl.map_sequences(lambda s: model.generate(s, ...), x, results="resized")'
                    ),
                    "generate",
                )
        own = self.before or types.MethodType(type(self.model).generate, self.model)
        return own(*args, **kwargs)


def _said(model, used: Used):
    model.torch_lod = used
    if hasattr(type(model), "generate"):
        model.generate = _Generate(model)
    model.extra_repr = _Line(", ".join(filter(None, (type(model).extra_repr(model), str(used)))))
    return model


def _set_attention(model) -> None:
    model.set_attn_implementation(NAME)
    configs = {
        id(m.config): m for m in model.modules() if hasattr(m, "config") and hasattr(m, "set_attn_implementation")
    }
    for module in configs.values():
        if implementation(module) != NAME:
            raise LoDTypeError(
                f"expected a model whose attention can be replaced, got {type(module).__name__}, which has "
                f"{implementation(module)!r} only in this version of transformers"
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
    """Takes off what an earlier `use` put on."""
    for module in model.modules():
        for dicts, i in _hooks(module):
            for held in dicts:
                held.pop(i, None)
        own = vars(module)
        if isinstance(own.get("forward"), Mapped):
            before = own.pop("forward").before
            if before is not None:
                module.forward = before
        if isinstance(own.get("compute_bias"), Distances):
            del own["compute_bias"]
        if isinstance(own.get("generate"), _Generate):
            before = own.pop("generate").before
            if before is not None:
                module.generate = before
        if isinstance(own.get("extra_repr"), _Line):
            del own["extra_repr"], own["torch_lod"]


def _install(model, packing: Packing) -> None:
    _remove(model)
    model.register_forward_pre_hook(_Before(packing), with_kwargs=True)
    model.register_forward_hook(_After(packing), always_call=True)
    for module in model.modules():
        if type(module).__name__.endswith(POOLERS):
            module.register_forward_pre_hook(_First())
        if biased_by_distance(module):
            module.compute_bias = Distances(module)


def packing_of(model) -> Packing | None:
    """What `use` knows of a model; None for another."""
    if isinstance(vars(model).get("forward"), Mapped):
        return vars(model)["forward"].packing
    for hook in getattr(model, "_forward_pre_hooks", {}).values():
        if isinstance(hook, _Before):
            return hook.packing
    return None


def _rows_of(model, given: dict[str, Any]) -> LoDTensor | None:
    """The ids or the embeddings; None for a call with plain tensors while a model has another attention."""
    ids, embeds = given.get("input_ids"), given.get("inputs_embeds")
    x, ours = ids if ids is not None else embeds, implementation(model) == NAME
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
            f"expected plain tensors for the attention implementation {implementation(model)!r}, got a "
            "LoDTensor; call tl.integrations.transformers.use(model) again"
        )
    if ids is not None and embeds is not None:
        raise LoDTypeError("expected either input_ids or inputs_embeds, got both")
    check_ids(x, "input_ids" if ids is not None else "inputs_embeds")
    return x


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
        parameters = parameters_of(model)
        given = {**dict(zip(parameters, args)), **kwargs}
        x, ids = _rows_of(model, given), given.get("input_ids")
        if x is None:
            return None
        with_memory(*(value for value in given.values() if isinstance(value, LoDTensor)))
        caches = self._caches(model, given)
        packed = Packed(x.lod, x.lod.level(self.packing.level), caches)
        refuse(model, given, packed=True)
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

    def _caches(self, model, given: dict[str, Any]) -> tuple[Cache, ...]:
        """Takes caches of ours out of the arguments."""
        caches, config = given.get("past_key_values"), model.config
        if not isinstance(caches, (list, tuple)) or not any(isinstance(cache, Cache) for cache in caches):
            return ()
        layers = getattr(config, "num_hidden_layers", None)
        if len(caches) != layers or not all(isinstance(cache, Cache) for cache in caches):
            raise LoDTypeError(
                f"expected past_key_values as a tl.Cache for each of {layers} layers, got {shown(caches)}"
            )
        windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
        if self.packing.states or any(windows) or not takes(parameters_of(model), "position_ids"):
            raise LoDTypeError(
                f"expected no past_key_values, got caches: {type(model).__name__} has states, windows or positions of its own; "
                "model.set_attn_implementation('sdpa') and tl.map_sequences generate"
            )
        del given["past_key_values"]
        return tuple(caches)

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
    for cache in packed.caches[:1]:
        if cache.num_sequences() == packed.lod.num_sequences(packed.level):  # otherwise attention says so
            positions = positions + cache.lengths().to(x.device)[packed.lod.segment_ids_at(packed.level, x.device)]
    padding = None
    for module in model.modules():
        if hasattr(
            type(module), "create_position_ids_from_input_ids"
        ):  # RoBERTa and its kin: ids that are padding do not count
            padding = module.padding_idx
    if padding is None:
        return positions
    if packed.caches:
        raise LoDTypeError("expected no past_key_values, got caches: positions of this model begin behind its padding")
    if not are_ids:
        return positions + padding + 1
    with without_dispatch():
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
