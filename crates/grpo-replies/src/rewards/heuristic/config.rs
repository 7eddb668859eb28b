//! The settings of a heuristic reward.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::ConfigFault;
use serde::{Deserialize, Serialize};

use super::{GenericWords, HeuristicReward, HeuristicWeights};
use grpo_rewards::{EmbedderConfig, Reward, RewardSpec, are_mean_weights};

/// Six measures of a reply to the tweet that the prompt's record has. See [`HeuristicReward`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeuristicConfig {
    /// Weight of the nearness of the vectors of tweet and reply.
    #[serde(default = "default_relevance")]
    relevance: f64,
    /// Weight of a good length.
    #[serde(default = "default_length")]
    length: f64,
    /// Weight of the nearness of polarities.
    #[serde(default = "default_sentiment")]
    sentiment: f64,
    /// Weight of the fraction of the words that differ.
    #[serde(default = "default_diversity")]
    diversity: f64,
    /// Weight of as many marks as usual.
    #[serde(default = "default_punctuation")]
    punctuation: f64,
    /// Weight of saying something.
    #[serde(default = "default_engagement")]
    engagement: f64,
    /// What makes the vectors; needed unless `relevance` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    embedder: Option<EmbedderConfig>,
    /// Words that say nothing in a short reply, instead of [`DEFAULT_GENERIC_WORDS`](super::DEFAULT_GENERIC_WORDS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generic_words: Option<Vec<String>>,
}

fn default_relevance() -> f64 {
    0.30
}
fn default_length() -> f64 {
    0.15
}
fn default_sentiment() -> f64 {
    0.15
}
fn default_diversity() -> f64 {
    0.10
}
fn default_punctuation() -> f64 {
    0.10
}
fn default_engagement() -> f64 {
    0.20
}

impl HeuristicConfig {
    fn weights(&self) -> HeuristicWeights {
        let &Self { relevance, length, sentiment, diversity, punctuation, engagement, .. } = self;
        HeuristicWeights { relevance, length, sentiment, diversity, punctuation, engagement }
    }

    fn generic_words(&self) -> Result<GenericWords, ConfigFault> {
        let Some(entries) = &self.generic_words else { return Ok(GenericWords::default()) };
        GenericWords::new(entries).map_err(|entry| {
            ConfigFault::from_sentence("", format!(
                "reward.generic_words has '{entry}', which has no letter and no digit; leave it out"
            ))
        })
    }
}

impl RewardSpec for HeuristicConfig {
    /// The weights are a mean's, and there is an embedder where relevance has weight.
    fn check(&self) -> Result<(), ConfigFault> {
        let weights = self.weights().each();
        if !are_mean_weights(&weights) {
            return Err(ConfigFault::from_sentence(
                "",
                format!(
                    "reward.relevance, reward.length, reward.sentiment, reward.diversity, reward.punctuation and reward.engagement must each be at least 0 and sum to 1, so that the reward is between 0 and 1; they sum to {}",
                    weights.iter().sum::<f64>()
                ),
            ));
        }
        if self.embedder.is_none() && self.relevance > 0.0 {
            return Err(ConfigFault::from_sentence(
                "",
                "a heuristic reward with relevance compares vectors of texts: set reward.embedder, for example { type = \"sentence_transformers\", folder = \"all-MiniLM-L6-v2\" } or { type = \"hashed_ngrams\" }, or reward.relevance = 0 with other weights that sum to 1",
            ));
        }
        self.generic_words()?;
        Ok(self.embedder.iter().try_for_each(EmbedderConfig::check)?)
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let embedder = self.embedder.as_ref().map(|embedder| embedder.build(device)).transpose()?;
        Ok(Arc::new(HeuristicReward::new(self.weights(), embedder, self.generic_words()?)))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(self.embedder.as_ref().map(EmbedderConfig::files).transpose()?.unwrap_or_default())
    }
}
