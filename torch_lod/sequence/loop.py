# SPDX-License-Identifier: Apache-2.0
"""Python cells along sequences: `tl.scan` runs any of them along the sequences of a level. Step t runs for all sequences
together; those that have ended leave the batch."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..dynamo import outside_of_graphs
from ..errors import LoDTypeError, LoDValueError, public
from ..structure.lod import LoD
from ..structure.partition import together
from ..structure.validate import host_integers, traverse, with_memory
from ..tensor.lod_tensor import LoDTensor, returned, sequences_at, unmoved, values_of
from .operator import level_of
from .plan import RankTable, from_steps, to_steps
from .rearrange import sequence_reverse

__all__ = ["scan"]


_said = functools.partial(
    outside_of_graphs,
    what="scan, whose number of steps depends on the lengths of its batch,",
    instead="compile the cell, leave fullgraph=True out, or write what is linear in its state as tl.sequence_scan",
)


@_said
@public
def scan(
    cell: Callable,
    x=None,
    init=None,
    *,
    level: int | str = -1,
    reverse: bool = False,
    static=None,
    lengths=None,
) -> tuple[Any, Any]:
    """Runs a recurrent cell along the elements of every sequence of a level.

        state = init[sequence];  for element in sequence:  output, state = cell(element, state)

    for all sequences together, longest first: step t is one call on the t-th elements of all sequences that have one.
    At the innermost level an element is a row and x_t a tensor of rows. At an outer level an element is a sub-sequence
    and x_t a LoDTensor of sub-sequences, so a scan can run inside the step of a scan.

    Args:
        cell: a module or any function of torch operations that treats its rows independently. Called as cell(x_t,
            state), or cell(x_t, state, static_t). It returns a pair (output, new state), or only the new state, which
            is then also the output (of a tuple its first tensor, as for LSTMCell).
        x: a LoDTensor, or a tuple of LoDTensors with equal LoDs; then x_t is a tuple.
        init: the first state, always given: a tensor (sequences, *shape), or any nesting of tuples, lists and dicts of such tensors.
        level: the level whose sequences it runs along.
        reverse: from the last element to the first; every output stays at the position of its element.
        static: what stays the same over the steps, in any nesting of tuples, lists and dicts; as static_t the cell
            receives what belongs to the sequences that have a step t, in the order of its rows. Of a tensor (sequences,
            ...), and of a LoDTensor with no level but those above `level`, that is a row for each; of a LoDTensor with
            more levels the whole sequence of level `level`, with what is below it: the batch that a decoder attends to.
            Its levels above are those of x. It is put in order once, and the steps see views.
        lengths: without x, how many steps every sequence has, one level: a list, an array or a tensor of integers. The cell
            is called as cell(state), or cell(state, static_t): a decoder that reads its own output, which is in its state.

    Returns:
        the outputs, with the levels of x down to `level`, and the last state of every sequence. If the cell's output is
        a tuple, the outputs are a tuple; if it is a LoDTensor of one sequence per element, its own levels follow below.
        An empty sequence keeps its first state.

    Raises:
        ValueError: where a state does not have a row per sequence, static neither a row nor a sequence per sequence, or
            the cell returns a state or an output of another shape, or writes over an output of an earlier step; the
            message names the step and the state. What the cell raises passes through as it is.

    Under torch.compile the loop stays outside of graphs, since the number of its steps depends on the lengths: the graph
    breaks before it, with fullgraph=True that is an error, and lengths make no new graphs. The cell may be compiled by itself.

    Source: RecurrentOp of the variable-length RNN design of Paddle Fluid (DynamicRNN; its static_input).
    """
    if _has_lengths(x, lengths, init):
        x, cell = _steps(lengths, init), _without_input(cell)
    inputs = x if isinstance(x, tuple) else (x,)
    k = _one_level(inputs, level)
    lod = inputs[0].lod
    if reverse:
        outputs, last = scan(cell, _reversed(x, k), init, level=k, static=static)
        return _reversed(outputs, k), last

    table = RankTable(lod, k)
    order = table.order
    memories, spec = _rows_each("init", init, order.numel(), device=inputs[0].device)
    _under(lod, k, init)
    constants, static_spec = _ranked_static(static, lod, k, order) if static is not None else ([], None)
    steps_too = (lod.place_at, k), (lod.steps_at, k), (lod.from_steps_at, k)
    here, places, *_ = together(inputs[0].device, (lod.rank_at, k), *steps_too)
    state = [t.index_select(0, here) for t in memories]
    steps = list(zip(*(to_steps(t, table) for t in inputs), strict=True))
    # without any step the cell is called on no rows, to learn the shapes of its outputs
    inputs_of_steps: list[Any] = steps or [tuple(_no_elements(t, k) for t in inputs)]
    if not isinstance(x, tuple):
        inputs_of_steps = [step[0] for step in inputs_of_steps]
    given = zip(inputs_of_steps, table.steps()[1] or [0], strict=True)
    outputs_of_steps, finished, single = _run(cell, given, (state, spec), (constants, static_spec), order.numel())
    ranked = [torch.cat(parts[::-1]) for parts in zip(*finished, strict=True)]
    ends = [t.index_select(0, places) for t in ranked]
    laid_out = [
        _laid_out([_unwritten(output, version, i, t) for t, (output, version) in enumerate(parts)], table, bool(steps))
        for i, parts in enumerate(zip(*outputs_of_steps, strict=True))
    ]
    return laid_out[0] if single else tuple(laid_out), pytree.tree_unflatten(ends, spec)


def _reversed(x, k: int):
    return tuple(sequence_reverse(t, level=k) for t in x) if isinstance(x, tuple) else sequence_reverse(x, level=k)


def _has_lengths(x, lengths, init) -> bool:
    """Whether it is lengths that say how many steps there are, and not x."""
    if (x is None) == (lengths is None):
        got = "neither" if x is None else "both"
        raise LoDTypeError(f"expected either x or lengths, the number of steps of every sequence, got {got}")
    if init is None:
        advice = "" if x is None else "; see torch.zeros(sequences, ...)"
        raise LoDTypeError(f"expected init, the first state of every sequence, got None{advice}")
    return x is None


def _one_level(inputs: tuple, level: int | str) -> int:
    """The number of the level; the LoDs of all inputs are equal."""
    if not inputs:
        raise LoDTypeError("expected x as a LoDTensor or a tuple of them, got an empty tuple")
    k, lod = level_of(inputs[0], level), inputs[0].lod
    for i, other in enumerate(inputs[1:], 1):
        level_of(other, level)
        if other.lod.differs(lod):
            raise LoDValueError(
                f"expected x with equal LoDs, got LoDs that differ at input {i}: {lod.difference(other.lod)}"
            )
    return k


def _under(lod: LoD, k: int, init) -> None:
    """First states with a LoD have the levels above level k."""
    above = lod.outer_at(k)
    for leaf in pytree.tree_leaves(init):
        if isinstance(leaf, LoDTensor) and above is not None and leaf.lod_level == k:
            above.agreed(leaf.lod)


def _run(cell: Callable, steps: Iterable[tuple[Any, int]], first: tuple, static: tuple, active: int):
    """The outputs of every step, which is given with the number of its sequences; the last states, those of the sequences that
    end first before the others; and whether the cell returns a single output. `first` and `static` are leaves and their nesting."""
    (state, spec), (constants, static_spec) = first, static
    finished: list[list[Tensor]] = []
    outputs_of_steps: list[list[tuple[Tensor, int]]] = []
    single = True
    for t, (step, n) in enumerate(steps):
        if state and n < state[0].shape[0]:
            parts = [m.split([n, m.shape[0] - n]) for m in state]
            state, done = [p[0] for p in parts], [p[1] for p in parts]
            finished.append(done)
        args = [step, pytree.tree_unflatten(state, spec)]
        if n < active:  # a view of the view before it: its gradient is as small as the step
            constants = [c.slice(0, 0, n) if isinstance(c, LoDTensor) else c[:n] for c in constants]
            active = n
        if static_spec is not None:
            args.append(pytree.tree_unflatten(constants, static_spec))
        step_gave = cell(*args)
        returned(f"what the cell returned at step {t}", step_gave)
        output, state = _result(step_gave, spec, state, t)
        single = not isinstance(output, tuple)
        outputs_of_steps.append(_checked(output if isinstance(output, tuple) else (output,), n, t))
    finished.append(state)
    return outputs_of_steps, finished, single


def _steps(lengths, init) -> LoDTensor:
    """So many rows of nothing, on the device of the first state."""
    lod = LoD.from_lengths([host_integers("lengths", lengths).tolist()])
    devices = [leaf.device for leaf in traverse("init", pytree.tree_leaves, init) if isinstance(leaf, Tensor)]
    return LoDTensor(torch.zeros(lod.rows, 0, device=devices[0] if devices else "cpu"), lod)


def _without_input(cell: Callable) -> Callable:
    return lambda _, state, *static: cell(state, *static)


def _rows_each(
    what: str, tree, count: int, first: int = 0, device: torch.device | None = None
) -> tuple[list[Tensor], pytree.TreeSpec]:
    leaves, spec = traverse(what, pytree.tree_flatten, tree)
    for i, leaf in enumerate(leaves, first):
        if not isinstance(leaf, Tensor):
            raise LoDTypeError(f"expected {what} of tensors, got {type(leaf).__name__} at index {i}")
        unmoved(what, leaf)
        if leaf.dim() == 0 or leaf.shape[0] != count:
            raise LoDValueError(
                f"expected {what} with a row for each of {count} sequences, got {tuple(leaf.shape)} at index {i}"
            )
        if device is not None and leaf.device != device:
            raise LoDTypeError(f"expected {what} on {device}, as x, got one on {leaf.device} at index {i}")
    with_memory(*leaves)
    return [values_of(leaf) for leaf in leaves], spec


def _ranked_static(tree, lod: LoD, k: int, order: Tensor) -> tuple[list[Tensor], pytree.TreeSpec]:
    """The leaves with a row, or a sequence of level k, for each sequence, in the given order."""
    leaves, spec = traverse("static", pytree.tree_flatten, tree)
    ranked: list[Tensor] = []
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, LoDTensor):
            (rows,), _ = _rows_each("static", leaf, order.numel(), i)
            ranked.append(rows.index_select(0, lod.rank_at(k, rows.device)))
            continue
        whole = each_a_sequence("static", leaf, i, lod.outer_at(k), k, order.numel())
        if whole:
            ranked.append(sequences_at(leaf, k, order))
        else:
            ranked.append(leaf.values().index_select(0, lod.rank_at(k, leaf.device)))
    return ranked, spec


def each_a_sequence(what: str, x: LoDTensor, i: int, above: LoD | None, k: int, count: int) -> bool:
    """Whether x gives a whole sequence of its level k to each of `count`, or else a row; under the levels `above`."""
    with_memory(x)
    whole = x.lod_level > k
    if whole and x.num_sequences(k) != count:
        raise LoDValueError(
            f"expected {what} with a sequence of level {k} for each of {count}, got {x.num_sequences(k)} at index {i}; if "
            f"its rows are meant, pass .values()"
        )
    if not whole and x.shape[0] != count:
        raise LoDValueError(
            f"expected {what} with a row for each of {count} sequences, or a sequence of level {k}, got {x.shape[0]} rows "
            f"with {x.lod_level} level{'s' * (x.lod_level > 1)} at index {i}; .group(...) adds levels above"
        )
    own = x.lod.outer_at(k) if whole else x.lod if x.lod_level == k else None
    if above is not None and own is not None and own.differs(above):
        raise LoDValueError(
            f"expected {what} with the levels above level {k} that the others have, got LoDs that differ at index {i}: "
            f"{above.difference(own)}"
        )
    return whole


def _no_elements(x: LoDTensor, k: int) -> Tensor:
    """A step without elements of level k."""
    if k + 1 == x.lod_level:
        return x.values()[:0]
    return x.slice(k + 1, 0, 0)


def _result(gave, spec, before: list[Tensor], t: int) -> tuple[Tensor | tuple, list[Tensor]]:
    """(output, leaves of the new state) from what a cell returned."""
    leaves, found = traverse(f"what the cell returned at step {t}", pytree.tree_flatten, gave)
    output = None
    if found == spec:
        output = leaves[0] if leaves else None
    elif isinstance(gave, tuple) and len(gave) == 2:
        leaves, found = pytree.tree_flatten(gave[1])
        output = tuple(gave[0]) if isinstance(gave[0], (tuple, list)) else gave[0]
    if found != spec or output is None:
        raise LoDTypeError(
            f"expected the cell to return the new state, or (output, new state), with the nesting of init, got "
            f"{_kind(gave)} at step {t}"
        )
    for i, (new, old) in enumerate(zip(leaves, before, strict=True)):
        if not isinstance(new, Tensor) or new.shape != old.shape:
            got = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
            raise LoDValueError(f"expected memory {i} of shape {tuple(old.shape)} from the cell at step {t}, got {got}")
    return output, [new.values() if isinstance(new, LoDTensor) else new for new in leaves]


def _kind(value) -> str:
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(_kind, value))})"
    return type(value).__name__


def _checked(outputs: tuple, n: int, t: int) -> list[tuple[Tensor, int]]:
    for i, output in enumerate(outputs):
        count = None
        if isinstance(output, Tensor) and output.dim():
            count = output.num_sequences() if isinstance(output, LoDTensor) else output.shape[0]
        if count != n:
            got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise LoDValueError(
                f"expected output {i} of the cell with a row (or a sequence) for each of the {n} sequences at step "
                f"{t}, got {got}"
            )
    return [_held(output) for output in outputs]


def _held(output: Tensor) -> tuple[Tensor, int]:
    """An output until the last step, and how often its memory was written to; torch does not count that for a tensor
    of inference mode, which is copied."""
    rows = values_of(output)
    if not rows.is_inference():
        return output, rows._version
    return output.clone(), 0


def _unwritten(output: Tensor, version: int, i: int, t: int) -> Tensor:
    rows = values_of(output)
    if not rows.is_inference() and rows._version != version:
        raise LoDValueError(
            f"expected outputs that stay as the cell returned them, got output {i} of step {t}, which a later step "
            f"changed in place; return a new tensor, as state.clone()"
        )
    return output


def _laid_out(parts: list[Tensor], table: RankTable, any_step: bool) -> LoDTensor:
    if any_step:
        return from_steps(parts, table)
    lod, nothing = table.lod, parts[0]
    own = lod.levels[: table.level + 1]
    levels = [*own, *(nothing.lod.levels if isinstance(nothing, LoDTensor) else ())]
    names = lod.level_names[: len(levels)] if lod.level_names and len(levels) in (len(own), lod.depth) else None
    values = nothing.values() if isinstance(nothing, LoDTensor) else nothing
    return LoDTensor(values, LoD.checked("offsets", levels, names))
