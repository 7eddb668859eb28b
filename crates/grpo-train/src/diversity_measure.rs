//! The `measure` and `embedder` keys in a configuration section.

use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_eval::{Diversity, DiversityMeasure};
use grpo_rewards::EmbedderConfig;

/// Checks that an embedder is configured if and only if the measure in `section` needs one.
///
/// # Errors
/// Returns an error if the check fails or the embedder settings are invalid.
pub fn check_measure(
    section: &'static str,
    measure: DiversityMeasure,
    embedder: Option<&EmbedderConfig>,
) -> Result<(), ConfigFault> {
    match (measure, embedder) {
        (DiversityMeasure::Semantic, None) => Err(missing_embedder(section)),
        (DiversityMeasure::Semantic, Some(embedder)) => {
            embedder.check().map_err(|fault| of_embedder(section, &fault))
        }
        (DiversityMeasure::Bleu | DiversityMeasure::Distinct, embedder) => {
            no_embedder(section, embedder)
        }
    }
}

/// Checks that no embedder is configured.
///
/// # Errors
/// Returns an error if there is one.
pub fn no_embedder(
    section: &'static str,
    embedder: Option<&EmbedderConfig>,
) -> Result<(), ConfigFault> {
    match embedder {
        None => Ok(()),
        Some(_) => Err(ConfigFault::new(
            format!("{section}.embedder"),
            format!("{section}.embedder is only valid for the measure \"semantic\""),
            "remove it",
        )),
    }
}

/// Builds the diversity measure. If an embedder is configured, its model is loaded on `device`.
///
/// # Errors
/// Returns an error if [`check_measure`] fails or the embedder cannot be loaded.
pub fn build_measure(
    section: &'static str,
    measure: DiversityMeasure,
    embedder: Option<&EmbedderConfig>,
    device: &Device,
) -> Result<Diversity, ConfigFault> {
    let embedder = embedder.map(|embedder| embedder.build(device)).transpose();
    let embedder = embedder.map_err(|fault| of_embedder(section, &fault))?;
    Diversity::new(measure, embedder).map_err(|_absent| missing_embedder(section))
}

fn missing_embedder(section: &str) -> ConfigFault {
    ConfigFault::new(
        format!("{section}.measure"),
        format!(
            "{section}.measure = \"semantic\" requires an embedder; set for example {section}.embedder = {{ type = \"hashed_ngrams\" }}, or use another measure"
        ),
        "",
    )
}

fn of_embedder(section: &str, fault: &ConfigFault) -> ConfigFault {
    ConfigFault::from_sentence(format!("{section}.embedder"), format!("{section}.{fault}"))
}
