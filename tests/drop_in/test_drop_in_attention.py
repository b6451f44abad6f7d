# SPDX-License-Identifier: Apache-2.0
"""Torch's attention and Transformer modules on LoDTensors: equal to a loop over the innermost sequences."""

import pytest
import torch
import torch.nn.functional as F
from test_drop_in_modules import STRUCTURES, close, given, gradients, parts
from torch import nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import torch_lod as tl

each_structure = pytest.mark.parametrize("lengths", STRUCTURES.values(), ids=list(STRUCTURES))
#: Keys for the queries of every structure: as many sequences, of other lengths.
KEYS = {
    name: [*lengths[:-1], [(5 * i + n + 1) % 7 for i, n in enumerate(lengths[-1])]]
    for name, lengths in STRUCTURES.items()
}


def check(got, each, lod, leaves):
    """A result and its gradients against those of every sequence by itself."""
    assert got.lod is lod or got.lod == lod
    want = torch.cat([*each, got.values()[:0].detach()])
    close(got.values(), want)
    for a, b in zip(gradients(got.values(), leaves), gradients(want, leaves)):
        close(a, b)


MHA = {
    "plain": {},
    "no bias": {"bias": False, "batch_first": True},
    "other widths": {"kdim": 4, "vdim": 4, "dropout": 0.3},
}


@each_structure
@pytest.mark.parametrize("options", MHA.values(), ids=list(MHA))
@pytest.mark.parametrize("causal", [False, True, "mask", "heads"])
def test_self_attention_equals_a_loop(options, causal, lengths):
    module = nn.MultiheadAttention(4, 2, **options).double().eval()
    if "kdim" in options:  # torch keeps one weight where the widths are equal
        module._qkv_same_embed_dim = False
        for name in "qkv":
            module.register_parameter(f"{name}_proj_weight", nn.Parameter(torch.randn(4, 4, dtype=torch.float64)))
        module.register_parameter("in_proj_weight", None)
    lod, rows = given(lengths)
    x, size = tl.LoDTensor(rows, lod), lod.max_length() + 2

    def mask(n):
        if causal is True:
            return torch.ones(n, n, dtype=torch.bool).triu(1)
        if causal == "mask":
            return torch.linspace(-1, 1, size * size, dtype=torch.float64).view(size, size)[:n, :n]
        if causal == "heads":
            return torch.linspace(-1, 1, 2 * size * size, dtype=torch.float64).view(2, size, size)[:, :n, :n]

    kinds = {"attn_mask": None if causal is True else mask(size), "is_causal": causal is True}
    if causal == "heads":  # torch asks for a mask of all rows and heads together before we are asked
        out = _by_function(module, x, mask(size))
    else:
        out, _ = module(x, x, x, **kinds)
    each = [module(p, p, p, attn_mask=mask(len(p)))[0] for p in parts(lod, rows) if len(p)]
    check(out, each, lod, [rows, *module.parameters()])


def _by_function(module, x, mask):
    separate = not module._qkv_same_embed_dim
    return F.multi_head_attention_forward(
        x,
        x,
        x,
        4,
        2,
        module.in_proj_weight,
        module.in_proj_bias,
        None,
        None,
        False,
        0.0,
        module.out_proj.weight,
        module.out_proj.bias,
        training=False,
        attn_mask=mask,
        use_separate_proj_weight=separate,
        q_proj_weight=module.q_proj_weight,
        k_proj_weight=module.k_proj_weight,
        v_proj_weight=module.v_proj_weight,
    )[0]


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("masked", ["none", "bool", "causal"])
def test_cross_attention_equals_a_loop(name, masked):
    module = nn.MultiheadAttention(4, 2, kdim=4, vdim=4).double()
    lod, rows = given(STRUCTURES[name])
    key_lod, keys = given(KEYS[name], seed=1)
    x, memory = tl.LoDTensor(rows, lod), tl.LoDTensor(keys, key_lod)
    size = lod.max_length(), key_lod.max_length()
    hidden = (
        torch.ones(size, dtype=torch.bool).triu(1)
        if masked == "causal"
        else (torch.arange(size[0] * size[1]).view(size) % 3 == 1)
    )
    given_mask = hidden if masked == "bool" else None
    out, _ = module(x, memory, memory, attn_mask=given_mask, is_causal=masked == "causal")
    each = []
    for q, k in zip(parts(lod, rows), parts(key_lod, keys)):
        mask = None if masked == "none" else hidden[: len(q), : len(k)]
        if len(k) == 0:  # nothing to see: what the output projection makes of zeros
            each.append(module.out_proj(q.new_zeros(len(q), 4)))
        elif len(q):
            each.append(module(q, k, k, attn_mask=mask)[0])
    check(out, each, lod, [rows, keys, *module.parameters()])


LAYERS = {
    "encoder layer": lambda **k: nn.TransformerEncoderLayer(4, 2, 8, **k),
    "encoder": lambda **k: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, **k), 2, nn.LayerNorm(4)),
}


@each_structure
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True, "norm_first": True, "activation": "gelu"}, {"bias": False}], ids=str
)
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_an_encoder_equals_a_loop(name, options, train, lengths):
    module = LAYERS[name](dropout=0.0, **options).double().train(train)
    lod, rows = given(lengths)
    x = tl.LoDTensor(rows, lod)
    leaves = [rows, *module.parameters()]
    check(module(x), [module(p) for p in parts(lod, rows) if len(p)], lod, leaves)
    masks = [nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64) for n in range(20)]
    # a mask of all rows, as models make it from len(x), and no mask but the word
    each = [module(p, masks[len(p)]) for p in parts(lod, rows) if len(p)]
    check(module(x, nn.Transformer.generate_square_subsequent_mask(len(x), dtype=torch.float64)), each, lod, leaves)
    check(module(x, is_causal=True), each, lod, leaves)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "norm_first": True}], ids=str)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_transformer_equals_a_loop(name, options):
    module = nn.Transformer(4, 2, 1, 2, 8, dropout=0.0, **options).double()
    lod, rows = given(STRUCTURES[name])
    key_lod, keys = given([*STRUCTURES[name][:-1], [n + 1 for n in STRUCTURES[name][-1]]], seed=1)
    source, target = tl.LoDTensor(keys, key_lod), tl.LoDTensor(rows, lod)
    out = module(source, target, tgt_is_causal=True)
    each = []
    for s, t in zip(parts(key_lod, keys), parts(lod, rows)):
        if len(t):
            each.append(
                module(s, t, tgt_mask=nn.Transformer.generate_square_subsequent_mask(len(t), dtype=torch.float64))
            )
    check(out, each, lod, [rows, keys, *module.parameters()])


def test_weights_are_told_sequence_by_sequence():
    """With a level more, whose sequences are the keys of a query."""
    module = nn.MultiheadAttention(4, 2, kdim=4, vdim=4).double()
    lod, rows = given([[2, 1], [3, 0, 2]])
    key_lod, keys = given([[2, 1], [2, 4, 3]], seed=1)
    x, memory = tl.LoDTensor(rows, lod), tl.LoDTensor(keys, key_lod)
    for options in ({}, {"average_attn_weights": False}):
        _, weights = module(x, memory, memory, **options)
        assert weights.lod.to_lengths() == [[2, 1], [3, 0, 2], [2, 2, 2, 3, 3]]
        each = [module(q, k, k, **options)[1] for q, k in zip(parts(lod, rows), parts(key_lod, keys)) if len(q)]
        close(
            weights.values(),
            torch.cat([w.flatten() if w.dim() == 2 else w.permute(1, 2, 0).flatten(0, 1) for w in each]),
        )
    assert module(x, memory, memory, need_weights=False)[1] is None


def test_dropout_drops_weights_in_training():
    module = nn.MultiheadAttention(4, 2, dropout=0.4).double()
    lod, rows = given([[9, 0, 12, 7]])
    x = tl.LoDTensor(rows, lod)
    torch.manual_seed(1)
    out, dropped = module(x, x, x, average_attn_weights=False)
    torch.manual_seed(1)
    close(module(x, x, x)[0].values(), out.values())
    assert not torch.equal(module(x, x, x)[0].values(), out.values())
    _, full = module.eval()(x, x, x, average_attn_weights=False)
    kept = dropped.values() != 0
    close(dropped.values(), torch.where(kept, full.values() / 0.6, 0))
    assert 0.5 < kept.double().mean() < 0.7
    values = nn.functional.linear(rows, *(t.chunk(3)[2] for t in (module.in_proj_weight, module.in_proj_bias)))
    each, at = [], 0
    for v in parts(lod, values.unflatten(1, (2, 2))):
        w = dropped.values()[at : at + len(v) ** 2].view(len(v), len(v), 2)
        each.append(torch.einsum("ijh,jhd->ihd", w, v).flatten(1))
        at += len(v) ** 2
    close(out.values(), module.out_proj(torch.cat(each)))


@each_structure
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_scaled_dot_products_of_rows(options, lengths):
    lod, rows = given(lengths)
    q, k, v = (tl.LoDTensor((rows * n).sin(), lod) for n in (1, 2, 3))
    one = [F.scaled_dot_product_attention(*ts, **options) for ts in zip(*(parts(lod, t.values()) for t in (q, k, v)))]
    check(F.scaled_dot_product_attention(q, k, v, **options), one, lod, [rows])
    q2, k2, v2 = (tl.LoDTensor(t.values().view(lod.rows, 2, 2), lod) for t in (q, k, v))
    each = [
        F.scaled_dot_product_attention(*(t.transpose(0, 1) for t in ts), **options).transpose(0, 1)
        for ts in zip(*(parts(lod, t.values()) for t in (q2, k2, v2)))
    ]
    check(F.scaled_dot_product_attention(q2, k2, v2, **options), each, lod, [rows])


def test_scaled_dot_products_with_masks_groups_and_batches():
    lod, rows = given([[3, 0, 4]])
    x = tl.LoDTensor(rows, lod)
    seen = torch.ones(5, 5, dtype=torch.bool).tril()
    out = F.scaled_dot_product_attention(x, x, x, seen)
    close(out.values(), F.scaled_dot_product_attention(x, x, x, is_causal=True).values())
    q, k = (tl.LoDTensor(rows.repeat(1, n).view(-1, n, 4), lod) for n in (4, 2))
    out = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    close(
        out.values(),
        F.scaled_dot_product_attention(q, *[tl.LoDTensor(k.values().repeat_interleave(2, 1), lod)] * 2).values(),
    )
    batch = tl.LoDTensor(rows.view(-1, 1, 2, 2), lod)
    out = F.scaled_dot_product_attention(batch, batch, batch)
    close(out.values(), F.scaled_dot_product_attention(*[batch.values()] * 3))
    assert out.lod is lod


@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
def test_named_causal_masks_are_those_of_every_sequence(bias):
    lod, rows = given([[3, 0, 4]])
    x, other = tl.LoDTensor(rows, lod), tl.from_lengths(rows, [[2, 1, 4]])
    close(
        F.scaled_dot_product_attention(x, x, x, bias(7, 7)).values(),
        F.scaled_dot_product_attention(x, x, x, is_causal=True).values(),
    )
    module = nn.MultiheadAttention(4, 2, batch_first=True).to(rows)
    named, plain = (
        module(x, x, x, need_weights=False, **mask)[0] for mask in ({"attn_mask": bias(7, 7)}, {"is_causal": True})
    )
    close(named.values(), plain.values())
    each = [
        F.scaled_dot_product_attention(q[None], k[None], k[None], bias(len(q), len(k)))[0]
        for q, k in zip(parts(lod, rows), parts(other.lod, rows), strict=True)
        if len(q)
    ]
    close(F.scaled_dot_product_attention(x, other, other, bias(7, 7)).values(), torch.cat(each))


def test_a_sequence_attends_to_itself_alone():
    lod, rows = given([[4, 5, 3]])
    other = rows.detach().clone()
    other[4:9] = torch.nan
    for module in (nn.TransformerEncoderLayer(4, 2, 8), nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5)):
        module = module.double()
        torch.manual_seed(0)
        before = module(tl.LoDTensor(rows, lod))
        torch.manual_seed(0)
        after = module(tl.LoDTensor(other, lod))
        for s in (0, 2):
            close(before.seq[s], after.seq[s])
        assert after.seq[1].isnan().all()


def test_attention_refuses():
    lod, rows = given([[2, 3]])
    x, module = tl.LoDTensor(rows, lod), nn.MultiheadAttention(4, 2).double()
    other = tl.LoDTensor(rows, tl.LoD.from_lengths([[5]]))
    wrong = {
        "key as a LoDTensor, got a plain tensor; rows that are the same": lambda: module(x, rows, rows),
        "as many sequences of keys as of queries": lambda: module(x, other, other),
        "value with the LoD of key": lambda: module(x, x, other),
        "no key_padding_mask, since nothing is padded": lambda: module(x, x, x, torch.zeros(5, dtype=torch.bool)),
        "attn_mask for (3, 3) positions, the longest sequences, got (2, 2)": lambda: module(
            x, x, x, attn_mask=torch.ones(2, 2).bool()
        ),
        "out_proj_weight as a plain tensor of 2 dims, got LoDTensor": lambda: F.multi_head_attention_forward(
            x, x, x, 4, 2, module.in_proj_weight, None, None, None, False, 0.0, x, None
        ),
        "neither add_bias_kv": lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True).double()(x, x, x),
        "add_zero_attn": lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True).double()(x, x, x),
        "query of shape (rows, 4), got (5, 2, 4)": lambda: module(*[x.unsqueeze(1).repeat(1, 2, 1)] * 3),
        "2 heads of keys, or with enable_gqa a divisor, got 1": lambda: F.scaled_dot_product_attention(
            tl.LoDTensor(rows.view(5, 2, 2), lod), *[tl.LoDTensor(rows[:, None, :2], lod)] * 2
        ),
        "either attn_mask or is_causal": lambda: F.scaled_dot_product_attention(
            x, x, x, torch.ones(3, 3), is_causal=True
        ),
        "attn_mask as a plain tensor of positions": lambda: F.scaled_dot_product_attention(x, x, x, x),
        "query as a LoDTensor": lambda: F.scaled_dot_product_attention(rows, x, x),
    }
    for words, call in wrong.items():
        with pytest.raises(tl.LoDError) as caught:
            call()
        assert words in str(caught.value), words


class Classifier(nn.Module):
    """A Transformer encoder over word vectors with positions, the mean of its rows, a linear layer."""

    def __init__(self, words=30, width=8, longest=16, classes=2):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classify = nn.Linear(width, classes)

    def places(self, ids):
        return torch.arange(len(ids))

    def pooled(self, rows):
        return rows.mean(0)

    def forward(self, ids):
        return self.classify(self.pooled(self.encode(self.embed(ids) + self.place(self.places(ids)))))


class OnSequences(Classifier):
    """What its user changes: places are counted in every sequence, and so is the mean."""

    def places(self, ids):
        return ids.lod.position_ids()

    def pooled(self, rows):
        return tl.sequence_pool(rows, "mean")


@pytest.mark.parametrize("train", [True, False])
def test_an_encoder_classifier_runs_on_sequences(train):
    theirs, ours = Classifier().double(), OnSequences().double()
    ours.load_state_dict(theirs.state_dict())
    for module in (theirs, ours):
        module.train(train)
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
    lod = tl.LoD.from_lengths([[2, 0, 1], [6, 8, 5]])
    ids = torch.randint(0, 30, (19,))
    scores = ours(tl.LoDTensor(ids, lod))
    want = torch.stack([theirs(part) for part in parts(lod, ids)])
    assert scores.lod.to_lengths() == [[2, 0, 1]]
    close(scores.values(), want)
    for a, b in zip(gradients(scores.values(), list(ours.parameters())), gradients(want, list(theirs.parameters()))):
        close(a, b)
