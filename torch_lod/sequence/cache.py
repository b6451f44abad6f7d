# SPDX-License-Identifier: Apache-2.0
"""Caches for decoding: what a layer keeps of every sequence, rows that are appended in place, or a state."""

import copy
import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .. import ops
from ..dynamo import compiling
from ..errors import LoDTypeError, LoDValueError, boundary, public, shown
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.partition import Runs, uploaded_runs
from ..structure.validate import a_float, a_level, host_integers, number, sums, traverse, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, made, rows_of
from .operator import Along, along, autocast_dtype, in_autocast

__all__ = ["Cache"]

#: Rows at most.
_MOST = 2**40


class Cache:
    """Keys and values of every sequence of a batch, with room for more: a step of decoding appends its rows in place, and
    attention reads all of them where they lie.

        cache = tl.Cache(prompts.lengths() + 128)  # one for each layer
        cache.append(k, v)
        out = tl.sequence_attention(q, cache, causal=True)
        cache.filter(going_on)  # texts that have ended leave

    There are no gradients: a cache is for decoding, under torch.no_grad(). Compiled graphs cannot have it. `lengths()` gives
    the position of every sequence's next row, `keys()` and `values()` copies, and `cache.state` may hold, instead of rows, what
    a recurrence hands from call to call: a tensor with a row for every sequence, or any nesting of tuples, lists and dicts of
    them, to which `filter` applies as well.

    Args:
        capacity: how many rows there is room for, an integer for every sequence.
        grow: where a sequence would have more rows, all get so many times their room, and what is there is copied; a number
            above 1. None: that is an error.
        level: the level of the appended rows whose sequences the cache has.
    """

    @public
    def __init__(self, capacity, *, grow: float | None = None, level: int | str = -1):
        room = host_integers("capacity", capacity)
        for i in ((room < 0) | (room > _MOST)).nonzero().flatten()[:1].tolist():
            raise LoDValueError(f"expected capacity in [0, 2**40], got {int(room[i])} at index {i}")
        if float(room.sum(dtype=torch.float64)) > _MOST:
            raise LoDValueError(f"expected a capacity of at most 2**40 rows in all, got {shown(room)}")
        if grow is not None:
            number("grow", grow)
            if not 1 < grow <= 2**10:
                raise LoDValueError(f"expected grow above 1 and at most 1024, or None, got {shown(grow)}")
        a_level(level)
        self.grow, self.level = grow, level
        #: of every sequence: rows that there is room for, the first of them, and how many are there; in host memory
        self._room, self._starts, self._filled = room, sums(room)[:-1], torch.zeros_like(room)
        self._parts: list[Tensor] = []
        self._state: Any = None
        self._cuts: LoD | None = None
        #: the level of the appended rows, and how many there were
        self._of = 0, 1

    def __repr__(self) -> str:
        of = "".join(f", {name} {tuple(t.shape[1:])}" for name, t in zip(("keys", "values"), self._parts))
        rows, room = int(self._filled.sum()), int(self._room.sum())
        return f"Cache({self.num_sequences()} sequences, {rows} of {room} rows{of})"

    def num_sequences(self) -> int:
        return self._filled.shape[0]

    @boundary("Cache.lengths", dispatch=False)
    def lengths(self) -> Tensor:
        """The number of rows of every sequence, int64, on their device: the position of the next one."""
        return upload(self._filled.clone(), self._parts[0].device) if self._parts else self._filled.clone()

    @boundary("Cache.capacity", dispatch=False)
    def capacity(self) -> Tensor:
        """The number of rows that there is room for in every sequence, int64, in host memory."""
        return self._room.clone()

    @boundary("Cache.append", dispatch=False)
    def append(self, k: LoDTensor, v: LoDTensor) -> None:
        """Writes rows behind those that are there, any number to every sequence; no other row moves.

        Args:
            k, v: (rows, heads, width) and (rows, heads, value width), or (rows, width) and (rows, value width), of equal LoDs,
                with as many sequences as the cache. The first ones decide on shapes, dtype and device.

        Raises:
            ValueError: for a row more than there is room for, without `grow`; and for rows that require a gradient.
            ValueError, TypeError: where sequences, shapes, dtypes or devices do not fit.
        """
        _in_eager_code()
        keys, values = along(k, self.level, "k"), along(v, self.level, "v")
        if keys.lod.differs(values.lod):
            raise LoDValueError(
                f"expected v with the LoD of k, got LoDs that differ: {keys.lod.difference(values.lod)}"
            )
        self._check_count("k", keys)
        new = [_without_gradient(name, s.rows) for name, s in (("k", keys), ("v", values))]
        _check_pair(*new)
        for name, t, there in zip("kv", new, self._parts):
            _check_like(name, t, there, "the cache")
            if t.shape[1:] != there.shape[1:]:
                shapes = f"{tuple(there.shape[1:])}, as the cache, got {tuple(t.shape[1:])}"
                raise LoDValueError(f"expected {name} with rows of {shapes}")
        lengths = keys.lod.row_lengths_at(keys.k)
        self._make_room(self._filled + lengths, new)
        first = self._starts + self._filled - keys.lod.row_offsets_at(keys.k)[:-1]
        index = first.repeat_interleave(lengths) + torch.arange(new[0].shape[0], device="cpu")
        index = upload(index, new[0].device)
        for there, t in zip(self._parts, new):
            there.index_copy_(0, index, t)
        self._filled, self._cuts = self._filled + lengths, None
        self._of = keys.k, keys.lod.depth

    @boundary("Cache.filter", dispatch=False)
    def filter(self, keep) -> None:
        """Keeps the sequences where `keep` is True, in place; no row moves, and the memory of the others stays as it is.

        Args:
            keep: bool, one for every sequence: a tensor or a list.
        """
        _in_eager_code()
        if isinstance(keep, (list, tuple)) and all(type(k) is bool for k in keep):
            keep = torch.tensor(keep, dtype=torch.bool, device="cpu")
        count = self.num_sequences()
        if not isinstance(keep, Tensor) or keep.dtype != torch.bool:
            raise LoDTypeError(f"expected keep as {count} bools, one per sequence, got {shown(keep)}")
        with_memory(keep)
        mask = with_data("keep", rows_of(keep))
        if mask.shape != (count,):
            raise LoDValueError(f"expected keep as {count} bools, one per sequence, got shape {tuple(mask.shape)}")
        mask = mask.cpu()
        self._room, self._starts, self._filled = self._room[mask], self._starts[mask], self._filled[mask]
        self._state, self._cuts = _at(self._state, mask.nonzero().flatten()), None

    @boundary("Cache.keys", dispatch=False)
    def keys(self) -> LoDTensor:
        """A copy of all keys, packed: for whatever does not take the cache itself."""
        return self._packed(0)

    @boundary("Cache.values", dispatch=False)
    def values(self) -> LoDTensor:
        """A copy of all values, packed."""
        return self._packed(1)

    @property
    def state(self) -> Any:
        return self._state

    @state.setter
    @boundary("Cache.state")
    def state(self, given: Any) -> None:
        count = self.num_sequences()
        for leaf in traverse("state", pytree.tree_leaves, given):
            if isinstance(leaf, LoDTensor) or (isinstance(leaf, Tensor) and leaf.shape[:1] != (count,)):
                raise LoDValueError(f"expected a state with a row for each of {count} sequences, got {shown(leaf)}")
            with_memory(leaf)
        self._state = given

    def _check_count(self, what: str, s: Along) -> None:
        given, count = s.lod.num_sequences(s.k), self.num_sequences()
        if given != count:
            raise LoDValueError(f"expected {what} with the {count} sequences of the cache, got {given}")

    def _make_room(self, wanted: Tensor, new: list[Tensor]) -> None:
        over = (wanted > self._room).nonzero().flatten()[:1].tolist()
        for i in over if self.grow is None else ():
            raise LoDValueError(
                f"expected at most {int(self._room[i])} rows in sequence {i}, the capacity, got {int(self._filled[i])} and "
                f"{int(wanted[i] - self._filled[i])} more; see grow"
            )
        room = self._room
        if over:
            room = torch.maximum(wanted, torch.tensor([math.ceil(n * self.grow) for n in room.tolist()], device="cpu"))
        if over or not self._parts:
            self._place(room, new, torch.arange(room.shape[0], device="cpu"))

    def _place(self, room: Tensor, like: list[Tensor], index: Tensor) -> None:
        """Takes memory for sequences with this much room, and copies what is there of those at `index`."""
        starts, rows, device = sums(room)[:-1], sum(room.tolist()), like[0].device
        with torch.inference_mode(False):  # a later step may be outside of it
            parts = [torch.empty(rows, *t.shape[1:], dtype=t.dtype, device=t.device) for t in like]
        filled = self._filled[index]
        within = torch.arange(int(filled.sum()), device="cpu") - sums(filled)[:-1].repeat_interleave(filled)
        old, new = (upload(first.repeat_interleave(filled) + within, device) for first in (self._starts[index], starts))
        for there, part in zip(self._parts, parts):
            part.index_copy_(0, new, there.index_select(0, old))
        self._room, self._starts, self._parts = room, starts, parts

    def _packed(self, i: int) -> LoDTensor:
        if not self._parts:
            raise LoDValueError("expected a cache with keys, got one to which nothing was appended")
        lod, rows = LoD.checked("offsets", [sums(self._filled)]), self._parts[i]
        runs = uploaded_runs(Runs(self._starts, lod.levels[0]), rows, lod.rows)
        return made(ops.gather_runs(rows, *runs, lod.rows), lod)


def beside(cache: Cache, queries: Along) -> tuple[dict[str, Tensor], tuple[LoD, LoD]]:
    """For `attend`: keys and values where they lie, and the LoDs of queries and keys. Both have a sequence more before
    every sequence and behind the last: of the room that is not used, and of no queries."""
    _in_eager_code()
    if not cache._parts:
        raise LoDValueError("expected a cache with keys, got one to which nothing was appended")
    cache._check_count("q", queries)
    level, depth = cache._of
    if queries.lod.depth == depth and queries.k != level:
        raise LoDValueError(f"expected level {level}, that of the cache, got {queries.k}")
    dtype, own = autocast_dtype(queries.rows.device), cache._parts[0].dtype
    if dtype not in (None, own) and own != torch.float64:
        raise LoDTypeError(f"expected a cache of {dtype}, as autocast has it, got one of {own}")
    if cache._cuts is None:
        ends = torch.stack([cache._starts, cache._starts + cache._filled], 1).flatten()
        rows = cache._parts[0].shape[0]
        cache._cuts = LoD.checked("offsets", [torch.cat([ends.new_zeros(1), ends, ends.new_full((1,), rows)])])
    lod, k = queries.lod, queries.k
    apart = lod.remember(
        ("beside a cache", k), lambda: LoD.checked("offsets", [lod.row_offsets_at(k).repeat_interleave(2)])
    )
    return dict(zip(("keys of the cache", "values of the cache"), cache._parts)), (apart, cache._cuts)


def taken(cache: Cache, index: Tensor) -> Cache:
    """Copies of the sequences at `index`, with room of their own: for hypotheses, which share a beginning."""
    other, index = copy.copy(cache), index.cpu()
    if cache._parts:
        other._place(cache._room[index], cache._parts, index)
    else:
        other._room, other._starts = cache._room[index], sums(cache._room[index])[:-1]
    other._filled, other._cuts = cache._filled[index], None
    other._state = _at(cache._state, index)
    return other


def _at(state: Any, index: Tensor) -> Any:
    """The rows of the tensors of a state."""
    return pytree.tree_map(lambda t: t[upload(index, t.device)] if isinstance(t, Tensor) else t, state)


def _in_eager_code() -> None:
    if compiling():
        raise LoDTypeError(
            "expected no tl.Cache in a compiled graph, which would keep its sizes; compile the layers around attention"
        )


def _without_gradient(what: str, t: Tensor) -> Tensor:
    """The rows as they are kept."""
    a_float(t, what)
    with_memory(t)
    if torch.is_grad_enabled() and t.requires_grad:
        raise LoDValueError(
            f"expected {what} that needs no gradient, got one that requires it: there is none through a cache; see torch.no_grad()"
        )
    tangent = torch.autograd.forward_ad.unpack_dual(t).tangent
    if tangent is not None or torch._C._functorch.is_functorch_wrapped_tensor(t):
        raise LoDValueError(
            f"expected {what} outside of torch.func and forward gradients: there is none through a cache"
        )
    return in_autocast(t.as_subclass(Tensor)).detach()


def _check_pair(k: Tensor, v: Tensor) -> None:
    if k.dim() not in (2, 3) or 0 in k.shape[1:]:
        raise LoDValueError(f"expected k of shape (rows, width) or (rows, heads, width), got {tuple(k.shape)}")
    if v.shape[:-1] != k.shape[:-1] or not v.shape[-1]:
        raise LoDValueError(f"expected v of shape {(*k.shape[:-1], 'width')}, as k, got {tuple(v.shape)}")
    _check_like("v", v, k, "k")


def _check_like(what: str, t: Tensor, there: Tensor, whose: str) -> None:
    if (t.dtype, t.device) != (there.dtype, there.device):
        raise LoDTypeError(
            f"expected {what} of {there.dtype} on {there.device}, as {whose}, got {t.dtype} on {t.device}"
        )
