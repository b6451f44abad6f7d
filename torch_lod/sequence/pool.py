# SPDX-License-Identifier: Apache-2.0
"""Pooling: the rows under every sequence of a level become one row."""

from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, public
from ..lod_tensor import LoDTensor, maybe_lod
from ._common import level_of

__all__ = ["sequence_first_step", "sequence_last_step", "sequence_pool"]

_REDUCE = {name: name for name in ("sum", "mean", "sqrt", "max", "min", "first", "last")} | {"average": "mean"}


@public
def sequence_pool(
    x: LoDTensor, pool_type: str, pad_value: float = 0.0, level: int | str = -1, *, return_index: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """One row per sequence of a level, from all rows under it.

    Equivalent to:
        torch.stack([rows.sum(0) for rows in x.sequences(level)])

    Args:
        x: (rows, *element).
        pool_type: in any case, "sum", "average" (or "mean"), "sqrt" (sum / sqrt(length)), "max", "min", "first" or "last".
            The gradient of a maximum goes to the first row that attains it; NaN beats every number.
        pad_value: the result for empty sequences; it has no gradient.
        level: whose sequences.
        return_index: for "max" and "min", also the row of every result: int64, counting all rows, -1 for empty sequences.

    Returns:
        (sequences, *element) with the levels above; a plain tensor above the outermost.

    Source: Paddle Fluid's sequence_pool.
    """
    k = level_of("sequence_pool", x, level)
    reduce = _REDUCE.get(pool_type.lower()) if isinstance(pool_type, str) else None
    if reduce is None:
        raise LoDValueError(f"sequence_pool: expected pool_type in {sorted(_REDUCE)}, got {pool_type!r}")
    if isinstance(pad_value, bool) or not isinstance(pad_value, (int, float)):
        raise LoDTypeError(
            f"sequence_pool: expected pad_value as a number, got {pad_value!r}; a level is given as level={pad_value!r}"
        )
    lod, values = x._lod, x.values()
    offsets = lod._row_offsets(k, values.device)
    if not return_index:
        return maybe_lod(ops.segment_reduce(values, offsets, reduce, pad_value), lod.outer(k))
    if reduce not in ("max", "min"):
        raise LoDTypeError(f"sequence_pool: expected pool_type 'max' or 'min' with return_index, got {pool_type!r}")
    out, index = ops.segment_extreme(values, offsets, reduce, pad_value)
    return maybe_lod(out, lod.outer(k)), maybe_lod(index, lod.outer(k))


def sequence_first_step(x: LoDTensor, pad_value: float = 0.0, level: int | str = -1) -> Tensor:
    """The first row of every sequence of a level: `sequence_pool(x, "first")`."""
    return sequence_pool(x, "first", pad_value, level)


def sequence_last_step(x: LoDTensor, pad_value: float = 0.0, level: int | str = -1) -> Tensor:
    """The last row of every sequence of a level: `sequence_pool(x, "last")`."""
    return sequence_pool(x, "last", pad_value, level)
