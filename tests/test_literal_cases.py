# SPDX-License-Identifier: Apache-2.0
"""Start here: every operator on inputs that fit on a line, with results that can be checked by hand.

A row of CASES is an operator, its arguments and what it gives, as lists: [[3, 1, 2], [], [5, 4]] is a LoDTensor of three
sequences, [6, 0, 9] a plain tensor. A row of one feature is written as its number. Everything else about an operator
(dtypes, gradients, strides, errors) is asked by tests/laws, whose references are loops."""

import inspect
from math import cos, inf, log, sin

import pytest
import torch
from torch import tensor

import torch_lod as tl
from torch_lod import paddle


def rows(*sequences) -> tl.LoDTensor:
    """One level; what is nested deeper is the features of a row."""
    return tl.lod_tensor(list(sequences), depth=1)


def given(*args, **kwargs):
    return args, kwargs


#: One level, the sequences 3 1 2 | (empty) | 5 4; as rows of one feature; as integers; grouped 2 and 1 by an outer level.
X = tl.from_lengths(tensor([3.0, 1.0, 2.0, 5.0, 4.0]), [[3, 0, 2]])
COLUMN = X[:, None]
IDS = X.long()
XX = tl.from_lengths(X.values(), [[2, 1], [3, 0, 2]], level_names=("document", "sentence"))
#: Two sequences of rows of two features, and two of points on a line.
PAIRS = rows([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]])
POINTS = rows([[0.0], [1.0], [9.0]], [[5.0]])
ONES = COLUMN[:, None] ** 0
DECIMAL = tensor([[1.0], [10.0], [100.0]])
#: Probabilities of the blank and the label 1: of the paths 1 1, 1 - and - 1 of the label they are 0.15, 0.6 and 0.05.
CTC = rows([[0.25, 0.75], [0.8, 0.2]]).log()
LABEL = rows([1])
#: The best class of a row is 1 1 0 1 2 | 0 2.
BEST = rows([1, 1, 0, 1, 2], [0, 2])
CLASSES = BEST.with_values(torch.eye(3)[BEST.values()])
#: A chain of two tags: exp(score) of the tags is 1 3, then 1 2 | 5 1, and it counts twice if 0 follows 0.
TAGS = rows([[1.0, 3.0], [1.0, 2.0]], [[5.0, 1.0]]).log()
FOLLOW = tensor([[1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, 1.0]]).log()  # at the start, at the end, from tag to tag
#: Recurrences whose gates are numbers: of the LSTMs input and forget are 1, so that a cell is a sum, and output is 2.
LINEAR = dict.fromkeys(("gate_activation", "cell_activation", "candidate_activation"), "identity")
LSTM = {**LINEAR, "use_peepholes": False}
GRU = dict.fromkeys(("gate_activation", "candidate_activation"), "identity")
LSTM_GATES = COLUMN * tensor([1.0, 0, 0, 0]) + tensor([0.0, 1, 1, 2])
GRU_GATES = COLUMN * tensor([0.0, 0, 1]) + tensor([0.5, 1, 0])
SUMMED = [[3, 4, 6], [], [5, 9]]
TWICE = [[6, 8, 12], [], [10, 18]]
HALVES = [[1.5, 1.25, 1.625], [], [2.5, 3.25]]  # half of what was there, half of the row
#: Sequences by length: the first, the last, the empty one.
TABLE = paddle.lod_rank_table(X)
CASES = [
    # one row of a sequence
    (tl.sequence_pool, given(X, "sum"), [6, 0, 9]),
    (tl.sequence_pool, given(X, "mean"), [2, 0, 4.5]),
    (tl.sequence_pool, given(X, "max"), [3, 0, 5]),
    (tl.sequence_pool, given(X, "min"), [1, 0, 4]),
    (tl.sequence_pool, given(X, "first"), [3, 0, 5]),
    (tl.sequence_pool, given(X, "last"), [2, 0, 4]),
    (tl.sequence_pool, given(X, "prod"), [6, 0, 20]),
    (tl.sequence_pool, given(X, "median"), [2, 0, 4]),
    # of every sentence, grouped by documents; of the documents
    (tl.sequence_pool, given(XX, "sum"), [[6, 0], [9]]),
    (tl.sequence_pool, given(XX, "max", level="document"), [3, 5]),
    (paddle.sequence_first_step, given(X), [3, 0, 5]),
    (paddle.sequence_last_step, given(X), [2, 0, 4]),
    (tl.sequence_argmax, given(X), [0, -1, 3]),
    (tl.sequence_topk, given(X, 2), [[[3, 2], [0, 0], [5, 4]], [[0, 2], [-1, -1], [3, 4]]]),
    (tl.sequence_quantile, given(X, 0.75), [2.5, 0, 4.75]),
    (tl.sequence_quantile, given(XX, tensor([0.0, 0.5, 1.0]), level="document"), [[1, 2, 3], [4, 4.5, 5]]),
    (tl.sequence_loss, given(X, "token"), 3),
    (tl.sequence_loss, given(X, "sequence"), (2 + 4.5) / 2),
    (tl.sequence_loss, given(X, mask=X != 5), 2.5),
    (paddle.fused_embedding_seq_pool, given(rows([3, 1], [2]), tensor([[0.0], [1], [10], [100]])), [101, 10]),
    (paddle.fusion_seqpool_concat, given([COLUMN, 10 * COLUMN]), [[6, 60], [0, 0], [9, 90]]),
    # of 9 shows and 3 clicks
    (
        paddle.fusion_seqpool_cvm_concat,
        given([rows([[4.0, 1.0, 0.5], [5.0, 2.0, 0.5]])]),
        [[log(10), log(4) - log(10), 1]],
    ),
    # a row for each row, from the rows of its sequence
    (tl.sequence_softmax, given(X.log()), [[3 / 6, 1 / 6, 2 / 6], [], [5 / 9, 4 / 9]]),
    (tl.sequence_log_softmax, given(X.log()), [[log(3 / 6), log(1 / 6), log(2 / 6)], [], [log(5 / 9), log(4 / 9)]]),
    (tl.sequence_normalize, given(X, eps=0), [[1.5**0.5, -(1.5**0.5), 0], [], [1, -1]]),
    (tl.sequence_cumsum, given(X), [[3, 4, 6], [], [5, 9]]),
    (tl.sequence_cumsum, given(X, reverse=True), [[6, 3, 2], [], [9, 4]]),
    (tl.sequence_cumprod, given(X), [[3, 3, 6], [], [5, 20]]),
    (tl.sequence_cummax, given(X), [[[3, 3, 3], [], [5, 5]], [[0, 0, 0], [], [3, 3]]]),
    (tl.sequence_cummin, given(X), [[[3, 1, 1], [], [5, 4]], [[0, 1, 1], [], [3, 4]]]),
    (tl.sequence_logcumsumexp, given(X.log()), [[log(3), log(4), log(6)], [], [log(5), log(9)]]),
    (tl.sequence_sort, given(X), [[1, 2, 3], [], [4, 5]]),
    (tl.sequence_sort, given(X, return_rank=True), [[[1, 2, 3], [], [4, 5]], [[2, 0, 1], [], [1, 0]]]),
    (tl.sequence_scan, given(X, 0.5), [[3, 2.5, 3.25], [], [5, 6.5]]),
    (tl.sequence_scan, given(X, 0.5, reverse=True), [[4, 2, 2], [], [7, 4]]),
    (tl.linear_attention, given(ONES, ONES, COLUMN[:, None]), SUMMED),
    (tl.gated_delta_rule, given(ONES, ONES, COLUMN[:, None], 0 * COLUMN, 0.5 * COLUMN**0), HALVES),
    # half is kept
    (tl.ssd, given(COLUMN[:, None], COLUMN**0, tensor([0.5]).log(), ONES, ONES), [[3, 2.5, 3.25], [], [5, 6.5]]),
    (tl.scan, given(lambda row, state: row + state, X, torch.zeros(3)), [[[3, 4, 6], [], [5, 9]], [6, 0, 9]]),
    (tl.map_sequences, given(lambda stack: stack.cumsum(1), X), [[3, 4, 6], [], [5, 9]]),
    (tl.rotary_embedding, given(rows([[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0]])), [[[1, 0], [cos(1), sin(1)]], [[1, 0]]]),
    # of equal scores every row gets the mean of its sequence, or of what it sees of it
    (tl.sequence_attention, given(0 * COLUMN, 0 * COLUMN, COLUMN), [[2, 2, 2], [], [4.5, 4.5]]),
    (tl.sequence_attention, given(0 * COLUMN, 0 * COLUMN, COLUMN, causal=True), [[3, 2, 2], [], [5, 4.5]]),
    (tl.sequence_matmul, given(COLUMN, tensor([[[1.0]], [[10.0]], [[100.0]]])), [[3, 1, 2], [], [500, 400]]),
    # 3 + 5, 1 + 5, 2 + 5 | | 5 - 5, 4 - 5
    (
        paddle.fusion_seqexpand_concat_fc,
        given([COLUMN, tensor([[0.5], [0.0], [-0.5]])], tensor([[1.0], [10.0]]), None, "relu"),
        [[8, 6, 7], [], [0, 0]],
    ),
    # windows
    # 0 + 3 + 1, 3 + 1 + 2, 1 + 2 + 0 | | 0 + 5 + 4, 5 + 4 + 0
    (tl.sequence_conv1d, given(COLUMN, torch.ones(1, 1, 3)), [[4, 6, 3], [], [9, 9]]),
    (
        paddle.sequence_conv,
        given(COLUMN, DECIMAL, 3),
        [[0 + 30 + 100, 3 + 10 + 200, 1 + 20 + 0], [], [0 + 50 + 400, 5 + 40 + 0]],
    ),
    (
        paddle.fusion_seqconv_eltadd_relu,
        given(COLUMN, DECIMAL, tensor([-100.0]), context_length=3),
        [[30, 113, 0], [], [350, 0]],
    ),
    (paddle.row_conv, given(COLUMN, tensor([[10.0], [1.0]])), [[30 + 1, 10 + 2, 20], [], [50 + 4, 40]]),
    (tl.sequence_unfold, given(X, 2), [[[3, 1], [1, 2]], [], [[5, 4]]]),
    (paddle.sequence_enumerate, given(IDS, 2), [[[3, 1], [1, 2], [2, 0]], [], [[5, 4], [4, 0]]]),
    (
        paddle.im2sequence,
        given(tensor([[[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]]), 2),
        [[[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]],
    ),
    # 1 x 3 and 2 x 1
    (
        paddle.var_conv_2d,
        given(rows([1.0, 2.0, 3.0], [4.0, 5.0]), rows([0], [0, 0]), rows([0, 0, 0], [0]), torch.ones(1, 1, 1, 3)),
        [[3, 6, 5], [4, 5]],
    ),
    # of left, right and top; 1 is the parent of 2 and 3: 100 + (5 + 50) * 2 + (0.5 + 2.5 + 50) * 3
    (
        paddle.tree_conv,
        given(rows([[1.0], [2.0], [3.0]]), rows([[1, 2], [1, 3]]), tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1)),
        [[369, 200, 300]],
    ),
    # rows and sequences are moved, picked, repeated
    (tl.sequence_reverse, given(X), [[2, 1, 3], [], [4, 5]]),
    (tl.sequence_reverse, given(XX, level=0), [[[], [3, 1, 2]], [[5, 4]]]),
    (tl.sequence_slice, given(X, [1, 0, 0], [2, 0, 1]), [[1, 2], [], [5]]),
    (tl.sequence_shift, given(X, 1), [[0, 3, 1], [], [0, 5]]),
    (tl.sequence_roll, given(X, 1), [[2, 3, 1], [], [4, 5]]),
    # all, as there are no more
    (tl.sequence_sample, given(X, 3), [[3, 1, 2], [], [5, 4]]),
    (tl.sequence_dropout, given(X, 1.0), [[0, 0, 0], [], [0, 0]]),
    (tl.sequence_dropout, given(X, 0.0), [[3, 1, 2], [], [5, 4]]),
    (tl.sequence_expand, given(tensor([7, 8, 9]), X), [7, 7, 7, 9, 9]),
    (tl.sequence_expand_as, given(tensor([7, 8, 9]), X), [[7, 7, 7], [], [9, 9]]),
    (tl.broadcast, given(X, tensor([7, 8, 9])), [[[3, 1, 2], [], [5, 4]], [[7, 7, 7], [], [9, 9]]]),
    (paddle.sequence_concat, given([X, X + 10]), [[3, 1, 2, 13, 11, 12], [], [5, 4, 15, 14]]),
    (tl.sequence_interleave, given([X, X + 10]), [[3, 13, 1, 11, 2, 12], [], [5, 15, 4, 14]]),
    (tl.sequence_unique, given(rows([7, 8, 7], [7])), [[7, 8], [7]]),
    (tl.sequence_chunk, given(X, 2), [[[3, 1], [2]], [], [[5, 4]]]),
    (tl.sequence_gather, given(X, rows([2, 0], [], [1, -1])), [[2, 3], [], [4, 0]]),
    (paddle.filter_by_instag, given(tensor([10, 20, 30]), rows([7, 8], [9], []), [9]), [[20], [True], [[0, 1, 1]]]),
    (paddle.cvm, given(rows([[9.0, 3.0, 0.5]])), [[[log(10), log(4) - log(10), 0.5]]]),
    (paddle.cvm, given(rows([[9.0, 3.0, 0.5]]), use_cvm=False), [[0.5]]),
    # other forms and structures of the same rows
    (paddle.sequence_pad, given(X, -1.0), [[[3, 1, 2], [-1, -1, -1], [5, 4, -1]], [3, 0, 2]]),
    (paddle.sequence_unpad, given(tensor([[3, 1, 2], [0, 0, 0], [5, 4, 0]]), [3, 0, 2]), [[3, 1, 2], [], [5, 4]]),
    (paddle.sequence_mask, given(X.lengths(), 3), [[1, 1, 1], [0, 0, 0], [1, 1, 0]]),
    (paddle.sequence_erase, given(IDS, [1, 5]), [[3, 2], [], [4]]),
    (paddle.sequence_reshape, given(PAIRS, 1), [[1, 0, 0, 1], [1, 1]]),
    (
        paddle.sequence_scatter,
        given(torch.zeros(2, 3), rows([0, 2, 2], [1]), tensor([1.0, 2.0, 3.0, 4.0])),
        [[1, 0, 2 + 3], [0, 4, 0]],
    ),
    (paddle.lod_reset, given(X, [[4, 1]]), [[3, 1, 2, 5], [4]]),
    (paddle.lod_append, given(X.values(), [2, 3]), [[3, 1], [2, 5, 4]]),
    # pairs of rows
    (tl.sequence_pairs, given(PAIRS, rows([0], [0, 0])), [[[[0], [1]], [[2, 2]]], [[[0], [0]], [[1, 2]]]]),
    # [1 0] and [0 1] with [2 3]; [1 1] with [4 5]
    (tl.sequence_pairwise, given(PAIRS, rows([[2.0, 3.0]], [[4.0, 5.0]]), "dot"), [[[2], [3]], [[9]]]),
    (
        tl.sequence_knn,
        given(POINTS, POINTS, 2),
        [[[[0, 1], [0, 1], [0, 8]], [[0, inf]]], [[[0, 1], [1, 0], [2, 1]], [[3, -1]]]],
    ),
    (tl.sequence_farthest, given(POINTS, 2), [[0, 2], [3, -1]]),
    (tl.sequence_radius, given(POINTS, 1.0), [[[0, 1], [0, 1], [2]], [[3]]]),
    (
        paddle.match_matrix_tensor,
        given(rows([[1.0], [2.0]], [[3.0]]), rows([[10.0]], [[4.0], [5.0]]), torch.ones(1, 1, 1)),
        [[10, 20], [12, 15]],
    ),
    (
        paddle.sequence_topk_avg_pooling,
        given(rows([1.0, 2.0], [3.0, 5.0]), rows([0, 0], [0]), rows([0], [0, 0]), [1, 2], 1),
        [[[1, 1 / 2], [2, 2 / 2]], [[5, (5 + 3) / 2]]],
    ),
    # labels, tags, edits
    (tl.ctc_decode, given(CLASSES), [[1, 1, 2], [2]]),
    (paddle.ctc_greedy_decoder, given(CLASSES, 0), [[1, 1, 2], [2]]),
    (paddle.ctc_align, given(BEST), [[1, 1, 2], [2]]),
    (tl.ctc_alignment, given(CTC, LABEL), [[[0, -1]], [[log(0.75), log(0.8)]]]),
    (tl.ctc_beam_decode, given(CTC, n_best=2), [[[[1], []]], [[log(0.15 + 0.6 + 0.05), log(0.25 * 0.8)]]]),
    (paddle.warpctc, given(CTC, LABEL), [-log(0.15 + 0.6 + 0.05)]),
    (tl.edit_distance, given(rows([1, 2, 3], [4], []), rows([1, 3], [5], [6, 7])), [1, 1, 2]),
    # paths 00, 01, 10, 11 of 1 * 2 * 1, 1 * 2, 3 * 1, 3 * 2; tags of 5 and 1
    (paddle.linear_chain_crf, given(TAGS, tensor([1, 1, 0]), FOLLOW), [log((2 + 2 + 3 + 6) / 6), log((5 + 1) / 5)]),
    (paddle.crf_decoding, given(TAGS, FOLLOW), [[1, 1], [0]]),
    # one of the two chunks is found
    (tl.chunk_f1, given(rows([1, 2], [0]), rows([1, 2], [1]), ["O", "B-PER", "I-PER"]), [1, 0.5, 2 / 3, 1, 2, 1]),
    (paddle.chunk_eval, given(rows([0, 1], [2]), rows([0, 1], [0]), "IOB", 1), [1, 0.5, 2 / 3, 1, 2, 1]),
    # the word 1 after 5, and the end after 7
    (
        paddle.beam_search,
        given(
            rows([5, 7]),
            tensor([-1.0, -1.5]),
            None,
            tensor([[-9.0, -3.0, -4.0], [-2.0, -8.0, -5.0]]),
            beam_size=2,
            end_id=0,
            return_parent_idx=True,
        ),
        [[[[1], [0]]], [[[-3], [-2]]], [0, 1]],
    ),
    # the words 5 and 7, then 6 and the end after 5
    (
        paddle.beam_search_decode,
        given(
            [tl.lod_tensor([[[5, 7]]]), tl.lod_tensor([[[6, 0], []]])],
            [tl.lod_tensor([[[-1.0, -2.0]]]), tl.lod_tensor([[[-3.0, -2.5], []]])],
            beam_size=2,
            end_id=0,
        ),
        [[[[5, 0], [5, 6]]], [[[-1, -2.5], [-1, -3]]]],
    ),
    # steps of a recurrence
    (paddle.lod_rank_table, given(X), [(0, 3), (2, 2), (1, 0)]),
    (paddle.max_sequence_len, given(TABLE), 3),
    (paddle.lod_tensor_to_array, given(X, TABLE), [[3, 5], [1, 4], [2]]),
    (paddle.array_to_lod_tensor, given([tensor([3, 5]), tensor([1, 4]), tensor([2])], TABLE), [[3, 1, 2], [], [5, 4]]),
    (paddle.reorder_lod_tensor_by_rank, given(tensor([7, 8, 9]), TABLE), [7, 9, 8]),
    (paddle.shrink_memory, given(tensor([7, 9, 8]), 1, TABLE), [7, 9]),
    (paddle.split_lod_tensor, given(X, tensor([True, False, False])), [[[3, 1, 2]], [[], [5, 4]]]),
    (
        paddle.merge_lod_tensor,
        given(rows([3, 1, 2]), rows([], [5, 4]), X, tensor([True, False, False])),
        [[3, 1, 2], [], [5, 4]],
    ),
    # recurrences with Paddle's parameters
    (paddle.dynamic_lstm, given(LSTM_GATES, torch.zeros(1, 4), **LSTM), [TWICE, SUMMED]),
    (
        paddle.dynamic_lstmp,
        given(LSTM_GATES, torch.zeros(2, 4), tensor([[1.0, 10.0]]), proj_activation="identity", **LSTM),
        [[[[6, 60], [8, 80], [12, 120]], [], [[10, 100], [18, 180]]], SUMMED],
    ),
    (
        paddle.fusion_lstm,
        given(COLUMN, tensor([[1.0, 0, 0, 0]]), torch.zeros(1, 4), tensor([0.0, 1, 1, 2]), **LSTM),
        [TWICE, SUMMED],
    ),
    (
        paddle.fused_embedding_fc_lstm,
        given(IDS, tensor([[k, 1.0, 1.0, 2.0] for k in range(6)]), torch.zeros(1, 4), **LSTM),
        [TWICE, SUMMED],
    ),
    # of equal weights a step reads the mean of its sequence, 2 | | 4.5
    (
        paddle.attention_lstm,
        given(
            COLUMN,
            torch.zeros(3, 1),
            torch.zeros(2, 1),
            tensor([[0.0, 0, 0, 0], [0, 0, 0, 1]]),
            tensor([1.0, 1, 2, 0]),
            **LINEAR,
        ),
        [[[4, 8, 12], [], [9, 18]], [[2, 4, 6], [], [4.5, 9]]],
    ),
    (paddle.lstm_unit, given(torch.zeros(1, 4), tensor([[2.0]])), [[0.5 * 0.761594], [0.5 * 2]]),
    (paddle.dynamic_gru, given(GRU_GATES, torch.zeros(1, 3), **GRU), HALVES),
    (paddle.fusion_gru, given(COLUMN, tensor([[0.0, 0, 1]]), torch.zeros(1, 3), tensor([0.5, 1, 0]), **GRU), HALVES),
    (
        paddle.gru_unit,
        given(tensor([[0.5, 1, 4]]), tensor([[2.0]]), torch.zeros(1, 3), None, "identity", "identity"),
        [[0.5 * 2 + 0.5 * 4], [1 * 2], [[0.5, 1, 4]]],
    ),
]


#: Public names of the families that are no operators.
OTHERS = {
    "create_lod_tensor": "a constructor: tests/sequence/test_lod_tensor.py",
    "create_random_int_lodtensor": "random numbers: tests/sequence/test_lod_tensor.py",
}


def same(found, expected) -> bool:
    """Whether a result has the numbers and the structure of nested lists."""
    if isinstance(found, paddle.RankTable):
        found = found.items()
    if isinstance(found, torch.Tensor):
        found = found.flatten() if found.dim() > 1 and found.shape[1:].numel() == 1 else found
        found = found.to_list() if isinstance(found, tl.LoDTensor) else found.tolist()
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("operator", "arguments", "expected"), CASES, ids=[row[0].__name__ for row in CASES])
def test_what_an_operator_gives(operator, arguments, expected):
    args, kwargs = arguments
    found = operator(*args, **kwargs)
    assert same(found, expected), f"expected {expected}, got {found}"


def test_every_operator_has_a_case():
    """`__all__` of the families names them, beside classes."""
    families = [m for package in (tl.sequence, paddle) for m in vars(package).values() if inspect.ismodule(m)]
    names = {name for m in families for name in getattr(m, "__all__", ()) if not isinstance(getattr(m, name), type)}
    cases = {row[0].__name__ for row in CASES}
    assert names == cases | set(OTHERS) and not cases & set(OTHERS), (
        "write some numbers by hand and what it makes of them"
    )


#: Methods and constructors, and what they give.
METHODS = {
    "head": (lambda: X.head(2), [[3, 1], [], [5, 4]]),
    "filter": (lambda: X.filter_rows(X > 1), [[3, 2], [], [5, 4]]),
    "slice": (lambda: X.seq[0:2], [[3, 1, 2], []]),
    "pick sequences": (lambda: X.seq[[2, 0]], [[5, 4], [3, 1, 2]]),
    "concatenate within": (lambda: tl.cat([X, X + 10], along="within"), [[3, 1, 2, 13, 11, 12], [], [5, 4, 15, 14]]),
    "concatenate sequences": (lambda: tl.cat([X, X.seq[2:]]), [[3, 1, 2], [], [5, 4], [5, 4]]),
    "drop a level": (lambda: XX.drop_level(0), [[3, 1, 2], [], [5, 4]]),
    "two levels": (lambda: tl.lod_tensor([[[3, 1, 2], []], [[5, 4]]]), [[[3, 1, 2], []], [[5, 4]]]),
    "padded": (lambda: X.to_padded(), [[[3, 1, 2], [0, 0, 0], [5, 4, 0]], [3, 0, 2]]),
    "and back": (lambda: tl.from_padded(*X.to_padded()), [[3, 1, 2], [], [5, 4]]),
}


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_gives(name):
    call, expected = METHODS[name]
    assert same(call(), expected)


def test_a_module_of_torch_starts_again_with_every_sequence():
    rnn = torch.nn.RNN(1, 1, nonlinearity="relu", bias=False)  # h = relu(x + h)
    for weight in rnn.parameters():
        torch.nn.init.ones_(weight)
    steps, last = rnn(COLUMN)
    assert same(steps, SUMMED) and same(last[0], [6, 0, 9])


def test_gradients_reach_the_rows():
    x = X.detach().clone().requires_grad_()
    (tl.sequence_pool(x, "mean") * tensor([1.0, 1.0, 2.0])).sum().backward()
    assert same(x.grad, [1 / 3, 1 / 3, 1 / 3, 1, 1])


WRONG = [
    (lambda: X + X.seq[[2, 1, 0]], "LoD"),
    (lambda: X.softmax(0), "sequence_softmax"),
    (lambda: tl.sequence_pool(X, "sum", level=1), "level"),
    (lambda: tl.from_lengths(torch.ones(3), [[1, 1]]), "rows"),
    (lambda: PAIRS - PAIRS.mean(0), "mean"),
]


@pytest.mark.parametrize(("call", "word"), WRONG)
def test_what_would_mix_sequences_raises(call, word):
    with pytest.raises(tl.LoDError, match=word):
        call()
