# SPDX-License-Identifier: Apache-2.0
"""Every tensor argument of every operator, with each fault that the gate refuses; as a program, a report.

A fault that gets past the gate may end the process: the program prints every case before it runs.
"""

import sys

import torch
from malformed import ints

import torch_lod as tl
from torch_lod.ops import compositions, schemas

ROWS, HIDDEN = 6, 3
OPS = torch.ops.torch_lod


def ones(*shape):
    return torch.ones(*shape)


def cut():
    return ints(0, 2, 6)


def layer(blocks: int, **more):
    given = {"values": ones(ROWS, 2), "weight_ih": ones(blocks * HIDDEN, 2), "weight_hh": ones(blocks * HIDDEN, HIDDEN)}
    return given | {"h_0": ones(2, HIDDEN), "row_offsets": cut()} | more


def forward(blocks: int, **more):
    return layer(blocks, bias_ih=ones(blocks * HIDDEN), bias_hh=ones(blocks * HIDDEN), **more)


def backward(blocks: int, **more):
    return layer(blocks, reverse=False, grad_output=ones(ROWS, HIDDEN), output=ones(ROWS, HIDDEN), **more)


def calls() -> dict[str, dict]:
    """For every operator arguments that it takes, all of its tensors among them."""
    values, index, starts = ones(ROWS, 2), torch.zeros(2, 2, dtype=torch.int64), ints(0, 2)
    segments = {"values": values, "row_offsets": cut()}
    runs = {"values": values, "starts": starts, "row_offsets": cut(), "rows": ROWS}
    one = {"c_0": ones(2, HIDDEN), "weight_hr": ones(HIDDEN, HIDDEN)}
    heads = {"query": ones(ROWS, 2, 4), "key": ones(ROWS, 2, 4), "value": ones(ROWS, 2, 4)}
    heads |= {"query_offsets": cut(), "key_offsets": cut(), "bias": ones(20, 2), "slopes": ones(2)}
    heads |= {"seed": torch.tensor(7), "scale": 1.0, "dropout": 0.5}
    heads |= {"sink": ones(2), "distance_bias": ones(2, 3), "key_ends": ints(1, 2, 1, 2, 3, 4)}
    saved = {"grad": ones(ROWS, 2, 4), "left": -1, "right": -1, "output": ones(ROWS, 2, 4), "biases": True}
    matrix = {"query": ones(ROWS, 1, 3), "key": ones(ROWS, 1, 3), "value": ones(ROWS, 2, 4), "decay": ones(ROWS, 2, 3)}
    matrix |= {"beta": ones(ROWS, 2), "a": ones(ROWS, 1, 3), "b": ones(ROWS, 1, 3), "initial": ones(2, 2, 3, 4)}
    matrix |= {"row_offsets": cut()}
    chain = {"values": values, "transition": ones(4, 2), "row_offsets": cut()}
    ctc = {"values": ones(ROWS, 3), "row_offsets": cut(), "labels": ints(1, 2, 1), "label_offsets": ints(0, 1, 3)}
    edits = {
        "values": ints(*range(ROWS)),
        "row_offsets": cut(),
        "others": ints(1, 2, 1),
        "other_offsets": ints(0, 1, 3),
    }
    conv = {"values": values, "row_offsets": cut(), "start": -1}
    return {
        "check_lod": {"offsets": [ints(0, 2), cut()], "rows": ROWS},
        "keep_structure": {"structure": cut(), "rows": ROWS, "cuts": True, "host": cut()},
        "check_errors": {},  # has no tensors
        "watch_structure": {
            **{"structure": starts, "offsets": cut(), "rule": "runs", "rows": ROWS, "own": ROWS, "option": 1},
            **{"op": "gather_runs", "name": "row_offsets", "of": "values"},
        },
        "rank_by_length": {"offsets": cut()},
        "take_runs": {
            **{"levels": [cut()], "starts": ints(0, 0), "lengths": ints(1, 1), "elements": 2, "within": ints(0, 1, 2)},
        },
        "cut_lod": {"levels": [ints(0, 2), cut()], "begin": 0, "end": 1},
        "join_lods": {"levels": [ints(0, 2), cut(), ints(0, 2), cut()], "depth": 2, "within": True},
        "locate": {"index": ints(0, -1, 1), "index_offsets": ints(0, 1, 3), "row_offsets": ints(0, 2, 6)},
        "run_map": {"starts": starts, "row_offsets": cut(), "rows": ROWS},
        "gather_rows": {"values": values, "map": ints(0, -1, 5)},
        "scatter_rows": {"values": values, "map": ints(0, -1, 5, 1, 1, 2), "rows": ROWS},
        "gather_runs": runs,
        "scatter_runs": runs,
        "segment_concat": {**segments, "others": ones(3, 2), "other_offsets": ints(0, 1, 3)},
        "segment_unfold": {**segments, "size": 2, "start": -1},
        "segment_fold": {"values": ones(ROWS, 2, 2), "row_offsets": cut(), "start": -1},
        "segment_reduce": {**segments, "reduce": "sum"},
        "segment_extreme": {**segments, "reduce": "max"},
        "segment_broadcast": {"values": ones(2, 2), "row_offsets": cut(), "rows": ROWS},
        "segment_pick": {**segments, "index": index},
        "segment_place": {"values": ones(2, 2), "index": index, "row_offsets": cut(), "rows": ROWS},
        **dict.fromkeys(("segment_softmax", "segment_log_softmax", "segment_logsumexp"), segments),
        **dict.fromkeys(("segment_var", "segment_normalize", "segment_logcumsumexp"), segments),
        "segment_softmax_backward": {"grad": values, "output": values, "row_offsets": cut()},
        "segment_log_softmax_backward": {"grad": values, "output": values, "row_offsets": cut()},
        "segment_normalize_backward": {**segments, "grad": values, "eps": 1e-5},
        "segment_conv": {**conv, "weight": ones(3, 2, 4), "bias": ones(4)},
        "segment_conv_weight": {**conv, "grad": values, "size": 3},
        **dict.fromkeys(("edit_distance", "edit_alignment"), edits),
        **dict.fromkeys(("ctc_loss", "ctc_loss_composed", "ctc_best_path"), ctc),
        "ctc_beam": {"values": ones(ROWS, 3), "row_offsets": cut()},
        "ctc_loss_backward": {**ctc, "grad": ones(2), "blank": 0},
        "segment_scan": {**segments, "factors": values},
        "segment_cumulative": {**segments, "reduce": "max"},
        "segment_cumulative_backward": {
            **{"grad": values, "index": torch.arange(ROWS)[:, None].expand(values.shape), "row_offsets": cut()},
        },
        **dict.fromkeys(("segment_cumprod", "segment_order"), segments),
        "segment_topk": {**segments, "k": 2},
        **{name: forward(4, **one) for name in ("lstm", "lstm_composed")},
        **{name: forward(3) for name in ("gru", "gru_composed")},
        **{name: forward(1) for name in ("rnn", "rnn_composed")},
        "lstm_backward": backward(
            4, **one, grad_cells=ones(ROWS, HIDDEN), cells=ones(ROWS, HIDDEN), gates=ones(ROWS, 4 * HIDDEN)
        ),
        "gru_backward": backward(3, saved=ones(ROWS, 4 * HIDDEN)),
        "rnn_backward": backward(1, relu=False),
        **dict.fromkeys(("matrix_scan", "matrix_scan_composed"), matrix),
        "matrix_scan_backward": {
            **{"grad_output": ones(ROWS, 2, 4), "grad_last": ones(2, 2, 3, 4), **matrix, "delta": False, "scale": 1.0},
            "saved": ones(ROWS * 2 * 16),
        },
        **dict.fromkeys(("attention", "attention_composed"), heads),
        **dict.fromkeys(("chain_logsumexp", "chain_logsumexp_composed", "chain_argmax"), chain),
        **dict.fromkeys(("chain_marginals", "chain_marginals_composed"), chain),
        "chain_marginals_backward": {**chain, "grad": values},
        "chain_logsumexp_backward": {**chain, "grad": ones(2), "state": values},
        "chain_sample": {"state": values, "transition": ones(4, 2), "row_offsets": cut(), "uniform": values},
        "attention_backward": {**heads, **saved, "logsumexp": ones(ROWS, 2)},
    }


def emptied(t):
    t = t.clone()
    t.untyped_storage().resize_(0)
    return t


def shrunk(t):
    t = t.clone()
    t.untyped_storage().resize_(t.untyped_storage().nbytes() - t.itemsize)
    return t


def part_of_shrunk(t):
    """As a view with strides of its own, whose first elements are still there."""
    apart = torch.stack([t, t], -1)[..., 1]
    apart.untyped_storage().resize_(apart.untyped_storage().nbytes() // 2)
    return apart


FAULTS = {
    "emptied": emptied,
    "shrunk": shrunk,
    "part of shrunk": part_of_shrunk,
    "emptied, with a gradient": lambda t: emptied(t).requires_grad_() if t.is_floating_point() else emptied(t),
    "sparse": lambda t: t.to_sparse(),
    "quantized": lambda t: torch.quantize_per_tensor(t.float(), 1.0, 0, torch.qint8),
    "mkldnn": lambda t: t.float().to_mkldnn() if t.dim() else t.to_sparse(),
    "nested": lambda t: torch.nested.nested_tensor([t, t]),
    "meta": lambda t: t.to("meta"),
    "rank": lambda t: t.flatten()[0] if t.dim() else t[None],
}
#: What is refused before the gate: torch's dispatcher has no way from nested tensors to a kernel of ours, and says so
#: itself; kernels of gradients have none.
NESTED, NO_GRADIENT = "NestedTensor", "has no gradient of its own"


def tensors_of(name: str) -> list[str]:
    """The arguments of an operator that are tensors."""
    return [a.name for a in getattr(OPS, name).default._schema.arguments if "Tensor" in str(a.type)]


def faulty(name: str, given: dict, argument: str, fault):
    """The arguments with a fault in one; of a list in its last tensor."""
    good = given[argument]
    return in_order(name, given | {argument: [*good[:-1], fault(good[-1])] if isinstance(good, list) else fault(good)})


def in_order(name: str, given: dict) -> list:
    """As the schema has them."""
    return [given.get(a.name, a.default_value) for a in getattr(OPS, name).default._schema.arguments]


def check(name: str, argument: str, fault: str, call, given: dict) -> str:
    """What is wrong with how the operator answers; empty where nothing is."""
    arguments = faulty(name, given, argument, FAULTS[fault])
    try:
        call(*arguments)
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        words = str(error)
        if (fault == "nested" and NESTED in words) or (fault.endswith("gradient") and NO_GRADIENT in words):
            return ""
        ours = isinstance(error, (ValueError, TypeError)) and ": expected " in words.partition("\n")[0]
        said = argument in words or (fault == "meta" and "meta" in words)
        own = words.startswith((f"{name}:", f"{name.removesuffix('_composed')}:"))
        return "" if ours and own and said else f"{type(error).__name__}: {words[:150]!r}"
    return "returned"


def entries(name: str):
    """The ways to an operator, and what they are called."""
    yield "operator", getattr(OPS, name)
    if tl.ops.COMPILED:  # otherwise it is the operator
        yield "composition", compositions.COMPOSITIONS[name]


def main() -> None:
    table, count = calls(), 0
    assert set(table) == set(schemas.read()), set(table) ^ set(schemas.read())
    for name, given in table.items():
        tensors = tensors_of(name)
        assert (tensors or not given) and set(tensors) <= set(given), (
            f"{name}: no sample of {set(tensors) - set(given)}"
        )
        for way, call in entries(name):
            call(*in_order(name, given))
            for argument in tensors:
                for fault in FAULTS:
                    case = f"{name} {argument} {fault} {way}"
                    print("case", case, flush=True)
                    if wrong := check(name, argument, fault, call, given):
                        print("wrong", case, wrong)
                    count += 1
    print("done", count)


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert sys.argv[1:] in ([], ["composed"]) and tl.ops.COMPILED != bool(sys.argv[1:])
    main()
