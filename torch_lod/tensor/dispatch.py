# SPDX-License-Identifier: Apache-2.0
"""The one `__torch_function__`: what happens when a torch function is called with tensors that have a provenance."""

import operator
from typing import Any

import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import LoDError, LoDsDiffer, named, without_dispatch
from . import table
from .attach import CLASSES, attach
from .attributes import Missing, Traced, array_ufunc
from .provenance import Provenance, is_whole, placed, provenance_of, provenances_of, tracked
from .table import ROWS, Row, as_calls, name_of, unlisted

_NONE: dict = {}
_ATEN = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_DENSE = (None, torch.strided)
#: Types of what is given by name and is no tensor; `types` may leave tensors out that are given by name.
OPTIONS = frozenset({int, float, bool, type(None), str, torch.dtype})
#: What classes have as __torch_function__ that have none of their own.
_TORCHS_OWN = (None, torch._C._disabled_torch_function_impl, Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
#: What torch raises for a wrong call. Classes that derive from them are errors of memory, devices, tracing, or ours.
TORCHS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)


class Tracked(Traced, Tensor):
    """A tensor that knows its provenance: LoDTensor and DerivedTensor."""

    _provenance: Provenance = Missing("tl.LoDTensor(values, lod)")  # type: ignore[assignment]
    __array_ufunc__ = array_ufunc

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or _NONE
        several = len(types) != 1
        if several and (others := _others(types)):
            return _beside_others(func, others, args, kwargs)
        if compiling() and (result := _as_other_calls(cls, func, types, args, kwargs)) is not NotImplemented:
            return result
        row = ROWS.get(func) or unlisted(func)
        try:
            if row.plain and row.rule is None and "out" not in kwargs:
                with without_dispatch():
                    return func(*args, **kwargs)
            derived = cls._is_derived
            if not derived and (several or (kwargs and not OPTIONS.issuperset(map(type, kwargs.values())))):
                derived = any(not is_whole(p) for p in provenances_of(args, kwargs))
            run = row.run_at_dim if derived else row.run
            if run is not None and (result := _ours(run, row, func, args, kwargs, derived)) is not NotImplemented:
                return result
            with without_dispatch():
                return _run(func, row, args, kwargs, derived)
        except LoDsDiffer as error:
            return _over_sequences_or_raise(error, func, row, args, kwargs)
        except TORCHS as error:
            table.functions.explain(error, func, args, kwargs)
            raise

    #: Whether it is the class of what is not whole.
    _is_derived = False

    def values(self) -> Tensor:
        """The elements as a plain tensor: same storage, same autograd graph."""
        with without_dispatch():
            if torch.compiler.is_compiling():  # as_subclass cannot be traced
                return torch.ops.aten.alias.default(self)
            return self.as_subclass(Tensor)

    def set_(self, *args, **kwargs):
        """TypeError: the LoD is not that of the new rows. (torch does not call __torch_function__ for set_.)"""
        return table.functions.moves_in_place(Tensor.set_, (self, *args), kwargs)


def _as_other_calls(cls, func, types, args, kwargs):
    """What a function in a graph gives by way of other functions; NotImplemented for most."""
    result = as_calls(cls, func, types, args)
    return over_sequences(func, ROWS.get(func) or unlisted(func), args, kwargs) if result is None else result


def _over_sequences_or_raise(error: LoDsDiffer, func, row: Row, args, kwargs):
    """The result where the rows of one operand are sequences of another; otherwise the error stands."""
    result = NotImplemented if compiling() else over_sequences(func, row, args, kwargs)
    if result is NotImplemented:
        raise error
    return result


def _run(func, row: Row, args, kwargs, derived: bool):
    """Calls a function under its rule; runs without __torch_function__."""
    rule = row.rule
    lost = _checked(func, row, args, kwargs, derived) if derived or rule is None or "out" in kwargs else None
    p = None if rule is None else rule(func, args, kwargs)
    if row.writes and p is None:
        table.functions.refuse_write(func, args, kwargs)
    if lost is not None:
        _refuse_beside_rows(func, row, args, kwargs, p, lost)
    if row.writes and compiling() and args and provenance_of(args[0]) is not None:
        return _write_in_graph(func, args, kwargs)
    result = func(*args, **kwargs)
    if kwargs or (p is not None and p.dim):
        return _with_rows(result, p, lost, func, row, args, kwargs)
    return attach(result, p, row, args)


def _with_rows(result, p: Provenance | None, lost: Provenance | None, func, row: Row, args, kwargs):
    """`attach`, behind the questions that few calls need."""
    p = p if kwargs.get("layout") in _DENSE else None
    if p is not None and p.dim and lost is None and (row.broadcasts is not None or func is torch.einsum):
        table.functions.refuse_undeclared(func, args, kwargs, result, p)
    return attach(result, p, row, (*args, *kwargs.values()))


def _others(types) -> list[Any]:
    """The classes that have a __torch_function__ of their own, and are not ours."""
    return [t for t in types if t not in CLASSES and _answers(t)]


def _answers(cls: type) -> bool:
    if cls.__module__ == "torch.nn.attention.bias":  # CausalBias: the rules of attention know its variants
        return False
    function = getattr(cls, "__torch_function__", None)
    return getattr(function, "__func__", function) not in _TORCHS_OWN


def _beside_others(func, others: list[Any], args, kwargs):
    """The result where an operand is of another class that has a __torch_function__, as a quantised weight: what its numbers
    mean only that class knows, so that it answers, for plain rows. The result is under the rule of the function."""
    row = ROWS.get(func) or unlisted(func)
    try:
        if row.run is not None and (
            row.rule is None or row.kind == "sequence-wise"
        ):  # ours would use its numbers as they are
            raise table.functions.another_class(
                func, others[0], "expected plain tensors beside rows, which it runs along"
            )
        if row.writes:
            raise table.functions.another_class(func, others[0], "expected plain tensors beside rows, where it writes")
        with without_dispatch():
            lost = _checked(func, row, args, kwargs, True)
            p = None if row.rule is None else row.rule(func, args, kwargs)
            if lost is not None:
                _refuse_beside_rows(func, row, args, kwargs, p, lost)
        values, by_name = tuple(_plainly(args)), dict(zip(kwargs, _plainly(kwargs.values())))
        if compiling():  # Dynamo, within __torch_function__, would not come back to it
            result = others[0].__torch_function__(func, tuple(others), values, by_name)
        else:
            result = func(*values, **by_name)
        if row.plain:
            return result
        with without_dispatch():
            return _with_rows(_fresh(func, others, result), p, lost, func, row, args, kwargs)
    except LoDsDiffer as error:
        return _over_sequences_or_raise(error, func, row, args, kwargs)
    except TORCHS as error:
        table.functions.explain(error, func, args, kwargs)
        raise


def _plainly(operands) -> list:
    """The operands, and those in lists among them, with plain tensors in place of rows."""
    return [
        type(v)(_plainly(v)) if type(v) in (tuple, list) else v.values() if provenance_of(v) is not None else v
        for v in operands
    ]


def _fresh(func, others: list[Any], result):
    """What another class gave, as tensors that it does not hold itself. Raises where a result is of another class."""
    if isinstance(result, (tuple, list)):
        return type(result)(_fresh(func, others, t) for t in result)
    if isinstance(result, tuple(others)) and not (isinstance(result, Tensor) and result.dim() == 0):
        raise table.functions.another_class(func, type(result), "expected a plain tensor as result, which takes a LoD")
    return result if type(result) is not Tensor or compiling() else result.as_subclass(Tensor)


def _checked(func, row: Row, args, kwargs, derived: bool) -> Provenance | None:
    """Raises for out=, for functions that are not known, and for operands that no rule allows. Returns the provenance of an
    operand that lost its rows."""
    if kwargs.get("out") is not None:
        table.functions.refuse_out(func, kwargs["out"], (*args, *[v for k, v in kwargs.items() if k != "out"]))
    lost = _lost_operand(func, row, args, kwargs) if derived else None
    if not row.known and (not compiling() or isinstance(func, _ATEN)):
        table.functions.refuse_unknown(func, args, kwargs)  # in a graph functions of Python may be UNSEEN
    return lost


def _write_in_graph(func, args, kwargs):
    """Dynamo treats the tensor and the result as plain: the function changes the values."""
    target = torch.ops.aten.alias.default(args[0])
    if (
        func is Tensor.__setitem__ or func is operator.setitem
    ):  # Dynamo has no class for a value that is of a subclass: it assigns what is in it
        value = args[2]
        target[args[1]] = torch.ops.aten.alias.default(value) if isinstance(value, Tensor) else value
        return None
    func(target, *args[1:], **kwargs)
    return args[0]


def _lost_operand(func, row: Row, args, kwargs) -> Provenance | None:
    """The provenance of an operand that lost its rows. Raises for what no rule allows."""
    if row.writes:
        table.functions.refuse_write(func, args, kwargs)
    lost = part = None
    for p in provenances_of(args, kwargs):
        if p.part is not None and not compiling():  # neither parts nor offsets are constants of a graph
            if part is not None:
                table.functions.refuse_other_sequence(func, row.kind, args, kwargs, part, p)
            part = p
        if p.dim is None:
            lost = p
            if row.writes and row.kind == "refuse":
                what = "expected a plain tensor, since it would be changed along all rows"
                raise table.functions.lost_meets(func, p, what)
    return lost


def _refuse_beside_rows(func, row: Row, args, kwargs, p: Provenance | None, lost: Provenance) -> None:
    """Raises if what lost its rows meets rows, or would be broadcast to more."""
    if p is not None and any(placed(t) is not None for t in tracked(args, kwargs)):
        raise table.functions.lost_meets(func, lost, "expected operands whose rows correspond")
    table.functions.refuse_lost(func, args, kwargs)


def _ours(run, row: Row, func, args, kwargs, derived: bool):
    """A function along sequences: on a layout that it knows, rows at another dim are as good as rows at dim 0."""
    if not derived:
        return run(*args, **kwargs)
    operands = provenances_of(args, kwargs)
    lost = [p for p in operands if p.dim is None and not row.takes_lost]
    if lost:
        raise table.functions.lost_meets(func, lost[0], "expected rows of sequences")
    result = run(*args, **kwargs)
    if result is None:
        raise table.functions.refused(func, next((p for p in operands if p.dim or p.part), operands[0]))
    return result


def called(func, args: tuple, kwargs: dict) -> Any:
    """A call with tracked tensors. Dynamo, within __torch_function__, would not come back to it."""
    if compiling() and tracked(args, kwargs):
        return Tracked.__torch_function__(func, (), args, kwargs)
    return func(*args, **kwargs)


def over_sequences(func, row: Row, args, kwargs) -> Any:
    """That of functions/broadcasting.py, with the name of the function in its errors."""
    try:
        return table.functions.over_sequences(func, row, args, kwargs)
    except LoDError as error:
        raise error if error.call else named(error, name_of(func)) from None
