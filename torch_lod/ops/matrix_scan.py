# SPDX-License-Identifier: Apache-2.0
"""Shape "recurrence" with a matrix as state: step t of all sequences together."""

from typing import Any

import torch
from torch import Tensor

from . import check
from .compositions import composed, vjp, wide
from .library import composition, operator
from .recurrence import Steps

__all__ = [
    "matrix_scan",
]


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


def _by_head(t: Tensor | None, heads) -> Any:
    """What heads share, for each of them, as it is summed; None for None."""
    if t is None:
        return None
    return wide(t if t.shape[1] == heads else t.repeat_interleave(heads // t.shape[1], 1))


@operator
def matrix_scan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    beta: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
    initial: Tensor | None,
    row_offsets: Tensor,
    delta: bool = False,
    scale: float = 1.0,
    save: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """A linear recurrence whose state is a matrix S (keys, values) for every segment and head.

        S_t = Diag(decay_t) S_{t-1} + a_t (b_t^T S_{t-1}) + beta_t key_t value_t^T, out_t = scale S_t^T query_t

    Value head h reads the query, the key, a and b of head h // (heads / key heads). On the CPU numbers below the smallest
    normal one count as 0. On other devices the steps are composed of torch's operators.

    Args:
        query, key: (rows, key heads, keys), the dtype of value.
        value: (rows, heads, values), a floating dtype.
        decay: (rows, heads), or one for each key, (rows, heads, keys); as beta and initial in float32 for half types.
        beta: (rows, heads); 1 unless given.
        a, b: (rows, key heads, keys), both or neither.
        initial: (segments, heads, keys, values); zeros unless given.
        row_offsets: int64, (segments + 1,).
        delta: the gated delta rule: value_t - (decay_t key_t)^T S_{t-1} stands for value_t. Without a and b.
        save: keep what the backward needs; without it the backward runs the forward again.

    Returns:
        out (rows, heads, values); the state behind every segment, the shape and dtype of initial; and what the backward
        keeps, which has no gradient: at most n + max(1, keys / 256) numbers for each of value, of the dtype of initial, with
        n = 1 for delta or a and 0 without; keys and values count as the next multiples of 16. Double backward goes through
        a slower composition.
    """
    _check("matrix_scan", query, key, value, decay, beta, a, b, initial, row_offsets, delta)
    steps, heads = Steps(row_offsets, False, value.device), value.shape[1]
    q, k, left, right = (_by_head(t, heads) for t in (query, key, a, b))
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
    return composed.matrix_scan(*inputs)[:2]


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
    _check("matrix_scan_backward", *inputs, row_offsets, delta, **given)

    def forward(*inputs):
        return composed.matrix_scan(*inputs, row_offsets, delta, scale)[:2]

    found = vjp(forward, inputs, [grad_output, grad_last])
    missing = wide(value[:0])
    return tuple(
        d.contiguous() if d is not None else missing.new_empty(0) if t is None else torch.zeros_like(t)
        for d, t in zip(found, inputs)
    )
