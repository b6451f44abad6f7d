# SPDX-License-Identifier: Apache-2.0
"""Models written by Plain.to_onnx, in onnxruntime, on other lengths than those of the example: `make formats`."""

import re
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_lod as tl
from torch_lod.ops.exported import IN_ONNX

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = (Path(__file__).parents[2] / "docs/serving.md").read_text()


class Module(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


#: By what they are, functions whose operators ONNX can say; all of them together have all of IN_ONNX.
SAID = {
    **{kind: tl.nn.SequencePool(kind) for kind in ("sum", "mean", "sqrt", "max", "min", "last", "first")},
    **{kind: tl.nn.SequencePool(kind) for kind in ("std", "logsumexp")},
    "both levels": lambda x: tl.sequence_pool(tl.sequence_pool(x, "max"), "mean"),
    "softmax": tl.sequence_softmax,
    "log_softmax": tl.sequence_log_softmax,
    "normalize": tl.sequence_normalize,
    "conv": nn.Conv1d(4, 3, 3, padding=1),
    "shift": lambda x: tl.sequence_shift(x, 1),
    "centred": lambda x: x - tl.sequence_expand_as(tl.sequence_pool(x, "mean"), x),
    "reverse": tl.sequence_reverse,
    "cumsum": tl.sequence_cumsum,
    "padded": lambda x: x.to_padded()[0],
    "attention pooling": tl.nn.AttentionPool(4),
}
LENGTHS = ([[2, 3], [2, 4, 3, 2, 5]], [[1, 2, 1], [2, 0, 4, 3]], [[0, 1, 3], [3, 0, 0, 0]], [[2], [1, 6]])


def rows(lengths):
    return tl.from_lengths(torch.randn(sum(lengths[-1]), 4, generator=torch.Generator().manual_seed(0)), lengths)


@pytest.mark.parametrize("name", SAID)
def test_onnxruntime_computes_the_same(name, tmp_path):
    plain = tl.nn.Plain(Module(SAID[name]), 2)
    plain.to_onnx(tmp_path / "model.onnx", rows(LENGTHS[0]))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for x in map(rows, LENGTHS):
        given = plain.tensors(x)
        found = session.run(None, {i.name: t.numpy() for i, t in zip(session.get_inputs(), given, strict=True)})
        expected = pytree.tree_leaves(plain(*given))
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            torch.testing.assert_close(torch.as_tensor(a), b, equal_nan=True)  # std of one row


def test_every_operator_of_the_list_is_tried():
    called = set()
    for function in SAID.values():
        for node in tl.nn.Plain(Module(function), 2).export(rows(LENGTHS[0])).graph.nodes:
            if getattr(node.target, "namespace", None) == "torch_lod":
                called.add(node.target._opname)
    assert called == set(IN_ONNX)


def test_the_page_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said = re.search(r'title="to_onnx.py"\n(.*?)```\n\n```text\n(.*?)```', PAGE, re.S).groups()
    torch.manual_seed(0)
    exec(compile(code, "to_onnx.py", "exec"), {})
    assert capsys.readouterr().out.endswith(said)
