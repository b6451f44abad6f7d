# SPDX-License-Identifier: Apache-2.0
"""What must hold before anything of the package is imported, each said in one sentence otherwise."""

import re
from pathlib import Path

import torch

#: The oldest torch that the package runs with (pyproject.toml).
OLDEST = (2, 11)


def check_torch(version: str) -> None:
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ImportError(f"torch_lod needs torch {needed} or newer, got {version}: pip install --upgrade torch")


def check_no_other_copy() -> None:
    """torch has a table of operators for the whole process, and ends it where one is defined twice."""
    if torch._C._jit_get_schemas_for_operator("torch_lod_signals::ask"):
        raise ImportError(
            f"torch_lod was imported already in this process, from another folder than {Path(__file__).parent} or before "
            "it was taken out of sys.modules; start Python again with one copy of it on sys.path"
        )


def check() -> None:
    check_torch(torch.__version__)
    check_no_other_copy()
