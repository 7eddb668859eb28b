//! Gemma 3 (Gemma Team 2025), the text models: norms around attention and around the MLP, GeGLU,
//! scaled embeddings, and layers with a window, which have a rotary base of their own.

use burn::tensor::Tensor;

use super::llama::{self, Defaults, dense};
use super::positions::{two_rotaries, windows};
use super::{FamilyKind, Fields};
use crate::description::{
    Activation, Biases, Description, NormKind, Positions, QueryKeyNorm, Scales,
};
use crate::names::Names;
use crate::{BlockForm, BlockLayers, OwnBlock, OwnLayers};

/// The family `gemma3_text`.
pub(super) static GEMMA3: FamilyKind = FamilyKind::new("gemma3_text", NAMES, describe).with_models(
    "text models of Gemma 3: 270M, 1B",
    "bounds of logits and scores, attention in both directions, a vision part (model_type gemma3), heads that are rotated in part, scalings of positions other than linear, llama3 and yarn",
);

const NAMES: Names = Names {
    inside: &[
        ("norms.0", "input_layernorm"),
        ("attention.inputs.0", "self_attn.q_proj"),
        ("attention.inputs.1", "self_attn.k_proj"),
        ("attention.inputs.2", "self_attn.v_proj"),
        ("attention.query_norm", "self_attn.q_norm"),
        ("attention.key_norm", "self_attn.k_norm"),
        ("attention.output", "self_attn.o_proj"),
        ("norms.1", "post_attention_layernorm"),
        ("norms.2", "pre_feedforward_layernorm"),
        ("mlp.gate", "mlp.gate_proj"),
        ("mlp.up", "mlp.up_proj"),
        ("mlp.down", "mlp.down_proj"),
        ("norms.3", "post_feedforward_layernorm"),
    ],
    ..llama::NAMES
};

/// Bases of the rotary positions of layers without and with a window.
const BASES: [f64; 2] = [1_000_000.0, 10_000.0];

fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    fields.refuse("use_bidirectional_attention", false)?;
    for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
        if let Some(cap) = fields.optional_number(key)? {
            return Err(format!("{key} = {cap} is not supported; supported: null"));
        }
    }
    match fields.text("hidden_activation")?.unwrap_or("gelu_pytorch_tanh") {
        "gelu_pytorch_tanh" => {}
        other => {
            return Err(format!(
                "hidden_activation = \"{other}\" is not supported; supported: gelu_pytorch_tanh"
            ));
        }
    }
    let defaults = Defaults {
        head_width: Some(256),
        kv_heads: Some(4),
        base: BASES[0],
        is_tied: true,
        ..Defaults::default()
    };
    let mut json = fields.json().clone();
    json.remove("hidden_act");
    json.remove("rope_parameters"); // read below
    let description = dense(&Fields::new(&json), &defaults)?;
    let NormKind::Rms { epsilon } = description.norm else { unreachable!("as in Llama") };
    let pattern = match fields.optional_size("sliding_window_pattern")? {
        Some(0) => {
            return Err("sliding_window_pattern = 0 is out of range; expected 1 or more".to_owned());
        }
        pattern => pattern.unwrap_or(6),
    };
    let layer_attention =
        windows(fields, description.layers, |layer| !(layer + 1).is_multiple_of(pattern))?;
    let local_base = Some("rope_local_base_freq");
    let [full, sliding] = two_rotaries(fields, description.context, BASES, local_base)?;
    let of_queries = fields.positive("query_pre_attn_scalar", Some(256.0))?;
    Ok(Description {
        norm: NormKind::RmsAroundOne { epsilon },
        block: Some(OwnBlock::new(NormsAround { width: description.width })),
        activation: Activation::GeGluTanh,
        query_key_norm: QueryKeyNorm::EachHead,
        layer_attention,
        positions: Positions::Rotary(full),
        window_rotary: Some(sliding),
        biases: Biases { mlp: false, ..description.biases },
        scales: Scales {
            embedding: (description.width as f64).sqrt(),
            attention: Some(of_queries.powf(-0.5)),
            ..Scales::default()
        },
        ..description
    })
}

#[derive(Debug)]
struct NormsAround {
    width: usize,
}

impl BlockForm for NormsAround {
    fn layers(&self) -> OwnLayers {
        OwnLayers { norms: vec![self.width; 4], has_mlp: true, ..OwnLayers::default() }
    }

    fn forward(&self, x: Tensor<2>, layers: &mut dyn BlockLayers) -> Tensor<2> {
        let normal = layers.norm(0, x.clone()); // [tokens, width]
        let attended = layers.attention(normal);
        let attended = layers.norm(1, attended);
        let x = x + layers.dropout(attended);
        let normal = layers.norm(2, x.clone());
        let widened = layers.mlp(normal);
        let widened = layers.norm(3, widened);
        x + layers.dropout(widened)
    }
}
