# SPDX-License-Identifier: Apache-2.0
"""What the rules share: the LoD of an operand, whether dims include dim 0, the errors."""

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

#: Called with a function and its arguments: returns the LoD of the result, None for a plain one, or raises.
Rule = Callable[[Callable, tuple, dict], LoD | None]


class Route:
    """A rule whose function is replaced: `ours`, which has the signature of torch's, runs instead and returns what
    torch's would. If it returns NotImplemented, torch's function runs, under `rule`. The package drop_in registers the
    routes."""

    def __init__(self, ours: Callable, rule: Rule | None):
        self.ours, self.rule = ours, rule

    def __call__(self, func, args, kwargs):
        return None if self.rule is None else self.rule(func, args, kwargs)


OUT = "mixing rows on purpose is x.values()"
NO_SEQUENCES = f"{OUT}, sequence by sequence is x.sequences()"


def name_of(func: Callable) -> str:
    """The name of a function in errors."""
    if compiling():
        return "function"  # Dynamo does not know the names of torch's functions
    return getattr(func, "__name__", str(func)).partition(".")[0].strip("_")  # aten's names are like cumsum_.default


def refusal(func: Callable, advice: str) -> LoDError:
    """The error where a function would mix the rows of different sequences."""
    return named(LoDTypeError(f"expected a plain tensor, got a LoDTensor: {advice}"), name_of(func))


def same_lod(call: str | Callable, a: LoD, b: LoD) -> LoD:
    """The LoD that two operands share; ValueError, which names the call, if they differ."""
    try:
        return a.agreed(b)
    except LoDValueError as error:
        raise named(error, call if isinstance(call, str) else name_of(call)) from None


def misaligned(func: Callable) -> LoDError:
    """The error where an in-place function would combine rows that do not correspond."""
    error = LoDValueError(  # after a TypeError Python would try x = x + y for x += y
        "expected operands whose rows correspond, got some that would be lined up with other rows or with elements of "
        f"rows; {OUT}"
    )
    return named(error, name_of(func))


def lod_of(value) -> LoD | None:
    """The LoD of a LoDTensor, None for anything else."""
    return getattr(value, "_lod", None)


def carries(value) -> bool:
    """Whether a value, or any value of a list, is a LoDTensor."""
    if isinstance(value, (tuple, list)):
        return any(lod_of(part) is not None for part in value)
    return lod_of(value) is not None


def touches_rows(dims, rank: int) -> bool:
    """Whether dim 0 is among `dims`, a number or several; None and () stand for all of them."""
    if dims is None or dims == () or dims == []:
        return True
    return any(d in (0, -rank) for d in dims) if isinstance(dims, (tuple, list)) else dims in (0, -rank)
