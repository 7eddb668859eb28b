//! Llama (Touvron et al. 2023; Grattafiori et al. 2024), Qwen2 (Yang et al. 2024) and Qwen3 (Yang
//! et al. 2025).
//!
//! All three are pre-norm transformers with RMS norms, rotary positions, grouped-query attention
//! and a gated MLP. They differ in their biases, and in whether queries and keys are normalised.

use super::positions::{WINDOWS, refuse_partial_rotation, refuse_windows, rotary};
use super::{FamilyKind, Fields};
use crate::description::{
    Activation, Biases, Description, HeadKind, NormKind, Positions, QueryKeyNorm,
};
use crate::names::Names;

/// The family `llama`: Llama 1 to 3, and other models with the same architecture.
pub(super) static LLAMA: FamilyKind = FamilyKind::new("llama", NAMES, llama)
    .with_models("Llama 1 to 3, SmolLM2, TinyLlama, Yi", WINDOWS);
/// The family `qwen2`: Qwen2 and Qwen2.5, which are Llama models with query, key and value biases.
pub(super) static QWEN2: FamilyKind = FamilyKind::new("qwen2", NAMES, qwen2)
    .with_models("Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen", WINDOWS);
/// The family `qwen3`: dense Qwen3 models, which are Llama models with query and key norms.
pub(super) static QWEN3: FamilyKind =
    FamilyKind::new("qwen3", NAMES, qwen3).with_models("Qwen3 without experts", WINDOWS);

/// Names of the tensors of Llama and of most families that came after it.
pub(super) const NAMES: Names = Names {
    prefix: "model.",
    blocks: "layers.",
    outside: &[("token_embedding", "embed_tokens"), ("norm", "norm"), ("head", "lm_head")],
    inside: &[
        ("attention_norm", "input_layernorm"),
        ("attention.inputs.0", "self_attn.q_proj"),
        ("attention.inputs.1", "self_attn.k_proj"),
        ("attention.inputs.2", "self_attn.v_proj"),
        ("attention.query_norm", "self_attn.q_norm"),
        ("attention.key_norm", "self_attn.k_norm"),
        ("attention.output", "self_attn.o_proj"),
        ("mlp_norm", "post_attention_layernorm"),
        ("mlp.gate", "mlp.gate_proj"),
        ("mlp.up", "mlp.up_proj"),
        ("mlp.down", "mlp.down_proj"),
    ],
    conv1d: false,
    // Rotary frequencies are recomputed. A tied head may be stored as a copy of the embedding.
    ignored: |name| name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight",
};

/// What a family assumes where `config.json` does not say it.
pub(super) struct Defaults {
    /// Width of a head, if it does not follow from the width of the model.
    pub(super) head_width: Option<usize>,
    /// Number of key-value heads, if it is not that of the heads.
    pub(super) kv_heads: Option<usize>,
    /// Constant of the norms.
    pub(super) epsilon: f64,
    /// Base of the rotary positions.
    pub(super) base: f64,
    /// Whether the output layer is the token embedding.
    pub(super) is_tied: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { head_width: None, kv_heads: None, epsilon: 1e-6, base: 10_000.0, is_tied: false }
    }
}

fn llama(fields: &Fields<'_>) -> Result<Description, String> {
    refuse_any_window(fields)?;
    dense(fields, &Defaults::default())
}

fn qwen2(fields: &Fields<'_>) -> Result<Description, String> {
    refuse_any_window(fields)?;
    let biases = Biases { attention_inputs: true, attention_output: false, mlp: false };
    Ok(Description { biases, ..dense(fields, &Defaults::default())? })
}

fn qwen3(fields: &Fields<'_>) -> Result<Description, String> {
    refuse_any_window(fields)?;
    // The default width of a head is independent of the model's.
    let defaults = Defaults { head_width: Some(128), ..Defaults::default() };
    let description = dense(fields, &defaults)?;
    let biases = Biases { mlp: false, ..description.biases };
    Ok(Description { biases, query_key_norm: QueryKeyNorm::EachHead, ..description })
}

fn refuse_any_window(fields: &Fields<'_>) -> Result<(), String> {
    fields.refuse("use_sliding_window", false)?;
    refuse_windows(fields)
}

/// Describes a Llama model, from which other families differ in a few options.
pub(super) fn dense(fields: &Fields<'_>, defaults: &Defaults) -> Result<Description, String> {
    let width = fields.size("hidden_size")?;
    let heads = fields.size("num_attention_heads")?;
    let head_width = match fields.optional_size("head_dim")?.or(defaults.head_width) {
        Some(head_width) => head_width,
        None if heads > 0 && width.is_multiple_of(heads) => width / heads,
        None => {
            return Err(format!(
                "hidden_size = {width} is not a multiple of num_attention_heads = {heads}"
            ));
        }
    };
    let activation = fields.text("hidden_act")?.unwrap_or("silu");
    if !matches!(activation, "silu" | "swish") {
        return Err(format!("hidden_act = \"{activation}\" is not supported; supported: silu"));
    }
    refuse_partial_rotation(fields)?;
    let context = fields.size("max_position_embeddings")?;
    // As in older versions of transformers, null is the number of heads.
    let kv_heads = match fields.json().contains_key("num_key_value_heads") {
        true => fields.optional_size("num_key_value_heads")?,
        false => defaults.kv_heads,
    };
    let attention = fields.flag("attention_bias", false)?;
    Ok(Description {
        vocabulary: fields.size("vocab_size")?,
        context,
        width,
        layers: fields.size_up_to("num_hidden_layers", 1 << 10)?,
        heads,
        kv_heads: kv_heads.unwrap_or(heads),
        head_width,
        mlp_width: fields.size("intermediate_size")?,
        norm: NormKind::Rms { epsilon: fields.positive("rms_norm_eps", Some(defaults.epsilon))? },
        positions: Positions::Rotary(rotary(fields, context, defaults.base)?),
        activation: Activation::SwiGlu,
        biases: Biases {
            attention_inputs: attention,
            attention_output: attention,
            mlp: fields.flag("mlp_bias", false)?,
        },
        head: match fields.flag("tie_word_embeddings", defaults.is_tied)? {
            true => HeadKind::Tied,
            false => HeadKind::Own,
        },
        initial_deviation: fields.initial_deviation()?,
        residual_deviation: fields.initial_deviation()?,
        ..Description::default()
    })
}
