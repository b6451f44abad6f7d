# SPDX-License-Identifier: Apache-2.0
"""What makes LoDTensors of parts, selections and joins of others, under the modes and transforms of torch as without."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_lod as tl

STRUCTURES = {
    "one level": [[3, 1, 2]],
    "empty ones": [[0, 3, 0, 2, 0]],
    "equal": [[2, 2, 2]],
    "no sequences": [[]],
    "no rows": [[0, 0]],
    "two levels": [[3, 1, 2], [3, 2, 4, 1, 2, 3]],
    "three levels": [[2, 0, 1], [1, 2, 1], [2, 1, 0, 2]],
}
ROWS = {
    "floats": lambda n: torch.arange(2.0 * n).view(n, 2),
    "a number each": lambda n: torch.arange(n),
    "matrices": lambda n: torch.arange(6 * n, dtype=torch.float64).view(n, 2, 3),
    "bfloat16": lambda n: torch.arange(2.0 * n).view(n, 2).to(torch.bfloat16),
    "bool": lambda n: torch.arange(n) % 3 == 0,
    "complex": lambda n: torch.arange(n) * 1j,
    "every second": lambda n: torch.arange(4.0 * n).view(2 * n, 2)[::2],
    "transposed": lambda n: torch.arange(2.0 * n).view(2, n).t(),
}


def batch(structure, rows="floats", names=True):
    lod = tl.LoD.from_lengths(STRUCTURES[structure])
    names = "abc"[: lod.depth] if names else None
    return tl.from_lengths(ROWS[rows](lod.rows), STRUCTURES[structure], level_names=names and list(names))


def turned(n):
    return torch.arange(n - 1, -1, -1)


CALLS = {
    "head": lambda x: x.head(2),
    "tail": lambda x: x.tail(2),
    "head of none": lambda x: x.head(0),
    "slice": lambda x: tl.sequence_slice(x, (x.lengths() > 1).long(), (x.lengths() > 1).long(), level=-1),
    "slice of the outermost": lambda x: tl.sequence_slice(
        x, x.lengths(0) // 2, x.lengths(0) - x.lengths(0) // 2, level=0
    ),
    "slice by a column": lambda x: tl.sequence_slice(x, x.lengths()[:, None] * 0, x.lengths()[:, None] // 2),
    "seq": lambda x: x.seq[turned(x.num_sequences())],
    "seq twice": lambda x: x.seq[[*range(x.num_sequences())] * 2],
    "permuted": lambda x: x.permute_sequences(turned(x.num_sequences())),
    "expanded": lambda x: tl.sequence_expand(x, tl.LoD.from_lengths([[i % 3 for i in range(x.num_sequences())]])),
    "padded": lambda x: x.to_padded(1 if x.dtype == torch.bool else 7),
    "padded further": lambda x: x.to_padded(max_length=x.max_length() + 1, side="left"),
    "padded outermost": lambda x: x.to_padded(level=0),
    "padded all": lambda x: x.to_padded(level="all"),
    "unpadded": lambda x: tl.from_padded(x.to_padded()[0], x.lengths()),
    "unpadded from the right": lambda x: tl.from_padded(
        x.to_padded(max_length=x.max_length() + 1)[0], x.lengths() // 2, side="left", level_names=["words"]
    ),
    "cat": lambda x: tl.cat([x, x]),
    "cat of three": lambda x: tl.cat([x, x.head(1), x]),
    "concat": lambda x: tl.sequence_concat([x, x.head(1)]),
    "concat of three": lambda x: tl.sequence_concat([x, x, x]),
    "torch's cat": lambda x: torch.cat([x, x]),
}


def flat(found):
    """The tensors of a result, which may be a tuple."""
    for part in found if isinstance(found, tuple) else (found,):
        yield from flat(part) if isinstance(part, tuple) else (part,)


def first(found):
    """The values of the first tensor of a result."""
    out = next(flat(found))
    return out.values() if isinstance(out, tl.LoDTensor) else out


def same(ours, wanted):
    for a, b in itertools.zip_longest(flat(ours), flat(wanted)):
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad
        if isinstance(a, tl.LoDTensor):
            assert a.lod == b.lod and a.level_names == b.level_names
            a, b = a.values(), b.values()
        assert torch.equal(a, b)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_lod_of_a_result_is_valid_and_knows_its_sizes(call, structure):
    for rows, names in itertools.product(ROWS, (True, False)):
        for out in flat(CALLS[call](batch(structure, rows, names))):
            if isinstance(out, tl.LoDTensor):
                checked = tl.LoD(out.lod.to_list())
                assert out.lod == checked and out.lod.rows == checked.rows == out.shape[0]
                assert out.lod._longest == checked._longest and out.lod._symbols == checked._symbols
                assert all(type(t) is torch.Tensor and t.grad_fn is None for t in out.lod.levels)


@pytest.mark.parametrize("call", CALLS)
def test_modes_and_transforms_see_the_same(call):
    x = batch("two levels")
    with torch.inference_mode():
        found = CALLS[call](x)
        assert not any(
            level.is_inference() for t in flat(found) if isinstance(t, tl.LoDTensor) for level in t.lod.levels
        )
    same(found, CALLS[call](x))
    seen = []

    class Recording(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **kwargs or {})

    with Recording():
        found = CALLS[call](x)
    assert seen
    same(found, CALLS[call](x))

    def of_values(values):
        return first(CALLS[call](x.with_values(values)))

    tangent = torch.func.jvp(of_values, (x.values(),), (torch.ones(len(x), 2),))[1]
    assert set(tangent.unique().tolist()) <= {0.0, 1.0}
    rows = torch.func.vmap(of_values)(torch.stack([x.values()] * 3))
    assert torch.equal(rows[2], of_values(x.values()))


@pytest.mark.parametrize("call", ["head", "tail", "seq", "permuted", "cat"])
def test_masks_of_ignored_rows_move_with_the_rows(call):
    x = batch("two levels")
    mask = torch.arange(15) % 2 == 0
    counted = CALLS[call](x.with_lod(x.lod.counting(mask))).lod.counted
    wanted = CALLS[call](x.with_values(mask)).values()
    assert all(torch.equal(column, wanted) for column in counted[0].view(len(wanted), -1).t())
