# SPDX-License-Identifier: Apache-2.0
"""What Paddle's rankers use and what it fuses: as sequence.py."""

import torch

from reference.ops import rows_of
from reference.sequence import Nest, flat, sequence_conv, sequence_expand_as, sequence_pool


def shows_and_clicks(row, use_cvm):
    head = [(row[0] + 1).log(), (row[1] + 1).log() - (row[0] + 1).log()] if use_cvm else []
    return torch.stack([*head, *row[2:]]) if len(head) + len(row) > 2 else row[2:]


def cvm(x, cvm=None, use_cvm=True, level=-1):
    rows = x.values if isinstance(x, Nest) else x
    out = rows_of([shows_and_clicks(row, use_cvm) for row in rows], rows if use_cvm else rows[:0, 2:])
    return x.with_rows(out) if isinstance(x, Nest) else out


def filter_by_instag(ins, ins_tag, filter_tag, out_val_if_empty=0):
    wanted, tags = set(torch.as_tensor(filter_tag).tolist()), ins_tag.values.flatten().tolist()
    kept = [i for i, numbers in enumerate(ins_tag.tree) if wanted & {tags[n] for n in numbers}]
    rows = ins.values if isinstance(ins, Nest) else ins
    if kept:
        instances = ins.tree if isinstance(ins, Nest) else [[i] for i in range(len(rows))]
        depth = ins.depth if isinstance(ins, Nest) else 1
        held = [flat([instances[i]], depth) for i in kept]
        starts = [sum(len(flat([other], depth)) for other in instances[:i]) for i in kept]
        where = [[sum(map(len, held[:n])), start, len(numbers)] for n, (start, numbers) in enumerate(zip(starts, held))]
    else:
        where = [[0, 1, 1]]
    filler = torch.full((1, *rows.shape[1:]), out_val_if_empty, dtype=rows.dtype, device=rows.device)
    rows = torch.cat([rows, filler])
    if isinstance(ins, Nest):
        one = len(rows) - 1
        for _ in range(ins.depth - 1):
            one = [one]
        out = ins._replace(tree=[ins.tree[i] for i in kept] or [[one]], values=rows)
    else:
        out = rows[kept] if kept else filler
    return out, torch.tensor([bool(kept)] * len(where)), torch.tensor(where)


def beside(parts):
    """Nests or tensors of rows, side by side."""
    rows = torch.cat([part.rows() if isinstance(part, Nest) else part for part in parts], 1)
    return parts[0].with_rows(rows) if isinstance(parts[0], Nest) else rows


def fusion_seqpool_concat(xs, pool_type="sum", padding_value=0.0, level=-1):
    return beside([sequence_pool(x, pool_type, padding_value, level) for x in xs])


def fusion_seqpool_cvm_concat(xs, pool_type="sum", use_cvm=True, level=-1):
    return beside([cvm(sequence_pool(x, pool_type, level=level), use_cvm=use_cvm) for x in xs])


def fusion_seqconv_eltadd_relu(x, weight, bias, context_length, context_start=None, level=-1):
    out = sequence_conv(x, weight, context_length, context_start, bias, level=level)
    return out._replace(values=out.values.relu())


def fusion_seqexpand_concat_fc(xs, weight, bias=None, activation="identity"):
    act = {"identity": lambda t: t, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}[activation]
    rows = beside([xs[0], *(sequence_expand_as(y, xs[0]) for y in xs[1:])])
    out = rows.values @ weight
    return rows.with_rows(act(out if bias is None else out + bias))
