# SPDX-License-Identifier: Apache-2.0
"""Adapters of the recurrences."""

from golden_cases import Case, adapter

import torch_lod as tl

OPTIONS = ("use_peepholes", "is_reverse", "gate_activation", "cell_activation", "candidate_activation")


def _options(c: Case, *names: str) -> dict:
    return {name: c.attrs[name] for name in names if name in c.attrs}


def _optional(c: Case, *slots: str):
    return [c[slot] if slot in c.entry["inputs"] else None for slot in slots]


@adapter("lstm")
def lstm(c: Case):
    hidden, cell = tl.dynamic_lstm(c["Input"], c["Weight"], *_optional(c, "Bias", "H0", "C0"), **_options(c, *OPTIONS))
    c.dropped.add("Cell")  # Paddle passes on what reaches Hidden alone
    return {"Hidden": hidden, "Cell": cell}


@adapter("lstmp")
def lstmp(c: Case):
    options = _options(c, *OPTIONS, "cell_clip", "proj_clip", "proj_activation")
    if options["proj_activation"] != "identity":  # Paddle then applies that of the cell, whatever is asked for
        options["proj_activation"] = options["cell_activation"]
    arrays = _optional(c, "Bias", "H0", "C0")
    projection, cell = tl.dynamic_lstmp(c["Input"], c["Weight"], c["ProjWeight"], *arrays, **options)
    return {"Projection": projection, "Cell": cell}


def _gru_options(c: Case) -> dict:
    return _options(c, "is_reverse", "gate_activation", "origin_mode") | {
        "candidate_activation": c.attrs.get("activation", "tanh")
    }


@adapter("gru")
def gru(c: Case):
    return {"Hidden": tl.dynamic_gru(c["Input"], c["Weight"], *_optional(c, "Bias", "H0"), **_gru_options(c))}


@adapter("gru_unit")
def gru_unit(c: Case):
    kinds = ("identity", "sigmoid", "tanh", "relu")
    act, gate = kinds[c.attrs.get("activation", 2)], kinds[c.attrs.get("gate_activation", 1)]
    bias = _optional(c, "Bias")[0]
    hidden, reset, gates = tl.gru_unit(
        c["Input"], c["HiddenPrev"], c["Weight"], bias, act, gate, c.attrs.get("origin_mode", False)
    )
    return {"Hidden": hidden, "ResetHiddenPrev": reset, "Gate": gates}


@adapter("lstm_unit")
def lstm_unit(c: Case):
    h, cell = tl.lstm_unit(c["X"], c["C_prev"], c.attrs.get("forget_bias", 0.0))
    return {"H": h, "C": cell}


@adapter("dynamic_rnn")
def dynamic_rnn(c: Case):
    w, u, b = c["W"], c["U"], c["B"]
    boot = _optional(c, "Boot")[0]
    first = c["X"].values().new_zeros(c["X"].num_sequences(), u.shape[0]) if boot is None else boot
    out, _ = tl.scan(lambda x, h: (x @ w + h @ u + b).tanh(), c["X"], first)
    return {"Out": out}


@adapter("fusion_lstm")
def fusion_lstm(c: Case):
    arrays = _optional(c, "Bias", "H0", "C0")
    hidden, cell = tl.fusion_lstm(c["X"], c["WeightX"], c["WeightH"], *arrays, **_options(c, *OPTIONS))
    return {"Hidden": hidden, "Cell": cell}


@adapter("fusion_gru")
def fusion_gru(c: Case):
    options = _gru_options(c)
    options.pop("origin_mode", None)  # Paddle's fusion_gru takes no notice of it
    return {"Hidden": tl.fusion_gru(c["X"], c["WeightX"], c["WeightH"], *_optional(c, "Bias", "H0"), **options)}


@adapter("fused_embedding_fc_lstm")
def fused_embedding_fc_lstm(c: Case):
    arrays = _optional(c, "Bias", "H0", "C0")
    hidden, cell = tl.fused_embedding_fc_lstm(c["Ids"], c["Embeddings"], c["WeightH"], *arrays, **_options(c, *OPTIONS))
    return {"Hidden": hidden, "Cell": cell}


@adapter("attention_lstm")
def attention_lstm(c: Case):
    options = _options(c, "gate_activation", "cell_activation", "candidate_activation")
    names = {"h_0": "H0", "attention_bias": "AttentionBias", "attention_scalar": "AttentionScalar"}
    names["attention_scalar_bias"] = "AttentionScalarBias"
    given = dict(zip(names, _optional(c, *names.values())))
    hidden, cell = tl.attention_lstm(
        c["X"], c["C0"], c["AttentionWeight"], c["LSTMWeight"], c["LSTMBias"], **given, **options
    )
    return {"Hidden": hidden, "Cell": cell}
