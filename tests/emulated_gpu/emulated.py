# SPDX-License-Identifier: Apache-2.0
"""The emulated device for Python: imported by tests/conftest.py where TORCH_LOD_EMULATED is set, before torch_lod."""

import contextlib
import os
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

_LIBRARY = Path(__file__).resolve().parent.parent.parent / "torch_lod/_C.so"


def _module() -> types.ModuleType:
    """What torch looks for as torch.emu."""
    m = types.ModuleType("torch.emu")
    said = {"device_count": 1, "current_device": 0, "is_available": True, "_is_in_bad_fork": False}
    for name, answer in (said | {"is_initialized": True}).items():
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


def capability() -> tuple[int, ...]:
    """Of the device: EMULATED_CAPABILITY in the environment, 7.5 if it is not set."""
    return tuple(map(int, os.environ.get("EMULATED_CAPABILITY", "7.5").split(".")))


def runs_flash_attention(device: torch.device) -> bool:
    return device.type == "emu" and capability() >= (8, 0)


# torch's flash attention: what it documents and no more. It takes only what its checks let through, and what its kernels
# read in words of 16 bytes; without return_debug_mask, dropout, and what the package does not ask for.


def _strict(q, k, v, cuts, key_cuts, longest, longest_keys):
    assert capability() >= (8, 0), "FlashAttention only supports Ampere GPUs or newer."
    for t in (q, k, v):
        assert t.dtype in (torch.float16, torch.bfloat16) and t.dtype == q.dtype and t.shape[2] == q.shape[2] <= 256
        assert t.stride(2) == 1 and t.shape[2] % 8 == t.stride(0) % 8 == t.stride(1) % 8 == t.data_ptr() % 16 == 0
    assert k.shape == v.shape and q.shape[1] % k.shape[1] == 0
    for t, most, rows in ((cuts, longest, q), (key_cuts, longest_keys, k)):
        assert t.dtype == torch.int32 and t.is_contiguous() and len(t) == len(cuts) > 1
        steps = t.cpu().diff()
        assert int(t[0]) == 0 and int(t[-1]) == len(rows) and 0 <= int(steps.min()) and int(steps.max()) <= most


def _attended(q, k, v, cuts, key_cuts, causal, scale, left, right):
    """In float32, in host memory: the result, and the logarithms of the sums of exponentials, (heads, rows)."""
    outs, sums = [], []
    for i, j in zip(cuts.tolist()[:-1], cuts.tolist()[1:]):
        a, b = key_cuts[len(outs) : len(outs) + 2].tolist()
        ahead = torch.arange(b - a)[None] - (torch.arange(j - i)[:, None] + (b - a) - (j - i))
        most = 0 if causal else right if right >= 0 else b - a + j - i
        seen = (ahead >= -left if left >= 0 else True) & (ahead <= most)
        rows, keys, values = (
            q[i:j].transpose(0, 1),
            *(t[a:b].repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(0, 1) for t in (k, v)),
        )
        x = (scale * rows @ keys.transpose(1, 2)).masked_fill(~seen, -torch.inf)
        sums.append(x.logsumexp(2))
        outs.append((x.softmax(2).masked_fill(~seen.any(1)[:, None], 0) @ values).transpose(0, 1))
    return torch.cat(outs), torch.cat(sums, 1)


def _host(*tensors):
    return [t.detach().cpu().float() for t in tensors]


def _flash_forward(q, k, v, cuts, key_cuts, longest, longest_keys, dropout, causal, mask, *, scale=None,
                   window_size_left=-1, window_size_right=-1, **others):  # fmt: skip
    _strict(q, k, v, cuts, key_cuts, longest, longest_keys)
    assert dropout == 0 and not mask and not any(value is not None for value in others.values())
    window = q.shape[2] ** -0.5 if scale is None else scale, window_size_left, window_size_right
    out, sums = _attended(*_host(q, k, v), cuts.cpu(), key_cuts.cpu(), causal, *window)
    _flash_calls.append("forward")
    none = torch.zeros((), dtype=torch.int64, device=q.device)
    return out.to(q.dtype).to(q.device), sums.to(q.device), none, none, none


def _flash_backward(grad, q, k, v, out, sums, cuts, key_cuts, longest, longest_keys, dropout, causal, state, unused, *,
                    scale=None, window_size_left=-1, window_size_right=-1):  # fmt: skip
    _strict(q, k, v, cuts, key_cuts, longest, longest_keys)
    _strict(grad.contiguous(), k, v, cuts, key_cuts, longest, longest_keys)
    window = q.shape[2] ** -0.5 if scale is None else scale, window_size_left, window_size_right
    leaves = [t.requires_grad_() for t in _host(q, k, v)]

    def differentiated():
        again, _ = _attended(*leaves, cuts.cpu(), key_cuts.cpu(), causal, *window)
        return torch.autograd.grad(again, leaves, *_host(grad))

    _flash_calls.append("backward")
    with ThreadPoolExecutor(1) as elsewhere:  # autograd is off in this thread
        return tuple(g.to(q.dtype).to(q.device) for g in elsewhere.submit(differentiated).result())


_flash_calls: list[str] = []
_flash = torch.library.Library("aten", "IMPL")


def flash_calls() -> list[str]:
    """Of torch's flash attention, since the last question."""
    calls = [*_flash_calls]
    _flash_calls.clear()
    return calls


def start() -> None:
    torch.ops.load_library(_LIBRARY)
    _flash.impl("_flash_attention_forward", _flash_forward, "PrivateUse1")
    _flash.impl("_flash_attention_backward", _flash_backward, "PrivateUse1")
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


def largest_allocation() -> int:
    """The bytes of the largest allocation since the last question."""
    return torch.ops.emulated_gpu.largest_allocation()


@contextlib.contextmanager
def work():
    """A dict that is filled with the steps of the longest thread of every kernel, and of an average one that is busy."""
    torch.ops.emulated_gpu.record_work(True)
    found: dict[str, tuple[int, int]] = {}
    try:
        yield found
    finally:
        for entry in torch.ops.emulated_gpu.take_work():
            kernel, numbers = entry.rsplit("=", 1)
            longest, mean = map(int, numbers.split(","))
            found[kernel] = longest, mean
        torch.ops.emulated_gpu.record_work(False)


def counts() -> dict[str, int]:
    """What the device was asked to do since the last call: "launch", "upload", "op ...", "sync ...", "device assert"."""
    taken = (entry.rsplit("=", 1) for entry in torch.ops.emulated_gpu.take_counts())
    return {what: int(n) for what, n in taken}
