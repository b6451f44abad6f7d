# SPDX-License-Identifier: Apache-2.0
"""How a LoDTensor is printed: a shortened tree of its sequences, and a table of its lengths."""

import html as _html
import itertools
import math

import torch

from ..errors import LoDTypeError
from ..structure.lod import LoD

_ITEMS = 4  # elements of a sequence that are shown
_BARS = 16  # at most so many of a histogram
_LINES = 200  # of a tree that are shown: their number multiplies by level
#: How many rows of a sequence, and elements of a row along each dim, are shown: the first pair that fits.
_FITS, _WIDTH = ((6, 8), (4, 4), (3, 3), (2, 3), (2, 2)), 100


def tree(x) -> str:
    """One line per sequence, rows at the innermost level."""
    return "\n".join([_header(x), *_lines(x)])


def _header(x) -> str:
    extra = "".join(
        (
            f", dtype={str(x.dtype).removeprefix('torch.')}",
            f", device={x.device}" if x.device.type != "cpu" else "",
            ", requires_grad=True" if x.requires_grad and x.is_leaf else "",
            f", grad_fn=<{x.grad_fn.name().rpartition('::')[2]}>" if x.grad_fn is not None else "",
        )
    )
    element = f" of {tuple(x.shape[1:])}" if x.dim() > 1 else ""
    return f"LoDTensor({x.shape[0]} rows{element}, lod={x.lod}{extra})"


def _shown(n: int, most: int) -> list[int | None]:
    """The indices to show; None stands for those left out."""
    return list(range(n)) if n <= most else [*range(most - 1), None, n - 1]


def _lines(x):
    lines = [f"{prefix}{text}" for _, prefix, text, _ in itertools.islice(_entries(x), _LINES + 1)]
    return lines if len(lines) <= _LINES else [*lines[:_LINES], f"... more than {_LINES} lines"]


def _entries(x):
    """Of every line of the tree: its level, what is drawn before its text, its text, and whether lines are below it."""
    lod = x.lod
    values = x.values().detach()

    def children(k: int, begin: int, end: int, prefix: str):
        shown = _shown(end - begin, _ITEMS)
        return ((place + 1 == len(shown), i, k, begin, end, prefix) for place, i in enumerate(shown))

    pending = [children(0, 0, lod.num_sequences(), "")]  # instead of recursion: Python's stack is smaller than a LoD
    while pending:
        if (child := next(pending[-1], None)) is None:
            pending.pop()
            continue
        last, i, k, begin, end, prefix = child
        corner, down = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if i is None:
            yield k, f"{prefix}├─ ", f"... {end - begin - _ITEMS} more", False
            continue
        a, b = lod.levels[k][begin + i : begin + i + 2].tolist()
        name = f"{lod.level_names[k]} " if lod.level_names and lod.level_names[k] else ""
        if k + 1 == lod.depth:
            yield k, f"{prefix}{corner}", f"{name}{i}: {_rows(values, a, b)}", False
        else:
            yield k, f"{prefix}{corner}", f"{name}{i}{'' if b > a else ': empty'}", b > a
            pending.append(children(k + 1, a, b, prefix + down))


def _rows(values, begin: int, end: int) -> str:
    """The rows of a sequence, as many of them and of their elements as fit on a line."""
    count = f"{end - begin} row{'s' * (end - begin != 1)}"
    if values.is_meta or values.dim() > 64:  # 64: of what torch itself reduces
        return count
    for rows, elements in _FITS:
        numbers, left_out = _ends(values[begin:end], rows, elements)
        shown = f"{count} " * left_out[0] + _text(numbers, left_out)
        if len(shown) <= _WIDTH:
            return shown
    return shown[: _WIDTH - 4].rstrip(", ") + " ..."


def _ends(part, rows: int, elements: int):
    """The first and the last entries along every dim, as nested lists; and per dim whether any are left out."""
    left_out = []
    for dim, n in enumerate(part.shape):
        most = elements if dim else rows
        left_out.append(n > most)
        if n > most:
            part = torch.cat([part.narrow(dim, 0, most - 1), part.narrow(dim, n - 1, 1)], dim)
    return part.tolist(), left_out


def _text(numbers, left_out: list[bool]) -> str:
    if not isinstance(numbers, list):
        return f"{numbers:.4g}" if isinstance(numbers, (float, complex)) else str(numbers)
    parts = [_text(part, left_out[1:]) for part in numbers]
    if left_out[0]:
        parts.insert(-1, "...")
    return f"[{', '.join(parts)}]"


def html(x) -> str:
    """For notebooks: the tree, which folds, and the lengths of the innermost sequences. Names are escaped."""
    header = f"<code>{_html.escape(_header(x))}</code>"
    return f'<div>{header}<div style="font-family: monospace">{_folding(x)}</div>{_lengths(x.lod)}</div>'


def _folding(x) -> str:
    parts, depth = [], 0  # of them, as many <details> as depth are open
    for n, (k, _, text, branch) in enumerate(_entries(x)):
        parts.append("</details>" * (depth - k))
        depth = k + branch
        if n == _LINES:
            parts.append(f"<div>... more than {_LINES} lines</div>")
            depth = k
            break
        state, text = " open" * (k == 0), _html.escape(text)
        indent = ' style="margin-left: 1.5em"' if k else ""
        leaf = ' style="margin-left: 2.5em"' if k else ""
        parts.append(f"<details{state}{indent}><summary>{text}\n</summary>" if branch else f"<div{leaf}>{text}\n</div>")
    return "".join([*parts, "</details>" * depth])


def _lengths(lod: LoD) -> str:
    """How many innermost sequences have which length, as bars; and the padding that a batch of them would need."""
    lengths = lod.lengths(-1)
    n = lengths.numel()
    if not n:
        return ""
    low, high = int(lengths.min()), int(lengths.max())
    step = (high - low) // _BARS + 1
    bars = []
    counts = torch.bincount((lengths - low) // step).tolist()
    for i, count in enumerate(counts):
        first = low + i * step
        label = (
            f"{first} to {min(first + step - 1, high)} rows, {count} sequences"
            if step > 1
            else f"{first} rows, {count} sequences"
        )
        height = math.ceil(24 * count / max(counts))
        style = f"display: inline-block; width: 8px; height: {height}px; margin-right: 1px; background: currentColor"
        bars.append(f'<span title="{label}" style="{style}"></span>')
    padded = n * high
    avoided = f"; {1 - lod.rows / padded:.0%} padding avoided" if padded else ""
    return f"<div>{low} {''.join(bars)} {high} rows in {n} sequences{avoided}</div>"


def describe(x) -> str:
    """A table: per level the number of sequences, their lengths, how many are empty, and what padding would waste.

    `x` is a LoDTensor or a LoD. Distinct: how many different numbers of rows the sequences have that are not empty, which
    is the number of calls of `tl.map_sequences`. Padded rows: every sequence of the level padded to the one with most
    rows; in the line "all levels" a padded tensor with one dim per level.
    """
    lod = getattr(x, "lod", x)
    if not isinstance(lod, LoD):
        raise LoDTypeError(f"describe: expected x as a LoDTensor or LoD, got {type(x).__name__}")
    lines = [
        f"{'level':<14}{'sequences':>10}{'min':>8}{'mean':>10}{'max':>8}{'empty':>8}{'distinct':>10}{'padded rows':>14}{'waste':>8}"
    ]
    below = None  # the rows under every sequence of a level, from the innermost outwards
    row_lengths = []
    for offsets in reversed(lod.levels):
        below = offsets if below is None else below[offsets]
        row_lengths.append(below.diff())
    for k, rows in enumerate(reversed(row_lengths)):
        lengths = lod.lengths(k)
        n = lengths.numel()
        low, mean, high = (int(lengths.min()), lengths.double().mean(), int(lengths.max())) if n else (0, 0.0, 0)
        padded, distinct = n * int(rows.max()) if n else 0, len(rows[rows > 0].unique())
        waste = 1 - lod.rows / padded if padded else 0.0
        name = lod.level_names[k] if lod.level_names and lod.level_names[k] else f"level {k}"
        lines.append(
            f"{name:<14}{n:>10}{low:>8}{mean:>10.2f}{high:>8}{int((lengths == 0).sum()):>8}{distinct:>10}{_count(padded):>14}{waste:>8.1%}"
        )
    dense = lod.num_sequences() * math.prod(lod.max_length(k) for k in range(lod.depth))
    if lod.depth > 1:
        waste = 1 - lod.rows / dense if dense else 0.0
        lines.append(f"{'all levels':<14}{lod.num_sequences():>10}{'':>44}{_count(dense):>14}{waste:>8.1%}")
    return "\n".join([*lines, f"{lod.rows} rows"])


def _count(n: int) -> str:
    """A number, however large, in 14 columns."""
    return str(n) if n < 10**13 else f"10**{math.log10(n):.1f}"
