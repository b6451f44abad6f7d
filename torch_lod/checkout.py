# SPDX-License-Identifier: Apache-2.0
"""`import torch_lod` from the folder of a checkout finds the checkout before anything that is installed."""

import importlib.util
import os
import sys
from pathlib import Path


def steps_aside() -> bool:
    """Whether this is a source tree without built operators, and another torch_lod on sys.path has them: then that one is
    imported, and what was loaded here is forgotten. With TORCH_LOD_COMPOSED=1 operators are not asked for."""
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
    del sys.modules["torch_lod.checkout"]
    sys.modules["torch_lod"] = module = importlib.util.module_from_spec(spec)  # what Python hands to whoever imports
    spec.loader.exec_module(module)
    return True
