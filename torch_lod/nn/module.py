# SPDX-License-Identifier: Apache-2.0
"""What the modules share."""

import torch
from torch import Tensor

from ..structure.validate import an_int


def at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        an_int(f"{name} as an int of at least 1", size, 1)


class Constants(torch.nn.Module):
    """A module with tensors of its arguments: buffers that its state does not have, as no other package's has, and that
    come back where a module without memory (on the device "meta") gets some."""

    _constants: dict[str, Tensor]

    def constant(self, name: str, value: Tensor, device: torch.device) -> None:
        self.__dict__.setdefault("_constants", {})[name] = value.detach()
        self.register_buffer(name, value.to(device), persistent=False)

    def restore(self, names: list[str] | None = None) -> None:
        for name, value in self.__dict__.get("_constants", {}).items():
            now = getattr(self, name)
            if not now.is_meta and (names is None or name in names):
                setattr(self, name, value.to(now.device, now.dtype))

    def _apply(self, fn, recurse=True):
        missing = [name for name in self.__dict__.get("_constants", {}) if getattr(self, name).is_meta]
        super()._apply(fn, recurse)
        self.restore(missing)
        return self


def unusual(module: torch.nn.Module, defaults: dict) -> str:
    """For a repr: the options that differ from their defaults."""
    values = {name: getattr(module, name) for name in defaults}
    return "".join(f", {name}={value!r}" for name, value in values.items() if value != defaults[name])
