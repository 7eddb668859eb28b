//! Granite 3 (Granite Team, IBM 2024): Llama models with constant factors of embeddings, products of
//! queries and keys, residual connections and logits.

use super::llama::{Defaults, NAMES, dense};
use super::positions::{WINDOWS, refuse_windows};
use super::{FamilyKind, Fields};
use crate::description::{Description, Scales};

/// The family `granite`.
pub(super) static GRANITE: FamilyKind =
    FamilyKind::new("granite", NAMES, describe).with_models("Granite 3 without experts", WINDOWS);

fn describe(fields: &Fields<'_>) -> Result<Description, String> {
    refuse_windows(fields)?;
    let factor = |key: &str| fields.positive(key, Some(1.0));
    let scales = Scales {
        embedding: factor("embedding_multiplier")?,
        attention: Some(factor("attention_multiplier")?),
        residual: factor("residual_multiplier")?,
        logits: 1.0 / factor("logits_scaling")?,
        ..Scales::default()
    };
    Ok(Description { scales, ..dense(fields, &Defaults::default())? })
}
