# SPDX-License-Identifier: Apache-2.0
"""Every family of kernels on small inputs on a device, results and gradients beside those of the CPU: for
`python -m torch_lod.check`, where there is a GPU."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import torch_lod as tl

#: Seconds for all of them; what does not begin in them is not run.
LIMIT = 30.0
#: An empty sequence, short ones, one of more rows than a block of a GPU's threads takes, and one of a row.
_LENGTHS = [3, 0, 17, 5000, 40, 1]
_SHORT = _LENGTHS[:3]


class Given:
    """What a family is given: the same random rows on every device."""

    def __init__(self, device: torch.device | str) -> None:
        self.device, self.leaves = device, list[Tensor]()
        self._random = torch.Generator().manual_seed(0)

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        t = torch.randn(*shape, generator=self._random, device="cpu").to(self.device, dtype).requires_grad_()
        self.leaves.append(t)
        return t

    def rows(self, *width: int, dtype: torch.dtype = torch.float32, lengths: list[int] = _LENGTHS) -> tl.LoDTensor:
        lod = tl.LoD.from_lengths([lengths])
        return tl.LoDTensor(self.tensor(lod.rows, *width, dtype=dtype), lod)

    def numbers(self, below: int, lengths: list[int]) -> tl.LoDTensor:
        numbers = torch.randint(below, (sum(lengths),), generator=self._random, device="cpu")
        return tl.from_lengths(numbers.to(self.device), [lengths])

    def module(self, make: Callable[[], Any]) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = make().to(self.device)
        self.leaves += module.parameters()
        return module


def _recurrences(x: Given) -> list:
    given = x.rows(3, lengths=_SHORT)
    kinds: tuple[Callable, ...] = (tl.nn.LSTM, tl.nn.GRU, tl.nn.RNN)
    return [x.module(functools.partial(kind, 3, 4))(given)[0] for kind in kinds]


def _attention(x: Given, dtype: torch.dtype = torch.float32, lengths: list[int] = _SHORT, **options) -> list:
    q, k, v = (x.rows(4, 32, dtype=dtype, lengths=lengths) for _ in range(3))
    return [tl.sequence_attention(q, k, v, **options), tl.sequence_attention(q, k, v, causal=True, **options)]


def _chain(x: Given) -> list:
    crf = x.module(lambda: tl.nn.LinearChainCRF(5))
    given = x.rows(5, lengths=_SHORT)
    return [crf(given, x.numbers(5, _SHORT)), crf.decode(given)]


def _alignments(x: Given) -> list:
    given, labels = x.rows(5, lengths=_SHORT), x.numbers(4, [2, 0, 6])
    return [tl.nn.CTCLoss(blank=4)(given, labels), tl.ctc_decode(tl.sequence_softmax(given), blank=4)]


#: What is run, and how far results may be apart, relative to the largest.
FAMILIES: dict[str, tuple[Callable[[Given], list], float]] = {
    "rows": (
        lambda x: [
            tl.sequence_reverse(x.rows(3)),
            tl.sequence_unfold(x.rows(2), 2),
            tl.sequence_concat([x.rows(4), x.rows(4)]),
            x.rows(1).seq[[3, 0, 2]],
            x.rows().to_padded(2.0)[0],
        ],
        0,
    ),
    "reductions": (
        lambda x: [tl.sequence_pool(x.rows(2), how) for how in ("sum", "max", "mean", "logsumexp", "var", "first")],
        1e-4,
    ),
    "softmax": (lambda x: [tl.sequence_softmax(x.rows(2)), tl.sequence_log_softmax(x.rows(40))], 1e-4),
    "normalisation": (lambda x: [tl.sequence_normalize(x.rows(3))], 1e-3),
    "so far": (lambda x: [tl.sequence_cumsum(x.rows(2)), tl.sequence_cummax(x.rows(40))[0]], 1e-4),
    "order": (lambda x: [tl.sequence_sort(x.rows()), tl.sequence_topk(x.rows(), 3)[0]], 0),
    "recurrences": (_recurrences, 5e-3),
    "convolution": (lambda x: [x.module(lambda: tl.nn.SequenceConv1d(3, 4, 3))(x.rows(3))], 5e-3),
    "attention": (_attention, 5e-3),
    "attention, large": (lambda x: _attention(x, lengths=[700, 60]), 5e-3),
    "attention, float16": (lambda x: _attention(x, torch.float16), 2e-2),
    "attention, options": (lambda x: _attention(x, distance_bias=x.tensor(4, 9), softcap=5.0, alibi=True), 5e-3),
    "chain": (_chain, 1e-3),
    "CTC": (_alignments, 1e-3),
    "edit distance": (lambda x: [tl.edit_distance(x.numbers(3, [4, 0, 9]), x.numbers(3, [3, 2, 7]))], 0),
}


def results(family: Callable[[Given], list], device: torch.device | str) -> list[Tensor]:
    """Its results, and the gradients of what it was given, in host memory."""
    x = Given(device)
    outs = [out.values() if isinstance(out, tl.LoDTensor) else out for out in family(x)]
    outs = [out if isinstance(out, Tensor) else out[0] for out in outs]
    differentiable = [out for out in outs if out.requires_grad]
    grads = [torch.linspace(-1, 1, t.numel(), device="cpu").view(t.shape).to(device, t.dtype) for t in differentiable]
    found = torch.autograd.grad(differentiable, x.leaves, grads, allow_unused=True) if differentiable else ()
    return [t.detach().to("cpu", torch.float64) for t in (*outs, *found) if t is not None]


def distance(got: list[Tensor], want: list[Tensor]) -> float:
    """The largest difference, relative to the largest number of its result; infinite where shapes or NaNs differ."""
    if not all(torch.equal(a.isfinite(), b.isfinite()) for a, b in zip(got, want, strict=True)):
        return float("inf")
    finite = ((t.where(t.isfinite(), 0) for t in pair) for pair in zip(got, want, strict=True))
    return max((float((a - b).abs().max() / b.abs().max().clamp_min(1)) for a, b in finite if b.numel()), default=0.0)


def compared(device: torch.device | str, limit: float = LIMIT) -> Iterator[tuple[bool, str]]:
    """For every family whether it is right on a device, and a line that says so."""
    begin = time.monotonic()
    for name, (family, most) in FAMILIES.items():
        if time.monotonic() - begin > limit:
            yield True, f"{name}: not run, {limit:.0f} seconds are over"
            continue
        try:
            apart = distance(results(family, device), results(family, "cpu"))
            tl.check_errors()
        except Exception as error:
            yield False, f"{name}: WRONG, {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            continue
        right = apart <= most
        yield right, f"{name}: {'right' if right else 'WRONG'}, {apart:.1e} from the CPU"
