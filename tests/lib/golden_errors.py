# SPDX-License-Identifier: Apache-2.0
"""Inputs on which the other implementation raised, crashed or hung, each in a process of its own: what ours answers.

`answers(folder)` starts one Python, which imports everything once and forks for every input."""

import importlib
import json
import os
import signal
import subprocess
import sys

from settings import PYTHONPATH

SECONDS = 20


def answers(path, seconds: int = SECONDS, adapters: str = "golden_adapters") -> dict[str, tuple[bool, str]]:
    """For every input of errors.json whose operator has an adapter: whether it was answered, and how."""
    command = [sys.executable, "-W", "ignore", __file__, str(path), str(seconds), adapters]
    here = os.pathsep.join([PYTHONPATH, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": here})
    assert done.returncode == 0, done.stderr
    return {key: (ok, how) for key, ok, how in map(json.loads, done.stdout.splitlines())}


def _answer(folder, entry: dict, call) -> tuple[bool, str]:
    import torch
    from golden_cases import tensors_of

    import torch_lod as tl

    try:
        case = folder.error(entry)
        found = list(tensors_of(call(case)))
    except tl.LoDError as error:
        return bool(str(error)), f"{type(error).__name__}: {error}"
    except Exception as error:  # whatever is not a LoDError is no clear error
        return False, f"{type(error).__name__}: {error}"
    differentiable = [t for t in found if t.requires_grad]
    leaves = [leaf for slot in case.leaves.values() for leaf in slot]
    if differentiable:
        try:
            torch.autograd.grad([t.sum() for t in differentiable], leaves, allow_unused=True)
        except Exception as error:
            return False, f"in the gradient: {type(error).__name__}: {error}"
    return True, f"a result: {[tuple(t.shape) for t in found]}"


def _alone(seconds: int, write: int, work) -> str | None:
    """Runs `work` in a fork, which writes its answer to a pipe; None, or how the fork died."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            answered, how = work()
            os.write(
                write, json.dumps([answered, how[:2000]]).encode()
            )  # short enough for a pipe that has no reader yet
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"no answer in {seconds} s" if number == signal.SIGALRM else f"signal {number}"
    return None if os.WEXITSTATUS(status) == 0 else f"exit status {os.WEXITSTATUS(status)}"


def main(path: str, seconds: str, adapters: str) -> None:
    from golden_cases import Folder, adapter_of

    importlib.import_module(adapters)
    folder = Folder(path)
    for entry in folder.entries("errors.json"):
        call = adapter_of(entry)
        if call is None:
            continue
        read, write = os.pipe()
        died = _alone(int(seconds), write, lambda e=entry, a=call: _answer(folder, e, a))
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        print(json.dumps([entry["id"], *([False, died or "nothing said"] if died or not said else json.loads(said))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
