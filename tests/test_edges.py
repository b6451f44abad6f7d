# SPDX-License-Identifier: Apache-2.0
"""Calls at the edge of what is allowed, beside those of the tables: each was once answered wrongly by someone."""

import subprocess
import sys

import pytest
import torch

import torch_lod as tl

ops = torch.ops.torch_lod
OFFSETS = torch.tensor([0, 2, 5])


def two(lengths=(1, 2)):
    return tl.from_lengths(torch.ones(3), [list(lengths)])


def test_a_tensor_without_memory_behind_it_is_refused():
    code = (
        "import torch, torch_lod\n"
        "q = torch.ones(5, 3); part = torch.ones(5, 6)[:, 3:]; heads = torch.ones(5, 2, 6).split(3, 2)\n"
        "for t in (q, part, heads[0]): t.untyped_storage().resize_(0)\n"
        "o = torch.ops.torch_lod\n"
        "for call in (lambda: o.segment_reduce(q, torch.tensor([0, 5]), 'sum'), lambda: o.segment_softmax(q, torch.tensor([0, 5])),\n"
        "             lambda: o.gather_rows(q, torch.tensor([0, 4])), lambda: o.scatter_rows(q, torch.arange(5), 5),\n"
        "             lambda: o.gather_rows(part, torch.tensor([4])), lambda: o.segment_softmax(part, torch.tensor([0, 5])),\n"
        "             lambda: o.attention(*[heads[1]] * 3, *[torch.tensor([0, 5])] * 2)):\n"
        "    try:\n"
        "        call(); print('returned')\n"
        "    except ValueError as error:\n"
        "        print('memory behind' in str(error))\n"
    )
    if tl.ops.COMPILED:  # what torch's own operators do with such a tensor is torch's
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        assert done.stdout.split() == ["True"] * 7, done.stderr


@pytest.mark.parametrize("reduce", ["first", "last", "sum", "max"])
@pytest.mark.parametrize("offsets", [[1, 5], [0, 2], [0, 4, 3, 5]], ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_offsets_are_checked_with_and_without_gradient(reduce, offsets, grad):
    with pytest.raises(ValueError, match="row_offsets"):
        ops.segment_reduce(torch.ones(5, 3, requires_grad=grad), torch.tensor(offsets), reduce)


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
