# SPDX-License-Identifier: Apache-2.0
"""Operators on plain tensors: values first, then structure, then options. They know neither `LoD` nor `LoDTensor`.

`row_offsets` (int64, one more entry than segments, from 0 to rows) cuts the rows of `values` into segments. Offsets in host
memory are checked on every call; offsets on a GPU are clamped by the kernels and reported asynchronously.
"""

from .attention import attention
from .library import COMPILED
from .recurrence import gru, lstm, rnn
from .rows import (
    gather_rows,
    gather_runs,
    rank_by_length,
    run_map,
    scatter_rows,
    scatter_runs,
    segment_conv,
    segment_fold,
    segment_unfold,
)
from .scan import segment_cumulative, segment_scan
from .segment import segment_broadcast, segment_extreme, segment_pick, segment_place, segment_reduce, segment_softmax

__all__ = [
    "COMPILED",
    "attention",
    "gather_rows",
    "gather_runs",
    "gru",
    "lstm",
    "rank_by_length",
    "rnn",
    "run_map",
    "scatter_rows",
    "scatter_runs",
    "segment_broadcast",
    "segment_conv",
    "segment_cumulative",
    "segment_extreme",
    "segment_fold",
    "segment_pick",
    "segment_place",
    "segment_reduce",
    "segment_scan",
    "segment_softmax",
    "segment_unfold",
]
