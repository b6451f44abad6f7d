# SPDX-License-Identifier: Apache-2.0
"""The words that the table of operators is written in: samples, structures, malformed offsets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ANY = (torch.bool, torch.complex64, torch.complex128)

#: The edges that every operator must survive.
OFFSETS = {
    "typical": [0, 2, 5, 6],
    "empty segment": [0, 2, 2, 6],
    "empty ends": [0, 0, 6, 6],
    "all empty": [0, 0, 0],
    "no segments": [0],
    "one row": [0, 1],
}
#: Seen by the laws that compare results but not by those that differentiate numerically.
LONG = {"long": [0, 1, 1, 2600, 2607]}
WIDTHS = ((3,), (), (2, 17), (0,))
WIDE = ((85,),)


@dataclass(frozen=True)
class Sample:
    label: str
    args: tuple
    #: Too large for numerical gradients.
    large: bool = False


@dataclass(frozen=True)
class OpInfo:
    name: str
    reference: Callable
    samples: Callable[..., Iterator[Sample]]
    #: (label, arguments, exception, part of the message)
    errors: Callable[[], Iterator[tuple]]
    dtypes: tuple = FLOATS
    #: How many of the results are compared and differentiated; the rest is internal to the backward.
    outputs: int = 1
    differentiable: bool = True
    shape: str = "rows"
    #: Tolerances beside torch.testing's, by dtype.
    tolerance: dict = field(default_factory=dict)

    @property
    def op(self):
        return getattr(torch.ops.torch_lod, self.name).default


def values(rows, width, dtype, device, seed=0):
    """Small numbers that every dtype holds; distinct within a column of a floating dtype, with ties in a whole one."""
    g = torch.Generator().manual_seed(rows * 31 + seed)
    if dtype == torch.bool:
        t = torch.rand(rows, *width, generator=g) < 0.5
    elif dtype.is_floating_point or dtype.is_complex:
        t = torch.randn(rows, *width, generator=g, dtype=torch.float64)
    else:
        t = torch.randint(0, 5, (rows, *width), generator=g)
    return t.to(dtype).to(device)


def cuts(device, large=True):
    for label, offsets in {**OFFSETS, **(LONG if large else {})}.items():
        yield label, torch.tensor(offsets, device=device), label in LONG


def over_segments(dtype, device, make, widths=WIDTHS + WIDE):
    for label, offsets, large in cuts(device):
        for width in widths:
            if large and width not in ((3,), (85,), ()):
                continue
            for extra, args in make(offsets, width):
                yield Sample(f"{label} {width}{extra}", args, large or width in WIDE)


def bad_offsets(args, at, rows=6, name="row_offsets", of="values"):
    """The arguments with offsets that break one rule each."""

    def put(offsets):
        return (*args[:at], offsets, *args[at + 1 :])

    yield "start", put(torch.tensor([2, 4, 6])), ValueError, f"{name} to start at 0, got 2"
    yield "fall", put(torch.tensor([0, 7, 6])), ValueError, "got 7 then 6 at index 2"
    yield "negative", put(torch.tensor([0, -3, 6])), ValueError, "got 0 then -3 at index 1"
    yield "wrapping", put(torch.tensor([0, 2**63 - 1, -(2**63)])), ValueError, "at index 2"
    yield "short", put(torch.tensor([0, 2, 5])), ValueError, f"equal the {rows} rows of {of}, got 5 at index 2"
    yield "long", put(torch.tensor([0, 2, 10**9])), ValueError, f"{rows} rows of {of}, got 1000000000 at index 2"
    yield "none", put(torch.tensor([], dtype=torch.int64)), ValueError, f"{name} with at least 1 entry, got none"
    yield "floating", put(torch.tensor([0.0, 6.0])), TypeError, f"{name} of dtype int64"
    yield "int32", put(torch.tensor([0, 6], dtype=torch.int32)), TypeError, f"{name} of dtype int64"
    yield "2-d", put(torch.tensor([[0, 6]])), ValueError, f"1-D {name}, got 2 dimensions"


X = torch.zeros(6, 3)
CUT = torch.tensor([0, 2, 6])
