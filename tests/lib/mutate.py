# SPDX-License-Identifier: Apache-2.0
"""Takes out the rules of the validators one at a time, and says which a test misses.

    python tests/lib/mutate.py [python | composed | compiled] [--list] [--only WORD]

python: torch_lod/structure/validate.py and lod.py. composed: torch_lod/ops/check.py, under TORCH_LOD_COMPOSED=1. compiled: every
TORCH_CHECK in csrc, in a build of its own in which each can be switched off. A rule is a `raise`, an operand of its
condition, a call of another check, or a fault that is returned. The exit status is the number of survivors, at most 99.
"""

import argparse
import ast
import copy
import gc
import os
import re
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What each file's rules are held by, beside the tables of wrong calls.
PYTHON = (
    *(f"robustness/test_{name}.py" for name in ("malformed", "errors", "state", "refused")),
    *("sequence/test_lod.py", "sequence/test_lod_tensor.py", "robustness/test_resources.py::test_too_large"),
)
REFUSED = (
    "laws/test_laws_ops.py::test_fakes_refuse_what_is_wrong_in_shape",
    "sequence/test_rnn.py::test_what_does_not_fit_is_refused",
    "sequence/test_attention.py::test_wrong_calls_are_refused",
    "sequence/test_plan.py",
)
HELD_BY = {
    "torch_lod/structure/validate.py": PYTHON,
    "torch_lod/structure/lod.py": (*PYTHON, "laws/test_compile.py"),
    "torch_lod/ops/check.py": REFUSED,
    "csrc": (*REFUSED, "robustness/test_gate.py", "sequence/test_lod.py"),
}
#: Rules that no test can miss, and why.
EQUIVALENT = {
    "validate.py:28 condition without: data.dtype == np.uint64": "no other integer of numpy is as large",
    "condition without: t.is_nested": "torch's dispatcher refuses nested tensors as well, in its own words",
    "check_errors(False)": "for GPUs: test_reading_structure_raises of tests/emulated_gpu",
    "TORCH_CHECK_INDEX(!position, said)": "an IndexError from a GPU: tests/emulated_gpu/check_device.py",
    "TORCH_CHECK_VALUE(false, said)": "a ValueError from a GPU: tests/emulated_gpu/check_device.py",
    "fewer than 2**63 pairs of query and key": "two sequences of 2**32 rows are more than memory holds",
}
#: Seconds that the tests of one mutant may take.
LIMIT = 300


@dataclass
class Mutant:
    name: str
    file: str
    tree: ast.Module | None = None


def _raises(node) -> bool:
    return isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body)


def _checks(node) -> bool:
    """A statement that only calls a check, as `is_floating(op, "values", values)`."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    called = ast.unparse(node.value.func)
    return not re.search(
        r"append|insert|update|super|register|setattr|cumsum|put$|_trace$|torch\._check$|add_safe", called
    )


def _faults(node) -> bool:
    """`if ...: return 1, index, before, here`: a fault that is returned."""
    if not isinstance(node, ast.If):
        return False
    last = node.body[-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple) and len(last.value.elts) >= 4


def mutants(file: str) -> Iterator[Mutant]:
    """The file without one rule."""
    path = ROOT / file
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    for at, node in enumerate(nodes):
        if not isinstance(node, ast.stmt) or getattr(node, "col_offset", 0) == 0:
            continue
        where = f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield Mutant(f"{where} no error: {ast.unparse(node)[:90]}", file, _without(tree, at))
        elif _checks(node):
            yield Mutant(f"{where} no check: {ast.unparse(node)[:90]}", file, _without(tree, at))
        elif _faults(node):
            yield Mutant(f"{where} no fault: {ast.unparse(node.test)[:90]}", file, _without(tree, at))
        if _raises(node) and isinstance(node.test, ast.BoolOp):
            for i, operand in enumerate(node.test.values):
                changed = copy.deepcopy(tree)
                test = list(ast.walk(changed))[at].test
                del test.values[i]
                yield Mutant(f"{where} condition without: {ast.unparse(operand)[:80]}", file, changed)


def _without(tree: ast.Module, at: int) -> ast.Module:
    changed = copy.deepcopy(tree)
    gone = list(ast.walk(changed))[at]
    for node in ast.walk(changed):
        for field in ("body", "orelse", "handlers", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and gone in block:
                block[block.index(gone)] = ast.copy_location(ast.Pass(), gone)
    return ast.fix_missing_locations(changed)


def _put(mutant: Mutant) -> None:
    """Gives the functions of the imported module the code of the mutant."""
    path = str(ROOT / mutant.file)
    found, stack = {}, [compile(ast.fix_missing_locations(mutant.tree), path, "exec")]
    while stack:
        code = stack.pop()
        found[code.co_name, code.co_firstlineno] = code
        stack += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename == path:
            code = found.get((function.__code__.co_name, function.__code__.co_firstlineno))
            if code is not None and len(code.co_freevars) == len(function.__code__.co_freevars):
                function.__code__ = code


def _directly() -> bool:
    """In a child: whether one of the tables of wrong calls is missed, asked without pytest, which takes seconds."""
    import test_laws
    import test_malformed

    if not test_laws.tl.ops.COMPILED and gate_is_open():
        return True
    tables = [
        (test_malformed.test_structure_is_refused, test_malformed.CASES),
        (test_malformed.test_raw_operators_refuse, test_malformed.RAW),
        (test_laws.test_refuses_what_is_wrong, test_laws.OPS),
    ]
    for test, cases in tables:
        for case in cases:
            try:
                test(case)
            except BaseException:  # pytest's own failure is no Exception
                return True
    return False


def gate_is_open() -> bool:
    """Whether a composition takes a tensor that is none for it: tests/robustness/test_gate.py asks in a process of its own."""
    import gate_cases

    for name, given in gate_cases.calls().items():
        for argument in gate_cases.tensors_of(name):
            for fault in gate_cases.FAULTS:
                for _, call in gate_cases.entries(name):
                    if gate_cases.check(name, argument, fault, call, given):
                        return True
    return False


def _tested(files) -> int:
    """In a child: runs the tests until one fails."""
    import pytest

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    files = [str(ROOT / "tests" / file) for file in files]
    chosen = "not crashes and not files and not catalogue and not process"
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen, *files]))


def killed(mutant: Mutant) -> bool | None:
    """Whether a test fails or the process dies; None if nothing ends, as a mutant may never, or a busy machine."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            if mutant.tree is not None:
                _put(mutant)
            else:
                os.environ["TORCH_LOD_SWITCHED_OFF"] = mutant.name.split()[0]
            code = int(_directly()) or _tested(HELD_BY[mutant.file])
        finally:
            os._exit(code)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        if time.monotonic() - began > LIMIT:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)


# -- compiled: one build in which every TORCH_CHECK asks whether it is switched off

SWITCHES = """
#include <c10/util/Exception.h>
#include <cstdlib>
#include <cstring>
#include <string>
inline bool lod_switched_off(const char* file, int line) {
  const char* off = std::getenv("TORCH_LOD_SWITCHED_OFF");
  const char* name = std::strrchr(file, '/');
  return off && std::string(name ? name + 1 : file) + ":" + std::to_string(line) == off;
}
#define LOD_UNLESS_OFF(cond) ((cond) || lod_switched_off(__FILE__, __LINE__))
"""
KINDS = {"VALUE": "ValueError", "TYPE": "TypeError", "INDEX": "IndexError"}


def sites() -> list[Mutant]:
    found = []
    for path in sorted((ROOT / "csrc").rglob("*.[hc]*")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\bTORCH_CHECK(_VALUE|_TYPE|_INDEX)\(", line) and path.suffix != ".cu":
                found.append(Mutant(f"{path.name}:{number} {line.strip()[:90]}", "csrc"))
    return found


def build() -> None:
    """The operators with switches, in build/mutate; the tests then run on them."""
    import torch.utils.cpp_extension as extension

    folder = ROOT / "build/mutate"
    folder.mkdir(parents=True, exist_ok=True)
    text = SWITCHES
    for kind, error in KINDS.items():
        text += f"#undef TORCH_CHECK_{kind}\n#define TORCH_CHECK_{kind}(cond, ...) "
        text += f'TORCH_CHECK_WITH_MSG({error}, LOD_UNLESS_OFF(cond), "{kind}", __VA_ARGS__)\n'
    (folder / "switches.h").write_text(text)
    flags = ["-O0", "-std=c++20", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-DLOD_BASE_ONLY", "-include"]
    flags += [str(folder / "switches.h"), f"-I{ROOT}/csrc", *(f"-I{path}" for path in extension.include_paths())]
    running, objects = [], []
    sources = [*ROOT.glob("csrc/kernels/*.cpp"), *ROOT.glob("csrc/bindings/*.cpp")]
    for source in sorted(sources, key=lambda path: -path.stat().st_size):
        objects.append(folder / f"{source.parent.name}_{source.stem}.o")
        while sum(process.poll() is None for process in running) >= int(os.environ.get("JOBS", "2")):
            time.sleep(0.1)
        running.append(subprocess.Popen(["g++", "-c", *flags, source, "-o", objects[-1]]))
    if any(process.wait() for process in running):
        sys.exit("the operators were not built")
    libraries = [f"-L{path}" for path in extension.library_paths()] + "-lc10 -ltorch_cpu -ltorch".split()
    command = ["g++", "-shared", "-fopenmp", *objects, *libraries, "-o", folder / "_C.so"]
    subprocess.run(command, check=True)


def run(kind: str, only: str, listed: bool) -> int:
    """In a process of its own: imports everything once, and forks for every mutant."""
    if kind == "compiled":
        all_of_them = sites()
    else:
        files = (
            ["torch_lod/ops/check.py"]
            if kind == "composed"
            else ["torch_lod/structure/validate.py", "torch_lod/structure/lod.py"]
        )
        all_of_them = [mutant for file in files for mutant in mutants(file)]
    chosen = [mutant for mutant in all_of_them if only in mutant.name]
    if listed:
        print(*(mutant.name for mutant in chosen), sep="\n")
        return 0
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / folder) for folder in ("lib", "laws", "robustness"))]
    if kind == "compiled":
        import torch

        build()
        load = torch.ops.load_library
        torch.ops.load_library = lambda path: load(ROOT / "build/mutate/_C.so")  # instead of the package's own
    import pytest  # noqa: F401
    import samples
    import torch

    torch.set_num_threads(1)
    assert samples.OPS
    import test_laws
    import test_malformed

    assert test_laws.OPS and test_malformed.CASES  # imported once, not in every child
    if killed(Mutant("nothing", chosen[0].file)) is not False:
        sys.exit("the tests fail without a mutation")
    survivors, said = [], {True: "killed  ", False: "SURVIVED", None: "no end  "}
    endless = 0
    for mutant in chosen:
        dead = killed(mutant)
        endless += dead is None
        if dead is False:
            survivors.append(mutant.name)
        print(said[dead], mutant.name, flush=True)
    unexplained = [name for name in survivors if not any(key in name for key in EQUIVALENT)]
    dead = len(chosen) - len(survivors) - endless
    print(f"mutate {kind}: {len(chosen)} rules, {dead} killed, {endless} without an end, {len(survivors)} survived")
    return min(len(unexplained), 99)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=["python", "composed"])
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if len(given.kinds) == 1:
        return run(given.kinds[0], given.only, given.list)
    status = 0
    for kind in given.kinds:
        env = {**os.environ, "TORCH_LOD_COMPOSED": str(int(kind == "composed"))}
        options = ["--only", given.only, *(["--list"] if given.list else [])]
        status += subprocess.run([sys.executable, "-W", "ignore", __file__, kind, *options], env=env).returncode
    return min(status, 99)


if __name__ == "__main__":
    sys.exit(main())
