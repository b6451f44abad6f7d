# SPDX-License-Identifier: Apache-2.0
"""Rules that receive the arguments of a call by name."""

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..tensor.dispatch import OPTIONS
from ..tensor.provenance import At, Provenance, carries, is_whole, placed, provenance_of, provenances_of
from ..tensor.table import Rule, name_of
from .placement import FIRST, place
from .refusals import ALONG, all_pairs, refusal, refused

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

#: Types of what may be given beside the operand where all of it is plain: exactly these have no provenance.
_PLAIN = OPTIONS | {Tensor, torch.nn.Parameter}


class Signature:
    """The arguments that a rule needs, as Python writes them: "input, weight: plain, dim=-1" or "input, *shape". What a call
    leaves out is None unless a default is given. Annotations tell how an argument relates to the rows of the result:

    rows: row i of the result is computed from its row i. This is the default for the first argument.
    broadcast: as rows, and broadcast with the other operands (`join`).
    plain: a tensor of any shape, such as a weight. If it is a LoDTensor the result is plain, since its rows would mix.
    beside: as plain; its dim 0 is another dim of the result, where each of its rows would meet all rows: they are refused.
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
        self.keywords = self._keywords()
        kinds = [a.annotation.id if a.annotation else "option" if i else "rows" for i, a in enumerate(arguments)]
        self.kinds = dict(zip(self.names, kinds))
        self.broadcast = "broadcast" in kinds
        self.operands = [i for i, kind in enumerate(kinds) if kind in ("rows", "broadcast")]
        self.weights = [i for i, kind in enumerate(kinds) if kind in ("plain", "beside")]
        self.beside = [i for i, kind in enumerate(kinds) if kind == "beside"]
        #: Whether the first argument is the only operand, and every other one has a name.
        self.single = self.operands == [0] and not self.star
        self.options = [i for i, a in enumerate(arguments) if kinds[i] == "option" and a is not given.vararg]

    def _keywords(self) -> dict[str, list[int]]:
        """For every keyword, the arguments that it may mean."""
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            for key in {name, *(_ALIASES.get(name, ()) if i else FIRST)} - ({*self.names} - {name}):
                found.setdefault(key, []).append(i)
        return found

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

    def mixed(self, values: list, rank: int, args: tuple, kwargs: dict) -> bool:
        """Whether a LoDTensor is given that is no operand, or as an option a tensor of more than `rank` dims."""
        for i in self.weights:
            if provenance_of(values[i]) is not None:
                return True
        options = [values[i] for i in self.options]
        options += [] if self.star else args[self.positional :]
        options += [value for key, value in kwargs.items() if key not in self.keywords]
        for value in options:
            if isinstance(value, Tensor):
                if value.dim() > rank or provenance_of(value) is not None:
                    return True
            elif isinstance(value, (tuple, list)) and carries(value):
                return True
        return False


def signature(text: str) -> Callable[[Callable], Rule]:
    """Makes a rule from a function that answers "are the rows of the operands the rows of the result?". Its first
    parameter is torch's function; the others name what it needs: arguments of the signature, `input` for the first,
    `rank` for the largest number of dims of an operand, `rows` for the dim of the rows in the operands. If it returns
    True, the rows are where they are in the operands, as the annotations say; if an `At`, they are at another dim; if
    False, they are lost; it may also return the provenance of the result. It is called only if an operand has rows.

    A function without a parameter `rows` answers for LoDTensors, whose rows are at dim 0: rows elsewhere are lost."""
    of = Signature(text)

    def decorate(question: Callable[..., Any]) -> Rule:
        code = question.__code__
        index = {"input": 0, **{name: i for i, name in enumerate((*of.names, "rank", "rows"))}}
        wanted = [index[name] for name in code.co_varnames[1 : code.co_argcount]]
        anywhere = "rows" in code.co_varnames[: code.co_argcount]
        plain = OPTIONS if of.options else _PLAIN

        def rule(func, args, kwargs):
            single = of.single and not kwargs and 0 < len(args) <= of.positional
            if single and isinstance(args[0], Tensor) and plain.issuperset(map(type, args[1:])):  # nearly every call
                values = [*args, *of.defaults[len(args) :]]
                p, rank = getattr(args[0], "_provenance", None), args[0].dim()
                p = None if p is None or p.dim is None else p
            else:
                values, single = of.bind(args, kwargs), False
                p, rank = place(func, [values[i] for i in of.operands], of.broadcast)
            if p is None or not (anywhere or (p.dim == 0 and p.part is None)):
                return None
            for i in of.beside if not single else ():
                if (other := placed(values[i])) is not None and other.dim == 0:
                    raise all_pairs(func)
            values += (rank, p.dim)
            answer = question(func, *[values[i] for i in wanted])
            if isinstance(answer, Provenance):
                return answer
            if not answer or (not single and of.mixed(values, rank, args, kwargs)):
                return None
            if type(answer) is not At:
                return p
            dim = answer if answer.gone else answer.dim
            return Provenance(p.lod, dim, p.call or name_of(func), p.part)

        return rule

    return decorate


def touches_rows(dims, rank: int, rows: int = 0) -> bool:
    """Whether the dim of the rows is among `dims`, a number or several; None and () stand for all of them."""
    both = (rows, rows - rank)
    if isinstance(dims, (tuple, list)):
        return not dims or any(d in both for d in dims)
    return dims is None or dims in both


def without(dims, rank: int, rows: int) -> At:
    """The answer of a function that may remove dims, none of them that of the rows."""
    several = dims if isinstance(dims, (tuple, list)) else (dims,)
    return At(rows, sum(d % rank < rows for d in several), rank)


# -- rules of many functions


def row_by_row(text: str):
    """Row i of the result is made of row i of every operand, which is dim 0."""
    return signature(text)(lambda func: True)


def by_element(text: str):
    """As `row_by_row`, wherever the rows are: the function adds or changes dims behind them at most."""
    return signature(text)(lambda func, rows: True)


def reduced(func, x, rank: int, dim) -> Provenance | bool:
    """What a reduction along the rows gives: its result is lost, also where it has no dims; only one of everything, which
    names no dim, is a number like any other."""
    p = provenance_of(x)
    return False if dim is None or rank > 1 or p is None else Provenance(p.lod, None, name_of(func), p.part)


def at_other_dims(text: str):
    """The result keeps the rows unless their dim is among the dims."""

    @signature(text)
    def rule(func, input, rank, dim, rows):
        if touches_rows(dim, rank, rows):
            if isinstance(dim, (tuple, list)) and not dim:
                raise refusal(
                    func, f"for torch dim={dim} means all dims, that of the rows as well; leave dim out for all"
                )
            return reduced(func, input, rank, dim)
        return without(dim, rank, rows) if rows else True

    return rule


def refuse_on_rows(text: str, advice: str):
    """As `at_other_dims`, but if the dim of the rows is among the dims and the input has a LoD, it raises."""

    @signature(text)
    def rule(func, input, dim, rows):
        touched = touches_rows(dim, input.dim(), rows)
        if touched and provenance_of(input) is not None:
            turned = "move the rows to dim 0: " if rows and advice.startswith("tl.sequence_") else ""
            raise refusal(func, f"{ALONG if not rows else along_dim(input)}; {turned}{advice}")
        return not touched

    return rule


def along_dim(x) -> str:
    p = provenance_of(x)
    assert p is not None
    return f"along dim {p.dim}, where {p.call} put the rows, it mixes the rows of different sequences"


def refuse(advice: str):
    def rule(func, args, kwargs):
        raise refusal(func, advice)

    return rule


def refuse_parts(rule):
    """`rule`, which raises, with what to write for some rows of the batch."""

    def rule_of_parts(func, args, kwargs):
        for p in provenances_of(args, kwargs):
            if p.part is not None:
                raise refused(func, p)
        return rule(func, args, kwargs)

    return rule_of_parts


def only_at_dim_0(rule):
    """`rule` of LoDTensors; rows elsewhere are refused."""

    def rule_at_dim_0(func, args, kwargs):
        for p in provenances_of(args, kwargs):
            if p.dim is not None and not is_whole(p):
                raise refused(func, p)
        return rule(func, args, kwargs)

    return rule_at_dim_0


# modules that torch.ao quantised: of int8 the scale of the input is one for all of it
SCALED = refuse(
    "its scale is taken from the rows of all sequences; with x.sequences() every sequence has one, with torchao's quantize_ every "
    "row; x.values() takes it from all rows on purpose"
)
