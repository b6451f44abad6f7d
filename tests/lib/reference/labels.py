# SPDX-License-Identifier: Apache-2.0
"""What sequence operators on labels mean."""

import itertools
import math

import torch
from nested import within

from reference import ctc, edit
from reference.sequence import above, nest, parts, under


def ctc_align(x, blank=0, merge_repeated=True, level=-1):
    kept = []
    for numbers in under(x, level):
        before = None
        for i in numbers:
            id = int(x.values[i])
            if id != blank and not (merge_repeated and id == before):
                kept.append(i)
            before = id
    return x._replace(
        tree=within(x.tree, x.depth, lambda items: [i for i in items if i in kept]), values=x.values.reshape(-1)
    )


def ctc_decode(x, blank=0, level=-1):
    ids = [max(range(x.values.shape[1]), key=lambda c, r=r: float(r[c])) for r in x.values]
    return ctc_align(x._replace(values=torch.tensor(ids, dtype=torch.int64)), blank, True, level)


def ctc_beam_decode(x, beam=10, n_best=1, blank=0, threshold=0.0, level=-1):
    of = [
        list(ctc.beam_of(rows, blank, beam, math.log(threshold) if threshold else -math.inf).items())[:n_best]
        for rows in parts(x, level % x.depth)
    ]
    above = x.lengths()[: level % x.depth]
    names = x.names and (*x.names[: level % x.depth + 1], None)
    counts, lengths = [len(found) for found in of], [len(labels) for found in of for labels, _ in found]
    flat = torch.tensor([c for found in of for labels, _ in found for c in labels], dtype=torch.int64)
    scores = torch.tensor([score for found in of for _, score in found], dtype=torch.float64)
    return nest([*above, counts, lengths], flat, names), nest([*above, counts], scores, names and names[:-1])


def ctc_greedy_decoder(x, blank, level=-1):
    return ctc_decode(x, blank, level)


def flat(x, labels, level):
    level = level % x.depth
    lists = [r.flatten().tolist() for r in parts(labels, level)]
    cuts = [torch.tensor([0, *itertools.accumulate(map(len, lists))]) for lists in (parts(x, level), lists)]
    return x.values, cuts[0], torch.tensor([i for r in lists for i in r], dtype=torch.int64), cuts[1]


def warpctc(logits, label, blank=0, norm_by_times=False, level=-1):
    losses = ctc.ctc_loss(*flat(logits, label, level), blank, True)
    return above(logits, level % logits.depth, losses)


def ctc_alignment(x, labels, blank=0, level=-1):
    rows, cuts, flat_labels, label_cuts = flat(x, labels, level)
    path, best = ctc.ctc_best_path(rows, cuts, flat_labels, label_cuts, blank)
    scores = []
    for s, (a, b) in enumerate(itertools.pairwise(cuts.tolist())):
        for r in range(a, b):
            label = blank if path[r] < 0 else int(flat_labels[label_cuts[s] + path[r]])
            scores.append(rows[r].log_softmax(0)[label] if best[s].isfinite() else best[s].detach())
    return x.with_rows(path), x.with_rows(torch.stack(scores) if scores else rows.sum(1))


def edit_distance(hypotheses, references, normalized=False, return_alignment=False, level=-1):
    level = level % hypotheses.depth
    pairs = [
        (h.flatten().tolist(), r.flatten().tolist()) for h, r in zip(parts(hypotheses, level), parts(references, level))
    ]
    found = [edit.aligned(h, r) for h, r in pairs]
    distances = torch.tensor([d for d, _, _ in found], dtype=torch.int64)
    if normalized:
        ratios = [d / len(r) if r else math.inf if d else 0.0 for (d, _, _), (_, r) in zip(found, pairs)]
        distances = torch.tensor(ratios, dtype=torch.float32)
    distances = above(hypotheses, level, distances)
    if not return_alignment:
        return distances
    return distances, *(
        x.with_rows(torch.tensor([i for f in found for i in f[k]], dtype=torch.int64))
        for k, x in ((1, hypotheses), (2, references))
    )
