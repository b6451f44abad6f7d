# SPDX-License-Identifier: Apache-2.0
"""What a plain tensor is beside rows, said by its caller: its size alone does not tell."""

import torch
from torch import Tensor

from ..errors import LoDTypeError, public, shown
from ..structure.declared import declared_name
from ..structure.lod import LoD
from ..structure.validate import as_int
from ..tensor.lod_tensor import LoDTensor

__all__ = ["per_sequence"]


@public
def per_sequence(c: Tensor, level: int | str = -1) -> LoDTensor:
    """Declares a plain tensor with a row for each sequence of a level, which torch broadcasts over the rows of that sequence.

    Where it meets a LoDTensor with that many sequences at that level, or its rows at another dim (`x[None]`, `x.t()`), in
    a function that broadcasts (arithmetic, `where`, `lerp`, losses, batch dims of products, `einsum`, distances), every
    row is combined with that of its sequence, and the gradient of c sums over the rows. Dims work as in code for padded
    batches: the sequences are the batch, so for `x[None]` of (1, rows, width) both c of (sequences, width) and `c[:, None]`
    do. What is computed from it for every sequence (`1 + c`, `linear(c)`, `c[:, None]`) is declared as well.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.ones(4, 1), [[3, 1]])
        >>> (x * tl.per_sequence(torch.tensor([[2.0], [5.0]]))).values().flatten()
        tensor([2., 2., 2., 5.])

    A LoDTensor whose LoD is the outer part of another's needs no declaration.

    Args:
        c: (sequences, *element), of any dtype. Shared, not copied, and part of the same autograd graph.
        level: of the LoDTensors that it meets; negative numbers count from their innermost level.

    Returns:
        a LoDTensor of c with one level, whose sequences have one row each and whose name tells the level.

    Raises:
        TypeError: unless c is a plain tensor with at least 1 dim and level an int or a name.
        ValueError: where it meets a LoDTensor with another number of sequences at that level.
    """
    if type(c) not in (Tensor, torch.nn.Parameter):
        raise LoDTypeError(f"expected c as a plain tensor, got {shown(c)}")
    if c.dim() == 0:
        raise LoDTypeError("expected c with a row for each sequence, got a scalar")
    level = as_int(level)
    if not (type(level) is int or (isinstance(level, str) and level)):
        raise LoDTypeError(f"expected level as an int or a name, got {shown(level)}")
    n = c.shape[0]
    lod = LoD.checked("offsets", [torch.arange(n + 1, device="cpu")], (declared_name(level),), n)
    return LoDTensor(c, lod)
