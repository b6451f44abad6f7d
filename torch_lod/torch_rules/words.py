# SPDX-License-Identifier: Apache-2.0
"""What rules say and ask: the LoD of a value, an argument by place or name, the refusal."""

from collections.abc import Callable

from ..errors import LoDTypeError, LoDValueError
from ..lod import LoD

Rule = Callable[[Callable, tuple, dict], LoD | None]

_OUT = "mixing rows on purpose is x.values()"
_NO_SEQUENCES = f"{_OUT}, sequence by sequence is x.sequences()"


def _name(func: Callable) -> str:
    return getattr(func, "__name__", str(func)).strip("_")


def _lod_of(value) -> LoD | None:
    return getattr(value, "_lod", None)


def same_lod(call: str, a: LoD, b: LoD) -> LoD:
    """The LoD of two operands; ValueError where they differ."""
    if a is not b and a != b:
        way_out = "to combine their rows all the same, pass .values() of one"
        if a.depth != b.depth:
            way_out = "lay the rows of the one with fewer levels over the other with tl.sequence_expand_as"
        raise LoDValueError(
            f"{call}: expected operands with equal LoDs, got LoDs that differ: {a.difference(b)}; {way_out}"
        )
    return a if a.level_names else b


def _first(args: tuple, kwargs: dict):
    return args[0] if args else next((kwargs[k] for k in _FIRST_NAMES if k in kwargs), None)


_FIRST_NAMES = ("input", "self", "query", "x", "a", "x1")
#: Names of numpy's that torch accepts as well.
_ALIASES = {"dim": "axis", "dims": "axis", "other": "x2"}


def _option(args: tuple, kwargs: dict, place: int, *names: str, default=None):
    """An argument by its place or by one of its names."""
    if len(args) > place:
        return args[place]
    for name in names:
        for key in (name, _ALIASES.get(name)):
            if key in kwargs:
                return kwargs[key]
    return default


def _numbers(args: tuple, kwargs: dict, *names: str) -> tuple:
    """Numbers that are given as one tuple or spread over the arguments."""
    found = _option(args, kwargs, 1, *names, default=())
    return tuple(found) if isinstance(found, (tuple, list)) else (*args[1:],) if len(args) > 1 else (found,)


def _others(args: tuple, kwargs: dict) -> bool:
    """Whether an operand but the first has a LoD: a weight made of rows would mix them."""
    rest = (*args[1:], *(value for key, value in kwargs.items() if args or key not in _FIRST_NAMES))
    return any(_lod_of(value) is not None for value in rest)


def _touches_rows(dims, rank: int) -> bool:
    """Whether dim 0 is among `dims`; None and () stand for all of them."""
    if dims is None or dims == () or dims == []:
        return True
    return any(d in (0, -rank) for d in (dims if isinstance(dims, (tuple, list)) else (dims,)))


def _refusal(func, advice: str) -> LoDTypeError:
    return LoDTypeError(f"{_name(func)}: expected a plain tensor, got a LoDTensor: {advice}")
