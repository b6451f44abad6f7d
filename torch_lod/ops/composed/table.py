# SPDX-License-Identifier: Apache-2.0
"""The compositions by name, and what several of them are made of."""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import check

COMPOSITIONS: dict[str, Callable] = {}
#: The host plans their steps or goes from sequence to sequence: tracers must see one operator and never look inside.
OPAQUE = (
    *("lstm", "lstm_backward", "gru", "gru_backward", "rnn", "rnn_backward", "attention", "attention_backward"),
    *("matrix_scan", "matrix_scan_backward"),
    *("chain_logsumexp", "chain_logsumexp_backward", "chain_marginals", "chain_marginals_backward"),
    *("chain_argmax", "chain_sample"),
    *("ctc_loss", "ctc_loss_backward", "ctc_best_path", "ctc_beam", "edit_distance", "edit_alignment"),
)
#: Of these, the ones without a kernel: the composition serves every device.
ONLY_COMPOSED = ("chain_marginals_backward",)
#: Of the opaque ones, those that autograd may record step by step where nothing traces: as large as what the operator would save.
RECORDED = ("lstm", "gru", "rnn", "chain_logsumexp", "chain_marginals")
#: Questions about structure in host memory: they have no gradient, and their one implementation serves every device.
HOST = (
    *(
        "check_lod",
        "rank_by_length",
        "take_runs",
        "cut_lod",
        "join_lods",
        "locate",
        "keep_structure",
        "watch_structure",
    ),
    "check_errors",
)


def composition(function: Callable) -> Callable:
    """Enters a function as the composition of the operator of its name, behind the gate. What it calls itself, and what
    other compositions call, does not pass again."""
    COMPOSITIONS[function.__name__] = check.gated(function, function.__name__)
    return function


def segment_of_rows(row_offsets: Tensor, rows) -> Tensor:
    return torch.repeat_interleave(row_offsets.diff(), output_size=rows)


def like_rows(t: Tensor, like: Tensor) -> Tensor:
    """A vector over rows, shaped to be combined with `like`."""
    return t.view(-1, *[1] * (like.dim() - 1))


def wide(t: Tensor) -> Tensor:
    """What half types are summed in, forwards and backwards."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def sum_by(ids: Tensor, values: Tensor, count) -> Tensor:
    """Row i of the result: the sum of the rows of values whose id is i."""
    x = wide(values)
    return x.new_zeros(count, *values.shape[1:]).index_add(0, ids, x).to(values.dtype)


def gradients(outputs, leaves, grads, create_graph: bool = False) -> list[Tensor | None]:
    """torch.autograd.grad for outputs and leaves that may be None or independent of one another: zeros, None for None."""
    pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
    wanted = [t for t in leaves if t is not None]
    found: list = [None] * len(wanted)
    if pairs and wanted:
        outs, given = zip(*pairs)
        found = list(torch.autograd.grad(outs, wanted, given, create_graph=create_graph, allow_unused=True))
    each = iter(t.new_zeros(t.shape) if d is None else d for t, d in zip(wanted, found))
    return [None if t is None else next(each) for t in leaves]


def vjp(function: Callable, inputs, grads) -> list[Tensor | None]:
    """Gradients of `function(*inputs)`, which returns a list, for the gradients of what it returns; None for None."""
    exclude = torch._C._SetExcludeDispatchKeyGuard  # a kernel may run where autograd is switched off
    with torch.enable_grad(), exclude(torch._C.DispatchKey.AutogradFunctionality, False):
        leaves = [None if t is None else t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
        return gradients(function(*leaves), leaves, grads)
