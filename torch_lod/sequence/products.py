# SPDX-License-Identifier: Apache-2.0
"""Products by matrices: rows times the matrix of their sequence, for experts, weights for each user, hypernetworks, linear
attention."""

from typing import Any

from torch import Tensor

from ..dynamo import holds
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.declared import refuse_other_level
from ..structure.validate import a_float, with_memory
from ..tensor.lod_tensor import LoDTensor, values_of
from ..tensor.products import each_by_its_matrix
from .operator import along, as_autocast, in_autocast, sequence_operator

__all__ = ["sequence_matmul"]


@sequence_operator
def sequence_matmul(x: LoDTensor, w: Tensor, *, level: int | str = -1) -> LoDTensor:
    """Every row times the matrix of its sequence, of which no row gets a copy.

    Equivalent to:
        torch.cat([rows @ matrix for rows, matrix in zip(x.sequences(level), w)])

    `x @ tl.per_sequence(w)`, `x[:, None] @ tl.per_sequence(w)` and `torch.einsum("nd,nde->ne", x, tl.per_sequence(w))` are
    computed in the same way.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.ones(4, 2), [[3, 1]])
        >>> tl.sequence_matmul(x, tl.per_sequence(torch.tensor([[[1.0], [1.0]], [[5.0], [0.0]]]))).values().flatten()
        tensor([2., 2., 2., 5.])

    Args:
        x: (rows, *more, features), a floating dtype.
        w: (sequences, features, out), a matrix for each sequence of the level, of the dtype of x: a plain tensor,
            `tl.per_sequence(w, level)`, or a LoDTensor of the levels above.

    Returns:
        (rows, *more, out) with the LoD of x. Differentiable in both; the gradient of a matrix sums over the rows of its
        sequence. Memory is linear in x, w and the result: few or long sequences are multiplied one by one, others with
        those of similar lengths, padded to less than twice their lengths; in compiled code all are padded to the longest.

    Raises:
        TypeError, ValueError: where shapes, dtypes, devices or numbers of sequences do not correspond.

    Source: torch.matmul, sequence by sequence; the grouped products of mixtures of experts.
    """
    s = along(x, level)
    a_float(s.rows)
    if not isinstance(w, Tensor):
        raise LoDTypeError(f"expected w as a tensor with a matrix for each sequence, got {shown(w)}")
    matrices: Any = values_of(w)
    if isinstance(w, LoDTensor):
        refuse_other_level("w with a matrix", "w", w.lod, s.lod, s.k)
    if s.rows.dim() < 2:
        raise LoDValueError(f"expected x of shape (rows, features), got {tuple(s.rows.shape)}; see x.unsqueeze(1)")
    count, features = s.lod.num_sequences(s.k), s.rows.shape[-1]
    if matrices.dim() != 3 or not holds(matrices.shape[0] == count) or matrices.shape[1] != features:
        raise LoDValueError(
            f"expected w of shape (sequences, features, out), ({count}, {features}, out), got {tuple(matrices.shape)}"
        )
    if matrices.device != s.rows.device:
        raise LoDTypeError(f"expected w on {s.rows.device}, as x, got one on {matrices.device}")
    rows = in_autocast(s.rows)
    matrices = as_autocast(matrices, rows)
    if matrices.dtype != rows.dtype:
        raise LoDTypeError(f"expected w of {rows.dtype}, as x, got {matrices.dtype}")
    with_memory(rows, matrices)
    return s.keep(each_by_its_matrix(rows, matrices, s.lod, s.k))
