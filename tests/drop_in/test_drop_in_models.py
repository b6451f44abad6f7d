# SPDX-License-Identifier: Apache-2.0
"""Models written for plain tensors, losses and the tools of training, given LoDTensors: equal to a loop over sequences."""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_drop_in_modules import close, given, gradients, parts
from torch import nn

import torch_lod as tl

LENGTHS = [[2, 0, 1], [6, 8, 5]]


def texts(seed=0):
    """Two levels of sequences of at least 5 ids."""
    lod = tl.LoD.from_lengths(LENGTHS)
    return tl.LoDTensor(torch.randint(0, 30, (lod.rows,), generator=torch.Generator().manual_seed(seed)), lod)


def same_gradients(got, want, module):
    for a, b in zip(gradients(got, list(module.parameters())), gradients(want, list(module.parameters()))):
        close(a, b)


# -- models


class LanguageModel(nn.Module):
    """As the word language model of PyTorch's examples is built: embedding, LSTM, decoder, dropout between them."""

    def __init__(self, words=30, width=6, hidden=6, layers=2, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embed = nn.Embedding(words, width)
        self.recur = nn.LSTM(width, hidden, layers, dropout=dropout)
        self.decode = nn.Linear(hidden, words)
        self.decode.weight = self.embed.weight

    def forward(self, ids, state=None):
        out, state = self.recur(self.drop(self.embed(ids)), state)
        scores = self.decode(self.drop(out))
        return F.log_softmax(scores.view(-1, scores.shape[-1]), dim=1), state


def test_a_word_language_model_runs_unchanged():
    """What its user changes: the state that is handed in is one for all sequences, (layers, hidden), or left out."""
    model, x = LanguageModel().double().eval(), texts()
    state = torch.randn(2, 2, 6, dtype=torch.float64).unbind()
    for given_state in (None, state):
        scores, (h, _) = model(x, given_state)
        each = [model(part, given_state) for part in parts(x.lod, x.values())]
        assert scores.lod is x.lod and h.shape == (2, 3, 6)
        close(scores.values(), torch.cat([s for s, _ in each]))
        close(h, torch.stack([h for _, (h, _) in each], 1))
        targets = texts(1)
        loss = tl.sequence_loss(F.nll_loss(scores, targets, reduction="none"))
        want = F.nll_loss(torch.cat([s for s, _ in each]), targets.values())
        close(loss, want)
        same_gradients(loss, want, model)
    torch.manual_seed(3)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(tl.sequence_loss(F.nll_loss(model(x)[0], texts(1), reduction="none"), "sequence"))
        losses[-1].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


class TextConvolution(nn.Module):
    """Convolutions of several sizes over word vectors, the largest response of each, a linear layer: Kim 2014."""

    def __init__(self, words=30, width=6, sizes=(3, 4, 5), channels=4, classes=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, channels, size) for size in sizes)
        self.largest = nn.AdaptiveMaxPool1d(1)
        self.drop = nn.Dropout(0.5)
        self.classify = nn.Linear(channels * len(sizes), classes)

    def places_last(self, vectors):
        """Samples (channels, length), as torch.nn's convolutions take them."""
        return vectors.transpose(-1, -2)

    def forward(self, ids):
        vectors = self.places_last(self.embed(ids))
        found = [self.largest(conv(vectors).relu()).squeeze(-1) for conv in self.convs]
        return self.classify(self.drop(torch.cat(found, -1)))


class OnRows(TextConvolution):
    def places_last(self, vectors):
        """What its user changes: the channels of rows are last, and stay there."""
        return vectors


def test_a_text_convolution_runs_on_rows():
    theirs = TextConvolution().double()
    ours = OnRows().double()
    ours.load_state_dict(theirs.state_dict())
    theirs.eval(), ours.eval()
    x = texts()
    scores = ours(x)
    assert scores.lod.to_lengths() == [[2, 0, 1], [1, 1, 1]]  # a row for every sequence
    want = torch.stack([theirs(part) for part in parts(x.lod, x.values())])
    close(scores.values(), want)
    for a, b in zip(gradients(scores.values(), list(ours.parameters())), gradients(want, list(theirs.parameters()))):
        close(a, b)
    # the other way to the largest response gives the outer levels
    pooled = [tl.sequence_pool(conv(ours.embed(x)).relu(), "max") for conv in ours.convs]
    again = ours.classify(torch.cat(pooled, -1))
    close(again.values(), want)
    assert again.lod.to_lengths() == [[2, 0, 1]]


# -- losses

PAIRS = {
    "L1": nn.L1Loss,
    "squares": nn.MSELoss,
    "smooth L1": nn.SmoothL1Loss,
    "Huber": nn.HuberLoss,
    "divergence": nn.KLDivLoss,
    "logits": nn.BCEWithLogitsLoss,
    "Poisson": nn.PoissonNLLLoss,
    "soft margin": nn.SoftMarginLoss,
    "hinge": nn.HingeEmbeddingLoss,
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore:reduction")
def test_a_loss_of_elements_keeps_rows_or_is_a_number(name):
    lod, rows = given(LENGTHS)
    _, other = given(LENGTHS, seed=1)
    other = other.detach().softmax(1)
    x, y = tl.LoDTensor(rows, lod), tl.LoDTensor(other, lod)
    for reduction in ("none", "mean", "sum"):
        loss = PAIRS[name](reduction=reduction)
        want = loss(rows, other)
        for pair in ((x, y), (x, y.values())):
            got = loss(*pair)
            assert (type(got) is tl.LoDTensor) == (reduction == "none")
            close(got.values() if reduction == "none" else got, want)
    with pytest.raises(tl.LoDError, match="equal LoDs"):
        loss(x, tl.LoDTensor(other, tl.LoD.from_lengths([[lod.rows]])))


def test_losses_of_classes_keep_rows_or_are_numbers():
    lod, rows = given(LENGTHS)
    x, ids = tl.LoDTensor(rows, lod), tl.LoDTensor(torch.arange(lod.rows) % 4, lod)
    sign = tl.LoDTensor((ids.values() % 2) * 2 - 1, lod)
    chances = tl.LoDTensor(rows.detach().softmax(1), lod)
    calls = {
        "cross entropy": lambda r, x, i, s, c: nn.CrossEntropyLoss(reduction=r, label_smoothing=0.1)(x, i),
        "of chances": lambda r, x, i, s, c: nn.CrossEntropyLoss(reduction=r)(x, c),
        "likelihood": lambda r, x, i, s, c: nn.NLLLoss(reduction=r)(x.log_softmax(1), i),
        "binary": lambda r, x, i, s, c: nn.BCELoss(reduction=r)(x.sigmoid(), c),
        "margin": lambda r, x, i, s, c: nn.MultiMarginLoss(reduction=r)(x, i),
        "cosine": lambda r, x, i, s, c: nn.CosineEmbeddingLoss(reduction=r)(x, c, s),
        "ranking": lambda r, x, i, s, c: nn.MarginRankingLoss(reduction=r)(x[:, 0], c[:, 0], s),
        "triplet": lambda r, x, i, s, c: nn.TripletMarginLoss(reduction=r)(x, c, x + 1),
        "labels": lambda r, x, i, s, c: nn.MultiLabelSoftMarginLoss(reduction=r)(x, c),
        "label margin": lambda r, x, i, s, c: nn.MultiLabelMarginLoss(reduction=r)(x, (c * 0).long() + i[:, None]),
        "Gauss": lambda r, x, i, s, c: nn.GaussianNLLLoss(reduction=r)(x, c, c),
    }
    given_, plain = (x, ids, sign, chances), tuple(t.values() for t in (x, ids, sign, chances))
    for name, call in calls.items():
        for reduction in ("none", "mean", "sum"):
            got, want = call(reduction, *given_), call(reduction, *plain)
            assert (type(got) is tl.LoDTensor) == (reduction == "none"), name
            close(got.values() if reduction == "none" else got, want)
            if reduction == "none":
                assert got.lod is lod or got.lod == lod


def test_a_loss_of_rows_is_reduced_by_sequences():
    lod, rows = given([[2, 0, 2], [3, 0, 1, 2]])
    losses = F.cross_entropy(tl.LoDTensor(rows, lod), tl.LoDTensor(torch.arange(6) % 4, lod), reduction="none")
    each = [part.mean() for part in parts(lod, losses.values()) if len(part)]
    close(tl.sequence_loss(losses), losses.values().mean())
    close(tl.sequence_loss(losses, "sequence"), sum(each) / 3)
    per_outer = tl.sequence_loss(losses, 0)
    torch.testing.assert_close(
        per_outer,
        torch.stack([losses.values()[:3].mean(), per_outer.new_tensor(torch.nan), losses.values()[3:].mean()]),
        equal_nan=True,
    )


# -- the tools of training


def small():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()


def test_states_of_cells_join():
    lod, rows = given(LENGTHS)
    x = tl.LoDTensor(rows, lod)
    cell = nn.LSTMCell(4, 3).double()
    h, c = cell(x)
    h, c = cell(x, (h, c))
    want = cell(rows, cell(rows))
    assert h.lod is lod and c.lod is lod
    close(h.values(), want[0])
    close(c.values(), want[1])
    with pytest.raises(tl.LoDError, match="equal LoDs"):
        nn.GRUCell(4, 3).double()(x, tl.LoDTensor(h.values(), tl.LoD.from_lengths([[lod.rows]])))


def test_hooks_see_lod_tensors_and_plain_gradients():
    lod, rows = given(LENGTHS)
    seen = {}
    module = nn.GRU(4, 3).double()
    handles = [
        module.register_forward_pre_hook(lambda m, args: seen.update({"in": type(args[0])})),
        module.register_forward_hook(lambda m, args, out: seen.update({"out": type(out[0])})),
        module.register_full_backward_hook(lambda m, into, of: seen.update(grads={type(g) for g in into})),
    ]
    x = tl.LoDTensor(rows, lod)
    out, _ = module(x)
    out.register_hook(lambda grad: seen.update({"grad": type(grad)}))
    out.sum().backward()
    assert seen == {"in": tl.LoDTensor, "out": tl.LoDTensor, "grad": torch.Tensor, "grads": {torch.Tensor}}
    assert type(rows.grad) is torch.Tensor
    got = rows.grad.clone()
    rows.grad = None
    for handle in handles:
        handle.remove()
    module(x)[0].sum().backward()
    close(got, rows.grad)


def test_parametrizations_reach_routes():
    lod, rows = given(LENGTHS)
    x = tl.LoDTensor(rows, lod)
    conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 3, 3, padding=1).double())
    close(conv(x).values(), torch.cat([conv(part.t()).t() for part in parts(lod, rows)]))
    lstm = nn.LSTM(4, 3).double()

    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    want = copy.deepcopy(lstm)
    with torch.no_grad():
        want.weight_hh_l0 *= 2
    nn.utils.parametrize.register_parametrization(lstm, "weight_hh_l0", Twice())
    close(lstm(x)[0].values(), want(x)[0].values())
    same = [p for n, p in lstm.named_parameters() if "original" in n]
    assert gradients(lstm(x)[0].values(), same)[0].any()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["rows", "lstm", "conv"])
def test_checkpoints_recompute_the_same(name, reentrant):
    lod, rows = given(LENGTHS)
    lstm, conv, net = nn.LSTM(4, 4, batch_first=True).double(), nn.Conv1d(4, 4, 3, 2).double(), small()
    run = {"rows": net, "lstm": lambda x: lstm(net(x))[0], "conv": lambda x: conv(net(x))}[name]
    leaves = [rows, *net.parameters()]
    out = torch.utils.checkpoint.checkpoint(run, tl.LoDTensor(rows, lod), use_reentrant=reentrant)
    want = run(tl.LoDTensor(rows, lod))
    close(out.values() if isinstance(out, tl.LoDTensor) else out, want.values())
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape)
    (out * weights).sum().backward()
    for t, expected in zip(leaves, gradients(want.values(), leaves)):
        close(t.grad, expected)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS, torch.optim.RMSprop])
def test_optimizers_take_the_same_steps(make):
    lod, rows = given(LENGTHS)
    ours, theirs = small(), small()
    theirs.load_state_dict(ours.state_dict())
    for module, x in ((ours, tl.LoDTensor(rows.detach(), lod)), (theirs, rows.detach())):
        optimizer = make(module.parameters(), 0.1)

        def step(module=module, x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.mse_loss(module(x), x)
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.1)
            return loss

        for _ in range(3):
            optimizer.step(step)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        close(a.detach(), b.detach())


def test_a_lod_tensor_of_parameters_is_optimised():
    lod, rows = given(LENGTHS)
    x = nn.Parameter(tl.LoDTensor(rows.detach(), lod))
    optimizer = torch.optim.Adam([x], 0.1)
    before = x.detach().clone()
    tl.sequence_loss(x.square().sum(1)).backward()
    assert nn.utils.clip_grad_norm_([x], 1e-3) > 1e-3 and x.grad.norm() <= 1.001e-3
    optimizer.step()
    assert not torch.equal(before.values(), x.detach().values()) and x.lod is lod


def test_parallel_wrappers_without_devices_pass_on():
    lod, rows = given(LENGTHS)
    x, net = tl.LoDTensor(rows, lod), nn.LSTM(4, 3).double()
    assert torch.cuda.is_available() or torch.equal(nn.DataParallel(net)(x)[0], net(x)[0])
    # a scatter cuts rows wherever it likes: what it gives are parts of the rows
    assert [part._provenance.part for part in x.chunk(2)] == [
        (0, (len(rows) + 1) // 2),
        ((len(rows) + 1) // 2, len(rows)),
    ]


def test_half_precision_and_devices_move_modules_as_always(device):
    lod, rows = given(LENGTHS)
    x = tl.LoDTensor(rows.detach().bfloat16().to(device), lod)
    for module in (nn.LSTM(4, 3, batch_first=True), nn.Conv1d(4, 3, 3), nn.AvgPool1d(2), nn.MaxPool1d(2)):
        module = module.bfloat16().to(device)
        out = module(x)
        out = out[0] if isinstance(out, tuple) else out
        full = module.float()(x.float())
        full = full[0] if isinstance(full, tuple) else full
        assert out.dtype == torch.bfloat16 and out.device == x.device and out.lod == full.lod
        torch.testing.assert_close(out.values().float(), full.values(), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_recurrence_of_torchs_compiles_whole(batch_first):
    """Where Dynamo is allowed to trace torch.nn's recurrences at all."""
    torch._dynamo.reset()
    module = nn.LSTM(4, 3, 2, batch_first=batch_first, bidirectional=True).double()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(module, backend="eager", fullgraph=True)
        for lengths in (LENGTHS, [[2], [3, 4]], [[1, 1, 1], [2, 2, 7]]):
            lod, rows = given(lengths)
            out, (h, c) = module(tl.LoDTensor(rows, lod))
            got, (h_got, c_got) = compiled(tl.LoDTensor(rows, lod))
            assert got.lod == lod
            close(got.values(), out.values())
            close(h_got, h)
            close(c_got, c)
            for a, b in zip(gradients(got.values(), [rows]), gradients(out.values(), [rows])):
                close(a, b)
