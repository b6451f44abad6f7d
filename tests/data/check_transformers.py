# SPDX-License-Identifier: Apache-2.0
"""tl.integrations.transformers with that library: `make formats`, in an environment of its own. Models have random weights."""

import copy
import pickle

import pytest
import torch
import transformers as hf

import torch_lod as tl

hf.logging.set_verbosity_error()
OURS = tl.integrations.transformers
#: Encoders of older versions have no attention that can be replaced.
NEW = int(hf.__version__.split(".")[0]) >= 5
SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GQA = {**SMALL, "num_key_value_heads": 2}
LOCAL = {"local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2}
SLIDING = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
#: A state beside attention, which hardly shows in random weights.
JAMBA = {
    **GQA,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "num_experts": 2,
    "use_mamba_kernels": False,
    "mamba_d_state": 4,
}
GPT2 = {
    "vocab_size": 61,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODERS = {
    "BertModel": (hf.BertConfig, SMALL),
    "RobertaModel": (hf.RobertaConfig, {**SMALL, "pad_token_id": 1, "bos_token_id": 0}),
    "ModernBertModel": (hf.ModernBertConfig, {**SMALL, **LOCAL}),
    "BertForMaskedLM": (hf.BertConfig, SMALL),
    "BertForTokenClassification": (hf.BertConfig, SMALL),
    "BertForSequenceClassification": (hf.BertConfig, {**SMALL, "num_labels": 3}),
    "RobertaForSequenceClassification": (hf.RobertaConfig, {**SMALL, "pad_token_id": 1, "num_labels": 3}),
}
DECODERS = {
    "GPT2LMHeadModel": (hf.GPT2Config, GPT2),
    "LlamaForCausalLM": (hf.LlamaConfig, GQA),
    "MistralForCausalLM": (hf.MistralConfig, {**GQA, "sliding_window": 4}),
    "Qwen2ForCausalLM": (hf.Qwen2Config, {**GQA, **SLIDING}),
    "Qwen3ForCausalLM": (hf.Qwen3Config, {**GQA, "head_dim": 16}),
}
DECODERS["Gemma3ForCausalLM"] = (
    hf.Gemma3TextConfig,  # scores are not divided by the root of the width
    {**GQA, "head_dim": 8, "query_pre_attn_scalar": 32, "sliding_window": 4, "sliding_window_pattern": 2},
)
MODELS = {**(ENCODERS if NEW else {}), **DECODERS}
#: Of three levels, with empty sequences at each, and one that is longer than every window.
IDS = [
    [[list(range(5, 17)), [3]], []],
    [[[20, 21, 22, 23, 24, 1, 25], []]],
    [[[30, 31]], [[40, 3, 41, 1], [50, 51, 52]]],
]


def model_of(name, dtype=torch.float64, **options):
    config, given = MODELS[name]
    torch.manual_seed(0)
    return getattr(hf, name)(config(**{**given, **options})).to(dtype).eval()


def used(name, **options):
    return OURS.use(model_of(name, **options))


def ids(levels=1):
    x = tl.lod_tensor(IDS, level_names=("document", "paragraph", "sentence"))
    return x.flatten_levels(0, 3 - levels) if levels < 3 else x


def weights(t):
    return torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)


def alone(model, x, level=-1):
    """The outputs of every sequence by itself, in the library's own attention."""
    rows = [tl.LoDTensor.values(s) if isinstance(s, tl.LoDTensor) else s for s in x.sequences(level)]
    return [model(r[None]) if len(r) else None for r in rows]


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


# -- every sequence as by itself


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_sequences_are_as_alone_forwards_and_backwards(name, levels):
    x, reference, model = ids(levels), model_of(name), used(name)
    found, expected = model(x), alone(reference, x)
    assert type(found) is type(expected[0])
    loss, wanted, seen = 0, 0, 0
    for key, value in found.items():
        parts = [o[key] for o in expected if o is not None]
        if parts[0].dim() > 1 and parts[0].shape[:2] == (1, 12):
            assert isinstance(value, tl.LoDTensor) and value.lod == x.lod and value.level_names == x.level_names
            value, parts = value.values(), torch.cat(parts, 1)[0]
        else:  # a row for each sequence
            assert (value.lod == x.lod.outer(-1)) if levels > 1 else type(value) is torch.Tensor
            filled = x.lengths() > 0
            value, parts = (value.values() if levels > 1 else value)[filled], torch.cat(parts)
        torch.testing.assert_close(value, parts, rtol=1e-6, atol=1e-6)
        loss, wanted = loss + (value * weights(value)).sum(), wanted + (parts * weights(parts)).sum()
        seen += 1
    assert seen
    loss.backward()
    wanted.backward()
    ours, theirs = gradients(model), gradients(reference)
    assert ours.keys() == theirs.keys() and len(ours) > 10
    for key, grad in theirs.items():
        torch.testing.assert_close(ours[key], grad, rtol=1e-5, atol=1e-6, msg=lambda said, key=key: f"{key}: {said}")


@pytest.mark.parametrize("level", ["document", 1, -1])
@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM"] if NEW else ["LlamaForCausalLM"])
def test_any_level(name, level):
    x, reference, model = ids(3), model_of(name), OURS.use(model_of(name), level=level)
    found, expected = model(x), [o for o in alone(reference, x, level) if o is not None]
    rows = torch.cat([o[0][0] for o in expected])
    assert found[0].lod == x.lod
    torch.testing.assert_close(found[0].values(), rows, rtol=1e-6, atol=1e-6)
    if "pooler_output" in found:
        pooled = found.pooler_output
        assert pooled.shape[0] == x.num_sequences(level) and (level == "document") == (type(pooled) is torch.Tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM"] if NEW else ["LlamaForCausalLM"])
def test_other_dtypes(name, dtype):
    x, exact = ids(), alone(model_of(name), ids())
    found = used(name, dtype=dtype)(x)[0]
    rows = torch.cat([o[0][0] for o in exact if o is not None])
    assert found.dtype == dtype and found.lod == x.lod
    torch.testing.assert_close(found.values().double(), rows, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert used(name, dtype=torch.float32)(x)[0].values().sub(rows).abs().max() < 0.1


@pytest.mark.parametrize("name", ["BertModel", "Qwen2ForCausalLM"] if NEW else ["Qwen2ForCausalLM"])
def test_embeddings_in_the_place_of_ids(name):
    x, model = ids(2), used(name)
    rows = model.get_input_embeddings()(x)
    assert isinstance(rows, tl.LoDTensor)
    assert torch.equal(model(inputs_embeds=rows)[0].values(), model(x)[0].values())


@pytest.mark.skipif(not NEW, reason="an encoder")
def test_positions_of_roberta_leave_out_its_padding():
    x, reference, model = ids(), model_of("RobertaModel"), used("RobertaModel")
    padded = tl.lod_tensor([[1, 5, 1, 6], [7, 1, 1, 8, 9]])  # id 1
    rows = torch.cat([o[0][0] for o in alone(reference, padded)])
    torch.testing.assert_close(model(padded)[0].values(), rows)
    embedded = reference.get_input_embeddings()(x)
    expected = torch.cat([reference(inputs_embeds=r[None])[0][0] for r in embedded.sequences() if len(r)])
    torch.testing.assert_close(model(inputs_embeds=embedded)[0].values(), expected)


@pytest.mark.skipif(not NEW, reason="an encoder")
def test_token_types_hidden_states_and_names():
    x, reference, model = ids(), model_of("BertModel"), used("BertModel")
    types = x.with_values(torch.arange(len(x)) % 2)
    expected = [
        reference(r[None], token_type_ids=t[None], output_hidden_states=True)
        for r, t in zip(x.sequences(), types.sequences())
        if len(r)
    ]
    found = model(x, None, types, output_hidden_states=True)
    torch.testing.assert_close(found[0].values(), torch.cat([o[0][0] for o in expected]))
    for k, state in enumerate(found.hidden_states):
        torch.testing.assert_close(state.values(), torch.cat([o.hidden_states[k][0] for o in expected]))
    ones = x.with_values(torch.ones(len(x), dtype=torch.int64))
    again = model(
        input_ids=x, attention_mask=ones, token_type_ids=types, position_ids=x.with_values(x.lod.position_ids())
    )
    assert torch.equal(again[0].values(), found[0].values())


@pytest.mark.parametrize("name", ["BertForMaskedLM", "LlamaForCausalLM"] if NEW else ["LlamaForCausalLM"])
def test_checkpointing_copies_and_pickles(name):
    x, model = ids(2), used(name)
    expected = model(x).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x).logits.values(), expected.values())
    model(x).logits.values().square().sum().backward()
    wanted = {k: g.clone() for k, g in gradients(model).items()}
    model.zero_grad()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model(x).logits.values().square().sum().backward()
    for key, grad in gradients(model).items():
        torch.testing.assert_close(grad, wanted[key])


def test_dropout_of_attention_is_honoured():
    name = "LlamaForCausalLM"
    x, model = ids(), OURS.use(model_of(name, attention_dropout=0.5))
    quiet = model(x).logits.values()
    assert torch.equal(quiet, used(name)(x).logits.values())  # in eval mode there is none
    model.train()
    loud = [model(x).logits.values() for _ in range(2)]
    assert not torch.equal(*loud) and not torch.equal(loud[0], quiet)
    first = x.row_offsets()[:-1][x.lengths() > 0]  # with a single key, a weight is dropped or doubled
    assert not torch.equal(loud[0][first], quiet[first])


# -- losses


@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith(("LM", "LMHeadModel", "TokenClassification"))])
def test_losses_are_the_mean_over_all_labels(name):
    x, reference, model = ids(2), model_of(name), used(name)
    labels = torch.arange(len(x)) % 2
    labels[[0, 3, -1]] = -100
    y, shifted = x.with_values(labels), "Causal" in name or "LMHead" in name
    total = count = 0
    for rows, target in zip(x.sequences(-1), y.sequences(-1)):
        kept = int((target[shifted:] != -100).sum())
        if kept:
            total, count = total + reference(rows[None], labels=target[None]).loss * kept, count + kept
    loss = model(x, labels=y).loss
    torch.testing.assert_close(loss, total / count)
    items = torch.tensor(2 * count)
    if name in DECODERS:
        torch.testing.assert_close(model(x, labels=y, num_items_in_batch=items).loss, total / items)
    assert torch.equal(y.values(), labels)


@pytest.mark.skipif(not NEW, reason="an encoder")
@pytest.mark.parametrize("name", ["BertForSequenceClassification", "RobertaForSequenceClassification"])
def test_a_label_for_each_sequence(name):
    x = tl.lod_tensor([[3, 4, 5], [6], [7, 8, 9, 10]])
    reference, model, labels = model_of(name), used(name), torch.tensor([2, 0, 1])
    found = model(x, labels=labels)
    expected = torch.cat([o.logits for o in alone(reference, x)])
    torch.testing.assert_close(found.logits, expected)
    torch.testing.assert_close(found.loss, torch.nn.functional.cross_entropy(expected, labels))


def test_a_wrapped_linear_layer_stays_a_wrapped_linear_layer():
    class LowRank(torch.nn.Module):
        """As adapters are written: a layer that stays, and a product of two small ones."""

        def __init__(self, layer):
            super().__init__()
            self.layer = layer.requires_grad_(False)
            self.a = torch.nn.Parameter(torch.full((2, layer.in_features), 0.01, dtype=torch.float64))
            self.b = torch.nn.Parameter(torch.full((layer.out_features, 2), 0.02, dtype=torch.float64))

        def forward(self, x):
            assert not isinstance(x, tl.LoDTensor)
            return self.layer(x) + x @ self.a.t() @ self.b.t()

    def adapted():
        model = model_of("LlamaForCausalLM")
        for layer in model.model.layers:
            layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj)
            layer.self_attn.v_proj = LowRank(layer.self_attn.v_proj)
        return model

    x, reference, model = ids(), adapted(), OURS.use(adapted())
    found, expected = model(x).logits.values(), torch.cat([o.logits[0] for o in alone(reference, x) if o is not None])
    torch.testing.assert_close(found, expected)
    (found * weights(found)).sum().backward()
    (expected * weights(expected)).sum().backward()
    for layer, other in zip(model.model.layers, reference.model.layers):
        torch.testing.assert_close(layer.self_attn.q_proj.a.grad, other.self_attn.q_proj.a.grad)
        assert layer.self_attn.q_proj.layer.weight.grad is None


# -- refused


def refused(function, *said, kind=(ValueError, TypeError)):
    with pytest.raises(kind) as raised:
        function()
    assert isinstance(raised.value, tl.LoDError), raised.value
    assert all(words in str(raised.value) for words in said), raised.value


def test_what_cannot_work_on_packed_rows_raises():
    model, x = used("LlamaForCausalLM"), ids()
    plain = torch.tensor([[3, 4, 5]])
    refused(
        lambda: model(plain), "expected input_ids or inputs_embeds as a LoDTensor", "set_attn_implementation('sdpa')"
    )
    refused(lambda: model(plain, attention_mask=torch.ones(1, 3)), "expected input_ids or inputs_embeds as a LoDTensor")
    refused(lambda: model.generate(plain, max_new_tokens=2), "generate", "set_attn_implementation('sdpa')")
    refused(lambda: model(x, use_cache=True), "expected no use_cache", "generate")
    refused(lambda: model(x, past_key_values=hf.DynamicCache()), "expected no past_key_values", "generate")
    refused(lambda: model(x, output_attentions=True), "expected no output_attentions", "'eager'")
    refused(lambda: model.generate(x), "generate: expected plain tensors, got", "set_attn_implementation('sdpa')")
    refused(lambda: model.generate(inputs=x), "generate: expected plain tensors, got")
    refused(lambda: model(x, return_dict=False), "expected return_dict True")
    refused(lambda: model(x, logits_to_keep=1), "expected no logits_to_keep", "tl.sequence_pool")
    refused(lambda: model(x, cu_seq_lens_q=x.cu_seqlens()), "expected no cu_seq_lens_q")
    refused(lambda: model(x, attention_mask=torch.ones(len(x))), "expected no attention_mask, or a LoDTensor")
    hole = x.with_values((torch.arange(len(x)) != 4).long())
    refused(lambda: model(x, attention_mask=hole), "expected attention_mask without zeros")
    through = x.with_values(torch.arange(len(x)))
    refused(lambda: model(x, position_ids=through), "expected position_ids that count from the begin of every sequence")
    refused(lambda: model(x, position_ids=torch.arange(len(x))[None]), "expected no position_ids, or a LoDTensor")
    refused(lambda: model(x, labels=plain), "expected labels as a LoDTensor with the LoD of the ids")
    other = tl.from_lengths(x.values(), [[len(x)]])
    refused(lambda: model(x, labels=other), "expected labels with the LoD of the ids", "1 sequences")
    refused(lambda: model(plain, labels=x), "beside labels")
    refused(lambda: model(x, some_new_option=torch.ones(1, 2)), "expected some_new_option as a LoDTensor")
    refused(lambda: model(x, some_new_option=1.5), "expected no some_new_option, which changes the attention")
    refused(lambda: model(x[:, None]), "expected input_ids (rows,)")
    refused(lambda: model(tl.lod_tensor([[], []]).long()), "expected at least 1 row")
    refused(lambda: OURS.use(model, level=2)(x), "expected level in [-1, 0]", kind=IndexError)
    assert OURS.use(model)(x).logits.lod == x.lod


@pytest.mark.parametrize("method", ["packed", "map_sequences"])
def test_the_losses_of_answers_are_named_and_right(method):
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = hf.BertForQuestionAnswering(config).eval()
    x, where = (
        tl.lod_tensor([[3, 4, 5], [6, 7, 8]]),
        {"start_positions": torch.tensor([0, 2]), "end_positions": torch.tensor([1, 2])},
    )
    want = model(torch.stack(x.unbind_sequences()), **where).loss
    OURS.use(model, method=method)
    output, losses = model(x), []
    for name in where:
        with pytest.raises(TypeError, match=f"expected no {name}") as caught:
            model(x, **{name: where[name]})
        losses.append(eval(str(caught.value).partition("with the output: ")[2], {"tl": tl, "output": output, **where}))
    torch.testing.assert_close(sum(losses) / 2, want, rtol=1e-4, atol=1e-5)
    pair = OURS.use(hf.BertForPreTraining(config).eval(), method=method)
    refused(
        lambda: pair(x, next_sentence_label=torch.tensor([0, 1])),
        "expected no next_sentence_label",
        "F.cross_entropy(output.seq_relationship_logits, next_sentence_label)",
    )


def test_the_attention_of_the_library_is_a_word_away():
    model, x, plain = used("LlamaForCausalLM"), ids(), torch.tensor([[3, 4, 5]])
    packed = model(x).logits
    model.set_attn_implementation("sdpa")
    refused(lambda: model(x), "expected plain tensors for the attention implementation 'sdpa'", "use(model)")
    assert torch.allclose(model(plain).logits, model_of("LlamaForCausalLM")(plain).logits)
    assert model.generate(plain, max_new_tokens=2, do_sample=False).shape == (1, 5)
    assert torch.equal(OURS.use(model)(x).logits.values(), packed.values())
    fresh = hf.LlamaForCausalLM._from_config(hf.LlamaConfig(**GQA), attn_implementation="torch_lod")  # without `use`
    refused(lambda: fresh(plain), "expected a model that tl.integrations.transformers.use prepared")


def test_an_error_in_a_model_leaves_nothing_behind():
    model, x = used("GPT2LMHeadModel"), ids()
    with pytest.raises(IndexError):
        model(x.with_values(x.values() + 1000))
    refused(lambda: model.transformer(torch.tensor([[3, 4, 5]])), "expected a model that", "prepared")
    assert model(x).logits.lod == x.lod


def model_or_skip(name, config, **given):
    torch.manual_seed(0)
    return getattr(hf, name)(getattr(hf, config)(**given)).eval()


@pytest.mark.parametrize(
    ("name", "config", "given", "said"),
    [
        (
            "T5Model",
            "T5Config",
            {"vocab_size": 61, "d_model": 32, "num_layers": 1, "num_heads": 4},
            "expected an encoder or a decoder",
        ),
        (
            "MambaModel",
            "MambaConfig",
            {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 1},
            "expected a model without states",
        ),
        (
            "ConvBertModel",
            "ConvBertConfig",
            {**SMALL, "embedding_size": 32},
            "expected a model whose attention can be replaced",
        ),
        ("DebertaV2Model", "DebertaV2Config", SMALL, "expected a model whose attention can be replaced"),
        ("FNetModel", "FNetConfig", SMALL, "mixes rows outside of attention"),
        ("GPT2ForSequenceClassification", "GPT2Config", GPT2, "of the model without its head"),
    ],
)
def test_models_that_cannot_be_packed_are_refused(name, config, given, said):
    model = model_or_skip(name, config, **given)
    before = model.config._attn_implementation
    refused(lambda: OURS.use(model, method="packed"), said)
    assert not model._forward_pre_hooks and not model._forward_hooks
    assert model.config._attn_implementation == before


@pytest.mark.skipif(not NEW, reason="an encoder")
def test_heads_and_poolers_that_take_the_first_row_of_the_batch_are_refused():
    model = model_or_skip("ModernBertForSequenceClassification", "ModernBertConfig", **SMALL, **LOCAL)
    refused(
        lambda: OURS.use(model, method="packed"),
        "expected logits with a row for each of",
        "of the model without its head",
    )
    x = tl.lod_tensor([[3, 4], [5]])
    assert OURS.use(model.model)(x).last_hidden_state.lod == x.lod
    albert = model_or_skip("AlbertModel", "AlbertConfig", **SMALL, embedding_size=16)
    refused(lambda: OURS.use(albert, method="packed"), "expected pooler_output with a row", "add_pooling_layer=False")


@pytest.mark.skipif(not NEW, reason="an encoder")
def test_a_model_unchecked_still_knows_rows_from_others():
    model = model_or_skip("ModernBertForSequenceClassification", "ModernBertConfig", **SMALL, **LOCAL)
    refused(
        lambda: OURS.use(model, check=False)(tl.lod_tensor([[3, 4], [5]])), "expected logits with a row for each of"
    )
    assert OURS.use(model_of("LlamaForCausalLM"), check=False)(ids()).logits.lod == ids().lod


def test_use_leaves_modes_as_they_were_and_one_hook_of_a_kind():
    model = model_of("LlamaForCausalLM").train()
    model.lm_head.eval()
    for level in (-1, 0):
        OURS.use(model, level=level)
        assert model.training and model.model.norm.training and not model.lm_head.training
        assert len(model._forward_pre_hooks) == len(model._forward_hooks) == 1
    rows = model.eval()(ids(2)).logits.values()
    torch.testing.assert_close(
        rows, torch.cat([o.logits[0] for o in alone(model_of("LlamaForCausalLM"), ids(2), 0) if o])
    )


def test_use_leaves_the_kind_of_the_problem_to_the_first_labels():
    model = hf.BertForSequenceClassification(hf.BertConfig(**SMALL, num_labels=3)).eval()
    before = model.config.to_dict()
    OURS.use(model)
    assert model.config.problem_type is None
    assert {k for k, v in model.config.to_dict().items() if before.get(k) != v} <= {"_attn_implementation"}
    assert model(tl.lod_tensor([[5, 6], [7]]), labels=torch.rand(2, 3)).loss.isfinite()


def test_masks_of_another_form_are_refused():
    config = hf.Llama4TextConfig(
        **GQA, head_dim=8, attention_chunk_size=4, num_local_experts=2, intermediate_size_mlp=40
    )
    torch.manual_seed(0)
    model = hf.Llama4ForCausalLM(config).eval()
    refused(lambda: OURS.use(model, method="packed"), "a mask of another form")
    long = OURS.use(
        hf.Llama4ForCausalLM(
            hf.Llama4TextConfig(
                **GQA, head_dim=8, attention_chunk_size=99, num_local_experts=2, intermediate_size_mlp=40
            )
        ).eval()
    )
    assert long(ids()).logits.lod == ids().lod  # chunks that no sequence fills


def test_masks_that_the_library_asks_for():
    from torch_lod.integrations.transformers.attention import Packed, Pattern, mask

    def causal(batch, head, query, key):
        return key <= query

    sizes = {"batch_size": 1, "q_length": 5, "kv_length": 5, "q_offset": 0, "kv_offset": 0, "mask_function": causal}
    made = mask(**sizes, attention_mask=torch.ones(1, 5, dtype=torch.bool))
    assert isinstance(made, Pattern)
    assert made.reach(Packed(tl.LoD.from_lengths([[1, 0, 4]]), 0), torch.device("cpu")) == (-1, 0)
    padded = torch.tensor([[True, True, True, True, False]])
    refused(lambda: mask(**sizes, attention_mask=padded), "expected no padding, got an attention_mask with zeros")
    refused(lambda: mask(**{**sizes, "q_length": 1}), "expected no cache, got keys of earlier calls")
    refused(lambda: mask(**{**sizes, "kv_offset": 2}), "expected no cache, got keys of earlier calls")
    refused(
        lambda: mask(**sizes, use_vmap=True),
        "expected the masks of the library alone, got a function of the model's own",
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: OURS.use(torch.nn.Linear(2, 2)), "expected model as a transformers.PreTrainedModel, got Linear"),
        (lambda: OURS.use(model_of("LlamaForCausalLM"), level=1.5), "expected level as an int or a name"),
        (lambda: OURS.use(model_of("LlamaForCausalLM"), check=1), "expected check as a bool"),
        (lambda: OURS.use(model_of("LlamaForCausalLM"), method="pad"), "expected method as one of ('packed', 'map_seq"),
        (lambda: OURS.use(model_of("LlamaForCausalLM"), method=[1]), "expected method as one of ('packed', 'map_seq"),
    ],
)
def test_wrong_arguments_of_use(call, said):
    refused(call, f"use: {said}")
