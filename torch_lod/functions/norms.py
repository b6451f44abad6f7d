# SPDX-License-Identifier: Apache-2.0
"""Norms, dropout and shuffles of channels: rows (rows, channels) are the positions of their own sequence, where no model would
take them for samples."""

import torch
import torch.nn.functional as F
from torch import nn

from .. import ops
from ..errors import LoDValueError
from ..patches import instead
from ..sequence import sequence_normalize
from ..sequence.operator import along
from ..structure.validate import probability
from ..tensor.lod_tensor import LoDTensor, made, rows_of
from .layouts import only_first, rows_last
from .refusals import OUT, STACKED, refusal
from .row import enter
from .signature import along_dim, only_at_dim_0, row_by_row, signature


@signature("input, running_mean, running_var, weight: beside, bias: beside")
def batch_norm(func, input, rank, rows):
    """The channels are dim 1."""
    if rows == 1:
        raise refusal(func, f"{along_dim(input)}: they would be the channels; transpose them to the last dim")
    return True


@signature("input, normalized_shape, weight: beside, bias: beside")
def layer_norm(func, input, rank, normalized_shape, rows):
    if rows and rows >= rank - len(normalized_shape):
        raise refusal(func, f"{along_dim(input)}; transpose them back; {OUT}")
    if len(normalized_shape) >= rank:
        raise refusal(
            func, f"a normalized_shape of {len(normalized_shape)} dims takes its statistics over rows; {STACKED}; {OUT}"
        )
    return True


@signature("input, weight: plain, bias: plain, N")
def native_group_norm(func, input, N):
    """The number of samples is an argument."""
    if N != input.shape[0]:
        raise refusal(func, f"{N} samples of {input.shape[0]} rows take their statistics over several rows; {OUT}")
    return True


@signature("input")
def channels(func, input, rows):
    """Each position by itself; the channels are dim 1."""
    if rows == 1:
        raise refusal(func, f"{along_dim(input)}: they would be the channels; transpose them to the last dim")
    return True


def _instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise LoDValueError(
            "expected no running statistics, got some: they would be those of all sequences together; see tl.sequence_normalize"
        )
    rows = rows_of(sequence_normalize(input, eps=eps))
    rows = rows if weight is None else rows * weight
    return made(rows if bias is None else rows + bias, input.lod)


def _instance_norm_at_dim(input, *args, **kwargs):
    """Rows at the last dim. Of x[None] torch takes the rows for channels."""
    return rows_last(_instance_norm)(input, *args, **kwargs) if input.dim() == 3 else None


def instance_norm(input, *args, **kwargs):
    """Every sequence is normalised by its own mean and variance; with more dims every row is a sample."""
    if not isinstance(input, LoDTensor) or input.dim() != 2:
        return NotImplemented
    return _instance_norm(input, *args, **kwargs)


@instead(nn.InstanceNorm1d._handle_no_batch_input)
def without_a_batch(self, input, **others):
    """InstanceNorm1d would make one sample (1, rows, channels) of rows (rows, channels)."""
    whole = isinstance(input, LoDTensor) and len(input.shape) == 2
    return self._apply_instance_norm(input) if whole else NotImplemented


def _group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    s = along(input)
    channels = s.rows.shape[1]
    if type(num_groups) is not int or num_groups < 1 or channels % num_groups:
        raise LoDValueError(f"expected a number of groups that divides the {channels} channels, got {num_groups!r}")
    rows = s.rows.unflatten(1, (num_groups, -1))
    mean = s.spread(ops.segment_reduce(rows.mean(2), s.offsets, "mean"))
    rows = rows - mean.unsqueeze(2)
    variance = s.spread(ops.segment_reduce(rows.square().mean(2), s.offsets, "mean"))
    rows = (rows * (variance + eps).rsqrt().unsqueeze(2)).flatten(1)
    rows = rows if weight is None else rows * weight
    return s.keep(rows if bias is None else rows + bias)


def _group_norm_at_dim(input, *args, **kwargs):
    """Of (channels, rows) torch takes the channels for samples."""
    return rows_last(_group_norm)(input, *args, **kwargs) if input.dim() == 3 else None


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """A group of channels is normalised over all rows of its sequence where rows are at the last dim. Rows (rows, channels)
    may be those, or samples, as heads are that a model normalises after view(batch * length, channels)."""
    if only_first(input, weight=weight, bias=bias) and input.dim() == 2:
        raise LoDValueError(
            "expected rows at the last dim, or rows of several dims, got rows (rows, channels), which may be positions or "
            "samples; over the rows of every sequence: x.t()[None], then [0].t(); each row for itself: x.unsqueeze(-1), then "
            ".squeeze(-1)"
        )
    return NotImplemented


def _dropout1d(input, p=0.5, training=True, inplace=False):
    probability("p", p)
    if inplace:
        raise LoDValueError("expected inplace=False, got True")
    if not training or p == 0:
        return input
    s = along(input)
    shape = (s.lod.num_sequences(s.k), s.rows.shape[1])
    kept = torch.empty(shape, dtype=s.rows.dtype, device=s.rows.device).bernoulli_(1 - p)
    return s.keep(s.rows * s.spread(kept / (1 - p) if p < 1 else kept))


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Whole channels of a sequence are set to 0."""
    if not only_first(input) or input.dim() != 2:
        return NotImplemented
    return _dropout1d(input, p, training, inplace)


def _one_position(name: str) -> None:
    """A function of channels at each position, which wants a dim of positions behind that of channels."""
    function = getattr(F, name, None) or getattr(torch, name)

    def positions(input, *args, **kwargs):
        if not only_first(input) or input.dim() != 2:
            return NotImplemented
        rows = rows_of(input).unsqueeze(2)
        return made(function(rows, *args, **kwargs).squeeze(2), input.lod)

    enter("keep", channels, name, run=positions, run_at_dim=lambda *args, **kwargs: NotImplemented)


for _name in ("local_response_norm", "channel_shuffle", "native_channel_shuffle"):
    _one_position(_name)

enter("keep", channels, "dropout2d dropout3d")
enter("sequence-wise", channels, "dropout1d", run=dropout1d, run_at_dim=rows_last(_dropout1d))
enter("keep", batch_norm, "batch_norm", (F,))
enter(
    "sequence-wise",
    row_by_row("input, num_groups, weight: beside, bias: beside"),
    "group_norm",
    (F,),
    run=group_norm,
    run_at_dim=_group_norm_at_dim,
)
enter(
    "keep",
    row_by_row("input, running_mean, running_var, weight: beside, bias: beside"),
    "instance_norm",
    (F,),
    run=instance_norm,
    run_at_dim=_instance_norm_at_dim,
)
enter(
    "keep",
    row_by_row("input"),
    "batch_norm batch_norm_elemt cudnn_batch_norm group_norm instance_norm miopen_batch_norm native_batch_norm",
    (torch,),
)
enter("refuse", layer_norm, "layer_norm rms_norm native_layer_norm")
enter("refuse", only_at_dim_0(native_group_norm), "native_group_norm", (torch,))
