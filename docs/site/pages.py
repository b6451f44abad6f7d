# SPDX-License-Identifier: Apache-2.0
"""The pages of the site, their navigation and their links. Only Python's standard library: tests read it too."""

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The parts of the site, their sections, and the pages of these in order; * stands for those that no section names.
NAVIGATION = {
    "Learn": {
        "Tutorial": ["docs/tutorial/*"],
        "Concepts": ["docs/concepts", "docs/cheat_sheet", "docs/programs", "docs/promises"],
    },
    "Guides": {
        "Batches": ["docs/data", "docs/events", "docs/inner_levels", "docs/minus_one"],
        "Models": [
            *("docs/drop_in", "docs/recurrence", "docs/hybrid_models", "docs/generation", "docs/structured"),
            *("docs/graphs", "docs/metrics"),
            "docs/*",
        ],
        "Training and shipping": [
            *("docs/mixed_precision", "docs/lightning", "docs/distributed", "docs/compile_and_export", "docs/serving"),
            *("docs/gpu", "docs/sample_gradients", "docs/testing"),
        ],
        "Coming from elsewhere": [
            *("docs/coming_from", "docs/map_sequences", "docs/porting", "docs/transformers"),
            "docs/differences_from_paddle",
        ],
    },
    "Functions": {
        "Reference": [
            *("docs/reference", "docs/torch_functions", "docs/matrix", "docs/messages"),
            *("docs/operators/*", "CHANGELOG"),
        ]
    },
    "Builders": {
        "Design": ["CONTRIBUTING", "docs/design", "docs/releasing"],
        "Kernels": ["docs/own_operator", "examples/own_operator/README", "docs/gpu_kernels"],
        "Numerics": ["docs/numerics"],
        "Testing": ["tests/README", "tests/golden/README"],
        "Benchmarks": ["benchmarks/README", "benchmarks/gpu/README", "benchmarks/results/*"],
    },
}
#: How the line below the title of a hand-written page begins, by the part of the site that it is in.
_USERS = "For users who "
READERS = {"Learn": _USERS, "Guides": _USERS, "Functions": _USERS, "Builders": "For people who "}
#: Pages that programs write, or that have no reader of their own.
_GENERATED = re.compile(r"docs/(reference|torch_functions|matrix|operators/.*)|benchmarks/results/.*|CHANGELOG")
#: A link or an image of Markdown: its text, its target.
LINK = re.compile(r"(?<!`)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```[^\n]*$", re.M | re.S)
_HEADING = re.compile(r"^#{1,6} +(.*)$", re.M)


def project(key: str) -> str:
    """What pyproject.toml says on a line of its own, of its version or its addresses; empty where it says nothing."""
    found = re.search(rf'^{key} *= *"([^"]*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    return found[1] if found else ""


def repository() -> str:
    """The address of the repository: [project.urls] of pyproject.toml is the one place that has it."""
    return project("Repository")


def pages() -> dict[str, Path]:
    """Every page of the site by its name, which is its path in the repository without .md."""
    found = {page for pattern in ("*.md", "benchmarks/**/*.md", "docs/**/*.md") for page in ROOT.glob(pattern)}
    found |= {ROOT / name for name in ("tests/README.md", "tests/golden/README.md", "examples/own_operator/README.md")}
    return {str(page.relative_to(ROOT).with_suffix("")): page for page in sorted(found)}


def navigation() -> dict[str, dict[str, list[str]]]:
    """NAVIGATION with every pattern replaced by the pages that it matches and that no section names."""
    names = list(pages())
    named = {page for sections in NAVIGATION.values() for section in sections.values() for page in section}

    def matching(entry: str) -> list[str]:
        if not entry.endswith("*"):
            return [entry]
        return [name for name in names if f"{os.path.dirname(name)}/*" == entry and name not in named]

    return {
        part: {title: [name for entry in section for name in matching(entry)] for title, section in sections.items()}
        for part, sections in NAVIGATION.items()
    }


def readers() -> dict[str, tuple[str, str]]:
    """Of every hand-written page the part of the site, and the line below its title."""
    found = {}
    for part, sections in navigation().items():
        for name in (name for section in sections.values() for name in section if not _GENERATED.fullmatch(name)):
            lines = [line for line in (ROOT / f"{name}.md").read_text(encoding="utf-8").splitlines() if line]
            found[name] = (part, lines[1])
    return found


def outside_code(text: str, replace) -> str:
    """`text` with `replace` applied to what is in no fenced block."""
    parts, end = [], 0
    for block in FENCED.finditer(text):
        parts += [replace(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, replace(text[end:])])


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST write them."""
    out: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        plain = LINK.sub(r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        out.add(slug if slug not in out else next(s for n in range(1, 1000) if (s := f"{slug}-{n}") not in out))
    return out


def targets(page: Path):
    """Where the links of a page lead that are to files or headings."""
    return [target for _, target in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target)]


def dead_links() -> list[str]:
    """Links of all pages to files or headings that do not exist."""
    dead = []
    for name, page in pages().items():
        for target in targets(page):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                dead.append(f"{name}.md: {target}")
    return dead


#: Where the things of a public module are defined: the first folder that defines the name.
_FOLDERS = {
    "tl.nn": ["nn"],
    "tl.ops": ["ops"],
    "tl.paddle": ["paddle", "sequence", "tensor"],
    "tl.data": ["data", "."],
    "tl.distributed": ["distributed"],
    "tl.integrations.transformers": ["integrations"],
    "torch_lod.testing": ["testing", "."],
    "testing": ["testing", "."],
    "tl": ["structure", "tensor", "sequence", "functions", "paddle", "nn", "engine", "data", "."],
}


class Definitions:
    """The file and the line of every function and class of torch_lod, from its source alone."""

    def __init__(self):
        self.lines: dict[tuple[str, str], tuple[str, int]] = {}
        for file in sorted((ROOT / "torch_lod").rglob("*.py")):
            path = file.relative_to(ROOT)
            folder = path.parts[1] if len(path.parts) > 2 else "."
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    self.lines.setdefault((folder, node.name), (str(path), node.lineno))

    def find(self, qualified: str) -> tuple[str, int] | None:
        """Of `tl.nn.LSTM`, say; None where the name is not a definition of its own."""
        prefix, _, name = qualified.rpartition(".")
        for folder in [*_FOLDERS.get(prefix, []), *(["."] if prefix in _FOLDERS else [])]:
            if (folder, name) in self.lines:
                return self.lines[folder, name]
        return None
