# SPDX-License-Identifier: Apache-2.0
"""Runs the catalogue: every entry point with every malformed argument, in processes that may die.

    python tests/lib/malformed_pool.py [--short] [--only WORD] [--shard I/N] [--list]

A call passes if it returns a valid result or raises an exception. It fails if the process dies, if it takes longer than
LIMIT seconds, and if what it returns is no valid structure; the run goes on behind it, in a new process.
"""

import argparse
import ctypes
import faulthandler
import itertools
import json
import logging
import mmap
import os
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
from malformed_calls import RAW, calls
from malformed_classes import malformed, one_freed

import torch_lod as tl

LIMIT = float(os.environ.get("MALFORMED_LIMIT_S", "20"))
#: Memory that a call may ask for beyond what the process has; what asks for more is refused by the system, as anywhere.
MEMORY = 2 << 30
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")


# -- cases


def fresh(value):
    """A valid argument that no other thread holds."""
    if isinstance(value, tl.LoDTensor):
        return value.with_values(value.values().clone())
    if type(value) is torch.Tensor and not value.is_nested:
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(map(fresh, value))
    return value


def _replaced(call, at, make):
    """The arguments with one of them malformed."""
    args = [make() if i == at else fresh(arg) for i, arg in enumerate(call.args)]
    return args, {name: make() if name == at else fresh(value) for name, value in call.kwargs.items()}


def _plain(call, at, make):
    args, kwargs = _replaced(call, at, make)
    return lambda: look(call.function(*args, **kwargs))


def leaf(value):
    if isinstance(value, tl.LoDTensor):
        return value.with_values(leaf(value.values()))
    if isinstance(value, torch.Tensor) and type(value) is torch.Tensor and value.is_floating_point():
        return value.detach().requires_grad_()
    return value


def _backward(result) -> None:
    found = [t for t in _tensors(result) if t.requires_grad and t.is_floating_point() and not t.is_nested]
    if found:
        torch.autograd.backward(found, [torch.ones_like(t) for t in found])


def _graded(call, at, make):
    """The same with gradients: forward and backward."""

    def run():
        args, kwargs = _replaced(call, at, make)
        result = call.function(*map(leaf, args), **{name: leaf(value) for name, value in kwargs.items()})
        look(result)
        _backward(result)

    return run


def _between(call, at, change):
    """An argument changes between forward and backward."""

    def run():
        args, kwargs = [*map(fresh, call.args)], {name: fresh(value) for name, value in call.kwargs.items()}
        given = args[at] if isinstance(at, int) else kwargs[at]
        result = call.function(*map(leaf, args), **{name: leaf(value) for name, value in kwargs.items()})
        change(given)
        _backward(result)

    return run


def _overwrite(value):
    with torch.no_grad():
        rows = value.values() if isinstance(value, tl.LoDTensor) else value
        rows.data.fill_(10**9 if rows.dtype == torch.int64 else 1)


def excluded(entry: str, at, kind: str, name: str) -> bool:
    """Whether torch itself reads memory that is gone, before a check of ours or without one: it indexes with it, prints it
    in a message that says that it does not fit the schema of an operator, and works out gradients from what autograd saved.
    """
    gone = kind in ("D2", "D3") or name.endswith(("freed", "zero"))
    raw = RAW.get(entry.rpartition(".")[2]) if entry.startswith(("torch.ops.", "tl.ops.")) else None
    if kind == "D4":
        return raw is None or not tl.ops.COMPILED or entry.endswith("_composed") or entry.startswith("tl.ops.")
    if raw is None:
        return gone and entry in ("LoDTensor.__getitem__", "LoDTensor.__setitem__")
    argument = next(a for i, a in enumerate(raw.arguments) if at in (i, a.name))
    return gone and "Tensor" not in str(argument.type)


def cases():
    """(name, entry point, class, what to call), in an order that is always the same."""
    for number, (entry, call) in enumerate(calls()):
        for at in [*range(len(call.args)), *call.kwargs]:
            value = call.args[at] if isinstance(at, int) else call.kwargs[at]
            for kind, name, make in malformed(value):
                if excluded(entry, at, kind, name):
                    continue
                label = f"{entry} #{number} [{at}] {kind} {name}"
                yield label, entry, kind, lambda c=call, a=at, m=make: _plain(c, a, m)()
                if kind != "D1":
                    yield f"{label}, with gradient", entry, kind, lambda c=call, a=at, m=make: _graded(c, a, m)()
            if isinstance(value, torch.Tensor) and not value.is_nested:
                for kind, change in (("A17", _overwrite), ("D4", one_freed)):
                    if excluded(entry, at, kind, ""):
                        continue
                    label = f"{entry} #{number} [{at}] {kind} between forward and backward"
                    yield label, entry, kind, lambda c=call, a=at, f=change: _between(c, a, f)()
        for name, args, kwargs in (
            ("none", (), {}),
            ("one less", call.args[:-1], call.kwargs),
            ("many", call.args + (1,) * 30, call.kwargs),
            ("unknown", call.args, {**call.kwargs, "no_such_option": 1}),
        ):
            label = f"{entry} #{number} C8 {name}"
            yield label, entry, "C8", lambda c=call, a=args, k=kwargs: look(c.function(*map(fresh, a), **k))


def sample(every):
    """One case of each class of each entry point, not always the first."""
    groups: dict[tuple, list] = {}
    for case in every:
        groups.setdefault(case[1:3], []).append(case)
    for (entry, kind), group in groups.items():
        yield group[zlib.crc32(f"{entry} {kind}".encode()) % len(group)]


# -- results


def _tensors(result):
    if isinstance(result, torch.Tensor):
        return [result]
    items = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    return [t for item in items for t in _tensors(item)]


class Invalid(BaseException):
    """A result that no call may give; not an Exception, which every call may raise."""


def look(result, depth: int = 0) -> None:
    """Reads a result, all of it; Invalid if a LoD breaks its rules."""
    if isinstance(result, tl.LoDTensor):
        if result.dim() == 0 or result.shape[0] != result.lod.rows:
            raise Invalid(f"{result.lod.rows} rows in the LoD of {tuple(result.shape)}")
        look(result.lod)
        look(result.values())
    elif isinstance(result, tl.LoD):
        if result.depth < 100 and not (tl.LoD(result.to_list()) == result and result.levels[-1][-1] == result.rows):
            raise Invalid(f"a LoD that is not valid: {result}")
    elif isinstance(result, torch.Tensor):
        _read(result)
    elif isinstance(result, dict):
        look([*result.values()], depth)
    elif isinstance(result, (list, tuple)) and depth < 5:
        for item in result[:100]:
            look(item, depth + 1)
    elif hasattr(result, "__next__"):
        look([*itertools.islice(result, 10)], depth + 1)


def _read(t) -> None:
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided or not t.is_cpu or t.is_nested:
        return
    t = t.detach()
    end = 1 + t.storage_offset() + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True))
    if 0 < t.numel() < 10**6 and t.untyped_storage().nbytes() >= end * t.element_size():
        t.clone()


# -- processes


class Report:
    """What the process that runs cases tells the one that watches it: the case it is at, and counts."""

    FIELDS = ("at", "returned", "raised")

    def __init__(self):
        self.memory = mmap.mmap(-1, 8 * len(self.FIELDS))
        self.numbers = (ctypes.c_int64 * len(self.FIELDS)).from_buffer(self.memory)

    def __getitem__(self, name):
        return self.numbers[self.FIELDS.index(name)]

    def __setitem__(self, name, value):
        self.numbers[self.FIELDS.index(name)] = value


def _work(chunk, start: int, report: Report, said) -> None:
    """In the child: cases from `start` on."""
    faulthandler.enable(said, all_threads=False)
    if not SANITIZED:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    seen: dict[str, int] = {}
    for at in range(start, len(chunk)):
        report["at"] = at
        name, _, _, run = chunk[at]
        try:
            run()
        except (Exception, torch._C._LinAlgError) as error:
            report["raised"] += 1
            text = f"{type(error).__name__}: {error}"[:300]
            if isinstance(error, SystemError) or "INTERNAL ASSERT" in text:
                said.write(json.dumps({"note": name, "said": text}) + "\n")
        except BaseException as error:
            said.write(json.dumps({"bad": name, "said": f"{type(error).__name__}: {error}"[:300]}) + "\n")
        else:
            report["returned"] += 1
        for line in _reported(seen):
            said.write(json.dumps({"bad": name, "said": line}) + "\n")
        said.flush()
    report["at"] = len(chunk)


def _reported(seen: dict[str, int]) -> list[str]:
    """What sanitizers have written about this process since the last call; `seen`: how much of each file that was."""
    new = []
    for kind in ("", ".undefined") if SANITIZED else ():
        path = Path(f"{os.environ['MALFORMED_REPORTS']}{kind}.{os.getpid()}")
        if path.exists() and path.stat().st_size > seen.get(kind, 0):
            text = path.read_bytes()[seen.get(kind, 0) :]
            seen[kind] = seen.get(kind, 0) + len(text)
            new += re.findall(r"ERROR: .{0,100}|runtime error: .*", text.decode(errors="replace"))
    return new


def _watch(child: int, report: Report) -> str | None:
    """What the child died of."""
    seen, since = -1, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if report["at"] != seen:
            seen, since = report["at"], time.monotonic()
        elif time.monotonic() - since > LIMIT:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"no end in {LIMIT:.0f} s"
        time.sleep(0.002)
    if os.WIFSIGNALED(status):
        return f"died of {signal.Signals(os.WTERMSIG(status)).name}"
    return None if os.WEXITSTATUS(status) == 0 else f"ended with {os.WEXITSTATUS(status)}"


def run(chunk) -> dict:
    """Runs the cases; what failed, by name."""
    report, failures, notes = Report(), [], []
    start = 0
    while start < len(chunk):
        with tempfile.TemporaryFile("w+") as said:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    _work(chunk, start, report, said)
                    code = 0
                finally:
                    os._exit(code)
            died = _watch(child, report)
            said.seek(0)
            lines = said.read().splitlines()
        for line in lines:
            if line.startswith("{"):
                fact = json.loads(line)
                (failures if "bad" in fact else notes).append((fact.get("bad", fact.get("note")), fact["said"]))
        if died:
            stack = [line.strip() for line in lines if line.startswith("  File")]
            failures.append((chunk[report["at"]][0], died + "".join(f"\n    {line}" for line in stack[:6])))
            report["at"] += 1
        start = report["at"]
    return {"failures": failures, "notes": notes, "returned": report["returned"], "raised": report["raised"]}


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one case of each class of each entry point")
    parser.add_argument("--only", default="", help="cases whose name has this (a regular expression)")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    chosen = list(sample(cases()) if given.short else cases())
    shard, of = map(int, given.shard.split("/"))
    chosen = [case for case in chosen if re.search(given.only, case[0])][shard::of]
    if given.list:
        print("\n".join(case[0] for case in chosen))
        return 0
    began = time.monotonic()
    found = run(chosen)
    for name, said in found["failures"]:
        print(f"FAILED {name}: {said}")
    for said, count in Counter(said for _, said in found["notes"]).most_common(20):
        print(f"note ({count} of): {said}")
    pairs = {case[1:3] for case in chosen}
    print(
        f"{len({entry for entry, _ in pairs})} entry points, {len({kind for _, kind in pairs})} classes, "
        f"{len(pairs)} pairs, {len(chosen)} calls: {found['returned']} returned, {found['raised']} raised, "
        f"{len(found['failures'])} failed, in {time.monotonic() - began:.0f} s"
    )
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
