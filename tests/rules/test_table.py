# SPDX-License-Identifier: Apache-2.0
"""The table of torch's functions: one row for each, in whatever order families are imported, and no copy of what is in it."""

import ast
import operator
import subprocess
import sys
from pathlib import Path

import pytest
import rule_samples
import torch
import torch.nn.functional as F
from recipe import edits
from test_rules import verdicts
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

import torch_lod as tl
from torch_lod.functions import elementwise
from torch_lod.functions.row import enter
from torch_lod.tensor.table import ROWS, UNSEEN, Row

PACKAGE = Path(__file__).parents[2] / "torch_lod"


def test_a_function_has_one_row():
    before = ROWS[torch.relu]
    with pytest.raises(ValueError, match="expected one row for each function, got a second one for relu"):
        enter("keep", None, "relu", (torch,))
    assert ROWS[torch.relu] is before and not ROWS.keys() & UNSEEN.keys()


def test_operators_of_python_have_the_rows_of_the_methods():
    names = [n for n in vars(operator) if n[:2] == "__" and getattr(Tensor, n, None) in ROWS]
    shared = [n for n in names if ROWS[getattr(Tensor, n)].rule is not None]
    assert {"__add__", "__imul__", "__iand__", "__getitem__", "__setitem__", "__matmul__", "__eq__"} <= {*shared}
    assert all(ROWS[getattr(operator, n)] is ROWS[getattr(Tensor, n)] for n in shared)


def _run_on_import(node: ast.AST):
    """The nodes of a module that run when it is imported."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield child
            yield from _run_on_import(child)


def test_nothing_reads_the_table_before_it_is_complete():
    """A set that is made of it when a module is imported misses the rows that are entered later."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in _run_on_import(ast.parse(path.read_text())):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            written = path.name == "table.py" and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            assert name not in ("NAMED", "ROWS", "UNSEEN", "WRAPPED") or written, f"{path}:{getattr(node, 'lineno', 0)}"


_OTHER_ORDER = """
import importlib, sys
import torch_lod
from torch_lod.tensor.table import NAMED, ROWS, UNSEEN, WRAPPED

FACTS = "rule run run_at_dim broadcasts sums product"

def facts():
    hints = {name: (row.instead, row.along, row.beside, row.of_masks) for name, row in NAMED.items()}
    return hints, {func for func, _ in WRAPPED}, {
        func: {name: value is not None if name in FACTS else value for name, value in vars(row).items()}
        for func, row in (*ROWS.items(), *UNSEEN.items())
    }

before, families = facts(), [name for name in sys.modules if name.startswith("torch_lod.functions.")]
for name in families:
    del sys.modules[name]
ROWS.clear()
UNSEEN.clear()
NAMED.clear()
WRAPPED.clear()
for name in sorted(families, reverse=True):
    importlib.import_module(name)
assert len(before[2]) > 1500 and facts() == before
"""


def test_the_order_of_imports_does_not_matter():
    subprocess.run([sys.executable, "-c", _OTHER_ORDER], check=True)


def gradient(x):
    x.requires_grad_().square().sum().backward()
    return x.grad


def strictly(call):
    def run(x):
        with tl.strict():
            return call(x)

    return run


#: Of every fact that a row has, a function, and a call that comes out otherwise without it.
FACTS = {
    "name": (Tensor.mean, lambda x: x - x.mean(0)),
    "kind": (Tensor.squeeze, lambda x: x[:1, 0].squeeze()),
    "rule": (torch.relu, torch.relu),
    "run": (F.instance_norm, F.instance_norm),
    "run_at_dim": (torch.cumsum, lambda x: torch.cumsum(x.t(), 1)),
    "takes_lost": (torch.cumsum, lambda x: torch.cumsum(x.mean(0), 0)),
    "writes": (Tensor.copy_, lambda x: torch.zeros(4, 2).copy_(x)),
    "plain": (Tensor.grad.__get__, gradient),
    "shape_only": (Tensor.expand_as, lambda x: torch.ones(2).expand_as(x)),
    "broadcasts": (torch.mul, lambda x: torch.mul(x, tl.per_sequence(torch.ones(2, 2)))),
    "sums": (torch.addmm, lambda x: torch.addmm(x.sum(0, keepdim=True), x, torch.eye(2))),
    "product": (torch.matmul, lambda x: torch.matmul(x[None], tl.per_sequence(torch.ones(2, 2, 3)))),
    "instead": (Tensor.mean, lambda x: x - x.mean(0)),
    "along": (Tensor.mean, lambda x: x.mean(2)),
    "beside": (torch.cat, strictly(lambda x: torch.cat([x, torch.arange(8.0).view(4, 2)], -1))),
    "overwrites": (Tensor.zero_, strictly(lambda x: x - torch.zeros(()).add_(x.sum()).zero_())),
    "of_masks": (Tensor.__and__, lambda x: (x.mean(0) > 0) & (x > 0)),
}


@pytest.mark.parametrize("fact", sorted(vars(Row("")).keys() - {"known"}))  # of those that the table has, always
def test_nothing_in_a_row_is_said_in_vain(fact, monkeypatch):
    def outcome():
        try:
            result = call(tl.from_lengths(torch.arange(8.0).view(4, 2), [[3, 1]]))
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            return str(error)
        return type(result), result.shape, getattr(result, "_provenance", None) and result._provenance[1:]

    func, call = FACTS[fact]
    before = outcome()
    monkeypatch.setattr(ROWS[func], fact, getattr(Row(""), fact))
    assert outcome() != before


def halve(input, by=2):
    if has_torch_function_unary(input):
        return handle_torch_function(halve, (input,), input, by=by)
    return input / by


def test_a_function_that_a_new_torch_brings_by_the_recipe(monkeypatch):
    monkeypatch.setattr(torch, "halve", halve, raising=False)
    monkeypatch.setitem(rule_samples.names(), halve, "torch.halve")
    x = tl.from_lengths(torch.ones(3, 2), [[1, 2]])
    assert isinstance(halve(x), tl.DerivedTensor) and halve(x).rows_dim is None
    entry, sample = edits("A function that a new torch brings")
    before = dict(rule_samples._ONLY)
    try:
        exec(entry.text, vars(elementwise))
        exec(sample.text, vars(rule_samples))
        assert isinstance(halve(x), tl.LoDTensor) and verdicts.__wrapped__(halve).keys() == {"kept"}
    finally:
        ROWS.pop(halve, None)
        monkeypatch.setattr(rule_samples, "_ONLY", before)
