# SPDX-License-Identifier: Apache-2.0
"""docs/messages.md: error messages, each raised by a call of message_examples.py while the page is written."""

import functools
import re
import warnings

import numpy as np
import operator_pages
import torch
from message_examples import CALLS, SETUP

import torch_lod as tl
from torch_lod import testing

INTRO = f"""# Error messages

For users who met an error of torch_lod and look for a call that raises it, or catch such errors.

<!-- {operator_pages.GENERATED} -->

Every call below was run, and what stands behind it is what it raised. A message begins with the call, and says what was
expected, what came instead, where, and often what to write. All are `tl.LoDError` as well as the class that is named
here; raw operators (`tl.ops`) raise the class alone. Messages of one form, as "expected x as
a LoDTensor", have one example. Mistakes that do not raise are listed in [what is not
caught](porting.md#what-is-not-caught).

```python
import torch, torch_lod as tl
import numpy as np
import torch.nn.functional as F

{SETUP.strip()}
```
"""


def raised(code: str) -> Exception | None:
    """What a call raises."""
    space: dict = {"torch": torch, "tl": tl, "np": np, "F": torch.nn.functional}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(SETUP, space)
        try:
            exec(compile(code, "an example", "exec"), space)
        except Exception as error:
            return error
    return None


def function_of(code: str, error: Exception) -> str:
    """The call that a message begins with; the errors of iterators begin with none."""
    match = re.match(r"(\w+(?:\.\w+)*): ", str(error)) or re.search(r"tl\.(?:\w+\.)*(\w+)\(", code)
    assert match is not None, code
    return match[1]


def _public(cls: type) -> set[str]:
    return {name for name in dir(cls) if name[0] != "_"} - set(dir(torch.Tensor))


@functools.cache
def sections() -> dict[str, set[str]]:
    """Headings, and the functions below each; what is in none belongs to torch."""
    operators = {*tl.sequence.__all__}
    methods = _public(tl.LoDTensor) | _public(tl.LoD) | {f"LoD.{name}" for name in _public(tl.LoD)}
    return {
        "Structure and tensors": {*tl.__all__, *methods} - operators,
        "Sequence operators": operators,
        "Modules: `tl.nn`": {*tl.nn.__all__},
        "Files and batches: `tl.data`": {*tl.data.__all__, "map"},
        "Between processes: `tl.distributed`": {*tl.distributed.__all__},
        "From Paddle: `tl.paddle`": {*tl.paddle.__all__},
        "Tests: `torch_lod.testing`": {*testing.__all__},
        "Operators on plain tensors: `tl.ops`": {*tl.ops.__all__},
    }


TORCH = "torch's functions and modules, and indices"


def _code(text: str) -> str:
    tick = "``" if "`" in text else "`"
    return f"{tick}{' '.join(text.split())}{tick}".replace("|", r"\|")


def builtin(error: Exception) -> str:
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins" and cls is not tl.LoDError)


def _heading(code: str, name: str) -> str:
    room = next((f"`{room}`" for room in ("tl.ops", "tl.data", "tl.nn") if f"{room}." in code), None)
    for heading, names in sections().items():
        if name in names and (room != "`tl.ops`" or room in heading):
            return heading
    return next((heading for heading in sections() if room and room in heading), TORCH)


def rows() -> dict[str, list[tuple[str, str, Exception]]]:
    """(function, call, error) below each heading, by function."""
    table: dict[str, list] = {heading: [] for heading in [*sections(), TORCH]}
    for code in CALLS:
        error = raised(code)
        assert error is not None, f"docs/message_examples.py: {code} raises nothing"
        name = function_of(code, error)
        table[_heading(code, name)].append((name, code, error))
    return {heading: sorted(entries, key=lambda e: e[:2]) for heading, entries in table.items() if entries}


def page() -> str:
    lines = [INTRO]
    for heading, entries in rows().items():
        lines += [f"## {heading}", "", "| function | call | error |", "|---|---|---|"]
        before = None
        for name, code, error in entries:
            first = "" if name == before else f"`{name}`"
            lines.append(f"| {first} | {_code(code)} | {builtin(error)}: {_code(str(error))} |")
            before = name
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
