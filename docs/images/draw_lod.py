# SPDX-License-Identifier: Apache-2.0
"""Draws lod.svg: three articles, their sentences and words, the rows of the packed tensor, and the offsets of both levels.

python docs/images/draw_lod.py
"""

from itertools import accumulate, pairwise
from pathlib import Path

ARTICLES, SENTENCES = [3, 1, 2], [3, 2, 4, 1, 2, 3]
CELL, LEFT, HEIGHT = 44, 142, 34
COLOURS = ("#4c78a8", "#e07b39", "#54a24b")
STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .name { font-weight: 600; }
  .offset { font-size: 11px; fill: #57606a; }
  .in { fill: #fff; text-anchor: middle; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .offset { fill: #8b949e; } .in { fill: #fff; } }
</style>"""


def bar(begin: int, end: int, top: int, colour: str, text: str, opacity: float = 1.0) -> str:
    x, width = LEFT + begin * CELL + 2, (end - begin) * CELL - 4
    return (
        f'<rect x="{x}" y="{top}" width="{width}" height="{HEIGHT}" rx="5" fill="{colour}" opacity="{opacity}"/>'
        f'<text class="in" x="{x + width / 2}" y="{top + 22}">{text}</text>'
    )


def picture() -> str:
    rows = [0, *accumulate(SENTENCES)]
    sentences = [0, *accumulate(ARTICLES)]
    parts, owner = [], [a for a, n in enumerate(ARTICLES) for _ in range(n)]
    for top, name in ((22, "level 0: article"), (82, "level 1: sentence"), (142, "rows: word")):
        parts.append(f'<text class="name" x="4" y="{top + 22}">{name}</text>')
    for a, (i, j) in enumerate(pairwise(sentences)):
        parts.append(bar(rows[i], rows[j], 22, COLOURS[a], f"{a}"))
    for s, (i, j) in enumerate(pairwise(rows)):
        parts.append(bar(i, j, 82, COLOURS[owner[s]], f"{s}", 0.82))
        parts += [bar(r, r + 1, 142, COLOURS[owner[s]], f"{r}", 0.7) for r in range(i, j)]
    for k, offset in enumerate(rows):
        parts.append(f'<text class="offset" x="{LEFT + offset * CELL}" y="132" text-anchor="middle">{offset}</text>')
        if k in sentences:
            x = LEFT + offset * CELL
            parts.append(f'<text class="offset" x="{x}" y="72" text-anchor="middle">{k}</text>')
    width = LEFT + rows[-1] * CELL + 14
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 190" width="{width}" height="190"'
    return f'<svg {size} role="img" aria-label="A LoD of two levels">{STYLE}{"".join(parts)}</svg>\n'


if __name__ == "__main__":
    Path(__file__).with_name("lod.svg").write_text(picture())
