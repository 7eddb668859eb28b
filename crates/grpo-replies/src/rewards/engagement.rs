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

/// File of the head's weights.
const WEIGHTS: &str = "head.safetensors";

/// A head and its embedder.
pub struct EngagementModel {
    description: EngagementDescription,
    head: Perceptron,
    embedder: Arc<dyn Embedder>,
}

impl EngagementModel {
    /// Combines a head and its embedder.
    ///
    /// # Panics
    /// Panics if head or embedder do not match the description.
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

    /// Loads a folder of `grpo train-engagement`, by default with the embedder that it names. The
    /// gate is not checked.
    ///
    /// # Errors
    /// Returns an error if a file is missing or damaged, or if the embedder is missing or not that
    /// of the training.
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
                "{}: the model was trained on vectors of {}, and the embedder makes those of {found}; name the embedder that it was trained with, or train it again",
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

    /// Loads the head of a folder with the sizes of `like`.
    ///
    /// # Errors
    /// Returns an error if a file is missing or damaged.
    pub fn load_head(folder: &Path, like: &Perceptron) -> Result<Perceptron, ModelError> {
        let (features, hidden, device) = (like.features(), like.hidden(), like.device());
        Perceptron::load(&folder.join(WEIGHTS), features, hidden, &device)
    }

    /// Writes both files into `folder`.
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

    /// Returns the description.
    pub fn description(&self) -> &EngagementDescription {
        &self.description
    }

    /// Rejects a model that did not pass its gate; `folder` is for the message.
    ///
    /// # Errors
    /// Returns an error if the training ended early or the gate failed.
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

    /// Predicts a score in 0..1 for each (tweet, reply), independent of other pairs.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub fn predict(&self, pairs: &[(&str, &str)]) -> Result<Vec<f64>, EmbedError> {
        use rayon::prelude::*;
        let features = engagement_features(&*self.embedder, pairs)?;
        Ok(features.par_iter().map(|features| self.head.predict(features)).collect())
    }
}

/// Converts an error of the model to an error of the reward.
fn of_model(fault: impl Display) -> ConfigFault {
    ConfigFault::from_sentence("", format!("reward.model: {fault}"))
}

impl std::fmt::Debug for EngagementModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngagementModel").field("description", &self.description).finish()
    }
}
