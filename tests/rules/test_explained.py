# SPDX-License-Identifier: Apache-2.0
"""Torch's errors on rows of sequences: the class is torch's, its words come first, what is meant follows; and what the
message says to write comes out as for every sequence alone."""

import copy
import functools
import itertools
import pickle
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import rnn

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.functions import hints as explained
from torch_lod.tensor.derived import DerivedTensor

LENGTHS = [4, 2, 5]
torch.manual_seed(3)
ROWS, IDS, SHORT = torch.randn(11, 8), torch.arange(11) % 8, torch.randn(9, 8)
t, w, p = torch.randn(3, 8), torch.randn(8, 6), torch.randn(5, 8)
flag, target = torch.tensor([True, False, True]), torch.randint(0, 8, (3, 5))
padding = torch.arange(5) >= torch.tensor(LENGTHS)[:, None]
GRU, LSTM, CELL, LSTMCELL = nn.GRU(8, 4), nn.LSTM(8, 4, batch_first=True), nn.GRUCell(8, 4), nn.LSTMCell(8, 4)
OURS = tl.nn.LSTM(8, 4)
OURS.load_state_dict(LSTM.state_dict())
BOTH = nn.Transformer(8, 2, 1, 1, 16, 0.0).eval()
STATE = torch.randn(1, 3, 4)
CONV, LINEAR = nn.Conv1d(8, 6, 3, padding=1), nn.Linear(40, 2)
NAMES = {**globals(), **vars(rnn)}

#: A wrong line; words of the message; what it says to write, or the value of that; the same for one sequence alone: x are
#: then its rows, i is its number.
VIEW, HERE = "x.view(x.size(0), ", "dim 2 of (batch, length, ...) is dim 1 here"
LINES = [
    ("x.view(3, 5, -1)", VIEW + "-1)", "x.view(x.size(0), -1)", "x"),
    ("x.view(3, -1, 2, 4)", VIEW + "2, 4)", "x.view(x.size(0), 2, 4)", "x.view(-1, 2, 4)"),
    ("x.reshape(15, 8)", VIEW + "8)", "x.view(x.size(0), 8)", "x"),
    ("x.view(3, 5, 7)", VIEW + "...)", "x.view(x.size(0), 2, -1)", "x.view(-1, 2, 4)"),
    ("x.view(3, -1)", "x.to_padded()[0] a padded one", "x.to_padded()[0].view(3, -1)", "padded(x)[None].flatten(1)"),
    ("x.transpose(1, 2)", "without the batch dim it is transpose(0, 1)", "CONV(x.transpose(0, 1)).t()", "CONV(x.t()).t()"),
    ("x.transpose(1, 2)", "and of x.t() as well", "CONV(x.t()).t()", "CONV(x.t()).t()"),
    ("x.transpose(1, 2)", "x[None] is a batch of one", "CONV(x[None].transpose(1, 2)).transpose(1, 2)[0]", "CONV(x.t()).t()"),
    ("ids.transpose(0, 1)", "leave it out", "ids", "ids"),
    ("ids.transpose(-1, -2)", "a length; where (batch", "ids[None].transpose(-1, -2).transpose(0, 1)[0]", "ids"),
    ("x.swapaxes(0, 2)", HERE, "x.t().t()", "x"),
    ("x.permute(1, 2, 0)", "x[None] is a batch of one", "x[None].permute(1, 2, 0).permute(2, 0, 1)[0]", "x"),
    ("x.permute(0, 2, 1)", "x.permute(1, 0)", "CONV(x.permute(1, 0)).permute(1, 0)", "CONV(x.t()).t()"),
    ("x.view(-1, 2, 4).permute(0, 2, 1, 3)", "x.permute(1, 0, 2)", "attend(x.view(-1, 2, 4).permute(1, 0, 2))", "attended(x)"),
    ("x.permute(1, 0, 2)", "leave it out", "GRU(x)[0]", "GRU(x)[0]"),
    ("x.size(2)", "x.size(-1) has the features", "x[:, : x.size(-1)]", "x"),
    ("ids.size(1)", "x.lengths()", "ids.lengths()", "torch.tensor([len(x)])"),
    ("x.mean(2)", HERE, "x.mean(1)", "x.mean(1)"),
    ("x.mean(2)", 'tl.sequence_pool(x, "mean")', 'tl.sequence_pool(x, "mean")', "x.mean(0)[None]"),
    ("ids.sum(1)", 'tl.sequence_pool(x, "sum")', 'tl.sequence_pool(ids, "sum")', "ids.sum(0)[None]"),
    ("x.amax(2)", 'tl.sequence_pool(x, "max")', 'tl.sequence_pool(x, "max")', "x.amax(0)[None]"),
    ("x.median(2)", 'tl.sequence_pool(x, "median")', 'tl.sequence_pool(x, "median")', "x.median(0).values[None]"),
    ("x.quantile(0.5, 2)", "tl.sequence_quantile(x, q)", "tl.sequence_quantile(x, 0.5)", "x.quantile(0.5, 0)[None]"),
    ("x.gather(2, x.long())", "tl.sequence_gather(x, index)", "tl.sequence_gather(x, x.with_values(x.position_ids()))", "x"),
    ("F.softmax(x, 2)", "tl.sequence_softmax(x)", "tl.sequence_softmax(x)", "x.softmax(0)"),
    ("x.cumsum(2)", "tl.sequence_cumsum(x)", "tl.sequence_cumsum(x)", "x.cumsum(0)"),
    ("x.unbind(2)", "x.unbind_sequences()", "torch.cat(x.unbind_sequences())", "x"),
    ("torch.cat([x, x], dim=2)", "dim -1 if it is the last", "torch.cat([x, x], dim=-1)", "torch.cat([x, x], 1)"),
    ("x[:, :, 0]", "x[:, k] is feature k", "x[:, 0]", "x[:, 0]"),
    ("x[:, -1, :]", "the last rows of the sequences are x.nth(-1)", "x.nth(-1)", "x[-1:]"),
    ("ids[:, :2]", "the first k x.head(k)", "ids.head(2)", "ids[:2]"),
    ("x[1, :, 0]", "sequence i is x.seq[i]", "x.seq[1][:, 0]", "x[: (i == 1) * len(x), 0]"),
    ("ids[:, :-1]", "tl.sequence_slice(x, offset, length)", "tl.sequence_slice(ids, [0] * 3, ids.lengths() - 1)", "ids[:-1]"),
    ("x[flag]", "x.seq[mask] takes whole sequences", "x.seq[flag]", "x[: flag[i] * len(x)]"),
    ("x[ROWS[:9, 0] > 0]", "x.filter_rows(mask) rows", "x.filter_rows(x.values()[:, 0] > 0)", "x[x[:, 0] > 0]"),
    ("x[padding]", "no row is padding", "x", "x"),
    ("x.expand(3, 5, 8)", "tl.sequence_expand_as(y, x)", "tl.sequence_expand_as(t, x)", "t[i].expand(len(x), -1)"),
    ("torch.bmm(x, x)", "tl.sequence_attention(q, k, v)", "tl.sequence_attention(x, x, x)", "attended(x, 1)"),
    ("torch.bmm(x, w)", "with one matrix: x @ w", "x @ w", "x @ w"),
    ("torch.bmm(t[:, None], x)", "(x * tl.sequence_expand_as(t, x)).sum(-1)", "(x * tl.sequence_expand_as(t, x)).sum(-1)", "x @ t[i]"),
    ('torch.einsum("bd,bnd->bn", t, x)', "(x * tl.sequence_expand_as(t, x)).sum(-1)", "(x * tl.sequence_expand_as(t, x)).sum(-1)", "x @ t[i]"),
    ('torch.einsum("bnd,de->bne", x, w)', '"nd,de->ne"', 'torch.einsum("nd,de->ne", x, w)', "x @ w"),
    ('torch.einsum("bnd,bmd->bnm", x, x)', "tl.sequence_attention", "tl.sequence_attention(x, x, x)", "attended(x, 1)"),
    ("x @ x", "tl.sequence_attention", "tl.sequence_attention(x, x, x)", "attended(x, 1)"),
    ("torch.cat([x, t], -1)", "tl.sequence_expand_as(t, x)", "torch.cat([x, tl.sequence_expand_as(t, x)], -1)", "beside(x, i)"),
    ("torch.cat([x, t[:, None]], -1)", "tl.sequence_expand_as(t.squeeze(1), x)", "torch.cat([x, tl.sequence_expand_as(t[:, None].squeeze(1), x)], -1)", "beside(x, i)"),
    ("x.masked_fill(flag, 0)", "tl.sequence_expand_as(t, x)[:, None]", "x.masked_fill(tl.sequence_expand_as(flag, x)[:, None], 0)", "x * ~flag[i]"),
    ("torch.where(flag[:, None], x, torch.tensor(0.0))", "tl.sequence_expand_as(t, x)", "torch.where(tl.sequence_expand_as(flag[:, None], x), x, 0.0)", "x * flag[i]"),
    ("x + p", "t[x.position_ids()]", "x + p[x.position_ids()]", "x + p[: len(x)]"),
    ("x.masked_select(padding)", "leave it out", "x", "x"),
    ("F.cross_entropy(x, target)", "tl.from_padded(target, x.lod.lengths())", "cross(x, tl.from_padded(target, x.lod.lengths()))", "cross(x, target[i, : len(x)])"),
    ("F.cross_entropy(x.view(-1, 8), target.view(-1))", "for each of the 11 rows", "cross(x, tl.from_padded(target, x.lod.lengths()).values())", "cross(x, target[i, : len(x)])"),
    ("F.nll_loss(x, target[:, 0])", "pool the rows before", 'cross(tl.sequence_pool(x, "mean"), target[:, 0])', "cross(x.mean(0)[None], target[i, :1])"),
    ("LINEAR(x)", "x.to_padded(max_length=5)[0].flatten(1)", "LINEAR(x.to_padded(max_length=5)[0].flatten(1))", "LINEAR(padded(x).flatten()[None])"),
    ("x @ w.t()", "the matrix takes 6", "x @ w", "x @ w"),
    ("CELL(x, STATE[0])", "tl.scan(cell, x, state)", "tl.scan(CELL, x, STATE[0])[0]", "steps(x, i)"),
    ("CELL(x[:, 0], STATE[0, 0])", "tl.scan(cell, x, state)", "tl.scan(CELL, x, STATE[0])[0]", "steps(x, i)"),
    ("F.pad(x, (0, 0, 0, 0, 1, 2))", "F.pad(x.t(), (before, after)).t()", "F.pad(x.t(), (1, 2)).t()", "F.pad(x, (0, 0, 1, 2))"),
    ("x.split(LENGTHS, 1)", "x.unbind_sequences()", "torch.cat(x.unbind_sequences())", "x"),
    ("x.index_add(0, torch.tensor([0]), t)", "x.to_padded()[0] a padded one", "x.to_padded()[0].flatten(0, 1)", "padded(x)"),
]  # fmt: skip
#: Refused by us, or asked of an attribute.
NAMED = [
    ("x / x.norm(dim=1)", "y.unsqueeze(1), or keepdim=True", "x / x.norm(dim=1, keepdim=True)", "F.normalize(x, dim=1)"),
    ("LSTMCELL(x[:, None], (STATE[0], STATE[0]))", "tl.scan(cell, x, state)", "tl.scan(LSTMCELL, x, (STATE[0], STATE[0]))[1][0]", "lstm_steps(x, i)"),
    ("GRU(x, STATE[:, :2])", "leave the initial state out", "GRU(x)[0]", "GRU(x)[0]"),
    ("LSTM(x, (STATE[:, :2], STATE))", "(1, 3, width) one for each sequence", "LSTM(x, (STATE, STATE))[0]", "LSTM(x, (STATE[:, i], STATE[:, i]))[0]"),
    ("LSTM(x, STATE)", "leave the initial state out", "LSTM(x)[0]", "LSTM(x)[0]"),
    ("LSTM(x[None], (STATE, STATE[:, :2]))", "leave the initial state out", "LSTM(x[None])[0][0]", "LSTM(x)[0]"),
    ("BOTH(x[None], y[None])", "give src and tgt as they are", "BOTH(x, y)", "BOTH(x, y)"),
    ("pack_padded_sequence(x, x.lod.lengths(), batch_first=True)", "x.to_packed_sequence()", "LSTM(x.to_packed_sequence())[0].data.sum(0)[None]", None),
    ("pack_padded_sequence(x, LENGTHS, True, False)", "x.to_packed_sequence()", None, None),
    ("pack_padded_sequence(x[None], [len(x)], True, False)", "torch.nn's recurrent modules take a LoDTensor as it is", "LSTM(x)[0]", "LSTM(x)[0]"),
    ("pack_sequence(x)", "x.to_padded()", None, None),
    ("pad_sequence(x)", "x.to_padded()", "x.to_padded()[0].flatten(0, 1)", "padded(x)"),
    ("pad_sequence([x, x])", "tl.batch", "tl.batch([x, x]).seq[0]", "x"),
    ("pad_packed_sequence(x, batch_first=True)", "x.to_padded()", "x.to_padded()[0].flatten(0, 1)", "padded(x)"),
    ("x + p[None]", "t[0][x.position_ids()]", "x + p[x.position_ids()]", "x + p[: len(x)]"),
    ("x * padding[..., None]", "leave it out", "x", "x"),
    ("ids.masked_fill(padding, 0)", "leave it out", "ids", "ids"),
    ("x[:, :1] + target", "tl.from_padded(t, x.lod.lengths())", "x[:, 0] + tl.from_padded(target, x.lod.lengths())", "x[:, 0] + target[i, : len(x)]"),
]  # fmt: skip


def padded(x):
    return F.pad(x, (0, 0, 0, 5 - len(x)))


def attended(x, heads=2):
    q = x.view(len(x), heads, -1).transpose(0, 1)
    return F.scaled_dot_product_attention(q, q, q).transpose(0, 1).reshape(x.shape)


def attend(q):
    return F.scaled_dot_product_attention(q, q, q).permute(1, 0, 2).flatten(1)


def beside(x, i):
    return torch.cat([x, t[i].expand(len(x), -1)], -1)


def cross(x, target):
    return F.cross_entropy(x, target, reduction="none")


def steps(x, i):
    state, found = STATE[0, i], []
    for row in x:
        state = CELL(row, state)
        found.append(state)
    return torch.stack(found)


def lstm_steps(x, i):
    state = STATE[0, i], STATE[0, i]
    for row in x:
        state = LSTMCELL(row, state)
    return state[0][None]


def run(line, x, ids, y, i=None):
    return eval(line, {**NAMES, **globals()}, {"x": x, "ids": ids, "y": y, "i": i})


def batch():
    x = tl.from_lengths(ROWS.clone(), [LENGTHS], level_names=["line"])
    return x, x.with_values(IDS), tl.from_lengths(SHORT, [[3, 2, 4]], level_names=["line"])


def plainly(line):
    """The error that a plain tensor of rows gives, None if it gives none."""
    try:
        run(line, ROWS.clone(), IDS, SHORT)
    except Exception as error:
        return error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("wrong", "words", "right", "alone"), LINES + NAMED)
def test_what_the_message_says_to_write_is_right(wrong, words, right, alone):
    with pytest.raises((*explained.TORCHS, AttributeError)) as caught:
        run(wrong, *batch())
    assert words in str(caught.value)
    if (wrong, words, right, alone) in LINES:
        torchs = plainly(wrong)
        assert type(caught.value) is type(torchs) and str(caught.value).startswith(f"{torchs}\nHere x is a ")
        assert str(caught.value).count("Here x is a ") == 1
    if alone is None:
        return
    found = run(right, *batch())
    parts = zip(ROWS.split(LENGTHS), IDS.split(LENGTHS), SHORT.split([3, 2, 4]), itertools.count())
    expected = torch.cat([run(alone, *part) for part in parts])
    torch.testing.assert_close(
        found.values() if type(found) is not torch.Tensor else found, expected, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("row", explained.ADVICE, ids=lambda row: f"{row[0].partition(' ')[0]} {row[1][:25]}")
def test_every_row_of_the_table_is_asked(row, monkeypatch):
    at = explained.ADVICE.index(row)
    asked = []
    rows = [*explained.ADVICE[:at], (*row[:2], lambda case: asked.append(case)), *explained.ADVICE[at + 1 :]]
    monkeypatch.setattr(explained, "ADVICE", rows)
    if "unpack" in row[1]:  # raised where no function of torch runs
        explained.explanation(ValueError("not enough values to unpack (expected 3, got 2)"), batch())
    for wrong, *_ in LINES + NAMED:
        with pytest.raises(Exception):  # noqa: B017
            run(wrong, *batch())
        if asked:
            return
    assert asked


def test_an_error_is_torchs_and_ends_at_the_users_line():
    x = batch()[0]
    with pytest.raises(RuntimeError) as caught:
        x.view(3, 5, -1)
    error = caught.value
    assert error.__cause__ is None and error.__context__ is None and str(error) == error.args[0]
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.copy(error)) == str(error)
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[0].line == "x.view(3, 5, -1)" and {f.name for f in frames[1:]} <= {"__torch_function__", "_run"}
    assert str(error).count("Here x is") == 1


def test_rows_that_are_no_lod_tensor_are_named_as_what_they_are():
    x = batch()[0]
    for make, words in (
        (
            lambda: x.t().mean(2),
            "DerivedTensor of shape (8, 11): dim 1 has the rows of 3 sequences of a LoDTensor, one after",
        ),
        (lambda: x[None].transpose(2, 3), "through getitem, and no dim is a batch or a length; where (batch"),
        (lambda: x[2:5].mean(2), "dim 0 has rows 2 to 5 of the rows of 3 sequences of a LoDTensor"),
        (lambda: x.mean(0).view(3, 5), "is what a LoDTensor became in mean, which lost the structure of its rows"),
        (lambda: tl.from_lengths(ROWS, [[2, 1], LENGTHS]).mean(2), "dim 0 has the rows of 3 sequences, one after"),
        (lambda: F.nll_loss(tl.from_lengths(ROWS, [[2, 1], LENGTHS]), target), "x.lod.lengths()).with_lod(x.lod)"),
    ):
        with pytest.raises((RuntimeError, IndexError, ValueError)) as caught:
            make()
        assert words in str(caught.value) and not isinstance(caught.value, LoDError)


def same(error, call):
    """Whether a call raises an error as it was raised."""
    said = error and str(error)
    with pytest.raises(BaseException) as caught:
        call()
    return "Here x is" not in str(caught.value) and (error is None or (caught.value is error and str(error) == said))


def raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


SHAPES = "shape '[3, 5, -1]' is invalid for input of size 88"


class Own(RuntimeError):
    pass


OTHERS = [
    *(cls(SHAPES) for cls in (KeyboardInterrupt, NotImplementedError, Own, LoDError, MemoryError, AttributeError)),
    *(cls(SHAPES) for cls in (torch.OutOfMemoryError, torch.linalg.LinAlgError, StopIteration)),
    RuntimeError("CUDA error: an illegal memory access, size 3"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: a tensor of size 8"),
    RuntimeError(SHAPES, 3),
    TypeError("view() received an invalid combination of arguments, expected (int dim)"),
]


def torchs_own(error):
    """A function of torch that raises."""
    space = {}
    exec(compile("def fail(*args):\n    raise error", torch.__file__, "exec"), {"error": error}, space)
    return space["fail"]


def test_other_errors_pass_as_they_are(monkeypatch):
    x = batch()[0]
    hooked, leaf = nn.GRU(8, 4), x.values().clone().requires_grad_()
    rows, loss = tl.LoDTensor(leaf, x.lod), F.triplet_margin_with_distance_loss
    for error in (RuntimeError(SHAPES), ValueError(SHAPES)):  # the user's own
        assert same(error, lambda error=error: loss(x, x, x, distance_function=raising(error)))
        hooked._forward_hooks.clear()
        hooked.register_forward_hook(raising(error))
        assert same(error, lambda: hooked(x))
        doubled = rows * 2
        doubled.register_hook(raising(error))
        assert same(error, functools.partial(doubled.backward, torch.ones(11, 8)))
    for cls, operand in ((LoDTensor, x), (DerivedTensor, x.t())):
        for error in OTHERS:
            assert same(error, functools.partial(cls.__torch_function__, torchs_own(error), (cls,), (operand,)))
        for kind in explained.TORCHS[:3]:
            error = kind(SHAPES)
            assert not same(error, functools.partial(cls.__torch_function__, torchs_own(error), (cls,), (operand,)))
    for line in (
        "bool(x)", "x.item()", "nn.Embedding(5, 4)(ids)", "nn.Embedding(9, 4)(x)", "x.to('cuda')", "x.sum().backward()", "x @ w.long()",
        "x.expand(2**40, 11, 8).contiguous()", "x.view(dtype='a')", "torch.linalg.inv(x.new_zeros(8, 8))", "x + 'a'",
    ):  # fmt: skip
        assert same(None, lambda line=line: run(line, *batch())), line
    assert same(None, lambda: ROWS.view(3, 5, -1)) and same(None, lambda: GRU(ROWS, STATE))
    assert not hasattr(x, "batch_sizes")


def test_errors_of_tracing_pass_as_they_are(monkeypatch):
    x = batch()[0]
    assert same(None, lambda: torch.compile(lambda x: x.view(3, 5, -1), backend="eager", fullgraph=True)(x))
    assert not same(None, lambda: x.view(3, 5, -1))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # as torch.export has it
    assert same(None, lambda: x.view(3, 5, -1))


def test_a_boundary_has_the_meaning_of_errors_that_python_raises():
    x = batch()[0]
    with pytest.raises(IndexError) as caught:
        x.shape[2]
    assert "leave batch and length out" in explained.explanation(caught.value, (x,))
    with pytest.raises(ValueError) as caught:
        _b, _n, _d = x.shape
    assert "x.num_sequences()" in explained.explanation(caught.value, [ROWS, x])
    assert explained.explanation(caught.value, (ROWS,)) is None
    assert explained.explanation(caught.value, (x,), ["tensordot"]) is None  # it unpacked something else
    assert explained.explanation(KeyError(2), (x,)) is None
    assert "a batch of one" in explained.explanation(
        ValueError("There must be 3 dimensions for (length, batch_size)"), (x,)
    )
