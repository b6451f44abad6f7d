# SPDX-License-Identifier: Apache-2.0
"""Wrong calls of tl.map_sequences: the error names the argument, what was expected and what came."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

import torch_lod as tl

C = 4


@dataclasses.dataclass
class Output:
    rows: object


def masked(stack, mask):
    return stack * mask[..., None], stack.sum(1)


X = tl.from_lengths(torch.randn(9, C), [[2, 1, 2], [1, 3, 0, 3, 2]], level_names=("text", "line"))
TWO = tl.from_lengths(torch.randn(4, C), [[1, 3]])
ERRORS = {
    "another count": (
        lambda: run(lambda t: t[:0]),
        "results='rows' to be (count 1, length 1, ...), got (0, 1, 4) from fn",
    ),
    "another length": (lambda: run(lambda t: t[:, :2]), "results='rows' to be (count 2, length 3, ...), got (2, 2, 4)"),
    "a shorter one": (
        lambda: run(lambda t: F.pad(t, (0, 0, 0, -1)) if t.shape[1] > 2 else t),
        "results='rows' to be (count 2, length 3, ...), got (2, 2, 4) from fn",
    ),
    "length first": (
        lambda: run(lambda t: t.mT, layout="length_first"),
        "results='rows' to be (length 1, count 1, ...), got (1, 4, 1)",
    ),
    "channels": (
        lambda: run(lambda t: t[..., 0], layout="channels"),
        "results='rows' to be (count 1, ..., length 1), got (1, 4)",
    ),
    "no tensor": (lambda: run(lambda t: (t, [t, 3])), "got tuple((1, 1, 4), list((1, 1, 4), int)) from fn"),
    "rows for sequences": (
        lambda: run(lambda t: t.flatten(0, 1), results="sequences"),
        "results='sequences' to be (count 1, ...), got (2, 4) from fn",
    ),
    "a state elsewhere": (
        lambda: run(lambda t: (t, (t.sum(1), t)), results=("rows", (("sequences", 1), None))),
        "results[1][0]=('sequences', 1) to be count 1 at dim 1, got (1, 4) from fn",
    ),
    "no such dim": (lambda: run(lambda t: t.sum(1), results=("sequences", 2)), "to be count 1 at dim 2, got (1, 4)"),
    "scores": (
        lambda: run(lambda t: t @ t.mT),
        "results='rows' with elements of one shape, got (1,) and (2,) from fn",
    ),
    "too few": (
        lambda: run(lambda t: (t,), results=("rows", "rows")),
        "results to be a tuple of 2, got tuple((1, 1, 4))",
    ),
    "not in a tuple": (lambda: run(lambda t: t, results=("rows", None)), "results to be a tuple of 2, got (1, 1, 4)"),
    "no such key": (
        lambda: run(lambda t: {"a": t}, results={"b": "rows"}),
        "results to be a dict with ['b'], got dict of ['a'] from fn",
    ),
    "another class": (lambda: run(lambda t: t, results=Output("rows")), "results to be a Output, got (1, 1, 4)"),
    "a LoDTensor": (
        lambda: run(lambda t: tl.from_lengths(t, [[1] * len(t)])),
        "to be (count 1, length 1, ...), got a torch.float32 LoDTensor of shape (1, 1, 4) from fn",
    ),
    "unknown results": (
        lambda: run(abs, results=("rows", "row")),
        "expected results[1] as 'rows', 'resized', 'sequences', ",
    ),
    "a number": (lambda: run(abs, results={"a": 3}), "expected results['a'] as 'rows', 'resized', 'sequences', "),
    "unknown layout": (lambda: run(abs, layout="channels_first"), "expected layout as one of ('batch_first', "),
    "a module that is not batch_first": (
        lambda: run(torch.nn.GRU(C, C), results=("rows", None)),
        "expected layout='length_first', which GRU takes, got 'batch_first'",
    ),
    "a module that is batch_first": (
        lambda: run(torch.nn.TransformerEncoderLayer(C, 2, 8, batch_first=True), layout="length_first"),
        "expected layout='batch_first', which TransformerEncoderLayer takes, got 'length_first'",
    ),
    "a module of channels": (
        lambda: run(torch.nn.MaxPool1d(3, 1, 1)),
        "expected layout='channels', which MaxPool1d takes, got 'batch_first'",
    ),
    "no function": (lambda: run(3), "expected fn as a function or a module, got 3"),
    "x": (lambda: tl.map_sequences(abs, X.values()), "expected x as a LoDTensor, got Tensor; see tl.from_lengths"),
    "moved x": (
        lambda: tl.map_sequences(abs, X[None]),
        "expected x as a LoDTensor or a plain tensor, got rows at dim 1, moved by",
    ),
    "level": (lambda: run(abs, level=2), "expected level in [-2, 1] or one of ('text', 'line'), got 2"),
    "level name": (lambda: run(abs, level="word"), "expected level in [-2, 1] or one of ('text', 'line'), got 'word'"),
    "others": (
        lambda: tl.map_sequences(torch.add, X, TWO, level="text"),
        "expected others with a sequence of level 0 for each of 3, got 2 at index 0",
    ),
    "others above": (
        lambda: tl.map_sequences(torch.add, X, X, tl.from_lengths(torch.randn(5, C), [[3, 2, 0], [1] * 5])),
        "expected others with the levels above level 1 that the others have, got LoDs that differ at index 1",
    ),
    "others per sequence": (
        lambda: tl.map_sequences(torch.add, X, torch.randn(9, C)),
        "expected others with a row for each of 5 sequences, got (9, 4) at index 0; what is the same for all sequences",
    ),
    "others that lost their rows": (
        lambda: tl.map_sequences(torch.add, X, X[torch.tensor([0, 3, 4, 5, 6])]),
        "expected others as a LoDTensor or a plain tensor, got rows that lost their structure in",
    ),
    "others of numbers": (
        lambda: tl.map_sequences(torch.add, X, 3),
        "expected others as tensors, got 3 at index 0; what is the same for all sequences goes by keyword",
    ),
    "pad_to without mask": (
        lambda: run(torch.nn.Linear(C, C), pad_to=[4]),
        "expected a fn that takes mask= for pad_to, got Linear, which does not; if it has another name there: lambda x, mask",
    ),
    "pad_to and a mask": (
        lambda: run(masked, pad_to=[4], mask=1),
        "expected no mask by keyword beside pad_to",
    ),
    "pad_to and another length": (
        lambda: run(masked, pad_to=[4], results=("rows", ("resized", "channels"))),
        "expected results of no other length beside pad_to, got results[1]=('resized', 'channels')",
    ),
    "another count of another length": (
        lambda: run(lambda t: t[:0], results="resized"),
        "results='resized' to be (count 1, any length, ...), got (0, 1, 4) from fn",
    ),
    "pad_to of a number": (lambda: run(masked, pad_to=4), "expected pad_to as a list of lengths, got 4"),
    "pad_to of nothing": (lambda: run(masked, pad_to=[]), "expected pad_to as a list of lengths, got []"),
    "pad_to 0": (lambda: run(masked, pad_to=[4, 0]), "expected pad_to[1] in [1, 2**31], got 0"),
    "fill": (lambda: run(abs, fill="0"), "expected fill as a number, got '0'"),
    "fill of a dtype": (
        lambda: run(lambda t: t.argmax(1), results="sequences", fill=0.5),
        "expected a whole fill within torch.int64, got 0.5",
    ),
}


def run(fn, **options):
    return tl.map_sequences(fn, X, **options)


@pytest.mark.parametrize("case", ERRORS)
def test_wrong_calls_name_the_argument_what_was_expected_and_what_came(case):
    call, words = ERRORS[case]
    with pytest.raises(tl.LoDError) as caught:
        call()
    assert str(caught.value).startswith("map_sequences: expected ") and words in str(caught.value), str(caught.value)


def test_a_wrong_module():
    for call, words in (
        (
            lambda: tl.nn.MapSequences(abs),
            "expected module as a torch.nn.Module, got builtin_function_or_method; see tl.map",
        ),
        (lambda: tl.nn.MapSequences(torch.nn.ReLU(), layout="bf"), "expected layout as one of"),
        (
            lambda: tl.nn.MapSequences(torch.nn.ReLU(), pad_to=[3]),
            "expected a fn that takes mask= for pad_to, got ReLU",
        ),
        (
            lambda: tl.nn.MapSequences(torch.nn.ReLU(), results=3),
            "expected results as 'rows', 'resized', 'sequences', ",
        ),
        (lambda: tl.nn.MapSequences(torch.nn.Flatten())(X), "expected results='rows' to be (count 1, length 1, ...)"),
        (lambda: tl.nn.MapSequences(torch.nn.ReLU())(X.values()), "expected x as a LoDTensor"),
    ):
        with pytest.raises(tl.LoDError) as caught:
            call()
        assert str(caught.value).startswith(f"MapSequences: {words}"), str(caught.value)
