# SPDX-License-Identifier: Apache-2.0
"""The part of speech of every word. Words and tags have the same levels, so a batch of tags is what the loss wants."""

import collections
import pathlib

import torch
from torch import nn

import torch_lod as tl

sentences = []  # of (word, tag)
for line in pathlib.Path("examples/data/ewt_sample/sample-ud-train.conllu").read_text().splitlines():
    if line.startswith("# sent_id"):
        sentences.append([])
    elif line[:1].isdigit():
        sentences[-1].append((line.split("\t")[1].lower(), line.split("\t")[3]))

counts = collections.Counter(word for s in sentences for word, _ in s)
vocabulary = {word: n for n, (word, count) in enumerate(counts.items(), 1) if count > 1}  # 0: any other word
tags = sorted({tag for s in sentences for _, tag in s})
samples = [
    {"words": [vocabulary.get(word, 0) for word, _ in s], "tags": [tags.index(tag) for _, tag in s]} for s in sentences
]
sampler = tl.data.TokenBudgetSampler([len(s) for s in sentences], budget=500)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(counts) + 1, 32)
        self.states, self.out = tl.nn.LSTM(32, 32, bidirectional=True), nn.Linear(64, len(tags))

    def forward(self, words):
        return self.out(self.states(self.embed(words))[0])


def loss_of(batch):
    return nn.functional.cross_entropy(model(batch["words"]), batch["tags"])


torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), 0.02)
for _ in range(8):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
right = sum((model(b["words"]).argmax(1) == b["tags"]).sum().item() for b in loader) / sum(map(len, sentences))
print(f"{right:.0%} of {counts.total()} words are tagged right")
