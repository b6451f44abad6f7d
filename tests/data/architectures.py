# SPDX-License-Identifier: Apache-2.0
"""Architectures of transformers as small models with random weights, made without a network."""

import torch
import transformers as hf

BASE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GQA = {**BASE, "num_key_value_heads": 2}
MOE = {**GQA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROBERTA = {**BASE, "pad_token_id": 1, "bos_token_id": 0}
GEMMA = {**GQA, "head_dim": 8, "query_pre_attn_scalar": 32, "sliding_window": 4}
GPT2 = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
FALCON = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
FALCON |= {"bos_token_id": 1, "eos_token_id": 2}
MAMBA = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
DEBERTA = {**BASE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
T5 = {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0}
BART = {"vocab_size": 61, "d_model": 32, "max_position_embeddings": 64}
BART |= {
    f"{part}_{name}": size
    for part in ("encoder", "decoder")
    for name, size in {"layers": 2, "attention_heads": 4, "ffn_dim": 40}.items()
}
SPEECH = {**BASE, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
SPEECH |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
DELTA = {f"linear_{part}_head_dim": 8 for part in ("key", "value")}
DELTA |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "shared_expert_intermediate_size": 24, "head_dim": 8}
SCAN = {**GQA, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 2, "mamba_chunk_size": 4}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
LATENT |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1}
LATENT |= {"n_group": 2, "topk_group": 1, "num_key_value_heads": 4}

#: name: model, configuration, its arguments
ARCHITECTURES = {
    "BERT": ("BertModel", "BertConfig", BASE),
    "RoBERTa": ("RobertaModel", "RobertaConfig", ROBERTA),
    "XLM-RoBERTa": ("XLMRobertaModel", "XLMRobertaConfig", ROBERTA),
    "CamemBERT": ("CamembertModel", "CamembertConfig", ROBERTA),
    "DistilBERT": (
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 61, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 64},
    ),
    "ALBERT": ("AlbertForMaskedLM", "AlbertConfig", {**BASE, "embedding_size": 16}),
    "ALBERT, with its pooler": ("AlbertModel", "AlbertConfig", {**BASE, "embedding_size": 16}),
    "ELECTRA": ("ElectraModel", "ElectraConfig", {**BASE, "embedding_size": 16}),
    "ModernBERT": (
        "ModernBertModel",
        "ModernBertConfig",
        {**BASE, "local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "MPNet": ("MPNetModel", "MPNetConfig", {**BASE, "pad_token_id": 1}),
    "DeBERTa": ("DebertaModel", "DebertaConfig", DEBERTA),
    "DeBERTa-v2": ("DebertaV2Model", "DebertaV2Config", {**DEBERTA, "position_buckets": 8}),
    "ConvBERT": ("ConvBertModel", "ConvBertConfig", {**BASE, "embedding_size": 32}),
    "FNet": ("FNetModel", "FNetConfig", BASE),
    "SqueezeBERT": ("SqueezeBertModel", "SqueezeBertConfig", {**BASE, "embedding_size": 32}),
    "XLNet": (
        "XLNetModel",
        "XLNetConfig",
        {"vocab_size": 61, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 40},
    ),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "GPT-2, a classifier": (
        "GPT2ForSequenceClassification",
        "GPT2Config",
        {**GPT2, "pad_token_id": 0, "num_labels": 3},
    ),
    "GPT-Neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", BASE),
    "GPT-J": ("GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 4}),
    "CodeGen": ("CodeGenForCausalLM", "CodeGenConfig", {**GPT2, "rotary_dim": 4}),
    "GPT-BigCode": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", GPT2),
    "OPT": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 40,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
        },
    ),
    "BLOOM": ("BloomForCausalLM", "BloomConfig", {"vocab_size": 61, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "Falcon": ("FalconForCausalLM", "FalconConfig", FALCON),
    "Falcon, ALiBi": ("FalconForCausalLM", "FalconConfig", {**FALCON, "alibi": True}),
    "MPT": (
        "MptForCausalLM",
        "MptConfig",
        {"vocab_size": 61, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "expansion_ratio": 2},
    ),
    "Llama": ("LlamaForCausalLM", "LlamaConfig", GQA),
    "Llama 4, chunks of 4": (
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {**GQA, "head_dim": 8, "attention_chunk_size": 4, "num_local_experts": 2, "intermediate_size_mlp": 40},
    ),
    "Mistral": ("MistralForCausalLM", "MistralConfig", {**GQA, "sliding_window": 4}),
    "Ministral": ("MinistralForCausalLM", "MinistralConfig", {**GQA, "head_dim": 8, "sliding_window": 4}),
    "Mixtral": ("MixtralForCausalLM", "MixtralConfig", {**GQA, "num_local_experts": 4}),
    "Qwen2": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {**GQA, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "Qwen2-MoE": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {**MOE, "shared_expert_intermediate_size": 24}),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GQA, "head_dim": 16}),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**MOE, "head_dim": 8}),
    "Qwen3-Next, gated delta net": (
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        {**MOE, **DELTA, "layer_types": ["linear_attention", "full_attention"]},
    ),
    "Qwen3.5, gated delta net": (
        "Qwen3_5ForCausalLM",
        "Qwen3_5TextConfig",
        {
            **GQA,
            **{k: v for k, v in DELTA.items() if "expert" not in k},
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "OLMo hybrid, gated delta net": (
        "OlmoHybridForCausalLM",
        "OlmoHybridConfig",
        {
            **GQA,
            **{k: v for k, v in DELTA.items() if "linear" in k},
            "layer_types": ["linear_attention", "full_attention"],
        },
    ),
    "Gemma": ("GemmaForCausalLM", "GemmaConfig", {**GQA, "head_dim": 8}),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", {**GEMMA, "attn_logit_softcapping": 0.02}),
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", GEMMA),
    "Phi": ("PhiForCausalLM", "PhiConfig", BASE),
    "Phi-3": ("Phi3ForCausalLM", "Phi3Config", GQA),
    "StableLM": ("StableLmForCausalLM", "StableLmConfig", GQA),
    "StarCoder 2": ("Starcoder2ForCausalLM", "Starcoder2Config", GQA),
    "OLMo": ("OlmoForCausalLM", "OlmoConfig", GQA),
    "OLMo 2": ("Olmo2ForCausalLM", "Olmo2Config", GQA),
    "OLMoE": ("OlmoeForCausalLM", "OlmoeConfig", {**GQA, "num_experts": 4, "num_experts_per_tok": 2}),
    "Cohere": ("CohereForCausalLM", "CohereConfig", GQA),
    "Granite": ("GraniteForCausalLM", "GraniteConfig", GQA),
    "GLM-4": ("Glm4ForCausalLM", "Glm4Config", {**GQA, "head_dim": 8}),
    "SmolLM3": ("SmolLM3ForCausalLM", "SmolLM3Config", GQA),
    "DeepSeek-V3": ("DeepseekV3ForCausalLM", "DeepseekV3Config", {**BASE, **LATENT}),
    "GPT-OSS": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**GQA, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    ),
    "T5 encoder": ("T5EncoderModel", "T5Config", T5),
    "mT5 encoder": ("MT5EncoderModel", "MT5Config", T5),
    "UMT5 encoder": ("UMT5EncoderModel", "UMT5Config", T5),
    "T5": ("T5ForConditionalGeneration", "T5Config", T5),
    "BART": ("BartForConditionalGeneration", "BartConfig", BART),
    "BART decoder": ("BartForCausalLM", "BartConfig", BART),
    "Mamba": ("MambaForCausalLM", "MambaConfig", MAMBA),
    "Mamba-2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**MAMBA, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
    ),
    "Falcon-Mamba": ("FalconMambaForCausalLM", "FalconMambaConfig", MAMBA),
    "Jamba": (
        "JambaForCausalLM",
        "JambaConfig",
        {
            **GQA,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "use_mamba_kernels": False,
            "mamba_d_state": 4,
        },
    ),
    "Bamba": (
        "BambaForCausalLM",
        "BambaConfig",
        {
            **SCAN,
            "attn_layer_indices": [1],
            "mamba_n_groups": 1,
        },
    ),
    "Falcon-H1": ("FalconH1ForCausalLM", "FalconH1Config", {**SCAN, "mamba_d_ssm": 64, "head_dim": 8}),
    "Zamba 2": (
        "Zamba2ForCausalLM",
        "Zamba2Config",
        {
            **BASE,
            "layers_block_type": ["mamba", "hybrid"],
            "n_mamba_heads": 8,
            "mamba_d_state": 4,
            "mamba_ngroups": 2,
            "chunk_size": 4,
        },
    ),
    "Granite hybrid": (
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeHybridConfig",
        {
            **SCAN,
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 4,
            "shared_intermediate_size": 40,
        },
    ),
    "Nemotron-H": (
        "NemotronHForCausalLM",
        "NemotronHConfig",
        {
            **{k: v for k, v in GQA.items() if k != "num_hidden_layers"},
            "layers_block_type": ["mamba", "attention", "mlp"],
            "head_dim": 8,
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "ssm_state_size": 4,
            "n_groups": 2,
            "chunk_size": 4,
        },
    ),
    "RWKV": (
        "RwkvForCausalLM",
        "RwkvConfig",
        {
            "vocab_size": 61,
            "hidden_size": 32,
            "attention_hidden_size": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 40,
            "context_length": 64,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "xLSTM": (
        "xLSTMForCausalLM",
        "xLSTMConfig",
        {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "chunk_size": 8},
    ),
    "RecurrentGemma": (
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        {
            **GQA,
            "head_dim": 8,
            "lru_width": 32,
            "attention_window_size": 4,
            "block_types": ["recurrent", "attention"],
        },
    ),
    "LFM2, convolutions": ("Lfm2ForCausalLM", "Lfm2Config", {**GQA, "layer_types": ["conv", "full_attention"]}),
    "wav2vec 2.0": ("Wav2Vec2Model", "Wav2Vec2Config", SPEECH),
    "Whisper encoder": (
        "WhisperModel.encoder",
        "WhisperConfig",
        {**BART, "num_mel_bins": 8, "max_source_positions": 8, "pad_token_id": 0},
    ),
    "ViT": ("ViTModel", "ViTConfig", {**BASE, "image_size": 16, "patch_size": 8}),
}


def build(name: str, dtype=torch.float64):
    """A model in eval mode."""
    cls, config, given = ARCHITECTURES[name]
    cls, _, part = cls.partition(".")
    torch.manual_seed(0)
    model = getattr(hf, cls)(getattr(hf, config)(**given))
    model = getattr(model, part) if part else model
    model = model.to(dtype).eval()
    if hasattr(model, "set_experts_implementation") and dtype == torch.float64:
        model.set_experts_implementation("eager")  # the others have no float64
    return model
