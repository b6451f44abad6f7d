# SPDX-License-Identifier: Apache-2.0
"""Rows of segments, apart and together."""

import itertools

import torch


def segments(values, row_offsets):
    ends = row_offsets.tolist()
    return [values[a:b] for a, b in itertools.pairwise(ends)]


def rows_of(parts, like):
    """A list of rows as a tensor, also when it is empty."""
    return torch.stack(parts) if parts else like.new_zeros(0, *like.shape[1:])
