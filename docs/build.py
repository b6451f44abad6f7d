# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of docs/ from the docstrings and the policy table: `make docs`."""

import inspect
import sys
from collections import Counter
from pathlib import Path

import torch

import torch_lod as tl
from torch_lod import torch_rules

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import operator_pages  # noqa: E402 - a file beside this one

#: The torch whose functions torch_functions.md lists.
PINNED = "2.13"

_INTRO = {
    "tl": "Structure and tensors; the sequence operators are below. `import torch_lod as tl`.",
    "tl.nn": "Modules.",
    "tl.ops": "Operators on plain tensors; `torch.ops.torch_lod` has them as well, with the same names and argument order.",
}


def _signature(thing) -> str:
    try:
        return str(inspect.signature(thing)).replace("torch.Tensor", "Tensor").replace("torch_lod.lod_tensor.", "")
    except (TypeError, ValueError):
        return "(...)"


def _entry(prefix: str, name: str, thing, depth: int = 3) -> list[str]:
    lines = [f"{'#' * depth} `{prefix}.{name}{_signature(thing) if callable(thing) else ''}`", ""]
    doc = inspect.getdoc(thing) or ""
    return [*lines, "```", doc, "```", ""] if "\n" in doc else [*lines, doc, ""]


def _members(cls, prefix: str) -> list[str]:
    out = []
    for name, member in vars(cls).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, (property, classmethod))):
            continue
        inner = member.fget if isinstance(member, property) else getattr(cls, name)
        signature = "" if isinstance(member, property) else _signature(inner)
        doc = (inspect.getdoc(inner) or "").replace("\n", " ").replace("  ", " ")
        if doc:
            out.append(f"- `{prefix}.{name}{signature}` {doc}")
    return [*out, ""]


def sequence_operators() -> list[str]:
    """A line for each, with a link to its section."""
    lines = ["## Sequence operators", ""]
    for family, module in operator_pages.families().items():
        lines += [f"### [{family}](operators/{family}.md)", ""]
        for name in module.__all__:
            thing = getattr(module, name)
            summary = " ".join(inspect.getdoc(thing).split("\n\n")[0].split())
            lines += [f"- [`tl.{name}`](operators/{family}.md#{name.lower()}) {summary}"]
        lines += [""]
    return lines


def reference() -> str:
    lines = ["# Reference", "", "Generated from the docstrings by `make docs`.", ""]
    elsewhere = set(tl.sequence.__all__)
    for module, prefix in ((tl, "tl"), (tl.nn, "tl.nn"), (tl.ops, "tl.ops")):
        lines += [f"## {prefix}", "", _INTRO[prefix], ""]
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing) or not getattr(thing, "__module__", "torch_lod").startswith("torch_lod"):
                continue
            if not callable(thing) or (prefix == "tl" and name in elsewhere):
                continue
            lines += _entry(prefix, name, thing)
            if isinstance(thing, type) and issubclass(thing, torch.nn.Module):
                lines += _entry(f"{prefix}.{name}", "forward", thing.forward, depth=4)
            if thing in (tl.LoD, tl.LoDTensor):
                lines += _members(thing, name)
        if prefix == "tl":
            lines += sequence_operators()
    return "\n".join(lines).rstrip() + "\n"


_MEANING = {
    "keep": "row i of the result is made of row i of the first argument: the LoD stays",
    "join": "several operands: their LoDs must be equal (ValueError otherwise), and the LoD stays",
    "reduce": "the LoD stays where dim 0 is not among the dims; over dim 0 the result is plain",
    "shape": "the LoD stays where dim 0 stays where it is; otherwise the result is plain",
    "matmul": "the left operand's LoD stays; everything else is plain",
    "refuse": "raises where rows of different sequences would mix, with the call that is meant; otherwise the LoD stays",
}


def _public(space) -> dict[str, object]:
    return {n: getattr(space, n) for n in dir(space) if not n.startswith("_") and callable(getattr(space, n, None))}


def torch_functions() -> str:
    spaces = {"torch": torch, "torch.Tensor": torch.Tensor, "torch.nn.functional": torch.nn.functional}
    lines = [
        "# What torch's functions do to a LoDTensor",
        "",
        f"Generated from `torch_lod/torch_rules` by `make docs`, with torch {PINNED}. A function that is not in the table "
        "gives a plain tensor.",
        "",
        "A composition of functions is plain arithmetic: in `x - x.mean(0)` the mean is taken over all rows and is plain.",
        "",
    ]
    for kind, meaning in _MEANING.items():
        names = sorted({torch_rules._name(f) for f, k in torch_rules.KINDS.items() if k == kind} - {"set", "get"})
        lines += [f"## {kind}", "", f"{meaning}.", "", ", ".join(f"`{name}`" for name in names), ""]
    lines += ["## Not in the table", ""]
    for label, space in spaces.items():
        public = _public(space)
        overridable = set(torch.overrides.get_overridable_functions().get(space, []))
        missing = sorted(n for n, f in public.items() if f in overridable and f not in torch_rules.RULES)
        counts = Counter(f in torch_rules.RULES for f in public.values() if f in overridable)
        lines += [f"### {label}: {counts[True]} in the table, {len(missing)} give plain tensors", ""]
        lines += [", ".join(f"`{name}`" for name in missing), ""]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    return {"reference.md": reference(), "torch_functions.md": torch_functions(), **operator_pages.pages()}


if __name__ == "__main__":
    for page, text in pages().items():
        (HERE / page).parent.mkdir(exist_ok=True)
        (HERE / page).write_text(text)
        print(f"docs/{page}: {len(text.splitlines())} lines")
