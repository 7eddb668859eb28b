//! Configuration of the heuristic reward.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::ConfigFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{COMPONENTS, GenericWords, HeuristicReward};
use grpo_rewards::{EmbedderConfig, Reward, RewardSpec, check_mean_weights};

/// Weights and settings of the heuristic reward.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HeuristicConfig {
    /// Weight of the similarity of the vectors of tweet and reply.
    relevance: f64,
    /// Weight of the length.
    length: f64,
    /// Weight of the similarity in polarity.
    sentiment: f64,
    /// Weight of the fraction of distinct words.
    diversity: f64,
    /// Weight of usual punctuation.
    punctuation: f64,
    /// Weight of signs of engagement.
    engagement: f64,
    /// Makes the vectors. Required unless `relevance` is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    embedder: Option<EmbedderConfig>,
    /// Words or phrases without content in a reply of fewer than 30 characters; matched as whole
    /// words, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    generic_words: Option<Vec<String>>,
}

impl Default for HeuristicConfig {
    fn default() -> Self {
        Self {
            relevance: 0.30,
            length: 0.15,
            sentiment: 0.15,
            diversity: 0.10,
            punctuation: 0.10,
            engagement: 0.20,
            embedder: None,
            generic_words: None,
        }
    }
}

impl HeuristicConfig {
    /// Returns the weights in the order of [`COMPONENTS`].
    fn weights(&self) -> [f64; 6] {
        let &Self { relevance, length, sentiment, diversity, punctuation, engagement, .. } = self;
        [relevance, length, sentiment, diversity, punctuation, engagement]
    }

    fn generic_words(&self) -> Result<GenericWords, ConfigFault> {
        let Some(entries) = &self.generic_words else { return Ok(GenericWords::default()) };
        GenericWords::new(entries).map_err(|entry| {
            ConfigFault::from_sentence("", format!(
                "reward.generic_words contains '{entry}', which has no letters or digits; remove it"
            ))
        })
    }
}

impl RewardSpec for HeuristicConfig {
    /// Checks that the weights sum to 1 and that an embedder is configured if `relevance` is not 0.
    fn check(&self) -> Result<(), ConfigFault> {
        let weights = COMPONENTS.into_iter().zip(self.weights());
        check_mean_weights(&weights.collect::<Vec<_>>())?;
        if self.embedder.is_none() && self.relevance > 0.0 {
            return ConfigFault::refuse(
                "reward.relevance requires an embedder; set reward.embedder, for example { type = \"sentence_transformers\", folder = \"all-MiniLM-L6-v2\" } or { type = \"hashed_ngrams\" }, or set reward.relevance = 0 with other weights that sum to 1",
            );
        }
        self.generic_words()?;
        self.embedder.iter().try_for_each(EmbedderConfig::check)
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let embedder = self.embedder.as_ref().map(|embedder| embedder.build(device)).transpose()?;
        Ok(Arc::new(HeuristicReward::new(self.weights(), embedder, self.generic_words()?)))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(self.embedder.as_ref().map(EmbedderConfig::files).transpose()?.unwrap_or_default())
    }
}
