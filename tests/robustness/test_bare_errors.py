# SPDX-License-Identifier: Apache-2.0
"""Calls that once ended in an error of another library's own: each ends in a LoDError that says what to write, or in the
right result."""

import re

import numpy as np
import pytest
import torch
import torch.ao.nn.quantized.dynamic as quantized
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.masked import masked_tensor
from torch.nn.attention.flex_attention import flex_attention

import torch_lod as tl

V = torch.arange(10.0).view(5, 2)
META, HEADS = V.to("meta"), torch.arange(20.0).view(5, 2, 2)
LOD = tl.LoD.from_lengths([[2, 3]])
EMPTY = tl.from_lengths(torch.tensor([1, 2, 3]), [[1, 0, 2]])
BIG = 2**53 + 1  # no float64


pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
]


def x():
    return tl.LoDTensor(V.clone(), LOD)


def meta():
    return tl.LoDTensor(META, LOD)


def ids(on="cpu"):
    return tl.LoDTensor(torch.arange(5).to(on) % 2, LOD)


def wrapped():
    return masked_tensor(V, V > 2)


def bare():
    return torch.zeros(5, 2).as_subclass(tl.LoDTensor)


def assigned():
    x().seq[1] = V[2:]


def deleted():
    del x().seq[1]


def subclassed():
    class Own(tl.LoDTensor):
        pass


def in_fake_mode(call):
    with FakeTensorMode():
        return call()


def unsigned(dtype, *numbers):
    return tl.from_lengths(torch.tensor(numbers, dtype=torch.int64).to(dtype), [[2, 3]])


NO_LOD = "LoDTensor: expected a LoDTensor that has a structure, got one without, as as_subclass makes it"
DISPATCH = "as a plain tensor, got a {}, which has a __torch_dispatch__; pass the tensor inside it"
FAKE, WRAPPED = DISPATCH.format("FakeTensor"), DISPATCH.format("MaskedTensor")
NO_OUT = ": expected out as an array, got a {}: numpy writes into x.values().numpy(), torch's functions in place"
DEVICES = ": expected tensors on one device, got {} at index 0 and {} at index 1"
NO_FLEX = "flex_attention: expected plain tensors (batch, heads, length, width), got a {}: queries would attend to the keys of"
PACKED = (
    ": expected a padded batch or a PackedSequence, which quantized layers take, got a {}; pass x.to_packed_sequence()"
)
NO_DATA = " with data, got a meta tensor: the sizes of the result depend on its entries"

REFUSED = {
    "from_lengths of fake tensors": (
        lambda: in_fake_mode(lambda: tl.from_lengths(V, [[2, 3]])),
        f"from_lengths: expected lengths {FAKE}",
    ),
    "a LoD of fake tensors": (
        lambda: in_fake_mode(lambda: tl.LoD([[0, 2]])),
        f"LoD: expected offsets {FAKE}, and make LoDTensors outside of FakeTensorMode (for shapes alone, on device='meta')",
    ),
    "fake values": (
        lambda: in_fake_mode(lambda: tl.LoDTensor(torch.ones(5), LOD)),
        f"LoDTensor: expected values {FAKE}",
    ),
    "fake zeros": (lambda: in_fake_mode(lambda: tl.zeros(LOD)), f"zeros: expected values {FAKE}"),
    "wrapped values": (lambda: tl.LoDTensor(wrapped(), LOD), f"LoDTensor: expected values {WRAPPED}"),
    "other wrapped values": (lambda: x().with_values(wrapped()), f"with_values: expected values {WRAPPED}"),
    "from_lengths of wrapped values": (
        lambda: tl.from_lengths(wrapped(), [[2, 3]]),
        f"from_lengths: expected values {WRAPPED}",
    ),
    "from_tensors of wrapped values": (
        lambda: tl.from_tensors([wrapped()]),
        f"from_tensors: expected tensors {WRAPPED}",
    ),
    "from_padded of wrapped values": (
        lambda: tl.from_padded(wrapped()[None], [3]),
        f"from_padded: expected dense {WRAPPED}",
    ),
    "a batch of wrapped values": (lambda: tl.batch([wrapped(), wrapped()]), f"batch: expected tensors {WRAPPED}"),
    "wrapped lengths": (
        lambda: tl.from_lengths(V, [masked_tensor(torch.tensor([2, 3]), torch.tensor([True, True]))]),
        f"from_lengths: expected lengths[0] {WRAPPED}",
    ),
    "a wrapped mask": (lambda: x().filter_rows(wrapped()[:, 0] > 2), f"filter_rows: expected mask {WRAPPED}"),
    "numpy.add into rows": (lambda: np.add(x(), 1, out=x()), "numpy.add" + NO_OUT.format("LoDTensor")),
    "numpy.multiply into rows": (
        lambda: np.multiply(V.numpy(), 2, out=x()),
        "numpy.multiply" + NO_OUT.format("LoDTensor"),
    ),
    "numpy.matmul into rows": (
        lambda: np.matmul(x(), np.eye(2, dtype=np.float32), out=x()),
        "numpy.matmul" + NO_OUT.format("LoDTensor"),
    ),
    "numpy.exp into rows elsewhere": (
        lambda: np.exp(V.numpy().T, out=x().t()),
        "numpy.exp" + NO_OUT.format("DerivedTensor"),
    ),
    "as_subclass, repr": (lambda: repr(bare()), NO_LOD),
    "as_subclass, lod": (lambda: bare().lod, NO_LOD),
    "as_subclass, pickle": (lambda: bare().__reduce_ex__(2), NO_LOD),
    "as_subclass, an operator": (lambda: bare() + 1, NO_LOD),
    "as_subclass, the other operand": (lambda: x() + bare(), NO_LOD),
    "as_subclass, a function": (lambda: torch.relu(bare()), NO_LOD),
    "as_subclass, a row": (lambda: bare()[0], NO_LOD),
    "as_subclass, an operator of ours": (
        lambda: tl.sequence_pool(bare(), "sum"),
        "sequence_pool: expected a LoDTensor that has a structure",
    ),
    "as_subclass of rows elsewhere": (
        lambda: torch.relu(torch.zeros(2).as_subclass(type(x().t()))),
        "DerivedTensor: expected a DerivedTensor that has a structure, got one without",
    ),
    "a subclass": (subclassed, "LoDTensor: expected no subclass, got Own: functions of LoDTensors give LoDTensors"),
    "an assignment to sequences": (assigned, "seq: expected x.seq to be read, got an assignment: x.seq[1].copy_(t)"),
    "a deletion of sequences": (
        deleted,
        "seq: expected x.seq to be read, got a deletion: x.seq[mask] is a batch without",
    ),
    "cat of two devices": (lambda: tl.cat([x(), meta()]), "cat" + DEVICES.format("cpu", "meta")),
    "cat within of two devices": (
        lambda: tl.cat([meta(), x()], "within", level=-1),
        "cat" + DEVICES.format("meta", "cpu"),
    ),
    "cat of features of two devices": (
        lambda: tl.cat([x(), meta()], "features"),
        "cat" + DEVICES.format("cpu", "meta"),
    ),
    "stack of two devices": (lambda: tl.stack([x(), meta()]), "stack" + DEVICES.format("cpu", "meta")),
    "sequence_concat of two devices": (
        lambda: tl.paddle.sequence_concat([x(), meta()]),
        "sequence_concat" + DEVICES.format("cpu", "meta"),
    ),
    "flex_attention of rows": (lambda: flex_attention(*[tl.LoDTensor(HEADS, LOD)] * 3), NO_FLEX.format("LoDTensor")),
    "flex_attention of a batch of one": (
        lambda: flex_attention(*[tl.LoDTensor(HEADS, LOD)[None].transpose(1, 2)] * 3),
        NO_FLEX.format("DerivedTensor"),
    ),
    "a quantized LSTM": (lambda: quantized.LSTM(2, 3)(x()), "LSTM" + PACKED.format("LoDTensor")),
    "a quantized GRU": (lambda: quantized.GRU(2, 3)(input=x()), "GRU" + PACKED.format("LoDTensor")),
    "a quantized LSTM, batch first": (
        lambda: quantized.LSTM(2, 3, batch_first=True)(x()[None]),
        "LSTM" + PACKED.format("DerivedTensor"),
    ),
    "a mask without data": (lambda: x().filter_rows(META[:, 0] > 0), "filter_rows: expected mask" + NO_DATA),
    "a mask of sequences without data": (lambda: x().seq[META[:2, 0] > 0], "seq: expected mask" + NO_DATA),
    "a mask of padding without data": (
        lambda: tl.from_padded(V, mask=META > 0),
        "from_padded: expected mask" + NO_DATA,
    ),
    "ctc_decode without data": (lambda: tl.ctc_decode(meta()), "ctc_decode: expected x" + NO_DATA),
    "ctc_beam_decode without data": (lambda: tl.ctc_beam_decode(meta()), "ctc_beam_decode: expected x" + NO_DATA),
    "sequence_erase without data": (
        lambda: tl.paddle.sequence_erase(ids("meta"), [1]),
        "sequence_erase: expected x" + NO_DATA,
    ),
    "sequence_mask without data": (
        lambda: tl.paddle.sequence_mask(ids("meta").values()),
        "sequence_mask: expected lengths" + NO_DATA,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, said = REFUSED[name]
    with pytest.raises(tl.LoDError) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_on_the_device_meta(dtype):
    """As on the device cpu, but for the numbers."""

    def results(on):
        rows = tl.LoDTensor(V.to(on, dtype), LOD)
        given = {"device": on, "dtype": dtype}
        yield tl.nn.LSTM(2, 3, **given)(rows)[0]
        yield tl.nn.GRU(2, 3, bidirectional=True, **given)(rows)[0]
        yield nn.LSTM(2, 3, **given)(rows)[0]
        yield nn.RNN(2, 3, **given)(rows)[0]
        yield tl.sequence_attention(rows, rows, rows, causal=True)
        yield F.scaled_dot_product_attention(rows, rows, rows)
        yield nn.MultiheadAttention(2, 1, **given)(rows, rows, rows)[0]
        yield nn.TransformerEncoderLayer(2, 1, 4, **given)(rows)
        yield nn.Conv1d(2, 4, 3, padding=1, **given)(rows.t()).t()
        yield tl.sequence_conv1d(rows, torch.ones(4, 2, 3, **given))
        yield tl.nn.LinearChainCRF(2).to(on)(rows, ids(on))

    for found, expected in zip(results("meta"), results("cpu"), strict=True):
        assert found.device.type == "meta" and found.shape == expected.shape and found.dtype == expected.dtype
        assert getattr(found, "lod", None) == getattr(expected, "lod", None)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers_are_sorted(dtype):
    most = torch.iinfo(dtype).max if dtype != torch.uint64 else 2**63 - 1
    t = unsigned(dtype, 3, 1, most, 7, 0)
    assert tl.sequence_sort(t).values().tolist() == [1, 3, 0, 7, most]
    assert tl.sequence_sort(t, descending=True).values().tolist() == [3, 1, most, 7, 0]
    found, rows = tl.sequence_topk(t, 3, padding_value=5)
    assert found.dtype == dtype and found.tolist() == [[3, 1, 5], [most, 7, 0]]
    assert rows.tolist() == [[0, 1, -1], [2, 3, 4]]


WHOLE = {
    "sum": lambda v: tl.sequence_pool(EMPTY, "sum", padding_value=v)[1],
    "max": lambda v: tl.sequence_pool(EMPTY, "max", padding_value=v)[1],
    "prod": lambda v: tl.sequence_pool(EMPTY, "prod", padding_value=v)[1],
    "last": lambda v: tl.sequence_pool(EMPTY, "last", padding_value=v)[1],
    "max with its index": lambda v: tl.sequence_pool(EMPTY, "max", padding_value=v, return_index=True)[0][1],
    "first_step": lambda v: tl.paddle.sequence_first_step(EMPTY, padding_value=v)[1],
    "to_padded": lambda v: EMPTY.to_padded(v)[0][1, 0],
    "nth": lambda v: EMPTY.nth(0, padding_value=v)[1],
    "shift": lambda v: tl.sequence_shift(EMPTY, 1, v).values()[0],
    "topk": lambda v: tl.sequence_topk(EMPTY, 1, padding_value=v)[0][1, 0],
    "enumerate": lambda v: tl.paddle.sequence_enumerate(EMPTY, 2, padding_value=v).values()[0, 1],
}


@pytest.mark.parametrize("value", [BIG, -BIG, 2**63 - 1, -(2**63), 9 * 10**15, 9 * 10**15 + 1])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_padding_values_are_exact(name, value):
    assert WHOLE[name](value).item() == value


def test_other_results_of_padded_pools_stay():
    found, index = tl.sequence_pool(EMPTY, "max", padding_value=BIG, return_index=True)
    assert found.tolist() == [1, BIG, 3] and index.tolist() == [0, -1, 2]


def test_what_the_messages_say_to_write():
    t = x()
    np.add(t.values().numpy(), 1, out=t.values().numpy())
    assert t.values().tolist() == (V + 1).tolist()
    t.seq[1].copy_(torch.zeros(3, 2))
    t.seq[0:1].copy_(torch.ones(2, 2))
    for i in (0, 1, -1):
        with pytest.raises(TypeError) as caught:
            t.seq[i] = V[:1]
        advice = re.search(r"of another length, (tl\.cat\(.*\));", str(caught.value))[1]
        changed = eval(advice, {"tl": tl, "x": t, "t": V[:1]})
        assert changed.lengths().tolist() == [1 if s == i % 2 else len(t.seq[s]) for s in range(2)]
        assert torch.equal(changed.seq[i], V[:1])
    assert t.values().tolist() == [[1, 1]] * 2 + [[0, 0]] * 3
    layer = quantized.LSTM(2, 3)
    out = tl.from_packed_sequence(layer(t.to_packed_sequence())[0])
    assert out.lod == t.lod
    packed = nn.utils.rnn.pack_sequence(t.unbind_sequences(), enforce_sorted=False)
    assert torch.equal(out.values()[2:], nn.utils.rnn.pad_packed_sequence(layer(packed)[0])[0][:, 1])
    rows = tl.LoDTensor(HEADS, LOD)
    torch.testing.assert_close(
        tl.sequence_attention(rows, rows, rows).seq[1].transpose(0, 1)[None],
        flex_attention(*[rows.seq[1].transpose(0, 1)[None]] * 3),
    )


def test_numpy_takes_a_condition_of_rows():
    out = np.zeros((5, 2), np.float32)
    assert np.add(V.numpy(), 1, out=out, where=x() > 2) is out
    assert out.tolist() == torch.where(V > 2, V + 1, 0).tolist()


def test_nested_is_no_lod_tensor():
    assert x().is_nested is False and x().t().is_nested is False
