# SPDX-License-Identifier: Apache-2.0
"""Windows: every row with its neighbours. A window never sees a row of another sequence."""

from typing import Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..dynamo import compiling, whole_number
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.lod import LoD
from ..structure.partition import Runs, computed_there, uploaded_runs
from ..structure.validate import a_bool, a_float, an_int, integer, one_of, sums, with_memory
from ..tensor.lod_tensor import LoDTensor, made
from .operator import Along, along, as_autocast, in_autocast, sequence_operator

__all__ = ["sequence_conv1d", "sequence_unfold"]


def with_features(values: Tensor) -> Tensor:
    if values.dim() != 2:
        raise LoDValueError(f"expected x of shape (rows, features), got {tuple(values.shape)}")
    a_float(values)
    return values


def a_weight(t, shape: str, fits) -> None:
    if not isinstance(t, Tensor):
        raise LoDTypeError(f"expected weight as a tensor, got {type(t).__name__}")
    without_rows("weight", t)
    if not fits(t):
        raise LoDValueError(f"expected weight of shape {shape}, got {tuple(t.shape)}")


def without_rows(what: str, t) -> None:
    """TypeError for a LoDTensor where a weight is meant, which is the same for all sequences."""
    if isinstance(t, LoDTensor):
        raise LoDTypeError(f"expected {what} as a plain tensor, got a LoDTensor; if it is meant, pass its .values()")


def of_shape(what: str, t, shape: tuple, x: Tensor) -> Tensor:
    """A tensor of the given shape, with the dtype and device of x."""
    if not isinstance(t, Tensor):
        raise LoDTypeError(f"expected {what} as a tensor, got {type(t).__name__}")
    if t.shape != shape:
        raise LoDValueError(f"expected {what} of shape {shape}, got {tuple(t.shape)}")
    dtype, device = x.dtype, x.device
    if t.dtype != dtype:
        t = as_autocast(t, x)
    if t.dtype != dtype or t.device != device:
        raise LoDTypeError(f"expected {what} of {dtype} on {device}, as x, got {t.dtype} on {t.device}")
    return t


@overload
def sequence_conv1d(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor | None = ...,
    *,
    dilation: int = ...,
    padding: str = ...,
    groups: int = ...,
    initial: Tensor | None = ...,
    return_state: Literal[False] = ...,
    level: int | str = ...,
) -> LoDTensor: ...
@overload
def sequence_conv1d(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor | None = ...,
    *,
    dilation: int = ...,
    padding: str = ...,
    groups: int = ...,
    initial: Tensor | None = ...,
    return_state: Literal[True],
    level: int | str = ...,
) -> tuple[LoDTensor, Tensor]: ...


@sequence_operator
def sequence_conv1d(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    dilation: int = 1,
    padding: str = "same",
    groups: int = 1,
    initial: Tensor | None = None,
    return_state: bool = False,
    level: int | str = -1,
) -> LoDTensor | tuple[LoDTensor, Tensor]:
    """`torch.nn.functional.conv1d` along every sequence of a level, each padded with zeros.

    Equivalent to (padding "same"):
        torch.cat([F.conv1d(rows.t()[None], weight, bias, 1, "same", dilation, groups)[0].t() for rows in x.sequences(level)])

    Args:
        x: (rows, features), a floating dtype.
        weight: (out, features / groups, size), as conv1d's.
        bias: (out,).
        padding: "same": the window is centred on the row (with an even size, one row more after it than before it).
            "causal": the window ends at the row.
        groups: a divisor of features and of out.
        initial: with "causal", (sequences, (size - 1) * dilation, features): the rows before the first one of every
            sequence, instead of zeros.
        return_state: with "causal", return also the last (size - 1) * dilation rows of every sequence, those before its
            first one among them, as initial for what follows.

    Returns:
        (rows, out), with the LoD of x, or a pair of it and the state. Gradients reach x, weight, bias and initial; empty
        sequences have no windows.

    Raises:
        ValueError, TypeError: where the shape, dtype or device of an argument does not fit.

    Source: torch.nn.functional.conv1d, sequence by sequence, with stride 1.
    """
    s = along(x, level)
    values = in_autocast(with_features(s.rows))
    width = values.shape[1]
    dilation = integer("dilation", dilation, most=2**20)
    if type(groups) is not int or groups < 1 or width % groups:
        raise LoDValueError(f"expected groups that divide the {width} features of x, got {shown(groups)}")
    one_of("padding", padding, "same", "causal")
    shape = f"(out, {width // groups}, size), size at least 1, out a multiple of {groups}"
    a_weight(weight, shape, lambda w: w.dim() == 3 and w.shape[0] % groups == 0 and w.shape[2] > 0)
    out, _, size = weight.shape
    weight = of_shape("weight", weight, (out, width // groups, size), values)
    if bias is not None:
        without_rows("bias", bias)
        bias = of_shape("bias", bias, (out,), values)
    reach = (size - 1) * dilation
    start = -reach if padding == "causal" else -(reach // 2)
    a_bool("return_state", return_state)
    if initial is None and not return_state:
        return s.keep(_windows_times(values, weight, bias, s.offsets, start, dilation, groups))
    if padding != "causal":
        raise LoDValueError(f"expected initial and return_state with padding 'causal', got {shown(padding)}")
    state = s.lod.num_sequences(s.k), reach, width
    if initial is None:
        initial = values.new_zeros(state)
    without_rows("initial", initial)
    initial = of_shape("initial", initial, state, values)
    # every sequence behind its state; the results of the rows of states are left out
    before = torch.arange(state[0] + 1, device=values.device) * reach
    rows = ops.segment_concat(initial.flatten(0, 1), before, values, s.offsets)
    offsets = computed_there(s.offsets + before, rows.shape[0])
    done = _windows_times(rows, weight, bias, offsets, start, dilation, groups)
    result = s.keep(ops.gather_runs(done, offsets[:-1] + reach, s.offsets, values.shape[0]))
    if not return_state:
        return result
    last = offsets[1:, None] - reach + torch.arange(reach, device=values.device)
    return result, rows[last]


def _windows_times(
    rows: Tensor, weight: Tensor, bias, offsets: Tensor, start: int, dilation: int, groups: int
) -> Tensor:
    """The convolution, of rows that are not padded."""
    if groups == 1:
        return ops.segment_conv(rows, weight.permute(2, 1, 0), bias, offsets, start, dilation)
    (out, width, size), count = weight.shape, rows.shape[0]
    seen = ops.segment_unfold(rows, offsets, size, start, dilation)
    if width == 1 and out == groups:
        done = (seen * weight.squeeze(1).t()).sum(1)
    else:
        parts = seen.view(count, size, groups, width).permute(2, 0, 1, 3).flatten(2)
        kernels = weight.view(groups, out // groups, width, size).permute(0, 3, 2, 1).flatten(1, 2)
        done = torch.bmm(parts, kernels).transpose(0, 1).reshape(count, out)
    return done if bias is None else done + bias


@sequence_operator
def sequence_unfold(x: LoDTensor, size: int, step: int = 1, *, level: int | str = -1) -> LoDTensor:
    """The windows of `size` rows that lie within a sequence of a level, `step` rows apart.

    Equivalent to:
        torch.cat([rows.unfold(0, size, step).movedim(-1, 1) for rows in x.sequences(level)])

    Args:
        x: (rows, *element), of any dtype.
        size, step: at least 1 (ValueError).

    Returns:
        (windows, size, *element), with the levels above and a level that counts windows; a sequence shorter than size
        has none. The gradient sums over the windows that hold a row.

    Source: torch.Tensor.unfold, sequence by sequence.
    """
    s = along(x, level)
    size = integer("size", size, most=2**20)
    step = integer("step", step, most=2**20)
    offsets, names = s.lod.row_offsets_at(s.k), s.lod.level_names
    counts = offsets.diff().sub_(size - step).clamp_(min=0)
    windows = sums(counts if step == 1 else counts // step)
    count = whole_number(windows[-1])
    lod = LoD.checked("offsets", [*s.lod.levels[: s.k], windows], names and names[: s.k + 1], count)
    if step == 1 and s.rows.is_cpu and not compiling() and 2 * count > s.lod.rows:
        # cheaper than a run per window: one from every row, and without those that reach behind the end of a sequence
        whole = uploaded_runs(Runs(offsets[:-1], windows), s.rows, count)

        def unfolded(rows: Tensor) -> Tensor:
            return ops.gather_runs(ops.segment_unfold(rows, s.offsets, size, 0), *whole, count)
    else:

        def structure():
            start = ops.run_map(offsets[:-1], windows, count, step)
            return lod, Runs(start, torch.arange(count + 1, device="cpu") * size)

        lod, runs = s.lod.moves(("unfold", s.k, size, step), structure, s.rows)

        def unfolded(rows: Tensor) -> Tensor:
            return ops.gather_runs(rows, *runs, count * size).view(count, size, *rows.shape[1:])

    counted = x._lod.counted if isinstance(x, LoDTensor) else ()  # s.lod does not know any more which rows they are
    return made(unfolded(s.rows), lod.counting(*map(unfolded, counted)))


# -- with a context, for tl.nn and for Paddle's operators


def context_conv(
    x: LoDTensor, weight: Tensor, context_length, context_start, bias: Tensor | None, padding_data, level
) -> LoDTensor:
    """`tl.sequence_conv`."""
    s = along(x, level)
    if padding_data is None and not compiling() and not torch._C._is_any_autocast_enabled():
        if (out := _as_they_are(s, weight, context_length, context_start, bias)) is not None:
            return s.keep(out)
    values = in_autocast(with_features(s.rows))
    n = integer("context_length", context_length, most=2**20)
    start = -(n // 2) if context_start is None else context_start
    an_int("context_start within 2**20", start, -(2**20), 2**20)
    width = values.shape[1]
    a_weight(weight, "(context_length * features, out)", _is_matrix)
    channels = weight.shape[1]
    weight = of_shape("weight", weight, (n * width, channels), values)
    if bias is not None:
        without_rows("bias", bias)
        bias = of_shape("bias", bias, (channels,), values)
    dtype, before, after = values.dtype, max(0, -start), max(0, start + n - 1)
    if padding_data is not None:  # the sum of two products is rounded once
        without_rows("padding_data", padding_data)
        padding_data = of_shape("padding_data", padding_data, (before + after, width), values)
        values, weight, padding_data = map(_exact, (values, weight, padding_data))
        bias = None if bias is None else _exact(bias)
    shaped = weight if width else weight.reshape(n, 0, channels)
    out = ops.segment_conv(values, shaped, bias, s.offsets, start)
    if padding_data is not None:
        out = out + _padding_seen(s, n, start, before, padding_data).flatten(1) @ weight
    return s.keep(out.to(dtype))


def _exact(t: Tensor) -> Tensor:
    """In float32 at least, for what is rounded to a half type at the end."""
    return t.to(torch.promote_types(t.dtype, torch.float32))


def _as_they_are(s: Along, weight, n, start, bias) -> Tensor | None:
    """sequence_conv of arguments in which the operator finds nothing wrong; None if there is more to do or to say."""
    try:
        start, (rows, _) = -(n // 2) if start is None else start, weight.shape
        if not (bias is None or isinstance(bias, Tensor)):
            return None
        if type(n) is type(start) is int and abs(start) <= 2**20 and rows == n * s.rows.shape[1]:
            return ops.segment_conv(s.rows, weight, bias, s.offsets, start)
    except (AttributeError, IndexError, TypeError, ValueError):
        pass
    return None


def _is_matrix(t: Tensor) -> bool:
    return t.dim() == 2


def _padding_seen(s: Along, n: int, start: int, before: int, padding: Tensor) -> Tensor:
    """(rows, n, features): the rows of `padding` that a context sees outside its sequence, zeros inside."""
    rows, device = s.rows.shape[0], s.rows.device
    row = torch.arange(rows, device=device)[:, None] + start + torch.arange(n, device=device)
    first, last = s.spread(s.offsets[:-1])[:, None], s.spread(s.offsets[1:])[:, None]
    at = torch.where(row < first, before + row - first, torch.where(row >= last, before + row - last, -1))
    return ops.gather_rows(padding, at.flatten()).view(rows, n, padding.shape[1])


def ahead_conv(x: LoDTensor, weight: Tensor, level: int | str) -> LoDTensor:
    """`tl.row_conv`."""
    s = along(x, level)
    values = with_features(s.rows)
    a_weight(weight, f"(context, {values.shape[1]})", lambda w: w.dim() == 2 and w.shape[0] > 0)
    weight = of_shape("weight", weight, (weight.shape[0], values.shape[1]), values)
    with_memory(weight)
    ahead = torch.arange(weight.shape[0], device=values.device)
    at = torch.arange(values.shape[0], device=values.device)[:, None] + ahead
    inside = at < s.spread(s.offsets[1:])[:, None]
    factors = torch.where(inside[..., None], _exact(weight), 0)  # an infinite one would make NaN of what is not there
    seen = ops.segment_unfold(_exact(values), s.offsets, weight.shape[0], 0)
    return s.keep((seen * factors).sum(1).to(values.dtype))
