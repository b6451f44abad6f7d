# SPDX-License-Identifier: Apache-2.0
"""tl.distributed on 1, 2 and 4 processes. tests/distributed/distributed_checks.py has what each of them checks."""

import contextlib
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from malformed_distributed import alone
from settings import PYTHONPATH

import torch_lod as tl

HERE = Path(__file__).parent


def run(*command, timeout: float = 1500) -> str:
    """What a program prints. It and the processes that it started are killed after the time."""
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said[-8000:]
    return said


def test_2_and_4_processes():
    said = run(HERE / "distributed_run.py")
    assert said.count("all right") == 6, said


def test_a_process_by_itself():
    x = tl.from_lengths(torch.randn(6, 2), [[1, 2, 3]], level_names=["text"]).requires_grad_()
    with pytest.raises(
        tl.LoDError, match=r"^all_gather: expected a process group, got none; call torch.distributed\.init"
    ):
        tl.distributed.all_gather(x)
    with alone():
        d = tl.distributed
        for y in (d.all_gather(x), d.gather(x), d.broadcast(x), d.scatter([x]), *d.all_to_all([x])):
            assert y.lod == x.lod and y.level_names == ("text",) and torch.equal(y.values(), x.values())
            x.grad = None
            y.sum().backward()
            assert (x.grad == 1).all()
        assert float(d.global_token_mean(x.detach().values()[:, 0])) == pytest.approx(float(x[:, 0].detach().mean()))
        assert d.global_token_count([x, 2]) == 8

        def step(x):
            return d.global_token_mean(d.all_gather(x * 2).square().sum(1))

        torch.testing.assert_close(torch.compile(step, backend="eager")(x), step(x))  # outside of the graph
        group = dist.group.WORLD
    with pytest.raises(tl.LoDError, match="expected a process group, got none"):
        tl.distributed.all_gather(x)
    with alone(), pytest.raises(tl.LoDError, match="expected a group that is in use, got one that was destroyed"):
        tl.distributed.all_gather(x, group=group)


def test_gradients_do_not_keep_a_destroyed_group():
    """Its threads would drop tensors while the interpreter ends, which ends the process by a signal."""
    x = tl.from_lengths(torch.randn(6, 2), [[1, 2, 3]]).requires_grad_()
    with alone():
        y = tl.distributed.all_gather(x)
        group = weakref.ref(dist.group.WORLD)
    assert group() is None
    with pytest.raises(tl.LoDError, match=r"^backward of all_gather: expected a process group that is in use, got one"):
        y.sum().backward()
