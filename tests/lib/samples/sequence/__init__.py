# SPDX-License-Identifier: Apache-2.0
"""Operators on LoDTensors: a file for each of torch_lod/sequence."""

from samples.sequence import (
    attention,
    chain,
    chunks,
    decoding,
    fused,
    gather,
    labels,
    layout,
    levels,
    linear,
    match,
    order,
    pairs,
    plan,
    pool,
    rearrange,
    windows,
    within,
)

FAMILIES = (
    pool,
    order,
    within,
    linear,
    attention,
    rearrange,
    gather,
    layout,
    levels,
    windows,
    plan,
    pairs,
    chain,
    chunks,
    decoding,
    labels,
    fused,
    match,
)
ENTRIES = [entry for family in FAMILIES for entry in family.ENTRIES]
METHODS = levels.METHODS
