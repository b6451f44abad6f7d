# SPDX-License-Identifier: Apache-2.0
"""tl.integrations without the libraries; tests/data/check_transformers.py, check_trainer.py and check_tokens.py have them."""

import sys
from types import SimpleNamespace

import pytest
import torch

import torch_lod as tl

OURS = tl.integrations.transformers


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ImportError, match="use: expected transformers to be installed, got none; pip install trans"
    ) as e:
        OURS.use(torch.nn.Linear(2, 2))
    assert isinstance(e.value, tl.LoDError)


def test_nothing_is_imported_before_it_is_asked_for():
    assert "transformers" not in sys.modules and "datasets" not in sys.modules and "tokenizers" not in sys.modules


def test_collators_want_a_model_that_was_prepared():
    with pytest.raises(
        TypeError, match=r"Collator: expected a model that tl\.integrations\.transformers\.use prepared, got"
    ):
        OURS.Collator(torch.nn.Linear(2, 2))


def encoding(ids, word_ids, offsets=None, visible=None, sequences=None):
    """As tokenizers.Encoding."""
    return SimpleNamespace(
        ids=ids,
        word_ids=word_ids,
        offsets=offsets or [(i, i + 1) for i in range(len(ids))],
        attention_mask=visible or [1] * len(ids),
        type_ids=[0] * len(ids),
        sequence_ids=sequences or [0] * len(ids),
    )


TEXTS = [
    encoding([2, 5, 6, 7, 3, 0], [None, 0, 0, 1, None, None], visible=[1, 1, 1, 1, 1, 0]),
    encoding([], []),
    encoding([8, 9], [0, 2]),
]


def test_levels_of_encodings():
    tokens = OURS.from_encoding(TEXTS)
    assert tokens.input_ids.to_list() == [[[2], [5, 6], [7], [3]], [], [[8], [9]]]
    assert tokens.word_ids.values().tolist() == [-1, 0, 0, 1, -1, 0, 2]
    assert tokens.offsets.shape == (7, 2) and tokens.input_ids.level_names == ("text", "word")
    grouped = OURS.from_encoding(TEXTS, lengths=[[1, 2]], words=False)
    assert grouped.input_ids.to_list() == [[[2, 5, 6, 7, 3]], [[], [8, 9]]]
    spans = [[(0, 2), (2, 9)], [(0, 0)], [(0, 1), (1, 1), (1, 2)]]
    assert OURS.from_encoding(TEXTS, spans=spans, words=False).input_ids.to_list() == [
        [[2, 5], [6, 7, 3]],
        [[]],
        [[8], [], [9]],
    ]
    pair = encoding([4, 3, 4, 5], [0, None, 0, 1], sequences=[0, None, 1, 1])
    assert OURS.from_encoding([pair]).word_ids.values().tolist() == [0, -1, 1, 2]
    several = encoding([2, 2, 5], [None, None, 0])
    assert OURS.from_encoding([several]).input_ids.to_list() == [[[2], [2], [5]]]
    assert OURS.from_encoding([]).input_ids.to_list() == []


def test_labels_of_their_tokens():
    tokens = OURS.from_encoding(TEXTS)
    labels = [[10, 11], [], [12, 13, 14]]
    first, every = OURS.labels_of_tokens(labels, tokens), OURS.labels_of_tokens(labels, tokens, all_tokens=True)
    assert first.values().tolist() == [-100, 10, -100, 11, -100, 12, 14]
    assert every.values().tolist() == [-100, 10, 10, 11, -100, 12, 14] and every.lod is tokens.input_ids.lod
    with pytest.raises(ValueError, match=r"expected a label for each of 2 words of text 0, got 1$"):
        OURS.labels_of_tokens([[10], [], [12, 13, 14]], tokens)
    with pytest.raises(ValueError, match="expected a label for each of 0 words of text 1, got 1; if its end was cut"):
        OURS.labels_of_tokens([[10, 11], [9], [12, 13, 14]], tokens)
    assert OURS.labels_of_tokens([[10, 11], [9], [12, 13, 14]], tokens, truncated=True).values().equal(first.values())
    single = OURS.from_encoding([encoding([5], [0]), encoding([6, 6], [0, 0])])
    assert OURS.labels_of_tokens([[1], [2]], single).values().tolist() == [1, 2, -100]
