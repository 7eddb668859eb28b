//! Configurations of small models for every family.

use grpo_model::{ModelConfig, ModelFormats};
use serde_json::{Value, json};

use crate::known_families;

/// Model folders of the known families with a tokenizer or none.
pub(crate) fn formats() -> ModelFormats {
    ModelFormats { families: known_families(), ..ModelFormats::default() }
}

/// Parses a `config.json`.
#[track_caller]
pub(crate) fn config(json: &Value) -> ModelConfig {
    known_families().parse(&json.to_string()).unwrap()
}

/// Returns `json` with the keys of `change` added or replaced.
pub(crate) fn with(mut json: Value, change: Value) -> Value {
    let Value::Object(change) = change else { panic!("an object") };
    json.as_object_mut().unwrap().extend(change);
    json
}

pub(crate) fn llama() -> Value {
    json!({
        "model_type": "llama", "vocab_size": 19, "max_position_embeddings": 64, "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 100.0,
    })
}

pub(crate) fn qwen2() -> Value {
    with(llama(), json!({"model_type": "qwen2", "tie_word_embeddings": true}))
}

pub(crate) fn qwen3() -> Value {
    with(llama(), json!({"model_type": "qwen3", "head_dim": 10}))
}

pub(crate) fn gpt2() -> Value {
    json!({
        "model_type": "gpt2", "vocab_size": 19, "n_positions": 32, "n_embd": 24, "n_layer": 2,
        "n_head": 3, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    })
}

pub(crate) fn bert() -> Value {
    json!({
        "model_type": "bert", "vocab_size": 19, "max_position_embeddings": 32, "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
        "layer_norm_eps": 1e-12, "type_vocab_size": 2, "hidden_act": "gelu",
    })
}

/// A model of the family from outside of the crate.
pub(crate) fn other() -> Value {
    json!({
        "model_type": "other", "vocab_size": 19, "block_size": 32, "n_layer": 2, "n_head": 3,
        "n_embd": 24,
    })
}

/// One causal language model from each family.
pub(crate) fn language_models() -> [Value; 5] {
    [llama(), qwen2(), qwen3(), gpt2(), other()]
}

/// All supported kinds of rotary positions.
pub(crate) fn rotations() -> [Value; 6] {
    let llama3 = json!({
        "rope_type": "llama3", "rope_theta": 50.0, "factor": 4.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
    });
    let yarn = json!({
        "rope_type": "yarn", "rope_theta": 40.0, "factor": 8.0,
        "original_max_position_embeddings": 16, "beta_fast": 2.0, "beta_slow": 0.5,
    });
    [
        json!({"rope_type": "default", "rope_theta": 30.0}),
        json!({"rope_type": "linear", "rope_theta": 30.0, "factor": 2.5}),
        with(yarn.clone(), json!({"attention_factor": 0.7})),
        with(yarn.clone(), json!({"beta_fast": 32.0, "beta_slow": 1.0})),
        llama3,
        yarn,
    ]
}
