# SPDX-License-Identifier: Apache-2.0
"""tl.integrations without the libraries; tests/data/check_transformers.py, check_trainer.py and check_tokens.py have them."""

import importlib
import re
import sys
import warnings
from pathlib import Path
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


def test_a_version_that_is_not_followed_is_said(monkeypatch):
    private = importlib.import_module("torch_lod.integrations.transformers.private")
    last = private.said(private.LAST)
    for version, warns in ((f"{last}.3", False), (private.said(private.FIRST), False), ("99.1.0.dev0", True)):
        monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__=version))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            private.say_if_newer()
        assert [f"to {last}, and {version} is installed" in str(w.message) for w in seen] == [True] * warns


def test_the_private_life_of_the_library_is_followed_in_one_file():
    folder = Path(OURS.__file__).parent
    private = re.compile(
        r"(?<!set)_attn_implementation|_is_stateful|relative_attention_|causal_conv1d_fn\(|sys\.modules"
    )
    assert [path.name for path in folder.glob("*.py") if private.search(path.read_text())] == ["private.py"]


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


# -- check_packing, on functions instead of a model

TABLE = torch.linspace(-1, 1, 40).view(10, 4)
SAMPLES = [[1, 2, 3], [4], [5, 6, 5, 4]]


def sound(input_ids, position_ids=None, **others):
    """A row by itself, and its position."""
    positions = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
    return {"logits": TABLE[input_ids] + positions[..., None] / 7}


def leaking(input_ids, **others):
    """The sum of all rows so far."""
    return sound(input_ids)["logits"].cumsum(1)


def test_packings_that_leak_and_that_do_not():
    for packing in (None, "position_ids", "cu_seqlens", "seq_idx", "attention_mask"):
        report = OURS.check_packing(sound, packing, samples=SAMPLES)
        assert report.ok and report.check() is report and report.lengths == [3, 1, 4] and "no leak" in repr(report)
        assert report.changes.shape == (3, 3) and report.changes.diagonal().all() and not report.differences.any()
    report = OURS.check_packing(leaking, samples=tl.lod_tensor([[*SAMPLES, []]]))
    assert report.leaks == [(0, 1), (0, 2), (1, 2)] and report.wrong == [1, 2] and not report.ok
    assert "leaking with position_ids, 3 samples of 3, 1, 4 tokens" in repr(report)
    for call in (report.check, lambda: OURS.check_packing(leaking, samples=SAMPLES, raises=True)):
        with pytest.raises(ValueError, match="expected samples that are as alone, got PackingReport") as raised:
            call()
        assert isinstance(raised.value, tl.LoDError)


def test_the_arguments_of_every_packing():
    seen = []

    def model(**given):
        seen.append(given)
        return sound(**given)

    for packing, expected in {
        "position_ids": {},
        "cu_seqlens": {
            "cu_seq_lens_q": [0, 3, 4, 8],
            "cu_seq_lens_k": [0, 3, 4, 8],
            "max_length_q": 4,
            "max_length_k": 4,
        },
        "seq_idx": {"seq_idx": [[0, 0, 0, 1, 2, 2, 2, 2]]},
        "attention_mask": {"attention_mask": [[1, 1, 1, 2, 3, 3, 3, 3]]},
    }.items():
        seen.clear()
        OURS.check_packing(model, packing, samples=SAMPLES, flag=True)
        given = {name: v.tolist() if isinstance(v, torch.Tensor) else v for name, v in seen[0].items()}
        positions = [[0, 1, 2, 0, 0, 1, 2, 3]]
        assert given == {"input_ids": [[1, 2, 3, 4, 5, 6, 5, 4]], "position_ids": positions, "flag": True, **expected}


def test_positions_that_do_not_restart_are_no_leak_but_wrong():
    def through(samples):
        rows = torch.cat(samples)
        return {"input_ids": rows[None], "position_ids": torch.arange(len(rows))[None]}

    report = OURS.check_packing(sound, through, samples=SAMPLES)
    assert not report.leaks and report.wrong == [1, 2] and "not as alone: sample 1 (" in repr(report)


def test_layouts_of_ones_own():
    def padded(samples):
        return {"input_ids": torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)}

    def unpack(output):
        rows = output["logits"]
        return [row[: len(s)] for row, s in zip(rows, SAMPLES)] if len(rows) == 3 else list(rows)

    assert OURS.check_packing(sound, padded, samples=SAMPLES, unpack=unpack).ok


def test_modes_of_modules_come_back():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.quiet = torch.nn.Dropout(0.5), torch.nn.Dropout(0.5).eval()

        def get_input_embeddings(self):
            return torch.nn.Embedding.from_pretrained(TABLE)

        def forward(self, **given):
            return (self.drop(sound(**given)["logits"]), None)

    model = Model()
    assert OURS.check_packing(model).lengths == [5, 1, 9, 3]
    assert model.training and model.drop.training and not model.quiet.training


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: OURS.check_packing(3), TypeError, "expected model as a module or a function, got 3"),
        (lambda: OURS.check_packing(sound), TypeError, "expected samples for a model without an embedding of ids"),
        (lambda: OURS.check_packing(sound, "pad"), ValueError, "expected packing as one of ('position_ids', "),
        (lambda: OURS.check_packing(sound, [1]), ValueError, "expected packing as one of ('position_ids', "),
        (lambda: OURS.check_packing(sound, samples=3), TypeError, "expected samples as a list of ids for each"),
        (
            lambda: OURS.check_packing(sound, samples=[[1], ["a"]]),
            TypeError,
            "expected samples of ids, got ['a'] at index 1",
        ),
        (lambda: OURS.check_packing(sound, samples=[[1], [0.5]]), TypeError, "expected samples of ids, 1-d, got [0.5]"),
        (
            lambda: OURS.check_packing(sound, samples=[[1], []]),
            ValueError,
            "expected at least 2 samples with tokens, got 1",
        ),
        (
            lambda: OURS.check_packing(sound, samples=[[1, 2]]),
            ValueError,
            "expected at least 2 samples with tokens, got 1",
        ),
        (lambda: OURS.check_packing(sound, samples=[[1]] * 65), ValueError, "expected at most 64 samples"),
        (lambda: OURS.check_packing(sound, samples=[[1], [1]]), ValueError, "expected samples of at least 2 different"),
        (
            lambda: OURS.check_packing(sound, samples=SAMPLES, unpack=1),
            TypeError,
            "expected unpack as a function or None",
        ),
        (
            lambda: OURS.check_packing(sound, samples=SAMPLES, unpack=lambda o: [1]),
            TypeError,
            "expected unpack to return a tensor for each of 3 samples, got [1]",
        ),
        (lambda: OURS.check_packing(sound, samples=SAMPLES, raises=1), TypeError, "expected raises as a bool, got 1"),
        (
            lambda: OURS.check_packing(sound, lambda s: 3, samples=SAMPLES),
            TypeError,
            "expected packing to return keyword",
        ),
        (
            lambda: OURS.check_packing(lambda **given: {"loss": torch.zeros(())}, samples=SAMPLES),
            TypeError,
            "expected an output with a row for each of 8 tokens, (1, 8, ...), got",
        ),
        (
            lambda: OURS.check_packing(lambda input_ids, **g: torch.ones(1, input_ids.shape[1]), samples=SAMPLES),
            ValueError,
            "expected outputs that depend on their tokens, got no change of sample 0 itself",
        ),
    ],
)
def test_errors_of_check_packing(call, kind, said):
    with pytest.raises(kind) as raised:
        call()
    assert isinstance(raised.value, tl.LoDError) and said in str(raised.value), raised.value
    assert str(raised.value).startswith("check_packing: ")
