# SPDX-License-Identifier: Apache-2.0
"""Every operator has a price: a row of the benchmarks beside torch's own operator on dense rows."""

import sys
from pathlib import Path

import pytest

import torch_lod as tl


@pytest.fixture
def price(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    yield __import__("benchmarks.groups.price", fromlist=["TWINS"])
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_every_operator_is_measured_beside_its_dense_twin(price):
    measured = {twin.name.split()[0] for twin in price.TWINS}
    operators = {name for name in tl.__all__ + dir(tl) if name.startswith("sequence_")} | {"to_padded", "cat", "head"}
    assert operators - measured == set(price.WITHOUT)
    assert not set(price.WITHOUT) & measured


def test_twins_agree(price):
    setup = price.Setup("cpu", 1, True)
    for twin in price.TWINS:
        given = price._given(price.torch.float32, 4, 10, setup, 200)
        for training in (False, True)[: 1 + twin.trained]:
            case = price._case(twin, given, training)
            (run,) = case.ours.values()
            answer, expected = run.answer(run.call()), case.expected()
            assert len(answer) == len(expected), twin.name
            for a, b in zip(answer, expected):
                price.torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=twin.name)
