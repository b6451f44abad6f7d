# SPDX-License-Identifier: Apache-2.0
"""The emulated device for Python: imported by tests/conftest.py where TORCH_LOD_EMULATED is set, before torch_lod."""

import contextlib
import types
from pathlib import Path

import torch

_LIBRARY = Path(__file__).resolve().parent.parent.parent / "torch_lod/_C.so"


def _module() -> types.ModuleType:
    """What torch looks for as torch.emu."""
    m = types.ModuleType("torch.emu")
    numbers = {
        "device_count": 1,
        "current_device": 0,
        "is_available": True,
        "is_initialized": True,
        "_is_in_bad_fork": False,
    }
    for name, answer in numbers.items():
        setattr(m, name, lambda answer=answer: answer)
    for name in ("set_device", "manual_seed", "manual_seed_all", "_lazy_init", "set_rng_state"):
        setattr(m, name, lambda *args: None)
    m.get_rng_state = lambda device=None: torch.empty(0, dtype=torch.uint8)
    m.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    m.synchronize = lambda device=None: torch.accelerator.synchronize()
    m.current_stream = lambda device=None: torch.accelerator.current_stream()
    m.device = lambda device: contextlib.nullcontext()
    m.is_current_stream_capturing = lambda: torch.ops.emulated_gpu.is_capturing()
    return m


def start() -> None:
    torch.ops.load_library(_LIBRARY)
    torch._register_device_module("emu", _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=False)


@contextlib.contextmanager
def late():
    """What kernels find wrong reaches the host when it next waits for the device, and not immediately."""
    torch.ops.emulated_gpu.late(True)
    try:
        yield
    finally:
        torch.accelerator.synchronize()
        torch.ops.emulated_gpu.late(False)


def counts() -> dict[str, int]:
    """What the device was asked to do since the last call: "launch", "upload", "op ...", "sync ...", "device assert"."""
    taken = (entry.rsplit("=", 1) for entry in torch.ops.emulated_gpu.take_counts())
    return {what: int(n) for what, n in taken}
