# SPDX-License-Identifier: Apache-2.0
"""Devices, threads, which tests run when, and the count of laws at the end."""

import os

import pytest
import torch
from settings import EMULATED, FULL, ROOT

if EMULATED:
    from emulated_gpu import emulated

    emulated.start()

import torch_lod  # its kernels are those of the device

if EMULATED:
    torch_lod.structure.devices.PINNED.add("emu")
    torch_lod.sequence.attend._library_runs = emulated.runs_flash_attention
DEVICES = ["emu"] if EMULATED else ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
#: make test-programs: tests that start processes, train or build. The others are make test.
PROGRAMS = (
    "distributed/",
    "programs/",
    "drop_in/test_models.py",
    "laws/test_compile.py::test_training_under_inductor",
    "laws/test_house.py::test_a_missing_extension",
    "robustness/test_gate.py",
    "robustness/test_import.py",
    "robustness/test_resources.py",
    "sequence/test_block_mask.py::test_flex_attention_under_inductor",
)
#: make quick: the rules about sources, and the laws in the first dtype of every operator; not those that compile.
QUICK = (
    "test_house.py",
    "test_laws.py",
    "test_laws_ops.py",
    "test_laws_sequence.py",
    "test_messages.py",
    "test_words.py",
)
SLOW = (
    "test_a_missing_extension",
    "test_compiles",
    "test_generated_documentation",
    "test_gradient_equals_the_references",
    "test_operators_can_be_called",
    "test_registration",
)
#: Without compiled operators (make test-fallback) what computes is asked: the laws and the recorded cases. What is left out
#: is about something else, or asks both kinds of operators by itself. make test-all runs all but ELSEWHERE.
COMPUTES = (
    "test_literal_cases.py",
    "laws/",
    "test_golden.py",
    "sequence/test_recurrent.py",
    "sequence/test_attention.py",
    "sequence/test_attention_options.py",
)
ELSEWHERE = {
    "laws/test_blocks.py": "how compiled operators share a long segment, and sum it in blocks",
    "laws/test_short_segments.py": "how compiled operators take short segments side by side",
    "laws/test_compile.py": "compositions are torch's own operators",
    "laws/test_dtypes.py": "extreme values, which the compositions add and multiply in another order",
    "laws/test_house.py": "sources and pages",
    "laws/test_messages.py": "sources and pages",
    "laws/test_words.py": "sources and pages",
    "laws/test_matrix.py::test_a_cell_is_what_the_matrix_says[compile": "compositions are torch's own operators",
    "laws/test_matrix.py::test_a_cell_is_what_the_matrix_says[export": "compositions are torch's own operators",
    "laws/test_numerics.py::test_products": "compositions multiply with torch's functions",
    "robustness/test_malformed.py::test_broken_files": "files",
    "robustness/test_malformed.py::test_nothing_crashes": "runs with and without compiled operators by itself",
    "robustness/test_state.py::test_load_in_a_fresh_process": "files",
    "test_golden.py::test_another_folder": "the counting of recorded cases",
    "test_golden.py::test_crashes_and_hangs": "the counting of recorded cases",
}
# torch's cache of compiled graphs does not know this choice: code for wider vectors would be compiled for narrower ones.
if _chosen := os.environ.get("ATEN_CPU_CAPABILITY"):
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "build" / f"inductor_{_chosen}"))
# Of cuDNN's modules, which are references here, float32 is rounded to 10 bits unless they are told not to.
torch.backends.cudnn.allow_tf32 = False
# Most tensors here are tiny: handing them to another thread takes longer than the work. Tests of threads set the number.
torch.set_num_threads(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", DEVICES)


@pytest.hookimpl(tryfirst=True)  # -m reads the marks
def pytest_collection_modifyitems(config, items):
    kept, left = [], []
    for item in items:
        name = item.nodeid.partition("tests/")[2]
        program = name.startswith(PROGRAMS)
        if program:
            item.add_marker(pytest.mark.program)
        params = item.callspec.params if hasattr(item, "callspec") else {}
        first = "info" not in params or params.get("dtype") in (None, params["info"].dtypes[0])
        if item.path.name in QUICK and first and not program and not item.name.startswith(SLOW):
            item.add_marker(pytest.mark.quick)
        again = name.startswith(COMPUTES) or FULL
        repeated = again and not program and not name.startswith(tuple(ELSEWHERE))
        (kept if torch_lod.ops.COMPILED or repeated else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
    kind = "compiled operators" if torch_lod.ops.COMPILED else "compositions (no compiled operators)"
    terminalreporter.write_line(f"torch {torch.__version__}, {kind}, devices: {', '.join(DEVICES)}")
    if not torch_lod.ops.COMPILED:
        terminalreporter.write_line(f"not repeated on compositions: {', '.join(ELSEWHERE)}")
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
