# SPDX-License-Identifier: Apache-2.0
"""For tests of code that takes LoDTensors: random structures and rows, and the invariants of a function of sequences.

    import torch_lod as tl
    from hypothesis import given
    from torch_lod import testing

    @given(testing.lod_tensors())
    def test_my_function(x):
        testing.assert_sequencewise(my_function, x)
        testing.assert_no_leak(my_function, x)

`import torch_lod` does not import this module. `lods`, `rows` and `lod_tensors` are strategies of hypothesis, which has
to be installed; what fails is shrunk to few short sequences. The assertions need torch only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import LoDTypeError, LoDValueError, public
from .structure.lod import LoD
from .structure.validate import traverse
from .tensor.lod_tensor import LoDTensor, a_lod_tensor, values_of

__all__ = [
    "LAYOUTS",
    "assert_close",
    "assert_no_leak",
    "assert_sequencewise",
    "batch_of_one",
    "lod_tensors",
    "lods",
    "rows",
    "to_layout",
]

#: Where rows may lie in memory; see `to_layout`.
LAYOUTS = ("contiguous", "offset", "strided", "transposed", "expanded")
_SHAPES = ((3,), (), (2, 2), (0,))
#: What the rows of a sequence become, for `assert_no_leak`.
_CHANGES: tuple[float | None, ...] = (None, float("nan"), 3e38)


# -- strategies


def _strategies() -> Any:
    try:
        from hypothesis import strategies
    except ImportError:
        raise ImportError(
            "torch_lod.testing: expected hypothesis to be installed, which makes the random examples; pip install hypothesis"
        ) from None
    return strategies


@public
def lods(
    *,
    min_depth: int = 1,
    max_depth: int = 3,
    min_length: int = 0,
    max_length: int = 4,
    max_sequences: int = 4,
    level_names: bool | None = None,
) -> Any:
    """A strategy: LoDs of any depth, with empty sequences at every level.

    Args:
        min_depth, max_depth: how many levels.
        min_length, max_length: how many elements a sequence has.
        max_sequences: how many sequences of level 0 at most.
        level_names: True: every level has a name, False: none has, None: both are drawn.
    """
    if not 1 <= min_depth <= max_depth:
        raise LoDValueError(f"expected 1 <= min_depth <= max_depth, got {min_depth} and {max_depth}")
    st = _strategies()

    @st.composite
    def draw_lod(draw) -> LoD:
        depth = draw(st.integers(min_depth, max_depth))
        count = draw(st.integers(min_length, max_sequences))
        lengths = []
        for _ in range(depth):
            length = st.integers(min_length, max_length)
            lengths.append(draw(st.lists(length, min_size=count, max_size=count)))
            count = sum(lengths[-1])
        named = draw(st.booleans()) if level_names is None else level_names
        return LoD.from_lengths(lengths, level_names=[f"level{k}" for k in range(depth)] if named else None)

    return draw_lod()


@public
def rows(
    count: int,
    *,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    element_shapes: Sequence[tuple[int, ...]] = _SHAPES,
    layouts: Sequence[str] = LAYOUTS,
    extreme: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A strategy: plain tensors (count, *element). Numbers of a floating or complex dtype are normally distributed,
    integers lie within [-5, 5], those of an unsigned dtype within [0, 10].

    Args:
        count: how many rows.
        dtypes, element_shapes, layouts: from which the dtype, the element shape and the layout (`to_layout`) are drawn.
        extreme: whether some entries may be the largest and smallest of the dtype, subnormal, or -0.0.
        requires_grad: of floating and complex dtypes.
    """
    st = _strategies()

    @st.composite
    def draw_rows(draw) -> Tensor:
        dtype = draw(st.sampled_from(list(dtypes)))
        shape = draw(st.sampled_from(list(element_shapes)))
        g = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
        t = _random((count, *shape), dtype, g)
        if extreme and draw(st.booleans()):
            few = torch.tensor(_extremes(dtype), dtype=dtype)
            chosen = few[torch.randint(0, len(few), t.shape, generator=g)]
            t = torch.where(torch.rand(t.shape, generator=g) < 0.5, chosen, t)
        t = to_layout(t, draw(st.sampled_from(list(layouts))))
        return t.requires_grad_(requires_grad and (t.is_floating_point() or t.is_complex()))

    return draw_rows()


@public
def lod_tensors(lod: Any = None, **of_rows) -> Any:
    """A strategy: LoDTensors. With requires_grad=True they are leaves of the autograd graph.

    Args:
        lod: a LoD, or a strategy of LoDs; `lods()` if None. Several LoDTensors of one structure:
            `lods().flatmap(lambda lod: strategies.tuples(lod_tensors(lod), lod_tensors(lod)))`.
        of_rows: the other arguments of `rows`.
    """
    st = _strategies()
    structures = lods() if lod is None else st.just(lod) if isinstance(lod, LoD) else lod
    requires_grad = of_rows.pop("requires_grad", False)

    @st.composite
    def draw_lod_tensor(draw) -> LoDTensor:
        lod = draw(structures)
        x = LoDTensor(draw(rows(lod.rows, **of_rows)), lod)
        return x.requires_grad_(requires_grad and (x.is_floating_point() or x.is_complex()))

    return draw_lod_tensor()


def _random(shape, dtype: torch.dtype, g: torch.Generator) -> Tensor:
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) < 0.5
    if dtype.is_complex:
        return torch.view_as_complex(torch.randn((*shape, 2), generator=g, dtype=torch.float64)).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)
    return torch.randint(-5 if dtype.is_signed else 0, 6 if dtype.is_signed else 11, shape, generator=g).to(dtype)


def _extremes(dtype: torch.dtype) -> list:
    if dtype == torch.bool:
        return [False, True]
    if not (dtype.is_floating_point or dtype.is_complex):
        return [torch.iinfo(dtype).min, torch.iinfo(dtype).max, torch.iinfo(dtype).max - 1, 0]
    limits = torch.finfo(dtype)
    return [limits.max, limits.min, limits.tiny, limits.tiny / 2, -0.0]


@public
def to_layout(values: Tensor, layout: str) -> Tensor:
    """Equal values in another layout of `LAYOUTS`: "contiguous"; "offset", not at the start of their storage; "strided",
    not adjacent; "transposed", the last dim of the result the first of the storage; "expanded", where all rows are the
    first one, which is in memory once."""
    if layout == "contiguous":
        return values.clone(memory_format=torch.contiguous_format)
    if layout == "offset":
        return torch.cat([values.new_ones(3), values.flatten(), values.new_ones(2)])[3:-2].view(values.shape)
    if layout == "strided":
        return torch.stack([values, values], -1)[..., 0]
    if layout == "transposed":
        return values.movedim(-1, 0).contiguous().movedim(0, -1) if values.dim() > 1 else values.clone()
    if layout == "expanded":
        return values[:1].clone().expand(values.shape) if len(values) else values.clone()
    raise LoDValueError(f"expected layout in {LAYOUTS}, got {layout!r}")


# -- assertions


def _leaves(result: Any) -> list[Tensor]:
    """The tensors of nested results, in order."""
    return traverse("results", lambda given: [*_tensors_in(given)], result)


def _tensors_in(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (dict, tuple, list)):
        for value in result.values() if isinstance(result, dict) else result:
            yield from _tensors_in(value)


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, exact: bool = False
) -> None:
    """AssertionError unless both are equal: LoDTensors with equal LoDs and level names and rows within the tolerances of
    torch.testing.assert_close, plain tensors likewise, or tuples, lists and dicts of them. NaN equals NaN.

    Args:
        rtol, atol: as for torch.testing.assert_close, which has defaults for every dtype.
        exact: bit for bit instead; only NaN equals any NaN.
    """
    if isinstance(actual, (tuple, list, dict)) and isinstance(expected, (tuple, list, dict)):
        assert len(actual) == len(expected), f"{len(actual)} results, expected {len(expected)}"
        for a, e in zip(_leaves(actual), _leaves(expected), strict=True):
            assert_close(a, e, rtol=rtol, atol=atol, exact=exact)
        return
    kinds = ["a LoDTensor" if isinstance(t, LoDTensor) else type(t).__name__ for t in (actual, expected)]
    assert kinds[0] == kinds[1], f"the result is {kinds[0]}, expected {kinds[1]}"
    if isinstance(actual, LoDTensor):
        same = actual.lod == expected.lod and actual.level_names == expected.level_names
        assert same, f"the LoD is {actual.lod}, expected {expected.lod}"
    if exact:
        rtol = atol = 0.0
    torch.testing.assert_close(values_of(actual), values_of(expected), rtol=rtol, atol=atol, equal_nan=True)
    if exact and actual.is_floating_point():
        a, e = values_of(actual), values_of(expected)
        assert torch.equal(a.signbit() & ~a.isnan(), e.signbit() & ~e.isnan()), "a zero has another sign"


@public
def batch_of_one(x: LoDTensor, j: int, level: int | str = 0) -> LoDTensor:
    """Sequence j of a level by itself, with as many levels as x: each of the outer levels has one sequence. A view."""
    k = a_lod_tensor("x", x).lod.level(level)
    part = x.slice(k, j, j + 1)
    for name in reversed((x.level_names or (None,) * k)[:k]):
        part = part.group([1], name)
    return part


def assert_sequencewise(
    f: Callable,
    *xs: LoDTensor,
    level: int | str = 0,
    gradients: bool = True,
    exact: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """AssertionError unless f of a batch is f of every sequence alone.

    For every sequence j of the level, `f(*(batch_of_one(x, j, level) for x in xs))` must equal what belongs to sequence j in
    `f(*xs)`: the part of a LoDTensor that has this level, or row j of a result with a row per sequence.

    Args:
        f: gives a tensor, or a tuple, list or dict of tensors; must not draw random numbers.
        xs: LoDTensors with as many sequences at the level.
        level: whose sequences are taken alone.
        gradients: whether the gradients by floating xs are compared as well.
        exact, rtol, atol: as for `assert_close`.
    """
    level, n = _sequences(xs, level)
    whole, slopes = _differentiated(f, xs, gradients)
    close: dict[str, Any] = {"rtol": rtol, "atol": atol, "exact": exact}
    for j in range(n):
        parts = tuple(batch_of_one(x, j, level) for x in xs)
        try:
            weights = [_part(w, j, level, n) for w in whole[1]]
            single, their = _differentiated(f, parts, gradients, weights)
            for result, one in zip(whole[0], single[0], strict=True):
                assert_close(_part(result, j, level, n), one, **close)
            for x, slope, own in zip(xs, slopes, their, strict=True):
                if slope is not None:
                    assert_close(_part(x.with_values(slope), j, level, n).values(), own, **close)
        except AssertionError as error:
            raise AssertionError(
                f"sequence {j} of level {level} in the batch is not what it is alone: {error}"
            ) from None


def assert_no_leak(f: Callable, *xs: LoDTensor, level: int | str = 0, exact: bool = True) -> None:
    """AssertionError if rows of one sequence reach another: the rows of each sequence of the level, one after another, are replaced by
    other numbers, by NaN and by 3e38, and nothing may change in the other sequences of LoDTensors that f returns.

    An f that raises for the changed rows is not at fault. What f returns as plain tensors is not compared.

    Args:
        f, xs, level: as for `assert_sequencewise`.
        exact: bit for bit; otherwise within the tolerances of `assert_close`.
    """
    level, n = _sequences(xs, level)
    before = _leaves(f(*xs))
    for j in range(n):
        for change in _CHANGES:
            changed = [_changed(x, j, level, change) for x in xs]
            try:
                after = _leaves(f(*changed))
            except Exception:
                continue
            for b, a in zip(before, after, strict=True):
                if not isinstance(b, LoDTensor) or not _fits(b, level, n):
                    continue
                for i in {*range(n)} - {j}:
                    try:
                        assert_close(_part(a, i, level, n), _part(b, i, level, n), exact=exact)
                    except AssertionError as error:
                        became = "other numbers" if change is None else change
                        raise AssertionError(
                            f"rows of sequence {j}, now {became}, reach sequence {i}: {error}"
                        ) from None


@public
def _sequences(xs, level) -> tuple[int, int]:
    """The number of the level, and how many sequences the LoDTensors have there."""
    if not xs:
        raise LoDTypeError("expected LoDTensors after f, got none")
    level = a_lod_tensor("xs", xs[0]).lod.level(level)
    counts = {a_lod_tensor("xs", x).num_sequences(level) for x in xs}
    if len(counts) > 1:
        raise LoDValueError(f"expected xs of as many sequences, got {sorted(counts)}")
    return level, counts.pop()


def _fits(result: Tensor, level: int, n: int) -> bool:
    lod = getattr(result, "lod", None)
    return (len(result) if lod is None or level >= lod.depth else lod.num_sequences(level)) == n


def _part(result: Tensor, j: int, level: int, n: int) -> Tensor:
    """What belongs to sequence j."""
    said = f"expected a result with the {n} sequences of level {level} or a row for each, got {tuple(result.shape)}"
    assert result.dim() and _fits(result, level, n), said
    if not isinstance(result, LoDTensor):
        return result[j : j + 1]
    if level < result.lod_level:
        return batch_of_one(result, j, level)
    k = result.lod_level  # pooled at this level: a row per sequence, below the outer levels
    return LoDTensor(result.values()[j : j + 1], LoD.from_lengths([[1]] * k, level_names=result.level_names))


def _differentiated(f, xs, gradients: bool, weights=None):
    """The results and weights for them; the gradient of the weighted sum by the values of each of xs, or None."""
    wanted = [gradients and x.is_floating_point() for x in xs]
    leaves = [x.values().detach().requires_grad_(w) for x, w in zip(xs, wanted)]
    results = _leaves(f(*(x.with_values(t) for x, t in zip(xs, leaves))))
    if weights is None:
        g = torch.Generator().manual_seed(0)
        weights = [_like(r, _random(r.shape, r.dtype, g)) for r in results]
    out = [(values_of(r), values_of(w)) for r, w in zip(results, weights) if r.requires_grad]
    slopes: list[Tensor | None] = [None] * len(xs)
    if out:
        by = [i for i, w in enumerate(wanted) if w]
        outputs, slants = zip(*out)
        found = torch.autograd.grad(outputs, [leaves[i] for i in by], slants, allow_unused=True)
        for i, slope in zip(by, found):
            slopes[i] = torch.zeros_like(leaves[i]) if slope is None else slope
    return ([r.detach() for r in results], weights), slopes


def _like(result: Tensor, values: Tensor) -> Tensor:
    return result.with_values(values) if isinstance(result, LoDTensor) else values


def _changed(x: LoDTensor, j: int, level, change: float | None) -> LoDTensor:
    begin, end = x.lod.row_offsets(level)[j : j + 2].tolist()
    values = x.values().detach().clone()
    if change is None or not (x.is_floating_point() or x.is_complex()):
        values[begin:end] = _random(values[begin:end].shape, x.dtype, torch.Generator().manual_seed(j + 1))
    else:
        values[begin:end] = min(change, torch.finfo(x.dtype).max) if change == change else change
    return x.with_values(values)
