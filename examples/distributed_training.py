# SPDX-License-Identifier: Apache-2.0
"""Train a tagger on several processes: exact means over all words, and on again in the middle of an epoch.

    torchrun --nproc-per-node 2 examples/distributed_training.py            DistributedDataParallel
    torchrun --nproc-per-node 2 examples/distributed_training.py --fsdp     parameters in shards (fully_shard)
    torchrun --nproc-per-node 2 examples/distributed_training.py --resume   after it was stopped, with as many processes

Parts of speech of the sample of the English Web Treebank that is here, or of --data FOLDER. Every process takes batches of
about as many words; a step is the mean over the words of all its batches on all processes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import sys
from collections import Counter
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from running import InputError, exit_status, load_checkpoint, make_folder, positive, save_checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from treebank import SAMPLE, load

import torch_lod as tl

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Tagger(nn.Module):
    """Scores of the tags of every word, from the words of its sentence."""

    def __init__(self, words: int, tags: int, width: int = 64):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.sentences = tl.nn.LSTM(width, width, bidirectional=True)
        self.out = nn.Linear(2 * width, tags)

    def forward(self, words: tl.LoDTensor) -> tl.LoDTensor:
        rows, _ = self.sentences(self.embed(words))
        return self.out(rows)


def shared(model: Tagger, fsdp: bool) -> nn.Module:
    """The same weights on every process, or a shard of them."""
    if not fsdp:
        return DistributedDataParallel(model)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (model.embed, model.sentences, model):
        fully_shard(part, mesh=mesh)
    return model


def exchanging(model: nn.Module, last: bool) -> contextlib.AbstractContextManager:
    """Gradients are exchanged behind the last batch of a step."""
    if isinstance(model, DistributedDataParallel):
        return contextlib.nullcontext() if last else model.no_sync()
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[dict]) -> float:
    total = tl.distributed.global_token_count([batch["words"] for batch in batches])
    loss = 0.0
    for i, batch in enumerate(batches, start=1):
        with exchanging(model, last=i == len(batches)):
            rows = cross_entropy(model(batch["words"]), batch["tags"], reduction="none")
            mean = tl.distributed.global_token_mean(rows, total=total)
            mean.backward()
        loss += mean.item()
    optimizer.step()
    optimizer.zero_grad()
    return loss


@torch.no_grad()
def accuracy(model: nn.Module, samples: list[dict]) -> float:
    """Every process tags its share of the samples."""
    batch = cast(dict, tl.data.collate(samples[dist.get_rank() :: dist.get_world_size()]))
    right = model(batch["words"]).argmax(1).values() == batch["tags"].values()
    return tl.distributed.global_token_count(int(right.sum())) / tl.distributed.global_token_count(right.numel())


# ---- data --------------------------------------------------------------------------------------


def load_samples(folder: Path) -> tuple[dict[str, list[dict]], int, int]:
    """Documents as nested lists, document > sentence > word; how many words and tags there are."""
    splits = load(folder)
    counts = Counter(word.form.lower() for document in splits["train"] for word in document.words())
    known = {form: number for number, (form, count) in enumerate(counts.most_common(), start=1) if count > 1}
    tags = sorted({word.upos for documents in splits.values() for d in documents for word in d.words()})
    found = {}
    for split, documents in splits.items():
        found[split] = [
            {
                "words": [[known.get(word.form.lower(), 0) for word in sentence] for sentence in d.sentences()],
                "tags": [[tags.index(word.upos) for word in sentence] for sentence in d.sentences()],
            }
            for d in documents
        ]
    return found, len(known) + 1, len(tags)


# ---- training ----------------------------------------------------------------------------------


def train(asked: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    samples, words, tags = load_samples(asked.data)
    torch.manual_seed(0)  # the same first weights everywhere
    model = shared(Tagger(words, tags), asked.fsdp)
    optimizer = torch.optim.Adam(model.parameters(), lr=asked.lr)
    lengths = [sum(map(len, sample["words"])) for sample in samples["train"]]
    sampler = tl.data.TokenBudgetSampler(lengths, asked.budget, too_large="alone")  # knows its rank
    documents = cast(Dataset[dict], samples["train"])
    loader = DataLoader(documents, batch_sampler=sampler, collate_fn=tl.data.collate, num_workers=asked.workers)
    make_folder(asked.out)
    checkpoint = asked.out / "checkpoint.pt"
    done = 0  # batches of this epoch that training has had
    if asked.resume:
        state = load_checkpoint(checkpoint)
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(model, optimizer, **parts, options=StateDictOptions(full_state_dict=True))
        sampler.load_state_dict(state["sampler"])
        done = state["sampler"]["step"]
    steps, loss = 0, math.nan
    while sampler.epoch < asked.epochs:
        epoch, batches = sampler.epoch, iter(loader)
        while step := list(itertools.islice(batches, asked.accumulate)):
            with tl.distributed.watch():  # a process that dies is named
                loss = train_step(model, optimizer, step)
            done, steps = done + len(step), steps + 1
            if steps == asked.stop_after:
                save(model, optimizer, sampler.state_dict(step=done), checkpoint)  # workers are ahead of training
                return
        done = 0
        if rank == 0:
            print(f"epoch {epoch + 1}/{asked.epochs}  loss {loss:.4f}", flush=True)
    save(model, optimizer, sampler.state_dict(), checkpoint)
    right = accuracy(model, samples["test"])
    if rank == 0:
        kind = "fully_shard" if asked.fsdp else "DistributedDataParallel"
        print(f"test accuracy {right:.1%} ({world} processes, {kind})")


def save(model: nn.Module, optimizer: torch.optim.Optimizer, position: dict, path: Path) -> None:
    """Whole, whatever the shards: rank 0 has it and writes it."""
    weights, moments = get_state_dict(model, optimizer, options=WHOLE)
    if dist.get_rank() == 0:
        state = {"model": weights, "optimizer": moments, "sampler": position, "fingerprint": None}
        save_checkpoint(state, path)
        print(f"saved {path} at batch {position['step']} of epoch {position['epoch'] + 1}", flush=True)
    dist.barrier()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, default=SAMPLE, metavar="FOLDER", help="a treebank, default: %(default)s")
    add("--fsdp", action="store_true", help="shard the parameters")
    add("--epochs", type=positive(int), default=12, help="default: %(default)s")
    add("--budget", type=positive(int), default=200, help="words of a batch, default: %(default)s")
    add("--accumulate", type=positive(int), default=2, help="batches of a step, default: %(default)s")
    add("--lr", type=positive(float), default=1e-2, help="default: %(default)s")
    add("--workers", type=int, default=1, help="of each loader, default: %(default)s")
    add("--out", type=Path, default=Path("runs/distributed"), help="folder, default: %(default)s")
    add("--stop-after", type=positive(int), metavar="STEPS", help="save, and stop there")
    add("--resume", action="store_true", help="go on from the checkpoint in --out")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)

    def run() -> None:
        if "RANK" not in os.environ:
            raise InputError(f"start it with torchrun: torchrun --nproc-per-node 2 {sys.argv[0]}")
        dist.init_process_group("gloo")
        try:
            train(asked)
        finally:
            dist.destroy_process_group()

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
