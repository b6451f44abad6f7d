# SPDX-License-Identifier: Apache-2.0
"""Rows copied to other places, against the copy alone; rows at positions, and times the matrix of their sequence."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import torch_lod as tl

from ..cases import (
    LARGEST_PADDED,
    LONGEST_LOOP,
    Case,
    Cases,
    Ragged,
    Setup,
    both,
    copy,
    exact,
    has,
    optional,
    read,
    run_on,
    tensors,
    write,
)
from ..goals import Goal, faster_than, of_floor

Function = Callable[[Tensor], Tensor]


@dataclass
class Move:
    """One way to move rows; everything but `ours` for the forward and, second, for the backward."""

    name: str
    x: Tensor
    grad: Tensor
    ours: dict[str, tuple[Function, Tensor]]  # each with what it is called on
    peers: dict[str, Function]
    floors: tuple[Callable, Callable]
    floors_are: tuple[str, str]
    answers: tuple[Callable[[], np.ndarray], Callable[[], np.ndarray]]
    goals: tuple[tuple[Goal, ...], tuple[Goal, ...]]
    forward_peers: dict[str, Function] = field(default_factory=dict)  # those without a gradient


def cases(setup: Setup) -> Cases:
    for kind, width in [("U", 64)] if setup.quick else [("U", 64), ("U", 256), ("X", 64), ("T", 4)]:
        ragged = Ragged(kind, 100_000 if kind == "T" else 256, setup.device)
        padded_fits = ragged.count * ragged.longest * width * 4 <= LARGEST_PADDED
        for make in (_reverse, _expand, *((_pad, _unpad) if padded_fits else ())):
            move = make(ragged, width)
            for training in (False, True):
                yield _case(move, ragged, width, training)
    for training in (False, True):
        yield _gathered(Ragged("U", 64, setup.device), training)
        yield _by_matrices(Ragged("U", 64, setup.device), training)


def _gathered(ragged: Ragged, training: bool) -> Case:
    """Numbers at 4,000 positions of every sequence."""
    g, each = torch.Generator().manual_seed(0), 4000
    room = torch.from_numpy(ragged.lengths).repeat_interleave(each)
    position = (torch.rand(len(room), generator=g) * room).long().clamp(max=room - 1).to(ragged.device)
    index = tl.from_lengths(position, [[each] * ragged.count])
    rows = position + ragged.offsets[:-1].repeat_interleave(each)
    absolute, x, grad = (
        index.with_values(rows),
        ragged.randn(1)[:, 0],
        torch.rand(len(rows), generator=g).to(rows.device),
    )
    of_rows = tl.LoDTensor(x, ragged.lod)

    def picked() -> tuple[Tensor, ...]:
        found = exact(x)[rows.cpu().numpy()]
        back = np.bincount(rows.cpu().numpy(), exact(grad), ragged.rows)
        return tensors(found, back) if training else tensors(found)

    given = grad if training else None
    return Case(
        name=f"gather of numbers U, {len(rows):,}{', backward too' if training else ''}",
        ours={
            "tl.sequence_gather": run_on(lambda t: tl.sequence_gather(t, index), of_rows, given),
            "tl.sequence_gather, absolute": run_on(
                lambda t: tl.sequence_gather(t, absolute, absolute=True), of_rows, given
            ),
        },
        peers={
            "index_select, index given": run_on(lambda t: t.index_select(0, rows), x, given),
            "x[index], index given": run_on(lambda t: t[rows], x, given),
        },
        floor=copy(grad),
        floor_is="copy y",
        expected=picked,
        tolerance=1e-5,
        goals=() if training else (faster_than(0.25, "index_select"),),
    )


def _by_matrices(ragged: Ragged, training: bool, width: int = 64) -> Case:
    """Rows times the matrix of their sequence."""
    x, w = ragged.randn(width), torch.randn(ragged.count, width, width, generator=torch.Generator().manual_seed(2))
    w, grad, lengths, of_rows = (
        w.to(x.device),
        ragged.randn(width, seed=1),
        ragged.lengths_list,
        tl.LoDTensor(x, ragged.lod),
    )
    declared, each, out = tl.per_sequence(w), w[ragged.ids[0]], torch.empty_like(x)

    def one_by_one(t: Tensor) -> Tensor:
        return torch.cat([rows @ matrix for rows, matrix in zip(t.split(lengths), w)])

    def products() -> tuple[Tensor, ...]:
        both = [(exact(x), exact(w)), (exact(grad), exact(w).transpose(0, 2, 1))][: 1 + training]
        bounds = np.cumsum(ragged.lengths)[:-1]
        return tensors(*[np.concatenate([r @ m for r, m in zip(np.split(rows, bounds), ms)]) for rows, ms in both])

    given = grad if training else None
    return Case(
        name=f"matrix of the sequence U D={width}{', backward too' if training else ''}",
        ours={
            "tl.sequence_matmul": run_on(lambda t: tl.sequence_matmul(t, w), of_rows, given),
            "x @ tl.per_sequence(w)": run_on(lambda t: t @ declared, of_rows, given),
        },
        peers={
            "cat(product of each of split)": run_on(one_by_one, x, given),
            "bmm, w given for every row": run_on(lambda t: torch.bmm(t[:, None], w[ragged.ids])[:, 0], x, given),
        },
        floor=lambda: torch.mm(x, each, out=out),
        floor_is="one product of all rows",
        expected=products,
        tolerance=1e-5,
        goals=(faster_than(0.8, "product of each"),),
    )


def _case(move: Move, ragged: Ragged, width: int, training: bool) -> Case:
    tiny = ragged.kind == "T"
    grad = move.grad if training else None
    parts = 1 + training
    peers = move.peers if training else move.peers | move.forward_peers
    return Case(
        name=f"{move.name} {ragged.kind} D={width}{', backward too' if training else ''}",
        ours={name: run_on(function, on, grad) for name, (function, on) in move.ours.items()},
        peers={name: run_on(function, move.x, grad) for name, function in peers.items()},
        floor=both(*move.floors[:parts]) if training else move.floors[0],
        floor_is=", ".join(move.floors_are[:parts]),
        expected=lambda: tensors(*(answer() for answer in move.answers[:parts])),
        tolerance=1e-5,
        goals=() if tiny else move.goals[training],
        fact=lambda _, seconds: f"{seconds / ragged.count * 1e9:.2f} ns a sequence" if tiny else "",
    )


def _reverse(ragged: Ragged, width: int) -> Move:
    x, grad = ragged.randn(width), ragged.randn(width, seed=1)
    offsets, lengths, rows = ragged.offsets, ragged.lengths_list, ragged.rows
    last = offsets[1:] - 1
    turned = last.index_select(0, ragged.ids) - ragged.position
    peers: dict[str, Function] = {"index_select, index given": lambda t: t.index_select(0, turned)}
    if ragged.count <= LONGEST_LOOP:
        peers["cat(flip of each of split)"] = lambda t: torch.cat([s.flip(0) for s in t.split(lengths)])
    return Move(
        "reverse",
        x,
        grad,
        ours={
            "tl.ops.gather_runs": (lambda t: tl.ops.gather_runs(t, last, offsets, rows, -1), x),
            "tl.sequence_reverse": (tl.sequence_reverse, tl.LoDTensor(x, ragged.lod)),
        },
        peers=peers,
        floors=(copy(x), copy(grad)),
        floors_are=("copy x", "copy dy"),
        answers=(lambda: _reversed(ragged, exact(x)), lambda: _reversed(ragged, exact(grad))),
        goals=((of_floor(1.15), faster_than(1.2)), ()),
    )


def _expand(ragged: Ragged, width: int) -> Move:
    x, grad = ragged.randn(width, "sequence"), ragged.randn(width, seed=1)
    offsets, ids, rows, lod = ragged.offsets, ragged.ids, ragged.rows, ragged.lod
    lengths = ragged.lengths_column.flatten()
    peers: dict[str, Function] = {
        "index_select, index given": lambda t: t.index_select(0, ids),
        "F.embedding, index given": lambda t: F.embedding(ids, t),
        "repeat_interleave": lambda t: t.repeat_interleave(lengths, 0, output_size=rows),
    }
    if has("torch_scatter"):
        gather_csr = optional("torch_scatter").gather_csr
        peers["torch_scatter.gather_csr"] = lambda t: gather_csr(t, offsets)
    return Move(
        "expand",
        x,
        grad,
        ours={
            "tl.ops.segment_broadcast": (lambda t: tl.ops.segment_broadcast(t, offsets, rows), x),
            "tl.sequence_expand_as": (lambda t: tl.sequence_expand_as(t, lod), x),
            "tl.sequence_expand": (lambda t: tl.sequence_expand(t, lod), x),
        },
        peers=peers,
        floors=(both(read(x), write(grad)), both(read(grad), write(x))),
        floors_are=("read x, write y", "read dy, write dx"),
        answers=(lambda: ragged.repeat(exact(x)), lambda: ragged.reduce(np.add, exact(grad))),
        goals=((of_floor(1.15), faster_than(1.6)), ()),
    )


def _pad(ragged: Ragged, width: int) -> Move:
    count, longest, lengths, offsets = ragged.count, ragged.longest, ragged.lengths_list, ragged.offsets
    places, shape = ragged.places, (ragged.count, ragged.longest, width)
    x, grad = ragged.randn(width), ragged.randn(width, "place", 1).view(shape)
    starts = torch.arange(count, device=x.device) * longest
    peers: dict[str, Function] = {
        "zeros.index_copy, index given": lambda t: (
            t.new_zeros(count * longest, width).index_copy(0, places, t).view(shape)
        )
    }
    if count <= LONGEST_LOOP:
        peers["pad_sequence(split)"] = lambda t: pad_sequence(t.split(lengths), batch_first=True)
    if has("fbgemm_gpu"):
        fbgemm_pad = torch.ops.fbgemm.jagged_to_padded_dense
        peers["fbgemm.jagged_to_padded_dense"] = lambda t: fbgemm_pad(t, [offsets], [longest], 0.0)
    aten_pad = torch.ops.aten._jagged_to_padded_dense_forward
    return Move(
        "pad",
        x,
        grad,
        ours={
            "tl.ops.scatter_runs": (lambda t: tl.ops.scatter_runs(t, starts, offsets, count * longest).view(shape), x),
            "LoDTensor.to_padded": (lambda t: t.to_padded()[0], tl.LoDTensor(x, ragged.lod)),
        },
        peers=peers,
        forward_peers={"aten._jagged_to_padded_dense_forward": lambda t: aten_pad(t, [offsets], [longest], 0.0)},
        floors=(both(read(x), write(grad)), copy(x)),
        floors_are=("read x, write y", "copy dx"),
        answers=(lambda: _in_places(ragged, exact(x)), lambda: _from_places(ragged, exact(grad))),
        goals=_padding_goals("pad_sequence"),
    )


def _unpad(ragged: Ragged, width: int) -> Move:
    lengths, places, offsets, rows = ragged.lengths_list, ragged.places, ragged.offsets, ragged.rows
    x, grad = ragged.randn(width, "place").view(ragged.count, ragged.longest, width), ragged.randn(width, seed=1)
    mask = torch.zeros(ragged.count * ragged.longest, dtype=torch.bool, device=x.device)
    mask = mask.index_fill(0, places, True).view(ragged.count, ragged.longest)
    host_lengths, starts = ragged.lod.lengths(), torch.arange(ragged.count, device=x.device) * ragged.longest
    peers: dict[str, Function] = {
        "index_select, index given": lambda t: t.flatten(0, 1).index_select(0, places),
        "dense[mask]": lambda t: t[mask],
    }
    if ragged.count <= LONGEST_LOOP:
        peers["cat(slice of each)"] = lambda t: torch.cat([t[i, :n] for i, n in enumerate(lengths)])
    if has("fbgemm_gpu"):
        fbgemm_unpad = torch.ops.fbgemm.dense_to_jagged
        peers["fbgemm.dense_to_jagged"] = lambda t: fbgemm_unpad(t, [offsets], rows)[0]
    aten_unpad = torch.ops.aten._padded_dense_to_jagged_forward
    return Move(
        "unpad",
        x,
        grad,
        ours={
            "tl.ops.gather_runs": (lambda t: tl.ops.gather_runs(t.flatten(0, 1), starts, offsets, rows), x),
            "tl.from_padded": (lambda t: tl.from_padded(t, host_lengths), x),
        },
        peers=peers,
        forward_peers={"aten._padded_dense_to_jagged_forward": lambda t: aten_unpad(t, [offsets], rows)},
        floors=(copy(grad), both(read(grad), write(x))),
        floors_are=("copy y", "read dy, write dx"),
        answers=(lambda: _from_places(ragged, exact(x)), lambda: _in_places(ragged, exact(grad))),
        goals=_padding_goals("cat(slice of each)"),
    )


def _padding_goals(idiom: str) -> tuple[tuple[Goal, ...], tuple[Goal, ...]]:
    """For the forward, and for the forward and backward."""
    return (of_floor(1.1), faster_than(1.3, "fbgemm")), (
        of_floor(1.5),
        faster_than(1.3, "fbgemm"),
        faster_than(100, idiom),
    )


def _in_places(ragged: Ragged, rows: np.ndarray) -> np.ndarray:
    """Padded with zeros."""
    out = np.zeros((ragged.count, ragged.longest, rows.shape[1]))
    for padded, sequence in zip(out, np.split(rows, ragged.lengths.cumsum()[:-1]), strict=True):
        padded[: len(sequence)] = sequence
    return out


def _from_places(ragged: Ragged, padded: np.ndarray) -> np.ndarray:
    return np.concatenate([sequence[:length] for sequence, length in zip(padded, ragged.lengths)])


def _reversed(ragged: Ragged, rows: np.ndarray) -> np.ndarray:
    return np.concatenate([sequence[::-1] for sequence in np.split(rows, ragged.lengths.cumsum()[:-1])])
