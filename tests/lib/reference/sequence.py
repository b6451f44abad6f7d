# SPDX-License-Identifier: Apache-2.0
"""What every sequence operator means: plain loops over nested Python lists, without torch_lod. Differentiable by autograd.

A `Nest` is nested lists of row numbers and the rows that they number. What rearranges makes other lists; what computes
makes other rows.
"""

import itertools
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from nested import flat, lengths_of, within

from reference.columns import column_orders, middle_of, order_of, ranks_of
from reference.ops import extreme_of, rows_of, variance


class Nest(NamedTuple):
    tree: list
    depth: int
    values: torch.Tensor
    names: tuple | None = None

    def rows(self):
        """The rows in the order of the tree; -1 is a row of zeros."""
        zeros = torch.zeros(self.values.shape[1:], dtype=self.values.dtype, device=self.values.device)
        return rows_of([self.values[i] if i >= 0 else zeros for i in flat(self.tree, self.depth)], self.values)

    def lengths(self):
        return lengths_of(self.tree, self.depth)

    def with_rows(self, rows):
        """Other rows in this order."""
        return Nest(numbered(self.tree, self.depth), self.depth, rows, self.names)


def numbered(tree, depth):
    """The same lists around 0, 1, 2, ..."""
    count = itertools.count()
    return within(tree, depth, lambda items: [next(count) for _ in items])


def nest(lengths, values, names=None):
    """From lengths per level, outermost first."""
    items = list(range(sum(lengths[-1])))
    for level in reversed(lengths):
        rest = iter(items)
        items = [list(itertools.islice(rest, n)) for n in level]
    return Nest(items, len(lengths), values, names)


def under(x, level):
    """The numbers of the rows under every sequence of a level."""
    return [flat([sequence], x.depth - level) for sequence in flat(x.tree, level)]


def parts(x, level):
    """The rows under every sequence of a level."""
    return [x.values[numbers] if numbers else x.values[:0] for numbers in under(x, level)]


def joined(made, like):
    return torch.cat(made) if made else like


def above(x, level, rows):
    """Rows that stand for the sequences of a level, in the levels above it; plain above the outermost."""
    if level == 0:
        return rows
    return Nest(numbered(x.tree, level), level, rows, x.names and x.names[:level])


def moved(x, level, function):
    """`function` of the list of elements of every sequence of a level."""
    return x._replace(tree=within(x.tree, level + 1, function))


# -- pooling

POOLS = {
    "sum": lambda r: r.sum(0),
    "average": lambda r: r.mean(0),
    "mean": lambda r: r.mean(0),
    "sqrt": lambda r: r.sum(0) / len(r) ** 0.5,
    "max": lambda r: extreme_of(r, "max")[0],
    "min": lambda r: extreme_of(r, "min")[0],
    "first": lambda r: r[0],
    "last": lambda r: r[-1],
    "prod": lambda r: math.prod(r.unbind()[1:], start=r[0]),
    "median": lambda r: middle_of(r)[0],
    "logsumexp": lambda r: r.logsumexp(0),
    "any": lambda r: (r != 0).any(0),
    "all": lambda r: (r != 0).all(0),
}


def sequence_pool(x, pool_type, padding_value=0.0, level=-1, *, return_index=False, correction=1):
    kind = pool_type.lower()
    if kind in ("sum", "prod") and not x.values.is_floating_point():
        x = x._replace(values=x.values.long())
    dtype = torch.bool if kind in ("any", "all") else x.values.dtype
    empty = torch.full(x.values.shape[1:], padding_value, dtype=dtype, device=x.values.device)
    nowhere = torch.full(x.values.shape[1:], -1, device=x.values.device)
    made, index = [], []
    for numbers, r in zip(under(x, level), parts(x, level)):
        if kind in ("var", "std"):
            made.append(variance(r, correction, kind == "std") if len(r) else empty)
        else:
            made.append(POOLS[kind](r).to(dtype) if len(r) else empty)
        if return_index:
            found = nowhere if not len(r) else middle_of(r)[1] if kind == "median" else extreme_of(r, kind)[1]
            index.append(torch.tensor(numbers)[found] if len(r) else nowhere)
    out = above(x, level, rows_of(made, x.values.to(dtype)))
    if not return_index:
        return out
    return out, above(x, level, rows_of(index, torch.zeros(0, *x.values.shape[1:], dtype=torch.int64)))


def sequence_first_step(x, padding_value=0.0, level=-1):
    return sequence_pool(x, "first", padding_value, level)


def sequence_last_step(x, padding_value=0.0, level=-1):
    return sequence_pool(x, "last", padding_value, level)


def sequence_argmax(x, level=-1):
    return sequence_pool(x, "max", level=level, return_index=True)[1]


def sequence_topk(x, k, channel=None, *, largest=True, padding_value=0.0, level=-1):
    made, index = [], []
    for numbers, r in zip(under(x, level), parts(x, level)):
        m = min(k, len(r))
        if channel is None:
            order = column_orders(r.detach(), largest)[:m]
            best = r.gather(0, order)
        else:
            order = torch.tensor(order_of(r[:, channel].tolist(), largest)[:m], dtype=torch.int64)
            best = r[order]
        rest = torch.full((k - m, *x.values.shape[1:]), padding_value, dtype=x.values.dtype)
        made.append(torch.cat([best, rest]))
        where = torch.tensor(numbers, dtype=torch.int64)[order] if numbers else order
        index.append(torch.cat([where, torch.full((k - m, *order.shape[1:]), -1)]))
    element = x.values.shape[1:]
    like = torch.zeros(0, k, *(element if channel is None else ()), dtype=torch.int64)
    rows = rows_of(made, x.values.new_zeros(0, k, *element))
    return above(x, level, rows), above(x, level, rows_of(index, like))


def fused_embedding_seq_pool(ids, weight, combiner="sum", padding_idx=None, level=-1):
    numbers = ids.values.squeeze(1) if ids.values.dim() == 2 and ids.values.shape[1] == 1 else ids.values
    padded = None if padding_idx is None else range(len(weight))[padding_idx]
    rows = [weight[i] if i != padded else torch.zeros_like(weight[0]) for i in numbers.flatten().tolist()]
    rows = rows_of(rows, weight[:0]).reshape(*numbers.shape, weight.shape[1])
    return sequence_pool(ids._replace(values=rows), combiner, level=level)


def sequence_topk_avg_pooling(x, row, col, topks, channel_num):
    made = []
    for scores, rows, columns in zip(parts(x, 0), row.tree, col.tree):
        matrices = scores.reshape(channel_num, len(rows), len(columns))
        for i in range(len(rows)):
            for c in range(channel_num):
                best = matrices[c, i].sort(descending=True, stable=True).values
                made += [best[:k].sum() / k for k in topks]
    rows = torch.stack(made) if made else x.values.new_zeros(0)
    return row.with_rows(rows.reshape(sum(map(len, row.tree)), channel_num * len(topks)))


def sequence_loss(x, reduce="token", mask=None, weight=None):
    rows, whole = x.rows(), list(range(len(x.rows())))

    def of(given, level):
        """For every sequence of a level, or every row, the entry of the sequence that it is in; and the level of these."""
        values = given.rows() if isinstance(given, Nest) else given
        counts = [len(under(x, k)) for k in range(x.depth)] + [len(rows)]
        k = given.depth if isinstance(given, Nest) else counts.index(len(values))
        if k == level:
            return list(values), k
        inner = [[i] for i in whole] if level == x.depth else under(x, level)
        # empty sequences are in none that can be told by rows; they do not count
        holds = [next((s for s, held in enumerate(under(x, k)) if set(numbers) <= set(held)), 0) for numbers in inner]
        return [values[s] for s in holds], k

    kept = [True] * len(rows) if mask is None else of(mask, x.depth)[0]
    weights, k = ([1.0] * len(rows), x.depth) if weight is None else of(weight, x.depth)
    if reduce == "sequence" and k < x.depth:
        weights = [1.0] * len(rows)

    def mean(numbers):
        numbers = [i for i in numbers if kept[i]]
        below = sum(weights[i] for i in numbers)
        return sum(weights[i] * rows[i] for i in numbers) / below if numbers and below != 0 else None

    nothing = rows[:0].sum()
    if reduce == "token":
        found = mean(whole)
        return nothing if found is None else found
    level = x.names.index(reduce) if reduce in (x.names or ()) else -1 if reduce == "sequence" else reduce
    means = [mean(numbers) for numbers in under(x, level % x.depth)]
    if reduce == "sequence":
        ones = [1.0] * len(means) if weight is None or k == x.depth else of(weight, x.depth - 1)[0]
        below = sum(v for v, m in zip(ones, means) if m is not None)
        return sum(v * m for v, m in zip(ones, means) if m is not None) / below if below != 0 else nothing
    nan = torch.full_like(nothing, torch.nan)  # the mean of no rows
    return above(x, level % x.depth, torch.stack([nan if m is None else m for m in means]) if means else rows)


# -- within


def each(function, dtype=None):
    def reference(x, level=-1):
        x = x if dtype is None or x.values.is_floating_point() else x._replace(values=x.values.to(dtype))
        return x.with_rows(joined([function(r) for r in parts(x, level) if len(r)], x.values[:0]))

    return reference


sequence_softmax = each(lambda r: r.softmax(0))
sequence_log_softmax = each(lambda r: r.log_softmax(0))
sequence_cumprod = each(lambda r: r.cumprod(0), torch.int64)
sequence_logcumsumexp = each(lambda r: torch.stack([r[: i + 1].logsumexp(0) for i in range(len(r))]))


def sequence_normalize(x, eps=1e-5, level=-1):
    def one(r):
        centred = r - r.mean(0)
        return centred / (centred.square().mean(0) + eps).sqrt()

    return each(one)(x, level)


def sequence_cumsum(x, level=-1, reverse=False):
    return each(lambda r: r.flip(0).cumsum(0).flip(0) if reverse else r.cumsum(0), torch.int64)(x, level)


def cumulative(reduce):
    def reference(x, level=-1):
        made, index = [], []
        for numbers, r in zip(under(x, level), parts(x, level)):
            for i in range(len(r)):
                best, where = extreme_of(r[: i + 1], reduce)
                made.append(best)
                index.append(torch.tensor(numbers)[where])
        like = torch.zeros(0, *x.values.shape[1:], dtype=torch.int64)
        return x.with_rows(rows_of(made, x.values)), x.with_rows(rows_of(index, like))

    return reference


sequence_cummax, sequence_cummin = cumulative("max"), cumulative("min")


def sequence_sort(x, key=None, descending=False, return_rank=False, level=-1):
    if key is None and level + 1 == x.depth:
        orders = [column_orders(r.detach(), descending) for r in parts(x, level)]
        out = x.with_rows(joined([r.gather(0, o) for r, o in zip(parts(x, level), orders)], x.values[:0]))
        ranks = joined([ranks_of(o) for o in orders], x.values[:0].long())
        return (out, x.with_rows(ranks)) if return_rank else out
    key = key.values if isinstance(key, Nest) else key
    keys = iter(key.tolist() if key is not None else [len(e) for e in flat(x.tree, level + 1)])
    ranks = []

    def one(s):
        order = order_of([next(keys) for _ in s], descending)
        ranks.extend(order.index(i) for i in range(len(s)))
        return [s[i] for i in order]

    out = moved(x, level, one)
    return (out, above(x, level + 1, torch.tensor(ranks, dtype=torch.int64))) if return_rank else out


def rotary_embedding(x, base=10000.0, interleaved=True, start=0, level=-1):
    """Pairs of features as complex numbers, rotated one by one."""
    out = [None] * len(x.values)
    numbers = iter(range(len(x.values)))
    half = x.values.shape[-1] // 2
    for s, rows in enumerate(parts(x, level)):
        for p, row in enumerate(rows):
            position = p + int(start[s] if isinstance(start, torch.Tensor) else start)
            rotated = [None] * (2 * half)
            for i in range(half):
                one, other = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
                t = position / base ** (2 * i / (2 * half))
                rotated[one] = row[..., one] * math.cos(t) - row[..., other] * math.sin(t)
                rotated[other] = row[..., one] * math.sin(t) + row[..., other] * math.cos(t)
            out[next(numbers)] = torch.stack(rotated, -1) if rotated else row
    return x.with_rows(rows_of(out, x.values))


# -- rearranging


def sequence_reverse(x, level=-1):
    return moved(x, level, lambda s: s[::-1])


def sequence_slice(x, offset, length, clamp=False, level=-1):
    offset, length = (
        itertools.repeat(t) if isinstance(t, int) else iter(torch.as_tensor(t).flatten().tolist())
        for t in (offset, length)
    )

    def one(s):
        o, n = next(offset), next(length)
        assert clamp or (o >= 0 and o + n <= len(s))
        return s[max(0, o) : max(0, o + n)]

    return moved(x, level, one)


def sequence_concat(xs, level=-1):
    start, trees = 0, []
    for x in xs:
        trees.append(within(x.tree, x.depth, lambda s, start=start: [i + start for i in s]))
        start += len(x.values)
    sequences = [iter(flat(tree, level)) for tree in trees]
    whole = xs[0]._replace(values=torch.cat([x.values for x in xs]))
    return moved(whole, level, lambda _: [e for it in sequences for e in next(it)])


def sequence_shift(x, n, padding_value=0.0, level=-1):
    inner = level + 1 == x.depth
    if isinstance(padding_value, Nest):
        given = padding_value.rows()
        count, sequences = len(x.values), iter(range(len(given)))

        def before(s):
            mine = count + next(sequences)
            return [s[i - n] if 0 <= i - n < len(s) else mine for i in range(len(s))]

        return moved(x, level, before)._replace(values=torch.cat([x.values, given]))
    filler = torch.full((1, *x.values.shape[1:]), padding_value, dtype=x.values.dtype, device=x.values.device)
    nothing = len(x.values) if inner else []

    def one(s):
        return [s[i - n] if 0 <= i - n < len(s) else nothing for i in range(len(s))]

    return moved(x, level, one)._replace(values=torch.cat([x.values, filler]))


def sequence_sample(x, k=None, generator=None, shuffle=False, level=-1):
    k = max([len(s) for s in flat(x.tree, level)], default=0) if k is None else k
    determined = k >= max([len(s) for s in flat(x.tree, level)], default=0) and not shuffle
    assert k == 0 or determined, "what is drawn is not determined"
    return moved(x, level, lambda s: s[:k])


def sequence_dropout(x, p=0.5, level=-1, training=True):
    assert p in (0, 1) or not training, "what is drawn is not determined"
    return x.with_rows(x.values * (0 if training and p == 1 else 1))


def rows_or_sequences(x):
    return x.tree if isinstance(x, Nest) else list(range(len(x)))


def sequence_expand(x, y, ref_level=-1):
    repeated = [e for e, s in zip(rows_or_sequences(x), flat(y.tree, ref_level)) for _ in s]
    return x._replace(tree=repeated) if isinstance(x, Nest) else rows_of([x[i] for i in repeated], x)


def sequence_expand_as(x, y):
    rows, level = (x.values, x.depth) if isinstance(x, Nest) else (x, 0)
    repeated = [rows[i] for i, numbers in enumerate(under(y, level)) for _ in numbers]
    return y.with_rows(rows_of(repeated, rows))


def broadcast(*xs):
    deepest = max((x for x in xs if isinstance(x, Nest)), key=lambda x: x.depth)

    def over(x):
        stays = not isinstance(x, (Nest, torch.Tensor)) or (isinstance(x, torch.Tensor) and x.dim() == 0)
        return x if stays or (isinstance(x, Nest) and x.depth == deepest.depth) else sequence_expand_as(x, deepest)

    return tuple(over(x) for x in xs)


# -- structure


def sequence_pad(x, padding_value=0.0, maxlen=None, level=-1):
    sequences = parts(x, level)
    lengths = [len(r) for r in sequences]
    maxlen = max(lengths, default=0) if maxlen is None else maxlen
    fill = torch.as_tensor(padding_value, dtype=x.values.dtype, device=x.values.device)
    fill = (
        fill.expand(x.values.shape[1:])
        if fill.shape == x.values.shape[1:]
        else fill.reshape(()).expand(x.values.shape[1:])
    )
    made = [torch.stack([*r.unbind(), *[fill] * (maxlen - len(r))]) if maxlen else x.values[:0] for r in sequences]
    return rows_of(made, x.values.new_zeros(0, maxlen, *x.values.shape[1:])), torch.tensor(lengths, dtype=torch.int64)


def sequence_unpad(dense, lengths):
    lengths = torch.as_tensor(lengths).flatten().tolist()
    rows = [dense[i, t] for i, n in enumerate(lengths) for t in range(n)]
    return nest([lengths], rows_of(rows, dense.new_zeros(0, *dense.shape[2:])))


def sequence_mask(lengths, maxlen=None, dtype=torch.int64):
    lengths = lengths.rows() if isinstance(lengths, Nest) else torch.as_tensor(lengths)
    entries = lengths.flatten().tolist()
    maxlen = max([0, *entries]) if maxlen is None else maxlen
    made = torch.tensor([[t < n for t in range(maxlen)] for n in entries])
    return made.reshape(*lengths.shape, maxlen).to(dtype)


def sequence_erase(x, tokens):
    tokens = torch.as_tensor(tokens).tolist()
    return moved(x, x.depth - 1, lambda s: [i for i in s if int(x.values[i]) not in tokens])


def sequence_enumerate(x, win_size, padding_value=0, level=-1):
    made = []
    for r in parts(x, level):
        entries = r.flatten().tolist()
        made += [(entries[i:] + [padding_value] * win_size)[:win_size] for i in range(len(entries))]
    return x.with_rows(torch.tensor(made, dtype=x.values.dtype).reshape(len(made), win_size))


def sequence_reshape(x, new_dim):
    folded = [r.reshape(-1, new_dim) for r in parts(x, x.depth - 1)]
    counts = iter([len(r) for r in folded])
    tree = numbered(within(x.tree, x.depth, lambda _: [0] * next(counts)), x.depth)
    return Nest(tree, x.depth, joined(folded, x.values.new_zeros(0, new_dim)), x.names)


def sequence_scatter(x, index, updates):
    updates = updates.values if isinstance(updates, Nest) else updates
    updates = updates.reshape(len(updates), *x.shape[2:])
    out = [list(row.unbind()) for row in x]
    for s, numbers in enumerate(index.tree):
        for i in numbers:
            at = int(index.values[i])
            out[s][at] = out[s][at] + updates[i]
    return rows_of([rows_of(row, x[0]) for row in out], x)


def lod_reset(x, lod):
    rows = x.values if isinstance(x, Nest) else x
    if isinstance(lod, Nest):
        return Nest(lod.tree, lod.depth, rows, lod.names)
    return nest([lod.tolist()] if isinstance(lod, torch.Tensor) else lod, rows)


def lod_append(x, lengths):
    if isinstance(lengths, Nest):
        lengths = [len(s) for s in lengths.tree]
    lengths = torch.as_tensor(lengths, dtype=torch.int64).tolist()
    if not isinstance(x, Nest):
        return nest([lengths], x)
    return nest([*x.lengths(), lengths], x.values, x.names and (*x.names, None))


# -- windows


def windows(x, level, size, start, dilation=1):
    """Per row the rows that its window sees: numbers, or (position, -1) before and (position, 1) after the sequence."""
    for numbers in under(x, level):
        for t in range(len(numbers)):
            at = [t + start + j * dilation for j in range(size)]
            yield [
                (numbers[i], 0) if 0 <= i < len(numbers) else (i, -1) if i < 0 else (i - len(numbers), 1) for i in at
            ]


def sequence_conv(x, weight, context_length, context_start=None, bias=None, padding_data=None, level=-1):
    start = -(context_length // 2) if context_start is None else context_start
    before = max(0, -start)
    zeros, made = x.values.new_zeros(x.values.shape[1:]), []

    def seen(i, side):
        if side == 0:
            return x.values[i]
        if padding_data is None:
            return zeros
        return padding_data[before + i]

    for window in windows(x, level, context_length, start):
        made.append(torch.cat([seen(*at) for at in window]) @ weight)
    out = rows_of(made, x.values.new_zeros(0, weight.shape[1]))
    return x.with_rows(out if bias is None else out + bias)


def sequence_conv1d(
    x, weight, bias=None, dilation=1, padding="same", groups=1, initial=None, return_state=False, level=-1
):
    reach = (weight.shape[2] - 1) * dilation
    left = reach if padding == "causal" else reach // 2
    zeros = x.values.new_zeros(reach, x.values.shape[1])
    before = [zeros] * len(parts(x, level)) if initial is None else initial

    def one(r, first):
        padded = F.pad(r, (0, 0, left, reach - left))
        if left == reach:
            padded = torch.cat([first, r])
        out = 0
        for j in range(weight.shape[2]):
            seen = padded[j * dilation : j * dilation + len(r)].chunk(groups, 1)
            out = out + torch.cat([a @ w.t() for a, w in zip(seen, weight[:, :, j].chunk(groups))], 1)
        return out if bias is None else out + bias

    made = [one(r, first) for r, first in zip(parts(x, level), before) if len(r)]
    out = x.with_rows(joined(made, x.values.new_zeros(0, weight.shape[0])))
    last = [torch.cat([first, r])[len(r) :] for r, first in zip(parts(x, level), before)]
    return (out, rows_of(last, zeros[None])) if return_state else out


def row_conv(x, weight, level=-1):
    made = [
        sum(x.values[i] * w for (i, side), w in zip(window, weight) if side == 0)
        for window in windows(x, level, len(weight), 0)
    ]
    return x.with_rows(rows_of(made, x.values))


def sequence_unfold(x, size, step=1, level=-1):
    made, counts = [], []
    for r in parts(x, level):
        starts = range(0, len(r) - size + 1, step)
        counts.append(len(starts))
        made += [r[i : i + size] for i in starts]
    levels = [*lengths_of(x.tree, level), counts]
    rows = rows_of(made, x.values.new_zeros(0, size, *x.values.shape[1:]))
    return nest(levels, rows, x.names and x.names[: level + 1])


def im2sequence(x, filter_size, stride=1, padding=0, input_image_size=None, out_stride=1):
    def pair(v):
        return (v, v) if isinstance(v, int) else tuple(v)

    given, x = x, x.values if isinstance(x, Nest) else x
    (high, wide), (down, right) = pair(filter_size), pair(stride)
    pads = tuple(padding) if not isinstance(padding, int) and len(padding) == 4 else pair(padding) * 2
    made, counts = [], []
    for i, image in enumerate(x):
        size = image.shape[1:]
        if input_image_size is not None:
            size = [math.ceil(v / by) for v, by in zip(input_image_size[i].tolist(), pair(out_stride))]
        rows, columns = (
            (size[0] + pads[0] + pads[2] - high) // down + 1,
            (size[1] + pads[1] + pads[3] - wide) // right + 1,
        )
        counts.append(rows * columns)
        far = F.pad(image, (pads[1], pads[3] + 50, pads[0], pads[2] + 50))
        for r, c in itertools.product(range(rows), range(columns)):
            made.append(far[:, r * down : r * down + high, c * right : c * right + wide].reshape(-1))
    above = given.lengths() if isinstance(given, Nest) else []
    return nest([*above, counts], rows_of(made, x.new_zeros(0, x.shape[1] * high * wide)))
