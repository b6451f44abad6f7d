# SPDX-License-Identifier: Apache-2.0
"""Rules that receive the arguments of a call by name."""

import ast
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...structure.lod import LoD
from .arguments import At, Mark, Rule, carries, lod_of, mark_of, name_of
from .operands import FIRST, agree, join, place

#: Other names of arguments: numpy's, and those of functions that share a rule.
_ALIASES = {
    "dim": ("axis", "dims", "dimension"),
    "dim0": ("axis0",),
    "dim1": ("axis1",),
    "shape": ("size",),
    "repeats": ("dims",),
    "index": ("indices",),
    "other": ("x2", "mat2", "vec", "tensor2", "input3"),
    "mat1": ("mat", "vec1", "batch1"),
    "mat2": ("vec", "vec2", "batch2"),
    "tau": ("input2",),
    "L": ("input2",),
}

#: Types of options that hold no tensor.
_NUMBERS = frozenset({int, float, bool, type(None), str, torch.dtype})
#: Types of nearly all tensors without a LoD.
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


class Signature:
    """The arguments that a rule needs, as Python writes them: "input, weight: plain, dim=-1" or "input, *shape". What a call
    leaves out is None unless a default is given. Annotations tell how an argument relates to the rows of the result:

    rows: row i of the result is computed from its row i. This is the default for the first argument.
    broadcast: as rows, and broadcast with the other operands (`join`).
    plain: a tensor of any shape, such as a weight. If it is a LoDTensor the result is plain, since its rows would mix.
    tensors: a list of tensors, which the rule examines itself.

    An argument without annotation is an option. It is treated as plain; in addition the result is plain if the option
    is a tensor of more dims than the operands, since torch broadcasts them to it. Arguments that the signature does not
    name are options.
    """

    def __init__(self, text: str):
        given = ast.parse(f"def f({text}): ...").body[0].args  # type: ignore[attr-defined]
        self.positional, self.star = len(given.args), given.vararg is not None
        arguments = [*given.args, *([given.vararg] if self.star else []), *given.kwonlyargs]
        self.names = [a.arg for a in arguments]
        defaults = [None] * (self.positional - len(given.defaults)) + given.defaults
        defaults += [ast.Tuple([])] * self.star + given.kw_defaults
        self.defaults = [None if d is None else ast.literal_eval(d) for d in defaults]
        #: For every keyword, the arguments that it may mean.
        self.keywords: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            for key in {name, *(_ALIASES.get(name, ()) if i else FIRST)} - ({*self.names} - {name}):
                self.keywords.setdefault(key, []).append(i)
        kinds = [a.annotation.id if a.annotation else "option" if i else "rows" for i, a in enumerate(arguments)]
        self.kinds = dict(zip(self.names, kinds))
        self.broadcast = "broadcast" in kinds
        self.operands = [i for i, kind in enumerate(kinds) if kind in ("rows", "broadcast")]
        self.weights = [i for i, kind in enumerate(kinds) if kind == "plain"]
        self.options = [i for i, a in enumerate(arguments) if kinds[i] == "option" and a is not given.vararg]

    def bind(self, args: tuple, kwargs: dict) -> list:
        """A value for every argument of the signature."""
        n = self.positional
        values = list(args[:n])
        if self.star and len(args) > n:
            values.append(args[n] if isinstance(args[n], (tuple, list)) else args[n:])
        bound = len(values)
        values += self.defaults[bound:]
        for key, value in kwargs.items():
            for i in self.keywords.get(key, ()):
                if i >= bound:
                    values[i] = value
        for i in self.options:
            if isinstance(values[i], np.integer):
                values[i] = int(values[i])
        return values

    def rank(self, values: list) -> int:
        """The largest number of dims of an operand; 0 if none is a LoDTensor."""
        rank, found = 0, False
        for i in self.operands:
            value = values[i]
            if isinstance(value, Tensor):
                rank = max(rank, value.dim())
                found = found or lod_of(value) is not None
            else:
                found = found or carries(value)
        return rank if found else 0

    def lod(self, func: Callable, values: list) -> LoD | None:
        """The LoD of the operands."""
        operands = tuple([values[i] for i in self.operands])
        return join(func, operands, {}) if self.broadcast else agree(func, operands)

    def mixed(self, values: list, rank: int, args: tuple, kwargs: dict) -> bool:
        """Whether a LoDTensor is given that is no operand, or as an option a tensor of more than `rank` dims."""
        for i in self.weights:
            if mark_of(values[i]) is not None:
                return True
        options = [values[i] for i in self.options]
        options += [] if self.star else args[self.positional :]
        options += [value for key, value in kwargs.items() if key not in self.keywords]
        for value in options:
            if isinstance(value, Tensor):
                if value.dim() > rank or mark_of(value) is not None:
                    return True
            elif isinstance(value, (tuple, list)) and carries(value):
                return True
        return False


def signature(text: str) -> Callable[[Callable], Rule]:
    """Makes a rule from a function that answers "are the rows of the operands the rows of the result?". Its first
    parameter is torch's function; the others name what it needs: arguments of the signature, `input` for the first,
    `rank` for the largest number of dims of an operand. If it returns True, the result has the LoD of the operands, as
    the annotations say; if False, they are lost; if a LoD, the result has that one; if an `At`, they are at another dim.
    It is called only if an operand is a LoDTensor.

    A function that has a parameter `rows`, the dim of the rows in the operands, 0 for LoDTensors, answers for rows at
    any dim; True means that they stay at that dim. Without it, rows at another dim than 0 are lost."""
    of = Signature(text)

    def decorate(question: Callable[..., bool | LoD | None]) -> Rule:
        code = question.__code__
        index = {"input": 0, **{name: i for i, name in enumerate((*of.names, "rank", "rows"))}}
        wanted = [index[name] for name in code.co_varnames[1 : code.co_argcount]]

        defaults, operands, positional, star = of.defaults, of.operands, of.positional, of.star
        kinds = [*[*of.kinds.values()][1:positional], *["option"] * 16]  # kinds of the arguments behind the first
        alone = not of.broadcast and operands[:1] == [0]
        closed = positional == len(of.names)  # nothing is by keyword only
        asks_input = code.co_varnames[1 : code.co_argcount] == ("input", "rank", "rows")

        def rule(func, args, kwargs):
            rank = 0  # of nearly every call, x with numbers and plain tensors
            if alone and args and len(args) <= 16 and (not kwargs or (closed and len(args) >= positional)):
                if isinstance(args[0], Tensor) and (not kwargs or _NUMBERS.issuperset(map(type, kwargs.values()))):
                    rank = args[0].dim()
                for kind, value in zip(kinds, args[1:]):
                    given = type(value)
                    if given not in _NUMBERS:
                        if kind == "option" or not (
                            given in _PLAIN or (isinstance(value, Tensor) and lod_of(value) is None)
                        ):
                            rank = 0
                            break
                        if kind == "rows" and rank:
                            rank = max(rank, value.dim())
            if rank:
                lod = getattr(args[0], "_lod", None)
                if lod is None:
                    return None
                if asks_input:
                    answer = question(func, args[0], rank, 0)
                elif wanted:
                    values = (
                        [*args[:positional], args[positional:]] if star and args[positional:] else [*args[:positional]]
                    )
                    values += defaults[len(values) :]
                    values += (rank, 0)
                    answer = question(func, *[values[i] for i in wanted])
                else:
                    answer = question(func)
                if answer is True:
                    return lod
                if type(answer) is At:
                    return Mark(lod, answer.dim, name_of(func))
                return answer if isinstance(answer, (LoD, Mark)) else lod if answer else None
            values = of.bind(args, kwargs)
            rank = of.rank(values)
            if not rank and operands:
                return None
            values += (rank, 0)
            answer = question(func, *[values[i] for i in wanted])
            if isinstance(answer, (LoD, Mark)):
                return answer
            # not `is True`: if sizes are symbols of torch.compile, the answer is a symbol too
            lod = of.lod(func, values) if answer and not of.mixed(values, rank, args, kwargs) else None
            return Mark(lod, answer.dim, name_of(func)) if type(answer) is At and isinstance(lod, LoD) else lod

        def moved(func, args, kwargs):
            at = getattr(args[0], "_mark", None) if alone and args and not kwargs else None
            for value in args[1:]:
                if type(value) not in _NUMBERS:
                    at = None
            numbers = at is not None and at.dim is not None
            if numbers:  # nearly every call
                values = [*args[:positional], args[positional:]] if star and args[positional:] else [*args[:positional]]
                values += defaults[len(values) :]
                rank = args[0].dim()
            else:
                values = of.bind(args, kwargs)
                at, rank = place(func, [values[i] for i in of.operands], of.broadcast)
                if at is None:
                    return None
            values += (rank, at.dim)
            answer = question(func, *[values[i] for i in wanted])
            if isinstance(answer, (LoD, Mark)):
                return answer
            if not answer or (not numbers and of.mixed(values, rank, args, kwargs)):
                return None
            return Mark(at.lod, answer, at.call, at.part) if type(answer) is At else at

        if "rows" in code.co_varnames[: code.co_argcount]:
            rule.moved = moved  # type: ignore[attr-defined]
        return rule

    return decorate
