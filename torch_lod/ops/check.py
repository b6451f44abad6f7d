# SPDX-License-Identifier: Apache-2.0
"""The checks of csrc/torch_lod/gate.h and binding.h for the compositions: same rules, same messages."""

import contextlib
import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch._subclasses import FakeTensor

from ..dynamo import constant
from ..errors import own_code


def stands_in(t: Tensor) -> bool:
    """Whether `t` is a tracer's stand-in for a tensor: a subclass with a __torch_dispatch__ of its own."""
    return type(t).__torch_dispatch__ is not Tensor.__torch_dispatch__


def is_batched(t: Tensor) -> bool:
    """Whether `t` is a batch of torch.vmap, whose entries cannot be read."""
    while is_functorch_wrapped_tensor(t):
        if is_batchedtensor(t):
            return True
        t = get_unwrapped(t)
    return False


def is_real(t: Tensor) -> bool:
    """Whether `t` is a tensor with an address: neither a stand-in nor wrapped."""
    return not (t.is_meta or stands_in(t) or is_functorch_wrapped_tensor(t) or torch._is_functional_tensor(t))


def readable(t: Tensor) -> bool:
    """Whether the entries of `t` can be read now: it is neither a stand-in nor wrapped, and no graph of a GPU is being
    captured. The host waits for a GPU: a composition would index out of range there, or loop as far as offsets say."""
    return is_real(t) and (t.device.type == "cpu" or not _captured(t.device))


def _captured(device: torch.device) -> bool:
    """Whether what is enqueued on a GPU is recorded into a graph: then the host must not wait."""
    capturing = getattr(torch.get_device_module(device), "is_current_stream_capturing", None)
    return capturing is not None and capturing()


def too_few_bytes(t: Tensor) -> int | None:
    """The bytes behind a strided tensor if they are too few for it, as after it was freed or resized; otherwise None."""
    if t._is_zerotensor():  # such zeros are stored nowhere
        return 0 if t.numel() else None
    bytes = t.untyped_storage().nbytes()
    if t.is_contiguous():
        return bytes if bytes - t.storage_offset() * t.itemsize < t.numel() * t.itemsize and t.numel() else None
    end = 1 + t.storage_offset() + sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))
    return bytes if bytes < end * t.itemsize and t.numel() else None


def has_no_data(t: Tensor) -> bool:
    """Whether `t` has a shape but no data: then only the shapes of the results matter."""
    return isinstance(t, FakeTensor) or t.is_meta


#: Arguments that are copied, so that no other thread writes to what is checked.
_STRUCTURE = frozenset(
    "row_offsets query_offsets key_offsets label_offsets other_offsets offsets starts map index labels".split()
)


@functools.cache
@constant  # Dynamo knows no schemas
def _names(op: str) -> tuple[str, ...]:
    return tuple(argument.name for argument in getattr(torch.ops.torch_lod, op).default._schema.arguments)


def _passed(op: str, name: str, value):
    """An argument that has passed the gate: every tensor in it is dense and has memory behind it."""
    if isinstance(value, (list, tuple)):
        return [_passed(op, f"{name}[{i}]", t) for i, t in enumerate(value)]
    if not isinstance(value, Tensor):
        return value
    t = value
    while is_functorch_wrapped_tensor(t):
        t = get_unwrapped(t)
    if stands_in(t) or t.is_meta or torch._is_functional_tensor(t):
        return value
    if t.layout != torch.strided or t.is_nested or t.is_quantized:
        kind = "nested" if t.is_nested else "quantized" if t.is_quantized else t.layout
        raise TypeError(f"{op}: expected {name} as a dense tensor, got {kind}")
    if (few := too_few_bytes(t)) is not None:
        raise ValueError(
            f"{op}: expected {name} with memory behind it, got {t.numel()} elements over a storage of {few} bytes"
        )
    return value.clone() if name in _STRUCTURE and t is value else value


def _as_given(args: list) -> contextlib.AbstractContextManager:
    """Where torch's functions compute in the dtypes of their arguments: a region of autocast is the caller's."""
    kind = next((value.device.type for value in args if isinstance(value, Tensor)), None)
    if kind is None or not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return contextlib.nullcontext()
    return torch.autocast(kind, enabled=False)


def gated(function: Callable, op: str) -> Callable:
    """A function that takes an operator's arguments behind the gate that kernels have: all its tensors pass, under the
    names of the schema."""

    def call(*args, **kwargs):
        names = _names(op)
        with torch._C.DisableTorchFunctionSubclass():  # for the function too: a gradient may be given a LoDTensor
            passed = [_passed(op, name, value) for name, value in zip(names, args)]
            named = {name: _passed(op, name, value) for name, value in kwargs.items()}
            with _as_given(passed):
                return function(*passed, *args[len(names) :], **named)

    return functools.wraps(function)(own_code(call, function.__name__))


def dtype_name(dtype: torch.dtype) -> str:
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long"}
    names |= {"int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool"}
    name = str(dtype).removeprefix("torch.")
    return names.get(name, name)


def kind(op: str, name: str, t: Tensor, dtype: torch.dtype, device, like: str = "") -> None:
    if t.dtype != dtype or t.device != device:
        wanted = f"{name} of dtype {dtype_name(dtype)} on {device}{like}"
        raise TypeError(f"{op}: expected {wanted}, got {dtype_name(t.dtype)} on {t.device}")


def has_rows(op: str, name: str, t: Tensor) -> None:
    if t.dim() < 1:
        raise ValueError(f"{op}: expected {name} with at least 1 dimension, got a scalar")


def is_number(op: str, t: Tensor) -> None:
    if t.dtype.is_complex or t.dtype == torch.bool:
        raise TypeError(f"{op}: expected values of a floating or integer dtype, got {dtype_name(t.dtype)}")


def is_floating(op: str, name: str, t: Tensor) -> None:
    if not t.dtype.is_floating_point:
        raise TypeError(
            f"{op}: expected {name} of dtype float16, bfloat16, float32 or float64, got {dtype_name(t.dtype)}"
        )


def index(op: str, name: str, t: Tensor, device) -> None:
    if not isinstance(t, Tensor) or t.layout != torch.strided:
        got = t.layout if isinstance(t, Tensor) else type(t).__name__
        raise TypeError(f"{op}: expected {name} as a dense tensor, got {got}")
    if t.dim() != 1:
        raise ValueError(f"{op}: expected a 1-D {name}, got {t.dim()} dimensions")
    if t.dtype != torch.int64:
        raise TypeError(f"{op}: expected {name} of dtype int64, got {dtype_name(t.dtype)}")
    if t.device != device:
        raise TypeError(f"{op}: expected {name} on {device}, got {t.device}")


def offsets_kind(op: str, t: Tensor, device, name: str = "row_offsets") -> None:
    index(op, name, t, device)
    if t.shape[0] < 1:
        raise ValueError(f"{op}: expected {name} with at least 1 entry, got none")


def find_fault(t: Tensor, end: int) -> tuple[int, int, int, int]:
    """(rule broken, index, value expected or value before, value found). Rules: 0 none, 1 start, 2 order, 3 end (any
    end is right if `end` < 0)."""
    if int(t[0]) != 0:
        return 1, 0, 0, int(t[0])
    falls = (t[1:] < t[:-1]).nonzero()  # a difference could overflow
    if len(falls):
        i = int(falls[0]) + 1
        return 2, i, int(t[i - 1]), int(t[i])
    if end >= 0 and int(t[-1]) != end:
        return 3, len(t) - 1, end, int(t[-1])
    return 0, 0, 0, 0


def offsets(op: str, t: Tensor, rows: int, name: str = "row_offsets", of: str = "values") -> None:
    if not readable(t):
        return
    rule, i, before, here = find_fault(t.cpu(), rows)
    if rule == 1:
        raise ValueError(f"{op}: expected {name} to start at 0, got {here}")
    if rule == 2:
        raise ValueError(f"{op}: expected {name} not to decrease, got {before} then {here} at index {i}")
    if rule == 3:
        raise ValueError(f"{op}: expected the last of {name} to equal the {rows} rows of {of}, got {here} at index {i}")


def segments(op: str, values: Tensor, t: Tensor) -> None:
    has_rows(op, "values", values)
    offsets_kind(op, t, values.device)


def as_many_sequences(op: str, name: str, t: Tensor, row_offsets: Tensor) -> None:
    if t.shape != row_offsets.shape:
        raise ValueError(
            f"{op}: expected as many sequences of {name} as of values, {row_offsets.shape[0] - 1}, got {t.shape[0] - 1}"
        )


def row_map(op: str, name: str, t: Tensor, rows: int) -> None:
    if not readable(t):
        return
    bad = ((t < -1) | (t >= rows)).nonzero()
    if len(bad):
        i = int(bad[0])
        raise IndexError(f"{op}: expected {name} in [-1, {rows - 1}], got {int(t[i])} at index {i}")


def row_per_segment(op: str, values: Tensor, t: Tensor) -> None:
    if values.shape[0] != t.shape[0] - 1:
        raise ValueError(f"{op}: expected a row of values per segment, {t.shape[0] - 1}, got {values.shape[0]}")


def layer(op: str, blocks: int, values, weight_ih, weight_hh, row_offsets, **others: Tensor | None) -> None:
    """The tensors of one direction of one recurrent layer."""
    if values.dim() != 2:
        raise ValueError(f"{op}: expected values of shape (rows, features), got {values.dim()} dimensions")
    is_floating(op, "values", values)
    offsets_kind(op, row_offsets, row_offsets.device if values.is_meta and row_offsets.is_meta else torch.device("cpu"))
    if weight_hh.dim() != 2:
        raise ValueError(f"{op}: expected weight_hh with 2 dimensions, got {weight_hh.dim()}")
    hidden = state = weight_hh.shape[1]
    projection = others.get("weight_hr")
    if projection is not None:  # h has fewer columns than there are hidden units
        if projection.dim() != 2:
            raise ValueError(f"{op}: expected weight_hr with 2 dimensions, got {projection.dim()}")
        hidden = projection.shape[1]
    shapes: dict[str, tuple]
    rows, sequences, bias = values.shape[0], row_offsets.shape[0] - 1, (blocks * hidden,)
    shapes = {"weight_ih": (blocks * hidden, values.shape[1]), "weight_hh": (blocks * hidden, state)}
    shapes |= {"weight_hr": (state, hidden), "bias_ih": bias, "bias_hh": bias}
    shapes |= {"h_0": (sequences, state), "c_0": (sequences, hidden), "grad_output": (rows, state)}
    shapes |= {"output": (rows, state), "grad_cells": (rows, hidden), "cells": (rows, hidden)}
    shapes |= {"gates": (rows, 4 * hidden), "saved": (rows, 4 * hidden)}
    for name, t in {"weight_ih": weight_ih, "weight_hh": weight_hh, **others}.items():
        if t is None:
            continue
        kind(op, name, t, values.dtype, values.device, ", as values")
        if tuple(t.shape) != shapes[name]:
            raise ValueError(f"{op}: expected {name} of shape {list(shapes[name])}, got {list(t.shape)}")
    offsets(op, row_offsets, values.shape[0])


def chain(op: str, values: Tensor, transition: Tensor, row_offsets: Tensor, **given: Tensor) -> None:
    """The tensors of a chain, and what its backward is given besides."""
    segments(op, values, row_offsets)
    is_floating(op, "values", values)
    if values.dim() != 2:
        raise ValueError(f"{op}: expected values of shape (rows, tags), got {list(values.shape)}")
    _transition(op, values, transition)
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    for name, t in given.items():
        kind(op, name, t, values.dtype if name == "grad" else wide, values.device, "")
        if name == "grad" and tuple(t.shape) != (row_offsets.shape[0] - 1,):
            sequences = row_offsets.shape[0] - 1
            raise ValueError(
                f"{op}: expected grad with an entry for each of {sequences} sequences, got shape {list(t.shape)}"
            )
        if name == "state" and t.shape != values.shape:
            raise ValueError(f"{op}: expected state of shape {list(values.shape)}, got {list(t.shape)}")
    offsets(op, row_offsets, values.shape[0])


def _transition(op: str, values: Tensor, transition: Tensor) -> None:
    tags = values.shape[1]
    if tags < 1:
        raise ValueError(f"{op}: expected at least 1 tag, got {tags}")
    kind(op, "transition", transition, values.dtype, values.device, "")
    if tuple(transition.shape) != (tags + 2, tags):
        raise ValueError(
            f"{op}: expected transition of shape (tags + 2, tags) with {tags} tags, got {list(transition.shape)}"
        )


def chain_sample(op: str, state: Tensor, transition: Tensor, row_offsets: Tensor, uniform: Tensor) -> None:
    has_rows(op, "state", state)
    offsets_kind(op, row_offsets, state.device)
    if state.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{op}: expected state of dtype float32 or float64, got {dtype_name(state.dtype)}")
    if state.dim() != 2:
        raise ValueError(f"{op}: expected state of shape (rows, tags), got {list(state.shape)}")
    _transition(op, state, transition)
    kind(op, "uniform", uniform, state.dtype, state.device, "")
    if uniform.dim() != 2 or uniform.shape[0] != state.shape[0]:
        raise ValueError(
            f"{op}: expected uniform of shape (rows, n) with {state.shape[0]} rows, got {list(uniform.shape)}"
        )
    offsets(op, row_offsets, state.shape[0])


def count(op: str, n, tags) -> None:
    if not 1 <= n <= 2**16:
        raise ValueError(f"{op}: expected n in [1, 65536], got {n}")
    if tags * n >= 2**31:
        raise ValueError(f"{op}: expected tags times n below 2**31, got {tags} tags and n = {n}")


def row_count(op: str, rows) -> None:
    if isinstance(rows, torch.SymInt):
        torch._check(rows >= 0)
    elif rows < 0:
        raise ValueError(f"{op}: expected rows >= 0, got {rows}")


def start_per_segment(op: str, starts: Tensor, row_offsets: Tensor, device) -> None:
    index(op, "starts", starts, device)
    offsets_kind(op, row_offsets, device)
    segments = row_offsets.shape[0] - 1
    if starts.shape[0] != segments:
        raise ValueError(f"{op}: expected one of starts per segment, {segments}, got {starts.shape[0]}")


def window_size(op: str, size) -> None:
    if not 1 <= size <= 2**20:
        raise ValueError(f"{op}: expected size in [1, 2**20], got {size}")


def far_end(op: str, start, size, dilation) -> None:
    """Where a window ends: there, looked at from the other side, the gradient's windows begin."""
    far = start + (size - 1) * dilation
    if not -(2**40) <= far <= 2**40:
        raise ValueError(f"{op}: expected start + (size - 1) * dilation in [-2**40, 2**40], got {far}")


def runs(op: str, starts: Tensor, row_offsets: Tensor, step: int, there) -> None:
    if not readable(starts):
        return
    for i, (start, length) in enumerate(zip(starts.tolist(), row_offsets.diff().tolist(), strict=True)):
        low = start if step > 0 else start - length + 1
        if length and not 0 <= low <= there - length:
            raise IndexError(
                f"{op}: expected runs within [0, {there}), got {length} rows from {start} "
                f"{'up' if step > 0 else 'down'} at index {i}"
            )
