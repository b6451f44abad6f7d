# SPDX-License-Identifier: Apache-2.0
"""What a tensor that was made of a LoDTensor's rows knows about them: one record, `Provenance`.

A LoDTensor has all rows, at dim 0. Any other tensor with a provenance is a DerivedTensor. A plain tensor has none.
"""

from typing import Any, NamedTuple, TypeGuard

from torch import Tensor

from ..structure.lod import LoD


class Provenance(NamedTuple):
    """Where the rows of a LoDTensor are in a tensor that was made of them."""

    lod: LoD
    #: The dim of the rows, None where they were lost. A rule may answer with an `At`.
    dim: Any
    #: The function that moved or lost them; "" for a LoDTensor.
    call: str = ""
    #: The first row and the end of those that are there, None for all. Where `dim` is None: of those that it was made of.
    part: tuple[int, int] | None = None


class At(NamedTuple):
    """A rule's answer: the dim of the rows in the result, if that has `rank` dims; `gone` less if dims before were
    removed."""

    dim: int
    gone: int = 0
    rank: int = 0


#: The part of a provenance whose results, one after another, hold the rows of the operand.
EACH = (-1, -1)


def is_whole(p: Provenance | None) -> TypeGuard[Provenance]:
    """Whether it is that of a LoDTensor: all rows, at dim 0."""
    return p is not None and p.dim == 0 and p.part is None


def provenance_of(value) -> Provenance | None:
    """None for a plain tensor, and for what is no tensor."""
    return getattr(value, "_provenance", None) if isinstance(value, Tensor) else None  # Dynamo: no symbols


def placed(value) -> Provenance | None:
    """The provenance, unless the rows were lost."""
    p = provenance_of(value)
    return None if p is None or p.dim is None else p


def lod_of(value) -> LoD | None:
    """The LoD of a LoDTensor, None for anything else."""
    p = provenance_of(value)
    return None if p is None or p.dim != 0 or p.part is not None else p.lod


def plain(value: Any) -> Any:
    """The values of what has rows, anything else as it is."""
    return value if provenance_of(value) is None else value.values()


def tracked(args: tuple, kwargs: dict) -> list[Tensor]:
    """The arguments, and entries of lists among them, that have a provenance."""
    found = []
    for value in (*args, *kwargs.values()):
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, Tensor) and provenance_of(part) is not None:
                found.append(part)
    return found


def provenances_of(args: tuple, kwargs: dict) -> list[Provenance]:
    """The provenances of the arguments, and of entries of lists among them."""
    found = []
    for value in (*args, *kwargs.values()):
        for part in value if isinstance(value, (tuple, list)) else (value,):
            p = getattr(part, "_provenance", None) if isinstance(part, Tensor) else None
            if p is not None:
                found.append(p)
    return found


def carries(value) -> bool:
    """Whether a value, or any value of a list, has a provenance."""
    if isinstance(value, (tuple, list)):
        return any(provenance_of(part) is not None for part in value)
    return provenance_of(value) is not None
