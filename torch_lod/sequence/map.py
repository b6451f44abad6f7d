# SPDX-License-Identifier: Apache-2.0
"""Any function of dense batches, on a LoDTensor: sequences of equal length are stacked, and the function is called once for
each distinct length. What is right on a dense batch of sequences of one length is right here, unedited: attention written
out, loops over time, FFTs, slices, positions.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..dynamo import outside_of_graphs
from ..errors import LoDTypeError, LoDValueError, public, shown
from ..structure.declared import declared_level, level_in
from ..structure.devices import upload
from ..structure.lod import LoD
from ..structure.memory import held_elsewhere
from ..structure.partition import uploaded_map
from ..structure.validate import a_bool, filler, integer, number, sums, with_memory
from ..tensor.derived import DerivedTensor
from ..tensor.lod_tensor import LoDTensor, made, unmoved, values_of
from .loop import each_a_sequence
from .operator import Along, along

__all__ = ["map_sequences"]

#: Python's words where fn wants what `map_sequences` takes for its own.
_MISSING = re.compile(r"missing .*'(level|layout|results|pad_to|fill|check)'")
#: By layout, the dims of a stack that hold its sequences and the rows of each.
_LAYOUTS = {"batch_first": (0, 1), "length_first": (1, 0), "channels": (0, -1)}

_outside = functools.partial(
    outside_of_graphs,
    what="map_sequences, whose number of calls depends on the lengths of its batch,",
    instead="compile the function, or leave fullgraph=True out",
)


@_outside
@public
def map_sequences(
    fn: Callable,
    x: LoDTensor,
    *others,
    level: int | str = -1,
    layout: str = "batch_first",
    results: Any = "rows",
    pad_to: list[int] | tuple[int, ...] | None = None,
    fill: float = 0,
    check: bool = False,
    **kwargs,
) -> Any:
    """Calls a function of dense batches on stacks of equally long sequences, once for each distinct length.

    Equivalent to (one result for each row):
        torch.cat([fn(rows[None])[0] for rows in x.sequences(level)])

    The shortest sequences come first. A sequence of an outer level is all rows under it. Stacks are copies: what fn writes
    into them does not reach x. What fn returns and goes on holding, as a buffer or its state, is copied. Batch norms in training see one stack at a time, and random numbers are drawn stack by stack.

    Args:
        fn: a module or function of tensors, called as fn(stack, *stacks of others, **kwargs).
        x: a LoDTensor, (rows, *element), any dtype.
        others: LoDTensors with a sequence for each of x's, which may have other lengths: then fn is called once for each
            distinct tuple of lengths. A plain tensor, or a LoDTensor of the levels above `level`, has a row for each
            sequence, and fn gets (count, *element).
        level: the level whose sequences are stacked.
        layout: of the stacks: "batch_first" is (count, length, *element), "length_first" (length, count, *element),
            "channels" (count, *element, length).
        results: what fn returns. "rows": a row for each row of x, in the layout of the stacks, or ("rows", layout) in
            another. "resized", or ("resized", layout): the same with another length, as after a convolution with a stride.
            "sequences": a row for each sequence at dim 0, ("sequences", dim) at another dim. None: something that is not
            wanted. A tuple, list, dict or dataclass of these where fn returns one; of a mapping, the entries that are named.
        pad_to: lengths. A sequence is padded with zeros to the next of them, for fewer calls, and fn gets a further argument
            mask=, bool, (count, length), True at rows; with LoDTensors among others a tuple of masks, x's first. Longer
            sequences are not padded.
        fill: what an empty sequence has in results for each sequence. fn does not see sequences without rows in x.
        check: first run fn on a stack of two sequences and on each of them alone, and compare: ValueError where fn mixes the
            sequences of a dense batch, as sums over the batch do, or takes another layout. Of a module in eval mode, whose
            buffers stay. What draws random numbers fails.
        kwargs: passed to every call as they are. One that has the name of an argument here: functools.partial(fn, level=1).

    Returns:
        for "rows" a LoDTensor with the LoD of x; for "resized" one with the levels of x down to `level`, the lengths there
        those of fn's results, 0 for an empty sequence; for "sequences" a LoDTensor with the levels above `level`, plain if
        there are none; for ("sequences", dim) with another dim than 0 a plain tensor; in the nesting of `results`.
        Gradients are those of fn. If x has no rows, fn is called once with no sequences (of length 1), to learn the shapes.
        Under torch.compile it stays outside of graphs as a whole, as `scan` does; fn may be compiled by itself.

    Raises:
        ValueError, TypeError: where fn returns something else than `results` says, others do not fit x, a LoDTensor is given
            by keyword, fn does not take mask= although pad_to is given, or fn is a module of torch.nn that takes another layout (its batch_first, the
            channels of Conv1d). What fn raises passes through as it is.

    Source: torch.func.vmap with groups of equal length instead of one; length buckets of sequence-to-sequence models.
    """
    s = along(x, level)
    buckets = checked_options(fn, layout, results, pad_to, fill)
    if buckets is not None and "mask" in kwargs:
        raise LoDTypeError("expected no mask by keyword beside pad_to, which passes mask= to fn, got one")
    a_bool("check", check)
    for name, value in kwargs.items():
        if _holds_one(value):
            raise LoDTypeError(
                f"expected {name} by keyword as what is the same for all sequences, got a LoDTensor; with a sequence for each of x's "
                f"it goes by position: tl.map_sequences(fn, x, {name})"
            )
    inputs = [x, *others]
    try:
        if check:
            _compare(fn, s, inputs, layout, results, buckets, kwargs)
        return run(fn, s, inputs, layout, lambda _: results, buckets, fill, kwargs)
    except TypeError as error:
        if missing := _MISSING.search(str(error)):
            error.add_note(
                f"map_sequences has an argument {missing[1]} of its own; see functools.partial(fn, {missing[1]}=...)"
            )
        raise


def _holds_one(value: Any, depth: int = 4) -> bool:
    """Whether it is a LoDTensor, or a container with one."""
    if isinstance(value, (list, tuple, dict)) and depth:
        return any(_holds_one(part, depth - 1) for part in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, LoDTensor)


def run(
    fn: Callable,
    s: Along,
    inputs: list,
    layout: str,
    results_of: Callable[[Any], Any],
    buckets: Tensor | None,
    fill: float,
    kwargs: dict,
) -> Any:
    """`map_sequences` of checked options. `results_of` makes `results` of what the first call returned."""
    x = inputs[0]
    stacked = [True, *(_has_sequences(other, i, s) for i, other in enumerate(inputs[1:]))]
    offsets = [t.lod.row_offsets_at(s.k) if whole else None for t, whole in zip(inputs, stacked, strict=True)]
    plan = _planned(offsets, buckets)
    arguments = [
        _stacks(_rows_at(values_of(t), source), shapes, layout)
        for t, (source, shapes) in zip(inputs, plan.inputs, strict=True)
    ]
    masks = []
    if buckets is not None:
        divided = [given for given, whole in zip(plan.inputs, stacked, strict=True) if whole]
        masks = [_stacks(upload(source >= 0, x.device), shapes) for source, shapes in divided]
    results: Any = None
    returned: list[list[Any]] = []
    for call, shape in enumerate(plan.inputs[0][1]):
        if masks:
            kwargs["mask"] = masks[0][call] if len(masks) == 1 else tuple(mask[call] for mask in masks)
        found = fn(*(stacks.pop(0) for stacks in arguments), **kwargs)
        results = results if returned else results_of(found)
        rows = [_rows_first(leaf, t, layout, shape) for leaf, t in _leaves(results, found)]
        del found
        returned.append(_kept(rows))
    together = zip(_leaves(results, results), zip(*returned, strict=True), strict=True)
    return _nested(results, iter([_joined(leaf, parts, s, plan, fill) for (leaf, _), parts in together]))


# -- which sequences are in which stack


class _Plan(NamedTuple):
    """The sequences that have rows in x, grouped by length."""

    #: Per argument of fn: for every row of its stacks the row of the input, -1 for padding; and per call the shape (count,
    #: length) of the stack, (count,) of an input with a row for each sequence.
    inputs: list[tuple[Tensor, list[tuple[int, ...]]]]
    #: The sequences in the order of the stacks, and how many rows each has in the stack of x.
    order: Tensor
    sizes: Tensor


def _planned(offsets: list[Tensor | None], buckets: Tensor | None) -> _Plan:
    """`offsets`: the row offsets of every input, x first, in host memory; None for an input with a row for each sequence."""
    lengths = torch.stack([t.diff() for t in offsets if t is not None], 1)
    padded = _next(lengths, buckets)
    used = lengths[:, 0].nonzero().flatten()
    shapes, group = padded[used].unique(dim=0, return_inverse=True) if len(used) else (padded[:0], used)
    order = used[group.argsort(stable=True)]
    counts, columns = group.bincount(minlength=len(shapes)).tolist(), iter(shapes.unbind(1))
    if not counts:
        counts, columns = [0], iter([_next(lengths.new_ones(1), buckets)] * lengths.shape[1])
    own, size = iter(lengths[order].unbind(1)), iter(padded[order].unbind(1))
    inputs: list[tuple[Tensor, list[tuple[int, ...]]]] = []
    for begin in offsets:
        if begin is None:
            inputs.append((order, [(count,) for count in counts]))
            continue
        cuts, rows = sums(padded_to := next(size)), begin[order]
        source = ops.run_map(rows, cuts, int(cuts[-1]))
        if buckets is not None:
            source = torch.where(source < (rows + next(own)).repeat_interleave(padded_to), source, -1)
        inputs.append((source, list(zip(counts, next(columns).tolist(), strict=True))))
    return _Plan(inputs, order, padded[order, 0])


def _next(lengths: Tensor, buckets: Tensor | None) -> Tensor:
    """Every length, or the next bucket; 0 stays, and so does what is longer than all buckets."""
    if buckets is None:
        return lengths
    at = torch.searchsorted(buckets, lengths).clamp(max=len(buckets) - 1)
    return torch.where(lengths > 0, torch.maximum(buckets[at], lengths), 0)


def _has_sequences(other, i: int, s: Along) -> bool:
    """Whether an input has a sequence for each of x's, or else a row."""
    count = s.lod.num_sequences(s.k)
    if isinstance(other, LoDTensor):
        if declared_level(other.lod) is not None:
            if (k := level_in(other.lod, s.lod)) != s.k:
                raise LoDValueError(
                    f"expected others declared for level {s.k}, got tl.per_sequence(c, {k}) at index {i}; see tl.per_sequence(c, {s.k})"
                )
            return False
        return each_a_sequence("others", other, i, s.lod.outer_at(s.k), s.k, count)
    unmoved("others", other)
    for_all = "what is the same for all sequences goes by keyword"
    if not isinstance(other, Tensor):
        raise LoDTypeError(f"expected others as tensors, got {shown(other)} at index {i}; {for_all}")
    if other.dim() == 0 or other.shape[0] != count:
        raise LoDValueError(
            f"expected others with a row for each of {count} sequences, got {tuple(other.shape)} at index {i}; {for_all}"
        )
    return False


def _rows_at(rows: Tensor, index: Tensor, fill: float = 0) -> Tensor:
    return ops.gather_rows(rows, uploaded_map(index, rows.device, rows.shape[0]), fill)


def _stacks(rows: Tensor, shapes: list[tuple[int, ...]], layout: str = "batch_first") -> list[Tensor]:
    """Consecutive rows as a tensor for each call. Copies: with storage of its own each may be written to in place, which
    autograd would count as a write to all of them."""
    stacks = []
    for part, shape in zip(rows.split([math.prod(shape) for shape in shapes]), shapes, strict=True):
        stack = part.view(*shape, *part.shape[1:])
        stack = stack.movedim((0, 1), _LAYOUTS[layout]) if len(shape) == 2 else stack
        stacks.append(stack.clone(memory_format=torch.contiguous_format))
    return stacks


# -- what fn returns


class _Leaf(NamedTuple):
    """A result that is a tensor: one of "rows" and "resized", with a layout or None for that of the stacks; "sequences",
    with a dim; "" for what is not wanted."""

    kind: str
    at: Any
    said: str


def _leaf(spec: Any, where: str) -> _Leaf | None:
    """None if it is a tree, or wrong."""
    kind, at = spec, None
    if type(spec) is tuple and len(spec) == 2 and all(isinstance(part, (str, int)) for part in spec):
        kind, at = spec
        if not (at in _LAYOUTS if kind in ("rows", "resized") else kind == "sequences" and type(at) is int):
            return None
    elif spec is None:
        kind = ""
    elif not isinstance(spec, str) or spec not in ("rows", "resized", "sequences"):
        return None
    elif spec == "sequences":
        at = 0
    return _Leaf(kind, at, f"{where}={spec!r}")


def _leaves(spec: Any, found: Any, where: str = "results") -> Iterator[tuple[_Leaf, Any]]:
    """Every leaf of `results`, with what fn returned for it."""
    if (leaf := _leaf(spec, where)) is not None:
        yield leaf, found
    elif isinstance(spec, (tuple, list)):
        cls = tuple if isinstance(spec, tuple) else list
        if not isinstance(found, cls) or len(found) != len(spec):
            raise LoDValueError(f"expected {where} to be a {cls.__name__} of {len(spec)}, got {_types(found)} from fn")
        for i, (part, own) in enumerate(zip(spec, found, strict=True)):
            yield from _leaves(part, own, f"{where}[{i}]")
    elif isinstance(spec, dict):
        if not isinstance(found, Mapping) or not all(key in found for key in spec):
            raise LoDValueError(f"expected {where} to be a dict with {list(spec)}, got {_types(found)} from fn")
        for key, part in spec.items():
            yield from _leaves(part, found[key], f"{where}[{key!r}]")
    elif dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        if not isinstance(found, type(spec)):
            raise LoDValueError(f"expected {where} to be a {type(spec).__name__}, got {_types(found)} from fn")
        for field in dataclasses.fields(spec):
            yield from _leaves(getattr(spec, field.name), getattr(found, field.name), f"{where}.{field.name}")
    else:
        raise LoDValueError(
            f"expected {where} as 'rows', 'resized', 'sequences', ('rows', layout), ('resized', layout), ('sequences', dim), "
            f"None, or a tuple, list, dict or dataclass of them, got {shown(spec)}"
        )


def _nested(spec: Any, leaves: Iterator) -> Any:
    """The results in the nesting of `results`."""
    if _leaf(spec, "") is not None:
        return next(leaves)
    if isinstance(spec, (tuple, list)):
        parts = [_nested(part, leaves) for part in spec]
        return type(spec)(*parts) if hasattr(spec, "_fields") else type(spec)(parts)
    if isinstance(spec, dict):
        return {key: _nested(part, leaves) for key, part in spec.items()}
    return dataclasses.replace(
        spec, **{f.name: _nested(getattr(spec, f.name), leaves) for f in dataclasses.fields(spec)}
    )


def _types(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"{type(found).__name__} of {list(found)}"
    if isinstance(found, (tuple, list)):
        return f"{type(found).__name__}({', '.join(map(_types, found))})"
    if isinstance(found, (LoDTensor, DerivedTensor)):
        return shown(found)
    return str(tuple(found.shape)) if isinstance(found, Tensor) else type(found).__name__


def _rows_first(leaf: _Leaf, found: Any, layout: str, stack: tuple[int, ...]) -> Tensor | None:
    """What a call returned for a leaf, with its rows, or its sequences, at dim 0; stack: (count, length) of x's."""
    if not leaf.kind:
        return None
    unmoved(leaf.said, found)
    by_row = leaf.kind != "sequences"
    dims = _LAYOUTS[leaf.at or layout] if by_row else (leaf.at,)
    wanted = stack if leaf.kind == "rows" else stack[:1]
    fits = isinstance(found, Tensor) and not isinstance(found, (LoDTensor, DerivedTensor)) and found.dim() >= len(dims)
    if not fits or not all(-found.dim() <= d < found.dim() and found.shape[d] == n for d, n in zip(dims, wanted)):
        count, length = f"count {stack[0]}", f"length {stack[1]}" if leaf.kind == "rows" else "any length"
        expected = {
            "batch_first": f"({count}, {length}, ...)",
            "length_first": f"({length}, {count}, ...)",
            "channels": f"({count}, ..., {length})",
            0: f"({count}, ...)",
        }.get((leaf.at or layout) if by_row else leaf.at, f"{count} at dim {leaf.at}")
        raise LoDValueError(f"expected {leaf.said} to be {expected}, got {_types(found)} from fn")
    with_memory(found)
    return found.movedim(dims, (0, 1)).flatten(0, 1) if by_row else found.movedim(leaf.at, 0)


def _kept(rows: list[Tensor | None]) -> list[Tensor | None]:
    """What a call returned, of which no name is left. The next call may write to what fn holds as well (a buffer, its state, a
    result of an earlier call): that is copied."""
    return [t.clone() if t is not None and held_elsewhere(t, rows) else t for t in rows]


def _joined(leaf: _Leaf, parts: tuple, s: Along, plan: _Plan, fill: float) -> Any:
    """The result of all calls for a leaf."""
    if not leaf.kind:
        return None
    for part in parts:
        if part.shape[1:] != parts[0].shape[1:]:
            shapes = [tuple(t.shape[1:]) for t in (parts[0], part)]
            raise LoDValueError(
                f"expected {leaf.said} with elements of one shape, got {shapes[0]} and {shapes[1]} from fn"
            )
    rows = torch.cat(parts)
    if leaf.kind == "rows":
        return s.keep(_unstacked(rows, plan.order, plan.sizes, s.lod.row_offsets_at(s.k)))
    count = s.lod.num_sequences(s.k)
    if leaf.kind == "resized":
        counts = [stack[0] for _, stack in zip(parts, plan.inputs[0][1], strict=True)]
        sizes = plan.order.new_tensor([len(part) // max(1, n) for part, n in zip(parts, counts, strict=True)])
        sizes = sizes.repeat_interleave(plan.order.new_tensor(counts))
        offsets = sums(plan.order.new_zeros(count).index_copy(0, plan.order, sizes))
        names = s.lod.level_names and s.lod.level_names[: s.k + 1]
        lod = LoD.checked("offsets", [*s.lod.levels[: s.k], offsets], names)
        return made(_unstacked(rows, plan.order, sizes, offsets), lod)
    filler("fill", fill, rows.dtype)
    places = torch.full_like(s.lod.levels[s.k][:-1], -1)
    places[plan.order] = torch.arange(len(plan.order), device=places.device)
    each = _rows_at(rows, places, fill)
    dim = leaf.at % each.dim()
    return each.movedim(0, dim).contiguous() if dim else s.pool(each)


def _unstacked(rows: Tensor, order: Tensor, sizes: Tensor, offsets: Tensor) -> Tensor:
    """The rows of all sequences in their own order, each from the first on of the `sizes` that it has in a stack."""
    starts = torch.zeros_like(offsets[:-1])
    starts[order] = sums(sizes)[:-1]
    return _rows_at(rows, ops.run_map(starts, offsets, int(offsets[-1])))


# -- a stack of two


def _compare(fn: Callable, s: Along, inputs: list, layout: str, results: Any, buckets: Tensor | None, kwargs: dict):
    """LoDValueError where two sequences in a stack are not what each of them is alone."""
    stacked = [True, *(_has_sequences(other, i, s) for i, other in enumerate(inputs[1:]))]
    offsets = [t.lod.row_offsets_at(s.k) if whole else None for t, whole in zip(inputs, stacked, strict=True)]
    lengths = torch.stack([t.diff() for t in offsets if t is not None], 1)
    if (two := _two(lengths)) is None:
        return
    sizes = lengths[two].amin(0).tolist()  # of two that differ in length the first rows
    left, both = iter(sizes), []
    for t, begin in zip(inputs, offsets, strict=True):
        at = two if begin is None else ops.run_map(begin[two], sums(two.new_tensor([n := next(left)] * 2)), 2 * n)
        both.append(_rows_at(values_of(t).detach(), at))

    def called(first: int, count: int) -> list[tuple[_Leaf, Any]]:
        shapes = iter([(count, n) for n in sizes])
        shaped = [(count,) if begin is None else next(shapes) for begin in offsets]
        parts = [rows.narrow(0, first * (len(rows) // 2), count * (len(rows) // 2)) for rows in both]
        stacks = [_stacks(rows, [shape], layout)[0] for rows, shape in zip(parts, shaped, strict=True)]
        masks = tuple(torch.ones(count, n, dtype=torch.bool, device=inputs[0].device) for n in sizes)
        own = {} if buckets is None else {"mask": masks[0] if len(masks) == 1 else masks}
        leaves = list(_leaves(results, fn(*stacks, **kwargs, **own)))
        rows = [_rows_first(leaf, t, layout, (count, sizes[0])) for leaf, t in leaves]
        kinds = [leaf for leaf, _ in leaves]
        del leaves, stacks
        return list(zip(kinds, _kept(rows), strict=True))

    with _unchanged(fn, inputs[0].device):
        together, *alone = called(0, 2), called(0, 1), called(1, 1)
    for i, each in enumerate(alone):
        for (leaf, found), (_, own) in zip(together, each, strict=True):
            if leaf.kind and (far := _distance(found.narrow(0, i * (n := len(found) // 2), n), own)) > _CLOSE.get(
                own.dtype, 0
            ):
                raise LoDValueError(
                    f"expected fn to compute every sequence of a stack by itself, got {leaf.said} of two sequences together {far:.2g} "
                    "times their largest value away from that of each alone: it mixes the sequences of a dense batch, takes another "
                    "layout=, or draws random numbers; sequence by sequence: [fn(rows[None]) for rows in x.sequences()]"
                )


#: How far from one another results may be, relative to the largest.
_CLOSE = {torch.float64: 1e-7, torch.complex128: 1e-7, torch.float32: 1e-3, torch.complex64: 1e-3}
_CLOSE |= {torch.float16: 5e-2, torch.bfloat16: 5e-2}


def _two(lengths: Tensor) -> Tensor | None:
    """Two sequences with rows, of equal lengths where there are such; None where there are no two."""
    used = lengths[:, 0].nonzero().flatten()
    if len(used) < 2:
        return None
    _, group, counts = lengths[used].unique(dim=0, return_inverse=True, return_counts=True)
    several = (counts > 1).nonzero().flatten()
    if len(several):
        return used[group == several[-1]][:2]
    return used[lengths[used, 0].argsort(descending=True)][:2]


@contextlib.contextmanager
def _unchanged(fn: Any, device: torch.device):
    """fn in eval mode; afterwards its mode, its buffers and the random numbers are what they were."""
    modules = list(fn.modules()) if isinstance(fn, torch.nn.Module) else []
    training = [module for module in modules if module.training]
    buffers = [(m, {k: t if t is None else t.clone() for k, t in m._buffers.items()}) for m in modules if m._buffers]
    for module in training:
        module.training = False
    try:
        with torch.random.fork_rng(
            [] if device.type == "cpu" else [device], device_type=device.type if device.type != "cpu" else "cuda"
        ):
            yield
    finally:
        for module in training:
            module.training = True
        for module, before in buffers:
            module._buffers.update(before)


def _distance(found: Tensor, alone: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    if found.shape != alone.shape:
        return math.inf
    if not alone.numel():
        return 0.0
    wide = torch.complex128 if alone.is_complex() else torch.float64
    found, alone = found.detach().to(wide), alone.detach().to(wide)
    same = (found == alone) | (found.isnan() & alone.isnan())
    error = torch.where(same, 0, (found - alone).abs()).nan_to_num(math.inf, math.inf)
    return float(error.max()) / max(float(torch.where(alone.isfinite(), alone.abs(), 0).max()), 1e-6)


# -- options


def checked_options(fn: Any, layout: Any, results: Any, pad_to: Any, fill: Any) -> Tensor | None:
    """The lengths of pad_to in order; an error for what no call can take."""
    if not callable(fn):
        raise LoDTypeError(f"expected fn as a function or a module, got {shown(fn)}")
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        raise LoDValueError(f"expected layout as one of {tuple(_LAYOUTS)}, got {shown(layout)}")
    wanted = _layout_of(fn)
    if wanted not in (None, layout):
        raise LoDValueError(f"expected layout={wanted!r}, which {type(fn).__name__} takes, got {layout!r}")
    leaves = [leaf for leaf, _ in _leaves(results, results)]
    number("fill", fill)
    if pad_to is None:
        return None
    for leaf in leaves:
        if leaf.kind == "resized":
            raise LoDValueError(f"expected results of no other length beside pad_to, got {leaf.said}")
    if not isinstance(pad_to, (list, tuple)) or not pad_to:
        raise LoDTypeError(f"expected pad_to as a list of lengths, got {shown(pad_to)}")
    lengths = sorted(integer(f"pad_to[{i}]", length) for i, length in enumerate(pad_to))
    if not _takes_mask(fn):
        raise LoDTypeError(
            f"expected a fn that takes mask= for pad_to, got {getattr(fn, '__name__', type(fn).__name__)}, which does not; "
            "if it has another name there: lambda x, mask: fn(x, its_name=mask)"
        )
    return torch.tensor(lengths, device="cpu")


def _layout_of(fn: Any) -> str | None:
    """The layout that a module of torch.nn takes, where it has one: in another it would give rows of the right shape, mixed
    along another dim."""
    if not type(fn).__module__.startswith("torch.nn.modules."):
        return None
    if type(fn).__name__.endswith("1d"):
        return "channels"
    if type(fn).__module__.endswith((".rnn", ".activation", ".transformer")):
        for module in fn.modules():
            if hasattr(module, "batch_first"):
                return "batch_first" if module.batch_first else "length_first"
    return None


def _takes_mask(fn: Callable) -> bool:
    try:
        parameters = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values()
    except (TypeError, ValueError):  # a built-in function may not tell: then the call does
        return True
    return any(
        p.kind is p.VAR_KEYWORD or (p.name == "mask" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        for p in parameters
    )
