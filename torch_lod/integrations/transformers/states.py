# SPDX-License-Identifier: Apache-2.0
"""Recurrences and short convolutions of transformers' models, on packed rows, instead of the functions that `private`
names. Half types are computed in float32, as there, and float64 as it is."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import LoDTypeError, LoDValueError, library, named, without_dispatch
from ...sequence import gated_delta_rule, sequence_conv1d, ssd
from ...sequence.linear import summed_in
from ...tensor.lod_tensor import LoDTensor
from .attention import CURRENT, NAME, Packed
from .private import FUNCTIONS, RECURRENCES, functions_of, is_stateful

#: The entry in which a function of ours keeps the library's.
_OWN = "torch_lod_own"


def _convolved(packed: Packed, hidden_states, weight, bias=None, activation=None):
    """(1, channels, rows)."""
    x = _rows(packed, hidden_states.transpose(1, 2), weight.dtype)
    kernel = weight.unsqueeze(1)
    out = sequence_conv1d(x, kernel, bias, padding="causal", groups=weight.shape[0], level=packed.level).values()
    if activation is not None:
        out = library("transformers.activations").ACT2FN[activation](out)
    return out.to(hidden_states.dtype).t().unsqueeze(0)


def _delta(packed: Packed, query, key, value, g, beta, use_qk_l2norm_in_kernel=False, **cached):
    """(1, rows, heads, width)."""
    _without_cache(cached)
    q, k, v, decay, rate = (_rows(packed, t, summed_in(query.dtype)) for t in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        q, k = (t.with_values(_normalized(t.values())) for t in (q, k))
    out = gated_delta_rule(q, k, v, decay, rate, level=packed.level)
    return out.values().to(query.dtype).unsqueeze(0), None


def _scanned(
    packed: Packed, hidden_states, dt, A, B, C, D=None, dt_bias=None, dt_softplus=False, dt_limit=None, **cached
):
    """(1, rows, heads, width)."""
    _without_cache(cached)
    dtype = summed_in(hidden_states.dtype)
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = F.softplus(dt) if dt_softplus else dt
    dt = dt if dt_limit is None else dt.clamp(*dt_limit)
    x, step, b, c = (_rows(packed, t, dtype) for t in (hidden_states, dt, B, C))
    out = ssd(x, step, A.to(dtype), b, c, None if D is None else D.to(dtype), level=packed.level)
    return out.values().unsqueeze(0)


def _fused(packed: Packed):
    """None: the layer then calls the convolution and the scan themselves."""


#: Ours, by the name of a function.
_OURS: dict[str, Callable] = {
    "causal_conv1d_fn": _convolved,
    "torch_chunk_gated_delta_rule": _delta,
    "mamba2_chunk_scan": _scanned,
    "mamba2_split_conv1d_scan_combined": _fused,
}
#: Modules whose layers are not handed the keyword arguments of the model, as those of Mamba-2: they know the structure only
#: while the model runs.
_NOT_HANDED: set[str] = set()
_AGAIN = "expected layers that run once, got one that is computed again for its gradients (checkpointing)"


def replace(model) -> bool:
    """Lets the functions that the layers of a model call compute packed rows; other calls pass through. Whether there are any;
    LoDTypeError for a model with states of another kind."""
    found = set()
    for names, name, own in functions_of(model):
        if name in _OURS:
            found.add(name)
            if not hasattr(own, _OWN):
                names[name] = _replaced(own, _OURS[name], FUNCTIONS[name].split())
    if is_stateful(model) and not found & RECURRENCES:
        name = type(model).__name__
        raise LoDTypeError(f"expected a model without states, got {name}: they reach from one sequence into the next")
    return bool(found)


def _replaced(own: Callable, ours: Callable, wanted: list[str]) -> Callable:
    order = list(inspect.signature(own).parameters)

    @functools.wraps(own)
    def replaced(*args, **kwargs):
        packed: Any = kwargs.get(NAME) or CURRENT.get()
        given = {**dict(zip(order, args)), **kwargs}
        if NAME not in kwargs and isinstance(packed, Packed):
            _NOT_HANDED.add(own.__module__)
        elif packed is None and own.__module__ in _NOT_HANDED and torch._C._current_graph_task_id() != -1:
            if given[order[0]].shape[0] == 1:  # as packed rows have it; a padded batch of more samples is not ours
                raise named(LoDTypeError(f"{_AGAIN}; without that, or see use(model, method='map_sequences')"), NAME)
        if not isinstance(packed, Packed):
            return own(*args, **kwargs)
        with without_dispatch():
            return ours(packed, **{name: given[name] for name in wanted if name in given})

    setattr(replaced, _OWN, own)
    return replaced


def _rows(packed: Packed, t: Tensor, dtype: torch.dtype) -> LoDTensor:
    if t.shape[:2] != (1, packed.lod.rows):
        raise named(LoDValueError(f"expected (1, {packed.lod.rows}, ...) rows, got {tuple(t.shape)}"), NAME)
    return LoDTensor(t[0].to(dtype), packed.lod)


def _normalized(t: Tensor) -> Tensor:
    return t * torch.rsqrt((t * t).sum(-1, keepdim=True) + 1e-6)


def _without_cache(cached: dict[str, Any]) -> None:
    for name, value in cached.items():
        if value is not None and value is not False:
            raise named(LoDValueError(f"expected no {name}: a cache does not work on packed rows"), NAME)
