# SPDX-License-Identifier: Apache-2.0
"""What chunks and beams mean: loops over sequences, tags and hypotheses."""

import torch
from nested import flat, lengths_of

from reference.ops import rows_of
from reference.sequence import Nest, nest, parts, under


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
    pairs = []
    for pair in zip(parts(x, level), parts(label, level), strict=True):
        found = [chunks(t.flatten().tolist(), chunk_scheme, num_chunk_types) for t in pair]
        pairs.append([[c for c in some if c[2] not in excluded_chunk_types] for some in found])
    return shares(pairs)


def shares(pairs):
    """Precision, recall, F1, and the counts they are made of, of the chunks found in every sequence and the right ones."""
    inferred, labelled = (sum(len(pair[i]) for pair in pairs) for i in (0, 1))
    correct = sum(len(set(got) & set(right)) for got, right in pairs)
    precision, recall = correct / max(inferred, 1), correct / max(labelled, 1)
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    scores = tuple(torch.tensor(v, dtype=torch.float32) for v in (precision, recall, f1))
    return (*scores, *(torch.tensor(v) for v in (inferred, labelled, correct)))


def named_chunks(names):
    """(first, last, type) of the chunks of a list of names of tags."""
    found, begun = [], None
    for i, name in enumerate([*names, "O"]):
        letter, of = name[0], name[2:]
        goes_on = begun is not None and of == begun[1] and letter in "IMEL" and begun[2] not in "ELSUW"
        if begun is not None and not goes_on:
            found.append((begun[0], i - 1, begun[1]))
            begun = None
        if name != "O":
            begun = (begun[0] if begun else i, of, letter)
    return found


def chunk_f1(found, tags, names, level=-1):
    level = level % found.depth
    each = zip(parts(found, level), parts(tags, level), strict=True)
    pairs = [[named_chunks([names[int(tag)] for tag in t.flatten()]) for t in pair] for pair in each]
    return shares(pairs)


def rows(t):
    return t.values if isinstance(t, Nest) else t


def beam_search(
    pre_ids, pre_scores, ids, scores, beam_size, end_id, level=0, is_accumulated=True, return_parent_idx=False
):
    level = level % pre_ids.depth
    last, before, table = rows(pre_ids).flatten().tolist(), rows(pre_scores).flatten(), rows(scores)
    words = [list(range(table.shape[1]))] * len(last) if ids is None else rows(ids).tolist()
    sources, children, selected = under(pre_ids, level), [], []
    for source in sources:
        found = []
        for row in source:
            if last[row] == end_id:
                found += [(before[row], row, end_id)] if table.shape[1] else []
                continue
            each = zip(table[row], words[row], strict=True)
            found += [(s if is_accumulated else s.log() + before[row], row, word) for s, word in each]
        best = sorted(found, key=lambda entry: -float(entry[0].detach()))[:beam_size]
        if all(word == last[row] == end_id for _, row, word in best):
            best = []
        for row in source:
            mine = [entry for entry in best if entry[1] == row]
            children.append(len(mine))
            selected += mine
    levels = [*lengths_of(pre_ids.tree, level), [len(source) for source in sources], children]
    names = pre_ids.names and (*pre_ids.names[: level + 1], *pre_ids.names[level + 1 : level + 2])
    names = names if names and len(names) == level + 2 == pre_ids.depth else names and (*names[: level + 1], None)
    whole = torch.int64 if ids is None else rows(ids).dtype
    got = torch.tensor([word for _, _, word in selected], dtype=whole)
    out = [nest(levels, got, names), nest(levels, rows_of([s for s, _, _ in selected], before), names)]
    return (*out, torch.tensor([row for _, row, _ in selected], dtype=torch.int64)) if return_parent_idx else tuple(out)


def beam_search_decode(ids, scores, beam_size, end_id):
    depth = ids[0].depth
    above = lengths_of(ids[0].tree, depth - 2)
    sentences = []
    for number in range(len(flat(ids[0].tree, depth - 2))):
        tails = []
        for t in reversed(range(len(ids))):
            words, values = rows(ids[t]).flatten().tolist(), rows(scores[t]).flatten()
            # the hypothesis of a row is a row of the step before, by its number
            parent = {row: h for h, mine in enumerate(flat(ids[t].tree, depth - 1)) for row in mine}
            if not tails:
                tails = [(row, []) for row in flat(flat(ids[t].tree, depth - 2)[number], 1)]
            for row, tail in tails:
                if words[row] != end_id or not tail:
                    tail.insert(0, (words[row], values[row]))
            tails = [(parent[row], tail) for row, tail in tails]
        done = [tail for _, tail in tails]
        sentences.append(sorted(done, key=lambda tail: -float(tail[-1][1].detach()))[:beam_size])
    levels = [*above, [len(s) for s in sentences], [len(h) for s in sentences for h in s]]
    entries = [entry for s in sentences for h in s for entry in h]
    words = torch.tensor([word for word, _ in entries], dtype=rows(ids[0]).dtype)
    values = rows_of([value for _, value in entries], rows(scores[0]).flatten())
    return nest(levels, words, ids[0].names), nest(levels, values, ids[0].names)
