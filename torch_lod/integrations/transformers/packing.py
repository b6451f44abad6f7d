# SPDX-License-Identifier: Apache-2.0
"""What is known of a model that `use` prepared, and the arguments that no model of it takes."""

import inspect
from typing import Any, NamedTuple

from ...errors import LoDTypeError, LoDValueError, shown
from ...tensor.lod_tensor import LoDTensor

_PLAIN = "generate with model.set_attn_implementation('sdpa') and plain tensors"
_GIVE = f"give past_key_values, a tl.Cache for each layer, or {_PLAIN}"
#: Arguments of a forward that mean nothing for sequences without padding, or something else, and what to write.
_REFUSED = {
    "past_key_values": f"the library's cache would hold all sequences as one; give a list with a tl.Cache for each layer, or {_PLAIN}",
    "cache_position": f"of the library's cache; {_GIVE}",
    "use_cache": f"the library's cache; {_GIVE}",
    **dict.fromkeys(
        ("encoder_hidden_states", "encoder_attention_mask"), "cross-attention; see tl.nn.MultiheadAttention"
    ),
    "head_mask": "a mask of heads; use model.set_attn_implementation('eager')",
    "logits_to_keep": "the last logits of the batch; take them of the result with tl.sequence_pool(logits, 'last')",
    "output_attentions": "attention weights, which are never made; use model.set_attn_implementation('eager')",
    **dict.fromkeys(
        "cu_seq_lens_q cu_seq_lens_k max_length_q max_length_k seq_idx".split(), "a structure besides that of the ids"
    ),
}


#: The same, where the model is called with stacks of equally long sequences and takes plain tensors as well.
_REFUSED_IN_STACKS = {
    **dict.fromkeys(
        ("past_key_values", "cache_position", "use_cache"),
        "a cache for each stack; generate with plain tensors, which pass through",
    ),
    "output_attentions": "weights of other sizes for each stack; ask the model with plain tensors, which pass through",
    "head_mask": "a mask of heads; set it in the model",
}
#: Labels of a place in a sequence, or of a sequence, whose losses are those of padded batches.
_ANSWERS = {
    "start_positions": "-tl.sequence_gather(tl.sequence_log_softmax(output.start_logits), start_positions).mean()",
    "end_positions": "-tl.sequence_gather(tl.sequence_log_softmax(output.end_logits), end_positions).mean()",
    "next_sentence_label": "F.cross_entropy(output.seq_relationship_logits, next_sentence_label)",
}


class Used(NamedTuple):
    """`model.torch_lod`: what `use` did with a model."""

    #: "packed": all rows in one pass, by the attention of torch_lod; "map_sequences": a call for each distinct length
    method: str
    level: int | str
    #: why it is not "packed", where `use` tried that; otherwise None
    reason: str | None = None

    def __str__(self) -> str:
        return f"torch_lod={self.method}, level={self.level!r}"


class Packing:
    """What is known of a model."""

    def __init__(self, level: int | str):
        self.level = level
        #: by the name of an output, whether it has a row for each row ("rows"), for each sequence ("sequences"), or sequences of
        #: another length ("resized"); "" for one that has lengths at another dim
        self.kinds: dict[str, str] = {}
        #: whether its loss compares a row with the label of the next; None: not known
        self.shifts: bool | None = None
        #: whether its loss is the mean over the labels that are not -100; None: not known
        self.mean: bool | None = None
        #: whether layers of it hand on states
        self.states = False

    def shifted(self, model) -> bool:
        if self.shifts is None:
            return getattr(model, "loss_type", None) == "ForCausalLM"
        return self.shifts


def parameters_of(model):
    return inspect.signature(model.forward).parameters


def has_decoder(model) -> bool:
    """Whether a forward takes two kinds of sequences."""
    return "decoder_input_ids" in parameters_of(model)


def refuse(model, given: dict[str, Any], packed: bool) -> None:
    """LoDTypeError for an argument that means nothing without padding."""
    refused = _REFUSED if packed else _REFUSED | _REFUSED_IN_STACKS
    for name, what in refused.items():
        value = given.get(name)
        if value is not None and value is not False and not (type(value) is int and value == 0):
            raise LoDTypeError(f"expected no {name}, got {shown(value)}: {what}")
    for name, loss in _ANSWERS.items():
        if given.get(name) is not None:
            got = shown(given[name])
            raise LoDTypeError(
                f"expected no {name}, got {got}: its loss is one of padded batches; with the output: {loss}"
            )
    if given.get("return_dict") is False or not getattr(model.config, "return_dict", True):
        raise LoDTypeError("expected return_dict True, got False: outputs are told apart by their names")
    if getattr(model.config, "output_attentions", False):
        raise LoDTypeError(f"expected no config.output_attentions, got True: {refused['output_attentions']}")


def check_ids(x: LoDTensor, name: str) -> None:
    """LoDValueError for rows that are neither ids or samples, (rows,), nor embeddings, (rows, features)."""
    if x.dim() != (2 if name.endswith("embeds") else 1):
        raise LoDValueError(f"expected input_ids (rows,) or inputs_embeds (rows, features), got {shown(x)}")
    if not x.shape[0]:
        raise LoDValueError("expected at least 1 row, got none: a model of transformers computes no empty batch")
