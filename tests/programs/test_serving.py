# SPDX-License-Identifier: Apache-2.0
"""docs/serving.md in C++: its files, built and run by its own commands in an empty folder, print what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from settings import ROOT

import torch_lod as tl

PAGE = (ROOT / "docs/serving.md").read_text()
SECTION = PAGE[PAGE.index("## AOTInductor in C++") : PAGE.index("## ONNX")]
COMPILER = shutil.which("c++")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with the files of the page, in which its commands are run."""
    folder = tmp_path_factory.mktemp("served")
    for name, text in re.findall(r'^```\w+ title="([^"\n]*)"\n(.*?)^```$', SECTION, re.M | re.S):
        (folder / name).write_text(text)
    (folder / "python").symlink_to(sys.executable)
    return folder


def shell(folder: Path, commands: str) -> tuple[int, str, str]:
    """The status, what was printed, and what was said of errors."""
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    path = {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, **threads, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the page is about Linux")
def test_a_model_is_served_in_cpp_as_the_page_says(served):
    assert tl.ops.COMPILED, "the page loads the compiled operators"
    assert COMPILER, "serving: expected a C++ compiler (c++), found none"
    library = tl.ops.library.BINDING.library
    assert library.name == "_C.so"  # what the page's commands load: that of a source build
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", SECTION, re.M | re.S)
    (expected,) = re.findall(r"^```text\n(.*?)^```$", SECTION, re.M | re.S)
    status, printed, said = shell(served, commands)
    assert status == 0, said
    assert printed == expected

    # without the library, and linked to it: the last paragraph
    paragraph = SECTION.rpartition("```")[2]
    status, _, said = shell(served, "./serve libc.so.6 articles.pt2")
    assert status != 0 and re.search(r"Could not find schema for \w+::lstm", paragraph)[0] in said
    plain = re.sub(r"^ *if \(!dlopen.*\n", "", (served / "serve.cpp").read_text(), flags=re.M)
    (served / "serve.cpp").write_text(plain)
    (options,) = re.findall(r"`(-Wl,--no-as-needed[^`]*)`", paragraph)
    build = re.sub(r"^python make.py\n|^\./serve.*\n", "", commands, flags=re.M).rstrip()
    status, printed, said = shell(served, f"{build} {options}\n./serve none articles.pt2")
    assert status == 0, said
    assert expected.endswith(printed) and "CPUFloatType" in printed
