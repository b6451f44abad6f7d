# SPDX-License-Identifier: Apache-2.0
"""Torch's attention: the queries of every innermost sequence with the keys of the sequence of the same number."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..dynamo import whole_number
from ..engine.attention import attend, check_rows, multi_head_attention
from ..errors import LoDTypeError, LoDValueError
from ..lod import LoD
from ..sequence_operator import level_of, probability
from ..tensor import made
from ..validate import sums
from .routes import route, structured


def _masked(mask, heads: int, lods: tuple[LoD, LoD], dtype: torch.dtype) -> Tensor:
    """What a mask of places, (queries, keys) or (heads, queries, keys), says of every query and key of a sequence: (pairs, 1 or
    heads). Places are counted from the start of the sequence. Bool masks stay so."""
    longest = tuple(lod.max_length() for lod in lods)
    if not isinstance(mask, Tensor) or structured(mask):
        raise LoDTypeError(f"expected attn_mask as a plain tensor of places, got {type(mask).__name__}")
    if mask.dim() not in (2, 3) or mask.shape[:-2] not in ((), (1,), (heads,)):
        raise LoDValueError(
            f"expected attn_mask of shape (queries, keys) or ({heads}, queries, keys), got {tuple(mask.shape)}"
        )
    if any(size < most for size, most in zip(mask.shape[-2:], longest)):
        raise LoDValueError(f"expected attn_mask for the longest sequences, {longest} places, got {tuple(mask.shape)}")
    own, other = (lod.row_offsets_at(lod.depth - 1) for lod in lods)
    keys = other.diff().repeat_interleave(own.diff())  # of the sequence of every query
    places = torch.arange(len(keys), device="cpu") - own[:-1].repeat_interleave(own.diff())
    runs, on = sums(keys), mask.device
    wide = mask.unsqueeze(-1) if mask.dim() == 2 else mask.permute(1, 2, 0)
    wide = wide if wide.dtype == torch.bool else wide.to(dtype)
    return ops.gather_runs(wide.flatten(0, 1), (places * mask.shape[-1]).to(on), runs.to(on), whole_number(runs[-1]))


def _seen(mask, causal: bool, hides: bool, heads: int, lods, like: Tensor) -> tuple[bool, Tensor | None]:
    """Causality, and the bias of pairs, from a mask whose true places are hidden, or the others. With keys of another LoD torch
    is causal from the starts of both."""
    if causal and lods[0] != lods[1]:
        longest = [lod.max_length() for lod in lods]
        mask, causal, hides = torch.ones(longest, dtype=torch.bool, device=like.device).tril(), False, False
    if mask is None:
        return causal, None
    pairs = _masked(mask, heads, lods, like.dtype)
    return causal, ~pairs if hides and pairs.dtype == torch.bool else pairs


@route(F.multi_head_attention_forward)
def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """`is_causal` needs no mask beside it, and goes before one."""
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not any(structured(t) for t in (query, key, value)):
        return NotImplemented
    for name, t in (("query", query), ("key", key), ("value", value)):
        level_of(t, -1, name)
    projections = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), separate))
    weights = projections if use_separate_proj_weight else {"in_proj_weight": in_proj_weight}
    given = {
        **weights,
        "out_proj_weight": out_proj_weight,
        "in_proj_bias": in_proj_bias,
        "out_proj_bias": out_proj_bias,
    }
    for name, t in given.items():
        dims = 1 if "bias" in name else 2
        if (t is not None or dims == 2) and (not isinstance(t, Tensor) or structured(t) or t.dim() != dims):
            raise LoDTypeError(f"expected {name} as a plain tensor of {dims} dims, got {type(t).__name__}")
    if key_padding_mask is not None:
        raise LoDValueError("expected no key_padding_mask, since nothing is padded")
    if any(t is not None for t in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise LoDValueError("expected neither add_bias_kv, add_zero_attn nor static keys with LoDTensors")
    if type(num_heads) is not int or num_heads < 1 or embed_dim_to_check % num_heads:
        raise LoDValueError(f"expected heads that divide {embed_dim_to_check}, got {num_heads}")
    mask = None if is_causal else attn_mask
    causal, bias = _seen(mask, bool(is_causal), True, num_heads, (query.lod, key.lod), out_proj_weight)
    return multi_head_attention(
        query,
        key,
        value,
        num_heads,
        separate if use_separate_proj_weight else in_proj_weight,
        in_proj_bias,
        out_proj_weight,
        out_proj_bias,
        causal=causal,
        bias=bias,
        dropout=dropout_p if training else 0.0,
        need_weights=bool(need_weights),
        average_weights=bool(average_attn_weights),
    )


@route(F.scaled_dot_product_attention)
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """Rows (rows, width) are the places of one head, (rows, heads, width) of several. With more dims every row has an attention
    of its own, as with plain tensors."""
    given = {"query": query, "key": key, "value": value}
    levels = [level_of(t, -1, name) for name, t in given.items()]
    lods = query.lod, key.lod.agreed(value.lod)
    probability("dropout_p", dropout_p)
    if query.dim() > 3:
        plain = [t.values() for t in given.values()]
        out = F.scaled_dot_product_attention(
            *plain, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return made(out, lods[0].agreed(lods[1]))
    if is_causal and attn_mask is not None:
        raise LoDValueError("expected either attn_mask or is_causal, got both")
    rows = check_rows({name: t.values() for name, t in given.items()})
    heads, shared = rows[0].shape[1], rows[1].shape[1]
    if heads % max(shared, 1) if enable_gqa else heads != shared:
        raise LoDValueError(f"expected {heads} heads of keys, or with enable_gqa a divisor, got {shared}")
    causal, bias = _seen(attn_mask, bool(is_causal), False, heads, lods, rows[0])
    out, _ = attend(rows, lods, levels[:2], causal, None, bias, scale, None, dropout_p)
    return made(out if query.dim() == 3 else out.squeeze(1), query.lod)
