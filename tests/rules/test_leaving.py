# SPDX-License-Identifier: Apache-2.0
"""Out of a LoDTensor and back: padded, packed, nested, lists, HTML and the printed tree."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nested import X, flat, lengths_of, rows_under, trees

import torch_lod as tl
from torch_lod import LoD

x = tl.from_lengths(torch.arange(15.0), X)


def of(batch, depth):
    return tl.from_lengths(torch.tensor(flat(batch, depth), dtype=torch.float32), lengths_of(batch, depth))


def filled(part, sizes, right, fill=-1.0):
    """Nested lists with every nesting filled up to its size."""
    if not sizes:
        return part
    parts = [filled(p, sizes[1:], right, fill) for p in part]
    missing = [filled([], sizes[1:], right, fill) if len(sizes) > 1 else fill for _ in range(sizes[0] - len(part))]
    return parts + missing if right else missing + parts


# -- padded


@pytest.mark.parametrize("side", ["right", "left"])
@settings(max_examples=40, deadline=None)
@given(drawn=trees(), more=st.sampled_from([0, 2]))
def test_padded_agrees_with_nested_lists_and_comes_back(side, drawn, more):
    depth, batch = drawn
    t = of(batch, depth)
    for k in range(depth):
        parts = rows_under(batch, depth, k)
        length = max(map(len, parts), default=0) + more
        dense, lengths = t.to_padded(-1.0, level=k, max_length=length, side=side)
        assert dense.shape == (len(parts), length) and lengths.tolist() == [len(part) for part in parts]
        assert dense.tolist() == [filled(part, [length], side == "right") for part in parts]
        mask = t.mask(k, length, side)
        assert mask.dtype == torch.bool and torch.equal(mask, dense != -1)
        assert tl.from_padded(dense, mask=mask).to_list() == parts
        if side == "right":
            assert tl.from_padded(dense, lengths).to_list() == parts
        assert t.to_padded(level=k, side=side)[0].shape == (len(parts), length - more)


@pytest.mark.parametrize("side", ["right", "left"])
@settings(max_examples=40, deadline=None)
@given(drawn=trees())
def test_padded_at_all_levels(side, drawn):
    depth, batch = drawn
    dense, lengths = of(batch, depth).to_padded(-1.0, level="all", side=side)
    longest = [max(level, default=0) for level in lengths_of(batch, depth)]
    assert dense.shape == (len(batch), *longest)
    assert dense.tolist() == [filled(s, longest, side == "right") for s in batch]
    for k, found in enumerate(lengths):
        counts = batch
        for _ in range(k):
            counts = [part for item in counts for part in item]
        assert found.shape == (len(batch), *longest[:k])
        assert found[found > 0].tolist() == [len(part) for part in counts if part]


def test_padded_keeps_element_dtype_and_gradient():
    leaf = torch.arange(30.0, dtype=torch.float64).view(15, 2).requires_grad_()
    t = tl.from_lengths(leaf, X)
    for level, shape in ((0, (3, 9, 2)), (1, (6, 4, 2)), ("all", (3, 3, 4, 2))):
        for side in ("right", "left"):
            dense, _ = t.to_padded(9.0, level=level, side=side)
            assert dense.shape == shape and dense.dtype == torch.float64 and type(dense) is torch.Tensor
            (grad,) = torch.autograd.grad((dense * dense).sum(), leaf)
            assert torch.equal(grad, 2 * leaf)
    dense = torch.arange(12.0).view(2, 3, 2).requires_grad_()
    back = tl.from_padded(dense, torch.tensor([1, 3]), level_names=["s"])
    assert back.recursive_sequence_lengths() == [[1, 3]] and back.level_names == ("s",)
    (grad,) = torch.autograd.grad((back * 3).sum(), dense)
    assert grad[:, :, 0].tolist() == [[3, 0, 0], [3, 3, 3]]
    holes = tl.from_padded(dense, mask=torch.tensor([[True, False, True], [False, False, False]]))
    assert holes.recursive_sequence_lengths() == [[2, 0]] and holes.values().tolist() == [[0, 1], [4, 5]]
    assert tl.lod_tensor([[1, 2], [3]]).to_padded(7)[0].tolist() == [[1, 2], [3, 7]]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("close", [True, False])
def test_what_needs_no_padding_is_a_copy_with_lengths_of_its_own(side, close):
    rows = torch.arange(1.0, 25, dtype=torch.float64).view(2, 12).t().requires_grad_()
    t = tl.from_lengths(rows.contiguous() if close else rows, [[2, 1], [4, 4, 4]])
    dense, lengths = t.to_padded(9.0, side=side)
    assert type(dense) is torch.Tensor and dense.is_contiguous() and torch.equal(dense, rows.reshape(3, 4, 2))
    assert lengths.tolist() == [4, 4, 4] and lengths.dtype == torch.int64
    assert torch.autograd.gradgradcheck(lambda r: t.with_values(r).to_padded()[0], t.values())
    lengths.zero_()
    dense.detach().zero_()
    assert t.lengths().tolist() == t.to_padded()[1].tolist() == [4, 4, 4] and bool((t.values() > 0).all())
    assert t.to_padded(max_length=5, side=side)[0].shape == (3, 5, 2)
    for nothing in (tl.from_lengths(torch.ones(0, 2), [[]]), tl.from_lengths(torch.ones(0, 2), [[0, 0]])):
        dense, lengths = nothing.to_padded(side=side)
        assert dense.shape == (nothing.num_sequences(), 0, 2) and lengths.tolist() == [0] * nothing.num_sequences()
    freed = tl.from_lengths(torch.ones(4), [[2, 2]])
    freed.values().untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="memory behind"):
        freed.to_padded(side=side)


# -- packed, nested, lists


@settings(max_examples=40, deadline=None)
@given(drawn=trees(min_length=1))
def test_packed_is_that_of_torch_and_comes_back(drawn):
    depth, batch = drawn
    t, parts = of(batch, depth), rows_under(batch, depth, depth - 1)
    packed = t.to_packed_sequence()
    ours, theirs = packed, torch.nn.utils.rnn.pack_sequence([torch.tensor(p) for p in parts], enforce_sorted=False)
    assert torch.equal(ours.batch_sizes, theirs.batch_sizes)  # the rows of a step: in any order of equal lengths
    if len({len(p) for p in parts}) == len(parts):
        assert torch.equal(ours.data, theirs.data) and torch.equal(ours.unsorted_indices, theirs.unsorted_indices)
    dense, lengths = torch.nn.utils.rnn.pad_packed_sequence(ours, batch_first=True, padding_value=-1)
    assert torch.equal(dense, t.to_padded(-1)[0]) and lengths.tolist() == [len(p) for p in parts]
    assert tl.from_packed_sequence(packed).to_list() == tl.from_packed_sequence(theirs).to_list() == parts


def test_packed_sorted_without_indices_and_with_gradient():
    packed = torch.nn.utils.rnn.pack_sequence([torch.tensor([1.0, 2.0]), torch.tensor([3.0])])
    assert packed.sorted_indices is None and tl.from_packed_sequence(packed).to_list() == [[1, 2], [3]]
    leaf = torch.arange(15.0, requires_grad=True)
    packed = tl.from_lengths(leaf, X).to_packed_sequence()
    back = tl.from_packed_sequence(packed, level_names=["s"])
    assert back.level_names == ("s",) and torch.equal(back.values(), leaf)
    (back * torch.arange(15.0)).sum().backward()
    assert leaf.grad.tolist() == list(range(15))


def test_nested_and_back():
    leaf = torch.arange(12.0).view(6, 2).requires_grad_()
    t = tl.from_lengths(leaf, [[2, 0, 4]])
    nested = t.to_nested()
    assert nested.is_nested and [n.shape[0] for n in nested.unbind()] == [2, 0, 4]
    back = tl.from_nested(nested, level_names=["s"])
    assert back.lod == t.lod and back.level_names == ("s",) and back.data_ptr() == leaf.data_ptr()
    (back * 5).sum().backward()
    assert leaf.grad.tolist() == [[5.0, 5.0]] * 6


@settings(max_examples=40, deadline=None)
@given(drawn=trees())
def test_lists_and_back(drawn):
    depth, batch = drawn
    t = tl.lod_tensor(batch, depth=depth)
    assert t.to_list() == batch and tl.lod_tensor(t.to_list(), depth=depth).lod == t.lod


# -- printing

TREES = {
    "two levels": (
        lambda: tl.from_lengths(torch.arange(15.0) / 3, X),
        """\
LoDTensor(15 rows, lod=LoD([[3, 1, 2], [3, 2, 4, 1, 2, 3]]), dtype=float32)
├─ 0
│  ├─ 0: [0, 0.3333, 0.6667]
│  ├─ 1: [1, 1.333]
│  └─ 2: [1.667, 2, 2.333, 2.667]
├─ 1
│  └─ 0: [3]
└─ 2
   ├─ 0: [3.333, 3.667]
   └─ 1: [4, 4.333, 4.667]""",
    ),
    "empties, names, integers": (
        lambda: tl.lod_tensor([[[1, 2], []], [], [[3]]], level_names=["article", None]),
        """\
LoDTensor(3 rows, lod=LoD([[2, 0, 1], [2, 0, 1]], level_names=('article', None)), dtype=int64)
├─ article 0
│  ├─ 0: [1, 2]
│  └─ 1: []
├─ article 1: empty
└─ article 2
   └─ 0: [3]""",
    ),
    "long ones are cut": (
        lambda: tl.lod_tensor([list(range(9))] * 6, dtype=torch.int32),
        """\
LoDTensor(54 rows, lod=LoD([[9, 9, 9, 9, 9, 9]]), dtype=int32)
├─ 0: 9 rows [0, 1, 2, 3, 4, ..., 8]
├─ 1: 9 rows [0, 1, 2, 3, 4, ..., 8]
├─ 2: 9 rows [0, 1, 2, 3, 4, ..., 8]
├─ ... 2 more
└─ 5: 9 rows [0, 1, 2, 3, 4, ..., 8]""",
    ),
    "vectors with a gradient": (
        lambda: tl.ones(LoD.from_lengths([[2, 1]]), 2, requires_grad=True) * 2,
        """\
LoDTensor(3 rows of (2,), lod=LoD([[2, 1]]), dtype=float32, grad_fn=<MulBackward0>)
├─ 0: [[2, 2], [2, 2]]
└─ 1: [[2, 2]]""",
    ),
    "wide rows are shortened": (
        lambda: tl.from_lengths(torch.arange(600).view(6, 100) / 7, [[2, 4]]),
        """\
LoDTensor(6 rows of (100,), lod=LoD([[2, 4]]), dtype=float32)
├─ 0: [[0, 0.1429, 0.2857, ..., 14.14], [14.29, 14.43, 14.57, ..., 28.43]]
└─ 1: 4 rows [[28.57, 28.71, ..., 42.71], [42.86, 43, ..., 57], ..., [71.43, 71.57, ..., 85.57]]""",
    ),
    "images are cut off at the end of the line": (
        lambda: tl.from_lengths(torch.arange(3 * 4**3).to(torch.complex64).view(3, 4, 4, 4), [[3]]),
        """\
LoDTensor(3 rows of (4, 4, 4), lod=LoD([[3]]), dtype=complex64)
└─ 0: 3 rows [[[[0+0j, ..., 3+0j], ..., [12+0j, ..., 15+0j]], ..., [[48+0j, ..., 51+0j], ..., [60+0j ...""",
    ),
    "elements of more dims, a leaf": (
        lambda: tl.ones(LoD.from_lengths([[2, 0]]), 2, 3).requires_grad_(),
        """\
LoDTensor(2 rows of (2, 3), lod=LoD([[2, 0]]), dtype=float32, requires_grad=True)
├─ 0: [[[1, 1, 1], [1, 1, 1]], [[1, 1, 1], [1, 1, 1]]]
└─ 1: []""",
    ),
    "nothing": (
        lambda: tl.lod_tensor([], depth=2),
        "LoDTensor(0 rows, lod=LoD([[], []]), dtype=float32)",
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_repr(case):
    make, text = TREES[case]
    assert repr(make()) == str(make()) == text


def test_repr_of_a_meta_tensor():
    first, *_ = repr(tl.zeros(LoD.from_lengths([[2, 1]]), device="meta")).splitlines()
    assert first == "LoDTensor(3 rows, lod=LoD([[2, 1]]), dtype=float32, device=meta)"


def test_html_escapes_names():
    text = x.with_lod(x.lod.with_level_names(["<script>", "a&b"]))._repr_html_()
    assert "<script>" not in text and "&lt;script&gt; 0" in text and "a&amp;b 1: [3, 4]" in text
    assert text.startswith("<div>") and text.endswith("</div>")


@pytest.mark.parametrize(
    ("lengths", "folds", "bars", "end"),
    [
        ([[3, 1, 4]], 0, [1, 0, 1, 1], "<div>1 {} 4 rows in 3 sequences; 33% padding avoided</div></div>"),
        ([[2, 0, 1], [3, 1, 4]], 2, [1, 0, 1, 1], "<div>1 {} 4 rows in 3 sequences; 33% padding avoided</div></div>"),
        ([[0, 0]], 0, [2], "<div>0 {} 0 rows in 2 sequences</div></div>"),
        ([[40, 0]], 0, [1, *[0] * 12, 1], "<div>0 {} 40 rows in 2 sequences; 50% padding avoided</div></div>"),
        ([[]], 0, [], "</div></div>"),
        ([[0], []], 0, [], "</div></div>"),
    ],
)
def test_html_folds_and_counts(lengths, folds, bars, end):
    lod = LoD.from_lengths(lengths)
    text = tl.zeros(lod, 2)._repr_html_()
    assert text.count("<details") == text.count("</details>") == text.count("<summary>") == folds
    assert [int(n) for n in re.findall(r"(\d+) sequences\"", text)] == bars
    assert re.sub("<span.*</span>", "{}", text).endswith(end) and "<script" not in text
    assert text.count("<div") == text.count("</div>")


def test_html_of_a_long_tree_closes_what_it_opens():
    text = tl.zeros(LoD.from_lengths([[4] * 4**k for k in range(6)]))._repr_html_()
    assert "... more than 200 lines" in text and text.count("<details") == text.count("</details>") > 50


def test_describe():
    named = x.with_lod(x.lod.with_level_names(["article", None]))
    assert tl.describe(named) == tl.describe(named.lod)
    assert [line.split() for line in tl.describe(named).splitlines()] == [
        "level sequences min mean max empty distinct padded rows waste".split(),
        "article 3 1 2.00 3 0 3 27 44.4%".split(),
        "level 1 6 1 2.50 4 0 4 24 37.5%".split(),
        "all levels 3 36 58.3%".split(),
        "15 rows".split(),
    ]
    assert (
        tl.describe(tl.lod_tensor([[1, 2], [], [3]]))
        == """\
level          sequences     min      mean     max   empty  distinct   padded rows   waste
level 0                3       0      1.00       2       1         2             6   50.0%
3 rows"""
    )
    assert "0 rows" in tl.describe(LoD([[0], [0]]))


COPIES = ["torch.tensor(x)", "plain.new_tensor(x)", "plain.new_tensor(data=x.t())", "plain.new(x)"]


@pytest.mark.parametrize(
    "call", ["x.new_tensor(x)", "x.new_tensor(data=x)", "x.new_tensor(x, dtype=torch.float64)", "x.new(x)"]
)
def test_a_tensor_made_of_rows_keeps_them(call):
    x = tl.from_lengths(torch.randn(4, 3), [[3, 1]])
    made = eval(call)
    assert isinstance(made, tl.LoDTensor) and made.lod is x.lod and not made.requires_grad
    torch.testing.assert_close(made.values(), x.values().to(made.dtype))
    assert x.new_tensor(x.t()).rows_dim == 1 and x.new_tensor(x.mean(0)).rows_dim is None
    for plain in (x.new_tensor([1.0]), x.new(2, 3), x.new_tensor(torch.ones(4)), x.new(torch.ones(4))):
        assert type(plain) is torch.Tensor


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("call", COPIES)
def test_strict_sees_constructors_that_drop_rows(call):
    scope = {"torch": torch, "x": tl.from_lengths(torch.randn(4, 3), [[3, 1]]), "plain": torch.zeros(1)}
    with tl.strict(), pytest.raises(tl.LoDError, match=r"(new|tensor|new_tensor): expected a function that keeps rows"):
        eval(call, scope)
    assert len(tl.explain(lambda: eval(call, scope))) == 1
    with tl.strict():
        eval(call, scope | {"x": torch.randn(4, 3)})
