# SPDX-License-Identifier: Apache-2.0
"""What every torch function does to the rows: one table, looked up by `Tracked.__torch_function__`.

A rule is called before the function runs. It returns the provenance of the result, None if its rows are lost, or raises if
the function would mix sequences. It answers once, for wherever the rows of the operands are. Functions without a rule lose
the rows, unless their kind is "plain": an equal number of rows does not prove that they are the same rows
(`x[torch.randperm(n)]` has as many). Every function that torch shows to a subclass (`catalogue.functions`) has its kind in
the table (`KINDS`), with or without a rule.
"""

from .arguments import (
    CUT,
    INSTEAD,
    MEANING,
    STACKS,
    Route,
    another_class,
    declared_name,
    lost_meets,
    name_of,
    refused,
    same_lod,
    way_out,
)
from .broadcasting import (
    BROADCASTS,
    PRODUCTS,
    is_parameter,
    over_sequences,
    refuse_lost,
    refuse_undeclared,
    repeat_rows,
    repeated,
    undeclared,
)
from .catalogue import functions
from .indices import chain, counted_each
from .operands import counterpart, join, join_in_place, keep, of_padded, refuse_unknown
from .parts import refuse_other_sequence
from .rules import moves_in_place, refuse_out, refuse_write
from .table import KINDS, RULES, known

__all__ = [
    "BROADCASTS",
    "CUT",
    "INSTEAD",
    "KINDS",
    "MEANING",
    "PRODUCTS",
    "RULES",
    "STACKS",
    "Route",
    "another_class",
    "chain",
    "counted_each",
    "counterpart",
    "declared_name",
    "functions",
    "is_parameter",
    "join",
    "join_in_place",
    "keep",
    "known",
    "lost_meets",
    "moves_in_place",
    "name_of",
    "of_padded",
    "over_sequences",
    "refuse_lost",
    "refuse_other_sequence",
    "refuse_out",
    "refuse_undeclared",
    "refuse_unknown",
    "refuse_write",
    "refused",
    "repeat_rows",
    "repeated",
    "same_lod",
    "undeclared",
    "way_out",
]
