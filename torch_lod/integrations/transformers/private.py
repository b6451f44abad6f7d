# SPDX-License-Identifier: Apache-2.0
"""What `use` follows of the private life of transformers, which the library does not promise: names of classes, attributes,
and functions of its modelling modules. It holds for the versions FIRST to LAST, of which `make formats` runs the last."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import library

FIRST, LAST = (4, 57), (5, 24)
#: How the classes of modules end that take the first row of a sample.
POOLERS = ("Pooler", "ClassificationHead")
_CACHED = "initial_state output_final_state"
#: Functions of modelling modules which layers call by name, and the arguments of which ours take the place. Of 5.24:
#: Qwen3-Next, Qwen3.5, OLMo hybrid, Mamba-2, Bamba, Falcon-H1, Zamba 2, Granite hybrid, Nemotron-H and LFM2 are made of them.
#: Where one is missing or has other arguments it is not replaced, and the model goes by map_sequences.
FUNCTIONS = {
    "causal_conv1d_fn": "hidden_states weight bias activation",
    "torch_chunk_gated_delta_rule": f"query key value g beta use_qk_l2norm_in_kernel {_CACHED}",
    "mamba2_chunk_scan": "hidden_states dt A B C D dt_bias dt_softplus dt_limit initial_states return_final_states",
    "mamba2_split_conv1d_scan_combined": "",
}
RECURRENCES = frozenset({"torch_chunk_gated_delta_rule", "mamba2_chunk_scan"})


def say_if_newer() -> None:
    """Warns of a version of the library that this file may not follow."""
    installed = library("transformers").__version__
    if tuple(int(n) for n in installed.split(".")[:2]) > LAST:
        warnings.warn(
            f"torch_lod follows transformers {said(FIRST)} to {said(LAST)}, and {installed} is installed; whether a model is right "
            "is what use(check=True) tries",
            stacklevel=4,
        )


def said(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def implementation(model) -> str:
    """The attention that a model has now."""
    return model.config._attn_implementation


def is_stateful(model) -> bool:
    return getattr(model, "_is_stateful", False)


def functions_of(model) -> Iterator[tuple[dict[str, Any], str, Callable]]:
    """The functions that the layers of a model call by name: the names of the module, the name, and what has it."""
    for module in {type(part).__module__ for part in model.modules()}:
        names = vars(sys.modules[module])
        for name, wanted in FUNCTIONS.items():
            own = names.get(name)
            if callable(own) and set(wanted.split()) <= inspect.signature(own).parameters.keys():
                yield names, name, own


def biased_by_distance(module) -> bool:
    """Whether a module makes a relative position bias as T5 does."""
    compute = getattr(type(module), "compute_bias", None)
    names = inspect.signature(compute).parameters if callable(compute) else ()
    return "past_seen_tokens" in names and type(getattr(module, "relative_attention_max_distance", None)) is int


def bias_of_distances(module, device) -> Any:
    """That of every distance once: one query, n keys before it and n behind it; distances beyond n have the bias of n."""
    n = module.relative_attention_max_distance
    return type(module).compute_bias(module, 1, 2 * n + 1, device=device, past_seen_tokens=n)
