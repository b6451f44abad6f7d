# SPDX-License-Identifier: Apache-2.0
"""Layers of hybrid language models, recurrences with a matrix as state: the parameters of well-known implementations."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import LoDTypeError, LoDValueError, public, shown
from ..sequence import gated_delta_rule, sequence_conv1d, ssd
from ..sequence.linear import summed_in
from ..structure.validate import a_bool, with_memory
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor
from .module import at_least_one
from .sequence import SequenceConv1d

__all__ = ["GatedDeltaNet", "Mamba2"]

States = tuple[Tensor, Tensor]


class GatedNorm(torch.nn.Module):
    """Root mean square normalisation of groups of features, and a gate, silu(z), before or after it."""

    def __init__(self, features: int, group: int, eps: float, gate_first: bool, device=None, dtype=None):
        super().__init__()
        self.group, self.eps, self.gate_first = group, eps, gate_first
        self.weight = torch.nn.Parameter(torch.ones(features, device=device, dtype=dtype))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        wide = summed_in(x.dtype)
        y, gate = x.to(wide), F.silu(z.to(wide))
        if self.gate_first:
            y = y * gate
        groups = y.unflatten(-1, (-1, self.group))
        y = (groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + self.eps)).flatten(-2)
        y = self.weight * y.to(x.dtype)
        return y if self.gate_first else (y * gate).to(x.dtype)


class _Mixer(torch.nn.Module):
    """What both share: a projection, a causal convolution of some of its features, a recurrence, a projection back."""

    conv1d: SequenceConv1d
    dt_bias: torch.nn.Parameter
    A_log: torch.nn.Parameter
    hidden_size: int
    level: int | str
    smallest = 1.0  # of exp(A_log), at first

    def reset_parameters(self) -> None:
        """Of the recurrence: softplus(dt_bias) log-uniform in [0.001, 0.1], as mamba_ssm's, exp(A_log) uniform up to 16."""
        with torch.no_grad():
            dt = (torch.rand_like(self.dt_bias) * math.log(100) + math.log(0.001)).exp().clamp(min=1e-4)
            self.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))
            self.A_log.uniform_(self.smallest, 16).log_()

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor, initial: States | None = None, return_state: bool = False) -> Any: ...

    def _convolved(self, features: Tensor, x: LoDTensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """silu of the convolution, and the state behind it."""
        options: Any = {"padding": "causal", "groups": features.shape[1], "initial": state, "return_state": True}
        weight, bias = self.conv1d.weight, self.conv1d.bias
        made, last = sequence_conv1d(x.with_values(features), weight, bias, **options, level=self.level)
        return F.silu(made.values()), last

    @staticmethod
    def _states(initial) -> tuple[Tensor | None, Tensor | None]:
        if initial is None:
            return None, None
        if not isinstance(initial, (tuple, list)) or len(initial) != 2:
            raise LoDTypeError(f"expected initial as a pair of states, which return_state gives, got {shown(initial)}")
        return initial[0], initial[1]

    def _rows(self, x, return_state) -> LoDTensor:
        a_lod_tensor("x", x)
        a_bool("return_state", return_state)
        with_memory(*self.parameters())
        if x.dim() != 2 or x.shape[1] != self.hidden_size:
            raise LoDValueError(f"expected rows of hidden_size {self.hidden_size}, got {tuple(x.shape)}")
        return x


class GatedDeltaNet(_Mixer):
    """The linear attention layer of Qwen3-Next, with its parameters (transformers' Qwen3NextGatedDeltaNet), on packed rows:
    (rows, hidden_size) to (rows, hidden_size). A causal convolution and `tl.gated_delta_rule`; no state reaches another
    sequence.

    Args:
        hidden_size: the width of the rows.
        key_heads, value_heads: value_heads is a multiple; neighbouring ones share keys.
        key_dim, value_dim: the width of a head.
        conv_size: the number of rows that the convolution sees.
        eps: of the normalisation.

    Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024.
    """

    smallest = 0.01

    @public
    def __init__(
        self,
        hidden_size: int,
        key_heads: int,
        value_heads: int,
        key_dim: int = 128,
        value_dim: int = 128,
        conv_size: int = 4,
        eps: float = 1e-6,
        *,
        level: int | str = -1,
        device=None,
        dtype=None,
    ):
        super().__init__()
        at_least_one(hidden_size=hidden_size, key_heads=key_heads, value_heads=value_heads)
        at_least_one(key_dim=key_dim, value_dim=value_dim, conv_size=conv_size)
        if value_heads % key_heads:
            raise LoDValueError(f"expected value_heads as a multiple of the {key_heads} key_heads, got {value_heads}")
        self.hidden_size, self.key_heads, self.value_heads, self.level = hidden_size, key_heads, value_heads, level
        self.key_dim, self.value_dim, self.conv_size = key_dim, value_dim, conv_size
        make = {"device": device, "dtype": dtype}
        keys, values = key_heads * key_dim, value_heads * value_dim
        width = 2 * keys + values
        self.conv1d = SequenceConv1d(width, width, conv_size, padding="causal", groups=width, bias=False, **make)
        self.in_proj_qkvz = torch.nn.Linear(hidden_size, 2 * keys + 2 * values, bias=False, **make)
        self.in_proj_ba = torch.nn.Linear(hidden_size, 2 * value_heads, bias=False, **make)
        self.dt_bias = torch.nn.Parameter(torch.empty(value_heads, **make))
        self.A_log = torch.nn.Parameter(torch.empty(value_heads, **make))
        self.norm = GatedNorm(value_dim, value_dim, eps, False, **make)
        self.out_proj = torch.nn.Linear(values, hidden_size, bias=False, **make)
        self.reset_parameters()

    @public
    def forward(self, x: LoDTensor, initial: States | None = None, return_state: bool = False) -> Any:
        """With return_state a pair of the rows and the states, for the next call's initial: the rows that the convolution
        sees, and the matrices of `tl.gated_delta_rule`."""
        x, (before, state) = self._rows(x, return_state), self._states(initial)
        heads, per = self.key_heads, self.value_heads // self.key_heads
        of_head = [self.key_dim, self.key_dim, per * self.value_dim, per * self.value_dim]
        parts = self.in_proj_qkvz(x).values().unflatten(1, (heads, -1)).split(of_head, 2)
        *qkv, z = (t.flatten(1) for t in parts)
        b, a = (t.flatten(1) for t in self.in_proj_ba(x).values().unflatten(1, (heads, -1)).chunk(2, 2))
        mixed, before = self._convolved(torch.cat(qkv, 1), x, before)
        q, k, v = mixed.split([t.shape[1] for t in qkv], 1)
        q, k = (self._unit(t.unflatten(1, (heads, -1))) for t in (q, k))
        wide = summed_in(mixed.dtype)
        g = -self.A_log.to(wide).exp() * F.softplus(a.to(wide) + self.dt_bias)
        given = (q, k, v.unflatten(1, (self.value_heads, -1)), g, b.sigmoid())
        rows = (x.with_values(t) for t in given)
        out, state = gated_delta_rule(*rows, initial=state, return_state=True, level=self.level)
        normed = self.norm(out.values(), z.unflatten(1, (self.value_heads, -1)))
        made = self.out_proj(x.with_values(normed.flatten(1)))
        return (made, (before, state)) if return_state else made

    @staticmethod
    def _unit(t: Tensor) -> Tensor:
        wide = t.to(summed_in(t.dtype))
        return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)).to(t.dtype)

    def extra_repr(self) -> str:
        heads = f"{self.key_heads}, {self.value_heads}, {self.key_dim}, {self.value_dim}"
        return f"{self.hidden_size}, {heads}, {self.conv_size}"


class Mamba2(_Mixer):
    """The layer of Mamba-2, with the parameters of mamba_ssm's Mamba2 and transformers' Mamba2Mixer, on packed rows:
    (rows, hidden_size) to (rows, hidden_size). A causal convolution and `tl.ssd`; no state reaches another sequence.

    Args:
        hidden_size: the width of the rows.
        state_size: the width of B and C, N.
        conv_size: the number of rows that the convolution sees.
        expand: the layer is expand * hidden_size wide inside, a multiple of head_dim.
        head_dim: the width of a head.
        groups: how many B and C there are, a divisor of the heads; the normalisation is of as many groups.
        bias: of the projections.
        conv_bias: of the convolution.
        eps: of the normalisation.
        dt_limit: the least and the largest dt.

    Source: Dao and Gu, "Transformers are SSMs", 2024.
    """

    @public
    def __init__(
        self,
        hidden_size: int,
        state_size: int = 128,
        conv_size: int = 4,
        expand: int = 2,
        head_dim: int = 64,
        groups: int = 1,
        *,
        bias: bool = False,
        conv_bias: bool = True,
        eps: float = 1e-5,
        dt_limit: tuple[float, float] = (0.0, math.inf),
        level: int | str = -1,
        device=None,
        dtype=None,
    ):
        super().__init__()
        at_least_one(hidden_size=hidden_size, state_size=state_size, conv_size=conv_size, expand=expand)
        at_least_one(head_dim=head_dim, groups=groups)
        width = expand * hidden_size
        heads = width // head_dim
        if width % head_dim:
            raise LoDValueError(f"expected head_dim as a divisor of expand * hidden_size, {width}, got {head_dim}")
        if heads % groups:
            raise LoDValueError(f"expected groups as a divisor of the {heads} heads, got {groups}")
        self.hidden_size, self.state_size, self.conv_size, self.level = hidden_size, state_size, conv_size, level
        self.width, self.heads, self.groups, self.dt_limit = width, heads, groups, dt_limit
        make = {"device": device, "dtype": dtype}
        mixed = width + 2 * groups * state_size
        self.in_proj = torch.nn.Linear(hidden_size, width + mixed + heads, bias=bias, **make)
        self.conv1d = SequenceConv1d(mixed, mixed, conv_size, padding="causal", groups=mixed, bias=conv_bias, **make)
        self.dt_bias = torch.nn.Parameter(torch.empty(heads, **make))
        self.A_log = torch.nn.Parameter(torch.empty(heads, **make))
        self.D = torch.nn.Parameter(torch.ones(heads, **make))
        self.norm = GatedNorm(width, width // groups, eps, True, **make)
        self.out_proj = torch.nn.Linear(width, hidden_size, bias=bias, **make)
        self.reset_parameters()

    @public
    def forward(self, x: LoDTensor, initial: States | None = None, return_state: bool = False) -> Any:
        """With return_state a pair of the rows and the states, for the next call's initial: the rows that the convolution
        sees, and the matrices of `tl.ssd`."""
        x, (before, state) = self._rows(x, return_state), self._states(initial)
        shared = self.groups * self.state_size
        z, features, dt = self.in_proj(x).values().split([self.width, self.width + 2 * shared, self.heads], 1)
        mixed, before = self._convolved(features, x, before)
        inner, B, C = mixed.split([self.width, shared, shared], 1)
        wide = summed_in(mixed.dtype)
        step = F.softplus(dt.to(wide) + self.dt_bias).clamp(*self.dt_limit)
        heads = x.with_values(inner.unflatten(1, (self.heads, -1)))
        B, C = (x.with_values(t.unflatten(1, (self.groups, -1))) for t in (B, C))
        options: Any = {"initial": state, "return_state": True, "level": self.level}
        out, state = ssd(heads, x.with_values(step), -self.A_log.to(wide).exp(), B, C, self.D, **options)
        made = self.out_proj(x.with_values(self.norm(out.values().flatten(1), z)))
        return (made, (before, state)) if return_state else made

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, {self.state_size}, {self.conv_size}, {self.width // self.hidden_size}"
