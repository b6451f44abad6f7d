# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of docs/ from the docstrings and the table of torch's functions: `make docs`."""

import inspect
import re
import sys
import textwrap
from pathlib import Path

import torch

import torch_lod as tl
from torch_lod import testing
from torch_lod.functions import row
from torch_lod.paddle.methods import PaddleMethods
from torch_lod.tensor.other_forms import OtherForms

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import matrix  # noqa: E402 - a file beside this one
import messages  # noqa: E402
import operator_pages  # noqa: E402

#: The torch whose functions torch_functions.md lists.
PINNED = "2.13"

_INTRO = {
    "tl": "Structure and tensors; the sequence operators are below. `import torch_lod as tl`.",
    "tl.paddle": f"```text\n{inspect.getdoc(tl.paddle)}\n```\n\n[Differences from Fluid](differences_from_paddle.md).",
    "tl.nn": "Modules.",
    "tl.data": "From files to batches: [how](data.md).",
    "tl.distributed": "LoDTensors between processes, and losses over all of them: [how](distributed.md).",
    "tl.integrations.transformers": "Hugging Face transformers, their Trainer and their tokenizers: [how](transformers.md).",
    "torch_lod.testing": "`from torch_lod import testing`: [how](testing.md).",
    "tl.ops": "Operators on plain tensors; `torch.ops.torch_lod` has them as well, with the same names and argument order.",
}


_MODULES = r"torch_lod\.[a-z_.]+(?=[A-Z])|collections\.abc\.|(?<![\w.])torch\.(?=Tensor)|'(?=LoD)|(?<=LoD)'"


def _signature(thing) -> str:
    try:
        return re.sub(_MODULES, "", str(inspect.signature(thing, eval_str=True))).replace("(self: Any", "(self")
    except (TypeError, ValueError):
        return "(...)"


def _entry(prefix: str, name: str, thing, depth: int = 3) -> list[str]:
    lines = [f"{'#' * depth} `{prefix}.{name}{_signature(thing) if callable(thing) else ''}`", ""]
    return [*lines, *operator_pages.rendered(thing.__doc__ or "")]


#: What readers look for first; what calls give them, they do not make.
_FIRST, _LAST = ("LoDTensor", "LoD"), ("DerivedTensor", "LoDError")


def _order(name: str) -> int:
    return _FIRST.index(name) - len(_FIRST) if name in _FIRST else int(name in _LAST)


def _members(cls, prefix: str) -> list[str]:
    out = []
    own = {**vars(cls), **vars(OtherForms)} if cls is tl.LoDTensor else {**vars(cls)}
    own |= {"values": cls.values} if issubclass(cls, torch.Tensor) else {}
    for name, member in own.items():
        of_paddle = cls is tl.LoDTensor and name in vars(PaddleMethods)
        if (
            of_paddle
            or name.startswith("_")
            or not (inspect.isfunction(member) or isinstance(member, (property, classmethod)))
        ):
            continue
        inner = member.fget if isinstance(member, property) else getattr(cls, name)
        signature = "" if isinstance(member, property) else _signature(inner)
        doc = (inspect.getdoc(inner) or "").replace("\n", " ").replace("  ", " ")
        if doc:
            out.append(f"- `{prefix}.{name}{signature}` {doc}")
    return [*out, ""]


def methods(cls: type) -> list[str]:
    """The methods of a class that are ours, not those of torch or Python that it has in another form; `forward` first."""
    own = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "torch_lod"]
    others = {name for base in cls.__mro__ if base not in own for name in vars(base)} - {"forward"}
    found = {name: None for base in own for name, member in vars(base).items() if inspect.isroutine(member)}
    named = [name for name in found if not name.startswith("_") and name not in others and getattr(cls, name).__doc__]
    return sorted(named, key=lambda name: name != "forward")


def operators(public: list[str]) -> list[str]:
    """A line for each of those that are public in a module, by family, with a link to its section."""
    lines = []
    for family, module in operator_pages.families().items():
        names = [name for name in module.__all__ if name in public]
        lines += [f"### [{operator_pages.title(module)}](operators/{family}.md)", ""] if names else []
        for name in names:
            summary = " ".join(inspect.getdoc(getattr(module, name)).split("\n\n")[0].split())
            lines += [f"- [`{operator_pages.prefix(name)}.{name}`](operators/{family}.md#{name.lower()}) {summary}"]
        lines += [""] if names else []
    return lines


def reference() -> str:
    lines = ["# Reference", "", f"<!-- {operator_pages.GENERATED} -->", "", "[Error messages](messages.md).", ""]
    elsewhere = {name for module in operator_pages.families().values() for name in module.__all__}
    modules = {"tl": tl, "tl.nn": tl.nn, "tl.data": tl.data, "tl.ops": tl.ops, "tl.paddle": tl.paddle}
    modules |= {"tl.distributed": tl.distributed, "tl.integrations.transformers": tl.integrations.transformers}
    modules["torch_lod.testing"] = testing
    for prefix, module in modules.items():
        lines += [f"## {prefix}", "", _INTRO[prefix], ""]
        for name in sorted(module.__all__, key=_order):
            thing = getattr(module, name)
            if not callable(thing) or (module in (tl, tl.paddle) and name in elsewhere):
                continue
            lines += _entry(prefix, name, thing)
            if thing in (tl.LoD, tl.LoDTensor, tl.DerivedTensor):
                lines += _members(thing, name)
            elif isinstance(thing, type):
                for method in methods(thing):
                    lines += _entry(f"{prefix}.{name}", method, getattr(thing, method), depth=4)
        if prefix == "tl":
            lines += ["## Sequence operators", "", *operators(tl.sequence.__all__)]
        if prefix == "tl.paddle":
            lines += [
                *operators(tl.paddle.__all__),
                "### Methods of LoDTensor",
                "",
                *_members(PaddleMethods, "LoDTensor"),
            ]
    return "\n".join(lines).rstrip() + "\n"


def torch_functions() -> str:
    kinds: dict[str, list[str]] = {kind: [] for kind in row.MEANING}
    listed, kind_of = row.shown_functions(), row.kinds()
    missing = sorted(name for func, name in listed.items() if func not in kind_of)
    for func, name in listed.items():
        if func in kind_of:
            kinds[kind_of[func]].append(name)
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in kinds.items() if names)
    lines = [
        "# What torch's functions do to a LoDTensor",
        "",
        f"<!-- {operator_pages.GENERATED} -->",
        "",
        f"Every public function that torch {PINNED} shows to a subclass.",
        "",
        f"**{len(listed) - len(missing)} functions classified, {len(missing)} unclassified**: {counts}.",
        "",
        "What rows went into and is no LoDTensor is a `DerivedTensor`, which knows where its rows are, or which function lost them; "
        "lost rows raise where they meet others, as in `x - x.mean(0)`. Rows are not written into plain tensors, also not "
        "with `out=`. A function of a newer torch loses the rows until it is classified.",
        "",
    ]
    for kind, names in kinds.items():
        if names:
            lines += [f"## {kind}", "", f"{row.MEANING[kind][0].upper()}{row.MEANING[kind][1:]}.", ""]
            lines += [*_listed(name.removeprefix("torch.") for name in sorted(names)), ""]
    if missing:
        lines += ["## Not classified", "", *_listed(missing), ""]
    return "\n".join(lines).rstrip() + "\n"


def _listed(names) -> list[str]:
    return textwrap.wrap(", ".join(f"`{name}`" for name in names), 120, break_on_hyphens=False)


def matrix_page() -> str:
    """A row per operator and module, a column per feature."""
    reasons = {reason: str(i) for i, reason in enumerate(dict.fromkeys(_reasons()), 1)}
    lines = [
        "# What works with what",
        "",
        f"<!-- {operator_pages.GENERATED} -->",
        "",
        "`tests/laws/test_matrix.py` computes every cell, and is red where this page says too much or too little. How to use it: "
        "[compile and export](compile_and_export.md).",
        "",
        *(f"- **{feature.title}**: {feature.meaning}." for feature in matrix.FEATURES.values()),
        "",
        "A dash: no gradient, nothing to compute.",
        "",
    ]
    if reasons:
        lines += ["What does not work, and why:", "", *(f"{n}. {reason}" for reason, n in reasons.items()), ""]
    titles = [feature.title for feature in matrix.FEATURES.values()]
    parts = {
        "nn": "Modules",
        "tl": "Sequence operators",
        "tl.paddle": "For people from Paddle",
        "ops": "Operators on plain tensors",
    }
    rooms = {name: name.split(".")[0] if "." in name else operator_pages.prefix(name) for name in matrix.rows()}
    for room, title in parts.items():
        head = "tl.paddle." if room == "tl.paddle" else "tl."
        lines += [f"## {title}", "", f"| `{head}` | {' | '.join(titles)} |", f"|---{'|:-:' * len(titles)}|"]
        here = sorted(name for name in rooms if rooms[name] == room)
        lines += [f"| `{name}` | {' | '.join(_cells(name, reasons))} |" for name in here] + [""]
    return "\n".join(lines + [matrix.BEYOND]).rstrip() + "\n"


def _reasons():
    return [reason for of in matrix.EXCEPTIONS.values() for reason in of.values()]


def _cells(name: str, reasons: dict[str, str]):
    for key, feature in matrix.FEATURES.items():
        reason = matrix.EXCEPTIONS.get(key, {}).get(name)
        whole = feature.gradient and name in matrix.WHOLE
        yield "-" if whole else f"no ({reasons[reason]})" if reason else "yes"


def pages() -> dict[str, str]:
    made = {"reference.md": reference(), "torch_functions.md": torch_functions(), "matrix.md": matrix_page()}
    return {**made, "messages.md": messages.page(), **operator_pages.pages()}


if __name__ == "__main__":
    for page, text in pages().items():
        (HERE / page).parent.mkdir(exist_ok=True)
        (HERE / page).write_text(text)
        print(f"docs/{page}: {len(text.splitlines())} lines")
