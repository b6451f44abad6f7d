# SPDX-License-Identifier: Apache-2.0
"""Tags that follow one another."""

import torch

import torch_lod as tl
from samples.words import FLOATS, ROUNDED, SequenceInfo, X, over, values

TAGS = 3
TRANSITION = values(TAGS + 2, (TAGS,), torch.float32, "cpu", 1)


def _labels(x):
    g = torch.Generator().manual_seed(x.lod.rows)
    return torch.randint(0, TAGS, (x.lod.rows,), generator=g).to(x.device)


def crfs(x, k):
    y, transition = _labels(x), values(TAGS + 2, (TAGS,), x.dtype, x.device, 1)
    yield "", (x, x.with_values(y), transition), {}
    yield " plain column", (x, y[:, None].int(), transition), {}


def decodings(x, k):
    y, transition = _labels(x), values(TAGS + 2, (TAGS,), x.dtype, x.device, 1)
    yield "", (x, transition), {}
    yield " label", (x, transition, x.with_values(y)), {}


def emission_errors(call, name):
    """`call` of an emission and a transition."""
    yield "no x", lambda: call(None, TRANSITION), TypeError, f"{name}: expected emission as a LoDTensor, got NoneType"
    yield "plain", lambda: call(X.values(), TRANSITION), TypeError, "expected emission as a LoDTensor, got Tensor"
    yield "dtype", lambda: call(X.long(), TRANSITION), TypeError, "emission of a floating dtype, got torch.int64"
    yield "rank", lambda: call(X[:, None], TRANSITION), ValueError, "emission of shape (rows, tags), got (6, 1, 3)"
    yield "tags", lambda: call(X[:, :2], TRANSITION), ValueError, "(4, 2) for emission of 2 tags, got (5, 3)"
    yield "transition", lambda: call(X, None), TypeError, "transition as a tensor, got NoneType"
    yield "transition rank", lambda: call(X, TRANSITION[0]), ValueError, "(5, 3) for emission of 3 tags, got (3,)"
    yield "device", lambda: call(X, TRANSITION.to("meta")), TypeError, "transition on cpu, as emission, got one on meta"


def label_errors(call):
    """`call` of a label."""
    y = X.with_values(torch.tensor([0, 1, 2, 2, 1, 0]))
    for wrong in (3, -1, 2**62, -(2**63)):
        bad = y.with_values(torch.tensor([0, 1, 2, 2, wrong, 0]))
        said = f"label in [0, 2], got {wrong} at position 1 of sequence 2"
        yield f"label {wrong}", lambda b=bad: call(b), IndexError, said
    yield "no label", lambda: call("a"), TypeError, "label as a tensor, got str"
    yield "label dtype", lambda: call(X), TypeError, "label of an integer dtype, got torch.float32"
    yield "label LoD", lambda: call(tl.from_lengths(y.values(), [[2, 1], [2, 1, 3]])), ValueError, "LoDs that differ"
    yield "label rows", lambda: call(y.values()[:4]), ValueError, "label with 6 rows, got shape (4,)"
    yield (
        "label rank",
        lambda: call(torch.zeros(6, 2).long()),
        ValueError,
        "label of shape (rows,) or (rows, 1), got (6, 2)",
    )
    yield (
        "label device",
        lambda: call(y.values().to("meta")),
        TypeError,
        "label on cpu, as the scores, got them on meta",
    )


def crf_errors():
    op, y = tl.linear_chain_crf, torch.zeros(6).long()
    yield from emission_errors(lambda x, t: op(x, y, t), "linear_chain_crf")
    yield from label_errors(lambda label: op(X, label, TRANSITION))


def decoding_errors():
    op = tl.crf_decoding
    yield from emission_errors(lambda x, t: op(x, t), "crf_decoding")
    yield from label_errors(lambda label: op(X, TRANSITION, label))


ENTRIES = [
    SequenceInfo("linear_chain_crf", over(crfs, ((TAGS,),)), crf_errors, FLOATS, tolerance=ROUNDED),
    SequenceInfo(
        "crf_decoding", over(decodings, ((TAGS,),)), decoding_errors, FLOATS, differentiable=False, keeps=True
    ),
]
