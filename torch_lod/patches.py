# SPDX-License-Identifier: Apache-2.0
"""Everything that torch_lod replaces in torch: `PATCHES`. `import torch_lod` replaces nothing; the first LoDTensor does.

With every other tensor, what is replaced does what it did. It does not matter who imported what before: functions are replaced
where torch looks them up by name at every call, or stay and get other code, and tables are torch's own tables.

torch.func. `torch.func.grad(f)(x)` calls f with a wrapper of x. Wrappers are made in C++, of the class torch.Tensor: f would
run across sequences and no error would tell. torch has no hook for a subclass there: a LoDTensor cannot be a node of a pytree,
because the transforms take the leaves of its pytree as inputs, and those would be other tensors than the one that f is called
with.

torch.autograd.forward_ad. make_dual gives a LoDTensor for one. In eager code a rule would do; Dynamo asks no subclass there.

AOTAutograd. Up to torch 2.14 it refuses operators that are given a Tensor subclass it does not know (pytorch#193932). Ours has
no __torch_dispatch__: for the dispatcher it is an ordinary tensor, so it may be added to the list of handled types. AOTAutograd
copies that list when it is imported.

torch.utils.data. default_collate asks a table by class. Without an entry it would stack LoDTensors, and sequences of a LoDDataset,
of equal shapes.

Functions of torch that pass their calls to no subclass (`INSTEAD`), and decide by numbers of dims: forward of torch.nn's recurrences
compares them before it calls anything that a rule sees. Where an argument has rows, a function of torch_lod/functions runs
instead.
"""

import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch._functorch import eager_transforms, vmap
from torch.autograd import forward_ad
from torch.fx.experimental import proxy_tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from .data.batch import Fields, FixedField, SequenceField, batch
from .dynamo import VERSION, as_it_is, waiting
from .errors import LoDError, LoDValueError, named, own_code, without_dispatch
from .tensor.attach import with_provenance
from .tensor.derived import DerivedTensor
from .tensor.lod_tensor import LoDTensor
from .tensor.provenance import Provenance, provenance_of


def _into(wrap: Callable) -> Callable:
    """Enters a level: the wrapper knows about rows what the tensor does."""

    @functools.wraps(wrap)
    def wrapped(x, *args, **kwargs):
        return with_provenance(wrap(x, *args, **kwargs), provenance_of(x))

    return wrapped


def _out_of(unwrap: Callable) -> Callable:
    """Leaves a level. Here no operator may run, not even a view: its result would be another wrapper."""

    @functools.wraps(unwrap)
    def unwrapped(x, *args, **kwargs):
        outside = unwrap(x, *args, **kwargs)
        return with_provenance(outside, provenance_of(x)) if provenance_of(outside) is None else outside

    return unwrapped


def _batched(add: Callable) -> Callable:
    """The samples of vmap. Along the dim of the rows a sample is one row: a plain tensor."""

    @functools.wraps(add)
    def batched(x, dim, level):
        sample, origin = add(x, dim, level), provenance_of(x)
        if origin is None or origin.dim is None:
            return with_provenance(sample, origin)
        at = dim % x.dim()
        return sample if at == origin.dim else with_provenance(sample, _at_dim(origin, origin.dim - (at < origin.dim)))

    return batched


def _unbatched(remove: Callable) -> Callable:
    """The results of all samples, which are a dim more."""

    @functools.wraps(remove)
    def unbatched(x, level, size, dim):
        results, origin = remove(x, level, size, dim), provenance_of(x)
        if origin is None or origin.dim is None:
            return with_provenance(results, origin)
        return with_provenance(results, _at_dim(origin, origin.dim + (dim % (x.dim() + 1) <= origin.dim)))

    return unbatched


def _at_dim(origin: Provenance, dim: int) -> Provenance:
    return origin._replace(dim=dim, call=origin.call or "vmap")


def _copy(function: Any, **code) -> Any:
    """The function as it is, whose code may be replaced."""
    copy = types.FunctionType(
        function.__code__.replace(**code), function.__globals__, function.__name__, function.__defaults__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _in_this_file(function: Any) -> Any:
    """A copy that is in this file: Dynamo traces no function of torch.autograd's files but those that it knows by name."""
    return _copy(function, co_filename=__file__)


_torchs_make_dual, _torchs_unpack_dual = map(_in_this_file, (forward_ad.make_dual, forward_ad.unpack_dual))


def dual(tensor, tangent, level):
    """Joins a tensor and its tangent, whose rows correspond."""
    origin, other = provenance_of(tensor), provenance_of(tangent)
    if origin is not None and other is not None and origin.lod.differs(other.lod):
        said = (
            f"expected a tangent with the LoD of the tensor, got one that differs: {origin.lod.difference(other.lod)}"
        )
        raise named(LoDValueError(f"{said}; if it is meant, see .values()"), "make_dual")
    with without_dispatch():
        made = _torchs_make_dual(tensor, tangent, level=level)
    return with_provenance(made, origin)


def unpacked(tensor, level):
    """Takes a dual tensor apart. Its tangent may be the caller's own tensor, which stays what it is."""
    with without_dispatch():
        primal, tangent = parts = _torchs_unpack_dual(tensor, level=level)
    return type(parts)(with_provenance(primal, provenance_of(tensor)), tangent) if primal is not tensor else parts


def _make_dual(tensor, tangent, *, level=None):
    from torch_lod import patches

    return patches.dual(tensor, tangent, level)


def _unpack_dual(tensor, *, level=None):
    from torch_lod import patches

    return patches.unpacked(tensor, level)


def _handled(classes: tuple) -> tuple:
    return (*classes, *[cls for cls in (LoDTensor, DerivedTensor) if cls not in classes])


def _collated(items, *, collate_fn_map=None):
    """Tensors, and samples of a LoDDataset, which are a batch already, with the names of its levels."""
    return batch(items)


def _stacked(items, *, collate_fn_map=None):
    """In workers torch's own writes into shared memory, which would not know the rows."""
    return torch.stack(items)


class Patch(NamedTuple):
    """An entry of a module or of a table of torch, or the code of a function."""

    where: str
    #: a dict, or the function
    of: Any
    name: Any
    #: What is there afterwards, of what is there before.
    made: Callable[[Any], Any]


def _in(module: Any, name: str, made: Callable[[Any], Any]) -> Patch:
    return Patch(module.__name__, vars(module), name, made)


def _within(function: Any, code: types.CodeType) -> Patch:
    return Patch(f"{function.__module__}.{function.__qualname__}", function, "__code__", lambda before: code)


#: What is called instead of functions of torch, by the name of the function.
INSTEAD: dict[str, Callable] = {}
#: Those functions, what runs where an argument has rows, and torch's own.
REPLACED: list[tuple[Any, Any, Any]] = []


def instead(*functions: Any, call: str = "", graphs: bool = True) -> Callable:
    """Registers what runs instead of functions of torch if an argument, or an entry of one, has rows of sequences. It takes the
    arguments by their names, those that it needs and `**others`; where it returns NotImplemented torch's own code runs, as with
    any other tensor. Its errors name `call`, or the class of the module, or the function.

    `graphs`: False for functions that Dynamo leaves to eager code.
    """

    def enter(ours):
        for function in functions:
            name = f"{function.__module__}.{function.__qualname__}"
            torchs, code = _copy(function), _calling(function, name)
            INSTEAD[name] = _either(function.__name__, code.co_varnames, ours, torchs, call)
            REPLACED.append((function, ours, torchs))
            _LISTED.append(_within(function, code))
            if not graphs:
                as_it_is(code)
        as_it_is(ours.__code__)
        return ours

    return enter


_OF_ROWS = (LoDTensor, DerivedTensor)


def _has_rows(value: Any) -> bool:
    """Whether a rule would see it; a fake of an exported constant remembers rows, and is of no class of ours."""
    if isinstance(value, (tuple, list)):
        return any(isinstance(part, _OF_ROWS) for part in value)
    return isinstance(value, _OF_ROWS)


def _either(name: str, parameters: tuple[str, ...], ours: Callable, torchs: Callable, call: str) -> Callable:
    def either(*args, **kwargs):
        for value in (*args, *kwargs.values()):
            if _has_rows(value):
                break
        else:
            return torchs(*args, **kwargs)
        try:
            result = ours(**dict(zip(parameters, args)), **kwargs)
        except LoDError as error:
            of_module = type(args[0]).__name__ if isinstance(args[0], torch.nn.Module) else name
            raise error if error.call else named(error, call or of_module) from None
        return torchs(*args, **kwargs) if result is NotImplemented else result

    return own_code(either, name)


def _calling(function: Any, name: str) -> types.CodeType:
    """Code with the parameters of a function, which calls what is in INSTEAD."""
    parameters = inspect.signature(function).parameters.values()
    by_position = [p.name for p in parameters if p.kind < p.KEYWORD_ONLY]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    heads = ", ".join([*by_position, *(["*", *by_name] if by_name else [])])
    given = ", ".join([*by_position, *[f"{key}={key}" for key in by_name]])
    body = f"from torch_lod import patches; return patches.INSTEAD[{name!r}]({given})"
    line = _calling.__code__.co_firstlineno
    module = compile("\n" * (line - 1) + f"def {function.__name__}({heads}): {body}", __file__, "exec")
    return next(part for part in module.co_consts if isinstance(part, types.CodeType))


_COLLATE = "torch.utils.data._utils.collate.default_collate_fn_map"
_LISTED = [
    _in(eager_transforms, "_wrap_for_grad", _into),
    _in(eager_transforms, "_unwrap_for_grad", _out_of),
    _in(eager_transforms, "_wrap_functional_tensor", _into),
    _in(eager_transforms, "_unwrap_functional_tensor", _out_of),
    _in(vmap, "_add_batch_dim", _batched),
    _in(vmap, "_remove_batch_dim", _unbatched),
    _within(forward_ad.make_dual, _make_dual.__code__),
    _within(forward_ad.unpack_dual, _unpack_dual.__code__),
    *(
        Patch(_COLLATE, default_collate_fn_map, cls, lambda before: _collated)
        for cls in (LoDTensor, Fields, FixedField, SequenceField)
    ),
    Patch(_COLLATE, default_collate_fn_map, DerivedTensor, lambda before: _stacked),
]


def patches() -> Iterator[Patch]:
    """The list, for this torch and the modules that are imported."""
    yield from _LISTED
    if VERSION < (2, 15):
        yield _in(proxy_tensor, "HANDLED_TYPES", _handled)
        copied = sys.modules.get("torch._functorch._aot_autograd.runtime_wrappers")
        if hasattr(copied, "HANDLED_TYPES"):
            yield _in(copied, "HANDLED_TYPES", _handled)


def apply() -> None:
    """Replaces what is not replaced yet. It takes no lock, which a process that is forked meanwhile would never get back:
    threads that come here at the same time write the same."""
    for function, _, torchs in REPLACED:
        function.__wrapped__ = torchs  # whose source and signature inspect, and torch.jit, read
    for where, of, name, made in patches():
        if not isinstance(of, dict):
            of.__code__ = made(of.__code__)
            continue
        before = of.get(name)
        if before is None and not isinstance(name, type):
            warnings.warn(
                f"torch {torch.__version__} has no {where}.{name}: inside a transform of torch.func a LoDTensor is a plain "
                "tensor; give it values, and make the LoDTensor inside",
                stacklevel=2,
            )
        elif getattr(before, "__globals__", None) is not globals():  # not ours
            of[name] = made(before)


waiting.append(apply)
