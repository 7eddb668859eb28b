//! Llama (Touvron et al. 2023; Grattafiori et al. 2024), Qwen2 (Yang et al. 2024) and Qwen3 (Yang
//! et al. 2025).
//!
//! All three are pre-norm transformers with RMS norms, rotary positions, grouped-query attention
//! and a gated MLP. They differ in their biases, and in whether queries and keys are normalised.

use super::{FamilyKind, Fields};
use crate::description::{
    Activation, Biases, Description, HeadKind, NormKind, Positions, QueryKeyNorm, RotaryConfig,
    RotaryScaling,
};
use crate::names::Names;

/// The family `llama`: Llama 1 to 3, and other models with the same architecture.
pub(super) static LLAMA: FamilyKind =
    FamilyKind::new("llama", NAMES, |fields| describe(Variant::Llama, fields));
/// The family `qwen2`: Qwen2 and Qwen2.5, which are Llama models with query, key and value biases.
pub(super) static QWEN2: FamilyKind =
    FamilyKind::new("qwen2", NAMES, |fields| describe(Variant::Qwen2, fields));
/// The family `qwen3`: dense Qwen3 models, which are Llama models with query and key norms.
pub(super) static QWEN3: FamilyKind =
    FamilyKind::new("qwen3", NAMES, |fields| describe(Variant::Qwen3, fields));

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Llama,
    Qwen2,
    Qwen3,
}

const NAMES: Names = Names {
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

fn describe(variant: Variant, fields: &Fields<'_>) -> Result<Description, String> {
    let width = fields.size("hidden_size")?;
    let heads = fields.size("num_attention_heads")?;
    let head_width = match fields.optional_size("head_dim")? {
        Some(head_width) => head_width,
        // Qwen3's default head width is independent of the model width.
        None if variant == Variant::Qwen3 => 128,
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
    fields.refuse("use_sliding_window", false)?;
    refuse_partial_rotation(fields)?;
    refuse_other_layers(fields)?;
    let context = fields.size("max_position_embeddings")?;
    let biases = match variant {
        Variant::Qwen2 => Biases { attention_inputs: true, attention_output: false, mlp: false },
        _ => {
            let attention = fields.flag("attention_bias", false)?;
            Biases {
                attention_inputs: attention,
                attention_output: attention,
                mlp: variant == Variant::Llama && fields.flag("mlp_bias", false)?,
            }
        }
    };
    Ok(Description {
        vocabulary: fields.size("vocab_size")?,
        context,
        width,
        layers: fields.size("num_hidden_layers")?,
        heads,
        kv_heads: fields.optional_size("num_key_value_heads")?.unwrap_or(heads),
        head_width,
        mlp_width: fields.size("intermediate_size")?,
        norm: NormKind::Rms { epsilon: fields.positive("rms_norm_eps", Some(1e-6))? },
        positions: Positions::Rotary(rotary(fields, context)?),
        activation: Activation::SwiGlu,
        biases,
        query_key_norm: match variant {
            Variant::Qwen3 => QueryKeyNorm::EachHead,
            Variant::Llama | Variant::Qwen2 => QueryKeyNorm::None,
        },
        head: match fields.flag("tie_word_embeddings", false)? {
            true => HeadKind::Tied,
            false => HeadKind::Own,
        },
        initial_deviation: fields.initial_deviation()?,
        residual_deviation: fields.initial_deviation()?,
        ..Description::default()
    })
}

/// Rejects models that rotate only a fraction of each head.
pub(super) fn refuse_partial_rotation(fields: &Fields<'_>) -> Result<(), String> {
    let inner = fields.object("rope_parameters")?;
    for fields in inner.iter().chain([fields]) {
        match fields.optional_number("partial_rotary_factor")? {
            Some(factor) if factor != 1.0 => {
                return Err(format!("partial_rotary_factor = {factor} is not supported"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Rejects layer types other than full attention, e.g. sliding windows.
fn refuse_other_layers(fields: &Fields<'_>) -> Result<(), String> {
    let Some(kinds) = fields.json().get("layer_types").and_then(|kinds| kinds.as_array()) else {
        return Ok(());
    };
    match kinds.iter().find(|kind| kind.as_str() != Some("full_attention")) {
        Some(kind) => Err(format!("layer type {kind} is not supported; supported: full_attention")),
        None => Ok(()),
    }
}

/// Reads `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (older
/// checkpoints).
pub(super) fn rotary(fields: &Fields<'_>, context: usize) -> Result<RotaryConfig, String> {
    let newer = fields.object("rope_parameters")?;
    let older = fields.object("rope_scaling")?;
    // As in transformers 5, the older key takes precedence unless it is empty.
    let scaling = older.filter(|older| !older.json().is_empty()).or(newer);
    let inner_base = match &scaling {
        Some(scaling) => scaling.optional_number("rope_theta")?,
        None => None,
    };
    let base = match inner_base {
        Some(base) => base,
        None => fields.positive("rope_theta", Some(10_000.0))?,
    };
    if base <= 1.0 {
        return Err(format!("rope_theta = {base} is out of range; expected more than 1"));
    }
    Ok(RotaryConfig {
        base,
        scaling: match &scaling {
            Some(scaling) => rotary_scaling(scaling, context)?,
            None => RotaryScaling::Default,
        },
    })
}

fn rotary_scaling(fields: &Fields<'_>, context: usize) -> Result<RotaryScaling, String> {
    let kind = match fields.text("rope_type")? {
        Some(kind) => kind,
        None => fields.text("type")?.unwrap_or("default"),
    };
    let original_context = || -> Result<usize, String> {
        match fields.optional_size("original_max_position_embeddings")?.unwrap_or(context) {
            0 => Err("original_max_position_embeddings = 0 is out of range; expected 1 or more"
                .to_owned()),
            original => Ok(original),
        }
    };
    match kind {
        "default" => Ok(RotaryScaling::Default),
        "linear" => Ok(RotaryScaling::Linear { factor: fields.positive("factor", None)? }),
        "llama3" => {
            let low_frequency_factor = fields.positive("low_freq_factor", None)?;
            let high_frequency_factor = fields.positive("high_freq_factor", None)?;
            if high_frequency_factor <= low_frequency_factor {
                return Err(format!(
                    "high_freq_factor = {high_frequency_factor} must be greater than low_freq_factor = {low_frequency_factor}"
                ));
            }
            Ok(RotaryScaling::Llama3 {
                factor: fields.positive("factor", None)?,
                low_frequency_factor,
                high_frequency_factor,
                original_context: original_context()?,
            })
        }
        "yarn" => {
            let factor = fields.positive("factor", None)?;
            Ok(RotaryScaling::Yarn {
                factor,
                beta_fast: fields.positive("beta_fast", Some(32.0))?,
                beta_slow: fields.positive("beta_slow", Some(1.0))?,
                original_context: original_context()?,
                attention_factor: yarn_attention_factor(fields, factor)?,
                truncate: fields.flag("truncate", true)?,
            })
        }
        other => Err(format!(
            "rope_type = \"{other}\" is not supported; supported: default, linear, llama3, yarn"
        )),
    }
}

/// Returns the attention factor. The default is that of transformers:
/// `0.1 · mscale · ln(factor) + 1`.
fn yarn_attention_factor(fields: &Fields<'_>, factor: f64) -> Result<f64, String> {
    if let Some(given) = fields.optional_number("attention_factor")? {
        return Ok(given);
    }
    let scale = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    let given = (fields.optional_number("mscale")?, fields.optional_number("mscale_all_dim")?);
    Ok(match given {
        (Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => scale(mscale) / scale(all),
        _ => scale(1.0),
    })
}
