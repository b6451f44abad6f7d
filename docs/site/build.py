# SPDX-License-Identifier: Apache-2.0
"""Copies the pages to build/pages, with links to source, and makes the site of them: `make site`."""

import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import front
from functions import Functions, sections
from pages import LINK, ROOT, dead_links, navigation, outside_code, pages

STAGE, SITE = ROOT / "build/pages", ROOT / "build/site"
_INTRO = {
    "Learn": "Six steps, the concepts behind them, and whole programs.",
    "Guides": "How to make batches, write models, train, ship, and bring code from elsewhere.",
    "Functions": "Every public name, by what it does, and what torch's own functions do.",
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


def with_files(text: str, name: str, page: Path, linked: set[str], functions: Functions) -> str:
    """Links to what is no page lead to its source, to the README of a folder, or to the page of a function."""
    up = os.path.dirname(name) or "."

    def replace(match):
        shown, target = match.groups()
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        if not path or target.startswith("http") or match.string[match.start() - 1 : match.start()] == "!":
            return match[0]
        if found := functions.target(file, anchor):
            return f"[{shown}]({os.path.relpath(found, up)}.md)"
        if file == ROOT / "README.md":
            return f"[{shown}]({os.path.relpath('index.md', up)}{f'#{anchor}' * bool(anchor)})"
        if file.is_dir():
            return f"[{shown}]({path.rstrip('/')}/README.md)"
        if file.suffix in (".py", ".h", ".cpp", ".cu"):
            linked.add(str(file.relative_to(ROOT)))
            return source_link(str(file.relative_to(ROOT)), name, re.sub(r"`([^`]*)`", r"<code>\1</code>", shown))
        return match[0]

    return outside_code(text, lambda prose: LINK.sub(replace, prose))


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


def write(name: str, text: str) -> None:
    target = STAGE / f"{name}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def names(functions: Functions) -> str:
    """The reference as a table of all names, each with a link to its page."""
    lines = ["# All names", ""]
    for home in [page for listed in sections(functions).values() for page in listed if page in functions.homes]:
        lines += [f"## {functions.homes[home][0]}", "", "| | |", "|---|---|"]
        lines += [f"| [`{e.name}`](../{e.page}.md) | {e.summary} |" for e in functions.listed(home)] + [""]
    return "\n".join(lines)


def stage() -> None:
    """build/pages: every page, one for each part of the site and each function, and the images."""
    shutil.rmtree(STAGE, ignore_errors=True)
    functions, linked = Functions(), set()

    def put(name: str, text: str, page: Path) -> None:
        write(name, with_drawings(with_files(text, name, page, linked, functions)))

    for name, page in pages().items():
        if name != "README" and name != "docs/reference" and name not in functions.homes:
            put(name, page.read_text(encoding="utf-8"), page)
    for home in functions.homes:
        put(home, functions.home(home), ROOT / f"{home}.md")
    for entry in functions.entries.values():
        put(entry.page, functions.page(entry, source_link), ROOT / f"{entry.page}.md")
    write("docs/reference", names(functions))
    put("gallery", front.gallery(), ROOT / "README.md")
    parts = [part.lower() for part in _INTRO]
    order = toctree([*parts[:2], "gallery", *parts[2:]], hidden=True)
    put("index", f"{front.first_page()}\n{order}", ROOT / "README.md")
    for part, lists in {**navigation(), "Functions": sections(functions)}.items():
        trees = [toctree(entries, caption) for caption, entries in lists.items()]
        write(part.lower(), "\n".join([f"# {part}\n\n{_INTRO[part]}\n", *trees]))
    drawings()
    for file in (ROOT / "docs").glob("*.ipynb"):
        shutil.copy(file, STAGE / file.relative_to(ROOT))
    sources = {str(f.relative_to(ROOT)) for d in ("torch_lod", "csrc") for f in (ROOT / d).rglob("*.*")}
    wanted = sorted(f for f in sources | linked if f.endswith((".py", ".h", ".cpp", ".cu")))
    (STAGE / "sources.txt").write_text("\n".join(wanted))


def inventory(file: Path) -> set[str]:
    """The names of Python that other projects' pages can link to (intersphinx)."""
    lines = zlib.decompress(file.read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {name for name, kind, *_ in map(str.split, lines) if kind.startswith("py:")}


def main() -> int:
    if dead := [*dead_links(), *front.dead()]:
        print("\n".join(["dead links:", *dead]), file=sys.stderr)
        return 1
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    # Warnings are errors: a dead link, a page in no section, a heading that skips a level.
    options = ["-b", "html", "-W", "--keep-going", "-q", "-E"]
    folders = ["-c", str(Path(__file__).parent), "-d", str(ROOT / "build/doctrees"), str(STAGE), str(SITE)]
    if status := subprocess.call([sys.executable, "-m", "sphinx", *options, *folders]):
        return status
    if missing := set(Functions().entries) - inventory(SITE / "objects.inv"):
        print(f"not in objects.inv: {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
