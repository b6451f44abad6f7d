# SPDX-License-Identifier: Apache-2.0
"""Devices, the whole grid on request, and the count of laws at the end."""

import collections
import os

import pytest
import torch

import torch_lod

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: The whole grid of every law: make test-all.
FULL = os.environ.get("TORCH_LOD_FULL") == "1"


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
    kind = "compiled operators" if torch_lod.ops.COMPILED else "compositions (no compiled operators)"
    terminalreporter.write_line(f"torch {torch.__version__}, {kind}, devices: {', '.join(DEVICES)}")
    for file, what in (("test_all_ops", "operators"), ("test_all_sequences", "operators on LoDTensors")):
        laws = collections.Counter(r.nodeid.split("::")[1].split("[")[0] for r in passed if f"{file}.py" in r.nodeid)
        if laws:
            terminalreporter.write_line(f"{len(laws)} laws over {what}, {sum(laws.values())} cases of them")
    said = [item for report in passed for item in report.user_properties]
    for what, count in said:
        if what == "leak law":
            terminalreporter.write_line(f"leak law: {count}, 0 leaks")
    modules = {name for what, name in said if what == "module"}
    if modules:
        terminalreporter.write_line(f"leak law: {len(modules)} modules of torch.nn, 0 leaks")
