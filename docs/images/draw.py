# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/concepts.md, of a batch of three articles, their sentences and words, and one of each program of
the gallery, for light and dark pages.

python docs/images/draw.py
"""

from html import escape
from itertools import accumulate, pairwise
from pathlib import Path

ARTICLES, SENTENCES = [3, 1, 2], [3, 2, 4, 1, 2, 3]
COLOURS = ("#4c78a8", "#e07b39", "#54a24b")
CELL, EDGE, WIDTH = 32, 10, 504
FADED = 0.22
STYLE = """<style>
  text { font: 14px system-ui, sans-serif; fill: #24292f; }
  .title { font-weight: 600; }
  .code { font-family: ui-monospace, monospace; font-size: 13px; }
  .prose { font: 14px system-ui, sans-serif; }
  .in { fill: #fff; text-anchor: middle; }
  .offset { font-size: 12px; fill: #57606a; text-anchor: middle; }
  .mark { stroke: #57606a; fill: none; stroke-width: 1.5; }
  .tip { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .in { fill: #fff; } .offset { fill: #9da7b3; }
    .mark { stroke: #9da7b3; } .tip { fill: #9da7b3; }
  }
</style>"""

ROWS = [0, *accumulate(SENTENCES)]  # the row at which every sentence begins, and the end
FIRSTS = [0, *accumulate(ARTICLES)]  # the same of articles, in sentences
OWNER = [a for a, n in enumerate(ARTICLES) for _ in range(n)]
SPANS = list(pairwise(ROWS))
OUTER = [(ROWS[i], ROWS[j]) for i, j in pairwise(FIRSTS)]
COLOUR = [COLOURS[OWNER[s]] for s, (i, j) in enumerate(SPANS) for _ in range(i, j)]  # of every row


def at(row: float) -> float:
    return EDGE + row * CELL


def words(x: float, y: float, text: str, kind: str = "") -> str:
    """A line of text; behind three spaces an explanation in the font of prose."""
    first, _, second = text.partition("   ")
    rest = f'<tspan class="prose" dx="12">{escape(second)}</tspan>' if second else ""
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(first)}{rest}</text>'


def box(
    begin: float, end: float, y: float, colour: str, text: str = "", opacity: float = 0.85, height: int = 26
) -> str:
    x, width = at(begin) + 3, (end - begin) * CELL - 6
    label = words(x + width / 2, y + height / 2 + 5, text, "in") if text else ""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{colour}" opacity="{opacity}"/>{label}'
    )


def frame(begin: int, end: int, y: float, height: int = 34) -> str:
    return f'<rect x="{at(begin) + 0.5}" y="{y}" width="{(end - begin) * CELL - 1}" height="{height}" rx="6" class="mark"/>'


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """A line with a tip at its end, which points right or down."""
    tip = (
        f"{to_x - 6},{to_y - 4} {to_x - 6},{to_y + 4}" if y == to_y else f"{to_x - 4},{to_y - 6} {to_x + 4},{to_y - 6}"
    )
    end = (to_x - 5, to_y) if y == to_y else (to_x, to_y - 5)
    line = f'<line x1="{x}" y1="{y}" x2="{end[0]}" y2="{end[1]}" class="mark"/>'
    return f'{line}<polygon points="{to_x},{to_y} {tip}" class="tip"/>'


def rows(y: float, kept=None, order=None, height: int = 26) -> str:
    """All rows of the batch, those that are not kept faded; in another order, where each comes from."""
    kept = set(range(ROWS[-1])) if kept is None else set(kept)
    order = order or range(ROWS[-1])
    return "".join(
        box(place, place + 1, y, COLOUR[row], str(row) if row in kept else "", 0.85 if row in kept else FADED, height)
        for place, row in enumerate(order)
    )


def picture(height: int, label: str, *parts: str, width: int = WIDTH) -> str:
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg {size} role="img" aria-label="{label}">{STYLE}{"".join(parts)}</svg>\n'


def lod() -> str:
    """The rows, and the offsets of both levels."""
    titles = "level 0, article   offsets count sentences", "level 1, sentence   offsets count rows", "rows   words"
    parts = [words(EDGE, 16 + 78 * k, text, "title") for k, text in enumerate(titles)]
    parts += [box(i, j, 24, COLOURS[a], str(a)) for a, (i, j) in enumerate(OUTER)]
    parts += [box(i, j, 102, COLOUR[i], str(s)) for s, (i, j) in enumerate(SPANS)]
    parts += [words(at(ROWS[n]), 65, str(n), "offset") for n in FIRSTS]
    parts += [words(at(row), 143, str(row), "offset") for row in ROWS]
    return picture(216, "A LoD of two levels: offsets over rows", *parts, rows(180))


def level() -> str:
    parts = [words(EDGE, 18, "level 0, article   3 sequences; their elements are sentences", "title")]
    parts += [frame(i, j, 28) for i, j in OUTER]
    parts += [box(i, j, 32, COLOUR[i], f"{j - i} words" if j - i > 2 else str(j - i)) for i, j in SPANS]
    parts += [words(EDGE, 98, "level 1 or -1, sentence   6 sequences; their elements are rows", "title")]
    parts += [frame(i, j, 108) for i, j in SPANS]
    return picture(150, "The same rows at two levels", *parts, rows(112))


def cut() -> str:
    """What x.seq[...] and x[...] take."""
    last = [s - 1 for s in FIRSTS[1:]]
    lines = {
        "x.seq[0]   the first article": range(*OUTER[0]),
        "x.seq[2, 1]   of article 2 the sentence 1": range(*SPANS[5]),
        "x.seq[:, -1]   of every article the last sentence": [r for s in last for r in range(*SPANS[s])],
        "x.seq[:, :, :1]   of every sentence the first word": ROWS[:-1],
        "x[4:7]   rows by number: no sequences any more": range(4, 7),
    }
    parts = []
    for k, (text, kept) in enumerate(lines.items()):
        y = 8 + 66 * k
        parts += [words(EDGE, y + 12, text, "code"), rows(y + 20, kept)]
        parts += [frame(i, j, y + 17, 32) for i, j in OUTER if k < 4]
    return picture(340, "Which rows an index takes", *parts)


def operator() -> str:
    parts = []

    def pooled(y: float, text: str, spans) -> None:
        parts.extend([words(EDGE, y + 9, text, "code"), rows(y + 20)])
        for n, (i, j) in enumerate(spans):
            parts.append(frame(i, j, y + 16))
            parts.append(arrow(at((i + j) / 2), y + 50, at((i + j) / 2), y + 68))
            parts.append(box((i + j) / 2 - 0.5, (i + j) / 2 + 0.5, y + 69, COLOUR[i], str(n), height=24))

    def moved(y: float, text: str, spans, order) -> None:
        parts.extend([words(EDGE, y + 9, text, "code"), rows(y + 20, order=order)])
        parts.extend(frame(i, j, y + 16) for i, j in spans)

    pooled(6, "tl.sequence_pool(x, level=0)   all rows of an article", OUTER)
    pooled(112, "tl.sequence_pool(x, level=-1)   all rows of a sentence", SPANS)
    turned = [range(*SPANS[s]) for i, j in pairwise(FIRSTS) for s in reversed(range(i, j))]
    moved(220, "tl.sequence_reverse(x, level=0)   moves sentences", OUTER, [r for span in turned for r in span])
    within = [r for i, j in SPANS for r in reversed(range(i, j))]
    moved(288, "tl.sequence_reverse(x, level=-1)   moves words", SPANS, within)
    return picture(346, "What operators see at a level", *parts)


def functions() -> str:
    """What becomes of the rows, on the sentences of the first article."""
    spans, count = SPANS[:3], SPANS[2][1]

    def batch(y: float, opacity: float = 0.85) -> str:
        cells = "".join(box(r, r + 1, y, COLOURS[0], str(r), opacity) for r in range(count))
        return cells + "".join(frame(i, j, y - 4) for i, j in spans)

    parts = [words(EDGE, 16, "x + y, F.linear(x, w), x[:, 0]   row by row: a LoDTensor", "code"), batch(28)]
    parts += [words(EDGE, 88, "nn.LSTM(...)(x), nn.Conv1d(...)(x)   along each sequence", "code"), batch(100)]
    parts += [arrow(at(i) + 6, 142, at(j) - 4, 142) for i, j in spans]
    parts += [words(EDGE, 170, "x.t(), x[None]   rows at another dim: a DerivedTensor", "code")]
    parts += [box(r, r + 1, 182, COLOURS[0], str(r), height=44) for r in range(count)]
    parts += [frame(i, j, 178, 52) for i, j in spans]
    parts += [words(EDGE, 256, "x.sum(0), x[perm]   structure lost: raises where it meets rows", "code")]
    parts += [
        box(0, 1.5, 268, "#768390", "sum"),
        words(at(1.8), 286, "x - x.sum(0) names sum, and what to write instead"),
    ]
    parts += [words(EDGE, 322, "x.softmax(0), x.cumsum(0)   would mix sequences: raises", "code"), batch(334, 0.3)]
    parts += [words(at(count) + 8, 352, "tl.sequence_softmax(x)", "code")]
    return picture(374, "What torch's functions do with rows", *parts)


# -- programs, on cards


def tile(x: float, y: float, width: float, height: float, colour: str, text: str = "", opacity: float = 0.85) -> str:
    label = words(x + width / 2, y + height / 2 + 5, text, "in") if text else ""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{colour}" opacity="{opacity}"/>{label}'
    )


def card(label: str, *parts: str) -> str:
    return picture(130, label, *parts, width=250)


def documents() -> str:
    """Words in sentences in documents, a label for each document."""
    parts = []
    for d, (sentences, genre) in enumerate(zip(([3, 2, 3], [4], [2, 3]), ("news", "law", "poem"))):
        x, y = 8.0, 8 + 41 * d
        for length in sentences:
            parts += [tile(x + 3 + 15 * w, y + 5, 12, 22, COLOURS[d]) for w in range(length)]
            parts.append(f'<rect x="{x}" y="{y}" width="{15 * length + 3}" height="32" rx="5" class="mark"/>')
            x += 15 * length + 8
        parts += [arrow(160, y + 16, 186, y + 16), tile(190, y + 3, 54, 26, COLOURS[d], genre)]
    return card("Documents of sentences of words, a genre for each", *parts)


def tags() -> str:
    """A tag below each word."""
    sentences = ((("the", "cat", "sat"), ("DET", "NOUN", "VERB")), (("it", "ran"), ("PRON", "VERB")))
    parts = []
    for s, (texts, found) in enumerate(sentences):
        for w, (word, tag) in enumerate(zip(texts, found)):
            x, y = 16 + 74 * w, 6 + 64 * s
            parts += [tile(x, y, 66, 22, COLOURS[s], word), tile(x, y + 30, 66, 22, "#768390", tag)]
    return card("A part of speech for each word", *parts)


def spectra() -> str:
    """Recordings of other lengths, a digit for each."""
    parts = []
    for r, (heights, digit) in enumerate(
        (([6, 14, 25, 30, 22, 12, 18, 27, 16, 7], "seven"), ([9, 24, 31, 17, 8], "two"))
    ):
        y = 56 + 60 * r
        parts += [tile(12 + 14 * i, y - h, 11, h, COLOURS[r]) for i, h in enumerate(heights)]
        parts += [arrow(160, y - 16, 182, y - 16), tile(186, y - 29, 58, 26, COLOURS[r], digit)]
    return card("Spectra of two recordings, a digit for each", *parts)


def packed() -> str:
    """Packed sequences: attention stays within each, and is causal."""
    parts, begin, side = [], 0, 12
    for s, length in enumerate((4, 2, 3)):
        for query in range(length):
            for key in range(query + 1):
                x, y = 12 + side * (begin + key), 10 + side * (begin + query)
                parts.append(tile(x, y, side - 2, side - 2, COLOURS[s]))
        parts += [tile(150 + (side - 2) * (begin + i) - 8, 52, side - 4, 22, COLOURS[s]) for i in range(length)]
        begin += length
    frame_ = f'<rect x="8" y="6" width="{side * begin + 6}" height="{side * begin + 6}" rx="5" class="mark"/>'
    return card("Causal attention within packed sequences", frame_, *parts)


def transcript() -> str:
    """Rows that emit letters or a blank, and what they spell."""
    parts = []
    for r, (emitted, word) in enumerate((("cc-aa-t", "cat"), ("o-nn", "on"))):
        y = 12 + 60 * r
        parts += [
            tile(10 + 21 * i, y, 18, 36, "#768390" if letter == "-" else COLOURS[r], letter)
            for i, letter in enumerate(emitted)
        ]
        parts += [arrow(164, y + 18, 186, y + 18), tile(190, y + 5, 52, 26, COLOURS[r], word)]
    return card("Letters of spoken words, without their places", *parts)


def sessions() -> str:
    """Events of users along time, and what comes next."""
    parts = []
    for s, times in enumerate(((0, 22, 41, 96, 118, 160), (10, 70, 88), (0, 34, 52, 71, 130))):
        y = 24 + 40 * s
        parts.append(f'<line x1="10" y1="{y}" x2="236" y2="{y}" class="mark"/>')
        parts += [f'<circle cx="{20 + t}" cy="{y}" r="8" fill="{COLOURS[s]}"/>' for t in times]
        parts.append(f'<circle cx="{20 + times[-1] + 36}" cy="{y}" r="8" fill="{COLOURS[s]}" opacity="0.35"/>')
    return card("Sessions of events, and the next one of each", *parts)


def node(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="8" fill="{colour}"/>'


def graphs() -> str:
    """Nodes and edges of graphs of other sizes, and what each graph is."""
    path, ring = ([(i, i + 1) for i in range(2)], [(0, 1), (1, 2), (2, 3), (3, 0)])
    star = [(0, i) for i in range(1, 6)]
    shapes = (
        ("path", [(18, 24), (48, 40), (78, 24)], path),
        ("ring", [(110, 22), (138, 22), (138, 50), (110, 50)], ring),
        ("star", [(200, 36), (170, 20), (170, 52), (200, 12), (230, 20), (230, 52)], star),
    )
    parts = []
    for s, (kind, places, edges) in enumerate(shapes):
        for i, j in edges:
            (x, y), (to_x, to_y) = places[i], places[j]
            parts.append(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" class="mark"/>')
        parts += [node(x, y, COLOURS[s]) for x, y in places]
        middle = sum(x for x, _ in places) / len(places)
        parts += [arrow(middle, 68, middle, 90), tile(middle - 27, 94, 54, 26, COLOURS[s], kind)]
    return card("Graphs of nodes and edges, a kind for each", *parts)


def interest() -> str:
    """What users saw, by how much each offer attends to it, and whether they take the offer."""
    parts = []
    for s, (weights, takes) in enumerate(
        (((0.3, 0.9, 0.4, 0.85), "yes"), ((0.25, 0.3), "no"), ((0.9, 0.35, 0.7), "yes"))
    ):
        y = 10 + 40 * s
        parts += [tile(12 + 26 * i, y, 22, 26, COLOURS[s], opacity=weight) for i, weight in enumerate(weights)]
        parts.append(f'<rect x="136" y="{y}" width="24" height="26" rx="3" class="mark"/>')
        parts += [words(148, y + 18, "?", "offset"), arrow(168, y + 13, 190, y + 13)]
        parts.append(tile(194, y, 46, 26, COLOURS[s], takes))
    return card("What users saw, and whether they take an offer", *parts)


def ranking() -> str:
    """Documents of queries, the best first."""
    parts = []
    for s, heights in enumerate(([10, 34, 6, 22], [16, 30], [8, 26, 14])):
        x = 12 + 82 * s
        for y, order in ((46, heights), (118, sorted(heights, reverse=True))):
            parts += [tile(x + 17 * i, y - h, 14, h, COLOURS[s]) for i, h in enumerate(order)]
        middle = x + 17 * len(heights) / 2 - 1
        parts.append(arrow(middle, 54, middle, 76))
    return card("Documents of three queries, the best of each first", *parts)


def chunks() -> str:
    """Words of sentences, and the chunks of them that are names."""
    parts = []
    for s, (count, found) in enumerate(((6, (("PER", 0, 2), ("LOC", 4, 5))), (4, (("ORG", 1, 3),)))):
        y = 8 + 64 * s
        parts += [tile(12 + 38 * w, y, 32, 22, COLOURS[s], opacity=0.4) for w in range(count)]
        for kind, first, last in found:
            x, width = 12 + 38 * first, 38 * (last - first) - 6
            parts += [tile(x, y, width, 22, COLOURS[s]), tile(x, y + 28, width, 22, "#768390", kind)]
    return card("Names of one or several words in sentences", *parts)


def forecast() -> str:
    """Series of other lengths, and what follows each."""
    parts = []
    for s, (heights, after) in enumerate((((20, 12, 6, 9, 18, 26, 24, 15), 3), ((8, 16, 26, 22, 11), 2))):
        y = 16 + 62 * s
        rows = [*heights, *[heights[(i + 2) % len(heights)] for i in range(after)]]
        for i, height in enumerate(rows):
            opacity = 0.85 if i < len(heights) else 0.35
            parts.append(
                f'<circle cx="{18 + 20 * i}" cy="{y + height}" r="7" fill="{COLOURS[s]}" opacity="{opacity}"/>'
            )
        x = 8 + 20 * len(heights)
        parts.append(f'<line x1="{x}" y1="{y - 8}" x2="{x}" y2="{y + 38}" class="mark"/>')
    return card("Two series, and what follows each", *parts)


#: By the name of the program's file.
PROGRAMS = {
    "nested_classifier": documents,
    "tagger": tags,
    "frames": spectra,
    "packed_transformer": packed,
    "ctc": transcript,
    "sessions": sessions,
    "graphs": graphs,
    "interest": interest,
    "ranking": ranking,
    "chunks": chunks,
    "forecast": forecast,
}
PICTURES = {"lod.svg": lod, "level.svg": level, "slice.svg": cut, "operator.svg": operator, "functions.svg": functions}
PICTURES |= {f"program_{name}.svg": draw for name, draw in PROGRAMS.items()}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        Path(__file__).with_name(name).write_text(draw())
