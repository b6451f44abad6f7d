# SPDX-License-Identifier: Apache-2.0
"""Whether a user takes what is offered: attention of the offer on what the user saw (DIN). `lookup` joins tables of users and of items with the events, without a loop and without a padded row."""

import numpy
import pandas
import torch
from torch import nn

import torch_lod as tl

USERS, ITEMS, KINDS = 300, 80, 4
draw = numpy.random.default_rng(0)  # users like two kinds of items, the younger ones only what is cheap
kind, price, age = draw.integers(0, KINDS, ITEMS), draw.random(ITEMS), draw.random(USERS)
of_kind, liked = [numpy.flatnonzero(kind == k) for k in range(KINDS)], draw.integers(0, KINDS, (USERS, 2))
user, offer = draw.integers(0, USERS, 4000), draw.integers(0, ITEMS, USERS)
seen = numpy.array([draw.choice(of_kind[k]) for k in liked[user, draw.integers(0, 2, len(user))]])
takes = (kind[offer][:, None] == liked).any(1) & ((age > 0.5) | (price[offer] < 0.7))
clicks = pandas.DataFrame({"user": user, "time": draw.permutation(len(user)), "item": seen})
mixed = draw.permutation(USERS)
users = pandas.DataFrame({"user": mixed, "age": age[mixed], "offer": offer[mixed], "takes": takes[mixed]})
items = pandas.DataFrame({"item": numpy.arange(ITEMS), "kind": kind, "price": price})

history = tl.data.from_frame(clicks, "user", sort_by="time")
profile = tl.data.lookup(users, "user", history.ids["user"])  # plain tensors, a row for each user
shown, offered = (tl.data.lookup(items, "item", x) for x in (history["item"], profile["offer"]))
dataset = tl.data.LoDDataset({**shown, **profile, "offer": offered["kind"], "cost": offered["price"]})
sampler = tl.data.TokenBudgetSampler(dataset.lod, budget=800)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=tl.data.collate)


class Interest(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.score = nn.Embedding(KINDS, 16), nn.Linear(49, 1)
        self.out = nn.Sequential(nn.Linear(34, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch):
        seen, offer = self.embed(batch["kind"]), self.embed(batch["offer"])
        beside = tl.sequence_expand_as(offer, seen)
        fields = torch.cat([seen, beside, seen * beside, batch["price"].float()[:, None]], 1)
        interest = tl.sequence_pool(seen * self.score(fields), "sum")
        user = torch.stack([batch["age"], batch["cost"]], 1).float()
        return self.out(torch.cat([interest, offer, user], 1))[:, 0]


def loss_of(batch):
    return nn.functional.binary_cross_entropy_with_logits(model(batch), batch["takes"].float())


torch.manual_seed(0)
model = Interest()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(40):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
right = sum(((model(b) > 0) == b["takes"]).sum().item() for b in loader) / USERS
print(f"{right:.0%} of {USERS} users are predicted")
