# SPDX-License-Identifier: Apache-2.0
"""What every torch function does to the LoD: one table, looked up by `LoDTensor.__torch_function__`.

A rule is called before the function runs. It returns the LoD of the result, or None for a plain tensor, or raises if
the function would mix sequences. Functions without a rule give plain tensors: an equal number of rows does not prove
that they are the same rows (`x[torch.randperm(n)]` has as many). Every function that torch shows to a subclass
(`catalogue.functions`) has its kind in the table (`KINDS`), with or without a rule.
"""

from .arguments import MEANING, Route, name_of, same_lod
from .catalogue import functions
from .operands import join_in_place, refuse_unknown
from .rules import chain, moves_in_place, refuse_out
from .table import KINDS, RULES

__all__ = [
    "KINDS",
    "MEANING",
    "RULES",
    "Route",
    "chain",
    "functions",
    "join_in_place",
    "moves_in_place",
    "name_of",
    "refuse_out",
    "refuse_unknown",
    "same_lod",
]
