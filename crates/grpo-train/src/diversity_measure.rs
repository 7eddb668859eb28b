//! A measure of diversity as sections of the configuration name it: `measure`, and `embedder` for the one that needs it.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_rewards::EmbedderConfig;
use grpo_text::{Diversity, DiversityMeasure, Embedder};

use crate::TrainError;

/// Refuses an embedder that nothing asks, and a measure that lacks one; `section` has the two keys.
///
/// # Errors
/// These, and settings of the embedder that cannot be.
pub(crate) fn check(
    section: &'static str,
    measure: DiversityMeasure,
    embedder: Option<&EmbedderConfig>,
) -> Result<(), TrainError> {
    match (measure, embedder) {
        (DiversityMeasure::Semantic, None) => Err(TrainError::NoEmbedder { section }),
        (DiversityMeasure::Bleu | DiversityMeasure::Distinct, Some(_)) => {
            Err(TrainError::IdleEmbedder { section })
        }
        _ => check_embedder(section, embedder),
    }
}

/// Looks at the settings of an embedder, where there is one.
///
/// # Errors
/// Settings that cannot be.
pub(crate) fn check_embedder(
    section: &'static str,
    embedder: Option<&EmbedderConfig>,
) -> Result<(), TrainError> {
    let checked = embedder.into_iter().try_for_each(EmbedderConfig::check);
    checked.map_err(|fault| TrainError::Embedder { section, fault })
}

/// The measure; the model of an embedder is read, and lives on `device`.
///
/// # Errors
/// As [`check`], and an embedder that cannot be read.
pub(crate) fn build(
    section: &'static str,
    measure: DiversityMeasure,
    embedder: Option<&EmbedderConfig>,
    device: &Device,
) -> Result<Diversity, TrainError> {
    Diversity::new(measure, build_embedder(section, embedder, device)?)
        .map_err(|_absent| TrainError::NoEmbedder { section })
}

/// The embedder that a section asks for, where it asks for one.
///
/// # Errors
/// One that cannot be read.
pub(crate) fn build_embedder(
    section: &'static str,
    embedder: Option<&EmbedderConfig>,
    device: &Device,
) -> Result<Option<Arc<dyn Embedder>>, TrainError> {
    let built = embedder.map(|embedder| embedder.build(device)).transpose();
    built.map_err(|fault| TrainError::Embedder { section, fault })
}
