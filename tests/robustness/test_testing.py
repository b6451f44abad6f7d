# SPDX-License-Identifier: Apache-2.0
"""torch_lod.testing: what it draws, and that its assertions see what is wrong."""

import subprocess
import sys

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st

import torch_lod as tl
from torch_lod import testing

X = tl.from_lengths(torch.randn(6, 2, dtype=torch.float64), [[2, 0, 1], [1, 2, 3]], level_names=["a", "b"])
drawn = settings(max_examples=60, deadline=None, derandomize=True)


#: Functions that leave out something of a sequence, or let something of another in.
WRONG = {
    "mean of the batch": lambda x: x.with_values(x.values() - x.values().mean(0)),
    "neighbouring row": lambda x: x.with_values(x.values() + x.values().roll(1, 0)),
    "length of the batch": lambda x: x / len(x),
    "dtype": lambda x: x.float() if len(x) > 4 else x,
    "names": lambda x: x.with_lod(x.lod.with_level_names(None)) if len(x) > 4 else x,
    "order": lambda x: x.seq[::-1],
    "a row too few": lambda x: tl.sequence_pool(tl.sequence_pool(x, "sum"), "sum")[:-1],
    "gradient": lambda x: x if len(x) < 5 else x.with_values(x.values().detach() * 1 + 0 * x.values()),
}
RIGHT = {
    "softmax": tl.sequence_softmax,
    "pool": lambda x: tl.sequence_pool(x, "sum"),
    "pool twice": lambda x: tl.sequence_pool(tl.sequence_pool(x, "max"), "mean"),
    "tuple": lambda x: (x * 2, {"y": [tl.sequence_pool(x, "last", level=0)]}),
    "no gradient": lambda x: x > 0,
    "shorter": lambda x: x.head(1),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name):
    for level in (0, 1, "b") if name in ("softmax", "shorter", "no gradient") else (0,):
        testing.assert_sequencewise(RIGHT[name], X, level=level, exact=True)
        testing.assert_no_leak(RIGHT[name], X, level=level)
    testing.assert_sequencewise(RIGHT[name], X.seq[:0])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(name):
    with pytest.raises(
        AssertionError, match=r"sequence .* in the batch is not what it is alone|as many|expected a result"
    ):
        testing.assert_sequencewise(WRONG[name], X)
    if name in ("mean of the batch", "neighbouring row"):
        with pytest.raises(AssertionError, match=r"rows of sequence \d, now .*, reach sequence \d"):
            testing.assert_no_leak(WRONG[name], X)
        only_nan = lambda x: x.with_values(x.values() + 0 * WRONG[name](x).values())  # noqa: E731
        with pytest.raises(AssertionError, match="now nan, reach"):
            testing.assert_no_leak(only_nan, X)


def test_several_operands():
    testing.assert_sequencewise(lambda x, y: x * y + tl.sequence_softmax(y), X, X * 2, level="b")
    with pytest.raises(AssertionError, match="is not what it is alone"):
        testing.assert_sequencewise(lambda x, y: x.with_values(x.values() * y.values().sum()), X, X * 2)
    with pytest.raises(tl.LoDError, match="as many sequences"):
        testing.assert_sequencewise(lambda x, y: x, X, X.seq[:2])
    with pytest.raises(tl.LoDError, match="expected LoDTensors after f, got none"):
        testing.assert_no_leak(lambda: None)
    with pytest.raises(tl.LoDError, match="expected xs as a LoDTensor, got Tensor"):
        testing.assert_sequencewise(lambda x: x, X.values())


def test_close():
    testing.assert_close((X, [1 * X.values()]), [X + 1e-12, (X.values(),)])
    same = (X, X.clone()), (X.values() * float("nan"), X.values() * float("nan"))
    for a, b in same:
        testing.assert_close(a, b, exact=True)
    zero = torch.zeros(1)
    other = (
        (X, X.values()),
        (X, X.float()),
        (X, X.with_lod(X.lod.with_level_names(None))),
        (X, tl.from_lengths(X.values(), [[2, 1, 0], [1, 2, 3]], level_names=["a", "b"])),
        ((X,), (X, X)),
        (X, X + 1),
        (X[:, :1], X),
    )
    for a, b in other:
        with pytest.raises(AssertionError):
            testing.assert_close(a, b)
    for a, b in ((X, X + 1e-12), (zero, -zero)):
        testing.assert_close(a, b)
        with pytest.raises(AssertionError):
            testing.assert_close(a, b, exact=True)


def test_alone():
    part = testing.batch_of_one(X, 2, "b")
    assert part.lod.to_lengths() == [[1], [3]] and part.level_names == ("a", "b")
    assert torch.equal(part.values(), X.values()[3:]) and part.data_ptr() == X[3:].data_ptr()
    assert testing.batch_of_one(X, 1).lod.to_lengths() == [[0], []]


@drawn
@given(testing.lods(min_depth=2, max_depth=4, max_length=3, max_sequences=2))
def test_lods_are_as_asked(lod):
    assert 2 <= lod.depth <= 4 and lod.num_sequences() <= 2 and all(lod.max_length(k) <= 3 for k in range(lod.depth))


@pytest.mark.parametrize(
    "wanted",
    [
        lambda lod: lod.depth == 3 and lod.num_sequences() == 0,
        lambda lod: lod.num_sequences() > 1 and lod.rows == 0,
        lambda lod: lod.depth == 2 and lod.lengths(0).min() == 0 and lod.rows > 3 if lod.num_sequences() else False,
        lambda lod: lod.level_names is not None,
        lambda lod: lod.level_names is None and lod.rows > 5,
    ],
)
def test_every_structure_is_drawn(wanted):
    assert wanted(find(testing.lods(), wanted, settings=settings(max_examples=2000, database=None)))


@drawn
@given(
    testing.lod_tensors(
        dtypes=[torch.float32, torch.uint8, torch.bool, torch.complex64],
        element_shapes=[(), (2, 0)],
        requires_grad=True,
    )
)
def test_tensors_are_as_asked(x):
    assert x.shape[1:] in ((), (2, 0)) and x.is_leaf and x.requires_grad == (x.is_floating_point() or x.is_complex())


@drawn
@given(st.data(), st.sampled_from(testing.LAYOUTS))
def test_layouts(data, layout):
    values = data.draw(testing.rows(4, element_shapes=[(2, 3)], layouts=[layout], requires_grad=True))
    assert values.is_leaf and values.requires_grad and values.shape == (4, 2, 3)
    assert values.is_contiguous() == (layout in ("contiguous", "offset"))
    assert (values.storage_offset() > 0) == (layout == "offset") and (values.stride(0) == 0) == (layout == "expanded")
    plain = torch.arange(24.0).view(4, 2, 3)
    again = testing.to_layout(plain, layout)
    assert torch.equal(again, plain[:1].expand(4, 2, 3) if layout == "expanded" else plain)
    with pytest.raises(tl.LoDError, match="expected layout in"):
        testing.to_layout(plain, "sideways")
    with pytest.raises(tl.LoDError, match="expected 1 <= min_depth <= max_depth, got 3 and 2"):
        testing.lods(min_depth=3, max_depth=2)


@pytest.mark.parametrize(("dtype", "wanted"), [(torch.int64, 2**63 - 1), (torch.uint8, 255), (torch.float16, 65504.0)])
def test_extremes_are_drawn_where_they_are_asked_for(dtype, wanted):
    few = {"dtypes": [dtype], "element_shapes": [(3,)]}
    chosen = settings(max_examples=500, database=None, derandomize=True)
    assert (
        find(testing.rows(4, extreme=True, **few), lambda t: bool((t == wanted).any()), settings=chosen) == wanted
    ).any()

    @drawn
    @given(testing.rows(4, **few))
    def ordinary(t):
        assert t.abs().max() <= 10

    ordinary()


def test_it_is_imported_by_itself_and_says_what_it_needs():
    code = """import sys, torch_lod
assert "torch_lod.testing" not in sys.modules and "hypothesis" not in sys.modules
sys.modules["hypothesis"] = None
from torch_lod import testing
x = torch_lod.lod_tensor([[1.0, 2.0], [3.0]])
testing.assert_sequencewise(torch_lod.sequence_softmax, x)
try:
    testing.lods()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("torch_lod.testing: expected hypothesis to be installed"), done.stdout + done.stderr
