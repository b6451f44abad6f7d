# SPDX-License-Identifier: Apache-2.0
"""Attention and rotary embedding."""

import math

import torch

import torch_lod as tl
from samples.words import ROUNDED, SequenceInfo, lod_tensor, over, values

X = lod_tensor([[2, 1], [1, 2, 3]], (2, 4), torch.float32, "cpu")


def others(x, k, change):
    """A batch with as many sequences at every level and other lengths of the innermost."""
    lengths = x.lod.to_lengths()
    lengths[-1] = [change(n) for n in lengths[-1]]
    return lod_tensor(lengths, tuple(x.shape[1:]), x.dtype, x.device, 7, names=x.level_names is not None)


def attentions(x, k):
    inner = k + 1 == x.lod_level
    yield "", (x, x.with_values(x.values().flip(-1)), x * 2), {}
    keys = others(x, k, lambda n: (2 * n + 1) % 4)
    yield " cross", (x, keys, keys + 1), {"causal": True, "scale": 0.3}
    yield " window", (x, x, x), {"window": (1, 0) if inner else 2}
    pairs = int((x.lod.row_lengths(k) * keys.lod.row_lengths(k)).sum())
    added = values(pairs, () if x.dim() == 2 else (x.shape[1],), x.dtype, x.device, 9)
    yield " bias", (x, keys, keys * 2), {"bias": added, "alibi": True}
    yield " mask fixed", (x, keys, keys), {"bias": values(pairs, (), torch.bool, x.device, 9)}
    yield from todays(x, k, keys)
    if x.dim() == 3:
        slopes = values(x.shape[1], (), x.dtype, x.device, 5).abs().to(torch.promote_types(x.dtype, torch.float32))
        shared = keys.with_values(keys.values()[:, :1])
        wide = shared.with_values(torch.cat([shared.values()] * 2, 2))
        yield " shared", (x, shared, wide), {"enable_gqa": True, "causal": True, "alibi": slopes}


def todays(x, k, keys):
    """Options of today's language models, alone and together."""
    heads = 1 if x.dim() == 2 else x.shape[1]
    dtype = torch.promote_types(x.dtype, torch.float32)
    sink, table = values(heads, (), dtype, x.device, 11), values(heads, (3,), dtype, x.device, 12)
    yield " softcap", (x, keys, keys), {"softcap": 0.5, "scale": 2.0}
    yield " sink", (x, keys, keys), {"sink": sink, "causal": True}
    yield " distances", (x, keys, keys), {"distance_bias": table}
    seen = values(x.num_sequences(k), (), torch.int64, x.device, 13)
    yield " prefix fixed", (x, keys, keys), {"prefix": seen}
    yield " blocks", (x, keys, keys), {"block_size": 3, "window": (3, 1)}
    inner = {} if k + 1 == x.lod_level else {"block_level": k + 1}
    together = {"softcap": 2.0, "sink": sink, "distance_bias": table, "prefix": 1, "alibi": True, **inner}
    yield " together", (x, keys, keys * 2), together


def turns(x, k):
    yield "", (x,), {}
    yield " halves", (x,), {"base": 100.0, "interleaved": False, "start": 3}
    yield " starts", (x,), {"start": torch.arange(x.num_sequences(k), device=x.device) * 2}


def attention_errors():
    op, q = tl.sequence_attention, X
    one = lod_tensor([[6]], (2, 4), torch.float32, "cpu")
    yield "k", lambda: op(q, q.values(), q), TypeError, "k as a LoDTensor, got Tensor"
    yield "v", lambda: op(q, q, None), TypeError, "v as a LoDTensor, got NoneType"
    yield "lods", lambda: op(q, q, one), ValueError, "v with the LoD of k, got LoDs that differ"
    yield "sequences", lambda: op(q, one, one), ValueError, "of keys as of queries at the level, 3, got 1"
    yield "1-d", lambda: op(*[q[:, 0, 0]] * 3), ValueError, "q of (rows, width) or (rows, heads, width), got (6,)"
    yield "dims", lambda: op(q, q[:, 0], q[:, 0]), ValueError, "k of 3 dimensions, as q, got (6, 4)"
    yield "dtypes", lambda: op(q, q.double(), q), TypeError, "k of torch.float32, as q, got torch.float64"
    yield "whole v", lambda: op(q, q, q.long()), TypeError, "v of a floating dtype, got torch.int64"
    yield "devices", lambda: op(q, q.to("meta"), q), TypeError, "k on cpu, as q, got one on meta"
    yield "width", lambda: op(q, q[..., :3], q), ValueError, "q and k of one width, at least 1, got (6, 2, 4) and"
    yield "no width", lambda: op(*[q[..., :0]] * 3), ValueError, "at least 1, got (6, 2, 0)"
    yield "heads of v", lambda: op(q, q, q[:, :1]), ValueError, "v with the 2 heads of k and a width of at least 1"
    yield "heads", lambda: op(q, *[q[:, :1]] * 2), ValueError, "k and v with the 2 heads of q; see enable_gqa, got 1"
    three = q.with_values(torch.zeros(6, 3, 4))
    yield "group", lambda: op(three, q, q, enable_gqa=True), ValueError, "a divisor of the 3 heads of q, got 2"
    yield "gqa", lambda: op(q, q, q, enable_gqa=1), TypeError, "enable_gqa as a bool, got 1"
    yield "causal", lambda: op(q, q, q, causal=None), TypeError, "causal as a bool, got None"
    for wrong in ((1,), -2, "a", (1, 2.0), True):
        yield (
            f"window {wrong}",
            lambda w=wrong: op(q, q, q, window=w),
            ValueError,
            f"a pair of them or None, got {wrong!r}",
        )
    yield "scale", lambda: op(q, q, q, scale="a"), TypeError, "scale as a number, got 'a'"
    yield "bias", lambda: op(q, q, q, bias=[1.0]), TypeError, "bias as a tensor, got list"
    yield "pairs", lambda: op(q, q, q, bias=torch.zeros(36)), ValueError, "query and key of a sequence, 14, got 36"
    yield (
        "bias heads",
        lambda: op(q, q, q, bias=torch.zeros(14, 3)),
        ValueError,
        "[pairs, 1] or [pairs, 2], got [14, 3]",
    )
    yield "bias dtype", lambda: op(q, q, q, bias=torch.zeros(14).double()), TypeError, "bias of dtype Float"
    for wrong in (0, -1.0, math.inf, math.nan):
        yield f"softcap {wrong}", lambda c=wrong: op(q, q, q, softcap=c), ValueError, "softcap above 0 and finite"
    yield "named softcap", lambda: op(q, q, q, softcap="a"), TypeError, "softcap as a number, got 'a'"
    yield "sink", lambda: op(q, q, q, sink=torch.zeros(3)), ValueError, "sink as a floating tensor of shape (2,)"
    yield "whole sink", lambda: op(q, q, q, sink=torch.zeros(2).long()), ValueError, "a logit per head, on cpu, got"
    yield "sinks", lambda: op(q, q, q, sink=True), TypeError, "sink as a plain tensor of shape (2,), a logit per head"
    for shape in ((2, 4), (3, 3), (3,)):
        said = "distance_bias as a floating tensor of shape (2, 2 n + 1)"
        yield f"table {shape}", lambda n=shape: op(q, q, q, distance_bias=torch.zeros(n)), ValueError, said
    yield "table", lambda: op(q, q, q, distance_bias=q), TypeError, "distance_bias as a plain tensor of shape"
    yield "prefix", lambda: op(q, q, q, prefix=torch.zeros(2).long()), ValueError, "prefix as 3 integers, one per"
    yield "floating prefix", lambda: op(q, q, q, prefix=torch.zeros(3)), TypeError, "or an int, got torch.float32"
    yield "named prefix", lambda: op(q, q, q, prefix="a"), TypeError, "one per sequence, or an int, got 'a'"
    below = torch.tensor([1, -2, 0])
    yield "prefix below 0", lambda: op(q, q, q, prefix=below), ValueError, "prefix of at least 0, got -2 at index 1"
    yield "block_size", lambda: op(q, q, q, block_size=0), ValueError, "block_size in [1, 2**31], got 0"
    yield "block_level", lambda: op(q, q, q, block_level=-1), ValueError, "a level of k below level 1, whose sequences"
    yield "no block_level", lambda: op(q, q, q, level=0, block_level="z"), IndexError, "one of ('a', 'b'), got 'z'"
    yield "alibi", lambda: op(q, q, q, alibi=0.5), TypeError, "alibi as a tensor of slopes, True or None, got 0.5"
    yield "slopes", lambda: op(q, q, q, alibi=torch.zeros(3)), ValueError, "alibi as 2 floating slopes on cpu"


def rotary_errors():
    op = tl.rotary_embedding
    yield "odd", lambda: op(X[..., :3]), ValueError, "d even, got (6, 2, 3)"
    yield "1-d", lambda: op(X[:, 0, 0]), ValueError, "(rows, heads, d), d even, got (6,)"
    yield "whole", lambda: op(X.long()), TypeError, "x of a floating dtype, got torch.int64"
    yield "base", lambda: op(X, base=0), ValueError, "a base above 0, got 0"
    yield "named base", lambda: op(X, base="a"), TypeError, "base as a number, got 'a'"
    yield "interleaved", lambda: op(X, interleaved=None), TypeError, "interleaved as a bool, got None"
    yield "half", lambda: op(X, rotate_half=1), TypeError, "rotate_half as a bool, got 1"
    yield "start", lambda: op(X, start=0.5), TypeError, "start as an int within 2**40 or a tensor, got 0.5"
    yield "starts", lambda: op(X, start=torch.zeros(2).long()), ValueError, "as 3 integers, one per sequence"
    yield "floating starts", lambda: op(X, start=torch.zeros(3)), ValueError, "as 3 integers, one per sequence"


KEEPS = {"keeps": True, "tolerance": ROUNDED}
ENTRIES = [
    SequenceInfo("sequence_attention", over(attentions, ((3,), (2, 4))), attention_errors, **KEEPS),
    SequenceInfo("rotary_embedding", over(turns, ((4,), (2, 6), (2,), (0,))), rotary_errors, **KEEPS),
]
