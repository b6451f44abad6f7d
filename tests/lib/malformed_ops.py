# SPDX-License-Identifier: Apache-2.0
"""The table of malformed arguments of the raw operators."""

import functools

import torch
from malformed import HUGE, ROWS, ints, values

import torch_lod as tl

ops = tl.ops
HIDDEN = 3
BAD_OFFSETS = {
    "falls": ints(0, 5, 2, 6),
    "negative": ints(0, -3, 6),
    "all-negative": ints(-1, -2, -3),
    "start": ints(2, 4, 6),
    "start-of-two": ints(7, 8),
    "beyond": ints(0, 2, 1000),
    "far-beyond": ints(0, 2, 10**9),
    "huge": ints(0, HUGE),
    "wraps": ints(0, HUGE, -(2**63), -1, 6),
    "wraps-to-end": ints(0, HUGE, -(2**63), 6),
    "short": ints(0, 2, 5),
    "empty": ints(),
    "single": ints(0),
    "scalar": torch.tensor(6),
    "matrix": torch.tensor([[0, 6]]),
    "five-dims": torch.zeros(0, 0, 0, 0, 0, dtype=torch.int64),
    "float": torch.tensor([0.0, 2.0, 6.0]),
    "bool": torch.tensor([False, True]),
    "uint64": torch.tensor([0, 6], dtype=torch.uint64),
    "int16": torch.tensor([0, 6], dtype=torch.int16),
    "meta": torch.zeros(3, dtype=torch.int64, device="meta"),
    "sparse": ints(0, 2, 6).to_sparse(),
    "csr": torch.tensor([[0, 2, 6]]).to_sparse_csr(),
    "quantised": torch.quantize_per_tensor(torch.tensor([0.0, 6.0]), 1.0, 0, torch.qint32),
    "mkldnn": torch.tensor([0.0, 6.0]).to_mkldnn() if torch.backends.mkldnn.is_available() else None,
    "none": None,
    "list": [0, 2, 6],
    "string": "abc",
}
BAD_MAPS = {
    "beyond": ints(0, ROWS),
    "below": ints(-2, 0),
    "largest": ints(HUGE),
    "smallest": ints(-(2**63)),
    "float": torch.tensor([0.0]),
    "matrix": torch.zeros(1, 1, dtype=torch.int64),
    "scalar": torch.tensor(0),
    "int32": torch.zeros(1, dtype=torch.int32),
    "meta": torch.zeros(1, dtype=torch.int64, device="meta"),
    "sparse": ints(0, 1).to_sparse(),
    "none": None,
}


def segments(o) -> int:
    return max(o.shape[0] - 1, 0) if isinstance(o, torch.Tensor) and o.dim() else 2


def per_segment(o):
    return torch.ones(segments(o), 2)


def index(o):
    return torch.zeros(segments(o), 2, dtype=torch.int64)


def weights(gates: int):
    return torch.ones(gates * HIDDEN, 2), torch.ones(gates * HIDDEN, HIDDEN)


def matrix_inputs(o, heads: int = 2, states: int | None = None, pair=None):
    """Up to the offsets; states: another number of them than there are segments."""
    key, value = torch.ones(ROWS, 1 if heads == 2 else 2, 3), torch.ones(ROWS, heads, 4)
    initial = torch.ones(segments(o) if states is None else states, heads, 3, 4)
    return key, key, value, torch.ones(ROWS, heads), None, pair, pair, initial, o


def hidden(width: int = 1):
    return torch.ones(ROWS, width * HIDDEN)


def heads(rows: int = ROWS):
    return torch.ones(rows, 2, 3)


def take_runs(levels=None, starts=None, lengths=None, elements=3, within=None):
    levels = [ints(0, 1, 3, 6)] if levels is None else levels
    starts, lengths = ints(1, 0) if starts is None else starts, ints(2, 1) if lengths is None else lengths
    return torch.ops.torch_lod.take_runs(levels, starts, lengths, elements, within=within)


def cut_lod(levels, begin, end):
    return torch.ops.torch_lod.cut_lod(levels, begin, end)


def join_lods(levels, depth=1, within=False):
    return torch.ops.torch_lod.join_lods(levels, depth, False, within)


def attend(query_offsets, key_offsets, **options):
    return ops.attention(heads(), heads(), heads(), query_offsets, key_offsets, **options)


def ctc(op, row_offsets, label_offsets, *first):
    given = torch.ones(ROWS, 2), row_offsets, torch.ones(ROWS, dtype=torch.int64), label_offsets, 0
    return getattr(torch.ops.torch_lod, op)(*first, *given)


def edits(op, row_offsets, other_offsets):
    numbers = torch.arange(ROWS)
    return getattr(torch.ops.torch_lod, op)(numbers, row_offsets, numbers, other_offsets)


def attend_backward(query_offsets, key_offsets):
    cuts, rest = (query_offsets, key_offsets), (None, None, None, None, -1, -1, 0.0, *[None] * 4)
    return torch.ops.torch_lod.attention_backward(*[heads()] * 4, *cuts, *rest, heads(), torch.ones(ROWS, 2), True)


OPERATORS = {
    "segment_reduce-sum": lambda o: ops.segment_reduce(values(), o, "sum"),
    "segment_reduce-max": lambda o: ops.segment_reduce(values(), o, "max"),
    "segment_reduce-first": lambda o: ops.segment_reduce(values(), o, "first"),
    "segment_extreme": lambda o: ops.segment_extreme(values(), o, "max"),
    "segment_broadcast": lambda o: ops.segment_broadcast(per_segment(o), o, ROWS),
    "segment_pick": lambda o: ops.segment_pick(values(), index(o), o),
    "segment_place": lambda o: ops.segment_place(per_segment(o), index(o), o, ROWS),
    "segment_log_softmax": lambda o: ops.segment_log_softmax(values(), o),
    "segment_log_softmax_backward": lambda o: torch.ops.torch_lod.segment_log_softmax_backward(values(), values(), o),
    "segment_logcumsumexp": lambda o: ops.segment_logcumsumexp(values(), o),
    "segment_logsumexp": lambda o: ops.segment_logsumexp(values(), o),
    "segment_normalize": lambda o: ops.segment_normalize(values(), o),
    "segment_normalize_backward": lambda o: torch.ops.torch_lod.segment_normalize_backward(values(), values(), o, 0.1),
    "segment_var": lambda o: ops.segment_var(values(), o),
    "segment_softmax": lambda o: ops.segment_softmax(values(), o),
    "segment_softmax_backward": lambda o: torch.ops.torch_lod.segment_softmax_backward(values(), values(), o),
    "run_map": lambda o: ops.run_map(torch.zeros(segments(o), dtype=torch.int64), o, ROWS),
    "gather_runs": lambda o: ops.gather_runs(values(), torch.zeros(segments(o), dtype=torch.int64), o, ROWS),
    "scatter_runs": lambda o: ops.scatter_runs(values(), torch.zeros(segments(o), dtype=torch.int64), o, ROWS),
    "segment_concat": lambda o: ops.segment_concat(values(), o, values(), o),
    "segment_concat-others": lambda o: ops.segment_concat(values(), ints(0, 2, 6), values(), o),
    "segment_unfold": lambda o: ops.segment_unfold(values(), o, 3, -1),
    "segment_fold": lambda o: ops.segment_fold(torch.ones(ROWS, 3, 2), o, -1),
    "segment_conv": lambda o: ops.segment_conv(values(), torch.ones(3, 2, 4), torch.ones(4), o, -1),
    "segment_conv_weight": lambda o: torch.ops.torch_lod.segment_conv_weight(values(), values(), o, 3, -1),
    "segment_scan": lambda o: ops.segment_scan(values(), values(), o),
    "segment_scan-adjoint": lambda o: ops.segment_scan(values(), values(), o, True),
    "segment_cumulative": lambda o: ops.segment_cumulative(values(), o, "max"),
    "segment_cumulative_backward": lambda o: torch.ops.torch_lod.segment_cumulative_backward(
        values(), torch.zeros(values().shape, dtype=torch.int64), o
    ),
    "segment_cumprod": lambda o: ops.segment_cumprod(values(), o),
    "segment_order": lambda o: ops.segment_order(values(), o),
    "segment_topk": lambda o: ops.segment_topk(values(), o, 2),
    "segment_topk-many": lambda o: ops.segment_topk(values(), o, 99),
    "attention-queries": lambda o: attend(o, ints(0, 2, 6)),
    "attention-keys": lambda o: attend(ints(0, 2, 6), o),
    "attention-both": lambda o: attend(o, o),
    "attention-bias": lambda o: attend(o, o, bias=torch.ones(ROWS * ROWS, 1)),
    "attention_backward-queries": lambda o: attend_backward(o, ints(0, 2, 6)),
    "attention_backward-keys": lambda o: attend_backward(ints(0, 2, 6), o),
    "attention_composed": lambda o: torch.ops.torch_lod.attention_composed(heads(), heads(), heads(), o, o),
    "chain_logsumexp": lambda o: ops.chain_logsumexp(values(), torch.ones(4, 2), o),
    "chain_logsumexp_composed": lambda o: torch.ops.torch_lod.chain_logsumexp_composed(values(), torch.ones(4, 2), o),
    "chain_logsumexp_backward": lambda o: torch.ops.torch_lod.chain_logsumexp_backward(
        torch.ones(segments(o)), values(), torch.ones(4, 2), o, values()
    ),
    "chain_marginals": lambda o: ops.chain_marginals(values(), torch.ones(4, 2), o),
    "chain_marginals_composed": lambda o: torch.ops.torch_lod.chain_marginals_composed(values(), torch.ones(4, 2), o),
    "chain_marginals_backward": lambda o: torch.ops.torch_lod.chain_marginals_backward(
        values(), values(), torch.ones(4, 2), o
    ),
    "chain_argmax": lambda o: ops.chain_argmax(values(), torch.ones(4, 2), o, 2),
    "chain_sample": lambda o: ops.chain_sample(values(), torch.ones(4, 2), o, values()),
    "ctc_loss-rows": lambda o: ctc("ctc_loss", o, ints(0, 2, 6)),
    "ctc_loss-labels": lambda o: ctc("ctc_loss", ints(0, 2, 6), o),
    "ctc_loss_backward-rows": lambda o: ctc("ctc_loss_backward", o, ints(0, 2, 6), torch.ones(segments(o))),
    "ctc_loss_backward-labels": lambda o: ctc("ctc_loss_backward", ints(0, 2, 6), o, torch.ones(2)),
    "ctc_loss_composed": lambda o: ctc("ctc_loss_composed", o, o),
    "ctc_best_path-rows": lambda o: ctc("ctc_best_path", o, ints(0, 2, 6)),
    "ctc_best_path-labels": lambda o: ctc("ctc_best_path", ints(0, 2, 6), o),
    "ctc_beam": lambda o: ops.ctc_beam(values(), o, 0, 3, 2),
    "edit_distance-rows": lambda o: edits("edit_distance", o, ints(0, 2, 6)),
    "edit_distance-others": lambda o: edits("edit_distance", ints(0, 2, 6), o),
    "edit_alignment-rows": lambda o: edits("edit_alignment", o, ints(0, 2, 6)),
    "edit_alignment-others": lambda o: edits("edit_alignment", ints(0, 2, 6), o),
    "lstm": lambda o: ops.lstm(values(), *weights(4), None, None, None, None, o),
    "gru": lambda o: ops.gru(values(), *weights(3), None, None, None, o),
    "rnn": lambda o: ops.rnn(values(), *weights(1), None, None, None, o),
    "matrix_scan": lambda o: ops.matrix_scan(*matrix_inputs(o), True),
    "matrix_scan-pair": lambda o: ops.matrix_scan(*matrix_inputs(o, pair=torch.ones(ROWS, 1, 3))),
    "matrix_scan_composed": lambda o: torch.ops.torch_lod.matrix_scan_composed(*matrix_inputs(o)),
    "matrix_scan_backward": lambda o: torch.ops.torch_lod.matrix_scan_backward(
        torch.ones(ROWS, 2, 4), None, *matrix_inputs(o), True, 1.0, torch.ones(ROWS * 2 * 16)
    ),
    "lstm_composed": lambda o: torch.ops.torch_lod.lstm_composed(values(), *weights(4), None, None, None, None, o),
    "gru_composed": lambda o: torch.ops.torch_lod.gru_composed(values(), *weights(3), None, None, None, o),
    "rnn_composed": lambda o: torch.ops.torch_lod.rnn_composed(values(), *weights(1), None, None, None, o),
}
MAPPED = {
    "gather_rows": lambda m: ops.gather_rows(values(), m),
    "gather_rows-none": lambda m: ops.gather_rows(torch.zeros(0, 2), m),
    "scatter_rows": lambda m: ops.scatter_rows(torch.ones(_rows(m), 2), m, ROWS),
}


#: First rows of runs: those of BAD_MAPS, each as the only segment.
for _name, _step in (("up", 1), ("down", -1)):
    MAPPED |= {
        f"gather_runs-{_name}": lambda m, s=_step: ops.gather_runs(values(), m, _one_run(m), _rows(m) * 2, s),
        f"scatter_runs-{_name}": lambda m, s=_step: ops.scatter_runs(
            torch.ones(_rows(m) * 2, 2), m, _one_run(m), ROWS, s
        ),
    }


def _one_run(m):
    return torch.arange(_rows(m) + 1) * 2


def _rows(m) -> int:
    return m.shape[0] if isinstance(m, torch.Tensor) and m.dim() else 1


#: Sizes that are negative or that no memory holds.
SIZES = {
    "run_map-rows": (lambda: ops.run_map(ints(0), ints(0, 5), -1), "rows"),
    "run_map-no-rows": (lambda: ops.run_map(ints(), ints(0), -1), "rows"),
    "segment_broadcast-rows": (lambda: ops.segment_broadcast(torch.ones(1, 2), ints(0, 10**7), -1), "rows"),
    "segment_broadcast-rows-7": (lambda: ops.segment_broadcast(torch.ones(2, 2), ints(0, 5, 10**7), -7), "rows"),
    "segment_broadcast-wraps": (
        lambda: ops.segment_broadcast(torch.ones(2, 2), ints(0, HUGE, -(2**63)), -1),
        "rows|row_offsets",
    ),
    "segment_place-rows": (
        lambda: ops.segment_place(torch.ones(1, 2), ints(0, 0).view(1, 2), ints(0, 5), -1),
        "rows",
    ),
    "scatter_rows-rows": (lambda: ops.scatter_rows(torch.ones(1, 2), ints(-1), -1), "rows"),
    "segment_broadcast-2**60": (lambda: ops.segment_broadcast(torch.ones(1, 2), ints(0, 2**60), 2**60), ""),
    "run_map-2**60": (lambda: ops.run_map(ints(0), ints(0, 2**60), 2**60), ""),
    "scatter_rows-2**60": (lambda: ops.scatter_rows(values(), ints(0, 0, 0, 0, 0, 0), 2**60), ""),
    "scatter_rows-largest": (lambda: ops.scatter_rows(values(), ints(0, 0, 0, 0, 0, 0), HUGE), ""),
    "gather_runs-rows": (lambda: ops.gather_runs(values(), ints(0), ints(0, 6), -1), "rows"),
    "gather_runs-step": (lambda: ops.gather_runs(values(), ints(0), ints(0, 6), 6, 2**62), "step"),
    "gather_runs-2**60": (lambda: ops.gather_runs(values(), ints(0), ints(0, 2**60), 2**60), ""),
    "gather_runs-wraps": (lambda: ops.gather_runs(values(), ints(HUGE), ints(0, 6), 6), "runs within"),
    "scatter_runs-2**60": (lambda: ops.scatter_runs(values(), ints(0), ints(0, 6), 2**60), ""),
    "scatter_runs-largest": (lambda: ops.scatter_runs(values(), ints(0), ints(0, 6), HUGE), ""),
    "segment_unfold-size": (lambda: ops.segment_unfold(values(), ints(0, 6), HUGE, 0), "size"),
    "segment_unfold-none": (lambda: ops.segment_unfold(values(), ints(0, 6), 0, 0), "size"),
    "segment_unfold-start": (lambda: ops.segment_unfold(values(), ints(0, 6), 2, HUGE), "start"),
    "segment_unfold-dilation": (lambda: ops.segment_unfold(values(), ints(0, 6), 2, 0, HUGE), "dilation"),
    "segment_fold-start": (lambda: ops.segment_fold(torch.ones(6, 2, 2), ints(0, 6), -(2**63)), "start"),
    "segment_conv-start": (lambda: ops.segment_conv(values(), torch.ones(3, 2, 4), None, ints(0, 6), HUGE), "start"),
    "segment_conv-dilation": (
        lambda: ops.segment_conv(values(), torch.ones(3, 2, 4), None, ints(0, 6), 0, HUGE),
        "dilation",
    ),
    "segment_conv-weight": (lambda: ops.segment_conv(values(), torch.ones(3, 5, 4), None, ints(0, 6), 0), "weight"),
    "segment_scan-factors": (lambda: ops.segment_scan(values(), torch.ones(5, 2), ints(0, 6)), "factors"),
    "take_runs-nothing": (
        lambda: torch.ops.torch_lod.take_runs([], None, ints(1), 3),
        "expected starts where there is no within, got None",
    ),
    "cut_lod-none": (lambda: cut_lod([], 0, 0), "expected at least 1 level, got none"),
    "cut_lod-negative": (lambda: cut_lod([ints(0, 1, 3)], -1, 1), "expected 0 <= begin <= end <= 2, got -1 and 1"),
    "cut_lod-order": (lambda: cut_lod([ints(0, 1, 3)], 2, 1), "expected 0 <= begin <= end <= 2, got 2 and 1"),
    "cut_lod-end": (lambda: cut_lod([ints(0, 1, 3)], 0, 3), "expected 0 <= begin <= end <= 2, got 0 and 3"),
    "cut_lod-falls": (lambda: cut_lod([ints(0, 2, 1)], 0, 1), r"levels\[0\] not to decrease, got 2 then 1"),
    "cut_lod-levels": (
        lambda: cut_lod([ints(0, 1), ints(0, 2, 3)], 0, 1),
        r"the last of levels\[0\] to equal the 2 rows of the next level, got 1",
    ),
    "join_lods-none": (lambda: join_lods([]), "expected depth offsets of every LoD, got 0 and a depth of 1"),
    "join_lods-odd": (lambda: join_lods([ints(0, 1)] * 3, 2), "offsets of every LoD, got 3 and a depth of 2"),
    "join_lods-depth": (lambda: join_lods([ints(0, 1)], 0), "and a depth of 0"),
    "join_lods-negative": (lambda: join_lods([ints(0, 1)], -1), "and a depth of -1"),
    "join_lods-dims": (lambda: join_lods([ints(0, 1), ints(0, 1)[None]]), r"levels\[1\]"),
    "join_lods-empty": (lambda: join_lods([ints(0, 1), ints()], 2), r"levels\[1\]"),
    "join_lods-falls": (lambda: join_lods([ints(0, 1), ints(0, 2, 1)]), r"levels\[1\] not to decrease, got 2 then 1"),
    "join_lods-levels": (
        lambda: join_lods([ints(0, 1), ints(0, 2, 3)], 2),
        r"the last of levels\[0\] to equal the 2 rows of the next level, got 1",
    ),
    "join_lods-sum": (lambda: join_lods([ints(0, 2**62)] * 2), "add up to less than 2\\*\\*63"),
    "join_lods-within-sum": (lambda: join_lods([ints(0, 2**62)] * 2, 1, True), "add up to less than 2\\*\\*63"),
    "join_lods-within": (
        lambda: join_lods([ints(0, 1, 2), ints(0, 1, 3)] * 2 + [ints(0, 1), ints(0, 1)], 2, True),
        "expected equally many sequences, got 2 and 1 at index 2",
    ),
    "take_runs-no-lengths": (
        lambda: torch.ops.torch_lod.take_runs([], ints(0), None, 3),
        "lengths where there are starts, got None",
    ),
    "take_runs-no-most": (
        lambda: torch.ops.torch_lod.take_runs([], None, None, 3, within=ints(0, 3)),
        "most >= 0 where there are no lengths, got -1",
    ),
    "take_runs-parts": (
        lambda: torch.ops.torch_lod.take_runs([], None, None, 3, within=ints(0, 4), most=1),
        "last of within to equal the 3 rows of the elements",
    ),
    "take_runs-no-parts": (
        lambda: torch.ops.torch_lod.take_runs([], None, None, 3, within=ints(), most=1),
        "within with at least 1 entry",
    ),
    "take_runs-starts": (lambda: take_runs(starts=ints(1, 4)), r"within \[0, 3\), got 1 elements from 4 at index 1"),
    "take_runs-length": (lambda: take_runs(lengths=ints(2, -1)), r"within \[0, 3\), got -1 elements from 0 at index 1"),
    "take_runs-wraps": (lambda: take_runs(lengths=ints(2**63 - 1, 2)), r"within \[0, 3\)"),
    "take_runs-first": (lambda: take_runs(starts=ints(-(2**63), 0)), r"within \[0, 3\)"),
    "take_runs-many": (lambda: take_runs(starts=ints(0)), "one of starts per run, 2, got 1"),
    "take_runs-sum": (lambda: take_runs([], ints(0, 0), ints(2**61, 2**61), 2**61), "add up to less than"),
    "take_runs-elements": (lambda: take_runs(elements=4), r"levels\[0\] with 5 offsets, got 4"),
    "take_runs-negative": (lambda: take_runs([], elements=-1), "elements in"),
    "take_runs-within": (lambda: take_runs(within=ints(0, 3, 3)), r"within \[0, 0\), got 1 elements from 0 at index 1"),
    "take_runs-over": (lambda: take_runs(within=ints(0, 2, 3)), r"within \[0, 2\), got 2 elements from 1 at index 0"),
    "take_runs-segments": (lambda: take_runs(within=ints(0, 3)), "within with 3 offsets, got 2"),
    "take_runs-others": (lambda: take_runs(within=ints(0, 1, 2)), "last of within to equal the 3 rows of the elements"),
    "take_runs-unsorted": (lambda: take_runs(within=ints(0, 4, 3)), "within not to decrease"),
    "take_runs-levels": (lambda: take_runs([ints(0, 1, 3, 6), ints(0, 1)]), r"levels\[1\] with 7 offsets, got 2"),
    "take_runs-falls": (lambda: take_runs([ints(0, 3, 1, 6)]), r"levels\[0\] not to decrease"),
    "take_runs-none": (lambda: take_runs([ints()]), "at least 1"),
    "take_runs-rows": (lambda: take_runs([ints(0, 1, 3, 2**62)]), r"levels\[0\] to end below"),
    "take_runs-more": (
        lambda: take_runs([ints(0, 0, 0, 2**62 - 1)], ints(2, 2), ints(1, 1)),
        "fewer than 2..62 rows",
    ),
    "rank_by_length-falls": (lambda: ops.rank_by_length(ints(0, 5, 2)), "decrease"),
    "rank_by_length-none": (lambda: ops.rank_by_length(ints()), "at least 1"),
    "rank_by_length-meta": (lambda: ops.rank_by_length(torch.zeros(3, dtype=torch.int64, device="meta")), ""),
    "chain_argmax-paths": (
        lambda: ops.chain_argmax(torch.ones(1, 2**15), torch.ones(1, 1).expand(2**15 + 2, 2**15), ints(0, 1), 2**16),
        "tags times n below 2..31, got 32768 tags and n = 65536",
    ),
    "ctc_beam-classes": (
        lambda: ops.ctc_beam(torch.ones(1, 1).expand(1, 2**31), ints(0, 1)),
        "fewer than 2..31 classes, got 2147483648",
    ),
    "watch_structure-rule": (
        lambda: torch.ops.torch_lod.watch_structure(ints(0, 2), None, "bogus", 6, 6, 1, "gather_rows"),
        "expected rule 'cuts', 'maps', 'runs', 'labels', 'counts' or 'truths', got .?bogus",
    ),
    "watch_structure-offsets": (
        lambda: torch.ops.torch_lod.watch_structure(ints(0, 2), ints(0, 2, 6), "maps", 6, 6, 1, "gather_rows"),
        "offsets with the rule 'runs' and no other",
    ),
    "watch_structure-lengths": (
        lambda: torch.ops.torch_lod.watch_structure(ints(0, 2), ints(0, 6), "runs", 6, 6, 1, "gather_runs"),
        "one of structure per segment, 1, got 2",
    ),
    "chain_sample-scalar": (
        lambda: ops.chain_sample(torch.tensor(1.0), torch.ones(4, 2), ints(0, 1), torch.ones(1, 1)),
        "state with at least 1 dimension, got a scalar",
    ),
    "segment_topk-none": (lambda: ops.segment_topk(values(), ints(0, 6), 0), "k >= 1"),
    "segment_topk-huge": (lambda: ops.segment_topk(values(), ints(0, 6), HUGE), ""),
    "reduce-word": (lambda: ops.segment_reduce(values(), ints(0, 6), "bogus"), "bogus"),
    "reduce-none": (lambda: ops.segment_reduce(values(), ints(0, 6), None), ""),
    "attention-window": (lambda: attend(ints(0, 6), ints(0, 6), left=HUGE), "left"),
    "attention-window-right": (lambda: attend(ints(0, 6), ints(0, 6), right=-(2**63)), "right"),
    "attention-ends": (lambda: attend(ints(0, 6), ints(0, 6), key_ends=ints(1, 2, 3, 2, 5, 6)), "key_ends"),
    "attention-distances": (lambda: attend(ints(0, 6), ints(0, 6), distance_bias=torch.ones(2, 4)), "distance_bias"),
    "attention-sinks": (lambda: attend(ints(0, 6), ints(0, 6), sink=torch.ones(0)), "sink"),
    "attention-pairs": (lambda: attend(ints(0, 2, 6), ints(0, 2, 6), bias=torch.ones(21, 1)), "pair"),
    "attention-seeds": (lambda: attend(ints(0, 6), ints(0, 6), seed=torch.zeros(0).long(), dropout=0.5), "seed"),
    "lstm-weights": (
        lambda: ops.lstm(values(), weights(4)[0][:4], weights(4)[1], *[None] * 4, ints(0, 6)),
        "weight_ih",
    ),
    "lstm-weight_hh": (
        lambda: ops.lstm(values(), weights(4)[0], torch.ones(12), *[None] * 4, ints(0, 6)),
        "weight_hh with 2 dimensions",
    ),
    "lstm-state": (
        lambda: ops.lstm(values(), *weights(4), None, None, torch.ones(2, 3), torch.ones(2, 3), ints(0, 6)),
        "h_0",
    ),
    "matrix_scan-heads": (lambda: ops.matrix_scan(*matrix_inputs(ints(0, 6), heads=3)), "divisor"),
    "matrix_scan-state": (lambda: ops.matrix_scan(*matrix_inputs(ints(0, 6), states=2)), "initial of shape"),
    "matrix_scan-saved": (
        lambda: torch.ops.torch_lod.matrix_scan_backward(
            None, None, *matrix_inputs(ints(0, 6)), True, 1.0, torch.ones(1)
        ),
        "saved of shape",
    ),
    "lstm-dtype": (lambda: ops.lstm(values().int(), *weights(4), *[None] * 4, ints(0, 6)), "Int|dtype"),
    "check_lod-floats": (lambda: torch.ops.torch_lod.check_lod([torch.zeros(3)], 0), ""),
    "check_lod-meta": (
        lambda: torch.ops.torch_lod.check_lod([torch.zeros(3, dtype=torch.int64, device="meta")], 0),
        "",
    ),
}


def raw_cases():
    """(id, call that must raise, message)."""
    for table, bad in ((OPERATORS, BAD_OFFSETS), (MAPPED, BAD_MAPS)):
        for operator, call in table.items():
            for name, what in bad.items():
                yield f"{operator}-{name}", functools.partial(call, what), ""
    for name, (call, message) in SIZES.items():
        yield name, call, message
