# SPDX-License-Identifier: Apache-2.0
"""The table of torch's functions, which `Tracked.__torch_function__` looks up: empty until `torch_lod.functions` has entered its
rows, one for every function, and handed itself in."""

from collections.abc import Callable
from typing import Any

from ..dynamo import compiling
from .provenance import Provenance

#: Called with a function and its arguments: returns the provenance of the result, None where its rows are lost, or raises.
Rule = Callable[[Callable, tuple, dict], Provenance | None]


class Row:
    """All that is known about a function of torch."""

    def __init__(self, name: str, kind: str = "", rule: Rule | None = None, **facts: Any):
        #: The name in errors.
        self.name = name
        #: As functions/row.py describes it (MEANING); "" for a function that is not listed.
        self.kind = kind
        #: Whose rows are those of the result. Without a rule they are lost, unless the result is plain.
        self.rule = rule
        #: Runs instead of the function, with the same signature, where all rows are at dim 0. If it returns NotImplemented, the
        #: function runs, under the rule.
        self.run: Callable | None = None
        #: As `run`, on rows at another dim. It returns None where they are refused.
        self.run_at_dim: Callable | None = None
        #: Whether `run_at_dim` takes what lost its rows.
        self.takes_lost = False
        #: Whether the function writes into its first argument.
        self.writes = False
        #: Whether the results know nothing of rows.
        self.plain = kind == "plain"
        #: Whether the second operand only has a shape or a type.
        self.shape_only = False
        #: The operands that are broadcast against each other, as `operands.Entry`.
        self.broadcasts: Callable | None = None
        #: The same for sums of a tensor and a product, to which the tensor is broadcast.
        self.sums: Callable | None = None
        #: Of products of matrices, where rows at a dim of an operand are in the result; both are counted from the right.
        self.product: Any = None
        #: What to write instead where the rows were lost in it; what runs along each sequence for a model that meant dim 1.
        self.instead = self.along = ""
        #: Whether it puts what belongs to a row beside it; whether what it writes into keeps nothing of what it was.
        self.beside = self.overwrites = False
        #: Whether masks of padding meet masks of a model's own in it.
        self.of_masks = False
        #: Whether the table has the function.
        self.known = True
        for fact, value in facts.items():
            assert hasattr(self, fact), fact
            setattr(self, fact, value)


#: The rows of functions, and of those that Dynamo cannot look up in a dict.
ROWS: dict[Callable, Row] = {}
UNSEEN: dict[Callable, Row] = {}
#: Operators of Python, and the calls that they are. In a graph the wrappers of torch give NotImplemented, and looking for one of
#: them in a dict makes a guard that fails.
WRAPPED: list[tuple[Callable, Callable]] = []
#: By its name, as errors have it: of several rows one that says what to write instead.
NAMED: dict[str, Row] = {}
#: torch_lod.functions, whose refusals and explanations the dispatch calls.
functions: Any = None


def name_of(func: Callable) -> str:
    """The name of a function in errors; Dynamo does not know the names of torch's functions."""
    row = ROWS.get(func)
    if row is not None:
        return row.name
    if compiling():
        return "function"
    return getattr(func, "__name__", str(func)).partition(".")[0].strip("_")  # aten's names are like cumsum_.default


#: Of a function that is in no table, where its name is not known.
UNKNOWN = Row("function", known=False)


def as_calls(cls: Any, func: Callable, types, operands) -> Any:
    """What an operator of Python gives, by way of the calls that it is; None for all other functions."""
    for wrapped, calls in WRAPPED:
        if func is wrapped:
            return calls(lambda f, *args: cls.__torch_function__(f, types, args), *operands)
    return None


def unlisted(func: Callable) -> Row:
    """The row of a function that ROWS does not have."""
    return UNKNOWN if compiling() else UNSEEN.get(func) or Row(name_of(func), known=False)
