# SPDX-License-Identifier: Apache-2.0
"""Records recorded_mixers.npz: what transformers' own functions and layers give in torch, sequence by sequence.

python tests/lib/record_mixers.py FILE          in an environment with transformers, without its optional kernels
"""

import sys

import numpy as np
import torch
import transformers
from transformers.models.mamba2 import modeling_mamba2 as mamba2
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

LENGTHS = [5, 1, 70]


def operator(call, inputs: dict) -> dict:
    """`call(inputs of one sequence, its initial state)` for every sequence, and the gradients of all inputs."""
    leaves = {name: t.requires_grad_() for name, t in inputs.items()}
    rows, states, at = [], [], 0
    for i, n in enumerate(LENGTHS):
        part = {k: t[None, at : at + n] if len(t) == sum(LENGTHS) else t for k, t in leaves.items() if k != "initial"}
        out, state = call(part, leaves["initial"][i : i + 1])
        rows.append(out[0]), states.append(state[0])
        at += n
    made = {"out": torch.cat(rows), "state": torch.stack(states)}
    weights = {f"grad_{name}": torch.randn_like(t) for name, t in made.items()}
    loss = sum((t * weights[f"grad_{name}"]).sum() for name, t in made.items())
    grads = torch.autograd.grad(loss, list(leaves.values()))
    return {
        "lengths": torch.tensor(LENGTHS),
        **inputs,
        **made,
        **weights,
        **{f"grad_{name}": g for name, g in zip(leaves, grads)},
    }


def delta() -> dict:
    rows, keys, heads, wide, width = sum(LENGTHS), 1, 2, 4, 3
    q, k, v = torch.randn(rows, keys, wide), torch.randn(rows, keys, wide), torch.randn(rows, heads, width)
    gates = {"g": -torch.rand(rows, heads), "beta": torch.rand(rows, heads)}
    given = {"q": q, "k": torch.nn.functional.normalize(k, dim=-1), "v": v, **gates}

    def call(part, initial):
        run = qwen3_next.torch_chunk_gated_delta_rule
        return run(*(part[n] for n in ("q", "k", "v", "g", "beta")), initial_state=initial, output_final_state=True)

    return operator(call, given | {"initial": torch.randn(len(LENGTHS), heads, wide, width)})


def dual() -> dict:
    rows, heads, width, groups, wide = sum(LENGTHS), 4, 3, 2, 5
    given = {"x": torch.randn(rows, heads, width), "dt": torch.rand(rows, heads), "A": -torch.rand(heads)}
    given |= {"B": torch.randn(rows, groups, wide), "C": torch.randn(rows, groups, wide), "D": torch.randn(heads)}

    def call(part, initial):
        given = (part[n] for n in ("x", "dt", "A", "B", "C"))
        states = {"initial_states": initial, "return_final_states": True}
        return mamba2.mamba2_chunk_scan(*given, chunk_size=16, D=part["D"], **states)

    return operator(call, given | {"initial": torch.randn(len(LENGTHS), heads, width, wide)})


def layer(module: torch.nn.Module) -> dict:
    lengths, params = [7, 1, 20], dict(module.eval().named_parameters())
    with torch.no_grad():
        for name in {"D", "dt_bias", "norm.weight"} & set(params):
            params[name].add_(torch.randn_like(params[name]) / 4)
    x = torch.randn(sum(lengths), 6).requires_grad_()
    out = torch.cat([module(rows[None])[0] for rows in x.split(lengths)])
    grad = torch.randn_like(out)
    found = torch.autograd.grad((out * grad).sum(), [x, *params.values()])
    made = {"lengths": torch.tensor(lengths), "x": x, "out": out, "grad_out": grad, "grad_x": found[0]}
    made |= {f"state_dict.{name}": t for name, t in params.items()}
    return made | {f"grads.{name}": t for name, t in zip(params, found[1:])}


def main(file: str) -> None:
    torch.manual_seed(0)
    heads = {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 3,
    }
    qwen = transformers.Qwen3NextConfig(
        hidden_size=6, num_hidden_layers=1, layer_types=["linear_attention"], linear_conv_kernel_dim=4, **heads
    )
    sizes = {"state_size": 5, "conv_kernel": 4, "expand": 2, "head_dim": 3, "num_heads": 4, "n_groups": 2}
    mamba = transformers.Mamba2Config(hidden_size=6, num_hidden_layers=1, chunk_size=8, **sizes)
    made = {
        "delta": delta(),
        "ssd": dual(),
        "GatedDeltaNet": layer(qwen3_next.Qwen3NextGatedDeltaNet(qwen, 0)),
        "Mamba2": layer(mamba2.Mamba2Mixer(mamba, 0)),
    }
    arrays = {f"{of}.{name}": t.detach().numpy() for of, given in made.items() for name, t in given.items()}
    np.savez_compressed(file, transformers=transformers.__version__, torch=torch.__version__, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
