# SPDX-License-Identifier: Apache-2.0
"""A page for each public function and class, made of the generated pages: docs/reference.md and docs/operators."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from pages import FENCED, LINK, ROOT, Definitions, navigation, outside_code, pages, readers

#: What the functions of a module are for, as the list beside the pages has it.
MODULES = {
    "tl": "LoDTensors: make, look, check",
    "tl.nn": "Modules",
    "tl.data": "Files to batches",
    "tl.distributed": "Several processes",
    "tl.integrations.transformers": "Hugging Face transformers",
    "torch_lod.testing": "Testing",
    "tl.ops": "On plain tensors: tl.ops",
    "tl.paddle": "Fluid's constructors",
}
_SECTION = re.compile(r"^## (.*)$", re.M)
_ENTRY = re.compile(r"^### `([\w.]+)(.*)`$", re.M)
_METHOD = re.compile(r"^#### `[\w.]+\.(\w+)(\(.*)`$", re.M)
_MEMBER = re.compile(r"^- `\w+\.(\w+)(\(.*?)?` (.*)$", re.M)


class Entry(NamedTuple):
    """A public name, its signature, and what stands below it."""

    name: str
    signature: str
    body: str
    home: str  #: the page that lists it

    @property
    def page(self) -> str:
        return f"functions/{self.name}"

    @property
    def summary(self) -> str:
        """The first paragraph, without what would break a table."""
        first = self.body.strip().split("\n\n")[0]
        prose = "" if first.startswith(("**", "```", "#")) else " ".join(first.split())
        return LINK.sub(r"\1", prose).replace("|", "\\|")


def parts(text: str, heading: re.Pattern) -> tuple[str, list[tuple[re.Match, str]]]:
    """What is before the first such heading outside of blocks, and what is below each."""
    fenced = [range(*block.span()) for block in FENCED.finditer(text)]
    found = [m for m in heading.finditer(text) if not any(m.start() in block for block in fenced)]
    ends = [*(m.start() for m in found[1:]), len(text)]
    return text[: found[0].start() if found else None], [(m, text[m.end() : end]) for m, end in zip(found, ends)]


class Functions:
    """Every entry by its name, and the pages that list them."""

    def __init__(self):
        self.entries: dict[str, Entry] = {}
        #: By page: its title, what it begins with, and the block that its examples start from.
        self.homes: dict[str, tuple[str, str, str]] = {}
        self.definitions = Definitions()
        for name, page in pages().items():
            if name.startswith("docs/operators/"):
                self._family(name, page.read_text(encoding="utf-8"))
        self._reference((ROOT / "docs/reference.md").read_text(encoding="utf-8"))
        self.guides = {
            name: (ROOT / f"{name}.md").read_text(encoding="utf-8")
            for name, (part, _) in readers().items()
            if part in ("Learn", "Guides")
        }

    def _family(self, home: str, text: str) -> None:
        intro, sections = parts(text, _SECTION)
        title = re.search(r"^# (.*)$", intro, re.M)[1]
        intro, _, start = intro.partition("Every example starts from\n\n")
        intro = "\n".join(line for line in intro.splitlines()[1:] if not re.match(r"\[\w+\]\(#", line))
        self.homes[home] = (title, intro, start.strip())
        for _, body in sections:
            code = re.match(r"\s*```python\n([\w.]+)(.*?)\n```\n", body, re.S)
            self._add(Entry(code[1], code[2], body[code.end() :], home))

    def _reference(self, text: str) -> None:
        for heading, section in parts(text, _SECTION)[1]:
            intro, entries = parts(section, _ENTRY)
            if entries:
                home = f"functions/{heading[1]}-names"
                methods = section.partition("\n### Methods of LoDTensor\n")[2]
                intro = self.moved(intro.partition("\n### [")[0], home)
                intro += _MEMBER.sub(lambda m: _directive(f"LoDTensor.{m[1]}", m[2] or "", m[3]), methods)
                self.homes[home] = (MODULES.get(heading[1], heading[1]), intro, "")
                for match, body in entries:
                    self._add(Entry(match[1], match[2], body.partition("\n### ")[0], home))

    def _add(self, entry: Entry) -> None:
        self.entries.setdefault(entry.name, entry)

    def moved(self, text: str, home: str) -> str:
        """Links of a generated page, which lead on from the folder of the functions."""
        folder = os.path.dirname(home) if home.startswith("docs/") else "docs"

        def replace(match):
            shown, target = match.groups()
            path, mark, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                return match[0]
            file = Path(os.path.normpath(ROOT / folder / path)) if path else ROOT / f"{home}.md"
            page = self.target(file, anchor)
            return f"[{shown}]({os.path.relpath(ROOT / f'{page}.md' if page else file, ROOT / 'functions')}{'' if page else mark + anchor})"

        return outside_code(text, lambda prose: LINK.sub(replace, prose))

    def target(self, file: Path, anchor: str) -> str | None:
        """The page of the site that a link into a generated page leads to; None for any other link."""
        name = str(file.relative_to(ROOT).with_suffix("")) if file.is_relative_to(ROOT) else ""
        if name == "docs/reference":  # its sections are pages of their own
            sections_ = {re.sub(r"[^\w-]", "", home[len("functions/") : -len("-names")]): home for home in self.homes}
            return sections_.get(anchor, name)
        if name in self.homes:
            found = [
                entry.page for entry in self.entries.values() if entry.home == name and _last(entry.name) == anchor
            ]
            return found[0] if found else name
        return None

    def listed(self, home: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.home == home]

    def home(self, home: str) -> str:
        """A page that lists functions: what they are about, and a line for each."""
        title, intro, _ = self.homes[home]
        here = self.listed(home)
        up = os.path.relpath("functions", os.path.dirname(home))
        rows = [f"| [`{entry.name}`]({up}/{entry.name}.md) | {entry.summary} |" for entry in here]
        tree = ["```{toctree}", ":hidden:", "", *(f"{_last(e.name)} <{up}/{e.name}>" for e in here), "```"]
        return "\n".join([f"# {title}", "", intro.strip(), "", "| | |", "|---|---|", *rows, "", *tree, ""])

    def page(self, entry: Entry, source_link) -> str:
        """The page of one function: signature, docstring, example, facts, and the guides that use it."""
        title, _, start = self.homes[entry.home]
        body = entry.body
        if start:
            body = body.replace("**Example**", f"**Example.** It starts from\n\n{start}\n\nand goes on with", 1)
        body, methods = parts(self.moved(body, entry.home), _METHOD)
        body = _MEMBER.sub(lambda m: _directive(m[1], m[2] or "", m[3]), body)
        body += "\n".join(_directive(match[1], match[2], text) for match, text in methods)
        place = self.definitions.find(entry.name) or self.definitions.find(entry.name.replace("tl.", "tl.paddle."))
        source = source_link(place[0], entry.page, line=place[1]) if place else ""
        kind = "class" if _last(entry.name)[0].isupper() else "function"
        signature = "" if entry.signature == "(...)" else entry.signature
        used = self.used(entry)
        return "\n".join(
            [
                f"# {entry.name}",
                "",
                source,
                "",
                f"````````{{py:{kind}}} {entry.name}{signature}",
                "",
                body.strip(),
                "````````",
                "",
                *([f"**In the guides.** {', '.join(used)}.", ""] if used else []),
                f"**Beside it.** [{title}]({os.path.relpath(entry.home, 'functions')}.md)",
                "",
            ]
        )

    def used(self, entry: Entry) -> list[str]:
        """Links to the guides that write this name most often."""
        name = re.compile(rf"{re.escape(entry.name)}\b(?!\.)")
        counts = {guide: len(name.findall(text)) for guide, text in self.guides.items()}
        best = sorted((guide for guide in counts if counts[guide]), key=lambda guide: -counts[guide])[:5]
        return [f"[{self.guides[guide].partition(chr(10))[0].lstrip('# ')}](../{guide}.md)" for guide in best]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _directive(name: str, signature: str, body: str) -> str:
    """A method or a property of a class."""
    kind = "method" if signature else "property"
    signature = re.sub(r"^\((self|cls)(, )?", "(", signature)
    return f"\n``````{{py:{kind}}} {name}{signature}\n\n{body.strip()}\n``````\n"


def sections(functions: Functions) -> dict[str, list[str]]:
    """The list of pages beside the functions, by what they do."""
    paddle = {entry.home for entry in functions.entries.values() if entry.name.startswith("tl.paddle.")}
    own = [home for home in functions.homes if home not in paddle]

    def by_title(homes) -> list[str]:
        return sorted(homes, key=lambda home: functions.homes[home][0].casefold())

    lists = {
        "Sequences: what to compute": by_title(home for home in own if home.startswith("docs/")),
        "Tensors, modules, data": [home for home in own if not home.startswith("docs/")],
        "From Paddle": by_title(paddle),
    }
    tables = [page for pages_ in navigation()["Functions"].values() for page in pages_ if page not in functions.homes]
    return {**lists, "Tables": tables}
