# SPDX-License-Identifier: Apache-2.0
"""Torch's one-dimensional convolution, pooling and padding: rows (rows, channels) are the places of their own sequence. Of a
batch (rows, channels, length) every row is a sample, as with plain tensors.

What torch refuses for a sequence that is too short (no window fits) gives no rows here; so does an empty sequence.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..dynamo import failing, whole_number
from ..errors import LoDTypeError, LoDValueError
from ..lod import LoD
from ..sequence_operator import a_float, number
from ..tensor import LoDTensor, made
from ..validate import sums
from .routes import one, only_first, route


class _Places(NamedTuple):
    """Where the rows of a result lie: places[i] is counted from the start of its innermost sequence in x."""

    lod: LoD
    places: Tensor
    #: first row, and length, of that sequence
    first: Tensor
    length: Tensor


def _per_sequence(x: LoDTensor, **plain) -> bool:
    """Whether the rows of x are to be taken for places; then all else must be plain, and x floating."""
    if not only_first(x, **plain) or not isinstance(x, LoDTensor) or x.dim() != 2:
        return False
    a_float(x)
    return True


def _lengths(x: LoDTensor) -> Tensor:
    return x.lod.row_offsets_at(x.lod_level - 1).diff()


def _with_lengths(lod: LoD, lengths: Tensor) -> LoD:
    return LoD.checked("lengths", [*lod.levels[:-1], sums(lengths)], lod.level_names)


def _places(x: LoDTensor, lengths: Tensor, start: int = 0, step: int = 1, device=None) -> _Places:
    """A result whose sequences have these lengths, its rows at start, start + step, ... of the sequence in x; on the device of
    x if no other is named."""
    lod, device = x.lod, device or x.device
    own = _with_lengths(lod, lengths)
    k = lod.depth - 1
    before, after = lod.row_offsets_at(k, device), own.row_offsets_at(k, device)
    places = ops.run_map(torch.full_like(before[1:], start), after, own.rows, step)
    ends = torch.stack([before[:-1], before.diff()], 1)
    first, length = ops.segment_broadcast(ends, after, own.rows).unbind(1)
    return _Places(own, places, first, length)


def _padding(padding, reach: int, stride: int) -> tuple[int, int]:
    if padding == "same":
        if stride != 1:
            raise LoDValueError(f"expected stride 1 with padding='same', got {stride}")
        return reach // 2, reach - reach // 2
    if isinstance(padding, str):
        if padding != "valid":
            raise LoDValueError(f"expected padding as a number, 'same' or 'valid', got {padding!r}")
        return 0, 0
    both = one("padding", padding, 0)
    return both, both


def _fitting(x: Tensor, weight, bias, groups: int, places: tuple[int, int]):
    """Weight and bias as the operator takes them; `places`: which dims of weight are x's channels and the result's."""
    if type(groups) is not int or groups < 1:
        raise LoDValueError(f"expected groups >= 1, got {groups!r}")
    for name, t in (("weight", weight), ("bias", bias)):
        if not isinstance(t, Tensor) and (t is not None or t is weight):
            raise LoDTypeError(f"expected {name} as a tensor, got {type(t).__name__}")
    taken, given = places
    shape = ["out", "in", "size"] if taken else ["in", "out", "size"]
    if weight.dim() != 3 or weight.shape[2] < 1 or weight.shape[0] % groups:
        raise LoDValueError(f"expected weight of shape ({', '.join(shape)}), got {tuple(weight.shape)}")
    width = weight.shape[taken] * (groups if taken else 1)
    if x.shape[1] != width:
        raise LoDValueError(f"expected rows of {width} channels, as weight, got {tuple(x.shape)}")
    if bias is not None and tuple(bias.shape) != (weight.shape[given] * (1 if taken else groups),):
        raise LoDValueError(f"expected a bias per channel of the result, got {tuple(bias.shape)}")
    values = x.values() if isinstance(x, LoDTensor) else x
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        values, weight, bias = values.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and (t.dtype != values.dtype or t.device != values.device):
            raise LoDTypeError(
                f"expected {name} of {values.dtype} on {values.device}, as the rows, got {t.dtype} on {t.device}"
            )
    return values, weight, bias


@route(torch.conv1d)
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    if not _per_sequence(input, weight=weight, bias=bias):
        return NotImplemented
    values, weight, bias = _fitting(input, weight, bias, groups, (1, 0))
    out, width, size = weight.shape
    stride, dilation = one("stride", stride, 1), one("dilation", dilation, 1)
    reach = (size - 1) * dilation
    before, after = _padding(padding, reach, stride)
    longer, k = before + after - reach, input.lod_level - 1
    lengths = _lengths(input)
    fits = torch.where(lengths > 0, (lengths + longer - 1).div(stride, rounding_mode="floor") + 1, 0).clamp(min=0)
    if groups == 1 and stride == 1 and longer <= 0:  # a window for every row, less the last ones
        offsets = input.lod.row_offsets_at(k, values.device)
        rows = ops.segment_conv(values, weight.permute(2, 1, 0), bias, offsets, -before, dilation)
        if longer == 0:
            return made(rows, input.lod)
        own = _with_lengths(input.lod, fits)
        return made(ops.gather_runs(rows, offsets[:-1], own.row_offsets_at(k, values.device), own.rows), own)
    at = _places(input, fits, -before, stride)
    place = at.places[:, None] + dilation * torch.arange(size, device=values.device)
    row = torch.where((place >= 0) & (place < at.length[:, None]), place + at.first[:, None], -1)
    seen = ops.gather_rows(values, row.flatten()).view(-1, size, groups, width)
    kernels = weight.view(groups, out // groups, width, size).permute(0, 3, 2, 1).flatten(1, 2)
    rows = torch.bmm(seen.permute(2, 0, 1, 3).flatten(2), kernels).transpose(0, 1).reshape(-1, out)
    return made(rows if bias is None else rows + bias, at.lod)


@route(torch.conv_transpose1d)
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    if not _per_sequence(input, weight=weight, bias=bias):
        return NotImplemented
    values, weight, bias = _fitting(input, weight, bias, groups, (0, 1))
    width, out, size = weight.shape
    stride, dilation = one("stride", stride, 1), one("dilation", dilation, 1)
    padding, more = one("padding", padding, 0), one("output_padding", output_padding, 0)
    if more >= max(stride, dilation):
        raise LoDValueError(f"expected output_padding below stride or dilation, got {more}")
    lengths = _lengths(input)
    longer = (lengths - 1) * stride - 2 * padding + (size - 1) * dilation + more + 1
    own = _with_lengths(input.lod, torch.where(lengths > 0, longer, 0).clamp(min=0))
    k, rows = own.depth - 1, values.shape[0]
    given, made_of = (lod.row_offsets_at(k, values.device) for lod in (input.lod, own))
    place = ops.run_map(torch.full_like(given[1:], -padding), given, rows, stride)
    place = place[:, None] + dilation * torch.arange(size, device=values.device)
    first, end = ops.segment_broadcast(torch.stack([made_of[:-1], made_of[1:]], 1), given, rows)[:, :, None].unbind(1)
    row = torch.where((place >= 0) & (place + first < end), place + first, -1)
    kernels = weight.view(groups, width // groups, out, size).permute(0, 1, 3, 2).flatten(2)
    parts = torch.bmm(values.view(rows, groups, width // groups).transpose(0, 1), kernels)
    parts = parts.view(groups, rows, size, out).permute(1, 2, 0, 3).reshape(rows * size, groups * out)
    summed = ops.scatter_rows(parts, row.flatten(), own.rows)
    return made(summed if bias is None else summed + bias, own)


@route(F.pad, kind=None)
def pad(input, pad, mode="constant", value=None):
    """Padding with zeros or a number is that of any tensor, of its last dims. The other modes are made for samples of places."""
    if mode == "constant" or not only_first(input) or input.dim() != 2:
        return NotImplemented
    if len(pad) != 2 or any(type(n) is not int or not 0 <= n <= 2**20 for n in pad):
        raise LoDValueError(f"expected pad as the rows before and after, got {tuple(pad)}")
    if mode not in ("reflect", "replicate", "circular"):
        raise LoDValueError(f"expected mode 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}")
    lengths, most = _lengths(input), max(pad)
    short = (lengths > 0) & (lengths < {"reflect": most + 1, "replicate": 1, "circular": most}[mode])
    for i in failing(short, f"expected sequences long enough for {mode} padding"):
        raise LoDValueError(
            f"expected sequences long enough for {mode} padding of {most} rows, got {int(lengths[i])} in sequence {i}"
        )
    at = _places(input, torch.where(lengths > 0, lengths + sum(pad), 0), -pad[0])
    last = at.length - 1
    if mode == "reflect":
        place = last - (last - at.places.abs()).abs()
    elif mode == "replicate":
        place = torch.minimum(at.places.clamp(min=0), last)
    else:
        place = at.places.remainder(at.length)
    return made(ops.gather_rows(input.values(), at.first + place), at.lod)


class _Windows(NamedTuple):
    """Windows over rows: window w holds the rows `rows[offsets[w] : offsets[w + 1]]` of x, and is a row of the result."""

    rows: Tensor
    offsets: Tensor
    #: in host memory, where the sizes of all this are known without asking the device
    at: _Places
    size: Tensor


def _windows(x, kernel, stride, padding, dilation, ceil) -> tuple[_Windows, int]:
    kernel = one("kernel_size", kernel, 1)
    stride = one("stride", stride, 1) if stride or stride == 0 else kernel
    padding, dilation = one("padding", padding, 0), one("dilation", dilation, 1)
    span = (kernel - 1) * dilation + 1
    if padding > span // 2:
        raise LoDValueError(f"expected padding of at most half the window, {span // 2}, got {padding}")
    lengths = _lengths(x)
    counts = (lengths + (2 * padding - span + (stride - 1 if ceil else 0))).div(stride, rounding_mode="floor") + 1
    if ceil:  # a window starts before the padding at the end
        counts -= ((counts - 1) * stride >= lengths + padding).to(torch.int64)
    at = _places(x, torch.where(lengths > 0, counts, 0).clamp(min=0), -padding, stride, "cpu")
    skipped = (-at.places).clamp(min=0).add(dilation - 1).div(dilation, rounding_mode="floor")
    end = (at.length - at.places).clamp(min=0).add(dilation - 1).div(dilation, rounding_mode="floor").clamp(max=kernel)
    return _cut(x, at, at.places + skipped * dilation, (end - skipped).clamp(min=0), dilation), kernel


def _cut(x: LoDTensor, at: _Places, start: Tensor, size: Tensor, step: int = 1) -> _Windows:
    own = sums(size)
    total, offsets = whole_number(own[-1]), own.to(x.device, non_blocking=True)
    rows = ops.run_map((start + at.first).to(x.device, non_blocking=True), offsets, total, step)
    return _Windows(rows, offsets, at, size)


def _largest(x: LoDTensor, to: _Windows, return_indices: bool, pad_value: float):
    seen = ops.gather_rows(x.values(), to.rows)
    if not return_indices:
        return made(ops.segment_reduce(seen, to.offsets, "max", pad_value), to.at.lod)
    out, index = ops.segment_extreme(seen, to.offsets, "max", pad_value)
    row = ops.gather_rows(to.rows, index.flatten(), -1).view(index.shape) - to.at.first.to(x.device)[:, None]
    return made(out, to.at.lod), made(torch.where(index < 0, -1, row), to.at.lod)


@route(F.max_pool1d, torch.max_pool1d)
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    if not _per_sequence(input):
        return NotImplemented
    to, _ = _windows(input, kernel_size, stride, padding, dilation, ceil_mode)
    return _largest(input, to, return_indices, -torch.inf)


@route(F.max_pool1d_with_indices, torch.max_pool1d_with_indices)
def max_pool1d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    """The indices count from the start of the sequence, as those of a sequence by itself."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


@route(torch.avg_pool1d)
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    if not _per_sequence(input):
        return NotImplemented
    to, kernel = _windows(input, kernel_size, stride, padding, 1, ceil_mode)
    count = to.size
    if count_include_pad:  # the padding counts, what ceil_mode lets stand out beyond it does not
        both = 2 * one("padding", padding, 0)
        count = torch.minimum(to.at.length + both - (to.at.places + both // 2), torch.full_like(count, kernel))
    total = ops.segment_reduce(ops.gather_rows(input.values(), to.rows), to.offsets, "sum")
    return made(total / count.to(total.device, total.dtype)[:, None], to.at.lod)


@route(F.lp_pool1d)
def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    if not _per_sequence(input):
        return NotImplemented
    number("norm_type", norm_type)
    if abs(norm_type) == torch.inf:
        sign = 1 if norm_type > 0 else -1
        return sign * max_pool1d(sign * input.abs(), kernel_size, stride, ceil_mode=ceil_mode)
    mean = avg_pool1d(input.pow(norm_type), kernel_size, stride, ceil_mode=ceil_mode)
    total = mean.sign() * mean.abs().relu() * one("kernel_size", kernel_size, 1)
    return total.pow(1.0 / norm_type)


def _bins(x: LoDTensor, output_size) -> _Windows:
    """As many windows in every sequence, from floor(i length / n) to ceil((i + 1) length / n); empty in an empty one."""
    n = one("output_size", output_size, 0)
    at = _places(x, torch.full_like(_lengths(x), n), device="cpu")
    start = (at.places * at.length).div(max(n, 1), rounding_mode="floor")
    end = ((at.places + 1) * at.length + n - 1).div(max(n, 1), rounding_mode="floor")
    return _cut(x, at, start, end - start)


@route(torch.adaptive_avg_pool1d)
def adaptive_avg_pool1d(input, output_size):
    """An empty sequence gives rows of zeros, as many as any other."""
    if not _per_sequence(input):
        return NotImplemented
    to = _bins(input, output_size)
    return made(ops.segment_reduce(ops.gather_rows(input.values(), to.rows), to.offsets, "mean"), to.at.lod)


@route(F.adaptive_max_pool1d)
def adaptive_max_pool1d(input, output_size, return_indices=False):
    """An empty sequence gives rows of zeros, as many as any other, of index -1."""
    if not _per_sequence(input):
        return NotImplemented
    return _largest(input, _bins(input, output_size), return_indices, 0.0)


@route(F.adaptive_max_pool1d_with_indices, torch.adaptive_max_pool1d)
def adaptive_max_pool1d_with_indices(input, output_size, return_indices=True):
    return adaptive_max_pool1d(input, output_size, True)
