# SPDX-License-Identifier: Apache-2.0
"""What chunks and beams mean: loops over sequences, tags and hypotheses."""

import torch

from reference.sequence import parts


def chunks(tags, scheme, types):
    """(first, last, type) of the chunks of a list of tags."""
    names = {"IOB": "BI", "IOE": "IE", "IOBES": "BIES", "plain": "-"}[scheme]
    found, begun = [], None
    for i, tag in enumerate([*tags, types * len(names)]):
        kind, place = tag // len(names), names[tag % len(names)]
        if begun is not None:
            first, of, last = begun
            if kind == of and place not in "BS" and last not in "ES":
                begun = first, of, place
                continue
            found.append((first, i - 1, of))
        begun = (i, kind, place) if kind < types else None
    return found


def chunk_eval(x, label, chunk_scheme, num_chunk_types, excluded_chunk_types=(), level=-1):
    level = level % x.depth
    inferred = labelled = correct = 0
    for got, right in zip(parts(x, level), parts(label, level), strict=True):
        got, right = (chunks(t.flatten().tolist(), chunk_scheme, num_chunk_types) for t in (got, right))
        got, right = ([c for c in some if c[2] not in excluded_chunk_types] for some in (got, right))
        inferred, labelled = inferred + len(got), labelled + len(right)
        correct += len(set(got) & set(right))
    precision, recall = correct / max(inferred, 1), correct / max(labelled, 1)
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    shares = tuple(torch.tensor(v, dtype=torch.float32) for v in (precision, recall, f1))
    return (*shares, *(torch.tensor(v) for v in (inferred, labelled, correct)))
