# SPDX-License-Identifier: Apache-2.0
"""What torch's functions do to the rows of sequences: a row of the table for every function, in files by family, each with its rule,
what runs instead of it along sequences, and all else that is known of it.

A rule is called before the function runs. It returns the provenance of the result, None if its rows are lost, or raises if
the function would mix sequences. It answers once, for wherever the rows of the operands are. Functions without a rule lose
the rows, unless their kind is "plain": an equal number of rows does not prove that they are the same rows
(`x[torch.randperm(n)]` has as many). Every function that torch shows to a subclass (`row.shown_functions`) has a row.
"""

import sys

from ..tensor import table
from . import (
    along,
    attention,
    elementwise,
    embeddings,
    foreach,
    indexing,
    losses,
    modules,
    norms,
    packed,
    plain,
    products,
    recurrences,
    reductions,
    views,
    windows,
)
from .broadcasting import over_sequences, refuse_lost, refuse_undeclared
from .hints import explain
from .placement import refuse_other_sequence, refuse_out, refuse_unknown, refuse_write
from .refusals import another_class, lost_meets, refused, way_out
from .views import moves_in_place

table.functions = sys.modules[__name__]
