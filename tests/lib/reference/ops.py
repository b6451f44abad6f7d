# SPDX-License-Identifier: Apache-2.0
"""What every operator means: plain loops over rows and segments, without torch_lod. Differentiable through autograd."""

import torch

from reference.attention import attention, attention_backward  # noqa: F401
from reference.ctc import ctc_beam, ctc_best_path, ctc_loss, ctc_loss_backward  # noqa: F401
from reference.edit import edit_alignment, edit_distance  # noqa: F401
from reference.matrix_scan import matrix_scan, matrix_scan_backward  # noqa: F401
from reference.paths import forward_scores, logsumexp, paths, shares
from reference.rows import rows_of, segments


def run_map(starts, row_offsets, rows, step=1):
    out = []
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        out += [int(starts[s]) + step * i for i in range(b - a)]
    assert len(out) == rows
    return torch.tensor(out, dtype=torch.int64, device=starts.device)


def gather_rows(values, map, fill=0):
    filler = torch.full(values.shape[1:], fill, dtype=values.dtype, device=values.device)
    return rows_of([values[i] if i >= 0 else filler for i in map.tolist()], values)


def scatter_rows(values, map, rows):
    out = [values.new_zeros(values.shape[1:]) for _ in range(rows)]
    for i, r in enumerate(map.tolist()):
        if r >= 0:
            out[r] = out[r] + values[i]
    return rows_of(out, values)


def gather_runs(values, starts, row_offsets, rows, step=1):
    return gather_rows(values, run_map(starts, row_offsets, rows, step))


def scatter_runs(values, starts, row_offsets, rows, step=1, fill=0):
    there = run_map(starts, row_offsets, len(values), step)
    out = scatter_rows(values, there, rows)
    untaken = torch.tensor([r not in there.tolist() for r in range(rows)], dtype=torch.bool, device=values.device)
    return torch.where(untaken.view(-1, *[1] * (values.dim() - 1)), torch.tensor(fill, dtype=values.dtype), out)


def segment_concat(values, row_offsets, others, other_offsets):
    pairs = zip(segments(values, row_offsets), segments(others, other_offsets))
    return rows_of([row for pair in pairs for rows in pair for row in rows], values)


def segment_unfold(values, row_offsets, size, start, dilation=1, fill=0):
    filler = torch.full(values.shape[1:], fill, dtype=values.dtype, device=values.device)
    out = []
    for rows in segments(values, row_offsets):
        for r in range(len(rows)):
            at = [r + start + j * dilation for j in range(size)]
            out.append(torch.stack([rows[i] if 0 <= i < len(rows) else filler for i in at]))
    return rows_of(out, values.new_zeros(0, size, *values.shape[1:]))


def segment_fold(values, row_offsets, start, dilation=1):
    out = []
    for rows in segments(values, row_offsets):
        parts = [values.new_zeros(values.shape[2:]) for _ in rows]
        for r in range(len(rows)):
            for j in range(values.shape[1]):
                if 0 <= r + start + j * dilation < len(rows):
                    parts[r + start + j * dilation] = parts[r + start + j * dilation] + rows[r, j]
        out += parts
    return rows_of(out, values[:, 0])


def segment_conv(values, weight, bias, row_offsets, start, dilation=1):
    weight = weight.reshape(-1, values.shape[1], weight.shape[-1]) if weight.dim() == 2 else weight
    out = []
    for rows in segments(values, row_offsets):
        for r in range(len(rows)):
            at = [(j, r + start + j * dilation) for j in range(len(weight))]
            out.append(
                sum((rows[i] @ weight[j] for j, i in at if 0 <= i < len(rows)), weight.new_zeros(weight.shape[2]))
            )
    out = rows_of(out, values.new_zeros(0, weight.shape[2]))
    return out if bias is None else out + bias


def segment_conv_weight(values, grad, row_offsets, size, start, dilation=1):
    out = [values.new_zeros(values.shape[1], grad.shape[1]) for _ in range(size)]
    for rows, g in zip(segments(values, row_offsets), segments(grad, row_offsets)):
        for r in range(len(rows)):
            for j in range(size):
                if 0 <= r + start + j * dilation < len(rows):
                    out[j] = out[j] + torch.outer(rows[r + start + j * dilation], g[r])
    return torch.stack(out)


def segment_scan(values, factors, row_offsets, adjoint=False):
    out = []
    ones = torch.ones_like(values) if factors is None else factors
    for rows, f in zip(segments(values, row_offsets), segments(ones, row_offsets)):
        part = []
        for r in reversed(range(len(rows))) if adjoint else range(len(rows)):
            y = rows[r]
            if part:
                factor, before = f[r + 1] if adjoint else f[r], part[-1]
                y = y + factor * torch.where((factor == 0) & ~before.isfinite(), torch.zeros_like(before), before)
            part.append(y)
        out += part[::-1] if adjoint else part
    return rows_of(out, values)


def segment_cumprod(values, row_offsets, reverse=False, exclusive=False):
    out = []
    for rows in segments(values, row_offsets):
        part, product = [], torch.ones_like(rows[0]) if len(rows) else None
        for r in reversed(range(len(rows))) if reverse else range(len(rows)):
            before, product = product, product * rows[r]
            part.append(before if exclusive else product)
        out += part[::-1] if reverse else part
    return rows_of(out, values)


def segment_order(values, row_offsets, descending=False):
    starts = row_offsets.tolist()
    parts = [
        r.argsort(dim=0, descending=descending, stable=True) + s for r, s in zip(segments(values, row_offsets), starts)
    ]
    return torch.cat(parts) if parts else torch.zeros(values.shape, dtype=torch.int64)


def segment_topk(values, row_offsets, k, largest=True):
    order, out = segment_order(values, row_offsets, largest), []
    for rows in segments(order, row_offsets):
        out.append(torch.cat([rows[:k], rows.new_full((max(k - len(rows), 0), *rows.shape[1:]), -1)]))
    return rows_of(out, order.new_zeros(0, k, *values.shape[1:]))


def segment_cumulative(values, row_offsets, reduce):
    out, index = [], []
    for start, rows in zip(row_offsets.tolist(), segments(values, row_offsets)):
        for r in range(len(rows)):
            best, where = extreme_of(rows[: r + 1], reduce)
            out.append(best)
            index.append(where + start)
    return rows_of(out, values), rows_of(index, torch.zeros(0, *values.shape[1:], dtype=torch.int64))


def segment_cumulative_backward(grad, index, row_offsets):
    out = torch.zeros_like(grad)
    for a, b in zip(row_offsets.tolist(), row_offsets.tolist()[1:]):
        taken = torch.zeros(grad.shape[1:], dtype=grad.dtype)
        for r in range(b - 1, a - 1, -1):
            taken = taken + grad[r]
            out[r] = torch.where(index[r] == r, taken, 0)
            taken = torch.where(index[r] == r, 0, taken)
    return out


def segment_reduce(values, row_offsets, reduce, pad_value=0.0):
    def one(rows):
        if len(rows) == 0:
            return torch.full(values.shape[1:], pad_value, dtype=values.dtype, device=values.device)
        if reduce in ("max", "min"):
            return extreme_of(rows, reduce)[0]
        return {
            "sum": lambda: rows.sum(0),
            "mean": lambda: rows.sum(0) / len(rows),
            "sqrt": lambda: rows.sum(0) / len(rows) ** 0.5,
            "prod": lambda: rows.prod(0),
            "first": lambda: rows[0],
            "last": lambda: rows[-1],
        }[reduce]()

    return rows_of([one(rows).to(values.dtype) for rows in segments(values, row_offsets)], values)


def extreme_of(rows, reduce):
    """The first row that attains the extreme, element by element; a NaN attains it before any number."""
    flat = rows.reshape(len(rows), -1)
    index = []
    for c in range(flat.shape[1]):
        column = flat[:, c].tolist()
        best = 0
        for i, v in enumerate(column):
            if column[best] != column[best]:
                break
            if v != v or (v > column[best] if reduce == "max" else v < column[best]):
                best = i
        index.append(best)
    index = torch.tensor(index, dtype=torch.int64, device=rows.device).reshape(1, *rows.shape[1:])
    return rows.gather(0, index)[0], index[0]


def segment_extreme(values, row_offsets, reduce, pad_value=0.0):
    out, index = [], []
    for start, rows in zip(row_offsets.tolist(), segments(values, row_offsets)):
        if len(rows):
            best, where = extreme_of(rows, reduce)
            where = where + start
        else:
            best = torch.full(values.shape[1:], pad_value, dtype=values.dtype, device=values.device)
            where = torch.full(values.shape[1:], -1, device=values.device)
        out.append(best)
        index.append(where)
    like = torch.zeros(0, *values.shape[1:], dtype=torch.int64, device=values.device)
    return rows_of(out, values), rows_of(index, like)


def segment_broadcast(values, row_offsets, rows, reduce="sum"):
    out = []
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        if reduce in ("first", "last"):
            end = a if reduce == "first" else b - 1
            out += [values[s] if r == end else torch.zeros_like(values[s]) for r in range(a, b)]
            continue
        scale = {"sum": 1, "mean": b - a, "sqrt": (b - a) ** 0.5}[reduce]
        out += [values[s] / scale if reduce != "sum" else values[s]] * (b - a)
    return rows_of(out, values)


def segment_pick(values, index, row_offsets):
    out = torch.zeros(index.shape, dtype=values.dtype, device=values.device)
    flat = values.reshape(len(values), -1) if values.numel() else values.new_zeros(len(values), 0)
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        row = index[s].reshape(-1).tolist()
        picked = [flat[i, c] if a <= i < b else values.new_zeros(()) for c, i in enumerate(row)]
        if picked:
            out = out.index_put((torch.tensor(s),), torch.stack(picked).reshape(values.shape[1:]))
    return out


def segment_place(values, index, row_offsets, rows):
    out = [[values.new_zeros(()) for _ in range(values[:1].numel() or 0)] for _ in range(rows)]
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        flat = values[s].reshape(-1)
        for c, i in enumerate(index[s].reshape(-1).tolist()):
            if a <= i < b:
                out[i][c] = flat[c]
    rows_ = [torch.stack(row).reshape(values.shape[1:]) if row else values.new_zeros(values.shape[1:]) for row in out]
    return rows_of(rows_, values)


def segment_softmax(values, row_offsets):
    parts = [rows.softmax(0) for rows in segments(values, row_offsets) if len(rows)]
    return torch.cat(parts) if parts else values.clone()


def segment_log_softmax(values, row_offsets):
    parts = [rows.log_softmax(0) for rows in segments(values, row_offsets) if len(rows)]
    return torch.cat(parts) if parts else values.clone()


def segment_log_softmax_backward(grad, output, row_offsets):
    pairs = zip(segments(grad, row_offsets), segments(output, row_offsets))
    parts = [g - y.exp() * g.sum(0) for g, y in pairs if len(y)]
    return torch.cat(parts) if parts else output.clone()


def pooled(values, row_offsets, pad_value, one):
    """A row per segment: `one` of its rows, and pad_value where there are none."""
    pad = torch.full(values.shape[1:], pad_value, dtype=values.dtype, device=values.device)
    return rows_of([one(rows) if len(rows) else pad for rows in segments(values, row_offsets)], values)


def segment_logsumexp(values, row_offsets, pad_value=0.0):
    return pooled(values, row_offsets, pad_value, lambda rows: rows.logsumexp(0))


def segment_var(values, row_offsets, correction=1.0, root=False, pad_value=0.0):
    return pooled(values, row_offsets, pad_value, lambda rows: variance(rows, correction, root))


def variance(rows, correction, root):
    """Infinite or NaN where nothing is left to divide by; the root without its infinite slope at 0."""
    found = (rows - rows.mean(0)).square().sum(0) / max(0, len(rows) - correction)
    if not root:
        return found
    flat = (found == 0).detach()
    return torch.where(flat, 0.0, torch.where(flat, 1.0, found).sqrt())


def segment_normalize(values, row_offsets, eps=1e-5):
    def one(rows):
        centred = rows - rows.mean(0)
        return centred / (centred.square().mean(0) + eps).sqrt()

    parts = [one(rows) for rows in segments(values, row_offsets) if len(rows)]
    return torch.cat(parts) if parts else values.clone()


def segment_normalize_backward(grad, values, row_offsets, eps):
    parts = []
    for g, rows in zip(segments(grad, row_offsets), segments(values, row_offsets)):
        if len(rows):
            centred = rows - rows.mean(0)
            scale = 1 / (centred.square().mean(0) + eps).sqrt()
            y = centred * scale
            parts.append(scale * (g - g.mean(0) - y * (g * y).mean(0)))
    return torch.cat(parts) if parts else values.clone()


def segment_logcumsumexp(values, row_offsets):
    out = []
    for rows in segments(values, row_offsets):
        for r in range(len(rows)):
            out.append(torch.logaddexp(out[-1], rows[r]) if r else rows[r])
    return rows_of(out, values)


def segment_softmax_backward(grad, output, row_offsets):
    parts = []
    for g, y in zip(segments(grad, row_offsets), segments(output, row_offsets)):
        if len(y):
            parts.append(y * (g - (g * y).sum(0)))
    return torch.cat(parts) if parts else output.clone()


def lstm(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, row_offsets, reverse=False, weight_hr=None):
    hidden, state = weight_hh.shape[0] // 4, weight_hh.shape[1]
    out, cells, gates = ([None] * len(values) for _ in range(3))
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        h = values.new_zeros(state) if h_0 is None else h_0[s]
        c = values.new_zeros(hidden) if c_0 is None else c_0[s]
        for r in reversed(range(a, b)) if reverse else range(a, b):
            z = weight_ih @ values[r] + weight_hh @ h
            z = z if bias_ih is None else z + bias_ih
            z = z if bias_hh is None else z + bias_hh
            i, f, g, o = z.split(hidden)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            c = f * c + i * g
            h = o * c.tanh()
            h = h if weight_hr is None else weight_hr @ h
            out[r], cells[r], gates[r] = h, c, torch.cat([i, f, g, o])
    rows = zip((out, cells, gates), (state, hidden, 4 * hidden))
    return tuple(rows_of(found, values.new_zeros(0, width)) for found, width in rows)


def gru(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False):
    hidden = weight_hh.shape[1]
    out, saved = ([None] * len(values) for _ in range(2))
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        h = values.new_zeros(hidden) if h_0 is None else h_0[s]
        for row in reversed(range(a, b)) if reverse else range(a, b):
            x = weight_ih @ values[row] if bias_ih is None else weight_ih @ values[row] + bias_ih
            y = weight_hh @ h if bias_hh is None else weight_hh @ h + bias_hh
            (x_r, x_z, x_n), (y_r, y_z, y_n) = x.split(hidden), y.split(hidden)
            r, z = (x_r + y_r).sigmoid(), (x_z + y_z).sigmoid()
            n = (x_n + r * y_n).tanh()
            h = (1 - z) * n + z * h
            out[row], saved[row] = h, torch.cat([r, z, n, y_n])
    return rows_of(out, values.new_zeros(0, hidden)), rows_of(saved, values.new_zeros(0, 4 * hidden))


def rnn(values, weight_ih, weight_hh, bias_ih, bias_hh, h_0, row_offsets, reverse=False, relu=False):
    hidden, out = weight_hh.shape[1], [None] * len(values)
    for s, (a, b) in enumerate(zip(row_offsets.tolist(), row_offsets.tolist()[1:])):
        h = values.new_zeros(hidden) if h_0 is None else h_0[s]
        for row in reversed(range(a, b)) if reverse else range(a, b):
            z = weight_ih @ values[row] + weight_hh @ h
            z = z if bias_ih is None else z + bias_ih
            z = z if bias_hh is None else z + bias_hh
            out[row] = h = z.relu() if relu else z.tanh()
    return rows_of(out, values.new_zeros(0, hidden))


def by_autograd(forward, outputs, inputs, grads):
    """Gradients of `forward(*inputs)`'s first `outputs` results for given output gradients; empty where there is no input."""
    leaves = [t.detach().clone().requires_grad_() if t is not None and t.is_floating_point() else t for t in inputs]
    results = forward(*leaves)
    pairs = [(r, g) for r, g in zip(results[:outputs], grads) if g is not None and r.requires_grad]
    wanted = [t for t in leaves if t is not None and t.requires_grad]
    if not pairs:
        return [torch.zeros_like(t) for t in wanted]
    found = torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found)]


def lstm_backward(
    grad_output,
    grad_cells,
    values,
    weight_ih,
    weight_hh,
    h_0,
    c_0,
    row_offsets,
    reverse,
    output,
    cells,
    gates,
    weight_hr=None,
):
    bias = values.new_zeros(weight_hh.shape[0])

    def forward(values, weight_ih, weight_hh, bias, h, c, weight_hr):
        return lstm(values, weight_ih, weight_hh, bias, None, h, c, row_offsets, reverse, weight_hr)

    inputs = (values, weight_ih, weight_hh, bias, h_0, c_0, weight_hr)
    found = iter(by_autograd(forward, 2, inputs, (grad_output, grad_cells)))
    widths = (weight_hh.shape[1], weight_hh.shape[0] // 4, weight_hh.shape[0] // 4)
    absent = [values.new_zeros(0, width) for width in widths]
    return *(next(found) for _ in range(4)), *(
        none if t is None else next(found) for t, none in zip((h_0, c_0, weight_hr), absent)
    )


def gru_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, output, saved):
    b_ih, b_hh = (values.new_zeros(weight_hh.shape[0]) for _ in range(2))

    def forward(values, weight_ih, weight_hh, b_ih, b_hh, h):
        return gru(values, weight_ih, weight_hh, b_ih, b_hh, h, row_offsets, reverse)

    found = by_autograd(forward, 1, (values, weight_ih, weight_hh, b_ih, b_hh, h_0), (grad_output,))
    return *found[:5], found[5] if h_0 is not None else values.new_zeros(0, weight_hh.shape[1])


def rnn_backward(grad_output, values, weight_ih, weight_hh, h_0, row_offsets, reverse, relu, output):
    bias = values.new_zeros(weight_hh.shape[0])

    def forward(values, weight_ih, weight_hh, bias, h):
        return (rnn(values, weight_ih, weight_hh, bias, None, h, row_offsets, reverse, relu),)

    found = by_autograd(forward, 1, (values, weight_ih, weight_hh, bias, h_0), (grad_output,))
    return *found[:4], found[4] if h_0 is not None else values.new_zeros(0, weight_hh.shape[1])


def chain_logsumexp(values, transition, row_offsets):
    """By every path where they are few, otherwise by the recursion; the scores relative to the largest of a row."""
    sums, states = [], []
    for x in segments(values, row_offsets):
        rows = forward_scores(x, transition)
        if values.shape[1] ** len(x) <= 100:
            sums.append(logsumexp(torch.stack([score for _, score in paths(x, transition)])))
        else:
            sums.append(logsumexp(rows[-1] + transition[1]))
        states += [row - torch.where(row.max().isinf(), 0, row.max()) for row in rows]
    return rows_of(sums, values.new_zeros(0)), rows_of(states, values).detach()


def chain_logsumexp_backward(grad, values, transition, row_offsets, state):
    """By autograd, through the sums above."""
    x, t = (v.detach().clone().requires_grad_() for v in (values, transition))
    sums = chain_logsumexp(x, t, row_offsets)[0]
    found = torch.autograd.grad(sums, (x, t), grad, allow_unused=True) if sums.requires_grad else (None, None)
    return tuple(torch.zeros_like(v) if g is None else g for v, g in zip((x, t), found))


def chain_marginals(values, transition, row_offsets):
    """The share of the paths through a tag where paths are few, otherwise by the two recursions."""
    return rows_of([row for x in segments(values, row_offsets) for row in shares(x, transition)], values)


def chain_marginals_backward(grad, values, transition, row_offsets):
    """By autograd, through the shares above."""
    x, t = (v.detach().clone().requires_grad_() for v in (values, transition))
    found = chain_marginals(x, t, row_offsets)
    grads = torch.autograd.grad(found, (x, t), grad, allow_unused=True) if found.requires_grad else (None, None)
    return tuple(torch.zeros_like(v) if g is None else g for v, g in zip((x, t), grads))


def chain_argmax(values, transition, row_offsets, n=1):
    """The n best of all paths where they are few; of many the best alone, by the recursion."""
    scores, tags = [], []
    for x in segments(values, row_offsets):
        if values.shape[1] ** len(x) <= 20000:
            # equals: by the tags from the last row to the first
            possible = [(y, s) for y, s in paths(x, transition) if s > float("-inf")]  # neither forbidden nor NaN
            ranked = sorted(possible, key=lambda one: (-float(one[1]), one[0][::-1]))[:n]
        else:
            a, back = transition[0] + x[0], []
            for row in x[1:]:
                a, index = (a[:, None] + transition[2:]).max(0)
                a, back = a + row, [*back, index]
            score, tag = (a + transition[1]).max(0)
            y = [int(tag)]
            for index in reversed(back):
                y.insert(0, int(index[y[0]]))
            ranked = [(y, score)]
        missing = n - len(ranked)
        scores.append(torch.stack([*(s for _, s in ranked), *[values.new_tensor(float("-inf"))] * missing]))
        for t in range(len(x)):
            tags.append(torch.tensor([*(y[t] for y, _ in ranked), *[-1] * missing], device=values.device))
    like = values.new_zeros(0, n)
    return rows_of(scores, like), rows_of(tags, like.long())


def chain_sample(state, transition, row_offsets, uniform):
    """Tag by tag from the last row: the first whose share of the probability, with those before it, exceeds the number."""
    out = []
    for a, u in zip(segments(state, row_offsets), segments(uniform, row_offsets)):
        paths = []
        for k in range(uniform.shape[1]):
            y: list = []
            for t in reversed(range(len(a))):
                after = transition[2:, y[0]] if y else transition[1]
                p = (a[t] + after).softmax(0)
                if p.isnan().any():
                    y = [-1] * len(a)
                    break
                some = [i for i in range(len(p)) if p[i] > 0]
                y.insert(0, next((i for i in some if p[: i + 1].sum() > u[t, k]), some[-1]))
            paths.append(y)
        out += [torch.tensor([y[t] for y in paths], device=state.device) for t in range(len(a))]
    return rows_of(out, torch.zeros(0, uniform.shape[1], dtype=torch.int64, device=state.device))
