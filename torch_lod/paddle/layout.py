# SPDX-License-Identifier: Apache-2.0
"""Padding, tokens, shapes, LoDs: padding and unpadding, tokens, other shapes and other LoDs for the same rows."""

import torch
from torch import Tensor

from .. import ops
from ..construct.padded import from_padded
from ..dynamo import compiling, failing, holds, whole_number
from ..errors import LoDIndexError, LoDTypeError, LoDValueError, no_memory, shown
from ..sequence.operator import along, as_autocast, one_column, sequence_operator
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.partition import traced
from ..structure.validate import an_int, filler, host_integers, integer, whole_dtype, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, rows_of, unmoved

__all__ = [
    "lod_append",
    "lod_reset",
    "sequence_enumerate",
    "sequence_erase",
    "sequence_mask",
    "sequence_pad",
    "sequence_reshape",
    "sequence_scatter",
    "sequence_unpad",
]


@sequence_operator
def sequence_pad(
    x: LoDTensor, padding_value: float | Tensor = 0.0, *, maxlen: int | None = None, level: int | str = -1
) -> tuple[Tensor, Tensor]:
    """The sequences of a level as a padded tensor: `x.to_padded`, with Paddle's arguments.

    Equivalent to (padding_value a number):
        torch.nn.utils.rnn.pad_sequence([rows for rows in x.sequences(level)], True, padding_value)

    Args:
        x: (rows, *element), of any dtype.
        padding_value: a number, or a tensor of one element or of the shape of a row.
        maxlen: size of dim 1; ValueError below the longest sequence. The longest if None.

    Returns:
        dense, (sequences, maxlen, *element), plain, and the number of rows of every sequence, int64. The gradient reaches x,
        not padding_value.

    Source: Paddle Fluid's sequence_pad, of one level.
    """
    s = along(x, level)
    longest = s.lod.longest_rows_at(s.k)
    if maxlen is not None and (type(maxlen) is not int or not holds(maxlen >= longest)):
        raise LoDValueError(f"expected maxlen of at least the longest sequence, {longest}, got {shown(maxlen)}")
    options: dict = {"level": s.k, "max_length": maxlen}
    if not isinstance(padding_value, Tensor):
        return x.to_padded(padding_value, **options)  # type: ignore[return-value]  # of one level
    if padding_value.numel() != 1 and padding_value.shape != x.shape[1:]:
        raise LoDValueError(
            f"expected padding_value of one element or of shape {tuple(x.shape[1:])}, got {tuple(padding_value.shape)}"
        )
    if _breadth(padding_value.dtype) > _breadth(x.dtype):
        raise LoDTypeError(f"expected padding_value of a dtype that {x.dtype} takes in, got {padding_value.dtype}")
    with_memory(padding_value)
    if padding_value.dtype != x.dtype:
        _within("padding_value", padding_value, x.dtype)
    if (
        type(padding_value) is Tensor
        and padding_value.is_cpu
        and padding_value.numel() == 1
        and not (compiling() or traced())
    ):
        value = padding_value.item()
        if type(value) is float or (type(value) is int and -(2**63) <= value < 2**63):
            return x.to_padded(value, **options)  # type: ignore[return-value]  # of one level
    dense, lengths = x.to_padded(0, **options)
    assert isinstance(lengths, Tensor)  # one level gives no tuple
    padding = torch.arange(dense.shape[1], device=x.device) >= lengths[:, None]
    fill = upload(padding_value.detach().to(dense.dtype), dense.device).reshape(
        x.shape[1:] if padding_value.shape == x.shape[1:] else ()
    )
    return torch.where(padding.view(*padding.shape, *[1] * (dense.dim() - 2)), fill, dense), lengths


def _within(what: str, t: Tensor, dtype: torch.dtype) -> None:
    """ValueError for a number that the other dtype, if it is one of integers, cannot hold."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return
    numbers, bounds = t.to(torch.int64).flatten(), torch.iinfo(dtype)
    least = 0 if t.dtype == torch.uint64 else bounds.min  # one beyond int64 is negative here
    outside = (numbers < least) | (numbers > min(bounds.max, 2**63 - 1))
    for i in failing(outside, f"sequence_pad: expected a {what} within {dtype}"):
        raise LoDValueError(f"expected a whole {what} within {dtype}, got {t.flatten()[i].item()}")


def _breadth(dtype: torch.dtype) -> int:
    """The rank of a dtype: bool, integer, floating, complex. Each kind can hold the values of those before it."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)


@sequence_operator
def sequence_unpad(dense: Tensor, lengths) -> LoDTensor:
    """One level from a padded tensor (sequences, length, *element): `tl.from_padded` with Paddle's arguments.

    Args:
        dense: of any dtype.
        lengths: integers, (sequences,) or (sequences, 1), 0 for an empty sequence; one sync if on a GPU.

    Returns:
        (rows, *element), one level. The gradient is zero in the padding.

    Raises:
        ValueError: where a length is negative or beyond the padded length, or the number of lengths is not the number
            of sequences.

    Source: Paddle Fluid's sequence_unpad.
    """
    if isinstance(lengths, Tensor) and lengths.dim() == 2 and lengths.shape[1] == 1:
        lengths = lengths.squeeze(1)
    return from_padded(dense, lengths)


@sequence_operator
def sequence_mask(lengths, maxlen: int | None = None, dtype: torch.dtype = torch.int64) -> Tensor:
    """1 at the positions below each length, 0 beyond.

    Equivalent to:
        (torch.arange(maxlen) < lengths[..., None]).to(dtype)

    Args:
        lengths: integers of any shape; negative ones count as 0.
        maxlen: size of the new last dim, at least 1; the largest length if None (one sync if on a GPU).
        dtype: of the result.

    Returns:
        (*lengths, maxlen), plain, without gradient.

    Raises:
        TypeError: for lengths that are not integers.
        ValueError: for maxlen < 1.

    Source: Paddle Fluid's sequence_mask.
    """
    lengths = rows_of(lengths)
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths)
        except (TypeError, ValueError, RuntimeError) as error:
            if no_memory(error):
                raise
            raise LoDTypeError(f"expected lengths as integers, got {shown(lengths)}") from error
        lengths = lengths if lengths.numel() else lengths.to(torch.int64)
    if not isinstance(dtype, torch.dtype):
        raise LoDTypeError(f"expected dtype as a torch.dtype, got {shown(dtype)}")
    whole_dtype("lengths", lengths)
    if maxlen is None:
        with_data("lengths", lengths)
        maxlen = whole_number(lengths.max().clamp(min=0)) if lengths.numel() else 0
    else:
        an_int("maxlen >= 1", maxlen, 1)
    if not holds(maxlen * max(lengths.numel(), 1) < 2**48):
        raise LoDValueError(f"expected a mask of fewer than 2**48 entries, got {lengths.numel()} x {maxlen}")
    return (torch.arange(maxlen, device=lengths.device) < lengths[..., None]).to(dtype)


@sequence_operator
def sequence_erase(x: LoDTensor, tokens) -> LoDTensor:
    """x without the rows whose value is among `tokens`; sequences become shorter, perhaps empty. One sync if on a GPU.

    Equivalent to:
        torch.cat([rows[~torch.isin(rows, torch.tensor(tokens))] for rows in x.sequences()])

    Args:
        x: integers, (rows,) or (rows, 1); TypeError for a floating dtype.
        tokens: a list or 1-D tensor of integers.

    Returns:
        the other rows, with the levels of x and the new lengths. No gradient.

    Source: Paddle Fluid's sequence_erase.
    """
    values = one_column("x", x)
    tokens = upload(host_integers("tokens", tokens), values.device)
    with_data("x", values)
    return x.filter_rows(~torch.isin(values, tokens))


@sequence_operator
def sequence_enumerate(x: LoDTensor, win_size: int, *, padding_value: int = 0, level: int | str = -1) -> LoDTensor:
    """Every row with the `win_size` - 1 rows after it; windows never cross into the next sequence of the level.

        lengths [[3, 2]], rows 1 2 3 4 5, win_size 2:   [1 2] [2 3] [3 0] [4 5] [5 0]

    Args:
        x: integers, (rows,) or (rows, 1).
        win_size: at least 1.
        padding_value: what comes after the end of a sequence.

    Returns:
        (rows, win_size), of the dtype and with the LoD of x. No gradient.

    Raises:
        TypeError: for an x of a floating dtype.
        ValueError: for win_size < 1.

    Source: Paddle Fluid's sequence_enumerate, of one level.
    """
    values = one_column("x", x)
    s = along(x, level)
    win_size = integer("win_size", win_size, most=2**20)
    an_int("padding_value as an int", padding_value, error=LoDTypeError)
    filler("padding_value", padding_value, values.dtype)
    return s.keep(ops.segment_unfold(values, s.offsets, win_size, 0, 1, padding_value))


@sequence_operator
def sequence_reshape(x: LoDTensor, new_dim: int) -> LoDTensor:
    """Every innermost sequence reshaped to rows of `new_dim` elements; its length changes accordingly.

        lengths [[2, 4]], rows of 3, new_dim 6:   lengths [[1, 2]], rows of 6

    Equivalent to:
        torch.cat([rows.reshape(-1, new_dim) for rows in x.sequences()])

    Args:
        x: (rows, features), of any dtype.
        new_dim: at least 1.

    Returns:
        (elements / new_dim, new_dim), with the levels of x and the new lengths. The gradient is reshaped back.

    Raises:
        ValueError: if the number of elements of a sequence is no multiple of new_dim.

    Source: Paddle Fluid's sequence_reshape, of one level.
    """
    s = along(x)
    if x.dim() != 2:
        raise LoDValueError(f"expected x of shape (rows, features), got {tuple(x.shape)}")
    an_int("new_dim in [1, 2**62)", new_dim, 1, 2**62 - 1)
    lod, width = s.lod, x.shape[1]
    elements = lod.levels[-1] * width
    for i in failing(
        elements.diff() % new_dim != 0, f"sequence_reshape: expected sequences of a multiple of {new_dim} elements"
    ):
        raise LoDValueError(
            f"expected sequences of a multiple of {new_dim} elements, got {int(elements[i + 1] - elements[i])} in "
            f"sequence {i} ({int(lod.levels[-1].diff()[i])} rows of {width})"
        )
    folded = LoD.checked("offsets", [*lod.levels[:-1], elements // new_dim], lod.level_names)
    if lod.counted:
        counted = [mask[:, None].expand(-1, width).reshape(-1, new_dim) for mask in x.lod.counted_rows()]
        folded = folded.counting(*counted)
    return LoDTensor(s.rows.reshape(-1, new_dim), folded)


@sequence_operator
def sequence_scatter(x: Tensor, index: LoDTensor, updates: Tensor) -> Tensor:
    """x with updates added: sequence i of `updates` is added to row i of x, at the positions in sequence i of `index`.

    Equivalent to:
        torch.stack([row.index_add(0, i, u) for row, i, u in zip(x, index.sequences(), updates.sequences())])

    Args:
        x: (sequences, size, *element).
        index: integers in [0, size), (rows,) or (rows, 1), one level; IndexError otherwise (asynchronous on a GPU).
        updates: (rows, *element), or (rows, 1) for an x of 2 dims, of the dtype of x; with the LoD of index, or plain.

    Returns:
        the shape of x, plain. Deterministic; the gradient reaches x and updates.

    Source: Paddle Fluid's sequence_scatter.
    """
    positions = one_column("index", index).to(torch.int64)
    unmoved("x", x)
    unmoved("updates", updates)
    if _a_tensor(x).dim() < 2:
        raise LoDValueError(f"expected x of shape (sequences, size, ...), got {tuple(x.shape)}")
    if isinstance(updates, Tensor):
        updates = as_autocast(updates, x)
    if not isinstance(updates, Tensor) or updates.dtype != x.dtype:
        raise LoDTypeError(
            f"expected updates of the dtype of x, {x.dtype}, got {getattr(updates, 'dtype', type(updates).__name__)}"
        )
    lod = index.lod
    if lod.depth != 1:
        raise LoDValueError(f"expected index with 1 level, got {lod.depth}")
    if x.shape[0] != lod.num_sequences():
        raise LoDValueError(f"expected x with a row for each of {lod.num_sequences()} sequences, got {x.shape[0]}")
    if isinstance(updates, LoDTensor):
        if updates.lod.differs(lod):
            difference = lod.difference(updates.lod)
            raise LoDValueError(f"expected updates with the LoD of index, got LoDs that differ: {difference}")
        updates = rows_of(updates)
    element, size = x.shape[2:], x.shape[1]
    if updates.shape == (lod.rows, 1) and not element:
        updates = updates.squeeze(1)
    if updates.shape != (lod.rows, *element):
        raise LoDValueError(f"expected updates of shape {(lod.rows, *element)}, got {tuple(updates.shape)}")
    if not x.device == updates.device == positions.device:
        devices = f"{positions.device} and {updates.device}"
        raise LoDTypeError(f"expected index and updates on {x.device}, as x, got them on {devices}")
    with_memory(x)
    x = rows_of(x)
    outside = (positions < 0) | (positions >= size)
    for i in failing(outside, "sequence_scatter: index holds a position out of range"):
        raise LoDIndexError(f"expected index in [0, {size - 1}], got {int(positions[i])} at row {i}")
    at = lod.segment_ids_at(0, x.device) * size + positions
    return x + ops.scatter_rows(updates, at, x.shape[0] * size).view(x.shape)


@sequence_operator
def lod_reset(x: Tensor, lod) -> LoDTensor:
    """The rows of x with another structure: a LoD, that of a LoDTensor, or lengths (a list per level; or a tensor, for
    one level). Shares the rows, and their gradient.

    Raises:
        ValueError: where the structure does not cover the rows of x.

    Source: Paddle Fluid's lod_reset, which takes offsets; those are `tl.LoD(offsets)` here.
    """
    if isinstance(x, LoDTensor):
        return x.lod_reset(lod)
    rows = x.shape[0] if _a_tensor(x).dim() else 0
    return LoDTensor(x, LoD([[0, rows]])).lod_reset(lod)


@sequence_operator
def lod_append(x: Tensor, lengths) -> LoDTensor:
    """The rows of x with one more innermost level: every row of the old structure becomes a sequence of the given
    length. The sum of the lengths is the number of rows of x. A plain x gets its only level. Shares the rows, and their
    gradient.

    Args:
        lengths: integers, a LoD of one level, or a LoDTensor of one level.

    Raises:
        ValueError: if the new level does not fit the others or the rows.

    Source: Paddle Fluid's lod_append, which does not check this.
    """
    inner = lengths.lod if isinstance(lengths, LoDTensor) else lengths
    if isinstance(inner, LoD):
        if inner.depth != 1:
            raise LoDValueError(f"expected lengths of 1 level, got {inner.depth}")
        lengths = inner.levels[0].diff()
    lod = LoD.parsed_lengths("lengths", [lengths], None)
    if isinstance(x, LoDTensor):
        offsets, names = x.lod.levels, x.lod.level_names
        lod = LoD.checked("lengths", [*offsets, *lod.levels], (*names, None) if names else None, by_length=True)
        return x.with_lod(lod)
    return LoDTensor(_a_tensor(x), lod)


def _a_tensor(x) -> Tensor:
    if not isinstance(x, Tensor):
        raise LoDTypeError(f"expected x as a tensor, got {type(x).__name__}")
    return x
