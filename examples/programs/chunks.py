# SPDX-License-Identifier: Apache-2.0
"""Names and noun phrases in a text, from the letters of its words: sentences of words of letters, and a CRF at the end."""

import pathlib

import torch
from torch import nn

import torch_lod as tl

kinds = {"PROPN": "NAME", "DET": "PHRASE", "ADJ": "PHRASE", "NOUN": "PHRASE"}  # a chunk is words in a row of one kind
names = ["O", "B-NAME", "I-NAME", "B-PHRASE", "I-PHRASE"]
samples, before = [], ""
for line in pathlib.Path("examples/data/ewt_sample/sample-ud-train.conllu").read_text().splitlines():
    if line.startswith("# newdoc"):
        samples.append({"words": [], "tags": []})
    elif line.startswith("# sent_id"):
        before = ""
        for field in samples[-1].values():
            field.append([])
    elif line[:1].isdigit():
        word, kind = line.split("\t")[1], kinds.get(line.split("\t")[3], "")
        samples[-1]["words"][-1].append([min(ord(letter), 127) for letter in word])
        samples[-1]["tags"][-1].append(names.index(f"{'I' if kind == before else 'B'}-{kind}" if kind else "O"))
        before = kind

sampler = tl.data.TokenBudgetSampler([sum(map(len, s["words"])) for s in samples], budget=500)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class Chunker(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.conv = nn.Embedding(128, 16), nn.Conv1d(16, 48, 3, padding=1)
        self.states, self.out = tl.nn.LSTM(48, 32, bidirectional=True), nn.Linear(64, len(names))
        follows = torch.tensor([[b[0] != "I" or a[2:] == b[2:] for b in names] for a in names])
        self.crf = tl.nn.LinearChainCRF(len(names), allowed=follows, allowed_start=follows[0])

    def forward(self, words):
        return self.out(self.states(tl.sequence_pool(self.conv(self.letters(words)).relu(), "max"))[0])


def loss_of(batch):
    return model.crf(model(batch["words"]), batch["tags"]).mean()


torch.manual_seed(0)
model = Chunker()
optimizer = torch.optim.Adam(model.parameters(), 0.02)
for _ in range(10):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
found = [tl.chunk_f1(model.crf.decode(model(b["words"])), b["tags"], names) for b in loader]
right, chunks = sum(f.correct for f in found), sum(f.labelled for f in found)
f1 = (2 * right / (chunks + sum(f.inferred for f in found))).item()
print(f"F1 of {chunks} chunks: {f1:.2f}")
