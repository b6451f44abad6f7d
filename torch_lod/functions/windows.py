# SPDX-License-Identifier: Apache-2.0
"""Torch's one-dimensional convolution, pooling and padding: rows (rows, channels) are the positions of their own sequence. In
a batch (rows, channels, length) every row is a sample, as with plain tensors.

A sequence that is too short for a window gives no rows, where torch would raise; neither does an empty sequence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..dynamo import compiling, failing, whole_number
from ..errors import LoDTypeError, LoDValueError, shown
from ..sequence.operator import Along, along, autocast_dtype
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import a_float, an_int, number, sums, with_memory
from ..tensor.derived import DerivedTensor, rows_at
from ..tensor.lod_tensor import LoDTensor, made
from ..tensor.provenance import provenance_of
from .indexing import lengthened
from .layouts import one, only_first, rows_last
from .refusals import CUT, OUT, STACKED, along_rows, refusal
from .row import enter
from .signature import SCALED, refuse, refuse_on_rows, row_by_row, signature

RESIZED = "where lengths change, tl.map_sequences takes results=('resized', layout); see also x.to_padded()"


def windows(spatial: int, text: str = "input"):
    """Convolution and pooling: with all dims, rows are the batch; with one dim less, the windows run over the rows."""

    @signature(text)
    def rule(func, input, rows):
        if rows:
            why = f"its windows would run over the rows of all sequences; {RESIZED}"
            raise along_rows(func, provenance_of(input), why)
        if provenance_of(input) is not None and input.dim() < spatial + 2:
            raise refusal(
                func,
                f"an input of {input.dim()} dims is one sample whose rows it would run together; {RESIZED}; {STACKED}; {OUT}",
            )
        return True

    return rule


def _of_rows(run: Callable) -> dict[str, Any]:
    """What runs instead of a function of (rows, channels), which also takes (channels, rows) and (1, channels, rows)."""
    return {"run": run, "run_at_dim": rows_last(run)}


class _Positions(NamedTuple):
    """Where the rows of a result are: positions[i] is the position of row i in its innermost sequence of x."""

    lod: LoD
    positions: Tensor
    #: per row of the result: the first row of that sequence, and its length
    first: Tensor
    length: Tensor


def _positional(x, **plain) -> Along | None:
    """The sequences of x if the rows of x are positions, else None. The other arguments must be plain, x floating."""
    if not only_first(x, **plain) or not isinstance(x, LoDTensor) or x.dim() != 2:
        return None
    a_float(x)
    return along(x)


def _lengths(lod: LoD) -> Tensor:
    return lod.row_lengths_at(len(lod.levels) - 1)


def _with_lengths(lod: LoD, lengths: Tensor) -> LoD:
    return LoD.checked("lengths", [*lod.levels[:-1], sums(lengths)], lod.level_names)


def _positions(lod: LoD, lengths: Tensor, start: int = 0, step: int = 1, device=None) -> _Positions:
    """Positions for a result with sequences of these lengths: start, start + step, ... in the sequence of x."""
    new_lod, k = _with_lengths(lod, lengths), len(lod.levels) - 1
    before, after = lod.row_offsets_at(k, device), new_lod.row_offsets_at(k, device)
    positions = ops.run_map(torch.full_like(before[1:], start), after, new_lod.rows, step)
    ends = torch.stack([before[:-1], before.diff()], 1)
    first, length = ops.segment_broadcast(ends, after, new_lod.rows).unbind(1)
    return _Positions(new_lod, positions, first, length)


def _padding(padding, reach: int, stride: int) -> tuple[int, int]:
    if padding == "same":
        if stride != 1:
            raise LoDValueError(f"expected stride 1 with padding='same', got {stride}")
        return reach // 2, reach - reach // 2
    if isinstance(padding, str):
        if padding != "valid":
            raise LoDValueError(f"expected padding as a number, 'same' or 'valid', got {shown(padding)}")
        return 0, 0
    both = one("padding", padding, 0)
    return both, both


def _fitting(rows: Tensor, weight, bias, groups: int, dims: tuple[int, int]):
    """Rows, weight and bias as the operator takes them; `dims`: the dims of weight for the channels of x and of the
    result."""
    an_int("groups >= 1", groups, 1)
    for name, t in (("weight", weight), ("bias", bias)):
        if not isinstance(t, Tensor) and (t is not None or t is weight):
            raise LoDTypeError(f"expected {name} as a tensor, got {type(t).__name__}")
    in_dim, out_dim = dims
    shape = ["out", "in", "size"] if in_dim else ["in", "out", "size"]
    if weight.dim() != 3 or weight.shape[2] < 1 or weight.shape[0] % groups:
        raise LoDValueError(f"expected weight of shape ({', '.join(shape)}), got {tuple(weight.shape)}")
    width = weight.shape[in_dim] * (groups if in_dim else 1)
    if rows.shape[1] != width:
        counted = " (nn.LazyConv1d takes the number of rows for that of channels: nn.Conv1d)" * (width == rows.shape[0])
        raise LoDValueError(f"expected rows of {width} channels, as weight, got {tuple(rows.shape)}{counted}")
    if bias is not None and tuple(bias.shape) != (weight.shape[out_dim] * (1 if in_dim else groups),):
        raise LoDValueError(f"expected a bias per channel of the result, got {tuple(bias.shape)}")
    if (dtype := autocast_dtype(rows.device)) is not None:
        rows, weight, bias = rows.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and (t.dtype != rows.dtype or t.device != rows.device):
            raise LoDTypeError(
                f"expected {name} of {rows.dtype} on {rows.device}, as the rows, got {t.dtype} on {t.device}"
            )
    return rows, weight, bias


def _products(rows: Tensor, kernels: Tensor) -> Tensor:
    """Of every group, rows (groups, rows, k) times a matrix (groups, k, n). Inductor lowers no bmm whose number of rows depends
    on data."""
    if not compiling():
        return torch.bmm(rows, kernels)
    if len(kernels) > 16:
        return (rows.unsqueeze(3) * kernels.unsqueeze(1)).sum(2)
    return torch.stack([x @ w for x, w in zip(rows.unbind(), kernels.unbind())])


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    s = _positional(input, weight=weight, bias=bias)
    if s is None:
        return NotImplemented
    rows, weight, bias = _fitting(s.rows, weight, bias, groups, (1, 0))
    out, width, size = weight.shape
    stride, dilation = one("stride", stride, 1), one("dilation", dilation, 1)
    reach = (size - 1) * dilation
    before, after = _padding(padding, reach, stride)
    longer, lengths = before + after - reach, _lengths(s.lod)
    fits = torch.where(lengths > 0, (lengths + longer - 1).div(stride, rounding_mode="floor") + 1, 0).clamp(min=0)
    if groups == 1 and stride == 1 and longer <= 0:  # one window per row, except perhaps the last rows
        done = ops.segment_conv(rows, weight.permute(2, 1, 0), bias, s.offsets, -before, dilation)
        if longer == 0:
            return s.keep(done)
        new_lod = _with_lengths(s.lod, fits)
        return made(
            ops.gather_runs(done, s.offsets[:-1], new_lod.row_offsets_at(s.k, rows.device), new_lod.rows), new_lod
        )
    targets = _positions(s.lod, fits, -before, stride, rows.device)
    if stride == 1 and longer > 0:
        lengthened(targets.lod, s.lod, longer)
    position = targets.positions[:, None] + dilation * torch.arange(size, device=rows.device)
    row = torch.where((position >= 0) & (position < targets.length[:, None]), position + targets.first[:, None], -1)
    seen = ops.gather_rows(rows, row.flatten()).view(-1, size, groups, width)
    kernels = weight.view(groups, out // groups, width, size).permute(0, 3, 2, 1).flatten(1, 2)
    done = _products(seen.permute(2, 0, 1, 3).flatten(2), kernels).transpose(0, 1).reshape(-1, out)
    return made(done if bias is None else done + bias, targets.lod)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    s = _positional(input, weight=weight, bias=bias)
    if s is None:
        return NotImplemented
    rows, weight, bias = _fitting(s.rows, weight, bias, groups, (0, 1))
    width, out, size = weight.shape
    stride, dilation = one("stride", stride, 1), one("dilation", dilation, 1)
    padding, more = one("padding", padding, 0), one("output_padding", output_padding, 0)
    if more >= max(stride, dilation):
        raise LoDValueError(f"expected output_padding below stride or dilation, got {more}")
    lengths, count = _lengths(s.lod), rows.shape[0]
    longer = (lengths - 1) * stride - 2 * padding + (size - 1) * dilation + more + 1
    new_lod = _with_lengths(s.lod, torch.where(lengths > 0, longer, 0).clamp(min=0))
    offsets, new_offsets = s.offsets, new_lod.row_offsets_at(s.k, rows.device)
    position = ops.run_map(torch.full_like(offsets[1:], -padding), offsets, count, stride)
    position = position[:, None] + dilation * torch.arange(size, device=rows.device)
    first, end = ops.segment_broadcast(torch.stack([new_offsets[:-1], new_offsets[1:]], 1), offsets, count)[
        :, :, None
    ].unbind(1)
    row = torch.where((position >= 0) & (position + first < end), position + first, -1)
    kernels = weight.view(groups, width // groups, out, size).permute(0, 1, 3, 2).flatten(2)
    parts = _products(rows.view(count, groups, width // groups).transpose(0, 1), kernels)
    parts = parts.view(groups, count, size, out).permute(1, 2, 0, 3).reshape(count * size, groups * out)
    summed = ops.scatter_rows(parts, row.flatten(), new_lod.rows)
    return made(summed if bias is None else summed + bias, new_lod)


def _own_pair(pad, dim: int, rank: int) -> tuple:
    """The numbers of F.pad for a dim; none where it is not padded."""
    first = 2 * (rank - 1 - dim)
    return tuple(pad[first : first + 2]) if isinstance(pad, (tuple, list)) and any(pad[first : first + 2]) else ()


def _constant(input, pad, value, dim: int):
    """Rows of `value` before and after those of every sequence, fewer where the number is negative; not around none. `dim`:
    that of the rows in `input`."""
    pair = _own_pair(pad, dim, input.dim())
    if len(pair) != 2 or any(type(n) is not int or abs(n) > 2**20 for n in pair):
        raise LoDValueError(f"expected pad as pairs of numbers up to {2**20}, got {shown(pad)}")
    others = [0 if i // 2 == input.dim() - 1 - dim else n for i, n in enumerate(pad)]
    with_memory(input)
    rows = F.pad(input.values(), others, value=value).movedim(dim, 0)
    lengths = _lengths(input.lod)
    targets = _positions(
        input.lod, torch.where(lengths > 0, lengths + sum(pair), 0).clamp(min=0), -pair[0], device=rows.device
    )
    inside = (targets.positions >= 0) & (targets.positions < targets.length)
    row = torch.where(inside, targets.first + targets.positions, -1)
    return ops.gather_rows(rows.contiguous(), row, value or 0.0).movedim(0, dim), targets.lod


def _pad_at_dim(input, pad, mode="constant", value=None):
    dim = input._provenance.dim if isinstance(input, DerivedTensor) else None
    if dim is None or input._provenance.part is not None:
        return NotImplemented
    if not _own_pair(pad, dim, input.dim()):
        if not compiling():
            return NotImplemented
        return rows_at(F.pad(input.values(), pad, mode, value), input.lod, dim, input._provenance.call)
    if mode == "constant":
        return rows_at(*_constant(input, pad, value, dim), dim, input._provenance.call)
    return rows_last(_padded)(input, pad, mode, value) if dim == input.dim() - 1 else None


def pad(input, pad, mode="constant", value=None):
    """Constant padding is that of any tensor, of every sequence where it pads the rows. So are the other modes, which pad
    rows (rows, channels)."""
    if not only_first(input):
        return NotImplemented
    if mode == "constant":
        if _own_pair(pad, 0, input.dim()):
            return made(*_constant(input, pad, value, 0))
        # Dynamo traces F.pad, which would ask the LoDTensor again
        return made(F.pad(input.values(), pad, mode, value), input.lod) if compiling() else NotImplemented
    return NotImplemented if input.dim() != 2 else _padded(input, pad, mode, value)


def _padded(input, pad, mode, value=None):
    if len(pad) != 2 or any(type(n) is not int or not 0 <= n <= 2**20 for n in pad):
        raise LoDValueError(f"expected pad as the rows before and after, got {tuple(pad)}")
    if mode not in ("reflect", "replicate", "circular"):
        raise LoDValueError(f"expected mode 'constant', 'reflect', 'replicate' or 'circular', got {shown(mode)}")
    if value is not None and value != 0:
        raise LoDValueError(f"expected value with mode 'constant' only, got {shown(value)} with {shown(mode)}")
    s = along(input)
    lengths, most = _lengths(s.lod), max(pad)
    short = (lengths > 0) & (lengths < {"reflect": most + 1, "replicate": 1, "circular": most}[mode])
    for i in failing(short, f"pad: expected sequences long enough for {mode} padding"):
        raise LoDValueError(
            f"expected sequences long enough for {mode} padding of {most} rows, got {int(lengths[i])} in sequence {i}"
        )
    targets = _positions(s.lod, torch.where(lengths > 0, lengths + sum(pad), 0), -pad[0], device=s.rows.device)
    last = targets.length - 1
    if mode == "reflect":
        position = last - (last - targets.positions.abs()).abs()
    elif mode == "replicate":
        position = torch.minimum(targets.positions.clamp(min=0), last)
    else:
        position = targets.positions.remainder(targets.length)
    return made(ops.gather_rows(s.rows, targets.first + position), targets.lod)


class _Windows(NamedTuple):
    """Windows over rows: window w holds the rows `rows[offsets[w] : offsets[w + 1]]` of x and gives row w of the
    result."""

    rows: Tensor
    offsets: Tensor
    #: in host memory, where sizes are known without a sync
    at: _Positions
    size: Tensor


def _windows(s: Along, kernel, stride, padding, dilation, ceil) -> tuple[_Windows, int]:
    kernel = one("kernel_size", kernel, 1)
    stride = one("stride", stride, 1) if stride or stride == 0 else kernel
    padding, dilation = one("padding", padding, 0), one("dilation", dilation, 1)
    span = (kernel - 1) * dilation + 1
    if padding > span // 2:
        raise LoDValueError(f"expected padding of at most half the window, {span // 2}, got {padding}")
    lengths = _lengths(s.lod)
    counts = (lengths + (2 * padding - span + (stride - 1 if ceil else 0))).div(stride, rounding_mode="floor") + 1
    if ceil:  # no window may start in the padding at the end
        counts -= ((counts - 1) * stride >= lengths + padding).to(torch.int64)
    targets = _positions(s.lod, torch.where(lengths > 0, counts, 0).clamp(min=0), -padding, stride)
    skipped = (-targets.positions).clamp(min=0).add(dilation - 1).div(dilation, rounding_mode="floor")
    end = (
        (targets.length - targets.positions)
        .clamp(min=0)
        .add(dilation - 1)
        .div(dilation, rounding_mode="floor")
        .clamp(max=kernel)
    )
    return _cut(s, targets, targets.positions + skipped * dilation, (end - skipped).clamp(min=0), dilation), kernel


def _cut(s: Along, targets: _Positions, start: Tensor, size: Tensor, step: int = 1) -> _Windows:
    window_offsets = sums(size)
    total, device = whole_number(window_offsets[-1]), s.rows.device
    offsets = upload(window_offsets, device)
    rows = ops.run_map(upload(start + targets.first, device), offsets, total, step)
    return _Windows(rows, offsets, targets, size)


def _largest(s: Along, to: _Windows, return_indices: bool, of_none: float):
    seen = ops.gather_rows(s.rows, to.rows)
    if not return_indices:
        return made(ops.segment_reduce(seen, to.offsets, "max", of_none), to.at.lod)
    out, index = ops.segment_extreme(seen, to.offsets, "max", of_none)
    row = ops.gather_rows(to.rows, index.flatten(), -1).view(index.shape) - upload(to.at.first, index.device)[:, None]
    return made(out, to.at.lod), made(torch.where(index < 0, -1, row), to.at.lod)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    s = _positional(input)
    if s is None:
        return NotImplemented
    to, _ = _windows(s, kernel_size, stride, padding, dilation, ceil_mode)
    return _largest(s, to, return_indices, -torch.inf)


def max_pool1d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    """The indices are positions within the sequence."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    s = _positional(input)
    if s is None:
        return NotImplemented
    return made(*_averages(s, s.rows, kernel_size, stride, padding, ceil_mode, count_include_pad))


def _averages(s: Along, rows: Tensor, kernel_size, stride, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of `rows` in every window, and the LoD of the windows."""
    to, kernel = _windows(s, kernel_size, stride, padding, 1, ceil_mode)
    count = to.size
    if count_include_pad:  # the divisor includes padding, but not what ceil_mode adds beyond it
        both = 2 * one("padding", padding, 0)
        count = torch.minimum(to.at.length + both - (to.at.positions + both // 2), torch.full_like(count, kernel))
    total = ops.segment_reduce(ops.gather_rows(rows, to.rows), to.offsets, "sum")
    return total / count.to(total.device, total.dtype)[:, None], to.at.lod


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    s = _positional(input)
    if s is None:
        return NotImplemented
    number("norm_type", norm_type)
    if abs(norm_type) == torch.inf:
        to, _ = _windows(s, kernel_size, stride, 0, 1, ceil_mode)
        sign = 1 if norm_type > 0 else -1
        seen = ops.gather_rows(sign * s.rows.abs(), to.rows)
        return made(sign * ops.segment_reduce(seen, to.offsets, "max", -torch.inf), to.at.lod)
    mean, lod = _averages(s, s.rows.pow(norm_type), kernel_size, stride, ceil_mode=ceil_mode)
    total = mean.sign() * mean.abs().relu() * one("kernel_size", kernel_size, 1)
    return made(total.pow(1.0 / norm_type), lod)


def _bins(s: Along, output_size) -> _Windows:
    """n windows in every sequence: window i from floor(i length / n) to ceil((i + 1) length / n); empty in an empty
    one."""
    n = one("output_size", output_size, 0)
    targets = _positions(s.lod, torch.full_like(_lengths(s.lod), n))
    start = (targets.positions * targets.length).div(max(n, 1), rounding_mode="floor")
    end = ((targets.positions + 1) * targets.length + n - 1).div(max(n, 1), rounding_mode="floor")
    return _cut(s, targets, start, end - start)


def adaptive_avg_pool1d(input, output_size):
    """An empty sequence gives as many rows as any other; they are zeros."""
    s = _positional(input)
    if s is None:
        return NotImplemented
    to = _bins(s, output_size)
    return made(ops.segment_reduce(ops.gather_rows(s.rows, to.rows), to.offsets, "mean"), to.at.lod)


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """An empty sequence gives as many rows as any other; they are zeros, with index -1."""
    s = _positional(input)
    if s is None:
        return NotImplemented
    return _largest(s, _bins(s, output_size), return_indices, 0.0)


def adaptive_max_pool1d_with_indices(input, output_size, return_indices=True):
    return adaptive_max_pool1d(input, output_size, True)


@signature("input, pad")
def padded(func, input, rank, pad, rows):
    """Pairs of numbers from the last dim on."""
    touched = [any(pad[2 * i : 2 * i + 2]) for i in range(len(pad) // 2)]
    own = rank - 1 - rows
    if own < len(touched) and touched[own]:
        raise refusal(func, f"these rows are a part of the batch; {CUT}; {OUT}")
    return True


# -- the rows

for _run in (conv1d, conv_transpose1d, max_pool1d_with_indices, avg_pool1d, lp_pool1d, adaptive_avg_pool1d):
    enter("sequence-wise", windows(1), _run.__name__, **_of_rows(_run))
enter("sequence-wise", windows(1), "max_pool1d", (torch, F), **_of_rows(max_pool1d))
enter("sequence-wise", windows(1), "adaptive_max_pool1d", (F,), **_of_rows(adaptive_max_pool1d))
enter("sequence-wise", windows(1), "adaptive_max_pool1d", (torch,), **_of_rows(adaptive_max_pool1d_with_indices))
enter("sequence-wise", windows(1), "adaptive_max_pool1d_with_indices", **_of_rows(adaptive_max_pool1d_with_indices))
enter("refuse", windows(1), "fractional_max_pool1d fractional_max_pool1d_with_indices")
for _n in (2, 3):
    _pools = f"avg_pool{_n}d max_pool{_n}d adaptive_avg_pool{_n}d adaptive_max_pool{_n}d lp_pool{_n}d"
    _pools += f" max_pool{_n}d_with_indices adaptive_max_pool{_n}d_with_indices"
    _pools += f" fractional_max_pool{_n}d fractional_max_pool{_n}d_with_indices"
    enter("refuse", windows(_n), f"conv{_n}d conv_transpose{_n}d {_pools}")
for _n in (1, 2, 3):
    enter("refuse", windows(_n, "input: broadcast, indices: broadcast"), f"max_unpool{_n}d")
enter("refuse", windows(2), "pixel_shuffle pixel_unshuffle")
enter("refuse", windows(2), "unfold", (F,))
enter("refuse", windows(1), "fold")
enter("keep", windows(1), "interpolate")
enter("refuse", windows(0), "stft")
enter("refuse", windows(1), "istft")
_UNFOLDED = refuse_on_rows("input, dim", f"tl.sequence_unfold has windows within sequences; {OUT}")
enter("refuse", _UNFOLDED, "unfold", (Tensor,))
enter("refuse", _UNFOLDED, "unfold_copy", (torch,))
enter(
    "refuse",
    refuse(f"dim 0 would be the time of all sequences; tl.sequence_conv1d runs within sequences; {OUT}"),
    "conv_tbc",
)
enter(
    "keep",
    row_by_row("input"),
    "convolution cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose "
    "mkldnn_convolution miopen_convolution miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose "
    "miopen_depthwise_convolution",
    (torch,),
)
enter("refuse", SCALED, "conv1d_dynamic", (torch.ops.quantized,))
enter("shape", padded, "pad", run=pad, run_at_dim=_pad_at_dim)
enter("shape", padded, "constant_pad_nd")
