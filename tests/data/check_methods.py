# SPDX-License-Identifier: Apache-2.0
"""The two ways of `use`, and `check_packing`, with transformers: `make formats`. Models have random weights."""

import copy
import inspect
import pickle

import pytest
import torch
import transformers as hf
from architectures import ARCHITECTURES, GEMMA, build
from check_transformers import OURS, alone, ids, model_of, refused

import torch_lod as tl
from torch_lod.integrations.transformers.probe import Probe

MAPPED = ["DeBERTa-v2", "Mamba", "Jamba", "XLNet"]
TWO = ["T5", "BART"]


def mapped(name, **options):
    model = OURS.use(build(name), **options)
    assert model.torch_lod.method == "map_sequences"
    return model


# -- by map_sequences


@pytest.mark.parametrize("level", ["document", -1])
@pytest.mark.parametrize("name", MAPPED)
def test_levels_and_hidden_states(name, level):
    x, reference, model = ids(3), build(name), mapped(name, level=level)
    found = model(x, output_hidden_states=True)
    options = {} if name == "XLNet" else {"use_cache": False}
    expected = [
        reference(tl.LoDTensor.values(rows)[None], output_hidden_states=True, **options)
        for rows in x.sequences(level)
        if len(rows)
    ]
    assert found[0].lod == x.lod and found[0].level_names == x.level_names
    torch.testing.assert_close(found[0].values(), torch.cat([o[0][0] for o in expected]))
    for k, state in enumerate(found.hidden_states):
        assert state.lod == x.lod
        torch.testing.assert_close(state.values(), torch.cat([o.hidden_states[k][0] for o in expected]))


def test_a_call_for_each_length_and_empty_sequences():
    model, lengths = mapped("Mamba"), []
    model.backbone.register_forward_pre_hook(
        lambda module, args, kwargs: lengths.append(args or kwargs), with_kwargs=True
    )
    x = tl.from_lengths(torch.arange(3, 15), [[4, 0, 2, 4, 2, 0]])
    assert model(x).logits.lod == x.lod and len(lengths) == 2


def test_embeddings_masks_and_types_are_stacked():
    x, model, reference = ids(), mapped("DeBERTa-v2"), build("DeBERTa-v2")
    rows = model.get_input_embeddings()(x)
    torch.testing.assert_close(model(inputs_embeds=rows)[0].values(), model(x)[0].values())
    mask = x.with_values((torch.arange(len(x)) % 3 != 2).long())
    found = model(x, attention_mask=mask)[0].values()
    expected = [
        reference(r[None], attention_mask=m[None])[0][0] for r, m in zip(x.sequences(), mask.sequences()) if len(r)
    ]
    torch.testing.assert_close(found, torch.cat(expected))


@pytest.mark.parametrize("name", ["Mamba", "xLSTM", "BLOOM"])
def test_losses_are_the_mean_over_all_labels(name):
    x, model, reference = ids(2), mapped(name), build(name)
    assert (x.lengths() == 1).any()  # no labels in the call of that length
    labels = x.values().clone()
    labels[[2, 7]] = -100
    y, total, count = x.with_values(labels), 0, 0
    for rows, target in zip(x.sequences(-1), y.sequences(-1)):
        kept = int((target[1:] != -100).sum())
        if kept:
            total, count = total + reference(rows[None], labels=target[None], use_cache=False).loss * kept, count + kept
    loss = model(x, labels=y).loss
    torch.testing.assert_close(loss, total / count)
    loss.backward()
    (total / count).backward()
    for (key, p), other in zip(model.named_parameters(), reference.parameters()):
        if other.grad is not None:
            torch.testing.assert_close(
                p.grad, other.grad, rtol=1e-5, atol=1e-7, msg=lambda said, key=key: f"{key}: {said}"
            )
    items = torch.tensor(2 * count)
    torch.testing.assert_close(model(x, labels=y, num_items_in_batch=items).loss, total / items)
    none = x.with_values(torch.full_like(labels, -100))
    assert model(x, labels=none).loss.isnan()
    assert model(x, labels=none, num_items_in_batch=items).loss == 0


def test_a_label_for_each_sequence():
    x = tl.lod_tensor([[3, 4, 5], [6], [7, 8, 9], [7, 8, 9, 10]])
    model, reference, labels = mapped("GPT-2, a classifier"), build("GPT-2, a classifier"), torch.tensor([2, 0, 1, 1])
    found = model(x, labels=labels)
    expected = torch.cat([o.logits for o in alone(reference, x)])
    torch.testing.assert_close(found.logits, expected)
    torch.testing.assert_close(found.loss, torch.nn.functional.cross_entropy(expected, labels))
    nested = tl.lod_tensor([[[3, 4], []], [[5]]])
    pooled = model(nested).logits
    assert pooled.lod == nested.lod.outer(-1) and not pooled.values()[1].any()


@pytest.mark.parametrize("name", TWO)
def test_two_sequences_for_each_sample(name):
    model, reference = mapped(name), build(name)
    x, y = tl.lod_tensor([[3, 4, 5], [6], [7, 8, 9, 10], [6, 7, 8]]), tl.lod_tensor([[5, 6], [7, 8, 9], [10], [11, 12]])
    found = model(x, labels=y)
    parts = [reference(input_ids=a[None], labels=b[None]) for a, b in zip(x.sequences(), y.sequences())]
    torch.testing.assert_close(found.logits.values(), torch.cat([o.logits[0] for o in parts]))
    assert found.logits.lod == y.lod and found.encoder_last_hidden_state.lod == x.lod
    states = torch.cat([o.encoder_last_hidden_state[0] for o in parts])
    torch.testing.assert_close(found.encoder_last_hidden_state.values(), states)
    lengths = y.lengths().double()
    torch.testing.assert_close(found.loss, (torch.stack([o.loss for o in parts]) * lengths).sum() / lengths.sum())
    assert model(x, decoder_input_ids=y).logits.lod == y.lod
    refused(lambda: model(x), "expected decoder_input_ids or labels as a LoDTensor beside input_ids, got none")
    refused(lambda: model(decoder_input_ids=y), "expected input_ids or inputs_embeds as a LoDTensor, got none")
    refused(lambda: model(x, labels=y.seq[:2]), "expected input_ids with a sequence for each of 2 of labels")
    hole = tl.lod_tensor([[3, 4, 5], [], [7, 8, 9, 10], [6]])
    refused(
        lambda: model(hole, labels=y), "expected input_ids with rows wherever labels has some, got none in sequence 1"
    )
    refused(lambda: OURS.use(build(name), method="packed"), "whose decoder attends to its encoder")


def test_signals():
    model, reference = mapped("wav2vec 2.0"), build("wav2vec 2.0")
    x = tl.from_lengths(torch.randn(900, dtype=torch.float64), [[300, 0, 150, 300, 150]])
    found = model(x).last_hidden_state
    expected = [reference(rows[None]).last_hidden_state[0] for rows in x.sequences() if len(rows)]
    torch.testing.assert_close(found.values(), torch.cat(expected))
    assert found.lod.to_lengths()[0][1] == 0 and found.lod.num_sequences(0) == 5


def test_the_model_stays_as_it_is():
    before, model = build("Mamba"), mapped("Mamba")
    x, plain = ids(), torch.tensor([[3, 4, 5]])
    assert list(model.state_dict()) == list(before.state_dict())
    assert inspect.signature(model.forward) == inspect.signature(before.forward)
    assert torch.equal(model(plain).logits, before(plain).logits)
    assert model.generate(plain, max_new_tokens=2, do_sample=False).shape == (1, 5)
    expected = model(x).logits.values()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.forward.model is other and other.torch_lod == model.torch_lod
        assert torch.equal(other(x).logits.values(), expected)
    assert OURS.use(model).torch_lod.method == "map_sequences" and model.forward.before is None
    assert torch.equal(torch.nn.Sequential(model)(x).logits.values(), expected)
    assert torch.equal(model.double().train().eval()(x).logits.values(), expected)


def test_a_forward_that_was_replaced_is_called():
    model, calls = build("Mamba"), []
    own = model.forward
    model.forward = lambda *args, **kwargs: calls.append(1) or own(*args, **kwargs)
    replaced = model.forward
    OURS.use(model, check=False, method="map_sequences")
    assert model(tl.lod_tensor([[3, 4], [5]])).logits.shape[0] == 3 and len(calls) == 2
    refused(lambda: OURS.use(model, method="packed"), "without states")
    assert model.forward is replaced and not hasattr(model, "torch_lod")


def test_what_use_did_is_said():
    packed, other = OURS.use(model_of("LlamaForCausalLM"), level=-1), mapped("Mamba")
    assert packed.torch_lod == ("packed", -1, None)
    assert repr(packed).splitlines()[1].strip() == "torch_lod=packed, level=-1"
    assert repr(other).splitlines()[1].strip() == "torch_lod=map_sequences, level=-1"
    assert "without states" in other.torch_lod.reason
    chosen = OURS.use(packed, method="map_sequences")
    assert chosen.torch_lod == ("map_sequences", -1, None) and not chosen._forward_pre_hooks
    assert chosen.config._attn_implementation == "eager"
    x = ids()
    again = OURS.use(copy.deepcopy(chosen))
    assert again.torch_lod.method == "packed"
    torch.testing.assert_close(chosen(x).logits.values(), again(x).logits.values())


class Foreign(torch.nn.Module):
    """An embedding that is no nn.Embedding."""

    def __init__(self, inner):
        super().__init__()
        self.weight = inner.weight

    def forward(self, ids):
        return torch.nn.functional.embedding(ids, self.weight)


def test_what_no_ids_can_be_drawn_for_is_refused_without_leaving_the_check_out(monkeypatch):
    model = build("Mamba")
    model.set_input_embeddings(Foreign(model.get_input_embeddings()))
    assert OURS.use(model, method="map_sequences").torch_lod.method == "map_sequences"
    model = build("Mamba")
    monkeypatch.setattr(model, "get_input_embeddings", torch.nn.Identity)
    with pytest.raises(
        tl.LoDError, match=r"expected a model with an embedding of ids to check, got .* Identity"
    ) as caught:
        OURS.use(model, method="map_sequences")
    assert "check=False" not in str(caught.value) and "tl.map_sequences" in str(caught.value)


def test_outputs_with_lengths_at_another_dim_are_left_out():
    torch.manual_seed(0)
    sizes = dict.fromkeys(("hidden_size", "encoder_ffn_dim", "decoder_ffn_dim"), 16)
    counts = dict.fromkeys((f"num_{a}_{b}" for a in ("encoder", "decoder") for b in ("layers", "attention_heads")), 1)
    config = hf.ProphetNetConfig(vocab_size=64, max_position_embeddings=64, num_buckets=8, **sizes, **counts)
    model = hf.ProphetNetForConditionalGeneration(config).eval().double()
    x, y = tl.lod_tensor([[3, 4, 5], [6, 7]]), tl.lod_tensor([[1, 4], [6, 7, 8]])
    pairs = zip(x.unbind_sequences(), y.unbind_sequences())
    want = torch.cat([model(a[None], decoder_input_ids=b[None]).logits[0] for a, b in pairs])
    output = OURS.use(model)(input_ids=x, decoder_input_ids=y)
    assert "logits_ngram" not in output and output.logits.lod == y.lod
    torch.testing.assert_close(output.logits.values(), want)


def test_a_reason_says_what_raised(monkeypatch):
    model = model_of("LlamaForCausalLM")

    def raising(name):
        if name == "torch_lod":
            raise AttributeError("'Pattern' object has no attribute 'dtype'")

    monkeypatch.setattr(model, "set_attn_implementation", raising)
    reason = OURS.use(model).torch_lod.reason
    assert reason.startswith("expected a model that can be packed, got one that raised AttributeError: 'Pattern'")


def test_collators_of_mapped_models():
    model = mapped("Mamba")
    batch = OURS.Collator(model, ids_are_labels=True)([{"input_ids": [3, 4, 5]}, {"input_ids": [6, 7]}])
    assert batch["labels"].to_list() == [[-100, 4, 5], [-100, 7]] and model(**batch).loss.isfinite()


def test_refused_by_map_sequences():
    model, x, plain = mapped("Mamba"), ids(), torch.tensor([[3, 4, 5]])
    refused(lambda: model(x, labels=plain), "expected labels as a LoDTensor with the LoD of the ids")
    refused(lambda: model(x, labels=tl.from_lengths(x.values(), [[len(x)]])), "expected labels with the LoD of the ids")
    refused(lambda: model(plain, labels=x), "expected input_ids or inputs_embeds as a LoDTensor", "beside labels")
    refused(lambda: model(x, use_cache=True), "expected no use_cache", "with plain tensors, which pass through")
    attends = OURS.use(model_of("LlamaForCausalLM"), method="map_sequences")
    refused(
        lambda: attends(x, output_attentions=True), "expected no output_attentions", "ask the model with plain tensors"
    )
    refused(lambda: attends.generate(x), "generate: expected plain tensors, got", "takes a padded batch")
    assert copy.deepcopy(attends).generate(plain, max_new_tokens=1, do_sample=False).shape == (1, 4)
    refused(lambda: model(x, logits_to_keep=1), "expected no logits_to_keep")
    refused(lambda: model(x, return_dict=False), "expected return_dict True")
    refused(lambda: model(x[:, None]), "expected input_ids (rows,)")
    refused(lambda: model(tl.lod_tensor([[], []]).long()), "expected at least 1 row")
    refused(lambda: mapped("Mamba", level=2)(x), "expected level in [-1, 0]", kind=IndexError)
    experts = mapped("Qwen3-Next, gated delta net", method="map_sequences")
    refused(lambda: experts(x, output_router_logits=True), "expected no output_router_logits")


@pytest.mark.parametrize("name", ["ViT", "Whisper encoder"])
def test_models_of_no_sequences_are_refused(name):
    model = build(name)
    refused(lambda: OURS.use(model), "expected a model of input_ids or input_values", "tl.map_sequences")
    assert not hasattr(model, "torch_lod") and "forward" not in vars(model)


def test_a_model_that_neither_way_takes_names_both():
    class Mixing(hf.LlamaForCausalLM):
        def forward(self, input_ids, **kwargs):
            output = super().forward(input_ids, **kwargs)
            output.logits = output.logits + output.logits.sum((0, 1))  # over the batch
            return output

    model = Mixing(model_of("LlamaForCausalLM").config).double().eval()
    with pytest.raises(ValueError, match="logits of sequences in a batch to be those of each alone") as raised:
        OURS.use(model)
    assert isinstance(raised.value, tl.LoDError) and "and packed:" in "".join(raised.value.__notes__)
    assert "forward" not in vars(model) and not model._forward_pre_hooks

    class Raising(hf.LlamaForCausalLM):
        def forward(self, input_ids, **kwargs):
            if input_ids.shape[1] == 4:
                raise RuntimeError("not of 4")
            return super().forward(input_ids, **kwargs)

    refused(lambda: OURS.use(Raising(model.config)), "got Raising, which raised RuntimeError: not of 4")


def test_gradients_show_a_state_that_hardly_changes_values(monkeypatch):
    convolution = hf.models.lfm2.modeling_lfm2.causal_conv1d_fn
    own = getattr(convolution, "torch_lod_own", convolution)
    monkeypatch.setattr(hf.models.lfm2.modeling_lfm2, "causal_conv1d_fn", own)
    monkeypatch.setattr(OURS.states, "_OURS", {})  # which replaces it
    model = OURS.use(build("LFM2, convolutions", torch.float32), check=False, method="packed")
    probe, packing = Probe(model), OURS.model.packing_of(model)
    packing.kinds = {"logits": "rows"}
    refused(
        lambda: probe.gradients(packing), "expected logits of a sequence without gradients in the embeddings of others"
    )
    sound = OURS.use(build("T5 encoder", torch.float32))
    Probe(sound).gradients(OURS.model.packing_of(sound))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        assert OURS.use(build("LFM2, convolutions", dtype)).torch_lod.method == "map_sequences"


def test_the_cap_the_sinks_and_the_bias_are_the_models_own():
    x = ids()
    config = hf.Gemma2Config(**{**GEMMA, "attn_logit_softcapping": 0.02})
    torch.manual_seed(0)
    model = OURS.use(hf.Gemma2ForCausalLM(config).double().eval())
    assert model.torch_lod.method == "packed"
    capped = model(x).logits.values()
    for layer in model.model.layers:
        layer.self_attn.attn_logit_softcapping = None
    assert not torch.allclose(model(x).logits.values(), capped, atol=1e-5)

    model = OURS.use(build("GPT-OSS"))
    assert model.torch_lod.method == "packed"
    before = model(x).logits.values()
    with torch.no_grad():
        model.model.layers[0].self_attn.sinks += 3
    assert not torch.allclose(model(x).logits.values(), before, atol=1e-6)

    model, reference = OURS.use(build("T5 encoder")), build("T5 encoder")
    assert model.torch_lod.method == "packed"
    biased = [m for m in model.modules() if "compute_bias" in vars(m)]
    assert biased
    long = tl.from_lengths(torch.arange(90) % 50 + 3, [[40, 50]])  # further apart than the largest bucket
    expected = torch.cat([reference(rows[None])[0][0] for rows in long.sequences()])
    torch.testing.assert_close(model(long)[0].values(), expected)
    plain = torch.tensor([[3, 4, 5]])
    model.set_attn_implementation("sdpa")
    assert torch.allclose(model(plain)[0], reference(plain)[0])
    OURS.use(model, method="map_sequences")
    assert not [m for m in model.modules() if "compute_bias" in vars(m)]


def test_compiled():
    x, model = ids(), mapped("Mamba")
    expected = model(x).logits
    found = torch.compile(model, backend="eager")(x).logits
    assert found.lod == expected.lod
    torch.testing.assert_close(found.values(), expected.values())


# -- check_packing


def report(name, packing=None, dtype=torch.float64, **options):
    return OURS.check_packing(build(name, dtype), packing, **options)


def test_decoders_with_position_ids():
    """The library looks for packed samples in position_ids only where there is no cache."""
    good = report("Llama", "position_ids", use_cache=False)
    assert good.ok and not good.leaks and not good.wrong and good.lengths == [5, 1, 9, 3]
    assert "no leak" in repr(good) and good.check() is good
    bad = report("Llama", "position_ids", use_cache=True)
    assert bad.leaks == [(i, j) for i in range(4) for j in range(i + 1, 4)] and bad.wrong == [1, 2, 3]
    assert "the last token of sample 0 changes sample 1 (" in repr(bad) and "not as alone: sample 1 (" in repr(bad)
    refused(bad.check, "check: expected samples that are as alone, got PackingReport: LlamaForCausalLM")
    refused(
        lambda: report("Llama", "position_ids", raises=True, use_cache=True), "check_packing: expected samples that"
    )
    assert report("Llama", "cu_seqlens", use_cache=False).ok
    assert not report("Llama", "attention_mask", use_cache=False).ok  # the numbers are read as True


@pytest.mark.parametrize("name", ["BERT", "LFM2, convolutions", "Qwen3-Next, gated delta net"])
def test_what_leaks_through_other_layers(name):
    found = report(name, "position_ids", torch.float32, **({} if name == "BERT" else {"use_cache": False}))
    assert found.leaks and (found.changes[0, 1] > 0 or found.changes[0, 2] > 0)


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "Llama", "Mamba", "T5 encoder"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_models_of_use_do_not_leak(name, dtype):
    model = OURS.use(build(name, dtype)).train()
    found = OURS.check_packing(model, raises=True)
    assert found.ok and model.training and "lod_tensor" in repr(found)
    assert found.changes.diagonal().all() and not (found.changes - found.changes.diagonal().diag()).any()


def test_packings_of_ones_own():
    model, samples = build("Llama"), [[3, 4, 5], [6, 7], [8]]

    def blocks(samples):
        lengths = torch.tensor([len(s) for s in samples])
        number = torch.arange(len(samples)).repeat_interleave(lengths)
        rows = torch.arange(len(number))
        mask = (number[:, None] == number) & (rows[:, None] >= rows)
        positions = torch.cat([torch.arange(len(s)) for s in samples])
        return {
            "input_ids": torch.cat(samples)[None],
            "attention_mask": mask[None, None],
            "position_ids": positions[None],
        }

    assert OURS.check_packing(model, blocks, samples=samples).ok

    def shifted(samples):
        return {**blocks(samples), "position_ids": torch.arange(sum(map(len, samples)))[None] % 2}

    found = OURS.check_packing(model, shifted, samples=samples)
    assert not found.leaks and found.wrong == [0, 1] and "with shifted" in repr(found)

    def padded(samples):
        rows = torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(s) for s in samples], batch_first=True)
        return {"input_ids": rows, "attention_mask": mask}

    lengths = [3, 2, 1]

    def unpack(output):
        return [row[:n] for row, n in zip(output.logits, lengths)] if len(output.logits) == 3 else [output.logits[0]]

    assert OURS.check_packing(model, padded, samples=tl.lod_tensor(samples), unpack=unpack).ok


def test_every_architecture_has_a_name_of_its_own():
    assert len(ARCHITECTURES) >= 40
