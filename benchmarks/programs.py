# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/programs beside the same models without LoDTensors, from samples to trained parameters.

python -m benchmarks.programs [--rounds 9] [--write benchmarks/results/FILE.md]

Each program is run from its file. Its model and its twin then get the same parameters and the same samples in the same batches;
losses and gradients of every batch are compared. What is timed is an epoch: collate, forward, backward, optimizer, on one
thread, in CPU time, in turns, the smallest of the rounds; the twin also on batches of samples of similar length, in which it
pads less. A token is a row: a word, a byte, a frame, an event. Programs that group a DataFrame need pandas, and are left out
without it.
"""

import argparse
import contextlib
import copy
import importlib.util
import io
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy, ctc_loss, softplus
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import torch_lod as tl

from . import measure
from .cases import Setup

FOLDER = Path(__file__).parent.parent / "examples/programs"
TOLERANCE = 1e-4


def programs() -> dict[str, str]:
    """The source of every program by its title."""
    return {title: (FOLDER / f"{title.lower().replace(' ', '_')}.py").read_text(encoding="utf-8") for title in TWINS}


def run(title: str, source: str) -> tuple[dict, str]:
    """The names that a program defines, and what it prints."""
    names, printed = {"__name__": title}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, title, "exec"), names)
    return names, printed.getvalue().strip()


def padded(sequences, value=0) -> torch.Tensor:
    return pad_sequence([torch.as_tensor(s) for s in sequences], batch_first=True, padding_value=value)


def recurrence(layer: nn.RNNBase) -> nn.RNNBase:
    """torch's layer with the parameters of ours."""
    made = getattr(nn, type(layer).__name__)(
        layer.input_size, layer.hidden_size, batch_first=True, bidirectional=layer.bidirectional
    )
    made.load_state_dict(layer.state_dict())
    return made


class Twin(nn.Module):
    """The same model without LoDTensors: `collate` makes its batch of samples, `forward` the loss of a batch. `samples` makes
    them of what the program defines, where it does not have them as a list."""

    recurrent: tuple[str, ...] = ()

    def __init__(self, names: dict):
        super().__init__()
        for name, child in copy.deepcopy(names["model"]).named_children():
            setattr(self, name, recurrence(child) if name in self.recurrent else child)

    @staticmethod
    def samples(names: dict) -> list:
        return list(names.get("samples") or names.get("dataset") or names["texts"])

    def through(self, layer: nn.RNNBase, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(layer(packed)[0], batch_first=True)[0]


class Classifier(Twin):
    recurrent = ("words", "sentences")

    def collate(self, samples):
        longest = max(len(s) for d in samples for s in d["words"])
        lines = [padded([*d["words"], [0] * longest])[:-1] for d in samples]
        lengths = padded([[len(s) for s in d["words"]] for d in samples])
        counts = torch.tensor([len(d["words"]) for d in samples])
        return padded(lines), lengths, counts, torch.tensor([d["genre"] for d in samples])

    @staticmethod
    def last(states, lengths):
        """The state before the padding begins; zeros if there is none."""
        found = states[torch.arange(len(states)), (lengths - 1).clamp(min=0)]
        return found * (lengths > 0).unsqueeze(1)

    def forward(self, words, lengths, counts, genre):
        states, _ = self.words(self.embed(words.flatten(0, 1)))
        sentences = self.last(states, lengths.flatten()).unflatten(0, lengths.shape)
        states, _ = self.sentences(sentences)
        return cross_entropy(self.out(self.last(states, counts)), genre)


class Tagger(Twin):
    recurrent = ("states",)

    def collate(self, samples):
        lengths = torch.tensor([len(s["words"]) for s in samples])
        return padded([s["words"] for s in samples]), lengths, padded([s["tags"] for s in samples], -100)

    def forward(self, words, lengths, tags):
        scores = self.out(self.through(self.states, self.embed(words), lengths))
        return cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=-100)


class Spotter(Twin):
    def collate(self, samples):
        frames = [s["frames"] for s in samples]
        lengths = torch.tensor([len(f) for f in frames])
        return padded(frames), lengths, torch.stack([s["digit"] for s in samples])

    def forward(self, frames, lengths, digit):
        beyond = (torch.arange(frames.shape[1]) >= lengths[:, None])[:, None]
        x = self.first(frames.transpose(1, 2)).relu().masked_fill(beyond, 0)
        x = self.second(x).relu().masked_fill(beyond, -torch.inf)
        return cross_entropy(self.out(x.amax(2)), digit)


class Transformer(Twin):
    def collate(self, samples):
        ids = [torch.frombuffer(bytearray(text, "utf-8"), dtype=torch.uint8).long() for text in samples]
        lengths = torch.tensor([len(i) for i in ids])
        following = [torch.cat([i[1:], i.new_full((1,), -100)]) for i in ids]
        return padded(ids), lengths, padded(following, -100)

    def forward(self, ids, lengths, following):
        at = torch.arange(ids.shape[1])
        x = self.embed(ids) + self.positions(at)
        causal = at[:, None] < at
        x = self.layers(x, mask=causal, src_key_padding_mask=at >= lengths[:, None], is_causal=True)
        return cross_entropy(self.out(x).flatten(0, 1), following.flatten(), ignore_index=-100)


class Listener(Twin):
    recurrent = ("states",)

    def collate(self, samples):
        frames, letters = [s["frames"] for s in samples], [s["letters"] for s in samples]
        lengths = (torch.tensor([len(s) for s in given]) for given in (frames, letters))
        return padded(frames), padded(letters), *lengths

    def forward(self, frames, letters, lengths, counts):
        x = self.conv(frames.transpose(1, 2)).transpose(1, 2)
        lengths = lengths // 4 + 1
        there = torch.arange(x.shape[1]) < lengths[:, None]
        x = torch.zeros_like(x).masked_scatter(there[:, :, None], self.norm(x[there]).relu())
        scores = self.out(self.through(self.states, x, lengths)).log_softmax(2)
        return ctc_loss(scores.transpose(0, 1), letters, lengths, counts)


class Chunker(Twin):
    recurrent = ("states",)

    def collate(self, samples):
        sentences = [s for d in samples for s in d["words"]]
        longest = max(len(word) for s in sentences for word in s)
        lines = [padded([*s, [0] * longest])[:-1] for s in sentences]
        sizes = padded([[len(word) for word in s] for s in sentences])
        tags = padded([s for d in samples for s in d["tags"]])
        return padded(lines), sizes, torch.tensor([len(s) for s in sentences]), tags

    def forward(self, words, sizes, lengths, tags):
        there = (torch.arange(words.shape[2]) < sizes[:, :, None]).flatten(0, 1)[:, None]
        x = self.letters(words.flatten(0, 1)).transpose(1, 2) * there
        x = self.conv(x).relu().masked_fill(~there, 0).amax(2)
        scores = self.out(self.through(self.states, x.unflatten(0, sizes.shape), lengths))
        return self.negative_log_likelihood(scores, tags, lengths)

    def negative_log_likelihood(self, scores, tags, lengths):
        scores = scores.double()  # in float32 the probabilities of paths lose digits with every word
        rules = [self.crf.start_transitions[None], self.crf.end_transitions[None], self.crf.transitions]
        begin, end, between = (
            torch.cat(rules).masked_fill(self.crf.forbidden, -torch.inf).split([1, 1, scores.shape[2]])
        )
        each = torch.arange(len(tags))
        own = scores.gather(2, tags[:, :, None])[:, :, 0]
        own[:, 1:] += between[tags[:, :-1], tags[:, 1:]]
        there = torch.arange(tags.shape[1]) < lengths[:, None]
        path = own.masked_fill(~there, 0).sum(1) + begin[0, tags[:, 0]] + end[0, tags[each, lengths - 1]]
        total = begin + scores[:, 0]
        for t in range(1, tags.shape[1]):
            further = (total[:, :, None] + between).logsumexp(1) + scores[:, t]
            total = torch.where(there[:, t, None], further, total)
        return ((total + end).logsumexp(1) - path).mean()


class Forecaster(Twin):
    recurrent = ("states",)

    def collate(self, samples):
        past, future = ([s[name] for s in samples] for name in ("past", "future"))
        lengths = (torch.tensor([len(s) for s in given]) for given in (past, future))
        return padded(past), padded(future), *lengths

    def forward(self, past, future, lengths, ahead):
        there = torch.arange(past.shape[1]) < lengths[:, None]
        size = past.abs().sum(1) / lengths[:, None]
        past, future, each = past / size[:, None], future / size[:, None], torch.arange(len(past))
        states = self.through(self.states, past, lengths)
        keys, h, said = self.key(states), states[each, lengths - 1], []
        for row in torch.cat([past[each, lengths - 1][:, None], future[:, :-1]], 1).unbind(1):
            scores = (keys @ self.query(h)[:, :, None]).masked_fill(~there[:, :, None], -torch.inf)
            h = self.cell(torch.cat([row, (states * scores.softmax(1)).sum(1)], 1), h)
            said.append(row + self.out(h))
        within = torch.arange(future.shape[1]) < ahead[:, None]
        return (torch.stack(said, 1) - future)[within].square().mean()


def table(frame, *columns: str) -> list[tuple]:
    """The rows of a DataFrame as tuples of Python's numbers."""
    arrays = [frame[name].to_numpy() for name in columns]
    return list(zip(*((a.astype(int) if a.dtype.kind == "M" else a).tolist() for a in arrays)))


def grouped(rows: list[tuple]) -> dict:
    """The rest of each row by its first number, in the order in which those come, sorted by the next."""
    found: dict = {}
    for key, *rest in rows:
        found.setdefault(key, []).append(rest)
    return {key: sorted(group, key=lambda rest: rest[0]) for key, group in found.items()}


class Recommender(Twin):
    recurrent = ("states",)

    @staticmethod
    def samples(names):
        found = []
        for visits in grouped(table(names["events"], "user", "time", "item")).values():
            found += [[]]
            for (now, item), (before, _) in zip(visits, [visits[0], *visits]):
                found += [[]] if now - before > 30 * 60 * 1000 else []
                found[-1].append(item)
        return found

    def collate(self, samples):
        lengths = torch.tensor([len(s) - 1 for s in samples])
        return padded([s[:-1] for s in samples]).long(), lengths, padded([s[1:] for s in samples], -100).long()

    def forward(self, before, lengths, following):
        states = self.through(self.states, self.embed(before), lengths.clamp(min=1))
        scores = states @ self.embed.weight.t()
        return cross_entropy(scores.flatten(0, 1), following.flatten(), ignore_index=-100)


class Interest(Twin):
    @staticmethod
    def samples(names):
        users = {user: rest for user, *rest in table(names["users"], "user", "age", "offer", "takes")}
        items = {item: rest for item, *rest in table(names["items"], "item", "kind", "price")}
        clicks = grouped(table(names["clicks"], "user", "time", "item"))
        return [
            ([items[item] for _, item in seen], age, items[offer], float(takes))
            for seen, (age, offer, takes) in ((seen, users[user]) for user, seen in clicks.items())
        ]

    def collate(self, samples):
        kinds, prices = (padded([[fields[i] for fields in seen] for seen, *_ in samples]) for i in (0, 1))
        lengths = torch.tensor([len(seen) for seen, *_ in samples])
        age, offer, takes = (torch.tensor([s[i] for s in samples]) for i in (1, 2, 3))
        return kinds, prices, lengths, age, offer, takes

    def forward(self, kinds, prices, lengths, age, offered, takes):
        within = torch.arange(kinds.shape[1]) < lengths[:, None]
        seen, offer = self.embed(kinds), self.embed(offered[:, 0].long())
        beside = offer[:, None].expand_as(seen)
        weights = self.score(torch.cat([seen, beside, seen * beside, prices[..., None]], 2))
        interest = (seen * weights * within[..., None]).sum(1)
        scores = self.out(torch.cat([interest, offer, age[:, None], offered[:, 1:]], 1))[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(scores, takes)


class Graphs(Twin):
    def collate(self, samples):
        nodes = padded([s["nodes"] for s in samples])
        beside = nodes.new_zeros(len(samples), nodes.shape[1], nodes.shape[1])
        for matrix, sample in zip(beside, samples):
            matrix.index_put_((sample["edges"][:, 1], sample["edges"][:, 0]), torch.ones(()), accumulate=True)
        return (
            nodes,
            beside,
            torch.tensor([len(s["nodes"]) for s in samples]),
            torch.tensor([s["kind"] for s in samples]),
        )

    def forward(self, h, adjacent, counts, kind):
        there = (torch.arange(h.shape[1]) < counts[:, None])[:, :, None]
        for own, beside in zip(self.own, self.beside):
            h = (own(h) + beside(adjacent @ h)).relu()
        weight = self.gate(h).masked_fill(~there, -torch.inf).softmax(1)
        return cross_entropy(self.out((weight * h).sum(1)), kind)


class Scorer(Twin):
    def collate(self, samples):
        documents, relevance = (padded([s[name] for s in samples]) for name in ("documents", "relevance"))
        return documents, relevance, torch.tensor([len(s["documents"]) for s in samples])

    def forward(self, documents, relevance, counts):
        there = torch.arange(documents.shape[1]) < counts[:, None]
        scores = self.second(self.first(documents).relu()).squeeze(2)
        order = scores.detach().masked_fill(~there, -torch.inf).sort(dim=1, descending=True, stable=True).indices
        discount = 1 / (2 + order.argsort(1)).log2()
        gain, place, score = (t[:, :, None] - t[:, None] for t in (2**relevance - 1, discount, scores))
        lost = gain.clamp(min=0) * place.abs() * softplus(-score)
        return lost.masked_fill(~(there[:, :, None] & there[:, None]), 0).sum() / counts.sum()


TWINS = {
    "Nested classifier": (Classifier, "padded"),
    "Tagger": (Tagger, "PackedSequence"),
    "Frames": (Spotter, "padded"),
    "Packed Transformer": (Transformer, "padded"),
    "CTC": (Listener, "PackedSequence"),
    "Chunks": (Chunker, "PackedSequence"),
    "Forecast": (Forecaster, "PackedSequence"),
    "Sessions": (Recommender, "PackedSequence"),
    "Interest": (Interest, "padded"),
    "Graphs": (Graphs, "padded"),
    "Ranking": (Scorer, "padded"),
}


class Epoch:
    """One of two contestants: an epoch over the same samples in the same batches."""

    def __init__(self, model: nn.Module, batch_of, loss_of, plan: list[list[int]]):
        self.model, self.batch_of, self.loss_of, self.plan = model, batch_of, loss_of, plan
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        self.seconds = float("inf")

    def gradients(self, indices: list[int]) -> list[torch.Tensor]:
        self.optimizer.zero_grad()
        loss = self.loss_of(self.batch_of(indices))
        loss.backward()
        named = sorted(self.model.named_parameters())
        return [loss.detach(), *(p.grad for _, p in named if p.grad is not None)]

    def turn(self) -> None:
        begin = time.process_time()
        for indices in self.plan:
            loss = self.loss_of(self.batch_of(indices))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.seconds = min(self.seconds, time.process_time() - begin)


class Pair(NamedTuple):
    """What a program prints, both contestants, and the twin again on batches of similar length; the largest difference of a
    loss or gradient; rows, and cells when padded."""

    names: dict
    printed: str
    ours: Epoch
    theirs: Epoch
    alike: Epoch
    apart: float
    rows: int
    cells: int


def paired(title: str, source: str) -> Pair:
    names, printed = run(title, source)
    kind, _ = TWINS[title]
    data = names.get("samples") or names.get("dataset") or names["texts"]
    plan = list(names["sampler"])
    twin = kind(names)
    take = getattr(data, "__getitems__", lambda indices: [data[i] for i in indices])
    collate, samples = names["loader"].collate_fn, list(data)
    ours = Epoch(names["model"], lambda indices: collate(take(indices)), names["loss_of"], plan)
    lengths = [len(rows_of(collate([sample]))) for sample in samples]
    similar = list(tl.data.BucketSampler(lengths, -(-len(samples) // len(plan))))
    made = twin.samples(names)
    theirs, alike = (
        Epoch(twin, lambda indices: twin.collate([made[i] for i in indices]), lambda batch: twin(*batch), batches)
        for batches in (plan, similar)
    )
    apart, rows, cells = 0.0, 0, 0
    for indices in plan:
        for x, y in zip(ours.gradients(indices), theirs.gradients(indices), strict=True):
            apart = max(apart, float((x - y).abs().max() / y.abs().max().clamp(min=1e-6)))
        x, (dense, *_) = rows_of(ours.batch_of(indices)), theirs.batch_of(indices)
        rows += len(x)
        cells += dense.numel() // x[:1].numel()
    return Pair(names, printed, ours, theirs, alike, apart, rows, cells)


def rows_of(batch) -> tl.LoDTensor:
    """What a model reads of a batch."""
    return batch if isinstance(batch, tl.LoDTensor) else next(iter(batch.values()))


def compare(title: str, source: str, rounds: int) -> str:
    """A row of the table."""
    pair = paired(title, source)
    if not pair.apart <= TOLERANCE:
        raise SystemExit(f"{title}: the twin differs by {pair.apart:.1e}, more than {TOLERANCE}")
    contestants = pair.ours, pair.theirs, pair.alike
    for _ in range(rounds):
        for contestant in contestants:
            contestant.turn()
    ours, theirs, alike = (pair.rows / contestant.seconds for contestant in contestants)
    return (
        f"| {title} | {len(source.splitlines())} | {pair.printed} | {pair.rows:,} | {pair.cells / pair.rows:.1f} | "
        f"{ours:,.0f} | {TWINS[title][1]}: {theirs:,.0f} | {ours / theirs:.1f} | {alike:,.0f} | {ours / alike:.1f} | "
        f"{pair.apart:.0e} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", type=Path, help="put the table into this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    about = measure.header(Setup(torch.device("cpu"), 1, False), measure.Effort(given.rounds, 0, 0))
    lines = [
        "# CPU: programs beside their twins\n",
        "`python -m benchmarks.programs`: [the programs](../../docs/programs.md), each beside the same model with the same",
        "parameters on the same batches of samples. An epoch from samples to parameters, in CPU time, the contestants in turns;",
        "the twin also on equally many batches of samples of similar length (`BucketSampler`), as one would give it.\n",
        *(f"- {what}: {about[what]}" for what in ("processor", "torch", "torch_lod", "load average at the start")),
        f"- minima of {given.rounds} alternating rounds\n",
        "| program | lines | it prints | tokens | padded, per token | tokens/s | twin, tokens/s | ours / twin | twin, batches of "
        "similar length | ours / that | largest difference of loss and gradients |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for title, source in programs().items():
        if "import pandas" in source and importlib.util.find_spec("pandas") is None:
            continue
        lines.append(compare(title, source, given.rounds))
        print(lines[-1], flush=True)
    if given.write:
        given.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
