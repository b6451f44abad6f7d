# SPDX-License-Identifier: Apache-2.0
"""Functions that write rows into a plain tensor: `torch.zeros(k, d).index_add_(0, index, x)`, `positions *= mask`. The tensor
becomes what the function gives that returns a new one: a tensor that lost its structure, or a LoDTensor.

Only a tensor whose memory no other has: a view of it, or what it is a view of, would not know of the rows. Not in a graph, where a
tensor cannot become one of another class.
"""

import torch
from torch import Tensor

from ..dynamo import compiling
from ..errors import without_policy
from ..structure.memory import ONCE, users
from ..tensor import rules
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


def _becoming(name: str, twin_name: str, only_rows: bool) -> None:
    """Routes a function in place by the one that returns a new tensor. With `only_rows` it stays refused where rows are lost, as
    in running means."""
    func, twin = getattr(Tensor, name), getattr(Tensor, twin_name)

    def write(target, *args, **kwargs):
        if not _is_alone(target) or (only_rows and type(target) is not Tensor):
            return NotImplemented
        result = twin(target.clone(), *args, **kwargs)
        if provenance_of(result) is None or (only_rows and placed(result) is None):
            return NotImplemented
        if result.shape != target.shape or not torch.can_cast(result.dtype, target.dtype):
            return NotImplemented
        with without_policy():
            target.copy_(result)
        return become(target, provenance_of(result))

    route = rules.RULES[func] = rules.Route(write, rules.RULES.get(func))
    route.elsewhere, route.lost = write, True


for _name in ("index_add", "index_reduce", "scatter_add", "scatter_reduce"):
    _becoming(f"{_name}_", _name, False)
for _name, _twin in (
    ("mul_", "mul"),
    ("masked_fill_", "masked_fill"),
    ("__imul__", "__mul__"),
    ("__iand__", "__and__"),
):
    _becoming(_name, _twin, True)  # masks; sums of rows into a tensor may be meant for one that outlives the batch
