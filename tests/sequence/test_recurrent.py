# SPDX-License-Identifier: Apache-2.0
"""tl.scan equals Python loops over sequences, at any level and nested; recurrences with Paddle's layouts equal torch's and
what their formulas say. Their recorded cases are in test_golden.py."""

import pytest
import torch

import torch_lod as tl

LENGTHS = [[2, 0, 1, 2], [3, 0, 2, 1, 4]]


@pytest.fixture
def x(device):
    g = torch.Generator().manual_seed(0)
    return tl.from_lengths(torch.randn(10, 3, generator=g, dtype=torch.float64).to(device), LENGTHS)


def cells(device):
    torch.manual_seed(1)
    return {
        "lstm": torch.nn.LSTMCell(3, 5).double().to(device),
        "gru": torch.nn.GRUCell(3, 5).double().to(device),
        "rnn": torch.nn.RNNCell(3, 5).double().to(device),
    }


def loop(cell, rows, state, reverse=False):
    """The outputs at their rows and the last state of one sequence."""
    out = [None] * len(rows)
    for t in reversed(range(len(rows))) if reverse else range(len(rows)):
        state = cell(rows[t : t + 1], state)
        out[t] = state[0] if isinstance(state, tuple) else state
    return out, state


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_scan_equals_a_loop_over_sequences(name, reverse, x, device):
    cell = cells(device)[name]
    first = torch.randn(5, 5, dtype=torch.float64, device=device, requires_grad=True)
    init = (first, first * 2) if name == "lstm" else first
    out, last = tl.scan(cell, x, init, reverse=reverse)
    assert out.lod is x.lod or out.lod == x.lod
    rows, states = [], []
    for s, sequence in enumerate(x.sequences(1)):
        begin = (init[0][s : s + 1], init[1][s : s + 1]) if name == "lstm" else init[s : s + 1]
        part, state = loop(cell, sequence, begin, reverse)
        rows += part
        states.append(state[0] if name == "lstm" else state)
    expected, ends = torch.cat(rows), torch.cat(states)
    h = last[0] if name == "lstm" else last
    torch.testing.assert_close(out.values(), expected)
    torch.testing.assert_close(h, ends)
    parameters = [*cell.parameters(), first]
    weights = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64, device=device).view(expected.shape)
    got = torch.autograd.grad((out.values() * weights).sum() + h.square().sum(), parameters, retain_graph=True)
    want = torch.autograd.grad((expected * weights).sum() + ends.square().sum(), parameters)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)


def test_scan_inside_the_step_of_a_scan(x, device):
    """Words are read by one cell, sentences by another: the nested recurrence, against explicit loops."""
    torch.manual_seed(2)
    word, sentence = torch.nn.GRUCell(3, 4).double().to(device), torch.nn.GRUCell(4, 5).double().to(device)

    def read_sentence(words, state):
        _, h = tl.scan(word, words, words.values().new_zeros(words.num_sequences(), 4))
        return sentence(h, state)

    out, last = tl.scan(read_sentence, x, x.values().new_zeros(4, 5), level=0)
    assert out.recursive_sequence_lengths() == LENGTHS[:1]
    rows, ends = [], []
    for article in x.sequences(0):
        state = x.values().new_zeros(1, 5)
        for words in article.sequences(0):
            h = x.values().new_zeros(1, 4)
            for t in range(len(words)):
                h = word(words[t : t + 1], h)
            state = sentence(h, state)
            rows.append(state)
        ends.append(state)
    torch.testing.assert_close(out.values(), torch.cat(rows))
    torch.testing.assert_close(last, torch.cat(ends))
    parameters = [*word.parameters(), *sentence.parameters()]
    got = torch.autograd.grad(last.square().sum(), parameters)
    want = torch.autograd.grad(torch.cat(ends).square().sum(), parameters)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)


def test_scan_of_several_inputs_outputs_memories_and_constants(x, device):
    def cell(rows, state, static):
        a, b = rows
        new = {"sum": state["sum"] + a.sum(1), "count": state["count"] + 1}
        return (new["sum"] * static, b + new["count"][:, None]), new

    n = x.num_sequences(1)
    init = {"sum": torch.zeros(n, dtype=torch.float64, device=device), "count": torch.zeros(n, device=device)}
    scale = torch.arange(n, dtype=torch.float64, device=device)
    (first, second), last = tl.scan(cell, (x, x * 2), init, static=scale)
    sums = tl.sequence_cumsum(x.with_values(x.values().sum(1)))
    torch.testing.assert_close(first.values(), sums.values() * scale[x.lod.segment_ids(1, device)])
    place = x.lod.position_ids(1, device)
    torch.testing.assert_close(second.values(), x.values() * 2 + place[:, None] + 1)
    assert last["count"].tolist() == LENGTHS[1]


def test_scan_of_elements_that_stay_sequences(x):
    out, _ = tl.scan(lambda part, state: (part * 2, state), x, torch.zeros(4, device=x.device), level=0, reverse=True)
    assert torch.equal(out, x * 2) and out.recursive_sequence_lengths() == LENGTHS


@pytest.mark.parametrize("lengths", [[[0, 0]], [[]]])
def test_scan_without_any_step(lengths, device):
    x = tl.from_lengths(torch.zeros(0, 3, device=device), lengths, level_names=["sentence"])
    first = torch.ones(len(lengths[0]), 5, device=device)
    out, last = tl.scan(torch.nn.GRUCell(3, 5).to(device), x, first)
    assert out.shape == (0, 5) and out.recursive_sequence_lengths() == lengths and torch.equal(last, first)
    assert out.level_names == ("sentence",)


def test_scan_leaves_the_other_sequences_alone(x, device):
    cell = cells(device)["gru"]
    init = torch.zeros(5, 5, dtype=torch.float64, device=device)
    out, last = tl.scan(cell, x, init)
    values = x.values().clone()
    values[:3] = float("nan")
    other, ends = tl.scan(cell, x.with_values(values), init)
    torch.testing.assert_close(out.values()[3:], other.values()[3:])
    torch.testing.assert_close(last[1:], ends[1:])


@pytest.mark.parametrize(
    ("cell", "init", "words"),
    [
        (
            lambda r, h: h[:, :2],
            lambda n, d: torch.zeros(n, 5, device=d),
            "memory 0 of shape (4, 5) from the cell at step 0, got (4, 2)",
        ),
        (lambda r, h: None, lambda n, d: torch.zeros(n, 5, device=d), "got NoneType at step 0"),
        (lambda r, h: (r[:1], h), lambda n, d: torch.zeros(n, 5, device=d), "output 0 of the cell with a row"),
        (lambda r, h: [h], lambda n, d: (torch.zeros(n, 5, device=d),), "with the nesting of init"),
        (
            lambda r, h: h,
            lambda n, d: torch.zeros(n + 1, 5, device=d),
            "init with a row for each of 5 sequences, got (6, 5) at index 0",
        ),
        (lambda r, h: h, lambda n, d: torch.zeros(n, 5, device="meta"), "as x, got one on meta at index 0"),
        (lambda r, h: h, lambda n, d: [1.0], "init of tensors, got float at index 0"),
    ],
)
def test_scan_says_what_a_cell_got_wrong(cell, init, words, x):
    with pytest.raises((ValueError, TypeError)) as caught:
        tl.scan(cell, x, init(5, x.device))
    assert words in str(caught.value) and str(caught.value).startswith("scan: "), str(caught.value)
    assert isinstance(caught.value, tl.LoDError)


def test_a_decoder_that_reads_its_own_output_equals_a_loop(device):
    cell, read = torch.nn.GRUCell(2, 4).double().to(device), torch.nn.Linear(4, 2).double().to(device)
    first = torch.randn(4, 2, dtype=torch.float64, device=device, requires_grad=True)
    source = torch.randn(4, 2, dtype=torch.float64, device=device)

    def step(state, source=None):
        said, h = state
        h = cell(said if source is None else said + source, h)
        return read(h), (read(h), h)

    for lengths in ([3, 0, 1, 5], torch.tensor([2, 2, 2, 2]), [0, 0, 0, 0]):
        for static in (None, source):
            hidden = torch.zeros(4, 4, dtype=torch.float64, device=device)
            out, (last, _) = tl.scan(step, lengths=lengths, init=(first, hidden), static=static)
            assert out.lod == tl.LoD.from_lengths([list(map(int, lengths))])
            rows, ends = [first.new_zeros(0, 2)], []
            for s, n in enumerate(lengths):
                state = first[s : s + 1], hidden[s : s + 1]
                for _ in range(int(n)):
                    said, state = step(state, *([] if static is None else [source[s : s + 1]]))
                    rows.append(said)
                ends.append(state[0])
            torch.testing.assert_close(out.values(), torch.cat(rows))
            torch.testing.assert_close(last, torch.cat(ends))
            got, want = (
                torch.autograd.grad(t.square().sum(), first, allow_unused=True)[0] for t in (last, torch.cat(ends))
            )
            torch.testing.assert_close(got, want)
    with pytest.raises(TypeError, match=r"scan: expected either x or lengths, .*, got neither"):
        tl.scan(step, init=first)
    with pytest.raises(TypeError, match=r"scan: expected either x or lengths, .*, got both"):
        tl.scan(step, out, first, lengths=[1])
    with pytest.raises(TypeError, match="scan: expected init, the first state of every sequence, got None"):
        tl.scan(step, lengths=[1])
    with pytest.raises(TypeError, match=r"scan: expected init, .*, got None; see torch\.zeros\(sequences"):
        tl.scan(step, out)
    with pytest.raises(ValueError, match="scan: expected init with a row for each of 3 sequences"):
        tl.scan(step, lengths=[1, 2, 3], init=first)
    with pytest.raises(ValueError, match=r"scan: expected lengths\[0\] >= 0, got -2 at index 1"):
        tl.scan(step, lengths=[1, -2], init=first[:2])
    with pytest.raises(TypeError, match="scan: expected lengths as a list, array or tensor of integers, got str"):
        tl.scan(step, lengths="ab", init=first[:2])


def test_scan_refuses_inputs_of_different_structure(x):
    other = tl.from_lengths(x.values(), [[2, 0, 1, 2], [3, 0, 2, 2, 3]])
    with pytest.raises(ValueError, match="LoDs that differ at input 1: at level 1, sequence 3"):
        tl.scan(lambda r, h: h, (x, other), torch.zeros(5, 1))
    with pytest.raises(TypeError, match="LoDTensor"):
        tl.scan(lambda r, h: h, x.values(), torch.zeros(5, 1))


def test_dynamic_lstm_is_torchs_in_another_layout(x, device):
    """Without peepholes: torch's gates i, f, g, o are Paddle's columns 1, 2, 0, 3."""
    cell = cells(device)["lstm"]
    i, f, g, o = cell.weight_hh.t().chunk(4, 1)
    projected = x.with_values(torch.nn.functional.linear(x.values(), cell.weight_ih, cell.bias_ih + cell.bias_hh))
    gates = projected.values().chunk(4, 1)
    gates = x.with_values(torch.cat([gates[2], gates[0], gates[1], gates[3]], 1))
    hidden, cells_ = tl.dynamic_lstm(gates, torch.cat([g, i, f, o], 1), use_peepholes=False)
    zeros = x.values().new_zeros(5, 5)
    expected, (_, _) = tl.scan(cell, x, (zeros, zeros))
    torch.testing.assert_close(hidden.values(), expected.values())
    assert cells_.lod == x.lod


def test_dynamic_gru_is_torchs_where_they_agree(x):
    """With zero recurrent weights of the candidate both are the same function but for u in place of 1 - z."""
    hidden = 2
    weight = torch.randn(hidden, 3 * hidden, dtype=torch.float64, requires_grad=True)
    gates = x.with_values(torch.randn(10, 3 * hidden, dtype=torch.float64))
    out = tl.dynamic_gru(gates, weight)
    flat = weight.reshape(-1)
    w_ur, w_c = flat[: 2 * hidden**2].view(hidden, -1), flat[2 * hidden**2 :].view(hidden, hidden)
    rows = []
    for part in gates.sequences(1):
        h = part.new_zeros(1, hidden)
        for row in part:
            u, r = (row[None, : 2 * hidden] + h @ w_ur).sigmoid().chunk(2, 1)
            h = (1 - u) * h + u * (row[None, 2 * hidden :] + (r * h) @ w_c).tanh()
            rows.append(h)
    torch.testing.assert_close(out.values(), torch.cat(rows))
    step = tl.gru_unit(gates.values()[:1], torch.zeros(1, hidden, dtype=torch.float64), weight)
    torch.testing.assert_close(step[0], rows[0])


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_dynamic_rnn_is_scan_with_a_cell_of_its_own(name, x, device):
    cell = cells(device)[name]
    module = tl.nn.DynamicRNN(cell, level=1, reverse=True)
    zeros = x.values().new_zeros(5, 5)
    out, last = module(x)
    expected, end = tl.scan(cell, x, (zeros, zeros) if name == "lstm" else zeros, level=1, reverse=True)
    assert torch.equal(out, expected) and len(list(module.parameters())) == 4
    assert torch.equal(last[0], end[0])
    with pytest.raises(ValueError, match="expected init for a cell that is none of torch"):
        tl.nn.DynamicRNN(lambda r, h: h)(x)
    with pytest.raises(TypeError, match="expected cell as a module or function, got int"):
        tl.nn.DynamicRNN(3)


def embedded(x, table, bias=None):
    return tl.fused_embedding_fc_lstm(x[:, 0].long(), table, torch.zeros(2, 8), bias, use_peepholes=False)


def attending(x, **options):
    weights = torch.zeros(10, 1), torch.zeros(10, 8), torch.zeros(8)
    return tl.attention_lstm(x, torch.zeros(2, 2), *weights, **options)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16])
def test_ids_of_small_dtypes_are_ids(dtype):
    ids, table = tl.from_lengths(torch.tensor([2, 0, 1]), [[1, 2]]), torch.randn(3, 8)
    found, want = (
        tl.fused_embedding_fc_lstm(given, table, torch.ones(2, 8), use_peepholes=False)[0]
        for given in (ids.with_values(ids.values().to(dtype)), ids)
    )
    assert torch.equal(found, want)


def test_units_keep_the_structure_of_their_rows():
    x, state, weight = tl.from_lengths(torch.randn(3, 8), [[1, 2]]), torch.randn(3, 2), torch.randn(2, 6)
    for call in (lambda x, h: tl.lstm_unit(x, h), lambda x, h: tl.gru_unit(x[:, :6], h, weight)):
        plain = call(x.values(), state)
        for given in ((x, state), (x, x.with_values(state)), (x.values(), x.with_values(state))):
            for found, want in zip(call(*given), plain, strict=True):
                assert type(found) is tl.LoDTensor and found.lod == x.lod and torch.equal(found.values(), want)
        assert all(type(t) is torch.Tensor for t in plain)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, w: tl.dynamic_lstm(x, w), "expected a bias of 14 elements with use_peepholes, got none"),
        (lambda x, w: tl.dynamic_lstm(x, w, use_peepholes=False, h_0=torch.zeros(1, 2)), "h_0 and c_0 together"),
        (lambda x, w: tl.dynamic_lstm(x, w[:1], use_peepholes=False), "weight of shape (2, 8), got (1, 8)"),
        (lambda x, w: tl.dynamic_lstm(x, w, use_peepholes=False, gate_activation="elu"), "gate_activation among"),
        (lambda x, w: tl.dynamic_gru(x, w), "x of shape (rows, 3 hidden), got (3, 8)"),
        (lambda x, w: tl.dynamic_lstmp(x, w, w, cell_clip=-1.0), "proj_weight"),
        (lambda x, w: tl.lstm_unit(x, torch.zeros(3, 3)), "c_prev of shape (3, 2), got (3, 3)"),
        (lambda x, w: tl.lstm_unit(x, tl.from_lengths(torch.zeros(3, 2), [[2, 1]])), "operands with equal LoDs, got"),
        (
            lambda x, w: tl.lstm_unit(x, x[[1, 0, 2], :2]),
            "c_prev as a LoDTensor or a plain tensor, got rows that lost their structure in getitem",
        ),
        (
            lambda x, w: tl.gru_unit(x[:, :6], tl.from_lengths(w[:, :2], [[2]])[[0, 0, 1]], w[:, :6]),
            "h_prev as a LoDTensor or a plain tensor, got rows that lost",
        ),
        (lambda x, w: tl.dynamic_lstm(x, w, use_peepholes=1), "use_peepholes as a bool, got 1"),
        (lambda x, w: tl.dynamic_lstm(x, w, use_peepholes=False, is_reverse="no"), "is_reverse as a bool, got 'no'"),
        (lambda x, w: tl.dynamic_gru(x[:, :6], w[:, :6], is_reverse=0), "is_reverse as a bool, got 0"),
        (lambda x, w: tl.dynamic_gru(x[:, :6], w[:, :6], origin_mode=None), "origin_mode as a bool, got None"),
        (lambda x, w: tl.gru_unit(x[:, :6], x[:, :2], w[:, :6], origin_mode=1), "origin_mode as a bool, got 1"),
        (
            lambda x, w: tl.dynamic_gru(x[:, :6], w[:, :6], gate_activation=["tanh"]),
            "among ['identity', 'relu', 'sigmoid'",
        ),
        (lambda x, w: embedded(x + 2, w), "ids in [0, 1], got 2 at index 0"),
        (lambda x, w: embedded(x - 1, w), "ids in [0, 1], got -1 at index 0"),
        (lambda x, w: embedded(x, w[0]), "embeddings of shape (words, 4 hidden), got (8,)"),
        (lambda x, w: embedded(x, w.long()), "embeddings of a floating dtype, got torch.int64"),
        (lambda x, w: embedded(x, w.to("meta")), "embeddings on cpu, as ids, got one on meta"),
        (lambda x, w: embedded(x, w, torch.tensor(1.0)), "bias of shape ('any',), got ()"),
        (lambda x, w: embedded(x, w, 1.0), "bias as a tensor, got float"),
        (lambda x, w: attending(x, attention_bias=2.0), "attention_bias as a tensor, got float"),
        (lambda x, w: attending(x, attention_scalar=w), "attention_scalar of shape (1,), got (2, 8)"),
        (
            lambda x, w: attending(x, attention_scalar_bias=w.double()[0, :1]),
            "attention_scalar_bias of torch.float32 on cpu",
        ),
        (lambda x, w: tl.dynamic_lstm(x.double(), w, use_peepholes=False), "weight of torch.float64"),
    ],
)
def test_wrong_weights_are_refused(call, words):
    x = tl.from_lengths(torch.zeros(3, 8), [[1, 2]])
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        call(x, torch.zeros(2, 8))
    assert isinstance(caught.value, tl.LoDError)
    assert words in str(caught.value) or words == "proj_weight", str(caught.value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_scan_runs_a_compiled_cell(backend, device):
    """A few graphs for any number of steps: a first state without gradient, several sequences left, and one."""
    cell = cells(device)["gru" if device == "cpu" else "rnn"]  # torch traces no fused GRU cell of a GPU
    x = tl.from_lengths(torch.randn(47, 3, dtype=torch.float64, device=device), [[19, 4, 6, 0, 18]])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(cell, backend=backend, fullgraph=True, dynamic=True)
    zeros = x.values().new_zeros(5, 5)
    got, want = tl.scan(compiled, x, zeros)[0], tl.scan(cell, x, zeros)[0]
    torch.testing.assert_close(got, want)
    gradients = [torch.autograd.grad(y.values().square().sum(), [*cell.parameters()]) for y in (got, want)]
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs <= 4


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "lengths", [[[1, 1], [0, 2]], [[2], [1, 2]], [[2, 1], [3, 0, 4]], [[1, 2], [2, 0, 1], [2, 0, 5]]]
)
def test_an_outer_level_is_all_rows_under_its_sequences(lengths, reverse):
    rows = sum(lengths[-1])
    x = tl.from_lengths(torch.randn(rows, 8), lengths)
    square, wide, narrow, gates = torch.randn(2, 8), torch.randn(3, 8), torch.randn(2, 3), torch.randn(2, 6)
    calls = {
        "lstm": lambda x, **k: tl.dynamic_lstm(x, square, use_peepholes=False, is_reverse=reverse, **k),
        "lstmp": lambda x, **k: tl.dynamic_lstmp(x, wide, narrow, use_peepholes=False, is_reverse=reverse, **k),
        "gru": lambda x, **k: [tl.dynamic_gru(x[:, :6], gates, None, None, reverse, **k)],
    }
    for level in range(len(lengths)):
        flat = tl.from_lengths(x.values(), [x.lod.row_offsets(level).diff()])
        for name, call in calls.items():
            for got, expected in zip(call(x, level=level), call(flat), strict=True):
                assert torch.equal(got.values(), expected.values()) and got.lod == x.lod, (name, level)


def test_states_of_other_sequences_are_refused():
    x = tl.from_lengths(torch.randn(8, 3), [[2, 1], [3, 1, 4]])
    last, layer = tl.sequence_pool(x, "last"), tl.nn.LSTM(3, 3)
    mixed, other = last[torch.tensor([2, 0, 1])], tl.from_lengths(torch.zeros(3, 3), [[1, 2]])
    layer(x, (last.unsqueeze(0), last.values().unsqueeze(0)))
    with pytest.raises(TypeError, match="LSTM: expected hx as a LoDTensor or a plain tensor, got rows that lost"):
        layer(x, (last.unsqueeze(0), mixed.unsqueeze(0)))

    def cell(a, state):
        return a + state, a + state

    tl.scan(cell, x, last)
    with pytest.raises(TypeError, match="scan: expected init as a LoDTensor or a plain tensor, got rows that lost"):
        tl.scan(cell, x, mixed)
    with pytest.raises(ValueError, match="scan: expected operands with equal LoDs, got LoDs that differ: at level 0"):
        tl.scan(cell, x, other)
    weight = torch.zeros(3, 12)
    with pytest.raises(
        TypeError, match="dynamic_lstm: expected h_0 as a LoDTensor or a plain tensor, got rows that lost"
    ):
        tl.paddle.dynamic_lstm(
            tl.from_lengths(torch.zeros(8, 12), [[3, 1, 4]]), weight, None, mixed, last.values(), use_peepholes=False
        )


class Accumulates(torch.nn.Module):
    """A cell that returns its own memory, which the next call writes to."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(8, 1))

    def forward(self, r, h):
        return torch.add(r, h, out=self.sums[: len(r)])


@pytest.mark.parametrize("cell", [Accumulates(), lambda r, h: h.add_(r)], ids=["a buffer", "the state"])
def test_outputs_that_a_later_step_writes_over(cell):
    y = tl.from_lengths(torch.arange(1.0, 7)[:, None], [[2, 1, 3]])
    with pytest.raises(ValueError, match=r"output 0 of step 0, which a later step changed in place; .*clone"):
        tl.scan(cell, y, torch.zeros(3, 1))
    with torch.inference_mode():
        z = tl.from_lengths(torch.arange(1.0, 7)[:, None], [[2, 1, 3]])
        out, _ = tl.scan(lambda r, h: h.add_(r), z, torch.zeros(3, 1))
    assert out.flatten().tolist() == [1, 3, 3, 4, 9, 15]


def test_a_state_changed_in_place_beside_outputs_of_their_own():
    y = tl.from_lengths(torch.arange(1.0, 7)[:, None], [[2, 1, 3]])
    out, last = tl.scan(lambda r, h: (h.clone(), h.add_(r)), y, torch.zeros(3, 1))
    assert out.flatten().tolist() == [0, 1, 0, 0, 4, 9] and last.flatten().tolist() == [3, 3, 15]
