# SPDX-License-Identifier: Apache-2.0
"""Training on several processes equals training on one: checks of tests/distributed/distributed_run.py."""

import contextlib

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import torch_lod as tl

D = tl.distributed
CLASSES = 4


class Tagger(torch.nn.Module):
    """Scores of every word, from the words of its line and the lines of its text."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 6)
        self.words = tl.nn.LSTM(6, 6, bidirectional=True)
        self.lines = tl.nn.GRU(12, 6)
        self.out = torch.nn.Linear(18, CLASSES)

    def forward(self, x):
        words, _ = self.words(self.embed(x))
        lines, _ = self.lines(tl.sequence_pool(words, "max"))
        return self.out(torch.cat([words, tl.sequence_expand_as(lines, words)], 1))


def made(rank: int, step: int = 0):
    """Words and their tags; one tag in five does not count. Rank 1 has nothing at step 0."""
    rng = torch.Generator().manual_seed(100 * rank + step)
    texts = 0 if (rank, step) == (1, 0) else 2 + rank
    lines = torch.randint(0, 4, (texts,), generator=rng)
    words = torch.randint(0, 6, (int(lines.sum()),), generator=rng)
    count = int(words.sum())
    tags = torch.randint(0, CLASSES, (count,), generator=rng)
    tags[torch.rand(count, generator=rng) < 0.2] = -100
    return tl.from_lengths(torch.randint(0, 20, (count,), generator=rng), [lines, words]), tags


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def model_of_all() -> torch.nn.Module:
    torch.manual_seed(7)
    return Tagger().double()


def gradients(model) -> dict[str, torch.Tensor]:
    found = {}
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        found[name.removeprefix("module.")] = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
    return found


def on_one_process(batches) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean over all tokens, and its gradients."""
    model = model_of_all()
    rows = torch.cat([losses(model, batch).values() for batch in batches])
    loss = rows.sum() / sum(int((tags != -100).sum()) for _, tags in batches)
    loss.backward()
    return float(loss), gradients(model)


def compare(model, value, batches) -> None:
    loss, expected = on_one_process(batches)
    torch.testing.assert_close(float(value), loss, rtol=1e-12, atol=0)
    for name, g in gradients(model).items():
        torch.testing.assert_close(
            g, expected[name], rtol=1e-9, atol=1e-13, msg=lambda text, name=name: f"{name}: {text}"
        )


def sharded() -> torch.nn.Module:
    model = model_of_all()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (model.words, model.lines, model):
        fully_shard(part, mesh=mesh)
    return model


def exact_mean_of_ddp() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(3):
        model = DistributedDataParallel(model_of_all())
        value = D.global_token_mean(losses(model, made(rank, step)))
        value.backward()
        compare(model, value, [made(r, step) for r in range(world)])
    words, tags = made(rank, 5)
    weight = torch.linspace(0.1, 2, len(tags), dtype=torch.float64)
    rows = losses(model_of_all(), (words, tags)).detach().values()
    value = D.global_token_mean(rows, mask=tags != -100, weight=weight)
    others: list = [None] * world
    dist.all_gather_object(others, (rows[tags != -100], weight[tags != -100]))
    expected = sum((w * one).sum() for one, w in others) / sum(w.sum() for _, w in others)
    torch.testing.assert_close(value, expected)
    spread = D.global_token_mean(losses(model_of_all(), (words, tags)), weight=words.with_values(weight))
    torch.testing.assert_close(spread, expected)
    nothing = torch.zeros(0, requires_grad=True)
    value = D.global_token_mean(nothing)
    value.backward()
    assert float(value) == 0 and nothing.grad.shape == (0,)
    half = D.global_token_mean(torch.full((70_000,), 3.0, dtype=torch.float16))
    assert half.dtype == torch.float16 and float(half) == 3


def exact_mean_of_fsdp() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(2):
        model = sharded()
        value = D.global_token_mean(losses(model, made(rank, step)))
        value.backward()
        compare(model, value, [made(r, step) for r in range(world)])


def accumulation() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    own = [made(rank, step) for step in range(3)]
    every = [made(r, step) for r in range(world) for step in range(3)]
    total = D.global_token_count([int((tags != -100).sum()) for _, tags in own])
    assert total == sum(int((tags != -100).sum()) for _, tags in every) and type(total) is int
    assert D.global_token_count([words for words, _ in own]) == sum(len(words) for words, _ in every)
    assert D.global_token_count(0.5) == world / 2
    for make in (lambda: DistributedDataParallel(model_of_all()), sharded):
        model, value = make(), 0.0
        for i, batch in enumerate(own):
            last = i == len(own) - 1
            alone = contextlib.nullcontext()
            if isinstance(model, DistributedDataParallel):
                alone = alone if last else model.no_sync()
            else:
                model.set_requires_gradient_sync(last)
            with alone:
                loss = D.global_token_mean(losses(model, batch), total=total)
                loss.backward()
            value += loss.detach()
        compare(model, value, every)


def ddp_hooks() -> None:
    """Every way in which DDP and FSDP take outputs apart leaves them LoDTensors with gradients."""
    rank, world = dist.get_rank(), dist.get_world_size()
    batch = made(rank, 1)

    class Both(Tagger):
        def forward(self, x, *, turned=None):
            self.seen = type(x), type(turned["x"])
            scores = super().forward(x)
            return {"scores": scores, "turned": [tl.sequence_reverse(scores)]}

    for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        torch.manual_seed(7)
        model = DistributedDataParallel(Both().double(), **options)
        for _ in range(2):
            model.zero_grad()
            found = model(batch[0], turned={"x": batch[0]})
            assert model.module.seen == (tl.LoDTensor, tl.LoDTensor)
            assert type(found["scores"]) is tl.LoDTensor and type(found["turned"][0]) is tl.LoDTensor, options
            assert found["scores"].lod == batch[0].lod
            value = D.global_token_mean(F.cross_entropy(found["scores"], batch[1], reduction="none"))
            value.backward()
            compare(model, value, [made(r, 1) for r in range(world)])


def samplers_know_their_rank() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    lengths = torch.randint(1, 40, (300,), generator=torch.Generator().manual_seed(0))
    for make in (tl.data.TokenBudgetSampler, tl.data.PackingSampler):
        sampler = make(lengths, 200)
        assert (sampler.rank, sampler.world_size) == (rank, world)
        others: list = [None] * world
        dist.all_gather_object(others, list(sampler))
        assert len({len(batches) for batches in others}) == 1
        assert sorted(i for batches in others for batch in batches for i in batch) == list(range(300))
        assert make(lengths, 200).summary()["imbalance"] < 0.05
