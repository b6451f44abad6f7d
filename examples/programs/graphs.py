# SPDX-License-Identifier: Apache-2.0
"""What a graph is, from its edges: messages from node to node, and a gate that says which nodes count."""

import torch
from torch import nn

import torch_lod as tl

KINDS = ("path", "ring", "star")


def edges_of(kind, n):  # as pairs of positions in the graph, in both directions
    there = {"path": range(n - 1), "ring": range(n), "star": range(1, n)}[kind]
    pairs = [(0, i) if kind == "star" else (i, (i + 1) % n) for i in there]
    return torch.tensor([edge for a, b in pairs for edge in ((a, b), (b, a))])


torch.manual_seed(0)
samples = []
for i, n in enumerate(torch.randint(8, 80, (240,)).tolist()):
    samples.append({"nodes": torch.rand(n, 4), "edges": edges_of(KINDS[i % 3], n), "kind": i % 3})
sampler = tl.data.TokenBudgetSampler([len(s["nodes"]) for s in samples], budget=1000)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class Graphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(4, 24), nn.Linear(24, 24)])
        self.beside = nn.ModuleList([nn.Linear(4, 24, bias=False), nn.Linear(24, 24, bias=False)])
        self.gate, self.out = nn.Linear(24, 1, bias=False), nn.Linear(24, len(KINDS))

    def forward(self, h, edges):
        near, _ = tl.from_edges(edges, h)
        for own, beside in zip(self.own, self.beside):
            h = (own(h) + beside(tl.sequence_pool(tl.sequence_gather(h, near), "sum"))).relu()
        return self.out(tl.sequence_pool(tl.sequence_softmax(self.gate(h)) * h, "sum"))


def loss_of(batch):
    return nn.functional.cross_entropy(model(batch["nodes"], batch["edges"]), batch["kind"])


model = Graphs()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(25):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
right = sum((model(b["nodes"], b["edges"]).argmax(1) == b["kind"]).sum().item() for b in loader) / len(samples)
print(f"{right:.0%} of {len(samples)} graphs are recognised")
