# SPDX-License-Identifier: Apache-2.0
"""Containers that contain themselves, or are nested more deeply than Python's stack: errors that say so."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch

import torch_lod as tl
from torch_lod import testing
from torch_lod.errors import shown
from torch_lod.structure.validate import traverse

X = tl.lod_tensor([[1.0, 2.0], [3.0]])


def a_dict():
    found: dict = {}
    found["x"] = found
    return found


def a_list():
    found: list = [torch.ones(2)]
    found.append(found)
    return found


def a_list_of_itself():
    found: list = []
    found.append(found)
    return found


def a_tuple():
    found: list = []
    found.append((found,))
    return (found,)


def a_dict_behind_others():
    found: dict = {}
    found["x"] = (1, {"y": found})
    return found


@dataclasses.dataclass
class Record:
    x: Any = None


def a_dataclass():
    found = Record()
    found.x = found
    return found


def an_array():
    found = np.empty(1, dtype=object)
    found[0] = {"x": found}
    return {"x": found}


def deep(kind):
    return functools.reduce(
        lambda inner, _: {"x": inner} if kind is dict else kind([inner]), range(3000), torch.ones(2, 1)
    )


DEEP = {"deep dicts": lambda: deep(dict), "deep tuples": lambda: deep(tuple)}
IN_STATES = {"dict": a_dict, "list": a_list, "tuple": a_tuple, "dict behind others": a_dict_behind_others, **DEEP}
IN_SAMPLES = {**IN_STATES, "list": a_list_of_itself, "dataclass": a_dataclass, "array": an_array}


def one_word(tokens, state):
    return torch.zeros(tokens.shape[0], 3), state


CALLS = {
    "BeamSearch: expected state": lambda c: tl.BeamSearch(one_word, end=0)(torch.tensor([1, 2]), c),
    "BeamSearch: expected static": lambda c: tl.BeamSearch(one_word, end=0)(torch.tensor([1, 2]), None, c),
    "BeamSearch: expected state after step 0": lambda c: tl.BeamSearch(lambda tokens, _: (torch.zeros(2, 3), c), end=0)(
        torch.tensor([1, 2])
    ),
    "scan: expected init": lambda c: tl.scan(lambda x, h: (x, h), X, c),
    "scan: expected static": lambda c: tl.scan(lambda x, h, s: (x, h), X, torch.zeros(2), static=c),
    "scan: expected what the cell returned at step 0": lambda c: tl.scan(lambda x, h: c, X, torch.zeros(2)),
}


def refused(call, made, said):
    with pytest.raises(ValueError) as raised:
        call(made)
    text = str(raised.value)
    assert isinstance(raised.value, tl.LoDError) and text.startswith(said) and len(text) < 200, text
    assert "contains itself" in text or "nestings" in text or "occurs inside itself" in text, text


@pytest.mark.parametrize("container", IN_SAMPLES)
def test_samples(container):
    made = IN_SAMPLES[container]()
    for samples in ([made], [made, made], [{"y": 1, "z": made}], [(made, 1)] * 2):
        refused(tl.batch, samples, "batch: expected ")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("container", IN_STATES)
def test_states(container, call):
    refused(CALLS[call], IN_STATES[container](), call)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda c: tl.create_lod_tensor([c], [[2]]),
            "create_lod_tensor: expected data as a list of sequences of numbers",
        ),
        (
            lambda c: tl.data.TokenBudgetSampler([1], 3, cost=lambda n: c),
            "TokenBudgetSampler: expected cost(lengths) as",
        ),
        (lambda c: tl.lod_tensor([c, c], depth=1), "lod_tensor: expected numbers in rows of one shape"),
        (lambda c: tl.from_lengths(torch.ones(2), [c]), "from_lengths: expected lengths[0][0] to be an integer"),
        (lambda c: tl.data.from_keys(torch.ones(2), c), "from_keys: expected keys[0] as an array or a list"),
        (lambda c: tl.cat(c), "cat: expected LoDTensors"),
        (lambda c: X.seq[c], "seq: expected index[0] to be an integer"),
    ],
)
def test_other_arguments(call, said):
    found: list = [1.5]
    found.append(found)
    with pytest.raises((ValueError, TypeError)) as raised:
        call(found)
    assert isinstance(raised.value, tl.LoDError) and str(raised.value).startswith(said)


def test_results():
    model = torch.nn.Module()
    model.forward = lambda x: a_dict()
    refused(tl.nn.Plain(model, 0), torch.ones(2), "expected the result ")
    refused(lambda c: testing.assert_close(c, c), a_dict(), "expected results ")


def test_a_recursion_of_the_users_own_passes_through():
    def tokenizer(text):
        return tokenizer(text)

    with pytest.raises(RecursionError):
        tl.batch(["a"], strings=tokenizer)


def test_containers_that_are_shared_are_read_one_time():
    def endless(tree):
        return endless(tree)

    shared: Any = {}
    for _ in range(60):  # 2**60 paths
        shared = {"a": shared, "b": shared}
    with pytest.raises(RecursionError):
        traverse("items", endless, shared)


def test_wrong_arguments_are_shown_in_bounded_time():
    twice: dict = {}
    twice |= {"a": twice, "b": twice, "c": [twice] * 9}
    assert len(shown(twice)) <= 60
    with pytest.raises(TypeError, match="expected a list of tensors, got dict"):
        tl.from_tensors(twice)
    with pytest.raises(ValueError, match=r"expected depth >= 1, got \{"):
        tl.lod_tensor([[1]], depth=twice)
