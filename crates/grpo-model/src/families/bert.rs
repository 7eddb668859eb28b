//! BERT (Devlin et al. 2019) and compatible models such as MiniLM. These are bidirectional encoders
//! with post-norm blocks.

use super::{FamilyKind, Fields};
use crate::description::{Activation, Description, HeadKind, NormKind, NormOrder, TokenType};
use crate::names::Names;

/// The family `bert`.
pub static BERT: FamilyKind = FamilyKind {
    not_causal: Some(
        "an encoder (bert), which does not predict next tokens; use a causal language model",
    ),
    ..FamilyKind::new("bert", NAMES, describe)
        .with_models("BERT, MiniLM, as embedders of rewards", "")
};

const NAMES: Names = Names {
    prefix: "bert.",
    blocks: "encoder.layer.",
    outside: &[
        ("token_embedding", "embeddings.word_embeddings"),
        ("position_embedding", "embeddings.position_embeddings"),
        ("type_embedding", "embeddings.token_type_embeddings"),
        ("norm", "embeddings.LayerNorm"),
    ],
    inside: &[
        ("attention.inputs.0", "attention.self.query"),
        ("attention.inputs.1", "attention.self.key"),
        ("attention.inputs.2", "attention.self.value"),
        ("attention.output", "attention.output.dense"),
        ("attention_norm", "attention.output.LayerNorm"),
        ("mlp.up", "intermediate.dense"),
        ("mlp.down", "output.dense"),
        ("mlp_norm", "output.LayerNorm"),
    ],
    conv1d: false,
    // Position IDs, and heads for other tasks.
    ignored: |name| {
        name.ends_with("embeddings.position_ids")
            || ["pooler.", "bert.pooler.", "cls.", "classifier."]
                .iter()
                .any(|head| name.starts_with(head))
    },
};

pub(super) fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    fields.refuse("is_decoder", false)?;
    fields.refuse("add_cross_attention", false)?;
    let kind = fields.text("position_embedding_type")?.unwrap_or("absolute");
    if kind != "absolute" {
        return Err(format!(
            "position_embedding_type = \"{kind}\" is not supported; supported: absolute"
        ));
    }
    let width = fields.size("hidden_size")?;
    let heads = fields.size("num_attention_heads")?;
    if heads == 0 || !width.is_multiple_of(heads) {
        return Err(format!(
            "hidden_size = {width} is not a multiple of num_attention_heads = {heads}"
        ));
    }
    Ok(Description {
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("max_position_embeddings")?,
        width,
        layers: fields.size("num_hidden_layers")?,
        heads,
        kv_heads: heads,
        head_width: width / heads,
        mlp_width: fields.size("intermediate_size")?,
        norm: NormKind::Layer { epsilon: fields.positive("layer_norm_eps", Some(1e-12))? },
        order: NormOrder::Post,
        token_type: Some(TokenType {
            rows: fields.optional_size("type_vocab_size")?.unwrap_or(2),
            token: 0,
        }),
        activation: match fields.text("hidden_act")?.unwrap_or("gelu") {
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
            other => {
                return Err(format!(
                    "hidden_act = \"{other}\" is not supported; supported: gelu, gelu_new, gelu_pytorch_tanh"
                ));
            }
        },
        causal: false,
        head: HeadKind::None,
        initial_deviation: fields.initial_deviation()?,
        residual_deviation: fields.initial_deviation()?,
        ..Description::default()
    })
}
