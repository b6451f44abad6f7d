# SPDX-License-Identifier: Apache-2.0
"""The rows of the catalogue (malformed_calls.py) of tl.Cache."""

import torch
from malformed_calls import Call, two

import torch_lod as tl


def _filled():
    cache = tl.Cache([9, 9, 9], grow=2)
    cache.append(two(), two())
    return cache


def _state_of(cache, state):
    cache.state = state
    return cache.state


def calls():
    yield "tl.Cache", Call(tl.Cache, ([3, 4],), {"grow": 2, "level": -1})
    yield "Cache.append", Call(tl.Cache.append, (_filled(), two(), two(seed=1)))
    for keep in (torch.tensor([True, False, True]), [True, False, True]):
        yield "Cache.filter", Call(tl.Cache.filter, (_filled(), keep))
    yield "Cache.state", Call(_state_of, (_filled(), torch.zeros(3, 2)))
    yield "Cache.attention", Call(tl.sequence_attention, (two(), _filled()), {"causal": True})
    for name in ("capacity", "keys", "lengths", "num_sequences", "values"):
        yield f"Cache.{name}", Call(getattr(tl.Cache, name), (_filled(),))
