# SPDX-License-Identifier: Apache-2.0
"""The letters of a spoken word, without being told where they are: frames by four, CTC, and the best word by a beam."""

import pathlib
import wave

import numpy as np
import torch
from torch import nn

import torch_lod as tl

names = "zero one two three four five six seven eight nine".split()
letters = sorted(set("".join(names)))  # class 0 is the blank
samples = []
for path in sorted(pathlib.Path("examples/data/digits_sample").glob("*_nicolas_*.wav")):
    with wave.open(str(path)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 2**15
    windows = torch.from_numpy(sound).unfold(0, 256, 64) * torch.hann_window(256)
    spectra = torch.fft.rfft(windows).abs()[:, 1:97].add(1e-3).log()
    word = [1 + letters.index(letter) for letter in names[int(path.name[0])]]
    samples.append({"frames": (spectra - spectra.mean()) / spectra.std(), "letters": word})
sampler = tl.data.TokenBudgetSampler([len(s["frames"]) for s in samples], budget=600)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(96, 48, 8, stride=4, padding=4), nn.BatchNorm1d(48)
        self.states, self.out = tl.nn.LSTM(48, 48, bidirectional=True), nn.Linear(96, 1 + len(letters))

    def forward(self, x):
        return self.out(self.states(self.norm(self.conv(x)).relu())[0])


def loss_of(batch):
    return tl.nn.CTCLoss()(model(batch["frames"]), batch["letters"])


torch.manual_seed(0)
model = Listener()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(60):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
greedy, beam = tl.ErrorRate(), tl.ErrorRate()
for batch in loader:
    scores = model(batch["frames"])
    greedy.update(tl.ctc_decode(scores), batch["letters"])
    beam.update(tl.ctc_beam_decode(scores)[0].seq[:, 0], batch["letters"])
right = 1 - beam.compute()
print(f"{right:.0%} of the letters of {len(samples)} words are right, {1 - greedy.compute():.0%} without a beam")
