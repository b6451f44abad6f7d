# SPDX-License-Identifier: Apache-2.0
"""Exported programs in operators of torch alone, for formats that know no others: ONNX."""

from typing import Any

import torch

from ..errors import LoDTypeError
from .compositions import COMPOSITIONS

#: Operators whose compositions are written in what ONNX has. tests/data/check_onnx.py runs them all.
IN_ONNX = (
    *(
        "segment_reduce",
        "segment_logsumexp",
        "segment_var",
        "segment_softmax",
        "segment_log_softmax",
        "segment_normalize",
    ),
    *("segment_conv", "segment_unfold", "segment_scan", "segment_broadcast", "gather_runs", "scatter_runs"),
)


def _repeated(repeats: torch.Tensor, output_size: int) -> torch.Tensor:
    """Every i as often as repeats[i] says, which ONNX cannot say: the ends before a place are counted. No part of `repeats` is
    taken: of two sequences it would have one row, and torch.export takes a size of 1 for a constant."""
    ends = repeats.cumsum(0)
    counts = torch.zeros(output_size + 1, dtype=torch.int64, device=repeats.device)
    return counts.scatter_add(0, ends, torch.ones_like(ends)).cumsum(0)[:-1]


def in_torch(program: Any) -> Any:
    """The program with the compositions of its operators in their place. TypeError if ONNX cannot say one of them."""
    table: dict[Any, Any] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "namespace", None) == "torch_lod":
            name = node.target._opname
            if name not in IN_ONNX:
                raise LoDTypeError(
                    f"expected operators that ONNX can say ({', '.join(IN_ONNX)}), got {name}; compile what export returns by "
                    "AOTInductor instead, which takes all of them"
                )
            table[node.target] = COMPOSITIONS[name]
    table[torch.ops.aten.repeat_interleave.Tensor] = _repeated
    return program.run_decompositions(torch.export.default_decompositions() | table)
