# SPDX-License-Identifier: Apache-2.0
"""Elements by their position in the sequence."""

import torch

import torch_lod as tl
from samples.words import ALL, M, SequenceInfo, V, X, over


def positions(lod, k, lengths, more=()):
    """A position, or several, for each of `lengths[s]` rows of every sequence s of level k, -1 among them."""
    rooms = torch.repeat_interleave(lod.lengths(k), torch.tensor(lengths, dtype=torch.int64))
    number = torch.arange(rooms.numel() * max(1, torch.Size(more).numel())).view(-1, *more)
    return number.mul(5).add(2).remainder(rooms.view(-1, *[1] * len(more)) + 1) - 1


def gathers(x, k):
    lod, count, inner = x.lod, x.num_sequences(k), k + 1 == x.lod_level
    above = lod.outer(k)
    lengths = [(2 * s + 1) % 4 for s in range(count)]
    own = tl.LoD.from_lengths([lengths]) if above is None else above.append(lengths)
    index = positions(lod, k, lengths)

    def made(t, structure=own):
        return tl.LoDTensor(t.to(x.device), structure)

    yield "", (x, made(index)), {}
    yield " int32, filled", (x, made(index.to(torch.int32))), {"fill": 1}
    begin = torch.repeat_interleave(lod.offsets(k)[:-1], torch.tensor(lengths, dtype=torch.int64))
    yield " absolute", (x, made(torch.where(index < 0, -1, index + begin))), {"absolute": True}
    each = positions(lod, k, [1] * count)
    yield " one for each", (x, each.to(x.device) if above is None else made(each, above)), {}
    if inner:
        yield " several", (x, made(positions(lod, k, lengths, (2,)))), {}
    deeper = own.append([(s + 1) % 3 for s in range(own.rows)])
    of = torch.repeat_interleave(torch.arange(count), deeper.row_lengths(k))
    rooms = lod.lengths(k)[of]
    yield " deeper", (x, made(torch.arange(len(of)).remainder(rooms + 1) - 1, deeper)), {}


def gather_errors():
    def of(lengths, *positions):
        return tl.from_lengths(torch.tensor(positions), lengths)

    op, index = tl.sequence_gather, of([[2, 1], [1, 2, 1]], 0, -1, 1, 2)
    wrong = "index in [-1, 1] in sequence 1 of 2 elements, got 2 at row 1"
    yield "position", lambda: op(X, of([[2, 1], [1, 1, 0]], 0, 2)), ValueError, wrong
    yield "hint", lambda: op(X, of([[2, 1], [1, 1, 0]], 0, 2)), ValueError, "as that of sequence_knn, absolute=True"
    yield (
        "beyond",
        lambda: op(X, of([[2, 1], [1, 0, 0]], 7)),
        ValueError,
        "index in [-1, 0] in sequence 0 of 1 elements",
    )
    yield "negative", lambda: op(X, of([[2, 1], [0, 1, 0]], -2)), ValueError, "got -2 at row 0"
    yield "smallest", lambda: op(X, of([[2, 1], [0, 1, 0]], -(2**63))), ValueError, f"got {-(2**63)} at row 0"
    yield "largest", lambda: op(X, of([[2, 1], [0, 0, 1]], 2**63 - 1)), ValueError, f"got {2**63 - 1} at row 0"
    yield (
        "in a column",
        lambda: op(X, index.with_values(torch.tensor([[0, 0], [0, 3], [0, 0], [0, 0]]))),
        ValueError,
        "in sequence 1 of 2 elements, got 3 at row 1",
    )
    yield (
        "absolute",
        lambda: op(X, of([[2, 1], [1, 1, 0]], 0, 0), absolute=True),
        ValueError,
        "index -1 or in [1, 2] in sequence 1 of 2 elements, got 0 at row 1",
    )
    yield (
        "element",
        lambda: op(X, of([[1, 1]], 1, 1), level=0),
        ValueError,
        "[-1, 0] in sequence 1 of 1 elements, got 1",
    )
    yield "floating", lambda: op(X, index.double()), TypeError, "index of a signed integer dtype or uint8, got torch.f"
    yield "mask", lambda: op(X, index > 0), TypeError, "index of a signed integer dtype or uint8, got torch.bool"
    yield "uint64", lambda: op(X, index.to(torch.uint64)), TypeError, "integer dtype or uint8, got torch.uint64"
    yield "list", lambda: op(X, [0, 1]), TypeError, "index as a LoDTensor of integers, or a tensor of one row per"
    yield "scalar", lambda: op(X, torch.tensor(1)), TypeError, "got a tensor without rows"
    yield "plain", lambda: op(X, torch.tensor([0, 1])), ValueError, "tl.LoDTensor(index, x.lod.outer(1))"
    yield "rows", lambda: op(X, torch.tensor([0, 1, 0]), level=0), ValueError, "a row for each of 2 sequences, got 3"
    yield "sequences", lambda: op(X, of([[2]], 0, 0), level=0), ValueError, "as many sequences as x, 2, got 1"
    yield "above", lambda: op(X, of([[1, 2], [1, 2, 1]], 0, -1, 1, 1)), ValueError, "sequence 0: lengths 2 and 1"
    yield (
        "columns at an outer level",
        lambda: op(X, of([[1, 1]], 0, 0)[:, None], level=0),
        ValueError,
        "index of shape (n,) at level 0 of 2, got (2, 1)",
    )
    yield "device", lambda: op(X, index.to("meta")), TypeError, "index on cpu, as x, got one on meta"
    yield "plain x", lambda: op(V, index), TypeError, "x as a LoDTensor, got Tensor"
    yield "fill", lambda: op(X, index, fill="a"), TypeError, "fill as a number, got 'a'"
    yield "whole fill", lambda: op(X.long(), index, fill=0.5), ValueError, "a whole fill within torch.int64, got 0.5"
    yield "flag", lambda: op(X, index, absolute=1), TypeError, "absolute as a bool, got 1"
    yield "plain meta", lambda: op(X, M[:2, 0].long(), level=0), TypeError, "index on cpu, as x, got one on meta"


ENTRIES = [SequenceInfo("sequence_gather", over(gathers), gather_errors, ALL)]
