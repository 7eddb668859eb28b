//! The learned engagement model: how well a reply to a tweet will be received, as far as past replies tell.

mod description;
mod learned;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use grpo_eval::{EmbedError, Embedder};
use grpo_model::Perceptron;

use self::description::feature_count;
use grpo_rewards::{EmbedderConfig, EmbedderConfigError};

pub use self::description::{
    EngagementDescription, EngagementGate, EngagementMeasures, EngagementObjective,
    EngagementReport, engagement_features,
};
pub(crate) use self::learned::LearnedConfig;
pub use self::learned::LearnedReward;

/// What is said of the model, in its folder.
const DESCRIPTION: &str = "engagement.json";
/// The weights of its head.
const WEIGHTS: &str = "head.safetensors";

/// A head and the embedder that makes its features.
pub struct EngagementModel {
    description: EngagementDescription,
    head: Perceptron,
    embedder: Arc<dyn Embedder>,
}

/// An engagement model that cannot be used or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngagementError {
    /// Nothing to read.
    #[error(
        "there is no folder {}; an engagement model's holds engagement.json and head.safetensors, as `grpo train-engagement` writes them",
        .0.display()
    )]
    NoFolder(PathBuf),
    /// A file that cannot be read or written.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The weights.
    #[error(transparent)]
    Weights(#[from] grpo_model::ModelError),
    /// What makes the vectors.
    #[error(transparent)]
    Embedder(#[from] EmbedderConfigError),
    /// Vectors of another embedder mean something else.
    #[error(
        "{}: the model was trained on vectors of {expected}, and the embedder makes those of {found}; name the embedder that it was trained with, or train it again",
        folder.display()
    )]
    OtherEmbedder {
        /// The model's folder.
        folder: PathBuf,
        /// Whose vectors it was trained on.
        expected: String,
        /// Whose it would get.
        found: String,
    },
    /// A training that ended early, or found too little.
    #[error(
        "{}: the engagement model did not pass its gate: {found}; train it on more replies, or set accept_failed_gate = true to take it all the same",
        folder.display()
    )]
    Gate {
        /// The model's folder.
        folder: PathBuf,
        /// What was found, and what is needed.
        found: String,
    },
}

impl EngagementModel {
    /// Of a head and what made its features.
    ///
    /// # Panics
    /// Where the head or the embedder is not what the description says.
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

    /// Reads a folder of `grpo train-engagement`. Its vectors are made by `embedder`, or else by the one that it names; its
    /// gate is not looked at.
    ///
    /// # Errors
    /// A file that is missing or damaged; an embedder that is missing, or that is not the one of its training.
    pub fn load(
        folder: &Path,
        embedder: Option<&EmbedderConfig>,
        device: &Device,
    ) -> Result<Self, EngagementError> {
        let description = EngagementDescription::load(folder)?;
        let embedder = embedder.unwrap_or(&description.embedder).build(device)?;
        let found = embedder.identity();
        if found != description.embedder_identity || embedder.width() != description.width {
            return Err(EngagementError::OtherEmbedder {
                folder: folder.to_owned(),
                expected: description.embedder_identity,
                found,
            });
        }
        let features = feature_count(description.width);
        let path = folder.join(WEIGHTS);
        let head = Perceptron::load(&path, features, description.hidden, device)?;
        Ok(Self { description, head, embedder })
    }

    /// Reads the head of a folder, of the sizes of `like`.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn load_head(folder: &Path, like: &Perceptron) -> Result<Perceptron, EngagementError> {
        let (features, hidden, device) = (like.features(), like.hidden(), like.device());
        Ok(Perceptron::load(&folder.join(WEIGHTS), features, hidden, &device)?)
    }

    /// Writes the two files into `folder`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(
        folder: &Path,
        description: &EngagementDescription,
        head: &Perceptron,
    ) -> Result<(), EngagementError> {
        let json = serde_json::to_string_pretty(description).expect("it is JSON") + "\n";
        let path = folder.join(DESCRIPTION);
        std::fs::write(&path, json).map_err(|error| EngagementError::File {
            path,
            message: format!("it cannot be written: {error}"),
        })?;
        Ok(head.write(&folder.join(WEIGHTS))?)
    }

    /// What is said of it.
    pub fn description(&self) -> &EngagementDescription {
        &self.description
    }

    /// Refuses a model that did not pass the gate of its training; `folder` is for the message.
    ///
    /// # Errors
    /// [`EngagementError::Gate`].
    pub fn check_gate(&self, folder: &Path) -> Result<(), EngagementError> {
        let found = match &self.description.report {
            Some(report) if report.passed => return Ok(()),
            Some(report) => report.gate.against(&report.test),
            None => "its training did not come to an end".to_owned(),
        };
        Err(EngagementError::Gate { folder: folder.to_owned(), found })
    }

    /// What it says of each (tweet, reply), 0..1; each pair is computed alone, so that the others do not matter.
    ///
    /// # Errors
    /// A text that no vector can be made of.
    pub fn predict(&self, pairs: &[(&str, &str)]) -> Result<Vec<f64>, EmbedError> {
        use rayon::prelude::*;
        let features = engagement_features(&*self.embedder, pairs)?;
        Ok(features.par_iter().map(|features| self.head.predict(features)).collect())
    }
}

impl std::fmt::Debug for EngagementModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngagementModel").field("description", &self.description).finish()
    }
}
