# SPDX-License-Identifier: Apache-2.0
"""Gives every schema its composition."""

import torch

from .. import check
from .recurrence import check_gru_backward, check_lstm, check_lstm_backward
from .table import COMPOSITIONS, HOST, OPAQUE


def register(library: torch.library.Library, compiled: bool) -> torch.library.Library:
    """Gives every schema its composition: beside the compiled kernels for devices that have none, or in their place."""
    tags = (torch.Tag.pt2_compliant_tag,)
    for name, (schema, function) in COMPOSITIONS.items():
        if not compiled:
            library.define(schema, tags=tags)
        if name.endswith("_composed") or (not compiled and name not in OPAQUE and name not in HOST):
            library.impl(name, function, "CompositeImplicitAutograd")
        elif name not in HOST or not compiled:
            library.impl(name, function, "CompositeExplicitAutograd")
    if not compiled:
        _register_opaque(library)
    return library


def _register_opaque(library: torch.library.Library) -> None:
    ops = torch.ops.torch_lod

    def rows_by(values, width):
        return values.new_empty(values.shape[0], width)

    def fake_lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False):
        check_lstm("lstm", values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets)
        width = weight_hh.shape[1]
        return rows_by(values, width), rows_by(values, width), rows_by(values, 4 * width)

    def fake_gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False):
        check.layer("gru", 3, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
        return rows_by(values, weight_hh.shape[1]), rows_by(values, 4 * weight_hh.shape[1])

    def fake_state(state, values, width):
        return values.new_empty(0, width) if state is None else torch.empty_like(state)

    def fake_lstm_backward(
        grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, reverse, *saved
    ):
        check_lstm_backward(grad_output, grad_cells, values, weight_ih, weight_hh, h_0, c_0, row_offsets, *saved)
        bias = values.new_empty(weight_hh.shape[0])
        states = [fake_state(s, values, weight_hh.shape[1]) for s in (h_0, c_0)]
        return torch.empty_like(values), torch.empty_like(weight_ih), torch.empty_like(weight_hh), bias, *states

    def fake_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, *saved):
        check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, *saved)
        biases = [values.new_empty(weight_hh.shape[0]) for _ in range(2)]
        state = fake_state(h_0, values, weight_hh.shape[1])
        return torch.empty_like(values), torch.empty_like(weight_ih), torch.empty_like(weight_hh), *biases, state

    for name, fake in (
        ("lstm", fake_lstm),
        ("gru", fake_gru),
        ("lstm_backward", fake_lstm_backward),
        ("gru_backward", fake_gru_backward),
    ):
        torch.library.register_fake(f"torch_lod::{name}", fake, lib=library)

    def save(ctx, inputs, output):
        *tensors, ctx.reverse = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)

    def differentiable(ctx, tensors, compose, grads):
        """Gradients that can be differentiated: autograd's own, through the composition run on aliases of the inputs."""
        aliases = [t if t is None else t.view_as(t) for t in tensors]
        outputs = compose(*aliases, ctx.reverse)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = [a for a, t in zip(aliases, tensors) if t is not None and t.requires_grad]
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        if not pairs:  # no rows: nothing depends on anything
            return [None] * len(tensors)
        outs, given = zip(*pairs)
        found = iter(torch.autograd.grad(outs, wanted, given, create_graph=True, allow_unused=True))
        return [next(found) if t is not None and t.requires_grad else None for t in tensors]

    def lstm_grad(ctx, grad_output, grad_cells, _):
        *tensors, output, cells, gates = ctx.saved_tensors
        values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets = tensors
        if torch.is_grad_enabled():
            return *differentiable(ctx, tensors, ops.lstm_composed.default, (grad_output, grad_cells)), None
        x, w_ih, w_hh, bias, h, c = ops.lstm_backward.default(
            grad_output,
            grad_cells,
            values,
            weight_ih,
            weight_hh,
            h_0,
            c_0,
            row_offsets,
            ctx.reverse,
            output,
            cells,
            gates,
        )
        biases = [None if b is None else bias for b in (bias_ih, bias_hh)]
        return x, w_ih, w_hh, *biases, None if h_0 is None else h, None if c_0 is None else c, None, None

    def gru_grad(ctx, grad_output, _):
        if grad_output is None:
            return (None,) * 8
        *tensors, output, saved = ctx.saved_tensors
        values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets = tensors
        if torch.is_grad_enabled():
            return *differentiable(ctx, tensors, ops.gru_composed.default, (grad_output,)), None
        x, w_ih, w_hh, b_ih, b_hh, h = ops.gru_backward.default(
            grad_output, values, weight_ih, weight_hh, h_0, row_offsets, ctx.reverse, output, saved
        )
        return (
            x,
            w_ih,
            w_hh,
            None if bias_ih is None else b_ih,
            None if bias_hh is None else b_hh,
            (None if h_0 is None else h),
            None,
            None,
        )

    torch.library.register_autograd("torch_lod::lstm", lstm_grad, setup_context=save, lib=library)
    torch.library.register_autograd("torch_lod::gru", gru_grad, setup_context=save, lib=library)
