# SPDX-License-Identifier: Apache-2.0
"""The price of raggedness: operators on sequences of equal length beside torch's own on the same rows as a dense tensor
(sequences, length, D), along dim 1, where there is no structure to read and no padding to save."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_lod as tl

from ..cases import Case, Cases, Run, Setup, Tensors, copy
from ..goals import faster_than

#: In all.
NUMBERS = 1_000_000
#: Of dense: below it an operator is too slow.
ENOUGH = 0.9
#: Rows of sequences whose structure is about as large as they are: measured, but without a goal.
SHORT = 3


@dataclass(frozen=True)
class Given:
    """The rows, both ways, and what some operators want beside them: as many other rows, and integers."""

    x: tl.LoDTensor
    dense: Tensor
    y: tl.LoDTensor
    other: Tensor
    ones: Tensor
    half: Tensor

    @property
    def length(self) -> int:
        return self.dense.shape[1]

    @cached_property
    def leaves(self) -> list[Tensor]:
        """The rows as leaves of a graph. Everyone has the same, since some memory is faster than other."""
        return [t.values().clone().requires_grad_() for t in (self.x, self.y)]

    @cached_property
    def _grads(self) -> dict[int, Tensor]:
        return {}

    @cached_property
    def places(self) -> tuple[tl.LoDTensor, Tensor]:
        """Positions in every sequence, from the last one down."""
        down = torch.arange(self.length, device=self.dense.device).flip(0).repeat(len(self.dense), 1)
        return self.x.with_values(down.flatten()), down

    def grad(self, like: Tensor) -> Tensor:
        """A gradient for a result: not ones, since those of a softmax add up to a gradient of nothing but rounding."""
        if like.numel() not in self._grads:
            self._grads[like.numel()] = torch.rand(like.numel(), generator=torch.Generator().manual_seed(0)).to(like)
        return self._grads[like.numel()].view(like.shape)

    def on(self, rows: Tensor, others: Tensor) -> "Given":
        """The same with other rows (n length, D)."""
        x, dense = self.x.with_values(rows), rows.view(self.dense.shape)
        return Given(x, dense, self.x.with_values(others), others.view(dense.shape), self.ones, self.half)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Given":
        return self.on(change(self.x.values()), change(self.y.values()))


@dataclass(frozen=True)
class Twin:
    """`ours` and `dense`: the same numbers, in the same order."""

    name: str
    ours: Callable[[Given], object]
    dense: Callable[[Given], object]
    trained: bool = True
    whole: bool = False  # also measured with int64
    wide: bool = False  # not for rows of width 1
    product: bool = False  # of numbers near 1, so that a product of many is one
    batches: int = 1  # that it takes
    tolerance: float = 1e-5


def _weight(g: Given) -> Tensor:
    width = g.dense.shape[2]
    return torch.linspace(-1, 1, width * width * 3, dtype=g.dense.dtype, device=g.dense.device).view(width, width, 3)


def _matrices(g: Given) -> Tensor:
    """A matrix for each sequence, as wide as the rows."""
    return _weight(g)[None, :, :, 0].expand(len(g.dense), -1, -1)


def _order(g: Given) -> Tensor:
    return torch.randperm(len(g.dense), generator=torch.Generator().manual_seed(0))


def _first(g: Given) -> Tensor:
    return g.dense[:, 0]


def _conv(g: Given) -> Tensor:
    return F.conv1d(g.dense.transpose(1, 2), _weight(g), padding=1).transpose(1, 2)


def _wide(dense: Tensor) -> Tensor:
    """Of a dtype that torch.quantile takes."""
    return dense.to(torch.promote_types(dense.dtype, torch.float32))


def _most(g: Given) -> int:
    return min(5, g.length)


def _cut(g: Given) -> tl.LoDTensor:
    return tl.sequence_slice(g.x, g.ones, g.half)


def _even(g: Given) -> Tensor:
    return torch.arange(len(g.x), device=g.dense.device) % 2 == 0


def _attend(g: Given) -> Tensor:
    q = g.dense.unsqueeze(1)
    return F.scaled_dot_product_attention(q, q, q).squeeze(1)


def _dense_reduction(name: str) -> Callable[[Given], object]:
    return lambda g: getattr(g.dense, name)(1)


def _pool(how: str, dense: Callable[[Given], object], **about) -> Twin:
    return Twin(f"sequence_pool {how}", lambda g: tl.sequence_pool(g.x, how), dense, **about)


def _along(name: str, dense: str, **about) -> Twin:
    return Twin(name, lambda g: getattr(tl, name)(g.x), _dense_reduction(dense), **about)


TWINS = (
    *(
        _pool(how, _dense_reduction(how), whole=how == "sum", product=how == "prod")
        for how in ("sum", "mean", "prod", "var", "logsumexp")
    ),
    _pool("max", _dense_reduction("amax"), trained=False, whole=True),
    Twin(
        "sequence_pool max, index",
        lambda g: tl.sequence_pool(g.x, "max", return_index=True)[0],
        lambda g: g.dense.max(1)[0],
    ),
    _pool("last", lambda g: g.dense[:, -1].clone(), whole=True),
    _pool("median", lambda g: g.dense.median(1)[0], whole=True),
    Twin(
        "sequence_quantile 0.875",
        lambda g: tl.sequence_quantile(g.x, 0.875),
        lambda g: _wide(g.dense).quantile(0.875, 1).to(g.dense.dtype),
    ),
    Twin(
        "sequence_argmax",
        lambda g: tl.sequence_argmax(g.x),
        lambda g: g.dense.argmax(1) + torch.arange(0, len(g.x), g.length)[:, None],
        trained=False,
    ),
    Twin(
        "sequence_topk 5",
        lambda g: tl.sequence_topk(g.x, _most(g))[0],
        lambda g: g.dense.topk(_most(g), 1)[0],
        whole=True,
    ),
    _along("sequence_softmax", "softmax"),
    _along("sequence_log_softmax", "log_softmax"),
    Twin(
        "sequence_normalize",
        lambda g: tl.sequence_normalize(g.x),
        lambda g: F.instance_norm(g.dense.transpose(1, 2)).transpose(1, 2),
        tolerance=1e-4,
    ),
    _along("sequence_cumsum", "cumsum", whole=True),
    _along("sequence_cumprod", "cumprod", product=True),
    Twin("sequence_cummax", lambda g: tl.sequence_cummax(g.x)[0], lambda g: g.dense.cummax(1)[0]),
    Twin("sequence_cummin", lambda g: tl.sequence_cummin(g.x)[0], lambda g: g.dense.cummin(1)[0]),
    _along("sequence_logcumsumexp", "logcumsumexp"),
    Twin("sequence_sort", lambda g: tl.sequence_sort(g.x), lambda g: g.dense.sort(1)[0], whole=True),
    Twin("sequence_reverse", lambda g: tl.sequence_reverse(g.x), lambda g: g.dense.flip(1), whole=True),
    Twin("sequence_shift 1", lambda g: tl.sequence_shift(g.x, 1), lambda g: F.pad(g.dense[:, :-1], (0, 0, 1, 0))),
    Twin("sequence_slice", _cut, lambda g: g.dense[:, 1 : 1 + g.length // 2].clone(), trained=False),
    Twin(
        "sequence_gather",
        lambda g: tl.sequence_gather(g.x, g.places[0]),
        lambda g: g.dense[torch.arange(len(g.dense), device=g.dense.device)[:, None], g.places[1]],
    ),
    Twin(
        "sequence_matmul",
        lambda g: tl.sequence_matmul(g.x, _matrices(g)),
        lambda g: torch.bmm(g.dense, _matrices(g)),
    ),
    Twin("head", lambda g: g.x.head(g.length // 2), lambda g: g.dense[:, : g.length // 2].clone()),
    Twin("seq[:, -1]", lambda g: g.x.seq[:, -1], lambda g: g.dense[:, -1].clone()),
    Twin("filter", lambda g: g.x.filter(_even(g)), lambda g: g.dense.flatten(0, 1)[_even(g)]),
    Twin("sequence_roll 1", lambda g: tl.sequence_roll(g.x, 1), lambda g: g.dense.roll(1, 1)),
    Twin(
        "sequence_chunk 2, overlapping",
        lambda g: tl.sequence_chunk(g.x, 2, 1),
        lambda g: g.dense.unfold(1, 2, 1).movedim(-1, 2).contiguous(),
    ),
    Twin(
        "sequence_interleave",
        lambda g: tl.sequence_interleave([g.x, g.y]),
        lambda g: torch.stack([g.dense, g.other], 2),
        batches=2,
    ),
    Twin(
        "sequence_concat",
        lambda g: tl.sequence_concat([g.x, g.y]),
        lambda g: torch.cat([g.dense, g.other], 1),
        batches=2,
    ),
    Twin(
        "sequence_expand_as",
        lambda g: tl.sequence_expand_as(_first(g), g.x),
        lambda g: _first(g).unsqueeze(1).repeat(1, g.length, 1),
    ),
    Twin(
        "sequence_expand",
        lambda g: tl.sequence_expand(_first(g), g.x),
        lambda g: _first(g).repeat_interleave(g.length, 0),
        trained=False,
    ),
    Twin("to_padded", lambda g: g.x.to_padded()[0], lambda g: g.dense.clone()),
    Twin(
        "sequence_unfold 3",
        lambda g: tl.sequence_unfold(g.x, 3).values().movedim(1, -1),
        lambda g: g.dense.unfold(1, 3, 1).contiguous(),
    ),
    Twin("sequence_conv1d 3", lambda g: tl.sequence_conv1d(g.x, _weight(g)), _conv, wide=True, tolerance=1e-4),
    Twin("sequences in another order", lambda g: g.x.seq[_order(g)], lambda g: g.dense[_order(g)]),
    Twin("cat", lambda g: tl.cat([g.x, g.y]), lambda g: torch.cat([g.dense, g.other]), batches=2),
    Twin(
        "sequence_attention",
        lambda g: tl.sequence_attention(g.x.unsqueeze(1), g.x.unsqueeze(1), g.x.unsqueeze(1)),
        _attend,
        wide=True,
        tolerance=3e-5,  # scores of some 50, rounded to float32, are exponents
    ),
)
#: Operators of `tl` that have no dense twin, and why.
WITHOUT = {
    "sequence_dropout": "draws other numbers than torch's dropout1d",
    "sequence_farthest": "torch has none",
    "sequence_knn": "torch has cdist and topk, which form all distances",
    "sequence_loss": "of any loss of torch's, whose time it takes",
    "sequence_pairs": "makes structure",
    "sequence_pairwise": "torch has cdist for one of its distances",
    "sequence_radius": "torch has cdist, which forms all distances",
    "sequence_sample": "draws numbers",
    "sequence_scan": "torch has no linear recurrence",
    "sequence_unique": "torch.unique of dense rows finds the equal rows of all sequences",
}


def cases(setup: Setup) -> Cases:
    sizes = [(1, 10), (64, 10)] if setup.quick else [(d, length) for d in (1, 8, 64, 256) for length in (10, 1000)]
    for width, length in sizes:
        for twin in TWINS:
            if (twin.wide and width == 1) or (twin.name == "sequence_attention" and length > 100 and width > 64):
                continue
            for training in (False, True)[: 1 + twin.trained]:
                yield _case(twin, _given(torch.float32, width, length, setup), training)
    for width in (1, 64) if not setup.quick else ():
        for twin in TWINS:
            for training in (False, True)[: 1 + twin.trained] if not twin.wide else ():
                yield _case(twin, _given(torch.float32, width, SHORT, setup), training)
    for twin in TWINS if not setup.quick else ():
        if twin.whole:
            yield _case(twin, _given(torch.int64, 8, 10, setup), False)
        yield _case(twin, _given(torch.bfloat16, 64, 10, setup), False)


def _given(dtype: torch.dtype, width: int, length: int, setup: Setup, numbers: int = NUMBERS) -> Given:
    count = numbers // width // length
    # no number twice: torch does not say which of equal ones comes first
    order = torch.randperm(count * length * width, generator=torch.Generator().manual_seed(0))
    dense = (order.view(count, length, width) - order.numel() / 2) * (6 / order.numel())
    dense = (dense * 1000).to(dtype) if not dtype.is_floating_point else dense.to(dtype)
    dense = dense.to(setup.device)
    x = tl.from_lengths(dense.reshape(-1, width), [[length] * count])
    other, half = dense.flip(0), torch.full((count,), length // 2)
    return Given(x, dense, x.with_values(other.view(-1, width)), other, torch.ones_like(half), half)


def _numbers(result: object) -> Tensors:
    parts = result if isinstance(result, tuple) else (result,)
    return tuple((t.values() if isinstance(t, tl.LoDTensor) else t).detach().reshape(-1).float() for t in parts)


def _run(function: Callable[[Given], object], given: Given, training: bool, batches: int) -> Run:
    if not training:
        return Run(lambda: function(given), _numbers)
    with torch.no_grad():
        like = function(given)
    like = like.values() if isinstance(like, tl.LoDTensor) else like
    grad, of, wanted = given.grad(like), given.on(*given.leaves), given.leaves[:batches]

    def call():
        y = function(of)
        return y, *torch.autograd.grad(y.values() if isinstance(y, tl.LoDTensor) else y, wanted, grad)

    return Run(call, _numbers)


def _case(twin: Twin, given: Given, training: bool) -> Case:
    dtype, (_, length, width) = given.dense.dtype, given.dense.shape
    if twin.product:
        given = given.each(lambda rows: (rows / length).exp())
    run = partial(_run, training=training, batches=twin.batches)
    wide = given.each(Tensor.double) if dtype.is_floating_point else given

    def expected() -> Tensors:
        exact = run(twin.dense, wide)
        return exact.answer(exact.call())

    kind = "" if dtype == torch.float32 else f" {str(dtype).removeprefix('torch.')}"
    return Case(
        name=f"{twin.name}{kind} D={width} L={length}{', backward too' if training else ''}",
        ours={"torch_lod": run(twin.ours, given)},
        peers={"torch, dense": run(twin.dense, given)},
        floor=copy(given.dense),
        floor_is="copying the rows",
        expected=expected,
        tolerance=twin.tolerance if dtype != torch.bfloat16 else 2e-2,
        goals=() if length == SHORT else (faster_than(ENOUGH, "dense"),),
    )
