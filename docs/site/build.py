# SPDX-License-Identifier: Apache-2.0
"""Copies the pages to build/pages, with links to source, and makes the site of them: `make site`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pages import FENCED, LINK, ROOT, Definitions, dead_links, navigation, outside_code, pages

STAGE, SITE = ROOT / "build/pages", ROOT / "build/site"
#: A heading of a generated page that is a name of the library: `tl.LoD(...)`, or in a page of operators `sequence_pool`.
_ENTRY = re.compile(r"^(#{2,4}) (`?)((?:tl\.|torch_lod\.)?[\w.]+)([^\n]*)$", re.M)
_INTRO = {
    "Users": "For users who write models: a tutorial, the concepts, questions and answers, and every name.",
    "Builders": "For people who build operators or work on torch_lod: design, kernels, numerics, tests and benchmarks.",
}
#: A drawing on a line of its own, and the rules in it for dark pages.
_DRAWING = re.compile(r"^!\[([^\]]*)\]\(([^)]*)\.svg\)$", re.M)
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{((?:[^{}]|\{[^{}]*\})*)\}")


def source_link(path: str, page: str, text: str = "source", line: int = 0) -> str:
    """A link to a page of source, which conf.py makes."""
    target = os.path.relpath(f"source/{path}.html", os.path.dirname(page) or ".")
    kind = ' class="source"' if text == "source" else ""
    return f'<a{kind} href="{target}{f"#L-{line}" * bool(line)}">{text}</a>'


def with_files(text: str, name: str, page: Path, linked: set[str]) -> str:
    """Links to what is no page lead to its source, to the README of a folder, or to a copy."""

    def replace(match):
        shown, target = match.groups()
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        if not path or target.startswith("http") or match.string[match.start() - 1 : match.start()] == "!":
            return match[0]
        if file == ROOT / "README.md":
            return (
                f"[{shown}]({os.path.relpath('index.md', os.path.dirname(name) or '.')}{f'#{anchor}' * bool(anchor)})"
            )
        if file.is_dir():
            return f"[{shown}]({path.rstrip('/')}/README.md)"
        if file.suffix in (".py", ".h", ".cpp", ".cu"):
            linked.add(str(file.relative_to(ROOT)))
            return source_link(str(file.relative_to(ROOT)), name, re.sub(r"`([^`]*)`", r"<code>\1</code>", shown))
        return match[0]

    return outside_code(text, lambda prose: LINK.sub(replace, prose))


def docstring(block: str) -> str:
    """A block that breaks lines where the window does: its lines that are full, of 120 columns at most, go on."""
    return re.sub(
        r"(?<=.{95})\n *(?=[^\s>])(?!```|[\w, .]+: )",
        " ",
        block.replace("```", "```{code-block} text\n:class: docstring\n", 1),
    )


def with_sources(text: str, name: str, definitions: Definitions) -> str:
    """Below the heading of every name of the library a link to its source, and its signature; docstrings as such."""

    def add(match):
        entry = match[3] if "." in match[3] else f"tl.{match[3]}"
        place = definitions.find(entry) or definitions.find(entry.replace("tl.", "tl.paddle."))
        parts = [f"{match[1]} {match[3]}" if match[2] else match[0]]
        if place:
            parts.append(source_link(place[0], name, line=place[1]))
        if match[2]:  # the signature, which would fill the list of headings
            parts.append(f"```python\n{match[3]}{match[4].rstrip('`')}\n```")
        return "\n\n".join(parts)

    text = outside_code(text, lambda prose: _ENTRY.sub(add, prose))
    return FENCED.sub(lambda block: docstring(block[0]) if block[0].startswith("```\n") else block[0], text)


def with_drawings(text: str) -> str:
    """Every drawing twice, for light and for dark pages: the theme of the site shows one of them."""
    kinds = "".join(
        f"```{{image}} \\2{kind}.svg\n:alt: \\1\n:class: only-{kind[1:]}\n```\n" for kind in (".light", ".dark")
    )
    return outside_code(text, lambda prose: _DRAWING.sub(kinds, prose))


def drawings() -> None:
    for file in (ROOT / "docs/images").glob("*.svg"):
        text = file.read_text(encoding="utf-8")
        target = STAGE / "docs/images" / file.stem
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_suffix(".light.svg").write_text(_DARK.sub("", text), encoding="utf-8")
        target.with_suffix(".dark.svg").write_text(_DARK.sub(r"\1", text), encoding="utf-8")


def toctree(entries: list[str], caption: str = "", hidden: bool = False) -> str:
    options = f":caption: {caption}\n" * bool(caption) + ":hidden:\n" * hidden
    return "\n".join([f"```{{toctree}}\n:maxdepth: 1\n{options}", *entries, "```", ""])


def stage() -> None:
    """build/pages: every page, one for each part of the site, and the images."""
    shutil.rmtree(STAGE, ignore_errors=True)
    definitions, linked = Definitions(), set()
    for name, page in pages().items():
        text = with_drawings(with_files(page.read_text(encoding="utf-8"), name, page, linked))
        if name == "docs/reference" or name.startswith("docs/operators/"):
            text = with_sources(text, name, definitions)
        if name == "README":
            name, text = "index", f"{text}\n{toctree([part.lower() for part in _INTRO], hidden=True)}"
        target = STAGE / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for part, sections in navigation().items():
        trees = [toctree(entries, caption) for caption, entries in sections.items()]
        (STAGE / f"{part.lower()}.md").write_text("\n".join([f"# {part}\n\n{_INTRO[part]}\n", *trees]))
    drawings()
    for file in (ROOT / "docs").glob("*.ipynb"):
        shutil.copy(file, STAGE / file.relative_to(ROOT))
    sources = {str(f.relative_to(ROOT)) for d in ("torch_lod", "csrc") for f in (ROOT / d).rglob("*.*")}
    wanted = sorted(f for f in sources | linked if f.endswith((".py", ".h", ".cpp", ".cu")))
    (STAGE / "sources.txt").write_text("\n".join(wanted))


def main() -> int:
    if dead := dead_links():
        print("\n".join(["dead links:", *dead]), file=sys.stderr)
        return 1
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    # Warnings are errors: a dead link, a page in no section, a heading that skips a level.
    options = [
        "-b",
        "html",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-c",
        str(Path(__file__).parent),
        "-d",
        str(ROOT / "build/doctrees"),
    ]
    return subprocess.call([sys.executable, "-m", "sphinx", *options, str(STAGE), str(SITE)])


if __name__ == "__main__":
    sys.exit(main())
