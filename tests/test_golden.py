# SPDX-License-Identifier: Apache-2.0
"""Our operators against cases recorded from another implementation: `pytest -s tests/test_golden.py` prints how many agree.

TORCH_LOD_GOLDEN names another folder of the same layout."""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import golden_adapters  # noqa: F401 - registers the adapters
import golden_errors
import numpy as np
import pytest
from golden_cases import FOLDER, OWN, Folder, adapter_of, check

HERE = Path(__file__).parent
KINDS = ("passed", "differ", "failed")


def entries(name: str, adapted: bool = True) -> list[dict]:
    """The entries of a file whose operators have an adapter, or those whose have none."""
    return [entry for entry in FOLDER.entries(name) if (adapter_of(entry) is not None) == adapted]


class Tally:
    def __init__(self):
        self.kinds = collections.defaultdict(collections.Counter)
        self.words = collections.Counter()
        self.errors = collections.Counter()

    def total(self, kind: str) -> int:
        return sum(counts[kind] for counts in self.kinds.values())

    def lines(self):
        without = [collections.Counter(e["op"] for e in entries(f"{what}.json", False)) for what in ("cases", "errors")]
        yield f"{'operator':28}{'passed':>8}{'differ':>8}{'failed':>8}  gradients compared"
        for op, counts in sorted(self.kinds.items()):
            if any(counts[kind] for kind in KINDS):
                row = (f"{counts[kind]:8}" for kind in KINDS)
                yield f"{op:28}{''.join(row)}{counts['gradients']:8}"
        for (op, words), count in sorted(self.words.items()):
            yield f"differ: {op} ({count}): {words}"
        for what, counts in zip(("cases", "errors"), without):
            if counts:
                yield f"{what} without adapter: {', '.join(f'{op} {n}' for op, n in sorted(counts.items()))}"
        yield (
            f"golden: {self.total('passed')} passed, {self.total('differ')} differ as documented, "
            f"{self.total('failed')} failed, {without[0].total()} without adapter"
        )
        yield f"golden errors: {self.errors['answered']} answered, {self.errors['crashed']} crashed"


@pytest.fixture(scope="module")
def tally():
    counts = Tally()
    yield counts
    print("", *counts.lines(), sep="\n")


@pytest.fixture(scope="module")
def answers():
    return golden_errors.answers(FOLDER.path)


@pytest.mark.parametrize("entry", entries("cases.json"), ids=lambda entry: entry["id"])
def test_recorded_case(entry, tally, device):
    counts = tally.kinds[entry["op"]]
    counts["failed"] += 1
    outcome = check(FOLDER, entry, device)
    counts["failed"] -= 1
    counts[outcome.kind] += 1
    counts["gradients"] += outcome.gradients
    if outcome.kind == "differ":
        tally.words[entry["op"], outcome.words] += 1


@pytest.mark.parametrize("entry", entries("errors.json"), ids=lambda entry: entry["id"])
def test_refused_input(entry, tally, answers):
    answered, how = answers[entry["id"]]
    tally.errors["answered" if answered else "crashed"] += 1
    assert answered, how


# The harness itself: what is wrong must be seen.

POOLED = "sequence_pool/r/040"  # values, indices and gradients
STRUCTURED = "sequence_pool/r/051"  # two levels, so that a LoD is left
DIFFERENT = "lod_propagation/r/001"
STRANGE = "fusion_seqpool_concat/r/017"  # a row that is not compared
PLANTED = {
    "a value": (POOLED, lambda entry, arrays: arrays[entry["outputs"]["Out"]["array_key"]].__iadd__(1e-3)),
    "an index": (POOLED, lambda entry, arrays: arrays[entry["outputs"]["MaxIndex"]["array_key"]].__iadd__(1)),
    "a gradient": (POOLED, lambda entry, arrays: arrays[entry["grads"]["in_grads"]["X"]["array_key"]].__iadd__(1e-3)),
    "a length": (STRUCTURED, lambda entry, arrays: entry["outputs"]["Out"].update(recursive_sequence_lengths=[[1, 2]])),
    "a difference": (DIFFERENT, lambda entry, arrays: arrays[entry["outputs"]["Out"]["array_key"]].__iadd__(1e-3)),
    "a row beside strange ones": (
        STRANGE,
        lambda entry, arrays: arrays[entry["outputs"]["Out"]["array_key"]].__iadd__([[0], [0], [1e-3]]),
    ),
    "a reason": (DIFFERENT, lambda entry, arrays: entry.update(differs="for a reason that no rule has")),
}


def copied(path: Path, keys: list[str], plant=lambda entry, arrays: None) -> Folder:
    """A folder with these cases, the last of them changed by `plant`."""
    own = Folder(OWN)
    by_id = {entry["id"]: entry for entry in own.entries("cases.json")}
    entries = [by_id[key] for key in keys]
    arrays = {key: np.array(array) for entry in entries for key, array in own.arrays(entry["op"]).items()}
    plant(entries[-1], arrays)
    (path / "cases.json").write_text(json.dumps(entries))
    for op in {entry["op"] for entry in entries}:
        np.savez(path / f"{op}.npz", **arrays)
    return Folder(path)


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_fault_is_seen(what, tmp_path):
    key, plant = PLANTED[what]
    sound, planted = tmp_path / "sound", tmp_path / "planted"
    for folder in (sound, planted):
        folder.mkdir()
    folder = copied(sound, [key])
    check(folder, folder.entries("cases.json")[0])
    folder = copied(planted, [key], plant)
    with pytest.raises(AssertionError):
        check(folder, folder.entries("cases.json")[0])


def test_another_folder_is_counted_and_its_fault_turns_the_run_red(tmp_path):
    copied(tmp_path, [DIFFERENT, "sequence_softmax/r/005", POOLED], PLANTED["a gradient"][1])
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "-k", "recorded or refused", __file__]
    env = {**os.environ, "TORCH_LOD_GOLDEN": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "golden: 1 passed, 1 differ as documented, 1 failed, 0 without adapter" in lines
    assert lines[lines.index("golden errors: 0 answered, 0 crashed") - 1].startswith("golden: ")


DOOMED = """
import os, signal
from golden_cases import adapter
import torch_lod as tl

@adapter("polite")
def polite(c): raise tl.LoDError("polite: expected something else, got this")
@adapter("rude")
def rude(c): raise KeyError("rude")
@adapter("dying")
def dying(c): os.kill(os.getpid(), signal.SIGSEGV)
@adapter("hanging")
def hanging(c):
    while True: pass
@adapter("sound")
def sound(c): return {"Out": tl.sequence_pool(tl.from_lengths(c["X"], [[2]]), "sum")}
"""


def test_crashes_and_hangs_are_counted_and_not_fatal(tmp_path, monkeypatch):
    (tmp_path / "doomed.py").write_text(DOOMED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    x = {"array_key": "x", "shape": [2], "dtype": "float32", "recursive_sequence_lengths": []}
    operators = ("dying", "polite", "hanging", "rude", "unknown", "sound")
    entries = [{"id": op, "op": op, "paddle_op": op, "attrs": {}, "inputs": {"X": x}} for op in operators]
    (tmp_path / "errors.json").write_text(json.dumps(entries))
    np.savez(tmp_path / "_errors.npz", x=np.ones(2, np.float32))
    found = golden_errors.answers(tmp_path, seconds=1, adapters="doomed")
    assert found == {
        "dying": (False, "signal 11"),
        "polite": (True, "LoDError: polite: expected something else, got this"),
        "hanging": (False, "no answer in 1 s"),
        "rude": (False, "KeyError: 'rude'"),
        "sound": (True, "a result: [(1,)]"),
    }
