# SPDX-License-Identifier: Apache-2.0
"""The law of compositions (composition_law.py) over random programs. TORCH_LOD_PROGRAMS is how many are tried, 1,000 without it:
`make programs` sets it. And leaks that are planted: the law finds each of them."""

import collections
import os
import random

import composition_law as law
import composition_samples as samples
import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl
from torch_lod import LoDTensor

PROGRAMS = int(os.environ.get("TORCH_LOD_PROGRAMS", "1000"))
#: What long runs are shared by; they begin where TORCH_LOD_SEED says.
PARTS, SEED = (8 if PROGRAMS > 10_000 else 1), int(os.environ.get("TORCH_LOD_SEED", "0"))
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _numbers():
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_program_gives_every_sequence_what_it_gives_it_alone_or_raises(part, record_property):
    count = PROGRAMS // PARTS
    told, found = law.tried(count, SEED + part * count)
    record_property("law of compositions", ", ".join(f"{n} {what}" for what, n in told.items()))
    print(dict(told))
    assert not found, (len(found), found[:5])
    assert told["with rows at the end"] > count / 2 and told["with a refused step"] > count / 4
    assert told["rows of sequences compared with those alone"] > 5 * count and told["gradients"] > count / 5


@pytest.mark.parametrize("kind", law.KINDS)
def test_every_step_runs_or_is_refused(kind):
    """A step that torch never takes tests nothing."""
    never = []
    for step in law.KINDS[kind]:
        drawn = (law.drawn(random.Random(number), (step, step, "shapes", "along")) for number in range(600))
        if not any(step in program.steps or step == program.refused for program in drawn):
            never.append(step)
    assert not never


# -- leaks that are planted, each in a public function or method


def elsewhere() -> type:
    """The class of rows that are not at dim 0."""
    return type(tl.from_lengths(torch.ones(3, 2), [[1, 2]]).t())


def lost(t) -> bool:
    return isinstance(t, torch.Tensor) and type(t) is elsewhere() and law.rows_of(t) is None


def values(t):
    return t.values() if isinstance(t, torch.Tensor) and type(t) in (LoDTensor, elsewhere()) else t


def there(of, result):
    """A result that claims to have its rows where they are in a tensor."""
    dim, front = law.rows_of(of)
    return tl.LoDTensor(result.movedim(dim, 0), front.lod).movedim(0, dim)


def reduction_keeps_rows(patch):
    """mean along the rows, of as many features as there are rows."""
    mean = torch.Tensor.mean

    def careless(x, *args, **kwargs):
        result = mean(x.values(), *args, **kwargs)
        kept = result.dim() > 0 and result.shape[0] == x.shape[0]
        return LoDTensor(result, x.lod) if kept else mean(x, *args, **kwargs)

    patch.setattr(LoDTensor, "mean", careless)


def broadcast_by_count(patch):
    """A plain tensor with as many entries as there are sequences is broadcast over their rows."""
    multiply = torch.Tensor.__mul__

    def careless(x, other):
        found = law.rows_of(x) if isinstance(other, torch.Tensor) and values(other) is other and other.dim() else None
        if found is None or other.shape[0] != found[1].num_sequences(-1):
            return multiply(x, other)
        dim, front = found
        own = other.reshape(len(other), -1)[:, -front.shape[-1] :].repeat_interleave(front.lengths(-1), 0)
        own = own.view(-1, *[1] * (front.dim() - 2), own.shape[-1]) if front.dim() > 1 else own[:, 0]
        return there(x, (front.values() * own).movedim(0, dim))

    patch.setattr(LoDTensor, "__mul__", careless)
    patch.setattr(elsewhere(), "__mul__", careless)


def every_row_with_every_entry(patch):
    """What is not declared is not refused."""
    multiply = torch.Tensor.__mul__

    def careless(x, other):
        if not isinstance(other, torch.Tensor) or values(other) is not other or law.rows_of(x) is None:
            return multiply(x, other)
        result, dim = values(x) * other, law.rows_of(x)[0]
        dim += result.dim() - x.dim()
        return tl.LoDTensor(result.movedim(dim, 0), law.rows_of(x)[1].lod).movedim(0, dim)

    patch.setattr(LoDTensor, "__mul__", careless)
    patch.setattr(elsewhere(), "__mul__", careless)


def write_is_not_refused(patch):
    patch.setattr(LoDTensor, "__setitem__", lambda x, key, value: x.values().__setitem__(values(key), values(value)))


def write_through_a_view(patch):
    """What select takes out of the rows is plain."""
    select = torch.Tensor.select
    patch.setattr(elsewhere(), "select", lambda x, *args: select(x.values(), *args))


def lost_is_broadcast(patch):
    add = torch.Tensor.__add__

    def careless(x, other):
        return there(x, x.values() + values(other)) if lost(other) else add(x, other)

    patch.setattr(LoDTensor, "__add__", careless)


def lost_meets_targets(patch):
    """A loss of one result for the whole batch against a target for each sequence."""
    loss = F.mse_loss
    patch.setattr(
        F, "mse_loss", lambda p, y, **how: loss(values(p), values(y), **how) if lost(p) else loss(p, y, **how)
    )


def bias_of_positions(patch):
    """A mask of keys that is made of rows, read as a table of positions."""
    attend = F.scaled_dot_product_attention

    def careless(*args, attn_mask=None, **kwargs):
        return attend(*args, attn_mask=values(attn_mask), **kwargs)

    patch.setattr(F, "scaled_dot_product_attention", careless)


def softmax_of_moved_rows(patch):
    softmax = torch.Tensor.softmax
    patch.setattr(
        elsewhere(),
        "softmax",
        lambda x, dim: softmax(x, dim) if lost(x) else there(x, softmax(x.values(), dim)),
    )


def permutation_comes_back(patch):
    take = torch.Tensor.__getitem__

    def careless(x, key):
        result = take(x, key)
        same = lost(result) and result.dim() and len(result) == len(x) and isinstance(key, torch.Tensor)
        return LoDTensor(result.values(), x.lod) if same else result

    patch.setattr(LoDTensor, "__getitem__", careless)


def argument_is_not_asked(patch):
    expand = tl.sequence_expand_as
    patch.setattr(tl, "sequence_expand_as", lambda x, y: expand(values(x) if lost(x) else x, y))


def declared_by_position(patch):
    """The rows of an outer level are broadcast over the first rows, whatever the lengths are."""
    subtract = torch.Tensor.__sub__

    def careless(x, other):
        if not isinstance(other, LoDTensor) or other.lod == x.lod or other.dim() != x.dim():
            return subtract(x, other)
        at = torch.arange(len(x)) * len(other) // max(1, len(x))
        return x.with_values(x.values() - other.values()[at])

    patch.setattr(LoDTensor, "__sub__", careless)


#: Each with the kinds of steps, or the steps, that programs are drawn from.
PLANTED = {
    reduction_keeps_rows: ("mixes", "v.mean(0)"),
    broadcast_by_count: ("beside", "v * HEADS[:, None]"),
    every_row_with_every_entry: ("beside",),
    write_is_not_refused: ("writes",),
    write_through_a_view: ("writes",),
    lost_is_broadcast: ("mixes",),
    lost_meets_targets: ("losses",),
    bias_of_positions: ("operators",),
    softmax_of_moved_rows: ("shapes", "v.softmax(-1)"),
    permutation_comes_back: ("mixes", "v[order]"),
    argument_is_not_asked: ("operators", samples.SPREAD),
    declared_by_position: ("beside",),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_law_finds_what_is_planted(plant, monkeypatch, record_property):
    plant(monkeypatch)
    told, found = law.tried(4000, 50_000, 1, PLANTED[plant])
    record_property("planted", f"{plant.__name__}: after {told['programs']} programs")
    print(plant.__name__, told["programs"], found)
    assert found


#: Programs that once broke the law: the last step, which batch, and the steps before it.
ONCE_WRONG = {
    "F.instance_norm(v)": (0, ["x[None]"]),
    "F.group_norm(v, 2)": (4, ["x[None]", "v[0].t()"]),
    "v + c.t()": (2, ["x[None]", "v.transpose(0, 1)", "v.transpose(1, 2) * b"]),
    "v * c[:, :, None]": (0, ["x.t()[None]", "v.transpose(0, 1)"]),
    "tl.sequence_conv1d(x, w3, v)": (2, ["x", "v[..., 0]"]),
    "tl.sequence_conv1d(x, v, b)": (2, ["x", "torch.stack([v, v], -1)"]),
}


@pytest.mark.parametrize("step", ONCE_WRONG)
def test_what_once_broke_the_law(step):
    which, steps = ONCE_WRONG[step]
    wrong = law.breaks(law.Program(which, [*steps, step], None), 1, collections.Counter())
    assert not wrong or "raises LoD" in wrong, wrong


# -- compiled

OPERANDS = ("x", "y", "c", "o", "f", "ids")
#: Dynamo does not show a function the tensors of a tuple (of a list it does), nor these methods those of a subclass; a scalar
#: ends a program.
NOT_COMPILED = "split( chunk( unbind( norm( unflatten unique nonzero lstm( gru( v[v x: for sum() .norm()".split()


@pytest.mark.skipif("TORCH_LOD_PROGRAMS" not in os.environ, reason="the long form: TORCH_LOD_PROGRAMS=100000")
def test_no_compiled_program_leaks(record_property):
    number, told, found = 0, collections.Counter(), []
    while told["programs"] < min(300, PROGRAMS):
        number += 1
        program = law.drawn(random.Random(number), ("shapes", "rows", "along", "mixes", "writes"))
        if any(word in step for step in program.steps for word in NOT_COMPILED):
            continue
        torch._dynamo.reset()
        code = (
            f"def run({', '.join(OPERANDS)}):\n"
            + "".join(f"    v = {step}\n" for step in program.steps)
            + "    return v\n"
        )
        space = dict(law.NAMES)
        exec(code, space)
        compiled = torch.compile(space["run"], backend="eager")
        told["programs"] += 1
        made = []
        for change in ("", "other"):
            names = law.Operands(law.numbers(program.which, change))
            try:
                made.append(compiled(*(names[name] for name in OPERANDS)))
            except Exception as error:
                told["refused" if isinstance(error, tl.LoDError) else f"raised {type(error).__name__}"] += 1
                break
        if len(made) < 2:
            continue
        told["ran"] += 1
        rows = [law.rows_of(t) for t in made]
        if rows[0] is not None and rows[1] is not None:
            ids = [law.sequence_of_rows(front, law.numbers(program.which)) for _, front in rows]
            if ids[0] is not None and ids[1] is not None:
                kept = [front.values()[at != 1] for (_, front), at in zip(rows, ids)]
                if not law.equal(*kept):
                    found.append(law.told(program))
    told["leaks"] = len(found)
    record_property("law of compositions, compiled", ", ".join(f"{n} {what}" for what, n in told.items()))
    print(dict(told))
    assert told["ran"] + told["refused"] == told["programs"], told
    assert not found, found[:5]
