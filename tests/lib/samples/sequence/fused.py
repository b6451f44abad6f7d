# SPDX-License-Identifier: Apache-2.0
"""What Paddle's rankers use, and what it fuses."""

import torch

import torch_lod as tl
from samples.words import ALL, ROUNDED, Sample, SequenceInfo, V, X, lod_tensor, values

#: Lengths, and a level of them.
FEW = {
    "one": ([[2, 0, 3, 1]], 0),
    "one, none": ([[]], 0),
    "two": ([[2, 1], [1, 2, 3]], 1),
    "two, of the outer": ([[0, 2, 1], [0, 3, 1]], 0),
    "three, all empty": ([[1, 2], [2, 0, 1], [0, 0, 0]], 2),
}


def over_few(make, widths=((3,),)):
    """Samples of `make(x, k)` for the structures and levels above."""

    def samples(dtype, device):
        for turn, (label, (lengths, k)) in enumerate(FEW.items()):
            for width in widths[: len(widths) if label == "one" else 1]:
                x = lod_tensor(lengths, width, dtype, device, names=turn % 2 == 0)
                of = {"level": k, "key": "level", "names": x.level_names or (None,) * len(lengths)}
                for extra, args, kwargs in make(x, k):
                    yield Sample(f"{label} {width}{extra}", args, {**kwargs, "level": k}, fixed="fixed" in extra, **of)

    return samples


def counts(x, k):
    x = x.with_values(x.values().abs())  # logarithms of what is above -1
    yield "", (x,), {}
    yield " dropped", (x, None, False), {}
    given = values(x.num_sequences(k), (2,), x.dtype, x.device, 3)
    for use in (True, False):
        yield f" counts fixed {use}", (x, given, use), {}


def count_errors():
    op = tl.cvm
    yield "x", lambda: op(None), TypeError, "x as a tensor, got NoneType"
    yield "1-d", lambda: op(V[:, 0]), ValueError, "x of shape (rows, features), at least 2 features, got (6,)"
    yield "narrow", lambda: op(X[:, :1]), ValueError, "at least 2 features, got (6, 1)"
    yield "whole", lambda: op(X.long()), TypeError, "x of a floating dtype, got torch.int64"
    yield "use_cvm", lambda: op(X, None, 1), TypeError, "use_cvm as a bool, got 1"
    yield "cvm", lambda: op(X, V[:, :2]), ValueError, "cvm of shape (3, 2), got (6, 2)"
    yield "cvm of rows", lambda: op(V, V), ValueError, "cvm of shape (6, 2), got (6, 3)"
    yield "cvm dtype", lambda: op(X, V[:3, :2].double()), TypeError, "cvm of torch.float32 on cpu, as x"
    yield "lost x", lambda: op(X[[1, 0]]), TypeError, "x as a LoDTensor or a plain tensor, got rows that lost their"
    yield "lost cvm", lambda: op(X, X[[1, 0, 2], :2]), TypeError, "cvm as a LoDTensor or a plain tensor, got rows that"
    other = tl.from_lengths(V[:3, :2], [[1, 2]])
    yield (
        "cvm LoD",
        lambda: op(X, other),
        ValueError,
        "equal LoDs, got LoDs that differ: at level 0, sequence 0: lengths",
    )
    yield "no cvm", lambda: op(X, [1, 2]), TypeError, "cvm as a tensor, got list"


def instances(dtype, device):
    tags = tl.from_lengths(torch.tensor([5, 1, 2, 9, 2, 1], device=device), [[2, 1, 0, 3]])
    for lengths in ([[2, 0, 3, 1]], [[1, 1, 2, 0], [2, 1, 0, 3]]):
        for width in ((3,), ()) if len(lengths) == 1 else ((2, 2),):
            x = lod_tensor(lengths, width, dtype, device)
            for wanted in ([1], torch.tensor([7, 9, 2]), [7], []):
                yield Sample(f"{lengths} {width} {wanted}", (x, tags, wanted))
    rows = values(4, (2,), dtype, device)
    yield Sample("plain", (rows, tags.with_values(tags.values()[:, None].int()), [5, 2]))
    yield Sample("plain, none", (rows, tags, [3], 1))
    yield Sample("no instances", (lod_tensor([[]], (2,), dtype, device), tl.from_lengths(tags.values()[:0], [[]]), [1]))


def instance_errors():
    op, tags = tl.filter_by_instag, tl.from_lengths(torch.arange(4), [[3, 1]])
    yield "ins", lambda: op(None, tags, [1]), TypeError, "ins as a tensor with rows, got NoneType"
    yield "scalar", lambda: op(V[0, 0], tags, [1]), TypeError, "ins as a tensor with rows, got a scalar"
    yield (
        "lost",
        lambda: op(X[[1, 0]], tags, [1]),
        TypeError,
        "ins as a LoDTensor or a plain tensor, got rows that lost",
    )
    yield "sequences", lambda: op(V, tags, [1]), ValueError, "a sequence for each of 6 instances, got 2"
    yield "plain tags", lambda: op(X, V[:, 0].long(), [1]), TypeError, "ins_tag as a LoDTensor, got Tensor"
    yield "floating tags", lambda: op(X, tags.float(), [1]), TypeError, "ins_tag of an integer dtype, got torch.float32"
    yield "levels", lambda: op(X, X[:, 0].long(), [1]), ValueError, "ins_tag with 1 level, got 2"
    yield "filter", lambda: op(X, tags, [0.5]), TypeError, "filter_tag[0] to be an integer, got 0.5"
    yield "no filter", lambda: op(X, tags, None), TypeError, "filter_tag as a list"
    yield "filler", lambda: op(X, tags, [1], "a"), TypeError, "out_val_if_empty as a number, got 'a'"
    yield (
        "whole filler",
        lambda: op(X.long(), tags, [1], 0.5),
        ValueError,
        "a whole out_val_if_empty within torch.int64",
    )


def several(x, k):
    """x, and another batch of other lengths at its level."""
    lengths = x.lod.to_lengths()
    lengths[-1] = lengths[-1][::-1] if k + 1 == len(lengths) else lengths[-1]
    return [x, lod_tensor(lengths, (2,), x.dtype, x.device, 5, names=x.level_names is not None)]


def pooled(x, k):
    yield "", (several(x, k),), {}
    yield " max", ([x], "max"), {"padding_value": 2.0}


def pooled_counts(x, k):
    xs = [t.with_values(t.values().abs()) for t in several(x, k)]
    yield "", (xs,), {}
    yield " dropped", (xs, "MAX", False), {}


def pool_errors(name):
    def errors():
        op, one = getattr(tl, name), lod_tensor([[6]], (3,), torch.float32, "cpu")
        yield "no list", lambda: op(X), TypeError, "a list of LoDTensors, got LoDTensor"
        yield "none", lambda: op([]), TypeError, "expected LoDTensors, got none"
        yield "plain", lambda: op([X, V]), TypeError, "expected LoDTensors, got Tensor"
        yield "depth", lambda: op([X, one]), ValueError, "of equal depth, got depths [2, 1]"
        yield "1-d", lambda: op([X[:, 0]]), ValueError, "of shape (rows, features), got (6,)"
        yield "whole", lambda: op([X.long()]), TypeError, "of a floating dtype, got torch.int64"
        yield "dtypes", lambda: op([X, X.double()]), TypeError, "xs of torch.float32 on cpu, as the first"
        two = lod_tensor([[2, 4]], (3,), torch.float32, "cpu")
        yield "sequences", lambda: op([one, two]), ValueError, "equally many sequences at the level, got [1, 2]"
        other = X.with_lod(tl.LoD.from_lengths([[1, 2], [1, 2, 3]]))
        yield "levels", lambda: op([X, other]), ValueError, "lengths 2 and 1"
        yield "kind", lambda: op([X], "mode"), ValueError, "pool_type in ['all', "
        if "cvm" in name:
            yield "narrow", lambda: op([X[:, :1]]), ValueError, "xs[0] of shape (rows, features), at least 2 features"
            yield "use_cvm", lambda: op([X], "sum", None), TypeError, "use_cvm as a bool, got None"

    return errors


def convolved(x, k):
    weight, bias = (values(n, (2,), x.dtype, x.device, 2) for n in (9, 2))
    yield "", (x, weight, bias[0], 3), {}
    yield " ahead", (x, weight[:6], bias[1], 2), {"context_start": 1}


def convolution_errors():
    op = tl.fusion_seqconv_eltadd_relu
    yield "weight", lambda: op(X, torch.ones(6, 2), torch.ones(2), 3), ValueError, "weight of shape (9, 2), got (6, 2)"
    yield "bias", lambda: op(X, torch.ones(9, 2), torch.ones(3), 3), ValueError, "bias of shape (2,), got (3,)"
    yield "length", lambda: op(X, torch.ones(9, 2), torch.ones(2), 0), ValueError, "context_length in [1, 2**20], got 0"
    yield "whole", lambda: op(X.long(), torch.ones(9, 2), torch.ones(2), 3), TypeError, "x of a floating dtype"


def connected(dtype, device):
    for label, (lengths, _) in FEW.items():
        x = lod_tensor(lengths, (3,), dtype, device)
        plain = values(x.num_sequences(), (2,), dtype, device, 4)
        inner = lod_tensor(lengths[:-1], (1,), dtype, device, 5) if len(lengths) > 1 else plain[:, :1]
        weight, bias = values(6, (2,), dtype, device, 6), values(2, (), dtype, device, 7)
        yield Sample(f"{label} plain", ([x, plain], weight[:5], bias))
        yield Sample(f"{label} tanh", ((x, inner, plain), weight, None, "tanh"))


def connection_errors():
    op, w = tl.fusion_seqexpand_concat_fc, torch.ones(5, 2)
    plain = torch.ones(2, 2)
    yield "no list", lambda: op(X, w), TypeError, "xs as a list of tensors"
    yield "none", lambda: op([], w), TypeError, "xs as a list of tensors, got []"
    yield "plain", lambda: op([V, plain], w), TypeError, "xs[0] as a LoDTensor, got Tensor"
    yield "1-d", lambda: op([X, plain[0]], w), ValueError, "xs[1] of shape (sequences, features), got (2,)"
    yield "no tensor", lambda: op([X, None], w), ValueError, "xs[1] of shape (sequences, features), got NoneType"
    yield "rows", lambda: op([X, torch.ones(3, 2)], w), ValueError, "a row for each of the 2 sequences of y, got 3"
    yield "dtype", lambda: op([X, plain.double()], w), TypeError, "xs[1] of torch.float32 on cpu, as x"
    yield "weight", lambda: op([X, plain], w[:4]), ValueError, "weight of shape (5, 2), got (4, 2)"
    yield "no weight", lambda: op([X, plain], None), TypeError, "weight as a tensor, got NoneType"
    yield "bias", lambda: op([X, plain], w, torch.ones(3)), ValueError, "bias of shape (2,), got (3,)"
    yield "activation", lambda: op([X, plain], w, None, "gelu"), ValueError, "activation among ['identity', 'relu', "
    yield "whole", lambda: op([X.long(), plain], w), TypeError, "x of a floating dtype, got torch.int64"


HALF = {"tolerance": ROUNDED}
ENTRIES = [
    SequenceInfo("cvm", over_few(counts, ((3,), (2,))), count_errors, keeps=True, **HALF),
    SequenceInfo("filter_by_instag", instances, instance_errors, ALL, levels=None),
    SequenceInfo("fusion_seqpool_concat", over_few(pooled), pool_errors("fusion_seqpool_concat"), **HALF),
    SequenceInfo(
        "fusion_seqpool_cvm_concat", over_few(pooled_counts), pool_errors("fusion_seqpool_cvm_concat"), **HALF
    ),
    SequenceInfo(
        "fusion_seqconv_eltadd_relu", over_few(convolved), convolution_errors, keeps=True, products=True, **HALF
    ),
    SequenceInfo("fusion_seqexpand_concat_fc", connected, connection_errors, levels=None, products=True, **HALF),
]
