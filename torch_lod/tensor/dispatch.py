# SPDX-License-Identifier: Apache-2.0
"""The one `__torch_function__`: what happens when a torch function is called with tensors that have a provenance."""

from typing import Any

import torch
from torch import Tensor

from ..dynamo import IN_PLACE, as_calls, compiling
from ..errors import LoDError, LoDsDiffer, named, without_policy
from . import rules
from .attach import CLASSES, PLAIN, attach, with_provenance
from .attributes import Missing, Traced, array_ufunc
from .explained import TORCHS, explain
from .provenance import Provenance, is_whole, placed, provenance_of, provenances_of, tracked
from .rules import KINDS, RULES, Route, known, lost_meets, name_of

_NONE: dict = {}
_ATEN = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_DENSE = (None, torch.strided)
#: Types of what is given by name and is no tensor; `types` may leave tensors out that are given by name.
_OPTIONS = frozenset({int, float, bool, type(None), str, torch.dtype})
#: Functions that write into their first argument.
WRITES = {**dict.fromkeys(IN_PLACE, True), Tensor.__setitem__: True}
for _f in (Tensor.requires_grad_, Tensor.detach_, Tensor.share_memory_, torch.detach_):
    WRITES.pop(_f, None)
_REFUSES = {f: True for f, k in KINDS.items() if k == "refuse" and known(f)}
#: What classes have as __torch_function__ that have none of their own.
_TORCHS_OWN = (None, torch._C._disabled_torch_function_impl, Tensor.__torch_function__.__func__)  # type: ignore[attr-defined]
#: Their rule looks at what is written: of rows that were taken by index, a row over itself.
_ASSIGNS = (Tensor.__setitem__, Tensor.index_put_, torch.index_put_)


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
        try:
            rule = RULES.get(func)
            if rule is None and PLAIN.get(func) and "out" not in kwargs:
                with without_policy():
                    return func(*args, **kwargs)
            derived = cls._is_derived
            if not derived and (several or (kwargs and not _OPTIONS.issuperset(map(type, kwargs.values())))):
                derived = any(not is_whole(p) for p in provenances_of(args, kwargs))
            if type(rule) is Route and (result := _routed(rule, func, args, kwargs, derived)) is not NotImplemented:
                return result
            with without_policy():
                return _run(func, rule, args, kwargs, derived)
        except LoDsDiffer as error:
            return _over_sequences_or_raise(error, func, args, kwargs)
        except TORCHS as error:
            explain(error, func, args, kwargs)
            raise

    #: Whether it is the class of what is not whole.
    _is_derived = False

    def values(self) -> Tensor:
        """The elements as a plain tensor: same storage, same autograd graph."""
        with without_policy():
            if torch.compiler.is_compiling():  # as_subclass cannot be traced
                return torch.ops.aten.alias.default(self)
            return self.as_subclass(Tensor)

    def set_(self, *args, **kwargs):
        """TypeError: the LoD is not that of the new rows. (torch does not call __torch_function__ for set_.)"""
        return rules.moves_in_place(Tensor.set_, (self, *args), kwargs)


def _as_other_calls(cls, func, types, args, kwargs):
    """What a function in a graph gives by way of other functions; NotImplemented for most."""
    result = as_calls(cls, func, types, args)
    return over_sequences(func, args, kwargs) if result is None else result


def _over_sequences_or_raise(error: LoDsDiffer, func, args, kwargs):
    """The result where the rows of one operand are sequences of another; otherwise the error stands."""
    result = NotImplemented if compiling() else over_sequences(func, args, kwargs)
    if result is NotImplemented:
        raise error
    return result


def _run(func, rule, args, kwargs, derived: bool):
    """Calls a function under its rule; runs without __torch_function__."""
    lost = _checked(func, args, kwargs, derived) if derived or rule is None or "out" in kwargs else None
    p = None if rule is None else rule(func, args, kwargs)
    if p is None and WRITES.get(func):
        rules.refuse_write(func, args, kwargs)
    if lost is not None:
        _refuse_beside_rows(func, args, kwargs, p, lost)
    if WRITES.get(func) and compiling() and args and provenance_of(args[0]) is not None:
        return _write_in_graph(func, args, kwargs)
    result = func(*args, **kwargs)
    if kwargs or (p is not None and p.dim):
        return _with_rows(result, p, lost, func, args, kwargs)
    return attach(result, p, func, args)


def _with_rows(result, p: Provenance | None, lost: Provenance | None, func, args, kwargs):
    """`attach`, behind the questions that few calls need."""
    p = p if kwargs.get("layout") in _DENSE else None
    if p is not None and p.dim and lost is None and (rules.BROADCASTS.get(func) or func is torch.einsum):
        rules.refuse_undeclared(func, args, kwargs, result, p)
    return attach(result, p, func, (*args, *kwargs.values()))


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
    try:
        rule = RULES.get(func)
        if type(rule) is Route:  # ours would use its numbers as they are
            rule = None if KINDS.get(func) == "sequence-wise" else rule.rule
            if rule is None:
                raise rules.another_class(func, others[0], "expected plain tensors beside rows, which it runs along")
        if WRITES.get(func):
            raise rules.another_class(func, others[0], "expected plain tensors beside rows, where it writes")
        with without_policy():
            lost = _checked(func, args, kwargs, True)
            p = None if rule is None else rule(func, args, kwargs)
            if lost is not None:
                _refuse_beside_rows(func, args, kwargs, p, lost)
        values, by_name = tuple(_plainly(args)), dict(zip(kwargs, _plainly(kwargs.values())))
        if compiling():  # Dynamo, within __torch_function__, would not come back to it
            result = others[0].__torch_function__(func, tuple(others), values, by_name)
        else:
            result = func(*values, **by_name)
        if PLAIN.get(func):
            return result
        with without_policy():
            return _with_rows(_fresh(func, others, result), p, lost, func, args, kwargs)
    except LoDsDiffer as error:
        return _over_sequences_or_raise(error, func, args, kwargs)
    except TORCHS as error:
        explain(error, func, args, kwargs)
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
        raise rules.another_class(func, type(result), "expected a plain tensor as result, which takes a LoD")
    return result if type(result) is not Tensor or compiling() else result.as_subclass(Tensor)


def _checked(func, args, kwargs, derived: bool) -> Provenance | None:
    """Raises for out=, for functions that are not known, and for operands that no rule allows. Returns the provenance of an
    operand that lost its rows."""
    if kwargs.get("out") is not None:
        rules.refuse_out(func, kwargs["out"], (*args, *[v for k, v in kwargs.items() if k != "out"]))
    lost = _lost_operand(func, args, kwargs) if derived else None
    if func not in RULES and (isinstance(func, _ATEN) if compiling() else func not in KINDS):
        rules.refuse_unknown(func, args, kwargs)  # Dynamo cannot look up every function in KINDS
    return lost


def _write_in_graph(func, args, kwargs):
    """Dynamo treats the tensor and the result as plain: the function changes the values."""
    target = torch.ops.aten.alias.default(args[0])
    if func is Tensor.__setitem__:  # Dynamo has no class for a value that is of a subclass: it assigns what is in it
        value = args[2]
        target[args[1]] = torch.ops.aten.alias.default(value) if isinstance(value, Tensor) else value
        return None
    func(target, *args[1:], **kwargs)
    return args[0]


def _lost_operand(func, args, kwargs) -> Provenance | None:
    """The provenance of an operand that lost its rows. Raises for what no rule allows."""
    if WRITES.get(func):
        rules.refuse_write(func, args, kwargs)
    lost = part = None
    for p in provenances_of(args, kwargs):
        if p.part is not None and not compiling():  # neither parts nor offsets are constants of a graph
            if part is not None:
                rules.refuse_other_sequence(func, KINDS.get(func), args, kwargs, part, p)
            part = p
        if p.dim is None:
            lost = p
            if WRITES.get(func) and _REFUSES.get(func):
                raise lost_meets(func, p, "expected a plain tensor, since it would be changed along all rows")
    return lost


def _refuse_beside_rows(func, args, kwargs, p: Provenance | None, lost: Provenance) -> None:
    """Raises if what lost its rows meets rows, or would be broadcast to more."""
    if p is not None and func not in _ASSIGNS and any(placed(t) is not None for t in tracked(args, kwargs)):
        raise lost_meets(func, lost, "expected operands whose rows correspond")
    rules.refuse_lost(func, args, kwargs)


def _routed(route: Route, func, args, kwargs, derived: bool):
    """A function along sequences: on a layout that it knows, rows at another dim are as good as rows at dim 0."""
    if not derived:
        return route.ours(*args, **kwargs)
    if route.elsewhere is None:
        return NotImplemented
    operands = provenances_of(args, kwargs)
    lost = [p for p in operands if p.dim is None and not route.lost]
    if lost:
        raise lost_meets(func, lost[0], "expected rows of sequences")
    result = route.elsewhere(*args, **kwargs)
    if result is None:
        raise rules.refused(func, next((p for p in operands if p.dim or p.part), operands[0]))
    return result


def _called(func, args: tuple, kwargs: dict) -> Any:
    """A call with tracked tensors. Dynamo, within __torch_function__, would not come back to it."""
    if compiling() and tracked(args, kwargs):
        return Tracked.__torch_function__(func, (), args, kwargs)
    return func(*args, **kwargs)


def over_sequences(func, args, kwargs) -> Any:
    """`rules.over_sequences`, whose operands get their provenance here."""
    try:
        return rules.over_sequences(func, args, kwargs, with_provenance, _called)
    except LoDError as error:
        raise error if error.call else named(error, name_of(func)) from None
