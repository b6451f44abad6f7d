# SPDX-License-Identifier: Apache-2.0
"""Compositions of torch's operators, the bodies of ours, by name; how they are registered, and what several are made of.

Simple rather than fast, they replace the kernels where these are missing and on devices that have none, carry torch.func
transforms and gradients of gradients of the recurrences, and are a second opinion in the tests.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from . import check

#: Behind the gate.
COMPOSITIONS: dict[str, Callable] = {}
#: The same by name, without the gate: what compositions call.
composed: Any = SimpleNamespace()
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
    *("check_lod", "rank_by_length", "take_runs", "cut_lod", "join_lods", "locate"),
    *("keep_structure", "watch_structure", "check_errors"),
)
#: Of which inputs the results of an opaque operator's backward are the gradients; biases that are only added share one.
_GRADIENTS = {
    "lstm": ("values", "weight_ih", "weight_hh", "bias_ih bias_hh", "h_0", "c_0", "weight_hr"),
    "gru": ("values", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "h_0"),
    "rnn": ("values", "weight_ih", "weight_hh", "bias_ih bias_hh", "h_0"),
    "attention": ("query", "key", "value", "bias", "slopes", "sink", "distance_bias"),
    "matrix_scan": ("query", "key", "value", "decay", "beta", "a", "b", "initial"),
    "chain_logsumexp": ("values", "transition"),
    "chain_marginals": ("values", "transition"),
    "ctc_loss": ("values",),
}
#: What attention_backward leaves out without `biases`.
_BIASES = ("bias", "slopes", "sink", "distance_bias")


def enter(function: Callable, library: torch.library.Library, kernels: bool) -> None:
    """Registers a function as the composition of the operator of its name: beside kernels for devices that have none and for
    gradients of gradients, and otherwise in place of them. Then all but the opaque operators dissolve into those of torch,
    which have gradients and fakes."""
    name = function.__name__
    setattr(composed, name, function)
    gated = COMPOSITIONS[name] = check.gated(function, name)
    if kernels:
        implicit, fake = name.endswith("_composed"), name in ONLY_COMPOSED
    else:
        implicit, fake = name not in OPAQUE and name not in HOST, name in OPAQUE
    if not kernels or name not in HOST:
        library.impl(name, gated, f"Composite{'Implicit' if implicit else 'Explicit'}Autograd")
    if fake:  # without data there are no steps and no sequences: the composition gives empty results
        torch.library.register_fake(f"torch_lod::{name}", gated, lib=library)
    if not kernels and name in _GRADIENTS:
        _register_gradient(library, name)


def _register_gradient(library: torch.library.Library, name: str) -> None:
    """A gradient is one operator for tracers as well; gradients of gradients are those of the composition."""
    operator, backward = (getattr(torch.ops.torch_lod, n).default for n in (name, f"{name}_backward"))
    names = [argument.name for argument in operator._schema.arguments]

    def save(ctx, inputs, output):
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.options = [None if isinstance(i, torch.Tensor) else i for i in inputs]
        ctx.save_for_backward(*(i if isinstance(i, torch.Tensor) else None for i in inputs), *outputs)
        if len(outputs) > 1:
            ctx.mark_non_differentiable(outputs[-1])
        ctx.set_materialize_grads(False)

    def gradient(ctx, *grads):
        with torch._C.DisableTorchFunctionSubclass():  # what was saved may be a LoDTensor; a gradient is plain
            return made(ctx, grads)

    def made(ctx, grads):
        count, saved = len(ctx.options), ctx.saved_tensors  # a checkpoint hands them out once
        inputs = [option if t is None else t for t, option in zip(saved, ctx.options)]
        tracked = [i if isinstance(i, torch.Tensor) and i.requires_grad else None for i in inputs]
        if all(g is None for g in grads):
            return (None,) * count
        if torch.is_grad_enabled():
            return _differentiable_gradients(name, inputs, tracked, grads)
        known = dict(zip(names, inputs))
        known["biases"] = any(t is not None for t, n in zip(tracked, names) if n in _BIASES)
        found = backward(*_by_name(backward, known, grads, saved))
        found = found if isinstance(found, tuple) else (found,)
        of = {n: d for both, d in zip(_GRADIENTS[name], found) for n in both.split()}
        return tuple(None if i is None else of.get(n) for n, i in zip(names, inputs))

    torch.library.register_autograd(f"torch_lod::{name}", gradient, setup_context=save, lib=library)


def _by_name(backward, known: dict, grads, saved) -> list:
    """The arguments of a backward, of which some are known: beside them it takes gradients, and results of the forward."""
    asked = [argument.name for argument in backward._schema.arguments]
    known |= zip([n for n in asked if n.startswith("grad")], grads)
    results = [n for n in asked if n not in known]
    known |= zip(results, saved[len(saved) - len(results) :])  # the last of the results, if not all
    return [known[n] for n in asked]


def _differentiable_gradients(name: str, inputs: list, tracked: list, grads) -> tuple:
    """Those of the composition; aliases keep inputs apart that were made from one another."""
    aliases = [i.view_as(i) if isinstance(i, torch.Tensor) else i for i in inputs]
    outputs = COMPOSITIONS[f"{name}_composed"](*aliases)
    leaves = [None if t is None else a for t, a in zip(tracked, aliases)]
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple(gradients(outputs, leaves, grads, create_graph=True))


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
