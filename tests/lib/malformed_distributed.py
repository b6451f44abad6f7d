# SPDX-License-Identifier: Apache-2.0
"""The rows of the catalogue (malformed_calls.py) of tl.distributed: a group of one process, and none."""

import contextlib
import functools
import os

import torch
import torch.distributed as dist
from malformed_calls import Call, one, rows, two

import torch_lod as tl


@contextlib.contextmanager
def alone():
    """A group of this process."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _alone(name: str, *args, **kwargs):
    with alone():
        result = getattr(tl.distributed, name)(*args, **kwargs)
        if name == "watch":
            with result:
                return None
        return result


def _watched(group=None):
    """Without a process group."""
    try:
        return tl.distributed.watch(group)
    except tl.LoDError as error:
        if group is None:
            assert "expected a process group, got none; call torch.distributed.init_process_group" in str(error)
        return None


def calls():
    given = {
        "all_gather": [((two(),), {"group": None}), ((rows(),), {})],
        "gather": [((two(), 0), {"group": None}), ((rows(),), {"dst": 0})],
        "scatter": [(([two()], 0), {"group": None}), (([rows()],), {})],
        "broadcast": [((two(), 0), {"group": None}), ((rows(),), {})],
        "all_to_all": [(([two()],), {"group": None}), (([rows()],), {})],
        "global_token_count": [(([two(), 3],), {"group": None}), ((2.5,), {})],
        "global_token_mean": [
            ((one(1)[:, 0],), {"mask": torch.tensor([True, False] * 3), "weight": rows(1)[:, 0].abs(), "total": 3.5}),
            ((rows(1)[:, 0],), {"mask": torch.tensor([True, False] * 3), "weight": rows(1)[:, 0].abs(), "group": None}),
        ],
        "watch": [((None,), {})],
    }
    for name, calls_of_it in given.items():
        for args, kwargs in calls_of_it:
            yield f"tl.distributed.{name}", Call(functools.partial(_alone, name), args, kwargs)
    yield "tl.distributed.watch", Call(_watched, (None,))
