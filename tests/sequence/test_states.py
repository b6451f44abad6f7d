# SPDX-License-Identifier: Apache-2.0
"""Recurrences with states that are given and returned, and the layers made of them, case by case; their laws are in
tests/laws. recorded_mixers.npz is what transformers gives, recorded by tests/lib/record_mixers.py, recorded_rules.npz what the
reference code of flash-linear-attention gives, by record_rules.py."""

from pathlib import Path

import numpy as np
import pytest
import torch

import torch_lod as tl

LENGTHS = [[3, 0, 9, 1]]
HEADS, KEYS, WIDTH = 4, 5, 3


def rows(*element, seed=0, dtype=torch.float64):
    made = torch.randn(13, *element, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return tl.from_lengths(made.to(dtype), LENGTHS)


def unit(*element, seed):
    t = rows(*element, seed=seed)
    return t.with_values(torch.nn.functional.normalize(t.values(), dim=-1))


def delta(**options):
    gates = rows(HEADS, KEYS, seed=3).sigmoid().log(), rows(HEADS, seed=4).sigmoid()
    args = rows(2, KEYS, seed=1), unit(2, KEYS, seed=2), rows(HEADS, WIDTH), *gates
    return tl.gated_delta_rule, args, options


def linear(**options):
    args = rows(1, KEYS, seed=1), rows(1, KEYS, seed=2), rows(HEADS, WIDTH), rows(HEADS, seed=3).sigmoid().log()
    return tl.linear_attention, args, options


def dual(**options):
    per_head = torch.tensor([-0.5, -1, -2, -0.1]).double(), torch.tensor([1, -1, 0.5, 0]).double()
    keys = rows(2, KEYS, seed=1), rows(2, KEYS, seed=2)
    return tl.ssd, (rows(HEADS, WIDTH), rows(HEADS, seed=3).sigmoid(), per_head[0], *keys, per_head[1]), options


def scan(**options):
    return tl.sequence_scan, (rows(WIDTH), rows(WIDTH, seed=1).sigmoid()), options


def backwards(**options):
    return scan(reverse=True, **options)


def conv(**options):
    weight = torch.randn(6, WIDTH, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return tl.sequence_conv1d, (rows(WIDTH), weight), {"dilation": 2, "padding": "causal", **options}


def depthwise(**options):
    weight = torch.randn(WIDTH, 1, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return tl.sequence_conv1d, (rows(WIDTH), weight), {"padding": "causal", "groups": WIDTH, **options}


def mixer(module):
    torch.manual_seed(0)
    module = module().double()
    return lambda **options: (module, (rows(6),), options)


net = mixer(lambda: tl.nn.GatedDeltaNet(6, 2, 4, KEYS, WIDTH))
mamba = mixer(lambda: tl.nn.Mamba2(6, KEYS, head_dim=3, groups=2))
CALLS = [delta, linear, dual, scan, backwards, conv, depthwise, net, mamba]


def shown(result):
    """All tensors of rows and states."""
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return [t for part in parts for t in (shown(part) if isinstance(part, tuple) else [part])]


@pytest.mark.parametrize("make", CALLS)
@pytest.mark.parametrize("cut", [[1, 0, 4, 0], [0, 0, 0, 0], [3, 0, 9, 1], [2, 0, 1, 1]])
def test_a_cut_of_every_sequence_changes_nothing(make, cut):
    function, args, options = make(return_state=True)
    whole, *states = shown(function(*args, **options))
    head = torch.tensor(cut)
    tail = torch.tensor(LENGTHS[0]) - head

    def part(t, first):
        if not isinstance(t, tl.LoDTensor):
            return t
        return tl.sequence_slice(t, torch.zeros_like(head), head) if first else tl.sequence_slice(t, head, tail)

    turned = options.get("reverse", False)
    one, state = function(*(part(a, not turned) for a in args), **options)
    other, last = function(*(part(a, turned) for a in args), **options, initial=state)
    got = tl.cat([other, one] if turned else [one, other], along="within")
    torch.testing.assert_close(got.values(), whole.values())
    for g, e in zip(shown((last,)), states, strict=True):
        torch.testing.assert_close(g, e)


@pytest.mark.parametrize("make", CALLS)
def test_an_empty_batch_and_empty_sequences_hand_their_states_on(make):
    function, args, options = make(return_state=True)
    given = shown(function(*args, **options))[1:]
    state = tuple(given) if len(given) > 1 else given[0]
    none = torch.tensor([0, 0, 0, 0])
    nothing = [tl.sequence_slice(a, none, none) if isinstance(a, tl.LoDTensor) else a for a in args]
    out, *last = shown(function(*nothing, **options, initial=state))
    assert len(out.values()) == 0 and all(torch.equal(a, b) for a, b in zip(last, given, strict=True))


@pytest.mark.parametrize("make", CALLS)
def test_nan_stays_in_its_sequence_forwards_and_backwards(make):
    function, args, options = make(return_state=True)
    clean = shown(function(*args, **options))
    values = [a.values().clone() if isinstance(a, tl.LoDTensor) else a for a in args]
    values[0][5] = torch.nan  # the third sequence
    leaf = values[0].requires_grad_()
    given = [tl.LoDTensor(v, a.lod) if isinstance(a, tl.LoDTensor) else v for v, a in zip(values, args)]
    out, *states = shown(function(*given, **options))
    keep = torch.tensor([0, 1, 2, 12])
    assert torch.equal(out.values()[keep], clean[0].values()[keep]) and out.values().isnan().any()
    for s, e in zip(states, clean[1:], strict=True):
        assert torch.equal(s[[0, 1, 3]], e[[0, 1, 3]])
    loss = out.values().sum() + sum(s.sum() for s in states)
    (grad,) = torch.autograd.grad(loss, leaf)
    assert grad[keep].isfinite().all()


def test_a_gate_above_zero_lets_the_state_grow():
    ones = tl.from_lengths(torch.ones(3, 1, 1), [[3]])
    g = tl.from_lengths(torch.full((3, 1), 2.0).log(), [[3]])
    torch.testing.assert_close(tl.linear_attention(ones, ones, ones, g).values().flatten(), torch.tensor([1.0, 3, 7]))


@pytest.mark.parametrize("make", [delta, linear, dual, scan])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_states_of_half_types_are_float32(make, half):
    function, args, options = make(return_state=True)
    args = [a.to(half) if isinstance(a, tl.LoDTensor) else getattr(a, "float", lambda a=a: a)() for a in args]
    out, state = function(*args, **options)
    assert out.dtype == half and state.dtype == torch.float32
    again, _ = function(*args, **options, initial=state)
    assert again.dtype == half


# -- beside transformers

RECORDED = {}
for name in ("mixers", "rules"):
    with np.load(Path(__file__).parents[1] / f"lib/recorded_{name}.npz") as file:
        RECORDED |= {of: torch.from_numpy(file[of]) for of in file.files if file[of].dtype.kind in "fi"}


def recorded(of):
    return {name[len(of) + 1 :]: t for name, t in RECORDED.items() if name.startswith(f"{of}.")}


CLOSE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.mark.parametrize(
    ("of", "function", "names"),
    [
        ("delta", tl.gated_delta_rule, "q k v g beta"),
        ("ssd", tl.ssd, "x dt A B C D"),
    ],
)
def test_operators_are_those_of_transformers(of, function, names):
    """Its functions of chunks, torch_chunk_gated_delta_rule and mamba2_chunk_scan; the state of the latter is transposed."""
    known = recorded(of)
    turned = (lambda t: t.mT) if of == "ssd" else (lambda t: t)
    leaves = {name: known[name].clone().requires_grad_() for name in (*names.split(), "initial")}
    count = int(known["lengths"].sum())
    args = [tl.from_lengths(t, [known["lengths"].tolist()]) if len(t) == count else t for t in leaves.values()][:-1]
    out, state = function(*args, initial=turned(leaves["initial"]), return_state=True)
    torch.testing.assert_close(out.values(), known["out"], **CLOSE)
    torch.testing.assert_close(turned(state), known["state"], **CLOSE)
    loss = (out.values() * known["grad_out"]).sum() + (turned(state) * known["grad_state"]).sum()
    for name, grad in zip(leaves, torch.autograd.grad(loss, list(leaves.values()))):
        torch.testing.assert_close(grad, known[f"grad_{name}"], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def low_rank(q, k, v, g, read, write, initial):
    """RWKV-7's recurrence, which tl.ops has: rows of a state are read by one vector and written along another."""
    rows = (t.values() for t in (q, k, v, g.exp()))
    scale = {"scale": q.shape[-1] ** -0.5, "delta": False}
    cuts = q.lod.offsets()
    out, state, _ = tl.ops.matrix_scan(*rows, None, write.values(), read.values(), initial, cuts, **scale)
    return q.with_values(out), state


@pytest.mark.parametrize(
    ("of", "function", "names"),
    [
        ("gated delta rule", tl.gated_delta_rule, "q k v g beta"),
        ("Kimi delta rule", tl.gated_delta_rule, "q k v g beta"),
        ("gated linear attention", tl.linear_attention, "q k v g"),
        ("RWKV-7", low_rank, "q k v g read write"),
    ],
)
def test_rules_are_those_of_their_reference_code(of, function, names):
    """naive_recurrent_gated_delta_rule, naive_recurrent_kda, naive_recurrent_gla and dplr_recurrence."""
    known = recorded(of)
    leaves = {name: known[name].clone().requires_grad_() for name in (*names.split(), "initial")}
    args = [tl.from_lengths(t, [known["lengths"].tolist()]) for t in leaves.values() if t is not leaves["initial"]]
    states = {} if function is low_rank else {"return_state": True}
    out, state = function(*args, initial=leaves["initial"], **states)
    loss = (out.values() * known["grad_out"]).sum() + (state * known["grad_state"]).sum()
    found = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    torch.testing.assert_close(out.values(), known["out"], **CLOSE)
    torch.testing.assert_close(state, known["state"], **CLOSE)
    for name, grad in found.items():
        torch.testing.assert_close(grad, known[f"grad_{name}"], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


LAYERS = {
    "GatedDeltaNet": lambda **o: tl.nn.GatedDeltaNet(6, 2, 4, 4, 3, **o),
    "Mamba2": lambda **o: tl.nn.Mamba2(6, 5, head_dim=3, groups=2, **o),
}


@pytest.mark.parametrize("of", LAYERS)
def test_layers_load_the_weights_of_transformers_and_give_what_it_does(of):
    """Of Qwen3NextGatedDeltaNet and Mamba2Mixer: outputs of every sequence, gradients of rows and parameters."""
    known = recorded(of)
    module = LAYERS[of]()
    weights = {name.removeprefix("state_dict."): t for name, t in known.items() if name.startswith("state_dict.")}
    module.load_state_dict(weights)
    x = known["x"].clone().requires_grad_()
    out = module(tl.from_lengths(x, [known["lengths"].tolist()]))
    torch.testing.assert_close(out.values(), known["out"], **CLOSE)
    (out.values() * known["grad_out"]).sum().backward()
    torch.testing.assert_close(x.grad, known["grad_x"], **CLOSE)
    for name, p in module.named_parameters():
        torch.testing.assert_close(p.grad, known[f"grads.{name}"], **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("of", LAYERS)
def test_layers_run_in_halves_and_one_row_at_a_time(of):
    module, x = LAYERS[of](), tl.from_lengths(recorded(of)["x"][:6], [[4, 2]])
    whole = module(x)
    for half in (torch.float16, torch.bfloat16):
        got = LAYERS[of](dtype=half)
        got.load_state_dict(module.state_dict())
        torch.testing.assert_close(got(x.to(half)).values().float(), whole.values(), rtol=0.1, atol=0.05)
    first, state = module(tl.sequence_slice(x, 0, torch.tensor([3, 1])), return_state=True)
    last, _ = module(tl.sequence_slice(x, torch.tensor([3, 1]), 1), state, return_state=True)
    torch.testing.assert_close(tl.cat([first, last], along="within").values(), whole.values())
