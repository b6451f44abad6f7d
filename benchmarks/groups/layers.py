# SPDX-License-Identifier: Apache-2.0
"""Layers on sequences of equal length beside torch's own on the same rows as a dense batch; and what streams live on, a step
of a recurrence with its state and a query against many keys."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_lod as tl

from ..cases import Case, Cases, Run, Setup, copy
from ..goals import faster_than


def cases(setup: Setup) -> Cases:
    for cell in ("LSTM", "GRU"):
        for hidden in (128,) if setup.quick else (32, 128, 512):
            yield from (_stream(cell, hidden, count, setup) for count in (1, 8))
            for count, length in [(8, 100)] if setup.quick else [(1, 100), (8, 100), (32, 50)]:
                for training in (False, True):
                    yield _recurrence(cell, hidden, count, length, training, setup)
    sizes = [(32, 64, 64), (8, 512, 512), (1, 2048, 2048), (1, 1, 2048), (32, 1, 512), (8, 4, 1000)]
    for count, queries, keys in sizes[:1] + sizes[3:4] if setup.quick else sizes:
        yield _attention(count, queries, keys, setup)
    for count, length in [] if setup.quick else [(32, 64), (4, 512)]:
        yield _encoder(count, length, setup)


def _rows(setup: Setup, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(setup.device)


def _plain(result: object) -> tuple[Tensor, ...]:
    parts = result if isinstance(result, tuple) else (result,)
    return tuple((t.values() if isinstance(t, tl.LoDTensor) else t).detach().reshape(-1) for t in parts)


def _without_graph(call: Callable[[], object]) -> Run:
    def run():
        with torch.no_grad():
            return call()

    return Run(run, _plain)


def _trained(module: nn.Module, x: Tensor) -> Run:
    weights = list(module.parameters())
    grad = torch.randn(x.numel(), generator=torch.Generator().manual_seed(1)).view(x.shape).to(x.device)

    def step():
        out = module(x)
        rows = out[0] if isinstance(out, tuple) else out
        rows = rows.values() if isinstance(rows, tl.LoDTensor) else rows
        return rows, *torch.autograd.grad(rows, weights, grad)

    return Run(step, _plain)


def _case(name: str, ours: Run, dense: Run, rows: Tensor, goal: float = 0.95) -> Case:
    return Case(
        name=name,
        ours={"torch_lod": ours},
        peers={"torch, dense": dense},
        floor=copy(rows),
        floor_is="copying the rows",
        expected=lambda: dense.answer(dense.call()),
        tolerance=1e-4,
        goals=(faster_than(goal, "dense"),),
    )


def _modules(cell: str, hidden: int, setup: Setup) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    dense = getattr(nn, cell)(hidden, hidden, batch_first=True, device=setup.device)
    ours = getattr(tl.nn, cell)(hidden, hidden, device=setup.device)
    ours.load_state_dict(dense.state_dict())
    return ours, dense


def _recurrence(cell: str, hidden: int, count: int, length: int, training: bool, setup: Setup) -> Case:
    ours, dense = _modules(cell, hidden, setup)
    rows = _rows(setup, count * length, hidden)
    x, batch = tl.from_lengths(rows, [[length] * count]), rows.view(count, length, hidden)
    name = f"{cell} H={hidden} B={count} L={length}"
    if training:
        return _case(f"{name}, training", _trained(ours, x), _trained(dense, batch), rows)
    return _case(name, _without_graph(lambda: ours(x)[0]), _without_graph(lambda: dense(batch)[0]), rows)


def _stream(cell: str, hidden: int, count: int, setup: Setup) -> Case:
    """One row per sequence, with the state of those before."""
    ours, dense = _modules(cell, hidden, setup)
    rows = _rows(setup, count, hidden)
    x, batch = tl.from_lengths(rows, [[1] * count]), rows.unsqueeze(1)
    state = _rows(setup, 1, count, hidden)
    given = (state, state) if cell == "LSTM" else state
    return _case(
        f"{cell} H={hidden} B={count}, one step",
        _without_graph(lambda: ours(x, given)[0]),
        _without_graph(lambda: dense(batch, given)[0]),
        rows,
        1.0,
    )


def _attention(count: int, queries: int, keys: int, setup: Setup) -> Case:
    heads, width = 8, 64
    q, k = _rows(setup, count * queries, heads, width), _rows(setup, count * keys, heads, width)
    x, y = tl.from_lengths(q, [[queries] * count]), tl.from_lengths(k, [[keys] * count])
    p, d = (t.view(count, -1, heads, width).transpose(1, 2).contiguous() for t in (q, k))
    return _case(
        f"attention B={count}, {queries} queries, {keys} keys",
        _without_graph(lambda: tl.sequence_attention(x, y, y)),
        _without_graph(lambda: F.scaled_dot_product_attention(p, d, d).transpose(1, 2)),
        k,
        1.0 if queries == 1 else 0.95,
    )


def _encoder(count: int, length: int, setup: Setup) -> Case:
    torch.manual_seed(0)
    dense = nn.TransformerEncoderLayer(256, 8, 512, dropout=0.0, batch_first=True, device=setup.device)
    ours = tl.nn.TransformerEncoderLayer(256, 8, 512, dropout=0.0, device=setup.device)
    ours.load_state_dict(dense.state_dict())
    rows = _rows(setup, count * length, 256)
    x, batch = tl.from_lengths(rows, [[length] * count]), rows.view(count, length, 256)
    return _case(f"encoder layer B={count} L={length}, training", _trained(ours, x), _trained(dense, batch), rows)
