# SPDX-License-Identifier: Apache-2.0
"""Architectures of transformers on a batch of sequences: `make formats`. The table of docs/transformers.md is what

    python tests/data/check_architectures.py --write

prints: how `use` computes each, whether outputs and gradients are those of every sequence alone, and whether anything changes
in a sequence when the last token of another does."""

import contextlib
import copy
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from architectures import ARCHITECTURES, build

import torch_lod as tl

hf.logging.set_verbosity_error()
OURS = tl.integrations.transformers
PAGE = Path(__file__).parents[2] / "docs/transformers.md"
MARKS = "<!-- architectures: begin -->\n", "<!-- architectures: end -->"
#: An empty one among them, two that are equally long, and some that are longer than every window.
LENGTHS = [5, 1, 9, 3, 0, 5]
#: Of a decoder.
DECODED = [2, 4, 6, 2, 0, 1]
#: Outputs, relative to the largest; gradients of a parameter, likewise; in float64, of which some models leave parts in float32.
OUTPUTS, GRADIENTS, LEAK = 1e-6, 1e-5, 1e-6
RULE = "torch_chunk_gated_delta_rule"
REASONS = {
    "attention can be replaced": "attention is written out",
    "without states": "states",
    "whose decoder attends": "two sequences for each sample",
    "of another form": "masks of chunks",
    "mixes rows outside": "rows meet outside of attention, or positions do not restart",
    "got shape": "a head or a pooler takes the first or last row of the batch",
    "of input_ids,": "samples of a signal",
}


def inputs(model):
    """The arguments of a forward: LoDTensors."""
    draw = torch.Generator().manual_seed(1)
    if model.main_input_name == "input_values":
        lengths = [40 * n for n in LENGTHS]
        return {"input_values": tl.from_lengths(torch.randn(sum(lengths), generator=draw).double(), [lengths])}
    given = {"input_ids": LENGTHS}
    if "decoder_input_ids" in OURS.model.parameters_of(model):
        given["decoder_input_ids"] = DECODED
    return {
        name: tl.from_lengths(torch.randint(3, 61, (sum(lengths),), generator=draw), [lengths])
        for name, lengths in given.items()
    }


def outputs_of(model, given, options):
    """The floating outputs by name, for every sequence."""
    parts = [{} for _ in LENGTHS]
    for name, value in model(**given, **options).items():
        if isinstance(value, tl.LoDTensor):
            pieces = value.unbind_sequences()
        elif isinstance(value, torch.Tensor) and value.dim():
            assert len(value) == len(LENGTHS)
            pieces = value.unbind()
        else:
            continue
        for part, piece in zip(parts, pieces):
            part[name] = piece
    return parts


def alone(model, given, options):
    parts = []
    for rows in zip(*(x.unbind_sequences() for x in given.values())):
        part = {}
        if len(rows[0]):
            stacks = {name: row[None] for name, row in zip(given, rows)}
            output = model(**stacks, **options)
            part = {name: value[0] for name, value in output.items() if isinstance(value, torch.Tensor)}
        parts.append(part)
    return parts


def summed(parts):
    """A loss that weighs every output differently; that of all sequences is the sum of theirs."""
    total = 0
    for i, part in enumerate(parts):
        if LENGTHS[i]:
            for value in part.values():
                total = (
                    total + (value * torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view(value.shape)).sum()
                )
    return total


def distance(found, expected):
    """The largest difference, relative to the largest value."""
    return max(
        (
            float((f[name] - value).detach().abs().max() / value.detach().abs().max().clamp(min=1e-6))
            for f, e in zip(found, expected)
            for name, value in e.items()
        ),
        default=float("inf"),
    )


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def changed(given, i):
    """The arguments with another last token, or last sample, of sequence i."""
    found = {}
    for name, x in given.items():
        values = x.values().clone()
        at = int(x.row_offsets()[i + 1]) - 1
        values[at] = values[at] + 1 if values.is_floating_point() else 3 + (values[at] - 2) % 58
        found[name] = x.with_values(values)
    return found


def leaks(model, given, options):
    """How many pairs of sequences there are of which the second changes with the first, and the largest change."""
    with torch.no_grad():
        before, count, largest = outputs_of(model, given, options), 0, 0.0
        for i, n in enumerate(LENGTHS):
            if not n:
                continue
            after = outputs_of(model, changed(given, i), options)
            assert any(not torch.equal(after[i][name], value) for name, value in before[i].items())
            for j in range(len(LENGTHS)):
                if j != i and LENGTHS[j]:
                    change = max(float((after[j][k] - value).abs().max()) for k, value in before[j].items())
                    count, largest = count + (not change <= LEAK), max(largest, change)
    return count, largest


class Wide:
    """torch, in whose words float32 is float64."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def in_float64(model):
    """The library computes a delta rule in float32 whatever the dtype, and its gradients are as far from the exact ones as that
    allows: what ours is compared with is the library's own rule in float64."""
    module = sys.modules[type(model).__module__]
    own = getattr(module, RULE, None)
    if own is None:
        yield
        return

    def rule(*args, **kwargs):
        module.torch = Wide()
        try:
            return own(*args, **kwargs)
        finally:
            module.torch = torch

    setattr(module, RULE, rule)
    try:
        yield
    finally:
        setattr(module, RULE, own)


def row(name):
    """What the table says of an architecture: method, reason, output, gradient, leaks, largest; or the error."""
    model = build(name)
    reference = copy.deepcopy(model)
    try:
        OURS.use(model)
    except tl.LoDError as error:
        return {"method": "refused", "reason": str(error)}
    given = inputs(model)
    options = {"use_cache": False} if getattr(model.config, "use_cache", None) is not None else {}
    with in_float64(reference):
        expected = alone(reference, given, options)
    found = outputs_of(model, given, {})
    error = distance(found, expected)
    summed(found).backward()
    summed(expected).backward()
    ours, theirs = gradients(model), gradients(reference)
    assert ours.keys() == theirs.keys() and len(ours) > 5
    largest = max(float(g.abs().max()) for g in theirs.values())
    gradient = max(
        float((ours[k] - g).abs().max() / g.abs().max().clamp(min=1e-6 * largest)) for k, g in theirs.items()
    )
    count, change = leaks(model, given, {})
    used = model.torch_lod
    return {
        "method": used.method,
        "reason": used.reason,
        "output": error,
        "gradient": gradient,
        "leaks": count,
        "largest": change,
    }


#: Whose states, or short convolutions, are computed by ours.
WITH_STATES = [
    name
    for name, (cls, *_) in ARCHITECTURES.items()
    if re.match("Qwen3Next|Qwen3_5|OlmoH|Mamba2|Bamba|FalconH1|Zamba2|GraniteMoeH|Nemotron|Lfm2", cls)
]


@pytest.mark.parametrize("name", WITH_STATES)
def test_states_know_their_sequences_when_a_layer_is_computed_again(name):
    model = OURS.use(build(name), method="packed").train()
    given = inputs(model)

    def trained():
        model.zero_grad()
        summed(outputs_of(model, given, {})).backward()
        return {name: gradient.clone() for name, gradient in gradients(model).items()}

    once = trained()
    model.gradient_checkpointing_enable()
    if name == "Mamba-2":  # whose layers are not handed keyword arguments
        with pytest.raises(tl.LoDError, match="expected layers that run once, got one that is computed again"):
            trained()
        return
    for parameter, gradient in trained().items():
        torch.testing.assert_close(gradient, once[parameter])


def test_a_padded_batch_may_be_computed_again_beside_a_packed_model():
    packed = OURS.use(build("Mamba-2"), method="packed").train()
    summed(outputs_of(packed, inputs(packed), {})).backward()
    plain = build("Mamba-2").train()
    ids = torch.randint(1, 50, (2, 7))

    def trained():
        plain.zero_grad()
        plain(ids).logits.square().sum().backward()
        return {name: gradient.clone() for name, gradient in gradients(plain).items()}

    once = trained()
    plain.gradient_checkpointing_enable()
    for parameter, gradient in trained().items():
        torch.testing.assert_close(gradient, once[parameter])


def why(reason):
    for pattern, said in REASONS.items():
        if pattern in (reason or ""):
            return said
    return reason or ""


def line(name, found):
    model = f"`{ARCHITECTURES[name][0]}`"
    if found["method"] == "refused":
        said = re.sub(r"^use: |; tl\..*", "", found["reason"])
        return f"| {name} | {model} | refused | | | | {said} |"
    numbers = f"{found['output']:.0e} | {found['gradient']:.0e} | {found['leaks']}"
    return f"| {name} | {model} | {found['method']} | {numbers} | {why(found['reason'])} |"


def table(rows):
    counts = [sum(found["method"] == method for found in rows.values()) for method in (*OURS.model.METHODS, "refused")]
    said = (
        f"transformers {hf.__version__}, float64: {len(rows)} models, {counts[0]} packed, {counts[1]} by map_sequences, "
        f"{counts[2]} refused."
    )
    head = (
        "| architecture | model | `use` took | outputs | gradients | leaks | not packed, because of |\n"
        + "|---" * 7
        + "|"
    )
    return "\n".join([said, "", head, *(line(name, found) for name, found in rows.items()), ""])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_sequences_are_as_alone_and_do_not_leak(name):
    found = row(name)
    written = PAGE.read_text().split(MARKS[0])[1].split(MARKS[1])[0]
    (mine,) = (text for text in written.splitlines() if text.startswith(f"| {name} |"))
    assert mine.split("|")[3].strip() == found["method"], found["reason"]
    if found["method"] != "refused":
        assert found["output"] <= OUTPUTS and found["gradient"] <= GRADIENTS and found["leaks"] == 0, found


if __name__ == "__main__":
    chosen = [name for name in sys.argv[1:] if name in ARCHITECTURES] or ARCHITECTURES
    rows = {}
    for name in chosen:
        rows[name] = row(name)
        print(line(name, rows[name]), flush=True)
    if "--write" in sys.argv:
        text = PAGE.read_text()
        before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
        PAGE.write_text(before + MARKS[0] + table(rows) + MARKS[1] + after)
