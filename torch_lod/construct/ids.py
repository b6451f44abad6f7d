# SPDX-License-Identifier: Apache-2.0
"""Structure from what rows say about themselves: the sequence that each is in, or whether one begins there."""

from typing import Literal, overload

import numpy as np
import torch
from torch import Tensor

from .. import ops
from ..dynamo import failing, holds
from ..errors import LoDTypeError, LoDValueError, constructor
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import a_bool, host_integers, with_data, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor, unmoved
from ..tensor.positions import integers, owned
from .rows import rows_to_share, tensor_of

__all__ = ["from_boundaries", "from_edges", "from_segment_ids"]


@overload
def from_segment_ids(
    values: Tensor | np.ndarray,
    ids,
    num_sequences: int | None = None,
    *,
    sort: Literal[False] = False,
    level_names=None,
) -> LoDTensor: ...
@overload
def from_segment_ids(
    values: Tensor | np.ndarray, ids, num_sequences: int | None = None, *, sort: Literal[True], level_names=None
) -> tuple[LoDTensor, Tensor]: ...
@constructor
def from_segment_ids(
    values: Tensor | np.ndarray, ids, num_sequences: int | None = None, *, sort: bool = False, level_names=None
) -> LoDTensor | tuple[LoDTensor, Tensor]:
    """A LoDTensor from rows and the index of every row's sequence; see `LoD.from_segment_ids`. Shares `values`.

        >>> import torch, torch_lod as tl
        >>> x, order = tl.from_segment_ids(torch.tensor([5, 6, 7, 8]), [1, 0, 1, 3], sort=True)
        >>> x.to_list(), order
        ([[6], [5, 7], [], [8]], tensor([1, 0, 2, 3]))

    Args:
        sort: the ids may be in any order. The result is the rows sorted by their ids, those of a sequence in their order, a
            copy with gradient; and the permutation (int64, (rows,)), with x.values() == values[permutation]. Rows of x
            come back into the order of values by y.values()[permutation.argsort()].
    """
    a_bool("sort", sort)
    rows = rows_to_share(values)
    if not sort:
        try:
            return LoDTensor(rows, LoD.parsed_ids(ids, num_sequences, level_names))
        except LoDValueError as error:
            if not str(error).startswith("expected sorted ids"):
                raise
            raise LoDValueError(f"{error}; sort=True sorts the rows, tl.data.from_keys groups by any keys") from None
    ids = host_integers("ids", ids)
    if not holds(ids.shape[0] == rows.shape[0]):
        raise LoDValueError(f"expected an id for each of {rows.shape[0]} rows, got {ids.shape[0]}")
    with_memory(rows)
    sorted_ids, order = ids.sort(stable=True)
    lod = LoD.parsed_ids(sorted_ids, num_sequences, level_names)
    order = upload(order, rows.device)
    return LoDTensor(ops.gather_rows(rows, order), lod), order


@constructor
def from_boundaries(values: Tensor | np.ndarray, starts, *, level_names=None) -> LoDTensor:
    """A LoDTensor from rows and a flag for each, True where a sequence begins. Shares `values`.

        >>> import torch, torch_lod as tl
        >>> seconds = torch.tensor([0, 4, 5, 90, 93, 200])
        >>> gap = seconds.diff(prepend=seconds[:1]) > 60
        >>> tl.from_boundaries(seconds, gap).to_list()
        [[0, 4, 5], [90, 93], [200]]

    Args:
        values: (rows, *element), a tensor or an array.
        starts: bool, or integers 0 and 1, (rows,): a tensor, an array or a list. For several levels a list of such,
            outermost first; where a sequence begins, one of every inner level begins too. The first row begins a sequence,
            whatever its flag is. One sync if they are on a GPU.

    Returns:
        one level for each of the flags; no sequence is empty, and no rows are no sequences.

    Raises:
        ValueError: for flags of another number than rows, or other integers than 0 and 1.

    Source: numpy.split at numpy.flatnonzero(starts).
    """
    rows = rows_to_share(values)
    several = isinstance(starts, (list, tuple)) and any(not isinstance(flag, (bool, int, np.bool_)) for flag in starts)
    flags_of_levels = list(enumerate(starts)) if several else [(None, starts)]
    levels: list[Tensor] = []
    begins: Tensor | None = None
    for k, flags in flags_of_levels:
        own = _flags("starts" if k is None else f"starts[{k}]", flags, rows.shape[0])
        begins = own if begins is None else begins | own
        levels.append(begins)
    firsts = [flags.nonzero().flatten() for flags in levels]
    offsets = []
    for k, first in enumerate(firsts):
        # of every sequence, which of the next level, or which row, is its first
        inner = levels[k + 1].cumsum(0)[first] - 1 if k + 1 < len(firsts) else first
        end = firsts[k + 1].shape[0] if k + 1 < len(firsts) else rows.shape[0]
        offsets.append(torch.cat([inner, torch.full((1,), end, device="cpu")]))
    return LoDTensor(rows, LoD.checked("starts", offsets, level_names, rows.shape[0]))


@constructor
def from_edges(edges: LoDTensor, x: LoDTensor, *, absolute: bool = False) -> tuple[LoDTensor, Tensor]:
    """The neighbours of every node from the edges of graphs, and the permutation that sorts edges in this way.

        >>> import torch, torch_lod as tl
        >>> x = tl.from_lengths(torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0]), [[3, 2]])  # nodes of two graphs
        >>> edges = tl.lod_tensor([[[0, 1], [2, 1], [1, 0]], [[0, 1]]], depth=1)  # source, target
        >>> near, order = tl.from_edges(edges, x)
        >>> near.to_list(), order
        ([[[1], [0, 2], []], [[], [0]]], tensor([2, 0, 1, 3]))

    `tl.sequence_gather(x, near)` has the sources of every node, and `near.with_values(weight.values()[order])` the features of
    the edges, `weight`, beside them. Called once for all layers.

    Args:
        edges: integers, (edges, 2): the source and the target of every edge, as positions of nodes in their graph. With the
            levels of x, of lengths of their own at the innermost one.
        x: the nodes, (nodes, *element).
        absolute: the positions count the nodes of all graphs, as `edge_index` of PyG does.

    Returns:
        the sources, int64, (edges,), with one more level than x: a sequence for every node, the target, in the order of the
        edges; they count as those of `edges` do, which `tl.sequence_gather` has the same argument for. And int64, (edges,), the
        edge that every row is.

    Raises:
        ValueError: for a position that its graph does not have, or another number of graphs.
        TypeError: for edges that are not integers.

    Source: scipy.sparse.csr_matrix of pairs of indices; torch_geometric.utils.sort_edge_index.
    """
    for what, t in (("edges", edges), ("x", x), ("absolute", absolute)):
        unmoved(what, t)
    a_lod_tensor("edges", edges), a_lod_tensor("x", x)
    a_bool("absolute", absolute)
    lod, k = x.lod, x.lod_level - 1
    pairs = integers("edges", edges, x.device)
    own = owned("edges", lod, k, edges)
    if own is None or own.depth != k + 1 or pairs.dim() != 2 or pairs.shape[1] != 2:
        raise LoDValueError(
            f"expected edges of shape (edges, 2) with the {k + 1} levels of x, got {tuple(pairs.shape)} with {edges.lod_level}"
        )
    with_data("edges", pairs)
    pairs = pairs.cpu()
    graph, offsets = own.segment_ids_at(k), lod.row_offsets_at(k)
    begin, end = offsets[graph][:, None], offsets[1:][graph][:, None]
    rows = pairs if absolute else begin + pairs
    wrong = ((rows < begin) | (rows >= end) | (pairs < 0)).any(1)
    for i in failing(wrong, "from_edges: expected edges between nodes of their graph"):
        first, last = (int(begin[i]), int(end[i]) - 1) if absolute else (0, int(end[i] - begin[i]) - 1)
        hint = "" if absolute else "; if nodes of all graphs are counted, absolute=True"
        raise LoDValueError(
            f"expected edges between nodes in [{first}, {last}] in graph {int(graph[i])}, got {pairs[i].tolist()} at edge {i}{hint}"
        )
    target, order = rows[:, 1].sort(stable=True)
    near = lod.append(torch.bincount(target, minlength=lod.rows)[: lod.rows])
    return LoDTensor(upload(pairs[order, 0], x.device), near), upload(order, x.device)


def _flags(what: str, value, rows: int) -> Tensor:
    """Bool flags in host memory, True for the first row."""
    if isinstance(value, (list, tuple)):
        value = np.array(value, dtype=bool if all(isinstance(f, (bool, np.bool_)) for f in value) else object)
        if value.dtype == object and value.size:
            value = host_integers(what, value.tolist())
    flags = tensor_of(what, value)
    with_data(what, flags)
    with_memory(flags)
    if flags.dim() != 1 or not holds(flags.shape[0] == rows):
        raise LoDValueError(f"expected {what} of shape ({rows},), a flag for each row, got {tuple(flags.shape)}")
    if flags.is_floating_point() or flags.is_complex():
        raise LoDTypeError(f"expected {what} as a bool tensor, got {flags.dtype}; see {what} > 0")
    flags = (flags.values() if isinstance(flags, (LoDTensor, DerivedTensor)) else flags).cpu()
    for i in failing((flags != 0) & (flags != 1), f"from_boundaries: expected {what} of 0 and 1"):
        raise LoDValueError(f"expected {what} of 0 and 1, got {int(flags[i])} at index {i}")
    return torch.cat([torch.ones_like(flags[:1], dtype=torch.bool), flags[1:].bool()])
