//! Engagement models, which predict how well a reply to a tweet is received.

mod description;
mod learned;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, DataError};
use grpo_eval::{EmbedError, Embedder};
use grpo_model::{ModelError, Perceptron};

use self::description::feature_count;
use grpo_rewards::EmbedderConfig;

pub use self::description::{
    EngagementDescription, EngagementGate, EngagementMeasures, EngagementObjective,
    EngagementReport, engagement_features,
};
pub(crate) use self::learned::LearnedConfig;
pub use self::learned::LearnedReward;

/// File that contains the weights of the head.
const WEIGHTS: &str = "head.safetensors";

/// An engagement model: a trained head on top of an embedder.
pub struct EngagementModel {
    description: EngagementDescription,
    head: Perceptron,
    embedder: Arc<dyn Embedder>,
}

impl EngagementModel {
    /// Creates a model from its parts.
    ///
    /// # Panics
    /// Panics if the head or the embedder does not match the description.
    pub fn new(
        description: EngagementDescription,
        head: Perceptron,
        embedder: Arc<dyn Embedder>,
    ) -> Self {
        let features = feature_count(description.width);
        assert_eq!(head.features(), features, "the head's features");
        assert_eq!(head.hidden(), description.hidden, "the head's hidden layers");
        assert_eq!(embedder.identity(), description.embedder_identity, "the embedder");
        Self { description, head, embedder }
    }

    /// Loads a model trained with `grpo train-engagement`. By default, it uses the embedder named
    /// in the description. The gate is not checked.
    ///
    /// # Errors
    /// Returns an error if a file is missing or damaged, or if the embedder is missing or differs
    /// from the one used for training.
    pub fn load(
        folder: &Path,
        embedder: Option<&EmbedderConfig>,
        device: &Device,
    ) -> Result<Self, ConfigFault> {
        let description = EngagementDescription::load(folder).map_err(of_model)?;
        let embedder = embedder.unwrap_or(&description.embedder).build(device)?;
        let found = embedder.identity();
        if found != description.embedder_identity || embedder.width() != description.width {
            return Err(of_model(format!(
                "{}: the model was trained on vectors from {}, but this embedder produces vectors from {found}; use the embedder that it was trained with, or train it again",
                folder.display(),
                description.embedder_identity
            )));
        }
        let features = feature_count(description.width);
        let path = folder.join(WEIGHTS);
        let head = Perceptron::load(&path, features, description.hidden, device);
        let head = head.map_err(of_model)?;
        Ok(Self { description, head, embedder })
    }

    /// Loads the head in `folder`. Its layer sizes must match those of `like`.
    ///
    /// # Errors
    /// Returns an error if the file is missing or damaged.
    pub fn load_head(folder: &Path, like: &Perceptron) -> Result<Perceptron, ModelError> {
        let (features, hidden, device) = (like.features(), like.hidden(), like.device());
        Perceptron::load(&folder.join(WEIGHTS), features, hidden, &device)
    }

    /// Writes the description and the weights to `folder`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(
        folder: &Path,
        description: &EngagementDescription,
        head: &Perceptron,
    ) -> Result<(), DataError> {
        description.write_to(folder)?;
        let written = head.write(&folder.join(WEIGHTS));
        written.map_err(|error| DataError::Invalid(error.to_string()))
    }

    /// Returns the model's description.
    pub fn description(&self) -> &EngagementDescription {
        &self.description
    }

    /// Checks that the model passed its gate. `folder` is used in the error message.
    ///
    /// # Errors
    /// Returns an error if training was interrupted or the model did not pass the gate.
    pub fn check_gate(&self, folder: &Path) -> Result<(), ConfigFault> {
        let found = match &self.description.report {
            Some(report) if report.passed => return Ok(()),
            Some(report) => report.gate.against(&report.test),
            None => "its training did not finish".to_owned(),
        };
        Err(of_model(format!(
            "{}: the engagement model did not pass its gate: {found}; train it on more replies, or set accept_failed_gate = true to use it anyway",
            folder.display()
        )))
    }

    /// Predicts a score between 0 and 1 for each (tweet, reply) pair. Each score is independent of
    /// the remaining pairs.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub fn predict(&self, pairs: &[(&str, &str)]) -> Result<Vec<f64>, EmbedError> {
        use rayon::prelude::*;
        let features = engagement_features(&*self.embedder, pairs)?;
        Ok(features.par_iter().map(|features| self.head.predict(features)).collect())
    }
}

/// Converts a model error to a configuration error.
fn of_model(fault: impl Display) -> ConfigFault {
    ConfigFault::from_sentence("", format!("reward.model: {fault}"))
}

impl std::fmt::Debug for EngagementModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngagementModel").field("description", &self.description).finish()
    }
}
