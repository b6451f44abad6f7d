# SPDX-License-Identifier: Apache-2.0
"""Gives every schema its composition."""

import torch

from .. import check
from .attention import check_backward, empty_gradients, empty_results
from .recurrence import check_gru_backward, check_lstm, check_rnn_backward
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

    def fake_lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False, weight_hr=None):
        check_lstm("lstm", values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, weight_hr)
        width = weight_hh.shape[0] // 4
        return rows_by(values, weight_hh.shape[1]), rows_by(values, width), rows_by(values, 4 * width)

    def fake_gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False):
        check.layer("gru", 3, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
        return rows_by(values, weight_hh.shape[1]), rows_by(values, 4 * weight_hh.shape[1])

    def fake_rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False, relu=False):
        check.layer("rnn", 1, values, weight_ih, weight_hh, row_offsets, bias_ih=bias_ih, bias_hh=bias_hh, h_0=h_0)
        return rows_by(values, weight_hh.shape[1])

    def like(*tensors):
        return [torch.empty_like(t) for t in tensors]

    def like_state(state, values, width):
        return values.new_empty(0, width) if state is None else torch.empty_like(state)

    def fake_lstm_backward(
        grad_output,
        grad_cells,
        values,
        weight_ih,
        weight_hh,
        h_0,
        c_0,
        row_offsets,
        reverse,
        output,
        cells,
        gates,
        weight_hr=None,
    ):
        rows = {"grad_output": grad_output, "grad_cells": grad_cells, "output": output, "cells": cells, "gates": gates}
        layer = (values, weight_ih, weight_hh, None, None, h_0, c_0, row_offsets, weight_hr)
        check_lstm("lstm_backward", *layer, **rows)
        width, state = weight_hh.shape[0] // 4, weight_hh.shape[1]
        states = like_state(h_0, values, state), like_state(c_0, values, width), like_state(weight_hr, values, width)
        return *like(values, weight_ih, weight_hh), values.new_empty(4 * width), *states

    def fake_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, *saved):
        check_gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, *saved)
        biases = [values.new_empty(weight_hh.shape[0]) for _ in range(2)]
        return *like(values, weight_ih, weight_hh), *biases, like_state(h_0, values, weight_hh.shape[1])

    def fake_rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, relu, output):
        check_rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, output)
        bias, width = values.new_empty(weight_hh.shape[0]), weight_hh.shape[1]
        return *like(values, weight_ih, weight_hh), bias, like_state(h_0, values, width)

    def fake_attention(*inputs):
        return empty_results(*inputs)

    def fake_attention_backward(grad, *inputs_and_more):
        *inputs, _, left, right, dropout, output, logsumexp, biases = inputs_and_more
        check_backward("attention_backward", grad, inputs, left, right, dropout, output, logsumexp)
        query, key, value, _, _, bias, slopes, _ = inputs
        return empty_gradients(query, key, value, bias, slopes, biases)

    forwards = fake_lstm, fake_gru, fake_rnn, fake_attention
    for fake in (*forwards, fake_lstm_backward, fake_gru_backward, fake_rnn_backward, fake_attention_backward):
        torch.library.register_fake(f"torch_lod::{fake.__name__.removeprefix('fake_')}", fake, lib=library)

    def save(ctx, inputs, output):
        outputs = output if isinstance(output, tuple) else (output,)
        tensors = [i if isinstance(i, torch.Tensor) else None for i in inputs]
        ctx.options = [None if isinstance(i, torch.Tensor) else i for i in inputs]
        ctx.save_for_backward(*tensors, *outputs)
        if len(outputs) > 1:
            ctx.mark_non_differentiable(outputs[-1])
        ctx.set_materialize_grads(False)

    def differentiable(inputs, compose, grads):
        """Gradients that can be differentiated: autograd's own, through the composition run on aliases of the inputs."""
        wanted = [isinstance(i, torch.Tensor) and i.requires_grad for i in inputs]
        aliases = [i.view_as(i) if isinstance(i, torch.Tensor) else i for i in inputs]
        outputs = compose(*aliases)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        if not pairs:  # no rows: nothing depends on anything
            return (None,) * len(inputs)
        outs, given = zip(*pairs)
        leaves = [a for a, w in zip(aliases, wanted) if w]
        found = iter(torch.autograd.grad(outs, leaves, given, create_graph=True, allow_unused=True))
        return tuple(next(found) if w else None for w in wanted)

    def lstm_grads(inputs, saved, grads):
        values, weight_ih, weight_hh, _, _, h_0, c_0, row_offsets, reverse, weight_hr = inputs
        layer = (values, weight_ih, weight_hh, h_0, c_0, row_offsets, reverse)
        x, w_ih, w_hh, bias, h, c, w_hr = ops.lstm_backward.default(grads[0], grads[1], *layer, *saved, weight_hr)
        return x, w_ih, w_hh, bias, bias, h, c, None, None, w_hr

    def gru_grads(inputs, saved, grads):
        values, weight_ih, weight_hh, _, _, h_0, row_offsets, reverse = inputs
        layer = (values, weight_ih, weight_hh, h_0, row_offsets, reverse)
        return *ops.gru_backward.default(grads[0], *layer, *saved), None, None

    def rnn_grads(inputs, saved, grads):
        values, weight_ih, weight_hh, _, _, h_0, row_offsets, reverse, relu = inputs
        layer = (values, weight_ih, weight_hh, h_0, row_offsets, reverse, relu)
        x, w_ih, w_hh, bias, h = ops.rnn_backward.default(grads[0], *layer, *saved)
        return x, w_ih, w_hh, bias, bias, h, None, None, None

    def attention_grads(inputs, saved, grads):
        biases = any(t is not None and t.requires_grad for t in inputs[5:7])
        *found, bias, slopes = ops.attention_backward.default(grads[0], *inputs, *saved, biases)
        return *found, None, None, *((bias, slopes) if biases else (None, None)), *[None] * 5

    def with_gradient(name, compose, gradients):
        def backward(ctx, *grads):
            count, saved = len(ctx.options), ctx.saved_tensors  # a checkpoint hands them out once
            inputs = [t if o is None else o for t, o in zip(saved, ctx.options)]
            if all(g is None for g in grads):
                return (None,) * count
            if torch.is_grad_enabled():
                return differentiable(inputs, compose, grads)
            found = gradients(inputs, saved[count:], grads)
            return tuple(None if i is None else d for i, d in zip(inputs, found))

        torch.library.register_autograd(f"torch_lod::{name}", backward, setup_context=save, lib=library)

    with_gradient("lstm", ops.lstm_composed.default, lstm_grads)
    with_gradient("gru", ops.gru_composed.default, gru_grads)
    with_gradient("rnn", ops.rnn_composed.default, rnn_grads)
    with_gradient("attention", ops.attention_composed.default, attention_grads)
