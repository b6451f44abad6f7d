# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, in training (outputs, gradients of inputs and of parameters) and forwards only, and `tl.scan` of a cell,
against the same products as large GEMMs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence, pad_sequence

import torch_lod as tl

from ..cases import Case, Cases, Ragged, Run, Setup
from ..goals import Goal, faster_than, of_floor

#: One call per sequence takes part up to this many.
LONGEST_LOOP = 32
#: Splitting and packing the rows takes part up to this many elements; at four times as many a step can take a minute.
LARGEST_SPLIT = 2**20


def cases(setup: Setup) -> Cases:
    sizes = {"U": [(32, 128), (32, 256), (32, 512), (256, 128)], "X": [(32, 128), (32, 256), (256, 128)]}
    for kind in "UX":
        for count, hidden in [(32, 64)] if setup.quick else sizes[kind]:
            ragged = Ragged(kind, count, setup.device)
            yield _training_step("LSTM", ragged, hidden)
            if (count, kind) == (32, "U") and hidden in (64, 256):
                yield _training_step("GRU", ragged, hidden)
                yield _training_step("RNN", ragged, hidden)
            if count == 32 and hidden in (64, 256):
                yield _forward(ragged, hidden)
    yield _scan(Ragged("U", *((32,) if setup.quick else (256,)), setup.device), 64 if setup.quick else 256)


def _modules(cell: str, ragged: Ragged, hidden: int) -> tuple[nn.Module, nn.Module]:
    """torch's module and ours with its parameters."""
    torch.manual_seed(0)
    theirs = getattr(nn, cell)(hidden, hidden, device=ragged.device)
    ours = getattr(tl.nn, cell)(hidden, hidden, device=ragged.device)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def _training_step(cell: str, ragged: Ragged, hidden: int) -> Case:
    x, grad = ragged.randn(hidden), ragged.randn(hidden, seed=1)
    theirs, ours = _modules(cell, ragged, hidden)
    lod_tensor = tl.LoDTensor(x, ragged.lod)
    return Case(
        name=f"{cell} {ragged.kind} B={ragged.count} H={hidden}",
        ours={f"tl.nn.{cell}": _step(lambda t: ours(t)[0], ours, lod_tensor, grad)},
        peers=_peers(ragged, theirs, lambda function, *args: _step(function, theirs, *args), x, grad),
        floor=_products(x, theirs.weight_ih_l0.detach()),
        floor_is="the products of the step, as 6 GEMMs",
        expected=lambda: _expected(theirs, *_packed(ragged), x, grad),
        tolerance=1e-4,
        goals=_goals(cell, ragged.kind, ragged.count, hidden),
    )


def _forward(ragged: Ragged, hidden: int) -> Case:
    x = ragged.randn(hidden)
    theirs, ours = _modules("LSTM", ragged, hidden)
    lod_tensor = tl.LoDTensor(x, ragged.lod)

    def run(function: Callable, t: Tensor, _: Tensor | None, back: Tensor | None = None) -> Run:
        return Run(torch.no_grad()(lambda: function(t)), lambda result: (_rows(result, back),))

    return Case(
        name=f"LSTM {ragged.kind} B={ragged.count} H={hidden}, forward",
        ours={"tl.nn.LSTM": run(lambda t: ours(t)[0], lod_tensor, None)},
        peers=_peers(ragged, theirs, run, x, x),
        floor=_products(x, theirs.weight_ih_l0.detach(), trained=False),
        floor_is="the products, as 2 GEMMs",
        expected=lambda: _expected(theirs, *_packed(ragged), x, x)[:1],
        tolerance=1e-4,
        goals=(of_floor(1.1), faster_than(1.2)) if hidden >= 128 else (),
    )


def _scan(ragged: Ragged, hidden: int) -> Case:
    """A cell in Python, step by step, beside the kernel of torch's PackedSequence."""
    x, grad = ragged.randn(hidden), ragged.randn(hidden, seed=1)
    theirs, _ = _modules("LSTM", ragged, hidden)
    cell = nn.LSTMCell(hidden, hidden, device=x.device)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in theirs.state_dict().items()})
    start, lod_tensor = x.new_zeros(ragged.count, hidden), tl.LoDTensor(x, ragged.lod)
    peers = _peers(ragged, theirs, lambda function, *args: _step(function, theirs, *args), x, grad)
    return Case(
        name=f"scan of LSTMCell {ragged.kind} B={ragged.count} H={hidden}",
        ours={"tl.scan": _step(lambda t: tl.scan(cell, t, (start, start))[0], cell, lod_tensor, grad)},
        peers={name: run for name, run in peers.items() if "layouts given" in name},
        floor=_products(x, theirs.weight_ih_l0.detach()),
        floor_is="the products of the step, as 6 GEMMs",
        expected=lambda: _expected(theirs, *_packed(ragged), x, grad),
        tolerance=1e-4,
        goals=(faster_than(1, "PackedSequence, layouts given"),) if hidden >= 128 else (),
    )


def _rows(t: Tensor, back: Tensor | None) -> Tensor:
    """Our rows from another layout; `back` are their places in it."""
    return t if back is None else t.reshape(-1, t.shape[-1])[back]


def _step(function: Callable, module: nn.Module, x: Tensor, grad: Tensor, back: Tensor | None = None) -> Run:
    """Outputs, gradient of x and of the parameters."""
    leaf = x.detach().requires_grad_()
    inputs = [leaf, *module.parameters()]

    def call():
        y = function(leaf)
        return (y, *torch.autograd.grad(y, inputs, grad))

    return Run(call, lambda result: (_rows(result[0], back), _rows(result[1], back), *result[2:]))


def _packed(ragged: Ragged) -> tuple[PackedSequence, Tensor]:
    """The numbers of the rows as a PackedSequence, longest sequence first, and the place of every row in it."""
    order = ragged.lengths_column.flatten().argsort(descending=True, stable=True)
    numbers = torch.arange(ragged.rows, device=ragged.device).split(ragged.lengths_list)
    packed = pack_sequence([numbers[i] for i in order.tolist()])
    return packed, packed.data.argsort()


def _peers(ragged: Ragged, module: nn.Module, run: Callable[..., Run], x: Tensor, grad: Tensor) -> dict[str, Run]:
    """Ways to run torch's module; `run` makes a contestant of a function, its input, a gradient and the places of our rows."""
    count, longest, lengths = ragged.count, ragged.longest, ragged.lengths_list
    name = f"nn.{type(module).__name__}"
    packed, place = _packed(ragged)
    step_major = ragged.position * count + ragged.ids  # of every row in a padded layout (longest, sequences)
    padded = pad_sequence(x.split(lengths))
    padded_grad = torch.zeros_like(padded).flatten(0, 1).index_copy(0, step_major, grad).view(longest, count, -1)

    def core(t: Tensor) -> Tensor:
        return module(PackedSequence(t, packed.batch_sizes))[0].data

    def rows_to_rows(t: Tensor) -> Tensor:
        y, _ = module(pack_sequence(t.split(lengths), enforce_sorted=False))
        return pad_packed_sequence(y)[0].flatten(0, 1).index_select(0, step_major)

    def each(t: Tensor) -> Tensor:
        return torch.cat([module(s[:, None])[0][:, 0] for s in t.split(lengths)])

    peers = {
        f"{name}, padded, layouts given": run(lambda t: module(t)[0], padded, padded_grad, step_major),
        f"{name}, PackedSequence, layouts given": run(core, x[packed.data], grad[packed.data], place),
    }
    if x.numel() <= LARGEST_SPLIT:
        peers[f"{name}, PackedSequence, from and to rows"] = run(rows_to_rows, x, grad)
    if count <= LONGEST_LOOP:
        peers[f"{name}, one call per sequence"] = run(each, x, grad)
    return peers


def _products(x: Tensor, weight: Tensor, trained: bool = True) -> Callable[[], None]:
    """Input and recurrent product, and in training for each the gradients of its factors, one product for all rows, in place."""
    gates, features, turned = x.new_ones(len(x), len(weight)), torch.empty_like(x), weight.t().contiguous()
    weights = torch.empty_like(weight)

    def floor():
        for _ in range(2):
            torch.mm(x, turned, out=gates)
            if trained:
                torch.mm(gates, weight, out=features)
                torch.mm(gates.t(), x, out=weights)

    return floor


def _expected(module: nn.Module, packed: PackedSequence, place: Tensor, x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    """torch's module in float64, on a PackedSequence."""
    exact = getattr(nn, type(module).__name__)(module.input_size, module.hidden_size, dtype=torch.float64)
    exact.load_state_dict({name: p.cpu().double() for name, p in module.state_dict().items()})
    order, place, sizes = packed.data.cpu(), place.cpu(), packed.batch_sizes
    leaf = x.cpu().double()[order].requires_grad_()
    y = exact(PackedSequence(leaf, sizes))[0].data
    gradients = torch.autograd.grad(y, [leaf, *exact.parameters()], grad.cpu().double()[order])
    return (y.detach()[place], gradients[0][place], *gradients[1:])


def _goals(cell: str, kind: str, count: int, hidden: int) -> tuple[Goal, ...]:
    if hidden < 128 or cell == "RNN":
        return ()
    floor, padded, packed = {
        ("LSTM", "U", 32): (1.03, 1.75, 2.5),
        ("LSTM", "U", 256): (1.02, 2, 4.5),
        ("LSTM", "X", 32): (1.05, 3.3, 3.3),
        ("LSTM", "X", 256): (1.03, 8, 12),
        ("GRU", "U", 32): (1.1, 2.4, 3.6),
    }[cell, kind, count]
    return (
        of_floor(floor),
        faster_than(padded, "padded, layouts given"),
        faster_than(packed, "PackedSequence, layouts given"),
    )
