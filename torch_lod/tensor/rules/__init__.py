# SPDX-License-Identifier: Apache-2.0
"""What every torch function does to the LoD: one table, looked up by `LoDTensor.__torch_function__`.

A rule is called before the function runs. It returns the LoD of the result, a Mark if the rows are at another dim than 0,
None if they are lost, or raises if the function would mix sequences. Functions without a rule lose the rows, unless
their kind is "plain": an equal number of rows does not prove that they are the same rows (`x[torch.randperm(n)]` has as
many). What an operand that is no LoDTensor, but consists of rows, does is answered by the attribute `moved` of the rules
(`MOVED`). Every function that torch shows to a subclass
(`catalogue.functions`) has its kind in the table (`KINDS`), with or without a rule.
"""

from .arguments import (
    CUT,
    INSTEAD,
    MEANING,
    At,
    Mark,
    Route,
    declared_name,
    lost_meets,
    mark_of,
    marked,
    marks_of,
    name_of,
    placed,
    same_lod,
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
from .indices import EACH, chain, counted_each
from .operands import counterpart, join, join_in_place, keep, of_padded, refuse_unknown
from .parts import refuse_other_sequence
from .rules import moves_in_place, refuse_out, refuse_write
from .table import KINDS, MOVED, RULES, known

__all__ = [
    "BROADCASTS",
    "CUT",
    "EACH",
    "INSTEAD",
    "KINDS",
    "MEANING",
    "MOVED",
    "PRODUCTS",
    "RULES",
    "At",
    "Mark",
    "Route",
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
    "mark_of",
    "marked",
    "marks_of",
    "moves_in_place",
    "name_of",
    "of_padded",
    "over_sequences",
    "placed",
    "refuse_lost",
    "refuse_other_sequence",
    "refuse_out",
    "refuse_undeclared",
    "refuse_unknown",
    "refuse_write",
    "repeat_rows",
    "repeated",
    "same_lod",
    "undeclared",
]
