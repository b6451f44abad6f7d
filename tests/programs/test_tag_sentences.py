# SPDX-License-Identifier: Apache-2.0
"""The tagger from end to end, on the sample of a treebank in the repository."""

import json
import re
import shutil
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import figures
import running
import tag_sentences as example
import tagging
import treebank

LAST_LINE = re.compile(r"test accuracy \d+\.\d% \(most frequent tags 76\.8%, \d+ s\)")
SAMPLE = ["--data", treebank.SAMPLE]
TINY = [*SAMPLE, "--hidden", "16", "--embedding", "16", "--batch", "100", "--epochs", "2"]


@pytest.fixture(autouse=True)
def _threads():
    """The example sets the number of threads; other tests shall not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def splits():
    return treebank.load(treebank.SAMPLE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a model that learned a little, and what was printed."""
    out = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("builtins.print", lambda *parts, **_: lines.append(" ".join(map(str, parts))))
        assert (
            example.main([str(a) for a in (*TINY, "--batch", "200", "--epochs", "5", "--lr", "0.03", "--out", out)])
            == 0
        ), lines
    return out, lines


def run(capsys, *arguments, expect=0):
    """The lines on stdout, and stderr as a whole."""
    status = example.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert status == expect, out + err
    return out.splitlines(), err


# ---- text ----------------------------------------------------------------------------------------


def test_documents_are_rows_of_characters(splits):
    documents = splits["dev"]
    vocabulary = tagging.Vocabulary.of(splits["train"])
    text = tagging.as_text(documents, vocabulary)
    words = [word for document in documents for word in document.words()]
    assert text.characters.lod.level_names == tagging.LEVELS and text.words.lod.level_names == tagging.LEVELS[:3]
    assert text.words.lod == text.tags.lod == text.characters.lod.outer("word")
    assert text.words.lod.row_lengths("document").tolist() == [sum(1 for _ in d.words()) for d in documents]
    assert text.words.lod.lengths("document").tolist() == [len(d.paragraphs) for d in documents]
    assert text.characters.lod.lengths("word").tolist() == [len(word.form) for word in words]
    assert [vocabulary.tags[tag] for tag in text.tags.tolist()] == [word.upos for word in words]
    for numbers, known, entries in (
        (text.characters, vocabulary.characters, "".join(word.form for word in words)),
        (text.words, vocabulary.words, [word.form.lower() for word in words]),
    ):
        assert len(numbers) == len(entries) and 0 in numbers.tolist()
        for number, entry in zip(numbers.tolist(), entries, strict=True):
            assert (known[number - 1] == entry) if number else (entry not in known)


def test_rare_words_are_unknown_more_often(splits):
    counts = Counter(word.form.lower() for document in splits["train"] for word in document.words())
    vocabulary = tagging.Vocabulary.of(splits["train"])
    assert set(vocabulary.words) == {word for word, count in counts.items() if count >= 2}
    rates = vocabulary.unknown_rates()
    assert rates[0] == 0 and len(rates) == len(vocabulary.words) + 1
    assert rates[1:].tolist() == pytest.approx([1 / (1 + counts[word]) for word in vocabulary.words])


@pytest.mark.parametrize("most", [1, 40, 400, 10**9])
def test_long_documents_are_cut_between_sentences(splits, most):
    whole = splits["train"]
    parts = tagging.pieces(whole, most)
    assert [s for d in parts for s in d.sentences()] == [s for d in whole for s in d.sentences()]
    lengths = [sum(map(len, d.sentences())) for d in parts]
    assert all(n <= most or sum(1 for _ in d.sentences()) == 1 for n, d in zip(lengths, parts, strict=True))
    assert all(paragraph for d in parts for paragraph in d.paragraphs)
    if most == 10**9:
        assert parts == whole
    for one, other in pairwise(parts):  # nothing is cut that would have fitted
        assert one.name != other.name or sum(map(len, one.sentences())) + len(next(other.sentences())) > most


def test_batches_are_whole_documents(splits):
    text = tagging.as_text(splits["train"], tagging.Vocabulary.of(splits["train"]))
    in_order = list(tagging.batches(text, 300))
    assert torch.equal(torch.cat([b.words.values() for b in in_order]), text.words.values())
    sizes = [len(b.words) for b in in_order]
    longest = text.words.lod.row_lengths("document").max()
    assert all(300 - longest < size < 300 + longest for size in sizes[:-1])
    drawn = list(tagging.batches(text, 300, np.random.default_rng(0)))
    assert [len(b.words) for b in drawn] != sizes
    for batch in drawn:
        assert batch.characters.lod.outer("word") == batch.words.lod == batch.tags.lod
    for a, b in ((text.words, [x.words for x in drawn]), (text.characters, [x.characters for x in drawn])):
        key = lambda x: sorted(str(document.to_list()) for document in x.seq)  # noqa: E731
        assert key(a) == sorted(entry for x in b for entry in key(x))
    assert tagging.padded_cells(text, 300) > 10 * len(text.characters)


def test_plain_text():
    text = "He didn't  pay $1,000.50 (ever).\n\"Why?\" they\u2019re\nasking.\n\n \nIt's over!"
    [document] = tagging.split_text(text, "x")
    assert [[" ".join(w.form for w in s) for s in p] for p in document.paragraphs] == [
        ["He did n't pay $ 1,000.50 ( ever ) .", '" Why ? "', "they \u2019re asking ."],
        ["It 's over !"],
    ]
    assert tagging.split_text(" \n\n", "x") == []


# ---- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crf", "softmax"])
def test_a_document_does_not_depend_on_the_batch(splits, name):
    vocabulary = tagging.Vocabulary.of(splits["train"])
    text = tagging.as_text(splits["dev"], vocabulary)
    model = example.make_tagger(name, tagging.Settings(hidden=16), vocabulary).eval()
    with torch.no_grad():
        together, alone = model(text), [model(part) for part in tagging.batches(text, 1)]
        assert len(alone) == len(splits["dev"]) and together.lod == text.words.lod
        torch.testing.assert_close(together.values(), torch.cat([x.values() for x in alone]), rtol=0, atol=1e-5)
        p, tags = model.probabilities(text), model.tag(text)
    torch.testing.assert_close(p.values().sum(1), torch.ones(len(p)))
    # The tags that are best one by one are the best path where nothing follows.
    short = text.words.with_values(torch.ones(len(tags)))
    alone_in_sentence = tl.sequence_expand_as(tl.sequence_pool(short, "sum"), short).values() == 1
    compared = alone_in_sentence if name == "crf" else torch.ones(len(tags), dtype=torch.bool)
    assert tags.lod == text.words.lod and compared.any()
    assert torch.equal(tags.values()[compared], p.values().argmax(1)[compared])
    # What a word is called depends on its spelling, its sentence and its document, and on no other.
    changed = text.characters.values().clone()
    changed[0] += 1
    other = model(text._replace(characters=text.characters.with_values(changed)))
    moved = (other.values() != together.values()).any(1)
    first = text.words.lod.row_lengths("document")[0]
    assert moved[:first].all() and not moved[first:].any()


def test_sentences_are_read_one_by_one(splits):
    """The result of a paragraph's sentences does not depend on their order, but the order of words counts."""
    vocabulary = tagging.Vocabulary.of(splits["train"])
    text = tagging.as_text(splits["dev"], vocabulary)
    model = example.make_tagger("crf", tagging.Settings(hidden=16), vocabulary).eval()
    for level, counts in (("paragraph", False), ("sentence", True)):
        turned = tagging.Text(*(tl.sequence_reverse(x, level=level) for x in text))
        difference = model(turned) - tl.sequence_reverse(model(text), level=level)
        assert (difference.abs().max() > 1e-3) == counts
        torch.testing.assert_close(model.loss(turned), model.loss(text), rtol=0.1 if counts else 1e-5, atol=0)


def test_rare_words_are_unknown_in_training(splits):
    vocabulary = tagging.Vocabulary.of(splits["train"])
    text = tagging.as_text(splits["dev"], vocabulary)
    model = example.make_tagger("crf", tagging.Settings(hidden=16, dropout=0), vocabulary)
    assert not torch.equal(model(text), model.eval()(text))
    model.unknown_rates.zero_()
    assert torch.equal(model.train()(text), model.eval()(text))


def test_the_loss_is_that_of_the_tags(splits):
    vocabulary = tagging.Vocabulary.of(splits["train"])
    text = tagging.as_text(splits["dev"], vocabulary)
    crf, softmax = (example.make_tagger(n, tagging.Settings(hidden=16), vocabulary).eval() for n in ("crf", "softmax"))
    for parameter in crf.crf.parameters():
        torch.nn.init.zeros_(parameter)  # without transitions the CRF is the softmax
    crf.load_state_dict(softmax.state_dict(), strict=False)
    torch.testing.assert_close(crf.loss(text), softmax.loss(text))
    right = softmax(text).values().log_softmax(1)[torch.arange(len(text.tags)), text.tags.values()]
    torch.testing.assert_close(softmax.loss(text), -right.mean())


# ---- training ----------------------------------------------------------------------------------


def test_train(trained, splits):
    out, lines = trained
    assert LAST_LINE.fullmatch(lines[-1])
    report = json.loads((out / "report.json").read_text())
    assert set(report["accuracies"]) == {"crf", "softmax", "most frequent"}
    for name in ("crf", "softmax"):
        assert len(report["epochs"][name]) == 5
        assert report["epochs"][name][-1]["loss"] < 0.6 * report["epochs"][name][0]["loss"]
        assert report["accuracies"][name]["all"] > 0.5, report["accuracies"]  # nouns are 17%
    words = [word for document in splits["test"] for word in document.words()]
    counts = np.array(report["confusion"])
    assert counts.sum() == len(words) == 827
    assert np.trace(counts) / len(words) == pytest.approx(report["test_accuracy"])
    assert report["test_accuracy"] == report["accuracies"]["crf"]["all"]
    assert dict(zip(report["data"]["tags"], counts.sum(1), strict=True))["NOUN"] == sum(w.upos == "NOUN" for w in words)
    for name in ("checkpoint.pt", "report.json", "learning_curve.png", "confusion.png"):
        assert f"saved {out / name}" in lines and (out / name).stat().st_size > 0
    assert not list(out.glob("*.unfinished"))


def test_known_and_unknown_words():
    word = lambda form, tag: treebank.Word(form, "_", tag)  # noqa: E731
    train = [
        treebank.Document("a", [[[word("x", "A"), word("x", "B"), word("x", "B"), word("y", "A"), word("z", "A")]]])
    ]
    test = [treebank.Document("b", [[[word("x", "B"), word("y", "B"), word("X", "A"), word("new", "C")]]])]
    found = tagging.most_frequent_tags(train, test)
    assert found == ["B", "A", "A", "A"]
    assert tagging.accuracies(found, train, test) == {"all": 0.5, "known": 0.5, "unknown": 0.5}
    assert tagging.accuracies(["B", "B", "B", "C"], train, test) == {"all": 0.75, "known": 1, "unknown": 0.5}
    assert tagging.confusion(found, test, ["A", "B", "C"]) == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("saves", [1, 3], ids=["in the first model", "in the second one"])
def test_resume_equals_a_run_without_a_stop(saves, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(figures, "available", lambda: False)
    arguments = [*TINY, "--limit", "9", "--seed", "3"]
    lines, _ = run(capsys, *arguments, "--out", tmp_path / "whole")
    assert any("matplotlib is not installed" in line for line in lines)

    save, count = example.save_checkpoint, iter(range(1, 5))

    def save_and_stop(state, path):
        save(state, path)
        if next(count) == saves:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(example, "save_checkpoint", save_and_stop)
        _, err = run(capsys, *arguments, "--out", tmp_path / "stopped", expect=130)
        assert "--resume" in err
    torch.manual_seed(99)
    lines, _ = run(capsys, "--resume", "--out", tmp_path / "stopped")
    name = "crf" if saves == 1 else "softmax"
    assert f"{name}: resumed after epoch 1 of 2" in lines and lines[-1].startswith("test accuracy")

    whole, stopped = (running.load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("whole", "stopped"))
    assert list(whole["models"]) == list(stopped["models"]) == ["crf", "softmax"]
    for name, one in whole["models"].items():
        other = stopped["models"][name]
        assert one["losses"] == other["losses"] and len(one["losses"]) > 5
        assert [e["dev_accuracy"] for e in one["history"]] == [e["dev_accuracy"] for e in other["history"]]
        for key, value in one["model"].items():
            assert torch.equal(value, other["model"][key]), key

    _, err = run(capsys, "--resume", "--hidden", "20", "--out", tmp_path / "stopped", expect=2)
    assert "hidden 16, not 20" in err
    if saves == 1:
        changed = tmp_path / "changed"
        shutil.copytree(treebank.SAMPLE, changed)
        state = whole | {"settings": whole["settings"] | {"data": str(changed)}}
        path = changed / "sample-ud-train.conllu"
        path.write_text(path.read_text(encoding="utf-8").replace("NOUN", "VERB", 500), encoding="utf-8")
        torch.save(state, tmp_path / "whole" / "checkpoint.pt")
        _, err = run(capsys, "--resume", "--out", tmp_path / "whole", expect=2)
        assert "not the data of the checkpoint" in err


# ---- prediction --------------------------------------------------------------------------------


def test_predict_a_text(trained, tmp_path, capsys):
    out, _ = trained
    (tmp_path / "text.txt").write_text("I have the book. You did n't see ☃!\n\nOK", encoding="utf-8")
    lines, err = run(capsys, "--out", out, "--predict", tmp_path / "text.txt")
    assert err == "" and [line.split("\t")[0] for line in lines] == [
        *("I", "have", "the", "book", ".", "", "You", "did", "n't", "see", "☃", "!", "", "OK", "")
    ]
    tags = dict(line.split("\t")[:2] for line in lines if line)
    assert (tags["I"], tags["the"], tags["."], tags["!"]) == ("PRON", "DET", "PUNCT", "PUNCT")
    assert all(0 < float(line.split("\t")[2].rstrip("%")) <= 100 for line in lines if line)


def test_predict_a_treebank(trained, splits, capsys):
    out, _ = trained
    lines, err = run(capsys, "--out", out, "--predict", treebank.SAMPLE / "sample-ud-test.conllu")
    words = [word for document in splits["test"] for word in document.words()]
    rows = [line.split("\t") for line in lines if line]
    assert [form for form, _, _ in rows] == [word.form for word in words]
    assert lines.count("") == 83  # sentences
    right = sum(tag == word.upos for (_, tag, _), word in zip(rows, words, strict=True))
    assert err == f"{right} of 827 tags as in the file ({right / 827:.1%})\n"
    report = json.loads((out / "report.json").read_text())
    assert right / 827 == pytest.approx(report["test_accuracy"])

    state = example.load_state(out)
    settings, vocabulary = tagging.Settings(**state["settings"]), tagging.Vocabulary(**state["vocabulary"])
    model = example.make_tagger("crf", settings, vocabulary).eval()
    model.load_state_dict(state["models"]["crf"]["model"])
    p = model.probabilities(tagging.as_text(tagging.pieces(splits["test"], settings.batch), vocabulary))
    expected = [p[i, vocabulary.tags.index(tag)].item() for i, (_, tag, _) in enumerate(rows)]
    assert [float(chance.rstrip("%")) for _, _, chance in rows] == pytest.approx([100 * x for x in expected], abs=0.06)


# ---- bad input ---------------------------------------------------------------------------------


def test_texts_that_cannot_be_tagged(trained, tmp_path, capsys):
    out, _ = trained
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "short.conllu").write_text("1\tone\ttwo\n")
    for name, message in {
        "none.txt": "cannot read",
        "empty.txt": "has no words",
        "latin.txt": "not UTF-8, unexpected end of data at byte 3",
        "short.conllu": "line 1: 3 columns",
        "none.conllu": "cannot read",
    }.items():
        _, err = run(capsys, "--out", out, "--predict", tmp_path / name, expect=2)
        assert message in err and name in err


def test_checkpoints_that_cannot_be_used(tmp_path, capsys):
    for option in (["--resume"], ["--predict", "x.txt"]):
        _, err = run(capsys, *option, "--out", tmp_path, expect=2)
        assert "there is no checkpoint" in err
        torch.save({"fingerprint": 1, "settings": {}}, tmp_path / "checkpoint.pt")
        _, err = run(capsys, *option, "--out", tmp_path, expect=2)
        assert "not a checkpoint of this example" in err
        (tmp_path / "checkpoint.pt").unlink()


def test_treebanks_that_cannot_be_used(tmp_path, capsys):
    _, err = run(capsys, "--data", tmp_path / "none", "--out", tmp_path / "out", expect=2)
    assert "git clone" in err and "UD_English-EWT" in err and str(treebank.SAMPLE) in err
    _, err = run(capsys, "--data", tmp_path, "--out", tmp_path / "out", expect=2)
    assert "'train' in its name" in err
    for split in treebank.SPLITS:
        (tmp_path / f"{split}.conllu").write_text("1\tone\tone\tNUM\t_\t_\t_\t_\t_\t_\n\n")
    _, err = run(capsys, "--data", tmp_path, "--out", tmp_path / "out", expect=2)
    assert "nothing to tell apart" in err and "NUM" in err


def test_a_loss_that_is_no_number(tmp_path, capsys):
    _, err = run(capsys, *TINY, "--limit", "3", "--lr", "1e30", "--out", tmp_path / "out", expect=2)
    assert "try a lower --lr" in err


@pytest.mark.parametrize("option", ["--hidden=6", "--hidden=0", "--epochs=0", "--lr=nan", "--dropout=1", "--model=x"])
def test_settings_out_of_range(option, capsys):
    with pytest.raises(SystemExit) as stop:
        example.main([option])
    assert stop.value.code == 2 and option.split("=")[0] in capsys.readouterr().err


def test_words_without_characters_and_tags_that_training_has_not(splits):
    vocabulary = tagging.Vocabulary.of(splits["train"])
    odd = [treebank.Document("odd", [[[treebank.Word("", "_", "NEW"), treebank.Word("the", "the", "DET")]]])]
    text = tagging.as_text(odd, vocabulary)
    assert text.characters.lod.lengths("word").tolist() == [0, 3] and text.tags.tolist()[0] == -1
    model = example.make_tagger("crf", tagging.Settings(hidden=16), vocabulary)
    assert tagging.tags_of(model, text, 400).shape == (2,)
    assert isinstance(model(text), tl.LoDTensor)
