# SPDX-License-Identifier: Apache-2.0
"""FlopCounterMode counts our operators as torch counts the same products."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import torch_lod as tl
from torch_lod.ops import compositions

LENGTHS = [3, 0, 5, 1]


def counted(call) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def trained(call, *inputs):
    def run():
        result = call(*inputs)
        first = result if isinstance(result, torch.Tensor) else result[0]
        torch.autograd.grad(first.sum(), [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad])

    return run


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def layer(gates, features=4, hidden=6, projected=None):
    """The arguments of a recurrence up to its states: with a state, torch multiplies at the first step as well."""
    state = projected or hidden
    weights = leaf(gates * hidden, features), leaf(gates * hidden, state)
    return (leaf(sum(LENGTHS), features), *weights, None, None, leaf(len(LENGTHS), state))


def offsets():
    return torch.tensor([0, *LENGTHS]).cumsum(0)


RECURRENCES = {
    "rnn": lambda: (*layer(1), offsets()),
    "gru": lambda: (*layer(3), offsets(), True),
    "lstm": lambda: (*layer(4), leaf(len(LENGTHS), 6), offsets()),
    "lstm with a projection": lambda: (*layer(4, projected=2), leaf(len(LENGTHS), 6), offsets(), False, leaf(2, 6)),
}


@pytest.mark.parametrize("case", RECURRENCES)
@pytest.mark.parametrize("training", [False, True], ids=["forward", "and backward"])
def test_a_recurrence_counts_as_its_steps_do(case, training):
    name, inputs = case.split()[0], RECURRENCES[case]()
    ours, steps = getattr(tl.ops, name), compositions.COMPOSITIONS[name]
    if training:
        assert counted(trained(ours, *inputs)) == counted(trained(steps, *inputs)) > 0
    else:
        assert counted(lambda: ours(*inputs)) == counted(lambda: steps(*inputs)) > 0


def test_a_model_counts_as_on_one_sequence():
    rows, model = torch.randn(7, 4), torch.nn.LSTM(4, 6, num_layers=2, bidirectional=True)
    x = tl.from_lengths(rows, [[7]])
    both = 2 * 7 * (4 * 6 * (4 + 6) * 2 + 4 * 6 * (12 + 6) * 2)
    assert counted(lambda: model(x)) == both
    assert counted(lambda: model(x)[0].sum().backward()) == 3 * both
    assert counted(lambda: torch.nn.Linear(4, 6)(x)) == counted(lambda: torch.nn.Linear(4, 6)(rows)) == 2 * 7 * 4 * 6


@pytest.mark.parametrize("training", [False, True], ids=["forward", "and backward"])
def test_a_convolution_counts_as_its_windows_do(training):
    x, weight = leaf(sum(LENGTHS), 4), leaf(3, 4, 5)
    ours = counted(
        trained(tl.ops.segment_conv, x, weight, None, offsets(), -1)
        if training
        else lambda: tl.ops.segment_conv(x, weight, None, offsets(), -1)
    )
    windows, flat = leaf(sum(LENGTHS), 12), leaf(12, 5)
    assert ours == counted(trained(torch.mm, windows, flat) if training else lambda: windows @ flat) > 0


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("training", [False, True], ids=["forward", "and backward"])
def test_attention_counts_as_torchs_sequence_by_sequence(causal, training):
    heads = leaf(sum(LENGTHS), 2, 8), leaf(sum(LENGTHS), 2, 8), leaf(sum(LENGTHS), 2, 8)

    def ours():
        out = tl.ops.attention(*heads, offsets(), offsets(), right=0 if causal else -1)[0]
        if training:
            torch.autograd.grad(out.sum(), heads)

    one = [[(1, 2, length, 8)] * 3 for length in LENGTHS]
    torchs = sum(sdpa_flop_count(*shapes) for shapes in one)
    if training:
        torchs += sum(sdpa_backward_flop_count(shapes[0], *shapes) for shapes in one)
    assert counted(ours) == torchs > 0
    capped = counted(lambda: tl.ops.attention(*heads, offsets(), offsets(), softcap=2.0, sink=torch.zeros(2)))
    assert training or capped == torchs  # products alone


def test_a_window_counts_the_keys_that_it_may_hold():
    heads = torch.randn(sum(LENGTHS), 2, 8)
    within = counted(lambda: tl.ops.attention(heads, heads, heads, offsets(), offsets(), left=1, right=1))
    assert within == 2 * (3 * 3 + 5 * 3 + 1) * 2 * (8 + 8)


def test_fake_tensors_count_as_sequences_of_one_length():
    with torch._subclasses.FakeTensorMode():
        heads, three = torch.empty(12, 2, 8), torch.empty(4, dtype=torch.int64)
        assert counted(lambda: tl.ops.attention(heads, heads, heads, three, three)) == 2 * 12 * 4 * 2 * (8 + 8)
