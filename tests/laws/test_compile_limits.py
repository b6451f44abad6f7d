# SPDX-License-Identifier: Apache-2.0
"""What torch.compile counts and cannot take: every operator has a code object of its own, so that Dynamo's limit is that of one
operator; and the calls of torch that a whole graph takes, or names."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl
from torch_lod.tensor.derived import DerivedTensor

torch.manual_seed(0)
X = tl.from_lengths(torch.randn(11, 8), [[2, 1], [4, 2, 5]])
ONE = X.drop_level(0)

#: More operators than Dynamo's limit, each compiled as it is: in a model each becomes a frame of its own where a graph broke.
OPERATORS = {
    "sequence_softmax": lambda f: f(X),
    "sequence_log_softmax": lambda f: f(X),
    "sequence_pool": lambda f: f(X, "mean"),
    "sequence_reverse": lambda f: f(X),
    "sequence_cumsum": lambda f: f(X),
    "sequence_expand_as": lambda f: f(tl.sequence_pool(X, "sum"), X),
    "sequence_shift": lambda f: f(X, 1),
    "sequence_normalize": lambda f: f(X),
    "sequence_argmax": lambda f: f(X),
    "sequence_cummax": lambda f: f(X),
    "sequence_slice": lambda f: f(X, [0, 0, 1], [1, 2, 1]),
}


def same(found, expected):
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for f, e in zip(found, expected):
            same(f, e)
        return
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert getattr(found, "_lod", None) == getattr(expected, "_lod", None)
        assert getattr(found, "_provenance", None) == getattr(expected, "_provenance", None)
        torch.testing.assert_close(found.as_subclass(torch.Tensor), expected.as_subclass(torch.Tensor))


def test_every_operator_has_a_code_object_of_its_own():
    torch._dynamo.reset()
    assert len(OPERATORS) > torch._dynamo.config.recompile_limit
    codes = {getattr(tl, name).__code__ for name in OPERATORS}
    assert len(codes) == len(OPERATORS)
    for name, call in OPERATORS.items():
        operator = getattr(tl, name)
        same(call(torch.compile(operator, backend="eager", fullgraph=True)), call(operator))


ROW_BY_ROW = (
    tl.sequence_softmax,
    tl.sequence_log_softmax,
    tl.sequence_reverse,
    tl.sequence_cumsum,
    tl.sequence_normalize,
)
ROW_BY_ROW += (tl.sequence_cummax, tl.sequence_cummin, tl.sequence_logcumsumexp, tl.sequence_cumprod)


def one_frame_each(h):
    """A graph that breaks in a loop: Dynamo leaves the function alone and compiles every operator that it calls."""
    found = []
    for operator in ROW_BY_ROW:
        found.append(operator(h))
        torch._dynamo.graph_break()
    return [found[5][0], found[6][0], *[f for f in found if not isinstance(f, tuple)]]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.recur, self.drop = nn.GRU(8, 8), nn.Dropout(0.5)

    def forward(self, x):
        return one_frame_each(self.drop(self.recur(x)[0]))


def test_two_models_in_train_and_eval():
    torch._dynamo.reset()
    assert len(ROW_BY_ROW) > torch._dynamo.config.recompile_limit
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for model in (Model(), Model()):
            compiled = torch.compile(model, backend="eager")
            for training in (True, False):
                model.train(training)
                compiled.train(training)
                torch.manual_seed(3)
                expected = model(X)
                torch.manual_seed(3)
                same(compiled(X), expected)
    whole = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    for _ in range(2):
        model = copy.deepcopy(whole)
        same(
            torch.compile(lambda x, m=model: tl.sequence_softmax(m(x)), backend="eager", fullgraph=True)(X),
            tl.sequence_softmax(model(X)),
        )


def assigned(x):
    v, w = x.clone(), torch.zeros_like(x)
    v[:], w[..., :4] = x * 2, x[..., 4:]
    return v, w


def written(x):
    (x[..., 1:] if x.shape[-1] == 8 else x[1:]).add_(1)


#: Of X, and of its rows at other dims.
WHOLE = {
    "unflatten": lambda x: x.unflatten(-1, (2, 2, -1)),
    "split": lambda x: x.split(4, -1),
    "split by keyword": lambda x: x.split([3, 5], dim=-1),
    "norm": lambda x: x.norm(dim=-1),
    "unique": lambda x: (x > 0).unique(),
    "assigned": assigned,
    "mT": lambda x: x.mT,
    "T": lambda x: x.T,
    "H": lambda x: x.H,
    "real": lambda x: x.real,
    "data": lambda x: x.data,
    "written": written,
    "einsum": lambda x: torch.einsum("...d,de->...e", x, torch.eye(8)),
}
INPUTS = {"rows": X, "a batch of one": X[None], "transposed": X.t()}


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph(name):
    function = WHOLE[name]
    for where, x in INPUTS.items():
        if where == "transposed":
            turned = {
                "unflatten": lambda x: x.unflatten(0, (2, 2, -1)),
                "split": lambda x: x.split(4, 0),
                "mT": function,
                "written": function,
            }
            function = {**turned, "T": function, "H": function, "real": function, "data": function}.get(name)
        if function is None or (name in ("H", "T") and x.dim() != 2):
            continue
        torch._dynamo.reset()
        own, compiled = x.clone(), x.clone()
        expected = function(own)
        same(torch.compile(function, backend="aot_eager", fullgraph=True)(compiled), expected)
        same(compiled, own)


def test_rows_one_by_one():
    torch._dynamo.reset()
    rows = torch.compile(lambda x: list(x), backend="eager", fullgraph=True)(X)
    for use in (repr, lambda r: r + 1, torch.sum, lambda r: r.lod, lambda r: torch.stack([r, r]), lambda r: [*r]):
        with pytest.raises(tl.LoDError, match=r"list\(x\)"):
            use(rows[0])
    moved = torch.compile(lambda x: list(x), backend="eager", fullgraph=True)(X.t())
    assert type(moved[0]) is DerivedTensor
    with pytest.raises(tl.LoDError, match=r"list\(x\)"):
        moved[0] + 1
    same(torch.compile(lambda x: [r + 1 for r in x], backend="eager", fullgraph=True)(X)[2], X.values()[2] + 1)


def test_a_call_outside_of_graphs_is_named():
    torch._dynamo.reset()
    attention = nn.MultiheadAttention(8, 2)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="MultiheadAttention with need_weights=True"):
        torch.compile(attention, backend="eager", fullgraph=True)(ONE, ONE, ONE)
    same(torch.compile(attention, backend="eager")(ONE, ONE, ONE), attention(ONE, ONE, ONE))


def test_a_scan_stays_outside_of_graphs_and_makes_no_new_ones():
    cell, states = nn.GRUCell(8, 8), torch.zeros(2, 8)

    def model(x):
        return tl.sequence_pool(tl.scan(cell, x.tanh(), states)[0], "sum")

    torch._dynamo.reset()
    for module in (model, tl.nn.DynamicRNN(cell)):
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"scan, whose number of steps .* as tl.sequence_scan"):
            torch.compile(module, backend="eager", fullgraph=True)(ONE.seq[:2])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, graphs = torch.compile(model, backend="eager"), []
    for lengths in ([2, 3], [4, 5], [7, 2], [3, 12], [9, 9]):
        x = tl.from_lengths(torch.randn(sum(lengths), 8), [lengths])
        same(compiled(x), model(x))
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[-1] == graphs[1] <= 4


def test_map_sequences_stays_outside_of_graphs_and_makes_no_new_ones():
    part = nn.GRU(8, 8, batch_first=True)

    def model(x):
        return tl.sequence_pool(tl.map_sequences(lambda t: part(t)[0], x.tanh()), "sum")

    for module in (model, tl.nn.MapSequences(nn.Linear(8, 8))):
        torch._dynamo.reset()
        with pytest.raises(
            torch._dynamo.exc.Unsupported, match=r"map_sequences, whose number of calls .* fullgraph=True"
        ):
            torch.compile(module, backend="eager", fullgraph=True)(ONE.seq[:2])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, graphs = torch.compile(model, backend="eager"), []
    for lengths in ([2, 3], [4, 5], [7, 7], [3, 12], [9, 9]):
        x = tl.from_lengths(torch.randn(sum(lengths), 8), [lengths])
        same(compiled(x), model(x))
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[-1] == graphs[1] <= 4


#: What makes structure at an outer level: two answers to "is a graph made?" would not fit together.
OUTER = {
    "cat": lambda x: tl.cat([x, x.head(1, level=0)], along="within", level=0),
    "interleave": lambda x: tl.sequence_interleave([x, x.tail(1, level=0)], level=0),
    "a suffix of rows": lambda x: x.seq[:, :, -2:],
    "the first of each": lambda x: x.seq[:, :1],
    "one by one": lambda x: [rows + 1 for rows in x.sequences(0)],
    "padded and back": lambda x: tl.from_padded(*x.to_padded(level="all")),
    "rows that were chosen": lambda x: x.filter_rows(x[:, 0] > 0)[None].view(1, -1, 2, 4).transpose(1, 2).flatten(2),
}


@pytest.mark.parametrize("name", OUTER)
def test_sizes_in_a_graph_may_be_zero(name):
    torch._dynamo.reset()
    compiled = torch.compile(OUTER[name], backend="eager", fullgraph=True)
    batches = [[1, 2], [3, 1, 2]], [[1, 1], [0, 0]], [[2, 1], [2, 2, 1]], [[0], []]
    for lengths in batches[:3] if name in ("one by one", "padded and back") else batches:
        x = tl.from_lengths(torch.rand(sum(lengths[1]), 8), lengths)
        same(compiled(x), OUTER[name](x))


@pytest.mark.parametrize("name", ["cat", "interleave"])
def test_a_graph_may_end_anywhere(name):
    """Without fullgraph=True torch ends a graph where a number is read, and what is left runs as it is."""
    torch._dynamo.reset()
    same(torch.compile(OUTER[name], backend="eager")(X), OUTER[name](X))


def _pairs(x):
    i, j = tl.sequence_pairs(x, x)
    return tl.sequence_pool(tl.sequence_gather(x, i, absolute=True) * tl.sequence_gather(x, j, absolute=True), "sum")


@pytest.mark.parametrize(
    "function",
    [_pairs, lambda x: x.filter(x[:, 0] > 0), lambda x: tl.sequence_knn(x, x, 2)],
    ids=["pairs", "filter", "knn"],
)
def test_both_settings_of_dynamo_make_one_graph_without_fullgraph(function):
    """As docs/compile_and_export.md says."""
    graphs = []
    for both in (True, False):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        settings = dict.fromkeys(("capture_scalar_outputs", "capture_dynamic_output_shape_ops"), both)
        with torch._dynamo.config.patch(settings):
            same(torch.compile(function, backend="eager")(ONE), function(ONE))
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[0] == 1 < graphs[1]


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that is made."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(made):
            self.bytes = max(self.bytes, t.untyped_storage().nbytes() if isinstance(t, torch.Tensor) else 0)
        return made


#: What had, or may be tempted to have, another algorithm in a graph, of one long and many short sequences.
GROWTH = {
    "unique at an outer level": lambda x: tl.sequence_unique(x, level=0),
    "a recurrence": tl.nn.RNN(1, 1, device="cpu"),
    "a sort": lambda x: tl.sequence_sort(x[:, 0]),
}


@pytest.mark.parametrize("name", GROWTH)
def test_a_graph_grows_as_eager_code_does(name):
    counts = []

    def counting(graph, examples):
        def run(*inputs):
            with Largest() as largest:
                found = graph(*inputs)
            counts.append(largest.bytes)
            return found

        return run

    torch._dynamo.reset()
    compiled = torch.compile(GROWTH[name], backend=counting, fullgraph=True)
    for n in (100, 1000):
        with torch.no_grad():
            x = tl.from_lengths(torch.arange(2.0 * n)[:, None], [[n + 1], [n] + [1] * n])
            same(compiled(x), GROWTH[name](x))
    assert len(counts) == 2 and counts[1] < 15 * counts[0], counts


TWICE = tl.from_lengths(torch.randn(6, 1, 4), [[2, 1, 3]])
MESSAGES = {
    "a number": (lambda x: tl.sequence_quantile(x, 2.0), r"expected q in \[0, 1\], got 2.0"),
    "an option": (lambda x: tl.sequence_attention(x, x, x, softcap=-1.0), "expected softcap above 0 .* got -1.0"),
    "a mask": (lambda x: x.filter(torch.tensor([True, False])), r"expected mask with an entry for each .* got \(2,\)"),
    "a level": (lambda x: tl.sequence_pool(x, "sum", level=3), "expected level in .* got 3"),
    "a mode": (lambda x: tl.sequence_pool(x, "total"), "got 'total'"),
    "an index": (lambda x: x.seq[:, :, :, 0], "expected 1 to 2 indices"),
    "a table": (lambda x: x[None] + torch.rand(1, x.shape[0], 1, 4), "a plain tensor of shape .* lies along the rows"),
    "a shape": (lambda x: x.with_values(torch.zeros(3, 4)), "the 3 rows of values, got one of 6 rows"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_wrong_argument_is_named_in_a_graph(name):
    function, said = MESSAGES[name]
    torch._dynamo.reset()
    with pytest.raises(tl.LoDError, match=said):
        function(TWICE)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=rf"raised exception LoD\w*Error\(.*{said}"):
        torch.compile(function, backend="eager", fullgraph=True)(TWICE)
    with pytest.raises(tl.LoDError, match=said):
        torch.compile(function, backend="eager")(TWICE)


def test_modules_that_pad_positions_refuse_features():
    for module in (nn.ZeroPad1d(1), nn.Sequential(nn.ConstantPad1d((1, 0), 2.0))):
        torch._dynamo.reset()
        with pytest.raises(tl.LoDError, match="ConstantPad1d"):
            module(ONE)
        with pytest.raises(torch._dynamo.exc.Unsupported, match="pad the positions of every sequence"):
            torch.compile(module, backend="eager", fullgraph=True)(ONE)
    for x in (ONE, ONE[None]):
        same(torch.compile(lambda x: F.pad(x, (1, 1)), backend="eager", fullgraph=True)(x), F.pad(x, (1, 1)))


def test_a_grouped_convolution_with_strides_in_training():
    torch._dynamo.reset()
    conv = nn.Conv1d(8, 8, 3, stride=2, groups=4)
    other, x, y = copy.deepcopy(conv), ONE.clone().requires_grad_(), ONE.clone().requires_grad_()
    conv(x).square().sum().backward()
    torch.compile(other, fullgraph=True, backend="aot_eager_decomp_partition")(y).square().sum().backward()
    torch.testing.assert_close(y.grad, x.grad)
    torch.testing.assert_close(other.weight.grad, conv.weight.grad)


def test_einsum_reads_an_equation_once_and_still_asks_for_the_rows():
    w = torch.randn(8, 3)
    for x in (X, X[None], X):  # the letters are the same for other dims
        assert torch.einsum("...d,de->...e", x, w).lod is X.lod
    assert torch.einsum("nd,de->ne", X, w).lod is X.lod and torch.einsum("nd,de->en", X, torch.ones(8, 4)).rows_dim == 1
    assert type(torch.einsum("nd,nd->n", X, X)) is tl.LoDTensor
    other = tl.from_lengths(torch.randn(11, 8), [[11]])
    with pytest.raises(ValueError, match="einsum"):
        torch.einsum("nd,nd->n", X, other)
    with pytest.raises(tl.LoDError, match="einsum"):
        torch.einsum("nd,md->nm", X, X)
    with pytest.raises(RuntimeError, match="subscripts"):
        torch.einsum("n,de->ne", X.t(), w)
    assert F.linear(X, w.t()).lod is X.lod
