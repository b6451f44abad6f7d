# SPDX-License-Identifier: Apache-2.0
"""What must hold before anything of the package is imported, each said in one sentence otherwise."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import torch

#: The oldest torch that the package runs with (pyproject.toml).
OLDEST = (2, 11)


def steps_aside() -> bool:
    """In the folder of a checkout, `import torch_lod` finds the checkout before the installed package: whether this is a source tree without built operators while another torch_lod on sys.path has them. If so, that
    one is imported and replaces this one. TORCH_LOD_COMPOSED=1 needs no built operators: then the answer is no."""
    here = Path(__file__).parent
    if os.environ.get("TORCH_LOD_COMPOSED") == "1" or any(here.glob("_C*.so")) or not (here.parent / "csrc").is_dir():
        return False
    for folder in sys.path:
        found = Path(folder, "torch_lod", "__init__.py")
        if found.is_file() and any(found.parent.glob("_C*.so")):
            break
    else:
        return False
    spec = importlib.util.spec_from_file_location("torch_lod", found)
    assert spec is not None and spec.loader is not None
    del sys.modules["torch_lod.requirements"]
    sys.modules["torch_lod"] = module = importlib.util.module_from_spec(spec)  # the module that `import` returns
    spec.loader.exec_module(module)
    return True


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
