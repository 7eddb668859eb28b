//! SmolLM3 (Hugging Face 2025): Llama models in which every fourth layer does not rotate queries and
//! keys (Yang et al. 2025, "Rope to Nope and Back Again").

use serde_json::Value;

use super::llama::{Defaults, NAMES, dense};
use super::positions::{PARTIAL, refuse_windows, windows};
use super::{FamilyKind, Fields};
use crate::description::{Description, LayerAttention};

/// The family `smollm3`.
pub(super) static SMOLLM3: FamilyKind =
    FamilyKind::new("smollm3", NAMES, describe).with_models("SmolLM3", PARTIAL);

fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    let defaults =
        Defaults { kv_heads: Some(4), base: 2_000_000.0, is_tied: true, ..Defaults::default() };
    let description = dense(fields, &defaults)?;
    let layers = description.layers;
    let rotated = rotated_layers(fields, layers)?;
    let uses_window = fields.flag("use_sliding_window", false)?
        && fields.optional_size("sliding_window")?.is_some();
    let windows = match uses_window {
        true => windows(fields, layers, |layer| !rotated[layer])?,
        false => {
            refuse_windows(fields)?;
            Vec::new()
        }
    };
    let of = |(layer, &rotated): (usize, &bool)| {
        let window = windows.get(layer).and_then(|attention| attention.window);
        LayerAttention::with_rotation(rotated).within(window)
    };
    let layer_attention = rotated.iter().enumerate().map(of).collect();
    Ok(Description { layer_attention, ..description })
}

/// Returns whether each layer rotates queries and keys. In `no_rope_layers`, which can be longer, 1
/// says that it does.
fn rotated_layers(fields: &Fields<'_>, layers: usize) -> Result<Vec<bool>, String> {
    let list = match fields.json().get("no_rope_layers") {
        None | Some(Value::Null) => {
            let interval = fields.optional_size("no_rope_layer_interval")?.unwrap_or(4);
            if interval == 0 {
                return Err(
                    "no_rope_layer_interval = 0 is out of range; expected 1 or more".to_owned()
                );
            }
            return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
        }
        Some(list) => list,
    };
    let flags: Option<Vec<bool>> = list.as_array().and_then(|list| {
        list.iter()
            .map(|flag| flag.as_u64().filter(|flag| *flag < 2).map(|flag| flag == 1))
            .collect()
    });
    match flags {
        Some(flags) if flags.len() >= layers => Ok(flags[..layers].to_vec()),
        _ => Err(format!(
            "no_rope_layers is not a list of at least {layers} numbers that are 0 or 1, one per layer"
        )),
    }
}
