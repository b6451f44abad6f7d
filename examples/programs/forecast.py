# SPDX-License-Identifier: Apache-2.0
"""What follows a series: an encoder, and a decoder that attends to it. It learns from the truth and then reads its own output."""

import torch
from torch import nn

import torch_lod as tl

torch.manual_seed(0)
samples = []
for n in torch.randint(24, 72, (160,)).tolist():
    series = 100 * torch.rand(1) * (2 + torch.normal(torch.sin(torch.arange(n) * torch.rand(1)), 0.05))[:, None]
    samples.append({"past": series[: -(n // 8)], "future": series[-(n // 8) :]})
sampler = tl.data.TokenBudgetSampler([len(s["past"]) for s in samples], budget=1500)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.states, self.cell, self.out = tl.nn.GRU(1, 24), nn.GRUCell(25, 24), nn.Linear(24, 1)
        self.key, self.query = (nn.Linear(24, 24, bias=False) for _ in range(2))

    def step(self, row, h, past):
        scores = (past["keys"] * tl.sequence_expand_as(self.query(h), past["keys"])).sum(1, keepdim=True)
        read = tl.sequence_pool(past["states"] * tl.sequence_softmax(scores), "sum")
        h = self.cell(torch.cat([row, read], 1), h)
        return row + self.out(h), h

    def own(self, said, past):
        return (said := self.step(*said, past))[0], said

    def forward(self, past, future=None, ahead=None):
        states, last = self.states(past)
        start, static = past.seq[:, -1], {"states": states, "keys": self.key(states)}
        if future is None:
            return tl.scan(self.own, lengths=ahead, init=(start, last[0]), static=static)[0]
        return tl.scan(self.step, tl.sequence_shift(future, 1, tl.per_sequence(start)), last[0], static=static)[0]


def scaled(batch):
    size = tl.per_sequence(tl.sequence_pool(batch["past"].abs(), "mean"))
    return batch["past"] / size, batch["future"] / size


def loss_of(batch):
    past, future = scaled(batch)
    return nn.functional.mse_loss(model(past, future), future)


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(25):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
error = torch.cat([(model(p, ahead=f.lengths()) - f).abs().values() for p, f in map(scaled, loader)]).mean().item()
print(f"off by {error:.2f} of the size of a series")
