# SPDX-License-Identifier: Apache-2.0
"""The transforms of torch.func give a LoDTensor, and rows at another dim, to the function that they transform.

`torch.func.grad(f)(x)` calls f with a wrapper of x. Wrappers are made in C++, of the class torch.Tensor: f would run
across sequences and nobody would notice. torch has no hook for a subclass there: a LoDTensor cannot be a node of a
pytree, because the transforms mark the leaves of its pytree as inputs, and those would be other tensors than the one
that f is called with. So the functions that wrap and unwrap are replaced where the transforms look them up. They do the
same as before for every plain tensor.
"""

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import eager_transforms, vmap
from torch.autograd import forward_ad

from .errors import LoDValueError, named, without_policy
from .moved_rows import remarked
from .torch_rules import Mark, mark_of


def _into(wrap: Callable) -> Callable:
    """Enters a level: the wrapper knows about rows what the tensor does."""

    @functools.wraps(wrap)
    def wrapped(x, *args, **kwargs):
        return remarked(wrap(x, *args, **kwargs), mark_of(x))

    return wrapped


def _out_of(unwrap: Callable) -> Callable:
    """Leaves a level. Here no operator may run, not even a view: its result would be another wrapper."""

    @functools.wraps(unwrap)
    def unwrapped(x, *args, **kwargs):
        outside = unwrap(x, *args, **kwargs)
        return remarked(outside, mark_of(x)) if mark_of(outside) is None else outside

    return unwrapped


def _dual(make: Callable) -> Callable:
    """Joins a tensor and its tangent, whose rows correspond."""

    @functools.wraps(make)
    def dual(tensor, tangent, **kwargs):
        mark, other = mark_of(tensor), mark_of(tangent)
        if mark is not None and other is not None and mark.lod.differs(other.lod):
            said = (
                f"expected a tangent with the LoD of the tensor, got one that differs: {mark.lod.difference(other.lod)}"
            )
            raise named(LoDValueError(f"{said}; if it is meant, see .values()"), "make_dual")
        return remarked(make(tensor, tangent, **kwargs), mark)

    return dual


def _unpacked(unpack: Callable) -> Callable:
    """Takes a dual tensor apart. Its tangent may be the caller's own tensor, which stays what it is."""

    @functools.wraps(unpack)
    def unpacked(x, **kwargs):
        with without_policy():
            primal, tangent = parts = unpack(x, **kwargs)
        return type(parts)(remarked(primal, mark_of(x)), tangent) if primal is not x else parts

    return unpacked


def _batched(add: Callable) -> Callable:
    """The samples of vmap. Along the dim of the rows a sample is one row: a plain tensor."""

    @functools.wraps(add)
    def batched(x, dim, level):
        sample, mark = add(x, dim, level), mark_of(x)
        if mark is None or mark.dim is None:
            return remarked(sample, mark)
        at = dim % x.dim()
        return sample if at == mark.dim else remarked(sample, _moved(mark, mark.dim - (at < mark.dim)))

    return batched


def _unbatched(remove: Callable) -> Callable:
    """The results of all samples, which are a dim more."""

    @functools.wraps(remove)
    def unbatched(x, level, size, dim):
        results, mark = remove(x, level, size, dim), mark_of(x)
        if mark is None or mark.dim is None:
            return remarked(results, mark)
        return remarked(results, _moved(mark, mark.dim + (dim % (x.dim() + 1) <= mark.dim)))

    return unbatched


def _for_dynamo(function: Callable) -> Callable:
    """Dynamo traces no function of torch.autograd's files but those that it finds there by name: now what replaces them."""
    if function.__module__ != forward_ad.__name__ or not isinstance(function, types.FunctionType):
        return function
    code = function.__code__.replace(co_filename=__file__)
    copy = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return functools.update_wrapper(copy, function)


def _moved(mark: Mark, dim: int) -> Mark:
    return mark._replace(dim=dim, call=mark.call or "vmap")


_REPLACED: tuple[tuple[Any, dict[str, Callable]], ...] = (
    (eager_transforms, {"_wrap_for_grad": _into, "_unwrap_for_grad": _out_of}),
    (eager_transforms, {"_wrap_functional_tensor": _into, "_unwrap_functional_tensor": _out_of}),
    (vmap, {"_add_batch_dim": _batched, "_remove_batch_dim": _unbatched}),
    (forward_ad, {"make_dual": _dual, "unpack_dual": _unpacked}),
)
for _module, _names in _REPLACED:
    for _name, _replace in _names.items():
        if hasattr(_module, _name):
            setattr(_module, _name, _replace(_for_dynamo(getattr(_module, _name))))
        else:
            warnings.warn(
                f"torch {torch.__version__} has no {_module.__name__}.{_name}: inside a transform of torch.func a LoDTensor "
                "is a plain tensor; give it values, and make the LoDTensor inside",
                stacklevel=1,
            )
