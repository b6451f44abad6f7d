# SPDX-License-Identifier: Apache-2.0
"""The next item of a session. The log is a table in any order: `from_frame` groups its rows by user, sorts them by time, and begins another session after half an hour."""

import numpy
import pandas
import torch
from torch import nn

import torch_lod as tl

ITEMS, VISITS = 40, 600
draw = numpy.random.default_rng(0)  # in a visit a user walks along a ring of items, in steps of a length of their own
who, first, counts = draw.integers(0, 60, VISITS), draw.integers(0, ITEMS, VISITS), draw.integers(1, 12, VISITS)
visit = numpy.repeat(numpy.arange(VISITS), counts)
step = numpy.arange(len(visit)) - numpy.repeat(counts.cumsum() - counts, counts)
item = (first[visit] + step * (1 + who[visit] % 3)) % ITEMS
seconds = 3600 * visit + 60 * step + draw.integers(0, 60, len(visit))
mixed = draw.permutation(len(visit))
time = numpy.datetime64("2026-01-01", "ms") + (1000 * seconds[mixed]).astype("timedelta64[ms]")
events = pandas.DataFrame({"user": who[visit][mixed], "time": time, "item": item[mixed]})

record = tl.data.from_frame(events, "user", sort_by="time", gap="30min")
sessions = record["item"].drop_level("user")
dataset = tl.data.LoDDataset({"before": sessions.seq[:, :-1], "next": sessions.seq[:, 1:]})
sampler = tl.data.TokenBudgetSampler(dataset.lod, budget=600)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.states = nn.Embedding(ITEMS, 32), tl.nn.GRU(32, 32)

    def forward(self, before):  # a score for every item after every event
        return self.states(self.embed(before))[0] @ self.embed.weight.t()


def loss_of(batch):
    return nn.functional.cross_entropy(model(batch["before"]), batch["next"])


torch.manual_seed(0)
model = Recommender()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(15):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
ranks = []  # of the item that follows, the best one first
for batch in loader:
    scores, following = model(batch["before"]).values(), batch["next"].values()
    ranks.append((scores >= scores.gather(1, following[:, None])).sum(1))
ranks = torch.cat(ranks)
right, reciprocal = (ranks <= 3).float().mean().item(), (1 / ranks).mean().item()
print(f"recall@3 {right:.0%}, MRR {reciprocal:.2f} in {len(dataset)} sessions")
