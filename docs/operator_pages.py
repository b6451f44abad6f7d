# SPDX-License-Identifier: Apache-2.0
"""docs/operators: a page per family, a section per operator, made of its docstring, its example drawn, and what calls show."""

import ast
import inspect
import itertools
import re
import sys
import types
from pathlib import Path

import torch
from operator_examples import EXAMPLES, X
from torch import Tensor

import torch_lod as tl
from torch_lod.tensor.lod_tensor import LoDTensor

WIDTH = 112
#: float16 to float64, then integers.
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)


def families() -> dict[str, types.ModuleType]:
    """The modules of torch_lod.sequence, then those of torch_lod.paddle, in the order of their files' names."""
    return {
        path.stem: sys.modules[f"{package.__name__}.{path.stem}"]
        for package in (tl.sequence, tl.paddle)
        for path in sorted(Path(package.__file__).parent.glob("[a-z]*.py"))
        if path.stem != "create"  # what makes a LoDTensor is in reference.md
    }


def operators(module) -> list[str]:
    return [name for name, thing in vars(module).items() if name in module.__all__ and inspect.isfunction(thing)]


def prefix(name: str) -> str:
    """Where a page shows an operator."""
    return "tl.paddle" if name in tl.paddle.__all__ else "tl"


def parts(docstring: str):
    """(heading, what is indented below it), ("", text at the margin) or (None, indented without a heading), in order."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        margin = "".join(re.findall(r"^(?! ).*\n?", block, re.M)).rstrip()
        inside = inspect.cleandoc("\n" + "".join(re.findall(r"^ .*\n?", block, re.M)))
        if inside and margin.endswith(":"):
            *text, heading = margin.split("\n")
            if text:
                yield "", "\n".join(text)
            yield heading[:-1], inside
        else:
            yield ("", margin) if margin else (None, inside)


def equivalents(docstring: str) -> list[str]:
    """The expressions that a docstring calls equivalent."""
    return [text for heading, text in parts(docstring) if heading and "quivalent to" in heading]


class Example:
    """An example, run with this x; `result` is what its first call of the operator gave, `given` the arguments of that."""

    def __init__(self, name: str, x: Tensor | None = None):
        self.name, self.tree = name, ast.parse(EXAMPLES[name].strip())
        self.space: dict = {"tl": tl, "torch": torch}
        exec(X, self.space)
        if x is not None:
            self.space["x"] = x
        place, self.call = next(
            (i, node)
            for i, statement in enumerate(self.tree.body)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{prefix(name)}.{name}"
        )
        self._run(self.tree.body[:place])
        self.rest = self.tree.body[place:]
        used = dict.fromkeys(n.id for n in ast.walk(self.call) if isinstance(n, ast.Name))
        self.arguments = [n for n in used if n not in ("tl", "torch")]

    def _run(self, statements) -> None:
        exec(compile(ast.Module(list(statements), []), f"the example of {self.name}", "exec"), self.space)

    def result(self, **changed):
        """Of the call, with other values for some variables."""
        return eval(compile(ast.Expression(self.call), "a call", "eval"), {**self.space, **changed})

    def bound(self) -> dict:
        """Every parameter of the operator in this call."""
        evaluated = {k.arg: eval(ast.unparse(k.value), self.space) for k in self.call.keywords}
        given = inspect.signature(getattr(tl, self.name)).bind(
            *(eval(ast.unparse(a), self.space) for a in self.call.args), **evaluated
        )
        given.apply_defaults()
        return given.arguments

    def variables(self) -> dict[str, object]:
        """What the whole example uses and makes, by name."""
        self._run(self.rest)
        named = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        first = [n.id for n in named if n.id == "x"][:1]
        made = [n.id for n in sorted(named, key=lambda n: (n.lineno, n.col_offset)) if isinstance(n.ctx, ast.Store)]
        return {n: self.space[n] for n in dict.fromkeys(first + made) if n != "_"}

    def tensors(self) -> dict[str, Tensor | list]:
        """The arguments of the call that hold elements."""
        return {n: self.space[n] for n in self.arguments if leaves(self.space[n])}


def leaves(value) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in leaves(v)] if isinstance(value, (list, tuple)) else []


def mapped(value, function):
    if isinstance(value, Tensor):
        return function(value)
    return [mapped(v, function) for v in value] if isinstance(value, (list, tuple)) else value


# -- the picture


def kind(value) -> str:
    if isinstance(value, LoDTensor):
        element = f" of {tuple(value.shape[1:])}" if value.dim() > 1 else ""
        return f"{value.shape[0]} row{'s' * (value.shape[0] != 1)}{element}, lengths {value.lod.to_lengths()}"
    return f"plain, {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def column(name: str, value) -> list[str]:
    if isinstance(value, list) and leaves(value):
        return [name, f"{len(value)} tensors", *(line for i, v in enumerate(value) for line in column(f"[{i}]", v))]
    if not isinstance(value, Tensor):
        return [name, *repr(value).split("\n")]
    lines = repr(value).split("\n")
    if not isinstance(value, LoDTensor):
        return [f"{name}: {kind(value)}", *lines]
    dtype = "" if value.dtype == torch.float32 else f", {str(value.dtype).removeprefix('torch.')}"
    return [f"{name}: {kind(value)}{dtype}", *lines[1:]]


def picture(variables: dict[str, object]) -> list[str]:
    """The variables side by side, in as many bands as the width asks for."""
    lines: list[str] = []
    band: list[list[str]] = []
    columns = [column(*item) for item in variables.items()]
    for block in [*columns, None]:
        width = sum(max(map(len, c)) + 4 for c in [*band, block or []] if c)
        if block is None or (band and width - 4 > WIDTH):
            widths = [max(map(len, c)) for c in band]
            rows = itertools.zip_longest(*band, fillvalue="")
            lines += ["" if not lines else None, *("    ".join(map(str.ljust, row, widths)).rstrip() for row in rows)]
            band = []
        if block is not None:
            band.append(block)
    return [line or "" for line in lines[1:]]


# -- the facts


def shared(example: Example) -> str:
    """What the result's LoD is to those of the arguments."""
    result = example.result()
    results = leaves(result)
    if not results:
        return f"none: the result is of type {type(result).__name__}"
    result = results[0]
    if not isinstance(result, LoDTensor):
        return "none: the result is plain"
    lods = {n: v.lod for n, v in example.tensors().items() if isinstance(v, LoDTensor)}
    lods |= {n: v for n in example.arguments if isinstance(v := example.space[n], tl.LoD)}
    for name, lod in lods.items():
        if result.lod is lod:
            return f"the same object as that of `{name}`"
    for name, lod in lods.items():
        if result.lod == lod:
            return f"equal to that of `{name}`"
        if lod.depth > 1 and result.lod == lod.outer(-1):
            return f"that of `{name}` without its innermost level"
    return f"a new one, {result.lod_level} level{'s' * (result.lod_level > 1)}"


def gradient(example: Example) -> str:
    floating = {n: v for n, v in example.tensors().items() if all(t.is_floating_point() for t in leaves(v))}
    asked = {n: mapped(v, lambda t: t.detach().clone().requires_grad_()) for n, v in floating.items()}
    out = [t.sum() for t in leaves(example.result(**asked)) if t.requires_grad]
    if not out:
        return "none"
    out = [plain(t) for t in out]
    reached = []
    for name, value in asked.items():
        found = torch.autograd.grad(out, leaves(value), retain_graph=True, allow_unused=True)
        if any(g is not None for g in found):
            reached.append(f"`{name}`")
    return f"reaches {', '.join(reached)}"


def plain(t: Tensor) -> Tensor:
    return t.values() if isinstance(t, LoDTensor) else t


def refusal(error: Exception) -> str:
    """The built-in class of an error."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins" and cls is not tl.LoDError)


def dtypes(example: Example) -> str:
    """The dtypes that are taken by all that is floating in the example, or whole where nothing is, and what they give."""
    given = example.tensors()
    whole = all(not t.is_floating_point() for v in given.values() for t in leaves(v))
    answers: dict[str, list[str]] = {}
    for dtype in DTYPES:
        if whole and dtype.is_floating_point:
            continue

        def converted(t: Tensor, dtype=dtype) -> Tensor:
            return t.to(dtype) if whole or t.is_floating_point() else t

        changed = {n: mapped(v, converted) for n, v in given.items()}
        try:
            result = leaves(example.result(**changed))
        except Exception as error:  # ours or torch's own
            answers.setdefault(refusal(error), []).append(dtype)
            continue
        found = [str(t.dtype).removeprefix("torch.") for t in result]
        own = str(dtype).removeprefix("torch.")
        said = ", ".join(dict.fromkeys("the same" if f == own else f for f in found)) or "no tensor"
        answers.setdefault(said, []).append(dtype)
    names = {said: ", ".join(str(d).removeprefix("torch.") for d in ds) for said, ds in answers.items()}
    return "; ".join(f"{d}: {said}" for said, d in names.items())


def with_batch(name: str, lengths: list[list[int]]) -> str | None:
    """What comes of a batch of these lengths, in words; None where the example has no x."""
    if "x" not in {n.id for n in ast.walk(ast.parse(EXAMPLES[name])) if isinstance(n, ast.Name)}:
        return None
    x = tl.from_lengths(torch.zeros(sum(lengths[-1])), lengths, level_names=("article", "sentence"))
    try:
        result = Example(name, x).result()
    except tl.LoDError as error:
        return f"{refusal(error)}: `{error}`"
    return ", and ".join(said(v) for v in result) if isinstance(result, tuple) else said(result)


def said(value) -> str:
    if isinstance(value, list) and not value:
        return "an empty list"
    if isinstance(value, LoDTensor):
        return f"{kind(value)}" + (f", `{plain(value).tolist()}`" if value.shape[0] else "")
    if isinstance(value, Tensor):
        return f"{kind(value)}" + (f", `{value.tolist()}`" if value.numel() else "")
    return f"`{value!r}`"


def plain_argument(example: Example) -> str | None:
    """What the call says to a plain tensor in place of its first LoDTensor."""
    name = next((n for n, v in example.tensors().items() if isinstance(v, LoDTensor)), None)
    if name is None:
        return None
    try:
        return said(example.result(**{name: example.space[name].values()}))
    except tl.LoDError as error:
        return f"{refusal(error)}: `{error}`"


def facts(name: str) -> list[str]:
    example = Example(name)
    table = {"LoD of the result": shared(example)}
    if example.tensors():
        table |= {"gradient": gradient(example), "dtypes": dtypes(example)}
    table["`x` of one empty sequence, [[1], [0]]"] = with_batch(name, [[1], [0]])
    table["`x` of no sequences, [[], []]"] = with_batch(name, [[], []])
    table["a plain tensor instead"] = plain_argument(example)
    return ["| | |", "|---|---|", *(f"| {what} | {fact} |" for what, fact in table.items() if fact)]


# -- the page


def items(text: str) -> list[str]:
    """`name: words` entries, continued by indented lines, as a list."""
    return ["- " + " ".join(entry.split()) for entry in re.split(r"\n(?! )", text)]


def section(name: str, thing) -> list[str]:
    signature = str(inspect.signature(thing)).replace("torch.Tensor", "Tensor").replace("torch_lod.tensor.", "")
    signature = re.sub(r"torch_lod\.(lod|sequence\.plan)\.|collections\.abc\.|(?<=torch)\._C", "", signature)
    lines = [f"## {name}", "", "```python", f"{prefix(name)}.{name}{signature}", "```", ""]
    for heading, text in parts(thing.__doc__):
        if heading is None:
            lines += [f"```{'python' if text.startswith('>>>') else 'text'}", text, "```", ""]
        elif not heading:
            source = re.sub(r"^Source: ", "**Source.** ", text)
            lines += [source, ""]
        elif heading == "Args":
            lines += ["**Arguments.**", "", *items(re.sub(r"^(\w[\w, ]*): ", r"`\1`: ", text, flags=re.M)), ""]
        elif heading in ("Returns", "Raises"):
            lines += [f"**{heading}** {' '.join(text.split())}", ""]
        else:
            fence = "python" if "quivalent to" in heading else "text"
            lines += [f"**{heading}:**" if fence == "python" else f"{heading}:", "", f"```{fence}", text, "```", ""]
    if not inspect.isfunction(thing):
        return lines
    drawn = picture(Example(name).variables())
    lines += ["**Example**", "", "```python", EXAMPLES[name].strip(), "```", "", "```text", *drawn, "```", ""]
    return [*lines, *facts(name), ""]


def page(family: str, module) -> str:
    intro = re.sub(r"\n((?:    .*\n?)+)", r"\n\n```text\n\1```\n", inspect.cleandoc(module.__doc__) + "\n").strip()
    names = operators(module)
    links = " · ".join(f"[{name}](#{name})" for name in names)
    lines = [f"# {family}", "", "Generated by `make docs`.", "", intro, ""]
    if names:
        lines += [
            links,
            "",
            "Every example starts from",
            "",
            "```python",
            "import torch, torch_lod as tl",
            "",
            X,
            "```",
            "",
        ]
    classes = [name for name in module.__all__ if inspect.isclass(getattr(module, name))]
    for name in [*classes, *names]:
        lines += section(name, getattr(module, name))
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    return {f"operators/{family}.md": page(family, module) for family, module in families().items()}
