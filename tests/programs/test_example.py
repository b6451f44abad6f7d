# SPDX-License-Identifier: Apache-2.0
"""The example from end to end, on corpora small enough to be written here."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import corpus
import figures
import padded_twin
import running
import train_nested_rnn as example
import training

LAST_LINE = re.compile(r"test accuracy \d+\.\d% \(order-free \d+\.\d%, \d+ s\)")
TINY = ["--hidden", "8", "--embedding", "8", "--batch", "16", "--epochs", "2"]


@pytest.fixture(autouse=True)
def _threads():
    """The example sets the number of threads; other tests shall not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A "standard library" of 12 modules with 6 functions each."""
    root = tmp_path / "library"
    root.mkdir()
    rng = np.random.default_rng(0)
    for module in range(12):
        functions = []
        for number in range(6):
            body = [f"    step_{i} = make(step_{i - 1}, {i})" for i in range(rng.integers(6, 12))]
            functions.append(f"def f_{module}_{number}(x):\n    step_{number} = {module}\n" + "\n".join(body))
        (root / f"module_{module}.py").write_text("\n\n".join(functions))
    monkeypatch.setattr(example, "standard_library", lambda: root)
    return root


@pytest.fixture
def reviews(tmp_path):
    """40 labelled documents, in all forms that a text may have."""
    path = tmp_path / "reviews.jsonl"
    records = []
    for i in range(40):
        word = "good" if i % 2 else "bad"
        text = [
            f"It was {word} {i}. Really, {word}!",
            f"first line\n{word} {i}",
            [f"{word} indeed", "", f"number {i}"],
            [[word, "it", "was"], [], [str(i)]],
        ][i // 2 % 4]
        records.append(json.dumps({"text": text, "label": bool(i % 2)}))
    path.write_text("\n".join(records) + "\n")
    return path


def run(capsys, *arguments, expect=0):
    """The lines on stdout, and stderr as a whole."""
    status = example.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert status == expect, out + err
    return out.splitlines(), err


# ---- the corpus --------------------------------------------------------------------------------

SOURCE = '''
import os

def too_short(a):
    """Four lines are not enough."""
    b = a
    c = b
    d = c
    return d

class Thing:
    @property
    def method(self):
        """Dropped,
        both lines."""
        x = "a" "b"   # a comment
        y = f"{x!r} and {1 + 1:>{2}}" + rf'{x}'

        z = call(x,
                 y)
        def inner():
            return 1.5e3
        return z

try:
    import fast
except ImportError:
    async def below_except(): a; b
    def also_below(a): return a
    async def slow(
        a,
    ):
        a = 1; b = 2
        if a: b = 3
        else:
            b = 4
        return -0x10
'''


def test_functions_are_cut_as_the_task_says():
    found = {name: [" ".join(line) for line in lines] for name, lines in corpus.functions_of(SOURCE)}
    assert found == {
        "13 Thing.method": [
            "x = <str> <str>",
            "y = <str> + <str>",
            "z = call ( x , y )",
            "def inner ( ) :",
            "return <num>",
            "return z",
        ],
        "30 slow": ["a = <num> ; b = <num>", "if a : b = <num>", "else :", "b = <num>", "return - <num>"],
    }


@pytest.mark.parametrize(("lines", "taken"), [(4, False), (5, True), (24, True), (25, False), (200, False)])
def test_bodies_of_5_to_24_lines_are_taken(lines, taken):
    for docstring in ("", '    """Text."""\n'):
        body = "".join(f"    a{i} = {i}\n" for i in range(lines))
        assert len(list(corpus.functions_of(f"def f():\n{docstring}{body}"))) == taken


def as_tuple(document):
    return tuple(map(tuple, document.lines))


def test_the_task_on_the_standard_library_itself():
    functions = corpus.extract_functions(corpus.standard_library())
    task = corpus.FunctionCorpus(functions)
    assert len(task.test) >= 3000
    assert len({as_tuple(f) for f in functions}) == len(functions)
    assert not {d.group for d in task.train} & {d.group for d in task.test}

    examples = task.epoch(np.random.default_rng(0))
    for documents, count in ((examples, len(task.train)), (task.test, len(functions) - len(task.train))):
        by_label = [{d.source: d for d in documents if d.label == label} for label in (0, 1)]
        assert len(documents) == 2 * count and len(by_label[0]) == len(by_label[1]) == count
        for source, written in by_label[1].items():
            shuffled = by_label[0][source]
            assert shuffled.lines != written.lines
            assert Counter(as_tuple(shuffled)) == Counter(as_tuple(written))

    again = corpus.FunctionCorpus(functions)
    assert again.test == task.test
    new_shuffles = {as_tuple(d) for d in task.epoch(np.random.default_rng(1))}
    assert len(new_shuffles - {as_tuple(d) for d in examples}) > len(task.train) // 2


def test_equal_texts_stay_on_one_side(tmp_path):
    path = tmp_path / "twice.jsonl"
    path.write_text("\n".join(json.dumps({"text": f"text {i // 2}", "label": i % 2}) for i in range(100)))
    documents = corpus.LabelledCorpus(corpus.read_jsonl(path)[0])
    assert not {as_tuple(d) for d in documents.train} & {as_tuple(d) for d in documents.test}
    assert len(documents.test) == 20


def test_no_python_sources(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example, "standard_library", lambda: tmp_path)
    _, err = run(capsys, "--out", tmp_path / "out", expect=2)
    assert "no Python sources" in err and "--data FILE.jsonl" in err and str(tmp_path) in err
    assert not (tmp_path / "out").exists()


# ---- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["nested-lstm", "nested-gru", "flat-lstm", "bag"])
def test_train_on_functions(model, library, tmp_path, capsys):
    lines, _ = run(capsys, *TINY, "--model", model, "--out", tmp_path / "out")
    assert LAST_LINE.fullmatch(lines[-1])
    assert "(order-free 50.0%," in lines[-1]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["settings"]["model"] == model and len(report["epochs"]) == 2
    assert report["data"]["padded_cells"] > report["data"]["rows"]
    assert report["baselines"].get("bag", 0.5) == 0.5
    for name in ("checkpoint.pt", "report.json", "learning_curve.png", "lengths.png"):
        assert f"saved {tmp_path / 'out' / name}" in lines
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert not list((tmp_path / "out").glob("*.unfinished"))


def test_train_on_own_documents(reviews, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(figures, "available", lambda: False)
    more = ["--epochs", "20", "--lr", "0.03", "--dropout", "0", "--limit", "30"]
    lines, _ = run(capsys, *TINY, *more, "--data", reviews, "--out", tmp_path / "out")
    assert LAST_LINE.fullmatch(lines[-1])
    assert any("24 items to train on" in line and "6 to test on" in line for line in lines)
    assert any("matplotlib is not installed" in line for line in lines)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["data"]["classes"] == ["false", "true"]
    assert report["epochs"][-1]["loss"] < 0.1

    (tmp_path / "new.jsonl").write_text('{"text": "It was good."}\n{"text": [["bad"]]}\n')
    lines, _ = run(capsys, "--out", tmp_path / "out", "--predict", tmp_path / "new.jsonl")
    assert [line.split()[1:] for line in lines] == [["true", "new.jsonl:1"], ["false", "new.jsonl:2"]]
    assert all(50 <= float(line.split("%")[0]) <= 100 for line in lines)

    _, err = run(capsys, "--out", tmp_path / "out", "--predict", __file__, expect=2)
    assert "pass a .jsonl file" in err


def test_resume_equals_a_run_without_a_stop(library, tmp_path, capsys, monkeypatch):
    arguments = [*TINY, "--epochs", "3", "--seed", "3"]
    run(capsys, *arguments, "--out", tmp_path / "whole")

    save = training.Trainer.save

    def save_and_stop(trainer, path):
        save(trainer, path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Trainer, "save", save_and_stop)
        _, err = run(capsys, *arguments, "--out", tmp_path / "stopped", expect=130)
        assert "--resume" in err
    torch.manual_seed(99)
    lines, _ = run(capsys, "--resume", "--out", tmp_path / "stopped")
    assert "resumed after epoch 1 of 3" in lines and LAST_LINE.fullmatch(lines[-1])

    whole, stopped = (running.load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("whole", "stopped"))
    assert whole["losses"] == stopped["losses"]
    assert whole["baselines"] == stopped["baselines"]
    for name, value in whole["model"].items():
        assert torch.equal(value, stopped["model"][name]), name
    for a, b in zip(whole["history"], stopped["history"], strict=True):
        assert a["test_accuracy"] == b["test_accuracy"] and a["loss"] == b["loss"]

    _, err = run(capsys, "--resume", "--hidden", "9", "--out", tmp_path / "stopped", expect=2)
    assert "hidden 8, not 9" in err
    (library / "module_0.py").unlink()
    _, err = run(capsys, "--resume", "--out", tmp_path / "stopped", expect=2)
    assert "not the data of the checkpoint" in err


def test_predict_a_python_file(library, tmp_path, capsys):
    run(capsys, *TINY, "--out", tmp_path / "out")
    lines, _ = run(capsys, "--out", tmp_path / "out", "--predict", library / "module_3.py")
    assert [line.split()[-1] for line in lines] == [f"f_3_{i}" for i in range(6)]
    assert "  module_3.py:1 f_3_0" in lines[0]
    assert all(re.match(r" *\d+\.\d%  (shuffled|as written)  ", line) for line in lines)
    for text, message in (("def f(:\n", "cannot read"), ("x = 1\n", "no function of 5 to 24 lines")):
        (tmp_path / "bad.py").write_text(text)
        _, err = run(capsys, "--out", tmp_path / "out", "--predict", tmp_path / "bad.py", expect=2)
        assert message in err


def test_order_free_scores_do_not_depend_on_order():
    documents = [corpus.Document([["a", "b"], ["c"]], "", ""), corpus.Document([["c"], ["a", "b"]], "", "")]
    vocabulary = corpus.Vocabulary(["a", "b"])
    model = example.Bag(training.Settings(), vocabulary.size, 2)
    scores = training.predict(model, documents, vocabulary, ("function", "line"))
    torch.testing.assert_close(scores[0], scores[1])


def test_progress_rewrites_its_line_on_a_terminal(capsys):
    progress = running.Progress("nested-lstm", 0, 2)
    progress.live = True
    progress.show(0, 0.5, 0.7, 1000)
    progress.show(0, 1, 0.6, 1000, "  test accuracy 80.0%")
    text = capsys.readouterr().out
    assert text.count("\r") == 2 and text.count("\n") == 1
    assert "epoch 1/2" in text and "loss 0.600" in text and "1k tokens/s" in text and "s left" in text


def test_progress_fits_a_terminal(capsys):
    progress = running.Progress("nested-lstm", 0, 10)
    progress.started -= 9 * 100  # 100 s are left
    progress.show(8, 1, 0.6, 555_555, "  test 80.0%")
    [line] = capsys.readouterr().out.splitlines()
    assert line.endswith("test 80.0%  100 s left") and len(line) < 80


# ---- bad input ---------------------------------------------------------------------------------

BAD_LINES = {
    b"not json": "not JSON: Expecting value at column 1",
    b'{"text": "cut': "not JSON: Unterminated string starting at at column 10",
    b"[1, 2]": "expected an object",
    b'{"text": "x"}': '"label" is missing',
    b'{"label": 1}': '"text" is missing',
    b'{"text": 7, "label": 1}': '"text" is 7, expected',
    b'{"text": "", "label": 1}': '"text" has no tokens',
    b'{"text": [[], []], "label": 1}': '"text" has no tokens',
    b'{"text": [["a"], "b"], "label": 1}': '"text"[1] is "b", expected a list of tokens',
    b'{"text": [["a", 3]], "label": 1}': '"text"[0][1] is 3, expected a string',
    b'{"text": "x", "label": {"a": 1}}': '"label" is {"a": 1}, expected',
    b'{"text": "x", "label": NaN}': "NaN is not JSON",
    b'{"text": "\xff", "label": 1}': "not UTF-8",
    b"[" * 100_000: "nested too deeply",
}


def test_bad_lines_are_named_and_nothing_is_lost(reviews, tmp_path, capsys):
    good = reviews.read_bytes().splitlines()
    reviews.write_bytes(b"\n".join([*good, b"", *BAD_LINES]) + b"\n")
    before = reviews.read_bytes()

    out, err = run(capsys, *TINY, "--data", reviews, "--out", tmp_path / "out", expect=2)
    reports = err.splitlines()
    assert len(reports) == len(BAD_LINES) + 1
    for number, (message, report) in enumerate(zip(BAD_LINES.values(), reports, strict=False), start=len(good) + 2):
        assert report.startswith(f"{reviews}, line {number}: ") and message in report
    assert f"{len(BAD_LINES)} bad and {len(good)} good lines" in reports[-1] and "--skip-bad-lines" in reports[-1]
    assert out == [] and reviews.read_bytes() == before and not (tmp_path / "out").exists()

    lines, err = run(capsys, *TINY, "--data", reviews, "--out", tmp_path / "out", "--skip-bad-lines")
    assert LAST_LINE.fullmatch(lines[-1]) and f"{len(good)} used" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        ("", "has no documents"),
        ('{"text": "a", "label": 1}\n' * 9, "nothing to tell apart"),
        ('{"text": "a", "label": 1}\n{"text": "a", "label": 2}\n', "too few"),
    ],
)
def test_data_that_cannot_be_used(text, message, tmp_path, capsys):
    path = tmp_path / "data.jsonl"
    if text is not None:
        path.write_text(text)
    _, err = run(capsys, "--data", path, "--out", tmp_path / "out", expect=2)
    assert message in err


def test_a_checkpoint_that_is_missing_or_broken(tmp_path, capsys):
    for option in (["--resume"], ["--predict", "x.py"]):
        _, err = run(capsys, *option, "--out", tmp_path, expect=2)
        assert "there is no checkpoint" in err
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    _, err = run(capsys, "--resume", "--out", tmp_path, expect=2)
    assert "cannot read the checkpoint" in err
    torch.save(torch.zeros(3), tmp_path / "checkpoint.pt")
    _, err = run(capsys, "--resume", "--out", tmp_path, expect=2)
    assert "not a checkpoint of this example" in err


def test_an_output_folder_that_cannot_be(library, capsys):
    _, err = run(capsys, "--out", library / "module_0.py" / "out", expect=2)
    assert "cannot write to" in err


@pytest.mark.parametrize("option", ["--epochs=0", "--lr=nan", "--dropout=1", "--seed=-1", "--hidden=x", "--model=x"])
def test_settings_out_of_range(option, capsys):
    with pytest.raises(SystemExit) as stop:
        example.main([option])
    assert stop.value.code == 2 and option.split("=")[0] in capsys.readouterr().err


# ---- the padded twins --------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["nested-lstm", "nested-gru"])
def test_twins_compute_the_same_numbers(model):
    settings = training.Settings(model=model, hidden=8, embedding=6)
    torch.manual_seed(0)
    state = example.MODELS[model](settings, 30, 3).state_dict()
    lengths = [torch.tensor([3, 1, 2]), torch.tensor([3, 0, 4, 1, 2, 7])]
    values = torch.arange(17) + 1
    assert padded_twin.largest_difference(settings, state, values, lengths) < 1e-6
    tokens, padded_lengths, counts = padded_twin.padded_batch(tl.from_lengths(values, lengths))
    assert tokens.shape == (3, 3, 7) and counts.tolist() == [3, 1, 2]
    assert padded_lengths.tolist() == [[3, 0, 4], [1, 0, 0], [2, 7, 0]]
    assert tokens.sum() == values.sum()


def test_compare_padded(library, capsys):
    lines, _ = run(capsys, *TINY, "--compare-padded", "4")
    assert "the scores agree to" in lines[0] and "cells per token" in lines[1]
    assert [line.split()[0] for line in lines[-3:]] == ["LoDTensor", "PackedSequence", "padded"]
    for line in lines[-3:]:
        assert re.search(r"\d+ MB", line)
    _, err = run(capsys, "--model", "bag", "--compare-padded", expect=2)
    assert "nested-lstm and nested-gru" in err


def test_three_ways_to_write_a_nested_rnn_are_one(capsys):
    import nested_three_ways as three

    torch.set_default_dtype(torch.float64)
    try:
        models = three.Modules(), three.Scan(), three.Dynamic()
    finally:
        torch.set_default_dtype(torch.float32)
    three.same_parameters(*models)
    numbers = torch.randint(0, three.WORDS, (10,))
    x = tl.from_lengths(numbers, [[2, 0, 3], [3, 1, 0, 2, 4]])  # an article and a sentence without words
    results = [model(x) for model in models]
    for model, result in zip(models, results):
        result.square().sum().backward()
        torch.testing.assert_close(result, results[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(model.embed.weight.grad, models[0].embed.weight.grad, rtol=0, atol=1e-12)
    three.main()
    assert "nothing padded" in capsys.readouterr().out
