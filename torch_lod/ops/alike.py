# SPDX-License-Identifier: Apache-2.0
"""Which segments are equal. As an operator, so that a graph has one algorithm with eager code: it has no loop over lengths."""

import torch
from torch import Tensor


def _alike_segments(alike: Tensor, offsets: Tensor) -> Tensor:
    length = offsets.diff()
    sizes, counts = length.unique(return_counts=True)
    numbers, so_far = torch.zeros_like(length), 0
    for size, at in zip(sizes.tolist(), length.argsort(stable=True).split(counts.tolist())):
        inside = alike[offsets[at][:, None] + torch.arange(size, device="cpu")]
        numbers[at] = so_far + (inside.unique(dim=0, return_inverse=True)[1] if size else 0)
        so_far += at.shape[0]
    return numbers


#: Keeps the registration alive.
_library = torch.library.Library("torch_lod_host", "DEF")
_library.define("alike_segments(Tensor alike, Tensor offsets) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("alike_segments", _alike_segments, "CPU")


@torch.library.register_fake("torch_lod_host::alike_segments", lib=_library)
def _shape(alike, offsets):
    return offsets.new_empty(offsets.shape[0] - 1)


def alike_segments(alike: Tensor, offsets: Tensor) -> Tensor:
    """A number for every segment, equal where segments have equal numbers in equal order; in host memory, int64.

    Args:
        alike: int64, (rows,): a number for every row, equal where rows are.
        offsets: of the segments, valid.
    """
    return torch.ops.torch_lod_host.alike_segments(alike, offsets)
