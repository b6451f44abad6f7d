# SPDX-License-Identifier: Apache-2.0
"""What every torch function does to the LoD: one table, looked up by `LoDTensor.__torch_function__`.

A rule is asked before the function runs. It returns the LoD that the result carries, or None for a plain tensor, or raises
where the function would mix sequences. A function without a rule gives plain tensors: that its result has as many rows
proves nothing (`x[torch.randperm(n)]` has).

    keep    row i of the result is made of row i of the first argument
    join    of several operands, whose LoDs must be equal
    reduce  keeps when dim 0 is not among the reduced dims
    shape   keeps when dim 0 stays where it is
    refuse  mixes rows along dim 0
"""

from .rules import chain, refuse_out
from .table import KINDS, RULES, _add
from .words import _name, _refusal, same_lod

__all__ = ["KINDS", "RULES", "_add", "_name", "_refusal", "chain", "refuse_out", "same_lod"]
