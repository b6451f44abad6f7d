# SPDX-License-Identifier: Apache-2.0
"""Kinds of padded code that must not be wrong without a word, line by line: every line, in every layout, is right (what every
sequence alone gives), or an error that names what to write, or torch's own error for these sizes.

`t` is x in a layout. By the innermost sequence there are vectors c and m, numbers temp, truths flag, matrices R and targets
y; they are plain tensors in UNDECLARED, and declared by tl.per_sequence in the same lines once more."""

import collections
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_lod as tl
from torch_lod import LoDError, LoDTensor

LODS = {"one level": [[4, 2, 5]], "nested": [[2, 1], [4, 2, 5]], "as many rows as features": [[3, 2, 3]]}
LAYOUTS = {
    "x": lambda x: x,
    "x[None]": lambda x: x[None],
    "x[:, None]": lambda x: x[:, None],
    "x.t()[None]": lambda x: x.t()[None],
}
PLACES = [(layout, lod) for lod in LODS for layout in LAYOUTS]
pytestmark = pytest.mark.filterwarnings("ignore")


def _rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def _module(make, *args, **kwargs):
    torch.manual_seed(0)
    return make(*args, **kwargs).requires_grad_(False)


def heads(t):
    return t.view(1, t.shape[1], 2, 4).transpose(1, 2)


def attend(t, mask):
    return F.scaled_dot_product_attention(heads(t), heads(t), heads(t), attn_mask=mask)


NAMES = {
    "torch": torch,
    "F": F,
    "tl": tl,
    "heads": heads,
    "attend": attend,
    "fc": _module(nn.Linear, 8, 1),
    "fc8": _module(nn.Linear, 8, 8),
    "gru": _module(nn.GRU, 8, 8, batch_first=True),
    "pe": _rand(20, 8, seed=1),
    "rel": _rand(20, 4, seed=2),
    "table": _rand(20, 8, seed=3),
    "i0": torch.tensor([0]),
    "perm": torch.tensor([1, 0, 4, 2, 3, 7, 6, 5]),
    "b": _rand(8, seed=4),
    "w": _rand(8, 8, seed=5),
    "W5": _rand(5, 8, 8),
    "W3": nn.Parameter(_rand(3, 8, 8), requires_grad=False),
    "HEADS": nn.Parameter(_rand(3, 8), requires_grad=False),
    "STACK": _rand(3, 1, 8),
}
BESIDE = {"c": (8,), "m": (8,), "temp": (), "R": (8, 8), "y": (1,), "y8": (8,)}


def beside(which=slice(None), wrap=lambda t: t) -> dict:
    """What there is for each sequence, or for some of them."""
    found = {name: _rand(3, *shape, seed=7)[which] for name, shape in BESIDE.items()}
    found["flag"] = torch.tensor([True, False, True])[which]
    return {name: wrap(t) for name, t in found.items()}


def rows(lengths):
    n = sum(lengths)
    return _rand(n, 8), torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(n))


def run(code: str, layout: str, x, ids, others: dict):
    """A line, or statements about y in the layout of x, which x is returned for."""
    names = {**NAMES, **others, "x": x, "ids": ids, "t": LAYOUTS[layout](x), "s": x[..., 0]}
    if (
        ";" not in code
        and not re.search(r"[^=!<>]=[^=]|_\(|\.__i", re.sub(r"\(.*\)", "()", code))
        and not code.startswith("for")
    ):
        return eval(code, names)
    exec(code, names)
    return x


def rows_of(t):
    """The dim of the rows of sequences, and those rows first; None where there are none."""
    if isinstance(t, LoDTensor):
        return 0, t
    if not isinstance(t, torch.Tensor) or type(t) is torch.Tensor:
        return None
    fronts = ((dim, t.movedim(dim, 0)) for dim in range(1, t.dim()))
    return next(((dim, front) for dim, front in fronts if isinstance(front, LoDTensor)), None)


def plain(t):
    return t if type(t) in (torch.Tensor, nn.Parameter) else t.values()


#: What a refusal names: the way out, for each kind.
WORDS = {
    "a": r"tl\.per_sequence\(.*\.values\(\)|tl\.sequence|x\.to_padded|make it a LoDTensor|tl\.per_sequence",
    "b": r"mask|bias|rows|\.values\(\)",
    "c": r"tl\.sequence_shift|position_ids|x\.head|\.values\(\)",
    "d": r"see x\.unsqueeze|tl\.sequence_expand_as|make it a LoDTensor|tl\.sequence_pool|tl\.scan|x\.tail|\.values\(\)",
    "g": r"tl\.sequence|\.values\(\)|row for each row|position",
}


def outcome(kind: str, code: str, layout: str, lod: str, declared: bool = False) -> str:
    """right, refused, torch (which refuses these sizes as well), behind (a row for each sequence behind the rows, which only
    strict and explain tell), lost, more (torch refuses it for one sequence), or what is wrong."""
    lengths = LODS[lod]
    values, ids = rows(lengths[-1])
    x, own = tl.from_lengths(values.clone(), lengths), beside(wrap=tl.per_sequence if declared else lambda t: t)
    try:
        result = run(code, layout, x, tl.from_lengths(ids, lengths), own)
    except LoDError as error:
        assert torch.equal(x.values(), values), "it raised, and had written"
        assert re.search(WORDS[kind], str(error), re.S), f"it does not say what to write: {error}"
        return "refused"
    except Exception as error:
        return torchs(code, layout, error)
    parts = zip(values.clone().split(lengths[-1]), ids.split(lengths[-1]))
    try:
        alone = [run(code, layout, r, i, beside(slice(j, j + 1))) for j, (r, i) in enumerate(parts)]
    except Exception as error:  # what torch refuses for one sequence has the sizes of all rows by chance
        if rows_of(result) is None:
            return "lost" if type(result) is not torch.Tensor else f"WRONG: a sequence alone raises {error!r}"
        return "more"
    return compared(result, alone, lengths[-1])


def torchs(code: str, layout: str, error: Exception) -> str:
    """Whether one sequence alone raises as well, where what is for each sequence has the sizes of the batch."""
    values, ids = rows([11])
    try:
        run(code, layout, values, ids, beside())
    except type(error):
        return "torch"
    except Exception as other:
        return f"WRONG: {error!r}, and torch says {other!r}"
    return "torch" if not isinstance(error, (AssertionError, AttributeError)) else f"WRONG: {error!r}"


def compared(result, alone: list, lengths: list) -> str:
    found = rows_of(result)
    if found is None:
        return without_rows(result, alone)
    dim, front = found
    for rows_here, one in zip(front.values().split(lengths), alone):
        while one.dim() > result.dim() and one.shape[0] == 1:
            one = one[0]  # the batch of one, which x as it is does not have
        one = one.movedim(dim, 0)
        if one.shape[1:] != rows_here.shape[1:] and one.shape[:1] == rows_here.shape[:1]:
            return "behind" if dim == 0 else f"WRONG: {tuple(rows_here.shape)} is {tuple(one.shape)} alone"
        if one.shape != rows_here.shape or not torch.allclose(rows_here, one, atol=1e-5):
            return "WRONG: it differs from every sequence alone"
    return "right"


def without_rows(result, alone: list) -> str:
    if type(result) is not torch.Tensor:
        return "lost"  # and knows it: it raises where it meets rows, or more than one
    together = torch.stack(alone).mean(0) if result.dim() == 0 else torch.cat(alone)
    same = result.shape == together.shape and torch.allclose(result, together, atol=1e-5)
    return "right" if same else "WRONG: a plain tensor that differs from every sequence alone"


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def check(
    kind: str, code: str, allowed=("right", "refused", "torch", "lost", "more"), declared=False
) -> collections.Counter:
    found = {place: outcome(kind, code, *place, declared) for place in PLACES}
    wrong = {place: said for place, said in found.items() if said not in allowed}
    assert not wrong, wrong
    return collections.Counter(found.values())


# -- a. a row for each sequence

A = lines("""
    t * (1 + c[:, None])
    t - m[:, None]
    t / temp[:, None, None]
    torch.where(flag[:, None, None], t, 0)
    torch.lerp(t, c[:, None], 0.5)
    t.masked_fill(flag[:, None, None], 0)
    t @ R
    torch.einsum("bnd,bde->bne", t, R)
    torch.cdist(t, c[:, None])
    F.cosine_similarity(t, c[:, None], dim=-1)
    F.mse_loss(t, c[:, None], reduction="none")
    t * c[:, :, None]
    R @ t
""")


@pytest.mark.parametrize("code", A)
def test_a_row_for_each_sequence_is_not_taken_for_weights(code):
    counts = check("a", code, ("refused", "torch", "lost"))
    assert counts["refused"] >= 2


@pytest.mark.parametrize("code", [*A, "t * c", "t + m", "t - c[:, None] * m[:, None]"])
def test_a_row_for_each_sequence_that_is_declared_is_right(code):
    counts = check("a", code, declared=True)
    assert counts["right"] >= 3


@pytest.mark.parametrize("code", ["t * c", "t + c"])
def test_a_row_for_each_sequence_behind_the_rows_is_told(code):
    assert outcome("a", code, "x[:, None]", "one level") == "behind"
    x = tl.from_lengths(rows([4, 2, 5])[0], [[4, 2, 5]])
    with tl.strict(), pytest.raises(LoDError, match=r"tl\.per_sequence"):
        run(code, "x[:, None]", x, None, beside())
    report = tl.explain(lambda: run(code, "x[:, None]", x, None, beside()))
    assert "tl.per_sequence(c, 0)" in str(report)


@pytest.mark.parametrize("code", ["t * (1 + c[:, None])", "torch.where(flag[:, None, None], t, 0)"])
def test_a_batch_without_rows_keeps_its_dims(code):
    x = tl.from_lengths(torch.zeros(0, 8), [[0, 0, 0]])
    assert run(code, "x[None]", x, None, beside(wrap=tl.per_sequence)).shape == (1, 0, 8)


# -- b. masks and biases that are made of rows

B = lines("""
    attend(t, ids.ne(0)[None][:, None, None, :])
    attend(t, ids.ne(0)[None][:, None, None, :].expand(1, 1, t.shape[1], t.shape[1]))
    attend(t, ids.ne(0)[None][:, None, None, :].repeat(1, 1, t.shape[1], 1))
    attend(t, (1.0 - ids.ne(0).float()[None][:, None, None, :].expand(1, 1, t.shape[1], t.shape[1])) * -1e9)
    attend(t, ids.float()[None][:, None, None, :] * 0.5)
    attend(t, heads(t) @ rel[: t.shape[1]].t())
    attend(t, ids.float()[None][:, None, :, None].expand(1, 1, t.shape[1], t.shape[1]))
    attend(t, t.mean(1)[:, None, None, :1])
""")


@pytest.mark.parametrize("code", B)
def test_b_masks_made_of_rows_are_for_their_own_sequence(code):
    counts = check("b", code)
    assert counts["right"] or counts["refused"]


# -- c. writes at positions of the length

C = lines("""
    t[:, 0] = -100
    t[:, :2] = 0
    t[:, -1].zero_()
    t[0] = 0
    t[1:] *= 0.5
    t[1:] = t[1:] * 0.5
    t[..., 0] = 1
    t[..., :2] = 0
    t[..., -1].zero_()
    t.index_fill_(0, i0, 0.0)
    t.index_fill_(1, i0, 0.0)
    t.index_fill_(-1, i0, 0.0)
    t.scatter_(0, i0.expand(1, *t.shape[1:]), 0.0)
    t.scatter_(1, i0.expand(t.shape[0], 1, *t.shape[2:]), 0.0)
    t.select(0, 0).fill_(0)
    t.select(1, 0).fill_(0)
    t.narrow(-1, 0, 2).zero_()
    for i in range(2): t[:, i] += pe[i]
    for r in t: r.add_(1); x
    mask = torch.ones_like(t[..., 0]); mask[:, 0] = 0; t.mul_(mask[..., None])
    mask = torch.ones_like(ids); mask[0] = 0; x.mul_(mask[:, None])
    out = torch.zeros_like(t); out[:, 0] = t[:, 0]; t.sub_(out)
    t[t > 0] = 1
    t[:] = 0
    t[...] = 1
    t[:] = t * 2
    x[ids > 0] = 3
    t.masked_fill_(t > 0, 0)
    t.mul_(2)
    t.copy_(t * 2)
    h = t[:, 0].clone(); h[..., 0] = 3
    h = t.mean(1); h += 1
    F.relu(t, True)
    F.relu(t[:, :2], True)
""")
#: Written to all rows alike, or to a copy: right in every layout.
STAYS = "t[t > 0]", "t[:] =", "t[...]", "x[ids", "t.masked_fill_", "t.mul_", "t.copy_", "F.relu(t,"


@pytest.mark.parametrize("code", C)
def test_c_writes_are_of_all_rows_alike_or_refused(code):
    counts = check("c", code)
    if code.startswith(STAYS):
        assert set(counts) == {"right"}
    elif code.startswith("h ="):  # a copy; of all rows where dim 1 has features
        assert counts["right"] >= 6
    else:
        assert counts["refused"] >= 2


# -- d. one result of the whole batch

LOSSES = "F.mse_loss F.l1_loss F.smooth_l1_loss F.huber_loss F.kl_div F.poisson_nll_loss F.hinge_embedding_loss F.soft_margin_loss"
D = [
    f"{loss}(fc({lost}), y)" for loss in LOSSES.split() for lost in ("t.mean(1)", "t[:, 0]", "t.max(1)[0]", "x.mean(0)")
]
D += lines("""
    F.mse_loss(fc(t.mean(1)).squeeze(), y.squeeze())
    F.margin_ranking_loss(fc(t.mean(1)), y, y.sign())
    F.triplet_margin_loss(t.mean(1), y8, y8)
    F.cosine_embedding_loss(t.mean(1), y8, flag * 2.0 - 1)
    F.gaussian_nll_loss(fc(t.mean(1)), y, torch.ones_like(y))
    F.binary_cross_entropy_with_logits(fc(t.mean(1)), y.sigmoid())
    (fc(t.mean(1)) - y) ** 2
    F.logsigmoid((t.mean(1) * y8).sum(-1))
    F.cosine_similarity(t.mean(1), y8)
    F.pairwise_distance(t.mean(1), y8)
    torch.where(y > 0, fc(t.mean(1)), y)
    torch.lerp(fc(t.mean(1)), y, 0.5)
    torch.einsum("...d,...d->...", t.mean(1), y8)
    t.mean(1)[:, None] @ R
    x - x.mean(0)
    t - t.mean(1, keepdim=True)
    t * torch.sigmoid(fc8(t.amax(1, keepdim=True)))
    x - x.mean(0).mean(0)
    x - x.flatten().mean(0)
""")


@pytest.mark.parametrize("code", D)
def test_d_one_result_of_the_batch_is_not_broadcast(code):
    counts = check("d", code)
    assert counts["refused"] >= 1


@pytest.mark.parametrize(
    "code", ["t.mean(1) + b", "fc8(t.mean(1))", "t.mean(1) @ w", "t.mean(1) * 2", "t.mean(1) - t.mean(1)"]
)
def test_d_weights_and_numbers_go_on_working(code):
    assert outcome("d", code, "x[None]", "one level") == outcome("d", code, "x[None]", "nested") == "lost"


# -- e. last states


@pytest.mark.parametrize("lod", LODS)
@pytest.mark.parametrize("code", ["gru({})[1]", "fc8(gru({})[1][-1]).softmax(1)"])
def test_e_last_states_have_a_row_for_each_sequence(code, lod):
    lengths = LODS[lod]
    values, _ = rows(lengths[-1])
    x, gru = tl.from_lengths(values, lengths), NAMES["gru"]
    alone = [eval(code.format("r[None]"), NAMES, {"r": r}) for r in values.split(lengths[-1])]
    expected = torch.cat(alone, 1 if alone[0].dim() == 3 else 0)
    flat = nn.GRU(8, 8)
    flat.load_state_dict(gru.state_dict())
    for t, module in ((x, gru), (x[None], gru), (x[:, None], flat)):
        found = eval(code.format("t"), {**NAMES, "gru": module}, {"t": t})
        torch.testing.assert_close(found, expected)
    ours = tl.nn.GRU(8, 8)
    ours.load_state_dict(gru.state_dict())
    torch.testing.assert_close(ours(x, gru(x[None])[1])[0].values(), ours(x, flat(x[:, None])[1])[0].values())


# -- f. second arguments of torch_lod's operators, and what functions of the user return

F_LINES = lines("""
    tl.sequence_expand_as(lost, x)
    tl.sequence_expand(lost, x)
    tl.broadcast(x, lost)
    tl.sequence_sort(x, moved[:, 0])
    tl.sequence_conv1d(x, torch.ones(8, 8, 1), lost[0])
    tl.sequence_conv1d(x, lost[:, :, None].expand(3, 8, 1), None)
    tl.sequence_attention(x, x, x, bias=moved.reshape(-1)[:13])
    tl.sequence_attention(x, x, x, alibi=lost[0, :1])
    tl.sequence_attention(x, moved, x)
    tl.rotary_embedding(x, start=lost[:, 0].long())
    tl.sequence_slice(x, lost[:, 0].long() * 0, [1, 1, 1])
    tl.sequence_slice(x, [0, 0, 0], lost[:, 0].long() * 0)
    tl.sequence_shift(moved, 1)
    tl.sequence_pool(moved, "mean")
    tl.sequence_loss(x[:, 0], mask=moved[:, 0] > 0)
    tl.sequence_loss(x[:, 0], weight=lost[:, 0])
    tl.sequence_concat([x, moved])
    tl.cat([x, moved])
    tl.scan(lambda a, h: (a + h, h), x, lost)
    tl.scan(lambda a, h: (a + lost, h), x, c)
    tl.scan(lambda a, h, s: (a + s, h), x, c, static=lost)
    tl.map_sequences(lambda r: lost, x)
    tl.map_sequences(lambda r, q: r, x, moved)
    tl.nn.GRU(8, 8)(x, lost[None])
    tl.nn.MultiheadAttention(8, 2)(x, moved, moved)
    tl.BeamSearch(lambda ids, state: (state, state), end=0)(torch.zeros(3).long(), lost)
    tl.ctc_beam_decode(x, language_model=lambda p: lost[:1].expand(p.num_sequences(), 8))
    x.permute_sequences(lost[:, 0].long())
    x.seq[lost[:, 0].long() * 0]
    x.seq[lost[:, 0] > 0]
    x.filter_rows(moved[:, 0] > 0)
    x.with_values(moved)
    tl.LoDTensor(moved, x.lod)
    x.set_(moved)
    setattr(x, "data", moved)
""")


@pytest.mark.parametrize("lod", LODS)
@pytest.mark.parametrize("code", F_LINES)
def test_f_arguments_that_lost_their_rows_are_refused(code, lod):
    values, _ = rows(LODS[lod][-1])
    x = tl.from_lengths(values, LODS[lod])
    names = {
        **NAMES,
        **beside(),
        "x": x,
        "lost": x.mean(0, keepdim=True).expand(3, -1),
        "moved": x[torch.randperm(len(x))],
    }
    assert rows_of(names["lost"]) is None and rows_of(names["moved"]) is None
    with pytest.raises(LoDError, match=r"mean|getitem|rows"):
        eval(code, names)
    assert torch.equal(x.values(), values)


# -- g. others

G = lines("""
    s - s.mean(0)
    s / s.sum(0)
    s - s.max(0).values
    s[None] - s[None].mean(-1)
    torch.vmap(lambda r: r - r.mean())(x.t()).t()
    torch.gather(table, 1, ids[:, None].expand(-1, 8))
    torch.take_along_dim(table, ids[:, None], 1)
    torch.gather(table[None], 2, ids[None, :, None])
    F.multilabel_soft_margin_loss(t, (t > 0).float(), weight=torch.ones(8, 1, 8), reduction="none")
    x.t().set_(table.t())
    torch._foreach_add([x], 1)[0]
    torch._foreach_add_([x[:2]], 1)
    torch._foreach_zero_([t[0]])
""")


@pytest.mark.parametrize("code", G)
def test_g_others_are_right_or_refused(code):
    check("g", code)


# -- h. what only strict and explain tell

H = {
    "x[:, None] + pe[:x.size(0), None]": "add",
    "x + pe[: x.size(0)]": "add",
    "x * torch.arange(x.size(0))[:, None]": "mul",
    "x[:, None] * c": "mul",
}


@pytest.mark.parametrize("code", H)
def test_h_plain_rows_that_were_not_declared_are_told(code):
    x = tl.from_lengths(rows([4, 2, 5])[0], [[4, 2, 5]])
    with tl.strict(), pytest.raises(LoDError, match=H[code]):
        run(code, "x", x, None, beside())
    report = tl.explain(lambda: run(code, "x", x, None, beside()))
    assert H[code] in str(report) and "nothing left the structure" not in str(report)


def test_h_declared_rows_and_targets_of_losses_are_not_told():
    x = tl.from_lengths(rows([4, 2, 5])[0], [[4, 2, 5]])
    with tl.strict():
        x + x.with_values(NAMES["pe"][:11])
        x * tl.per_sequence(beside()["c"])
        F.mse_loss(x, NAMES["pe"][:11])


# -- what must stay right

RIGHT = lines("""
    t @ W5
    t * W5[:, :1, :]
    torch.einsum("...nd,hde->...hne", t, W3)
    t @ W3
    t * HEADS[:, None]
    torch.stack([x, x, x]) + STACK
    t + b
    t @ w + b
    fc8(t).relu()
    t * torch.tensor(2.0)
    t / 3
    t[..., None, :] * c
""")


@pytest.mark.parametrize("layout", ["x", "x[None]"])
@pytest.mark.parametrize("code", RIGHT)
def test_sizes_are_no_evidence(code, layout):
    """Weights, heads, experts and stacks with as many entries as there are sequences."""
    for lod in LODS:
        values, ids = rows(LODS[lod][-1])
        x = tl.from_lengths(values, LODS[lod])
        result, dense = (run(code, layout, t, ids, beside()) for t in (x, values))
        assert rows_of(result) is not None and torch.allclose(plain(result), dense, atol=1e-5)


def test_new_structures_are_declared():
    values, _ = rows([4, 2, 5])
    x, index = tl.from_lengths(values, [[4, 2, 5]]), torch.randperm(11)
    for made in (
        tl.from_lengths(x[index], [[6, 5]]),
        tl.from_lengths(x[index], [[4, 2, 5]]),
        tl.LoDTensor(x[index], tl.LoD.from_lengths([[11]])),
        x.with_values(x[index].values()),
        tl.from_tensors([x[index][:3], x[index][3:]]),
    ):
        assert type(made) is LoDTensor


# -- compiled

COMPILED = [*A[:4], *C[:3], *C[22:24], *D[:2], "t * 2", "t @ w", "t - t.mean(1, keepdim=True)"]


@pytest.mark.parametrize("code", COMPILED)
def test_compiled(code):
    """What is refused is refused, and what is right is."""
    torch._dynamo.reset()
    values, _ = rows([4, 2, 5])
    eager = outcome("c" if code in C else "d" if code in D or "mean" in code else "a", code, "x[None]", "one level")
    space = {**NAMES, **beside()}
    body = f"    return {code}" if " = " not in code and "_()" not in code else f"    {code}\n    return t"
    exec(f"def program(x):\n    t = x[None]\n{body}\n", space)
    compiled = torch.compile(space["program"], backend="eager")
    x = tl.from_lengths(values.clone(), [[4, 2, 5]])
    if eager == "right":
        assert (
            compared(compiled(x), [space["program"](r.clone()) for r in values.split([4, 2, 5])], [4, 2, 5]) == "right"
        )
    else:
        assert eager == "refused"
        with pytest.raises(Exception, match=r"expected|lost"):
            compiled(x)
