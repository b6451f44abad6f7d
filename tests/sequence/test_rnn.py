# SPDX-License-Identifier: Apache-2.0
"""tl.nn.LSTM, GRU and RNN equal torch.nn's, sequence by sequence, with every option."""

import itertools

import pytest
import torch
from test_blocks import same

import torch_lod as tl


def tensor(lengths, device):
    lod = tl.LoD.from_lengths(lengths)
    rows = torch.randn(lod.rows, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return tl.LoDTensor(rows.to(device), lod)


def rows_under(x, level):
    """The rows under every sequence of a level."""
    return [s.values() if isinstance(s, tl.LoDTensor) else s for s in x.sequences(level)]


CELLS = {
    "LSTM": ("LSTM", {}),
    "LSTM projected": ("LSTM", {"proj_size": 2}),
    "GRU": ("GRU", {}),
    "RNN tanh": ("RNN", {}),
    "RNN relu": ("RNN", {"nonlinearity": "relu"}),
}
#: Empty sequences at both ends and in the middle, only empty ones, none, and every sequence at an outer level.
CUTS = [
    ([[0, 3, 0, 1, 4, 0]], -1),
    ([[2, 0, 1, 1], [0, 3, 2, 0]], 0),
    ([[1, 2], [2, 0, 1], [0, 3, 2]], "b"),
    ([[0, 0, 0]], -1),
    ([[]], -1),
]
PRECISION = {torch.float64: {"rtol": 0, "atol": 1e-10}, torch.float32: {"rtol": 2e-5, "atol": 2e-5}}
each_cell = pytest.mark.parametrize("cell", CELLS)


def pair(cell, dtype, device, level=-1, **options):
    """torch's module and ours, with its parameters."""
    name, more = CELLS[cell]
    theirs = getattr(torch.nn, name)(3, 5, dtype=dtype, device=device, **more, **options)
    ours = getattr(tl.nn, name)(3, 5, dtype=dtype, device=device, level=level, **more, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def first_states(module, n, dtype, device):
    """h_0, and c_0 of an LSTM."""
    states = module.num_layers * (1 + module.bidirectional)
    columns = [getattr(module, "proj_size", 0) or module.hidden_size, module.hidden_size]
    columns = columns if isinstance(module, torch.nn.LSTM) else columns[:1]
    return [torch.randn(states, n, c, dtype=dtype, device=device, requires_grad=True) for c in columns]


def as_tuple(state):
    return state if isinstance(state, tuple) else (state,)


def one_by_one(module, sequences, states):
    """Rows and final states of torch's module, run on one sequence after the other; an empty one keeps its states."""
    rows, ends = [], [[] for _ in states]
    for s, r in enumerate(sequences):
        state = tuple(t[:, s : s + 1].contiguous() for t in states)
        if len(r):
            y, state = module(r[:, None], state if len(state) == 2 else state[0])
            rows.append(y[:, 0])
        for end, t in zip(ends, as_tuple(state)):
            end.append(t)
    return rows, [torch.cat(end, 1) if end else None for end in ends]


def gradients(results, leaves, module):
    """Of the sum of squares of the results; zeros for what they do not depend on."""
    wanted, loss = [*leaves, *module.parameters()], sum(t.square().sum() for t in results)
    if not loss.requires_grad:
        return [torch.zeros_like(t) for t in wanted]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted)]


@each_cell
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize(
    ("num_layers", "bidirectional", "bias"), list(itertools.product((1, 2, 3), (False, True), (True, False)))
)
@pytest.mark.parametrize("given", [True, False], ids=["h_0", "no h_0"])
def test_equals_torchs_module_sequence_by_sequence(cell, dtype, num_layers, bidirectional, bias, given, device):
    for lengths, level in CUTS:
        options = {"num_layers": num_layers, "bidirectional": bidirectional, "bias": bias}
        theirs, ours = pair(cell, dtype, device, level, **options)
        theirs = theirs.double()  # what is compared with is exact beside float32
        lod = tl.LoD.from_lengths(lengths, level_names=("a", "b", "c")[: len(lengths)])
        leaf = torch.randn(lod.rows, 3, dtype=dtype, device=device, requires_grad=True)
        x = tl.LoDTensor(leaf, lod)
        states = first_states(theirs, x.num_sequences(level), dtype, device)
        zeros = [torch.zeros_like(t) for t in states]
        hx = (tuple(states) if len(states) == 2 else states[0]) if given else None
        out, final = ours(x, hx)
        final = as_tuple(final)
        assert out.lod is lod and [t.shape for t in final] == [t.shape for t in states]
        wide = [t.double() for t in (states if given else zeros)]
        rows, ends = one_by_one(theirs, [r.double() for r in rows_under(x, level)], wide)
        if not ends or ends[0] is None:
            continue
        expected = torch.cat(rows) if rows else out.values().detach()
        torch.testing.assert_close(out.values().double(), expected.double(), **PRECISION[dtype])
        for got, want in zip(final, ends):
            torch.testing.assert_close(got.double(), want, **PRECISION[dtype])
        leaves = [leaf, *(states if given else [])]
        for got, want in zip(
            gradients([out.values(), *final], leaves, ours), gradients([expected, *ends], leaves, theirs)
        ):
            torch.testing.assert_close(got.double(), want.double(), **PRECISION[dtype])


def test_relu_passes_the_gradient_of_what_is_no_number_as_torchs(device):
    theirs, ours = pair("RNN relu", torch.float32, device)
    rows = torch.randn(4, 3, device=device)
    rows[2, 1] = float("nan")
    found = []
    for module in (theirs, ours):
        leaf = rows.clone().requires_grad_()
        y = module(leaf)[0] if module is theirs else module(tl.from_lengths(leaf, [[4]]))[0].values()
        found.append(torch.autograd.grad(y.sum(), leaf)[0])
    torch.testing.assert_close(*found, equal_nan=True)


@each_cell
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_and_their_gradients(cell, bidirectional, device):
    _, ours = pair(cell, torch.float64, device, bidirectional=bidirectional)
    x = tensor([[0, 3, 0, 2]], device)
    states = first_states(pair(cell, torch.float64, device, bidirectional=bidirectional)[0], 4, torch.float64, device)
    names, weights = zip(*ours.named_parameters())

    def f(values, *rest):
        hx = rest[: len(states)]
        run = dict(zip(names, rest[len(states) :]))
        out, final = torch.func.functional_call(ours, run, (x.with_values(values), hx if len(hx) == 2 else hx[0]))
        return out.values(), *as_tuple(final)

    inputs = [x.values().requires_grad_(), *states, *weights]
    assert torch.autograd.gradcheck(f, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, inputs, fast_mode=True)


@each_cell
def test_parameters_start_as_torchs_and_travel_both_ways(cell, tmp_path, device):
    name, options = CELLS[cell]
    options = {**options, "num_layers": 2, "bidirectional": True}
    torch.manual_seed(3)
    theirs = getattr(torch.nn, name)(3, 5, **options)
    torch.manual_seed(3)
    ours = getattr(tl.nn, name)(3, 5, **options)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters()))
    rows = torch.randn(6, 3)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        theirs(rows[:, None])[0].square().sum().backward()
        optimizer.step()
    torch.save(theirs.state_dict(), tmp_path / "trained")
    ours.load_state_dict(torch.load(tmp_path / "trained", weights_only=True))
    back = getattr(torch.nn, name)(3, 5, **options)
    back.load_state_dict(ours.state_dict())
    expected = theirs(rows[:, None])[0][:, 0]
    torch.testing.assert_close(ours(tl.from_lengths(rows, [[6]]))[0].values(), expected)
    assert torch.equal(back(rows[:, None])[0][:, 0], expected)


@each_cell
def test_dropout_is_between_layers_and_in_training_only(cell, device):
    theirs, ours = pair(cell, torch.float64, device, num_layers=2, dropout=0.4)
    x = tensor([[3, 0, 2]], device)
    parts = [pair(cell, torch.float64, device)[1], None]
    name, more = CELLS[cell]
    parts[1] = getattr(tl.nn, name)(more.get("proj_size", 5), 5, dtype=torch.float64, device=device, **more)
    for layer, part in enumerate(parts):
        for weight, value in part.named_parameters():
            value.data = dict(ours.named_parameters())[weight.replace("l0", f"l{layer}")].data
    torch.manual_seed(5)
    got, _ = ours(x)
    torch.manual_seed(5)
    first, _ = parts[0](x)
    expected, _ = parts[1](torch.nn.functional.dropout(first, 0.4))
    torch.testing.assert_close(got, expected)
    rows, _ = one_by_one(theirs.eval(), rows_under(x, -1), first_states(theirs, 3, torch.float64, device))
    assert not torch.allclose(got.values(), torch.cat(rows))
    zeros = [torch.zeros_like(t) for t in first_states(theirs, 3, torch.float64, device)]
    rows, _ = one_by_one(theirs, rows_under(x, -1), zeros)
    torch.testing.assert_close(ours.eval()(x)[0].values(), torch.cat(rows))


@each_cell
def test_states_carry_long_sequences_from_batch_to_batch(cell, device):
    """Truncated backpropagation through time: windows of every sequence, each starting where the last one ended."""
    _, ours = pair(cell, torch.float64, device, num_layers=2)
    x = tensor([[7, 2, 0, 4]], device)
    whole, end = ours(x)
    state, seen = None, []
    for begin in range(0, 7, 3):
        lengths = [min(3, max(0, n - begin)) for n in x.lengths().tolist()]
        window = tl.sequence_slice(x, [min(begin, n) for n in x.lengths().tolist()], lengths)
        out, state = ours(window, state)
        out.sum().backward()
        state = tuple(t.detach() for t in state) if isinstance(state, tuple) else state.detach()
        seen.append(out.detach())
    torch.testing.assert_close(tl.cat(seen, along="within"), whole.detach())
    for a, b in zip(as_tuple(state), as_tuple(end)):
        torch.testing.assert_close(a, b)


@each_cell
@pytest.mark.parametrize("size", [(32, 64), (19, 37)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sequence_is_independent_of_the_batch(cell, size, dtype, device):
    """Bit for bit where the products are our own: float32 and float64 on a CPU with AVX2."""
    name, more = CELLS[cell]
    module, lengths = getattr(tl.nn, name)(*size, **more).to(device, dtype), [5, 30, 1, 0, 17, 3, 44, 9]
    rows = torch.randn(sum(lengths), size[0], device=device, dtype=dtype)
    parts = rows.split(lengths)
    together = module(tl.from_lengths(rows, [lengths]))[0].unbind_sequences()
    order = torch.randperm(len(lengths)).tolist()
    moved = module(tl.from_tensors([parts[i] for i in order]))[0].unbind_sequences()
    exact = device == "cpu" and tl.ops.COMPILED and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    for i, (part, got) in enumerate(zip(parts, together)):
        alone = module(tl.from_lengths(part, [[len(part)]]))[0].values()
        for other in (alone, moved[order.index(i)]):
            assert torch.equal(other, got) if exact else torch.allclose(other, got, rtol=2e-6, atol=1e-6)


products_are_ours = pytest.mark.skipif(
    not (tl.ops.COMPILED and torch.backends.cpu.get_cpu_capability().startswith("AVX")),
    reason="the products are torch's",
)


@products_are_ours
@each_cell
@pytest.mark.parametrize("size, lengths", [((16, 7), [5, 9, 0]), ((20, 33), [0, 40, 2, 3]), ((64, 48), [3000, 2500])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_do_not_change_a_bit(cell, size, lengths, dtype):
    name, more = CELLS[cell]
    module, rows = getattr(tl.nn, name)(*size, **more).to(dtype), torch.randn(sum(lengths), size[0], dtype=dtype)

    def trained():
        module.zero_grad()
        x = rows.clone().requires_grad_()
        out = module(tl.from_lengths(x, [lengths]))[0].values()
        out.pow(2).sum().backward()
        return [out.detach(), x.grad, *(p.grad for p in module.parameters())]

    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(trained())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@products_are_ours
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("hidden", [64, 200])  # a weight that the cache of a core holds, and one that it does not
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_sequences_distributed_over_threads_keep_their_bits(name, hidden, states):
    """Empty ones are assigned to none."""
    g = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 60, (50,), generator=g)
    lengths[::7] = 0
    data = torch.randn(int(lengths.sum()), 32, generator=g)
    torch.manual_seed(4)
    module = getattr(tl.nn, name)(32, hidden, bidirectional=True)
    first = [torch.randn(2, len(lengths), hidden, generator=g, requires_grad=True) for _ in range(1 + (name == "LSTM"))]
    hx = [tuple(first) if name == "LSTM" else first[0]] if states else []

    def training():
        rows = data.clone().requires_grad_()
        out, last = module(tl.from_lengths(rows, [lengths]), *hx)
        loss = out.values().square().sum() + sum(h.sum() for h in as_tuple(last))
        inputs = [rows, *module.parameters(), *(first if states else [])]
        with torch.inference_mode():
            again = module(tl.from_lengths(data, [lengths]), *hx)[0].values()
        return out.values().detach(), again, *as_tuple(last), *torch.autograd.grad(loss, inputs)

    same(training)


def test_what_does_not_fit_is_refused():
    x = tl.from_lengths(torch.randn(5, 3), [[2, 3]])
    lstm, gru, zeros = tl.nn.LSTM(3, 4), tl.nn.GRU(3, 4), torch.zeros(1, 2, 4)
    projected = tl.nn.LSTM(3, 4, proj_size=2)
    for call, exception, words in (
        (lambda: lstm(torch.randn(5, 3)), TypeError, "LSTM: expected input as a LoDTensor, got Tensor"),
        (lambda: lstm(tl.from_lengths(torch.randn(5, 2), [[5]])), ValueError, "rows of input_size 3, got (5, 2)"),
        (
            lambda: lstm(x.double()),
            TypeError,
            "LSTM: expected input of torch.float32, as the weights, got torch.float64",
        ),
        (lambda: gru(x.half()), TypeError, "GRU: expected input of torch.float32, as the weights, got torch.float16"),
        (lambda: tl.nn.RNN(3, 4)(x.long()), TypeError, "input of torch.float32, as the weights, got torch.int64"),
        (lambda: lstm(x, zeros), TypeError, "hx as (h_0, c_0), got Tensor"),
        (lambda: lstm(x, (zeros, None)), TypeError, "hx as (h_0, c_0), got one of them"),
        (lambda: lstm(x, (zeros, zeros[:, :1])), ValueError, "c_0 of shape (1, 2, 4), got (1, 1, 4)"),
        (lambda: projected(x, (zeros, zeros)), ValueError, "h_0 of shape (1, 2, 2), got (1, 2, 4)"),
        (lambda: gru(x, zeros[..., :3]), ValueError, "h_0 of shape (1, 2, 4), got (1, 2, 3)"),
        (lambda: gru(x, [zeros]), TypeError, "h_0 as a tensor, got list"),
        (lambda: tl.nn.RNN(3, 4)(x, zeros[:0]), ValueError, "RNN: expected h_0 of shape (1, 2, 4), got (0, 2, 4)"),
        (lambda: tl.nn.GRU(3, 4, level=2)(x), IndexError, "GRU: expected level in [-1, 0], got 2"),
        (lambda: tl.nn.RNN(3, 4, nonlinearity="elu"), ValueError, "nonlinearity 'tanh' or 'relu', got 'elu'"),
        (lambda: tl.nn.RNN(3, 4, 0), ValueError, "RNN: expected num_layers as an int of at least 1, got 0"),
        (lambda: tl.nn.LSTM(3, 0), ValueError, "hidden_size as an int of at least 1, got 0"),
        (lambda: tl.nn.GRU(3, 4, dropout=1.5), ValueError, "dropout in [0, 1], got 1.5"),
        (lambda: tl.nn.LSTM(3, 4, proj_size=4), ValueError, "proj_size from 0 to below hidden_size 4, got 4"),
        (lambda: tl.nn.LSTM(3, 4, proj_size=-1), ValueError, "proj_size from 0 to below hidden_size 4, got -1"),
        (lambda: tl.nn.last_state(zeros, tl.from_lengths(torch.randn(5, 3), [[5]])), ValueError, "(states, 1, hidden)"),
    ):
        with pytest.raises(exception) as caught:
            call()
        assert isinstance(caught.value, tl.LoDError)
        assert words in str(caught.value)


def test_dropout_between_layers_of_one_is_said():
    for cls in (tl.nn.LSTM, tl.nn.GRU, tl.nn.RNN):
        with pytest.warns(UserWarning, match=f"^{cls.__name__}: dropout=0.5 has no effect with num_layers=1"):
            cls(3, 4, dropout=0.5)


@each_cell
def test_runs_under_autocast(cell, device):
    x = tl.from_lengths(torch.randn(5, 3, device=device), [[2, 3]])
    _, ours = pair(cell, torch.float32, device, num_layers=2)
    with torch.autocast(device, torch.bfloat16):
        out, final = ours(x)
        assert torch.equal(ours(x.bfloat16())[0], out)
    assert {t.dtype for t in (out, *as_tuple(final))} == {torch.bfloat16}
    torch.testing.assert_close(out.values().float(), ours(x)[0].values(), rtol=0.05, atol=0.05)
    out.values().float().sum().backward()
    assert ours.weight_hh_l0.grad.dtype == torch.float32


def test_the_last_state_is_that_of_the_last_layer():
    x = tl.from_lengths(torch.randn(5, 4), [[2, 3]])
    for cls in (tl.nn.LSTM, tl.nn.GRU, tl.nn.RNN):
        for bidirectional in (False, True):
            out, h = cls(4, 3, 2, bidirectional=bidirectional)(x)
            h = as_tuple(h)[0]
            state = tl.nn.last_state(h, x, bidirectional=bidirectional)
            assert state.shape == (2, 6 if bidirectional else 3)
            ends = tl.sequence_pool(out, "last")
            torch.testing.assert_close(state[:, :3], ends[:, :3])
    with pytest.raises(TypeError, match="pass one"):
        tl.nn.last_state((h, h), x)
