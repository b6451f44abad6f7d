# SPDX-License-Identifier: Apache-2.0
"""Ways of calling every function of the table of torch's functions, for the leak law in test_rules.py."""

import functools

import torch
import torch.nn.functional as F

from torch_lod import LoD, LoDTensor
from torch_lod.functions.row import kinds, shown_functions
from torch_lod.tensor.table import ROWS

#: The kind of every function that is listed, and the functions that have a rule, or for which something else runs.
KINDS = kinds()
RULES = [func for func, row in ROWS.items() if row.rule is not None or row.run is not None]
#: Not the same backwards, nor shifted: rows that only change places are seen to.
LENGTHS = [[2, 1, 1]]
CHANGED, OTHERS = slice(2, 3), [0, 1, 3]  # the rows of the middle sequence, and the rows of the others
STRUCTURE = LoD.from_lengths(LENGTHS)
#: 4 rows of 4 features: on purpose square, so that shapes prove nothing.
SHAPES = (((4, 4), torch.float32), ((4,), torch.float32), ((4, 4, 4), torch.float32))
#: Only for functions that take none of the first.
MORE = (
    ((4, 4), torch.int64),
    ((4, 4), torch.bool),
    ((4, 4), torch.complex64),
    ((4, 4, 4, 4), torch.float32),
    ((4, 4, 4, 4, 4), torch.float32),
    ((4, 2), torch.float32),
)
#: Operands by name: (shape or None for that of x, dtype or None for that of x, seed, whether with a LoD).
OPERANDS = {
    "x": (None, None, 0, True),
    "y": (None, None, 1, True),
    "z": (None, None, 2, True),
    "v": ((4,), None, 3, True),
    "cube": ((4, 4, 4), None, 4, True),
    "cond": (None, torch.bool, 5, True),
    "ids": ((4,), torch.int64, 6, True),
    "p": (None, None, 7, False),
    "q": (None, None, 8, False),
    "p1": ((4,), None, 9, False),
    "row": ((1, 4), None, 10, False),
    "p3": ((4, 4, 4), None, 11, False),
    "mask": (None, torch.bool, 12, False),
    "pids": ((4,), torch.int64, 13, False),
    "weight": ((4, 4), torch.float32, 14, False),
    "w1": ((4, 4, 2), None, 15, False),
    "w2": ((4, 4, 2, 2), None, 16, False),
    "w3": ((4, 4, 2, 2, 2), None, 17, False),
    "grid": ((4, 4), torch.int64, 18, False),
    "grid2": ((4, 4), torch.int64, 19, True),
    "w": ((4, 4), None, 20, False),
    "m": ((4, 4), torch.float32, 24, True),
    "m2": ((4, 4), torch.float32, 25, True),
    "m3": ((4, 4), torch.float32, 26, True),
    "p4": ((4, 4, 4, 4), None, 21, False),
    "four": ((4, 4, 4, 4), None, 22, True),
    "five": ((4, 4, 4, 4, 4), None, 23, True),
}


def _rows_of(t):
    return t.values() if isinstance(t, LoDTensor) else t


def _int8(weight):
    """What torch.fbgemm_linear_int8_weight takes for a weight."""
    quantised, offsets, scale, zero = torch.fbgemm_linear_quantize_weight(weight)
    return quantised, torch.fbgemm_pack_quantized_matrix(quantised), offsets, scale, zero


FIXED = {
    "rows": _rows_of,
    "int8": _int8,
    "LoDTensor": LoDTensor,
    "STRUCTURE": STRUCTURE,
    "perm": torch.tensor([3, 2, 0, 1]),  # no row stays where it is
    "levels": torch.linspace(0, 1, 4),
    "torch": torch,
}
_DIM_FORMS = """x, {d}|x, dim={d}|input=x, dim={d}|x, axis={d}|x, {d}, True|x, {d}, keepdim=True|x, 1, {d}|x, 2, {d}
x, (1, 2), {d}|x, [0, 1], {d}|x, 0.5, {d}|x, 0.5, dim={d}|x, 2.0, {d}, 0.1|x, {d}, perm|x, {d}, grid|x, grid, {d}
x, perm, dim={d}|x, dim={d}, index=perm|x, y, {d}|x, y, dim={d}|x, p, {d}|p, x, {d}|p1, x, {d}|x, levels, {d}
x, dim={d}, dtype=torch.float64|x, dims={d}|x, dims=({d},)|x, dim=({d},)|x, shifts=1, dims={d}|x, n=1, dim={d}
x, tau=1.0, dim={d}|x, 1.0, False, 1e-10, {d}|x, [2, 2], {d}|x, 2, dim={d}|x, 2.0, dim={d}|x, {d}, (2, 2)|x, {d}, -1
x, ids, {d}|x, {d}, ids|x, ids, dim={d}|[x, y, z, p], {d}|x, stable=True, dim={d}|x, None, {d}|x, {d}, 0|x, {d}, 0, 1|[x, y], {d}|(x, p), dim={d}|(p, x), dim={d}
tensors=(x, y), dim={d}|x, ({d}, 1)|x, source={d}, destination=1|x, dim0={d}, dim1=1|x, start_dim={d}|x, {d}, 1, 5.0"""
_OTHER_FORMS = """x|input=x|x, 2.0|x, 0.5|x, True|x, 0.2, 0.7|x, min=0.3|x, other=2.0|x, exponent=2.0|x, None|2.0, x
x, y|y, x|x, other=y|input=x, other=y|input=x, target=y|x, y, reduction="none"|x, y, reduction="mean"|x, p|p, x
x, other=p|input=x, mat2=p|input=x, vec=p1|x, p1|x, row|x, p3|p3, x|p1, x|x, v|v, x|x, cube|cube, x|x, y, z
x, p, q|p, x, q|p, q, x|p1, x, y|p1, x, q|p1, p, v|p1, p, x|x, mask, 0.0|x, cond, 0.0|cond, x, y|mask, x, y|cond
x, y, 0.5|x, p, 0.5|x, y, 0.5, 0.1|x, other=y, alpha=2|x, (0, 1)|x, (1,)|x, (4, 4)|x, (4, 2, 2)|x, (4, 4, 1)|x, 4, 4
x, -1, 4|x, 4, 2, 2|x, (16,)|x, size=(4, 4)|x, shape=(4, 4)|x, shape=(4, 2, 2)|x, (4,)|x, ((4,))|x, 1, 0|x, 0, 1, 2
x, 2, 1, 0|x, (1, 0)|x, 1, 1|x, 1, 2, 1|x, (2, 1)|x, (1, 2)|x, dims=(1, 2)|x, (1, 1)|x, (0, 0, 1, 1)|x, num_classes=4
x, torch.float64|x, torch.int32|x, "cpu"|x, dtype=torch.float64|x, ()|x, dim=()|x, dim=[]|x, p=0.5, training=True
x, 2, 1|x, 2.0, 2|x, 2, 3|x, 2, output_size=3|x, w1|x, w2|x, w3|x, weight|weight, x|pids, x|x, ids|x, pids
x, ids, reduction="none"|x, pids, reduction="none"|ids, weight|x, groups=4, weight=w1|x, 4|x, None, None|x, p1, p1
x, (4,), p1, p1, 1e-5|x, None, None, p1, p1, False, 0.1, 1e-5, False|x, None, None, None, None, True, 0.1, 1e-5, False
x, y, p3|p, x, p3|x, y, p3, None|x, y, ids, 0.0|x, y, v|x, y, p1|x, y, z, reduction="none"|x, perm|perm, x|x, 1, 2.0
x, 2, 0.0|x, 0, 2|p, x, y, None|x, y, z, 0.0|p, x, y, z|x, 2.0, 3.0|x, 4, 1.0|x, 0.1, 0.2, False|x, (4, 4), (4, 1)
[x, y]|x, [perm, perm], False|x, perm, perm, None|x, dims=(1, 0)|2, x|x, y, value=0.5|x, 2, 2, 1|x, torch.tensor(2.0)
[x, y], 1|(x, p), dim=-1|p1, x, p1|x, y, p1, reduction="none"|x, "sum"|x, start_dim=0, end_dim=-1|x, 1, (2, 2)|x, fill_value=2.0|x, high=9|x, indices=(1, 2), dim=1|x, y, z, 1.0"""
_KEYS = """(all, 0)|(..., 0)|...|None|(all, None)|(all, perm)|(..., perm)|(..., perm, None)|(perm, all)|(..., all, perm)
(..., 0, all)|(..., perm, perm)|(..., torch.eye(4).bool())|(..., torch.eye(4).bool().numpy())
(..., torch.eye(4).bool().tolist())|slice(None, None, 2)|perm|ids|cond|True|(all, True)|(all, perm, all, perm)
(all, perm, None, perm)|(all, perm, 0, perm)|(..., perm, 0)|(..., perm, all, perm)|(all, perm.numpy())
(all, perm.numpy(), all, perm.numpy())|(all, range(4), None, range(4))|(all, tuple(range(4)), None, [3, 2, 1, 0])"""


def _compiled(texts: str, call: str = "f({})"):
    pieces = [piece for line in texts.splitlines() for piece in line.split("|")]
    return [(text, compile(call.format(text), text, "eval")) for text in pieces]


_BY_DIM = {d: _compiled(_DIM_FORMS.format(d=d)) for d in (0, 1, -1, -2)}
FORMS = [form for forms in _BY_DIM.values() for form in forms] + _compiled(_OTHER_FORMS)
#: For functions whose rule looks at the operands only, or that are always plain.
FEWER = _BY_DIM[0][:3] + _compiled(
    """x|input=x|x, 2.0|x, 0.5|2.0, x|x, 2|2, x|x, 0|x, 1|x, True|x, y|y, x|x, other=y|input=x, other=y|input=x, target=y
x, y, reduction="none"|x, v, reduction="none"|v, x, reduction="none"|x, p3, reduction="none"|x, p|p, x|x, other=p|x, p1|p1, x|x, row|row, x|x, p3|p3, x|x, v|v, x|x, cube|cube, x|x, y, z|x, p, q
p, x, q|p, q, x|p1, x, y|p1, p, v|x, mask, 0.0|x, cond, 0.0|x, y, 0.5|x, p, 0.5|x, y, v|x, y, p1|p, x, p3|x, weight
weight, x|x, perm|perm, x|x, ids|ids, x|x, pids|x, None|x, torch.float64|x, dtype=torch.float64|x, "cpu"|x, 0.2, 0.7
x, min=0.3|x, p=0.5, training=True|x, 0.5, True|x, 4|x, (4, 4)|x, fill_value=2.0|x, high=9|x, 1, 2.0|x, num_classes=4
x, lambda a: a * 2|x, y, lambda a, b: a + b|x, y, z, lambda a, b, c: a + b * c|x, None, None|x, p1, p1|x, y, z, 0.5
x, None, None, p1, p1, False, 0.1, 1e-5, False|x, None, None, None, None, True, 0.1, 1e-5, False|x, y, w|x, y, ids, 0.0
x, y, z, 1.0|x, y, p3|x, alpha=1.0|tensor=x|tensor=x, val=1.0|x, y, v, 1.0|x, target=y, var=z|x, 1.0, 0, 0, 255
x, p1 * 0 + 1, perm * 0, 1, 0, 255|x, (0, 1)|x, [x], y|x, ["a", "b"]|{}, x|x, {}|x, 9"""
)
_RNN = "x, {state}, [torch.ones({n}, 4), torch.ones({n}, 4)], False, 1, 0.0, False, False, False"
_RNN += "|cube[:, :1], {one}, [torch.rand({n}, 4), torch.rand({n}, 4)], False, 1, 0.0, False, False, False"
_STATE, _COLUMN = "p3[:1, :, :].contiguous()", "p3[:1, :1].contiguous()"
_CELL = "m, {hx}, torch.rand({n}, 4), torch.rand({n}, 4)|weight, {hx}, torch.rand({n}, 4), torch.rand({n}, 4)"
_CELL += "|m, {plain}, torch.rand({n}, 4), torch.rand({n}, 4), p1[:1].expand({n}), p1[:1].expand({n})|m, {plain}, torch.rand({n}, 4), torch.rand({n}, 4)"
_ADDED = (
    "0.5, x, 2.0, p, p|0.5, x, 2.0, p, y|0.5, x, p, y|0.5, p1, x, p|x, 0.5, 2.0, p, y|x, 0.5, 2.0, p, p|x, 0.5, p, y"
)
_CROSS = (
    "x[:, :3], y[:, :3]|x[:, :3], p[:, :3], dim=1|p[:, :3], x[:, :3], dim=-1|x[:, :3], p1[:3]|cube[..., :3], x[:, :3]"
)
_THREE = "x, y, z, reduction='none'|x, p, q, reduction='none'|p, x, q, reduction='none'|p, p1, x|x, v, y, reduction='none'|x, y, z"
_CLASSES = "x, pids, reduction='none'|x, ids, reduction='none'|p, ids, reduction='none'|x, ids|x, ids, weight=p1, reduction='none'"
_CLASSES += "|x, ids, weight=v, reduction='none'|input=x, target=ids, reduction='none'"
_SOFTMAX = "x, {d}|x, dim={d}|input=x, dim={d}|x, {d}, torch.float64|x, {d}, dtype=torch.float64"
_GUMBEL = "x, dim={d}|logits=x, dim={d}|x, tau=1.0, hard=True, dim={d}|x, 1.0, False, 1e-10, {d}|x"
_SET = "all, 0|...|all|perm|(all, perm)|ids|(all, ids)|cond|v > 0.5|(v > 0.5, 0)|p1 > 0.5|x > 0.5|mask|0|slice(None, None, 2)"
_VALUES = ("0.0", "y", "p", "v", "p1", "row", "p[:2]", "y[:, 0]", "v[0]", "p1[:1]", "p[:1]")
_INDEX = "x, {d}, perm, y|x, {d}, perm, p|x, {d}, ids, p|p, {d}, perm, x|x, {d}, perm, y, alpha=2|x, {d}, perm, 0.5"
_INDEX += "|x, {d}, grid, p|x, {d}, grid, y|x, {d}, grid2, p|x, {d}, grid2, y|x, {d}, grid, 0.5|x, {d}, ids, 0.5"
_INDEX += (
    "|x, {d}, perm, p, 'mean'|x, {d}, perm, y, 'amax'|x, {d}, grid, p, 'sum'|x, {d}, grid2, p, 'sum'|p, {d}, ids, x"
)
_INDEX += (
    "|x, {d}, grid, p, 'mean', include_self=False|x, {d}, index=perm, source=y|p, {d}, grid2, q|x, {d}, perm, y, 'prod'"
)
_EINSUM = """ij,jk->ik', x, p|ij,jk', x, p|ij->ji', x|ij->j', x|ij->i', x|ii->i', x|ij,ij->ij', x, y|ij,ij->i', x, y|ij,kj->ik', x, y
ij,jk->ik', p, x|ij,kj,kl->il', x, y, z|...j,jk->...k', x, p|...j->...', x|ij...->i...', cube|...', x|bij,bjk->bik', cube, cube
bij,jk->bik', cube, p|ij,j->i', x, p1|i,ij->ij', v, x|i,j->ij', v, p1|i,j->ij', p1, v|...i,...i->...', x, p|...i,...i', cube, p
...i,...i->...', cube, x|bij->bji', cube|bij->ijb', cube|ij,ik->jk', x, y|i,i->', v, v|i...,i...->i...', x, v|...,...->...', x, v
ij,jk->ik', [x, p]|bi,ij,bj->b', x, p, y|ij,ji->i', x, y|ij,ji->i', x, p|bb->b', x|...i,...->...', x, x|ij , jk -> ik', x, p"""
_FFT = "x, None, {d}|x, dim={d}|x, 2, {d}|input=x, dim={d}|x, n=2, dim={d}|x, norm='ortho', dim={d}|x"
_FFTS = "x|x, None, ({d},)|x, dim=({d},)|x, (2,), ({d},)|x, (2, 2)|x, (2,)|x, s=(2,), dim=({d},)|cube|cube, dim=(1, 2)"
_SPD = "(cube @ cube.mT + torch.eye(4))"
_ONE = f"x|cube|A=cube|input=cube|{_SPD}|{_SPD}, 2|cube, 2|x @ x.t() + torch.eye(4)|x, 2|self={_SPD}|A={_SPD}"
_TWO = (
    f"{_SPD}, y|{_SPD}, x|{_SPD}, z|{_SPD}, cube|{_SPD}, p3|p3 + torch.eye(4), cube|p3 + torch.eye(4), x|p, cube|p, x"
)
_TWO += f"|{_SPD}, p|{_SPD}, p1|{_SPD}, B=cube|B=cube, A={_SPD}|A={_SPD}, B=y|x + torch.eye(4), y|{_SPD}, p3[:1]"
_TRIANGULAR = (
    f"{_SPD}, cube, upper=True|{_SPD}, y, upper=True|{_SPD}, p3, upper=False|x, p, upper=True|p3, cube, upper=True"
)
_LU = "*torch.linalg.lu_factor(rows(cube))"
_LUS = "LoDTensor(torch.linalg.lu_factor(rows(cube))[0], STRUCTURE)"
_PIVOTS = "torch.linalg.lu_factor(rows(cube))[1]"
_ONLY = {
    "__getitem__": _compiled(_KEYS, "f(x, {})"),
    "__setitem__": [form for value in _VALUES for form in _compiled(_SET, f"f(x, ({{}}), {value})")],
    "index_put_": _compiled(
        "|".join(
            f"x, [{i}], {v}"
            for i in ("perm", "ids", "mask", "cond", "perm, perm")
            for v in ("y[:, 0]", "v", "p", "p1", "v[0]")
        )
    )
    + _compiled("x, [perm], y|x, [perm], torch.tensor(2.0)|x, [ids], torch.tensor(2.0)"),
    "index_put": _compiled("x, [perm], y|x, [perm], p|x, [ids], p"),
    "native_norm": _compiled("x|x, 2|x, 2, 1, False, None|x, 2, 0, False, None|x, 2, [0], True, None"),
    "select_scatter": _compiled(
        "x, v, 0, 1|x, p1, 0, 1|x, v, 1, 2|x, p1, 1, 2|x, v, -1, 2|p, v, 1, 2|x, src=v, dim=1, index=0|cube, y, 2, 0|p, v, -2, 2"
    ),
    "slice_scatter": _compiled(
        "x, y|x, p, 0|x, y, 1|x, y[:, :2], 1, 0, 2|p, y, 1|x, p[:, :2], 1, 0, 2|x, src=y, dim=-1|x, y[:2], 0, 0, 2"
    ),
    "diagonal_scatter": _compiled(
        "x, v|x, p1|cube, y, 0, 1, 2|cube, p, dim1=1, dim2=-1|p3, y, 0, 1, 2|cube, y|p3, y, 0, -3, 2|p, v"
    ),
    "as_strided": _compiled("x, (4, 4), (1, 4)|x, (4, 4), (4, 1)|x, (2, 2), (1, 1)"),
    "as_strided_copy": _compiled("x, (4, 4), (1, 4)|x, (4, 4), (4, 1)|x, (2, 2), (1, 1)"),
    "as_strided_scatter": _compiled("x, y, (4, 4), (1, 4)|x, y, (4, 4), (4, 1)|x, p, (4, 4), (4, 1)"),
    "nonzero_static": _compiled("x, size=4"),
    "index": _compiled("x, [perm]|x, [ids]"),
    "lstm": _compiled(_RNN.format(n=16, state=f"[{_STATE}, {_STATE}]", one=f"[{_COLUMN}, {_COLUMN}]")),
    "gru": _compiled(_RNN.format(n=12, state=_STATE, one=_COLUMN)),
    "rnn_tanh": _compiled(_RNN.format(n=4, state=_STATE, one=_COLUMN)),
    "rnn_relu": _compiled(_RNN.format(n=4, state=_STATE, one=_COLUMN)),
    "lstm_cell": _compiled(_CELL.format(n=16, hx="[m2, m3]", plain="[weight, weight]")),
    "gru_cell": _compiled(_CELL.format(n=12, hx="m2", plain="weight")),
    "rnn_tanh_cell": _compiled(_CELL.format(n=4, hx="m2", plain="weight")),
    "rnn_relu_cell": _compiled(_CELL.format(n=4, hx="m2", plain="weight")),
    "multi_head_attention_forward": _compiled(
        "x, y, z, 4, 2, torch.ones(12, 4), torch.ones(12), None, None, False, 0.0, weight, p1"
    ),
    "scaled_dot_product_attention": _compiled("x, y, z|x, p, p|p, x, x|cube, cube, cube"),
    "embedding_bag": _compiled("ids, weight, perm.sort()[0]|x.long(), weight|weight, ids, pids.sort()[0] * 0"),
    "embedding_renorm_": _compiled("p, ids, 0.1, 2.0|x, perm, 0.1, 2.0|x, ids, 0.1, 2.0"),
    "gaussian_nll_loss": _compiled(
        'x, y, z|x, y, z, reduction="none"|x, p, q, reduction="none"|x, p, v, reduction="none"'
    ),
    "poisson_nll_loss": _compiled("x, y, True, False, 1e-8, 0|x, y|x, p, reduction='none'|p, x, reduction='none'"),
    "float_power_": _compiled("x.double(), 2.0|x.double(), y.double()|p.double(), x|x.double(), p3"),
    "einsum": _compiled(_EINSUM, "f('{})"),
    "tensordot": _compiled(
        "x, p, 1|x, p, ([1], [0])|x, p, ([0], [0])|cube, p, 1|x, y, 1|p, x, 1|cube, p3|cube, p, ([-1], [1])|cube, p3, ([2, 1], [0, 1])|cube, p3, ([0, 1], [0, 1])|x, p, 0|x, p, torch.tensor([[1], [0]])|a=x, b=p, dims=1"
    ),
    "chain_matmul": _compiled("x, p|x, p, q|p, x|x, y|p, q, x"),
    "multi_dot": _compiled("[x, p]|[x, p, q]|[p, x]|[x, y]|[v, p]|tensors=[x, p]|[x, p, p1]"),
    "addr": _compiled(
        "x, v, p1|p, v, p1|x, p1, v|p1, v, p1|v, p1, p1|x, p1, p1|input=x, vec1=v, vec2=p1|v, v, p1|p, p1, v"
    ),
    "addmm": _compiled(
        _ADDED + "|x, p, p|p, x, p|p1, x, p|x, y, p|v, x, p|p1, p, x|input=p1, mat1=x, mat2=p|x, mat1=p, mat2=y"
    ),
    "addmm_": _compiled(_ADDED + "|x, p, p|p, x, p|x, y, p|x, p, y|x, mat1=p, mat2=y"),
    "addbmm": _compiled(
        "0.5, x, 2.0, cube, p3|x, 0.5, 2.0, p3, p3|0.5, x, 2.0, p3, p3|x, p3, p3|x, cube, p3|p, cube, p3|v, p3, p3|x, p3, cube|p, cube, cube"
    ),
    "baddbmm": _compiled(
        "cube, cube, p3|p3, cube, p3|p, cube, p3|x, cube, p3|x, p3, p3|cube, p3, p3|p3, p3, cube|p3, cube, cube"
    ),
    "matmul": _compiled(
        "x, p|p, x|x, y|x, p1|x, v|p1, x|v, p|cube, p|cube, cube|cube, p3|p3, cube|p, cube|x, cube|cube, x|cube, p1|p1, cube|cube, v|x, p3|p3, x|cube, p3[:1]|p3[:1], cube|input=x, other=p|cube, p4|p4, cube|cube[:, None], p4|v, cube"
    ),
    "ctc_loss": _compiled(
        "cube.log(), pids[:, None], (4, 4, 4, 4), (1, 1, 1, 1)|p3.log_softmax(2), ids.clamp(1), [4, 4, 4, 4], [1, 1, 1, 1], 0, 'none'"
    ),
    "grid_sample": _compiled(
        "four, four[..., :2]|four, p4[..., :2]|p4, four[..., :2]|five, five[..., :3], align_corners=True"
    ),
    "affine_grid": _compiled("cube[:, :2, :3], (4, 1, 2, 2)"),
    "affine_grid_generator": _compiled("cube[:, :2, :3], (4, 1, 2, 2), False"),
    "native_group_norm": _compiled(
        "x, p1, p1, 4, 4, 1, 2, 1e-5|x, p1, p1, 2, 8, 1, 2, 1e-5|x, None, None, 1, 4, 4, 2, 1e-5|x, v, p1, 4, 4, 1, 2, 1e-5"
    ),
    "stft": _compiled("v, 6, 1, return_complex=True|x, 6, 1, return_complex=True|x, 4, 1, 4, p1, return_complex=True"),
    "istft": _compiled("torch.complex(x[:, :3], x[:, :3]), 4|torch.complex(cube[:, :3], cube[:, :3]), 4"),
    "fold": _compiled("cube, (2, 2), (2, 2)|cube, (5,  2), (2, 2)|x[:, :1], (2, 2), (2, 2)"),
    "interpolate": _compiled(
        "cube, 2|cube, scale_factor=2|four, (2, 2), mode='bilinear'|five, 2|cube, 8, mode='linear'|x, 2"
    ),
    "conv_tbc": _compiled("cube, torch.rand(2, 4, 4), p1|p3, cube[:2], p1"),
    "convolution": _compiled(
        "cube, w1, None, (1,), (0,), (1,), False, (0,), 1|p3, cube, None, (1,), (0,), (1,), False, (0,), 1"
    ),
    "mkldnn_convolution": _compiled("four, w2, None, (0, 0), (1, 1), (1, 1), 1"),
    "multilabel_margin_loss": _compiled(
        "x, x.long() - 1, reduction='none'|x, pids.expand(4, 4), reduction='none'|v, ids"
    ),
    "linear_cross_entropy": _compiled(
        "x, weight, ids, reduction='none'|x, weight, pids, reduction='none'|p, x, ids, reduction='none'|x, weight, ids"
    ),
    "searchsorted": _compiled("x, y|p1.sort()[0], x|p.sort()[0], x|x.sort(1)[0], p|v, x|p1.sort()[0], v"),
    "bucketize": _compiled("x, p1.sort()[0]|x, v|p, v|v, p1.sort()[0]"),
    "unravel_index": _compiled("ids, (2, 2)|indices=ids, shape=(2, 2)|x.long(), (4, 4)"),
    "fused_moving_avg_obs_fake_quant": _compiled("x, p1[:1], p1[:1], p1[:1], p1[:1], p1[:1], perm[:1], 0.1, 0, 255, 1"),
    "unfold": _compiled("x, 0, 2, 1|x, 1, 2, 1|x, -1, 2, 2|v, -1, 2, 1|cube, 1, 2, 1|four, 2|four, (2, 2)|cube, 2"),
    "unfold_copy": _compiled("x, 0, 2, 1|x, 1, 2, 1|x, -1, 2, 2|v, -1, 2, 1|cube, 1, 2, 1"),
    "householder_product": _compiled("cube, y|cube, p|p3, y|x, p1|cube, y[:, :2]|cube, LoDTensor(p, STRUCTURE)"),
    "ormqr": _compiled("cube, y, cube|cube, y, p3|p3, p, cube|x, p1, p|cube, p, y"),
    "lu_solve": _compiled(
        f"cube, {_LU}|y, {_LU}|cube, {_LUS}, {_PIVOTS}|{_LUS}, {_PIVOTS}, cube|{_LUS}, {_PIVOTS}, p3|x, *torch.linalg.lu_factor(p)|p, *torch.linalg.lu_factor(rows(x))|{_LUS}, {_PIVOTS}, y"
    ),
    "lu_unpack": _compiled(f"{_LUS}, {_PIVOTS}|{_LU}|x, perm.int() + 1"),
    "ldl_solve": _compiled(f"{_LUS}, {_PIVOTS}, cube|{_LUS}, {_PIVOTS}, p3|x, perm.int() + 1, p"),
    "triangular_solve": _compiled("cube, cube|cube, p3 + torch.eye(4)|x, p|p3, cube|y, cube"),
    "cholesky_solve": _compiled("cube, cube|cube, p3|x, p|p3, cube|y, cube"),
    "lobpcg": _compiled("x, 1, niter=1|cube, 1, niter=1"),
    "svd_lowrank": _compiled("x, 2|cube, 2|A=cube, q=2"),
    "vander": _compiled("v, 3|v|x=v, N=3|x, 3"),
    "triplet_margin_with_distance_loss": _compiled(
        "x, y, z, reduction='none'|x, p, q, reduction='none', swap=True|x, y, z, distance_function=lambda a, b: (a @ b.t())[0], reduction='none'|p, v, x, reduction='none'"
    ),
    "normal": _compiled("x, y|2.0, x|x, 2.0|mean=x, std=p|p, x|x, p1|v, p"),
    "atleast_1d": _compiled("v|x|x, p|(x, p)"),
    "atleast_2d": _compiled("v|x|x, p|(x, p)|v, p"),
    "atleast_3d": _compiled("v|x|cube|x, p|(x, p)|p, x"),
    "broadcast_tensors": _compiled("x, p|x, p1|x, v|p3, x|x, y|x, row"),
    "hstack": _compiled("[x, y]|[x, p]|[v, v]|[v, p1]|(cube, p3)|tensors=[x, y]"),
    "column_stack": _compiled("[x, y]|[x, p]|[v, x]|[v, p1]|(cube, p3)|[p1, x]"),
    "dstack": _compiled("[x, y]|[x, p]|[v, v]|[v, p1]|(cube, p3)|[x, cube]"),
    "vstack": _compiled("[v, v, v, v]|[v, p1, p1, p1]|[x, y]|[x, p]|[v, v]|[v, x]|(cube, p3)|(cube, cube)"),
    "isin": _compiled("ids, perm|pids, ids|x.long(), ids|ids, pids|x.long(), perm"),
    "where": _compiled(
        "cond, x, y|cond, x, v|cond, v, x|v > 0.5, x, y|mask, x, v|mask, x, y|mask, p, x|cond, 0.0, x|cond, p, q|cond|x > 0.5, x, p3|mask, x, p1"
    ),
    "norm_except_dim": _compiled("x, 2, 0|x, 2, 1|x, 2, -1|v=x, pow=2, dim=0|v=x, pow=2, dim=1|cube"),
    "cosine_embedding_loss": _compiled(
        "x, y, v, reduction='none'|x, p, p1, reduction='none'|p, q, v, reduction='none'|x, y, v"
    ),
    "linalg_solve": _compiled(_TWO),
    "linalg_lstsq": _compiled(  # two equal calls of torch's differ where a matrix of p is nearly singular
        "|".join(form for form in _TWO.split("|") if not form.startswith("p,"))
    ),
    "linalg_solve_triangular": _compiled(_TRIANGULAR),
    "max_unpool2d": _compiled("four, four.long() * 0, 2|p4, four.long() * 0, 2|cube, cube.long() * 0, 2"),
    "max_unpool3d": _compiled("five, five.long() * 0, 2|four, four.long() * 0, 2"),
    "fbgemm_linear_int8_weight": _compiled("x, *int8(weight), p1"),
    "fbgemm_linear_int8_weight_fp32_activation": _compiled("x, *int8(weight), p1"),
    "new_full": _compiled("x, (4, 4), 1.0"),
    "_pack_padded_sequence": _compiled("cube, torch.tensor([4, 3, 2, 1]), True"),
    "register_hook": _compiled("x.requires_grad_(), str"),
    "register_post_accumulate_grad_hook": _compiled("x.requires_grad_(), str"),
    "retain_grad": _compiled("x.requires_grad_()|x.requires_grad_() * 2"),
    "__array_wrap__": _compiled("x, torch.ones(4).numpy()"),
    "empty": _compiled("(4,), out=p"),
    "fbgemm_linear_fp16_weight": _compiled(
        "x, torch.fbgemm_pack_gemm_matrix_fp16(weight), p1|v, torch.fbgemm_pack_gemm_matrix_fp16(weight), p1"
    ),
    "__invert__": _compiled("x.long()|x > 0.5"),
    "grid_sampler": _compiled(
        "four, four[..., :2], 0, 0, False|four, p4[..., :2], 0, 0, False|p4, four[..., :2], 1, 0, True"
    ),
    "grid_sampler_3d": _compiled("five, five[..., :3], 0, 0, False"),
    "cross": _compiled(_CROSS),
    "linalg_cross": _compiled(_CROSS),
    "fake_quantize_per_channel_affine": _compiled(
        "x, torch.ones(4), torch.zeros(4, dtype=torch.int32), 1, 0, 255|x, v, torch.zeros(4, dtype=torch.int32), 1, 0, 255"
    ),
    "native_batch_norm": _compiled("x, None, None, p1, p1, False, 0.1, 1e-5|x, v, None, p1, p1, False, 0.1, 1e-5"),
    "margin_ranking_loss": _compiled(_THREE),
    "triplet_margin_loss": _compiled(_THREE),
    "nll_loss": _compiled(_CLASSES),
    "cross_entropy": _compiled(_CLASSES + "|x, y, reduction='none'|cube, ids[:, None].expand(4, 4), reduction='none'"),
    "multi_margin_loss": _compiled(_CLASSES),
    "addmv_": _compiled("v, 0.5, 2.0, p, v|v, 0.5, 2.0, x, p1|v, x, p1|v, p, p1|p1, x, p1|v, x, v|v, p, v"),
    "kaiming_uniform_": _compiled("x|tensor=x|x, 0.1"),
    "segment_reduce": _compiled("x, 'sum', lengths=torch.tensor([1, 3])"),
}
for _names, _forms in (
    ("softmax log_softmax softmin", _SOFTMAX),
    ("gumbel_softmax", _GUMBEL),
    ("fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft", _FFT),
    ("fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2", _FFTS),
    ("fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn", _FFTS),
    ("fft_fftshift fft_ifftshift", "x, {d}|x|x, dim={d}|x, dim=({d},)|x, (0, 1)|cube, (1, 2)"),
):
    for _name in _names.split():
        _ONLY[_name] = [form for d in (0, 1, -1, -2) for form in _compiled(_forms.format(d=d))]
for _name in "index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce".split():
    _ONLY[_name] = [form for d in (0, 1, -1, -2) for form in _compiled(_INDEX.format(d=d))]
for _like, _names in (
    ("fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation"),
    ("matmul", "mm mv __matmul__ __rmatmul__ linalg_matmul"),
    ("grid_sampler", "grid_sampler_2d"),
    ("addr", "addr_"),
    ("addbmm", "addbmm_"),
    ("baddbmm", "baddbmm_"),
    ("vstack", "row_stack"),
    ("multi_dot", "linalg_multi_dot"),
    ("householder_product", "linalg_householder_product orgqr"),
    ("lu_solve", "linalg_lu_solve"),
    ("ldl_solve", "linalg_ldl_solve"),
    ("linalg_solve", "linalg_solve_ex"),
    ("vander", "linalg_vander"),
    *(
        (name, f"{name}_")
        for name in "index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce".split()
    ),
):
    for _name in _names.split():
        _ONLY[_name] = _ONLY[_like]
_MATRICES = "cholesky cholesky_ex cond det eig eigh eigvals eigvalsh inv inv_ex ldl_factor ldl_factor_ex lu lu_factor"
for _name in f"{_MATRICES} lu_factor_ex matrix_exp matrix_power matrix_rank pinv qr slogdet svd svdvals".split():
    _ONLY[_name] = _ONLY[f"linalg_{_name}"] = _compiled(_ONE)
for _name in "cholesky_inverse geqrf inverse logdet pca_lowrank pinverse".split():
    _ONLY[_name] = _compiled(_ONE)


#: What the rows of the middle sequence become: NaN and huge numbers where the dtype has them.
CHANGES = ("other", "nan", "huge")


class Operands(dict):
    """The names of a form, made when they are looked up."""

    def __init__(self, shape, dtype, change: str, plain: bool):
        super().__init__(FIXED, all=slice(None), perm=FIXED["perm"].clone(), levels=FIXED["levels"].clone())
        self.shape, self.dtype, self.change, self.plain, self.made = shape, dtype, change, plain, []

    def __missing__(self, name):
        if name not in OPERANDS:
            raise KeyError(name)
        shape, dtype, seed, structured = OPERANDS[name]
        t = _rows(shape or self.shape, dtype or self.dtype, seed, self.change if structured else "").clone()
        self[name] = self.laid(name, t) if structured else t
        if structured and not self.plain:
            self.made.append(self[name])
        return self[name]

    def laid(self, name: str, t):
        """Rows as an operand of sequences has them."""
        return t if self.plain else LoDTensor(t, STRUCTURE)


@functools.cache
def _rows(shape, dtype, seed: int, change: str):
    t = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1
    if change:
        t[CHANGED] = torch.rand(t[CHANGED].shape, generator=torch.Generator().manual_seed(seed + 100)) * 0.8 + 0.1
    if dtype == torch.bool:
        return t > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        if change in ("nan", "huge"):
            t[CHANGED] = float("nan") if change == "nan" else 3e38
        return torch.complex(t, t * 2) if dtype.is_complex else t.to(dtype)
    return (t * 4).to(dtype)


@functools.cache
def names() -> dict:
    """A readable name for every function of the table."""
    found = dict(shown_functions())
    for label, space in (
        ("torch", torch),
        ("torch.Tensor", torch.Tensor),
        ("torch.nn.functional", F),
        ("torch.special", torch.special),
        ("torch.nn.init", torch.nn.init),
    ):
        for name in dir(space):
            func = getattr(space, name, None)
            func = func if callable(func) else getattr(func, "__get__", None)
            if func is not None and func in KINDS:
                found.setdefault(func, f"{label}.{name}")
            change = getattr(getattr(space, name, None), "__set__", None)
            if change is not None and change in KINDS:
                found.setdefault(change, f"{label}.{name} =")
    return found


#: Calls that few functions take.
MALFORMED = _compiled(
    """x, x, x, x, x, x|x, [], []|x, "a"|x, None, None, None|x, (0, 1, 2, 3)|x, -5|x, 7|x, x, "b"|[], 0|[x, 3]|x, [None]|x, 1.5
x, dim="a"|x, dim=1.5|x, other=None|x, torch.tensor([0, 1])|[[x]]|x, (), ()|x, object()|x, y, None, None|x, 0.5, 2.0, p, p|x"""
)


def forms(func) -> list:
    """How a function is called."""
    only = _ONLY.get(getattr(func, "__name__", ""))
    if only is not None:
        return only
    few = func not in RULES or KINDS[func] in ("keep", "join")
    return FEWER if few else FORMS
