# SPDX-License-Identifier: Apache-2.0
"""`MovedRows`: what consists of a LoDTensor's rows and is no LoDTensor. The rows are at another dim, or a part of them is
there, or their structure was lost; in every case the tensor knows through which function.

Every result of a torch function that rows of a LoDTensor went into is a LoDTensor or a MovedRows, except scalars made by
reductions, what has another layout, and the results of functions of the kind "plain".
"""

import copy
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..dynamo import IN_PLACE, admit, as_calls, before_the_first, compiling
from ..errors import LoDError, LoDsDiffer, LoDTypeError, LoDValueError, named, own_code, without_policy
from ..ops.composed import COMPOSITIONS
from ..structure.lod import LoD
from ..structure.validate import unmasked
from . import rules as torch_rules
from .explained import TORCHS, explain
from .rules import EACH, At, Mark, known, lost_meets, mark_of, marked, marks_of, name_of, placed

_is_compiling = torch.compiler.is_compiling
_RULES, _MOVED, _Route = torch_rules.RULES, torch_rules.MOVED, torch_rules.Route
_NONE: dict = {}


def _named(names: str) -> dict[Callable, bool]:
    spaces = (torch, Tensor, torch.nn.functional)
    return {f: True for n in names.split() for s in spaces if callable(f := getattr(s, n, None))}


#: The results of these know nothing of rows.
PLAIN = {
    f: True for f, k in torch_rules.KINDS.items() if k == "plain" and known(f) and f is not torch.sparse_coo_tensor
}
# Compiled graphs call these on what they are given, which may be a LoDTensor where it was traced as a plain tensor.
PLAIN |= dict.fromkeys(
    (torch.ops.aten.alias.default, *(getattr(torch.ops.torch_lod, name).default for name in COMPOSITIONS)), True
)
#: Neither do these where the rows were lost: they take a shape.
_FRESH = _named("zeros_like ones_like empty_like full_like rand_like randn_like randint_like equal allclose")
#: Here the second operand only has a shape or a type.
_SHAPE_ONLY = _named("expand_as view_as reshape_as type_as to")
#: The names of all others, in which rows are lost unless a rule knows better.
_LOST_IN = {
    f: name_of(f) for f in torch_rules.KINDS if known(f) and not (PLAIN.get(f) or _FRESH.get(f) or _SHAPE_ONLY.get(f))
}
#: A single element that these give is a selection; that of another function is a reduction, which ends the mark.
_SELECTS = {f: True for f, k in torch_rules.KINDS.items() if k in ("move", "shape") and known(f)}
#: An element of the result is made of the elements at the same place.
_EVEN = {
    f: True
    for f, r in _RULES.items()
    if (r is torch_rules.join or r is torch_rules.keep) and _MOVED[f] is r.moved and known(f)  # type: ignore[attr-defined]
}
#: The result is made of the elements of the first argument, in other dims.
_SHAPES = {
    f: _MOVED[f]
    for f, k in torch_rules.KINDS.items()
    if k == "shape" and known(f) and f in _MOVED and type(_RULES.get(f)) is not _Route and f not in IN_PLACE
}
#: Functions that write into their first argument.
WRITES = {**dict.fromkeys(IN_PLACE, True), Tensor.__setitem__: True}
_REFUSES = {f: True for f, k in torch_rules.KINDS.items() if k == "refuse" and known(f)}
#: Their rule looks at what is written: of rows that were taken by index, a row over itself.
_ASSIGNS = (Tensor.__setitem__, Tensor.index_put_, torch.index_put_)
#: Types of arguments that may be or hold other operands.
_OPERANDS = (Tensor, tuple, list)
#: The class of what has its rows at dim 0: LoDTensor enters itself.
_home: list[Callable] = []


#: Python's operators by the names of numpy's functions, which numpy calls for them.
_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "matmul": operator.matmul,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}


def array_ufunc(self, ufunc, method, *inputs, **kwargs):
    """What numpy asks for where one of its functions meets rows. An operator is torch's, on the array as a tensor: torch
    leaves it to numpy, which would give a plain tensor. Other functions take the rows as they take a plain tensor."""
    operation = _OPERATORS.get(ufunc.__name__) if method == "__call__" and not kwargs else None
    if operation is not None:
        return operation(*map(_of_numpy, inputs))
    written = [t for t in (kwargs.get("out") or ()) if isinstance(t, Tensor)]
    if written:
        call = f"numpy.{ufunc.__name__}"
        raise named(
            LoDTypeError(
                f"expected out as an array, got a {type(written[0]).__name__}: numpy writes into x.values().numpy(), "
                f"torch's functions in place (x.add_(1)) into x"
            ),
            call,
        )
    plain = {name: _plain(value) for name, value in kwargs.items()}
    with without_policy():
        return getattr(ufunc, method)(*map(_plain, inputs), **plain)


def _of_numpy(item):
    if isinstance(item, np.generic):
        return item.item()
    return torch.from_numpy(np.array(unmasked("an operand", item))) if isinstance(item, np.ndarray) else item


def _plain(item):
    return item.as_subclass(Tensor) if isinstance(item, Tensor) else item


def _reversed(self) -> Tensor:
    """The dims in reverse."""  # by functions: Dynamo does not take what an attribute of a tensor gives
    return torch.t(self) if self.dim() <= 2 else torch.permute(self, tuple(range(self.dim() - 1, -1, -1)))


def _settable(read: Callable, name: str) -> Any:
    """An attribute whose assignment writes rows; torch does not call __torch_function__ for it."""

    def write(self, value) -> None:
        rule: Any = torch_rules.join_in_place
        rule = rule if hasattr(self, "_lod") else rule.moved
        rule(Tensor.copy_, (self, value), _NONE)
        getattr(Tensor, name).__set__(self, value)

    return property(lambda self: read(self), write)


def _method(name: str) -> Any:
    """A method that torch has in Python: in a graph the function of that name."""
    eager, traced = getattr(Tensor, name), getattr(torch, name)

    def method(self, *args, **kwargs):
        return traced(self, *args, **kwargs) if compiling() else eager(self, *args, **kwargs)

    return functools.wraps(eager)(own_code(method, name))


_H: Any = Tensor.H
_DATA: Any = Tensor.data


class Traced:
    """Attributes and methods of tensors as functions of torch: torch.compile traces these only as functions."""

    T: Any = property(_reversed)
    H: Any = property(lambda self: torch.adjoint(self) if self.dim() == 2 else _H.__get__(self))
    mT: Any = property(lambda self: torch.transpose(self, -2, -1))
    mH: Any = property(lambda self: torch.adjoint(self))
    real = _settable(torch.real, "real")
    imag = _settable(torch.imag, "imag")
    data: Any = property(
        lambda self: torch.detach(self) if compiling() else _DATA.__get__(self),
        lambda self, value: _DATA.__set__(self, value),
    )

    norm, unique, unique_consecutive, unflatten = map(_method, "norm unique unique_consecutive unflatten".split())

    def split(self, split_size, dim=0):
        return Tensor.split(self, split_size, dim)


class Missing:
    """The structure that a tensor of a class lacks where as_subclass made it, or compiled code took it out of a LoDTensor."""

    def __init__(self, name: str, way_out: str):
        self.name, self.way_out = name, way_out

    def __get__(self, x, owner):
        if x is None or compiling():
            raise AttributeError(self.name)
        said = (
            f"expected a {owner.__name__} that has a structure, got one without, as as_subclass makes it, and compiled code "
            f"returns of list(x); see {self.way_out}, and x.unbind(0)"
        )
        raise named(LoDValueError(said), owner.__name__)  # Python's operators would hide a TypeError


class MovedRows(Traced, Tensor):
    """Rows of a LoDTensor that are not, or not all, at dim 0; functions of torch_lod and `x.transpose(...)` make it."""

    _mark: Mark = Missing("_mark", "a function of a LoDTensor, such as x.t()")  # type: ignore[assignment]
    __array_ufunc__ = array_ufunc

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if compiling() and (result := as_calls(cls, func, types, args)) is not None:
            return result
        try:
            if not kwargs and PLAIN.get(func):
                with without_policy():
                    return func(*args)
            alone = not kwargs and type(args[0]) is MovedRows
            for a in args[1:]:
                if isinstance(a, _OPERANDS):
                    alone = False
            if not alone:
                return run(func, args, kwargs or _NONE)
            if _EVEN.get(func) and len(args) <= 2:  # most calls
                with without_policy():
                    result = func(*args)
                    return _become(result, args[0]._mark) if type(result) is Tensor else _again(result, func, args)
            of = _SHAPES.get(func)
            if of is None:
                return run(func, args, _NONE)
            with without_policy():
                mark = of(func, args, _NONE)
                return settle(func(*args), Mark(mark, 0, "") if isinstance(mark, LoD) else mark, func, args)
        except LoDsDiffer:
            result = NotImplemented if compiling() else over_sequences(func, args, kwargs or _NONE)
            if result is NotImplemented:
                raise
            return result
        except TORCHS as error:
            explain(error, func, args, kwargs)
            raise

    @property
    def lod(self) -> LoD:
        """The structure of the rows, of all of them."""
        return self._mark.lod

    @property
    def rows_dim(self) -> int | None:
        """The dim of the rows; None where their structure was lost."""
        return self._mark.dim

    def values(self) -> Tensor:
        """As a plain tensor: same storage, same autograd graph."""
        with without_policy():
            if _is_compiling():
                return torch.ops.aten.alias.default(self)
            return self.as_subclass(Tensor)

    def set_(self, *args, **kwargs):
        """TypeError: the LoD is not that of the new rows. (torch does not call __torch_function__ for set_.)"""
        return torch_rules.moves_in_place(Tensor.set_, (self, *args), kwargs)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind(0))

    def __repr__(self, *, tensor_contents=None) -> str:  # type: ignore[override]
        mark = self._mark
        part = "" if mark.part is None else f" {mark.part[0]} to {mark.part[1]}"
        where = f"lost in {mark.call}" if mark.dim is None else f"at dim {mark.dim} through {mark.call}"
        return f"MovedRows({self.values()!r}, rows{part} of a LoDTensor {where}, lod={mark.lod})"

    def __format__(self, spec: str) -> str:
        return self.values().__format__(spec) if self.dim() == 0 else repr(self)

    def __reduce_ex__(self, protocol):
        return _load, (self.values().detach(), *self._mark, self.requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError(
                    "only tensors that are leaves of the autograd graph can be deep-copied; see detach()"
                )
            made = _load(self.values().detach().clone(), *self._mark, self.requires_grad)
            if self.grad is not None:
                made.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = made
        return memo[id(self)]


#: Types of operands that may hold another mark.
_CARRIERS = (MovedRows, tuple, list)


def run(func, args, kwargs):
    """A torch function that has a MovedRows among its operands."""
    if compiling() and (result := over_sequences(func, args, kwargs)) is not NotImplemented:
        return result
    rule = _RULES.get(func)
    if type(rule) is _Route:
        done = _along(rule, func, args, kwargs)
        if done is not NotImplemented:
            return done
    with without_policy():
        if PLAIN.get(func):
            return func(*args, **kwargs)
        lost = _check(func, args, kwargs)
        of = _MOVED.get(func)
        mark = None if of is None else of(func, args, kwargs)
        if isinstance(mark, LoD):
            mark = Mark(mark, 0, "")
        meets = mark is not None and lost is not None and any(placed(t) is not None for t in marked(args, kwargs))
        if meets and func not in _ASSIGNS:
            raise lost_meets(func, lost, "expected operands whose rows correspond")
        if lost is not None:
            torch_rules.refuse_lost(func, args, kwargs)
        if compiling() and func is Tensor.__setitem__:
            return assign_in_graph(*args)
        if compiling() and IN_PLACE.get(func) and mark_of(args[0]) is not None:
            func(torch.ops.aten.alias.default(args[0]), *args[1:], **kwargs)
            return args[0]
        result = func(*args, **kwargs)
        if mark is not None and mark.dim and lost is None:
            torch_rules.refuse_undeclared(func, args, kwargs, result, mark)
        return settle(result, mark, func, (*args, *kwargs.values()) if kwargs else args)


def assign_in_graph(target, at, value) -> None:
    """Dynamo has no class for a value that is of a subclass: it assigns what is in it."""
    value = torch.ops.aten.alias.default(value) if isinstance(value, Tensor) else value
    torch.ops.aten.alias.default(target)[at] = value


def _check(func, args, kwargs) -> Mark | None:
    """The mark of an operand that lost its rows. Raises for what no rule allows."""
    out = kwargs.get("out")
    if out is not None:
        torch_rules.refuse_out(func, out, (*args, *[v for k, v in kwargs.items() if k != "out"]))
    if WRITES.get(func):
        torch_rules.refuse_write(func, args, kwargs)
    elif not compiling() and func not in torch_rules.KINDS:
        torch_rules.refuse_unknown(func, args, kwargs)
    lost, some = None, None
    for mark in marks_of(args, kwargs):
        if mark.part is not None and not compiling():  # neither parts nor offsets are constants of a graph
            if some is not None:
                torch_rules.refuse_other_sequence(func, torch_rules.KINDS.get(func), args, kwargs, some, mark)
            some = mark
        if mark.dim is None:
            lost = mark
            if WRITES.get(func) and _REFUSES.get(func):
                raise lost_meets(func, mark, "expected a plain tensor, since it would be changed along all rows")
        elif _REFUSES.get(func) and _MOVED.get(func) is None:
            raise _refused(func, mark)
    return lost


def _refused(func, mark: Mark):
    advice = "it would run along the rows of all sequences; "
    advice += torch_rules.CUT if mark.part else "rows at dim 0 are a LoDTensor, see also x.to_padded()"
    if mark.dim is None:
        return lost_meets(func, mark, "expected rows of sequences")
    said = f"expected a LoDTensor, got its rows{_part(mark)} at dim {mark.dim}, through {mark.call}: {advice}"
    return named(LoDValueError(said), name_of(func))


def _part(mark: Mark) -> str:
    return "" if mark.part is None else f" {mark.part[0]} to {mark.part[1]}"


def _along(rule, func, args, kwargs):
    """A function along sequences: on a layout that it knows, rows at another dim are as good as rows at dim 0."""
    marks = marks_of(args, kwargs)
    lost = [mark for mark in marks if mark.dim is None and not rule.lost]
    if rule.elsewhere is None:
        return NotImplemented
    if lost:
        raise lost_meets(func, lost[0], "expected rows of sequences")
    done = rule.elsewhere(*args, **kwargs)
    if done is None:
        raise _refused(func, next((m for m in marks if m.dim or m.part), marks[0]))
    return done


def _again(result, func, args):
    return result if any(result is a for a in args) else settle(result, placed(args[0]), func, args)


def _become(fresh: Tensor, mark: Mark) -> Tensor:
    """Marks a result that no other object holds."""
    if _is_compiling():
        found: Any = fresh.as_subclass(MovedRows)
    else:
        found = fresh
        found.__class__ = MovedRows
    found._mark = mark
    return found


def settle(result, mark: Mark | None, func, args):
    """The result of a function with a mark, or None if its rows were lost; `args` with the values of keywords."""
    if type(result) is Tensor:
        eager = not _is_compiling()
        if mark is not None:
            lod, dim, call, part = mark
            if call and part is None and type(dim) is int and dim < result.dim():
                if result.size(dim) == (
                    lod._rows if eager else lod.rows
                ):  # common, and made of rows: no operand itself
                    if not dim:
                        return _home[0](result, lod)
                    if not eager:
                        return _become(result, mark)
                    result.__class__ = MovedRows
                    result._mark = mark  # type: ignore[attr-defined]
                    return result
        if eager:  # compiled code wraps the result instead
            for a in args:
                if a is result:
                    return a  # unchanged: it belongs to the caller
        return _settled(result, mark, func, args)
    if isinstance(result, (tuple, list)):
        if mark is not None and mark.part is EACH:
            return _pieces(result, mark, args)
        own = {id(t) for a in args if isinstance(a, (tuple, list)) for t in a}  # unchanged: the caller's
        made = [t if id(t) in own else settle(t, mark, func, args) for t in result]
        return tuple(made) if type(result) is tuple else type(result)(made)
    return result


def _settled(result: Tensor, mark: Mark | None, func, args) -> Tensor:
    named_dim = mark is not None and mark.dim is None  # the rule says that it is lost
    if mark is not None and mark.dim is not None:
        at = mark.dim
        if type(at) is At:
            at = at.dim if result.dim() == at.rank else at.dim - at.gone
        count = mark.lod.rows if mark.part is None else mark.part[1] - mark.part[0]
        if at < result.dim() and result.shape[at] == count:
            if at == 0 and mark.part is None:
                return _home[0](result, mark.lod)
            return _become(
                result,
                mark if at == mark.dim and mark.call else Mark(mark.lod, at, mark.call or name_of(func), mark.part),
            )
        mark = None
    if result.dim() == 0 and not named_dim and not _SELECTS.get(func) and any(t.dim() for t in marked(args, _NONE)):
        if compiling() or not torch._C._functorch.is_batchedtensor(result):  # in vmap it is a number for each sample
            return result
    if mark is None and result.layout == torch.strided and not result.is_nested:
        mark = _lost(func, args)
    return result if mark is None else _become(result, mark)


def _lost(func, args) -> Mark | None:
    """The mark of a result whose rows are lost: that of the operand that lost them, if one did."""
    name = _LOST_IN.get(func)
    if name is not None and args:  # common: without looking for marks
        lod = getattr(args[0], "_lod", None)
        for a in args[1:]:
            if type(a) in _CARRIERS:
                lod = None
        if lod is not None:
            return Mark(lod, None, name)
    if PLAIN.get(func) or _FRESH.get(func) or (_SHAPE_ONLY.get(func) and mark_of(args[0]) is None):
        return None
    marks = marks_of(args, _NONE)
    lost = [m for m in marks if m.dim is None]
    if not marks:
        return None
    made_of = _made_of(marks)
    return lost[0]._replace(part=made_of) if lost else Mark(marks[0].lod, None, name_of(func), made_of)


def _made_of(marks: list[Mark]) -> tuple[int, int] | None:
    """The first and the end of the rows that went into a result, None if any may have."""
    begins, ends = [], []
    for m in marks:
        if m.part is None or m.lod is not marks[0].lod or (compiling() and m.part != marks[0].part):
            return None
        begins.append(m.part[0])
        ends.append(m.part[1])
    return min(begins), max(ends)


def _pieces(results, mark: Mark, args):
    """Each result has the rows after those of the one before."""
    own = marks_of(args, _NONE)[0]
    begin, found = own.part[0] if own.part else 0, []
    for t in results:
        end = begin + (1 if mark.dim is None else t.shape[mark.dim])
        part = None if mark.dim is not None and (begin, end) == (0, mark.lod.rows) else (begin, end)
        if part is None and mark.dim == 0:
            found.append(_home[0](t, mark.lod))
        else:
            found.append(_become(t, Mark(mark.lod, mark.dim, own.call or mark.call, part)))
        begin = end
    return type(results)(found)


def remarked(fresh: Tensor, mark: Mark | None) -> Tensor:
    """What no other object holds, with what is known about its rows."""
    if mark is None:
        return fresh
    return _home[0](fresh, mark.lod) if mark.dim == 0 and mark.part is None else _become(fresh, mark)


def _called(func, args: tuple, kwargs: dict) -> Any:
    """A call with LoDTensors or MovedRows. Dynamo, within __torch_function__, would not come back to it."""
    operands = marked(args, kwargs) if compiling() else []
    if not operands:
        return func(*args, **kwargs)
    for t in operands:
        if isinstance(t, MovedRows):
            return MovedRows.__torch_function__(func, (), args, kwargs)
    return type(operands[0]).__torch_function__(func, (), args, kwargs)


def over_sequences(func, args, kwargs) -> Any:
    """`torch_rules.over_sequences`, whose operands are marked here."""
    try:
        return torch_rules.over_sequences(func, args, kwargs, remarked, _called)
    except LoDError as error:
        raise error if error.call else named(error, name_of(func)) from None


def moved_rows(values: Tensor, lod: LoD, dim: int, call: str) -> Tensor:
    """Rows at a dim other than 0, which no other object holds."""
    before_the_first()
    return _become(values, Mark(lod, dim, call))


def _load(values: Tensor, lod: LoD, dim: int | None, call: str, part, requires_grad: bool) -> Tensor:
    """Called by pickle and torch.load: a file is input like any other, so it is validated."""
    if not isinstance(lod, LoD) or not isinstance(values, Tensor) or not isinstance(call, str):
        raise LoDTypeError(
            f"expected values, a LoD and a name, got {type(values).__name__}, {type(lod).__name__}, {call!r}"
        )
    count = lod.rows if part is None else part[1] - part[0]
    if dim is not None and not (0 <= dim < values.dim() and values.shape[dim] == count):
        raise LoDValueError(f"expected {count} rows at dim {dim}, got shape {tuple(values.shape)}")
    before_the_first()
    with without_policy():
        loaded = _become(values.as_subclass(Tensor), Mark(lod, dim, call, part))
    return loaded.requires_grad_() if requires_grad is True else loaded


class _DynamicDims:
    """The dim of the rows, until AOTAutograd writes an attribute of that name into a tensor."""

    def __get__(self, x: MovedRows | None, owner) -> frozenset:
        return frozenset({0 if x is None else x.rows_dim or 0})


torch.serialization.add_safe_globals([_load, (_load, "torch_lod.moved_rows._load")])  # not the class: see lod.py
admit(MovedRows, _DynamicDims())
