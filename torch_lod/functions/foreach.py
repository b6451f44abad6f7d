# SPDX-License-Identifier: Apache-2.0
"""torch._foreach_*, which optimizers and averages of models call: the function of every tensor of a list, and what other
lists have beside it."""

import torch
from torch import Tensor

from .layouts import structured
from .row import enter

#: What makes one result of a whole tensor, or of two matrices.
_OTHERS = ("max", "mm", "norm", "powsum")


def _maximum(input, other):
    return torch.maximum(input, other) if isinstance(other, Tensor) else torch.clamp_min(input, other)


def _minimum(input, other):
    return torch.minimum(input, other) if isinstance(other, Tensor) else torch.clamp_max(input, other)


_PAIRS = {"maximum": _maximum, "minimum": _minimum}


def _each(func: str, name: str) -> None:
    changes = name.endswith("_")
    single = _PAIRS.get(name.strip("_")) or getattr(Tensor if changes else torch, name, None)
    if single is None or name.strip("_") in _OTHERS:
        return

    def each(*args, **kwargs):
        lists = [value for value in (*args, *kwargs.values()) if isinstance(value, (tuple, list))]
        if not any(structured(t) for tensors in lists for t in tensors) or len({len(tensors) for tensors in lists}) > 1:
            return NotImplemented
        names = {"scalars": "value"} if name.startswith("addc") else {}
        kwargs = {names.get(key, key): value for key, value in kwargs.items()}
        if name.startswith("addc") and len(args) > 3:  # an option of the function for one tensor
            args, kwargs = args[:3], {**kwargs, "value": args[3]}
        results = []
        for i in range(len(lists[0])):
            given = [value[i] if isinstance(value, (tuple, list)) else value for value in args]
            options = {key: value[i] if isinstance(value, (tuple, list)) else value for key, value in kwargs.items()}
            result = single(*given, **options)
            results.append(given[0].copy_(result) if changes and result is not given[0] else result)
        return results if changes else tuple(results)

    # it runs under the rules of the single functions
    enter("", None, func, (torch,), run=each, run_at_dim=each, quick=True, takes_lost=True, writes=False)


for _name in dir(torch):
    if _name.startswith("_foreach_"):
        _each(_name, _name.removeprefix("_foreach_"))
