# SPDX-License-Identifier: Apache-2.0
"""What ten times as much takes: operators and methods on n and 10 n, for seven shapes of a batch.

python -m benchmarks.growth [--only sequence_,LoDTensor.] [--shapes long,deep]

n grows tenfold until a call takes 10 ms of CPU time, on one thread. A cell is the time at that n as a multiple of the time at a
tenth of it: 10 is linear, less is what calls cost anyway, 100 is quadratic. Gradients are part of a call that has some. What
is above 15 is listed with the reason. tests/robustness/test_growth.py counts the same calls, instead of timing them.
"""

import argparse
import copy
import gc
import io
import os
import pickle
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

import torch_lod as tl

from . import measure
from .cases import Setup

#: Lengths of every level, and the width of a row, for a size.
SHAPES: dict[str, Callable[[int], tuple[list, int]]] = {
    "long": lambda n: ([[n]], 2),
    "empty": lambda n: ([[0] * n], 2),
    "of one row": lambda n: ([[1] * n], 2),
    "heavy tail": lambda n: ([[n // 2] + [1] * (n // 2)], 2),
    "deep": lambda n: ([[2], *[[1, 1]] * (n // 50), [n // 2] * 2], 2),
    "wide": lambda n: ([[10] * 10], 2 * (n // 100)),
    "equal": lambda n: ([[10] * (n // 10)], 2),
}
SIZES = (100, 1_000, 10_000, 100_000)
ENOUGH = 0.01  # seconds of a call beyond which no larger size is tried
MOST = 15.0
TOO_MANY = 2**25  # numbers of a padded tensor, or of pairs


class TooLarge(Exception):
    """A result of this size would not fit into memory."""


class Given:
    """A batch of a shape, and what calls take beside it."""

    def __init__(self, shape: str, n: int):
        lengths, self.width = SHAPES[shape](n)
        self.lengths, self.lod = lengths, tl.LoD.from_lengths(lengths)
        self.rows, self.flat = self.lod.rows, tl.LoD.from_lengths(lengths[-1:])
        self.count, self.longest = self.flat.num_sequences(), max(lengths[-1])
        self.random = torch.Generator().manual_seed(0)
        self.leaf = self.randn(self.rows, self.width).requires_grad_()

    def randn(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.random)

    @cached_property
    def x(self) -> tl.LoDTensor:
        return tl.LoDTensor(self.leaf, self.lod)

    @cached_property
    def one(self) -> tl.LoDTensor:
        """Of the innermost level alone."""
        return tl.LoDTensor(self.leaf, self.flat)

    @cached_property
    def plain(self) -> Tensor:
        return self.leaf.detach()

    @cached_property
    def column(self) -> tl.LoDTensor:
        return tl.LoDTensor(self.leaf[:, 0], self.lod)

    @cached_property
    def ids(self) -> tl.LoDTensor:
        return tl.LoDTensor(torch.arange(self.rows) % 7, self.lod)

    @cached_property
    def positions(self) -> tl.LoDTensor:
        return tl.LoDTensor(self.lod.position_ids(), self.lod)

    @cached_property
    def labels(self) -> tl.LoDTensor:
        """Of half the rows of every sequence, for one level."""
        lengths = self.flat.lengths() // 2
        return tl.from_lengths(torch.ones(int(lengths.sum()), dtype=torch.int64), [lengths])

    @cached_property
    def tags(self) -> tl.LoDTensor:
        return tl.LoDTensor(torch.zeros(self.rows, dtype=torch.int64), self.lod)

    @cached_property
    def each(self) -> Tensor:
        """A row for every innermost sequence."""
        return self.randn(self.count, self.width)

    @cached_property
    def mask(self) -> Tensor:
        return torch.arange(self.rows) % 2 == 0

    @cached_property
    def lists(self) -> list:
        return self.one.to_list()

    @cached_property
    def parts(self) -> list[Tensor]:
        return [rows.clone() for rows in tl.LoDTensor(self.plain, self.flat).sequences()]

    @cached_property
    def small(self) -> list[tl.LoDTensor]:
        return [tl.from_lengths(rows, [[len(rows)]]) for rows in self.parts]

    def square(self, *of: int) -> "Given":
        """Itself, for a call whose result has so many numbers."""
        size = 1
        for count in of or (self.count, self.longest, self.width):
            size *= count
        if size > TOO_MANY:
            raise TooLarge
        return self

    @cached_property
    def pairs(self) -> "Given":
        return self.square(int((self.flat.lengths().double() ** 2).sum()))

    @cached_property
    def scores(self) -> tl.LoDTensor:
        """A number for every pair of rows of a sequence."""
        return tl.paddle.match_matrix_tensor(self.pairs.one, self.one, self.weight(self.width, 1, self.width)).detach()

    @cached_property
    def edges(self) -> tl.LoDTensor:
        """Of trees whose first node is the parent of all others."""
        lengths = (self.flat.lengths() - 1).clamp(min=0)
        lod = tl.LoD.from_lengths([lengths])
        child = lod.position_ids() + 2
        return tl.LoDTensor(torch.stack([torch.ones_like(child), child], 1), lod)

    @cached_property
    def dense(self) -> Tensor:
        return self.square().one.detach().to_padded()[0]

    @cached_property
    def packed(self):
        return self.one.detach().to_packed_sequence()

    @cached_property
    def half(self) -> tuple[Tensor, Tensor]:
        lengths = self.lod.lengths()
        return torch.zeros_like(lengths), lengths // 2

    def module(self, key: str, make: Callable[[], Any]) -> Any:
        """A module, made once."""
        made = self.__dict__.setdefault("modules", {})
        if key not in made:
            torch.manual_seed(0)
            made[key] = make()
        return made[key]

    def weight(self, *size: int) -> Tensor:
        return self.module(f"weight {size}", lambda: self.randn(*size).requires_grad_())

    @cached_property
    def file(self) -> io.BytesIO:
        file = io.BytesIO()
        torch.save(self.x.detach(), file)
        return file


def _crf(g: Given):
    return g.module("crf", lambda: tl.nn.LinearChainCRF(g.width))


def _layer(name: str):
    return lambda g: g.module(name, lambda: getattr(tl.nn, name)(g.width, 2))(g.x)[0]


def _pool(kind: str):
    return lambda g: tl.sequence_pool(g.x, kind)


def _sequence(name: str, *args):
    return lambda g: getattr(tl, f"sequence_{name}")(g.x, *args)


POOLS = "sum mean sqrt max min first last prod logsumexp var std median".split()
WITHIN = "softmax log_softmax normalize cumsum cumprod cummax cummin logcumsumexp sort reverse argmax".split()
PATH = lambda g: (0,) * g.lod.depth  # noqa: E731
#: Every call by the name of what is called, and perhaps more words.
CALLS: dict[str, Callable[[Given], Any]] = {
    **{f"sequence_pool {kind}": _pool(kind) for kind in POOLS},
    "sequence_pool level 0": lambda g: tl.sequence_pool(g.x, "sum", level=0),
    **{f"sequence_{name}": _sequence(name) for name in WITHIN},
    "sequence_sort ranks": lambda g: tl.sequence_sort(g.x, return_rank=True),
    "sequence_quantile": _sequence("quantile", 0.3),
    "sequence_quantile of three": lambda g: tl.sequence_quantile(g.x, torch.tensor([0.1, 0.5, 0.9])),
    "sequence_scan": _sequence("scan", 0.5),
    "sequence_scan of rows": lambda g: tl.sequence_scan(g.x, g.x.sigmoid(), reverse=True),
    "sequence_sort key": lambda g: tl.sequence_sort(g.x, g.column.values().detach()),
    "sequence_reverse level 0": lambda g: tl.sequence_reverse(g.x, level=0),
    "sequence_topk": _sequence("topk", 2),
    "sequence_loss": lambda g: tl.sequence_loss(g.column),
    "sequence_loss sequence": lambda g: tl.sequence_loss(g.column, "sequence"),
    "sequence_shift": _sequence("shift", 1),
    "sequence_dropout": _sequence("dropout", 0.5),
    "sequence_sample": _sequence("sample", 2),
    "sequence_gather": lambda g: tl.sequence_gather(g.x, g.positions),
    "sequence_chunk": _sequence("chunk", 4, 2),
    "sequence_roll": _sequence("roll", 1),
    "sequence_interleave": lambda g: tl.sequence_interleave([g.x, g.x]),
    "sequence_unique": _sequence("unique"),
    "sequence_unique level 0": lambda g: tl.sequence_unique(g.x, level=0),
    "sequence_slice": lambda g: tl.sequence_slice(g.x, *g.half),
    "sequence_expand": lambda g: tl.sequence_expand(g.each, g.x),
    "sequence_expand_as": lambda g: tl.sequence_expand_as(g.each, g.one),
    "broadcast": lambda g: tl.broadcast(g.x, g.x),
    "sequence_unfold": _sequence("unfold", 3),
    "sequence_conv1d": lambda g: tl.sequence_conv1d(g.x, g.weight(2, g.width, 3)),
    "sequence_attention": lambda g: tl.sequence_attention(g.x, g.x, g.x),
    "sequence_attention window": lambda g: tl.sequence_attention(g.x, g.x, g.x, window=4),
    "rotary_embedding": lambda g: tl.rotary_embedding(g.x),
    "sequence_knn": lambda g: tl.sequence_knn(g.x, g.x, 1),
    "sequence_pairs": lambda g: tl.sequence_pairs(g.pairs.x, g.x),
    "sequence_pairwise": lambda g: tl.sequence_pairwise(g.pairs.x, g.x),
    "edit_distance": lambda g: tl.edit_distance(g.ids, g.ids),
    "edit_distance alignment": lambda g: tl.edit_distance(g.pairs.ids, g.ids, return_alignment=True),
    "scan": lambda g: tl.scan(lambda a, h: (a + h, a), g.x, g.each),
    "ctc_decode": lambda g: tl.ctc_decode(g.x),
    "ctc_beam_decode": lambda g: tl.ctc_beam_decode(g.x, beam=2),
    "ctc_alignment": lambda g: tl.ctc_alignment(g.pairs.one, g.labels),
    "nn.CTCLoss": lambda g: tl.nn.CTCLoss()(g.one, g.labels),
    "nn.LinearChainCRF": lambda g: _crf(g)(g.x, g.tags),
    "nn.LinearChainCRF decode": lambda g: _crf(g).decode(g.x),
    "nn.LinearChainCRF decode n best": lambda g: _crf(g).decode(g.x, 3),
    "nn.LinearChainCRF marginals": lambda g: _crf(g).marginals(g.x),
    "nn.LSTM": _layer("LSTM"),
    "nn.GRU": _layer("GRU"),
    "nn.RNN": _layer("RNN"),
    "nn.AttentionPool": lambda g: g.module("pool", lambda: tl.nn.AttentionPool(g.width, 2))(g.x),
    "nn.MultiheadAttention": lambda g: g.module("heads", lambda: tl.nn.MultiheadAttention(g.width, 1))(g.x, g.x, g.x),
    "torch.nn.LSTM": lambda g: g.module("torch's", lambda: nn.LSTM(g.width, 2))(g.x)[0],
    "torch.nn.Conv1d": lambda g: g.module("conv", lambda: nn.Conv1d(g.width, 2, 3, padding=1))(g.x.t()),
    "torch.add": lambda g: g.x + g.x,
    "torch.cat": lambda g: torch.cat([g.x, g.x]),
    "batch": lambda g: tl.batch(g.small),
    "cat": lambda g: tl.cat([g.x, g.x]),
    "cat within": lambda g: tl.cat([g.x, g.x], "within", level=-1),
    "cat features": lambda g: tl.cat([g.x, g.x], "features"),
    "cat of many": lambda g: tl.cat(g.small),
    "stack": lambda g: tl.stack([g.x, g.x]),
    "empty": lambda g: tl.empty(g.lod, 2),
    "full": lambda g: tl.full(g.lod, 2, fill_value=1.0),
    "ones": lambda g: tl.ones(g.lod, 2),
    "rand": lambda g: tl.rand(g.lod, 2),
    "randn": lambda g: tl.randn(g.lod, 2),
    "zeros": lambda g: tl.zeros(g.lod, 2),
    "describe": lambda g: tl.describe(g.x),
    "map_sequences": lambda g: tl.map_sequences(torch.tanh, g.x),
    "per_sequence": lambda g: g.one * tl.per_sequence(torch.ones(g.flat.num_sequences(), 1)),
    "from_lengths": lambda g: tl.from_lengths(g.leaf, g.lengths),
    "from_offsets": lambda g: tl.from_offsets(g.leaf, g.lod.to_list()),
    "from_cu_seqlens": lambda g: tl.from_cu_seqlens(g.leaf, g.flat.cu_seqlens()),
    "from_segment_ids": lambda g: tl.from_segment_ids(g.leaf, g.flat.segment_ids(), g.count),
    "from_segment_ids sort": lambda g: tl.from_segment_ids(g.leaf, g.flat.segment_ids().flip(0), g.count, sort=True),
    "from_boundaries": lambda g: tl.from_boundaries(g.leaf, g.mask),
    "from_tensors": lambda g: tl.from_tensors(g.parts),
    "from_padded": lambda g: tl.from_padded(g.dense, g.flat.lengths()),
    "from_packed_sequence": lambda g: tl.from_packed_sequence(g.packed),
    "from_nested": lambda g: tl.from_nested(g.module("nested", g.one.detach().to_nested)),
    "lod_tensor": lambda g: tl.lod_tensor(g.lists, depth=1),
    "data.collate": lambda g: tl.data.collate(g.parts),
    "data.from_keys": lambda g: tl.data.from_keys(g.plain, g.flat.segment_ids()),
    "data.from_keys columns": lambda g: tl.data.from_keys({"x": g.plain, "y": g.plain}, g.flat.segment_ids()),
    "data.from_position_ids": lambda g: tl.data.from_position_ids(g.plain, g.flat.position_ids()),
    "data.to_numpy": lambda g: tl.data.to_numpy(g.x.detach()),
    "data.TokenBudgetSampler": lambda g: len(tl.data.TokenBudgetSampler(g.lengths[-1], g.longest + 1)),
    "data.PackingSampler": lambda g: len(tl.data.PackingSampler(g.lengths[-1], g.longest + 1)),
    "data.BucketSampler": lambda g: len(tl.data.BucketSampler(g.lengths[-1], g.longest + 1)),
    # -- of a LoDTensor
    "LoDTensor.branch": lambda g: g.x.branch(*PATH(g)),
    "LoDTensor.copy_lod_from": lambda g: g.x.detach().copy_lod_from(g.x),
    "LoDTensor.cu_seqlens": lambda g: g.x.cu_seqlens(),
    "LoDTensor.drop_level": lambda g: g.x.drop_level(0),
    "LoDTensor.elements": lambda g: g.x.elements(),
    "LoDTensor.filter": lambda g: g.x.filter(g.mask),
    "LoDTensor.filter_rows": lambda g: g.x.filter_rows(g.mask),
    "LoDTensor.flatten_levels": lambda g: g.x.flatten_levels(0, -1),
    "LoDTensor.group": lambda g: g.x.group([g.lod.num_sequences()]),
    "LoDTensor.has_valid_recursive_sequence_lengths": lambda g: g.x.has_valid_recursive_sequence_lengths(),
    "LoDTensor.head": lambda g: g.x.head(1),
    "LoDTensor.lengths": lambda g: g.x.lengths(),
    "LoDTensor.levels": lambda g: g.x.levels(),
    "LoDTensor.lod_append": lambda g: g.x.lod_append(torch.ones(g.rows, dtype=torch.int64)),
    "LoDTensor.lod_reset": lambda g: g.x.lod_reset(g.lengths),
    "LoDTensor.lod_slice": lambda g: g.x.lod_slice(0, 0, 1),
    "LoDTensor.lod_slice_shared": lambda g: g.x.lod_slice_shared(0, 0, 1),
    "LoDTensor.mask": lambda g: g.square().x.mask(),
    "LoDTensor.max_length": lambda g: g.x.max_length(),
    "LoDTensor.nth": lambda g: g.x.nth(0),
    "LoDTensor.num_sequences": lambda g: g.x.num_sequences(),
    "LoDTensor.offsets": lambda g: g.x.offsets(),
    "LoDTensor.permute_sequences": lambda g: g.x.permute_sequences(torch.arange(g.lod.num_sequences()).flip(0)),
    "LoDTensor.recursive_sequence_lengths": lambda g: g.x.recursive_sequence_lengths(),
    "LoDTensor.row_offsets": lambda g: g.x.row_offsets(),
    "LoDTensor.segment_ids": lambda g: g.x.segment_ids(),
    "LoDTensor.position_ids": lambda g: g.x.position_ids(),
    "LoDTensor.is_first": lambda g: g.x.is_first(),
    "LoDTensor.is_last": lambda g: g.x.is_last(),
    "LoDTensor.seq one": lambda g: g.x.seq[0],
    "LoDTensor.seq a slice": lambda g: g.x.seq[::2],
    "LoDTensor.seq a list": lambda g: g.x.seq[list(range(g.lod.num_sequences()))],
    "LoDTensor.seq of every level": lambda g: g.x.seq[:, ::-1],
    "LoDTensor.seq a path": lambda g: g.x.seq[PATH(g)],
    "LoDTensor.sequences": lambda g: list(g.x.sequences()),
    "LoDTensor.set_lod": lambda g: g.x.detach().set_lod(g.lod.to_list()),
    "LoDTensor.set_recursive_sequence_lengths": lambda g: g.x.detach().set_recursive_sequence_lengths(g.lengths),
    "LoDTensor.spans": lambda g: g.x.spans(g.positions, g.positions + 1),
    "LoDTensor.share_lod_from": lambda g: g.x.detach().share_lod_from(g.x),
    "LoDTensor.slice": lambda g: g.x.slice(0, 0, 1),
    "LoDTensor.tail": lambda g: g.x.tail(1),
    "LoDTensor.to_list": lambda g: g.x.to_list(),
    "LoDTensor.to_nested": lambda g: g.one.detach().to_nested(),
    "LoDTensor.to_packed_sequence": lambda g: g.one.to_packed_sequence(),
    "LoDTensor.to_padded": lambda g: g.square().x.to_padded(),
    "LoDTensor.unbind_sequences": lambda g: g.x.unbind_sequences(),
    "LoDTensor.values": lambda g: g.x.values(),
    "LoDTensor.with_lod": lambda g: g.x.with_lod(g.lod),
    "LoDTensor.with_values": lambda g: g.x.with_values(g.leaf),
    "LoDTensor.repr": lambda g: repr(g.x),
    "LoDTensor.html": lambda g: g.x._repr_html_(),
    "LoDTensor.pickle": lambda g: pickle.dumps(g.x.detach()),
    "LoDTensor.torch.load": lambda g: (g.file.seek(0), torch.load(g.file)),
    "LoDTensor.deepcopy": lambda g: copy.deepcopy(g.x.detach()),
    # -- of a LoD
    "LoD": lambda g: tl.LoD(g.lod.to_list()),
    "LoD.from_lengths": lambda g: tl.LoD.from_lengths(g.lengths),
    "LoD.from_row_offsets": lambda g: tl.LoD.from_row_offsets([g.lod.row_offsets(k) for k in range(g.lod.depth)]),
    "LoD.from_segment_ids": lambda g: tl.LoD.from_segment_ids(g.flat.segment_ids(), g.count),
    "LoD.append": lambda g: g.lod.append([1] * g.rows),
    "LoD.branch": lambda g: g.lod.branch(*PATH(g)),
    "LoD.drop_level": lambda g: g.lod.drop_level(-1),
    "LoD.flatten": lambda g: g.lod.flatten(0, -1),
    "LoD.group": lambda g: g.lod.group([g.lod.num_sequences()]),
    "LoD.outer": lambda g: g.lod.outer(-1),
    "LoD.slice": lambda g: g.lod.slice(0, 0, 1),
    "LoD.segment_ids": lambda g: tl.LoD.from_lengths(g.lengths).segment_ids(),
    "LoD.position_ids": lambda g: tl.LoD.from_lengths(g.lengths).position_ids(),
    "LoD.row_offsets": lambda g: tl.LoD.from_lengths(g.lengths).row_offsets(0),
    "LoD.to_list": lambda g: g.lod.to_list(),
    "LoD.to_lengths": lambda g: g.lod.to_lengths(),
    "LoD.==": lambda g: g.lod == tl.LoD.from_lengths(g.lengths),
    "LoD.hash": lambda g: hash(tl.LoD.from_lengths(g.lengths)),
    "LoD.repr": lambda g: repr(g.lod),
    # -- tl.paddle
    "sequence_first_step": _sequence("first_step"),
    "sequence_last_step": _sequence("last_step"),
    "sequence_concat": lambda g: tl.paddle.sequence_concat([g.x, g.x]),
    "sequence_conv": lambda g: tl.paddle.sequence_conv(g.x, g.weight(3 * g.width, 2), 3),
    "row_conv": lambda g: tl.paddle.row_conv(g.x, g.weight(2, g.width)),
    "sequence_enumerate": lambda g: tl.paddle.sequence_enumerate(g.ids, 3),
    "sequence_erase": lambda g: tl.paddle.sequence_erase(g.ids, [1, 2]),
    "sequence_mask": lambda g: tl.paddle.sequence_mask(g.square().flat.lengths()),
    "sequence_pad": lambda g: tl.paddle.sequence_pad(g.square().x, 0.0),
    "sequence_unpad": lambda g: tl.paddle.sequence_unpad(g.dense, g.flat.lengths()),
    "sequence_reshape": lambda g: tl.paddle.sequence_reshape(g.x, 1),
    "sequence_scatter": lambda g: tl.paddle.sequence_scatter(
        g.weight(g.count, 7), tl.LoDTensor(g.ids.values(), g.flat), g.leaf[:, 0]
    ),
    "lod_reset": lambda g: tl.paddle.lod_reset(g.x, g.lengths),
    "lod_append": lambda g: tl.paddle.lod_append(g.x, torch.ones(g.rows, dtype=torch.int64)),
    "create_lod_tensor": lambda g: tl.paddle.create_lod_tensor(g.plain, g.lengths),
    "create_random_int_lodtensor": lambda g: tl.paddle.create_random_int_lodtensor(g.lengths, [1], 0, 9),
    "fused_embedding_seq_pool": lambda g: tl.paddle.fused_embedding_seq_pool(g.ids, g.weight(7, 2)),
    "linear_chain_crf": lambda g: tl.paddle.linear_chain_crf(g.x, g.tags, g.weight(g.width + 2, g.width)),
    "crf_decoding": lambda g: tl.paddle.crf_decoding(g.x, g.weight(g.width + 2, g.width).detach()),
    "warpctc": lambda g: tl.paddle.warpctc(g.one, g.labels),
    "ctc_greedy_decoder": lambda g: tl.paddle.ctc_greedy_decoder(g.x, 0),
    "ctc_align": lambda g: tl.paddle.ctc_align(g.ids),
    "chunk_eval": lambda g: tl.paddle.chunk_eval(g.tags, g.tags, "IOB", 2),
    "cvm": lambda g: tl.paddle.cvm(g.x.abs()),
    "fusion_seqpool_concat": lambda g: tl.paddle.fusion_seqpool_concat([g.x, g.x]),
    "lod_rank_table": lambda g: tl.paddle.lod_rank_table(g.one),
    "lod_tensor_to_array": lambda g: tl.paddle.lod_tensor_to_array(g.one, tl.paddle.lod_rank_table(g.one)),
    "array_to_lod_tensor": lambda g: tl.paddle.array_to_lod_tensor(
        g.module("array", lambda: tl.paddle.lod_tensor_to_array(g.one.detach(), tl.paddle.lod_rank_table(g.one))),
        tl.paddle.lod_rank_table(g.one),
    ),
    "reorder_lod_tensor_by_rank": lambda g: tl.paddle.reorder_lod_tensor_by_rank(
        g.one, tl.paddle.lod_rank_table(g.one)
    ),
    "split_lod_tensor": lambda g: tl.paddle.split_lod_tensor(g.one, torch.arange(g.count) % 2 == 0),
    "dynamic_gru": lambda g: tl.paddle.dynamic_gru(
        tl.paddle.fusion_seqconv_eltadd_relu(g.x, g.weight(g.width, 6), g.weight(6), 1), g.weight(2, 6)
    ),
    "dynamic_lstm": lambda g: tl.paddle.dynamic_lstm(g.x @ g.weight(g.width, 8), g.weight(2, 8), use_peepholes=False),
    "merge_lod_tensor": lambda g: tl.paddle.merge_lod_tensor(
        *tl.paddle.split_lod_tensor(g.one, torch.arange(g.count) % 2 == 0), g.one, torch.arange(g.count) % 2 == 0
    ),
    "max_sequence_len": lambda g: tl.paddle.max_sequence_len(tl.paddle.lod_rank_table(g.one)),
    "shrink_memory": lambda g: tl.paddle.shrink_memory(g.each, 0, tl.paddle.lod_rank_table(g.one)),
    "filter_by_instag": lambda g: tl.paddle.filter_by_instag(
        g.one, tl.from_lengths(torch.arange(g.count) % 2, [[1] * g.count]), [1]
    ),
    "beam_search": lambda g: tl.paddle.beam_search(
        g.one.with_values(g.ids.values()), g.plain[:, 0], None, g.plain, 2, 9, level=-1
    ),
    "gru_unit": lambda g: tl.paddle.gru_unit(g.leaf @ g.weight(g.width, 6), g.leaf[:, :2], g.weight(2, 6)),
    "lstm_unit": lambda g: tl.paddle.lstm_unit(g.leaf @ g.weight(g.width, 8), g.leaf[:, :2]),
    "attention_lstm": lambda g: tl.paddle.attention_lstm(
        g.pairs.one, g.each[:, :2], g.weight(g.width + 2, 1), g.weight(g.width + 2, 8), g.weight(8)
    ),
    "dynamic_lstmp": lambda g: tl.paddle.dynamic_lstmp(
        g.x @ g.weight(g.width, 8), g.weight(2, 8), g.weight(2, 2), use_peepholes=False
    ),
    "fusion_gru": lambda g: tl.paddle.fusion_gru(g.x, g.weight(g.width, 6), g.weight(2, 6)),
    "fusion_lstm": lambda g: tl.paddle.fusion_lstm(g.x, g.weight(g.width, 8), g.weight(2, 8), use_peepholes=False),
    "fused_embedding_fc_lstm": lambda g: tl.paddle.fused_embedding_fc_lstm(
        g.ids, g.weight(7, 8), g.weight(2, 8), use_peepholes=False
    ),
    "fusion_seqconv_eltadd_relu": lambda g: tl.paddle.fusion_seqconv_eltadd_relu(
        g.x, g.weight(3 * g.width, 2), g.weight(2), 3
    ),
    "fusion_seqexpand_concat_fc": lambda g: tl.paddle.fusion_seqexpand_concat_fc(
        [g.one, g.each], g.weight(2 * g.width, 2)
    ),
    "fusion_seqpool_cvm_concat": lambda g: tl.paddle.fusion_seqpool_cvm_concat([g.x.abs(), g.x.abs()]),
    "tree_conv": lambda g: tl.paddle.tree_conv(g.one, g.edges, g.weight(g.width, 3, 2, 1)),
    "sequence_topk_avg_pooling": lambda g: tl.paddle.sequence_topk_avg_pooling(g.scores, g.one, g.one, [1], 1),
    "var_conv_2d": lambda g: tl.paddle.var_conv_2d(g.scores, g.one, g.one, g.weight(1, 1, 3, 3)),
    "match_matrix_tensor": lambda g: tl.paddle.match_matrix_tensor(g.pairs.one, g.one, g.weight(g.width, 1, g.width)),
}

#: Functions that are not among the calls, and why.
LEFT_OUT = {
    "LoDTensor.set_": "raises",
    "beam_search_decode": "takes the results of the steps of beam_search",
    "sequence_radius": "the distances of all pairs of a sequence",
    "sequence_farthest": "the distances of every row to those that were taken",
    "sequence_matmul": "takes a matrix for every sequence",
    "from_edges": "takes pairs of nodes, as sequence_gather does",
    "chunk_f1": "is chunk_eval with names, whose growth is measured",
    "gated_delta_rule": "up to 10^6 rows in benchmarks/states.py",
    "ssd": "up to 10^6 rows in benchmarks/states.py",
    "linear_attention": "up to 10^6 rows in benchmarks/states.py",
    "check_errors": "takes nothing",
    "explain": "runs a function of the user's",
    "im2sequence": "takes images; its sequences are as many as they have windows",
    "include_paths": "takes nothing",
}
#: What is not linear, and why; by call, and by shape where it is one alone.
REASONS: dict[str, str] = {
    "sequence_attention": "every query of a sequence with every key",
    "nn.MultiheadAttention": "every query of a sequence with every key; weights are width x width",
    "sequence_knn": "the distances of all pairs of a sequence",
    "sequence_pairs": "the result has a row for every pair",
    "sequence_pairwise": "the result has a row for every pair",
    "match_matrix_tensor": "the result has a row for every pair",
    "sequence_topk_avg_pooling": "reads a number for every pair",
    "var_conv_2d": "reads a number for every pair",
    "attention_lstm": "every step attends to all rows of its sequence",
    "edit_distance": "every entry of a sequence with every other, 64 per word",
    "nn.CTCLoss": "the lattice of a sequence: rows x labels",
    "warpctc": "the lattice of a sequence: rows x labels",
    "ctc_alignment": "the lattice of a sequence: rows x labels",
    "nn.LinearChainCRF": "transitions are tags x tags, and tags are the width here",
    "linear_chain_crf": "transitions are tags x tags, and tags are the width here",
    "crf_decoding": "transitions are tags x tags, and tags are the width here",
    "LoDTensor.to_padded": "sequences x longest: the padded tensor itself",
    "LoDTensor.mask": "sequences x longest: the mask itself",
    "sequence_pad": "sequences x longest: the padded tensor itself",
    "sequence_mask": "sequences x longest: the mask itself",
    "LoD.from_row_offsets, deep": "the call asks row_offsets of every level, each composed of those below",
}


def reason(call: str, shape: str) -> str | None:
    words = call.split()
    keys = (f"{call}, {shape}", *(" ".join(words[:k]) for k in range(len(words), 0, -1)))
    return next((REASONS[key] for key in keys if key in REASONS), None)


def _tensors(value) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value.values() if isinstance(value, tl.LoDTensor) else value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def run(call: Callable[[Given], Any], g: Given) -> None:
    """A call, and the gradient of what it gives."""
    result = call(g)
    if isinstance(result, list):  # of tensors that are views: their gradients are torch's
        return
    outs = [t for t in _tensors(result) if t.requires_grad]
    if outs:
        torch.autograd.grad(outs, [g.leaf], [torch.ones_like(t) for t in outs], allow_unused=True)


def seconds(call: Callable[[Given], Any], g: Given) -> float:
    """CPU time of the fastest of three calls, or of one that takes a second: on a busy machine calls wait for their turn."""
    best = float("inf")
    for _ in range(4):  # the first makes what is given
        begin = time.process_time()
        run(call, g)
        best = min(best, time.process_time() - begin)
        if best > 1:
            break
    return best


def growth(call: Callable[[Given], Any], shape: str) -> tuple[int, float, float] | None:
    """A size, its seconds and those of a tenth of it; None where the shape is refused."""
    times: dict[int, float] = {}
    for n in SIZES:
        try:
            times[n] = seconds(call, Given(shape, n))
        except TooLarge:
            break
        except (tl.LoDError, RuntimeError):
            return None
        if len(times) > 1 and times[n] > ENOUGH:
            break
    if len(times) < 2:
        return None
    least, most = list(times)[-2:]
    for _ in range(2):
        if times[most] > MOST * times[least]:  # of what was disturbed the least counts
            for n in (least, most):
                times[n] = min(times[n], seconds(call, Given(shape, n)))
    return most, times[most], times[least]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="calls whose names begin with one of these")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for what, value in measure.header(Setup(torch.device("cpu"), 1, False), measure.Effort(3, 0, 0)).items():
        if not what.startswith(("peers", "method")):
            print(f"- {what}: {value}")
    shapes = asked.shapes.split(",")
    print(f"\n| call | {' | '.join(shapes)} |\n|---|{'---|' * len(shapes)}", flush=True)
    beyond = []
    gc.disable()
    for name, call in CALLS.items():
        if not name.startswith(tuple(asked.only.split(","))):
            continue
        cells = []
        for shape in shapes:
            found = growth(call, shape)
            gc.collect()
            cells.append("" if found is None else f"{found[1] / found[2]:.1f}")
            if found is not None and found[1] > MOST * found[2]:
                cells[-1] = f"**{cells[-1]}**"
                beyond.append((name, shape, *found))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(
        f"\nMore than {MOST:.0f} times the time for ten times as much:\n\n| call | shape | n | seconds | ratio | why |"
    )
    print("|---|---|---|---|---|---|")
    for name, shape, n, now, before in beyond:
        print(f"| {name} | {shape} | {n:,} | {now:.4f} | {now / before:.1f} | {reason(name, shape) or '?'} |")
    print(f"\n{os.getloadavg()[0]:.1f} was the load average at the end")


if __name__ == "__main__":
    main()
