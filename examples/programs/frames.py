# SPDX-License-Identifier: Apache-2.0
"""Which digit a recording says. The features of the whole corpus are one LoDTensor: windows of the sound, and the logarithm of their spectra. `LoDDataset` gives its recordings to the loader."""

import pathlib
import wave

import numpy as np
import torch
from torch import nn

import torch_lod as tl

sounds, digits = [], []
for path in sorted(pathlib.Path("examples/data/digits_sample").glob("*.wav")):  # 7_nicolas_0.wav
    with wave.open(str(path)) as file:
        sounds.append(np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 2**15)
    digits.append(int(path.name[0]))

windows = tl.sequence_unfold(tl.from_tensors(sounds), 256, 128)  # (frames, 256), along every recording
spectra = torch.fft.rfft(windows * torch.hann_window(256)).abs()[:, 1:97].add(1e-3).log()
frames = tl.sequence_normalize(spectra)  # each recording by itself
dataset = tl.data.LoDDataset({"frames": frames, "digit": torch.tensor(digits)})
sampler = tl.data.TokenBudgetSampler(dataset.lod, budget=400)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate)


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(96, 48, 5, padding=2), nn.Conv1d(48, 48, 5, padding=2)
        self.out = nn.Linear(48, 10)

    def forward(self, x):  # torch's convolutions run along every recording, with zeros around it
        return self.out(tl.sequence_pool(self.second(self.first(x).relu()).relu(), "max"))


def loss_of(batch):
    return nn.functional.cross_entropy(model(batch["frames"]), batch["digit"])


torch.manual_seed(0)
model = Spotter()
optimizer = torch.optim.Adam(model.parameters(), 0.003)
for _ in range(12):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
right = sum((model(b["frames"]).argmax(1) == b["digit"]).sum().item() for b in loader) / len(dataset)
print(f"digit of {right:.0%} of {len(dataset)} recordings")
