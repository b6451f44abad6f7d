# SPDX-License-Identifier: Apache-2.0
"""Torch's own modules on LoDTensors: equal to a loop over the innermost sequences, forward and all gradients."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import torch_lod as tl

WIDTH, WORDS = 4, 7
STRUCTURES = {
    "one level": [[6, 3, 9]],
    "empties": [[0, 5, 0, 3, 7, 0]],
    "one sequence": [[6]],
    "all empty": [[0, 0]],
    "no sequence": [[]],
    "two levels": [[2, 0, 2], [3, 5, 0, 8]],
    "three levels": [[2, 1], [1, 0, 2], [4, 6, 3]],
    "single rows": [[1, 1, 2, 1]],
}


#: Whether torch knows the largest of norms.
HIGHEST = nn.LPPool1d(float("inf"), 2)(torch.tensor([[[1.0, 2.0]]])).item() == 2


@dataclass(frozen=True)
class Stock:
    """A module, and what it gives for the rows of one sequence, as rows: places of samples (channels, length) turned back."""

    make: Callable[[], nn.Module]
    #: Sequences that are shorter give no rows.
    least: int = 1
    ids: bool = False


def conv(*args, least, **kwargs):
    return Stock(lambda: nn.Conv1d(WIDTH, 6, *args, **kwargs), least)


def lifted(*args, least=1, **kwargs):
    return Stock(lambda: nn.ConvTranspose1d(WIDTH, 6, *args, **kwargs), least)


#: Of samples (channels, length).
SPATIAL = {
    "conv same": conv(3, padding="same", least=1),
    "conv same, even": conv(4, padding="same", least=1),
    "conv padded": conv(5, padding=2, groups=2, least=1),
    "conv valid": conv(3, least=3),
    "conv strided": conv(3, stride=2, padding=1, dilation=2, least=3),
    "conv in groups": conv(2, stride=3, groups=2, bias=False, least=2),
    "conv longer": conv(2, padding=2, least=1),
    "conv of one": conv(1, least=1),
    "conv replicate": conv(3, padding=1, padding_mode="replicate", least=1),
    "conv circular": conv(3, padding=1, padding_mode="circular", stride=2, least=1),
    "conv transposed": lifted(3),
    "conv transposed, strided": lifted(3, stride=2, padding=1, output_padding=1, groups=2),
    "conv transposed, dilated": lifted(2, dilation=3, padding=2, bias=False, least=2),
    "max pool": Stock(lambda: nn.MaxPool1d(2), 2),
    "max pool, overlapping": Stock(lambda: nn.MaxPool1d(3, 1, 1), 1),
    "max pool, dilated": Stock(lambda: nn.MaxPool1d(3, 2, dilation=2, ceil_mode=True), 4),
    "average pool": Stock(lambda: nn.AvgPool1d(3, 2, 1), 1),
    "max pool, beyond the end": Stock(lambda: nn.MaxPool1d(2, 2, 1, ceil_mode=True), 1),
    "average pool, beyond the end": Stock(lambda: nn.AvgPool1d(2, 2, 1, True), 1),
    "average pool, counted": Stock(lambda: nn.AvgPool1d(3, 2, 1, True, False), 1),
    "power pool": Stock(lambda: nn.LPPool1d(2, 3), 3),
    # some versions of torch answer 1
    **({"highest power pool": Stock(lambda: nn.LPPool1d(float("inf"), 2, 1), 2)} if HIGHEST else {}),
    "adaptive average": Stock(lambda: nn.AdaptiveAvgPool1d(3)),
    "adaptive max": Stock(lambda: nn.AdaptiveMaxPool1d(2)),
    "replicate": Stock(lambda: nn.ReplicationPad1d((2, 1))),
}
PER_ROW = {
    "linear": Stock(lambda: nn.Linear(WIDTH, 3)),
    "layer norm": Stock(lambda: nn.LayerNorm(WIDTH)),
    "rms norm": Stock(lambda: nn.RMSNorm(WIDTH)),
    "softmax": Stock(lambda: nn.Softmax(-1)),
    "log softmax": Stock(lambda: nn.LogSoftmax(1)),
    "embedding": Stock(lambda: nn.Embedding(WORDS, 5, padding_idx=2), ids=True),
    "prelu": Stock(lambda: nn.PReLU(WIDTH)),
    "glu": Stock(lambda: nn.GLU()),
    "bilinear": Stock(lambda: Twice(nn.Bilinear(WIDTH, WIDTH, 3))),
    "gru cell": Stock(lambda: nn.GRUCell(WIDTH, 3)),
    "rnn cell": Stock(lambda: nn.RNNCell(WIDTH, 3)),
    "lstm cell": Stock(lambda: nn.LSTMCell(WIDTH, 3)),
    "positions in the row": Stock(lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten(1))),
    "a sequence in every row": Stock(
        lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), First(nn.GRU(2, 3, batch_first=True)))
    ),
}


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, x)


class First(Twice):
    def forward(self, x):
        return self.inner(x)[0]


def rows_of(name, out):
    """The rows of what a module gives for one sequence."""
    return out.t() if name in SPATIAL else out


def given(lengths, ids=False, seed=0, device="cpu"):
    lod = tl.LoD.from_lengths(lengths, level_names=["a", "b", "c"][: len(lengths)])
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(lod.rows, WIDTH, generator=g, dtype=torch.float64)
    if ids:
        return lod, torch.randint(0, WORDS, (lod.rows,), generator=g).to(device)
    return lod, rows.to(device).requires_grad_()


def parts(lod, rows):
    ends = lod.row_offsets().tolist()
    return [rows[a:b] for a, b in itertools.pairwise(ends)]


def first(out):
    return out[0] if isinstance(out, tuple) else out


def gradients(out, leaves):
    """Of a sum of the results that weighs every element differently."""
    if not out.requires_grad:
        return [torch.zeros_like(t) for t in leaves]
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device).view(out.shape)
    found = torch.autograd.grad(out, leaves, weights, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, found)]


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def alone(module, *args):
    """What a module of torch makes of one sequence. cuDNN's recurrences have no backward in eval mode."""
    with torch.backends.cudnn.flags(enabled=module.training, allow_tf32=False):
        return module(*args)


each_structure = pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))


@each_structure
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", [*SPATIAL, *PER_ROW])
def test_equals_a_loop_over_sequences(name, train, lengths, device):
    stock = {**SPATIAL, **PER_ROW}[name]
    module = stock.make().double().train(train).to(device)
    lod, rows = given(lengths, stock.ids, device=device)
    x = tl.LoDTensor(rows, lod)
    out = first(module(x))
    expected, counts = [], []
    for part in parts(lod, rows):
        if name in PER_ROW:
            made = first(alone(module, part))
        elif len(part) >= stock.least:
            made = module(part.t()).t()
        else:  # an empty sequence takes part in what has as many rows for all of them
            made = rows.new_zeros((3 if "average" in name else 2) if "adaptive" in name else 0, out.shape[1])
        expected.append(made)
        counts.append(len(made))
    assert out.lod == tl.LoD.from_lengths([*lengths[:-1], counts]) and out.level_names == lod.level_names
    if expected:
        close(out.values(), torch.cat(expected))
    leaves = [*([] if stock.ids else [rows]), *module.parameters()]
    for got, want in zip(gradients(out.values(), leaves), gradients(torch.cat([*expected, out.values()[:0]]), leaves)):
        close(got, want)


# -- recurrences

RECURRENT = {
    "lstm": lambda **k: nn.LSTM(WIDTH, 3, **k),
    "gru": lambda **k: nn.GRU(WIDTH, 3, **k),
    "rnn_tanh": lambda **k: nn.RNN(WIDTH, 3, **k),
    "rnn_relu": lambda **k: nn.RNN(WIDTH, 3, nonlinearity="relu", **k),
}
OPTIONS = [
    {},
    {"batch_first": True},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "batch_first": True, "bias": False},
    {"num_layers": 2, "proj_size": 2, "bidirectional": True},
    {"num_layers": 1, "proj_size": 1, "bias": False, "batch_first": True},
    {"num_layers": 3, "dropout": 0.5, "bidirectional": True, "batch_first": True},
]


def states(kind, module, seed=1):
    g = torch.Generator().manual_seed(seed)
    layers, like = module.num_layers * (1 + module.bidirectional), module.weight_hh_l0
    drawn = [torch.randn(layers, n, generator=g, dtype=like.dtype) for n in (module.proj_size or 3, 3)]
    h, c = (t.to(like.device).requires_grad_() for t in drawn)
    return (h, c) if kind == "lstm" else h


@each_structure
@pytest.mark.parametrize(
    ("kind", "options"), [(k, o) for k in RECURRENT for o in OPTIONS if k == "lstm" or "proj_size" not in o], ids=str
)
@pytest.mark.parametrize("with_state", [False, True], ids=["from zeros", "from a state"])
def test_a_recurrence_equals_a_loop(kind, options, with_state, lengths, device):
    module = RECURRENT[kind](**options).double().train(not options.get("dropout")).to(device)
    lod, rows = given(lengths, device=device)
    hx = states(kind, module) if with_state else None
    out, last = module(tl.LoDTensor(rows, lod), hx)
    start = hx if with_state else [torch.zeros_like(t) for t in as_tuple(states(kind, module))]
    outs, ends = [], []
    for part in parts(lod, rows):
        done, end = (
            alone(module, part, hx)
            if len(part)
            else (out.values()[:0].detach(), start if kind == "lstm" else first_of(start))
        )
        outs.append(done)
        ends.append(as_tuple(end))
    assert out.lod is lod and all(type(t) is torch.Tensor for t in as_tuple(last))
    leaves = [rows, *module.parameters(), *(as_tuple(hx) if with_state else ())]
    if not outs:
        assert out.shape[0] == 0 and all(t.shape[1] == 0 for t in as_tuple(last))
        return
    pairs = [(out.values(), torch.cat(outs)), *zip(as_tuple(last), map(torch.stack, zip(*ends), itertools.repeat(1)))]
    for got, want in pairs:
        close(got, want)
        for a, b in zip(gradients(got, leaves), gradients(want, leaves)):
            close(a, b)


def as_tuple(states):
    return tuple(states) if isinstance(states, (tuple, list)) else (states,)


def first_of(states):
    return states[0] if isinstance(states, list) else states


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("batch_first", [False, True])
def test_dropout_between_layers_is_torchs(kind, batch_first):
    """The same draws for one sequence; of all of what a layer is given at p = 1."""
    _, rows = given([[6]])
    for p in (0.5, 1.0):
        module = RECURRENT[kind](num_layers=2, dropout=p, batch_first=batch_first).double()
        x = tl.LoDTensor(rows, tl.LoD.from_lengths([[6]]))
        torch.manual_seed(5)
        out = module(x)[0].values()
        torch.manual_seed(5)
        close(out, module(rows)[0])
        assert not torch.equal(out, module.eval()(rows)[0])


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_batch_of_rows_stays_a_batch(kind):
    """(rows, steps, features) with batch_first: every row is a sequence; a column of steps is the rows' own sequences."""
    module = RECURRENT[kind](batch_first=True).double()
    lod, rows = given([[2, 0], [1, 3]])
    wide = rows[:, None].repeat(1, 5, 1) * torch.arange(5)[:, None]
    out, last = module(tl.LoDTensor(wide, lod))
    want, end = module(wide)
    close(out.values(), want)
    assert out.lod is lod
    close(as_tuple(last)[0], as_tuple(end)[0])
    module.batch_first = False
    column, _ = module(tl.LoDTensor(rows[:, None], lod))
    close(column.values()[:, 0], torch.cat([module(part)[0] for part in parts(lod, rows)]))
    with pytest.raises(tl.LoDError, match=rf"{kind}: expected rows \(rows, features\), one step each"):
        module(tl.LoDTensor(wide, lod))


def test_recurrences_refuse_what_has_no_structure_of_its_own():
    lod, rows = given([[2, 2]])
    x, lstm = tl.LoDTensor(rows, lod), nn.LSTM(WIDTH, 3).double()
    flat = [p.detach() for p in lstm.parameters()]
    h = torch.zeros(1, 1, 3, dtype=torch.float64)
    column = x.unsqueeze(1)
    wrong = {
        "weights as plain tensors, got LoDTensor": lambda: torch.lstm(
            column, (h, h), [x, *flat[1:]], True, 1, 0.0, False, False, False
        ),
        "a LoDTensor as input": lambda: torch.lstm(
            rows[:, None], (h, h), [x, *flat[1:]], True, 1, 0.0, False, False, False
        ),
        "shape (1, 1 or 4, width), got (1, 2, 3)": lambda: torch.lstm(
            tl.LoDTensor(rows[:, None], lod), (h.expand(1, 2, 3), h), flat, True, 1, 0.0, False, False, True
        ),
        "initial states as plain tensors, got LoDTensor": lambda: torch.lstm(
            column, (x, h), flat, True, 1, 0.0, False, False, False
        ),
        "4 weights for each of 1": lambda: torch.lstm(column, (h, h), flat[:3], True, 1, 0.0, False, False, False),
        "initial states of shape (1, 1 or 2, width), got (3, 1, 3)": lambda: torch.lstm(
            column, (h.expand(3, 1, 3), h), flat, True, 1, 0.0, False, False, False
        ),
        "PackedSequence": lambda: torch.lstm(x, torch.tensor([4]), (h, h), flat, True, 1, 0.0, False, False),
        "with batch_first=False": lambda: torch.lstm(x[:, None, None], (h, h), flat, True, 1, 0.0, False, False, False),
    }
    for words, call in wrong.items():
        with pytest.raises(tl.LoDError) as caught:
            call()
        assert words in str(caught.value)
    own = h.expand(1, 2, 3) + torch.arange(2)[:, None]
    out, *_ = torch.lstm(column, (own, own), flat, True, 1, 0.0, False, False, False)
    close(out.values()[:2, 0], lstm(rows[:2], (own[:, 0], own[:, 0]))[0])
    close(out.values()[2:, 0], lstm(rows[2:], (own[:, 1], own[:, 1]))[0])


# -- one sample


def test_a_batch_of_one_keeps_the_structure():
    lod, rows = given([[2, 0, 3]])
    x = tl.LoDTensor(rows, lod)
    sample = x.unsqueeze(0)
    assert sample.shape == (1, 5, WIDTH) and sample.rows_dim == 1 and sample.lod is lod
    assert repr(sample).startswith(
        "DerivedTensor(tensor([[["
    ) and "at dim 1 through unsqueeze, lod=LoD([[2, 0, 3]]" in repr(sample)
    for back in (
        sample.squeeze(0),
        torch.squeeze(sample, 0),
        torch.squeeze(input=sample, dim=0),
        sample[0],
        sample.squeeze(),
    ):
        assert type(back) is tl.LoDTensor and back.lod is lod and torch.equal(back.values(), rows)
    module = nn.LSTM(WIDTH, 2, batch_first=True).double()
    out, (h, _) = module(sample)
    alone, (h_alone, _) = module(x)
    assert out.rows_dim == 1 and torch.equal(out[0].values(), alone.values()) and torch.equal(h.squeeze(1), h_alone)
    for call in (
        lambda: torch.cat([sample, rows[None]]) + x,
        lambda: nn.Conv1d(5, 2, 1).double()(sample),
        lambda: nn.GRU(WIDTH, 2).double()(sample),
        lambda: tl.sequence_pool(sample, "sum"),
        lambda: sample + rows,
    ):
        with pytest.raises(tl.LoDError):
            call()


# -- bags and instance norms


@each_structure
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"max_norm": 1.0}, {"include_last_offset": True}], ids=str)
def test_a_bag_for_every_sequence(mode, options, lengths, device):
    module = nn.EmbeddingBag(WORDS, 5, mode=mode, **options).double().to(device)
    lod, ids = given(lengths, ids=True, device=device)
    x = tl.LoDTensor(ids, lod)
    weighted = mode == "sum" and not options
    scale = torch.linspace(-1, 2, lod.rows, dtype=torch.float64, device=device).requires_grad_()
    out = module(x, per_sample_weights=tl.LoDTensor(scale, lod)) if weighted else module(x)
    own = iter(parts(lod, scale))
    bags = []
    for part in parts(lod, ids):
        weights = next(own)
        if len(part):
            bags.append(module(part[None], per_sample_weights=weights[None]) if weighted else module(part[None]))
        else:
            bags.append(torch.zeros(1, 5, dtype=torch.float64, device=device))
    assert getattr(out, "lod", None) == (tl.LoD.from_lengths(lengths[:-1]) if lengths[1:] else None)
    plain = out.values() if lengths[1:] else out
    expected = torch.cat([*bags, torch.zeros(0, 5, dtype=torch.float64, device=device)])
    close(plain, expected)
    leaves = [module.weight, *([scale] if weighted else [])]
    for got, want in zip(gradients(plain, leaves), gradients(expected, leaves)):
        close(got, want)


def test_bags_take_no_other_structure():
    lod, ids = given([[3, 2]], ids=True)
    x, bag = tl.LoDTensor(ids, lod), nn.EmbeddingBag(WORDS, 5, mode="sum")
    with pytest.raises(tl.LoDError, match="embedding_bag: expected no offsets with a LoDTensor"):
        bag(x, torch.tensor([0, 2]))
    with pytest.raises(tl.LoDError, match="equal LoDs"):
        bag(x, per_sample_weights=tl.LoDTensor(torch.ones(5), tl.LoD.from_lengths([[2, 3]])))
    with pytest.raises(tl.LoDError, match="expected a LoDTensor as input"):
        bag(ids, torch.tensor([0, 3]), tl.LoDTensor(torch.ones(5), lod))
    with pytest.raises(tl.LoDError, match="expected weight as a plain tensor"):
        nn.functional.embedding_bag(x, tl.LoDTensor(torch.ones(5, 3), lod))
    assert bag(x.int()).shape == (2, 5)
    wide = tl.LoDTensor(ids[:, None].repeat(1, 2), lod)
    close(bag(wide).values(), bag(wide.values()))
    assert bag(wide).lod is lod


@pytest.mark.filterwarnings("ignore:input's size at dim=0")
def test_instance_norm_is_that_of_every_sequence():
    module = nn.InstanceNorm1d(WIDTH)
    for lengths in STRUCTURES.values():
        lod, rows = given(lengths)
        out = module(tl.LoDTensor(rows, lod))
        # one row has no variance; torch refuses it
        expected = [module(part.t()).t() if len(part) > 1 else part * 0 for part in parts(lod, rows)]
        close(out.values(), torch.cat([*expected, rows[:0]]))
        close(nn.functional.instance_norm(tl.LoDTensor(rows, lod)).values(), out.values())
        assert out.lod is lod
    lod, rows = given([[2, 2]])
    with pytest.raises(tl.LoDError, match=r"tl\.sequence_normalize"):
        nn.InstanceNorm1d(WIDTH, track_running_stats=True).double()(tl.LoDTensor(rows, lod))
    affine = nn.InstanceNorm1d(WIDTH, affine=True).double()
    nn.init.normal_(affine.weight)
    sample = tl.LoDTensor(rows, lod)
    close(affine(sample).values(), tl.sequence_normalize(sample).values() * affine.weight + affine.bias)
    with pytest.raises(tl.LoDError, match="along the rows of all sequences"):  # torch takes these rows for channels
        nn.functional.instance_norm(sample.unsqueeze(0))


@pytest.mark.parametrize("lengths", [[[6, 3, 9]], [[2, 0, 2], [3, 5, 0, 8]]])
def test_batch_norm_takes_its_statistics_over_all_rows(lengths):
    lod, rows = given(lengths)
    ours, theirs = nn.BatchNorm1d(WIDTH).double(), nn.BatchNorm1d(WIDTH).double()
    for train in (True, False):
        ours.train(train), theirs.train(train)
        close(ours(tl.LoDTensor(rows, lod)).values(), theirs(rows))
    close(ours.running_var, theirs.running_var)


# -- windows


def test_indices_count_from_the_start_of_their_sequence():
    lod, rows = given([[6, 0, 1, 9]])
    for module in (nn.MaxPool1d(3, 2, 1, return_indices=True), nn.AdaptiveMaxPool1d(2, return_indices=True)):
        out, index = module(tl.LoDTensor(rows, lod))
        wanted = [module(part.t()) for part in parts(lod, rows) if len(part)]
        for got, want in zip((s for s in zip(out.sequences(), index.sequences()) if (s[1] >= 0).any()), wanted):
            assert torch.equal(got[0], want[0].t()) and torch.equal(got[1], want[1].t())
    assert (index.seq[1] == -1).all() and not out.seq[1].any()


def test_padding_modes_tell_sequences_that_are_too_short():
    lod, rows = given([[3, 0, 2, 4]])
    x = tl.LoDTensor(rows, lod)
    reflect = nn.ReflectionPad1d((1, 1))
    close(reflect(x).values(), torch.cat([reflect(part.t()).t() for part in parts(lod, rows) if len(part)]))
    with pytest.raises(
        tl.LoDError, match="pad: expected sequences long enough for reflect padding of 2 rows, got 2 in sequence 2"
    ):
        nn.ReflectionPad1d((2, 1))(x)
    with pytest.raises(tl.LoDError, match="circular padding of 3 rows, got 2 in sequence 2"):
        nn.functional.pad(x, (0, 3), mode="circular")
    assert nn.functional.pad(x, (1, 1, 0, 0)).shape == (9, WIDTH + 2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: nn.Conv1d(3, 2, 1).double()(x), "conv1d: expected rows of 3 channels, as weight, got (5, 4)"),
        (
            lambda x: nn.Conv1d(4, 2, 1)(x),
            "conv1d: expected weight of torch.float64 on cpu, as the rows, got torch.float32",
        ),
        (lambda x: torch.conv1d(x, torch.ones(2, 4)), "conv1d: expected weight of shape (out, in, size), got (2, 4)"),
        (lambda x: torch.conv1d(x, x), "conv1d: expected weight as a plain tensor, got a LoDTensor; see its .values()"),
        (
            lambda x: torch.conv1d(x, torch.ones(2, 4, 1).double(), padding="up"),
            "expected padding as a number, 'same' or 'valid'",
        ),
        (lambda x: torch.conv1d(x, torch.ones(2, 4, 1).double(), stride=0), "conv1d: expected stride in [1, "),
        (
            lambda x: torch.conv1d(x, torch.ones(2, 4, 2).double(), None, 2, "same"),
            "expected stride 1 with padding='same'",
        ),
        (
            lambda x: torch.conv1d(x, torch.ones(2, 4, 2).double(), torch.ones(3)),
            "expected a bias per channel of the result",
        ),
        (lambda x: torch.conv1d(x.long(), torch.ones(2, 4, 2).long()), "conv1d: expected x of a floating dtype"),
        (lambda x: torch.conv1d(x, torch.ones(2, 4, 1).double(), groups=0), "conv1d: expected groups >= 1, got 0"),
        (lambda x: torch.conv1d(x[:, 0], torch.ones(2, 4, 2)), "conv1d: expected a plain tensor, got a LoDTensor"),
        (
            lambda x: nn.ConvTranspose1d(4, 2, 2, output_padding=1).double()(x),
            "output_padding below stride or dilation",
        ),
        (lambda x: nn.MaxPool1d(2, padding=2)(x), "max_pool1d: expected padding of at most half the window, 1, got 2"),
        (lambda x: nn.AvgPool1d(0)(x), "avg_pool1d: expected kernel_size in [1, "),
        (lambda x: nn.AdaptiveAvgPool1d(-1)(x), "adaptive_avg_pool1d: expected output_size in [0, "),
        (
            lambda x: nn.functional.pad(x, (1,), mode="reflect"),
            "pad: expected pad as the rows before and after, got (1,)",
        ),
        (lambda x: nn.functional.pad(x, (1, 1), mode="around"), "pad: expected mode 'constant', "),
    ],
)
def test_windows_refuse(call, words):
    lod, rows = given([[3, 2]])
    with pytest.raises(tl.LoDError) as caught:
        call(tl.LoDTensor(rows, lod))
    assert words in str(caught.value)


def test_autocast_reaches_convolution_and_recurrence():
    lod, rows = given([[3, 0, 2]])
    x = tl.LoDTensor(rows.float(), lod)
    modules = nn.Conv1d(WIDTH, 3, 3), nn.Conv1d(WIDTH, 3, 3, padding=1), nn.LSTM(WIDTH, 3)
    for module in modules:
        with torch.autocast("cpu", torch.bfloat16):
            out = first(module(x))
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.values().float(), first(module(x)).values(), rtol=3e-2, atol=3e-2)


# -- no leaks


@pytest.mark.parametrize("name", [*SPATIAL, *PER_ROW, *RECURRENT, "instance norm"])
@pytest.mark.filterwarnings("ignore:input's size at dim=0")
def test_a_sequence_never_sees_another(name):
    table = {**SPATIAL, **PER_ROW, "instance norm": Stock(lambda: nn.InstanceNorm1d(WIDTH))}
    ids = name in table and table[name].ids
    module = (table[name].make() if name in table else RECURRENT[name](bidirectional=True)).double()
    lod, rows = given([[5, 6, 4]], ids)
    before = first(module(tl.LoDTensor(rows, lod)))
    other = rows.detach().clone()
    other[5:11] = 3 if ids else torch.nan
    after = first(module(tl.LoDTensor(other, lod)))
    for s in (0, 2):
        assert torch.equal(before.seq[s], after.seq[s])
    assert not torch.equal(before.seq[1], after.seq[1])


@pytest.mark.parametrize("name", [*SPATIAL, *RECURRENT])
def test_rows_may_lie_in_any_order_in_memory(name):
    module = (SPATIAL[name].make() if name in SPATIAL else RECURRENT[name](bidirectional=True)).double()
    lod, rows = given([[6, 0, 5]])
    spread = torch.stack([rows.detach().t(), rows.detach().t()], -1)[..., 1].t()
    assert not spread.is_contiguous()
    assert torch.equal(
        first(module(tl.LoDTensor(spread, lod))).values(), first(module(tl.LoDTensor(rows, lod))).values()
    )
