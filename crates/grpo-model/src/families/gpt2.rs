//! GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"), compatible
//! with `GPT2LMHeadModel` in transformers.
//!
//! It has learned positions, pre-norm blocks and a single fused matrix for queries, keys and
//! values.

use super::{FamilyKind, Fields};
use crate::description::{Activation, Description, HeadKind, NormKind};
use crate::names::Names;

/// The family `gpt2`.
pub(super) static GPT2: FamilyKind = FamilyKind::new("gpt2", NAMES, describe)
    .with_models("GPT-2, DistilGPT2", "scaling by layer, attention to an encoder");

const NAMES: Names = Names {
    prefix: "transformer.",
    blocks: "h.",
    outside: &[
        ("token_embedding", "wte"),
        ("position_embedding", "wpe"),
        ("norm", "ln_f"),
        ("head", "lm_head"),
    ],
    inside: &[
        ("attention_norm", "ln_1"),
        ("attention.inputs.0", "attn.c_attn"),
        ("attention.output", "attn.c_proj"),
        ("mlp_norm", "ln_2"),
        ("mlp.up", "mlp.c_fc"),
        ("mlp.down", "mlp.c_proj"),
    ],
    conv1d: true,
    // Causal masks, and the tied output layer as a copy of the embedding.
    ignored: |name| {
        name.ends_with(".attn.bias")
            || name.ends_with(".attn.masked_bias")
            || name == "lm_head.weight"
    },
};

pub(super) fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    fields.refuse("scale_attn_weights", true)?;
    fields.refuse("scale_attn_by_inverse_layer_idx", false)?;
    fields.refuse("add_cross_attention", false)?;
    let width = fields.size("n_embd")?;
    let heads = fields.size("n_head")?;
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(format!("n_embd = {width} is not a multiple of n_head = {heads}"));
    }
    let context = match fields.optional_size("n_positions")? {
        Some(context) => context,
        None => fields.size("n_ctx")?,
    };
    Ok(Description {
        vocabulary: fields.size("vocab_size")?,
        context,
        width,
        layers: fields.size("n_layer")?,
        heads,
        kv_heads: heads,
        head_width: width / heads,
        mlp_width: fields.optional_size("n_inner")?.unwrap_or(width.saturating_mul(4)),
        norm: NormKind::Layer { epsilon: fields.positive("layer_norm_epsilon", Some(1e-5))? },
        activation: match fields.text("activation_function")?.unwrap_or("gelu_new") {
            "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
            "gelu" => Activation::Gelu,
            other => {
                return Err(format!(
                    "activation_function = \"{other}\" is not supported; supported: gelu_new, gelu_pytorch_tanh, gelu"
                ));
            }
        },
        joint_inputs: true,
        head: match fields.flag("tie_word_embeddings", true)? {
            true => HeadKind::Tied,
            false => HeadKind::Own,
        },
        initial_deviation: fields.initial_deviation()?,
        residual_deviation: fields.initial_deviation()?,
        ..Description::default()
    })
}
