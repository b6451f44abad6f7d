# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/events.md and docs/graphs.md, taken from these pages, beside plain loops."""

import functools
import re

import pytest
import torch
from settings import ROOT
from torch.nn import functional as F

import torch_lod as tl


def block(page: str, word: str, end: str | None = None) -> dict:
    """What the Python block of a page that has this word defines; without what follows the line that begins with `end`."""
    code = next(b for b in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S) if word in b)
    code = code if end is None else code[: code.index(f"\n{end}")]
    space: dict = {}
    exec(compile(code, page, "exec"), space)
    return space


# -- graphs


def graphs(dtype):
    """Three graphs, one without edges and one without nodes, with a loop, a double edge and nodes without neighbours."""
    adjacency = [[[1, 2], [0, 0], [], [3]], [], [[], []]]
    near = tl.lod_tensor(adjacency, depth=2, dtype=torch.int64)
    rows = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=dtype).requires_grad_()
    return adjacency, near, tl.LoDTensor(rows, near.lod.outer(1)), rows


def mean_layer(layer, h, matrix):
    """GraphSAGE: of every node the mean of its neighbours, over a dense matrix of counts."""
    out = []
    for i in range(len(h)):
        total = sum((matrix[i, j] * h[j] for j in range(len(h))), 0 * h[i])
        out.append(layer.own(h[i]) + layer.beside(total / max(1, matrix[i].sum())))
    return out


def attention_layer(layer, h, matrix):
    """GAT: of every node a softmax over its neighbours, each as often as it has edges."""
    v = [layer.value(row) for row in h]
    out = []
    for i in range(len(h)):
        some = [j for j in range(len(h)) for _ in range(int(matrix[i, j]))]
        if not some:
            out.append(torch.zeros_like(v[i]))
            continue
        scores = torch.cat([layer.source(v[j]) + layer.target(v[i]) for j in some])
        weight = F.leaky_relu(scores, 0.2).softmax(0)
        out.append(sum(w * v[j] for w, j in zip(weight, some)))
    return out


@functools.cache
def layers():
    return block("docs/graphs.md", "class Mean", "def adjacency")


@pytest.mark.parametrize(("name", "dense"), [("Mean", mean_layer), ("Attention", attention_layer)])
def test_message_passing_is_that_of_dense_adjacency_matrices(name, dense):
    torch.manual_seed(0)
    layer = layers()[name](3, 4).double()
    adjacency, near, nodes, rows = graphs(torch.float64)
    got = layer(nodes, near)
    assert got.lod == nodes.lod
    expected = []
    for graph, h in zip(adjacency, nodes.sequences()):
        matrix = torch.zeros(len(h), len(h))
        for i, some in enumerate(graph):
            for j in some:
                matrix[i, j] += 1
        expected += dense(layer, h, matrix)
    torch.testing.assert_close(got.values(), torch.stack(expected))
    leaves = [rows, *layer.parameters()]
    ours = torch.autograd.grad(got.square().sum(), leaves)
    theirs = torch.autograd.grad(torch.stack(expected).square().sum(), leaves)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)


def test_edges_by_target_are_a_loop_over_edges():
    space = block("docs/graphs.md", "# source, target")
    x, edges, weight = space["x"], space["edges"], space["weight"]
    expected = torch.zeros(5)
    for graph in range(2):
        begin = int(x.row_offsets()[graph])
        for (source, target), w in zip(edges.seq[graph].tolist(), weight.seq[graph]):
            expected[begin + target] += w * x.values()[begin + source]
    torch.testing.assert_close(tl.sequence_pool(space["message"], "sum").values(), expected)
    ends = tl.sequence_gather(x, edges)
    assert ends.shape == (4, 2) and ends[3].tolist() == [8, 16]


# -- series


@functools.cache
def series():
    return block("docs/events.md", "sensor = torch.arange")


def test_series_begin_at_another_sensor_and_behind_gaps():
    space = series()
    second, sensor = space["second"].tolist(), space["sensor"].tolist()
    tree: list = []
    for i in range(len(second)):
        if i == 0 or sensor[i] != sensor[i - 1]:
            tree.append([])
        if not tree[-1] or second[i] - second[i - 1] > 60:
            tree[-1].append([])
        tree[-1][-1].append(second[i])
    assert space["t"].to_list() == tree


def test_moving_pools_are_loops_over_windows():
    space = series()
    smooth, highest = [], []
    for t, x in zip(space["t"].sequences("series"), space["x"].sequences("series")):
        for i in range(len(x)):
            smooth.append(x[max(0, i - 4) : i + 1].mean())
            highest.append(x[(t > t[i] - 60) & (t <= t[i])].max())
    torch.testing.assert_close(space["smooth"].values(), torch.stack(smooth))
    torch.testing.assert_close(space["highest"].values(), torch.stack(highest))


def test_an_even_grid_is_interpolated_within_each_series():
    space = series()
    even = []
    for t, x in zip(space["t"].sequences("series"), space["x"].sequences("series")):
        for j in range(int((t[-1] - t[0]) // 10) + 1):
            now = t[0] + 10 * j
            a = int((t <= now).sum()) - 1
            b = min(a + 1, len(t) - 1)
            share = (now - t[a]) / (t[b] - t[a]) if b > a else 0
            even.append(x[a] + share * (x[b] - x[a]))
    torch.testing.assert_close(space["even"].values(), torch.stack(even).float(), rtol=1e-5, atol=1e-5)
