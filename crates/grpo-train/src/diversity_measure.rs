//! A measure of diversity as sections of the configuration name it: `measure`, and `embedder` for the one that needs it.

use burn::tensor::Device;
use grpo_rewards::EmbedderConfig;
use grpo_text::{Diversity, DiversityMeasure};

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
        (DiversityMeasure::Semantic, Some(embedder)) => {
            embedder.check().map_err(|fault| TrainError::Embedder { section, fault })
        }
        (DiversityMeasure::Bleu | DiversityMeasure::Distinct, Some(_)) => {
            Err(TrainError::IdleEmbedder { section })
        }
        (DiversityMeasure::Bleu | DiversityMeasure::Distinct, None) => Ok(()),
    }
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
    let embedder = embedder.map(|embedder| embedder.build(device)).transpose();
    let embedder = embedder.map_err(|fault| TrainError::Embedder { section, fault })?;
    Diversity::new(measure, embedder).map_err(|_absent| TrainError::NoEmbedder { section })
}
