# SPDX-License-Identifier: Apache-2.0
"""Recurrences with a state that is given and returned: plain loops over rows and heads, as the papers write them."""

import torch

from reference.ops import rows_of
from reference.sequence import Nest, parts


def _each_head(x, level, heads, initial, shape, one):
    """`one(sequence, head, state)` of every sequence and head gives rows and the state behind them."""
    out, last = [], []
    for i, rows in enumerate(parts(x, level)):
        states = rows.new_zeros(heads, *shape) if initial is None else initial[i].to(rows.dtype)
        made = [one(i, h, states[h]) for h in range(heads)]
        out += torch.stack([rows_of(rows, x.values[:, 0, : shape[1]]) for rows, _ in made], 1)
        last.append(torch.stack([state for _, state in made]))
    like = x.values.new_zeros(0, heads, *shape)
    return x.with_rows(rows_of(out, x.values.new_zeros(0, heads, shape[1]))), rows_of(last, like)


def _rows_or_pair(pair, return_state):
    return pair if return_state else pair[0]


def gated_delta_rule(q, k, v, g, beta, scale=None, initial=None, return_state=False, level=-1):
    qs, ks, vs, gs, betas = (parts(t, level) for t in (q, k, v, g, beta))
    heads, width = v.values.shape[1:]
    group, keys = heads // k.values.shape[1], k.values.shape[2]
    scale = keys**-0.5 if scale is None else scale

    def one(i, h, state):
        out = []
        for t in range(len(vs[i])):
            key = ks[i][t, h // group]
            state = gs[i][t, h].exp().reshape(-1, 1) * state
            state = state + torch.outer(key, betas[i][t, h] * (vs[i][t, h] - state.t() @ key))
            out.append(scale * (state.t() @ qs[i][t, h // group]))
        return out, state

    return _rows_or_pair(_each_head(v, level, heads, initial, (keys, width), one), return_state)


def linear_attention(q, k, v, g=None, scale=None, initial=None, return_state=False, level=-1):
    qs, ks, vs = (parts(t, level) for t in (q, k, v))
    gs = None if g is None else parts(g, level)
    heads, width = v.values.shape[1:]
    group, keys = heads // k.values.shape[1], k.values.shape[2]
    scale = keys**-0.5 if scale is None else scale

    def one(i, h, state):
        out = []
        for t in range(len(vs[i])):
            kept = state if gs is None else gs[i][t, h].exp().reshape(-1, 1) * state
            state = kept + torch.outer(ks[i][t, h // group], vs[i][t, h])
            out.append(scale * (state.t() @ qs[i][t, h // group]))
        return out, state

    return _rows_or_pair(_each_head(v, level, heads, initial, (keys, width), one), return_state)


def ssd(x, dt, A, B, C, D=None, initial=None, return_state=False, level=-1):
    xs, dts, bs, cs = (parts(t, level) for t in (x, dt, B, C))
    heads, width = x.values.shape[1:]
    group, n = heads // B.values.shape[1], B.values.shape[2]

    def one(i, h, state):
        out = []
        for t in range(len(xs[i])):
            step, row = dts[i][t, h], xs[i][t, h]
            state = (step * A[h]).exp() * state + step * torch.outer(bs[i][t, h // group], row)
            y = state.t() @ cs[i][t, h // group]
            out.append(y if D is None else y + D[h] * row)
        return out, state

    return _rows_or_pair(_each_head(x, level, heads, initial, (n, width), one), return_state)


def sequence_scan(x, a, reverse=False, initial=None, return_state=False, level=-1):
    factors = parts(a, level) if isinstance(a, Nest) else [[a] * len(r) for r in parts(x, level)]
    made, last = [], []
    for i, (rows, f) in enumerate(zip(parts(x, level), factors, strict=True)):
        h, out = None if initial is None else initial[i].to(rows.dtype), []
        for t in reversed(range(len(rows))) if reverse else range(len(rows)):
            h = rows[t] if h is None else rows[t] + f[t] * h
            out.append(h)
        made += out[::-1] if reverse else out
        last.append(x.values.new_zeros(x.values.shape[1:]) if h is None else h)
    return _rows_or_pair((x.with_rows(rows_of(made, x.values)), rows_of(last, x.values)), return_state)
