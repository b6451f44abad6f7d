# SPDX-License-Identifier: Apache-2.0
"""Builds the libraries in place for measurements on a GPU, in a minute or two on 16 cores.

    python benchmarks/gpu/build.py [9.0]

One architecture, the GPU's in sight or the one given; a compiler for every core; the CPU's kernels for the baseline level
alone, since what is measured is the GPU. `pip install` afterwards makes them whole again.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment(words: list[str]) -> dict[str, str]:
    """What setup.py and torch's build read, for the architecture that is given or seen."""
    if not words:
        import torch

        if not torch.cuda.is_available():
            sys.exit("build.py: expected a GPU, or its compute capability as an argument (9.0), got neither")
        words = ["{}.{}".format(*torch.cuda.get_device_capability())]
    flags = f"{os.environ.get('CFLAGS', '')} -DLOD_BASE_ONLY".strip()
    jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 8)
    return {"TORCH_LOD_CUDA": "1", "TORCH_CUDA_ARCH_LIST": words[0], "CFLAGS": flags, "MAX_JOBS": jobs}


if __name__ == "__main__":
    chosen = environment(sys.argv[1:])
    print(*(f"{name}={value!r}" for name, value in chosen.items()), flush=True)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    sys.exit(subprocess.run(command, cwd=ROOT, env={**os.environ, **chosen}).returncode)
