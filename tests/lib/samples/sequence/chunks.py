# SPDX-License-Identifier: Apache-2.0
"""Chunks in sequences of tags."""

import torch

import torch_lod as tl
from samples.words import WHOLE, SequenceInfo, V, lod_tensor, over, values

#: With so many types, 4 is the largest tag, which the samples hold.
SCHEMES = {"IOB": 2, "IOE": 2, "IOBES": 1, "plain": 4}


def tags(x, k):
    for seed, (scheme, types) in enumerate(SCHEMES.items()):
        other = values(len(x), x.shape[1:], x.dtype, x.device, seed)
        # half of the tags are right
        label = x.with_values(
            torch.where(torch.arange(len(x), device=x.device).view(-1, *[1] * (x.dim() - 1)) % 4 < 2, x.values(), other)
        )
        yield f" {scheme}", (x, label, scheme, types), {}
        yield f" {scheme} but one", (label, x, scheme, types, [0]), {}


#: The samples hold 0 to 4.
NAMES = (
    ("O", "B-a", "I-a", "B-b", "I-b"),
    ("I-a", "E-a", "O", "E-b", "I-b"),
    ("S_a", "M_a", "B_a", "E_a", "O"),
    ("U:a", "I:a", "B:a", "L:a", "O"),
    ("I-a", "O", "I-b", "I-c", "I-d", "I-e"),
    ("I-a", "B-a", "B-b", "S-b", "E-b"),
)


def named(x, k):
    for seed, names in enumerate(NAMES):
        other = values(len(x), x.shape[1:], x.dtype, x.device, seed)
        right = torch.arange(len(x), device=x.device).view(-1, *[1] * (x.dim() - 1)) % 4 < 2
        yield f" {names[0]}", (x, x.with_values(torch.where(right, x.values(), other)), list(names)), {}


T = lod_tensor([[2, 1], [1, 2, 3]], (), torch.int64, "cpu")


def chunk_errors():
    op = tl.chunk_eval

    def at(row, tag):
        return T.with_values(torch.where(torch.arange(6) == row, tag, T.values()))

    yield (
        "tag",
        lambda: op(at(4, 9), T, "IOB", 2),
        IndexError,
        "tags of x in [0, 4], got 9 at position 1 of sequence 2",
    )
    yield (
        "negative",
        lambda: op(T, at(2, -1), "plain", 4, level=0),
        IndexError,
        "tags of label in [0, 4], got -1 at position 2 of sequence 0",
    )
    yield "huge", lambda: op(T, at(0, 2**62), "IOBES", 1), IndexError, f"got {2**62} at position 0 of sequence 0"
    yield "scheme", lambda: op(T, T, "iob", 2), ValueError, "chunk_scheme among IOB, IOE, IOBES, plain, got 'iob'"
    yield "no scheme", lambda: op(T, T, None, 2), ValueError, "chunk_scheme among IOB, IOE, IOBES, plain, got None"
    for wrong in (0, -1, 2.0, True, 2**70):
        yield f"types {wrong}", lambda w=wrong: op(T, T, "IOB", w), ValueError, "num_chunk_types in [1, 2**31]"
    yield "excluded", lambda: op(T, T, "IOB", 2, [0, 2]), ValueError, "_chunk_types in [0, 1], got 2 at index 1"
    yield "excluded words", lambda: op(T, T, "IOB", 2, ["a"]), TypeError, "excluded_chunk_types[0] to be an integer"
    yield (
        "LoD",
        lambda: op(T, T.with_lod(tl.LoD([[0, 1, 3], [0, 1, 3, 6]])), "IOB", 2),
        ValueError,
        "at level 0, sequence 0: lengths 2 and 1",
    )
    yield "plain", lambda: op(T, T.values(), "IOB", 2), TypeError, "label as a LoDTensor, got Tensor"
    yield "floating", lambda: op(T, T.float(), "IOB", 2), TypeError, "label of an integer dtype, got torch.float32"
    yield "wide", lambda: op(T.with_values(V.long()), T, "IOB", 2), ValueError, "x of shape (rows,) or (rows, 1)"


def named_errors():
    op, names = tl.chunk_f1, ["O", "B-a", "I-a", "B-b", "I-b"]

    def at(row, tag):
        return T.with_values(torch.where(torch.arange(6) == row, tag, T.values()))

    said = "tags of found in [0, 4], got 9 at position 1 of sequence 2"
    yield "tag", lambda: op(at(4, 9), T, names), IndexError, said
    said = "tags of tags in [0, 4], got -100 at position 2 of sequence 0; rows without a tag are left out by filter(tags >= 0)"
    yield "ignored", lambda: op(T, at(2, -100), names, level=0), IndexError, said
    yield "huge", lambda: op(T, at(0, 2**62), names), IndexError, f"got {2**62} at position 0 of sequence 0"
    yield "str", lambda: op(T, T, "IOB"), TypeError, "names as a list of the name of every tag, got 'IOB'"
    yield "no names", lambda: op(T, T, []), TypeError, "names as a list of the name of every tag, got []"
    yield "count", lambda: op(T, T, 5), TypeError, "names as a list of the name of every tag, got 5"
    yield "number", lambda: op(T, T, ["O", 1]), TypeError, "names of strings, got 1 at index 1"
    yield "twice", lambda: op(T, T, ["O", "B-a", "O"]), ValueError, "names that differ, got 'O' at index 0 and 2"
    for wrong in ("PER", "a-B", "B-", "B", "o", "X-a", ""):
        said = f"names 'O', or one of B, I, M, E, L, S, U, W, '-' and a type, as 'B-PER', got {wrong!r} at index 1"
        yield f"name {wrong}", lambda w=wrong: op(T, T, ["O", w]), ValueError, said
    other = T.with_lod(tl.LoD([[0, 1, 3], [0, 1, 3, 6]]))
    yield "LoD", lambda: op(T, other, names), ValueError, "tags with the LoD of found, got LoDs that differ: at level 0"
    yield "plain", lambda: op(T, T.values(), names), TypeError, "tags as a LoDTensor, got Tensor"
    yield "floating", lambda: op(T.float(), T, names), TypeError, "found of an integer dtype, got torch.float32"
    yield "wide", lambda: op(T.with_values(V.long()), T, names), ValueError, "found of shape (rows,) or (rows, 1)"
    yield "device", lambda: op(T, T.to("meta"), names), TypeError, "tags on cpu, as found, got one on meta"


ENTRIES = [
    SequenceInfo("chunk_f1", over(named, ((), (1,))), named_errors, WHOLE, differentiable=False),
    SequenceInfo("chunk_eval", over(tags, ((), (1,))), chunk_errors, WHOLE, differentiable=False),
]
