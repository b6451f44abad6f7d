# SPDX-License-Identifier: Apache-2.0
"""Windows along sequences, and of images."""

import math

import torch

import torch_lod as tl
from samples.words import ALL, ROUNDED, Sample, SequenceInfo, X, over, values


def convs(x, k):
    def t(*shape, seed=1):
        return values(shape[0], shape[1:], x.dtype, x.device, seed)

    width = x.shape[1]
    for n, start, bias in ((3, None, True), (2, 0, False), (1, -2, False), (3, 1, True), (2, -4, False)):
        yield f" {n} from {start}", (x, t(n * width, 2), n, start, t(2, seed=2) if bias else None), {}
    for n, start in ((3, None), (3, -2), (2, 1), (3, -5), (4, -1), (1, 0), (2, 3)):
        begin = -(n // 2) if start is None else start
        around = t(max(0, -begin) + max(0, begin + n - 1), width, seed=3)
        yield f" {n} from {start} padded", (x, t(n * width, 2), n, start), {"padding_data": around}


def conv_errors():
    op, w = tl.sequence_conv, torch.zeros(9, 2)
    for wrong in (0, -1, 2**40, 1.5, None):
        yield f"length {wrong}", lambda n=wrong: op(X, w, n), ValueError, f"context_length in [1, 2**20], got {wrong}"
    for wrong in (0.5, "a", 2**40, -(2**62), True):
        yield f"start {wrong}", lambda s=wrong: op(X, w, 3, s), ValueError, f"context_start within 2**20, got {wrong!r}"
    yield "weight", lambda: op(X, w[:8], 3), ValueError, "weight of shape (9, 2), got (8, 2)"
    yield (
        "1-d weight",
        lambda: op(X, w[:, 0], 3),
        ValueError,
        "weight of shape (context_length * features, out), got (9,)",
    )
    yield "no weight", lambda: op(X, None, 3), TypeError, "weight as a tensor, got NoneType"
    yield (
        "dtype",
        lambda: op(X, w.double(), 3),
        TypeError,
        "weight of torch.float32 on cpu, as x, got torch.float64 on cpu",
    )
    yield "device", lambda: op(X, w.to("meta"), 3), TypeError, "got torch.float32 on meta"
    yield "bias", lambda: op(X, w, 3, bias=torch.zeros(3)), ValueError, "bias of shape (2,), got (3,)"
    yield "no bias", lambda: op(X, w, 3, bias=1.0), TypeError, "bias as a tensor, got float"
    yield (
        "padding",
        lambda: op(X, w, 3, padding_data=torch.zeros(3, 3)),
        ValueError,
        "padding_data of shape (2, 3), got (3, 3)",
    )
    yield "no padding", lambda: op(X, w, 3, padding_data=1.0), TypeError, "padding_data as a tensor, got float"
    yield "1-d", lambda: op(X[:, 0], w, 3), ValueError, "x of shape (rows, features), got (6,)"
    yield "whole", lambda: op(X.long(), w.long(), 3), TypeError, "x of a floating dtype, got torch.int64"


def conv1ds(x, k):
    def t(*shape, seed=1):
        return values(shape[0], shape[1:], x.dtype, x.device, seed)

    width = x.shape[1]
    for size, dilation, groups in ((3, 1, 1), (2, 1, 1), (4, 2, 1), (2, 3, 1), (3, 1, 2), (2, 2, 4), (1, 1, 1)):
        if width % groups == 0:
            for padding in ("same", "causal"):
                args = x, t(4, width // groups, size), t(4, seed=2) if size > 1 else None
                options = {"dilation": dilation, "padding": padding, "groups": groups}
                yield f" {size} by {dilation} {padding} in {groups}", args, options
            before = values(x.num_sequences(k), ((size - 1) * dilation, width), x.dtype, x.device, 4)
            options = {**options, "return_state": True}
            yield f" {size} by {dilation} to a state in {groups}", args, options
            yield f" {size} by {dilation} from a state in {groups}", args, {**options, "initial": before}


def conv1d_errors():
    op, w = tl.sequence_conv1d, torch.zeros(2, 3, 3)
    for wrong in (0, -1, 2, 1.5, None, True):
        if wrong is not True:
            yield (
                f"groups {wrong}",
                lambda g=wrong: op(X, w, groups=g),
                ValueError,
                f"divide the 3 features of x, got {wrong}",
            )
    for wrong in (0, -1, 2**40, 0.5):
        yield (
            f"dilation {wrong}",
            lambda d=wrong: op(X, w, dilation=d),
            ValueError,
            f"dilation in [1, 2**20], got {wrong}",
        )
    yield "padding", lambda: op(X, w, padding="valid"), ValueError, "padding 'same' or 'causal', got 'valid'"
    before = torch.zeros(3, 2, 3)
    for name, wrong in (("initial", before), ("return_state", True)):
        yield (
            f"{name} of same",
            lambda n=name, v=wrong: op(X, w, **{n: v}),
            ValueError,
            "initial and return_state with padding 'causal', got 'same'",
        )

    def causal(**options):
        return lambda: op(X, w, padding="causal", **options)

    yield "initial", causal(initial=before[:2]), ValueError, "initial of shape (3, 2, 3), got (2, 2, 3)"
    yield (
        "initial dtype",
        causal(initial=before.double()),
        TypeError,
        "initial of torch.float32 on cpu, as x, got torch",
    )
    yield "no initial", causal(initial=0), TypeError, "initial as a tensor, got int"
    yield "return_state", causal(return_state=1), TypeError, "return_state as a bool, got 1"
    yield "weight", lambda: op(X, w[:, :2]), ValueError, "weight of shape (2, 3, 3), got (2, 2, 3)"
    yield (
        "2-d weight",
        lambda: op(X, w[0]),
        ValueError,
        "weight of shape (out, 3, size), size at least 1, out a multiple of 1, got (3, 3)",
    )
    yield "no size", lambda: op(X, w[:, :, :0]), ValueError, "got (2, 3, 0)"
    yield "out", lambda: op(X, torch.zeros(2, 1, 3), groups=3), ValueError, "out a multiple of 3"
    yield "bias", lambda: op(X, w, torch.zeros(3)), ValueError, "bias of shape (2,), got (3,)"
    yield "dtype", lambda: op(X, w.double()), TypeError, "weight of torch.float32 on cpu, as x, got torch.float64"
    yield "1-d", lambda: op(X[:, 0], w), ValueError, "x of shape (rows, features), got (6,)"
    yield "whole", lambda: op(X.long(), w.long()), TypeError, "x of a floating dtype, got torch.int64"


def row_convs(x, k):
    for n in (1, 2, 5):
        yield f" {n}", (x, values(n, tuple(x.shape[1:]), x.dtype, x.device, 1)), {}


def row_conv_errors():
    op = tl.row_conv
    yield "weight", lambda: op(X, torch.zeros(2, 2)), ValueError, "weight of shape (2, 3), got (2, 2)"
    yield "none", lambda: op(X, torch.zeros(0, 3)), ValueError, "weight of shape (context, 3)"
    yield "no weight", lambda: op(X, None), TypeError, "weight as a tensor, got NoneType"
    yield "dtype", lambda: op(X, torch.zeros(2, 3).half()), TypeError, "weight of torch.float32"
    yield "3-d", lambda: op(X[:, None], torch.zeros(2, 3)), ValueError, "x of shape (rows, features), got (6, 1, 3)"
    yield "whole", lambda: op(X.long(), torch.zeros(2, 3).long()), TypeError, "x of a floating dtype, got torch.int64"


def unfolds(x, k):
    for size, step in ((1, 1), (2, 1), (3, 2), (2, 5), (100, 1)):
        yield f" {size} by {step}", (x, size, step), {}


def unfold_errors():
    for wrong in (0, -1, 2**40, 1.5, None, True):
        yield (
            f"size {wrong}",
            lambda w=wrong: tl.sequence_unfold(X, w),
            ValueError,
            f"size in [1, 2**20], got {wrong}",
        )
        yield (
            f"step {wrong}",
            lambda w=wrong: tl.sequence_unfold(X, 1, w),
            ValueError,
            f"step in [1, 2**20], got {wrong}",
        )


def images(dtype, device):
    def image(n, c, h, w):
        return values(n, (c, h, w), dtype, device)

    yield Sample("one", (image(2, 1, 3, 3), 2))
    yield Sample("strides", (image(2, 2, 5, 4), (2, 3), (2, 1), (1, 0)))
    yield Sample("four paddings", (image(1, 2, 3, 4), (3, 2), 2, (1, 0, 2, 3)))
    yield Sample("no images", (image(0, 2, 4, 4), 2))
    sizes = torch.tensor([[6, 8], [3, 4], [8, 8]])
    yield Sample("of several sizes", (image(3, 2, 4, 4), 2, 1, 0, sizes, 2))
    yield Sample("larger", (image(1, 1, 3, 3), 2, 1, 0, torch.tensor([[5, 9]]), (1, 2)))
    yield Sample("rows", (tl.from_lengths(image(3, 1, 3, 3), [[2, 1]]), 2))


def image_errors():
    op, x = tl.im2sequence, torch.zeros(2, 1, 3, 3)
    for wrong in (0, -1, 1.5, (1,), (1, 2, 3), None, "a", True):
        yield (
            f"filter {wrong}",
            lambda w=wrong: op(x, w),
            ValueError,
            f"filter_size as a number >= 1 or a pair of them, got {wrong!r}",
        )
        yield (
            f"stride {wrong}",
            lambda w=wrong: op(x, 2, w),
            ValueError,
            f"stride as a number >= 1 or a pair of them, got {wrong!r}",
        )
    for wrong in (-1, (1, -1), (0, 0, 0), (0, 0, 0, -1)):
        yield (
            f"padding {wrong}",
            lambda w=wrong: op(x, 2, 1, w),
            ValueError,
            "padding as a number >= 0 or a pair of them",
        )
    yield "large filter", lambda: op(x, 4), ValueError, "within the padded image, (3, 3), got (4, 4)"
    yield "huge filter", lambda: op(x, 2**62), ValueError, "within the padded image"
    yield "huge padding", lambda: op(x, 2, 1, 2**40), ValueError, "a padded image of fewer than 2**48 elements"
    yield "3-d", lambda: op(x[0], 2), ValueError, "x of shape (images, channels, height, width), got (1, 3, 3)"
    yield "no x", lambda: op(None, 2), TypeError, "x as a tensor, got NoneType"
    yield (
        "moved",
        lambda: op(X[None, None], 2),
        TypeError,
        "x as a LoDTensor or a plain tensor, got rows at dim 2, moved",
    )
    yield (
        "sizes",
        lambda: op(x, 2, input_image_size=torch.ones(3, 2)),
        ValueError,
        "input_image_size of shape (2, 2), finite, got (3, 2)",
    )
    yield "no sizes", lambda: op(x, 2, input_image_size=7), TypeError, "input_image_size as a tensor, got int"
    yield (
        "small sizes",
        lambda: op(x, 2, input_image_size=torch.ones(2, 2)),
        ValueError,
        "images of at least one window, got sizes",
    )
    yield (
        "huge sizes",
        lambda: op(x, 2, input_image_size=torch.full((2, 2), 2**62)),
        ValueError,
        "a padded image of fewer than 2**48 elements",
    )
    yield (
        "nan sizes",
        lambda: op(x, 2, input_image_size=torch.full((2, 2), math.nan)),
        ValueError,
        "input_image_size of shape (2, 2), finite",
    )
    yield (
        "out_stride",
        lambda: op(x, 2, input_image_size=torch.ones(2, 2).long(), out_stride=0),
        ValueError,
        "out_stride as a number >= 1",
    )


FEATURES = ((3,), (4,), (1,))
KEEPS = {"keeps": True, "tolerance": ROUNDED}
ENTRIES = [
    SequenceInfo("sequence_conv", over(convs, FEATURES), conv_errors, products=True, **KEEPS),
    SequenceInfo("sequence_conv1d", over(conv1ds, FEATURES), conv1d_errors, products=True, **KEEPS),
    SequenceInfo("row_conv", over(row_convs, (*FEATURES, (0,))), row_conv_errors, **KEEPS),
    SequenceInfo("sequence_unfold", over(unfolds), unfold_errors, ALL),
    SequenceInfo("im2sequence", images, image_errors, ALL, levels=None),
]
