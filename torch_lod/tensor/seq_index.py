# SPDX-License-Identifier: Apache-2.0
"""`x.seq`: sequences by index."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ..dynamo import compiling, failing, rows_between, whole_number
from ..errors import LoDIndexError, LoDTypeError, border, shown, without_policy
from ..structure.lod import LoD
from ..structure.validate import as_int, host_integers, with_data, with_memory
from .levels import indexed, is_int


def below(lod: LoD, k: int, j: int) -> tuple[LoD, int, int]:
    """The inside of sequence j of level k: a LoD of the levels below, and the first and last row."""
    return lod.cut(k + 1, *map(whole_number, lod.levels[k][j : j + 2]))


T = TypeVar("T")  # the class of x


class SequenceIndex(Generic[T]):
    """`x.seq`."""

    def __init__(self, x: Any, wrap: Callable, at: Callable):
        self._x, self._wrap, self._at = x, wrap, at

    def __len__(self) -> int:
        return self._x.num_sequences()

    def __repr__(self) -> str:
        n, depth = len(self), self._x.lod.depth
        deeper = "" if depth == 1 else f", x.seq[{', '.join('ijklmn'[:depth])}] one of the innermost level"
        return f"x.seq of {n} sequence{'s' * (n != 1)}: x.seq[i] is one{deeper}"

    def __iter__(self) -> Iterator[T]:
        return self._x.sequences()

    @border("seq")
    def __setitem__(self, key: Any, value: Any) -> None:
        i, behind = (key, key + 1) if is_int(key) else ("i", "i + 1")
        rest = f", x.seq[{behind}:]" if i != -1 else ""
        raise LoDTypeError(
            f"expected x.seq to be read, got an assignment: x.seq[{i}].copy_(t) writes as many rows, since it is a view; of "
            f"another length, tl.cat([x.seq[:{i}], tl.batch([t]){rest}]); row by row, torch.where(mask, t, x)"
        )

    @border("seq")
    def __delitem__(self, key: Any) -> None:
        raise LoDTypeError("expected x.seq to be read, got a deletion: x.seq[mask] is a batch without sequences")

    @border("seq")
    def __getitem__(self, key: Any) -> T:
        x, lod = self._x, self._x.lod
        key = tuple(map(as_int, key)) if isinstance(key, tuple) else (as_int(key),)
        if not 0 < len(key) <= lod.depth + 1:
            raise LoDIndexError(
                f"expected 1 to {lod.depth + 1} indices, one per level and one of rows, got {shown(key)}"
            )
        steps = list(key[:-1]) + ([key[-1]] if is_int(key[-1]) else [])
        if len(key) > lod.depth or not all(map(is_int, steps)):
            return indexed(x, key)
        begin, end = 0, lod.num_sequences()
        if steps:
            k, j = lod.locate(tuple(steps))
            begin, end = whole_number(lod.levels[k][j]), whole_number(lod.levels[k][j + 1])
            if len(steps) == len(key):
                if k + 1 == lod.depth:
                    return rows_between(x.values(), begin, end)
                inner, first, last = below(lod, k, j)
                return self._wrap(rows_between(x.values(), first, last), inner)
        k = len(steps)
        if isinstance(key[-1], slice):
            picked = range(begin, end)[key[-1]]
            if picked.step == 1:
                inner, first, last = lod.cut(k, picked.start, max(picked.start, picked.stop))
                return self._wrap(rows_between(x.values(), first, last), inner)
            index = torch.arange(len(picked), device="cpu") * picked.step + picked.start
        else:
            index = _positions(key[-1], end - begin)
            index = index + begin if steps else index
        return self._at(x, k, index)


def _positions(key, n: int) -> Tensor:
    """Indices in [0, n) from a list or tensor of ints or bools."""
    if isinstance(key, (list, tuple)) and key and all(isinstance(entry, bool) for entry in key):
        key = torch.tensor(key, device="cpu")
    if isinstance(key, Tensor) and key.dtype == torch.bool:
        if key.shape != (n,):
            raise LoDIndexError(f"expected a mask of shape ({n},), got {tuple(key.shape)}")
        with_data("mask", key)
        with_memory(key)
        with without_policy():
            return key.cpu().nonzero().flatten()
    index = host_integers("index", key)
    if not compiling() and index.numel():
        lowest, highest = map(int, torch.aminmax(index))
        if -n <= lowest and highest < n:
            return index if lowest >= 0 else index % n
    for i in failing((index < -n) | (index >= n), f"seq: expected an index in [{-n}, {n - 1}]"):
        raise LoDIndexError(f"expected an index in [{-n}, {n - 1}], got {int(index[i])} at position {i}")
    return index % n if n else index
