# SPDX-License-Identifier: Apache-2.0
"""The lemmatiser from end to end, on the sample of the treebank."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import figures
import lemma_training
import lemmas
import lemmatize as example
import treebank
from lemmas import Alphabet
from treebank import Word

LAST_LINE = re.compile(r"test accuracy \d+\.\d\d% \(unseen words \d+\.\d\d%, \d+ s\)")
TINY = ["--data", treebank.SAMPLE, "--limit", 250, "--hidden", 8, "--embedding", 8, "--batch", 32, "--epochs", 2]


@pytest.fixture(autouse=True)
def _threads():
    """The example sets the number of threads; other tests shall not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr(figures, "available", lambda: False)


def run(capsys, *arguments, expect=0):
    """The lines on stdout, and stderr as a whole."""
    status = example.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert status == expect, out + err
    return out.splitlines(), err


# ---- words ---------------------------------------------------------------------------------------

WORDS = [Word("left", "leave", "VERB")] * 3 + [Word("left", "left", "ADJ")] * 2 + [Word("Öl", "oil", "X")]


def test_symbols_of_words():
    alphabet = Alphabet.of(WORDS)
    assert alphabet.tags == ["ADJ", "VERB", "X"] and alphabet.letters == ["e", "f", "l", "t"]
    assert [alphabet.symbols[n] for n in alphabet.source(("felt", "ADJ"))] == ["ADJ", *"felt"]
    assert [alphabet.symbols[n] for n in alphabet.source(("f", ""))] == ["any", "f"]
    numbers = alphabet.spell("tÖlß")
    assert [alphabet.symbols[n] for n in numbers] == ["t", "?", "l", "?"]
    assert alphabet.text(numbers, "tÖlß") == "tÖlß"
    assert alphabet.text([*numbers, Alphabet.UNKNOWN, alphabet.of_tag["X"]], "äö") == "tälö"
    again = Alphabet(alphabet.tags, alphabet.letters)
    assert again.symbols == alphabet.symbols and len(again) == 11


def test_baselines_and_their_accuracy():
    simple = lemmas.baselines(WORDS)
    asked = [("left", "VERB"), ("left", "ADJ"), ("left", "NOUN"), ("left", ""), ("new", "ADJ")]
    assert [simple["copy"](q) for q in asked] == ["left"] * 4 + ["new"]
    assert [simple["look-up"](q) for q in asked] == ["leave"] * 4 + ["new"]
    assert [simple["look-up with tag"](q) for q in asked] == ["leave", "left", "leave", "leave", "new"]

    test = [*WORDS, Word("new", "new", "ADJ"), Word("geese", "goose", "NOUN")]
    seen = {"left", "Öl"}
    assert lemmas.accuracy(test, simple["copy"], seen) == {"all": 3 / 8, "unseen": 1 / 2}
    assert lemmas.accuracy(test, simple["look-up"], seen) == {"all": 5 / 8, "unseen": 1 / 2}
    assert lemmas.accuracy(test, simple["look-up with tag"], seen) == {"all": 7 / 8, "unseen": 1 / 2}
    assert lemmas.accuracy(test, simple["look-up with tag"], seen, tagged=False) == {"all": 5 / 8, "unseen": 1 / 2}
    assert lemmas.accuracy(WORDS, simple["copy"], seen)["unseen"] == 0
    first, second = lemmas.frequent_errors(test, simple["look-up"], seen, 9)
    left = {"form": "left", "tag": "ADJ", "lemma": "left", "written": "leave", "times": 2, "seen": True}
    assert first == left and second["form"] == "geese" and not second["seen"]


def test_words_to_draw():
    written = {
        ("geese", "N"): "goose",
        ("wolves", "N"): "wolf",
        ("leaves", "N"): "leaf",
        ("ran", "V"): "ran",
        ("a", "X"): "a",
    }
    lemmas_of = written | {("ran", "V"): "run"}
    words = [Word(form, lemma, tag) for (form, tag), lemma in lemmas_of.items()]
    drawn = example.examples(words, written, {"geese"})
    assert [form for (form, _), _ in drawn] == ["leaves", "geese", "ran"] and drawn[0][1] == "leaf"
    assert example.examples(words[-1:], written, set()) == []


# ---- the model -----------------------------------------------------------------------------------


@pytest.fixture
def model():
    torch.manual_seed(0)
    alphabet = Alphabet("AB", "abcdefgh")
    return example.Lemmatizer(example.Settings(hidden=6, embedding=8), len(alphabet)).eval(), alphabet


def test_search_and_training_score_alike(model):
    """The words of a search, given to the model in one call, have the scores that the search gave them step by step."""
    net, alphabet = model
    asked = [("abc", "A"), ("h", "B"), ("", "A"), ("gfedcba", "")]
    sources = tl.lod_tensor([alphabet.source(q) for q in asked])
    with torch.no_grad():
        found = net.search(sources, beam=5, n_best=3, longest=6)
        for i, (hypotheses, scores, ended) in enumerate(zip(found.tokens.seq, found.scores.seq, found.ended.seq)):
            assert len(scores) == 3 and scores.tolist() == sorted(scores.tolist(), reverse=True)
            for word, score, end in zip(hypotheses.seq, scores, ended):
                wanted = [*word.tolist(), *[Alphabet.END] * bool(end)]
                given = tl.lod_tensor([[Alphabet.BEGIN, *wanted[:-1]]])
                log_p = net(sources.seq[i : i + 1], given).values()
                torch.testing.assert_close(log_p[range(len(wanted)), wanted].sum(), score)


def test_rows_are_probabilities_and_words_do_not_see_each_other(model):
    net, alphabet = model
    sources = tl.lod_tensor([alphabet.source(q) for q in [("abc", "A"), ("dd", "B"), ("efgh", "")]])
    given = tl.lod_tensor([[0, *alphabet.spell(text)] for text in ("ab", "dde", "")])
    scores = net(sources, given)
    torch.testing.assert_close(scores.exp().values().sum(1), torch.ones(len(given)), rtol=0, atol=1e-5)
    for i in range(3):
        alone = net(sources.seq[i : i + 1], given.seq[i : i + 1])
        torch.testing.assert_close(alone.values(), scores.seq[i])
    with torch.no_grad():
        weights = net.attention(sources, given)
    assert [w.shape for w in weights] == [(3, 4), (4, 3), (1, 5)]
    assert all(abs(w.sum(1) - 1).max() < 1e-5 for w in weights)


# ---- training ----------------------------------------------------------------------------------


def test_train_and_predict(tmp_path, capsys):
    lines, _ = run(capsys, *TINY, "--epochs", 1, "--out", tmp_path / "out")
    assert LAST_LINE.fullmatch(lines[-1])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["settings"]["limit"] == 250 and len(report["epochs"]) == 1
    assert report["data"]["training_words"] == report["data"]["test_words"] == 250
    names = [
        "copy",
        "look-up",
        "look-up with tag",
        "network, without tags",
        "look-up with tag, else network",
        "network",
    ]
    assert list(report["test"]) == names and report["errors"]
    assert report["test"]["look-up"]["unseen"] == report["test"]["copy"]["unseen"]
    for name in ("checkpoint.pt", "report.json", "learning_curve.png", "attention.png"):
        assert f"saved {tmp_path / 'out' / name}" in lines
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert not list((tmp_path / "out").glob("*.unfinished"))

    words = tmp_path / "words.txt"
    words.write_text("\ufeffraised VERB\r\n\n  geese  \nNew York\tPROPN\nΩ\tNOUN\n", encoding="utf-8")
    lines, _ = run(capsys, "--predict", words, "--out", tmp_path / "out")
    columns = [line.split("\t") for line in lines]
    assert [re.sub(r"^ *\d+\.\d%  ", "", c[0]) for c in columns] == ["raised", "geese", "New York", "Ω"]
    assert [c[1] for c in columns] == ["VERB", "-", "PROPN", "NOUN"]
    assert all(len(c) in (3, 4) for c in columns)
    bad = {
        "a b c": "line 2: expected a word, or a word and its tag, got 'a b c'",
        "a\tNOUN\tb": "line 2: expected a word",
        "raised verb": "'verb' is no tag of the training set, which has ADJ, ADP",
    }
    for line, message in bad.items():
        words.write_text(f"good\n{line}\n")
        _, err = run(capsys, "--predict", words, "--out", tmp_path / "out", expect=2)
        assert err.startswith("error: ") and message in err
    for content, message in ((b" \n", "has no words"), (b"\xff", "not UTF-8 at byte 0")):
        words.write_bytes(content)
        _, err = run(capsys, "--predict", words, "--out", tmp_path / "out", expect=2)
        assert message in err
    _, err = run(capsys, "--predict", tmp_path / "none.txt", "--out", tmp_path / "out", expect=2)
    assert "cannot read" in err


def test_it_learns(no_pictures, tmp_path, capsys):
    """Words that it is shown again and again are right, and so are letters that no other word has."""
    folder = tmp_path / "data"
    folder.mkdir()
    forms = "geese goose NOUN, goose goose NOUN, left leave VERB, leave leave VERB, left left ADJ, Öfters Öfter ADV"
    rows = ("\t".join((str(i), *word.split())) for i, word in enumerate(forms.split(", "), 1))
    text = "".join(row + "\t_" * 6 + "\n" for row in rows) * 16 + "\n"
    for split in treebank.SPLITS:
        (folder / f"{split}.conllu").write_text(text, encoding="utf-8")
    options = ["--epochs", 25, "--hidden", 16, "--batch", 5, "--lr", 0.02, "--dropout", 0, "--untagged", 0]
    lines, _ = run(capsys, "--data", folder, *options, "--out", tmp_path / "out")
    assert lines[-1].startswith("test accuracy 100.00%")
    assert any("matplotlib is not installed" in line for line in lines)


def test_resume_equals_a_run_without_a_stop(no_pictures, tmp_path, capsys, monkeypatch):
    arguments = [*TINY, "--seed", 3, "--limit", 100]
    run(capsys, *arguments, "--out", tmp_path / "whole")
    save = lemma_training.Trainer.save

    def save_and_stop(trainer, path):
        save(trainer, path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lemma_training.Trainer, "save", save_and_stop)
        _, err = run(capsys, *arguments, "--out", tmp_path / "stopped", expect=130)
        assert "--resume" in err
    torch.manual_seed(99)
    lines, _ = run(capsys, "--resume", "--out", tmp_path / "stopped")
    assert "resumed after epoch 1 of 2" in lines and LAST_LINE.fullmatch(lines[-1])

    whole, stopped = (example.load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("whole", "stopped"))
    assert whole["losses"] == stopped["losses"]
    for name, value in whole["model"].items():
        assert torch.equal(value, stopped["model"][name]), name
    assert [e["dev"] for e in whole["history"]] == [e["dev"] for e in stopped["history"]]

    _, err = run(capsys, "--resume", "--hidden", 9, "--out", tmp_path / "stopped", expect=2)
    assert "hidden 8, not 9" in err
    state = {**stopped, "fingerprint": 0}
    torch.save(state, tmp_path / "stopped" / "checkpoint.pt")
    _, err = run(capsys, "--resume", "--out", tmp_path / "stopped", expect=2)
    assert "not the data of the checkpoint" in err


# ---- bad input -----------------------------------------------------------------------------------


def test_data_that_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(treebank, "DEFAULT", tmp_path / "none")
    _, err = run(capsys, "--out", tmp_path / "out", expect=2)
    assert "git clone" in err and f"--data {treebank.SAMPLE}" in err
    assert not (tmp_path / "out").exists()
    for option in (["--resume"], ["--predict", "x.txt"]):
        _, err = run(capsys, *option, "--out", tmp_path, expect=2)
        assert "there is no checkpoint" in err


@pytest.mark.parametrize(
    "option", ["--epochs=0", "--lr=nan", "--dropout=1", "--untagged=1", "--embedding=7", "--beam=0"]
)
def test_settings_out_of_range(option, capsys):
    with pytest.raises(SystemExit) as stop:
        example.main([option])
    assert stop.value.code == 2 and option.split("=")[0] in capsys.readouterr().err
