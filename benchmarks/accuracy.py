# SPDX-License-Identifier: Apache-2.0
"""How far results are from exact ones, ours and torch's on equal data: python -m benchmarks.accuracy

A batch of sequences of 1 to 3000 rows goes through our operator, and sequence by sequence through torch's function, in
float32, float16 and bfloat16; the same rows in float64 through torch's function say what is exact. Errors are counted in
units in the last place (ulp) of the dtype, at the exact result or, if that is larger, at 1/32 of the largest one of
its sequence: near 0 everything is many units away. Prints the table of benchmarks/results/accuracy.md.
"""

import platform
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F

import torch_lod as tl

LENGTHS = (1, 2, 3, 5, 17, 64, 100, 333, 1000, 1025, 3000)
WIDTH = 16
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def pooled(kind: str, torchs: Callable):
    return lambda x, _: tl.sequence_pool(x, kind), lambda rows, _: torchs(rows)[None]


def convolved(rows, weight):
    return F.conv1d(rows.t()[None], weight, padding="same")[0].t()


def recurrent(x, module):
    return module(x)[0]


#: name: (our operator, torch's function of the rows of a sequence), both also given what belongs to the case.
CASES: dict[str, tuple[Callable, Callable]] = {
    "sum": pooled("sum", lambda r: r.sum(0)),
    "mean": pooled("mean", lambda r: r.mean(0)),
    "logsumexp": pooled("logsumexp", lambda r: r.logsumexp(0)),
    "var": pooled("var", lambda r: r.var(0)),
    "std": pooled("std", lambda r: r.std(0)),
    "softmax": (lambda x, _: tl.sequence_softmax(x), lambda r, _: r.softmax(0)),
    "log_softmax": (lambda x, _: tl.sequence_log_softmax(x), lambda r, _: r.log_softmax(0)),
    "normalize": (
        lambda x, _: tl.sequence_normalize(x),
        lambda r, _: (r - r.mean(0)) / (r.var(0, correction=0) + 1e-5).sqrt(),
    ),
    "cumsum": (lambda x, _: tl.sequence_cumsum(x), lambda r, _: r.cumsum(0)),
    "logcumsumexp": (lambda x, _: tl.sequence_logcumsumexp(x), lambda r, _: r.logcumsumexp(0)),
    "conv1d, 5 taps": (lambda x, w: tl.sequence_conv1d(x, w), convolved),
    "attention": (
        lambda x, _: tl.sequence_attention(x, x, x),
        lambda r, _: F.scaled_dot_product_attention(r[None], r[None], r[None])[0],
    ),
    "LSTM": (recurrent, recurrent),
}


def given(name: str, dtype: torch.dtype):
    """What belongs to a case beside the rows."""
    g = torch.Generator().manual_seed(1)
    if name.startswith("conv1d"):
        return (torch.randn(WIDTH, WIDTH, 5, generator=g) / 9).to(dtype)
    if name == "LSTM":
        torch.manual_seed(1)
        return torch.nn.LSTM(WIDTH, WIDTH).to(dtype)
    return None


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    of = torch.finfo(got.dtype)
    at = exact.abs().clamp(min=max(float(exact.abs().max()) / 32, of.tiny))
    unit = torch.ldexp(torch.full_like(at, of.eps), torch.frexp(at).exponent - 1)
    return ((got.double() - exact).abs() / unit).flatten()


def errors(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Of our results and of torch's, all elements of all sequences."""
    ours, theirs = CASES[name]
    rows = (1 + torch.randn(sum(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(0))).to(dtype)
    x, extra = tl.from_lengths(rows, [LENGTHS]), given(name, dtype)
    precise = given(name, dtype)
    precise = precise.double() if precise is not None else None
    out = ours(x, extra)
    mine = out.sequences() if isinstance(out, tl.LoDTensor) else [row[None] for row in out]
    found: tuple[list, list] = ([], [])
    for own, r in zip(mine, x.sequences(), strict=True):
        exact, torchs = theirs(r.double(), precise), theirs(r, extra)
        keep = exact.isfinite()  # the variance of a single row is not
        for errors_, t in zip(found, (own, torchs)):
            errors_.append(ulps(t, exact)[keep.flatten()] if keep.any() else exact.new_zeros(0))
    return torch.cat(found[0]), torch.cat(found[1])


def cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            known = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    return f"{known.get('model name', platform.machine())}, model {known.get('model', '?')}"


@torch.no_grad()
def table() -> str:
    head = " | ".join(f"{str(d).removeprefix('torch.')}: ours | torch" for d in DTYPES)
    lines = [f"| ulp, median / worst | {head} |", "|---|" + "---|" * 2 * len(DTYPES)]
    for name in CASES:
        cells = []
        for dtype in DTYPES:
            for e in errors(name, dtype):
                cells.append("overflows" if not e.isfinite().all() else f"{e.median():.2f} / {e.max():.3g}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "var|std")  # of single rows
    print(f"torch {torch.__version__}, {cpu()}\n\n{table()}")
