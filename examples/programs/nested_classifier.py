# SPDX-License-Identifier: Apache-2.0
"""The genre of a document, from its sentences of words."""

import collections
import pathlib

import torch
from torch import nn

import torch_lod as tl

documents = []  # of sentences of words; the name of a document begins with its genre
for line in pathlib.Path("examples/data/ewt_sample/sample-ud-train.conllu").read_text().splitlines():
    if line.startswith("# newdoc id = "):
        documents.append({"words": [], "genre": line.split()[-1].split("-")[0]})
    elif line.startswith("# sent_id"):
        documents[-1]["words"].append([])
    elif line[:1].isdigit():
        documents[-1]["words"][-1].append(line.split("\t")[1].lower())

counts = collections.Counter(word for d in documents for sentence in d["words"] for word in sentence)
vocabulary = {word: n for n, (word, count) in enumerate(counts.items(), 1) if count > 1}  # 0: any other word
genres = sorted({d["genre"] for d in documents})
samples = [
    {"words": [[vocabulary.get(w, 0) for w in s] for s in d["words"]], "genre": genres.index(d["genre"])}
    for d in documents
]
sampler = tl.data.TokenBudgetSampler([sum(map(len, s["words"])) for s in samples], budget=1000)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class NestedRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(counts) + 1, 32)
        self.words, self.sentences, self.out = tl.nn.LSTM(32, 48), tl.nn.LSTM(48, 48), nn.Linear(48, len(genres))

    def forward(self, x):
        words, _ = self.words(self.embed(x))  # along every sentence
        sentences, _ = self.sentences(tl.sequence_pool(words, "last"))  # along every document
        return self.out(tl.sequence_pool(sentences, "last"))


def loss_of(batch):
    return nn.functional.cross_entropy(model(batch["words"]), batch["genre"])


torch.manual_seed(0)
model = NestedRNN()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(10):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
right = sum((model(b["words"]).argmax(1) == b["genre"]).sum().item() for b in loader) / len(samples)
print(f"genre of {right:.0%} of {len(samples)} documents")
