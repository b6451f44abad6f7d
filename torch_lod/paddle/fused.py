# SPDX-License-Identifier: Apache-2.0
"""Fluid's fused operators: and what its rankers of advertisements use; compositions of `tl`'s."""

import torch
from torch import Tensor

from .. import ops
from ..construct.joined import all_lod
from ..dynamo import holds, known
from ..errors import LoDTypeError, LoDValueError, shown
from ..sequence.operator import Along, along, as_autocast, in_autocast, one_column, sequence_operator
from ..sequence.pool import reduction, sequence_pool
from ..sequence.rearrange import sequence_expand_as
from ..sequence.windows import a_weight, of_shape, with_features, without_rows
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.validate import a_bool, a_float, filler, host_integers, with_data, with_memory
from ..tensor.lod_tensor import LoDTensor, MaybeLoD, made, moved, rows_of, unmoved
from .forms import sequence_conv
from .recurrent import _activation

__all__ = [
    "cvm",
    "filter_by_instag",
    "fusion_seqconv_eltadd_relu",
    "fusion_seqexpand_concat_fc",
    "fusion_seqpool_concat",
    "fusion_seqpool_cvm_concat",
]


def _shows_and_clicks(rows: Tensor, use_cvm: bool) -> Tensor:
    if not use_cvm:
        return rows[:, 2:]
    shows, clicks = (rows[:, :2] + 1).log().split(1, 1)
    return torch.cat([shows, clicks - shows, rows[:, 2:]], 1)


class _CountsAsGradient(torch.autograd.Function):
    """The gradient of the first two columns is `counts`, whatever the slope of the result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rows, counts, use_cvm):
        return _shows_and_clicks(rows, use_cvm).clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])
        ctx.dropped = 2 if inputs[2] else 0

    @staticmethod
    def backward(ctx, slope):
        (counts,) = ctx.saved_tensors
        return torch.cat([counts, slope[:, ctx.dropped :]], 1), None, None


@sequence_operator
def cvm(x: Tensor, cvm: Tensor | None = None, use_cvm: bool = True, *, level: int | str = -1) -> Tensor:
    """Rows whose first two columns count how often something was shown and clicked: their logarithms, or without them.

        out[:, 0] = log(shows + 1)   out[:, 1] = log(clicks + 1) - log(shows + 1)   out[:, 2:] = x[:, 2:]

    Args:
        x: (rows, features), at least two; a floating dtype. Plain, or a LoDTensor.
        cvm: (sequences, 2), the shows and clicks of every sequence of the level, or of every row of a plain x: what the
            gradient of the first two columns is instead of a gradient, whatever that of the result. Fluid updates
            tables of embeddings with it. None: the gradient of the formula, which is zero without these columns.
        use_cvm: False drops the two columns.

    Returns:
        (rows, features), or (rows, features - 2), with the LoD of x.

    Raises:
        ValueError, TypeError: where shapes, dtypes or devices do not fit.

    Source: Paddle Fluid's cvm (continuous_value_model).
    """
    s: Along | None = along(x, level) if isinstance(x, LoDTensor) else None
    if not isinstance(x, Tensor):
        raise LoDTypeError(f"expected x as a tensor, got {type(x).__name__}")
    unmoved("x", x)
    unmoved("cvm", cvm)
    rows = rows_of(x) if s is None else s.rows
    with_memory(rows)
    _with_counts("x", rows)
    a_bool("use_cvm", use_cvm)
    outer = None if s is None else s.lod.outer_at(s.k)
    if outer is not None and isinstance(cvm, LoDTensor):
        outer.agreed(cvm.lod)
    if cvm is None:
        out = _shows_and_clicks(rows, use_cvm)
    else:
        count = rows.shape[0] if s is None else s.lod.num_sequences(s.k)
        counts = of_shape("cvm", cvm, (count, 2), rows)
        with_memory(counts)
        out = _CountsAsGradient.apply(rows, counts if s is None else s.spread(counts), use_cvm)
    return out if s is None else s.keep(out)


def _with_counts(what: str, rows: Tensor) -> None:
    if rows.dim() != 2 or rows.shape[1] < 2:
        raise LoDValueError(f"expected {what} of shape (rows, features), at least 2 features, got {tuple(rows.shape)}")
    a_float(rows)


@sequence_operator
def filter_by_instag(
    ins: Tensor, ins_tag: LoDTensor, filter_tag, out_val_if_empty: float = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """The instances that have one of the tags.

    Args:
        ins: of any dtype; a LoDTensor, whose outermost sequences are the instances, kept as a whole, or a plain tensor,
            whose rows are.
        ins_tag: integers, (tags,) or (tags, 1), one level: the tags of every instance. One sync if on a GPU.
        filter_tag: the tags to keep: a list, an array or a tensor of integers; one sync if on a GPU.
        out_val_if_empty: what the row holds that stands for the result where no instance has a tag.

    Returns:
        the instances kept, with all their levels, plain where `ins` is; whether the loss of each counts, bool, (kept,),
        a mask for `sequence_loss` or a factor; and where its rows are, int64, (kept, 3): the first row in the result,
        the first row in `ins`, and the number of rows. Without an instance to keep, one of one row, with False and (0,
        1, 1). The gradient goes to the rows kept.

    Raises:
        ValueError, TypeError: where there are not as many instances as sequences of tags; of other shapes or dtypes.

    Source: Paddle Fluid's filter_by_instag, of one level.
    """
    if not isinstance(ins, Tensor) or ins.dim() == 0:
        got = "a scalar" if isinstance(ins, Tensor) else type(ins).__name__
        raise LoDTypeError(f"expected ins as a tensor with rows, got {got}")
    unmoved("ins", ins)
    tags = one_column("ins_tag", ins_tag)
    with_data("ins_tag", tags)
    if ins_tag.lod_level != 1:
        raise LoDValueError(f"expected ins_tag with 1 level, got {ins_tag.lod_level}")
    filler("out_val_if_empty", out_val_if_empty, ins.dtype)
    wanted = host_integers("filter_tag", filter_tag)
    given = ins.lod if isinstance(ins, LoDTensor) else None
    rows, count = rows_of(ins), ins.shape[0] if given is None else given.num_sequences(0)
    with_memory(rows)
    tagged = ins_tag.lod.row_offsets_at(0)
    if not holds(tagged.shape[0] - 1 == count):
        raise LoDValueError(
            f"expected ins_tag with a sequence for each of {count} instances, got {tagged.shape[0] - 1}"
        )
    fits = (tags.to("cpu", torch.int64)[:, None] == wanted).any(1)
    kept = ops.segment_reduce(fits.to(torch.int64), tagged, "max") > 0
    # one more instance, of one row, is kept where no other is
    kept = torch.cat([kept, ~kept.any(dim=0, keepdim=True)])
    index = kept.nonzero().squeeze(1)
    whole = torch.cat([rows, rows.new_full((1, *rows.shape[1:]), out_val_if_empty)])
    first = torch.arange(count + 1, device="cpu") if given is None else given.row_offsets_at(0)
    before, lengths = torch.cat([first, first[-1:] + 1])[index], torch.cat([first.diff(), first.new_ones(1)])[index]
    if given is None:
        out = ops.gather_rows(whole, upload(index, whole.device))
    else:
        levels = [torch.cat([offsets, offsets[-1:] + 1]) for offsets in given.levels]
        lod = LoD.checked("offsets", levels, given.level_names)
        counted = [torch.cat([mask, mask.new_zeros(1, *mask.shape[1:])]) for mask in given.counted]
        out = moved(whole, *lod.counting(*counted).take(0, index))
    missing = index == count
    after = lengths.cumsum(0) - lengths
    where = torch.stack([after, torch.where(missing, 1, before), lengths], 1)
    return out, upload(~missing, rows.device), upload(where, rows.device)


def _pooled(xs, pool_type: str, padding_value: float, level: int | str) -> tuple[LoD | None, list[Tensor]]:
    """A row per sequence of every x, and the levels above, on which all agree."""
    xs = all_lod(xs)
    reduce = reduction("pool_type", pool_type)
    for x in xs:
        with_features(x.values())
        if as_autocast(x, xs[0]).dtype != xs[0].dtype or x.device != xs[0].device:
            raise LoDTypeError(
                f"expected xs of {xs[0].dtype} on {xs[0].device}, as the first, got one of {x.dtype} on {x.device}"
            )
    pooled: list = [sequence_pool(x, reduce, padding_value=padding_value, level=level) for x in xs]
    counts = [p.shape[0] for p in pooled]
    if not all(holds(count == counts[0]) for count in counts):
        raise LoDValueError(f"expected xs with equally many sequences at the level, got {counts}")
    lods = [p.lod for p in pooled if isinstance(p, LoDTensor)]
    for other in lods[1:]:
        lods[0].agreed(other)
    return lods[0] if lods else None, [as_autocast(rows_of(p), xs[0]) for p in pooled]


@sequence_operator
def fusion_seqpool_concat(xs, pool_type: str = "sum", *, padding_value: float = 0.0, level: int | str = -1) -> MaybeLoD:
    """The sequences of every x pooled, and the results of all side by side.

    Equivalent to:
        torch.cat([sequence_pool(x, pool_type, level=level) for x in xs], 1)

    Args:
        xs: LoDTensors (rows, features) of one floating dtype and one depth, with equally many sequences at the level
            and equal levels above it.
        pool_type: as sequence_pool's.
        padding_value: the row of empty sequences; it has no gradient.

    Returns:
        (sequences, all features), with the levels above. The gradient is split into those of xs.

    Raises:
        ValueError, TypeError: where xs do not fit together.

    Source: Paddle Fluid's fusion_seqpool_concat, of one level.
    """
    lod, rows = _pooled(xs, pool_type, padding_value, level)
    return made(torch.cat(rows, 1), lod)


@sequence_operator
def fusion_seqpool_cvm_concat(xs, pool_type: str = "sum", use_cvm: bool = True, *, level: int | str = -1) -> MaybeLoD:
    """`fusion_seqpool_concat` with the shows and clicks in the first two columns of every pooled row as `cvm` has them.

    Equivalent to:
        torch.cat([cvm(sequence_pool(x, pool_type, level=level), use_cvm=use_cvm) for x in xs], 1)

    Args:
        xs: as those of fusion_seqpool_concat, of at least two features each.
        pool_type: as sequence_pool's.
        use_cvm: False drops the two columns.

    Returns:
        (sequences, all features), with the levels above; an empty sequence counts as a row of zeros. Gradients reach
        xs.

    Raises:
        ValueError, TypeError: where xs do not fit together.

    Source: Paddle Fluid's fusion_seqpool_cvm_concat, of one level.
    """
    a_bool("use_cvm", use_cvm)
    lod, rows = _pooled(xs, pool_type, 0.0, level)
    for i, t in enumerate(rows):
        _with_counts(f"xs[{i}]", t)
    return made(torch.cat([_shows_and_clicks(t, use_cvm) for t in rows], 1), lod)


@sequence_operator
def fusion_seqconv_eltadd_relu(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor,
    context_length: int,
    context_start: int | None = None,
    *,
    level: int | str = -1,
) -> LoDTensor:
    """`torch.relu(sequence_conv(x, weight, context_length, context_start, bias))`.

    Equivalent to:
        torch.relu(sequence_conv(x, weight, context_length, context_start, bias, level=level))

    Args:
        x, weight, bias, context_length, context_start: as those of sequence_conv.

    Returns:
        (rows, out), with the LoD of x. Gradients reach x, weight and bias.

    Raises:
        ValueError, TypeError: where the shape, dtype or device of an argument does not fit.

    Source: Paddle Fluid's fusion_seqconv_eltadd_relu, of one level.
    """
    s = along(x, level)
    return s.keep(torch.relu(sequence_conv(x, weight, context_length, context_start, bias, level=s.k).values()))


@sequence_operator
def fusion_seqexpand_concat_fc(
    xs, weight: Tensor, bias: Tensor | None = None, activation: str = "identity"
) -> LoDTensor:
    """Rows beside what there is for their sequences, times a weight: act([x, y_1, y_2, ...] weight + bias), with every
    row of y broadcast over the rows of its sequence.

    Equivalent to:
        torch.relu(torch.cat([xs[0], *(sequence_expand_as(y, xs[0]) for y in xs[1:])], 1) @ weight + bias)

    The rows of y are multiplied before they are broadcast over those of x.

    Args:
        xs: a LoDTensor (rows, features), and tensors (sequences, features) as sequence_expand_as takes them: plain with
            a row per outermost sequence, or LoDTensors whose levels are the outer ones of the first; one floating
            dtype.
        weight: (all features, out).
        bias: (out,).
        activation: "identity", "relu", "sigmoid" or "tanh".

    Returns:
        (rows, out), with the LoD of the first. Gradients reach xs, weight and bias.

    Raises:
        ValueError, TypeError: where structures, shapes, dtypes or devices do not fit.

    Source: Paddle Fluid's fusion_seqexpand_concat_fc, of one level.
    """
    act = _activation("activation", activation)
    if not isinstance(xs, (list, tuple)) or not xs:
        raise LoDTypeError(f"expected xs as a list of tensors, got {shown(xs)}")
    s = along(xs[0], -1, "xs[0]")
    first = in_autocast(with_features(s.rows))
    with_memory(*xs, weight, bias)
    rows = [first]
    for i, t in enumerate(xs[1:], 1):
        if not isinstance(t, Tensor) or t.dim() != 2:
            got = tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__
            raise LoDValueError(f"expected xs[{i}] of shape (sequences, features), got {got}")
        of_shape(f"xs[{i}]", t, tuple(t.shape), first)
        rows.append(as_autocast(rows_of(t), first))
    a_weight(weight, "(all features, out)", lambda w: w.dim() == 2)
    widths = [t.shape[1] for t in rows]
    weight = of_shape("weight", weight, (sum(widths), weight.shape[1]), first)
    parts = weight.split(widths)
    out = first @ parts[0]
    if bias is not None:
        without_rows("bias", bias)
        out = out + of_shape("bias", bias, (weight.shape[1],), first)
    for t, y, part in zip(xs[1:], rows[1:], parts[1:]):
        k = t.lod_level if isinstance(t, LoDTensor) else 0
        if k < s.lod.depth and s.lod.any_empty_at(k) and known(y.shape[0] == s.lod.num_sequences(k)):
            # what lies over no row is in no product: its NaN would be in the gradient of the weight
            y = torch.where(s.lod.row_lengths_at(k, y.device)[:, None] > 0, y, 0)
        product = y @ part
        over = made(product, t.lod) if isinstance(t, LoDTensor) else product
        out = out + sequence_expand_as(over, s.lod).values()
    return s.keep(act(out))
