# SPDX-License-Identifier: Apache-2.0
"""One adapter per recorded operator: names, attributes and layouts into ours, and nothing that the operator should do.

To add one: a function of a Case with the decorator, which gives a dict, slot -> tensor or list of tensors. Slots of rows with
one element, (rows, 1), lose that dim on the way in where ours takes (rows,). Cases marked `differs` are judged by the first
rule that fits, at the end of this file."""

import golden_chain  # noqa: F401 - registers its adapters
import golden_recurrent  # noqa: F401
import torch
from golden_cases import (
    ANY,
    DIFFERENCES,
    WRONG_GRADIENTS,
    WRONG_ROWS,
    Case,
    Difference,
    WrongGradient,
    WrongRows,
    adapter,
)
from golden_propagation import DTYPES

import torch_lod as tl

# Pooling


@adapter("sequence_pool")
def sequence_pool(c: Case):
    kind, pad_value = c.attrs.get("pooltype", "AVERAGE"), c.attrs.get("pad_value", 0.0)
    if c.wants("MaxIndex"):
        out, index = tl.sequence_pool(c["X"], kind, padding_value=pad_value, return_index=True)
        return {"Out": out, "MaxIndex": index.to(torch.int32)}
    return {"Out": tl.sequence_pool(c["X"], kind, padding_value=pad_value)}


@adapter("sequence_first_step")
def sequence_first_step(c: Case):
    return {"Out": tl.sequence_first_step(c["X"], padding_value=c.attrs.get("pad_value", 0.0))}


@adapter("sequence_last_step")
def sequence_last_step(c: Case):
    return {"Out": tl.sequence_last_step(c["X"], padding_value=c.attrs.get("pad_value", 0.0))}


@adapter("sequence_topk_avg_pooling")
def sequence_topk_avg_pooling(c: Case):
    topks, channels = c.attrs["topks"], c.attrs["channel_num"]
    return {"Out": tl.sequence_topk_avg_pooling(c["X"], c["ROW"], c["COLUMN"], topks, channels)}


@adapter("fused_embedding_seq_pool")
def fused_embedding_seq_pool(c: Case):
    padding = c.attrs.get("padding_idx", -1)
    options = {} if padding == -1 else {"padding_idx": padding}
    ids = c["Ids"].flatten(1)  # several ids in a row: their vectors side by side in the result
    out = tl.fused_embedding_seq_pool(ids, c["W"], c.attrs.get("combiner", "sum"), **options)
    return {"Out": out.flatten(1)}


# Within a sequence


@adapter("sequence_softmax")
def sequence_softmax(c: Case):
    return {"Out": tl.sequence_softmax(c["X"])}


@adapter("sequence_reverse")
def sequence_reverse(c: Case):
    return {"Y": tl.sequence_reverse(c["X"])}


# Labels


def padded_or_not(c: Case, slot: str, lengths: str, time_first: bool = False):
    """As a LoDTensor: with a LoD, or padded with lengths beside."""
    x = c[slot]
    if lengths not in c:
        return x
    x = x.transpose(0, 1) if time_first else x
    return tl.from_padded(x, c[lengths].flatten())


@adapter("warpctc")
def warpctc(c: Case):
    logits = padded_or_not(c, "Logits", "LogitsLength", time_first=True)
    label = padded_or_not(c, "Label", "LabelLength")
    losses = tl.warpctc(logits, label, c.attrs.get("blank", 0), c.attrs.get("norm_by_times", False))
    return {"Loss": losses[:, None]}


@adapter("ctc_align")
def ctc_align(c: Case):
    x = padded_or_not(c, "Input", "InputLength")
    out = tl.ctc_align(x, blank=c.attrs.get("blank", 0), merge_repeated=c.attrs.get("merge_repeated", True))
    if "InputLength" not in c:
        return {"Output": out[:, None]}
    dense, lengths = out.to_padded(c.attrs.get("padding_value", 0), max_length=c["Input"].shape[1])
    return {"Output": dense, "OutputLength": lengths.to(torch.int32)[:, None]}


@adapter("edit_distance")
def edit_distance(c: Case):
    hyps, refs = padded_or_not(c, "Hyps", "HypsLength"), padded_or_not(c, "Refs", "RefsLength")
    distance = tl.edit_distance(hyps, refs, normalized=c.attrs.get("normalized", True))
    return {"Out": distance.float()[:, None], "SequenceNum": torch.tensor([len(distance)])}


# Structure


@adapter("sequence_expand")
def sequence_expand(c: Case):
    return {"Out": tl.sequence_expand(c["X"], c["Y"], ref_level=c.attrs.get("ref_level", -1))}


@adapter("sequence_expand_as")
def sequence_expand_as(c: Case):
    return {"Out": tl.sequence_expand_as(rows_of(c["X"]), c["Y"])}  # Paddle does not look at the LoD of X


@adapter("sequence_concat")
def sequence_concat(c: Case):
    return {"Out": tl.sequence_concat(c["X"])}


@adapter("sequence_slice")
def sequence_slice(c: Case):
    return {"Out": tl.sequence_slice(c["X"], c["Offset"].flatten(), c["Length"].flatten())}


@adapter("sequence_erase")
def sequence_erase(c: Case):
    return {"Out": tl.sequence_erase(c["X"], c.attrs["tokens"])}


@adapter("sequence_enumerate")
def sequence_enumerate(c: Case):
    return {"Out": tl.sequence_enumerate(c["X"], c.attrs["win_size"], padding_value=c.attrs.get("pad_value", 0))}


@adapter("sequence_reshape")
def sequence_reshape(c: Case):
    return {"Out": tl.sequence_reshape(c["X"], c.attrs["new_dim"])}


@adapter("sequence_scatter")
def sequence_scatter(c: Case):
    ids = column(c["Ids"])
    updates = rows_of(column(c["Updates"]))
    if isinstance(ids, tl.LoDTensor):  # Paddle does not look at the LoD of Updates
        updates = ids.with_values(updates)
    return {"Out": tl.sequence_scatter(c["X"], ids, updates)}


@adapter("sequence_pad")
def sequence_pad(c: Case):
    pad_value, length = c["PadValue"], c.attrs.get("padded_length", -1)
    pad_value = pad_value.item() if pad_value.shape == (1,) else pad_value
    out, lengths = tl.sequence_pad(c["X"], pad_value, maxlen=None if length == -1 else length)
    return {"Out": out, "Length": lengths}


@adapter("sequence_unpad")
def sequence_unpad(c: Case):
    x = c["X"]
    x = x.unsqueeze(2) if x.dim() == 2 else x  # (batch, time): Paddle gives (rows, 1)
    return {"Out": tl.sequence_unpad(x, c["Length"].flatten())}


@adapter("sequence_mask")
def sequence_mask(c: Case):
    longest = int(c["MaxLenTensor"]) if "MaxLenTensor" in c else c.attrs.get("maxlen", -1)
    dtype = DTYPES[c.attrs.get("out_dtype", 3)]
    return {"Y": tl.sequence_mask(c["X"], None if longest == -1 else longest, dtype)}


@adapter("lod_reset")
def lod_reset(c: Case):
    return {"Out": tl.lod_reset(c["X"], target_lod(c))}


@adapter("lod_append")
def lod_append(c: Case):
    return {"Out": tl.lod_append(c["X"], target_lod(c))}


def target_lod(c: Case) -> tl.LoD:
    """The LoD of Y, or else the offsets that Y or the attribute holds."""
    y = c.get("Y")
    if isinstance(y, tl.LoDTensor):
        return y.lod
    return tl.LoD([c.attrs["target_lod"] if y is None else y.flatten()])


# Windows


@adapter("sequence_conv")
def sequence_conv(c: Case):
    assert c.attrs.get("contextStride", 1) == 1
    length, start = c.attrs["contextLength"], c.attrs.get("contextStart", 0)
    padding = c.get("PaddingData") if c.attrs.get("paddingTrainable") else None
    return {"Out": tl.sequence_conv(c["X"], c["Filter"], length, start, padding_data=padding)}


@adapter("row_conv")
def row_conv(c: Case):
    x = c["X"]
    if isinstance(x, tl.LoDTensor):
        return {"Out": tl.row_conv(x, c["Filter"])}
    packed = tl.from_lengths(x.flatten(0, 1), [[x.shape[1]] * x.shape[0]])  # (batch, time, channels), all of one length
    return {"Out": tl.row_conv(packed, c["Filter"]).values().reshape(x.shape)}


@adapter("im2sequence")
def im2sequence(c: Case):
    a = c.attrs
    real = {"input_image_size": c["Y"], "out_stride": tuple(a.get("out_stride", (1, 1)))} if "Y" in c else {}
    stride, padding = tuple(a.get("strides", (1, 1))), tuple(a.get("paddings", (0, 0, 0, 0)))
    return {"Out": tl.im2sequence(c["X"], tuple(a["kernels"]), stride, padding, **real)}


# Chunks


@adapter("chunk_eval")
def chunk_eval(c: Case):
    x, label, a = c["Inference"], c["Label"], c.attrs
    if "SeqLength" in c:
        x, label = (tl.from_padded(t, c["SeqLength"].flatten()) for t in (x, label))
    scores = tl.chunk_eval(x, label, a["chunk_scheme"], a["num_chunk_types"], a.get("excluded_chunk_types", ()))
    slots = ("Precision", "Recall", "F1-Score", "NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    return {slot: score.reshape(1) for slot, score in zip(slots, scores)}


# Beams


@adapter("beam_search")
def beam_search(c: Case):
    a, given = c.attrs, [c["pre_ids"], c["pre_scores"], c.get("ids"), c["scores"]]
    ids, scores, parents = tl.beam_search(
        *given,
        a["beam_size"],
        a["end_id"],
        level=a.get("level", 0),
        is_accumulated=a.get("is_accumulated", True),
        return_parent_idx=True,
    )
    selected = {"selected_ids": ids.unsqueeze(1), "selected_scores": scores.unsqueeze(1)}
    return {**selected, "parent_idx": parents.to(torch.int32)}


@adapter("beam_search_decode")
def beam_search_decode(c: Case):
    if "Ids" in c:
        ids, scores = tl.beam_search_decode(c["Ids"], c["Scores"], c.attrs["beam_size"], c.attrs["end_id"])
    else:  # of a crash only the fact was recorded: what crashed Paddle, a source with fewer hypotheses than beam_size
        first, second = tl.from_lengths(torch.ones(2), [[1, 1]] * 2), tl.from_lengths(torch.ones(3), [[1, 1], [2, 1]])
        ids, scores = tl.beam_search_decode([first.long(), second.long()], [first, second], 2, 0)
    return {"SentenceIds": ids, "SentenceScores": scores}


# Ranking, and what Paddle fuses


@adapter("cvm")
def cvm(c: Case):
    return {"Y": tl.cvm(c["X"], c["CVM"], c.attrs.get("use_cvm", True))}


@adapter("filter_by_instag")
def filter_by_instag(c: Case):
    out, counts, index = tl.filter_by_instag(c["Ins"], c["Ins_tag"], c["Filter_tag"], c.attrs["out_val_if_empty"])
    given = {"Out": out, "LossWeight": counts[:, None].float(), "IndexMap": index}
    return {slot: row_by_row(t) for slot, t in given.items()}


@adapter("fusion_seqpool_concat")
def fusion_seqpool_concat(c: Case):
    return {"Out": row_by_row(tl.fusion_seqpool_concat(c["X"], c.attrs["pooltype"]))}


@adapter("fusion_seqpool_cvm_concat")
def fusion_seqpool_cvm_concat(c: Case):
    return {"Out": row_by_row(tl.fusion_seqpool_cvm_concat(c["X"], c.attrs["pooltype"], c.attrs.get("use_cvm", True)))}


@adapter("fusion_seqconv_eltadd_relu")
def fusion_seqconv_eltadd_relu(c: Case):
    assert c.attrs.get("contextStride", 1) == 1
    context = c.attrs["contextLength"], c.attrs.get("contextStart", 0)
    return {"Out": tl.fusion_seqconv_eltadd_relu(c["X"], c["Filter"], c["Bias"].flatten(), *context)}


@adapter("fusion_seqexpand_concat_fc")
def fusion_seqexpand_concat_fc(c: Case):
    x, *others = c["X"]
    bias = c["FCBias"].flatten() if "FCBias" in c else None
    xs = [x, *map(rows_of, others)]
    return {"Out": tl.fusion_seqexpand_concat_fc(xs, c["FCWeight"], bias, c.attrs["fc_activation"])}


# Matching


@adapter("match_matrix_tensor")
def match_matrix_tensor(c: Case):
    return {"Out": tl.match_matrix_tensor(c["X"], c["Y"], c["W"])[:, None]}


@adapter("var_conv_2d")
def var_conv_2d(c: Case):
    a = c.attrs
    weight = c["W"].view(a["OutputChannel"], a["InputChannel"], a["KernelH"], a["KernelW"])
    return {"Out": tl.var_conv_2d(c["X"], c["ROW"], c["COLUMN"], weight, (a["StrideH"], a["StrideW"]))[:, None]}


@adapter("tree_conv")
def tree_conv(c: Case):
    """Paddle pads: edges with zeros, and nodes with rows that no edge names, whose results are zeros."""
    edges, nodes = c["EdgeSet"], c["NodesVector"]
    lengths = (edges != 0).all(2).sum(1)
    trees = tl.from_padded(nodes, lengths + 1)
    out = tl.tree_conv(trees, tl.from_padded(edges, lengths), c["Filter"], c.attrs["max_depth"])
    return {"Out": out.to_padded(max_length=nodes.shape[1])[0]}


def row_by_row(x: torch.Tensor) -> torch.Tensor:
    """Where ours is plain, Paddle has a sequence of every row."""
    return x if isinstance(x, tl.LoDTensor) else tl.from_lengths(x, [[1] * len(x)])


# Recurrence plan


@adapter("lod_rank_table")
def lod_rank_table(c: Case):
    items = tl.lod_rank_table(c["X"], level=c.attrs.get("level", 0)).items()
    return {"items": torch.tensor(list(items), dtype=torch.int64).reshape(-1, 2)}


@adapter("max_sequence_len")
def max_sequence_len(c: Case):
    return {"Out": torch.tensor([tl.max_sequence_len(tl.lod_rank_table(c["X"], level=c.attrs.get("level", 0)))])}


@adapter("lod_tensor_to_array")
def lod_tensor_to_array(c: Case):
    x = c["X"]
    return {"Out": tl.lod_tensor_to_array(x, tl.lod_rank_table(x, level=c.attrs.get("level", 0)))}


@adapter("array_to_lod_tensor", gradient_of={"X_via_lod_tensor_to_array": "RankTableSource"})
def array_to_lod_tensor(c: Case):
    table = table_of(c)
    array = tl.lod_tensor_to_array(c["RankTableSource"], table) if c.differentiating else c["X"]
    return {"Out": tl.array_to_lod_tensor(array, table)}


@adapter("reorder_lod_tensor_by_rank")
def reorder_lod_tensor_by_rank(c: Case):
    return {"Out": tl.reorder_lod_tensor_by_rank(c["X"], table_of(c))}


@adapter("shrink_rnn_memory")
def shrink_rnn_memory(c: Case):
    return {"Out": tl.shrink_memory(c["X"], c.attrs["I"], table_of(c))}


@adapter("split_lod_tensor")
def split_lod_tensor(c: Case):
    true, false = tl.split_lod_tensor(c["X"], c["Mask"].flatten(), level=c.attrs.get("level", 0))
    return {"OutTrue": without_empty_lod(true), "OutFalse": without_empty_lod(false)}


@adapter("merge_lod_tensor")
def merge_lod_tensor(c: Case):
    x, level = c["X"], c.attrs.get("level", 0)
    branches = (with_empty_lod(c[slot], x, level) for slot in ("InTrue", "InFalse"))
    return {"Out": tl.merge_lod_tensor(*branches, x, c["Mask"].flatten(), level=level)}


def table_of(c: Case):
    return tl.lod_rank_table(c["RankTableSource"], level=c.attrs.get("level", 0))


def without_empty_lod(x: torch.Tensor) -> torch.Tensor:
    """Of no sequence Paddle records no LoD; ours has levels without entries."""
    return x.values() if isinstance(x, tl.LoDTensor) and x.num_sequences() == 0 else x


def with_empty_lod(branch: torch.Tensor, x: torch.Tensor, level: int) -> torch.Tensor:
    if isinstance(branch, tl.LoDTensor) or not isinstance(x, tl.LoDTensor) or branch.shape[0]:
        return branch
    return tl.from_lengths(branch, [[]] * (x.lod_level - level))


def column(x: torch.Tensor) -> torch.Tensor:
    """(rows, 1) or (rows,) as (rows,)."""
    return x.squeeze(1) if x.dim() == 2 else x


def rows_of(x: torch.Tensor) -> torch.Tensor:
    return x.values() if isinstance(x, tl.LoDTensor) else x


# Where ours differs by design: the rules of golden_propagation.py come first

DIFFERENCES += [
    Difference(
        "lod_append",
        "recorded LoD of Out does not partition",
        "an error: a new level has a sequence for every row of the level above it",
        raises=True,
    ),
    Difference(
        "lod_append",
        "append ignored when Y has a LoD",
        "an error, or the recorded values: the LoD of Y comes below that of X, where it fits",
        raises=True,
        lengths=lambda c: c.lengths("X") + c.lengths("Y"),
    ),
    Difference(
        ANY,
        "operands carry different LoDs",
        "an error: LoDs that differ never meet in silence",
        raises=True,
    ),
    Difference(
        ANY,
        "recorded LoD of",
        "an error, or a result whose LoD cuts its rows, as every LoD of ours does",
        raises=True,
        any_result=True,
    ),
    Difference(
        ANY,
        "level-0 entries used as row offsets",
        "an error, or a result per innermost sequence",
        raises=True,
        any_result=True,
    ),
]

WRONG_GRADIENTS += [
    WrongGradient(
        "sequence_conv",
        "Filter",
        "the gradient of Filter is not compared: a sequence no longer than contextStart has nothing in its window, and "
        "Paddle counts what an earlier step left in its buffer there",
        lambda c: (
            not c.attrs.get("paddingTrainable")
            and any(0 < n <= c.attrs.get("contextStart", 0) for n in c.lengths("X")[-1])
        ),
    ),
    WrongGradient(
        "im2sequence",
        "X",
        "the gradient is not compared: with image sizes Paddle cuts it into equal parts, whatever each image has",
        lambda c: "Y" in c,
    ),
    WrongGradient(
        "lstm",
        "Weight",
        "the gradient of Weight is not compared: with an empty sequence Paddle pairs the first steps with other rows of H0",
        lambda c: "H0" in c and 0 in c.lengths("Input")[-1],
    ),
    WrongGradient(
        "lstm",
        "H0",
        "the gradient of H0 is not compared: with an empty sequence Paddle pairs the first steps with other rows of H0",
        lambda c: "H0" in c and 0 in c.lengths("Input")[-1],
    ),
]

WRONG_GRADIENTS.append(
    WrongGradient(
        "tree_conv",
        "NodesVector",
        "the gradient of NodesVector is not compared: with several filters Paddle takes the weights of others in it",
        lambda c: c.entry["inputs"]["Filter"]["shape"][2:] != [1, 1],
    )
)


def empty_sequences(c: Case) -> list[int]:
    return sorted(
        {i for x in c.entry["inputs"]["X"] for i, n in enumerate(x["recursive_sequence_lengths"][-1]) if n == 0}
    )


WRONG_ROWS += [
    WrongRows(
        operator,
        "the rows of empty sequences are not compared: Paddle takes a row of the next sequence, or what lies behind x",
        empty_sequences,
    )
    for operator in ("fusion_seqpool_concat", "fusion_seqpool_cvm_concat")
]
