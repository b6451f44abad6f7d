# SPDX-License-Identifier: Apache-2.0
"""Shape "recurrence": step t of all sequences together, on rows that are not moved."""

from torch import Tensor

from .library import operator

__all__ = [
    "gru",
    "lstm",
    "matrix_scan",
    "rnn",
]


@operator
def lstm(
    values: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    h_0: Tensor | None,
    c_0: Tensor | None,
    row_offsets: Tensor,
    reverse: bool = False,
    weight_hr: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One direction of one layer of torch.nn.LSTM, every segment a sequence of its own.

        i, f, o = sigmoid(...), g = tanh(...); c = f c' + i g; h = o tanh(c), or W_hr (o tanh(c)) with a projection

    Args:
        values: (rows, features), a floating dtype.
        weight_ih, weight_hh, bias_ih, bias_hh: (4 hidden, features), (4 hidden, hidden), (4 hidden,), (4 hidden,), in the
            order and layout of torch.nn.LSTM.
        h_0, c_0: (segments, hidden), both or neither; with a projection h_0 is (segments, projected).
        row_offsets: int64, (segments + 1,), in host memory: the host plans the steps.
        reverse: run every sequence from its last row to its first.
        weight_hr: (projected, hidden); weight_hh is then (4 hidden, projected) and h (rows, projected).

    Returns:
        h and c after every row, (rows, hidden) each, in the order of the rows, and the gates i, f, g, o (rows, 4 hidden),
        which have no gradient. Double backward goes through a slower composition.
    """


@operator
def gru(
    values: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    h_0: Tensor | None,
    row_offsets: Tensor,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """One direction of one layer of torch.nn.GRU, every segment a sequence of its own.

        r, z = sigmoid(...), n = tanh(x_n + r (W h' + b_n)); h = (1 - z) n + z h'

    Args and errors as `lstm`, with 3 blocks of hidden units in place of 4.

    Returns:
        h after every row, (rows, hidden), and what the backward keeps (rows, 4 hidden), which has no gradient.
    """


@operator
def rnn(
    values: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    h_0: Tensor | None,
    row_offsets: Tensor,
    reverse: bool = False,
    relu: bool = False,
) -> Tensor:
    """One direction of one layer of torch.nn.RNN, every segment a sequence of its own.

        h = tanh(x + W h'), or max(0, x + W h') with `relu`

    Args and errors as `lstm`, with 1 block of hidden units in place of 4.

    Returns:
        h after every row, (rows, hidden).
    """


@operator
def matrix_scan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    beta: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
    initial: Tensor | None,
    row_offsets: Tensor,
    delta: bool = False,
    scale: float = 1.0,
    save: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """A linear recurrence whose state is a matrix S (keys, values) for every segment and head.

        S_t = Diag(decay_t) S_{t-1} + a_t (b_t^T S_{t-1}) + beta_t key_t value_t^T, out_t = scale S_t^T query_t

    Value head h reads the query, the key, a and b of head h // (heads / key heads). On the CPU numbers below the smallest
    normal one count as 0. On other devices the steps are composed of torch's operators.

    Args:
        query, key: (rows, key heads, keys), the dtype of value.
        value: (rows, heads, values), a floating dtype.
        decay: (rows, heads), or one for each key, (rows, heads, keys); as beta and initial in float32 for half types.
        beta: (rows, heads); 1 unless given.
        a, b: (rows, key heads, keys), both or neither.
        initial: (segments, heads, keys, values); zeros unless given.
        row_offsets: int64, (segments + 1,).
        delta: the gated delta rule: value_t - (decay_t key_t)^T S_{t-1} stands for value_t. Without a and b.
        save: keep what the backward needs; without it the backward runs the forward again.

    Returns:
        out (rows, heads, values); the state behind every segment, the shape and dtype of initial; and what the backward
        keeps, which has no gradient: at most n + max(1, keys / 256) numbers for each of value, of the dtype of initial, with
        n = 1 for delta or a and 0 without; keys and values count as the next multiples of 16. Double backward goes through
        a slower composition.
    """
