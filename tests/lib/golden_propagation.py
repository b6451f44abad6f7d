# SPDX-License-Identifier: Apache-2.0
"""Adapters of the ordinary functions of torch, whose cases tell what becomes of the LoD: one per `paddle_op` of the operator
`lod_propagation`. docs/torch_functions.md is what ours does."""

import torch
import torch.nn.functional as F
from golden_cases import DIFFERENCES, Case, Difference, adapter

#: Paddle's numbers of dtypes.
DTYPES = {0: torch.bool, 2: torch.int32, 3: torch.int64, 4: torch.float16, 5: torch.float32, 6: torch.float64}
DTYPES |= {20: torch.uint8, 21: torch.int8}


def torch_function(*paddle_ops: str):
    return adapter(*(f"lod_propagation/{name}" for name in paddle_ops))


ELEMENTWISE = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow}
ELEMENTWISE |= {"max": torch.maximum, "min": torch.minimum}
ACTIVATIONS = {
    name: getattr(torch, name) for name in ("relu", "tanh", "sigmoid", "exp", "sqrt", "square", "abs", "log")
}
ACTIVATIONS |= {"floor": torch.floor, "sin": torch.sin, "softplus": F.softplus, "gelu": F.gelu}
REDUCE = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin, "prod": torch.prod}


@torch_function(*(f"elementwise_{name}" for name in ELEMENTWISE))
def elementwise(c: Case):
    x, y, axis = c["X"], c["Y"], c.attrs.get("axis", -1)
    if axis >= 0 and y.dim() < x.dim():  # the dims of Y stand from `axis` on
        y = y.reshape(*y.shape, *[1] * (x.dim() - axis - y.dim()))
    return {"Out": ELEMENTWISE[c.entry["paddle_op"].removeprefix("elementwise_")](x, y)}


@torch_function(*ACTIVATIONS)
def activation(c: Case):
    return {"Out": ACTIVATIONS[c.entry["paddle_op"]](c["X"])}


@torch_function("matmul", "matmul_v2", "mul")
def matmul(c: Case):
    return {"Out": torch.matmul(c["X"], c["Y"])}


@torch_function("fc")
def fc(c: Case):
    return {"Out": F.linear(c["Input"], c["W"].t(), c.get("Bias"))}


@torch_function("lookup_table", "lookup_table_v2")
def lookup_table(c: Case):
    ids = c["Ids"]
    return {"Out": F.embedding(ids.squeeze(-1) if c.entry["paddle_op"] == "lookup_table" else ids, c["W"])}


@torch_function("concat")
def concat(c: Case):
    return {"Out": torch.cat(c["X"], c.attrs.get("axis", 0))}


@torch_function("sum")
def sum_of_several(c: Case):
    first, *others = c["X"]
    for other in others:
        first = torch.add(first, other)
    return {"Out": first}


@torch_function("assign")
def assign(c: Case):
    return {"Out": torch.clone(c["X"])}


@torch_function("fill_zeros_like")
def fill_zeros_like(c: Case):
    return {"Out": torch.zeros_like(c["X"])}


@torch_function("equal")
def equal(c: Case):
    return {"Out": torch.eq(c["X"], c["Y"])}


@torch_function("cast")
def cast(c: Case):
    return {"Out": c["X"].to(DTYPES[c.attrs["out_dtype"]])}


@torch_function("scale")
def scale(c: Case):
    return {"Out": torch.add(torch.mul(c["X"], c.attrs.get("scale", 1.0)), c.attrs.get("bias", 0.0))}


@torch_function("clip")
def clip(c: Case):
    return {"Out": torch.clamp(c["X"], c.attrs["min"], c.attrs["max"])}


@torch_function("softmax")
def softmax(c: Case):
    return {"Out": torch.softmax(c["X"], c.attrs.get("axis", -1))}


@torch_function("log_softmax")
def log_softmax(c: Case):
    return {"Out": torch.log_softmax(c["X"], c.attrs.get("axis", -1))}


@torch_function("dropout")
def dropout(c: Case):
    p, training = c.attrs.get("dropout_prob", 0.5), not c.attrs.get("is_test", False)
    out = F.dropout(c["X"], p, training)
    kept_scale = c.attrs.get("dropout_implementation", "downgrade_in_infer") == "upscale_in_train" or training
    return {"Out": out if kept_scale else torch.mul(out, 1 - p)}  # Paddle's old kind scales at inference


@torch_function("layer_norm")
def layer_norm(c: Case):
    x, first = c["X"], c.attrs.get("begin_norm_axis", 1)
    return {"Y": F.layer_norm(x, x.shape[first:], c.get("Scale"), c.get("Bias"), c.attrs.get("epsilon", 1e-5))}


@torch_function("top_k", "top_k_v2")
def top_k(c: Case):
    out, indices = torch.topk(c["X"], c.attrs["k"])
    return {"Out": out, "Indices": indices}


@torch_function("one_hot_v2")
def one_hot(c: Case):
    return {"Out": F.one_hot(c["X"], c.attrs["depth"]).to(DTYPES[c.attrs.get("dtype", 5)])}


@torch_function("cross_entropy")
def cross_entropy(c: Case):
    loss = F.nll_loss(torch.log(c["X"]), c["Label"].squeeze(-1), reduction="none")
    return {"Y": loss.unsqueeze(-1)}


@torch_function("softmax_with_cross_entropy")
def softmax_with_cross_entropy(c: Case):
    loss = F.cross_entropy(c["Logits"], c["Label"].squeeze(-1), reduction="none")
    return {"Loss": loss.unsqueeze(-1), "Softmax": torch.softmax(c["Logits"], -1)}


@torch_function("reshape2")
def reshape(c: Case):
    return {"Out": torch.reshape(c["X"], c.attrs["shape"])}


@torch_function("squeeze2")
def squeeze(c: Case):
    return {"Out": torch.squeeze(c["X"], tuple(c.attrs["axes"]))}


@torch_function("unsqueeze2")
def unsqueeze(c: Case):
    out = c["X"]
    for axis in c.attrs["axes"]:
        out = torch.unsqueeze(out, axis)
    return {"Out": out}


@torch_function("transpose2")
def transpose(c: Case):
    return {"Out": torch.permute(c["X"], c.attrs["axis"])}


@torch_function("pad")
def pad(c: Case):
    sides = c.attrs["paddings"]  # (before, after) of the first dim, then of the next
    last_first = [n for before in range(len(sides) - 2, -1, -2) for n in sides[before : before + 2]]
    return {"Out": F.pad(c["X"], last_first, value=c.attrs.get("pad_value", 0.0))}


@torch_function("slice")
def slice_of_dims(c: Case):
    out, a = c["Input"], c.attrs
    for axis, start, end in zip(a["axes"], a["starts"], a["ends"]):
        out = torch.narrow(out, axis, start, min(end, out.shape[axis]) - start)
    return {"Out": out}


@torch_function("split")
def split(c: Case):
    x, axis = c["X"], c.attrs.get("axis", 0)
    return {"Out": torch.split(x, c.attrs.get("sections") or x.shape[axis] // c.attrs["num"], axis)}


@torch_function("gather")
def gather(c: Case):
    return {"Out": torch.index_select(c["X"], c.attrs.get("axis", 0), c["Index"])}


@torch_function("mean")
def mean(c: Case):
    return {"Out": torch.mean(c["X"])}


@torch_function(*(f"reduce_{name}" for name in REDUCE))
def reduce(c: Case):
    x, a = c["X"], c.attrs
    dims = tuple(range(x.dim())) if a.get("reduce_all") else tuple(a["dim"])
    call = REDUCE[c.entry["paddle_op"].removeprefix("reduce_")]
    return {"Out": call(x, dims[0] if call is torch.prod else dims, keepdim=a.get("keep_dim", False))}


DIFFERENCES += [
    Difference(
        "lod_propagation",
        "only a later operand has a LoD",
        "the recorded values: the LoD is that of the operand which has one",
        lengths=Case.some_lengths,
    ),
    Difference(
        "lod_propagation",
        "rows are kept, LoD dropped",
        "the recorded values: row i is made of row i of X, so the LoD of X stays",
        lengths=Case.some_lengths,
    ),
    Difference(
        "lod_propagation",
        "recorded LoD of",
        "the recorded values: plain, as the rows are no longer those of X",
        lengths=lambda c: [],
    ),
]
