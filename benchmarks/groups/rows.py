# SPDX-License-Identifier: Apache-2.0
"""Rows copied to other places, against the copy alone."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import torch_lod as tl

from ..cases import Case, Cases, Ragged, Setup, both, copy, exact, has, optional, read, run_on, tensors, write

Function = Callable[[Tensor], Tensor]
#: Padded layouts take part up to this size; larger outputs would time the page faults of fresh memory.
LARGEST_PADDED = 2**25
#: A Python loop over the sequences takes part up to this many.
LONGEST_LOOP = 1000


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
    goals: tuple[str, str]
    forward_peers: dict[str, Function] = field(default_factory=dict)  # those without a gradient


def cases(setup: Setup) -> Cases:
    for kind, width in [("U", 64)] if setup.quick else [("U", 64), ("U", 256), ("X", 64), ("T", 4)]:
        ragged = Ragged(kind, 100_000 if kind == "T" else 256, setup.device)
        padded_fits = ragged.count * ragged.longest * width * 4 <= LARGEST_PADDED
        for make in (_reverse, _expand, *((_pad, _unpad) if padded_fits else ())):
            move = make(ragged, width)
            for training in (False, True):
                yield _case(move, f"{ragged.kind} D={width}", training)


def _case(move: Move, shape: str, training: bool) -> Case:
    grad = move.grad if training else None
    parts = 1 + training
    peers = move.peers if training else move.peers | move.forward_peers
    return Case(
        name=f"{move.name} {shape}{', backward too' if training else ''}",
        ours={name: run_on(function, on, grad) for name, (function, on) in move.ours.items()},
        peers={name: run_on(function, move.x, grad) for name, function in peers.items()},
        floor=both(*move.floors[:parts]) if training else move.floors[0],
        floor_is=", ".join(move.floors_are[:parts]),
        expected=lambda: tensors(*(answer() for answer in move.answers[:parts])),
        tolerance=1e-5,
        goal=move.goals[training],
    )


def _reverse(ragged: Ragged, width: int) -> Move:
    x, grad = ragged.randn(width), ragged.randn(width, seed=1)
    last = ragged.offsets[1:].index_select(0, ragged.ids) - 1
    turned, lengths = last - ragged.position, ragged.lengths_list
    peers: dict[str, Function] = {"index_select, index given": lambda t: t.index_select(0, turned)}
    if ragged.count <= LONGEST_LOOP:
        peers["cat(flip of each of split)"] = lambda t: torch.cat([s.flip(0) for s in t.split(lengths)])
    return Move(
        "reverse",
        x,
        grad,
        ours={
            "tl.ops.gather_rows, map given": (lambda t: tl.ops.gather_rows(t, turned), x),
            "tl.sequence_reverse": (tl.sequence_reverse, tl.LoDTensor(x, ragged.lod)),
        },
        peers=peers,
        floors=(copy(x), copy(grad)),
        floors_are=("copy x", "copy dy"),
        answers=(lambda: _reversed(ragged, exact(x)), lambda: _reversed(ragged, exact(grad))),
        goals=("<= 1.15 of floor; >= 1.2x best", ""),
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
        goals=("<= 1.15 of floor; >= 1.6x best", ""),
    )


def _pad(ragged: Ragged, width: int) -> Move:
    count, longest, lengths, offsets = ragged.count, ragged.longest, ragged.lengths_list, ragged.offsets
    places, shape = ragged.places, (ragged.count, ragged.longest, width)
    x, grad = ragged.randn(width), ragged.randn(width, "place", 1).view(shape)
    row_at = torch.full((count * longest,), -1, device=x.device)
    row_at[places] = torch.arange(ragged.rows, device=x.device)
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
            "tl.ops.gather_rows, map given": (lambda t: tl.ops.gather_rows(t, row_at).view(shape), x),
            "LoDTensor.to_padded": (lambda t: t.to_padded()[0], tl.LoDTensor(x, ragged.lod)),
        },
        peers=peers,
        forward_peers={"aten._jagged_to_padded_dense_forward": lambda t: aten_pad(t, [offsets], [longest], 0.0)},
        floors=(both(read(x), write(grad)), copy(x)),
        floors_are=("read x, write y", "copy dx"),
        answers=(lambda: _in_places(ragged, exact(x)), lambda: _from_places(ragged, exact(grad))),
        goals=("<= 1.1 of floor; >= 1.3x fbgemm", "<= 1.5 of floor; >= 1.3x fbgemm, 100x pad_sequence"),
    )


def _unpad(ragged: Ragged, width: int) -> Move:
    lengths, places, offsets, rows = ragged.lengths_list, ragged.places, ragged.offsets, ragged.rows
    x, grad = ragged.randn(width, "place").view(ragged.count, ragged.longest, width), ragged.randn(width, seed=1)
    mask = torch.zeros(ragged.count * ragged.longest, dtype=torch.bool, device=x.device)
    mask = mask.index_fill(0, places, True).view(ragged.count, ragged.longest)
    host_lengths = ragged.lod.lengths()
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
            "tl.ops.gather_rows, map given": (lambda t: tl.ops.gather_rows(t.flatten(0, 1), places), x),
            "tl.from_padded": (lambda t: tl.from_padded(t, host_lengths), x),
        },
        peers=peers,
        forward_peers={"aten._padded_dense_to_jagged_forward": lambda t: aten_unpad(t, [offsets], rows)},
        floors=(copy(grad), both(read(grad), write(x))),
        floors_are=("copy y", "read dy, write dx"),
        answers=(lambda: _from_places(ragged, exact(x)), lambda: _in_places(ragged, exact(grad))),
        goals=("<= 1.1 of floor; >= 1.3x fbgemm", "<= 1.5 of floor; >= 1.3x fbgemm, 100x slice and cat"),
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
