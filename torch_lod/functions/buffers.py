# SPDX-License-Identifier: Apache-2.0
"""Functions that write rows into a plain tensor: `torch.zeros(k, d).index_add_(0, index, x)`, `positions *= mask`. The tensor
becomes what the function gives that returns a new one: a tensor that lost its structure, or a LoDTensor.

Only a tensor whose memory no other has: a view of it, or what it is a view of, would not know of the rows. Not in a graph, where a
tensor cannot become one of another class.
"""

from typing import Any

import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import without_dispatch
from ..structure.memory import ONCE, users
from ..tensor.attach import become
from ..tensor.provenance import placed, provenance_of


def _is_alone(t) -> bool:
    """Whether it is a plain tensor, or one that lost its structure, of memory that no other tensor has."""
    p = provenance_of(t)
    if type(t) is not Tensor and (p is None or p.dim is not None or p.part is not None):
        return False
    if compiling() or t.layout != torch.strided or t._base is not None or (t.is_leaf and t.requires_grad):
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(t) or torch._C._len_torch_dispatch_stack():
        return False
    return users(t) == ONCE


def becoming(twin_name: str, only_rows: bool) -> dict[str, Any]:
    """What runs instead of a function in place, by the one that returns a new tensor. With `only_rows` it stays refused where rows
    are lost, as in running means."""
    twin = getattr(Tensor, twin_name)

    def write(target, *args, **kwargs):
        if not _is_alone(target) or (only_rows and type(target) is not Tensor):
            return NotImplemented
        result = twin(target.clone(), *args, **kwargs)
        if provenance_of(result) is None or (only_rows and placed(result) is None):
            return NotImplemented
        if result.shape != target.shape or not torch.can_cast(result.dtype, target.dtype):
            return NotImplemented
        with without_dispatch():
            target.copy_(result)
        return become(target, provenance_of(result))

    return {"run": write, "run_at_dim": write, "takes_lost": True, "quick": True}
