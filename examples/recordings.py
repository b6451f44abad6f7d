# SPDX-License-Identifier: Apache-2.0
"""Recordings of single words for `spoken_digits.py`, and utterances of several words made of them.

The recordings are mono wav files of 16 bits at 8 kHz with names LABEL_SPEAKER_INDEX.wav, like 7_jackson_32.wav. Those
with an index below 5 are for the test, as the Free Spoken Digit Dataset has it.
"""

from __future__ import annotations

import io
import re
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from running import InputError

import torch_lod as tl

FOLDER = Path(__file__).parent / "data"
DEFAULT, SAMPLE = FOLDER / "fsdd", FOLDER / "digits_sample"
RATE = 8000
MIN_SAMPLES = RATE // 10
TEST_INDICES = 5
LONGEST = 8  # words of an utterance
TEST_PASSES = 4  # utterances that every recording of the test is in
TEMPO, LOUDNESS = (
    0.1,
    1.2,
)  # logarithms of how much slower or faster, louder or softer a recording of the training may be

NAME = re.compile(r"([^_]+)_(?:(.+)_)?(\d+)\.wav")
CONVERT = "ffmpeg -i in.wav -ar 8000 -ac 1 -sample_fmt s16 out.wav"


@dataclass(frozen=True)
class Recording:
    """The samples of one word, and what the name of its file says."""

    name: str
    label: str
    speaker: str
    index: int
    samples: np.ndarray  # int16


# ---- files ---------------------------------------------------------------------------------------


def read_wav(content: bytes, name: str) -> np.ndarray:
    """The samples, int16."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            found = file.getframerate(), 8 * file.getsampwidth(), file.getnchannels()
            data = file.readframes(file.getnframes()) if found == (RATE, 16, 1) else b""
    except (wave.Error, EOFError, RuntimeError) as error:  # of damaged heads too
        raise InputError(
            f"cannot read {name} as a wav file: {str(error) or 'it is cut off'}. Perhaps {CONVERT}"
        ) from None
    if found != (RATE, 16, 1):
        raise InputError(
            f"{name} has {found[0]} Hz, {found[1]} bits, {found[2]} channels, not {RATE}, 16, 1: {CONVERT}"
        )
    samples = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.int16)
    if len(samples) < MIN_SAMPLES:
        raise InputError(f"{name} is {len(samples) / RATE:.2f} s long, and {MIN_SAMPLES / RATE} s are the least")
    return samples


def read_file(path: Path) -> np.ndarray:
    try:
        return read_wav(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def wav_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the wav files of a folder or its `recordings`, or anywhere in a .zip or .tar archive."""
    if path.is_dir():
        for file in (f for folder in (path, path / "recordings") for f in folder.glob("*.wav")):
            yield file.name, file.read_bytes()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".wav"):
                    yield Path(name).name, archive.read(name)
    else:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".wav"):
                    yield Path(member.name).name, archive.extractfile(member).read()  # type: ignore[union-attr]


def read_recordings(path: Path) -> list[Recording]:
    """In the order of their names, however the folder or archive has them."""
    if not path.exists():
        raise InputError(
            f"there is no {path}. The recordings come with\n"
            f"  git clone --depth 1 https://github.com/Jakobovski/free-spoken-digit-dataset {DEFAULT}\n"
            f"--data FOLDER takes your own, and --data {SAMPLE} --epochs 300 trains on the sample that is here"
        )
    try:
        files = sorted(wav_files(path))
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise InputError(f"cannot read {path}: {(str(error) or 'it is cut off').splitlines()[0]}") from None
    recordings = []
    for name, content in files:
        parts = NAME.fullmatch(name)
        if not parts:
            raise InputError(f"{name} in {path} is not named LABEL_SPEAKER_INDEX.wav, like 7_jackson_32.wav")
        label, speaker, index = parts[1], parts[2] or "", int(parts[3])
        recordings.append(Recording(name, label, speaker, index, read_wav(content, name)))
    if not recordings:
        raise InputError(f"{path} has no .wav files, and no folder `recordings` with some")
    return recordings


# ---- utterances ----------------------------------------------------------------------------------

Utterance = list[Recording]


def limited(recordings: list[Recording], limit: int) -> list[Recording]:
    """All of them, or as many as `limit`, drawn at random."""
    if not 0 < limit < len(recordings):
        return recordings
    keep = np.random.default_rng(0).permutation(len(recordings))[:limit]
    return [recordings[i] for i in sorted(keep)]


def utterances(recordings: list[Recording], rng: np.random.Generator) -> list[Utterance]:
    """Every recording once, in utterances of 1 to 8 words of one speaker, in random order."""
    found = []
    for speaker in sorted({r.speaker for r in recordings}):
        own = [r for r in recordings if r.speaker == speaker]
        left = [own[i] for i in rng.permutation(len(own))]
        while left:
            count = int(rng.integers(1, LONGEST + 1))
            found.append(left[:count])
            left = left[count:]
    return [found[i] for i in rng.permutation(len(found))]


def at_tempo(samples: torch.Tensor, factor: float) -> torch.Tensor:
    """Slower or faster, and lower or higher with it, like a tape."""
    size = max(1, round(len(samples) / factor))
    return torch.nn.functional.interpolate(samples[None, None], size=size, mode="linear")[0, 0]


@dataclass
class SpokenCorpus:
    """Recordings to train and to test on; the classes are the labels that occur, after the blank of CTC."""

    recordings: list[Recording]
    limit: int = 0
    classes: list[str] = field(init=False)
    train: list[Recording] = field(init=False)
    test: list[Utterance] = field(init=False)

    def __post_init__(self) -> None:
        self.train = limited([r for r in self.recordings if r.index >= TEST_INDICES], self.limit)
        test = limited([r for r in self.recordings if r.index < TEST_INDICES], self.limit)
        if not self.train or not test:
            raise InputError(
                f"there are {len(self.train)} recordings to train on and {len(test)} to test on: those whose names end "
                f"in _0 to _{TEST_INDICES - 1} are for the test, all others for training, and both are needed"
            )
        self.classes = sorted({r.label for r in (*self.train, *test)})
        rng = np.random.default_rng(1)  # the test does not depend on the seed of the training
        self.test = [u for _ in range(TEST_PASSES) for u in utterances(test, rng)]

    def epoch(self, rng: np.random.Generator) -> list[Utterance]:
        """The training recordings in new company every time."""
        return utterances(self.train, rng)

    def batch(self, spoken: list[Utterance], rng: np.random.Generator | None = None) -> tuple[tl.LoDTensor, ...]:
        """Samples with the levels utterance and word, and the labels of every utterance; with rng at random tempos and
        loudnesses."""
        words = [torch.as_tensor(r.samples / np.float32(2**15)) for utterance in spoken for r in utterance]
        counts = [len(utterance) for utterance in spoken]
        if rng is not None:
            words = [at_tempo(w, f) for w, f in zip(words, np.exp(rng.uniform(-TEMPO, TEMPO, len(words))), strict=True)]
        x = tl.from_tensors(words, level_names=("word",)).group(counts, "utterance")
        if rng is not None:
            factors = torch.as_tensor(np.exp(rng.uniform(-LOUDNESS, LOUDNESS, len(spoken))).astype(np.float32))
            x = x * tl.sequence_expand_as(factors, x)
        numbers = [1 + self.classes.index(r.label) for utterance in spoken for r in utterance]
        return x, tl.from_lengths(torch.tensor(numbers), [counts], level_names=("utterance",))

    def batches(
        self, spoken: list[Utterance], size: int, rng: np.random.Generator | None = None
    ) -> Iterator[tuple[tl.LoDTensor, ...]]:
        return (self.batch(spoken[i : i + size], rng) for i in range(0, len(spoken), size))
