# SPDX-License-Identifier: Apache-2.0
"""Orders of sequences in which a step or a padded batch costs about as much as what is in it, however different the lengths
are."""

import torch
from torch import Tensor


def exceeding(counts: Tensor, most: int) -> Tensor:
    """How many of the counts, integers >= 0, are larger than 0, 1, ..., most - 1."""
    if torch.compiler.is_exporting():  # which has no arithmetic of sizes that are attributes
        return (counts > torch.arange(most, device=counts.device)[:, None]).sum(1)
    # not bincount, the size of whose result a graph does not know
    of_each = counts.new_zeros(most + 1).index_add(0, counts.clamp(max=most), torch.ones_like(counts))
    return counts.shape[0] - of_each[:most].cumsum(0)


def by_steps(lengths: Tensor, longest: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The elements of sequences, the longest first, in the order of their steps: step 0 of all sequences, then step 1 of those
    that have one, and so on.

    Args:
        lengths: int64, falling.
        longest: the first of them, where it is known.

    Returns:
        of every element the number of its sequence and its step; and the number of elements of every step.
    """
    if not lengths.shape[0]:
        return lengths, lengths, lengths
    longest = int(lengths[0]) if longest is None else longest
    sizes = exceeding(lengths, longest)
    step = torch.arange(longest, device=lengths.device).repeat_interleave(sizes)
    first = sizes.cumsum(0) - sizes
    return torch.arange(step.shape[0], device=lengths.device) - first[step], step, sizes


def of_similar_lengths(n: Tensor, m: Tensor) -> list[Tensor]:
    """The numbers of all sequences, which have two lengths each, in groups in which no length is more than twice another (0
    counts as 1): padded to the longest of their group, they take at most four times the product of their lengths."""
    size = torch.stack([n, m], 1).clamp(min=1).double().log2().ceil().long()
    key = size[:, 0] * 64 + size[:, 1]
    order = key.argsort(stable=True)
    counts = key[order].unique_consecutive(return_counts=True)[1]
    return list(order.split(counts.tolist()))


def padded_map(offsets: Tensor, index: Tensor, length: int, begin: int = 0) -> Tensor:
    """The rows of the sequences at `index` from position `begin` on, each padded to `length` with -1."""
    row = offsets[index][:, None] + torch.arange(begin, begin + length, device="cpu")
    return torch.where(row < offsets[index + 1][:, None], row, -1).flatten()
