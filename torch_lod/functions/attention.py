# SPDX-License-Identifier: Apache-2.0
"""Torch's attention: the queries of innermost sequence i attend to the keys of innermost sequence i."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..dynamo import failing, whole_number
from ..errors import LoDTypeError, LoDValueError
from ..sequence.attend import Options, Projections, attend, check_rows, multi_head_attention
from ..sequence.operator import along
from ..structure.lod import LoD
from ..structure.validate import probability, sums
from ..tensor.derived import DerivedTensor, rows_at
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor, made
from .layouts import at_dim, structured
from .refusals import NO_SEQUENCES
from .row import enter
from .signature import refuse, refuse_parts


class _OfKeys(NamedTuple):
    """A mask or bias of the keys, the same for every query: (keys, 1 or heads)."""

    rows: Tensor


def _of_keys(mask, queries: int, keys: LoD) -> _OfKeys:
    """A mask made of rows, which are those of the keys: (..., 1 or heads, 1 or queries, keys)."""
    origin = mask._provenance if isinstance(mask, DerivedTensor) else None
    if origin is None or origin.dim != mask.dim() - 1 or origin.part is not None or mask.dim() < 2:
        at = 0 if origin is None else origin.dim
        raise LoDTypeError(
            "expected attn_mask as a plain tensor of positions, or made of the rows of the keys and with these at its last dim, "
            f"got rows of a LoDTensor at dim {at} of {tuple(mask.shape)}; a bias for every pair is tl.sequence_attention(q, k, v, bias=)"
        )
    keys.agreed(origin.lod)
    values = mask.values()
    if any(n != 1 for n in values.shape[:-3]) or values.shape[-2] not in (1, queries):
        raise LoDValueError(
            f"expected attn_mask of shape (1, 1 or heads, 1 or {queries}, {keys.rows}), got {tuple(values.shape)}"
        )
    one = values[..., :1, :] if values.shape[-2] else values.new_zeros(*values.shape[:-2], 1, values.shape[-1])
    if values.shape[-2] > 1 and values.stride(-2):
        said = "expected attn_mask made of rows to be the same for every query"
        for _ in failing((values != one).reshape(-1), f"scaled_dot_product_attention: {said}"):
            raise LoDValueError(
                f"{said}, got one that differs, whose rows count the queries of all sequences; a bias for every pair is "
                "tl.sequence_attention(q, k, v, bias=)"
            )
    return _OfKeys(one.reshape(-1, values.shape[-1]).t())


def _bias_of_pairs(mask, heads: int, lods: tuple[LoD, LoD], dtype: torch.dtype) -> Tensor:
    """The entries of a mask for every pair of a query and a key of the same sequence: (pairs, 1 or heads). The mask is
    (queries, keys) or (heads, queries, keys), indexed by the positions within the sequence. Bool masks stay bool."""
    longest = tuple(lod.max_length() for lod in lods)
    own, other = (lod.row_offsets_at(lod.depth - 1) for lod in lods)
    keys = other.diff().repeat_interleave(own.diff())  # per query: the keys of its sequence
    runs = sums(keys)
    if isinstance(mask, _OfKeys):
        wide, starts, on = mask.rows, other[:-1].repeat_interleave(own.diff()), mask.rows.device
        wide = wide if wide.dtype == torch.bool else wide.to(dtype)
        if wide.shape[1] not in (1, heads):
            raise LoDValueError(f"expected attn_mask for 1 or {heads} heads, got {wide.shape[1]}")
        return ops.gather_runs(wide, starts.to(on), runs.to(on), whole_number(runs[-1]))
    if not isinstance(mask, Tensor) or structured(mask):
        raise LoDTypeError(f"expected attn_mask as a plain tensor of positions, got {type(mask).__name__}")
    if mask.dim() not in (2, 3) or mask.shape[:-2] not in ((), (1,), (heads,)):
        raise LoDValueError(
            f"expected attn_mask of shape (queries, keys) or ({heads}, queries, keys), got {tuple(mask.shape)}"
        )
    if any(size < most for size, most in zip(mask.shape[-2:], longest)):
        of_rows = mask.shape[-2:] in ((1, lods[1].rows), (lods[0].rows, lods[1].rows))
        hint = "; a mask of padding is left out, since no row is; one of rows is x.with_values(mask)[None, None]"
        raise LoDValueError(
            f"expected attn_mask for {longest} positions, the longest sequences, got {tuple(mask.shape)}{hint if of_rows else ''}"
        )
    positions = torch.arange(len(keys), device="cpu") - own[:-1].repeat_interleave(own.diff())
    on = mask.device
    wide = mask.unsqueeze(-1) if mask.dim() == 2 else mask.permute(1, 2, 0)
    wide = (wide if wide.dtype == torch.bool else wide.to(dtype)).flatten(0, 1)
    runs, pairs, starts = runs.to(on), whole_number(runs[-1]), positions * mask.shape[-1]
    by_position = ops.gather_runs(wide, starts.to(on), runs, pairs)
    if mask.shape[-2:] == (lods[0].rows, lods[1].rows) != longest:
        rows = torch.arange(len(keys), device="cpu") * mask.shape[-1] + other[:-1].repeat_interleave(own.diff())
        _refuse_mask_of_rows(by_position != ops.gather_runs(wide, rows.to(on), runs, pairs), longest)
    return by_position


def _refuse_mask_of_rows(differs: Tensor, longest: tuple[int, ...]) -> None:
    """A mask with an entry for every pair of rows of the batch is a causal mask that is larger than needed, or says which
    rows belong together: then its blocks along the diagonal are not its top left corner."""
    said = f"expected attn_mask by the positions within a sequence, {longest}"
    for _ in failing(differs.reshape(-1), f"scaled_dot_product_attention: {said}"):
        raise LoDValueError(
            f"{said}, got one for all rows of the batch, which says something else about a later sequence than about the "
            "first; attention never leaves a sequence, so leave out a mask that keeps sequences apart, or pass "
            f"attn_mask[:{longest[0]}, :{longest[1]}]"
        )


def _causal_and_bias(mask, causal: bool, hides: bool, heads: int, lods, like: Tensor) -> dict:
    """The options of `attend` for a mask and is_causal. In a bool mask True means hidden if `hides`, otherwise
    visible. torch's causal mask is top-left aligned, that of `attend` bottom-right aligned."""
    # a CausalBias, whose module imports Dynamo, is known by its variant; what is in its memory is arbitrary
    variant = None if mask is None or type(mask) is Tensor else getattr(mask, "variant", None)
    if variant is not None:
        if variant.name == "LOWER_RIGHT":
            return {"causal": True, "bias": None}
        mask, causal = None, True
    if causal and lods[0] != lods[1]:
        longest = [lod.max_length() for lod in lods]
        mask, causal, hides = torch.ones(longest, dtype=torch.bool, device=like.device).tril(), False, False
    if mask is None:
        return {"causal": causal, "bias": None}
    pairs = _bias_of_pairs(mask, heads, lods, like.dtype)
    return {"causal": causal, "bias": ~pairs if hides and pairs.dtype == torch.bool else pairs}


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
    """Unlike torch's, `is_causal` needs no mask; if both are given, `is_causal` counts."""
    if not any(structured(t) for t in (query, key, value)):
        return NotImplemented
    given = query, key, value
    for name, t in zip(("query", "key", "value"), given):
        if type(t) is Tensor:
            raise LoDTypeError(
                f"expected {name} as a LoDTensor, got a plain tensor; rows that are the same for each of n sequences: "
                "tl.batch([rows] * n)"
            )
        a_lod_tensor(name, t)
    batched = all(t.dim() == 3 and t.shape[1] == 1 for t in given)
    if batched:  # a batch of one, (rows, 1, features)
        query, key, value = (LoDTensor(t.values().squeeze(1), t.lod) for t in given)
        if given[0] is given[1] is given[2]:  # one product for all three
            key = value = query
    separate = {"q_proj_weight": q_proj_weight, "k_proj_weight": k_proj_weight, "v_proj_weight": v_proj_weight}
    weights = separate if use_separate_proj_weight else {"in_proj_weight": in_proj_weight}
    _check_weights(**weights, out_proj_weight=out_proj_weight, in_proj_bias=in_proj_bias, out_proj_bias=out_proj_bias)
    _refuse_others(
        key_padding_mask, add_bias_kv=bias_k, add_zero_attn=add_zero_attn or None, static_k=static_k, static_v=static_v
    )
    if type(num_heads) is not int or num_heads < 1 or embed_dim_to_check % num_heads:
        raise LoDValueError(f"expected heads that divide {embed_dim_to_check}, got {num_heads}")
    mask = None if is_causal else attn_mask
    in_proj = tuple(separate.values()) if use_separate_proj_weight else in_proj_weight
    out, seen = multi_head_attention(
        query,
        key,
        value,
        Projections(num_heads, in_proj, in_proj_bias, out_proj_weight, out_proj_bias),
        -1,
        Options.of(**_causal_and_bias(mask, bool(is_causal), True, num_heads, (query.lod, key.lod), out_proj_weight)),
        bool(average_attn_weights),
        dropout_p if training else 0.0,
        bool(need_weights),
    )
    return (made(out.values().unsqueeze(1), out.lod) if batched else out), seen


def _refuse_others(key_padding_mask, **added) -> None:
    if key_padding_mask is not None:
        got = type(key_padding_mask).__name__
        raise LoDValueError(f"expected no key_padding_mask, since nothing is padded, got {got}; pass None")
    for name, t in added.items():
        if t is not None:
            raise LoDValueError(
                f"expected neither add_bias_kv, add_zero_attn nor static keys with LoDTensors, got {name}"
            )


def _check_weights(**weights: Tensor | None) -> None:
    for name, t in weights.items():
        dims = 1 if "bias" in name else 2
        if (t is not None or dims == 2) and (not isinstance(t, Tensor) or structured(t) or t.dim() != dims):
            raise LoDTypeError(f"expected {name} as a plain tensor of {dims} dims, got {type(t).__name__}")


def _rows_before_width(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch's layout, (heads, rows, width) or (1, heads, rows, width)."""
    given = query, key, value
    if not all(at_dim(t, -2) and t.dim() == query.dim() and t.shape[:-3] in ((), (1,)) for t in given):
        return None
    if structured(attn_mask):
        attn_mask = _of_keys(attn_mask, query.shape[-2], key.lod)
    elif isinstance(attn_mask, Tensor) and attn_mask.dim() == 4 and attn_mask.shape[0] == 1:
        attn_mask = attn_mask.squeeze(0)
    turned = [LoDTensor(t.values().reshape(t.shape[-3:]).transpose(0, 1), t.lod) for t in given]
    out = scaled_dot_product_attention(*turned, attn_mask, dropout_p, is_causal, scale, enable_gqa, _turned=True)
    values = out.values().transpose(0, 1)
    return rows_at(
        values.reshape(*query.shape[:-3], *values.shape), out.lod, query._provenance.dim, query._provenance.call
    )


def _elements_turned(t) -> bool:
    """Whether the dims of each row were exchanged by a transposition, as strides tell."""
    return t.dim() == 3 and t.shape[1] > 1 and t.shape[2] > 1 and t.stride(1) < t.stride(2)


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    _turned=False,
):
    """(rows, width) is one head, (rows, heads, width) several: rows are positions. With more dims attention runs within
    each row, as with plain tensors."""
    given = {"query": query, "key": key, "value": value}
    queries, keys, values = sequences = [along(t, -1, name) for name, t in given.items()]
    for name, t in given.items():
        if not _turned and _elements_turned(t):
            raise LoDValueError(
                f"expected {name} as (rows, heads, width), got the last two dims of a row transposed, {tuple(t.shape)}: a "
                "LoDTensor has no batch dim, so the rows are moved with transpose(0, 1), to (heads, rows, width), and not "
                "with transpose(1, 2); if the heads are at dim 1, pass x.contiguous()"
            )
    lods = queries.lod, keys.lod.agreed(values.lod)
    probability("dropout_p", dropout_p)
    if query.dim() > 3:
        if not query.dim() == key.dim() == value.dim():  # torch would lay rows along another dim
            raise LoDValueError(
                f"expected query, key and value of as many dims, got {query.dim()}, {key.dim()} and {value.dim()}"
            )
        if key.dim() > 3 and key.shape[-2] == 1:
            raise LoDValueError(
                f"expected rows (rows, heads, width), got {tuple(key.shape)}, in which every row would attend to itself only: a "
                "LoDTensor has no dims for a batch and its positions, see x.unflatten(-1, (heads, width))"
            )
        plain, options = (s.rows for s in sequences), {"scale": scale, "enable_gqa": enable_gqa}
        out = F.scaled_dot_product_attention(*plain, attn_mask, dropout_p, is_causal, **options)
        return made(out, lods[0].agreed(lods[1]))
    if is_causal and attn_mask is not None:
        raise LoDValueError("expected either attn_mask or is_causal, got both")
    rows = check_rows({name: s.rows for name, s in zip(given, sequences)})
    heads, shared = rows[0].shape[1], rows[1].shape[1]
    if heads % max(shared, 1) if enable_gqa else heads != shared:
        raise LoDValueError(f"expected {heads} heads of keys, or with enable_gqa a divisor, got {shared}")
    seen = _causal_and_bias(attn_mask, bool(is_causal), False, heads, lods, rows[0])
    out, _ = attend(rows, lods, (queries.k, keys.k), Options.of(scale=scale, **seen), dropout_p)
    return queries.keep(out if query.dim() == 3 else out.squeeze(1))


_ATTENDED = refuse_parts(refuse(f"rows of different sequences would attend to one another; {NO_SEQUENCES}"))
enter(
    "sequence-wise",
    _ATTENDED,
    "scaled_dot_product_attention",
    run=scaled_dot_product_attention,
    run_at_dim=_rows_before_width,
)
enter("sequence-wise", _ATTENDED, "multi_head_attention_forward", run=multi_head_attention_forward)
