# SPDX-License-Identifier: Apache-2.0
"""docs/coming_from.md: every line of its tables runs, and gives what stands beside it, or what a loop gives."""

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

import torch_lod as tl

PAGE = (Path(__file__).parents[2] / "docs/coming_from.md").read_text()


def sections():
    """By its title: the code that a section begins with, and the cells of its table."""
    found = {}
    for text in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        code = re.search(r"```python\n(.*?)```", text, re.S)[1]
        cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        found[text.partition("\n")[0]] = (code, cells[1:])
    return found


SECTIONS = sections()


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def names_of(title: str) -> dict:
    names: dict = {}
    exec(SECTIONS[title][0], names)
    return names


def parts(found):
    """What is compared: of sequences a list of their rows, whatever holds them."""
    if isinstance(found, PackedSequence):
        return unpack_sequence(found)
    if isinstance(found, tl.LoDTensor):
        return [found.lod.to_lengths(), *(rows.clone() for rows in found.sequences())]
    if isinstance(found, (list, tuple)):
        return [parts(part) for part in found]
    return found


def same(found, expected) -> None:
    if isinstance(expected, (list, tuple)) and not isinstance(found, (int, list, tuple)):
        found = found.unbind() if isinstance(found, torch.Tensor) else found
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), (found, expected)
        for a, b in zip(found, expected):
            same(a, b)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(torch.as_tensor(found), expected, check_dtype=expected.is_floating_point())
    else:
        assert found == expected, (found, expected)


# -- nested tensors: loops over sequences

#: By the code on the page what a loop gives; `each` calls a function for the rows of each sequence of x.
LOOPS = {
    "conv(x)": lambda n, each: [n["conv"](s.t()).t() if len(s) > 2 else s.new_zeros(0, 4) for s in n["xs"]],
    "depthwise(x)": lambda n, each: each(lambda s: n["depthwise"](s.t()).t()),
    "image_conv(images)": lambda n, each: [n["image_conv"](i) for i in n["images"].unbind_sequences()],
    "[image_conv(image) for image in images.unbind_sequences()]": lambda n, each: [
        torch.stack([n["image_conv"](i) for i in image]) for image in n["images"].unbind_sequences()
    ],
    'tl.sequence_pool(x, "max")': lambda n, each: each(lambda s: s.amax(0)),
    "tl.sequence_argmax(x)": lambda n, each: [s.argmax(0) + begin for s, begin in zip(n["xs"], (0, 3, 4))],
    "x.amax(-1)": lambda n, each: each(lambda s: s.amax(-1)),
    "x.mean(-1)": lambda n, each: each(lambda s: s.mean(-1)),
    "x.var(-1)": lambda n, each: each(lambda s: s.var(-1)),
    "x.detach()": lambda n, each: each(lambda s: s.detach()),
    "x.to(torch.float64)": lambda n, each: each(lambda s: s.double()),
    "x == y": lambda n, each: [s == t for s, t in zip(n["xs"], n["ys"])],
    "x.filter_rows(x[:, 0] > 0)": lambda n, each: each(lambda s: s[s[:, 0] > 0]),
    "x.seq[[2, 0]]": lambda n, each: [n["xs"][2], n["xs"][0]],
    "x.index_select(1, torch.tensor([5, 2]))": lambda n, each: each(lambda s: s[:, [5, 2]]),
    "tl.sequence_slice(x, [1, 0, 0], [2, 1, 1])": lambda n, each: [n["xs"][0][1:3], n["xs"][1][:1], n["xs"][2][:1]],
    "x[:, 2:5]": lambda n, each: each(lambda s: s[:, 2:5]),
    "x.values()": lambda n, each: torch.cat(n["xs"]),
    "x + tl.sequence_expand_as(numbers, x)": lambda n, each: [s + b for s, b in zip(n["xs"], n["numbers"])],
    "tl.from_lengths(values, [[3, 1, 2]])": lambda n, each: list(n["values"].split([3, 1, 2])),
    "tl.from_padded(dense, mask=mask)": lambda n, each: [d[m] for d, m in zip(n["dense"], n["mask"])],
    "F.binary_cross_entropy(x.sigmoid(), y.sigmoid())": lambda n, each: F.binary_cross_entropy(
        *(torch.cat(n[name]).sigmoid() for name in ("xs", "ys"))
    ),
    "F.cross_entropy(x, ids)": lambda n, each: F.cross_entropy(torch.cat(n["xs"]), n["ids"].values()),
    "F.nll_loss(F.log_softmax(x, -1), ids)": lambda n, each: F.cross_entropy(torch.cat(n["xs"]), n["ids"].values()),
    "F.mse_loss(x, y)": lambda n, each: (torch.cat(n["xs"]) - torch.cat(n["ys"])).square().mean(),
    "F.gelu(x)": lambda n, each: each(F.gelu),
    "x.relu()": lambda n, each: each(F.relu),
    "F.layer_norm(x, (8,))": lambda n, each: each(lambda s: F.layer_norm(s, (8,))),
    'tl.sequence_pool(x, "sum")': lambda n, each: each(lambda s: s.sum(0)),
    'tl.sequence_pool(x, "mean")': lambda n, each: each(lambda s: s.mean(0)),
    'tl.sequence_pool(x * weights, "sum") / tl.sequence_pool(weights, "sum")': lambda n, each: [
        (s * w).sum(0) / w.sum() for s, w in zip(n["xs"], n["weights"].sequences())
    ],
    'tl.sequence_pool(x[:, :, None] * y[:, None], "sum")': lambda n, each: [s.T @ t for s, t in zip(n["xs"], n["ys"])],
    "x @ tl.per_sequence(matrices)": lambda n, each: [s @ m for s, m in zip(n["xs"], n["matrices"])],
    "x * values[0]": lambda n, each: each(lambda s: s * n["values"][0]),
    "F.rms_norm(x, (8,))": lambda n, each: each(lambda s: F.rms_norm(s, (8,))),
    "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)": lambda n, each: each(
        lambda s: F.rms_norm(s, (8,))
    ),
    "norm(x)": lambda n, each: list(torch.nn.BatchNorm1d(8)(torch.cat(n["xs"])).split([3, 1, 2])),
    "bags(ids)": lambda n, each: [n["bags"].weight[i].sum(0) for i in n["ids"].sequences()],
    "torch.scatter(x, -1, ids[:, None], torch.zeros_like(x[:, :1]))": lambda n, each: [
        s * (torch.arange(8) != i[:, None]) for s, i in zip(n["xs"], n["ids"].sequences())
    ],
    'tl.cat([tl.batch([token] * 3), x], along="within")': lambda n, each: each(lambda s: torch.cat([n["token"], s])),
    'tl.cat([x, new], along="within")': lambda n, each: [
        torch.cat([s, row]) for s, row in zip(n["xs"], n["new"].sequences())
    ],
    "x.clone().add_(1)": lambda n, each: each(lambda s: s + 1),
    "x - tl.from_lengths(values, [[3, 1, 2]])": lambda n, each: [
        s - v for s, v in zip(n["xs"], n["values"].split([3, 1, 2]))
    ],
    "tl.sequence_softmax(x)": lambda n, each: each(lambda s: s.softmax(0)),
    "tl.rotary_embedding(x)": lambda n, each: each(rotated),
    "lstm(x)[0]": lambda n, each: each(lambda s: n["lstm"](s)[0]),
    "x.seq[1]": lambda n, each: n["xs"][1],
    "tl.batch([x, y])": lambda n, each: [*n["xs"], *n["ys"]],
}


def rotated(s):
    """By complex numbers: pairs of features turn by angles that grow with the position."""
    angles = torch.arange(len(s))[:, None] / 10_000 ** (torch.arange(0, 8, 2) / 8)
    turned = torch.view_as_complex(s.unflatten(-1, (4, 2))) * torch.polar(torch.ones(()), angles)
    return torch.view_as_real(turned).flatten(-2)


NESTED = [code for *_, cell in SECTIONS["Nested tensors"][1] for code in codes(cell)]


def test_every_request_has_a_loop():
    assert sorted(NESTED) == sorted(LOOPS)


@pytest.mark.parametrize("code", NESTED)
def test_requests(code):
    names = names_of("Nested tensors")
    names["xs"], names["ys"] = ([*names[name].unbind_sequences()] for name in "xy")

    def each(function):
        return [function(s) for s in names["xs"]]

    torch.manual_seed(1)
    found, expected = eval(code, names), LOOPS[code](names, each)
    compared = list(found.sequences(-1)) if isinstance(found, tl.LoDTensor) else found
    same(compared, expected)
    gradients = [gradient(names["rows"], result) for result in (compared, expected)]
    assert (gradients[0] is None) == (gradients[1] is None)
    if gradients[0] is not None:
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)  # of cubes in float32


def gradient(rows, found):
    """Of the rows, by the sum of the cubes; None where nothing flows."""
    flat = [part for part in (found if isinstance(found, list) else [found]) if part.requires_grad]
    if not flat:
        return None
    return torch.autograd.grad(sum(part.pow(3).sum() for part in flat), rows, allow_unused=True)[0]


# -- there and here

VALUES = {  # what TensorFlow's documentation says, and what attention of packed rows is
    "tl.lod_tensor(nested)": [[3, 1, 4, 1], [], [5, 9, 2], [6]],
    "tl.from_offsets(values, [splits])": [[3, 1, 4, 1], [], [5, 9, 2], [6]],
    "tl.from_lengths(values, [[4, 0, 3, 1]])": [[3, 1, 4, 1], [], [5, 9, 2], [6]],
    "tl.from_segment_ids(values, ids, 4)": [[3, 1, 4, 1], [], [5, 9, 2], [6]],
    "tl.from_offsets(deep.values(), [[0, 2, 2, 3], [0, 2, 3, 5]])": [[[3, 1], [4]], [], [[1, 5]]],
    "tl.from_padded(dense, [2, 1])": [[7, 8], [9]],
    "x.to_padded(padding_value=-1)[0]": [[3, 1, 4, 1], [-1] * 4, [5, 9, 2, -1], [6, -1, -1, -1]],
    "x.to_list()": [[3, 1, 4, 1], [], [5, 9, 2], [6]],
    "x.values()": [3, 1, 4, 1, 5, 9, 2, 6],
    "x.offsets()": [0, 4, 4, 7, 8],
    "x.lengths()": [4, 0, 3, 1],
    "x.segment_ids()": [0, 0, 0, 0, 2, 2, 2, 3],
    "deep.lod.to_lengths()": [[2, 0, 1], [2, 1, 2]],
    "deep.lod_level": 2,
    "x.num_sequences()": 4,
    "deep.drop_level(0)": [[3, 1], [4], [1, 5]],
    "deep.drop_level(1)": [[3, 1, 4], [], [1, 5]],
    "x.seq[2]": [5, 9, 2],
    "x.seq[1:3]": [[], [5, 9, 2]],
    "deep.seq[0, 1]": [4],
    "x.head(2)": [[3, 1], [], [5, 9], [6]],
    "x.tail(2)": [[4, 1], [], [9, 2], [6]],
    "x.seq[[2, 0]]": [[5, 9, 2], [3, 1, 4, 1]],
    'tl.sequence_pool(x.float(), "sum")': [9.0, 0.0, 16.0, 6.0],
    'tl.sequence_pool(deep.float(), "sum")': [[4.0, 4.0], [], [6.0]],
    "tl.cat([x, x])": [[3, 1, 4, 1], [], [5, 9, 2], [6]] * 2,
    'tl.cat([x, x], along="within")': [[3, 1, 4, 1] * 2, [], [5, 9, 2] * 2, [6, 6]],
    "tl.batch([x, x])": [[[3, 1, 4, 1], [], [5, 9, 2], [6]]] * 2,
    "tl.sequence_reverse(x)": [[1, 4, 1, 3], [], [2, 9, 5], [6]],
    "x.filter_rows(x > 2)": [[3, 4], [], [5, 9], [6]],
    "x.square()": [[9, 1, 16, 1], [], [25, 81, 4], [36]],
    "F.embedding(x, table)": [[[2.0 * i, 2.0 * i + 1] for i in s] for s in ([3, 1, 4, 1], [], [5, 9, 2], [6])],
    "tl.LoD.from_lengths([[2, 0, 3]]).position_ids()": [0, 1, 0, 1, 2],
    "tl.data.collate([[1, 2], [3]])": [[1, 2], [3]],
    'tl.sequence_pool(x, "prod", padding_value=1)': [12, 1, 90, 6],
    "full.position_ids()[tl.sequence_argmax(full)]": [2, 1, 0],
    "torch.where(x > 2, x, 0)": [[3, 0, 4, 0], [], [5, 9, 0], [6]],
    "tl.sequence_pairwise(full[:, None], full[:, None])": [
        [[float(a * b) for b in s] for a in s] for s in ([3, 1, 4, 1], [5, 9, 2], [6])
    ],
    "deep.seq[:, :1, :1]": [[[3]], [], [[1]]],
    "tl.data.to_sparse(x)": [[3, 1, 4, 1], [0] * 4, [5, 9, 2, 0], [6, 0, 0, 0]],
    "tl.map_sequences(torch.fliplr, x)": [[1, 4, 1, 3], [], [2, 9, 5], [6]],
}
RAGGED = [code for _, cell in SECTIONS["Ragged tensors of TensorFlow"][1] for code in codes(cell)]


@pytest.mark.parametrize("code", RAGGED)
def test_ragged_tensors(code):
    found = eval(code, names_of("Ragged tensors of TensorFlow"))
    if isinstance(found, tl.LoDTensor):
        found = found.to_list()
    assert (found.to_dense().tolist() if isinstance(found, torch.Tensor) else found) == VALUES[code]


def attended(q, k, v, causal=False, window=None):
    """Packed attention, one sequence after the other: q, k, v of (length, heads, width)."""
    found = []
    for a, b, c in zip(q.sequences(), k.sequences(), v.sequences()):
        at = torch.arange(len(a))
        allowed = at[:, None] >= at if causal else torch.ones(len(a), len(a), dtype=torch.bool)
        if window:
            allowed = (at >= at[:, None] - window[0]) & (at <= at[:, None] + window[1])
        heads = (t.transpose(0, 1) for t in (a, b, c))
        found.append(F.scaled_dot_product_attention(*heads, attn_mask=allowed).transpose(0, 1))
    return torch.cat(found)


def flash_attn_varlen_func(q, k, v, *_, causal=False, window_size=None):
    return attended(q, k, v, causal, window_size)


BESIDE = [
    (title, there, here)
    for title in ("PackedSequence", "Padding and masks", "cu_seqlens")
    for there, cell in SECTIONS[title][1]
    for here in codes(cell)
]


@pytest.mark.parametrize(("title", "there", "here"), BESIDE)
def test_beside(title, there, here):
    names = names_of(title)
    if title == "cu_seqlens":
        names |= {"flash_attn_varlen_func": flash_attn_varlen_func, "longest": 4, "position_ids": names["rows"]}
    expected, found = eval(codes(there)[0], names), eval(here, names)
    if isinstance(found, tl.LoDTensor) and isinstance(expected, torch.Tensor):
        if title == "Padding and masks":  # (batch, length, ...): what counts is where the mask says so
            expected = [row[:n] for row, n in zip(expected, found.lengths())]
            found = list(found.sequences())
        else:
            found = found.values()
    if isinstance(found, tl.LoDTensor):
        found = list(found.sequences())
    same(parts(found), parts(expected))


def elsewhere(value):
    if isinstance(value, list):
        return list(map(elsewhere, value))
    return value.to("meta") if isinstance(value, (torch.Tensor, torch.nn.Module, PackedSequence)) else value


#: Structure, which is in host memory, and what is made of it.
ON_THE_HOST = {"x.offsets()", "tl.LoD.from_lengths([[2, 0, 3]]).position_ids()", "x.to_packed_sequence()"}


@pytest.mark.parametrize("title", SECTIONS)
def test_rows_on_another_device(title):
    """What stands beside rows is where they are. On "meta" nothing has numbers: what needs them says so."""
    ran = 0
    for code in (code for cells in SECTIONS[title][1] for code in codes(cells[-1])):
        names = {name: elsewhere(value) for name, value in names_of(title).items()}
        try:
            with torch.device("meta"):
                found = eval(code, names)
        except (tl.LoDError, NotImplementedError) as error:
            assert re.search("with data|meta tensor", str(error)), (code, error)
            continue
        ran += 1
        if code not in ON_THE_HOST:
            tensors = [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]
            assert {t.device.type for t in tensors} <= {"meta"}, code
    assert ran
