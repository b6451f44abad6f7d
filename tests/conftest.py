# SPDX-License-Identifier: Apache-2.0
"""Devices, threads, which tests run when, and the count of laws at the end."""

import os

import pytest
import torch

#: make test-emulated: the kernels for GPUs, on a device whose memory is the host's.
EMULATED = os.environ.get("TORCH_LOD_EMULATED") == "1"
if EMULATED:
    from emulated_gpu import emulated

    emulated.start()

import torch_lod  # noqa: E402  # its kernels are those of the device

if EMULATED:
    torch_lod.devices.PINNED.add("emu")
DEVICES = ["emu"] if EMULATED else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: The whole grid of every law: make test-all.
FULL = os.environ.get("TORCH_LOD_FULL") == "1"
#: Tests of things other than what operators compute: make test-fallback, which asks whether everything also holds on the
#: compositions, does not repeat them.
ONCE = {
    "test_blocks.py": "how compiled operators share a long segment, and sum it in blocks",
    "test_contributing.py": "recipes, in copies of the tree",
    "test_dtypes.py": "extreme numbers, which the compositions add and multiply in another order",
    "test_distributed.py": "torch.distributed",
    "test_example.py": "the example program: its data, its options, its output",
    "test_extension.py": "headers, and an operator compiled elsewhere",
    "test_five_programs.py": "programs of the docs",
    "test_golden.py::test_another_folder": "the counting of recorded cases",
    "test_golden.py::test_crashes_and_hangs": "the counting of recorded cases",
    "test_house.py::test_generated_documentation": "the docs as files",
    "test_install.py": "packages as files",
    "test_house.py::test_imports_go_downwards": "the sources as files",
    "test_house.py::test_pages_print": "the docs as programs",
    "test_lemmatize.py": "the example program",
    "test_malformed.py::test_broken_files": "files",
    "test_malformed.py::test_nothing_crashes": "runs with and without compiled operators by itself",
    "test_models.py::test_two_processes": "torch.distributed",
    "test_numerics.py::test_products": "compositions multiply with torch's functions",
    "test_resources.py::test_rows_without_numbers": "compositions number the rows",
    "test_state.py::test_load_in_a_fresh_process": "files",
    "test_tag_sentences.py": "the tagger: its data, its options, its output",
}
#: make quick: house rules, and the laws in the first dtype of every operator; not those that compile or start processes.
QUICK = ("test_house.py", "test_laws.py", "test_laws_ops.py", "test_laws_sequence.py")
SLOW = (
    "test_a_missing_extension",
    "test_compiles",
    "test_generated_documentation",
    "test_gradient_equals_the_references",
    "test_lower_instruction_levels",
    "test_operators_can_be_called",
    "test_pages_print",
    "test_registration",
)
# Of cuDNN's modules, which are references here, float32 is rounded to 10 bits unless they are told not to.
torch.backends.cudnn.allow_tf32 = False
# Most tensors here are tiny: handing them to another thread takes longer than the work. Tests of threads set the number.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", DEVICES)


def pytest_collection_modifyitems(config, items):
    kept, once = [], []
    for item in items:
        (once if item.nodeid.rpartition("tests/")[2].startswith(tuple(ONCE)) else kept).append(item)
        given = item.callspec.params if hasattr(item, "callspec") else {}
        first = "info" not in given or given.get("dtype") in (None, given["info"].dtypes[0])
        if item.path.name in QUICK and first and not item.name.startswith(SLOW):
            item.add_marker(pytest.mark.quick)
    if not torch_lod.ops.COMPILED:
        config.hook.pytest_deselected(items=once)
        items[:] = kept


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
    kind = "compiled operators" if torch_lod.ops.COMPILED else "compositions (no compiled operators)"
    terminalreporter.write_line(f"torch {torch.__version__}, {kind}, devices: {', '.join(DEVICES)}")
    if not torch_lod.ops.COMPILED:
        terminalreporter.write_line(f"not repeated here: {', '.join(ONCE)}")
    cases = [r.nodeid.partition("::")[2] for r in passed if "test_laws" in r.nodeid]
    of_lod_tensors = [case for case in cases if "tl." in case]
    for what, kept in (("operators", set(cases) - set(of_lod_tensors)), ("operators on LoDTensors", of_lod_tensors)):
        laws = {case.partition("[")[0] for case in kept}
        if laws:
            terminalreporter.write_line(f"{len(laws)} laws over {what}, {len(kept)} cases of them")
    said = [item for report in passed for item in report.user_properties]
    for what, count in said:
        if what == "leak law":
            terminalreporter.write_line(f"leak law: {count}, 0 leaks")
    modules = {name for what, name in said if what == "module"}
    if modules:
        terminalreporter.write_line(f"leak law: {len(modules)} modules of torch.nn, 0 leaks")
    counts: dict = {}
    for what, count in said:
        if what.startswith("fuzz "):
            counts[what[5:]] = counts.get(what[5:], 0) + count
    if counts:
        found = ", ".join(f"{count} {what}" for what, count in counts.items())
        terminalreporter.write_line(f"random examples: {found}")
