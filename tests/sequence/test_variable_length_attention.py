# SPDX-License-Identifier: Apache-2.0
"""What torch's variable-length attention is given, for half types on a GPU, and when it runs."""

import pytest
import torch
from attended import KEYS, LENGTHS, batch, by_definition
from torch._subclasses import FakeTensorMode

import torch_lod as tl
from torch_lod.sequence import attend
from torch_lod.sequence.attend import _in_words, _library_takes


class In16Bytes(torch.autograd.Function):
    """A tensor, and its gradient, that torch's kernel reads in words of 16 bytes."""

    @staticmethod
    def forward(ctx, t):
        In16Bytes.check(t)
        return t.view_as(t)

    @staticmethod
    def backward(ctx, grad):
        In16Bytes.check(grad)
        return grad

    @staticmethod
    def check(t):
        assert t.stride(2) == 1 and t.stride(0) % 8 == t.stride(1) % 8 == t.data_ptr() % 16 == 0


def asks_for_groups(q, k, v, cuts, key_cuts, longest, longest_keys, *, scale, window_size, enable_gqa=False):
    """varlen_attn of torch 2.13, as far as it is used: sequence by sequence in host memory."""
    assert enable_gqa == (q.shape[1] != k.shape[1]) and cuts.dtype == key_cuts.dtype == torch.int32
    assert longest == int(cuts.diff().max()) and longest_keys == int(key_cuts.diff().max())
    assert all(-1 <= n < 2**31 for n in window_size)
    if q.shape[2] % 8 == 0:  # the others do not reach it
        q, k, v = (In16Bytes.apply(t) for t in (q, k, v))
    x, keys, values = (tl.from_cu_seqlens(t, of) for t, of in ((q, cuts), (k, key_cuts), (v, key_cuts)))
    out = by_definition(x, keys, values, 0, False, window_size, scale)
    return In16Bytes.apply(out) if q.shape[2] % 8 == 0 else out


def of_groups(q, k, v, cuts, key_cuts, longest, longest_keys, *, scale, window_size):
    """varlen_attn of torch 2.11, which has no argument for fewer heads of keys."""
    grouped = q.shape[1] != k.shape[1]
    return asks_for_groups(
        q, k, v, cuts, key_cuts, longest, longest_keys, scale=scale, window_size=window_size, enable_gqa=grouped
    )


@pytest.mark.parametrize("version", [asks_for_groups, of_groups], ids=["2.13", "2.11"])
@pytest.mark.parametrize("shared", [4, 2])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (2, 1)}, {"window": 2**40}], ids=str)
def test_what_torchs_variable_length_attention_is_given(options, shared, version, monkeypatch):
    q, (k, v) = batch(LENGTHS, 4, 5), (batch(KEYS, shared, 5, seed=seed) for seed in (1, 2))
    want = tl.sequence_attention(q, k, v, enable_gqa=True, **options)
    monkeypatch.setattr("torch_lod.sequence.attend._library_takes", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", version)
    got = tl.sequence_attention(q, k, v, enable_gqa=True, **options)
    torch.testing.assert_close(got.values(), want.values())


@pytest.mark.parametrize(
    ("lengths", "shared", "dtype", "width", "takes"),
    [
        ([3, 0, 2], 8, torch.float16, 64, True),
        ([3, 0, 2], 2, torch.bfloat16, 64, True),
        ([1, 1, 1], 2, torch.float16, 64, True),
        ([1, 0, 1], 8, torch.float16, 64, True),
        ([1, 0, 1], 2, torch.float16, 64, False),  # its kernel exchanges heads and queries
        ([3, 0, 2], 8, torch.float32, 64, False),
        ([3, 0, 2], 8, torch.float16, 60, False),
        ([3, 0, 2], 8, torch.float16, 264, False),
        ([0, 0], 8, torch.float16, 64, False),
    ],
)
def test_when_torchs_variable_length_attention_runs(lengths, shared, dtype, width, takes):
    lod = tl.LoD.from_lengths([lengths])
    with FakeTensorMode():
        q, v = (torch.empty(lod.rows, heads, width, device="cuda", dtype=dtype) for heads in (8, shared))
        assert _library_takes(q, v, (None,), lod, 0) == takes
        assert not _library_takes(q, v, (q,), lod, 0)


@pytest.fixture
def gpu(monkeypatch):
    """A function that says what the GPU is, as far as it is asked; afterwards there is none."""

    def be(capability, flash=True):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: flash)
        attend._library_runs.cache_clear()

    yield be
    attend._library_runs.cache_clear()


@pytest.mark.parametrize(
    ("capability", "flash", "takes"),
    [((7, 0), True, False), ((7, 5), True, False), ((8, 0), True, True), ((12, 0), True, True), ((9, 0), False, False)],
)
def test_where_torchs_variable_length_attention_runs(capability, flash, takes, gpu):
    gpu(capability, flash)
    lod = tl.LoD.from_lengths([[3, 2]])
    with FakeTensorMode():
        q = torch.empty(5, 8, 64, device="cuda", dtype=torch.float16)
        assert _library_takes(q, q, (None,), lod, 0) == takes


def odd_address(t):
    """In memory that begins 2 bytes behind a multiple of 16, and is not torch's."""
    memory = torch.empty(t.nbytes + 32, dtype=torch.uint8)
    behind = torch.frombuffer(memory.numpy(), dtype=t.dtype, count=t.numel(), offset=(2 - memory.data_ptr()) % 16)
    assert behind.storage_offset() == 0 and behind.data_ptr() % 16 == 2
    return behind.view(t.shape).copy_(t)


VIEWS = {
    "columns of a projection": lambda t: torch.cat((t.new_zeros(len(t), 4), t.flatten(1)), 1)[:, 4:].unflatten(
        1, t.shape[1:]
    ),
    "rows that are 72 apart": lambda t: torch.cat((t, t.new_zeros(len(t), t.shape[1], 1)), 2)[..., :-1],
    "heads turned": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "behind another": lambda t: torch.cat((t.new_zeros(1), t.flatten()))[1:].view(t.shape),
    "of another library": odd_address,
}


@pytest.mark.parametrize("turned", range(4), ids=["q", "k", "v", "gradient"])
@pytest.mark.parametrize("view", VIEWS)
def test_it_reads_words_of_16_bytes(view, turned, monkeypatch):
    monkeypatch.setattr("torch_lod.sequence.attend._library_takes", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", asks_for_groups)
    given = [batch(KEYS if i in (1, 2) else LENGTHS, 3, 16, seed=i) for i in range(4)]
    given = [x.with_values(x.values().to(torch.bfloat16)) for x in given]
    lods, rows = [x.lod for x in given], [x.values() for x in given]
    found = []
    for changed in (False, True):
        some = [VIEWS[view](t) if changed and i == turned else t.clone() for i, t in enumerate(rows)]
        leaves = [t.detach().requires_grad_() for t in some[:3]]
        out = tl.sequence_attention(*(tl.LoDTensor(t, lod) for t, lod in zip(leaves, lods)))
        found.append([out.values().detach(), *torch.autograd.grad(out.values(), leaves, some[3])])
    for got, want in zip(*found):
        assert torch.equal(got, want)


def test_it_is_given_no_copy_of_rows_that_fit(monkeypatch):
    seen = []
    monkeypatch.setattr("torch_lod.sequence.attend._library_takes", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda q, k, v, *_, **__: seen.extend((q, k, v)) or q)
    q, k, v = torch.randn(5, 3, 2, 16).to(torch.float16).unbind(1)  # of one projection
    tl.sequence_attention(*(tl.from_lengths(t, [[2, 3]]) for t in (q, k, v)))
    assert [t.data_ptr() for t in seen] == [t.data_ptr() for t in (q, k, v)]


@torch.library.custom_op("torch_lod_tests::reads_words", mutates_args={})
def reads_words(t: torch.Tensor) -> torch.Tensor:
    In16Bytes.check(t)
    return t.clone()


reads_words.register_fake(torch.empty_like)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("first", [4, 8])
def test_compiled_code_knows_the_offset(first, backend):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda t: reads_words(_in_words(t[:, first : first + 64].unflatten(1, (4, 16)))),
        backend=backend,
        fullgraph=True,
    )
    rows = torch.randn(5, 72).to(torch.bfloat16)
    assert torch.equal(compiled(rows).flatten(1), rows[:, first : first + 64])
