# SPDX-License-Identifier: Apache-2.0
"""Tries an installed torch_lod without pytest: README's program, every operator beside its reference, and a gradient of each.

It takes the samples and references of this checkout (tests/lib, which need hypothesis), and the package that is installed,
not the checkout's.
"""

import re
import sys
import time
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != ROOT]
sys.path += [str(ROOT / "tests/lib"), str(ROOT / "tests")]

import torch  # noqa: E402
from samples import OPS, SEQUENCES  # noqa: E402
from samples.words import as_double, close, told  # noqa: E402

import torch_lod as tl  # noqa: E402
from torch_lod.ops.library import BINDING  # noqa: E402

#: Samples of an operator.
SAMPLES = 4


def readme() -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    exec(compile(code, "README.md", "exec"), {"print": lambda *words: None})


def differentiable(value, leaves: list):
    """The arguments of a call with floating tensors that want a gradient, which `leaves` collects."""
    if isinstance(value, (list, tuple)):
        return type(value)(differentiable(v, leaves) for v in value)
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
        leaves.append(value.detach().clone().requires_grad_())
        return leaves[-1]
    return value


def tried(info) -> int:
    """Runs an operator on a few samples; how many."""
    dtype = info.dtypes[0]
    samples = list(islice((s for s in info.samples(dtype, "cpu") if not s.large), SAMPLES))
    for sample in samples:
        args, kwargs = as_double((sample.args, sample.kwargs))
        close(info.run(sample), info.run(sample, args, kwargs, by_reference=True), info, dtype, sample)
        leaves: list[torch.Tensor] = []
        args = differentiable(sample.args, leaves)
        out = [t for t, _ in told(info.run(sample, args)) if t.requires_grad] if info.differentiable and leaves else []
        if out:
            gradients = torch.autograd.grad(sum(t.sum() for t in out), leaves, allow_unused=True)
            assert all(g is None or g.shape == t.shape for g, t in zip(gradients, leaves)), sample.label
    return len(samples)


def main() -> int:
    assert Path(tl.__file__).resolve().parent.parent != ROOT, f"{tl.__file__} is the checkout"
    begin, failed, calls = time.time(), [], 0
    readme()
    for info in [*OPS, *SEQUENCES]:
        try:
            calls += tried(info)
        except Exception as error:
            failed.append(f"{info.id}: {type(error).__name__}: {str(error).splitlines()[0]}")
    print(*(f"{line}\n" for line in failed), sep="", end="")
    which = BINDING.library.name if BINDING.library else "composed"
    operators = len(OPS) + len(SEQUENCES)
    print(f"torch {torch.__version__}, {which}: {operators - len(failed)} of {operators} operators right, {calls} calls, "
          f"{time.time() - begin:.0f} s")  # fmt: skip
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
