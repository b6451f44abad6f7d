# SPDX-License-Identifier: Apache-2.0
"""How a function of this package runs when torch's is called with a LoDTensor."""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import torch_rules
from ..errors import LoDError, LoDTypeError, LoDValueError, border, named, shown, without_policy
from ..tensor import LoDTensor

#: Functions that take a `OneSample`.
TAKE_SAMPLES: set[Callable] = set()


def route(*funcs: Callable, kind: str | None = "sequence-wise", samples: bool = False):
    """Registers a function that replaces `funcs` of torch. It has their signature and runs without the policy table. It
    returns NotImplemented for arguments that torch's own function handles. Its errors name torch's function.

    `kind`: the kind that the policy table gets for `funcs`, None to leave it; `samples`: they take a OneSample.
    """

    def enter(ours):
        for func in funcs:
            routed = border(func.__name__, policy=False)(ours)
            torch_rules.RULES[func] = torch_rules.Route(routed, torch_rules.RULES.get(func))
            if kind is not None:
                torch_rules.KINDS[func] = kind
            if samples:
                TAKE_SAMPLES.add(func)
        return ours

    return enter


def structured(value) -> bool:
    return isinstance(value, (LoDTensor, OneSample))


def only_first(first, **others) -> bool:
    """Whether the input is a LoDTensor; refuses parameters that are."""
    if not structured(first):
        return False
    for name, value in others.items():
        if structured(value):
            raise LoDTypeError(f"expected {name} as a plain tensor, got a LoDTensor; see its .values()")
    return True


def one(what: str, value, least: int) -> int:
    """A number, given as such or as a tuple of one number, the form in which torch's modules keep it."""
    number = value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value
    if type(number) is not int or not least <= number <= 2**20:
        raise LoDValueError(f"expected {what} in [{least}, {2**20}], got {shown(value)}")
    return number


class OneSample(Tensor):
    """The result of `x.unsqueeze(0)`: all rows as one sample (1, rows, features). In this form torch's modules pass an
    input without a batch dim on. Only its shape, dtype and the like, the functions that run along sequences, and
    squeeze are allowed; every other function would treat the rows of different sequences as one sequence."""

    rows: LoDTensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in TAKE_SAMPLES:
            done = torch_rules.RULES[func].ours(*args, **kwargs)  # type: ignore[attr-defined]
            if done is not NotImplemented:
                return done
        elif func in _SQUEEZES and (args[1] if len(args) > 1 else kwargs.get("dim")) == 0:
            return (args[0] if args else kwargs["input"]).rows
        elif func in _QUESTIONS:
            with without_policy():
                return func(*args, **kwargs)
        raise _refusal(torch_rules.name_of(func))

    @property
    def _lod(self):
        """Raises: every rule that joins operands reads it."""
        raise _refusal("join")

    def __repr__(self, *, tensor_contents=None) -> str:  # type: ignore[override]
        return f"OneSample({self.rows!r})"


def _refusal(call: str) -> LoDError:
    # after a TypeError Python's operators would raise an error of their own
    error = LoDValueError(
        "expected a plain tensor, got a LoDTensor as one sample: behind a new dim 0 all rows would be one sequence; "
        "x.to_padded() has one for each, mixing rows on purpose is x.values().unsqueeze(0)"
    )
    return named(error, call)


def one_sample(x: LoDTensor) -> OneSample:
    sample = x.values().unsqueeze(0).as_subclass(OneSample)
    sample.rows = x
    return sample


_SQUEEZES = {torch.squeeze, Tensor.squeeze}


def _getters(*names: str):
    return {getattr(Tensor, name).__get__ for name in names}


_QUESTIONS = {Tensor.dim, Tensor.size, Tensor.numel, Tensor.nelement, Tensor.is_floating_point, Tensor.is_complex}
_QUESTIONS |= {torch.is_floating_point, torch.is_complex, torch.numel, Tensor.__len__, Tensor.get_device}
_QUESTIONS |= _getters("shape", "dtype", "device", "layout", "ndim", "is_cuda", "is_cpu", "is_nested", "requires_grad")


@route(torch.unsqueeze, Tensor.unsqueeze, kind=None)
def unsqueeze(input, dim):
    if isinstance(input, LoDTensor) and input.dim() == 2 and dim in (0, -3):
        return one_sample(input)
    return NotImplemented
