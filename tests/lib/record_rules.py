# SPDX-License-Identifier: Apache-2.0
"""Records recorded_rules.npz: what the recurrences of flash-linear-attention's reference code give, row by row in torch.

python tests/lib/record_rules.py FILE CHECKOUT          in an environment with transformers and einops
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from record_mixers import LENGTHS, operator

ROWS, HEADS, KEYS, WIDTH = sum(LENGTHS), 2, 4, 3


def reference(checkout: Path, name: str):
    """A file of the checkout as a module: importing the package would ask for Triton."""
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), checkout / "fla/ops" / name / "naive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_heads(t):
    """(batch, heads, rows, ...) of (batch, rows, heads, ...), and back."""
    return t.transpose(1, 2)


def rules(checkout: Path) -> dict:
    """Of every rule the call that `operator` records, and its inputs besides q, k and v."""
    delta = reference(checkout, "gated_delta_rule").naive_recurrent_gated_delta_rule
    kimi = reference(checkout, "kda").naive_recurrent_kda
    gated = reference(checkout, "gla").naive_recurrent_gla
    low_rank = reference(checkout, "generalized_delta_rule/dplr").dplr_recurrence

    def call_low_rank(part, initial):
        given = (first_heads(part[name]) for name in ("q", "k", "v", "read", "write", "g"))
        out, state = low_rank(*given, initial_state=initial)
        return first_heads(out), state

    def call(rule, part, initial):
        given = {"gk" if rule is gated and name == "g" else name: t for name, t in part.items()}
        return rule(**given, initial_state=initial, output_final_state=True)

    by_head, by_key = -torch.rand(ROWS, HEADS), -torch.rand(ROWS, HEADS, KEYS)
    beta, unit = torch.rand(ROWS, HEADS), torch.nn.functional.normalize(torch.randn(ROWS, HEADS, KEYS), dim=-1)
    return {
        "gated delta rule": (lambda *of: call(delta, *of), {"g": by_head, "beta": beta}),
        "Kimi delta rule": (lambda *of: call(kimi, *of), {"g": by_key, "beta": beta}),
        "gated linear attention": (lambda *of: call(gated, *of), {"g": by_key}),
        "RWKV-7": (call_low_rank, {"g": by_key, "read": unit, "write": -unit * torch.rand(ROWS, HEADS, KEYS)}),
    }


def main(file: str, checkout: str) -> None:
    torch.manual_seed(0)
    arrays = {}
    for of, (call, gates) in rules(Path(checkout)).items():
        q, k, v = torch.randn(ROWS, HEADS, KEYS), torch.randn(ROWS, HEADS, KEYS), torch.randn(ROWS, HEADS, WIDTH)
        given = {"q": q, "k": torch.nn.functional.normalize(k, dim=-1), "v": v, **gates}
        given = {name: t.clone() for name, t in given.items()}
        made = operator(call, given | {"initial": torch.randn(len(LENGTHS), HEADS, KEYS, WIDTH)})
        arrays |= {f"{of}.{name}": t.detach().numpy() for name, t in made.items()}
    commit = subprocess.check_output(["git", "-C", checkout, "rev-parse", "--short", "HEAD"], text=True).strip()
    np.savez_compressed(file, commit=commit, torch=torch.__version__, **arrays)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
