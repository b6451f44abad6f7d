# SPDX-License-Identifier: Apache-2.0
"""What goes to a GPU, and what comes back from it later.

Structure goes there from pinned memory, so that the host does not wait. A copy that is kept is enqueued in one stream;
others wait for it. What a graph captures is copied again by every replay: the pinned memory is kept for it, and the copy
is not, since before the first replay nothing is in it.
"""

import torch
from torch import Tensor

from .. import ops as ops
from ..dynamo import compiling
from ..errors import public

__all__ = ["check_errors", "kept", "upload", "usable"]

#: Types of devices that copy from pinned memory while the host goes on.
PINNED = {"cuda"}
#: Pinned memory that graphs copy from whenever they run.
_read_by_replays: list[Tensor] = []


def capturing(device: torch.device) -> bool:
    """Whether what is enqueued now is recorded into a graph."""
    if device.type not in PINNED:
        return False
    module = torch.get_device_module(device)
    if device.index in (None, module.current_device()):
        return module.is_current_stream_capturing()
    with module.device(device):
        return module.is_current_stream_capturing()


def upload(t: Tensor, device: torch.device) -> Tensor:
    """A tensor in host memory on a device; the tensor itself if it is there. The host does not wait for a GPU."""
    if t.device == device or compiling() or device.type not in PINNED or not t.is_cpu or type(t) is not Tensor:
        return t.to(device, non_blocking=True)
    pinned = t.pin_memory()
    if capturing(device):
        _read_by_replays.append(pinned)
    return pinned.to(device, non_blocking=True)


def upload_all(parts: list[Tensor], device: torch.device) -> list[Tensor]:
    """Vectors of int64 in host memory, on a device: in one copy. Each has a version of its own, since what a caller
    writes to one is none of the others' business."""
    if len(parts) == 1:
        return [upload(parts[0], device)]
    whole = upload(torch.cat(parts), device)
    return [t.data for t in whole.split([t.numel() for t in parts])]


def kept(t: Tensor) -> Tensor:
    """An uploaded tensor that calls in other streams may use as well, by `usable`."""
    if t.device.type in PINNED:
        stream = torch.accelerator.current_stream(t.device)
        t.uploaded = stream, stream.record_event()  # type: ignore[attr-defined]
    return t


def usable(t: Tensor) -> bool:
    """Whether a tensor that is kept still has its content; the current stream waits for it. A caller's write to a copy
    on a GPU changes its version."""
    if t.is_cpu:
        return True
    if t._version:
        return False
    by = getattr(t, "uploaded", None)
    if by is not None:
        now = torch.accelerator.current_stream(t.device)
        if now != by[0] and not capturing(t.device):  # a graph begins after all that was enqueued before
            now.wait_event(by[1])
            t.record_stream(now)
    return True


@public
def check_errors() -> None:
    """Raises what calls on GPUs found wrong with structure that they were given, and have not raised yet.

    The compiled operators look at offsets, maps and labels in host memory before they use them. On a GPU the host would
    have to wait: there a kernel looks at them, the operator clamps them, and the first fault is raised by a later call
    of any operator on a GPU. This call waits for the GPUs and asks.

    Raises:
        ValueError: for offsets that do not cut the rows.
        IndexError: for maps, runs and labels out of range.
    """
    torch.ops.torch_lod.check_errors()
