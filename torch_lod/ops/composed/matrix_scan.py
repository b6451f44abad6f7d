# SPDX-License-Identifier: Apache-2.0
"""Shape "recurrence" with a matrix as state: step t of all sequences together."""

import torch
from torch import Tensor

from .. import check
from .recurrence import Steps
from .table import composition, vjp, wide


def _check(op, query, key, value, decay, beta, a, b, initial, row_offsets, delta, **given) -> None:
    check.is_floating(op, "value", value)
    if value.dim() != 3 or value.shape[1] < 1 or value.shape[2] < 1:
        wanted = "value of shape (rows, heads, width), at least one head of at least one number"
        raise ValueError(f"{op}: expected {wanted}, got {list(value.shape)}")
    dtype, sums = value.dtype, wide(value[:0]).dtype
    check.kind(op, "key", key, dtype, value.device)
    rows, heads = value.shape[:2]
    if key.dim() != 3 or key.shape[0] != rows or key.shape[1] < 1 or key.shape[2] < 1 or heads % key.shape[1]:
        wanted = f"key of shape [{rows}, heads, width], its heads a divisor of the value's {heads}"
        raise ValueError(f"{op}: expected {wanted}, got {list(key.shape)}")
    gates, keyed = [rows, heads], list(key.shape)
    _expect(op, "query", query, dtype, value, keyed)
    check.kind(op, "decay", decay, sums, value.device)
    by_key = [*gates, keyed[2]]
    if list(decay.shape) not in (gates, by_key):
        raise ValueError(f"{op}: expected decay of shape {gates} or {by_key}, got {list(decay.shape)}")
    _expect(op, "beta", beta, sums, value, gates)
    if (a is None) != (b is None):
        raise ValueError(f"{op}: expected a and b together, got one of them")
    _expect(op, "a", a, dtype, value, keyed)
    _expect(op, "b", b, dtype, value, keyed)
    if delta and a is not None:
        raise ValueError(f"{op}: expected delta without a and b, which it stands for")
    check.offsets_kind(op, row_offsets, value.device)
    state = [row_offsets.shape[0] - 1, heads, keyed[2], value.shape[2]]
    _expect(op, "initial", initial, sums, value, state)
    _expect(op, "grad_output", given.get("grad_output"), dtype, value, list(value.shape))
    _expect(op, "grad_last", given.get("grad_last"), sums, value, state)
    if (saved := given.get("saved")) is not None and (saved.dim() != 1 or saved.shape[0]):  # or nothing was kept
        _expect(op, "saved", saved, sums, value, [_kept(key, value, delta or a is not None)])
    check.offsets(op, row_offsets, rows, "row_offsets", "value")


def _expect(op, name, t, dtype, value, shape) -> None:
    if t is None:
        return
    check.kind(op, name, t, dtype, value.device)
    if list(t.shape) != shape:
        raise ValueError(f"{op}: expected {name} of shape {shape}, got {list(t.shape)}")


def _by_head(t: Tensor | None, heads) -> Tensor | None:
    """What heads share, for each of them."""
    return t if t is None or t.shape[1] == heads else t.repeat_interleave(heads // t.shape[1], 1)


@composition
def matrix_scan(
    query,
    key,
    value,
    decay,
    beta,
    a,
    b,
    initial,
    row_offsets,
    delta=False,
    scale=1.0,
    save=True,
    *,
    op="matrix_scan",
    **given,
):
    """`given`: what a backward has beside the inputs, `op`: its name."""
    _check(op, query, key, value, decay, beta, a, b, initial, row_offsets, delta, **given)
    steps, heads = Steps(row_offsets, False, value.device), value.shape[1]
    q, k, left, right = (t if t is None else wide(_by_head(t, heads)) for t in (query, key, a, b))
    v = wide(value) if beta is None else wide(value) * beta.unsqueeze(-1)
    w = decay if decay.dim() == 3 else decay.unsqueeze(-1)
    if delta:  # a and b that it stands for
        left, right = -k if beta is None else -k * beta.unsqueeze(-1), w * k
    shape = row_offsets.shape[0] - 1, heads, key.shape[2], value.shape[2]
    s = v.new_zeros(shape) if initial is None else initial.index_select(0, steps.order)
    out, ended = [], []
    for q_, k_, v_, w_, a_, b_ in zip(*(steps.split(t) for t in (q, k, v, w, left, right))):
        n = q_.shape[0]
        ended.append(s[n:])
        s = s[:n]
        new = w_.unsqueeze(-1) * s + k_.unsqueeze(-1) * v_.unsqueeze(-2)
        if a_ is not None:
            new = new + a_.unsqueeze(-1) * torch.einsum("nhk,nhkv->nhv", b_, s).unsqueeze(-2)
        s = new
        out.append(scale * torch.einsum("nhk,nhkv->nhv", q_, s))
    if out:
        rows = torch.cat(out).index_select(0, steps.rows.argsort())
    else:  # of no rows, every input has a gradient all the same
        rows = v * sum(t.sum() for t in (q, k, w, left, right) if t is not None)
    last = torch.cat([s, *ended[::-1]]).index_select(0, steps.order.argsort())
    return rows.to(value.dtype), last, v.new_empty(0)


def _kept(k: Tensor, v: Tensor, reads: bool):
    """How many numbers the kernel keeps for the backward: what is traced has its sizes."""
    (rows, heads, width), keys = v.shape, -(-k.shape[2] // 16) * 16
    width = -(-width // 16) * 16
    return rows * heads * width * reads + rows // min(max(keys, 64), 256) * heads * keys * width


@composition
def matrix_scan_composed(*inputs):
    return matrix_scan(*inputs)[:2]


@composition
def matrix_scan_backward(
    grad_output,
    grad_last,
    query,
    key,
    value,
    decay,
    beta,
    a,
    b,
    initial,
    row_offsets,
    delta,
    scale,
    saved,
):
    given = {"grad_output": grad_output, "grad_last": grad_last, "saved": saved}
    inputs = query, key, value, decay, beta, a, b, initial

    def forward(*inputs):
        return matrix_scan(*inputs, row_offsets, delta, scale, op="matrix_scan_backward", **given)[:2]

    found = vjp(forward, inputs, [grad_output, grad_last])
    missing = wide(value[:0])
    return tuple(
        d.contiguous() if d is not None else missing.new_empty(0) if t is None else torch.zeros_like(t)
        for d, t in zip(found, inputs)
    )
