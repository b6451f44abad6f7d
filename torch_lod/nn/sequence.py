# SPDX-License-Identifier: Apache-2.0
"""Modules around the sequence operators."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import LoDValueError, public
from ..sequence import sequence_conv1d, sequence_pool, sequence_softmax
from ..sequence.operator import sequence_operator
from ..sequence.windows import ahead_conv, context_conv
from ..structure.validate import an_int
from ..tensor.lod_tensor import LoDTensor, MaybeLoD
from .module import at_least_one

__all__ = ["AttentionPool", "RowConv", "SequenceConv", "SequenceConv1d", "SequencePool", "SequenceSoftmax"]


_context_conv, _ahead_conv = sequence_operator(context_conv), sequence_operator(ahead_conv)


def _uniform(t: Tensor, fan_in: int) -> None:
    """As torch.nn.Linear and Conv1d: uniform within 1 / sqrt(fan_in)."""
    torch.nn.init.uniform_(t, -(fan_in**-0.5), fan_in**-0.5)


class SequencePool(torch.nn.Module):
    """`tl.sequence_pool` as a module: (rows, *element) to (sequences, *element)."""

    @public
    def __init__(self, pool_type: str, *, padding_value: float = 0.0, level: int | str = -1):
        super().__init__()
        self.pool_type, self.padding_value, self.level = pool_type, padding_value, level

    @public
    def forward(self, x: LoDTensor) -> MaybeLoD:
        """x (rows, *element) to a row for each sequence, with the levels above it; plain if there are none."""
        return sequence_pool(x, self.pool_type, padding_value=self.padding_value, level=self.level)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor) -> MaybeLoD: ...

    def extra_repr(self) -> str:
        return f"{self.pool_type!r}, padding_value={self.padding_value}, level={self.level!r}"


class SequenceSoftmax(torch.nn.Module):
    """`tl.sequence_softmax` as a module."""

    @public
    def __init__(self, *, level: int | str = -1):
        super().__init__()
        self.level = level

    @public
    def forward(self, x: LoDTensor) -> LoDTensor:
        """x (rows, *element), a floating dtype, to its shape and LoD: each element sums to 1 over its sequence."""
        return sequence_softmax(x, level=self.level)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor) -> LoDTensor: ...

    def extra_repr(self) -> str:
        return f"level={self.level!r}"


class AttentionPool(torch.nn.Module):
    """A weighted mean of the rows of every sequence: u = tanh(W x + b), weights softmax(u . c) within the sequence.

    (rows, features) to (sequences, features), with the levels above; zeros for empty sequences.

    Args:
        features: the number of features of x.
        hidden: the number of features of u; as many as x has if None.

    Parameters: `project`, a Linear (W and b), and `context`, a Linear without bias (c). The weights of rows, as forward makes
    them: `tl.sequence_softmax(pool.context(pool.project(x).tanh()), level=pool.level)`.

    Source: Yang et al., "Hierarchical Attention Networks for Document Classification", 2016, equations 5 to 7.
    """

    @public
    def __init__(self, features: int, hidden: int | None = None, *, level: int | str = -1, device=None, dtype=None):
        super().__init__()
        hidden = features if hidden is None else hidden
        at_least_one(features=features, hidden=hidden)
        self.level = level
        self.project = torch.nn.Linear(features, hidden, device=device, dtype=dtype)
        self.context = torch.nn.Linear(hidden, 1, bias=False, device=device, dtype=dtype)

    @public
    def forward(self, x: LoDTensor) -> MaybeLoD:
        """x (rows, features) to a row for each sequence, with the levels above it; plain if there are none."""
        weights = sequence_softmax(self.context(self.project(x).tanh()), level=self.level)
        return sequence_pool(weights * x, "sum", level=self.level)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor) -> MaybeLoD: ...


class SequenceConv(torch.nn.Module):
    """`tl.sequence_conv` with its weights: (rows, in_features) to (rows, out_features).

    Parameters: weight, (context_length * in_features, out_features); bias, (out_features,); with `padding_trainable`
    padding_data, what a context sees outside its sequence, zeros at first.

    Source: Paddle Fluid's sequence_conv layer.
    """

    @public
    def __init__(
        self,
        in_features: int,
        out_features: int,
        context_length: int,
        context_start: int | None = None,
        bias: bool = True,
        padding_trainable: bool = False,
        *,
        level: int | str = -1,
        device=None,
        dtype=None,
    ):
        super().__init__()
        at_least_one(in_features=in_features, out_features=out_features, context_length=context_length)
        start = -(context_length // 2) if context_start is None else context_start
        an_int("context_start as an int", start)
        self.context_length, self.context_start, self.level = context_length, start, level
        make = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(context_length * in_features, out_features, **make))
        self.bias = torch.nn.Parameter(torch.empty(out_features, **make)) if bias else None
        outside = max(0, -start) + max(0, start + context_length - 1)
        self.padding_data = torch.nn.Parameter(torch.zeros(outside, in_features, **make)) if padding_trainable else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _uniform(self.weight, self.weight.shape[0])
        if self.bias is not None:
            _uniform(self.bias, self.weight.shape[0])

    @public
    def forward(self, x: LoDTensor) -> LoDTensor:
        """x (rows, in_features) to (rows, out_features), with the LoD of x."""
        window = self.context_length, self.context_start
        return _context_conv(x, self.weight, *window, self.bias, self.padding_data, self.level)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor) -> LoDTensor: ...

    def extra_repr(self) -> str:
        return f"context_length={self.context_length}, context_start={self.context_start}, level={self.level!r}"


class SequenceConv1d(torch.nn.Module):
    """`tl.sequence_conv1d` with the parameters of torch.nn.Conv1d (same names, shapes and initialisation):
    (rows, in_channels) to (rows, out_channels)."""

    @public
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        dilation: int = 1,
        padding: str = "same",
        groups: int = 1,
        bias: bool = True,
        *,
        level: int | str = -1,
        device=None,
        dtype=None,
    ):
        super().__init__()
        at_least_one(in_channels=in_channels, out_channels=out_channels, kernel_size=kernel_size, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise LoDValueError(f"expected groups that divide {in_channels} and {out_channels}, got {groups}")
        self.dilation, self.padding, self.groups, self.level = dilation, padding, groups, level
        make = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(out_channels, in_channels // groups, kernel_size, **make))
        self.bias = torch.nn.Parameter(torch.empty(out_channels, **make)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fan_in = self.weight.shape[1] * self.weight.shape[2]
        torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            _uniform(self.bias, fan_in)

    @public
    def forward(self, x: LoDTensor) -> LoDTensor:
        """x (rows, in_channels) to (rows, out_channels), as `tl.sequence_conv1d`."""
        options: Any = {"dilation": self.dilation, "padding": self.padding, "groups": self.groups}
        return sequence_conv1d(x, self.weight, self.bias, **options, level=self.level)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor) -> LoDTensor: ...

    def extra_repr(self) -> str:
        size = tuple(self.weight.shape)
        return f"{size}, dilation={self.dilation}, padding={self.padding!r}, groups={self.groups}, level={self.level!r}"


class RowConv(torch.nn.Module):
    """`tl.row_conv` with its weight, (future_context + 1, features): every row and the `future_context` rows after it."""

    @public
    def __init__(self, features: int, future_context: int, *, level: int | str = -1, device=None, dtype=None):
        super().__init__()
        at_least_one(features=features)
        an_int("future_context >= 0", future_context, 0)
        self.level = level
        self.weight = torch.nn.Parameter(torch.empty(future_context + 1, features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _uniform(self.weight, self.weight.shape[0])

    @public
    def forward(self, x: LoDTensor) -> LoDTensor:
        """x (rows, in_features) to its shape and LoD."""
        return _ahead_conv(x, self.weight, self.level)

    if TYPE_CHECKING:

        def __call__(self, x: LoDTensor) -> LoDTensor: ...

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, future_context={self.weight.shape[0] - 1}, level={self.level!r}"
