# SPDX-License-Identifier: Apache-2.0
"""What every operator and module can be asked for besides its values: the columns of docs/matrix.md, and what is not there.
tests/laws/test_matrix.py computes every cell and is red where one is said wrong, either way."""

from collections.abc import Callable
from typing import NamedTuple

import torch

import torch_lod as tl


class Feature(NamedTuple):
    title: str
    #: What the test of a cell does.
    meaning: str
    #: Whether it is about gradients: operators without one have no cell.
    gradient: bool = True


FEATURES = {
    "compile": Feature(
        "compile",
        "`torch.compile(fullgraph=True, backend='aot_eager')` of the call, LoDTensors and tensors its inputs: results, "
        "structures and gradients equal eager ones, with and without empty sequences",
        gradient=False,
    ),
    "export": Feature(
        "export",
        "`tl.nn.Plain(...).export(...)`, which is `torch.export` on values and offsets: the program equals the call, and "
        "where all arguments are LoDTensors, the call on twice as many sequences",
        gradient=False,
    ),
    "func": Feature("func", "`torch.func.grad`, `vjp` and `jvp` by the values equal autograd"),
    "vmap": Feature("vmap", "`torch.vmap` over a batch of values with one LoD equals a loop", gradient=False),
    "forward": Feature("forward AD", "a tangent through `torch.autograd.forward_ad` equals the gradient along it"),
    "double": Feature("double", "gradients of gradients, by `torch.autograd.gradgradcheck`"),
    "checkpoint": Feature("checkpoint", "`torch.utils.checkpoint`, reentrant and not: gradients stay"),
    "autocast": Feature(
        "autocast",
        "`torch.autocast('cpu')` of bfloat16 and float16, of float32 arguments and with a first argument that is half "
        "already, as a layer before leaves it: near the result in float32",
        gradient=False,
    ),
    "save": Feature(
        "save",
        "`torch.save` of the result and `torch.load(weights_only=True)`: rows and structure come back",
        gradient=False,
    ),
}

#: Operators whose results have no gradient.
WHOLE = (
    "ops.rank_by_length ops.run_map lod_rank_table max_sequence_len sequence_argmax sequence_enumerate sequence_erase "
    "sequence_mask sequence_farthest sequence_radius chunk_eval chunk_f1 ops.ctc_best_path ops.ctc_beam ctc_align ctc_decode ctc_beam_decode "
    "ctc_greedy_decoder ops.edit_alignment ops.edit_distance edit_distance ops.chain_argmax ops.chain_sample crf_decoding"
).split()

_STEPS = "a Python loop over the steps of a recurrence, and their number and sizes are data"
_CALLS = "the lengths of the sequences, which are data, say how often its function is called"
_TABLE = "a RankTable is neither given to a program nor returned by one"
_ONE_DTYPE = "takes tensors of one dtype; the layers above it cast"
_CHOSEN = "how many rows there are depends on the scores"
_SEARCHED = "where a search goes depends on the scores"
_LENGTHS = "the lengths of its results are data"
_LOOPS = (
    "attention_lstm dynamic_gru dynamic_lstm dynamic_lstmp fused_embedding_fc_lstm fusion_gru fusion_lstm scan nn.DynamicRNN"
).split()
#: feature: operator: why not.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "compile": {**dict.fromkeys(_LOOPS, _STEPS), **dict.fromkeys(("map_sequences", "nn.MapSequences"), _CALLS)},
    "export": {
        **dict.fromkeys(_LOOPS, _STEPS),
        **dict.fromkeys(("map_sequences", "nn.MapSequences"), _CALLS),
        **dict.fromkeys(("lod_rank_table", "max_sequence_len"), _TABLE),
    },
    "vmap": {
        **dict.fromkeys(("beam_search", "beam_search_decode"), _CHOSEN),
        "ops.ctc_beam": _SEARCHED,
        **dict.fromkeys(
            ("ctc_beam_decode", "ctc_decode", "ctc_greedy_decoder", "sequence_radius", "sequence_unique"), _LENGTHS
        ),
    },
    "autocast": dict.fromkeys(
        (
            *(
                "ops.attention",
                "ops.gru",
                "ops.lstm",
                "ops.matrix_scan",
                "ops.rnn",
                "ops.segment_concat",
                "ops.segment_conv",
                "ops.segment_scan",
            ),
            *("ops.chain_argmax", "ops.chain_logsumexp", "ops.chain_marginals", "ops.chain_sample"),
        ),
        _ONE_DTYPE,
    ),
}

if torch.__version__.startswith("2.11"):
    _HELD = "torch 2.11 does not find the sizes of a LoD that a module holds"
    EXCEPTIONS["export"] |= dict.fromkeys(("array_to_lod_tensor", "broadcast", "lod_tensor_to_array"), _HELD)

#: The end of the page: what is not of an operator.
BEYOND = """## Models

Tested on whole models: training under `torch.compile` with backends eager, aot_eager and inductor, in one graph for batches of
any sizes (`tests/laws/test_compile.py`); `DistributedDataParallel` and FSDP2's `fully_shard` over gloo in two processes, and
AOTInductor (`tests/drop_in/test_models.py`).

CUDA graphs: the row offsets of a batch live in host memory and are uploaded inside a compiled graph, which switches CUDA
graphs off for it (`mode="reduce-overhead"` then runs without them). The operators on plain tensors take offsets on the GPU and
ask the host for nothing, but for the recurrences, whose steps the host plans.
"""


def rows() -> dict[str, Callable]:
    """Every operator and module under the name that follows `tl.`, or `tl.paddle.`."""
    found = {f"ops.{name}": getattr(tl.ops, name) for name in tl.ops.__all__ if callable(getattr(tl.ops, name))}
    names = [name for name in (*tl.sequence.__all__, *tl.paddle.__all__) if not name.startswith("create_")]
    found |= {name: getattr(tl, name) for name in names if not isinstance(getattr(tl, name), type)}
    return found | {f"nn.{name}": getattr(tl.nn, name) for name in tl.nn.__all__ if name != "Plain"}
