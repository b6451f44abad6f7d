# SPDX-License-Identifier: Apache-2.0
"""Models whose input is a LoDTensor, compiled whole: one graph for batches of any sizes, forward and backward, and checks
that hold. Operator by operator: test_matrix.py."""

import copy

import pytest
import torch
import torch._functorch.config as functorch_config
import torch.nn.functional as F
from samples.words import told

import torch_lod as tl
from torch_lod.errors import LoDTypeError

BACKENDS = ["eager", "aot_eager"]


class Nested(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.words = tl.nn.LSTM(8, 8)
        self.lines = tl.nn.GRU(8, 8, bidirectional=True)
        self.out = torch.nn.Linear(16, 2)

    def forward(self, x):
        words, _ = self.words(self.embed(x))
        lines, _ = self.lines(tl.sequence_pool(words, "last"))
        return self.out(tl.sequence_pool(torch.relu(lines), "max"))


class Pooling(torch.nn.Module):
    """Words weigh one another, lines are read forwards and backwards and know their place in the whole."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.score = torch.nn.Linear(8, 1)
        self.near = tl.nn.SequenceConv1d(8, 8, 3)
        self.out = torch.nn.Linear(24, 2)

    def forward(self, x):
        words = self.near(self.embed(x)).tanh_()
        lines = tl.sequence_pool(tl.sequence_softmax(self.score(words)) * words, "sum")
        backwards = tl.sequence_cumsum(tl.sequence_reverse(lines))
        whole = tl.sequence_expand_as(tl.sequence_pool(words, "mean", level=0), lines)
        turned = tl.sequence_pool(tl.sequence_reverse(words, level=0), "first", level=0)
        seen = tl.sequence_pool(torch.cat([lines, backwards, whole], 1), "max")
        return self.out(seen + torch.nn.functional.pad(turned, (0, 16)))


class Transformer(torch.nn.Module):
    """Words attend within their line, lines within their text."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.words = tl.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.lines = tl.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.out = torch.nn.Linear(8, 2)

    def forward(self, x):
        lines = tl.sequence_pool(self.words(self.embed(x)), "mean")
        return self.out(tl.sequence_pool(self.lines(lines), "first"))


MODELS = {"nested": Nested, "pooling": Pooling, "transformer": Transformer}


def batches(count):
    """No two alike, with empty lines and texts. Sizes of 0 and 1 are left out: torch.compile makes a graph of its own for
    each, once. So are fewer than 25 rows, for which inductor chooses another product on a CPU."""
    g = torch.Generator().manual_seed(0)
    for _ in range(count):
        lines = torch.randint(0, 5, (int(torch.randint(2, 8, (1,), generator=g)),), generator=g)
        lines[0] += 2
        words = torch.randint(0, 6, (int(lines.sum()),), generator=g)
        words[0] += 25
        yield tl.from_lengths(torch.randint(0, 50, (int(words.sum()),), generator=g), [lines, words])


def counted(model, backend):
    """The model compiled, and the graphs that were made so far."""
    graphs = []
    make = torch._dynamo.lookup_backend(backend)

    def counting(graph, inputs):
        graphs.append(graph)
        return make(graph, inputs)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(model, backend=counting, fullgraph=True), graphs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_one_graph_for_twenty_batches(name, backend):
    model = MODELS[name]()
    compiled, graphs = counted(model, backend)
    weights = list(model.parameters())
    for x in batches(20):
        expected, got = model(x), compiled(x)
        torch.testing.assert_close(got, expected)
        for a, b in zip(torch.autograd.grad(got.sum(), weights), torch.autograd.grad(expected.sum(), weights)):
            torch.testing.assert_close(a, b)
    if tl.ops.COMPILED:  # a composed scan is cut for its rows
        assert len(graphs) == 1
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.parametrize("name", MODELS)
@functorch_config.patch(enable_autograd_cache=False)  # the sizes that earlier runs met are guards of cached graphs
def test_training_under_inductor_equals_eager(name):
    model = MODELS[name]()
    other = copy.deepcopy(model)
    compiled, graphs = counted(other, "inductor")
    losses = []
    for each, run in ((model, model), (other, compiled)):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.5)
        losses.append([])
        for x in batches(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(run(x), torch.arange(x.num_sequences()) % 2)
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss.detach()))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    for a, b in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert losses[0][0] != losses[0][-1]
    assert len(graphs) == 1 or not tl.ops.COMPILED


# -- structure


X = tl.from_lengths(torch.arange(48.0).view(16, 3), [[2, 0, 3], [2, 4, 3, 2, 5]], level_names=["text", "line"])
ORDER = torch.tensor([2, 0, 1])
PLACES = tl.from_lengths(torch.zeros(5, dtype=torch.int64), [[2, 0, 3], [1, 0, 2, 1, 1]])
#: What the table of operators (test_matrix.py) does not call.
METHODS = {
    "to_padded": lambda x: x.to_padded(level=0, side="left"),
    "to_padded all": lambda x: x.to_padded(level="all"),
    "to_padded wide": lambda x: x.to_padded(level=0, max_length=20),
    "mask": lambda x: x.mask(level="text"),
    "head, tail, nth": lambda x: (x.head(2), x.tail(3), x.nth(-1)),
    "of sub-sequences": lambda x: (x.head(1, level=0), x.tail(2, level="text"), x.nth(-1, level=0), x.nth(1, level=0)),
    "filter": lambda x: (x.filter(x.lengths() > 2, level=0), x.filter(x[:, 0] > 4)),
    "seq per level": lambda x: (x.seq[:, :1], x.seq[1:, ::-1], x.seq[1:, :, 0:1], x.seq[:, x.lengths() > 2]),
    "seq ints at inner levels": lambda x: (
        x.seq[[0, 2]].seq[:, -1],
        x.seq[0, 1, 2],
        x.seq[::2, [0, -1]],
        x.seq[:, :, 0],
    ),
    "permute_sequences": lambda x: x.permute_sequences(ORDER),
    "filter_rows": lambda x: x.filter_rows(x.values()[:, 0] % 2 > 0),
    "slice": lambda x: (x.slice(0, 2), x.slice(1, 1, 4), x.branch(2, 0)),
    "seq": lambda x: (x.seq[2], x.seq[-1, 0], x.seq[1:], x.seq[::2], x.seq[[2, 0]], x.seq[ORDER > 0]),
    "levels": lambda x: (x.drop_level(0), x.drop_level("line"), x.flatten_levels(0, 1), x.group([2, 1])),
    "lod_append": lambda x: tl.sequence_pool(x, "sum").lod_append([1, 1, 1, 1, 1]),
    "lod_reset": lambda x: (x.lod_reset(ORDER + 5 - 2 * (ORDER == 2)), x.with_lod(x.lod)),
    "cat": lambda x: (tl.cat([x, x * 2]), torch.cat([x, x]), tl.cat([x, x], "within"), tl.cat([x, x], "features")),
    "from_lengths": lambda x: tl.from_lengths(x.values(), [ORDER * 0 + 8 * (ORDER > 0)]),
    "from_offsets": lambda x: tl.from_offsets(x.values(), [x.row_offsets(0)]),
    "from_padded": lambda x: (
        tl.from_padded(*x.to_padded()),
        tl.from_padded(x.to_padded(0, level=0)[0], mask=x.mask(0)),
        tl.from_padded(*x.to_padded(level="all")),
    ),
    "from_segment_ids": lambda x: tl.from_segment_ids(x.values(), x.lod.segment_ids()),
    "from_segment_ids in any order": lambda x: tl.from_segment_ids(x.values(), x.lod.segment_ids() * -1 + 4, sort=True),
    "from_boundaries": lambda x: tl.from_boundaries(x.values(), [x.lod.position_ids(0) == 0, x.values()[:, 0] % 2 > 0]),
    "spans": lambda x: (x.spans(PLACES, PLACES + 2), x.spans(PLACES.drop_level(1), PLACES.drop_level(1) * 0, level=0)),
    "questions": lambda x: (x.lengths(), x.offsets(0), x.cu_seqlens(), x.lod.segment_ids(0), x.lod.position_ids()),
    "sizes": lambda x: torch.ones(x.lod.rows, x.num_sequences(), x.max_length(0), x.max_length("line")),
    "filled": lambda x: (tl.zeros(x.lod, 2), torch.zeros_like(x), tl.full(x.lod, fill_value=2)),
    "in place": lambda x: ((x * 2).add_(x), torch.nn.functional.relu(x - 9, inplace=True), x.clone().mul_(3)),
    "assigned": lambda x: assigned(x * 2, x),
    "indexed": lambda x: (x[:, 0], x[..., :2], x[2:4], x[:, [0, 1]]),
    "reduced": lambda x: (x.sum(), x.sum(1), x.mean(0), *x.max(1)),
    "one by one": lambda x: [rows.sum(0) for rows in x.sequences(1)],
}


def assigned(y, x):
    y[:, 0] = 1.0
    y += x
    return y


@pytest.mark.parametrize("name", METHODS)
def test_methods_compile_whole(name):
    torch._dynamo.reset()
    function = METHODS[name]
    expected, got = (told(f(X)) for f in (function, torch.compile(function, backend="aot_eager", fullgraph=True)))
    assert len(got) == len(expected)
    for (g, g_lod), (e, e_lod) in zip(got, expected):
        assert g_lod == e_lod
        torch.testing.assert_close(g, e)


PLAIN = {
    "pooled": lambda x: tl.sequence_pool(x, "sum"),
    "last": lambda x: tl.sequence_pool(x, "last"),
    "padded": lambda x: x.to_padded()[0],
    "values": lambda x: x.values(),
    "scored": lambda x: tl.sequence_pool(x.values()[:, :1] * x, "max").relu(),
}


@pytest.mark.parametrize("backend", [*BACKENDS, "inductor"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_what_is_plain_in_eager_code_is_plain_in_compiled_code(name, grad, backend):
    x = tl.from_lengths(torch.randn(9, 4), [[4, 0, 5]]).requires_grad_(grad)
    torch._dynamo.reset()
    found, expected = torch.compile(PLAIN[name], backend=backend, fullgraph=True)(x), PLAIN[name](x)
    assert type(found) is type(expected) is torch.Tensor
    torch.testing.assert_close(found, expected)
    if grad:
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)))


def test_a_lod_that_a_graph_made_is_one_like_others():
    def function(x):
        return x.filter_rows(x.values()[:, 0] % 2 > 0)

    torch._dynamo.reset()
    expected, got = function(X), torch.compile(function, backend="aot_eager", fullgraph=True)(X)
    assert got.lod == expected.lod and hash(got.lod) == hash(expected.lod) and repr(got) == repr(expected)
    assert got.max_length() == expected.max_length() and type(got.max_length()) is int and type(got.lod.rows) is int
    assert got.lod.outer(1).max_length() == expected.lod.outer(1).max_length()
    torch.testing.assert_close(tl.sequence_softmax(got), tl.sequence_softmax(expected))
    again = torch.compile(lambda x: tl.sequence_reverse(x, level=0).to_padded(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(again(got), tl.sequence_reverse(expected, level=0).to_padded())


def test_what_eager_code_asked_before_is_no_condition_of_a_graph():
    compiled, graphs = counted(
        lambda x: tl.sequence_pool(tl.sequence_softmax(x), "sum", level=0) * x.max_length(), "eager"
    )
    for asked in (lambda x: None, lambda x: x.row_offsets(0), lambda x: x.lod.segment_ids(), hash):
        fresh = tl.LoDTensor(X.values(), tl.LoD(X.lod.to_list(), level_names=X.level_names))
        asked(fresh.lod if asked is hash else fresh)
        compiled(fresh)
        compiled(fresh * 2)
    assert len(graphs) == 1


# -- checks


def lod_tensor(*lengths):
    return tl.from_lengths(torch.ones(sum(lengths[-1]), 2), list(lengths))


TWO, THREE = lod_tensor([2, 3, 4]), torch.arange(3)
WRONG = {
    "other lengths": (lambda x, y: x + y, TWO, lod_tensor([3, 2, 4])),
    "another number of sequences": (lambda x, y: x + y, TWO, lod_tensor([3, 2, 2, 2])),
    "other outer lengths": (lambda x, y: x * y, lod_tensor([2, 2], [2, 3, 2, 2]), lod_tensor([3, 1], [2, 3, 2, 2])),
    "operands of where": (lambda x, y: torch.where(x > 0, x, y), TWO, lod_tensor([4, 3, 2])),
    "a sum of expanded rows": (
        lambda x, y: tl.sequence_expand_as(tl.sequence_pool(x, "sum"), y),
        lod_tensor([2, 2], [2, 3, 2, 2]),
        lod_tensor([3, 1], [2, 3, 2, 2]),
    ),
    "a slice beyond its sequence": (lambda x, y: tl.sequence_slice(x, [0, 0, 0], y), TWO, torch.tensor([2, 4, 1])),
    "a position beyond its sequence": (lambda x, y: tl.sequence_gather(x, y), TWO, torch.tensor([1, -1, 4])),
    "a row of another sequence": (
        lambda x, y: tl.sequence_gather(x, y, absolute=True),
        TWO,
        torch.tensor([1, 1, -1]),
    ),
    "a span beyond its sequence": (lambda x, y: x.spans(y, y + 1), TWO, tl.lod_tensor([[1], [3], []])),
    "flags that are neither 0 nor 1": (lambda x, y: tl.from_boundaries(x, y), TWO, torch.arange(9)),
    "a negative length": (lambda x, y: x.lod_reset(y), TWO, torch.tensor([10, -1])),
    "lengths of other rows": (lambda x, y: x.lod_reset(y), TWO, torch.tensor([4, 4])),
    "offsets that fall": (lambda x, y: tl.from_offsets(x.values(), [y]), TWO, torch.tensor([0, 7, 5, 9])),
    "no permutation": (lambda x, y: x.permute_sequences(y), TWO, torch.tensor([0, 0, 1])),
    "an element that is not there": (lambda x, y: x.seq[:, 2], TWO, None),
    "an index that is not there": (lambda x, y: x.seq[y], TWO, torch.tensor([0, 3])),
    "other rows": (lambda x, y: x.with_values(y), TWO, torch.ones(8, 2)),
    "elements that are no rows": (lambda x, y: tl.sequence_reshape(x * y, 3), TWO, torch.tensor(1.0)),
    "a function in place of torch.ops": (lambda x, y: torch.ops.aten.cumsum_(x * 1, 0), TWO, None),
    "an overload in place of torch.ops": (
        lambda x, y: torch.ops.aten.index_fill_.int_Scalar(x * 1, 0, y, 0),
        TWO,
        THREE,
    ),
    "padding that is too short": (lambda x, y: tl.from_padded(y, x.lengths()), TWO, torch.ones(3, 3, 2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_eager_code_refuses_compiled_code_refuses(name):
    function, x, y = WRONG[name]
    with pytest.raises(tl.LoDError):
        function(x, y)
    for backend in BACKENDS:
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        with pytest.raises((RuntimeError, IndexError)):
            compiled(x, y)


def test_a_graph_goes_on_checking():
    compiled, graphs = counted(lambda x, y: x + y, "aot_eager")
    torch.testing.assert_close(compiled(TWO, lod_tensor([2, 3, 4])), TWO + TWO)
    with pytest.raises(RuntimeError, match="LoDs that differ"):
        compiled(TWO, lod_tensor([2, 4, 3]))
    assert len(graphs) == 1
    with pytest.raises((RuntimeError, torch._dynamo.exc.Unsupported)):
        compiled(TWO, lod_tensor([2, 4, 2, 1]))


def test_only_a_torch_that_needs_it_is_told_about_the_class():
    from torch.fx.experimental import proxy_tensor

    needed = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15)
    assert (tl.LoDTensor in proxy_tensor.HANDLED_TYPES) == needed


def everyday(x, y, cube, weight, ids, perm):
    """A call for every rule that a model meets; fullgraph allows none of them a break."""
    changed = x.clone().add_(y).clamp_(min=0.5)
    return [
        *(
            x + 1,
            x * y,
            x @ weight,
            cube @ cube,
            torch.addmm(weight[0], x, weight),
            torch.einsum("ij,jk->ik", x, weight),
        ),
        *(
            x.sum(1),
            x.std(1),
            x.max(1).values,
            x.sum(0),
            x.softmax(1),
            x.cumsum(1),
            x.sort(1).values,
            x.flip(1),
            x.diff(dim=1),
        ),
        *(
            x[:, 1:],
            x[:, None],
            x.chunk(2, 1)[0],
            x.gather(1, ids[:, None]),
            x.index_select(1, perm),
            x[perm],
            x.t(),
            cube.mT,
        ),
        *(
            torch.cat([x, y], 1),
            torch.stack([x, y], 1),
            torch.hstack([x, y]),
            torch.where(x > 0.5, x, y),
            changed,
            x.real,
        ),
        *(F.layer_norm(x, (4,)), F.embedding(ids, weight), F.cross_entropy(x, ids, reduction="none"), F.normalize(x)),
        *(F.cosine_similarity(x, y), F.interpolate(cube, 8), F.linear(x, weight), torch.cdist(cube, cube), cube.tril()),
        *(
            torch.fft.rfft(x).abs(),
            torch.linalg.det(cube),
            torch.outer(x[:, 0], weight[0]),
            x.scatter(1, ids[:, None], 1.0),
        ),
    ]


def test_rules_are_traced():
    lod = tl.LoD.from_lengths([[2, 1, 1]])
    x, y, cube = (tl.LoDTensor(torch.rand(shape), lod) for shape in ((4, 4), (4, 4), (4, 4, 4)))
    inputs = (x, y, cube, torch.rand(4, 4), tl.LoDTensor(torch.arange(4), lod), torch.tensor([1, 0, 3, 2]))
    expected = everyday(*inputs)
    found = torch.compile(everyday, fullgraph=True, backend="eager")(*inputs)
    assert sum(type(t) is not tl.LoDTensor for t in expected) == 3
    for a, b in zip(found, expected, strict=True):
        assert type(a) is type(b) and getattr(a, "lod", None) == getattr(b, "lod", None)
        torch.testing.assert_close(*(t.values() if hasattr(t, "lod") else t for t in (a, b)))


@pytest.mark.parametrize("grad", [False, True])
def test_looking_at_structure_is_not_left_out(grad):
    """Compiled code keeps an operator that returns nothing: on a GPU it is the check."""

    def function(x, wrong):
        torch.ops.torch_lod.watch_structure(wrong.long(), None, "truths", 0, -1, 0, "f", "what is right")
        return x * 2

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    x = torch.ones(3, requires_grad=grad)
    assert torch.equal(compiled(x, torch.tensor([False, False])), x * 2)
    with pytest.raises(ValueError, match="f: expected what is asked, got a fault at index 1: what is right"):
        compiled(x, torch.tensor([False, True]))


def _times(y, n):
    y *= n
    return y


WITH_SIZES = {
    "x * n": lambda x: x * x.shape[0],
    "n * x": lambda x: x.shape[0] * x,
    "x / x.shape[0]": lambda x: x / x.shape[0],
    "x - x.numel()": lambda x: x - x.numel(),
    "x % n": lambda x: x % x.num_sequences(0),
    "x < n": lambda x: x < x.shape[0],
    "y *= n": lambda x: _times(x.clone(), x.shape[0]),
    "pooled / n": lambda x: tl.sequence_pool(x, "sum") / x.shape[0],
    "where": lambda x: torch.where(x > 0, x, x.shape[0]),
    "view": lambda x: x.view(x.shape[0], -1, 2),
}


@pytest.mark.parametrize("default", [False, True], ids=["", "default device"])
@pytest.mark.parametrize("name", WITH_SIZES)
def test_sizes_are_numbers(name, default):
    x, function = tl.from_lengths(torch.randn(6, 4), [[2, 1], [2, 3, 1]]), WITH_SIZES[name]
    if default:
        torch.set_default_device("cpu")
    try:
        found = torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    finally:
        torch.set_default_device(None)
    want = function(x)
    assert type(found) is tl.LoDTensor and found.lod == want.lod
    torch.testing.assert_close(found.values(), want.values())


@pytest.mark.parametrize("name", ["shape", "dtype", "device", "requires_grad"])
def test_attributes_beside_a_default_device(name):
    """Torch asks the mode of a default device for attributes, and it asked us again."""
    torch.set_default_device("cpu")
    try:
        x = tl.from_lengths(torch.randn(6, 4), [[2, 1], [2, 3, 1]])
        found = torch.compile(lambda x: (x.tanh(), getattr(x, name)), backend="eager", fullgraph=True)(x)
    finally:
        torch.set_default_device(None)
    assert found[1] == getattr(x, name)


def squared(x):
    y = x * 1
    y **= 2
    return y


ARITHMETIC = {
    "x ** 2": lambda x: x**2,
    "x ** x": lambda x: x**x,
    "2 ** x": lambda x: 2**x,
    "x ** t": lambda x: x ** torch.full((3,), 2.0),
    "1 - x": lambda x: 1 - x,
    "1 / x": lambda x: 1 / x,
    "x // 2": lambda x: x // 2,
    "9 // x": lambda x: 9 // x,
    "5 % x": lambda x: 5 % x,
    "x **= 2": squared,
    "8 << x": lambda x: 8 << x.long(),
    "64 >> x": lambda x: 64 >> x.long(),
    "x == x": lambda x: x == x * 1,
    "x == 2": lambda x: x == 2,
    "moved": lambda x: 1 - x.t() ** 2,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_operators_of_python_stay_in_the_graph(name, backend):
    x = tl.from_lengths(torch.arange(1.0, 16).view(5, 3), [[3, 2]])
    torch._dynamo.reset()
    expected, got = ARITHMETIC[name](x), torch.compile(ARITHMETIC[name], backend=backend, fullgraph=True)(x)
    assert type(got) is type(expected) and got.lod == expected.lod
    torch.testing.assert_close(got.values(), expected.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_comparing_two_structures_is_refused(backend):
    x, y = (tl.from_lengths(torch.zeros(5, 2), [lengths]) for lengths in ([3, 2], [1, 2, 2]))
    torch._dynamo.reset()
    with pytest.raises((RuntimeError, ValueError), match="LoD"):  # torch 2.15 shows our own
        torch.compile(lambda x, y: x == y, backend=backend)(x, y)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mixes", [lambda x: x.t()[None].roll(1, -1), lambda x: x[None][None].roll(1, 2)])
def test_rows_at_another_dim_are_not_mixed(mixes, backend):
    torch._dynamo.reset()
    with pytest.raises(LoDTypeError, match="mixes the rows"):
        torch.compile(mixes, backend=backend)(tl.from_lengths(torch.zeros(5, 2), [[3, 2]]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_weights_leave_the_graph(backend):
    x, layer = tl.from_lengths(torch.randn(11, 8), [[4, 2, 5]]), torch.nn.MultiheadAttention(8, 2)
    torch._dynamo.reset()
    for got, expected in zip(torch.compile(lambda q: layer(q, q, q), backend=backend)(x), layer(x, x, x), strict=True):
        torch.testing.assert_close(got.values(), expected.values())
        assert got.lod == expected.lod
