# SPDX-License-Identifier: Apache-2.0
"""The words that the table of sequence operators is written in: structures, samples, what is done to all tensors of a call."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import sequence_reference as reference
import torch
from conftest import FULL
from op_words import FLOATS, values

import torch_lod as tl

#: Empty sequences at both ends, in the middle and at outer levels, all empty, none at all; one to three levels.
STRUCTURES = {
    "one": [[2, 0, 3, 1]],
    "one, empty ends": [[0, 2, 1, 0]],
    "one sequence": [[4]],
    "one, all empty": [[0, 0]],
    "one, none": [[]],
    "two": [[2, 1], [1, 2, 3]],
    "two, empties": [[0, 2, 1, 0], [0, 3, 0]],
    "two, empty in the middle": [[1, 0, 2], [2, 0, 1]],
    "two, all empty": [[2, 0], [0, 0]],
    "two, none inside": [[0, 0], []],
    "two, none": [[], []],
    "three": [[2, 1], [1, 2, 1], [2, 1, 3, 1]],
    "three, empties": [[0, 2, 1, 0], [2, 0, 1], [0, 3, 2]],
    "three, all empty": [[1, 2], [2, 0, 1], [0, 0, 0]],
    "three, none": [[], [], []],
}
WIDTHS = ((3,), (), (2, 5), (0,))


@dataclass(frozen=True)
class Sample:
    label: str
    args: tuple
    kwargs: dict = field(default_factory=dict)
    #: The level as a number, and under which name the operator takes it.
    level: int | None = None
    key: str | None = None
    #: The names of the levels that it counts in, or None for each.
    names: tuple = ()
    #: Holds tensors that are given without gradient.
    fixed: bool = False


@dataclass(frozen=True)
class SequenceInfo:
    name: str
    reference: Callable
    samples: Callable[..., Iterator[Sample]]
    #: (label, call, exception, part of the message)
    errors: Callable[[], Iterator[tuple]]
    dtypes: tuple = FLOATS
    #: "reduces", "normalises", "rearranges", "structures" or "plans"
    kind: str = "rearranges"
    #: Whether a LoDTensor that results has the LoD object of the first argument.
    keeps: bool = False
    #: How many levels the operator is for, where not for any number.
    levels: str | None = "level"
    differentiable: bool = True
    #: Works out its results in library products, which choose their order by size.
    products: bool = False
    tolerance: dict = field(default_factory=dict)

    @property
    def op(self):
        return getattr(tl, self.name)


def lod_tensor(lengths, width, dtype, device, seed=0, names=True):
    lod = tl.LoD.from_lengths(
        lengths, level_names="abc"[: len(lengths)] and list("abc"[: len(lengths)]) if names else None
    )
    return tl.LoDTensor(values(lod.rows, width, dtype, device, seed), lod)


def over(make, widths=WIDTHS, key="level", depth=3, least=1):
    """Samples of `make(x, level)`, which yields (label, args, kwargs), for x of every structure and every level of it."""

    def samples(dtype, device):
        turn = 0
        for label, lengths in STRUCTURES.items():
            if not least <= len(lengths) <= depth:
                continue
            for k in range(len(lengths)) if key else (len(lengths) - 1,):
                wide = turn % len(widths)
                chosen = widths if FULL else (widths[wide:] + widths[:wide])[: 2 if dtype == torch.float64 else 1]
                for width in chosen:
                    turn += 1
                    x = lod_tensor(lengths, width, dtype, device, names=turn % 4 > 0)
                    names = x.level_names or (None,) * len(lengths)
                    forms = (k, k - len(lengths), *(x.level_names[k : k + 1] if x.level_names else ()))
                    level = {} if key is None else {key: forms[turn % len(forms)]}
                    for extra, args, kwargs in make(x, k):
                        said = f"{label} {width}{extra} {level}"
                        yield Sample(said, args, {**kwargs, **level}, k, key, names, "fixed" in extra)

    return samples


def changed(value, function):
    """An argument or result with `function` of every tensor in it."""
    if isinstance(value, tl.LoDTensor):
        return value.with_values(function(value.values()))
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(changed(item, function) for item in value)
    if isinstance(value, dict):
        return {name: changed(item, function) for name, item in value.items()}
    return value


def tensors(value):
    """All tensors of an argument or result, rows as plain tensors."""
    found = []
    changed(value, lambda t: found.append(t) or t)
    return found


def as_nests(value):
    """LoDTensors as the reference takes them."""
    if isinstance(value, tl.LoD):
        return reference.nest(value.to_lengths(), torch.zeros(value.rows), value.level_names)
    if isinstance(value, tl.LoDTensor):
        return reference.nest(value.lod.to_lengths(), value.values(), value.level_names)
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_nests, value))
    if isinstance(value, dict):
        return {name: as_nests(item) for name, item in value.items()}
    return value


def told(result):
    """A result as a list of (rows, structure), of the operator or of the reference."""
    if isinstance(result, reference.Nest):
        return [(result.rows(), (result.lengths(), result.names))]
    if isinstance(result, tl.LoDTensor):
        assert result.lod.rows == len(result.values())
        return [(result.values(), (result.lod.to_lengths(), result.level_names))]
    if isinstance(result, tl.RankTable):
        return told(result.items())
    if isinstance(result, (list, tuple)):
        return [pair for item in result for pair in told(item)]
    if isinstance(result, torch.Tensor):
        return [(result, None)]
    return [(torch.tensor(result), None)] if isinstance(result, (int, float)) else []


def differentiated(sample, dtype=None):
    """The floating tensors of the arguments as leaves, and functions of them: by the operator and by the reference."""
    leaves = [
        t.detach().to(dtype or t.dtype).clone().requires_grad_()
        for t in tensors((sample.args, sample.kwargs))
        if t.is_floating_point()
    ]

    def put(given):
        rest = iter(given)
        return changed((sample.args, sample.kwargs), lambda t: next(rest) if t.is_floating_point() else t)

    def of_leaves(info, by_reference=False):
        def call(*given):
            args, kwargs = put(given)
            out = run(info, sample, args, kwargs, by_reference)
            return tuple(rows for rows, _ in told(out) if rows.is_floating_point())

        return call

    return leaves, of_leaves


def run(info, sample, args=None, kwargs=None, by_reference=False):
    args, kwargs = sample.args if args is None else args, sample.kwargs if kwargs is None else kwargs
    if by_reference:
        if sample.key is not None:
            kwargs = {**kwargs, sample.key: sample.level}
        return info.reference(*as_nests(args), **as_nests(kwargs))
    torch.default_generator.manual_seed(0)
    return info.op(*args, **kwargs)
