"""Configurations of small models of the families, with sizes that tell their axes apart."""

from transformers import (
    Gemma3TextConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MinistralConfig,
    MistralConfig,
    Olmo2Config,
    Olmo3Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

BOS, EOS, PAD = 1, 2, 0
SPECIAL = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}


def gpt2(**changes):
    sizes = {"vocab_size": 77, "n_positions": 48, "n_embd": 40, "n_head": 5, "n_layer": 3}
    return GPT2Config(**{**sizes, **SPECIAL, **changes})


def gated(kind, **changes):
    """A configuration of the family of Llama. Its sizes are not multiples of each other unless they must be."""
    sizes = {
        "vocab_size": 101,
        "hidden_size": 48,
        "intermediate_size": 88,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    return kind(**{**sizes, **SPECIAL, **changes})


def llama(**changes):
    return gated(LlamaConfig, **changes)


def qwen2(**changes):
    return gated(Qwen2Config, **changes)


def qwen3(**changes):
    return gated(Qwen3Config, **{"head_dim": 16, **changes})


def mistral(**changes):
    return gated(MistralConfig, **{"sliding_window": 20, **changes})


def ministral(**changes):
    return gated(MinistralConfig, **{"head_dim": 8, "sliding_window": 20, **changes})


def granite(**changes):
    factors = {
        "embedding_multiplier": 6.0,
        "attention_multiplier": 0.25,
        "residual_multiplier": 0.3,
        "logits_scaling": 4.0,
    }
    return gated(GraniteConfig, **{**factors, **changes})


def smollm3(**changes):
    return gated(SmolLM3Config, **{"num_hidden_layers": 4, **changes})


def olmo2(**changes):
    return gated(Olmo2Config, **changes)


def olmo3(**changes):
    return gated(Olmo3Config, **{"rope_parameters": None, "num_hidden_layers": 4, "sliding_window": 20, **changes})


def gemma3(**changes):
    own = {"rope_parameters": None, "num_hidden_layers": 3, "sliding_window": 20, "sliding_window_pattern": 3}
    return gated(Gemma3TextConfig, **{**own, "head_dim": 16, "query_pre_attn_scalar": 16, **changes})


def rope(kind, theta=10000.0, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **parameters}}
