# SPDX-License-Identifier: Apache-2.0
"""The outcome of a LoDTensor in public models, which are imported from their packages and not edited: `make models`.

Every model runs on each sequence alone, in the layout that its documentation asks for; that is the truth. Then it gets a
LoDTensor in the same layout, such as `model(x[None])`, and as it is, `model(x)`. Outcomes: "right": the numbers of the truth;
"raised": an error of torch_lod; "torch": another error; "marked": a result that knows which call lost its structure, and
raises where it meets rows; "WRONG": anything else, a defect of torch_lod. Where the model was not right, it is changed as the
message says, or, where there is no operator, a part of it runs on one sequence after the other; the lines are counted, and then
results and gradients have to be those of the truth. Unedited in tl.nn.MapSequences they have to be as well: the last column,
with the number of calls, for sequences of STACKED rows.
"""

import inspect
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from unittest.mock import patch

import torch
from public_model_list import LENGTHS, MODELS, STACKED, Model
from torch.utils import _pytree as pytree

import torch_lod as tl
from torch_lod import LoDTensor
from torch_lod.tensor.derived import DerivedTensor


def outcome(call: Callable, x: LoDTensor, alone: torch.Tensor) -> tuple[str, str]:
    """The outcome, and what was said."""
    torch.manual_seed(2)
    try:
        found = call(x)
    except tl.LoDError as error:
        return "raised", str(error)
    except Exception as error:
        return "torch", f"{type(error).__name__}: {error}"
    values = found
    if isinstance(found, DerivedTensor):
        if found.rows_dim is None:
            return "marked", f"lost in {found._provenance.call}"
        values = found.values().movedim(found.rows_dim, 0)
    values = values.values() if isinstance(values, LoDTensor) else values
    if values.numel() != alone.numel():
        return "WRONG", f"shape {tuple(values.shape)} for {tuple(alone.shape)}"
    off = float((values.reshape(alone.shape) - alone).detach().abs().max())
    return ("right" if off < 1e-4 else "WRONG"), f"{type(found).__name__}, off by {off:.1g}"


def count_lines(changes: dict) -> int:
    """Of the bodies of the functions, each once."""
    bodies = {change.__code__: change for change in changes.values()}
    return sum(max(1, len(inspect.getsource(f).strip().splitlines()) - 1) for f in bodies.values())


def gradients(m, result) -> list:
    """Of a number that depends on every element of the result."""
    result = result.values() if isinstance(result, (LoDTensor, DerivedTensor)) else result
    used = [p for p in m.parameters() if p.requires_grad]
    return torch.autograd.grad(result.sin().sum(), used, allow_unused=True)


def changed(m: Model, x: LoDTensor, alone: torch.Tensor) -> str:
    """The outcome after the changes, which are right only with the gradients of the truth."""
    with ExitStack() as stack:
        for key, change in m.changes.items():
            if isinstance(key, tuple):
                stack.enter_context(patch.object(*key, change))
        call = m.changes.get("call", m.call)
        found, said = outcome(call, x, alone)
        if found != "right":
            return f"{found}: {said}"
        torch.manual_seed(2)
        own = gradients(m.module, call(x))
    return "WRONG gradients" if differs(own, gradients(m.module, alone)) else "right"


def differs(own: list, truth: list) -> bool:
    """Whether gradients differ."""
    return any(
        (a is None) != (b is None) or (a is not None and not torch.allclose(a, b, rtol=1e-3, atol=1e-4))
        for a, b in zip(own, truth, strict=True)
    )


def stacked(m: Model) -> str:
    """The outcome of the module in tl.nn.MapSequences, unedited, with its gradients; and the number of calls."""
    x, calls = tl.from_lengths(m.values, [STACKED]), []
    alone = on_each(m.call, m.values, [n for n in STACKED if n])
    hook = m.module.register_forward_hook(lambda *_: calls.append(1))

    def call(x):
        found = pytree.tree_leaves(m.mapped(*m.inputs(x), **m.keywords))
        found = m.take(next(t for t in found if isinstance(t, torch.Tensor)))
        return found if isinstance(found, LoDTensor) else found[x.lengths() > 0]

    found, said = outcome(call, x, alone)
    hook.remove()
    if found != "right":
        return f"{found}: {said}"
    torch.manual_seed(2)
    if differs(gradients(m.module, call(x)), gradients(m.module, alone)):
        return "WRONG gradients"
    return f"right ({len(calls)})"


def on_each(call: Callable, values: torch.Tensor, lengths: list[int] = LENGTHS) -> torch.Tensor:
    results = []
    for part in values.split(lengths):
        torch.manual_seed(2)
        results.append(call(part))
    return torch.cat(results)


def tried(name: str) -> list[str]:
    """A row of the table: name, kind, package, both outcomes, that after the changes with their lines, what was said, and the
    outcome in tl.nn.MapSequences."""
    make, kind, package = MODELS[name]
    torch.manual_seed(1)
    m = make()
    m.module.eval()
    alone, x = on_each(m.call, m.values), tl.from_lengths(m.values, [LENGTHS])
    found, said = outcome(m.call, x, alone)
    plainly, _ = outcome(m.plainly, x, alone)
    if plainly == "WRONG" and outcome(m.plainly, x, on_each(m.plainly, m.values))[0] == "right":
        plainly = "as without LoD"  # in this layout it does something else, with plain tensors as well
    by_sequence = any(f.__qualname__.startswith(("by_sequence", "looped")) for f in m.changes.values())
    how = f"{count_lines(m.changes)}{', by sequence' * by_sequence}"
    after = "" if found == "right" else f"{changed(m, x, alone)} ({how})"
    return [name, kind, f"{package} {version(package)}", found, plainly, after, said, stacked(m)]


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    wrong, mapped, counts = 0, 0, dict.fromkeys(["right", "raised", "torch", "marked", "WRONG"], 0)
    columns = (
        "model",
        "kind",
        "package",
        "in its layout",
        "as it is",
        "changed (lines)",
        "message",
        "MapSequences (calls)",
    )
    print(f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|")
    for name in names or sorted(MODELS, key=lambda name: MODELS[name][1]):
        row = tried(name)
        counts[row[3]] += 1
        mapped += row[-1].startswith("right")
        wrong += any("WRONG" in cell for cell in row)
        print("| " + " | ".join(" ".join(cell.split())[:140] for cell in row) + " |", flush=True)
    print(f"in tl.nn.MapSequences: {mapped} of {sum(counts.values())} right")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return wrong + (mapped < sum(counts.values()))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    sys.exit(main(sys.argv[1:]))
