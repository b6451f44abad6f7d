# SPDX-License-Identifier: Apache-2.0
"""The implementation of attention: `attend` for queries, keys and values, `multi_head_attention` with the weights of
torch.nn.MultiheadAttention. Both run without the table of torch's functions."""

import functools
import inspect
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..dynamo import a_node, compiling, constant, failing, outside_of_graphs
from ..errors import LoDTypeError, LoDValueError, shown, without_dispatch
from ..ops.attention_composed import attention_weights
from ..ops.check import is_real
from ..structure.block_mask import window_pair
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.partition import constant_on, together
from ..structure.validate import a_bool, integer, number, probability, with_memory
from ..tensor.lod_tensor import LoDTensor, made, rows_of
from .operator import along, autocast_dtype

_weights = outside_of_graphs(attention_weights, "MultiheadAttention with need_weights=True")


def check_rows(given: dict[str, Tensor]) -> list[Tensor]:
    """q, k and v as (rows, heads, width), in the dtype of autocast if it is on."""
    first = next(iter(given))
    q, *_ = rows = list(given.values())
    for what, t in given.items():
        if not t.is_floating_point():
            raise LoDTypeError(f"expected {what} of a floating dtype, got {t.dtype}")
        if t.device != q.device:
            raise LoDTypeError(f"expected {what} on {q.device}, as {first}, got one on {t.device}")
        if t.dim() not in (2, 3) or t.dim() != q.dim():
            of = "(rows, width) or (rows, heads, width)" if t is q else f"{q.dim()} dimensions, as {first}"
            raise LoDValueError(f"expected {what} of {of}, got {tuple(t.shape)}")
    dtype = autocast_dtype(q.device)
    if dtype is not None and q.dtype != torch.float64:
        rows = [t.to(dtype) for t in rows]
    q, k, v = (t if t.dim() == 3 else t.unsqueeze(1) for t in rows)
    for what, t in zip(list(given)[1:], (k, v)):
        if t.dtype != q.dtype:
            raise LoDTypeError(f"expected {what} of {q.dtype}, as {first}, got {t.dtype}")
    if k.shape[2] != q.shape[2] or not q.shape[2] or not q.shape[1]:
        raise LoDValueError(f"expected q and k of one width, at least 1, got {tuple(q.shape)} and {tuple(k.shape)}")
    if v.shape[1] != k.shape[1] or not v.shape[2]:
        raise LoDValueError(
            f"expected v with the {k.shape[1]} heads of k and a width of at least 1, got {tuple(v.shape)}"
        )
    return [q, k, v]


def _slopes_of(alibi, q: Tensor) -> Tensor | None:
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    heads = q.shape[1]
    if isinstance(alibi, LoDTensor):
        raise LoDTypeError("expected alibi as a plain tensor, got a LoDTensor; if it is meant, pass its .values()")
    if isinstance(alibi, Tensor):
        if alibi.shape != (heads,) or not alibi.is_floating_point() or alibi.device != q.device:
            raise LoDValueError(
                f"expected alibi as {heads} floating slopes on {q.device}, one per head, got {alibi.dtype} of shape "
                f"{tuple(alibi.shape)} on {alibi.device}"
            )
        return alibi.to(dtype)
    if alibi is False:
        return None
    if alibi is not True:
        raise LoDTypeError(f"expected alibi as a tensor of slopes, True or None, got {shown(alibi)}")

    def make() -> Tensor:
        # powers of 2^(-8 / n), n the largest power of two <= heads; the other heads take values between these
        n = 2 ** int(math.log2(heads))
        powers = [8 * (i + 1) / n for i in range(n)] + [4 * (2 * i + 1) / n for i in range(heads - n)]
        return torch.tensor([2.0**-p for p in powers], dtype=dtype, device="cpu")

    return constant_on(("alibi", heads, dtype), q.device, make)


def _of_heads(what: str, t, q: Tensor, shape: str, fits) -> Tensor:
    """A parameter with a row per head, in the dtype of the sums."""
    if not isinstance(t, Tensor) or isinstance(t, LoDTensor):
        raise LoDTypeError(f"expected {what} as a plain tensor of shape {shape}, got {shown(t)}")
    with_memory(t)
    if not fits(t.shape) or not t.is_floating_point() or t.device != q.device:
        raise LoDValueError(
            f"expected {what} as a floating tensor of shape {shape}, on {q.device}, got {t.dtype} of shape "
            f"{tuple(t.shape)} on {t.device}"
        )
    return t.to(torch.float64 if q.dtype == torch.float64 else torch.float32)


def _sink_of(sink, q: Tensor) -> Tensor:
    heads = q.shape[1]
    return _of_heads("sink", sink, q, f"({heads},), a logit per head", lambda shape: shape == (heads,))


def _distance_bias_of(table, q: Tensor) -> Tensor:
    heads = q.shape[1]
    return _of_heads(
        "distance_bias",
        table,
        q,
        f"({heads}, 2 n + 1), an entry per head and distance from -n to n",
        lambda shape: len(shape) == 2 and shape[0] == heads and shape[1] % 2 == 1,
    )


def _softcap_of(softcap) -> float:
    number("softcap", softcap)
    if not 0 < softcap < math.inf:
        raise LoDValueError(f"expected softcap above 0 and finite, or None, got {softcap}")
    return float(softcap)


def _prefix_of(prefix, count: int, device) -> Tensor:
    """A length per sequence."""
    said = f"expected prefix as {count} integers, one per sequence, or an int"
    if type(prefix) is int:
        prefix = torch.full((count,), prefix, dtype=torch.int64, device="cpu")
    if not isinstance(prefix, Tensor):
        raise LoDTypeError(f"{said}, got {shown(prefix)}")
    with_memory(prefix)
    rows = rows_of(prefix)
    if rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool:
        raise LoDTypeError(f"{said}, got {rows.dtype}")
    if rows.dim() not in (1, 2) or rows.shape[0] != count or (rows.dim() == 2 and rows.shape[1] != 1):
        raise LoDValueError(f"{said}, got shape {tuple(rows.shape)}")
    rows = rows.reshape(-1)
    for at in failing(rows < 0, "sequence_attention: expected prefix of at least 0"):
        raise LoDValueError(f"expected prefix of at least 0, got {int(rows[at])} at index {at}")
    return upload(rows.to(torch.int64), device)


def _bias_of(bias, q: Tensor) -> Tensor:
    if not isinstance(bias, Tensor):
        raise LoDTypeError(f"expected bias as a tensor, got {type(bias).__name__}")
    with_memory(bias)
    rows = rows_of(bias)
    if rows.dtype == torch.bool:
        rows = torch.zeros_like(rows, dtype=q.dtype).masked_fill(~rows, -math.inf)
    elif rows.is_floating_point() and autocast_dtype(q.device) is not None:
        rows = rows.to(q.dtype)
    return rows.unsqueeze(1) if rows.dim() == 1 else rows


#: What is checked of an option by itself.
_CHECKS = {
    "window": lambda window: (window_pair(window), window)[1],
    "scale": lambda scale: number("scale", scale),
    "softcap": _softcap_of,
    "block_size": lambda size: integer("block_size", size),
}


class Options(NamedTuple):
    """The options of attention, as `tl.sequence_attention` has them. What does not depend on the rows is checked when they
    are made; what is a tensor for the rows, when it is used. An option that is not given is neither."""

    causal: bool = False
    window: int | tuple[int, int] | None = None
    bias: Tensor | None = None
    scale: float | None = None
    alibi: Tensor | bool | None = None
    softcap: float | None = None
    sink: Tensor | None = None
    distance_bias: Tensor | None = None
    prefix: Tensor | int | None = None
    block_size: int | None = None
    block_level: int | str | None = None

    @classmethod
    def of(cls, causal: bool = False, **given) -> "Options":
        a_bool("causal", causal)
        checked = {n: v if v is None or n not in _CHECKS else _CHECKS[n](v) for n, v in given.items()}
        return cls(causal, **checked)

    def beside(self, causal: bool, **given) -> "Options":
        """Those of a module, with what a call adds."""
        a_bool("causal", causal)
        return Options(**{**dict(zip(self._fields, self)), "causal": causal, **given})

    def tensors(self, q: Tensor) -> tuple[Tensor | None, ...]:
        """bias, slopes, sink and distance_bias for queries."""
        given = (
            (self.bias, _bias_of),
            (self.alibi, _slopes_of),
            (self.sink, _sink_of),
            (self.distance_bias, _distance_bias_of),
        )
        return tuple(None if value is None else of(value, q) for value, of in given)

    def ends(self, lods: tuple[LoD, LoD], levels: Sequence[int], device) -> Tensor | None:
        """Of every query the position that follows the last key it sees: keys before it, and those that prefix, block_size
        and block_level add, within a window; None where `causal` says it."""
        if self.prefix is None and self.block_size is None and self.block_level is None:
            return None
        (queries, keys), (own, other) = lods, levels
        segment, key_offsets = queries.segment_ids_at(own, device), keys.row_offsets_at(other, device)
        shift = key_offsets.diff() - queries.row_offsets_at(own, device).diff()
        position = queries.position_ids(own, device) + shift[segment]
        ends = position + 1
        if self.prefix is not None:
            ends = torch.maximum(ends, _prefix_of(self.prefix, key_offsets.shape[0] - 1, device)[segment])
        if self.block_size is not None:
            ends = torch.maximum(ends, (position // self.block_size + 1) * self.block_size)
        if self.block_level is not None:
            begin, cuts = key_offsets[segment], keys.row_offsets_at(self._inner(keys, other), device)
            after = torch.searchsorted(cuts, begin + position, right=True).clamp(max=cuts.shape[0] - 1)
            ends = torch.where(position < 0, ends, torch.maximum(ends, cuts[after] - begin))
        _, ahead = window_pair(self.window)
        return ends if ahead < 0 else torch.minimum(ends, position + (ahead + 1))

    def _inner(self, keys: LoD, level: int) -> int:
        assert self.block_level is not None
        inner = keys.level(self.block_level)
        if inner <= level:
            raise LoDValueError(
                f"expected block_level as a level of k below level {level}, whose sequences are attended to, got "
                f"{shown(self.block_level)}; for blocks of n rows see block_size"
            )
        return inner


@constant
def _grouping() -> dict:
    """What torch's variable-length attention is told where keys have fewer heads than queries: that of torch 2.11 has no
    argument for it, and its kernel takes them."""
    from torch.nn.attention.varlen import varlen_attn

    return {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


@functools.cache
@constant
def _library_runs(device: torch.device) -> bool:
    """Whether torch's variable-length attention runs on a device: flash attention, which may have been left out of torch,
    on a GPU that is an Ampere or newer. Code that is traced for a GPU that is not there expects it."""
    if device.type != "cuda":
        return False
    if (device.index or 0) >= torch.cuda.device_count():
        return True
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= (8, 0)


def _library_takes(q: Tensor, v: Tensor, others: tuple, queries: LoD, level: int) -> bool:
    """Whether torch's own variable-length attention takes these arguments: half types on a GPU. Where groups of heads have
    one query per sequence it exchanges the two, and an empty sequence would be an error."""
    return (
        q.dtype in (torch.float16, torch.bfloat16)
        and _library_runs(q.device)
        and all(t is None for t in others)
        and q.shape[2] == v.shape[2] <= 256
        and q.shape[2] % 8 == 0
        and q.shape[0] > 0
        and v.shape[0] > 0
        and max(q.shape[0], v.shape[0]) < 2**31
        and (q.shape[1] == v.shape[1] or queries.longest_rows_at(level) > 1 or not queries.any_empty_at(level))
    )


@a_node
def _in_words(t: Tensor) -> Tensor:
    """Rows of heads as torch's kernel reads them, in words of 16 bytes: t itself, or a copy. It checks one stride alone."""
    fits = t.stride(2) == 1 and not any(n % 8 for n in (t.storage_offset(), t.stride(0), t.stride(1)))
    if fits and (not is_real(t) or t.data_ptr() % 16 == 0):
        return t
    return t.clone(memory_format=torch.contiguous_format)


def _gradient_in_words(grad: Tensor) -> Tensor:
    with without_dispatch():
        return _in_words(grad)


def attend(
    rows: list[Tensor],
    lods: tuple[LoD, LoD],
    levels: Sequence[int],
    options: Options,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of `rows`: q, k and v, (rows, heads, width) each.

    Args:
        lods, levels: the LoD of the queries and that of the keys, and the level in each.
        dropout: the share of the weights that is set to 0.

    Returns:
        (rows, heads, value width), and with `need_weights` the weight of every key for every query, (pairs, heads).
    """
    q, k, v = rows
    counts = [lod.levels[k].shape[0] - 1 for lod, k in zip(lods, levels)]
    if counts[0] != counts[1]:
        raise LoDValueError(
            f"expected as many sequences of keys as of queries at the level, {counts[0]}, got {counts[1]}"
        )
    left, right = window_pair(options.window)
    added, slopes, sink, distances = options.tensors(q)
    seed = torch.randint(2**32, (), device=q.device) if dropout else None
    query_offsets, key_offsets = together(q.device, *((lod.row_offsets_at, k) for lod, k in zip(lods, levels)))
    ends = options.ends(lods, levels, q.device)
    right = -1 if ends is not None else 0 if options.causal else right
    more = options.softcap, sink, distances, ends
    given = q, k, v, query_offsets, key_offsets, added, slopes, seed, options.scale, left, right, dropout, *more
    weights = _weights(*given) if need_weights else None
    if not _library_takes(q, v, (added, slopes, seed, *more), lods[0], levels[0]):
        return ops.attention(*given)[0], weights
    from torch.nn.attention.varlen import varlen_attn

    query_cuts, key_cuts = (lod.cu_seqlens(level, q.device) for lod, level in zip(lods, levels))
    longest, longest_keys = (lod.longest_rows_at(level) for lod, level in zip(lods, levels))
    most = 2**31 - 1  # its kernel counts in 32 bits
    how: dict = {"scale": options.scale, "window_size": (min(left, most), min(right, most))}
    if q.shape[1] != k.shape[1]:
        how |= _grouping()
    q, k, v = map(_in_words, (q, k, v))
    out = varlen_attn(q, k, v, query_cuts, key_cuts, longest, longest_keys, **how)
    assert isinstance(out, Tensor)
    if out.requires_grad and not compiling() and is_real(out):
        out.register_hook(_gradient_in_words)
    return out, weights


class Projections(NamedTuple):
    """The weights of torch.nn.MultiheadAttention."""

    num_heads: int
    #: for query, key and value together, (3 embed, embed), or one for each
    in_proj: Tensor | tuple[Tensor, Tensor, Tensor]
    in_proj_bias: Tensor | None
    out_proj: Tensor
    out_proj_bias: Tensor | None


def multi_head_attention(
    query: LoDTensor,
    key: LoDTensor,
    value: LoDTensor,
    w: Projections,
    level: int | str,
    options: Options,
    average_weights: bool = True,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[LoDTensor, LoDTensor | None]:
    """torch.nn.functional.multi_head_attention_forward within every sequence of a level; runs without the table of torch's functions.

    Args:
        query, key, value: (rows, features); key and value of equal LoDs.

    Returns:
        (rows, embed) with the LoD of query; and None, or with need_weights the weights after dropout: a LoDTensor with
        one more level, whose sequences are the keys of a query; its rows are averaged over the heads, or (pairs,
        heads).
    """
    given = {"query": query, "key": key, "value": value}
    queries, keys, values = sequences = [along(t, level, what) for what, t in given.items()]
    if keys.lod.differs(values.lod):
        difference = keys.lod.difference(values.lod)
        raise LoDValueError(f"expected value with the LoD of key, got LoDs that differ: {difference}")
    probability("dropout", dropout)
    parts = w.in_proj if isinstance(w.in_proj, tuple) else w.in_proj.chunk(3)
    for (what, t), weight in zip(given.items(), parts):
        if t.dim() != 2 or t.shape[1] != weight.shape[1]:
            raise LoDValueError(f"expected {what} of shape (rows, {weight.shape[1]}), got {tuple(t.shape)}")
        if not t.is_floating_point():
            raise LoDTypeError(f"expected {what} of a floating dtype, got {t.dtype}")
    linear = torch.nn.functional.linear
    if query is key and key is value and not isinstance(w.in_proj, tuple):
        projected = linear(queries.rows, w.in_proj, w.in_proj_bias).chunk(3, 1)
    else:
        biases = (None,) * 3 if w.in_proj_bias is None else w.in_proj_bias.chunk(3)
        projected = tuple(linear(s.rows, weight, b) for s, weight, b in zip(sequences, parts, biases))
    rows = check_rows({what: t.unflatten(1, (w.num_heads, -1)) for what, t in zip(given, projected)})
    lods, levels = (queries.lod, keys.lod), (queries.k, keys.k)
    out, weights = attend(rows, lods, levels, options, dropout, need_weights)
    result = queries.keep(linear(out.flatten(1), w.out_proj, w.out_proj_bias))
    if weights is None:
        return result, None
    lengths = keys.lod.row_lengths_at(keys.k)[queries.lod.segment_ids_at(queries.k)]
    return result, made(weights.mean(1) if average_weights else weights, queries.lod.append(lengths))
