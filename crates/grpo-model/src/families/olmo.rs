//! OLMo 2 (OLMo Team 2025, "2 OLMo 2 Furious") and OLMo 3: norms follow attention and MLP instead of
//! preceding them, and queries and keys are normalised over all heads. In OLMo 3, three of four
//! layers have a window.

use burn::tensor::Tensor;

use super::llama::{self, Defaults, dense};
use super::positions::{PARTIAL, WINDOWS, refuse_windows, two_rotaries, windows};
use super::{FamilyKind, Fields};
use crate::description::{Description, Positions, QueryKeyNorm};
use crate::names::Names;
use crate::{BlockForm, BlockLayers, OwnBlock, OwnLayers};

/// The family `olmo2`.
pub(super) static OLMO2: FamilyKind =
    FamilyKind::new("olmo2", NAMES, olmo2).with_models("OLMo 2", WINDOWS);
/// The family `olmo3`.
pub(super) static OLMO3: FamilyKind =
    FamilyKind::new("olmo3", NAMES, olmo3).with_models("OLMo 3", PARTIAL);

const NAMES: Names = Names {
    inside: &[
        ("attention.inputs.0", "self_attn.q_proj"),
        ("attention.inputs.1", "self_attn.k_proj"),
        ("attention.inputs.2", "self_attn.v_proj"),
        ("attention.query_norm", "self_attn.q_norm"),
        ("attention.key_norm", "self_attn.k_norm"),
        ("attention.output", "self_attn.o_proj"),
        ("norms.0", "post_attention_layernorm"),
        ("norms.1", "post_feedforward_layernorm"),
        ("mlp.gate", "mlp.gate_proj"),
        ("mlp.up", "mlp.up_proj"),
        ("mlp.down", "mlp.down_proj"),
    ],
    ..llama::NAMES
};

/// Base of the rotary positions of OLMo 3.
const BASE: f64 = 500_000.0;

fn olmo2(fields: &Fields<'_>) -> Result<Description, String> {
    refuse_windows(fields)?;
    with_norms_behind(fields, &Defaults { epsilon: 1e-5, ..Defaults::default() })
}

fn olmo3(fields: &Fields<'_>) -> Result<Description, String> {
    let defaults = Defaults { epsilon: 1e-5, base: BASE, ..Defaults::default() };
    let mut json = fields.json().clone();
    json.remove("rope_parameters"); // read below
    let description = with_norms_behind(&Fields::new(&json), &defaults)?;
    let layer_attention = windows(fields, description.layers, |layer| (layer + 1) % 4 != 0)?;
    let [full, sliding] = two_rotaries(fields, description.context, [BASE, BASE], None)?;
    Ok(Description {
        layer_attention,
        positions: Positions::Rotary(full),
        window_rotary: Some(sliding),
        ..description
    })
}

fn with_norms_behind(fields: &Fields<'_>, defaults: &Defaults) -> Result<Description, String> {
    fields.refuse("mlp_bias", false)?;
    let description = dense(fields, defaults)?;
    let block = Some(OwnBlock::new(NormsBehind { width: description.width }));
    Ok(Description { block, query_key_norm: QueryKeyNorm::AllHeads, ..description })
}

#[derive(Debug)]
struct NormsBehind {
    width: usize,
}

impl BlockForm for NormsBehind {
    fn layers(&self) -> OwnLayers {
        OwnLayers { norms: vec![self.width; 2], has_mlp: true, ..OwnLayers::default() }
    }

    fn forward(&self, x: Tensor<2>, layers: &mut dyn BlockLayers) -> Tensor<2> {
        let attended = layers.attention(x.clone()); // [tokens, width]
        let attended = layers.norm(0, attended);
        let x = x + layers.dropout(attended);
        let widened = layers.mlp(x.clone());
        let widened = layers.norm(1, widened);
        x + layers.dropout(widened)
    }
}
