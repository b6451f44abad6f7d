# SPDX-License-Identifier: Apache-2.0
"""What the modules share."""

import torch

from ..errors import LoDValueError, shown


def at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise LoDValueError(f"expected {name} as an int of at least 1, got {shown(size)}")


def unusual(module: torch.nn.Module, defaults: dict) -> str:
    """For a repr: the options that differ from their defaults."""
    values = {name: getattr(module, name) for name in defaults}
    return "".join(f", {name}={value!r}" for name, value in values.items() if value != defaults[name])
