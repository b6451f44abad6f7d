# SPDX-License-Identifier: Apache-2.0
"""Every operator as a composition of torch operators: simple rather than fast.

They stand in when the compiled operators are missing and on devices without kernels, carry torch.func transforms and
gradients of gradients of the recurrences, and are a second opinion in the tests.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Composition(NamedTuple):
    schema: str
    function: Callable


COMPOSITIONS: dict[str, Composition] = {}
#: The host plans their steps or goes from sequence to sequence: tracers must see one operator and never look inside.
OPAQUE = ("lstm", "lstm_backward", "gru", "gru_backward", "rnn", "rnn_backward", "attention", "attention_backward")

#: Questions about structure in host memory: they have no gradient, and their one implementation serves every device.
HOST = ("check_lod", "rank_by_length")


def composition(schema: str):
    def register_one(function):
        COMPOSITIONS[schema.split("(")[0]] = Composition(schema, function)
        return function

    return register_one


def segment_of_rows(row_offsets: Tensor, rows) -> Tensor:
    return torch.repeat_interleave(row_offsets.diff(), output_size=rows)


def like_rows(t: Tensor, like: Tensor) -> Tensor:
    """A vector over rows, shaped to be combined with `like`."""
    return t.view(-1, *[1] * (like.dim() - 1))


def wide(t: Tensor) -> Tensor:
    """What half types are summed in, forwards and backwards."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def sum_by(ids: Tensor, values: Tensor, count) -> Tensor:
    """Row i of the result: the sum of the rows of values whose id is i."""
    x = wide(values)
    return x.new_zeros(count, *values.shape[1:]).index_add(0, ids, x).to(values.dtype)
