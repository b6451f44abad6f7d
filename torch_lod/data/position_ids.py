# SPDX-License-Identifier: Apache-2.0
"""Structure from the positions of rows, in the shapes that packed models take them."""

import numpy as np
import torch
from torch import Tensor

from ..construct.rows import rows_to_share
from ..errors import LoDValueError, constructor
from ..structure.lod import LoD
from ..structure.validate import a_bool, host_integers, unmasked, with_memory
from ..tensor.lod_tensor import LoDTensor

__all__ = ["from_position_ids"]


@constructor
def from_position_ids(
    values: Tensor | np.ndarray, position_ids, *, any_start: bool = False, level_names=None
) -> LoDTensor:
    """One level from packed rows and the position of each in its sequence, as packed models take them: a sequence begins where
    the position is 0. Shares `values`. `x.position_ids()` is the way back; it does not show empty sequences.

        >>> import torch, torch_lod as tl
        >>> tl.data.from_position_ids(torch.tensor([5, 6, 7, 8]), [7, 8, 0, 1], any_start=True).to_list()
        [[5, 6], [7, 8]]

    Args:
        values: (rows, *element); (batch, length, *element) for position_ids of these dims, whose entries follow one another.
        position_ids: integers, (rows,); or (batch, length), where a sequence begins at every entry of the batch too; or
            (3, batch, length), the time, height and width of models of images and videos, where one begins where all three
            are 0.
        any_start: positions may start anywhere, as those of a text that goes on: a sequence begins where the position is
            not one more than the one before. One that starts where the one before it ended is not told from it. Not for
            three positions.

    Raises:
        ValueError: unless positions count up from 0, or with any_start from any start, in every sequence; for values of
            other dims.
    """
    a_bool("any_start", any_start)
    rows, (ids, dims) = rows_to_share(values), _host_positions(position_ids)
    if len(ids) > 1 and any_start:
        raise LoDValueError("expected any_start with one position for each row, got three")
    if dims > 1:
        if rows.shape[:2] != ids.shape[1:]:
            raise LoDValueError(
                f"expected values of shape {tuple(ids.shape[1:])} and more, as position_ids, got {tuple(rows.shape)}; for "
                "packed rows pass position_ids.flatten()"
            )
        rows = rows.flatten(0, 1)
    begins = _begins(ids, any_start, dims).flatten().nonzero().flatten()
    offsets = torch.cat([begins, torch.tensor([ids[0].numel()], device="cpu")])
    return LoDTensor(rows, LoD.checked("position_ids", [offsets], level_names))


def _host_positions(ids) -> tuple[Tensor, int]:
    """(1 or 3, batch, length), in host memory, and the dims of what was passed."""
    if not isinstance(ids, (Tensor, np.ndarray)) or ids.ndim < 2:
        return host_integers("position_ids", ids).view(1, 1, -1), 1
    if ids.ndim > 3 or (ids.ndim == 3 and ids.shape[0] != 3):
        raise LoDValueError(
            f"expected position_ids of shape (rows,), (batch, length) or (3, batch, length), got {tuple(ids.shape)}"
        )
    with_memory(ids)
    flat = host_integers("position_ids", unmasked("position_ids", ids).reshape(-1))
    return flat.view(-1, *ids.shape[-2:]) if flat.numel() else flat.view(1, *ids.shape[-2:]), ids.ndim


def _begins(ids: Tensor, any_start: bool, dims: int) -> Tensor:
    """Bool, (batch, length): where a sequence begins."""
    goes_on = torch.zeros(ids.shape[1:], dtype=torch.bool, device="cpu")
    if len(ids) > 1:
        begins = (ids == 0).all(0)
        wrong, wanted = (ids < 0).any(0), "position_ids that are all 0 where an entry of the batch begins, and >= 0"
        wrong[:, :1] |= ~begins[:, :1]
    else:
        goes_on[:, 1:] = ids[0, :, 1:] == ids[0, :, :-1] + 1
        begins = ~goes_on if any_start else ids[0] == 0
        wrong = ids[0] < 0 if any_start else ~begins & ~goes_on
        wanted = "position_ids >= 0" if any_start else "position_ids that count up from 0"
    for b, i in wrong.nonzero()[:1].tolist():
        got = [
            positions.tolist() if len(ids) > 1 else int(positions) for positions in ids[:, b].T[max(i - 1, 0) : i + 1]
        ]
        hint = "" if any_start or len(ids) > 1 or int(ids[0, b, i]) < 0 else "; any_start=True takes any first position"
        at = i if dims == 1 else [b, i]
        raise LoDValueError(f"expected {wanted}, got {' then '.join(map(str, got))} at index {at}{hint}")
    return begins
