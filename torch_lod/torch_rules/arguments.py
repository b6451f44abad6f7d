# SPDX-License-Identifier: Apache-2.0
"""What rules say and ask: the LoD of a value, an argument by place or name, the refusal."""

from collections.abc import Callable

from ..dynamo import compiling
from ..errors import LoDError, LoDTypeError, LoDValueError, named
from ..lod import LoD

#: The kinds of functions.
MEANING = {
    "keep": "row i of the result is made of row i of the first argument: the LoD stays",
    "join": "several operands: their LoDs must be equal (ValueError otherwise), and the LoD stays; plain where broadcasting "
    "would line up rows with elements of a row",
    "reduce": "the LoD stays where dim 0 is not among the dims; over dim 0 the rows are gone and the result is plain",
    "shape": "the LoD stays where dim 0 stays where it is; otherwise the result is plain",
    "matmul": "rows times a plain matrix keep their LoD, and so does one product per row; products of rows with rows are plain",
    "move": "what is taken, written or put together along other dims keeps the LoD; rows that are taken or written by index are "
    "plain, in place their sources must not be LoDTensors; `cat` of whole batches chains their sequences",
    "sequence-wise": "runs along every innermost sequence for itself ([drop_in.md](drop_in.md)); the LoD stays, with the lengths "
    "that result",
    "refuse": "raises where rows of different sequences would mix, with the call that is meant; otherwise the LoD stays",
    "plain": "the result has no rows: sizes, predicates, statistics of all rows, other layouts",
}

Rule = Callable[[Callable, tuple, dict], LoD | None]


class Route:
    """A rule whose function is replaced: `ours`, which has the signature of torch's, runs in its place and returns what torch's
    would. Where it returns NotImplemented the arguments are torch's own, under `rule`. The package's top, drop_in/, enters them."""

    def __init__(self, ours: Callable, rule: Rule | None):
        self.ours, self.rule = ours, rule

    def __call__(self, func, args, kwargs):
        return None if self.rule is None else self.rule(func, args, kwargs)


_OUT = "mixing rows on purpose is x.values()"
_NO_SEQUENCES = f"{_OUT}, sequence by sequence is x.sequences()"


def _name(func: Callable) -> str:
    if compiling():
        return "function"  # Dynamo knows no names of those of torch
    return getattr(func, "__name__", str(func)).strip("_")


def _lod_of(value) -> LoD | None:
    return getattr(value, "_lod", None)


def same_lod(call: str | Callable, a: LoD, b: LoD) -> LoD:
    """The LoD of two operands; ValueError, in the name of the call, where they differ."""
    try:
        return a.agreed(b)
    except LoDValueError as error:
        raise named(error, call if isinstance(call, str) else _name(call)) from None


def _first(args: tuple, kwargs: dict):
    if args:
        return args[0]
    named = (kwargs[k] for k in _FIRST_NAMES if k in kwargs)
    return next(named, None) if kwargs else None


_FIRST_NAMES = ("input", "self", "query", "y", "x", "a", "x1", "A", "indices", "count", "tensor", "v")
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
    return any(
        any(_lod_of(part) is not None for part in value) if type(value) in (tuple, list) else _lod_of(value) is not None
        for value in rest
    )


def _touches_rows(dims, rank: int) -> bool:
    """Whether dim 0 is among `dims`; None and () stand for all of them."""
    if dims is None or dims == () or dims == []:
        return True
    return any(d in (0, -rank) for d in (dims if isinstance(dims, (tuple, list)) else (dims,)))


def _refusal(func, advice: str) -> LoDError:
    return named(LoDTypeError(f"expected a plain tensor, got a LoDTensor: {advice}"), _name(func))
