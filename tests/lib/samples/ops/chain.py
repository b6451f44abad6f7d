# SPDX-License-Identifier: Apache-2.0
"""Chains of tags."""

import torch
from reference import ops as reference

from samples.words import CARRIED, CUT, FLOATS, OpInfo, Sample, V, bad_offsets, cuts, values

T = values(5, (3,), torch.float32, "cpu", 1)


def chains(dtype, device, large=True):
    """For every cut and number of tags: (label, values, transition, offsets, whether it is large). Some forbid tags and
    transitions, have transitions far apart, or none that leads on."""
    for label, offsets, long in cuts(device, large=large):
        for tags in (3,) if long else (3, 1, 2):
            x = values(int(offsets[-1]), (tags,), dtype, device)
            t = values(tags + 2, (tags,), dtype, device, 1)
            yield f"{label} {tags}", x, t, offsets, long
    offsets = torch.tensor([0, 4, 5, 8], device=device)
    x, t = values(8, (3,), dtype, device), values(5, (3,), dtype, device, 1)
    far = t.clone()
    far[2, 1], far[3, 2], far[4] = -300, -200, -100  # the sums of probabilities are too small to be used
    yield "far apart", x * 40, far, offsets, False
    offsets, wide = torch.tensor([0, 9, 9, 30], device=device), values(30, (70,), dtype, device)
    yield "many tags", wide, values(72, (70,), dtype, device, 1), offsets, True


def forbidding(dtype, device):
    offsets = torch.tensor([0, 3, 4, 7], device=device)
    x, t = values(7, (3,), dtype, device), values(5, (3,), dtype, device, 1)
    never = float("-inf")
    some = t.clone()
    some[0, 2], some[1, 0], some[2, 1], some[3, 0] = never, never, never, never
    yield "forbidden", x, some, offsets
    none = t.clone()
    none[2:] = never  # only sequences of one row have a path
    yield "no way on", x, none, offsets
    yield "no tag", torch.where(torch.arange(7, device=device)[:, None] == 5, never, x), t, offsets


def logsumexp_samples(dtype, device):
    for label, *args, large in chains(dtype, device):
        yield Sample(label, tuple(args), large=large)
    for label, *args in forbidding(dtype, device):
        yield Sample(label, tuple(args), large=True)


def backward_samples(dtype, device):
    for sample in logsumexp_samples(dtype, device):
        x, t, offsets = sample.args
        state = reference.chain_logsumexp(x.double(), t.double(), offsets)[1]
        state = state.to(torch.float64 if dtype == torch.float64 else torch.float32)
        grad = values(len(sample.args[2]) - 1, (), dtype, device, 5)
        yield Sample(sample.label, (grad, *sample.args, state), large=sample.large)


def marginals_backward_samples(dtype, device):
    for sample in logsumexp_samples(dtype, device):
        x, t, offsets = sample.args
        grad = values(len(x), (x.shape[1],), dtype, device, 5)
        if not sample.large:  # its reference is autograd through an enumeration
            yield Sample(sample.label, (grad, x, t, offsets))


def argmax_samples(dtype, device):
    for label, *args, large in chains(dtype, device, large=False):
        for n in (1,) if large else (1, 2, 5):
            yield Sample(f"{label} best {n}", (*args, n), large=large)
    for label, *args in forbidding(dtype, device):
        yield Sample(label, (*args, 3), large=True)
    offsets = torch.tensor([0, 3], device=device)
    equal = torch.zeros(3, 2, dtype=dtype, device=device)
    yield Sample("equal", (equal, torch.zeros(4, 2, dtype=dtype, device=device), offsets, 1))


def sample_samples(dtype, device):
    for label, x, t, offsets, large in chains(dtype, device, large=False):
        state = reference.chain_logsumexp(x, t, offsets)[1]
        uniform = torch.rand(len(x), 2, generator=torch.Generator().manual_seed(3), dtype=dtype).to(device)
        yield Sample(label, (state, t, offsets, uniform), large=large)
    for label, x, t, offsets in forbidding(dtype, device):
        state = reference.chain_logsumexp(x, t, offsets)[1]
        yield Sample(label, (state, t, offsets, torch.full((7, 1), 0.5, dtype=dtype, device=device)), large=True)


def chain_errors(name, good, at=0):
    def errors():
        def put(value, i):
            return (*good[: at + i], value, *good[at + i + 1 :])

        what = "state" if name == "chain_sample" else "values"
        yield from bad_offsets(good, at + 2)
        yield "scalar", put(V.sum(), 0), ValueError, f"{name}: expected "
        yield "rank", put(V[:, 0], 0), ValueError, f"expected {what} of shape (rows, tags)"
        yield "dtype", put(V.long(), 0), TypeError, f"expected {what} of dtype float"
        yield "no tags", put(V[:, :0], 0), ValueError, "expected at least 1 tag, got 0"
        yield "transition dtype", put(T.double(), 1), TypeError, "transition of dtype "
        yield "transition", put(T[:4], 1), ValueError, "transition of shape (tags + 2, tags) with 3 tags, got [4, 3]"
        yield "transition columns", put(T[:, :2], 1), ValueError, "with 3 tags, got [5, 2]"
        if name == "chain_argmax":
            yield "none", (*good, 0), ValueError, "expected n in [1, 65536], got 0"
            yield "many", (*good, 2**17), ValueError, "expected n in [1, 65536], got 131072"
        if name == "chain_logsumexp_backward":
            yield "grad", (good[0][:1], *good[1:]), ValueError, "an entry for each of 2 sequences, got shape [1]"
            yield "grad dtype", (good[0].double(), *good[1:]), TypeError, "grad of dtype "
            yield "state", (*good[:4], V[:5]), ValueError, "state of shape [6, 3], got [5, 3]"
            yield "state dtype", (*good[:4], V.double()), TypeError, "state of dtype "
        if name == "chain_marginals_backward":
            yield "grad", (good[0][:1], *good[1:]), ValueError, "grad of shape [6, 3], as values, got [1, 3]"
            yield "grad dtype", (good[0].double(), *good[1:]), TypeError, "grad of dtype "
        if name == "chain_sample":
            yield "uniform", (*good[:3], V[:4]), ValueError, "uniform of shape (rows, n) with 6 rows, got [4, 3]"
            yield "uniform dtype", (*good[:3], V.double()), TypeError, "uniform of dtype "

    return errors


G, WHOLE = torch.ones(2), {"tolerance": CARRIED}
ENTRIES = [
    OpInfo("chain_logsumexp", logsumexp_samples, chain_errors("chain_logsumexp", (V, T, CUT)), **WHOLE),
    OpInfo(
        "chain_logsumexp_backward",
        backward_samples,
        chain_errors("chain_logsumexp_backward", (G, V, T, CUT, V), 1),
        FLOATS[:2],
        False,
        outputs=2,
        **WHOLE,
    ),
    OpInfo("chain_marginals", logsumexp_samples, chain_errors("chain_marginals", (V, T, CUT)), **WHOLE),
    OpInfo(
        "chain_marginals_backward",
        marginals_backward_samples,
        chain_errors("chain_marginals_backward", (V, V, T, CUT), 1),
        FLOATS[:2],
        False,
        outputs=2,
        **WHOLE,
    ),
    OpInfo(
        "chain_argmax",
        argmax_samples,
        chain_errors("chain_argmax", (V, T, CUT)),
        FLOATS[:2],
        False,
        outputs=2,
        **WHOLE,
    ),
    OpInfo("chain_sample", sample_samples, chain_errors("chain_sample", (V, T, CUT, V)), FLOATS[:2], False),
]
