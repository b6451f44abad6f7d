# SPDX-License-Identifier: Apache-2.0
"""In the folder of a checkout, `import torch_lod` finds the checkout before the installed package."""

import importlib.util
import os
import sys
from pathlib import Path


def steps_aside() -> bool:
    """Whether this is a source tree without built operators while another torch_lod on sys.path has them. If so, that
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
    del sys.modules["torch_lod.checkout"]
    sys.modules["torch_lod"] = module = importlib.util.module_from_spec(spec)  # the module that `import` returns
    spec.loader.exec_module(module)
    return True
