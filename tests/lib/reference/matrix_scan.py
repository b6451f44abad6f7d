# SPDX-License-Identifier: Apache-2.0
"""Recurrences with a matrix as state, row by row and head by head; differentiable through autograd."""

import torch

from reference.rows import rows_of


def one_head(q, k, v, w, beta, a, b, state, delta, scale):
    """The rows of one sequence and head, and the state behind them."""
    out = []
    for t in range(len(v)):
        decayed = w[t].reshape(-1, 1) * state
        value = v[t] - decayed.t() @ k[t] if delta else v[t]
        new = decayed + torch.outer(k[t], value if beta is None else beta[t] * value)
        state = new if a is None else new + torch.outer(a[t], state.t() @ b[t])
        out.append(scale * (state.t() @ q[t]))
    return rows_of(out, v), state


def matrix_scan(query, key, value, decay, beta, a, b, initial, row_offsets, delta=False, scale=1.0, save=True):
    heads, ends, out, last = value.shape[1], row_offsets.tolist(), [], []
    group, sums = heads // key.shape[1], decay.dtype
    shape = len(ends) - 1, heads, key.shape[2], value.shape[2]
    initial = decay.new_zeros(shape) if initial is None else initial
    for s, rows in enumerate(map(slice, ends, ends[1:])):
        made = []
        for h in range(heads):
            of_keys = [t if t is None else t[rows, h // group] for t in (query, key, a, b)]
            of_heads = [t if t is None else t[rows, h] for t in (value, decay, beta)]
            (q, k, a_, b_), (v, w, beta_) = of_keys, of_heads
            made.append(one_head(q, k, v, w, beta_, a_, b_, initial[s, h], delta, scale))
        out += torch.stack([rows for rows, _ in made], 1)
        last.append(torch.stack([state for _, state in made]))
    return rows_of(out, value), rows_of(last, value.new_zeros(0, *shape[1:], dtype=sums)), value.new_zeros(0)


def matrix_scan_backward(
    grad_output, grad_last, query, key, value, decay, beta, a, b, initial, row_offsets, delta, scale, saved
):
    inputs = query, key, value, decay, beta, a, b, initial
    leaves = [None if t is None else t.detach().clone().requires_grad_() for t in inputs]
    results = zip(matrix_scan(*leaves, row_offsets, delta, scale)[:2], (grad_output, grad_last))
    loss = sum((o * g).sum() for o, g in results if g is not None and o.requires_grad)
    wanted = [t for t in leaves if t is not None]
    zeros = [torch.zeros_like(t) for t in wanted]
    found = iter(zeros)
    if torch.is_tensor(loss):
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        found = iter(z if d is None else d for z, d in zip(zeros, found))
    return tuple(decay.new_zeros(0) if t is None else next(found) for t in leaves)
