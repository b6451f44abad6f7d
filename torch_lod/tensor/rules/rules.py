# SPDX-License-Identifier: Apache-2.0
"""The rules. Each is called before its function runs, and tells whether the rows of the operands are the rows of the
result (`signature`), or raises."""

import torch
from torch import Tensor
from torch.nn import Parameter

from ...errors import LoDValueError, named
from ..provenance import Provenance, carries, is_whole, lod_of, placed, provenance_of, provenances_of
from .arguments import (
    ALONG,
    NO_SEQUENCES,
    OUT,
    STACKED,
    STACKS,
    all_pairs,
    along_rows,
    lost_meets,
    misaligned,
    mixture,
    name_of,
    refusal,
    refused,
    sequences_meet,
    touches_rows,
    without,
)
from .operands import corresponding, first, is_element, join, join_given, place, refuse_partial
from .signature import Signature, signature

DIAGONAL = "its diagonal would run through the rows of all sequences"
RESIZED = "where lengths change, tl.map_sequences takes results=('resized', layout); see also x.to_padded()"
NO_FEATURES = f"rows of no features would be interpreted as the features of one row; see x.unsqueeze(1), or {STACKED}"


def row_by_row(text: str):
    """Row i of the result is made of row i of every operand, which is dim 0."""
    return signature(text)(lambda func: True)


def by_element(text: str):
    """As `row_by_row`, wherever the rows are: the function adds or changes dims behind them at most."""
    return signature(text)(lambda func, rows: True)


def reduced(func, x, rank: int, dim) -> Provenance | bool:
    """What a reduction along the rows gives: its result is lost, also where it has no dims; only one of everything, which
    names no dim, is a number like any other."""
    p = provenance_of(x)
    return False if dim is None or rank > 1 or p is None else Provenance(p.lod, None, name_of(func), p.part)


def elsewhere(text: str):
    """The result keeps the rows unless their dim is among the dims."""

    @signature(text)
    def rule(func, input, rank, dim, rows):
        if touches_rows(dim, rank, rows):
            if isinstance(dim, (tuple, list)) and not dim:
                raise refusal(
                    func, f"for torch dim={dim} means all dims, that of the rows as well; leave dim out for all"
                )
            return reduced(func, input, rank, dim)
        return without(dim, rank, rows) if rows else True

    return rule


def refuse_on_rows(text: str, advice: str):
    """As `elsewhere`, but if the dim of the rows is among the dims and the input has a LoD, it raises."""

    @signature(text)
    def rule(func, input, dim, rows):
        touched = touches_rows(dim, input.dim(), rows)
        if touched and provenance_of(input) is not None:
            turned = "move the rows to dim 0: " if rows and advice.startswith("tl.sequence_") else ""
            raise refusal(func, f"{ALONG if not rows else along_dim(input)}; {turned}{advice}")
        return not touched

    return rule


def along_dim(x) -> str:
    p = provenance_of(x)
    assert p is not None
    return f"along dim {p.dim}, where {p.call} put the rows, it mixes the rows of different sequences"


def refuse(advice: str):
    def rule(func, args, kwargs):
        raise refusal(func, advice)

    return rule


def refuse_parts(rule):
    """`rule`, which raises, with what to write for some rows of the batch."""

    def rule_of_parts(func, args, kwargs):
        for p in provenances_of(args, kwargs):
            if p.part is not None:
                raise refused(func, p)
        return rule(func, args, kwargs)

    return rule_of_parts


def only_at_dim_0(rule):
    """`rule` of LoDTensors; rows elsewhere are refused."""

    def rule_at_dim_0(func, args, kwargs):
        for p in provenances_of(args, kwargs):
            if p.dim is not None and not is_whole(p):
                raise refused(func, p)
        return rule(func, args, kwargs)

    return rule_at_dim_0


moves_in_place = refuse(
    "the rows would move and leave the LoD behind; use the form that returns a new tensor, or x.values()"
)


def moves(func, args, kwargs):
    """Rows are read or written at indices: they are lost."""


def of_data(func, args, kwargs):
    """A copy of the data that are given: the other operand only has a type."""
    return provenance_of(args[1] if len(args) > 1 else kwargs.get("data", kwargs.get("other")))


def refuse_out(func, out, others=()) -> None:
    """`out=` would write other rows, while the LoD would stay; and a plain tensor would not know of its rows."""
    if carries(out):
        raise refusal(func, "out= would leave its LoD behind; write into x.values()")
    for value in others:
        if carries(value):
            raise written(func)


def written(func):
    """The error where rows would be written into a plain tensor, or into one that lost the structure of its rows."""
    return mixture(
        func,
        f"the tensor that is written into would not know which rows it holds; collect rows in a list for torch.stack; {STACKS}; if all "
        "rows together are meant, write their .values() into it",
    )


def refuse_write(func, args, kwargs) -> None:
    """Raises if what comes from rows is written into a tensor that does not know its rows."""
    target = args[0] if args else first(args, kwargs)
    refuse_partial(func, target)
    if is_element(target):
        own, others = provenance_of(target), [value for value in (*args[1:], *kwargs.values()) if value is not target]
        of = None if own is None or own.part is None else own.lod
        if of is not None and any(m.part is None or of.differs(m.lod) for m in provenances_of(tuple(others), {})):
            raise written(func)  # it still says which row it is of
        return
    if placed(target) is None and any(carries(value) for value in (*args[1:], *kwargs.values()) if value is not target):
        raise written(func)


# -- row by row


def where(func, args, kwargs):
    return place(func, (*args, *kwargs.values()), True)[0] if len(args) + len(kwargs) >= 3 else None


@signature("anchor: broadcast, positive: broadcast, negative: broadcast, *, distance_function")
def triplet(func, distance_function):
    """The user's own distance function may do anything with the rows."""
    return distance_function is None or isinstance(distance_function, torch.nn.PairwiseDistance)


@signature("input, weight: beside")
def prelu(func, input, weight, rows):
    """A weight for each channel, which is dim 1."""
    if rows == 1 and isinstance(weight, Tensor) and weight.numel() != 1:
        raise refusal(func, f"{along_dim(input)}: they would be the channels; transpose them to the last dim; {OUT}")
    return True


_GAUSSIAN = Signature("input, target, var")


def gaussian(func, args, kwargs):
    return join_given(func, _with_last_dim(args, kwargs), {})


def _with_last_dim(args, kwargs) -> tuple:
    """A variance for each vector of the input has no last dim: torch gives it one."""
    input, target, var = _GAUSSIAN.bind(args, kwargs)
    both = isinstance(input, Tensor) and isinstance(var, Tensor)
    if not both or var.dim() != input.dim() - 1 or var.shape != input.shape[:-1]:
        return input, target, var
    wide = var.unsqueeze(-1)
    if provenance_of(var) is not None:
        wide._provenance = provenance_of(var)  # type: ignore[attr-defined]
    return input, target, wide


def distances(rule):
    """`rule` of LoDTensors; a distance or angle is taken over the last dim, which must not be that of the rows."""

    def rule_of_distances(func, args, kwargs):
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        for t in tensors:
            p = placed(t)
            if p is not None and p.dim and p.dim == t.dim() - 1:
                raise along_rows(func, p, "its distances would run over the rows of all sequences")
        if all(is_whole(p) for p in provenances_of(args, kwargs)):
            return rule(func, args, kwargs)
        return place(func, tensors, True)[0]

    return rule_of_distances


@signature("sorted_sequence: broadcast, input: broadcast, *, sorter: broadcast")
def searchsorted(func, sorted_sequence, sorter):
    """A single row of numbers is searched for all rows of the input."""
    return (lod_of(sorted_sequence) is None and lod_of(sorter) is None) or sorted_sequence.dim() >= 2


@signature("input, hx: rows")
def cell(func, input):
    """A step of a recurrence treats rows as a batch. Torch does not check the dims and crashes with more than 2."""
    if lod_of(input) is not None and input.dim() < 2:
        raise refusal(func, NO_FEATURES)
    if lod_of(input) is not None and input.dim() > 2:
        raise refusal(func, f"a step takes rows of features, not {tuple(input.shape)}; see x.flatten(1)")
    return True


@signature("input, weight: beside, bias: beside")
def _linear(func, input, rank, rows):
    if rank < 2:
        raise refusal(func, NO_FEATURES)
    if rows and rows == rank - 1:
        raise refusal(func, f"{along_dim(input)}; transpose them back; {OUT}")
    return True


_BIAS = (Parameter, type(None))


def linear(func, args, kwargs):
    if not kwargs and len(args) == 3 and type(args[1]) is Parameter and type(args[2]) in _BIAS:  # what modules call
        p = getattr(args[0], "_provenance", None)
        if p is not None and p.dim == 0 and p.part is None and args[0].dim() >= 2:
            return p
    return _linear(func, args, kwargs)


@signature("input: broadcast, target: broadcast, weight: broadcast")
def soft_margin(func, input, rank):
    """The mean over the classes is one over the last dim of the input: a weight of more dims moves them."""
    return rank == input.dim()


@signature("input1, input2: rows, weight: beside, bias: beside")
def bilinear(func, input):
    return input.dim() >= 2


@signature("input, running_mean, running_var, weight: beside, bias: beside")
def batch_norm(func, input, rank, rows):
    """The channels are dim 1."""
    if rows == 1:
        raise refusal(func, f"{along_dim(input)}: they would be the channels; transpose them to the last dim")
    return True


_LOSS = Signature("input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'")


def classes(func, args, kwargs):
    """Logits (rows, classes, ...) and class indices (rows, ...). Of rows at dim d > 1 of the logits, dim d - 1 of the
    targets."""
    input, target, weight, *_ = _LOSS.bind(args, kwargs)
    logits, given = placed(input), placed(target)
    if placed(weight) is not None and not (logits is None and given is None):
        raise all_pairs(func)
    if provenance_of(weight) is not None:
        return None
    if logits is None:  # plain, or lost, which meets the rows of the targets
        return given if is_whole(given) or provenance_of(input) is not None else None
    if logits.dim == min(1, input.dim() - 1):
        raise along_rows(func, logits, f"its classes would be the rows of all sequences; {_CLASSES}")
    ahead = logits.dim > 0
    if given is not None:
        if logits.dim - (ahead and input.dim() == target.dim() + 1) != given.dim:
            sequences_meet(func, logits.lod, given.lod)
            raise misaligned(func)
        if corresponding(func, logits, given._replace(dim=logits.dim)) is None:
            return None
    return logits._replace(dim=logits.dim - ahead)


_CLASSES = f"tl.sequence_log_softmax is that of the rows of every sequence; {OUT}"


def ignoring(rule, of: Signature = _LOSS):
    """`rule` for a loss of classes: one number per row does not tell whether it counts, so the LoD has to."""

    def counted(answer, bound):
        """The answer, whose LoD tells which rows count."""
        target, index = bound["target"], bound["ignore_index"]
        rows = target.values() if provenance_of(target) is not None else target
        counts = rows != (-100 if index is None else index)
        if is_whole(answer):
            return Provenance(answer.lod.counting(counts), 0)
        counts = counts.movedim(answer.dim, 0)
        if answer.part is not None:  # rows that are elsewhere count there
            (begin, end), count, rest = answer.part, answer.lod.rows, counts.shape[1:]
            counts = torch.cat([counts.new_ones(begin, *rest), counts, counts.new_ones(count - end, *rest)])
        return answer._replace(lod=answer.lod.counting(counts))

    def rule_ignoring(func, args, kwargs):
        answer = rule(func, args, kwargs)
        if answer is None or (kwargs.get("reduction") in ("mean", "sum") and kwargs.get("reduce") is None):
            return answer
        bound = dict(zip(of.names, of.bind(args, kwargs)))
        target, whole = bound["target"], bound["reduction"] == "none" or bound.get("reduce") is False
        return (
            counted(answer, bound)
            if whole and isinstance(target, Tensor) and not target.is_floating_point()
            else answer
        )

    return rule_ignoring


@signature("input, normalized_shape, weight: beside, bias: beside")
def layer_norm(func, input, rank, normalized_shape, rows):
    if rows and rows >= rank - len(normalized_shape):
        raise refusal(func, f"{along_dim(input)}; transpose them back; {OUT}")
    if len(normalized_shape) >= rank:
        raise refusal(
            func, f"a normalized_shape of {len(normalized_shape)} dims takes its statistics over rows; {STACKED}; {OUT}"
        )
    return True


@signature("x, N")
def vander(func, N):
    if N is None:
        raise refusal(func, "without N it has a column for each row of the batch; pass N, or x.sequences() one by one")
    return True


@signature("input, weight: plain, bias: plain, N")
def group_norm(func, input, N):
    """The number of samples is an argument."""
    if N != input.shape[0]:
        raise refusal(func, f"{N} samples of {input.shape[0]} rows take their statistics over several rows; {OUT}")
    return True


@signature(
    "input, weight: plain, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights: rows"
)
def bag(func, input):
    """A bag per row of ids. A floating input is the weight: torch also takes the arguments in that order."""
    if input.dim() < 2:
        raise refusal(func, "its bags are cut by offsets of their own; pool nn.Embedding's rows with tl.sequence_pool")
    return not input.is_floating_point()


def scaling(rule, text: str = "input, weight, padding_idx, max_norm"):
    """`rule` for a lookup in a table whose rows are scaled in place to a norm of at most `max_norm`."""
    of = Signature(text)

    def rule_scaling(func, args, kwargs):
        bound = dict(zip(of.names, of.bind(args, kwargs)))
        p = provenance_of(bound["weight"])
        if p is not None and bound["max_norm"] is not None:
            if p.dim is None:
                raise lost_meets(func, p, "expected a plain tensor as weight, since it would be changed along all rows")
            if p.dim:
                raise along_rows(func, p, "max_norm would scale it by norms over the rows of all sequences")
        return rule(func, args, kwargs)

    return rule_scaling


@signature("log_probs, targets")
def ctc(func):
    raise refusal(func, f"its dim 0 is the time of all sequences together; F.ctc_loss runs along every one; {OUT}")


def windows(spatial: int, text: str = "input"):
    """Convolution and pooling: with all dims, rows are the batch; with one dim less, the windows run over the rows."""

    @signature(text)
    def rule(func, input, rows):
        if rows:
            why = f"its windows would run over the rows of all sequences; {RESIZED}"
            raise along_rows(func, provenance_of(input), why)
        if provenance_of(input) is not None and input.dim() < spatial + 2:
            raise refusal(
                func,
                f"an input of {input.dim()} dims is one sample whose rows it would run together; {RESIZED}; {STACKED}; {OUT}",
            )
        return True

    return rule


@signature("input")
def channels(func, input, rows):
    """Each position by itself; the channels are dim 1."""
    if rows == 1:
        raise refusal(func, f"{along_dim(input)}: they would be the channels; transpose them to the last dim")
    return True


# -- reductions over dims, or moves along dims


@signature("input, dim")
def _extreme_along(func, input, rank, dim, rows):
    if touches_rows(dim, rank, rows):
        return reduced(func, input, rank, dim)
    return without(dim, rank, rows) if rows else True


def extreme(func, args, kwargs):
    """max and min compare two tensors, or reduce over a dim, which may be given as the second argument."""
    other = args[1] if len(args) > 1 else kwargs.get("other")
    if isinstance(other, Tensor):
        return join(func, (args[0] if args else first(args, kwargs), other), {})
    return _extreme_along(func, args, kwargs)


_POINTS = Signature("y, x")


def sampled(rule):
    """`rule` for numbers at the points x: a single row of them lies along the dim of the integral."""

    def rule_sampled(func, args, kwargs):
        y, x = _POINTS.bind(args, kwargs)
        if isinstance(y, Tensor) and isinstance(x, Tensor) and x.dim() == 1 != y.dim():
            if provenance_of(x) is not None:
                return None
            args, kwargs = (y,), {key: value for key, value in kwargs.items() if key == "dim"}
        return rule(func, args, kwargs)

    return rule_sampled


_DIFF = Signature("input, n, dim, prepend=None, append=None")


def difference(rule):
    """`rule` of torch.diff; rows of the batch before or after those of a LoDTensor belong to one sequence only."""

    def rule_difference(func, args, kwargs):
        input, _, _, *around = _DIFF.bind(args, kwargs)
        own = placed(input)
        for t in around:
            p = provenance_of(t)
            if own is not None and own.part is None and p is not None and p.part is not None:
                raise named(
                    LoDValueError(f"expected rows as input alone, got rows {p.part[0]} to {p.part[1]} {_AROUND}"),
                    name_of(func),
                )
        return rule(func, args, kwargs)

    return rule_difference


DIFFERENCE = "with rows x at dim 0, x - tl.sequence_shift(x, 1) is the difference within sequences"
NORM = "with rows x at dim 0, x / tl.sequence_expand_as(tl.sequence_pool(x * x, 'sum').sqrt(), x) has norm 1 in every sequence"
_AROUND = (
    f"of the whole batch as prepend or append, which are those of one sequence; {DIFFERENCE}. Models of transformers look in this way for packed sequences where they get position_ids "
    "alone, and do not with attention_mask=torch.ones_like(ids)"
)


@signature("input, q, dim")
def quantile(func, input, rank, q, dim, rows):
    """Several quantiles become dim 0 of the result."""
    if isinstance(q, Tensor) and q.dim():
        return False
    if touches_rows(dim, rank, rows):
        return reduced(func, input, rank, dim)
    return without(dim, rank, rows) if rows else True


@signature("v, pow, dim=0")
def norm_except_dim(func, dim):
    """One norm for each index of a dim; dim -1: one norm of everything."""
    return dim == 0


@signature("input, p, dim")
def renorm(func, rank, dim, rows):
    if not touches_rows(dim, rank, rows):
        raise refusal(func, f"along another dim than that of the rows its norms run over rows; {OUT}")
    return True


@signature("input, *dims")
def flip(func, input, rank, dims, rows):
    if touches_rows(dims, rank, rows):
        raise refusal(
            func, f"{along_dim(input) if rows else ALONG}; tl.sequence_reverse reverses every sequence; {OUT}"
        )
    return True


@signature("input")
def fliplr(func, rows):
    if rows == 1:
        raise refusal(
            func, f"its dim 1 has the rows of all sequences; tl.sequence_reverse reverses every sequence; {OUT}"
        )
    return True


@signature("input, s, dim")
def fft(func, rank, s, dim, rows):
    """Over several dims; without dims the last len(s) dims."""
    if touches_rows(tuple(range(-len(s), 0)) if dim is None and s else dim, rank, rows):
        raise refusal(func, f"{ALONG}; {NO_SEQUENCES}")
    return True


@signature("input, diagonal")
def triangle(func, rank, rows):
    if rank < 3 + rows:
        raise refusal(func, f"{DIAGONAL}; {OUT}")
    return True
