# SPDX-License-Identifier: Apache-2.0
"""The leak law of test_rules.py where operands have their rows at another dim, or a part of the rows of a batch."""

import zlib

import pytest
import torch
from rule_samples import KINDS, SHAPES, STRUCTURE, Operands, forms, names
from settings import FULL
from test_rules import DRAWS, TABLE, TRAINING, knowing_nothing, one_thread, run, same, structured

from torch_lod import LoD, LoDError, LoDTensor
from torch_lod.tensor.derived import DerivedTensor

#: A batch of which 4 rows are taken, the third of these from its second sequence.
BATCH = LoD.from_lengths([[3, 2, 1, 2]])
_SECOND = dict.fromkeys("x y z m m2 m3 grid2 cond cube four five".split(), 1)
_LAST = dict.fromkeys("x y z cube four five grid2 cond".split(), -1)
#: At which dim an operand has its rows, 0 if it is not named; and from which row of a batch on they are a part of it,
#: if they are one.
LAYOUTS = {
    "the second dim": (_SECOND, {}),
    "the last dim": (_LAST, {}),
    "dims of their own": ({"x": -1, "cube": 1, "four": 2, "five": 2}, {}),
    "others at their last dim": ({"y": -1, "z": -1, "cube": -1, "grid2": -1, "four": 2, "cond": -1}, {}),
    "a part": ({}, {None: 2}),
    "a part, others all rows": ({}, {"x": 2, "m": 2, "m2": 2, "m3": 2, "cube": 2, "four": 2, "five": 2}),
    "a part of the second dim": ({**_SECOND, "m2": 0, "m3": 0}, {None: 2}),
    "parts that differ": ({}, {None: 2, **dict.fromkeys("y z cond v ids".split(), 1)}),
}
#: Of the forms, unless all of them are wanted: one in so many.
SHARE = 1 if FULL else 40
#: Results by chance, of memory, on devices that are not there, or of statistics of all rows.
APART = """bernoulli binomial cauchy_ cuda data_ptr dropout empty exponential_ geometric_ hash_tensor lobpcg
    lowrank miopen multinomial normal_ pin_memory poisson polynomial quantized rand random_ register_hook
    resize_ slice_inverse retain_grad rrelu share_memory_ storage_offset type uniform_ batch_norm as_strided_
    lstsq fbgemm mkldnn cudnn fused_moving cell set_""".split()
MOVED = [
    func
    for func in TABLE
    if KINDS[func] != "plain"
    and names()[func] not in TRAINING | DRAWS
    and not any(word in names()[func] for word in APART)
]


class Laid(Operands):
    def __init__(self, dtype, shape, change, plain, layout):
        super().__init__(shape, dtype, change, plain)
        self.dims, self.parts = LAYOUTS[layout]

    def laid(self, name, t):
        dim, begin = self.dims.get(name, 0) if t.dim() > 1 else 0, self.parts.get(name, self.parts.get(None))
        if self.plain:
            return t.movedim(0, dim).contiguous()
        if begin is None:
            return LoDTensor(t, STRUCTURE).movedim(0, dim).contiguous() if dim else LoDTensor(t, STRUCTURE)
        around = torch.ones_like(t)
        whole = LoDTensor(torch.cat([around[:begin], t, around[begin:]]), BATCH)
        return (whole.movedim(0, dim) if dim else whole).narrow(dim, begin, 4).contiguous()


def unchanged(x, count):
    """The rows of the sequences that did not change: of `count`, which a result may repeat, all but the second."""
    kept = x.lod.segment_ids(0) % count != 1
    if isinstance(x, LoDTensor):
        return x.values()[kept]
    begin, end = x._provenance.part or (0, x.lod.rows)
    return x.values().movedim(x.rows_dim, 0)[kept[begin:end]]


def complaint(func, code, given) -> str | None:
    """What is wrong with a form; None where torch does not take it."""
    try:
        if run(code, func, Laid(*given[:2], "", True, *given[2:])) is NotImplemented:
            return None
    except Exception:
        return None
    found, operands = [], []
    for change in ("", "other"):
        operands.append(Laid(*given[:2], change, False, *given[2:]))
        try:
            found.append(run(code, func, operands[-1]))
        except (LoDError, TypeError):
            return ""
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
    first, second = ([*structured(result), *own.made] for result, own in zip(found, operands))
    count = 4 if any(t.lod.rows != 4 for t in operands[0].made if t.lod in (BATCH, STRUCTURE)) else 3
    if not any(isinstance(t, DerivedTensor) for t in first):
        return ""
    if len(first) != len(second):
        return "the kind of the result depends on the rows"
    for a, b in zip(first, second):
        if a.shape != b.shape or a.lod != b.lod or not same(unchanged(a, count), unchanged(b, count)):
            return f"rows of other sequences changed, of {type(a).__name__} {tuple(a.shape)}"
    tells = any(not same(a, b) for a, b in zip(*map(knowing_nothing, found)))
    return "a plain tensor knows of the rows" if tells and KINDS[func] != "sequence-wise" else ""


pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures(one_thread.__name__)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_rule_leaks_elsewhere(layout):
    wrong, taken = {}, 0
    for func in MOVED:
        for shape in (SHAPES[0][0], SHAPES[2][0]):
            for text, code in forms(func):
                case = f"{names()[func]}({text}) of {list(shape)}"
                if zlib.crc32(f"{case}, {layout}".encode()) % SHARE or "rows(" in text:
                    continue
                for dtype in (torch.float32, torch.int64, torch.bool):
                    found = complaint(func, code, (dtype, shape, layout))
                    taken += found is not None
                    if found:
                        wrong[case] = found
                    if found is not None:
                        break
    assert not wrong, wrong
    assert taken > 2000 / SHARE


#: Programs that place rows at a dim: `n` is the number of rows.
PLACED = """x[None].view(1, -1, 2, 4) | x[None].view(1, -1, 2, 4).transpose(1, 2) | x[None].reshape(1, n, 8) | x[None].reshape(1, n, 8)[0]
x[None].unflatten(2, (2, 4)) | x[None].unflatten(0, (1, 1)) | x[None].unflatten(1, (1, -1)) | x[None].unflatten(1, (-1, 1))
x[None].view(-1, n, 8) | x[None].view(1, n, 2, 4).flatten(2) | x[None].flatten(1) | x[None].flatten(0, 1) | x[None].mT.flatten(1)
x[None].mT.reshape(1, 2, 4, n) | x[None].mT.view(1, 8, n) | x.view(1, -1, 8) | x.view(n, -1) | x.view(n, 2, 4) | x[:, None].view(n, 1, 2, 4)
x[None, None].view(1, -1, 8) | x[None].mT.reshape(2, 4, -1) | x[None].view_as(plain) | x[None, None].flatten(0, 1) | x[None].reshape(-1, 8)
x[None].view(1, n, 1, 8).transpose(1, 2).reshape(1, n, 8) | x[None, None].expand(2, -1, n, 8).reshape(2, n, 8)"""


@pytest.mark.parametrize("program", PLACED.replace("\n", " | ").split(" | "))
def test_rows_are_where_they_are_in_a_batch_of_any_number_of_rows(program):
    def placed(n):
        x = LoDTensor(torch.randn(n, 8), LoD.from_lengths([[0, n - n // 2, n // 2]]))
        found = eval(program, {"x": x, "n": n, "plain": torch.zeros(1, n, 8)})
        return type(found), found.rows_dim if isinstance(found, DerivedTensor) else 0

    assert [placed(n) for n in (1, 2, 3, 8)] == [placed(7)] * 4
