# SPDX-License-Identifier: Apache-2.0
"""A row for each sequence beside rows: broadcast over the rows of its sequence where something says what it is (`tl.per_sequence`,
or a LoD that is the outer part of the other), refused where only its size could."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_lod as tl
from torch_lod import LoDError

LENGTHS = [4, 2, 5]
LAYOUTS = {
    "x": lambda x: x,
    "x[None]": lambda x: x[None],
    "x[:, None]": lambda x: x[:, None],
    "x.t()[None]": lambda x: x.t()[None],
}
#: What is written, by layout, with t in that layout and, for each sequence, vectors c, matrices r, numbers s and truths f. It is code
#: for padded batches, so that one sequence alone is a batch of one.
BATCH_FIRST = [
    "t * c",
    "t * (1 + c[:, None])",
    "t - c[:, None]",
    "t + c[:, None, None]",
    "c[:, None, None, None] - t",
    "t - c[:, None].expand(-1, t.shape[-2], -1)",
    "t / s[:, None, None].exp()",
    "torch.where(f[:, None, None], t, 0)",
    "torch.lerp(t, c[:, None], 0.3)",
    "torch.addcmul(t, c[:, None], t)",
    "t.masked_fill(f[:, None, None], 0)",
    "torch.maximum(t, c[:, None])",
    "t @ r",
    "torch.matmul(t, r)",
    "torch.cdist(t, c[:, None])",
    "torch.cdist(t, r)",
    "F.cosine_similarity(t, c[:, None], dim=-1)",
    "F.mse_loss(t, c[:, None].expand_as(c[:, None]), reduction='none')",
    "F.linear(c, w)[:, None] + t",
    "t @ r[:, None]",
    "torch.einsum('...nd,...de->...ne', t, r)",
]
BY_LAYOUT = {
    "x": [*BATCH_FIRST, "torch.einsum('nd,bde->bne', t, r)", "t * s[:, None]"],
    "x[None]": [
        *BATCH_FIRST,
        "torch.einsum('bnd,bde->bne', t, r)",
        "torch.einsum('bnd,bd->bn', t, c)",
        "torch.einsum('bnd,bnd->bn', t, c[:, None])",
        "torch.bmm(t, r)",
        "torch.baddbmm(t, t, r)",
        "t[..., 0] * s[:, None]",
    ],
    "x[:, None]": ["t * c", "t * (1 + c[None])", "t / s[None, :, None].exp()", "torch.where(f[None, :, None], t, 0)"],
    "x.t()[None]": ["t * c[:, :, None]", "t * s[:, None, None]", "r @ t", "torch.where(f[:, None, None], t, 0)"],
}
CASES = [(layout, code) for layout, lines in BY_LAYOUT.items() for code in lines]


def given(n=3):
    torch.manual_seed(0)
    rows = torch.randn(11, 8, requires_grad=True)
    own = {"c": torch.randn(n, 8), "r": torch.randn(n, 8, 8), "s": torch.randn(n)}
    return rows, {name: t.requires_grad_() for name, t in own.items()}, torch.arange(n) % 2 == 0


def written(code):
    return eval(f"lambda t, w, c, r, s, f: {code}", {"torch": torch, "F": F})


def rows_first(values, dim):
    """The rows of a result at dim 0, whatever dims of size 1 are before."""
    return values.movedim(dim, 0).flatten(1) if values.dim() > 1 else values[:, None]


def of_rows(result):
    dim = 0 if isinstance(result, tl.LoDTensor) else result.rows_dim
    return rows_first(result.values(), dim), dim - result.dim()


def alone(code, layout, rows, lengths, own, flags, w):
    """The code on every sequence by itself, a batch of one."""

    def dims(t):
        return t if layout == "x" else LAYOUTS[layout](t)

    own, program = {**own, "f": flags}, written(code)
    return [
        program(dims(part), w, **{name: t[i : i + 1] for name, t in own.items()})
        for i, part in enumerate(rows.split(lengths))
    ]


def declared(own, flags, level=-1):
    return {name: tl.per_sequence(t, level) for name, t in {**own, "f": flags}.items()}


def check(code, layout, lod, lengths, own_of, n=3, compiled=None):
    rows, own, flags = given(n)
    w, line, of = torch.randn(8, 8), written(code), LAYOUTS[layout]

    def program(x, *tensors):
        return line(of(x), w, **own_of(dict(zip(own, tensors)), tensors[-1]))

    result = (program if compiled is None else compiled(program))(tl.LoDTensor(rows, lod), *own.values(), flags)
    got, at = of_rows(result)
    assert result.lod == lod
    expected = alone(code, layout, rows, lengths, own, flags, w)
    dims = list(expected[0].shape)
    dims[at] = lod.rows
    # rows themselves have no dim of the batch, which code for padded batches has
    assert list(result.shape) == dims or (isinstance(result, tl.LoDTensor) and [1, *result.shape] == dims)
    expected = torch.cat([rows_first(t, at + t.dim()) for t in expected])
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    weights, leaves = torch.rand_like(got), [rows, *own.values()]
    grads = [torch.autograd.grad((r * weights).sum(), leaves, allow_unused=True) for r in (got, expected)]
    for a, b in zip(*grads):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a if type(a) is torch.Tensor else a.values(), b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("layout, code", CASES)
def test_a_row_for_each_sequence_meets_the_rows_of_its_sequence(layout, code):
    check(code, layout, tl.LoD.from_lengths([LENGTHS]), LENGTHS, declared)


NESTED = [
    ("x", "t * c"),
    ("x[None]", "t * (1 + c[:, None])"),
    ("x[None]", "t @ r"),
    ("x.t()[None]", "t * c[:, :, None]"),
]
NESTED += [
    ("x[:, None]", "t * c"),
    ("x[None]", "torch.einsum('bnd,bde->bne', t, r)"),
    ("x[None]", "torch.cdist(t, c[:, None])"),
]


@pytest.mark.parametrize("layout, code", NESTED)
@pytest.mark.parametrize("level, lengths", [(-1, LENGTHS), (1, LENGTHS), (0, [6, 5]), ("text", [6, 5])])
def test_levels(layout, code, level, lengths):
    lod = tl.LoD.from_lengths([[2, 1], LENGTHS], level_names=("text", "sentence"))
    check(code, layout, lod, lengths, lambda own, f: declared(own, f, level), len(lengths))


@pytest.mark.parametrize("layout, code", [*NESTED, ("x[None]", "torch.where(f[:, None, None], t, 0)")])
def test_outer_levels_need_no_declaration(layout, code):
    lod = tl.LoD.from_lengths([[2, 1], LENGTHS])
    check(
        code,
        layout,
        lod,
        LENGTHS,
        lambda own, f: {k: tl.LoDTensor(t, lod.outer(1)) for k, t in {**own, "f": f}.items()},
    )


@pytest.mark.parametrize("lengths", [[0, 6, 5], [11], [1] * 11, [5, 0, 6]])
def test_empty_sequences_and_sequences_of_one_row(lengths):
    lod = tl.LoD.from_lengths([lengths])
    for code in ("t * (1 + c[:, None])", "t @ r"):
        check(code, "x[None]", lod, lengths, declared, len(lengths))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "layout, code",
    [
        ("x", "t * c"),
        ("x[None]", "t * (1 + c[:, None])"),
        ("x[None]", "t @ r"),
        ("x[:, None]", "t - c"),
        ("x[None]", "torch.einsum('bnd,bde->bne', t, r)"),
    ],
)
def test_compiled(backend, layout, code):
    torch._dynamo.reset()
    graph = lambda f: torch.compile(f, backend=backend, fullgraph=True)  # noqa: E731
    check(code, layout, tl.LoD.from_lengths([LENGTHS]), LENGTHS, declared, compiled=graph)
    if "c[:, None]" in code or code == "t * c":
        lod = tl.LoD.from_lengths([[2, 1], LENGTHS])
        outer = lambda own, f: {k: tl.LoDTensor(t, lod.outer(1)) for k, t in {**own, "f": f}.items()}  # noqa: E731
        check(code, layout, lod, LENGTHS, outer, compiled=graph)


def test_pooling_comes_back_by_broadcasting():
    x = tl.from_lengths(torch.randn(11, 8), [[2, 1], LENGTHS])
    centred = x - tl.sequence_pool(x, "mean")
    assert centred.lod is x.lod
    assert torch.allclose(tl.sequence_pool(centred, "sum").values(), torch.zeros(3, 8), atol=1e-5)
    whole = x - tl.per_sequence(tl.sequence_pool(x, "mean", level=0), level=0)
    assert torch.allclose(tl.sequence_pool(whole, "sum", level=0), torch.zeros(2, 8), atol=1e-5)


def test_in_place():
    x, c = tl.from_lengths(torch.ones(11, 8), [LENGTHS]), torch.arange(3.0)[:, None]
    same = x
    x *= tl.per_sequence(c)
    assert x is same and torch.equal(x.values()[:, 0], c[x.lod.segment_ids(), 0])
    with pytest.raises(LoDError, match="mul: expected rows of the same sequences"):
        tl.per_sequence(torch.ones(3, 8)).mul_(x)


# -- a plain tensor

c, m, temp, flag = torch.randn(3, 8), torch.randn(3, 8), torch.rand(3), torch.tensor([True, False, True])
R = torch.randn(3, 8, 8)
UNDECLARED = [
    "t * (1 + c[:, None])",
    "t - m[:, None]",
    "t / temp[:, None, None]",
    "torch.where(flag[:, None, None], t, 0)",
    "torch.where(flag[:, None, None], t, t)",
    "torch.lerp(t, c[:, None], 0.5)",
    "t.masked_fill(flag[:, None, None], 0)",
    "torch.addcmul(t, c[:, None], c[:, None])",
    "F.mse_loss(t, c[:, None])",
    "F.mse_loss(t - m[:, None], t)",
    "F.cosine_similarity(t, c[:, None], dim=-1)",
    "t @ R",
    "R @ t.mT",
    "torch.cdist(t, c[:, None])",
]
PLAIN = {"c": c, "m": m, "temp": temp, "flag": flag, "R": R, "torch": torch, "F": F}
NAMED = "tl.per_sequence\\(.*\\.values\\(\\)"


def layouts(lod=None):
    x = tl.LoDTensor(torch.randn(11, 8), lod or tl.LoD.from_lengths([LENGTHS]))
    return {layout: of(x) for layout, of in LAYOUTS.items()}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("code", UNDECLARED)
def test_without_declaration_it_is_refused(code):
    for t in (
        *[layouts()[name] for name in ("x", "x[None]")],
        layouts(tl.LoD.from_lengths([[2, 1], LENGTHS]))["x[None]"],
    ):
        with pytest.raises(LoDError, match=NAMED):
            eval(code, PLAIN, {"t": t})
    for name in ("x[:, None]", "x.t()[None]"):  # where the sizes do not fit torch says so
        with pytest.raises((LoDError, RuntimeError)):
            eval(code, PLAIN, {"t": layouts()[name]})


@pytest.mark.parametrize("code", ["t * temp[:, None, None]", "R @ t", "torch.einsum('bed,bdn->ben', R, t)"])
def test_without_declaration_it_is_refused_in_channels(code):
    with pytest.raises(LoDError, match=NAMED):
        eval(code, PLAIN, {"t": layouts()["x.t()[None]"]})


@pytest.mark.parametrize(
    "code",
    ["torch.einsum('bnd,bde->bne', t, R)", "torch.einsum('bnd,hde->hne', t, R)", "torch.einsum('bnd,h->hnd', t, temp)"],
)
def test_einsum_without_declaration(code):
    with pytest.raises(LoDError, match=NAMED):
        eval(code, PLAIN, {"t": layouts()["x[None]"]})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("code", ["t * (1 + c[:, None])", "t @ R", "torch.where(flag[:, None, None], t, 0)"])
def test_compiled_without_declaration(code, backend):
    torch._dynamo.reset()
    program = eval(f"lambda t, c, R, flag: {code}", {"torch": torch})
    compiled = torch.compile(lambda x, *others: program(x[None], *others), backend=backend, fullgraph=True)
    with pytest.raises(Exception, match=r"tl\.per_sequence"):
        compiled(layouts()["x"], c, R, flag)


W3, W5, HEADS = nn.Parameter(torch.randn(3, 8, 8)), torch.randn(5, 8, 8), nn.Parameter(torch.randn(3, 8))
#: Programs whose sizes say nothing: weights, heads, experts, stacks.
STAYS = [
    "t @ W3",
    "torch.einsum('bnd,hde->hne', t, W3)",
    "t * HEADS[:, None]",
    "t + HEADS.view(3, 1, 8)",
    "t @ W5",
    "t @ torch.randn(8, 3, generator=torch.Generator().manual_seed(0))",
    "torch.stack([t, t, t]) + (torch.arange(24.).view(3, 1, 1, 8))",
    "torch.cat([t, t, t]) + torch.arange(24.).view(3, 1, 8)",
    "t + torch.arange(8.)",
    "t * torch.ones(1, 1, 8)",
    "t[..., None, :] * c",
    "t / torch.tensor(3.0)",
]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("code", STAYS)
def test_sizes_alone_are_no_evidence(code, grad):
    t, names = layouts()["x[None]"], {**PLAIN, "W3": W3, "W5": W5, "HEADS": HEADS}
    with torch.set_grad_enabled(grad):
        result = eval(code, names, {"t": t})
        plain = eval(code, names, {"t": t.values()})
    assert hasattr(result, "lod") and torch.equal(result.values(), plain)


def test_rows_that_stay_ahead_are_told_by_strict_and_explain():
    t = layouts()["x[:, None]"]
    assert (t * c).shape == (11, 3, 8)
    with tl.strict(), pytest.raises(LoDError, match=r"tl\.per_sequence"):
        t * c
    report = tl.explain(lambda: t * c)
    assert [found.call for found in report] == ["mul"] and "tl.per_sequence(c, 0)" in report[0].advice
    with tl.strict():
        assert (t * HEADS).shape == (11, 3, 8) and (t * torch.randn(5, 8)).shape == (11, 5, 8)
        layouts()["x"][:, :1] * temp  # numbers beside a column: frequencies, thresholds


def test_explain_lists_parameters():
    t = layouts()["x[None]"]
    for code in ("t @ W3", "t * HEADS[:, None]"):
        report = tl.explain(lambda code=code: eval(code, {"W3": W3, "HEADS": HEADS, "t": t}))
        assert len(report) == 1 and "a parameter of shape (3," in report[0].what, code
        with tl.strict():
            eval(code, {"W3": W3, "HEADS": HEADS, "t": t})


def test_wrong_declarations():
    x = layouts()["x"]
    for wrong in ([1.0], torch.tensor(1.0), x, tl.per_sequence(c)):
        with pytest.raises(TypeError, match="per_sequence: expected c"):
            tl.per_sequence(wrong)
    for level in (None, 1.5, True, ""):
        with pytest.raises(TypeError, match="per_sequence: expected level"):
            tl.per_sequence(c, level)
    with pytest.raises(
        ValueError, match=r"mul: expected a row for each of the 3 sequences of level -1, got 5 rows of tl\.per_sequence"
    ):
        x * tl.per_sequence(torch.randn(5, 8))
    with pytest.raises(IndexError, match=r"mul: expected level in \[-1, 0\]"):
        x * tl.per_sequence(c, level=2)
    with pytest.raises(LoDError, match="rows of the same sequences"):
        tl.per_sequence(c, level=0) * tl.per_sequence(c, level=-1)
    with pytest.raises(LoDError):
        x[None] + tl.per_sequence(torch.randn(3, 11, 8))
    with pytest.raises(LoDError):
        torch.cat([x, tl.per_sequence(c)], 1)


def test_it_survives_what_tensors_survive(tmp_path):
    p = tl.per_sequence(c, level="text")
    torch.save(p, tmp_path / "p")
    for copy in (p.clone(), p * 1, torch.load(tmp_path / "p"), p[:, None].squeeze(1), p.t().t()):
        lod = tl.LoD.from_lengths([LENGTHS], level_names=("text",))
        assert torch.equal((tl.LoDTensor(torch.ones(11, 8), lod) * copy).values(), c[lod.segment_ids()])


MATRICES = {
    "x @ W": lambda x, w: x @ w,
    "x[None] @ W": lambda x, w: (x[None] @ w)[0],
    "x[:, None] @ W": lambda x, w: (x[:, None] @ w)[:, 0],
    "x[:, None].bmm(W)": lambda x, w: x[:, None].bmm(w)[:, 0],
    "einsum": lambda x, w: torch.einsum("nd,nde->ne", x, w),
    "einsum, turned": lambda x, w: torch.einsum("nde,nd->en", w, x).t(),
    "einsum of more": lambda x, w: torch.einsum("nhd,nde->neh", x[:, None], w)[:, :, 0],
}


@pytest.mark.parametrize("lengths", [LENGTHS, [0, 1, 3, 2, 5] * 4], ids=["few", "many"])
@pytest.mark.parametrize("form", MATRICES)
def test_no_row_gets_a_copy_of_the_matrix_of_its_sequence(form, lengths, monkeypatch):
    def refused(*_):
        raise AssertionError("the matrix was repeated for every row")

    monkeypatch.setattr("torch_lod.functions.broadcasting.repeat_rows", refused)
    x = tl.from_lengths(torch.randn(sum(lengths), 8, dtype=torch.float64), [lengths]).requires_grad_()
    w = torch.randn(len(lengths), 8, 5, dtype=torch.float64, requires_grad=True)
    y, expected = MATRICES[form](x, tl.per_sequence(w)), torch.cat([r @ m for r, m in zip(x.sequences(), w)])
    assert type(y) is tl.LoDTensor and y.lod == x.lod
    torch.testing.assert_close(y.values(), expected)
    weight = torch.randn_like(expected)
    got, right = (torch.autograd.grad((t * weight).sum(), (x, w)) for t in (y.values(), expected))
    for a, b in zip(got, right, strict=True):
        torch.testing.assert_close(*[t.values() if isinstance(t, tl.LoDTensor) else t for t in (a, b)])
