# SPDX-License-Identifier: Apache-2.0
"""`tl.strict` raises where rows leave their structure, `tl.explain` says in which lines of a model they do."""

import importlib.util
import math
import operator
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from test_marks import RAISES, RIGHT, ROWS, batch, seeded
from torch import nn

import torch_lod as tl
from torch_lod import LoDError, LoDTensor
from torch_lod.errors import LoDValueError

POSITIONS = torch.randn(11, 8)
NAMES = {"torch": torch, "F": F, "nn": nn, "tl": tl, "table": POSITIONS, "ROWS": ROWS, "math": math}
NAMES |= {"operator": operator, "zero": lambda: torch.zeros(())}


def run(code: str, x):
    return eval(code, NAMES, {"x": x})


@pytest.mark.filterwarnings("ignore")
def test_what_is_right_is_right_when_strict():
    for code in [code for line in RIGHT.strip().splitlines() for code in line.split(" | ")]:
        code = code.replace("len(x)", "x.shape[0]")
        want = seeded(code, batch())
        with tl.strict():
            found = seeded(code, batch())
        assert type(found) is LoDTensor and found.lod == want.lod, code
        assert torch.equal(found.values(), want.values()), code
        report = tl.explain(seeded, code, batch())
        assert not report and torch.equal(report.result, want), code


@pytest.mark.filterwarnings("ignore")
def test_every_family_raises_when_strict():
    for code in RAISES:
        with tl.strict(), pytest.raises(LoDError):
            seeded(code, batch())
        report = tl.explain(seeded, code, batch())
        assert report and isinstance(report.error, LoDError), code


#: What no mark sees, and what leaves the structure without meeting rows again: words of the error.
ONLY_STRICT = {
    "x.mean(0)": "mean: expected a result that keeps the structure of rows (11, 8), got one of shape (8,)",
    "x[torch.randperm(11)]": "getitem: expected a result that keeps",
    "x.max(0)": "max: expected a result that keeps",
    "x.view(-1)": "a view per sequence: x.to_padded(); tl.map_sequences runs code for padded batches",
    "x[2:5].sum(0)": "to pool sequences: tl.sequence_pool",
    "torch.unique(x)": "sequence by sequence: x.sequences()",
    "nn.Flatten(0)(x)": "flatten: expected",
    "x - x.mean()": "sub: expected what belongs to a sequence beside rows, got what mean made of all rows of the batch",
    "x / x.max().exp().sqrt()": "got what max made of all rows of the batch; a number for every sequence: tl.sequence_pool",
    "x.t() * (x.square().sum() + 1)": "what sum made of all rows",
    "F.linear(x, ROWS[:8] * x.std())": "linear: expected what belongs to a sequence beside rows, got what std made",
    "len(x)": "len: expected x.lod.rows, got len(x), 11 rows of all sequences",
    "x / len(x)": "x.lengths() has the length of every sequence",
    "x / x.shape[0]": "div: expected what belongs to a sequence beside rows, got what shape made of all rows of the batch",
    "x[None] / x.shape[0]": "x.lengths() has the length of every sequence",
    "x[None] / x[None].shape[1]": "x.lengths() has the length of every sequence",
    "x.t() / x.t().size(-1)": "x.lengths() has the length of every sequence",
    "x * x.size(dim=0) ** -0.5": "got what shape made",
    "x * (1 - 2 / x.size()[0])": "got what shape made",
    "x.clamp(max=x.shape[0] // 2)": "clamp: expected what belongs to a sequence",
    "x + table[torch.arange(x.shape[0])]": "add: expected what belongs to a sequence beside rows, got what arange made",
    "x + torch.linspace(0, 1, x.shape[0])[:, None]": "x.position_ids() the positions in them",
    "x + F.embedding(torch.arange(x.size(0)), table)": "got what arange made",
    "x / zero().add_(x.sum())": "div: expected what belongs to a sequence beside rows, got what sum made",
    "x - operator.iadd(zero(), x.sum())": "got what sum made",
    "x - zero().copy_(x.mean())": "got what mean made",
    "x - torch.fill_(zero(), x.mean())": "got what mean made",
    "x - torch.add(x.sum(), 1, out=zero())": "got what sum made",
    "x[:, None] + table[:, None][:x.size(0)]": "add: expected what belongs to a sequence beside rows, got what shape made",
    "x + table.narrow(0, 0, x.shape[0])": "add: expected what belongs to a sequence beside rows, got what shape made",
    "x + table[:11]": "add: expected rows, or what is the same for all of them, beside rows, got a plain tensor of shape (11, 8)",
    "x * torch.rand(88).view(x.shape)": "with an entry for each of 11 rows",
    "x[:, None] * table[:, None]": "x.with_values(t) declares that it has a row for each row of x",
    "torch.cat([x, table], -1)": "cat: expected rows, or what is the same for all of them",
    "torch.where(table > 0, x, 0.0)": "where: expected rows, or what is the same",
    "x.gather(1, (table > 0).long())": "gather: expected rows",
    "x.masked_fill(table[:, :1] > 0, 0.0)": "got a plain tensor of shape (11, 1)",
    "x - (operator.setitem(z := torch.zeros(2), 0, x.mean()), z[0])[1]": "got what mean made",
}
#: What is asked for by name, meets no rows, or belongs to a shape.
STRICT_TAKES = """
x.values().mean(0) | x - x.values().mean(0) | x.to_padded() | x.tolist() | x.numpy() | x.lod.rows | x.detach().cpu()
tl.sequence_pool(x, "mean") | x - tl.sequence_expand_as(tl.sequence_pool(x, "mean"), x) | tl.sequence_loss(x[:, 0])
x.mean() | x.sum() / x.shape[0] | (x - 1).square().mean() * 2 + x.abs().max() | F.mse_loss(x, x * 2) | x.sum().item()
torch.isnan(x).any() | bool((x > 0).all()) | x.shape | x.size() | x.dim() | x.view(x.shape[0], -1, 4) | x.view(*x.shape[:-1], 2, 4)
x.reshape(x.size(0), 2 * 4) | x[2:5] | x[3] | torch.cat([x[:5], x[5:]]) | list(x) | [row.sum() for row in x] | x.new_zeros(x.shape[0], 3)
torch.zeros(x.shape[0], 8) + 1 | x.t() | x[None] | x.seq[0] | torch.zeros_like(x) | torch.equal(x, x) | str(x) | repr(x.mean())
x + table[x.lod.position_ids()] | nn.BatchNorm1d(8)(x) | nn.LSTM(8, 8, batch_first=True)(x)[1][0] | F.cross_entropy(x, torch.arange(11) % 8)
F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=x.abs().mean()) | (x.clone() * 2).abs().max().sqrt()
x * nn.EmbeddingBag(9, 1)((x[:, 0] > 0).long()).sigmoid()[0] | list(torch.utils.data.SequentialSampler(x))
x * x.with_values(torch.rand(88).view(x.shape)) | F.max_pool1d(x.t(), x.shape[0] - 10) | x - tl.sequence_loss(x[:, 0]) | nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(x) | "%d rows" % x.shape[0]
x - zero().add_(x.sum()).zero_() | x - zero().add_(x.sum()).fill_(2.0) | x - zero().add_(x.sum()).copy_(torch.ones(()))
x - zero().add_(1) | x - zero().add_(x.values().sum()) | zero().add_(x.sum()) + 1 | zero().copy_(x.mean()).sqrt()
x * table[0] | x @ table[:8] | x + x.with_values(table) | x * x.lod.position_ids()[:, None] | F.mse_loss(x, table) | x + table[:1]
torch.cat([x, torch.zeros(x.shape[0], 3)], -1) | x * torch.ones(11, 1) | x + F.embedding(x.lod.position_ids() + 1, table) | x + table[:1].expand(11, 8)
x + torch.sin(x.lod.position_ids()[:, None] * table[0]) | x * (x.lod.position_ids() < 2)[:, None] | F.binary_cross_entropy_with_logits(x, table.sigmoid())
x / math.sqrt(x.shape[-1]) | x / x.shape[1] | x[:, : x.size(-1) // 2] | x.sum(1).mean() | x.data_ptr() | x.clone().add_(1)
"""


@pytest.mark.parametrize("code", ONLY_STRICT)
def test_strict_sees_what_no_mark_sees(code):
    run(code, batch())
    with tl.strict(), pytest.raises(LoDError) as caught:
        run(code, batch())
    assert ONLY_STRICT[code] in str(caught.value)
    report = tl.explain(lambda x: run(code, x), batch())
    assert report.error is None and ONLY_STRICT[code] in f"{report[0].call}: {report[0].what}; {report[0].advice}"
    assert report[0].file == "<string>" and report[0].line == 1


@pytest.mark.filterwarnings("ignore")
def test_strict_takes_what_is_asked_for():
    for code in [code for line in STRICT_TAKES.strip().splitlines() for code in line.split(" | ")]:
        x = batch()
        with tl.strict():
            run(code, x)
        report = tl.explain(lambda x, code=code: run(code, x), x)
        assert not report and report.error is None and str(report) == "nothing left the structure", code


def test_losses_are_trained_when_strict():
    layer = nn.Linear(8, 8)
    with tl.strict():
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(2):
            x = batch()
            loss = F.mse_loss(layer(x), x) + 0.1 * layer(x).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert type(loss) is torch.Tensor
        layer(x)


def test_contexts_nest_and_end():
    x = batch()

    @tl.strict()
    def decorated():
        return x.mean(0)

    for _ in range(2):
        with pytest.raises(LoDError):
            decorated()
    with tl.strict():
        with tl.strict(False):
            x.mean(0), len(x)
            with tl.strict(), pytest.raises(LoDError):
                x.mean(0)
        report = tl.explain(lambda: x.mean(0))
        assert len(report) == 1 and report.error is None
        inside = tl.explain(decorated)
        assert len(inside) == 1 and isinstance(inside.error, LoDError)
        with pytest.raises(ZeroDivisionError), tl.strict(False):
            raise ZeroDivisionError
        with pytest.raises(LoDError):
            x.mean(0)
    assert x.mean(0).rows_dim is None and len(x) == 11 and type(x.shape[0]) is int
    with pytest.raises(ZeroDivisionError), tl.strict():
        raise ZeroDivisionError
    x.mean(0)


def test_the_switch_and_other_modes():
    x = batch()
    try:
        with torch.device("cpu"):
            tl.strict.switch(True)
            tl.strict.switch(True)
        for _ in range(2):
            with pytest.raises(LoDError):
                x.mean(0)
            with tl.strict(False):
                x.mean(0)
            torch.set_default_device("cpu")
            torch.set_default_device(None)
            with torch.device("cpu"), pytest.raises(LoDError):
                x.mean(0)
        with tl.strict():
            tl.strict.switch(False)
            with pytest.raises(LoDError):
                x.mean(0)
            tl.strict.switch(True)
        with pytest.raises(LoDError):
            x.mean(0)
    finally:
        tl.strict.switch(False)
        tl.strict.switch(False)
    x.mean(0)
    assert not torch.overrides._get_current_function_mode_stack()
    for wrong in (lambda: tl.strict(1), lambda: tl.strict.switch("on")):
        with pytest.raises(LoDError, match="strict: expected mode as a bool, got"):
            wrong()


def test_threads_are_strict_by_themselves():
    x, found, inside, ready = batch(), [], threading.Event(), threading.Event()

    def other():
        inside.wait()
        found.append(tuple(x.mean(0).shape))
        for begin in (lambda: tl.strict.switch(True), tl.strict().__enter__):
            begin()
            try:
                x.mean(0)
            except LoDError as error:
                found.append(error)
        ready.set()

    thread = threading.Thread(target=other)
    thread.start()
    tl.strict.switch(True)
    try:
        inside.set()
        ready.wait()
        with pytest.raises(LoDError):
            x.mean(0)
    finally:
        tl.strict.switch(False)
    thread.join()
    assert found[0] == (8,) and [type(error) for error in found[1:]] == [LoDValueError] * 2
    x.mean(0)


MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Flatten(0))

    def forward(self, x):
        positions = torch.arange(x.shape[0])
        x = x + self.table(positions)
        for _ in range(3):
            center = x.mean(0)
        x = x + nn.functional.relu(
            x - x.max()
        )
        self.inner(x)
        count = len(x)
        loss = x.square().sum() / count
        batch, length, width = x.shape
        return x
"""


def test_explain_names_the_lines_of_the_file(tmp_path):
    path = tmp_path / "their_model.py"
    path.write_text(MODEL)
    spec = importlib.util.spec_from_file_location("their_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    report = tl.explain(module.Model(), batch())
    lines = MODEL.splitlines()
    words = ("x + self.table", "x.mean(0)", "x - x.max()", "self.inner(x)", "len(x)", "batch, length, width")
    wanted = [i for w in words for i, line in enumerate(lines, 1) if w in line]
    assert [entry.line for entry in report] == wanted and {entry.file for entry in report} == {str(path)}
    assert [entry.call for entry in report] == ["add", "mean", "sub", "flatten", "len", "ValueError"]
    assert [entry.source for entry in report] == [lines[i - 1].strip() for i in wanted]
    assert all(entry.what and entry.advice for entry in report) and len(report) == 6
    text = str(report)
    assert repr(report) == text and "their_model.py:15: center = x.mean(0)\n    mean: expected" in text
    assert "that lost it (3 times)\n    write: to pool sequences: tl.sequence_pool" in text
    assert (
        "ValueError: not enough values to unpack (expected 3, got 2)\n    write: a LoDTensor has the shape (rows,"
        in text
    )
    assert isinstance(report.error, ValueError) and report.result is None


def test_explain_reports_what_ends_the_run():
    x = batch()
    ours = tl.explain(lambda: x @ x.t())
    assert len(ours) == 1 and ours[0].call == "matmul" and ours[0].file == __file__
    assert "tl.sequence_attention" in ours[0].what + ours[0].advice
    theirs = tl.explain(lambda: x.permute(0, 2, 1))
    assert theirs[0].call == "RuntimeError" and theirs[0].advice and theirs[0].file == __file__
    assert isinstance(theirs.error, RuntimeError)
    inside = tl.explain(nn.Sequential(nn.Flatten(0), nn.Linear(7, 7)), x)  # no line but this one
    assert [entry.file for entry in inside] == [__file__] * 2 and inside[0].line == inside[1].line
    assert inside[0].source.startswith("inside = tl.explain(")
    fine = tl.explain(lambda a, *, b: a + b, x, b=x)
    assert torch.equal(fine.result, x + x) and not fine and list(fine) == []
    with pytest.raises(KeyboardInterrupt):
        tl.explain(interrupt)
    x.mean(0)


def interrupt():
    raise KeyboardInterrupt


def test_compiled_code_is_run_eagerly_or_raises():
    x = batch()

    @torch.compile(backend="eager", fullgraph=True)
    def step(x):
        return tl.sequence_pool(torch.relu(x), "sum").sum(0) + x.mean(0)

    with torch.compiler.set_stance("force_eager"):
        with tl.strict(), pytest.raises(LoDError, match="mean: expected a result that keeps the structure"):
            step(x)
        report = tl.explain(step, x)
    assert [entry.call for entry in report] == ["mean"] and report[0].source.startswith("return tl.sequence_pool")
    with tl.strict(), pytest.raises(Exception, match=r"expected eager code, got a function under torch\.compile"):
        step(x)


BY_CHANCE = {
    "ones": (lambda t, n: t * torch.ones(1, n, 1), "ones_like"),
    "types": (lambda t, n: t + F.embedding(torch.zeros(1, n, dtype=torch.long), torch.ones(2, 4)), "ones_like"),
    "a column": (lambda t, n: torch.cat([t, torch.ones(1, n, 1)], -1), "ones_like"),
    "a mask": (lambda t, n: t.masked_fill(torch.zeros(1, n, 1, dtype=torch.bool), 0), "ones_like"),
    "written": (lambda t, n: torch.ones(1, n, 4).mul_(t), "without the underscore"),
}


@pytest.mark.parametrize("name", BY_CHANCE)
def test_strict_warns_of_what_is_right_by_chance(name):
    function, said = BY_CHANCE[name]
    t = tl.from_lengths(torch.randn(6, 4), [[2, 1, 3]])[None]
    with tl.strict(), pytest.warns(UserWarning, match=said) as warned:
        function(t, 6)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(t, 6)
        with tl.strict():
            (
                t * torch.ones_like(t),
                t + torch.ones(1, 1, 4),
                t * torch.ones(1, 1, 1).expand(1, 6, 1),
                t[0] * torch.ones(6, 1),
            )
            F.mse_loss(t, torch.ones(1, 6, 4)), F.linear(t, torch.ones(6, 4)), t @ torch.ones(4, 6)
            torch.cat([t, torch.zeros_like(t[..., :1])], -1), t * torch.ones(4), torch.ones(1, 6, 4).mul(2)
