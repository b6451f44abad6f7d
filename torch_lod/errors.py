# SPDX-License-Identifier: Apache-2.0
"""Errors from `torch_lod` are ValueError, TypeError, IndexError or RuntimeError, and all of them are `LoDError` too.

Helpers raise errors that say "expected ..., got ..."; the decorator `public` adds the name of the function that the
user called.
"""

import dataclasses
import functools
import importlib
import inspect
import re
import reprlib
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from .frames import deeper
from .frames import foreign as foreign

P = ParamSpec("P")
R = TypeVar("R")


class LoDError(Exception):
    """Base class of every error that torch_lod raises for a wrong call. The message names the call and the argument,
    what was expected and what was given."""

    #: The public call that was wrong; the message begins with it.
    call: str | None = None

    def __str__(self) -> str:
        said = super().__str__()
        return f"{self.call}: {said}" if self.call else said

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class LoDValueError(LoDError, ValueError):
    pass


class LoDsDiffer(LoDValueError):
    """The rows of two operands do not correspond; the rules of torch's functions ask whether those of one are sequences of the other."""


class LoDTypeError(LoDError, TypeError):
    pass


class LoDIndexError(LoDError, IndexError):
    pass


class LoDRuntimeError(LoDError, RuntimeError):
    pass


class LoDImportError(LoDError, ImportError):
    """A library that a conversion needs is not installed."""


def library(name: str) -> Any:
    """A library that need not be there; the error says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise LoDImportError(
            f"expected {name} to be installed, got none; pip install {name.partition('.')[0]}"
        ) from None


_CLASSES: dict[type, type[LoDError]] = {ValueError: LoDValueError, TypeError: LoDTypeError, IndexError: LoDIndexError}
_WHOLE = re.compile(r"(a floating dtype|dtype float16)\b.*, got (Long|Int|Short|Char|Byte|Bool)$")
_RAW = re.compile(r"(\w+): (expected .*)", re.S)  # the message of a raw operator
#: A context in which torch's functions treat LoDTensors as plain tensors. It leaves modes out as well: with one, as of a
#: default device, Dynamo would come back to __torch_function__ for every attribute.
without_dispatch = torch._C.DisableTorchFunction
#: Other names under which a padding value is accepted.
_RENAMED = {"pad_value": "padding_value", "fill": "padding_value"}


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a public function: errors of this package name the function that the user called, not a helper.

    Errors of the raw operators (plain built-in classes) become LoDErrors. An error that the user's own function raises
    (a cell, a hook) passes through unchanged. For constructors and `forward`, errors name the class.
    """
    return boundary()(function)


def constructor(function: Callable[P, R]) -> Callable[P, R]:
    """`public` for a function that gives its arguments a new structure, whatever they were rows of: a constructor."""
    return boundary(rejects=False)(function)


#: Types of arguments that may be, or hold, a tensor that lost the structure of its rows, and the function that refuses it:
#: the class of such tensors enters itself.
_TRACKED: list[Any] = [(tuple, list, dict), None]
#: Types of most arguments, of which it need not be asked.
_SIMPLE: set[type] = {torch.Tensor, int, float, str, bool, type(None)}


def refuse_as_argument(cls: type, refuse: Callable[[str, Any, bool], None], *simple: type) -> None:
    _TRACKED[:] = (cls, tuple, list, dict), refuse
    _SIMPLE.update(simple)


def _reject(function: Callable, at: int | str, value: Any, only_lost: bool, depth: int = 0) -> None:
    """Refuses an argument, by its position or its name, or an entry of it."""
    if isinstance(value, _TRACKED[0][0]) and _TRACKED[1] is not None:
        by_position = [p.name for p in inspect.signature(function).parameters.values() if p.kind < p.KEYWORD_ONLY]
        _TRACKED[1](at if isinstance(at, str) else by_position[min(at, len(by_position) - 1)], value, only_lost)
    elif depth < 8:  # a list may hold itself
        for part in value.values() if isinstance(value, dict) else value:
            if type(part) not in _SIMPLE and isinstance(part, _TRACKED[0]):
                _reject(function, at, part, only_lost, depth + 1)


def boundary(
    call: str | None = None, dispatch: bool = True, rejects: bool | str = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`public` with another name than the function's; with dispatch=False the function runs without the table of torch's functions; with
    rejects=False it takes tensors that lost the structure of their rows, and rows at another dim; with rejects="lost" the
    latter, at which it looks itself."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        by_class = call is None and function.__name__ in ("__new__", "__init__", "forward")
        name, parameters = call or function.__name__, inspect.signature(function).parameters
        renamed = {old: new for old, new in _RENAMED.items() if new in parameters and old not in parameters}

        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if renamed and kwargs:
                for old, new in renamed.items():
                    if old in kwargs and new not in kwargs:
                        kwargs[new] = kwargs.pop(old)
            try:
                if rejects:  # the one place that asks what the arguments of public functions are made of
                    for i, value in enumerate(args):
                        if type(value) not in _SIMPLE and isinstance(value, _TRACKED[0]):
                            _reject(function, i, value, rejects == "lost")
                    for key in kwargs:
                        if type(kwargs[key]) not in _SIMPLE and isinstance(kwargs[key], _TRACKED[0]):
                            _reject(function, key, kwargs[key], rejects == "lost")
                if dispatch:
                    return function(*args, **kwargs)
                with without_dispatch():
                    return function(*args, **kwargs)
            except (LoDError, ValueError, TypeError, IndexError) as error:
                if torch.compiler.is_dynamo_compiling():  # frames cannot be asked there: torch shows error and call
                    raise
                ours = _ours(error, _class_of(args[0]) if by_class else name, function, args)
                if ours is None or ours is error:
                    raise
                raise ours from None

        return functools.wraps(function)(own_code(checked, function.__name__))

    return decorate


def own_code(function: Any, name: str) -> Any:
    """The function with a code object of its own. Closures share one, and Dynamo, which counts how often it compiles a code
    object, would give up on all of them after the eighth."""
    code = function.__code__.replace(co_name=name)
    return types.FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)


class _Shown(reprlib.Repr):
    """Says of a tensor, however deep, what it is, and not its numbers: there may be no memory behind it."""

    def __init__(self):
        super().__init__()
        self.maxlevel = 20
        for kind in ("tuple", "list", "array", "dict", "set", "frozenset", "deque"):
            setattr(self, f"max{kind}", 40)
        self.maxstring = self.maxlong = self.maxother = 200
        #: Parts that are shown yet: a container that contains itself twice has 2**20 of them.
        self.left = 200

    def repr1(self, x, level):
        self.left -= 1
        if self.left < 0:
            return "..."
        if isinstance(x, torch.Tensor):
            return f"a {x.dtype} {type(x).__name__} of shape {tuple(x.shape)}"
        return super().repr1(x, level)

    def repr_instance(self, x, level):
        for kind in (tuple, list, dict, set, frozenset):
            if isinstance(x, kind):  # of a class of its own, as a named tuple
                return f"{type(x).__name__} {getattr(self, f'repr_{kind.__name__}')(kind(x), level)}"
        if dataclasses.is_dataclass(x) or getattr(getattr(x, "dtype", None), "kind", None) == "O":  # of objects
            return f"a {type(x).__name__}"
        return super().repr_instance(x, level)


def shown(value: Any) -> str:
    """A wrong argument in a message: short, and without the numbers of a tensor, which may have no memory behind it."""
    if isinstance(value, torch.Tensor):
        return _Shown().repr(value)
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return f"{type(value).__name__} of {', '.join(type(item).__name__ for item in value[:5])}"
    big = isinstance(value, int) and abs(value) >= 2**99
    text = f"an int of {value.bit_length()} bits" if big else _Shown().repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _class_of(value: Any) -> str:
    return (value if isinstance(value, type) else type(value)).__name__


def no_memory(error: Exception) -> bool:
    """Whether torch raised because memory could not be allocated: nothing is wrong with the arguments then."""
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def named(error: LoDError, call: str) -> LoDError:
    """The error with the name of a call; for errors that do not pass through `public`."""
    error.call = call
    return error


def _ours(error: Exception, call: str, function: Callable, args: tuple) -> LoDError | None:
    """The error as one of a call; None if the user's own code raised it."""
    if deeper(error) is None and type(error) is TypeError:  # the arguments did not fit the signature
        return named(LoDTypeError(_misplaced(str(error), function, args)), call)
    if foreign(error):
        return None
    if isinstance(error, LoDError):
        return named(error, call)
    raw = _RAW.fullmatch(str(error))
    cls = _CLASSES.get(type(error))
    if raw is None or cls is None or not hasattr(torch.ops.torch_lod, raw[1]):
        return None
    return named(cls(raw[2] + ("; see .float()" if _WHOLE.search(raw[2]) else "")), call)


def _misplaced(said: str, function: Callable, args: tuple) -> str:
    """Why arguments do not fit the signature: Python's message `said`, unless too many are given by position."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    ordered = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_keyword = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    given = args[1:] if next(iter(inspect.signature(function).parameters), "") in ("self", "cls") else args
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(given) <= len(ordered) or not by_keyword or takes_any:
        return f"expected arguments {', '.join(ordered + by_keyword)}; {said}"
    surplus = given[len(ordered)]
    short = isinstance(surplus, (int, float, str)) and len(repr(surplus)) <= 40
    got, written = (repr(surplus),) * 2 if short else (type(surplus).__name__, "...")
    return (
        f"expected {', '.join(ordered) or 'nothing'} by position and {', '.join(by_keyword)} by keyword, got {got} as "
        f"argument {len(ordered) + 1}; write {' or '.join(f'{name}={written}' for name in by_keyword[:2])}"
    )
