# SPDX-License-Identifier: Apache-2.0
"""Recurrences with a matrix as state."""

import itertools

import torch

import torch_lod as tl
from samples.words import CARRIED, CUT, OpInfo, Sample, bad_offsets, cuts, values

#: Whether the decay is one for each key, beta is given, the rule (a and b, or delta), the initial state is given; heads,
#: key heads, keys and values.
FORMS = (
    (False, True, "delta", True, (2, 1, 3, 2)),
    (True, False, "delta", False, (2, 2, 2, 3)),
    (False, False, "", True, (4, 2, 3, 1)),
    (True, True, "", True, (1, 1, 1, 2)),
    (False, True, "a b", False, (2, 1, 2, 2)),
    (True, False, "a b", True, (2, 2, 3, 2)),
)


def inputs(dtype, device, offsets, form):
    by_key, with_beta, rule, state, (heads, key_heads, keys, width) = form
    rows, sums = int(offsets[-1]), torch.float64 if dtype == torch.float64 else torch.float32

    def t(n, *shape, seed, of=dtype):
        return values(n, shape, of, device, seed)

    def unit(seed):
        return torch.nn.functional.normalize(t(rows, key_heads, keys, seed=seed), dim=-1)

    pair = (-unit(5) / 2, unit(6)) if rule == "a b" else (None, None)
    return (
        *(t(rows, key_heads, keys, seed=1), unit(2), t(rows, heads, width, seed=3)),
        t(rows, heads, *[keys] * by_key, seed=4, of=sums).sigmoid(),
        t(rows, heads, seed=7, of=sums).sigmoid() if with_beta else None,
        *pair,
        t(len(offsets) - 1, heads, keys, width, seed=8, of=sums) if state else None,
        *(offsets, rule == "delta", 0.5),
    )


def samples(dtype, device):
    turn = itertools.cycle(FORMS)
    for label, offsets, large in cuts(device):
        for form in [next(turn)] if large else FORMS:
            yield Sample(f"{label} {form}", inputs(dtype, device, offsets, form), large=large)
    # slabs of columns of every width, the tails of keys and values, several blocks of rows
    offsets = torch.tensor([0, 1, 1, 140, 147], device=device)
    for by_key, rule in itertools.product((False, True), ("delta", "", "a b")):
        form = by_key, rule != "", rule, True, (2, 1, 17, 113)
        yield Sample(f"wide {form}", inputs(dtype, device, offsets, form), large=True)


def backward_samples(dtype, device):
    for i, sample in enumerate(samples(dtype, device)):
        if not sample.label.startswith("long"):
            rows, last, saved = tl.ops.matrix_scan(*sample.args)
            grads = [values(len(t), t.shape[1:], t.dtype, device, 8 + n) for n, t in enumerate((rows, last))]
            if i % 3:
                grads[i % 3 - 1] = None
            yield Sample(sample.label, (*grads, *sample.args, saved), large=sample.large)


def errors(backward=False):
    def made():
        ones = torch.ones
        names = "query key value decay beta a b initial row_offsets delta scale".split()
        good = (ones(6, 1, 3), ones(6, 1, 3), ones(6, 2, 4), ones(6, 2), ones(6, 2), None, None, ones(2, 2, 3, 4), CUT)
        good = dict(zip(names, (*good, True, 1.0)))
        saved = [ones(6 * 2 * 16)] if backward else []
        grads = [ones(6, 2, 4), ones(2, 2, 3, 4)] if backward else []

        def put(*more, grad=grads, **changed):
            return (*grad, *{**good, **changed}.values(), *(more or saved))

        yield from bad_offsets(put(), len(grads) + 8, of="value")
        one = {"value": ones(6, 4)}, {"value": ones(6, 0, 4)}, {"value": ones(6, 2, 0)}
        for changed in one:
            yield "value", put(**changed), ValueError, "value of shape (rows, heads, width), at least one head"
        yield "dtype", put(value=ones(6, 2, 4).long()), TypeError, "expected value of dtype float16"
        yield "key dtype", put(key=ones(6, 1, 3).double()), TypeError, "key of dtype Float on"
        for shape in ((5, 1, 3), (6, 3), (6, 3, 3), (6, 0, 3)):
            wanted = "key of shape [6, heads, width], its heads a divisor of the value's 2, got "
            yield "key", put(key=ones(shape)), ValueError, f"{wanted}{list(shape)}"
        yield "query", put(query=ones(6, 2, 3)), ValueError, "query of shape [6, 1, 3], got [6, 2, 3]"
        yield "decay", put(decay=ones(6, 3)), ValueError, "decay of shape [6, 2] or [6, 2, 3], got [6, 3]"
        yield "decay dtype", put(decay=ones(6, 2).double()), TypeError, "decay of dtype Float on"
        yield "beta", put(beta=ones(6, 1)), ValueError, "beta of shape [6, 2], got [6, 1]"
        yield "one", put(a=ones(6, 1, 3), delta=False), ValueError, "a and b together, got one of them"
        pair = {"a": ones(6, 1, 3), "b": ones(6, 1, 3)}
        yield "delta", put(**pair), ValueError, "delta without a and b"
        yield "a", put(**{**pair, "a": ones(6, 1, 2)}), ValueError, "a of shape [6, 1, 3], got [6, 1, 2]"
        yield "b", put(**{**pair, "b": ones(6, 2, 3)}), ValueError, "b of shape [6, 1, 3], got [6, 2, 3]"
        states = put(initial=ones(3, 2, 3, 4))
        yield "initial", states, ValueError, "initial of shape [2, 2, 3, 4], got [3, 2, 3, 4]"
        if backward:
            other = put(grad=[ones(6, 4, 2), None])
            yield "grad", other, ValueError, "grad_output of shape [6, 2, 4], got [6, 4, 2]"
            other = put(grad=[None, ones(2, 2, 4, 3)])
            yield "state", other, ValueError, "grad_last of shape [2, 2, 3, 4], got [2, 2, 4, 3]"

    return made


SCAN = {"tolerance": CARRIED}
ENTRIES = [
    OpInfo("matrix_scan", samples, errors(), outputs=2, wide=(1,), **SCAN),
    OpInfo(
        "matrix_scan_backward",
        backward_samples,
        errors(backward=True),
        (torch.float64, torch.float32),
        False,
        outputs=8,
        **SCAN,
    ),
]
