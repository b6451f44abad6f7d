# SPDX-License-Identifier: Apache-2.0
"""Operators on plain tensors: a file for each of the families in torch_lod/ops."""

from samples.ops import (
    attention,
    chain,
    conv,
    ctc,
    edit,
    matrix_scan,
    normalize,
    order,
    recurrence,
    rows,
    scan,
    segment,
)

ENTRIES = [
    entry
    for family in (rows, conv, scan, order, segment, normalize, recurrence, matrix_scan, attention, chain, ctc, edit)
    for entry in family.ENTRIES
]
