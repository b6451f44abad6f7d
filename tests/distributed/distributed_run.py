# SPDX-License-Identifier: Apache-2.0
"""Runs tests/distributed/distributed_checks.py on 2 and on 4 processes of gloo over loopback.

The processes are forked from this one, which has imported torch and run nothing: their start costs next to nothing. Every
process runs all checks of a list, in order. It ends with what went wrong, and kills them if they do not end by themselves.
"""

import functools
import importlib
import itertools
import os
import re
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

#: A busy machine takes its time.
TIMEOUT = timedelta(seconds=60)
DEADLINE = 400.0


def child(rank: int, world: int, folder: str, checks, timeout: timedelta, programs: bool) -> str:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = f"file://{folder}/meeting"
    meet = functools.partial(dist.init_process_group, rank=rank, world_size=world, timeout=timeout)
    if programs:  # they meet themselves, as torchrun tells them
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "TEST_FOLDER": folder}
        meetings = itertools.count()
        dist.init_process_group = lambda backend: meet(backend, init_method=f"{meeting}.{next(meetings)}")
    else:
        meet("gloo", init_method=meeting)
    for check in checks:
        torch.manual_seed(rank)
        try:
            check()
        except BaseException:
            return f"{check.__name__} on rank {rank} of {world}:\n{traceback.format_exc()}"
    return ""


def run(world: int, checks, timeout: timedelta = TIMEOUT, lost=(), programs: bool = False) -> list[str]:
    """What went wrong. Processes in `lost` end early or hang; `programs` make the process group themselves."""
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                said = child(rank, world, folder, checks, timeout, programs)
                with open(f"{folder}/part.{rank}", "w") as file:
                    file.write(said)
                os.rename(f"{folder}/part.{rank}", f"{folder}/said.{rank}")
                os._exit(0)
            pids.append(pid)
        wanted = [f"{folder}/said.{rank}" for rank in range(world) if rank not in lost]
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end and not all(map(os.path.exists, wanted)):
            time.sleep(0.05)
        for pid in pids:
            os.kill(pid, 9)
        for pid in pids:
            os.waitpid(pid, 0)
        said = [open(path).read() if os.path.exists(path) else f"{path[-1]} did not end" for path in wanted]
    return [words for words in said if words]


def started_by_torchrun() -> str:
    """What went wrong with the example; torchrun's launcher, with processes that are forked as well."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    nodes = {"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 2}
    meeting = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": str(os.getpid())}
    launch = elastic_launch(LaunchConfig(**nodes, **meeting, start_method="fork", max_restarts=0), example)
    with tempfile.TemporaryDirectory() as folder:
        said = launch(["--epochs", "1", "--workers", "0", "--out", folder])
    last = r"test accuracy \d+\.\d% \(2 processes, DistributedDataParallel\)\n$"
    return "" if re.search(last, said[0]) and not said[1] else str(said)


def example(options: list[str]) -> str:
    """What it prints on one of the processes."""
    return importlib.import_module("distributed_examples").printed(
        importlib.import_module("distributed_training"), *options
    )


if __name__ == "__main__":
    plan = importlib.import_module("distributed_checks").plan
    failed = False
    for world, checks, options in plan():
        went_wrong = run(world, checks, **options)
        print("\n".join(went_wrong) or f"{world} processes, {len(checks)} checks: all right", flush=True)
        failed |= bool(went_wrong)
    said = started_by_torchrun()
    print(said or "2 processes of torchrun: all right")
    sys.exit(int(failed or bool(said)))
