# SPDX-License-Identifier: Apache-2.0
"""The speech recogniser of the examples from end to end, on the sample in the repository and on tones."""

import io
import json
import re
import shutil
import sys
import tarfile
import wave
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import torch_lod as tl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import digit_training
import figures
import recordings
import running
import spoken_digits as example

LAST_LINE = re.compile(r"test error \d+\.\d% \(class means, told where words begin, \d+\.\d%, \d+ s\)")
TINY = ["--hidden", "8", "--batch", "2", "--epochs", "2", "--limit", "16"]


@pytest.fixture(autouse=True)
def _threads():
    """The example sets the number of threads; other tests shall not notice."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def write_wav(path, samples, rate=8000, width=2, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(np.asarray(samples, dtype="<i2").tobytes())


def tone(hertz, seconds):
    """It swells and fades."""
    time = np.arange(int(seconds * 8000)) / 8000
    return (10_000 * np.sin(np.pi * time / seconds) * np.sin(2 * np.pi * hertz * time)).astype(np.int16)


@pytest.fixture
def tones(tmp_path):
    """Three words, which are tones, 16 recordings of each."""
    folder = tmp_path / "tones"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for label, hertz in (("low", 300), ("middle", 900), ("high", 2500)):
        for index in range(16):
            speaker = "anna_b_" if index % 2 else ""
            sound = tone(hertz * rng.uniform(0.95, 1.05), rng.uniform(0.12, 0.2))
            write_wav(folder / f"{label}_{speaker}{index}.wav", sound)
    return folder


def run(capsys, *arguments, expect=0):
    """The lines on stdout, and stderr as a whole."""
    status = example.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert status == expect, out + err
    return out.splitlines(), err


# ---- the model -----------------------------------------------------------------------------------


def test_frames_are_those_of_a_loop_of_short_time_transforms():
    lengths = [[2, 0, 1], [1000, 199, 523]]
    x = tl.from_lengths(torch.randn(1722), lengths, level_names=("utterance", "word"))
    log_mel = example.LogMel()
    for level, sizes in (("word", [1000, 199, 523]), ("utterance", [1199, 0, 523])):
        found = log_mel(x, level)
        whole = []
        for samples in x.values().split(sizes):
            if len(samples) >= 200:
                padded = torch.nn.functional.pad(samples, (0, 56))  # torch.stft centres the window in the transform
                window = torch.nn.functional.pad(log_mel.window, (0, 56))
                z = torch.stft(padded, 256, 80, 256, window, center=False, return_complex=True)
                whole.append((z.abs().square().t() @ log_mel.bands + 1e-6).log())
        torch.testing.assert_close(found.values(), torch.cat(whole), rtol=1e-4, atol=1e-4)
        assert found.level_names[-1] == level


@pytest.mark.parametrize("model", example.CONTEXTS)
def test_utterances_do_not_see_one_another(model):
    torch.manual_seed(0)
    recogniser = example.Recogniser(example.Settings(model=model, hidden=8), 3).eval()
    x = tl.from_lengths(torch.randn(5000), [[1, 2], [1500, 1500, 2000]], level_names=("utterance", "word"))
    scores = recogniser(x)
    assert scores.shape[1] == 4 and scores.lengths().tolist() == [5, 11]
    alone = recogniser(x.seq[1].group([2], "utterance"))
    torch.testing.assert_close(scores.seq[1], alone.values())


def test_hidden_bands_are_at_most_two_ranges():
    torch.manual_seed(0)
    bands = example.random_bands(500)
    assert bands.shape == (500, 40) and set(bands.unique().tolist()) == {0.0, 1.0}
    assert 0 in bands[:, 0] and 0 in bands[:, -1]
    begins = (bands.diff(dim=1) < 0).sum(1) + (bands[:, 0] == 0)
    assert begins.max() == 2 and (bands == 0).sum(1).max() <= 16


class Oracle(torch.nn.Module):
    """Scores that are given."""

    def __init__(self, scores):
        super().__init__()
        self.log_mel, self.scores = example.LogMel(), scores

    def forward(self, x):
        return self.scores


def test_words_meet_where_it_is_quiet():
    silence = np.zeros(1600, dtype=np.int16)
    sound = np.concatenate([tone(500, 0.6), silence, tone(900, 0.6)]) / 32768  # quiet from 0.6 to 0.8 s
    x = tl.from_lengths(torch.from_numpy(sound.astype(np.float32)), [[len(sound), 0]], level_names=("utterance",))
    best = torch.zeros(35, dtype=torch.int64)
    best[5:7], best[28] = 2, 1
    scores = tl.from_lengths(10.0 * torch.nn.functional.one_hot(best, 3), [[35, 0]], level_names=("utterance",))
    spans, nothing = example.align(Oracle(scores), x, tl.from_lengths(torch.tensor([2, 1]), [[2, 0]]))
    assert nothing == [] and spans[0].begin == 0 and spans[1].end == 1.4
    assert 0.6 < spans[0].end == spans[1].begin < 0.8
    assert all(0.99 < span.probability < 1 for span in spans)


# ---- recordings ----------------------------------------------------------------------------------


def test_utterances_have_every_recording_of_the_training_once():
    corpus = recordings.SpokenCorpus(recordings.read_recordings(recordings.SAMPLE))
    assert corpus.classes == list("0123456789") and len(corpus.train) == 40
    spoken = corpus.epoch(np.random.default_rng(0))
    assert Counter(r.name for u in spoken for r in u) == Counter(r.name for r in corpus.train)
    assert all(1 <= len(u) <= 8 and len({r.speaker for r in u}) == 1 for u in spoken)
    again = corpus.epoch(np.random.default_rng(1))
    assert [[r.name for r in u] for u in again] != [[r.name for r in u] for u in spoken]
    tested = Counter(r.name for u in corpus.test for r in u)
    assert len(tested) == 20 and set(tested.values()) == {4} and not set(tested) & {r.name for r in corpus.train}
    same = recordings.SpokenCorpus(corpus.recordings)
    assert [[r.name for r in u] for u in same.test] == [[r.name for r in u] for u in corpus.test]

    x, labels = corpus.batch(spoken)
    assert x.level_names == ("utterance", "word") and labels.level_names == ("utterance",)
    assert x.lengths("utterance").tolist() == labels.lengths().tolist() == [len(u) for u in spoken]
    first = torch.from_numpy(spoken[0][0].samples / np.float32(32768))
    assert torch.equal(x.seq[0, 0], first) and labels[0] == 1 + int(spoken[0][0].label)
    changed, _ = corpus.batch(spoken, np.random.default_rng(0))
    ratio = changed.lengths("word") / x.lengths("word")
    assert 0.8 < ratio.min() < 0.95 and 1.05 < ratio.max() < 1.25
    loudest = [tl.sequence_pool(y.abs(), "max", level="utterance") for y in (x, changed)]
    assert (loudest[1] / loudest[0]).log().std() > 0.3


def test_folders_and_archives_are_the_same(tmp_path):
    names = ["0_nicolas_0.wav", "0_nicolas_5.wav"]
    (tmp_path / "a" / "recordings").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z, tarfile.open(tmp_path / "a.tar.xz", "w:xz") as tar:
        for name in reversed(names):
            shutil.copy(recordings.SAMPLE / name, tmp_path / "a" / "recordings")
            z.write(recordings.SAMPLE / name, f"some-1.0/recordings/{name}")
            tar.add(recordings.SAMPLE / name, f"recordings/{name}")
    for path in (tmp_path / "a", tmp_path / "a.zip", tmp_path / "a.tar.xz"):
        found = recordings.read_recordings(path)
        assert [r.name for r in found] == names
        assert (found[0].label, found[0].speaker, found[0].index) == ("0", "nicolas", 0)
        assert np.array_equal(found[1].samples, recordings.read_file(recordings.SAMPLE / names[1]))


# ---- training ------------------------------------------------------------------------------------


def test_train_on_the_sample_and_go_on(tmp_path, capsys, monkeypatch):
    arguments = [*TINY, "--data", recordings.SAMPLE, "--seed", "3"]
    lines, _ = run(capsys, *arguments, "--out", tmp_path / "whole")
    assert LAST_LINE.fullmatch(lines[-1])
    assert "16 recordings to train on, 16 others in" in lines[0]
    report = json.loads((tmp_path / "whole" / "report.json").read_text())
    assert report["data"]["test_words"] == 64 and len(report["epochs"]) == 2
    assert set(report["baselines"]) == {"class means", "conv"} and report["boundaries"]["count"] > 10
    for name in ("checkpoint.pt", "report.json", "learning_curve.png", "alignment.png"):
        assert f"saved {tmp_path / 'whole' / name}" in lines
        assert (tmp_path / "whole" / name).stat().st_size > 0

    save = digit_training.Trainer.save

    def save_and_stop(trainer, path):
        save(trainer, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(figures, "available", lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr(digit_training.Trainer, "save", save_and_stop)
        _, err = run(capsys, *arguments, "--out", tmp_path / "stopped", expect=130)
        assert "--resume" in err
    torch.manual_seed(99)
    lines, _ = run(capsys, "--resume", "--out", tmp_path / "stopped")
    assert "resumed after epoch 1 of 2" in lines and LAST_LINE.fullmatch(lines[-1])
    assert any("matplotlib is not installed" in line for line in lines)
    whole, stopped = (running.load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("whole", "stopped"))
    assert whole["losses"] == stopped["losses"] and whole["baselines"] == stopped["baselines"]
    for name, value in whole["model"].items():
        assert torch.equal(value, stopped["model"][name]), name

    _, err = run(capsys, "--resume", "--hidden", "9", "--out", tmp_path / "stopped", expect=2)
    assert "hidden 8, not 9" in err
    state = running.load_checkpoint(tmp_path / "stopped" / "checkpoint.pt")
    running.save_checkpoint(state | {"fingerprint": 1}, tmp_path / "stopped" / "checkpoint.pt")
    _, err = run(capsys, "--resume", "--out", tmp_path / "stopped", expect=2)
    assert "not the data of the checkpoint" in err


def test_own_words_are_learned_and_recognised(tones, tmp_path, capsys):
    more = ["--model", "conv", "--batch", "4", "--epochs", "30", "--dropout", "0"]
    lines, _ = run(capsys, *more, "--data", tones, "--out", tmp_path / "out")
    assert LAST_LINE.fullmatch(lines[-1])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["data"]["classes"] == ["high", "low", "middle"] and report["test_error"] < 0.1
    assert report["baselines"] == {"class means": 0.0} and report["boundaries"]["within_50_ms"] > 0.9

    write_wav(tmp_path / "new.wav", np.concatenate([tone(900, 0.2), tone(300, 0.2), tone(2500, 0.2)]))
    lines, _ = run(capsys, "--out", tmp_path / "out", "--predict", tmp_path / "new.wav")
    found = [re.fullmatch(r" *(\d\.\d\d) to  (\d\.\d\d) s  (\w+) +(\d+\.\d)%", line).groups() for line in lines]
    assert [word for _, _, word, _ in found] == ["middle", "low", "high"]
    times = [float(begin) for begin, _, _, _ in found] + [float(found[-1][1])]
    assert times[0] == 0 and times[-1] == 0.6 and abs(times[1] - 0.2) < 0.1 and abs(times[2] - 0.4) < 0.1


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "git clone"),
        ([], "has no .wav files"),
        (["seven.wav"], "seven.wav in {0} is not named LABEL_SPEAKER_INDEX.wav"),
        (["7_me_0.wav"], "0 recordings to train on and 1 to test on"),
        (["7_me_5.wav"], "1 recordings to train on and 0 to test on"),
    ],
)
def test_folders_that_cannot_be_used(names, message, tmp_path, capsys):
    folder = tmp_path / "folder"
    if names is not None:
        folder.mkdir()
        for name in names:
            write_wav(folder / name, tone(440, 0.2))
    _, err = run(capsys, "--data", folder, "--out", tmp_path / "out", expect=2)
    assert err.startswith("error: ") and message.format(folder) in err and not (tmp_path / "out").exists()


def wav_bytes(samples, **form):
    file = io.BytesIO()
    file.close = lambda: None
    write = wave.open(file, "wb")
    write.setnchannels(form.get("channels", 1))
    write.setsampwidth(form.get("width", 2))
    write.setframerate(form.get("rate", 8000))
    write.writeframes(samples.tobytes())
    write.close()
    return file.getvalue()


SOUND = tone(440, 0.2)
BAD_FILES = {
    "rate": (wav_bytes(SOUND, rate=44100), "44100 Hz, 16 bits, 1 channels, not 8000, 16, 1: ffmpeg"),
    "width": (wav_bytes(SOUND, width=1), "8000 Hz, 8 bits"),
    "channels": (wav_bytes(SOUND, channels=2), "2 channels"),
    "short": (wav_bytes(SOUND[:700]), "0.09 s long, and 0.1 s are the least"),
    "cut": (wav_bytes(SOUND)[:700], "0.04 s long"),
    "odd": (wav_bytes(SOUND)[:701], "0.04 s long"),
    "empty": (b"", "it is cut off"),
    "text": (b"not a sound", "cannot read"),
    "head": (wav_bytes(SOUND)[:30], "cannot read"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_sounds_that_cannot_be_used(kind, tmp_path):
    content, message = BAD_FILES[kind]
    path = tmp_path / "7_me_0.wav"
    path.write_bytes(content)
    with pytest.raises(running.InputError) as alone:
        recordings.read_file(path)
    with pytest.raises(running.InputError) as among:
        recordings.read_recordings(tmp_path)
    assert message in str(alone.value) and str(path) in str(alone.value)
    assert message in str(among.value) and path.name in str(among.value)


def test_every_byte_of_a_head_may_be_damaged(tmp_path):
    """A file is read, or refused with a reason."""
    whole, refused = wav_bytes(tone(440, 0.11)), 0
    for i in range(44):
        for value in (0, 1, 127, 255):
            try:
                assert len(recordings.read_wav(whole[:i] + bytes([value]) + whole[i + 1 :], "x.wav")) >= 800
            except running.InputError as error:
                refused += "x.wav" in str(error)
    assert refused > 50


@pytest.mark.parametrize("name", ["a.zip", "a.tar.xz", "a.tar"])
def test_archives_that_are_broken(name, tmp_path, capsys):
    content, sound = io.BytesIO(), recordings.SAMPLE / "0_nicolas_0.wav"
    if name == "a.zip":
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as z:
            z.write(sound, sound.name)
    else:
        with tarfile.open(fileobj=content, mode="w:xz" if name.endswith("xz") else "w") as tar:
            tar.add(sound, sound.name)
    whole = content.getvalue()
    for broken in (b"", b"not an archive", whole[: len(whole) // 2], whole[:45] + b"\xff" * 20 + whole[65:]):
        (tmp_path / name).write_bytes(broken)
        _, err = run(capsys, "--data", tmp_path / name, "--out", tmp_path / "out", expect=2)
        assert err.startswith("error: ") and err.count("\n") == 1


def test_predictions_that_cannot_be_made(tmp_path, capsys):
    for option in (["--resume"], ["--predict", "x.wav"]):
        _, err = run(capsys, *option, "--out", tmp_path, expect=2)
        assert "there is no checkpoint" in err


@pytest.mark.parametrize("option", ["--epochs=0", "--lr=nan", "--dropout=1", "--seed=-1", "--hidden=x", "--model=x"])
def test_settings_out_of_range(option, capsys):
    with pytest.raises(SystemExit) as stop:
        example.main([option])
    assert stop.value.code == 2 and option.split("=")[0] in capsys.readouterr().err
