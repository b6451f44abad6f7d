# SPDX-License-Identifier: Apache-2.0
"""Attention: every row of sequence i of the queries attends to the rows of sequence i of the keys, and to no other.

    out[i] = sum_j softmax_j(scale q[i] . k[j] + bias[i, j]) v[j]          over the rows j of i's own sequence of keys

Nothing is padded and the scores are never stored: memory is linear in rows.
"""

import math

import torch
from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.devices import upload
from ..structure.validate import a_bool, a_float, number
from ..tensor.lod_tensor import LoDTensor
from .attend import Options, attend, check_rows
from .cache import Cache, beside
from .operator import along, sequence_operator

__all__ = ["rotary_embedding", "sequence_attention"]


@sequence_operator
def sequence_attention(
    q: LoDTensor,
    k: LoDTensor | Cache,
    v: LoDTensor | None = None,
    *,
    level: int | str = -1,
    causal: bool = False,
    window: int | tuple[int, int] | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    alibi: Tensor | bool | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
    distance_bias: Tensor | None = None,
    prefix: Tensor | int | None = None,
    block_size: int | None = None,
    block_level: int | str | None = None,
) -> LoDTensor:
    """Scaled dot-product attention within every sequence of a level: self-attention, or cross-attention to the keys of
    another batch with the same number of sequences.

    Equivalent to (one head, neither bias nor window):
        torch.cat([F.scaled_dot_product_attention(*rows) for rows in zip(*(t.sequences(level) for t in (q, k, v)))])

    Queries and keys are bottom-right aligned: query i of m has the position of key i + n - m of n. So with causal, the
    last queries of a sequence and all its keys give the same result as all queries and all keys do for these queries.
    (The is_causal of F.scaled_dot_product_attention is top-left aligned.)

    Args:
        q: (rows, heads, width), or (rows, width) for one head; a floating dtype. Half types are summed in float32.
        k, v: (key rows, heads, width) and (key rows, heads, value width), of equal LoDs with as many sequences at the level
            as q. The widths of k and q are equal; that of v may differ. Or k alone, a tl.Cache: its keys and values, read where
            they lie, without gradients and outside of compiled graphs, without prefix and block_level.
        causal: a query sees no key after its own position.
        window: how many keys before and after its own position a query sees, as a number or a pair; -1: all. It holds for
            prefix and blocks, too.
        bias: added to the scores, (pairs,) or (pairs, heads): one entry per pair of a query and a key. The pairs are in
            order of the sequences; within a sequence the first query with every key, then the next query. bool: True
            where the query sees the key.
        scale: 1 / sqrt(width) if None.
        enable_gqa: k and v may have fewer heads, a divisor of those of q; neighbouring heads of q then share one.
        alibi: (heads,) slopes of a bias -slope * |query position - key position|, or True for the slopes of Press et al.
        softcap: c, above 0: the scores become c * tanh(scores / c), after scale and before bias, alibi, distance_bias and
            masks, as in Gemma 2.
        sink: (heads,), a logit per head that joins the sum of every softmax and has no value, as in GPT-OSS: the weights of
            the keys then add up to less than 1.
        distance_bias: (heads, 2 n + 1), added to the scores by distance: entry n + d where the key is d positions after the
            query; beyond n the entry at that end. A table of (rows, rows) is never made. tl.nn.RelativePositionBias gives
            T5's.
        prefix: causal but for the first keys of every sequence, which all its queries see: one number per sequence (a
            tensor or a LoDTensor with a row for each), or an int for all. causal is implied.
        block_size: causal by blocks of so many rows: a query sees the keys of its own block and of those before. causal is
            implied. With prefix and block_level a query sees the union.
        block_level: the same, and the sequences of this level of k, which is within `level`, are the blocks.

    Returns:
        (rows, heads, value width), or (rows, value width), with the LoD of q. A query that sees no key gets zeros, and passes
        no gradient. Gradients reach q, k, v, bias, alibi, sink and distance_bias.

    Raises:
        ValueError, TypeError: where LoDs, shapes, dtypes or devices do not fit.

    Source: Vaswani et al., "Attention Is All You Need", 2017; torch.nn.functional.scaled_dot_product_attention. Windows and
    their alignment are those of torch.nn.attention.varlen, which runs for half types on a GPU. Press et al., "Train
    Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation", 2022. softcap: Gemma 2,
    arXiv 2408.00118. sink: Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2024, and the gpt-oss
    model card, arXiv 2508.10925. distance_bias and prefix: Raffel et al., "Exploring the Limits of Transfer Learning with
    a Unified Text-to-Text Transformer", 2020.
    """
    queries = along(q, level, "q")
    if isinstance(k, Cache):
        for name, given in (("v", v), ("prefix", prefix), ("block_level", block_level)):
            if given is not None:
                raise LoDTypeError(f"expected no {name} beside a tl.Cache, got {shown(given)}")
        parts, lods = beside(k, queries)
        levels = [0, 0]
    else:
        keys, values = along(k, level, "k"), along(v, level, "v")
        if keys.lod.differs(values.lod):
            raise LoDValueError(
                f"expected v with the LoD of k, got LoDs that differ: {keys.lod.difference(values.lod)}"
            )
        parts = {"k": keys.rows, "v": values.rows}
        lods, levels = (queries.lod, keys.lod), [queries.k, keys.k]
    rows = check_rows({"q": queries.rows, **parts})
    heads, shared = rows[0].shape[1], rows[1].shape[1]
    a_bool("enable_gqa", enable_gqa)
    if heads != shared and not (enable_gqa and shared and heads % shared == 0):
        wanted = f"a divisor of the {heads} heads of q" if enable_gqa else f"the {heads} heads of q; see enable_gqa"
        raise LoDValueError(f"expected k and v with {wanted}, got {shared}")
    options = Options.of(
        causal=causal,
        window=window,
        bias=bias,
        scale=scale,
        alibi=alibi,
        softcap=softcap,
        sink=sink,
        distance_bias=distance_bias,
        prefix=prefix,
        block_size=block_size,
        block_level=block_level,
    )
    out, _ = attend(rows, lods, levels, options)
    if isinstance(k, Cache) and out.requires_grad:
        raise LoDValueError(
            "expected no gradient through a tl.Cache, got arguments that require one; see torch.no_grad()"
        )
    return queries.keep(out if q.dim() == 3 else out.squeeze(1))


@sequence_operator
def rotary_embedding(
    x: LoDTensor,
    *,
    base: float = 10000.0,
    interleaved: bool = True,
    start: int | Tensor = 0,
    rotate_half: bool = False,
    level: int | str = -1,
) -> LoDTensor:
    """Rotates pairs of features by angles that grow with the position of a row in its sequence, so that the product of two
    such rows depends on how far apart they are.

        (a, b) at position p, pair i of d / 2:   (a cos t - b sin t, a sin t + b cos t),   t = p / base^(2 i / d)

    Args:
        x: queries or keys, (rows, d) or (rows, heads, d), d even; a floating dtype. Angles are float32 at least.
        interleaved: features 2 i and 2 i + 1 are a pair, as in the source, in GPT-J and in Meta's own Llama weights; False:
            features i and i + d / 2.
        rotate_half: the same as interleaved=False: the layout of Llama, Qwen, Mistral, Gemma and GPT-NeoX in transformers,
            whose weights have their rows in this order. The wrong one of both gives no error, but other results.
        start: the position of every sequence's first row: a number, or one per sequence, such as the number of rows in
            a cache.

    Returns:
        the shape and LoD of x. The gradient is rotated back.

    Raises:
        ValueError, TypeError: for an odd number of features, and where an argument does not fit.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """
    s = along(x, level)
    values = s.rows
    a_float(values)
    if values.dim() not in (2, 3) or values.shape[-1] % 2:
        raise LoDValueError(f"expected x of shape (rows, d) or (rows, heads, d), d even, got {tuple(x.shape)}")
    number("base", base)
    if not 0 < base < math.inf:
        raise LoDValueError(f"expected a base above 0, got {base}")
    a_bool("interleaved", interleaved)
    a_bool("rotate_half", rotate_half)
    interleaved = interleaved and not rotate_half
    position = s.lod.position_ids(s.k, values.device)
    if isinstance(start, Tensor):
        count = s.lod.num_sequences(s.k)
        if start.shape != (count,) or start.is_floating_point() or start.is_complex():
            raise LoDValueError(
                f"expected start as {count} integers, one per sequence, got {start.dtype} of shape {tuple(start.shape)}"
            )
        position = position + upload(start, values.device)[s.lod.segment_ids_at(s.k, values.device)]
    elif type(start) is int and -(2**40) <= start <= 2**40:
        position = position + start
    else:
        raise LoDTypeError(f"expected start as an int within 2**40 or a tensor, got {shown(start)}")
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    half = values.shape[-1] // 2
    rate = torch.pow(float(base), torch.arange(half, dtype=dtype, device=values.device) / -max(half, 1))
    angle = position.to(dtype)[:, None] * rate
    cos, sin = (t if values.dim() == 2 else t[:, None] for t in (angle.cos(), angle.sin()))
    wide = values.to(dtype)
    a, b = wide.unflatten(-1, (half, 2)).unbind(-1) if interleaved else wide.unflatten(-1, (2, half)).unbind(-2)
    rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], -1 if interleaved else -2)
    return s.keep(rotated.flatten(-2).to(values.dtype))
