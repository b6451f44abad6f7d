# SPDX-License-Identifier: Apache-2.0
"""What a plain tensor is beside rows, said by its caller: its size alone does not tell."""

import torch
from torch import Tensor

from ..dynamo import holds
from ..errors import LoDTypeError, LoDValueError, public, shown
from ..structure.lod import LoD
from ..structure.partition import DECLARED
from ..structure.validate import as_int
from .lod_tensor import LoDTensor

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


def declared_name(level: int | str) -> str:
    return f"{DECLARED}{level!r})"


def declared_level(lod: LoD) -> int | str | None:
    names = lod.level_names
    if names is None or len(names) != 1 or names[0] is None or not names[0].startswith(DECLARED):
        return None
    level = names[0][len(DECLARED) : -1]
    return level[1:-1] if level[0] in "'\"" else int(level)


def level_in(lod: LoD, fine: LoD) -> int | None:
    """The level of `fine` that has a sequence for every row of `lod`: by declaration, or because `lod` is the outer levels
    of `fine`. None if nothing says so: an equal number does not. ValueError if a declaration is wrong."""
    level = declared_level(lod)
    if level is None:
        k = lod.depth
        outer = fine.outer_at(k) if declared_level(fine) is None and k < fine.depth else None
        return None if outer is None or lod.differs(outer) else k
    if declared_level(fine) is not None:
        return None
    k = fine.level(level)
    if not holds(lod.rows == fine.num_sequences(k)):
        fits = [j for j in range(fine.depth) if fine.num_sequences(j) == lod.rows]
        hint = f"; level {fits[0]} has as many sequences: tl.per_sequence(c, {fits[0]})" if fits else ""
        raise LoDValueError(
            f"expected a row for each of the {fine.num_sequences(k)} sequences of level {level!r}, got {lod.rows} rows of "
            f"tl.per_sequence{hint}"
        )
    return k


def refuse_other_level(what: str, passed: str, given: LoD, lod: LoD, level: int) -> None:
    """ValueError unless `given` has a row for each sequence of that level of `lod`."""
    if (k := level_in(given, lod)) != level:
        meant = "of other sequences" if k is None else f"of level {k}"
        raise LoDValueError(
            f"expected {what} for each sequence of level {level}, got rows {meant}; see tl.per_sequence({passed}, {level})"
        )
