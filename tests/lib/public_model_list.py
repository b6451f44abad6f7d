# SPDX-License-Identifier: Apache-2.0
"""The models of tests/lib/public_models.py: how each is made, in which layout it takes rows, and what is changed."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

import torch_lod as tl

LENGTHS = [7, 5, 9]
#: As many rows, of which two sequences are stacked, and one is empty.
STACKED = [6, 0, 9, 6]
of = importlib.import_module


class Model(NamedTuple):
    module: torch.nn.Module
    values: torch.Tensor
    #: runs the module on rows in its own layout, and gives rows
    call: Callable
    #: runs it on rows as they are
    plainly: Callable
    #: What is changed where the model is not right: functions instead of (owner, name), or of `call`. Under other keys,
    #: what these call.
    changes: dict
    #: What tl.nn.MapSequences is given: the module with options, its inputs made of a LoDTensor, keywords; and what is taken
    #: of the result.
    mapped: tl.nn.MapSequences
    inputs: Callable
    keywords: dict
    take: Callable


#: A function that makes the model, its kind and its package, by name.
MODELS: dict[str, tuple[Callable, str, str]] = {}


def model(name: str, kind: str, package: str):
    def enter(make):
        MODELS[name] = make, kind, package

    return enter


def first(result: Any) -> torch.Tensor:
    while not isinstance(result, torch.Tensor):
        result = result[0] if isinstance(result, (tuple, list)) else next(iter(result.values()))
    return result


#: The same layouts as options of tl.nn.MapSequences.
STACKS = {"x[None]": "batch_first", "x.t()[None]": "channels", "x[:, None]": "length_first", "pooled": "batch_first"}
LAYOUTS: dict[str, Callable] = {
    "x[None]": lambda m: lambda x: first(m(x[None]))[0],
    "x.t()[None]": lambda m: lambda x: first(m(x.t()[None]))[0].t(),
    "x[:, None]": lambda m: lambda x: first(m(x[:, None]))[:, 0],
    "pooled": lambda m: lambda x: first(m(x[None])),
}


def alone(x) -> tuple:
    return (x,)


def built(
    m,
    call="x[None]",
    plainly=None,
    changes=None,
    width=16,
    ids=0,
    by="",
    mapped=None,
    inputs=alone,
    keywords=None,
    take=None,
) -> Model:
    """`width` of the rows, or the number of `ids`; `by`: the class of the parts that are changed to run by sequence; `mapped`:
    further options of MapSequences, or the module itself."""
    if not isinstance(mapped, torch.nn.Module):
        options = {"layout": STACKS[call] if isinstance(call, str) else "batch_first"}
        options |= {"results": "sequences"} if call == "pooled" else {}
        mapped = tl.nn.MapSequences(m, **options | (mapped or {}))
    count = sum(LENGTHS)
    values = torch.randint(1, ids, (count,)) if ids else torch.randn(count, width)
    call = LAYOUTS[call](m) if isinstance(call, str) else call
    changes = {(part, "forward"): by_sequence(part) for part in m.modules() if type(part).__name__ == by} | (
        changes or {}
    )
    plainly = plainly or (lambda x: first(m(x)))
    return Model(m, values, call, plainly, changes, mapped, inputs, keywords or {}, take or (lambda found: found))


def by_sequence(part) -> Callable:
    """The change that is always possible: a part of a model runs on one sequence after the other."""
    old = part.forward
    return lambda x, **more: x[0].with_values(torch.cat([first(old(s[None], **more))[0] for s in x[0].sequences()]))[
        None
    ]


def looped(call) -> dict:
    """The same for the whole model."""
    return {"call": lambda x: torch.cat([call(s) for s in x.sequences()])}


#: Modules that return a pair, of which the first is wanted.
ROWS = {"results": ("rows", None)}
#: Models that need no more than a line: name | kind | package | module | expression | layout | options of `built`.
PLAIN = """
LiGRU | recurrent | speechbrain | speechbrain.nnet.RNN | LiGRU(8, [None, None, 16], num_layers=2) | x[None] | by="LiGRU", mapped=ROWS
GSS | recurrent | gated-state-spaces-pytorch | gated_state_spaces_pytorch | GatedStateSpacesLM(num_tokens=30, dim=16, depth=2) | x[None] | ids=30, by="DSS"
TCN | convolutional | pytorch-tcn | pytorch_tcn | TCN(16, [16, 16], causal=False) | x.t()[None] |
Wav2Letter | convolutional | torchaudio | torchaudio.models | Wav2Letter(10, "mfcc", 16) | x.t()[None] | mapped={"results": "resized"}
SEANet encoder | convolutional | encodec | encodec.modules | SEANetEncoder(16, 8, 4, ratios=[1, 1], norm="none") | x.t()[None] |
Conformer (lucidrains) | speech | conformer | conformer | Conformer(16, depth=2, dim_head=8, heads=2, conv_kernel_size=5) | x[None] | by="Attention"
Transformer (speechbrain) | speech | speechbrain | speechbrain.lobes.models.transformer.Transformer | TransformerEncoder(2, 2, 32, d_model=16) | x[None] | mapped=ROWS
Whisper block | speech | openai-whisper | whisper.model | ResidualAttentionBlock(16, 2) | x[None] |
Performer | attention | performer-pytorch | performer_pytorch | Performer(dim=16, depth=2, heads=2, dim_head=8) | x[None] | by="SelfAttention"
Set Transformer, SAB | sets | torch-geometric | torch_geometric.nn.aggr.utils | SetAttentionBlock(16, 2) | x[None] |
TFT residual network | series | pytorch-forecasting | pytorch_forecasting.models.temporal_fusion_transformer.sub_modules | GatedResidualNetwork(16, 16, 16) | x[None] |
"""


def plain(name, kind, package, where, make, layout, options) -> None:
    model(name, kind, package)(
        lambda: built(eval(make, vars(of(where))), layout, **eval(f"dict({options})", globals()))
    )


for line in PLAIN.strip().splitlines():
    plain(*[part.strip() for part in line.split("|")])


# -- recurrent


@model("minGRU", "recurrent", "minGRU-pytorch")
def _():
    def scan(log_coeffs, log_values):
        a = tl.sequence_cumsum(log_coeffs[0])
        return (a + tl.sequence_logcumsumexp(log_values[0] - a)).exp()[None]

    own = of("minGRU_pytorch.minGRU")
    return built(own.minGRU(16), changes={(own, "heinsen_associative_scan_log"): scan})


@model("CfC", "recurrent", "ncps")
def _():
    m = of("ncps.torch").CfC(16, 12)
    init = torch.zeros(len(LENGTHS), 12)
    return built(
        m, changes={"call": lambda x: tl.scan(lambda row, h: m.rnn_cell(row, h, 1.0), x, init)[0]}, mapped=ROWS
    )


@model("LTC", "recurrent", "ncps")
def _():
    m = of("ncps.torch").LTC(6, 8)
    init = torch.zeros(len(LENGTHS), 8)
    return built(m, width=6, changes={"call": lambda x: tl.scan(m.rnn_cell, x, init)[0]}, mapped=ROWS)


@model("SRU", "recurrent", "sru")
def _():
    m = of("sru").SRU(16, 16, num_layers=2)
    return built(m, "x[:, None]", changes=looped(LAYOUTS["x[:, None]"](m)), mapped=ROWS)


@model("xLSTM", "recurrent", "xlstm")
def _():
    own = of("xlstm")
    block = own.mLSTMBlockConfig(own.mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2))
    config = own.xLSTMBlockStackConfig(mlstm_block=block, context_length=128, num_blocks=2, embedding_dim=16)
    return built(own.xLSTMBlockStack(config), by="mLSTMLayer")


@model("Mamba", "recurrent", "mambapy")
def _():
    own = of("mambapy.mamba")
    m, changes = own.Mamba(own.MambaConfig(d_model=16, n_layers=2)), {}
    for layer in m.layers:  # the convolution pads both ends, and a slice cuts the end
        conv = layer.mixer.conv1d
        changes[conv, "forward"] = lambda x, forward=conv.forward: F.pad(forward(x), (0, -3))

    def pscan(decay, x):
        init = torch.zeros(len(LENGTHS), *x.shape[2:])
        return tl.scan(lambda pair, h: pair[0] * h + pair[1], (decay[0], x[0]), init)[0][None]

    return built(m, changes={**changes, (own, "pscan"): pscan})


# -- convolutional


@model("WaveNet", "convolutional", "wavenet-vocoder")
def _():
    sizes = dict.fromkeys(["out_channels", "residual_channels", "gate_channels", "skip_out_channels"], 16)
    m, changes = of("wavenet_vocoder").WaveNet(layers=4, stacks=2, cin_channels=-1, gin_channels=-1, **sizes), {}
    for layer in m.conv_layers:  # as in Mamba
        conv = layer.conv
        changes[conv, "forward"] = lambda x, c=conv, forward=conv.forward: F.pad(forward(x), (0, -c.padding[0]))
    return built(m, "x.t()[None]", changes=changes)


@model("ByteNet", "convolutional", "sequence-models")
def _():
    m = of("sequence_models.convolutional").ByteNet(30, 8, 16, 3, 3, 4)
    ones = lambda x: torch.ones_like(x)[..., None].float()  # noqa: E731
    run = lambda x: m(x, input_mask=ones(x))  # noqa: E731
    return built(m, lambda x: run(x[None])[0], run, ids=30, inputs=lambda x: (x, ones(x)))


@model("text CNN", "convolutional", "pytorch-nlp")
def _():
    m = of("torchnlp.nn").CNNEncoder(16, num_filters=4, ngram_filter_sizes=(2, 3))

    def forward(tokens):
        x = tokens[0].t()
        pooled = [F.adaptive_max_pool1d(conv(x).relu(), 1).t() for conv in m._convolution_layers]
        return torch.cat(pooled, 1)

    return built(m, "pooled", changes={(m, "forward"): forward})


@model("Conv-TasNet masks", "convolutional", "torchaudio")
def _():
    m = of("torchaudio.models.conv_tasnet").MaskGenerator(16, 2, 3, 8, 16, 3, 2, "sigmoid")
    first_source = {"mapped": {"layout": "channels"}, "take": lambda masks: masks[:, 0]}
    return built(m, lambda x: m(x.t()[None])[0, 0].t(), lambda x: m(x.t())[0].t(), **first_source)


@model("ProteinBERT", "convolutional", "protein-bert-pytorch")
def _():
    sizes = {"num_tokens": 30, "num_annotation": 6, "dim": 16, "dim_global": 8, "depth": 2, "attn_heads": 2}
    m = of("protein_bert_pytorch").ProteinBERT(attn_dim_head=4, **sizes)
    about = torch.randn(1, 6)
    call = lambda x: m(x[None], about)[0][0]  # noqa: E731
    each = lambda x: (x, about.expand(x.num_sequences(), 6))  # noqa: E731
    results = {"results": ("rows", "sequences")}
    return built(m, call, lambda x: m(x, about)[0], looped(call), ids=30, mapped=results, inputs=each)


# -- speech


def with_lengths(m, call, changes=None) -> Model:
    """A model that takes the number of rows as well."""
    run = lambda x: m(x, torch.tensor([x.shape[-1 if call == "x.t()[None]" else -2]]))  # noqa: E731
    own = lambda x: first(run(x.t()[None] if call == "x.t()[None]" else x[None]))[0]  # noqa: E731
    mapped = ROWS if call == "x[None]" else {"layout": "channels", "results": ("rows", "batch_first")}
    inputs = lambda x: (x, x.lengths())  # noqa: E731
    return built(m, own, run, looped(own) if changes is None else changes, mapped=mapped, inputs=inputs)


@model("Conformer (torchaudio)", "speech", "torchaudio")
def _():
    own = of("torchaudio.models.conformer")
    changes = {(own, "_lengths_to_padding_mask"): lambda lengths: None}
    return with_lengths(own.Conformer(16, 2, 32, 2, 3), "x[None]", changes)


@model("Tacotron 2 encoder", "speech", "torchaudio")
def _():
    rnn = torch.nn.utils.rnn
    changes = {
        (rnn, "pack_padded_sequence"): lambda x, lengths, batch_first: x,
        (rnn, "pad_packed_sequence"): lambda x, batch_first: (x, None),
    }
    return with_lengths(of("torchaudio.models.tacotron2")._Encoder(16, 2, 5), "x.t()[None]", changes)


@model("Emformer", "speech", "torchaudio")
def _():
    return with_lengths(of("torchaudio.models").Emformer(16, 2, 32, 2, 4), "x[None]")


@model("DeepSpeech", "speech", "torchaudio")
def _():
    m = of("torchaudio.models").DeepSpeech(16, 12, 10)
    mapped = tl.nn.MapSequences(torch.nn.Sequential(torch.nn.Unflatten(1, (1, -1)), m))  # a dim for channels
    return built(m, lambda x: m(x[None, None])[0], lambda x: m(x[None])[0], mapped=mapped)


@model("x-vector", "speech", "speechbrain")
def _():
    same = {"tdnn_channels": [16] * 3, "tdnn_kernel_sizes": [3, 3, 1], "tdnn_dilations": [1] * 3}
    m = of("speechbrain.lobes.models.Xvector").Xvector(in_channels=16, tdnn_blocks=3, lin_neurons=8, **same)
    pooling = next(part for part in m.modules() if type(part).__name__ == "StatisticsPooling")
    pooling.eps = 0.0  # no noise

    def forward(x, lengths=None):
        pooled = [tl.sequence_pool(x[0], how) for how in ("mean", "std")]
        return torch.cat(pooled, 1)[:, None]

    return built(m, "pooled", changes={(pooling, "forward"): forward})


# -- attention

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def hugging_face(name: str, given: Callable | None, **sizes) -> Callable:
    """A model of transformers; `given` are the further arguments that its positions are passed in."""

    def make():
        own = of("transformers")
        config = getattr(own, name + "Config")(vocab_size=30, bos_token_id=1, eos_token_id=2, pad_token_id=0, **sizes)
        m = getattr(own, name + ("EncoderModel" if name == "T5" else "Model"))(config)
        call = lambda x: first(m(x[None], **given(x)))[0]  # noqa: E731
        mapped = {"results": {"last_hidden_state": "rows"}}
        return built(m, ids=30, changes={"call": call, "given": given} if given else None, mapped=mapped)

    return make


def positions(x) -> dict:
    return {"position_ids": x.with_values(x.lod.position_ids())[None]}


def positions_and_types(x) -> dict:
    return positions(x) | {"token_type_ids": torch.zeros_like(x)[None]}


def positions_and_mask(x) -> dict:
    causal = torch.ones(1, 1, len(x), len(x), dtype=torch.bool).tril()
    return positions(x) | {"attention_mask": causal}


GPT2 = {"n_positions": 128, "n_embd": 16, "n_layer": 2, "n_head": 2}
model("GPT-2", "attention", "transformers")(hugging_face("GPT2", positions_and_mask, **GPT2))
model("Llama", "attention", "transformers")(hugging_face("Llama", positions_and_mask, **SIZES))
model("BERT", "attention", "transformers")(hugging_face("Bert", positions_and_types, **SIZES))
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
model("T5 encoder", "attention", "transformers")(hugging_face("T5", None, **T5))


@model("x-transformers", "attention", "x-transformers")
def _():
    sizes = {"dim": 16, "depth": 2, "heads": 2, "attn_dim_head": 8}
    m, other = (of("x_transformers").Encoder(attn_flash=flash, **sizes).eval() for flash in (False, True))
    other.load_state_dict(m.state_dict(keep_vars=True), assign=True)
    return built(m, changes={"call": LAYOUTS["x[None]"](other)})


# -- sets, recommenders, series, tags

SET = "torch_geometric.nn.aggr.utils"
TFT = "pytorch_forecasting.models.temporal_fusion_transformer.sub_modules"


@model("Set Transformer, ISAB", "sets", "torch-geometric")
def _():
    m, n = of(SET).InducedSetAttentionBlock(16, 4, 2), len(LENGTHS)
    return built(m, changes={(m, "forward"): lambda x: m.mab2(x, m.mab1(tl.batch([m.ind[0]] * n)[None], x))})


@model("Set Transformer, PMA", "sets", "torch-geometric")
def _():
    m, n = of(SET).PoolingByMultiheadAttention(16, 2, 2), len(LENGTHS)
    changes = {(m, "forward"): lambda x: m.mab(tl.batch([m.seed[0]] * n)[None], m.lin(x).relu())}
    return built(m, changes=changes, mapped={"results": "sequences"})


@model("SASRec encoder", "recommender", "recbole")
def _():
    own, none = of("recbole.model.layers"), torch.zeros(1, 1, 1, 1)
    m = own.TransformerEncoder(n_layers=2, n_heads=2, hidden_size=16, inner_size=32)

    def forward(self, x, mask):
        q, k, v = (part(x).unflatten(-1, (2, 8)).transpose(1, 2) for part in (self.query, self.key, self.value))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.LayerNorm(self.dense(seen) + x)

    changes = {(own.MultiHeadAttention, "forward"): forward}
    last = {"mapped": {"results": [None, "rows"]}, "keywords": {"attention_mask": none}}
    return built(m, lambda x: m(x[None], none)[-1][0], lambda x: m(x, none)[-1], changes, **last)


@model("TFT attention", "series", "pytorch-forecasting")
def _():
    own = of(TFT)
    m = own.InterpretableMultiHeadAttention(n_head=2, d_model=16)
    forward = lambda self, q, k, v, mask=None: (F.scaled_dot_product_attention(q, k, v), q)  # noqa: E731
    changes = {(own.ScaledDotProductAttention, "forward"): forward}
    return built(
        m, lambda x: m(*[x[None]] * 3)[0][0], lambda x: m(x, x, x)[0], changes, mapped=ROWS, inputs=lambda x: (x, x, x)
    )


@model("CRF", "tags", "pytorch-crf")
def _():
    m = of("torchcrf").CRF(5, batch_first=True)
    run = lambda x: m(x, x.argmax(-1), reduction="none")  # noqa: E731
    tags = {
        "mapped": {"results": "sequences"},
        "inputs": lambda x: (x, x.argmax(-1)),
        "keywords": {"reduction": "none"},
    }
    return built(m, lambda x: run(x[None]), run, looped(lambda x: run(x[None])), width=5, **tags)
