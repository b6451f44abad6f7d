# SPDX-License-Identifier: Apache-2.0
"""Cases recorded from another implementation (tests/golden/README.md): reads them, calls the adapter of their operator, and
compares outputs, LoDs and gradients."""

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import torch_lod as tl

OWN = Path(__file__).parents[1] / "golden"
#: Operator -> function of a Case that gives a dict, slot -> tensor or list of tensors.
ADAPTERS: dict[str, Callable] = {}
#: Adapter -> slot of in_grads -> the input slot that it belongs to, where the names differ.
GRADIENT_OF: dict[Callable, dict[str, str]] = {}
ANY = "any operator"
#: The rules by which cases marked `differs` are judged, in the order in which they are asked.
DIFFERENCES: list["Difference"] = []


def adapter(*operators: str, gradient_of: dict[str, str] | None = None):
    """Registers the function as the adapter of these operators. An operator "a/b" is operator "a" with paddle_op "b"."""

    def register(function):
        for operator in operators:
            assert operator not in ADAPTERS, operator
            ADAPTERS[operator] = function
        GRADIENT_OF[function] = gradient_of or {}
        return function

    return register


def adapter_of(entry: dict) -> Callable | None:
    return ADAPTERS.get(entry["op"]) or ADAPTERS.get(f"{entry['op']}/{entry['paddle_op']}")


@dataclass
class Difference:
    """What ours does, in words, for the cases of an operator (or ANY) whose `differs` begins with `reason`."""

    op: str
    reason: str
    words: str
    #: Whether a LoDError is right.
    raises: bool = False
    #: The lengths of a result with the recorded values, as a function of the case; None where a result is wrong.
    lengths: Callable | None = None
    #: Whether every result is right, the recorded values being Paddle's alone.
    any_result: bool = False


@dataclass
class WrongGradient:
    """A recorded gradient that is not the gradient of the recorded output: it is not compared, and the case differs."""

    op: str
    slot: str
    words: str
    when: Callable


@dataclass
class WrongRows:
    """Rows of a recorded output that no formula gives: they are not compared, and the case differs."""

    op: str
    words: str
    #: Their numbers, as a function of the case; none where nothing is wrong.
    rows: Callable


#: Found by these tests; the cases are not marked.
WRONG_GRADIENTS: list[WrongGradient] = []
WRONG_ROWS: list[WrongRows] = []


class Folder:
    def __init__(self, path):
        self.path = Path(path)

    def entries(self, name: str) -> list[dict]:
        file = self.path / name
        return json.loads(file.read_text()) if file.exists() else []

    @functools.lru_cache  # noqa: B019 - a folder lives as long as the process
    def arrays(self, name: str):
        return np.load(self.path / f"{name}.npz")

    def case(self, entry: dict, gradients_of=(), device: str = "cpu") -> "Case":
        return Case(entry, self.arrays(entry["op"]), gradients_of, device)

    def error(self, entry: dict) -> "Case":
        return Case(entry, self.arrays("_errors") if entry["inputs"] else {}, tuple(entry["inputs"]))


FOLDER = Folder(os.environ.get("TORCH_LOD_GOLDEN") or OWN)


@dataclass
class Case:
    """An entry with its inputs as tensors: `case["X"]` is a LoDTensor, a plain tensor where no LoD was recorded, or a list of
    them. Those of the slots in `gradients_of` require gradients."""

    entry: dict
    arrays: dict
    gradients_of: tuple = ()
    device: str = "cpu"
    leaves: dict[str, list[Tensor]] = field(default_factory=dict)
    made: dict = field(default_factory=dict)
    #: Outputs whose upstream gradient Paddle drops; an adapter names them.
    dropped: set = field(default_factory=set)

    @property
    def attrs(self) -> dict:
        return self.entry["attrs"]

    @property
    def differentiating(self) -> bool:
        return bool(self.gradients_of)

    def __contains__(self, slot: str) -> bool:
        return slot in self.entry["inputs"]

    def __getitem__(self, slot: str):
        if slot not in self.made:
            recorded = self.entry["inputs"][slot]
            made = [self._input(slot, e) for e in (recorded if isinstance(recorded, list) else [recorded])]
            self.made[slot] = made if isinstance(recorded, list) else made[0]
        return self.made[slot]

    def get(self, slot: str):
        return self[slot] if slot in self else None

    def wants(self, slot: str) -> bool:
        return slot in self.entry.get("outputs", ())

    def array(self, recorded: dict) -> Tensor:
        return torch.from_numpy(np.array(self.arrays[recorded["array_key"]]))

    def lengths(self, slot: str) -> list[list[int]]:
        return self.entry["inputs"][slot]["recursive_sequence_lengths"]

    def some_lengths(self) -> list[list[int]]:
        """The lengths of the first input that has any."""
        recorded = [e for v in self.entry["inputs"].values() for e in (v if isinstance(v, list) else [v])]
        return next((e["recursive_sequence_lengths"] for e in recorded if e["recursive_sequence_lengths"]), [])

    def _input(self, slot: str, recorded: dict) -> Tensor:
        values = self.array(recorded).to(self.device)
        if slot in self.gradients_of and values.is_floating_point():
            self.leaves.setdefault(slot, []).append(values.requires_grad_())
        lengths = recorded["recursive_sequence_lengths"]
        return tl.from_lengths(values, lengths) if lengths else values


@dataclass
class Outcome:
    kind: str  # "passed" or "differ"
    gradients: int = 0
    words: str = ""


def check(folder: Folder, entry: dict, device: str = "cpu") -> Outcome:
    """Runs a case on a device; AssertionError, or whatever the operator raises, where the result is not the recorded one."""
    call = adapter_of(entry)
    assert call is not None, f"{entry['id']}: {entry['op']} has no adapter"
    if entry.get("differs"):
        return Outcome("differ", words=_check_difference(call, folder.case(entry, (), device)))
    case = folder.case(entry, (), device)
    strange = [(w, rows) for w in WRONG_ROWS if w.op == entry["op"] and (rows := w.rows(case))]
    _compare_outputs(case, call(case), but_rows=[r for _, rows in strange for r in rows])
    if strange or not entry["grads"]:
        return Outcome("differ" if strange else "passed", words="; ".join(w.words for w, _ in strange))
    wrong = {w.slot: w.words for w in WRONG_GRADIENTS if w.op == entry["op"] and w.when(case)}
    gradients = _check_gradients(call, folder, entry, wrong, device)
    return Outcome("differ" if wrong else "passed", gradients, "; ".join(wrong.values()))


def _check_difference(call: Callable, case: Case) -> str:
    entry = case.entry
    rules = (d for d in DIFFERENCES if d.op in (entry["op"], ANY) and entry["differs"].startswith(d.reason))
    rule = next(rules, None)
    assert rule is not None, f"{entry['id']}: no rule in golden_adapters.py says what ours does: {entry['differs']}"
    try:
        got = call(case)
    except tl.LoDError as error:
        assert rule.raises, f"{entry['id']}: expected {rule.words}, got {error!r}"
        return rule.words
    if not rule.any_result:
        assert rule.lengths is not None, f"{entry['id']}: expected {rule.words}, got lengths {_lengths(got)}"
        _compare_outputs(case, got, rule.lengths(case))
    return rule.words


def _compare_outputs(case: Case, got: dict, lengths=None, but_rows=()) -> None:
    for slot, recorded in case.entry["outputs"].items():
        assert slot in got, f"{case.entry['id']}: the adapter gives no {slot}"
        for where, e, tensor in _paired(slot, recorded, got[slot]):
            found = _lengths(tensor)
            expected = e["recursive_sequence_lengths"] if lengths is None else lengths
            assert found == expected, f"{where}: expected lengths {expected}, got {found}"
            _compare(case, where, e, _plain(tensor), but_rows)


def _check_gradients(call: Callable, folder: Folder, entry: dict, wrong, device: str) -> int:
    grads = entry["grads"]
    names = GRADIENT_OF[call]
    wanted = {names.get(k, k): recorded for k, recorded in grads["in_grads"].items() if recorded and k not in wrong}
    if not wanted:
        return 0
    case = folder.case(entry, tuple(wanted), device)
    got = call(case)
    outputs, upstream = [], []
    for slot, recorded in grads["out_grads"].items():
        for where, e, tensor in [] if slot in case.dropped else _paired(slot, recorded, got[slot]):
            assert tensor.requires_grad, f"{where}: the output has no gradient"
            outputs.append(_plain(tensor))
            upstream.append(case.array(e).to(device))
    pairs = [pair for slot, e in wanted.items() for pair in _paired(slot, e, case.leaves.get(slot, []))]
    gradients = torch.autograd.grad(outputs, [leaf for _, _, leaf in pairs], upstream, allow_unused=True)
    for (where, e, leaf), gradient in zip(pairs, gradients):
        if e is not None:
            gradient = torch.zeros_like(leaf) if gradient is None else gradient
            _compare(case, f"gradient of {where}", e, _plain(gradient))
    return sum(e is not None for _, e, _ in pairs)


def _paired(slot: str, recorded, got):
    """(where, entry, tensor) of a slot of one tensor or several."""
    recorded = recorded if isinstance(recorded, list) else [recorded]
    got = list(got) if isinstance(got, (list, tuple)) else [got]
    assert len(got) == len(recorded), f"{slot}: expected {len(recorded)} tensors, got {len(got)}"
    return [(slot if len(got) == 1 else f"{slot}[{i}]", e, t) for i, (e, t) in enumerate(zip(recorded, got))]


def _compare(case: Case, where: str, recorded: dict, got: Tensor, but_rows=()) -> None:
    expected = case.array(recorded)
    assert got.dtype == expected.dtype, f"{where}: expected {expected.dtype}, got {got.dtype}"
    assert got.shape == expected.shape, f"{where}: expected shape {tuple(expected.shape)}, got {tuple(got.shape)}"
    tolerance = 0.0
    if expected.is_floating_point():
        tolerance = 1e-4 if case.entry["source"] == "paddle-test" else 1e-5
    kept = [r for r in range(len(got)) if r not in but_rows] if but_rows else ...
    torch.testing.assert_close(
        got.detach().cpu()[kept],
        expected[kept],
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
        msg=lambda text: f"{where}: {text}",
    )


def _lengths(got):
    if isinstance(got, dict):
        return {slot: _lengths(value) for slot, value in got.items()}
    if isinstance(got, (list, tuple)):
        return [_lengths(value) for value in got]
    return got.lod.to_lengths() if isinstance(got, tl.LoDTensor) else []


def tensors_of(got):
    """The tensors, without their LoDs, of what an adapter gives."""
    if isinstance(got, Tensor):
        yield _plain(got)
    else:
        for value in got.values() if isinstance(got, dict) else got:
            yield from tensors_of(value)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.values() if isinstance(tensor, tl.LoDTensor) else tensor
