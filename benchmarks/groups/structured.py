# SPDX-License-Identifier: Apache-2.0
"""Structured prediction: conditional random fields, connectionist temporal classification, beam search, edit distances."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import torch_lod as tl
from torch_lod.sequence.beam import best_words

from ..cases import Case, Cases, Run, Setup, has, optional, tensors
from ..goals import faster_than, of_floor


def cases(setup: Setup) -> Cases:
    for tags in (20,) if setup.quick else (20, 50):
        yield _crf(tags, setup.device)
        yield _decoding(tags, setup.device)
    for tail in (False,) if setup.quick else (False, True):
        yield _ctc(tail, setup.device)
    yield _prefixes(setup.device)
    yield _beam(setup.device)
    if setup.device.type == "cpu" and setup.threads == 1 and not setup.quick:
        for case in (_crf(50, setup.device), _ctc(False, setup.device), _edits(400, setup.device)):
            yield _two_threads(case)
    for length in (50,) if setup.quick else (50, 400):
        yield _edits(length, setup.device)


def _sentences() -> Tensor:
    """Lengths of 256 sentences, as in treebanks."""
    rng = np.random.default_rng(0)
    return torch.from_numpy(np.clip(rng.gamma(2.2, 11.5, 256).astype(int) + 1, 1, 120))


class _Tagging:
    def __init__(self, tags: int, device: torch.device):
        g = torch.Generator().manual_seed(0)
        self.lengths = _sentences()
        self.rows = int(self.lengths.sum())
        self.lod = tl.LoD.from_lengths([self.lengths])
        self.scores = torch.randn(self.rows, tags, generator=g).to(device)
        self.labels = torch.randint(0, tags, (self.rows,), generator=g).to(device)
        self.crf = tl.nn.LinearChainCRF(tags).to(device)
        self.padded = pad_sequence(self.scores.split(self.lengths.tolist()), batch_first=True)
        self.targets = pad_sequence(self.labels.split(self.lengths.tolist()), batch_first=True)
        self.mask = (torch.arange(int(self.lengths.max())) < self.lengths[:, None]).to(device)
        self.weight = torch.randn(tags, tags, generator=g).to(device)

    def peer(self, tags: int):
        """pytorch-crf's module with our parameters, None if it is not installed."""
        if not has("torchcrf"):
            return None
        peer = optional("torchcrf").CRF(tags, batch_first=True).to(self.scores.device)
        peer.load_state_dict(self.crf.state_dict())
        return peer

    def floor(self):
        """Scores exponentiated once, and three products of the size that both recursions and the counts have."""
        a = self.scores.exp() @ self.weight
        return (a @ self.weight).t() @ a

    def by_sentence(self) -> tuple[Tensor, ...]:
        """The loss and the gradient of the transitions, in float64, sentence by sentence."""
        crf = tl.nn.LinearChainCRF(self.scores.shape[1], dtype=torch.float64)
        crf.load_state_dict(self.crf.state_dict())
        total = torch.zeros((), dtype=torch.float64)
        for x, y in zip(*(t.cpu().split(self.lengths.tolist()) for t in (self.scores.double(), self.labels))):
            a = crf.start_transitions + x[0]
            score = crf.start_transitions[y[0]] + x[0, y[0]] + crf.end_transitions[y[-1]]
            for t in range(1, len(x)):
                a = (a[:, None] + crf.transitions).logsumexp(0) + x[t]
                score = score + crf.transitions[y[t - 1], y[t]] + x[t, y[t]]
            total = total + (a + crf.end_transitions).logsumexp(0) - score
        return total.detach(), torch.autograd.grad(total, crf.transitions)[0]


def _crf(tags: int, device: torch.device) -> Case:
    work = _Tagging(tags, device)
    x = tl.LoDTensor(work.scores, work.lod)
    peer = work.peer(tags)

    def training(loss: Callable[[Tensor], Tensor], scores: Tensor, transitions: Tensor) -> Run:
        leaf = scores.detach().requires_grad_()

        def call():
            total = loss(leaf)
            _, counts = torch.autograd.grad(total, (leaf, transitions))
            return total, counts

        return Run(call)

    peers = {}
    if peer is not None:
        peers["pytorch-crf, padded"] = training(
            lambda padded: -peer(padded, work.targets, mask=work.mask, reduction="sum"), work.padded, peer.transitions
        )
    return Case(
        name=f"CRF, {work.rows} words, {tags} tags, training",
        ours={"tl.nn.LinearChainCRF": training(lambda x: work.crf(x, work.labels).sum(), x, work.crf.transitions)},
        peers=peers,
        floor=work.floor,
        floor_is="exp of the scores and 3 products",
        expected=work.by_sentence,
        tolerance=1e-4,
        goals=(of_floor(5), faster_than(35, "pytorch-crf")),
    )


def _decoding(tags: int, device: torch.device) -> Case:
    work = _Tagging(tags, device)
    x = tl.LoDTensor(work.scores, work.lod)
    peer = work.peer(tags)

    def packed(paths) -> tuple[Tensor]:
        return (torch.tensor([tag for path in paths for tag in path]),)

    def expected() -> tuple[Tensor]:
        crf, paths = work.crf.cpu(), []
        for scores in work.scores.cpu().split(work.lengths.tolist()):
            a, back = crf.start_transitions + scores[0], []
            for row in scores[1:]:
                a, index = (a[:, None] + crf.transitions).max(0)
                a, back = a + row, [*back, index]
            path = [int((a + crf.end_transitions).argmax())]
            for index in reversed(back):
                path.append(int(index[path[-1]]))
            paths.append(path[::-1])
        work.crf.to(device)
        return packed(paths)

    peers = {}
    if peer is not None:
        peers["pytorch-crf, padded"] = Run(lambda: peer.decode(work.padded, mask=work.mask), packed)
    with torch.no_grad():
        return Case(
            name=f"Viterbi, {work.rows} words, {tags} tags",
            ours={"tl.nn.LinearChainCRF.decode": Run(lambda: work.crf.decode(x), lambda path: (path.values(),))},
            peers=peers,
            floor=lambda: work.scores @ work.weight,
            floor_is="1 product of the size of the recursion",
            expected=expected,
            tolerance=0,
            goals=(faster_than(35, "pytorch-crf"),),
        )


def _ctc(tail: bool, device: torch.device) -> Case:
    rng, g, classes = np.random.default_rng(0), torch.Generator().manual_seed(0), 40
    lengths = np.minimum(20 + 60 * rng.pareto(1.5, 32), 2000).astype(int) if tail else rng.integers(50, 400, 32)
    frames, counts = torch.from_numpy(lengths), torch.from_numpy(lengths // 8).clamp(min=1)
    logits = torch.randn(int(frames.sum()), classes, generator=g).to(device)
    labels = torch.randint(1, classes, (int(counts.sum()),), generator=g).to(device)
    x, y = tl.LoDTensor(logits, tl.LoD.from_lengths([frames])), tl.LoDTensor(labels, tl.LoD.from_lengths([counts]))
    padded, loss = pad_sequence(logits.split(frames.tolist())), tl.nn.CTCLoss(reduction="sum")

    def torchs(padded: Tensor) -> Tensor:
        return torch.nn.functional.ctc_loss(padded.log_softmax(-1), labels, frames, counts, reduction="sum")

    def training(function: Callable[[Tensor], Tensor], values: Tensor, rows: Callable[[Tensor], Tensor]) -> Run:
        leaf = values.detach().requires_grad_()

        def call():
            total = function(leaf)
            return total, *torch.autograd.grad(total, leaf)

        return Run(call, lambda result: (result[0], rows(result[1])))

    def taken(grad: Tensor) -> Tensor:
        return torch.cat([grad[:n, i] for i, n in enumerate(frames.tolist())])

    def floor():
        leaf = logits.detach().requires_grad_()
        return torch.autograd.grad(leaf.log_softmax(-1), leaf, logits)

    def expected() -> tuple[Tensor, ...]:
        leaf = padded.double().cpu().requires_grad_()
        total = torch.nn.functional.ctc_loss(leaf.log_softmax(-1), labels.cpu(), frames, counts, reduction="sum")
        return total.detach(), taken(torch.autograd.grad(total, leaf)[0])

    return Case(
        name=f"CTC, 32 clips, {len(logits)} frames{', a heavy tail' if tail else ''}, 40 classes, training",
        ours={"tl.nn.CTCLoss": training(lambda x: loss(x, y), x, lambda t: t)},
        peers={"torch log_softmax and ctc_loss, padded": training(torchs, padded, taken)},
        floor=floor,
        floor_is="log_softmax of the rows and its gradient",
        expected=expected,
        tolerance=1e-2,  # what torch is off by, in float32
        goals=(faster_than(10 if tail else 6, "torch"),),
    )


def _prefixes(device: torch.device) -> Case:
    """Frames of a recogniser that is rather sure: the blank, or now and then a label for a few frames."""
    rng, g = np.random.default_rng(0), torch.Generator().manual_seed(0)
    labels = "".join(map(chr, range(48, 88)))
    lengths, classes = [200] * 8, len(labels)
    spoken = np.where(rng.random(1600) < 0.3, rng.integers(1, classes, 1600), 0)
    logits = torch.randn(1600, classes, generator=g)
    logits[torch.arange(1600), torch.from_numpy(spoken)] += 5
    x = tl.from_lengths(logits.to(device), [lengths])
    probabilities = [p.numpy() for p in logits.softmax(1).split(lengths)]

    def shown(found) -> tuple[Tensor, ...]:
        return (found[0].values(),)

    def expected() -> tuple[Tensor, ...]:
        """Prefixes as tuples, in dictionaries, with probabilities in float64 relative to the best."""
        found = []
        for rows in logits.double().softmax(1).split(lengths):
            prefixes = {(): (1.0, 0.0)}
            for p in rows.tolist():
                after: dict[tuple[int, ...], list[float]] = {}
                for own, (blank, label) in prefixes.items():
                    stay = after.setdefault(own, [0.0, 0.0])
                    stay[0] += (blank + label) * p[0]
                    stay[1] += label * p[own[-1]] if own else 0.0
                    for c in range(1, classes):
                        after.setdefault((*own, c), [0.0, 0.0])[1] += p[c] * (blank + label * (own[-1:] != (c,)))
                best = sorted(after.items(), key=lambda item: -sum(item[1]))[:10]
                prefixes = {own: (both[0] / sum(best[0][1]), both[1] / sum(best[0][1])) for own, both in best}
            found += next(iter(prefixes))
        return (torch.tensor(found),)

    peers = {}
    if has("fast_ctc_decode"):
        search = optional("fast_ctc_decode").beam_search
        peers["fast-ctc-decode, one by one, of probabilities"] = Run(
            lambda: [search(p, labels, 10, 0.0) for p in probabilities],
            lambda found: (torch.tensor([labels.index(c) for text, _ in found for c in text]),),
        )
    return Case(
        name="CTC prefix beam search, 8 x 200 frames, 40 classes, beam 10",
        ours={"tl.ctc_beam_decode": Run(lambda: tl.ctc_beam_decode(x, beam=10), shown)},
        peers=peers,
        floor=lambda: x.values().softmax(1),
        floor_is="softmax of the rows",
        expected=expected,
        tolerance=0,
        goals=(faster_than(2, "fast-ctc-decode"),),
    )


def _beam(device: torch.device) -> Case:
    """What is chosen after a step of beam search."""
    sources, width, words, k = 32, 8, 10_000, 8
    g = torch.Generator().manual_seed(0)
    before = torch.randn(sources, width, generator=g).sort(descending=True).values.to(device)
    log_probs = torch.randn(sources * width, words, generator=g).log_softmax(1).to(device)

    def dense() -> tuple[Tensor, ...]:
        top, index = (before[..., None] + log_probs.view(sources, width, words)).flatten(1).topk(k)
        return top, index // words, index % words

    flat = log_probs.view(sources, width * words)
    return Case(
        name=f"a step of beam search, {sources} x {width} x {words:,} words",
        ours={"best_words, as in tl.BeamSearch": Run(lambda: best_words(before, log_probs, k))},
        peers={
            "torch add and topk": Run(dense),
            "torch topk alone, of scores that are sums": Run(lambda: flat.topk(k), lambda _: dense()),
        },
        floor=lambda: log_probs.amax(1),
        floor_is="reading the scores once",
        expected=lambda: tuple(t.cpu() for t in dense()),
        tolerance=0,
        goals=(faster_than(2, "topk alone"),),
    )


def _two_threads(case: Case) -> Case:
    """The first of ours with a second thread; itself with one is the peer."""
    (name, run), *_ = case.ours.items()

    def two():
        torch.set_num_threads(2)
        try:
            return run.call()
        finally:
            torch.set_num_threads(1)

    return replace(
        case,
        name=f"{case.name}, two threads",
        ours={f"{name}, two threads": Run(two, run.answer)},
        peers={f"{name}, one thread": run},
        goals=(faster_than(1.7, "one thread"),),
    )


def _edits(length: int, device: torch.device) -> Case:
    rng, one, other = np.random.default_rng(0), [], []
    for _ in range(1000):
        a = rng.integers(0, 40, rng.integers(length // 2, length * 3 // 2))
        b = a.copy()
        b[rng.random(len(b)) < 0.2] = 7
        one.append(a), other.append(b[rng.random(len(b)) > 0.1])
    x, y = (tl.from_tensors([torch.from_numpy(t) for t in side]).to(device) for side in (one, other))
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(one, other)]

    def expected() -> tuple[Tensor, ...]:
        found = []
        for a, b in zip(one, other):  # row by row; what is inserted in a row is a running minimum
            row = np.arange(len(b) + 1)
            for i, number in enumerate(a, 1):
                best = np.minimum(row[1:] + 1, row[:-1] + (b != number))
                best = np.concatenate([[i], best]) - np.arange(len(b) + 1)
                row = np.minimum.accumulate(best) + np.arange(len(b) + 1)
            found.append(row[-1])
        return tensors(np.array(found))

    peers = {}
    if has("rapidfuzz.distance"):
        distance = optional("rapidfuzz.distance").Levenshtein.distance
        peers["rapidfuzz, one by one"] = Run(
            lambda: [distance(a, b) for a, b in pairs], lambda found: (torch.tensor(found),)
        )
    return Case(
        name=f"edit distance, 1000 pairs of about {length}",
        ours={"tl.edit_distance": Run(lambda: tl.edit_distance(x, y))},
        peers=peers,
        floor=lambda: (x.values() + 1, y.values() + 1),
        floor_is="reading and writing the numbers once",
        expected=expected,
        tolerance=0,
        goals=(faster_than(1.5, "rapidfuzz"),),
    )
