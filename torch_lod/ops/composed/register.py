# SPDX-License-Identifier: Apache-2.0
"""Gives every schema its composition."""

import torch

from .table import COMPOSITIONS, HOST, ONLY_COMPOSED, OPAQUE, gradients

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


def beside_kernels(library: torch.library.Library) -> None:
    """For devices that the compiled operators have no kernels for, and for gradients of gradients."""
    for name, function in COMPOSITIONS.items():
        if name not in HOST:
            kind = "Implicit" if name.endswith("_composed") else "Explicit"
            library.impl(name, function, f"Composite{kind}Autograd")
    for name in ONLY_COMPOSED:
        torch.library.register_fake(f"torch_lod::{name}", COMPOSITIONS[name], lib=library)


def in_place_of_kernels(library: torch.library.Library, schemas: dict[str, str]) -> None:
    """Defines the operators. All but the opaque ones dissolve into torch operators, which have gradients and fakes."""
    for name, function in COMPOSITIONS.items():
        library.define(schemas[name], tags=(torch.Tag.pt2_compliant_tag,))
        whole = name in OPAQUE or name in HOST
        library.impl(name, function, f"Composite{'Explicit' if whole else 'Implicit'}Autograd")
        if name in OPAQUE:  # without data there are no steps and no sequences: the composition gives empty results
            torch.library.register_fake(f"torch_lod::{name}", function, lib=library)
    for name in _GRADIENTS:
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
        if torch.is_grad_enabled():  # aliases keep inputs apart that were made from one another
            aliases = [i.view_as(i) if isinstance(i, torch.Tensor) else i for i in inputs]
            outputs = COMPOSITIONS[f"{name}_composed"](*aliases)
            leaves = [None if t is None else a for t, a in zip(tracked, aliases)]
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return tuple(gradients(outputs, leaves, grads, create_graph=True))
        known, given = dict(zip(names, inputs)), iter(grads)
        known["biases"] = any(t is not None for t, n in zip(tracked, names) if n in _BIASES)
        arguments = [argument.name for argument in backward._schema.arguments]
        results = [n for n in arguments if n not in known and not n.startswith("grad")]
        rest = iter(saved[len(saved) - len(results) :])  # the last of the results, if not all
        found = backward(
            *(known[n] if n in known else next(given if n.startswith("grad") else rest) for n in arguments)
        )
        found = found if isinstance(found, tuple) else (found,)
        of = {n: d for both, d in zip(_GRADIENTS[name], found) for n in both.split()}
        return tuple(None if i is None else of.get(n) for n, i in zip(names, inputs))

    torch.library.register_autograd(f"torch_lod::{name}", gradient, setup_context=save, lib=library)
