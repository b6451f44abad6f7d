# SPDX-License-Identifier: Apache-2.0
"""The page that the site begins with, and the gallery: both are made of README, the programs and the table of their times."""

import ast
import re
from pathlib import Path

from pages import LINK, ROOT, repository

#: What the first page shows of: a picture of docs/images, what it is, what to read.
APPLICATIONS = {
    "nested_classifier": (
        "Documents of sentences of words",
        "An LSTM at each level, without padding.",
        "docs/concepts",
    ),
    "sessions": ("Sessions, events, time series", "From a table to batches, features and next events.", "docs/events"),
    "ctc": ("Speech and transcripts", "Convolutions over time, CTC, beam search, edit distances.", "docs/structured"),
    "packed_transformer": ("Packed language models", "Attention that stays within documents.", "docs/transformers"),
}
#: Larger programs of examples/, by file, and their picture.
LARGER = {
    "train_nested_rnn": "nested_classifier",
    "tag_sentences": "tagger",
    "lemmatize": "ctc",
    "spoken_digits": "ctc",
    "distributed_training": "tagger",
    "hybrid_characters": "packed_transformer",
    "generate_text": "packed_transformer",
}
TIMES = ROOT / "benchmarks/results/cpu-zen5-2-cores-programs.md"


def section(title: str) -> str:
    """What README says below a heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.S | re.M)
    return found[1].strip()


def picture(name: str, alt: str) -> str:
    """Both drawings of a program on a line each."""
    kinds = (
        f"```{{image}} docs/images/program_{name}.{kind}.svg\n:alt: {alt}\n:class: only-{kind}\n```"
        for kind in ("light", "dark")
    )
    return "\n".join(kinds)


def cards(entries: list[str]) -> str:
    return "\n".join(["`````{grid} 1 2 2 2", ":gutter: 3", "", *entries, "`````", ""])


def card(title: str, image: str, text: str, link: str = "") -> str:
    target = f":link: {link}\n:link-type: doc\n" * bool(link)
    return f"````{{grid-item-card}} {title}\n{target}\n{image}\n\n{text}\n````\n"


def first_page() -> str:
    """What it is, for whom, three buttons, four applications, why, how to install it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    what = re.search(r"^# torch_lod\n\n(.*?)\n\n", readme, re.S)[1]
    program = re.search(r"```python\n.*?```\n\n```text\n.*?```", readme, re.S)[0]
    shown = [card(title, picture(name, title), text, link) for name, (title, text, link) in APPLICATIONS.items()]
    buttons = {
        "primary": ("docs/tutorial/1_rows_and_levels", "Learn it in six steps"),
        "secondary": ("gallery", "Whole programs"),
        "info": ("docs/reference", "All functions"),
    }
    made = [
        f"```{{button-ref}} {page}\n:color: {kind}\n:ref-type: doc\n\n{text}\n```"
        for kind, (page, text) in buttons.items()
    ]
    clone = f"```sh\ngit clone {repository()}\n```\n\n" * bool(repository())
    return "\n".join(
        [
            "# torch_lod",
            "",
            f":::{{div}} lead\n{what}\n:::",
            "",
            "::::{div} buttons",
            *made,
            "::::",
            "",
            cards(shown),
            f"## For whom\n\n{section('For whom')}\n",
            f"## Why\n\n{section('Why')}\n",
            f"## In fifteen lines\n\n{program}\n",
            f"## Install\n\n{clone}{section('Install')}\n",
            f"## Speed\n\n{section('Speed')}\n",
        ]
    )


def times() -> dict[str, dict[str, str]]:
    """By the title of a program, the cells of its row in the table of times."""
    lines = [
        line.strip("| ").split(" | ") for line in TIMES.read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    return {row[0]: dict(zip(lines[0], row)) for row in lines[2:]}


def said(path: Path) -> str:
    """The first paragraph of a file's docstring."""
    return " ".join(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).split("\n\n")[0].split())


def gallery() -> str:
    """Every program of examples/programs with its time beside its twin's, then the larger ones."""
    measured, entries = times(), []
    for path in sorted((ROOT / "examples/programs").glob("*.py")):
        title = next((name for name in measured if name.lower().replace(" ", "_") == path.stem), "")
        row = measured.get(title, {})
        times_ = (
            ""
            if not row
            else (
                f"\n\n**{row['ours / twin']}** times as fast as its twin ({row['twin, tokens/s'].partition(':')[0]}),"
                f" **{row['ours / that']}** times on batches of similar length. {row['it prints'].capitalize()}."
            )
        )
        link = (
            f"[{row['lines']} lines](examples/programs/{path.name})."
            if row
            else f"[Source](examples/programs/{path.name})."
        )
        name = title or path.stem.replace("_", " ").capitalize()
        entries.append(card(name, picture(path.stem, name), f"{said(path)} {link}{times_}"))
    larger = []
    for stem, image in LARGER.items():
        path, name = ROOT / f"examples/{stem}.py", stem.replace("_", " ").capitalize()
        larger.append(card(name, picture(image, name), f"{said(path)} [Source](examples/{stem}.py)."))
    return "\n".join(
        [
            "# Gallery",
            "",
            "Whole programs, from files to a trained model. A twin is the same model with the same parameters on padded batches or"
            " with PackedSequence; times are of one thread of a CPU ([how they were"
            " taken](benchmarks/results/cpu-zen5-2-cores-programs.md)).",
            "",
            "## Short ones",
            "",
            cards(entries),
            "## Larger ones",
            "",
            "On real data, with reports and plots.",
            "",
            cards(larger),
        ]
    )


def dead() -> list[str]:
    """Links of the gallery and of the first page to files that do not exist."""
    targets = [target for text in (gallery(), first_page()) for _, target in LINK.findall(text)]
    return [t for t in targets if not t.startswith("http") and not (ROOT / t.partition("#")[0]).exists()]
