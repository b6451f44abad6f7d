# SPDX-License-Identifier: Apache-2.0
"""The law of compositions, in public names only: a program of torch's functions and of torch_lod's, run on a batch, raises,
or gives every sequence what it gives this sequence alone.

- Rows of one sequence, and what belongs to it, change no row of another in a LoDTensor, wherever its rows are; nor do more
  rows of that sequence.
- Every outermost sequence alone, a batch of one LoDTensor, gets the same rows, the same lengths and the same gradients.
- Every innermost sequence alone, a plain tensor in the layout of a batch of one, gets the same from torch.

What the law excepts: scalars made by reductions; .values(), numpy and other layouts; the last states of recurrences;
sizes and predicates; a row for each sequence behind the rows (`x[:, None] * c`), which may be heads or a grid.
"""

import collections
import functools
import itertools
import random
import re
from typing import Any, NamedTuple

import composition_samples as samples
import torch
from composition_operands import BATCHES, NAMES, Batch, Operands, numbers, one_of, rows_of

from torch_lod import LoDError, LoDTensor

# -- programs


class Refused(NamedTuple):
    step: str


@functools.cache
def _code(step: str):
    return compile(step, step, "eval")


def _step(step: str, names: Operands):
    names["v"] = result = eval(_code(step), NAMES, names)
    return result


def _kept(result):
    """A result as it is before another step writes into it."""
    return result.clone() if isinstance(result, torch.Tensor) else result


def _written(names: Operands) -> list:
    return [names[name] for name in ("x", "y", "c", "o") if name in names]


def run(program, names: Operands) -> list:
    """What every step gave, and the operands that steps may have written into."""
    made = [_kept(_step(step, names)) for step in program]
    return [*made, *_written(names)]


def up_to_an_error(program, names: Operands) -> list:
    made = []
    try:
        for step in program:
            made.append(_kept(_step(step, names)))
    except Exception:
        return made
    return [*made, *_written(names)]


KINDS = {
    "shapes": samples.SHAPES,
    "rows": samples.ROWS,
    "along": samples.SEQUENCES,
    "mixes": samples.MIXES,
    "writes": samples.WRITES + samples.IN_PLACE,
    "beside": samples.SEQUENCES_BESIDE,
    "losses": samples.LOSSES,
    "operators": samples.OPERATORS,
}
#: How often a step is of a kind.
OFTEN = {"shapes": 4, "rows": 3, "along": 2, "mixes": 2, "writes": 3, "beside": 4, "losses": 2, "operators": 3}
_KINDS = [kind for kind, often in OFTEN.items() for _ in range(often)]
#: A step that ends a program, as a loss does.
LOSSES = set(samples.LOSSES)
LOSSES_AND_OPERATORS = LOSSES | set(samples.OPERATORS)


UNDECLARED = re.compile(r"\b(big|R)\b")


class Program(NamedTuple):
    which: int
    steps: list
    refused: str | None


def not_of_rows(step: str, v, levels: int) -> bool:
    """Whether a plain tensor with an entry for each sequence meets pooled rows, of which it has one for each."""
    if not UNDECLARED.search(step):
        return False
    found = rows_of(v)
    return found is not None and found[1].lod_level < levels


def _is_declared(step: str, v, names: Operands) -> bool:
    """Whether a step gives rows another structure, which a constructor is for."""
    return step == "tl.LoDTensor(v, x.lod)" and isinstance(v, LoDTensor) and v.lod != names["x"].lod


def drawn(rng: random.Random, of=tuple(_KINDS)) -> Program:
    """A layout, one to four steps, and a way back to x. A step that torch does not take is drawn again; one that torch_lod
    refuses ends the program, or is drawn again, as in a program that goes on after an error. `of`: kinds of steps, or steps."""
    which = rng.randrange(len(BATCHES))
    names, steps, refused = Operands(numbers(which)), [rng.choice(samples.LAYOUTS)], None
    _step(steps[0], names)
    kinds = [rng.choice(of) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))] + ["back"]
    for kind in kinds:
        before = names["v"]
        for _ in range(10):
            step = rng.choice(samples.BACK if kind == "back" else KINDS.get(kind, [kind]))
            if not_of_rows(step, before, len(BATCHES[which])) or _is_declared(step, before, names):
                continue
            names["v"] = before
            try:
                result = _step(step, names)
            except LoDError:
                refused = step
                if rng.random() < 0.5:
                    return Program(which, steps, refused)
                continue
            except Exception:
                continue
            if not isinstance(result, torch.Tensor) or result.numel() > 5000:
                continue
            steps.append(step)
            if step in LOSSES or type(result) is torch.Tensor:  # which knows nothing of rows
                return Program(which, steps, refused)
            break
        else:
            break
    return Program(which, steps, refused)


# -- what is compared


def plainly(t) -> torch.Tensor:
    t = t.values() if type(t) not in (torch.Tensor, torch.nn.Parameter) else t
    return t.resolve_conj() if t.is_complex() else t.double()


def equal(a, b) -> bool:
    if a.shape != b.shape:
        return False
    a, b = plainly(a), plainly(b)
    scale = float(b.detach().abs().nan_to_num(0, 0, 0).max()) if b.numel() else 0.0
    return torch.allclose(a, b, rtol=1e-6, atol=1e-8 * max(1.0, scale), equal_nan=True)


def sequence_of_rows(front: LoDTensor, batch: Batch) -> torch.Tensor | None:
    """The number of the outermost sequence that each row belongs to; what was chained has the sequences again and again."""
    ids, n = front.lod.segment_ids(0), front.num_sequences(0)
    if n and n % len(batch.counts) == 0:
        return ids % len(batch.counts)
    inner = len(batch.lengths[-1])
    if n and n % inner == 0:
        return torch.tensor([i for i, count in enumerate(batch.counts) for _ in range(count)])[ids % inner]
    return None


def told(program: Program) -> str:
    return f"x of {BATCHES[program.which]}: v = " + "; v = ".join(program.steps)


def leak(program: Program, before: list, change: str) -> str:
    """What differs in the rows of sequences that did not change, after others did."""
    batch = numbers(program.which)
    try:
        after = run(program.steps, Operands(numbers(program.which, change)))
    except Exception:
        return ""  # for these rows it raises
    for place, (a, b) in enumerate(zip(before, after)):
        one, other = rows_of(a), rows_of(b)
        step = program.steps[place] if place < len(program.steps) else "an operand"
        if (one is None) != (other is None) or (one and other and one[0] != other[0]):
            if change == "longer":
                return ""  # a part of the rows is counted in those of the whole batch, and dims of size 1 vanish
            return f"step {place}: the kind of a result depends on the rows"
        if one is None or other is None:
            continue
        ids = [sequence_of_rows(front, batch) for front in (one[1], other[1])]
        if ids[0] is None or ids[1] is None:
            continue  # sequences that an operator made
        if not equal(one[1].values()[ids[0] != 1], other[1].values()[ids[1] != 1]):
            return f"step {place}, {step}: rows of another sequence leak ({change})"
    return ""


def pieces(front: LoDTensor, batch: Batch, innermost: bool) -> list | None:
    """The rows of every sequence that is run alone; None where rows are not of these, one after another."""
    n, inner = front.num_sequences(0), len(batch.lengths[-1])
    values, lod = front.values(), front.lod
    if innermost:
        if lod.num_sequences(lod.depth - 1) == inner:
            return list(values.split(lod.lengths(lod.depth - 1).tolist()))
        return list(values.split(1)) if lod.rows == inner and lod.depth < len(batch.lengths) else None
    if n == len(batch.counts):
        offsets = lod.row_offsets(0).tolist()
    elif n == inner:
        offsets = [lod.row_offsets(0).tolist()[k] for k in itertools.accumulate(batch.counts, initial=0)]
    else:
        return None
    return [values[a:b] for a, b in itertools.pairwise(offsets)]


#: What the dims of their results are depends on the length.
SIZED = ("squeeze(", "squeeze_(", "x.shape", "_as(x)")
#: Where rows are a view for one row, and a copy for several.
COPIES = ("contiguous", "flatten", "ravel", "reshape")


def beyond(program: Program, place: int, whole: list, innermost: bool) -> bool:
    """Whether from this step on a sequence alone is not what the law promises."""
    step = program.steps[place] if place < len(program.steps) else "an operand"
    if any(word in step for word in SIZED):
        return True
    if innermost and step == "an operand":
        return any(word in s for s in program.steps for word in COPIES)
    if not place or step == "an operand":
        return False
    before = whole[place - 1]
    along = step in samples.SEQUENCES and isinstance(before, LoDTensor)  # where torch takes the rows for channels
    if innermost and along:
        return True
    found = rows_of(before)  # parameters with an entry for every row
    return found is not None and found[1].lod.rows == 3 and any(name in step for name in ("HEADS", "W3"))


class Alone(NamedTuple):
    """What differs from every sequence alone, "" if nothing does; what was compared; and whether plain tensors with an
    entry for each sequence may be weights: unless all rows meet all of them."""

    wrong: str
    compared: int = 0
    gradients: int = 0
    weights: bool = False


def grid(whole, alone, dim: int) -> bool:
    """Whether all rows meet what is for each sequence behind them: heads, or a grid."""
    a, b = list(whole.shape), list(alone.shape)
    if len(a) != len(b):
        return False
    return a[:dim] == b[:dim] and a[dim + 1 :] != b[dim + 1 :]


class Differs(Exception):
    """A sequence alone is something else; `weights` as in Alone."""

    def __init__(self, said: str, weights: bool = False):
        super().__init__(said)
        self.weights = weights


class Beyond(Exception):
    """From here on the law promises nothing."""


def alone(program: Program, innermost: bool, gradient: bool, weights: bool = False) -> Alone:
    """A program on every sequence by itself: outermost ones as LoDTensors, innermost ones as plain tensors in the layout."""
    batch = numbers(program.which)
    names = Operands(batch, gradient=gradient)
    try:
        whole = run(program.steps, names)
    except RuntimeError:  # what is written into as a view of several has no gradient
        return Alone("") if gradient else Alone("run again it raises")
    count = len(batch.lengths[-1] if innermost else batch.counts)
    parts = [Operands(one_of(batch, i, innermost, weights), innermost, gradient) for i in range(count)]
    made = [up_to_an_error(program.steps, part) for part in parts]
    compared, last = 0, None
    for place, t in enumerate(whole):
        step = program.steps[place] if place < len(program.steps) else "an operand"
        if step == "an operand" and any(word in code for code in program.steps for word in COPIES):
            break  # a write after a reshape changes the operand, or a copy of it, as strides have it
        ran = [len(own) > place and (len(own) == len(whole) or step != "an operand") for own in made]
        each_alone = {i: own[place] for i, own in enumerate(made) if ran[i]}
        try:
            if beyond(program, place, whole, innermost):
                raise Beyond
            if rows_of(t) is None:
                if place and rows_of(whole[place - 1]) is not None and len(each_alone) == count:
                    one_each(step, t, list(each_alone.values()))
                continue
            found = side_by_side(t, each_alone, parts, batch, innermost)
            if found is not None:
                compared += rows_are_equal(t, step, each_alone, found, parts, innermost)
                if not innermost and len(found.alone) == count:
                    lengths_are_equal(found, batch)
                if found.fewer:
                    break
                last = found if len(found.alone) == count else last
        except Beyond:
            break
        except Differs as differs:
            return Alone(f"step {place}, {step}: {differs}", compared, weights=differs.weights)
    views = innermost and any(word in step for step in program.steps for word in COPIES)
    wrong = gradients(names, parts, last) if gradient and last is not None and not views else None
    return Alone(wrong or "", compared, int(wrong is not None))


class Sides(NamedTuple):
    """The rows of a result, the rows of every sequence in it, and those that each gave alone."""

    dim: int
    front: LoDTensor
    own: list
    alone: dict
    #: The batch of one is a dim less.
    fewer: bool


def side_by_side(t, each_alone: dict, parts: list, batch: Batch, innermost: bool) -> Sides | None:
    """What is compared; None where there is nothing to compare with."""
    if not t.numel():
        raise Beyond
    found: Any = rows_of(t)
    dim, front = found
    own = pieces(front, batch, innermost)
    if own is None or (innermost and len(each_alone) < sum(n > 0 for n in batch.lengths[-1])):
        return None  # what torch takes for some lengths only has its meaning by a size
    if innermost and all(len(rows) < 2 for rows in own):
        return None
    fronts, fewer = {}, False
    for i, result in each_alone.items():
        if not len(parts[i].batch.rows["x"]):  # padding, for one, leaves an empty sequence empty
            at = (0, own[i]) if innermost else rows_of(result)
            fronts |= {} if at is None else {i: at[1]}
            continue
        while innermost and result.dim() > t.dim() and result.shape[0] == 1:
            result, fewer = result[0], True  # the batch of one, which rows in their own layout do not have
        fronts[i] = rows_alone(result, t, dim, innermost)
    return Sides(dim, front, own, fronts, fewer)


def rows_alone(result, t, dim: int, innermost: bool):
    """The rows of a sequence alone, first, if they are where those of the batch are."""
    at = (dim, result.movedim(dim, 0)) if innermost and dim < result.dim() else rows_of(result)
    if at is None or result.dim() != t.dim():
        if not innermost and at is None and result.numel():
            raise Differs("alone it has its rows elsewhere")
        raise Differs(f"{tuple(t.shape)} is {tuple(result.shape)} alone") if result.numel() else Beyond
    if not result.numel() or (at[0] != dim and at[1].lod.rows == 1):
        raise Beyond  # one row may be at any dim of size 1
    if at[0] != dim:
        raise Differs("alone it has its rows elsewhere")
    return at[1]


def rows_are_equal(t, step: str, each_alone: dict, found: Sides, parts: list, innermost: bool) -> int:
    """How many sequences have the rows that they have alone; raises if one has not."""
    compared = 0
    for i, rows in found.alone.items():
        own = found.own[i]
        if not len(parts[i].batch.rows["x"]):
            continue
        if innermost and step == "an operand" and len(own) == 1:
            continue  # where torch gives a view of a single row, and a copy of several
        if own.shape != rows.shape and grid(t, each_alone[i], found.dim):
            raise Beyond
        if not equal(own, rows):
            ahead = {found.front.num_sequences(k) for k in range(found.front.lod_level)} & set(t.shape[: found.dim])
            said = f"sequence {i} differs from it alone, {tuple(own.shape)} {tuple(rows.shape)}"
            raise Differs(said, own.shape == rows.shape or not ahead)
        compared += 1
    return compared


def lengths_are_equal(found: Sides, batch: Batch) -> None:
    single = all(front.num_sequences(0) == 1 for front in found.alone.values())
    if single and found.front.num_sequences(0) == len(batch.counts):
        levels = zip(*[front.lod.to_lengths() for front in found.alone.values()])
        if [list(itertools.chain(*level)) for level in levels] != found.front.lod.to_lengths():
            raise Differs(f"{found.front.lod} is not that of those alone")


def one_each(step: str, t, made: list) -> None:
    """A loss that has no rows, with a target for each sequence: an entry for each."""
    if step not in LOSSES_AND_OPERATORS or not isinstance(t, torch.Tensor) or t.dim() == 0:
        return
    if t.shape[0] == len(made) and all(m.shape == (1, *t.shape[1:]) for m in made):
        if not equal(plainly(t), torch.cat([plainly(m) for m in made])):
            raise Differs(f"{tuple(t.shape)} differs from every sequence alone")


def gradients(names: Operands, parts: list, last) -> str | None:
    """What differs in the gradients of x, y and c; None if there are none."""
    front, fronts, own = last.front, last.alone, last.own
    if not front.requires_grad or not all(f.requires_grad for f in fronts.values()) or front.is_complex():
        return None
    weights = [torch.linspace(-1, 1, piece.numel(), dtype=torch.float64).view(piece.shape) for piece in own]
    total = sum((piece * weight).sum() for piece, weight in zip(own, weights))
    wanted = [name for name in ("x", "y", "c", "o") if name in names.leaves]
    try:
        got = torch.autograd.grad(total, [names.leaves[n] for n in wanted], allow_unused=True)
        each_alone = []
        for i, f in fronts.items():
            leaves = [parts[i].leaves.get(n) for n in wanted]
            if any(leaf is None for leaf in leaves):
                return None
            each_alone.append(torch.autograd.grad((plain(f) * weights[i]).sum(), leaves, allow_unused=True))
    except RuntimeError:
        return None  # torch has none, or what it needs was written over
    for k, name in enumerate(wanted):
        one = got[k]
        alone_grads = [
            g[k] if g[k] is not None else torch.zeros_like(parts[i].leaves[name]) for i, g in enumerate(each_alone)
        ]
        one = torch.zeros_like(names.leaves[name]) if one is None else one
        together = torch.cat([plain(g) for g in alone_grads])
        if not torch.isfinite(together).all():
            continue
        if not equal(plain(one), together):
            return f"the gradient of {name} differs from every sequence alone"
    return ""


def plain(t):
    return t.values() if type(t) not in (torch.Tensor, torch.nn.Parameter) else t


# -- the law


def tried(count: int, seed: int, stop: int | None = None, of=tuple(_KINDS)) -> tuple[collections.Counter, list]:
    """Programs, and those that break the law. With `stop` no more after so many of these."""
    told_of, found = collections.Counter(), []
    for number in range(seed, seed + count):
        program = drawn(random.Random(number), of)
        told_of["programs"] += 1
        told_of["with a refused step"] += program.refused is not None
        told_of["steps"] += len(program.steps)
        wrong = breaks(program, number, told_of)
        if wrong:
            found.append((number, told(program), wrong))
            if len(found) == stop:
                break
    told_of["leaks"] = len(found)
    return told_of, found


def breaks(program: Program, number: int, told_of: collections.Counter) -> str:
    """How a program breaks the law."""
    try:
        before = run(program.steps, Operands(numbers(program.which)))
    except Exception as error:
        return f"run again it raises {error!r}"
    told_of["with rows at the end"] += rows_of(before[len(program.steps) - 1]) is not None
    for change in ("other", "longer") if number % 2 else ("other",):
        wrong = leak(program, before, change)
        if wrong:
            return wrong
    dense = program.steps[0] != "x"
    for innermost in (False, True) if dense else (False,):
        result = alone(program, innermost, number % 4 == 0)
        if result.weights and alone(program, innermost, False, weights=True).wrong == "":
            continue  # plain entries that met features
        if result.wrong:
            return result.wrong + (" (a plain tensor)" if innermost else " (a batch of one)")
        told_of["rows of sequences compared with those alone"] += result.compared
        told_of["gradients"] += result.gradients
    return ""
