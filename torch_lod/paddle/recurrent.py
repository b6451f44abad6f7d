# SPDX-License-Identifier: Apache-2.0
"""Recurrences with Paddle's parameters: and layouts, on `tl.scan`, for weights that come from Paddle. New models use
`tl.nn.LSTM` and `tl.nn.GRU`, which have kernels.

Gates lie side by side in the columns: candidate, input, forget, output for the LSTMs, update, reset, candidate for the GRUs.
Inputs are projected already: (rows, 4 hidden) or (rows, 3 hidden).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import LoDTypeError, LoDValueError, public, shown
from ..sequence.loop import scan
from ..sequence.operator import as_autocast, level_of, one_column
from ..sequence.pool import sequence_pool
from ..sequence.rearrange import sequence_expand_as
from ..sequence.within import sequence_softmax
from ..structure.validate import a_bool, a_float, number, with_memory
from ..tensor.lod_tensor import LoDTensor, a_lod_tensor, unmoved, values_of
from .forms import words_of

__all__ = [
    "attention_lstm",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "fused_embedding_fc_lstm",
    "fusion_gru",
    "fusion_lstm",
    "gru_unit",
    "lstm_unit",
]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda t: t,
}


def _activation(what: str, name) -> Callable[[Tensor], Tensor]:
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise LoDValueError(f"expected {what} among {sorted(_ACTIVATIONS)}, got {shown(name)}")
    return _ACTIVATIONS[name]


def _matrix(what: str, t, shape: tuple, like: Tensor) -> Tensor:
    """A tensor of the given shape (a vector may be given as one row), dtype and device of the input; None: any size."""
    if not isinstance(t, Tensor):
        raise LoDTypeError(f"expected {what} as a tensor, got {type(t).__name__}")
    with_memory(t)
    t = t.values() if isinstance(t, LoDTensor) else t
    flat = t.reshape(-1) if len(shape) == 1 and t.dim() == 2 and t.shape[0] == 1 else t
    if flat.dim() != len(shape) or any(want is not None and want != got for want, got in zip(shape, flat.shape)):
        said = tuple("any" if want is None else want for want in shape)
        raise LoDValueError(f"expected {what} of shape {said}, got {tuple(t.shape)}")
    flat = as_autocast(flat, like)
    if flat.dtype != like.dtype or t.device != like.device:
        raise LoDTypeError(
            f"expected {what} of {like.dtype} on {like.device}, as the input, got {t.dtype} on {t.device}"
        )
    return flat


def _projected(what: str, x, gates: int) -> tuple[Tensor, int]:
    """The values of a projected input and the number of hidden units."""
    values = x.values() if isinstance(x, LoDTensor) else x
    if not isinstance(values, Tensor) or values.dim() != 2 or values.shape[1] % gates or values.shape[1] == 0:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise LoDValueError(f"expected {what} of shape (rows, {gates} hidden), got {got}")
    with_memory(values)
    a_float(values)
    return values, values.shape[1] // gates


def _one_element(what: str, t, like: Tensor) -> Tensor | None:
    flat = t.reshape(-1) if isinstance(t, Tensor) and t.numel() == 1 else t
    return None if t is None else _matrix(what, flat, (1,), like).reshape(())


def _state(what: str, given, count: int, width: int, like: Tensor) -> Tensor:
    unmoved(what, given)
    return like.new_zeros(count, width) if given is None else _matrix(what, given, (count, width), like)


def _lstm_cell(hidden: int, weight: Tensor, bias, use_peepholes: bool, activations, clip, project):
    """One step as scan calls it: (x, (h, c)) to ((h, c), (h, c))."""
    gate, cell_act, candidate = activations
    a_bool("use_peepholes", use_peepholes)
    peep: tuple[Tensor, ...] | None = None
    if bias is not None:
        expected = (7 if use_peepholes else 4) * hidden
        bias = _matrix("bias", bias, (expected,), weight)
        peep = bias[4 * hidden :].chunk(3) if use_peepholes else None
        bias = bias[: 4 * hidden]
    elif use_peepholes:
        raise LoDValueError(f"expected a bias of {7 * hidden} elements with use_peepholes, got none")

    def step(x: Tensor, state: tuple[Tensor, Tensor]):
        h, c = state
        z = x + h @ weight if bias is None else x + h @ weight + bias
        z_c, z_i, z_f, z_o = z.chunk(4, 1)
        w_i, w_f, w_o = (0.0, 0.0, 0.0) if peep is None else peep
        i, f = gate(z_i + w_i * c), gate(z_f + w_f * c)
        c = candidate(z_c) * i + c * f
        c = c.clamp(-clip, clip) if clip else c
        h = project(gate(z_o + w_o * c) * cell_act(c))
        return (h, c), (h, c)

    return step


def _three(gate, cell, candidate):
    return (
        _activation("gate_activation", gate),
        _activation("cell_activation", cell),
        _activation("candidate_activation", candidate),
    )


def _over_rows(cell: Callable, x: LoDTensor, init, k: int, reverse: bool) -> list[LoDTensor]:
    """The outputs of a cell along all rows under each sequence of level k, of which `scan` takes the elements."""
    a_bool("is_reverse", reverse)
    rows = x
    while rows.lod_level > k + 1:
        rows = rows.drop_level(-1)
    outputs, _ = scan(cell, rows, init, reverse=reverse)
    return [x.with_values(t.values()) for t in outputs]


def _together(h_0, c_0) -> None:
    if (h_0 is None) != (c_0 is None):
        raise LoDValueError("expected h_0 and c_0 together, got one of them")


@public
def dynamic_lstm(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    h_0: Tensor | None = None,
    c_0: Tensor | None = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    *,
    level: int | str = -1,
) -> tuple[LoDTensor, LoDTensor]:
    """LSTM over inputs that are projected already.

        z = x + h' W + b;  i = G(z_i + w_i c');  f = G(z_f + w_f c');  c = A(z_c) i + c' f
        o = G(z_o + w_o c);  h = o C(c)

    Args:
        x: (rows, 4 hidden): candidate, input, forget, output.
        weight: (hidden, 4 hidden).
        bias: (4 hidden,) or one row of it; with peepholes (7 hidden,), w_i, w_f and w_o last.
        h_0, c_0: (sequences, hidden), together; zeros if None.
        is_reverse: from the last row to the first; outputs stay at their rows.
        gate_activation, cell_activation, candidate_activation: G, C and A: "sigmoid", "tanh", "relu" or "identity".

    Returns:
        hidden states and cells, (rows, hidden), with the LoD of x. Empty sequences have no rows. The gradient reaches
        all tensors, through hidden states and cells.

    Source: Paddle Fluid's dynamic_lstm; Gers et al., "Learning Precise Timing with LSTM Recurrent Networks", 2002.
    """
    k = level_of(x, level)
    values, hidden = _projected("x", x, 4)
    _together(h_0, c_0)
    weight = _matrix("weight", weight, (hidden, 4 * hidden), values)
    activations = _three(gate_activation, cell_activation, candidate_activation)
    cell = _lstm_cell(hidden, weight, bias, use_peepholes, activations, 0.0, lambda h: h)
    count = x.num_sequences(k)
    init = tuple(_state(name, t, count, hidden, values) for name, t in (("h_0", h_0), ("c_0", c_0)))
    out, cells = _over_rows(cell, x, init, k, is_reverse)
    return out, cells


@public
def dynamic_lstmp(
    x: LoDTensor,
    weight: Tensor,
    proj_weight: Tensor,
    bias: Tensor | None = None,
    h_0: Tensor | None = None,
    c_0: Tensor | None = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    *,
    level: int | str = -1,
) -> tuple[LoDTensor, LoDTensor]:
    """`dynamic_lstm` whose hidden state is projected: r = P(h W_r) replaces h.

    Args:
        x: (rows, 4 hidden).
        weight: (projection, 4 hidden).
        proj_weight: (hidden, projection).
        h_0, c_0: (sequences, projection) and (sequences, hidden), together; zeros if None.
        cell_clip, proj_clip: cells and projections are clipped to [-clip, clip]; no clipping if None or 0.
        proj_activation: P.

    Returns:
        projections, (rows, projection), and cells, (rows, hidden), with the LoD of x.

    Source: Paddle Fluid's dynamic_lstmp; Sak et al., "Long Short-Term Memory Recurrent Neural Network Architectures for Large
    Scale Acoustic Modeling", 2014.
    """
    k = level_of(x, level)
    values, hidden = _projected("x", x, 4)
    _together(h_0, c_0)
    proj_weight = _matrix("proj_weight", proj_weight, (hidden, None), values)
    size = proj_weight.shape[1]
    weight = _matrix("weight", weight, (size, 4 * hidden), values)
    for what, clip in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
        if clip is not None:
            number(what, clip)
            if not clip >= 0:
                raise LoDValueError(f"expected {what} >= 0, got {clip}")
    activations = _three(gate_activation, cell_activation, candidate_activation)
    act = _activation("proj_activation", proj_activation)

    def project(h: Tensor) -> Tensor:
        r = act(h @ proj_weight)
        return r.clamp(-proj_clip, proj_clip) if proj_clip else r

    cell = _lstm_cell(hidden, weight, bias, use_peepholes, activations, cell_clip, project)
    count = x.num_sequences(k)
    init = (_state("h_0", h_0, count, size, values), _state("c_0", c_0, count, hidden, values))
    out, cells = _over_rows(cell, x, init, k, is_reverse)
    return out, cells


def _gru_step(weight: Tensor, bias: Tensor | None, gate, candidate, origin_mode: bool):
    a_bool("origin_mode", origin_mode)
    hidden = weight.shape[0]
    flat = weight.reshape(-1)
    w_ur, w_c = flat[: 2 * hidden * hidden].view(hidden, -1), flat[2 * hidden * hidden :].view(hidden, hidden)

    def step(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = x if bias is None else x + bias
        u, r = gate(z[:, : 2 * hidden] + h @ w_ur).chunk(2, 1)
        reset = r * h
        c = candidate(z[:, 2 * hidden :] + reset @ w_c)
        new = u * h + (1 - u) * c if origin_mode else (1 - u) * h + u * c
        return new, reset, torch.cat([u, r, c], 1)

    return step


@public
def dynamic_gru(
    x: LoDTensor,
    weight: Tensor,
    bias: Tensor | None = None,
    h_0: Tensor | None = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    origin_mode: bool = False,
    *,
    level: int | str = -1,
) -> LoDTensor:
    """GRU over inputs that are projected already.

        u, r = G(z_ur + h' W_ur);  c = A(z_c + (r h') W_c);  h = (1 - u) h' + u c   (origin_mode: u h' + (1 - u) c)

    Args:
        x: (rows, 3 hidden): update, reset, candidate.
        weight: (hidden, 3 hidden), read as flat memory: first W_ur, (hidden, 2 hidden), then W_c, (hidden, hidden).
        bias: (3 hidden,) or one row of it.
        h_0: (sequences, hidden); zeros if None.

    Returns:
        hidden states, (rows, hidden), with the LoD of x.

    Source: Paddle Fluid's dynamic_gru; Cho et al., 2014 (origin_mode) and Chung et al., 2014.
    """
    k = level_of(x, level)
    values, hidden = _projected("x", x, 3)
    weight = _matrix("weight", weight, (hidden, 3 * hidden), values)
    bias = None if bias is None else _matrix("bias", bias, (3 * hidden,), values)
    gate = _activation("gate_activation", gate_activation)
    step = _gru_step(weight, bias, gate, _activation("candidate_activation", candidate_activation), origin_mode)
    first = _state("h_0", h_0, x.num_sequences(k), hidden, values)

    def one(x_t: Tensor, h: Tensor):
        new = step(x_t, h)[0]
        return (new,), new

    return _over_rows(one, x, first, k, is_reverse)[0]


@public
def gru_unit(
    x: Tensor,
    h_prev: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of `dynamic_gru`.

    Args:
        x: (n, 3 hidden). h_prev: (n, hidden). weight, bias: as dynamic_gru's.

    Returns:
        the hidden state, (n, hidden); r h', (n, hidden); the gates u, r, c, (n, 3 hidden). Plain, or with the LoD that x
        and h_prev have, as from torch's functions row by row.

    Source: Paddle Fluid's gru_unit.
    """
    values, hidden = _projected("x", x, 3)
    _matrix("h_prev", h_prev, (values.shape[0], hidden), values)
    weight = _matrix("weight", weight, (hidden, 3 * hidden), values)
    bias = None if bias is None else _matrix("bias", bias, (3 * hidden,), values)
    gate, act = _activation("gate_activation", gate_activation), _activation("activation", activation)
    return _gru_step(weight, bias, gate, act, origin_mode)(x, as_autocast(h_prev, values))


@public
def lstm_unit(x: Tensor, c_prev: Tensor, forget_bias: float = 0.0) -> tuple[Tensor, Tensor]:
    """One step of an LSTM whose gates are computed already: c = sigmoid(f + forget_bias) c' + sigmoid(i) tanh(g),
    h = sigmoid(o) tanh(c).

    Args:
        x: (n, 4 hidden), in the order i, f, o, g (not that of dynamic_lstm). c_prev: (n, hidden).

    Returns:
        h and c, (n, hidden). Plain, or with the LoD that x and c_prev have, as from torch's functions row by row.

    Source: Paddle Fluid's lstm_unit.
    """
    values, hidden = _projected("x", x, 4)
    _matrix("c_prev", c_prev, (values.shape[0], hidden), values)
    number("forget_bias", forget_bias)
    i, f, o, g = x.chunk(4, 1)
    c = (f + forget_bias).sigmoid() * as_autocast(c_prev, values) + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@public
def fusion_lstm(
    x: LoDTensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor | None = None, h_0=None, c_0=None, **options
) -> tuple[LoDTensor, LoDTensor]:
    """`dynamic_lstm(x @ weight_x, weight_h, bias, ...)`; options as there.

    Args:
        x: (rows, features). weight_x: (features, 4 hidden).

    Source: Paddle Fluid's fusion_lstm.
    """
    return dynamic_lstm(_times(x, "weight_x", weight_x), weight_h, bias, h_0, c_0, **options)


@public
def fusion_gru(
    x: LoDTensor, weight_x: Tensor, weight_h: Tensor, bias: Tensor | None = None, h_0=None, **options
) -> LoDTensor:
    """`dynamic_gru(x @ weight_x, weight_h, bias, ...)`; options as there.

    Args:
        x: (rows, features). weight_x: (features, 3 hidden).

    Source: Paddle Fluid's fusion_gru.
    """
    return dynamic_gru(_times(x, "weight_x", weight_x), weight_h, bias, h_0, **options)


def _times(x, what: str, weight) -> LoDTensor:
    values = a_lod_tensor("x", x).values()
    if values.dim() != 2:
        raise LoDValueError(f"expected x of shape (rows, features), got {tuple(values.shape)}")
    with_memory(values)
    a_float(values)
    return x.with_values(values @ _matrix(what, weight, (values.shape[1], None), values))


@public
def fused_embedding_fc_lstm(
    ids: LoDTensor, embeddings: Tensor, weight_h: Tensor, bias: Tensor | None = None, h_0=None, c_0=None, **options
) -> tuple[LoDTensor, LoDTensor]:
    """`dynamic_lstm` over rows of a table that holds projected embeddings, their bias included.

    Args:
        ids: integers in [0, words), (rows,) or (rows, 1); IndexError otherwise. embeddings: (words, 4 hidden).
        bias: only its last 3 hidden entries are used (with peepholes); the first 4 hidden are in the table already.

    Source: Paddle Fluid's fused_embedding_fc_lstm.
    """
    numbers = one_column("ids", ids)
    if not isinstance(embeddings, Tensor) or embeddings.dim() != 2:
        got = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise LoDValueError(f"expected embeddings of shape (words, 4 hidden), got {got}")
    with_memory(embeddings)
    a_float(embeddings, "embeddings")
    if embeddings.device != numbers.device:
        raise LoDTypeError(f"expected embeddings on {numbers.device}, as ids, got one on {embeddings.device}")
    table = values_of(embeddings)
    rows = torch.nn.functional.embedding(words_of(numbers, table.shape[0], "fused_embedding_fc_lstm"), table)
    if bias is not None:
        bias = _matrix("bias", bias, (None,), rows)
        bias = torch.cat([torch.zeros_like(bias[..., : rows.shape[1]]), bias[..., rows.shape[1] :]], -1)
    return dynamic_lstm(ids.with_values(rows), weight_h, bias, h_0, c_0, **options)


@public
def attention_lstm(
    x: LoDTensor,
    c_0: Tensor,
    attention_weight: Tensor,
    lstm_weight: Tensor,
    lstm_bias: Tensor,
    h_0: Tensor | None = None,
    attention_bias: Tensor | None = None,
    attention_scalar: Tensor | None = None,
    attention_scalar_bias: Tensor | None = None,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
) -> tuple[LoDTensor, LoDTensor]:
    """An LSTM that at every step reads a weighted sum of all rows of its sequence, one step for each row.

        a = softmax(relu(s relu([x, c'] W_a + b_a) + b_s)) over the sequence;  z = [h', sum of a x] W + b, an LSTM step

    Args:
        x: (rows, features), one level. c_0, h_0: (sequences, hidden); h_0 is zeros if None.
        attention_weight: (features + hidden, 1). attention_bias, attention_scalar, attention_scalar_bias: of one element.
        lstm_weight: (hidden + features, 4 hidden): forget, input, output, candidate. lstm_bias: (4 hidden,) or one row of it.

    Returns:
        hidden states and cells, (rows, hidden), with the LoD of x.

    Source: Paddle Fluid's attention_lstm.
    """
    level_of(x, -1)
    if x.lod_level != 1:
        raise LoDValueError(f"expected x with 1 level, got {x.lod_level}")
    values = x.values()
    if values.dim() != 2:
        raise LoDValueError(f"expected x of shape (rows, features), got {tuple(values.shape)}")
    a_float(values)
    count, features = x.num_sequences(), values.shape[1]
    c_0 = _matrix("c_0", c_0, (count, None), values)
    hidden = c_0.shape[1]
    h_0 = _state("h_0", h_0, count, hidden, values)
    attention_weight = _matrix("attention_weight", attention_weight, (features + hidden, 1), values)
    lstm_weight = _matrix("lstm_weight", lstm_weight, (hidden + features, 4 * hidden), values)
    lstm_bias = _matrix("lstm_bias", lstm_bias, (4 * hidden,), values)
    gate, cell_act, candidate = _three(gate_activation, cell_activation, candidate_activation)
    shift = _one_element("attention_bias", attention_bias, values)
    factor = _one_element("attention_scalar", attention_scalar, values)
    after = _one_element("attention_scalar_bias", attention_scalar_bias, values)
    if factor is None and after is not None:
        raise LoDValueError("expected attention_scalar_bias with attention_scalar, got it alone")
    of_rows = values @ attention_weight[:features]
    of_rows = of_rows if shift is None else of_rows + shift

    def step(_, state, sequences):
        (h, c), (part, scored) = state, sequences
        scores = torch.relu(scored + sequence_expand_as(c @ attention_weight[features:], part))
        if factor is not None:
            scores = torch.relu(scores * factor + (0 if after is None else after))
        seen = sequence_pool(sequence_softmax(scores) * part, "sum")
        f, i, o, g = (torch.cat([h, seen], 1) @ lstm_weight + lstm_bias).chunk(4, 1)
        c = gate(f) * c + gate(i) * candidate(g)
        h = gate(o) * cell_act(c)
        return (h, c), (h, c)

    (out, cells), _ = scan(step, x, (h_0, c_0), static=(x, x.with_values(of_rows)))
    return out, cells
