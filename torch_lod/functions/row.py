# SPDX-License-Identifier: Apache-2.0
"""How a row is entered in the table: once for every function. Functions that share what is known of them are entered together."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import boundary
from ..tensor.table import NAMED, ROWS, UNSEEN, WRAPPED, Row, Rule
from .placement import in_place

#: The kinds of functions.
MEANING = {
    "keep": "row i of the result is made of row i of the first argument: the LoD stays",
    "join": "several operands: their LoDs must be equal, or one the outer part of another, whose rows are then broadcast over those "
    "of their sequences, as are those of tl.per_sequence (ValueError otherwise); the LoD stays; rows beside all rows are refused",
    "reduce": "the LoD stays where the dim of the rows is not among the dims; otherwise the rows are lost",
    "shape": "the LoD goes with the rows to the dim where they are; where they are merged with other dims or cut they are lost",
    "matmul": "rows times a plain matrix keep their LoD, and so does one product per row; a product that sums over rows loses "
    "them, one of all rows with all rows is refused",
    "move": "what is taken, written or put together along other dims keeps the LoD; rows that are taken by index are lost, and "
    "are not written; `cat` of whole batches at dim 0 chains their sequences, and of all parts of a batch is the batch",
    "sequence-wise": "runs along every innermost sequence for itself ([drop_in.md](drop_in.md)); the LoD stays, with the lengths "
    "that result",
    "refuse": "raises where rows of different sequences would mix, with the call that is meant; otherwise the LoD stays",
    "plain": "the result has no rows: sizes, predicates, statistics of all rows, other layouts",
}

_PUBLIC = {
    "torch": torch,
    "torch.Tensor": Tensor,
    "torch.nn.functional": F,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
}


def shown_functions() -> dict[Callable, str]:
    """The functions that torch.overrides lists, and those that torch shows to a subclass although they are not listed
    there: in-place forms, methods."""
    overridable = {func for funcs in torch.overrides.get_overridable_functions().values() for func in funcs}
    ignored = torch.overrides.get_ignored_functions()
    found: dict[Callable, str] = {}
    for prefix, space in _PUBLIC.items():
        for name in dir(space):
            func: Any = getattr(space, name, None)
            if isinstance(func, type) or not callable(func):
                func = getattr(func, "__get__", None)  # an attribute of tensors
            public = not name.startswith("_") and isinstance(func, _SHOWN) and func not in ignored
            if public or func in overridable:
                found.setdefault(func, f"{prefix}.{name}")
    return found


#: The types of functions and methods written in C++, which call __torch_function__ themselves.
_SHOWN = (type(torch.add), type(Tensor.add))


_SPACES = (torch, Tensor, F, torch.special)
_in_place = functools.cache(in_place)


def enter(
    kind: str, rule: Rule | None, names: str, spaces: tuple = _SPACES, calls: Callable | None = None, **facts: Any
) -> None:
    """Enters functions by their names, in all spaces that have them. `facts`: fields of `Row`. What runs instead gets the
    name of the function in its errors, unless it is `quick`. `calls`: an operator of Python by way of other calls, in graphs."""
    entered = {}
    for name in names.split():
        for space in spaces:
            func = getattr(space, name, None)
            if callable(func) and (space is Tensor or not name.startswith("__")):
                row = entered[func] = _row(func, kind, rule, name, **facts)
                if calls is not None:
                    WRAPPED.append((func, calls))
                if rule is not None and space is Tensor and name[:2] == "__" and hasattr(operator, name):
                    entered[getattr(operator, name)] = row  # which torch.export passes, not the methods of Tensor
    put(entered)


def attribute(kind: str, rule: Rule | None, names: str, change: bool = False) -> None:
    """As `enter`, for attributes of tensors: what reads them, or what assigns them."""
    for name in names.split():
        func = getattr(getattr(Tensor, name, None), "__set__" if change else "__get__", None)
        if func is not None:
            put({func: _row(func, kind, rule, name)})


def put(entered: dict[Callable, Row]) -> None:
    """ValueError for a function that has a row."""
    for func, row in entered.items():
        if func in ROWS or func in UNSEEN:
            raise ValueError(f"expected one row for each function, got a second one for {row.name}, {func}")
        (ROWS if _traceable(func) else UNSEEN)[func] = row
        if row.name not in NAMED or row.instead or row.along or row.beside or row.of_masks:
            NAMED[row.name] = row


def _traceable(func: Callable) -> bool:
    """Whether Dynamo can look a function up in a dict."""
    own = getattr(func, "__self__", None)
    return type(own) is not property and not isinstance(func, type) and "dlpack" not in str(func)


def _row(func: Callable, kind: str, rule: Rule | None, name: str, quick: bool = False, **facts: Any) -> Row:
    facts.setdefault("writes", _writes(name))
    if rule is not None:
        rule = _in_place(rule) if facts["writes"] else _with_argument_inplace(func, rule)
    if not quick:
        for fact in ("run", "run_at_dim"):
            if facts.get(fact) is not None:
                facts[fact] = boundary(func.__name__.strip("_"), dispatch=False, rejects=False)(facts[fact])
    if "along" in facts:
        facts["along"] = facts["along"].format(name=name)
    return Row(name.strip("_"), kind, rule, **facts)


def _writes(name: str) -> bool:
    """Whether the name is that of a function in place."""
    if name.startswith("__"):
        return name in _PYTHONS
    return name.endswith("_") and not name.startswith("_")


_PYTHONS = [f"__i{name}__" for name in "add and div floordiv lshift mod mul or pow rshift sub truediv xor".split()]


def _with_argument_inplace(func: Callable, rule: Rule) -> Rule:
    """The rule; of a function with an argument `inplace`, which it may change, that of `in_place` where it does."""
    code = getattr(func, "__code__", None)
    if code is None or "inplace" not in code.co_varnames[: code.co_argcount]:
        return rule
    at, writing = code.co_varnames.index("inplace"), _in_place(rule)

    def either(func, args, kwargs):
        changes = kwargs.get("inplace") or (len(args) > at and args[at])
        return (writing if changes else rule)(func, args, kwargs)

    return either


def kinds() -> dict[Callable, str]:
    """The kind of every function that is listed."""
    return {func: row.kind for func, row in (*ROWS.items(), *UNSEEN.items()) if row.kind}
