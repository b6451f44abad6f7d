# SPDX-License-Identifier: Apache-2.0
"""The best documents of every query first: LambdaRank, which weighs a pair by what exchanging it would change of NDCG."""

import torch
from torch import nn

import torch_lod as tl

torch.manual_seed(0)
taste, samples = torch.randn(8), []
for n in torch.randint(5, 80, (200,)).tolist():
    documents = torch.randn(n, 8)
    relevance = (1 + documents @ taste + 0.3 * torch.randn(n)).round().clamp(0, 4)
    samples.append({"documents": documents, "relevance": relevance})
sampler = tl.data.TokenBudgetSampler([len(s["documents"]) for s in samples], budget=2000)
loader = torch.utils.data.DataLoader(samples, batch_sampler=sampler, collate_fn=tl.data.collate)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 1, bias=False)

    def forward(self, documents):
        return self.second(self.first(documents).relu()).squeeze(1)


def discounted(scores):  # 1 / log2(1 + place), the best at place 1
    return 1 / (2 + tl.sequence_sort(scores.detach(), descending=True, return_rank=True)[1]).log2()


def loss_of(batch):
    scores, gains = model(batch["documents"]), 2 ** batch["relevance"] - 1
    _, j = tl.sequence_pairs(scores, scores)  # of document i with j; what i has is expanded to its pairs
    gain, place, score = (
        tl.sequence_expand_as(t, j) - tl.sequence_gather(t, j, absolute=True)
        for t in (gains, discounted(scores), scores)
    )
    lost = gain.clamp(min=0) * place.abs() * nn.functional.softplus(-score)
    return tl.sequence_loss(tl.sequence_pool(lost, "sum"))


def ndcg(batch):
    gains, scores = 2 ** batch["relevance"] - 1, model(batch["documents"])
    found, best = (tl.sequence_pool(gains * discounted(by), "sum") for by in (scores, gains))
    return torch.where(best > 0, found / best, 1)


model = Scorer()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(8):
    for batch in loader:
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
right = torch.cat([ndcg(batch) for batch in loader]).mean().item()
print(f"NDCG of {len(samples)} queries: {right:.2f}")
