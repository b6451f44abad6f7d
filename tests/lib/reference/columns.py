# SPDX-License-Identifier: Apache-2.0
"""The order of the rows of one sequence, every element of a row by itself."""

import math

import torch


def order_of(keys, descending):
    """Numbers in stable order, NaN as the largest of all."""
    ranked = [(math.inf if k != k else k, k != k) for k in keys]
    return sorted(range(len(keys)), key=lambda i: ranked[i], reverse=descending)


def column_orders(r, descending):
    """The order of every element of a row by itself, (rows, *element)."""
    columns = r.reshape(len(r), math.prod(r.shape[1:]))
    orders = [order_of(columns[:, c].tolist(), descending) for c in range(columns.shape[1])]
    return torch.tensor(orders, dtype=torch.int64).reshape(columns.shape[1], len(r)).t().reshape(r.shape)


def middle_of(r):
    """The smaller of the two rows in the middle, and its number; the last NaN where there is one."""
    order = column_orders(r.detach(), False)
    at = torch.where(r.gather(0, order)[-1].isnan(), order[-1], order[(len(r) - 1) // 2])
    return r.gather(0, at[None])[0], at


def ranks_of(order):
    """Where an order puts every row."""
    places = torch.arange(len(order)).view(-1, *[1] * (order.dim() - 1)).expand(order.shape)
    return torch.zeros_like(order).scatter(0, order, places)
