# SPDX-License-Identifier: Apache-2.0
"""What lies beside rows is on their device; structure is in host memory. "meta" is another device everywhere."""

import sys

import pytest
import torch
from settings import ROOT

import torch_lod as tl

sys.path.insert(0, str(ROOT / "docs"))
import operator_pages

X = tl.from_lengths(torch.arange(7.0), [[2, 0, 1, 1], [3, 0, 2, 2]], level_names=("text", "line"))
QUESTIONS = {
    "lengths": lambda x, level: x.lengths(level),
    "position_ids": lambda x, level: x.position_ids(level),
    "segment_ids": lambda x, level: x.segment_ids(level),
    "is_first": lambda x, level: x.is_first(level),
    "is_last": lambda x, level: x.is_last(level),
}


@pytest.mark.parametrize("level", [0, 1, -1, "text", "line"])
def test_what_lies_beside_rows(level):
    lod = X.lod
    sizes = lod.row_lengths(level).tolist()
    positions = [i for n in sizes for i in range(n)]
    last = [i + 1 == n for n in sizes for i in range(n)]
    assert X.position_ids(level).tolist() == positions == lod.position_ids(level).tolist()
    assert X.segment_ids(level).tolist() == [k for k, n in enumerate(sizes) for _ in range(n)]
    assert X.lengths(level).tolist() == lod.lengths(level).tolist() == lod.to_lengths()[lod.level(level)]
    for found, expected in ((X.is_first(level), [i == 0 for i in positions]), (X.is_last(level), last)):
        assert isinstance(found, tl.LoDTensor) and found.lod is lod and found.dtype == torch.bool
        assert found.values().tolist() == expected


@pytest.mark.parametrize("name", QUESTIONS)
def test_it_is_on_the_device_of_the_rows(name):
    ask = QUESTIONS[name]
    for x in (X, X[:0].values(), X.values()[:0]):
        x = x if isinstance(x, tl.LoDTensor) else tl.from_lengths(x, [[0, 0], []])
        for level in (0, 1):
            here, there = ask(x, level), ask(x.to("meta"), level)
            assert here.is_cpu and there.is_meta and here.shape == there.shape and here.dtype == there.dtype
            assert type(here) is type(there)
    compiled = torch.compile(lambda x: ask(x, 0), fullgraph=True, backend="eager")
    for x in (X, tl.from_lengths(torch.arange(3.0), [[1, 1], [1, 2]])):
        assert torch.equal(compiled(x), ask(x, 0))


def test_what_is_handed_out_cannot_change_a_structure():
    for ask in QUESTIONS.values():
        kept = ask(X, -1).tolist()
        ask(X, -1).zero_()
        assert ask(X, -1).tolist() == kept
    assert all(t.is_cpu for t in (X.to("meta").lod.lengths(), X.to("meta").lod.position_ids()))


#: Examples whose sizes depend on numbers: on a GPU the host waits for them.
WAITS = set("ctc_decode ctc_beam_decode ctc_alignment ctc_align ctc_greedy_decoder warpctc sequence_unique".split())
WAITS |= set(
    "sequence_radius sequence_unpad sequence_erase filter_by_instag tree_conv beam_search beam_search_decode".split()
)


def test_examples_of_operators_run_with_rows_on_another_device():
    space: dict = {"tl": tl, "torch": torch}
    exec(operator_pages.X, space)
    waited = set()
    for name in operator_pages.EXAMPLES:
        try:
            with torch.device("meta"):
                found = operator_pages.Example(name, space["x"].to("meta")).result()
            assert {t.device.type for t in operator_pages.leaves(found)} <= {"meta"}, name
        except tl.LoDError as error:
            assert "with data" in str(error), (name, error)
            waited.add(name)
    assert waited == WAITS
