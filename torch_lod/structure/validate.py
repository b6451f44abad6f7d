# SPDX-License-Identifier: Apache-2.0
"""Checks what users give as structure (lists, arrays, tensors), and copies it into host memory."""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..dynamo import compiling, known
from ..errors import LoDError, LoDTypeError, LoDValueError, named, shown, without_dispatch
from ..ops.check import is_batched, stands_in, too_few_bytes

R = TypeVar("R")

_HOST = torch.device("cpu")
#: The least and the greatest number of every dtype of integers.
_WHOLE = {
    dtype: (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    for dtype in (
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    )
}


def unmasked(what: str, given):
    """What is given; ValueError for an array some of whose elements are masked: torch, and much of numpy, take their numbers."""
    if isinstance(given, np.ma.MaskedArray) and (hidden := int(np.ma.count_masked(given))):
        raise LoDValueError(f"expected {what} without masked elements, got {hidden} of them; see .filled()")
    return given


def host_integers(what: str, data) -> Tensor:
    """A copy of `data` as a contiguous 1-D int64 tensor in host memory; TypeError or ValueError for anything else."""
    if isinstance(data, Tensor):
        return _from_tensor(what, data)
    if isinstance(data, np.ndarray) and compiling():  # Dynamo treats arrays as tensors
        return _from_tensor(what, torch.as_tensor(data))
    if isinstance(data, np.ndarray):
        if data.dtype.kind not in "iu":
            raise LoDTypeError(f"expected {what} of an integer dtype, got a numpy array of {data.dtype}")
        if data.ndim != 1:
            raise LoDValueError(f"expected {what} with 1 dimension, got {data.ndim}")
        if data.dtype == np.uint64 and data.size and int(data.max()) > 2**63 - 1:
            raise LoDValueError(f"expected {what} below 2**63, got {int(data.max())}")
        return torch.from_numpy(np.array(unmasked(what, data), dtype=np.int64, order="C", copy=True))
    if isinstance(data, (list, tuple, range)):
        if all(type(value) is int for value in data):
            entries = data
        else:
            entries = [whole(f"{what}[{i}]", value) for i, value in enumerate(data)]
        try:
            if not compiling():  # by way of an array: a quarter of the time
                return torch.from_numpy(np.array(entries, dtype=np.int64))
            return torch.tensor(entries, dtype=torch.int64, device=_HOST)
        except (RuntimeError, OverflowError, ValueError):
            for i, value in enumerate(entries):
                if not -(2**63) <= value < 2**63:
                    raise LoDValueError(f"expected {what} within int64, got {shown(value)} at index {i}") from None
            raise  # no memory
    raise LoDTypeError(f"expected {what} as a list, array or tensor of integers, got {type(data).__name__}")


def integers_to_copy(what: str, data) -> Tensor:
    """`host_integers` for an operator that copies what it takes: a tensor that is already like that is returned itself."""
    if type(data) is not Tensor or compiling() or data.layout != torch.strided or not data.is_cpu or is_batched(data):
        return host_integers(what, data)
    return data if data.dtype == torch.int64 and data.dim() == 1 else host_integers(what, data)


def whole(what: str, value) -> int:
    if type(value) is int:
        return value
    with_memory(value)
    if not isinstance(value, (bool, np.bool_)) and not (isinstance(value, Tensor) and value.dtype == torch.bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise LoDTypeError(f"expected {what} to be an integer, got {shown(value)}")


def an_int(
    expected: str, value, least: float = -math.inf, most: float = math.inf, error: type[LoDError] = LoDValueError
) -> int:
    """An int, not a bool, within [least, most]; `expected` are the words of the error."""
    if type(value) is not int or not least <= value <= most:
        raise error(f"expected {expected}, got {shown(value)}")
    return value


def integer(what: str, value, least: int = 1, most: int = 2**31) -> int:
    """An integer within [least, most], also one of numpy's or in a tensor without dims."""
    value = as_int(value)
    if type(value) is not int or not least <= value <= most:
        bound = f"2**{most.bit_length() - 1}" if most > 2**10 and most & (most - 1) == 0 else most
        raise LoDValueError(f"expected {what} in [{least}, {bound}], got {shown(value)}")
    return value


def is_int(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def as_int(value):
    """An integer of numpy's or in a tensor without dims, which stands for an int, as an int; anything else as it is."""
    if type(value) is int or value is None or compiling():
        return value
    if isinstance(value, np.integer) or (isinstance(value, Tensor) and value.dtype in _WHOLE and value.dim() == 0):
        with_memory(value)
        return operator.index(value)
    return value


def number(what: str, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LoDTypeError(f"expected {what} as a number, got {shown(value)}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise LoDValueError(f"expected {what} as a float or within int64, got {shown(value)}")
    return value


def probability(what: str, value) -> None:
    number(what, value)
    if not 0 <= value <= 1:
        raise LoDValueError(f"expected {what} in [0, 1], got {value}")


def a_bool(what: str, value, said: str = "as a bool") -> bool:
    if type(value) is not bool:
        raise LoDTypeError(f"expected {what} {said}, got {shown(value)}")
    return value


def one_of(what: str, value, *words: str) -> None:
    if value not in words:
        *others, last = map(repr, words)
        raise LoDValueError(f"expected {what} {', '.join(others)} or {last}, got {shown(value)}")


def a_level(level) -> None:
    """A number or a name, which may not be one of the LoD's: that is seen later."""
    if not isinstance(level, (int, str)) or isinstance(level, bool):
        raise LoDTypeError(f"expected level as an int or a name, got {shown(level)}")


def a_float(x: Tensor, what: str = "x") -> None:
    if not x.is_floating_point():
        raise LoDTypeError(f"expected {what} of a floating dtype, got {x.dtype}; see {what}.float()")


def whole_dtype(what: str, t: Tensor) -> None:
    if t.dtype.is_floating_point or t.dtype.is_complex or t.dtype == torch.bool:
        raise LoDTypeError(f"expected {what} of an integer dtype, got {t.dtype}")


def filler(what: str, value, dtype: torch.dtype):
    """A number that rows of a dtype can be filled with."""
    if not isinstance(value, (int, float)) or (isinstance(value, bool) and dtype != torch.bool):
        raise LoDTypeError(f"expected {what} as a number, got {shown(value)}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:  # torch takes no larger one
        raise LoDValueError(f"expected {what} within int64 or as a float, got {shown(value)}")
    bounds = _WHOLE.get(dtype)
    if bounds is not None and (value != value // 1 or not bounds[0] <= value <= bounds[1]):
        raise LoDValueError(f"expected a whole {what} within {dtype}, got {shown(value)}")
    return value


def traverse(what: str, function: Callable[[Any], R], tree) -> R:
    """function(tree) for a recursive function and nested containers of the user's; ValueError for a container that contains
    itself, and for more nesting than Python's stack has room for."""
    if compiling():
        return function(tree)
    try:
        return function(tree)
    except RecursionError:
        found = _too_deep(tree)
        if found is None:  # raised by code of the user's
            raise
    raise LoDValueError(f"expected {what} without cycles and without very deep nesting, got {found}")


def _too_deep(tree) -> str | None:
    """Why recursion over nested containers has no end, or a late one."""
    depth = {id(tree): 0}  # of the containers on the path from the outermost one
    done: dict[int, Any] = {}  # keeps them alive, so that no id is reused
    path, deepest = [(tree, iter(_inside(tree)))], 0
    while path:
        container, rest = path[-1]
        for item in rest:
            if id(item) in depth:
                return f"a {type(item).__name__} that contains itself"
            if id(item) not in done and (inside := _inside(item)):
                depth[id(item)] = len(path)
                path.append((item, iter(inside)))
                break
        else:
            deepest = max(deepest, len(path))
            del depth[id(container)]
            done[id(container)] = container
            path.pop()
    return f"{deepest} nestings" if deepest > 100 else None


def _inside(container) -> list:
    if isinstance(container, Mapping):
        return list(container.values())
    if isinstance(container, (list, tuple)):
        return list(container)
    if isinstance(container, np.ndarray) and container.dtype == object:
        return container.reshape(-1).tolist()
    if dataclasses.is_dataclass(container) and not isinstance(container, type):
        return [getattr(container, field.name, None) for field in dataclasses.fields(container)]
    return []


def padded_rows(sizes: Sequence[int], width: int = 1) -> int:
    """The rows of a padded tensor; ValueError if its numbers, `width` per row, are too many to count."""
    if compiling():  # asks size by size: torch does not see which factor of a product is 0
        return 0 if any(known(size == 0) for size in sizes) else math.prod(sizes)
    if math.prod(max(1, size) for size in (*sizes, width)) >= 2**63:
        raise LoDValueError(
            f"expected a padded tensor of less than 2**63 numbers, got {sizes[0]} sequences padded to {math.prod(sizes[1:])} "
            f"rows of {width}"
        )
    return math.prod(sizes)


def _not_batched(what: str, data: Tensor) -> None:
    """What a structure is made of: one LoD cannot be that of all entries of a batch."""
    if not compiling() and is_batched(data):
        raise LoDValueError(
            f"expected {what} that can be read, got a batch of torch.vmap: every entry would have a structure of its own; "
            f"loop over the batch instead"
        )


def dense_with_data(what: str, data: Tensor) -> None:
    """TypeError for a tensor whose elements cannot be read one by one."""
    if data.layout != torch.strided or data.is_quantized or data.is_meta:
        kind = "meta tensor" if data.is_meta else f"{'quantized' if data.is_quantized else data.layout} tensor"
        raise LoDTypeError(f"expected {what} as a dense tensor with data, got a {kind}")


def _from_tensor(what: str, data: Tensor) -> Tensor:
    dense_with_data(what, data)
    a_plain_tensor(what, data)
    _not_batched(what, data)
    whole_dtype(what, data)
    if data.dim() != 1:
        raise LoDValueError(f"expected {what} with 1 dimension, got {data.dim()}")
    with without_dispatch():
        with_memory(data)
        host = data.to(_HOST, torch.int64, copy=True, memory_format=torch.contiguous_format)
        if not (data.is_cpu or compiling()):
            torch.ops.torch_lod.check_errors(False)  # the GPU has been waited for
        if data.dtype == torch.uint64 and bool((host < 0).any()):
            i = int((host < 0).nonzero()[0])
            raise LoDValueError(f"expected {what} below 2**63, got {int(host[i]) + 2**64} at index {i}")
    return host if type(host) is Tensor else host.as_subclass(Tensor)


def with_memory(*values) -> None:
    """ValueError if there is a tensor whose storage is too small for it, as one is that was freed or resized: torch's own
    functions read it all the same. Raw operators check their arguments; functions made of torch's call this."""
    if compiling():
        return
    with without_dispatch():
        for t in values:
            if isinstance(t, Tensor) and not stands_in(t):
                try:
                    few = too_few_bytes(t)
                except (NotImplementedError, RuntimeError):  # sparse, or of a transform
                    continue
                if few is not None:
                    raise LoDValueError(
                        f"expected tensors with memory behind them, got one of {t.numel()} elements over a storage of "
                        f"{few} bytes"
                    )


def a_plain_tensor(what: str, t: Tensor, call: str | None = None) -> Tensor:
    """The tensor; TypeError for a subclass that dispatches for itself: torch makes no LoDTensor of it."""
    if type(t) is not Tensor and not compiling() and stands_in(t):
        error = LoDTypeError(
            f"expected {what} as a plain tensor, got a {type(t).__name__}, which has a __torch_dispatch__; pass the tensor inside "
            "it, and make LoDTensors outside of FakeTensorMode (for shapes alone, on device='meta')"
        )
        raise error if call is None else named(error, call)
    return t


def with_data(what: str, t: Tensor) -> Tensor:
    """The tensor; TypeError for a tensor whose entries cannot be read, where the sizes of the result depend on them."""
    a_plain_tensor(what, t)
    _not_batched(what, t)
    if t.is_meta:
        raise LoDTypeError(
            f"expected {what} with data, got a meta tensor: the sizes of the result depend on its entries"
        )
    return t


def host_levels(what: str, levels) -> list[Tensor]:
    if not isinstance(levels, (list, tuple)):
        hint = ""
        if isinstance(levels, (Tensor, np.ndarray)):
            hint = f"; for one level write [{what}]"
        raise LoDTypeError(f"expected {what} as a list with one entry per level, got {type(levels).__name__}{hint}")
    if len(levels) == 0:
        raise LoDValueError(f"expected {what} of at least 1 level, got none; without structure use a plain tensor")
    if any(isinstance(level, (int, np.integer)) and not isinstance(level, bool) for level in levels):
        raise LoDTypeError(f"expected {what} as a list with one entry per level, got a flat list; write [{what}]")
    return [host_integers(f"{what}[{k}]", level) for k, level in enumerate(levels)]


def sums(lengths: Tensor) -> Tensor:
    if compiling():  # compiled code does not write into part of a tensor
        return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    _not_batched("lengths", lengths)
    offsets = lengths.new_zeros(lengths.numel() + 1)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


def level_names_of(names, depth: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, (list, tuple)):
        raise LoDTypeError(f"expected level_names as a list of {depth} names, got {shown(names)}")
    for name in names:
        if name is not None and not (isinstance(name, str) and name):
            raise LoDTypeError(f"expected level_names of non-empty strings, got {shown(name)}")
    given = [name for name in names if name is not None]
    if len(names) != depth or len(set(given)) != len(given):
        raise LoDValueError(f"expected level_names with {depth} different names, got {shown(tuple(names))}")
    return tuple(names) if given else None
