# SPDX-License-Identifier: Apache-2.0
"""A language model of bytes. `strings="bytes"` is all the vocabulary it needs, `PackingSampler` fills the batches, attention stays within sentences, and positions start again in each of them."""

import functools
import math
import pathlib

import torch
from torch import nn

import torch_lod as tl

sentences = []
for line in pathlib.Path("examples/data/ewt_sample/sample-ud-train.conllu").read_text().splitlines():
    if line.startswith("# sent_id"):
        sentences.append([])
    elif line[:1].isdigit():
        sentences[-1].append(line.split("\t")[1])
texts = [" ".join(words)[:200] for words in sentences]

sampler = tl.data.PackingSampler([len(text.encode()) for text in texts], budget=2048)
collate = functools.partial(tl.data.collate, strings="bytes")
loader = torch.utils.data.DataLoader(texts, batch_sampler=sampler, collate_fn=collate)


class Transformer(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embed, self.positions = nn.Embedding(256, width), nn.Embedding(300, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, 256)

    def forward(self, x):
        x = self.embed(x) + self.positions(x.position_ids())
        return self.out(self.layers(x, is_causal=True))


def loss_of(batch):
    ids = batch.long()
    following = tl.sequence_shift(ids, -1, padding_value=-100)  # of the last byte of a sentence nothing is asked
    return nn.functional.cross_entropy(model(ids), following)


torch.manual_seed(0)
model = Transformer()
optimizer = torch.optim.Adam(model.parameters(), 0.003)
for _ in range(3):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
bits = loss.item() / math.log(2)
print(f"{bits:.1f} bits a byte; batches full to {sampler.summary()['filled']:.1%}")
