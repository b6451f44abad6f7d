# SPDX-License-Identifier: Apache-2.0
"""Calls at the edge of what is allowed, beside those of the tables: each was once answered wrongly by someone."""

import pytest
import torch

import torch_lod as tl

ops = torch.ops.torch_lod
OFFSETS = torch.tensor([0, 2, 5])


def two(lengths=(1, 2)):
    return tl.from_lengths(torch.ones(3), [list(lengths)])


#: Numbers that no float64 tells from their neighbours, or that addition changes.
EXACT = {
    torch.int64: [2**53 + 1, -(2**63), 2**63 - 1],
    torch.int32: [2**31 - 1],
    torch.uint8: [255],
    torch.bool: [True],
    torch.float16: [65504.0, -0.0],
    torch.float32: [2.0**-149, -0.0],
    torch.float64: [5e-324, -0.0, 1e308],
    torch.complex64: [2.0],
}


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("starts", [[1, 4], [4, 1]], ids=["in order", "not in order"])
def test_what_is_only_copied_and_filled_is_exact(dtype, starts):
    offsets = torch.tensor([0, 2, 3])
    for number in EXACT[dtype]:
        x = torch.tensor([number, 0, number], dtype=dtype)
        for of_values, of_fill in ((x, 0), (torch.zeros_like(x), number)):
            wanted = torch.full((6,), of_fill, dtype=dtype)
            for s, start in enumerate(starts):
                wanted[start : start + 2 - s] = of_values[offsets[s] : offsets[s + 1]]
            got = ops.scatter_runs(of_values, torch.tensor(starts), offsets, 6, 1, of_fill)
            zeros = not tl.ops.COMPILED and number == 0  # a sum of 0 and -0.0
            assert torch.equal(got, wanted) and (zeros or got.numpy().tobytes() == wanted.numpy().tobytes())
    if dtype == torch.int64:
        padded, _ = tl.from_lengths(torch.zeros(3, dtype=dtype), [[2, 1]]).to_padded(2**53 + 1)
        assert padded.tolist() == [[0, 0], [0, 2**53 + 1]]


def test_rows_that_meet_are_added_up_or_refused():
    meet = torch.tensor([3, 2]), torch.tensor([0, 2, 3]), 6
    assert ops.scatter_runs(torch.tensor([1, 2, 3]), *meet, -1, 9).tolist() == [9, 9, 5, 1, 9, 9]
    with pytest.raises(TypeError, match="scatter_runs: expected values of a floating or integer dtype"):
        ops.scatter_runs(torch.ones(3, dtype=torch.bool), *meet, -1)


@pytest.mark.parametrize("reduce", ["first", "last", "sum", "max"])
@pytest.mark.parametrize("offsets", [[1, 5], [0, 2], [0, 4, 3, 5]], ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_offsets_are_checked_with_and_without_gradient(reduce, offsets, grad):
    with pytest.raises(ValueError, match="row_offsets"):
        ops.segment_reduce(torch.ones(5, 3, requires_grad=grad), torch.tensor(offsets), reduce)


@pytest.mark.parametrize("count", [2, 5, 8, 9, 17, 40])
def test_offsets_that_fall_anywhere_are_named(count):
    """Registers look at several of them: also at the last of one beside the first of the next."""
    right = torch.arange(count + 1) * 2
    for at in range(1, count):
        offsets = right.clone()
        offsets[at] = 2 * at - 3
        message = f"row_offsets not to decrease, got {2 * at - 2} then {2 * at - 3} at index {at}"
        with pytest.raises(ValueError, match=message):
            tl.ops.segment_reduce(torch.ones(2 * count, 1), offsets, "sum")
        offsets[at] = 2 * at + 3
        message = f"row_offsets not to decrease, got {2 * at + 3} then {2 * at + 2} at index {at + 1}"
        with pytest.raises(ValueError, match=message):
            tl.ops.segment_reduce(torch.ones(2 * count, 1), offsets, "sum")
        offsets[at] = 2 * at + 1
        assert tl.ops.segment_reduce(torch.ones(2 * count, 1), offsets, "sum")[:, 0].tolist() == offsets.diff().tolist()
    for far in (-(2**63), 2**63 - 1):  # differences wrap
        offsets = right.clone()
        offsets[count // 2] = far
        with pytest.raises(ValueError, match="row_offsets not to decrease"):
            tl.ops.segment_reduce(torch.ones(2 * count, 1), offsets, "sum")


@pytest.mark.parametrize("dtype, pad", [(torch.int8, 300), (torch.uint8, -1), (torch.int16, 1e9), (torch.int32, 9e15)])
@pytest.mark.parametrize("reduce", ["sum", "max", "first"])
def test_a_pad_value_must_fit_the_dtype(dtype, pad, reduce):
    with pytest.raises(ValueError, match="pad_value"):
        ops.segment_reduce(torch.ones(2, dtype=dtype), torch.tensor([0, 2, 2]), reduce, pad)


@pytest.mark.parametrize(
    "call", [lambda x: ops.gather_rows(x, torch.tensor([1, 1, -1])), lambda x: ops.segment_reduce(x, OFFSETS, "last")]
)
def test_copies_of_complex_rows_have_a_gradient(call):
    assert torch.autograd.gradcheck(call, torch.randn(5, 2, dtype=torch.complex128, requires_grad=True))


def test_backward_operators_refuse_to_be_differentiated():
    x, w, u = torch.randn(5, 2), torch.randn(9, 2), torch.randn(9, 3)
    out, saved = ops.gru(x, w, u, None, None, None, OFFSETS, False)
    call = lambda u: ops.gru_backward(out, x, w, u, None, OFFSETS, False, out, saved)  # noqa: E731
    call(u)
    if tl.ops.COMPILED:
        with pytest.raises(NotImplementedError, match="gru_backward: has no gradient of its own"):
            call(u.requires_grad_())


RECURRENT = {
    "rnn": lambda x, w, h: tl.ops.rnn(x, w, h, None, None, None, torch.zeros(1, dtype=torch.int64)),
    "gru": lambda x, w, h: tl.ops.gru(x, w, h, None, None, None, torch.zeros(1, dtype=torch.int64))[0],
    "lstm": lambda x, w, h: tl.ops.lstm(x, w, h, None, None, None, None, torch.zeros(1, dtype=torch.int64))[0],
}


@pytest.mark.parametrize("name", RECURRENT)
def test_a_batch_without_rows_has_gradients_of_any_order(name):
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[name]
    leaves = [torch.randn(s, requires_grad=True) for s in ((0, 3), (4 * gates, 3), (4 * gates, 4))]
    for create_graph in (False, True):
        found = torch.autograd.grad(RECURRENT[name](*leaves).sum(), leaves, create_graph=create_graph)
        assert all(torch.equal(g, torch.zeros_like(t)) for g, t in zip(found, leaves, strict=True))
    if tl.ops.COMPILED:  # a composition that records nothing leaves no graph of its gradients
        again = torch.autograd.grad(sum(g.square().sum() for g in found), leaves)
        assert all(torch.equal(g, torch.zeros_like(t)) for g, t in zip(again, leaves, strict=True))


def test_the_farthest_windows_have_gradients():
    offsets, far = torch.tensor([0, 1]), 2**40
    fold, unfold, conv = tl.ops.segment_fold, tl.ops.segment_unfold, tl.ops.segment_conv
    for size in (0, 2**20 + 1):  # (size - 1) * dilation would not be an int64
        with pytest.raises(ValueError, match=rf"segment_fold: expected size in \[1, 2\*\*20\], got {size}"):
            fold(torch.zeros(1, size), offsets, 0, far)
    for start, seen in ((-far, [1]), (far, [])):  # from -far on, the window's second row is its own
        x = torch.ones(1, 2**20, requires_grad=True)
        windows = (
            torch.autograd.grad(fold(x, offsets, start, far).sum(), x)[0],
            unfold(torch.ones(1), offsets, 2**20, start, far),
        )
        assert all(t[0].nonzero().flatten().tolist() == seen for t in windows)
    x, weight = torch.ones(1, 1, requires_grad=True), torch.ones(3, 1, 1, requires_grad=True)
    for start, dilation in ((0, far // 2), (-far, far), (far - 2, 1)):
        out = conv(x, weight, None, offsets, start, dilation)
        first = torch.autograd.grad(out.sum(), (x, weight), create_graph=True)
        torch.autograd.grad(first[0].sum() + first[1].sum(), (x, weight), allow_unused=True)
    for start, dilation in ((0, far // 2 + 1), (far, 1)):
        with pytest.raises(ValueError, match=r"segment_conv: expected start \+ \(size - 1\) \* dilation in \[-2"):
            conv(x, weight, None, offsets, start, dilation)
        with pytest.raises(ValueError, match=r"segment_conv_weight: expected start \+ \(size - 1\) \* dilation in"):
            torch.ops.torch_lod.segment_conv_weight(x, x, offsets, 3, start, dilation)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_has_its_way_back(side):
    x = tl.from_lengths(torch.randn(6, 2), [[2, 0, 4]])
    dense, lengths = x.to_padded(float("nan"), side=side)
    assert torch.equal(tl.from_padded(dense, lengths, side=side).values(), x.values())


def test_a_batch_of_empty_documents_keeps_its_depth():
    x = tl.lod_tensor([[], []], level_names=("article", "sentence"), dtype=torch.int64)
    assert x.recursive_sequence_lengths() == [[0, 0], []] and x.dtype == torch.int64


def test_tensors_of_different_structure_do_not_meet_in_silence():
    x, z = two(), two((2, 1))
    whole = two()
    for call in (
        lambda: torch.equal(x, z),
        lambda: torch.allclose(x, z),
        lambda: torch.stack([x, z]),
        lambda: whole.__setitem__(slice(None), z),
        lambda: x[z > 0],
    ):
        with pytest.raises(tl.LoDError, match="sequence 0: lengths"):
            call()
    assert torch.equal(x, two()) and torch.stack([x, two()]).rows_dim == 1
    with pytest.raises(TypeError, match="gradient"):
        torch.gradient(x, dim=0)


def test_level_names_survive_an_operand_without_them():
    named = tl.LoDTensor(torch.ones(3), tl.LoD.from_lengths([[1, 2]], level_names=("a",)))
    other = tl.LoDTensor(torch.ones(3), tl.LoD.from_lengths([[1, 2]]))
    assert (named + other).level_names == (other + named).level_names == ("a",)


def test_messages_show_the_way_out():
    x = tl.from_lengths(torch.randn(3, 4), [[1, 2]])
    deep = tl.from_lengths(torch.randn(3, 4), [[2], [1, 2]])
    for call, words in (
        (lambda: tl.sequence_pool(x, "sum", "sentence"), "level='sentence'"),
        (lambda: x + deep, "tl.sequence_expand_as"),
        (lambda: x + x.flip(1).view(-1)[:4], "x.to_padded()"),
        (lambda: torch.nn.Conv2d(3, 3, 1)(x), "to_padded"),
        (lambda: tl.lod_tensor([torch.ones(2)]), "tl.from_tensors"),
        (lambda: tl.from_padded(torch.ones(2, 3), mask=torch.ones(2, 3)), "mask.bool()"),
        (lambda: tl.from_nested(torch.nested.nested_tensor([torch.ones(2)])), "torch.jagged"),
    ):
        with pytest.raises(tl.LoDError) as caught:
            call()
        assert words in str(caught.value), str(caught.value)
