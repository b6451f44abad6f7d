# SPDX-License-Identifier: Apache-2.0
"""What torch.compile must be told about LoDTensor."""

import sys
from typing import Any

import torch


def admit(cls: type) -> None:
    """Up to torch 2.14, AOTAutograd refuses operators that are given a Tensor subclass it does not know (pytorch#193932).

    Ours has no __torch_dispatch__, so below the landing it is an ordinary tensor and may be named among those that are
    handled. AOTAutograd keeps a copy of the list: both are told, the copy only where it exists already.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15):
        return
    for name in ("torch.fx.experimental.proxy_tensor", "torch._functorch._aot_autograd.runtime_wrappers"):
        module: Any = sys.modules.get(name)
        if module is not None and cls not in module.HANDLED_TYPES:
            module.HANDLED_TYPES = (*module.HANDLED_TYPES, cls)
