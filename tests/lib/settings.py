# SPDX-License-Identifier: Apache-2.0
"""Where things are, and what the environment says of a run. Programs that tests start import it as well."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
LIB = TESTS / "lib"
#: For a program that a test starts: torch_lod of this checkout, and the modules of tests/lib.
PYTHONPATH = os.pathsep.join(map(str, (ROOT, LIB)))

#: The whole grid of every law: make test-all.
FULL = os.environ.get("TORCH_LOD_FULL") == "1"
#: make test-emulated: the kernels for GPUs, on a device whose memory is the host's.
EMULATED = os.environ.get("TORCH_LOD_EMULATED") == "1"
