//! Mistral (Jiang et al. 2023) and Ministral: Llama models whose layers can have a sliding window.

use serde_json::Value;

use super::llama::{Defaults, NAMES, dense};
use super::positions::{PARTIAL, windows};
use super::{FamilyKind, Fields};
use crate::description::{Biases, Description};

/// The family `mistral`: all layers have the same window, or none.
pub(super) static MISTRAL: FamilyKind = FamilyKind::new("mistral", NAMES, mistral)
    .with_models("Mistral 7B, Ministral 8B of 2024, and others without vision", PARTIAL);
/// The family `ministral`: `layer_types` says which layers have a window.
pub(super) static MINISTRAL: FamilyKind = FamilyKind::new("ministral", NAMES, ministral)
    .with_models("Ministral with windows in some layers", PARTIAL);

fn mistral(fields: &Fields<'_>) -> Result<Description, String> {
    if fields.json().get("layer_types").is_some_and(|kinds| !kinds.is_null()) {
        return Err("layer_types is not a key of this family, which ignores it in transformers; set model_type to \"ministral\"".to_owned());
    }
    ministral(fields)
}

fn ministral(fields: &Fields<'_>) -> Result<Description, String> {
    let description = dense(fields, &Defaults { kv_heads: Some(8), ..Defaults::default() })?;
    let has_window = !fields.json().get("sliding_window").is_some_and(Value::is_null);
    let layer_attention = windows(fields, description.layers, |_| has_window)?;
    Ok(Description { layer_attention, biases: Biases::everywhere(false), ..description })
}
