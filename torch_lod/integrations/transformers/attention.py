# SPDX-License-Identifier: Apache-2.0
"""The attention function and the mask function that are registered in transformers under the name "torch_lod".

The library calls the attention function in every layer with queries, keys and values of shape (1, heads, rows, width), and with
the keyword arguments of the model's forward, among them our `Packed`. The mask function returns a `Pattern`: a mask is never
made.
"""

from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...dynamo import outside_of_graphs
from ...errors import LoDError, LoDTypeError, LoDValueError, library, named, shown, without_dispatch
from ...sequence.attend import Options, attend, check_rows
from ...sequence.cache import Cache, beside
from ...sequence.operator import along
from ...structure.lod import LoD
from ...tensor.lod_tensor import LoDTensor
from .private import FIRST, bias_of_distances, said

#: The name of the attention implementation, and of the keyword argument that brings the structure to it.
NAME = "torch_lod"
#: Queries whose keys are compared with those of a window.
_LOOKED_AT = 32
#: What other implementations of attention are told, and what changes nothing here.
_HARMLESS = frozenset(
    "deterministic labels num_items_in_batch output_attentions output_hidden_states output_router_logits position_embeddings "
    "position_ids return_dict token_type_ids use_cache".split()
)
_WAY_OUT = "model.set_attn_implementation('eager'), with padded tensors"


class Packed(NamedTuple):
    """The structure of the rows that a model is given."""

    lod: LoD
    #: attention runs within the sequences of this level
    level: int
    #: by layer, what holds the keys of earlier calls
    caches: tuple[Cache, ...] = ()


#: The structure of the forward that is running: for poolers, and for models that do not hand keyword arguments down.
CURRENT: ContextVar[Packed | None] = ContextVar("torch_lod_packed", default=None)


class Pattern:
    """What stands instead of a mask: which keys a query sees, as the library's function of two positions."""

    def __init__(self, function):
        self.function = function
        self.found: tuple[int, int] | None = None

    def reach(self, packed: Packed, device) -> tuple[int, int]:
        """How many keys before and after its own a query sees, -1: all. ValueError if that is not the same for every query."""
        if self.found is None:
            with without_dispatch():
                self.found = self._reach(packed, device)
        return self.found

    @outside_of_graphs
    def _reach(self, packed: Packed, device) -> tuple[int, int]:
        offsets = packed.lod.row_offsets_at(packed.level)
        lengths = offsets.diff()
        begin, count = 0, 0
        if lengths.numel():
            longest = int(lengths.argmax())
            begin, count = int(offsets[longest]), int(lengths[longest])
        if count == 0:
            return -1, -1
        queries = torch.linspace(0, count - 1, min(count, _LOOKED_AT), device="cpu").long().to(device)
        keys = torch.arange(count, device=device)
        zero = torch.zeros((), dtype=torch.int64, device=device)
        seen = self.function(zero, zero, queries[:, None] + begin, keys + begin).expand(len(queries), count).cpu()
        queries, keys = queries.cpu(), keys.cpu()
        left, right = count - int(seen[-1].sum()), int(seen[0].sum())
        # of the last query the keys before it, of the first those after it
        pair = (-1 if left == 0 else count - 1 - left), (-1 if right == count else right - 1)
        distance = keys - queries[:, None]
        expected = torch.ones_like(seen)
        if pair[0] >= 0:
            expected &= distance >= -pair[0]
        if pair[1] >= 0:
            expected &= distance <= pair[1]
        if not torch.equal(seen, expected):
            raise _error(
                "expected attention to all keys, to those before, or to a window of the same size for every query, got a mask "
                f"of another form (chunks, blocks, a prefix); see {_WAY_OUT}"
            )
        return pair


def register() -> None:
    """Makes the implementation known to transformers."""
    transformers = library("transformers")
    interface = getattr(transformers, "AttentionInterface", None)
    masks = getattr(transformers, "AttentionMaskInterface", None)
    if interface is None or masks is None or not hasattr(transformers.PreTrainedModel, "set_attn_implementation"):
        raise LoDTypeError(f"expected transformers {said(FIRST)} or newer, got {transformers.__version__}")
    interface.register(NAME, attention)
    masks.register(NAME, mask)


def mask(*, mask_function=None, attention_mask=None, use_vmap: bool = False, **sizes: Any) -> Pattern | None:
    """The library calls it once for every kind of mask that a model has."""
    if isinstance(attention_mask, Tensor) and not bool(attention_mask.all()):
        raise _error("expected no padding, got an attention_mask with zeros; give the rows alone, as a LoDTensor")
    if sizes.get("q_length", sizes.get("kv_length")) != sizes.get("kv_length") or sizes.get("kv_offset", 0):
        raise _error(f"expected no cache, got keys of earlier calls; see {_WAY_OUT}")
    if use_vmap or not callable(mask_function):
        raise _error(f"expected the masks of the library alone, got a function of the model's own; see {_WAY_OUT}")
    return Pattern(mask_function)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Pattern | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The library calls it in every layer.

    Args:
        query, key, value: (1, heads, rows, width); key and value may have fewer heads.
        softcap: scores become softcap * tanh(scores / softcap), as in Gemma 2.
        s_aux: (heads,), a logit that joins every softmax, as in GPT-OSS.
        position_bias: (1, heads, 1, 2 n + 1), of `Distances`.
        others: what the library hands down from the model's forward; `torch_lod` is our `Packed`.

    Returns:
        (1, rows, heads, value width).
    """
    packed = others.pop(NAME, None) or CURRENT.get()
    if not isinstance(packed, Packed):
        raise _error(
            f"expected a model that tl.integrations.transformers.use prepared, and a LoDTensor of ids, got "
            f"{type(module).__name__} called without; for padded tensors see model.set_attn_implementation('sdpa')"
        )
    for name, given in others.items():
        if given is not None and name not in _HARMLESS and given is not False:
            raise _error(f"expected no {name}, which changes the attention of {type(module).__name__}; see {_WAY_OUT}")
    rows = packed.lod.rows
    for what, t in {"query": query, "key": key, "value": value}.items():
        if t.dim() != 4 or t.shape[0] != 1 or t.shape[2] != rows:
            raise _error(
                f"expected {what} of shape (1, heads, {rows}, width), got {tuple(t.shape)}: a cache and cross-attention do "
                f"not work on packed rows; see {_WAY_OUT}"
            )
    try:
        window = _reach(module, attention_mask, is_causal, sliding_window, packed, query.device)
        with without_dispatch():
            parts = check_rows(
                {what: t[0].transpose(0, 1) for what, t in zip(("query", "key", "value"), (query, key, value))}
            )
            if parts[0].shape[1] % max(parts[1].shape[1], 1):
                raise LoDValueError(
                    f"expected heads of key that divide the {parts[0].shape[1]} of query, got {parts[1].shape[1]}"
                )
            lods, levels = (packed.lod, packed.lod), (packed.level, packed.level)
            if packed.caches:
                parts, lods = _cached(module, parts, packed, window)
                levels, window = (0, 0), (-1, 0)
            distance_bias = _by_distance(position_bias, module)
            options = Options.of(
                window=window, scale=scaling, softcap=softcap or None, sink=s_aux, distance_bias=distance_bias
            )
            out, _ = attend(parts, lods, levels, options, dropout)
    except LoDError as error:
        error.call = error.call or NAME
        raise
    return out.unsqueeze(0), None


def _cached(module, parts: list[Tensor], packed: Packed, window) -> tuple[list[Tensor], tuple[LoD, LoD]]:
    """Keys and values are appended to the cache of a layer, and are read there."""
    at, one_row = getattr(module, "layer_idx", None), packed.lod.longest_rows_at(packed.level) <= 1
    if type(at) is not int or not 0 <= at < len(packed.caches) or (window != (-1, 0) and not one_row):
        raise LoDValueError(
            f"expected causal attention to all keys, of a layer with a number below {len(packed.caches)}, beside caches, got "
            f"{type(module).__name__} of layer {at}, window {window}; see {_WAY_OUT}"
        )
    q, k, v = (LoDTensor(t, packed.lod) for t in parts)
    packed.caches[at].append(k, v)
    keys, lods = beside(packed.caches[at], along(q, packed.level))
    return [parts[0], *keys.values()], lods


def _by_distance(bias: Tensor | None, module) -> Tensor | None:
    if bias is None:
        return None
    if not isinstance(bias, Tensor) or bias.dim() != 4 or bias.shape[0] != 1 or bias.shape[2] != 1:
        raise LoDValueError(
            f"expected a position_bias of distances alone, got {shown(bias)} of {type(module).__name__}; see {_WAY_OUT}"
        )
    return bias[0, :, 0]


class Distances:
    """In the place of a `compute_bias` of T5's: the bias of every distance once, (1, heads, 1, 2 n + 1), instead of that of
    every pair of rows."""

    def __init__(self, module):
        self.module = module

    def __call__(self, *args, **kwargs):
        if CURRENT.get() is None:
            return type(self.module).compute_bias(self.module, *args, **kwargs)
        return bias_of_distances(self.module, kwargs.get("device"))


def _reach(module, given, is_causal, sliding_window, packed: Packed, device) -> tuple[int, int]:
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    before = -1
    if sliding_window is not None:
        if type(sliding_window) is not int or sliding_window < 1:
            raise LoDTypeError(f"expected sliding_window as an int of at least 1, got {shown(sliding_window)}")
        before = sliding_window - 1
    stated = (before, 0 if is_causal else before)
    if given is None:
        return stated
    if not isinstance(given, Pattern):
        raise LoDTypeError(f"expected no attention_mask, got {shown(given)}; give the rows alone, as a LoDTensor")
    found = given.reach(packed, device)
    longest = packed.lod.longest_rows_at(packed.level)
    if sliding_window is not None and _within(found, longest) != _within(stated, longest):
        raise LoDValueError(
            f"expected the mask of a window {stated} of {type(module).__name__}, got one of {found}; see {_WAY_OUT}"
        )
    return found


def _within(reach: tuple[int, int], longest: int) -> tuple[int, ...]:
    """A reach beyond the longest sequence is one of all keys."""
    return tuple(-1 if n >= longest - 1 else n for n in reach)


def _error(said: str) -> LoDError:
    return named(LoDValueError(said), NAME)
