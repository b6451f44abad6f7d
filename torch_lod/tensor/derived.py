# SPDX-License-Identifier: Apache-2.0
"""`DerivedTensor`: what was made of a LoDTensor's rows and is no LoDTensor."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from ..dynamo import admit, before_the_first
from ..errors import LoDTypeError, LoDValueError, named, shown, without_dispatch
from ..structure.lod import LoD
from ..structure.validate import is_int
from .attach import CLASSES, become
from .attributes import Missing
from .dispatch import Tracked
from .provenance import Provenance


class DerivedTensor(Tracked):
    """What a torch function made of a LoDTensor's rows, if it is no LoDTensor: its rows are at another dim (`x.t()`,
    `x[None]`), are some of them (`x[2:5]`), or lost their structure (`x.mean(0)`).

    It is a tensor like any other. What is made of it knows about the rows as well: `x.t().t()` is the LoDTensor again. Where
    lost rows meet rows, as in `x - x.mean(0)`, torch_lod raises. `values()` is the plain tensor.
    """

    _provenance: Provenance = Missing("a function of a LoDTensor, such as x.t()")  # type: ignore[assignment]
    _is_derived = True

    def __new__(cls, *args, **kwargs):
        raise named(
            LoDTypeError("expected a function of a LoDTensor, such as x.t(), to make it, got a call of the class"),
            "DerivedTensor",
        )

    @property
    def lod(self) -> LoD:
        """The structure of the rows, of all of them."""
        return self._provenance.lod

    @property
    def rows_dim(self) -> int | None:
        """The dim of the rows; None where their structure was lost."""
        return self._provenance.dim

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind(0))

    def __repr__(self, *, tensor_contents=None) -> str:  # type: ignore[override]
        return f"DerivedTensor({self.values()!r}, {described(self._provenance)}, lod={self._provenance.lod})"

    def __format__(self, spec: str) -> str:
        return self.values().__format__(spec) if self.dim() == 0 else repr(self)

    def __reduce_ex__(self, protocol):
        return _load, (self.values().detach(), *self._provenance, self.requires_grad)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError(
                    "only tensors that are leaves of the autograd graph can be deep-copied; see detach()"
                )
            made = _load(self.values().detach().clone(), *self._provenance, self.requires_grad)
            if self.grad is not None:
                made.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = made
        return memo[id(self)]


def described(p: Provenance) -> str:
    """Where the rows are, and which call moved or lost them."""
    part = "" if p.part is None else f" {p.part[0]} to {p.part[1]}"
    where = f"lost in {p.call}" if p.dim is None else f"at dim {p.dim} through {p.call}"
    return f"rows{part} of a LoDTensor {where}"


def rows_at(values: Tensor, lod: LoD, dim: int, call: str) -> Tensor:
    """Rows at a dim other than 0, which no other object holds."""
    before_the_first()
    return become(values, Provenance(lod, dim, call))


def _load(values: Tensor, lod: LoD, dim: int | None, call: str, part, requires_grad: bool) -> Tensor:
    """Called by pickle and torch.load: a file is input like any other, so it is validated."""
    bounds = (0, 0) if part is None else part
    known = isinstance(lod, LoD) and _is_dense(values) and isinstance(call, str)
    known = (
        known
        and isinstance(bounds, tuple)
        and len(bounds) == 2
        and all(map(is_int, (*bounds, 0 if dim is None else dim)))
    )
    if not known:
        raise LoDTypeError(
            "expected dense values, a LoD, a dim or None, a name, and the first row and the end of a part or None, got "
            f"{', '.join(map(shown, (values, lod, dim, call, part)))}"
        )
    if part is not None and not 0 <= part[0] <= part[1] <= lod.rows:
        raise LoDValueError(f"expected a part of the {lod.rows} rows, got {shown(part)}")
    count = lod.rows if part is None else part[1] - part[0]
    if dim is not None and not (0 <= dim < values.dim() and values.shape[dim] == count):
        raise LoDValueError(f"expected {count} rows at dim {dim}, got shape {tuple(values.shape)}")
    before_the_first()
    with without_dispatch():
        loaded = become(values.as_subclass(Tensor), Provenance(lod, dim, call, part))
    if requires_grad is True:
        if not (loaded.is_floating_point() or loaded.is_complex()):
            raise LoDTypeError(f"expected values of a floating dtype to require grad, got {loaded.dtype}")
        loaded.requires_grad_()
    return loaded


def _is_dense(values) -> bool:
    return isinstance(values, Tensor) and values.layout == torch.strided and not values.is_nested


class _DynamicDims:
    """The dim of the rows, until AOTAutograd writes an attribute of that name into a tensor."""

    def __get__(self, x: DerivedTensor | None, owner) -> frozenset:
        return frozenset({0 if x is None else x.rows_dim or 0})


CLASSES[1] = DerivedTensor
torch.serialization.add_safe_globals([_load])  # not the class: see lod.py
admit(DerivedTensor, _DynamicDims())
