# SPDX-License-Identifier: Apache-2.0
"""Linear recurrences: each row and a part of what came before it, element by element or with a matrix as state."""

from typing import Any, Literal, overload

import torch
from torch import Tensor

from .. import ops
from ..errors import LoDTypeError, LoDValueError, shown
from ..structure.validate import a_bool, a_float, number, with_memory
from ..tensor.lod_tensor import LoDTensor, rows_of
from .operator import Along, along, as_autocast, autocast_dtype, on_rows, sequence_operator

__all__ = ["gated_delta_rule", "linear_attention", "sequence_scan", "ssd"]

Scanned = LoDTensor | tuple[LoDTensor, Tensor]


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a state beside rows of a dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def a_state(what: str, t, shape: tuple, dtype: torch.dtype, x: Tensor) -> Tensor | None:
    """A tensor with an entry for every sequence, or None."""
    if t is None:
        return None
    if not isinstance(t, Tensor):
        raise LoDTypeError(f"expected {what} as a tensor of shape {shape}, got {shown(t)}")
    with_memory(t)
    if t.shape != shape:
        raise LoDValueError(f"expected {what} of shape {shape}, with an entry per sequence, got {tuple(t.shape)}")
    if t.dtype != dtype and autocast_dtype(x.device) is not None and t.is_floating_point():
        t = t.to(dtype)
    if t.dtype != dtype or t.device != x.device:
        raise LoDTypeError(f"expected {what} of {dtype} on {x.device}, got {t.dtype} on {t.device}")
    return rows_of(t) if isinstance(t, LoDTensor) else t


@overload
def sequence_scan(
    x: LoDTensor,
    a: float | Tensor,
    *,
    reverse: bool = ...,
    initial: Tensor | None = ...,
    return_state: Literal[False] = ...,
    level: int | str = ...,
) -> LoDTensor: ...
@overload
def sequence_scan(
    x: LoDTensor,
    a: float | Tensor,
    *,
    reverse: bool = ...,
    initial: Tensor | None = ...,
    return_state: Literal[True],
    level: int | str = ...,
) -> tuple[LoDTensor, Tensor]: ...


@sequence_operator
def sequence_scan(
    x: LoDTensor,
    a: float | Tensor,
    *,
    reverse: bool = False,
    initial: Tensor | None = None,
    return_state: bool = False,
    level: int | str = -1,
) -> Scanned:
    """h[t] = a[t] h[t - 1] + x[t] along every sequence of a level, from h = 0, or initial, before its first row.

    Discounted returns, exponential moving averages and generalized advantage estimates are
    [a line each](../recurrence.md#a-linear-recurrence-tlsequence_scan); for a cell that is not linear see `scan`.

    Args:
        x: (rows, *element), a floating dtype (TypeError otherwise).
        a: a number, or a tensor of the dtype of x, or of float32 beside half types: one for each element of a row, of a
            shape that broadcasts to *element; or for each row, a LoDTensor with the LoD of x, (rows,) or with an element that
            broadcasts to that of x. Where it is 0, h[t] is x[t], whatever came before, also infinite or NaN. At the first row
            of a sequence it is not used without initial.
        reverse: from the last row to the first: h[t] = a[t] h[t + 1] + x[t].
        initial: (sequences, *element), h before the first row of every sequence, with reverse behind the last; of the dtype
            of x, float32 beside half types.
        return_state: return also the last h of every sequence, as initial for what follows; an empty sequence hands its
            own on.
        level: sequences of an outer level run through all rows under them.

    Returns:
        the shape, dtype and LoD of x, or a pair of it and the state, (sequences, *element). Half types have a float32
        accumulator, float32 a float64 one. Differentiable by x, a and initial.

    Raises:
        ValueError: for a or initial of a shape or LoD that does not fit x.

    Source: the linear recurrence of Blelloch, Prefix sums and their applications (1990).
    """
    s = along(x, level)
    a_float(s.rows)
    a_bool("reverse", reverse)
    a_bool("return_state", return_state)
    dtype, with_state = summed_in(s.rows.dtype), return_state or initial is not None
    halves = s.rows.dtype != dtype and (with_state or getattr(a, "dtype", None) == torch.float32)
    rows = s.rows.to(dtype) if halves else s.rows
    factors = _factors(a, x, rows)
    shape = (s.lod.num_sequences(s.k), *rows.shape[1:])
    initial = a_state("initial", initial, shape, dtype, rows)
    first, last = ("last", "first") if reverse else ("first", "last")
    if initial is not None:  # as if it were a row: what the first row takes from it is added there
        by = ops.segment_reduce(factors, s.offsets, first)
        taken = torch.where((by == 0) & ~initial.isfinite(), 0, by * initial)
        rows = rows + ops.segment_broadcast(taken, s.offsets, rows.shape[0], first)
    if reverse and isinstance(a, LoDTensor):
        # the adjoint takes its factor from the row that it came from
        factors = ops.segment_unfold(factors, s.offsets, 1, -1).squeeze(1)
    h = ops.segment_scan(rows, factors, s.offsets, reverse)
    out = s.keep(h.to(s.rows.dtype))
    if not return_state:
        return out
    state = ops.segment_reduce(h, s.offsets, last)
    if initial is not None:
        empty = on_rows(s.offsets.diff() == 0, rows)
        state = torch.where(empty, initial, state)
    return out, state


def _factors(a, x: LoDTensor, rows: Tensor) -> Tensor:
    """A factor for every element of every row."""
    if not isinstance(a, Tensor):
        number("a", a)
        return torch.full((), a, dtype=rows.dtype, device=rows.device).expand(rows.shape)
    with_memory(a)
    if isinstance(a, LoDTensor):
        x._lod.agreed(a._lod)
        a = a.values()
        if a.dim() == 1:
            a = on_rows(a, rows)
        element = a.shape[1:]
        a = a.view(a.shape[0], *[1] * (rows.dim() - a.dim()), *element) if a.dim() < rows.dim() else a
    else:
        element = a.shape
    if a.dtype != rows.dtype:
        a = a.to(rows.dtype) if a.dtype == x.dtype else as_autocast(a, rows)
    if a.dtype != rows.dtype or a.device != rows.device:
        raise LoDTypeError(f"expected a of {rows.dtype} on {rows.device}, as x, got {a.dtype} on {a.device}")
    wanted = rows.shape[1:]
    if len(element) > len(wanted) or any(m not in (1, n) for m, n in zip(element[::-1], wanted[::-1])):
        raise LoDValueError(
            f"expected a as a number, of a shape that broadcasts to {tuple(wanted)}, an element of x, or as a LoDTensor with the "
            f"LoD of x, got {tuple(a.shape)}; if a has a value for each row, pass x.with_values(a)"
        )
    return a.expand(rows.shape)


@overload
def gated_delta_rule(
    q: LoDTensor,
    k: LoDTensor,
    v: LoDTensor,
    g: LoDTensor,
    beta: LoDTensor,
    *,
    scale: float | None = ...,
    initial: Tensor | None = ...,
    return_state: Literal[False] = ...,
    level: int | str = ...,
) -> LoDTensor: ...
@overload
def gated_delta_rule(
    q: LoDTensor,
    k: LoDTensor,
    v: LoDTensor,
    g: LoDTensor,
    beta: LoDTensor,
    *,
    scale: float | None = ...,
    initial: Tensor | None = ...,
    return_state: Literal[True],
    level: int | str = ...,
) -> tuple[LoDTensor, Tensor]: ...


@sequence_operator
def gated_delta_rule(
    q: LoDTensor,
    k: LoDTensor,
    v: LoDTensor,
    g: LoDTensor,
    beta: LoDTensor,
    *,
    scale: float | None = None,
    initial: Tensor | None = None,
    return_state: bool = False,
    level: int | str = -1,
) -> Scanned:
    """Linear attention that forgets and corrects itself: a matrix S (keys, values) for every sequence and head, of which a
    row keeps a part, and where it writes its value only as far as S does not give it for its key already.

        S_t = exp(g_t) S_{t-1};   S_t += k_t (beta_t (v_t - S_t^T k_t))^T;   out_t = scale S_t^T q_t

    Args:
        q, k: (rows, key heads, K), taken as they are: models of this rule divide each by its length before. A floating dtype.
        v: (rows, heads, V). Head h reads head h // (heads / key heads) of q and k.
        g: the logarithm of what is kept, (rows, heads), or a number for each key, (rows, heads, K), as in Kimi Linear. Above 0
            the state grows.
        beta: (rows, heads), from 0, nothing is written, to 1. As g of the dtype of v, or of float32 beside half types.
        scale: K ** -0.5 if None.
        initial: (sequences, heads, K, V), S before the first row of every sequence; float32 for half types. Zeros if None.
        return_state: return also S behind the last row, as initial for what follows; an empty sequence hands its own on.

    Returns:
        (rows, heads, V) with the LoD of v, or a pair of it and the state. Sums and states are float32 for half types.
        Differentiable by all of them. The memory that is kept for the gradient is linear in rows.

    Raises:
        ValueError, TypeError: where LoDs, shapes, dtypes or devices do not fit.

    Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024. A decay for each
    key: Kimi Linear, arXiv 2510.26692.
    """
    *rows, s = _matrix_inputs(level, q=q, k=k, v=v)
    decay, by = _gate("g", g, s, rows[1].shape[2]).exp(), _gate("beta", beta, s)
    return _matrix_scan(s, rows, decay, by, initial, return_state, _scale(scale, rows[1]), delta=True)


@overload
def linear_attention(
    q: LoDTensor,
    k: LoDTensor,
    v: LoDTensor,
    g: LoDTensor | None = ...,
    *,
    scale: float | None = ...,
    initial: Tensor | None = ...,
    return_state: Literal[False] = ...,
    level: int | str = ...,
) -> LoDTensor: ...
@overload
def linear_attention(
    q: LoDTensor,
    k: LoDTensor,
    v: LoDTensor,
    g: LoDTensor | None = ...,
    *,
    scale: float | None = ...,
    initial: Tensor | None = ...,
    return_state: Literal[True],
    level: int | str = ...,
) -> tuple[LoDTensor, Tensor]: ...


@sequence_operator
def linear_attention(
    q: LoDTensor,
    k: LoDTensor,
    v: LoDTensor,
    g: LoDTensor | None = None,
    *,
    scale: float | None = None,
    initial: Tensor | None = None,
    return_state: bool = False,
    level: int | str = -1,
) -> Scanned:
    """Causal attention without a softmax, as a recurrence: a matrix S (keys, values) for every sequence and head.

        S_t = exp(g_t) S_{t-1} + k_t v_t^T;   out_t = scale S_t^T q_t

    Args:
        q, k: (rows, key heads, K), with whatever feature map already applied. A floating dtype.
        v: (rows, heads, V). Head h reads head h // (heads / key heads) of q and k.
        g: the logarithm of what is kept, (rows, heads), or a number for each key, (rows, heads, K), as in gated linear
            attention; of the dtype of v, or of float32 beside half types. All is kept if None.
        scale, initial, return_state: as gated_delta_rule.

    Returns:
        (rows, heads, V) with the LoD of v, or a pair of it and the state, (sequences, heads, K, V). Differentiable by all of
        them.

    Raises:
        ValueError, TypeError: where LoDs, shapes, dtypes or devices do not fit.

    Source: Katharopoulos et al., "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention", 2020,
    without its denominator; Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024.
    """
    *rows, s = _matrix_inputs(level, q=q, k=k, v=v)
    if g is None:
        decay = rows[2].new_ones(rows[2].shape[:2], dtype=summed_in(rows[2].dtype))
    else:
        decay = _gate("g", g, s, rows[1].shape[2]).exp()
    return _matrix_scan(s, rows, decay, None, initial, return_state, _scale(scale, rows[1]))


@overload
def ssd(
    x: LoDTensor,
    dt: LoDTensor,
    A: Tensor,
    B: LoDTensor,
    C: LoDTensor,
    D: Tensor | None = ...,
    *,
    initial: Tensor | None = ...,
    return_state: Literal[False] = ...,
    level: int | str = ...,
) -> LoDTensor: ...
@overload
def ssd(
    x: LoDTensor,
    dt: LoDTensor,
    A: Tensor,
    B: LoDTensor,
    C: LoDTensor,
    D: Tensor | None = ...,
    *,
    initial: Tensor | None = ...,
    return_state: Literal[True],
    level: int | str = ...,
) -> tuple[LoDTensor, Tensor]: ...


@sequence_operator
def ssd(
    x: LoDTensor,
    dt: LoDTensor,
    A: Tensor,
    B: LoDTensor,
    C: LoDTensor,
    D: Tensor | None = None,
    *,
    initial: Tensor | None = None,
    return_state: bool = False,
    level: int | str = -1,
) -> Scanned:
    """The state space recurrence of Mamba-2: a matrix h (N, P) for every sequence and head.

        h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t^T;   y_t = h_t^T C_t + D x_t

    Args:
        x: (rows, heads, P), a floating dtype.
        dt: (rows, heads), as it is used: after its bias and softplus. Of the dtype of x, or of float32 beside half types.
        A: (heads,), a plain tensor, negative: -exp(A_log). Above 0 the state grows.
        B, C: (rows, groups, N). Head h reads group h // (heads / groups).
        D: (heads,), a plain tensor, or None.
        initial: (sequences, heads, N, P), h before the first row of every sequence; float32 for half types. Zeros if None.
            Caches of other libraries hold its last two dims transposed.
        return_state: return also h behind the last row, as initial for what follows; an empty sequence hands its own on.

    Returns:
        (rows, heads, P) with the LoD of x, or a pair of it and the state. Sums and states are float32 for half types.
        Differentiable by all of them.

    Raises:
        ValueError, TypeError: where LoDs, shapes, dtypes or devices do not fit.

    Source: Dao and Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space
    Duality", 2024.
    """
    *rows, s = _matrix_inputs(level, C=C, B=B, x=x)
    step = _gate("dt", dt, s)
    decay = (step * _per_head("A", A, s.rows)).exp()
    skip = None if D is None else _per_head("D", D, s.rows)
    return _matrix_scan(s, rows, decay, step, initial, return_state, 1.0, skip=skip)


def _matrix_inputs(level, **given) -> tuple[Any, ...]:
    """Queries, keys and values as rows of one dtype, and the sequences of the values."""
    (query, q), (key, k), (value, v) = given.items()
    s = along(v, level, value)
    values = s.rows
    a_float(values, value)
    if values.dim() != 3 or not values.shape[1] or not values.shape[2]:
        raise LoDValueError(f"expected {value} of shape (rows, heads, width), got {tuple(values.shape)}")
    heads, keys = values.shape[1], _beside(key, along(k, -1, key), s, value)
    if keys.dim() != 3 or not keys.shape[1] or heads % keys.shape[1] or not keys.shape[2]:
        wanted = f"(rows, a divisor of the {heads} heads of {value}, width)"
        raise LoDValueError(f"expected {key} of shape {wanted}, got {tuple(keys.shape)}")
    queries = _beside(query, along(q, -1, query), s, value)
    if queries.shape != keys.shape:
        raise LoDValueError(f"expected {query} of shape {tuple(keys.shape)}, as {key}, got {tuple(queries.shape)}")
    return queries, keys, values, s


def _with_lod(what: str, other: Along, s: Along, of: str) -> Tensor:
    if other.lod.differs(s.lod):
        said = f"expected {what} with the LoD of {of}, got LoDs that differ"
        raise LoDValueError(f"{said}: {s.lod.difference(other.lod)}")
    return other.rows


def _beside(what: str, other: Along, s: Along, of: str) -> Tensor:
    """The rows of another argument with the LoD, dtype and device of the first."""
    rows, x = _with_lod(what, other, s, of), s.rows
    t = as_autocast(rows, x)
    if t.dtype != x.dtype or t.device != x.device:
        raise LoDTypeError(f"expected {what} of {x.dtype} on {x.device}, as {of}, got {t.dtype} on {t.device}")
    return t


def _gate(what: str, gate, s: Along, keys: int | None = None) -> Tensor:
    """A number for each row and head, or for each of its keys, in the dtype of sums."""
    v = s.rows
    t, shapes = _with_lod(what, along(gate, -1, what), s, "the values"), [tuple(v.shape[:2])]
    if keys is not None:
        shapes.append((*v.shape[:2], keys))
    if t.shape not in shapes:
        raise LoDValueError(f"expected {what} of shape {' or '.join(map(str, shapes))}, got {tuple(t.shape)}")
    return _wide(what, t, v)


def _per_head(what: str, t, v: Tensor) -> Tensor:
    if not isinstance(t, Tensor) or isinstance(t, LoDTensor):
        raise LoDTypeError(f"expected {what} as a plain tensor of shape ({v.shape[1]},), got {shown(t)}")
    with_memory(t)
    if t.shape != v.shape[1:2]:
        raise LoDValueError(f"expected {what} of shape ({v.shape[1]},), a number per head, got {tuple(t.shape)}")
    return _wide(what, t, v)


def _wide(what: str, t: Tensor, v: Tensor) -> Tensor:
    """In the dtype of sums; half types may come in it or in their own."""
    dtype = summed_in(v.dtype)
    known = t.dtype in (dtype, v.dtype) or (t.is_floating_point() and autocast_dtype(v.device) is not None)
    if not known or t.device != v.device:
        wanted = " or ".join(map(str, dict.fromkeys((v.dtype, dtype))))
        raise LoDTypeError(f"expected {what} of {wanted} on {v.device}, got {t.dtype} on {t.device}")
    return t.to(dtype)


def _scale(scale: float | None, k: Tensor) -> float:
    if scale is None:
        return k.shape[2] ** -0.5
    number("scale", scale)
    return float(scale)


def _matrix_scan(
    s: Along, rows: list, decay, beta, initial, return_state: bool, scale: float, delta: bool = False, skip=None
) -> Scanned:
    a_bool("return_state", return_state)
    q, k, v = rows
    shape = s.lod.num_sequences(s.k), v.shape[1], k.shape[2], v.shape[2]
    initial = a_state("initial", initial, shape, summed_in(v.dtype), v)
    save = torch.is_grad_enabled() and v.is_cpu  # elsewhere nothing that is kept is used
    out, state, _ = ops.matrix_scan(q, k, v, decay, beta, None, None, initial, s.offsets, delta, scale, save)
    if skip is not None:
        out = (out + skip[:, None] * v).to(v.dtype)
    return (s.keep(out), state) if return_state else s.keep(out)
