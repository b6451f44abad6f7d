# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled operators, or defines them by the same schemas; enters their compositions, and makes them Python
functions."""

import functools
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch._library.effects import EffectType
from torch._subclasses.fake_impls import register_op_impl
from torch.autograd import forward_ad

from ..errors import own_code
from ..frames import importer
from . import check, schemas
from . import signals as signals
from .binding import Binding, choose, cut_short, does_not_load, processor
from .compositions import COMPOSITIONS, RECORDED, enter

_PACKAGE = Path(__file__).parent.parent


def _load() -> Binding:
    """Loads the library that fits torch; or says why there is none and what to do."""
    if os.environ.get("TORCH_LOD_COMPOSED") == "1":
        return Binding(None, "TORCH_LOD_COMPOSED=1 switches them off", "unset it")
    binding = processor() or choose(_PACKAGE, torch.__version__)
    if binding.library is None:
        return binding
    if broken := cut_short(binding.library):
        return broken
    try:
        torch.ops.load_library(binding.library)
        return binding
    except OSError as error:
        return does_not_load(binding.library, error)


def _warn(why: str, remedy: str) -> None:
    """Warns at the user's line that imports the package."""
    frame = importer()
    text = (
        f"torch_lod runs without its compiled operators: {why}. Everything works, on a slower pure PyTorch "
        f"implementation. To get them: {remedy}"
    )
    warnings.warn_explicit(text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno)


#: The library that is loaded, or why there is none.
BINDING = _load()
#: Whether the compiled operators are in use.
COMPILED = BINDING.library is not None
#: Keeps the registrations alive.
_library = torch.library.Library("torch_lod", "FRAGMENT" if COMPILED else "DEF")
if not COMPILED:
    for schema in schemas.read().values():
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _warn(BINDING.why, BINDING.remedy)
# compiled code would leave out an operator that returns nothing
_library._register_effectful_op("torch_lod::watch_structure", EffectType.ORDERED)


@torch.library.register_fake("torch_lod::rank_by_length", lib=_library)
def _ranks(offsets: torch.Tensor) -> torch.Tensor:
    check.offsets_kind("rank_by_length", offsets, torch.device("cpu"), "offsets")
    return offsets.new_empty(offsets.shape[0] - 1)


@torch.library.register_fake("torch_lod::keep_structure", lib=_library)
def _kept(structure: torch.Tensor, rows, cuts, apart=False, longest=-1, host=None) -> None:
    device = torch.device("cpu") if structure.is_meta else structure.device
    check.index("keep_structure", "structure", structure, device)
    if host is not None:
        check.index("keep_structure", "host", host, torch.device("cpu"))


_RECURRENCES = ("lstm", "lstm_backward", "gru", "gru_backward", "rnn", "rnn_backward")


@register_op_impl([getattr(torch.ops.torch_lod, name).default for name in _RECURRENCES])
def _on_one_device(mode, func, *args):
    """The host plans the steps of a recurrence, so its offsets are there, and fake tensors must be on one device."""
    device = args[0].device
    if all(a.device == device for a in args if isinstance(a, torch.Tensor)):
        return NotImplemented  # as any operator
    with mode:
        return func(*(a.to(device) if isinstance(a, torch.Tensor) else a for a in args))


_F = TypeVar("_F", bound=Callable)
_peek = torch._C._functorch.peek_interpreter_stack
_is_compiling, _in_dynamo = torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling


def _may_record(arguments) -> bool:
    """Whether no tracer is active and there are rows. Without rows, the recorded result would depend on no input."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    if torch._C._len_torch_dispatch_stack() or any(check.stands_in(t) for t in tensors):
        return False
    return bool(tensors) and tensors[0].dim() > 0 and tensors[0].shape[0] > 0


def _int64(places: tuple[tuple[int, str], ...], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments, with int32 offsets, as flash-attn keeps them, as the int64 that operators read."""
    for i, name in places:
        if i < len(args):
            if getattr(args[i], "dtype", None) is torch.int32:
                args = (*args[:i], args[i].long(), *args[i + 1 :])
        elif getattr(kwargs.get(name), "dtype", None) is torch.int32:
            kwargs = {**kwargs, name: kwargs[name].long()}
    return args, kwargs


def composition(function: _F) -> _F:
    """Enters a function as the composition of the operator of its name, behind the gate. What it calls itself, and what
    other compositions call, does not pass again."""
    enter(function, _library, COMPILED)
    return function


def operator(function: _F) -> _F:
    """The operator of the function's name, with its types and docstring; its parameters are those of the schema. Offsets may
    be int32: they are converted. The body is the composition.

    torch.func transforms and forward-mode tangents need rules that a C++ autograd function cannot have. For them the
    composition, made of torch operators, runs instead.
    """
    name = function.__name__
    if name not in COMPOSITIONS:
        composition(function)
    compiled, composed = getattr(torch.ops.torch_lod, name).default, COMPOSITIONS[name]
    recorded = not COMPILED and name in RECORDED
    places = tuple((i, a.name) for i, a in enumerate(compiled._schema.arguments) if a.name.endswith("offsets"))
    direct = compiled._op  # all that a call of it calls

    def call(*args, **kwargs):
        if not (kwargs or recorded or _in_dynamo() or _peek() is not None or forward_ad._current_level >= 0):
            for i, _ in places:
                if i < len(args) and getattr(args[i], "dtype", None) is torch.int32:
                    break
            else:
                return direct(*args)
        args, kwargs = _int64(places, args, kwargs)
        if _is_compiling():
            return compiled(*args, **kwargs)
        if _peek() is not None or forward_ad._current_level >= 0:
            return composed(*args, **kwargs)
        if recorded and _may_record((*args, *kwargs.values())):
            return composed(*args, **kwargs)
        return compiled(*args, **kwargs)

    return functools.wraps(function)(own_code(call, name))  # type: ignore[return-value]
