# SPDX-License-Identifier: Apache-2.0
"""`LoDTensor`: the design's examples, construction, slices, structure changes, joins; against nested lists."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from nested import X, Y, flat, lengths_of, trees, within, without_level

import torch_lod as tl
from torch_lod import LoD, LoDTensor


def rows(lengths, *element, **kwargs):
    """Rows numbered from 0."""
    lod = LoD.from_lengths(lengths)
    values = torch.arange(float(lod.rows)).view(-1, *[1] * len(element)).expand(lod.rows, *element)
    return LoDTensor(values.clone().requires_grad_(kwargs.pop("requires_grad", False)), lod)


@pytest.fixture
def x():
    return rows(X)


@pytest.fixture
def y():
    return rows(Y)


def of(batch, depth):
    """The LoDTensor of nested lists."""
    return tl.from_lengths(torch.tensor(flat(batch, depth), dtype=torch.float32), lengths_of(batch, depth))


def as_list(t):
    return t.to_list() if isinstance(t, LoDTensor) else t.tolist()


def is_(t, numbers, lengths):
    """Whether these are the rows and the lengths of t; None for a plain tensor."""
    found = t.recursive_sequence_lengths() if isinstance(t, LoDTensor) else None
    return as_list(t.values() if found is not None else t) == [float(n) for n in numbers] and found == lengths


# -- the examples of the design


def test_design_lengths_give_offsets_and_row_offsets(x):
    assert x.lod.to_list() == [[0, 3, 4, 6], [0, 3, 5, 9, 10, 12, 15]]
    assert [x.lod.row_offsets(k).tolist() for k in (0, 1)] == [[0, 9, 10, 15], [0, 3, 5, 9, 10, 12, 15]]


def test_design_third_sentence_of_the_first_article_is_rows_5_to_9(x):
    assert is_(x.seq[0, 2], range(5, 9), None)
    assert is_(x.branch(0, 2), range(5, 9), [[4]])


def test_design_branch_2_is_rows_10_to_15_with_its_own_tree(x):
    assert is_(x.branch(2), range(10, 15), [[2], [2, 3]]) and is_(x.slice(0, 2), range(10, 15), [[2], [2, 3]])


def test_design_branch_2_0_is_rows_10_to_12(x):
    assert is_(x.branch(2, 0), range(10, 12), [[2]])


def test_design_slice_of_a_slice(x):
    assert is_(x.slice(0, 2).slice(1, 1), range(12, 15), [[3]])


def test_design_more_slices(x, y):
    assert is_(x.slice(1, 2), range(5, 9), [[4]])
    assert is_(x.slice(1, 1, 4), range(3, 10), [[2, 4, 1]])
    assert is_(y.slice(1, 1), range(2, 6), [[2], [1, 3]]) and is_(y.branch(0, 1), range(2, 6), [[2], [1, 3]])
    assert is_(y.branch(0, 1, 0), [2], [[1]])
    assert is_(x.seq[2], range(10, 15), [[2, 3]]) and is_(x.seq[2, 0], range(10, 12), None)


def test_design_padding(x):
    dense, lengths = x.to_padded(level=0)
    assert dense.shape == (3, 9) and lengths.tolist() == [9, 1, 5]
    dense, lengths = x.to_padded(level="all")
    assert dense.shape == (3, 3, 4) and [n.tolist() for n in lengths] == [X[0], [[3, 2, 4], [1, 0, 0], [2, 3, 0]]]


def test_design_pooling(x):
    pooled = tl.sequence_pool(x, "sum", level=0)
    assert is_(pooled, [36, 9, 60], None)
    assert is_(tl.sequence_pool(x, "sum"), [3, 7, 26, 9, 21, 39], [[3, 1, 2]])


def test_design_nested_lists():
    z = tl.lod_tensor([[[1.0, 2.0], []], [], [[3.0]]])
    assert is_(z, [1, 2, 3], [[2, 0, 1], [2, 0, 1]])


def test_design_three_videos():
    lod = LoD.from_lengths([[3, 1, 2]])
    videos = LoDTensor(torch.zeros(6, 3, 480, 640, dtype=torch.uint8), lod)
    assert videos.shape == (6, 3, 480, 640) and videos.seq[0].shape == (3, 3, 480, 640)
    assert videos.seq[1].data_ptr() == videos.values()[3:].data_ptr()
    small = tl.rand(lod, 3, 12, 16)
    seen = F.conv2d(small, torch.rand(4, 3, 3, 3))
    assert seen.lod is lod and seen.shape == (6, 4, 10, 14)


def test_design_images_need_no_lod():
    images = tl.rand(LoD.from_lengths([[1] * 4]), 3, 8, 8)
    assert images.lod.is_trivial and images.drop_level(0).shape == (4, 3, 8, 8)
    assert type(images.drop_level(0)) is torch.Tensor
    assert not rows([[1, 2]]).lod.is_trivial


@pytest.mark.parametrize(
    "put",
    [lambda t: t.set_recursive_sequence_lengths([[3, 1, 2]]), lambda t: t.set_lod([[0, 3, 4, 6]])],
    ids=["set_recursive_sequence_lengths", "set_lod"],
)
def test_design_one_level_on_a_tensor_of_two(x, put):
    before, shared = x.lod, x * 2
    with pytest.raises(tl.LoDError, match=r"1-level LoD to cover the 15 rows of values, got one of 6 rows") as raised:
        put(x)
    assert isinstance(raised.value, ValueError) and x.lod is before
    with pytest.raises(ValueError, match="expected lengths"):
        x.set_recursive_sequence_lengths([[3], [1, 1]])
    assert x.lod is before and shared.lod is before
    six = rows([[2, 1], [1, 2, 3]])
    other = six + 1
    put(six)
    assert six.recursive_sequence_lengths() == [[3, 1, 2]] and other.recursive_sequence_lengths() == [[2, 1], [1, 2, 3]]


# -- construction and questions


def test_values_are_shared():
    values = torch.arange(15.0, requires_grad=True)
    x = tl.from_lengths(values * 1, X)
    assert x.values().data_ptr() == x.data_ptr() and type(x.values()) is torch.Tensor
    (x.values() * torch.arange(15.0)).sum().backward()
    assert values.grad.tolist() == list(range(15))
    plain = torch.zeros(15)
    tl.from_lengths(plain, X).add_(1)
    assert plain.tolist() == [1.0] * 15


def test_constructors_agree(x):
    v = x.values()
    made = [
        LoDTensor(v, x.lod),
        tl.from_offsets(v, x.lod.to_list()),
        tl.lod_tensor(x.to_list()),
        tl.from_tensors([[v[0:3], v[3:5], v[5:9]], [v[9:10]], [v[10:12], v[12:15]]]),
        tl.create_lod_tensor(v, X),
        tl.create_lod_tensor(v.numpy(), X),
        tl.from_segment_ids(v, x.lod.segment_ids()).group([3, 1, 2]),
        tl.from_cu_seqlens(v, x.cu_seqlens()).group([3, 1, 2]),
    ]
    for t in made:
        assert t.lod == x.lod and torch.equal(t.values(), v) and t.dtype == v.dtype


def test_lod_tensor_of_every_kind():
    assert is_(tl.lod_tensor([[], []]), [], [[0, 0]]) and is_(tl.lod_tensor([]), [], [[]])
    assert tl.lod_tensor([[], []], depth=3).recursive_sequence_lengths() == [[0, 0], [], []]
    vectors = tl.lod_tensor([[[1, 2], [3, 4]], []], depth=1, dtype=torch.float64)
    assert (
        vectors.shape == (2, 2) and vectors.dtype == torch.float64 and vectors.recursive_sequence_lengths() == [[2, 0]]
    )
    leaves = tl.lod_tensor([[torch.ones(3), torch.zeros(3)], [torch.ones(3)]], level_names=["s"], requires_grad=True)
    assert leaves.shape == (3, 3) and leaves.level_names == ("s",) and leaves.requires_grad and leaves.is_leaf
    assert tl.lod_tensor([[1, 2]]).dtype == torch.int64 and tl.lod_tensor(((1.0,), [2.0])).lod_level == 1
    empty = [[]]
    assert tl.lod_tensor([empty, [empty]]).recursive_sequence_lengths() == [[1, 1], [0, 1], [0]]
    twice = [1.0, 2.0]
    assert tl.lod_tensor([twice, twice]).to_list() == [twice, twice]


def test_levels_and_sequences_are_counted(x):
    assert len(x.lod) == x.lod_level == 2 and len(x.seq) == 3
    assert repr(x.seq) == "x.seq of 3 sequences: x.seq[i] is one, x.seq[i, j] one of the innermost level"
    assert repr(tl.lod_tensor([[1]]).seq) == "x.seq of 1 sequence: x.seq[i] is one"


def test_arrays_are_taken_wherever_lists_are():
    a, b = np.array([1.5, 2.5]), np.array([3.5])
    for data in ([a, b], (a, [3.5]), np.array([a, b], dtype=object), [[1.5, 2.5], b]):
        x = tl.lod_tensor(data)
        assert x.to_list() == [[1.5, 2.5], [3.5]]
    assert tl.lod_tensor([a, b]).dtype == torch.float64 and tl.lod_tensor([a.astype("f4")]).dtype == torch.float32
    square = np.arange(6).reshape(2, 3)
    assert tl.lod_tensor(square).to_list() == square.tolist() and tl.lod_tensor(square).dtype == torch.int64
    assert tl.lod_tensor([square, square[:1]]).to_list() == [square.tolist(), square[:1].tolist()]
    rows = tl.lod_tensor([square, square[:1]], depth=1)
    assert rows.shape == (3, 3) and rows.lod == tl.LoD([[0, 2, 3]]) and rows.dtype == torch.int64
    assert tl.lod_tensor([[square[0], torch.arange(3)]], depth=1).shape == (2, 3)
    assert tl.lod_tensor([np.zeros(0), np.zeros(0)]).lod == tl.LoD([[0, 0, 0]])
    assert tl.from_tensors([square, square[:1]]).lod == tl.LoD([[0, 2, 3]])
    assert tl.from_padded(square, [3, 1]).to_list() == [[0, 1, 2], [3]]
    assert tl.from_padded(square, mask=square % 2 == 0).to_list() == [[0, 2], [4]]
    itself = np.empty(2, dtype=object)
    itself[0], itself[1] = itself, itself
    for words, call in {
        "a flat list; without structure use torch.tensor": lambda: tl.lod_tensor(a),
        "sequences at nesting 1, got": lambda: tl.lod_tensor([a, 3.5]),
        "leaves of a dtype that torch has, got an array of object": lambda: tl.lod_tensor(
            [[np.array([[None]], dtype=object)]]
        ),
        "inside itself": lambda: tl.lod_tensor(itself),
    }.items():
        with pytest.raises(tl.LoDError, match=words):
            call()


def test_arrays_share_their_memory_where_torch_can():
    array = np.zeros((3, 2), dtype=np.float32)
    lengths = np.array([1, 2])
    x = tl.from_lengths(array, [lengths])
    array[0, 0] = 7
    assert x.values()[0, 0] == 7 and x.dtype == torch.float32 and x.lod == tl.LoD([[0, 1, 3]])
    ids, cuts = np.array([0, 1, 1]), np.array([0, 1, 3])
    assert all(
        t.lod == x.lod and t.data_ptr() == x.data_ptr()
        for t in (tl.from_offsets(array, [cuts]), tl.from_segment_ids(array, ids), tl.from_cu_seqlens(array, cuts))
    )
    array.setflags(write=False)
    for copied in (array, array[::-1]):
        y = tl.from_lengths(copied, [lengths])
        assert y.data_ptr() != x.data_ptr() and torch.equal(y.values(), torch.tensor(copied.tolist()))
    with pytest.raises(
        tl.LoDError, match=r"^from_lengths: expected values of a dtype that torch has, got an array of <U1"
    ):
        tl.from_lengths(np.array(["a", "b", "c"]), [lengths])
    with pytest.raises(
        tl.LoDError, match=r"^from_lengths: expected values as a tensor or an array, got list; see tl.lod"
    ):
        tl.from_lengths([1, 2, 3], [lengths])


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.uint8, torch.int8])
def test_masks_are_bool_or_0_and_1(kind):
    dense, mask = torch.arange(6.0).view(2, 3), torch.tensor([[1, 0, 1], [0, 0, 1]])
    assert tl.from_padded(dense, mask=mask.to(kind)).to_list() == [[0.0, 2.0], [5.0]]
    if kind != torch.bool:
        with pytest.raises(ValueError, match=r"^from_padded: expected a mask of 0 and 1, got 2 at index \[1, 0\]$"):
            tl.from_padded(dense, mask=mask.index_put((torch.tensor(1), torch.tensor(0)), torch.tensor(2)).to(kind))


def test_cat_within_a_level(x):
    for level in (0, 1, -1, "b"):
        y = x.with_lod(x.lod.with_level_names(["a", "b"]))
        joined = tl.cat([y, y * 2], along="within", level=level)
        k = y.lod.level(level)
        pairs = zip(y.sequences(k), (y * 2).sequences(k))
        assert joined.values().tolist() == [
            v for pair in pairs for part in pair for v in torch.Tensor.tolist(part.flatten())
        ]
        assert joined.lod.outer(k) == y.lod.outer(k) and joined.level_names == ("a", "b")
    innermost = tl.cat([x, x], along="within", level=-1)
    assert (
        tl.cat([x, x], along="within").to_list() == innermost.to_list() != tl.cat([x, x], "within", level=0).to_list()
    )
    assert tl.cat([x, x], level=0).to_list() == tl.cat([x, x], level=-1).to_list() == tl.cat([x, x]).to_list()
    with pytest.raises(ValueError, match=r"^cat: expected level with along='within' only, got 1 with 'sequences'$"):
        tl.cat([x, x], level=1)
    with pytest.raises(ValueError, match=r"^cat: expected operands with equal LoDs"):
        tl.cat([x, x.with_lod(tl.LoD.from_lengths([[2, 2, 2], [3, 2, 4, 1, 2, 3]]))], along="within", level=1)


def test_from_tensors_keeps_gradients():
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(0, 3, requires_grad=True)
    t = tl.from_tensors([a, b], level_names=["s"])
    assert t.recursive_sequence_lengths() == [[2, 0]] and t.level_names == ("s",)
    (t * 3).sum().backward()
    assert a.grad.tolist() == [[3.0] * 3] * 2 and b.grad.shape == (0, 3)


def test_filled(x):
    lod = x.lod
    for t, value in ((tl.zeros(lod, 2), 0), (tl.ones(lod, 2), 1), (tl.full(lod, 2, fill_value=7), 7)):
        assert t.lod is lod and t.shape == (15, 2) and bool((t.values() == value).all())
    assert tl.empty(lod, dtype=torch.int32).dtype == torch.int32 and tl.rand(lod).lod is tl.randn(lod).lod is lod
    for like in (tl.zeros_like, tl.ones_like, tl.empty_like, tl.rand_like, tl.randn_like):
        assert like(x).lod is lod and like(x).shape == (15,)
    assert tl.full_like(x, 3).to_list()[1] == [[3.0]]
    random = tl.create_random_int_lodtensor(X, [2], 3, 5)
    assert random.shape == (15, 2) and set(random.values().flatten().tolist()) == {3, 4, 5}


def test_questions(x):
    x = x.with_lod(x.lod.with_level_names(["article", "sentence"]))
    assert (x.lod_level, x.levels(), x.level_names) == (2, 2, ("article", "sentence"))
    assert (x.num_sequences(), x.elements(), x.elements("sentence"), x.max_length(0)) == (3, 3, 6, 3)
    assert x.lengths("article").tolist() == X[0] and x.offsets(0).tolist() == [0, 3, 4, 6]
    assert x.row_offsets(0).tolist() == x.cu_seqlens(0).tolist() == [0, 9, 10, 15]
    assert len(x) == 15 and len(list(x)) == 15 and float(x[4]) == 4 and x[3:5]._provenance.part == (3, 5)
    assert x.recursive_sequence_lengths() == X and x.has_valid_recursive_sequence_lengths()


def test_paddle_and_first_design(x):
    assert tl.create_lod_tensor([[1, 2], [3]], [[2, 1]]).values().tolist() == [[1], [2], [3]]
    copied, shared = x.lod_slice(1, 1, 4), x.lod_slice_shared(1, 1, 4)
    assert is_(copied, range(3, 10), [[2, 4, 1]]) and is_(shared, range(3, 10), [[2, 4, 1]])
    x.values()[3] = 100
    assert copied.values()[0] == 3 and shared.values()[0] == 100
    other = tl.from_lengths(torch.zeros(15), [[15]])
    assert other.share_lod_from(x) is other and other.lod is x.lod
    named = x.with_lod(x.lod.with_level_names(["a", "b"]))
    other.copy_lod_from(named)
    assert other.lod == x.lod and other.lod is not named.lod and other.level_names == ("a", "b")
    for take in (other.share_lod_from, other.copy_lod_from):
        with pytest.raises(ValueError, match="cover the 15 rows"):
            take(rows([[2]]))
    assert other.level_names == ("a", "b")


# -- slices

PIECES = {
    "slice": lambda x: x.slice(0, 0),
    "slice, one": lambda x: x.slice(1, 2),
    "slice, more": lambda x: x.slice(1, 1, 4),
    "branch": lambda x: x.branch(0, 2),
    "seq int": lambda x: x.seq[0],
    "seq path": lambda x: x.seq[0, 2],
    "seq slice": lambda x: x.seq[0:2],
    "seq path slice": lambda x: x.seq[0, 1:],
    "shared": lambda x: x.lod_slice_shared(0, 0, 2),
    "sequences": lambda x: next(x.sequences()),
    "unbound": lambda x: x.unbind_sequences(1)[2],
    "lod_reset": lambda x: x.lod_reset([[15]]),
    "with_lod": lambda x: x.with_lod(LoD([[0, 15]])),
    "drop_level": lambda x: x.drop_level(0),
    "flatten": lambda x: x.flatten_levels(0, 1),
    "group": lambda x: x.group([3]),
}


@pytest.mark.parametrize("piece", PIECES)
def test_views_share_storage_and_gradient(piece):
    leaf = torch.arange(15.0, requires_grad=True)
    part = PIECES[piece](tl.from_lengths(leaf, X))
    assert part.untyped_storage().data_ptr() == leaf.untyped_storage().data_ptr()
    places = part.detach().long().tolist()
    (part * 2).sum().backward()
    assert leaf.grad.tolist() == [2.0 if i in places else 0.0 for i in range(15)]
    with torch.no_grad():
        part.fill_(-1)
    assert [i for i in range(15) if leaf[i] == -1] == places


@settings(max_examples=60, deadline=None)
@given(trees(), st.data())
def test_slices_agree_with_nested_lists(drawn, data):
    depth, batch = drawn
    x, n = of(batch, depth), len(batch)
    for key in (slice(None), slice(1, None), slice(None, None, 2), slice(None, None, -1), slice(-2, None), slice(5, 1)):
        assert x.seq[key].to_list() == batch[key]
    index = data.draw(st.lists(st.integers(-n, n - 1), max_size=4)) if n else []
    for form in (index, torch.tensor(index, dtype=torch.int32), np.array(index, dtype=np.int64)):
        assert x.seq[form].to_list() == [batch[i] for i in index]
    mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    assert x.seq[torch.tensor(mask, dtype=torch.bool)].to_list() == [s for s, keep in zip(batch, mask) if keep]
    assert [as_list(s) for s in x.seq] == batch and len(x.seq) == n
    for i, sequence in enumerate(batch):
        assert as_list(x.seq[i]) == as_list(x.seq[i - n]) == sequence
        assert x.branch(i).to_list() == x.slice(0, i).to_list() == [sequence]
        for j, part in enumerate(sequence if depth > 1 else []):
            assert as_list(x.seq[i, j]) == part and x.branch(i, j).to_list() == [part]
        if depth > 1:
            assert x.seq[i, 0:2].to_list() == sequence[0:2] and x.seq[i, ::-1].to_list() == sequence[::-1]
    for k in range(depth):
        assert [as_list(s) for s in x.sequences(k)] == [as_list(s) for s in x.unbind_sequences(k)] == flat(batch, k)


@pytest.mark.parametrize("form", [np.int64, np.uint8, torch.tensor], ids=["int64", "uint8", "tensor"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: x.seq[n],
        lambda x, n: x.seq[n, n],
        lambda x, n: x.seq[n, : n + 1],
        lambda x, n: x.head(n),
        lambda x, n: x.tail(n),
        lambda x, n: x.nth(n),
        lambda x, n: x.to_padded(max_length=n + 7)[0],
        lambda x, n: tl.sequence_topk(x, n)[0],
        lambda x, n: tl.sequence_shift(x, n),
        lambda x, n: tl.sequence_sample(x, n, generator=torch.Generator()).lod,
        lambda x, n: tl.sequence_unfold(x, n),
        lambda x, n: tl.sequence_knn(x[:, None], x[:, None], n)[0],
    ],
)
def test_numbers_from_arrays_and_tensors_are_ints(call, form):
    x = rows([[1, 3, 2], [3, 2, 4, 1, 2, 3]])
    want, got = call(x, 1), call(x, form(1))
    assert type(got) is type(want) and (got == want if isinstance(got, LoD) else as_list(got) == as_list(want))


@settings(max_examples=60, deadline=None)
@given(trees(), st.data())
def test_structure_agrees_with_nested_lists(drawn, data):
    depth, batch = drawn
    x = of(batch, depth)
    assert x.to_list() == tl.lod_tensor(batch, depth=depth).to_list() == batch
    for k in range(depth):
        dropped = x.drop_level(k)
        assert as_list(dropped) == (without_level(batch, k) if depth > 1 else flat(batch, 1))
    for k in (0, 1, 2, 9):
        assert x.head(k).to_list() == within(batch, depth, lambda s, k=k: s[:k])
        assert x.tail(k).to_list() == within(batch, depth, lambda s, k=k: s[len(s) - min(k, len(s)) :])
    for i in (0, 1, -1, -2):
        pick = within(batch, depth, lambda s, i=i: s[i] if -len(s) <= i < len(s) else -9.0)
        assert as_list(x.nth(i, padding_value=-9.0)) == pick
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))), dtype=torch.bool)
    kept = {float(v) for v in torch.arange(float(len(x)))[mask]}
    assert x.filter_rows(mask).to_list() == within(batch, depth, lambda s: [v for v in s if v in kept])
    order = data.draw(st.permutations(range(len(batch))))
    assert x.permute_sequences(order).to_list() == [batch[i] for i in order]


def test_permuting_inside_the_parent(x):
    moved = x.permute_sequences(torch.tensor([2, 1, 0, 3, 5, 4]), level=1)
    assert is_(moved, [5, 6, 7, 8, 3, 4, 0, 1, 2, 9, 12, 13, 14, 10, 11], [[3, 1, 2], [4, 2, 3, 1, 3, 2]])


def test_selecting_has_a_gradient():
    for select in (
        lambda t: t.seq[[2, 0, 2]],
        lambda t: t.head(2),
        lambda t: t.tail(2),
        lambda t: t.nth(-1),
        lambda t: t.filter_rows(t.values() > 4),
        lambda t: t.permute_sequences([2, 0, 1]),
    ):
        leaf = torch.arange(15.0, requires_grad=True)
        out = select(tl.from_lengths(leaf, X))
        out.sum().backward()
        assert leaf.grad.tolist() == [float(out.detach().tolist().count(i)) for i in range(15)]


# -- structure


def test_changing_structure(x):
    assert (
        is_(x.lod_reset(rows([[15]])), range(15), [[15]])
        and x.lod_reset(x.lod.with_level_names(["a", "b"])).level_names
    )
    assert is_(x.lod_reset([[10, 5]]), range(15), [[10, 5]])
    assert is_(x.lod_reset(torch.tensor([5, 10])), range(15), [[5, 10]])
    assert is_(x.with_values(torch.zeros(15)), [0] * 15, X) and x.with_values(torch.zeros(15, 2)).lod is x.lod
    assert is_(x.group([2, 1]), range(15), [[2, 1], *X]) and x.group([3], "all").level_names == ("all", None, None)
    assert is_(x.flatten_levels(0, -1), range(15), X[1:])
    assert is_(x.drop_level(-1), range(15), [[9, 1, 5]]) and is_(x.drop_level(0).drop_level(0), range(15), None)
    assert x.recursive_sequence_lengths() == X
    appended = rows([[2, 1]]).with_lod(LoD.from_lengths([[2, 1]]))
    assert appended.lod_append([1, 1, 1]).recursive_sequence_lengths() == [[2, 1], [1, 1, 1]]


# -- joining


@settings(max_examples=60, deadline=None)
@given(trees(), st.data())
def test_joining_agrees_with_nested_lists(drawn, data):
    depth, batch = drawn
    other = batch[::-1]
    x, z = of(batch, depth), of(other, depth)
    assert tl.cat([x, z, x]).to_list() == torch.cat([x, z, x]).to_list() == batch + other + batch
    joined = [a + b for a, b in zip(batch, other, strict=True)]
    assert tl.cat([x, z], along="within", level=0).to_list() == joined
    assert tl.stack([x, x + 1]).to_list() == within(batch, depth, lambda s: [[v, v + 1] for v in s])


def test_joining_features(x):
    wide = x[:, None].new_zeros(15, 2)
    a = x.with_values(wide)
    assert tl.cat([a, a + 1], along="features").lod is a.lod and tl.cat([a, a], along="features").shape == (15, 4)
    again = tl.from_lengths(wide, X)
    assert torch.cat([a, again], 1).lod == tl.cat([a, again], "features").lod == x.lod
    assert tl.stack([a, again], 2).shape == (15, 2, 2) and tl.stack([a, a]).lod is a.lod
