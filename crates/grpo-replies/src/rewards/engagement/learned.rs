//! A reward based on an engagement model.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::ConfigFault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{EngagementDescription, EngagementModel, of_model};
use grpo_rewards::{
    EmbedderConfig, Outcome, PartName, Reward, RewardInput, RewardSpec, Scored, folder_files,
    text_field,
};

/// Settings of the reward of a learned engagement model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearnedConfig {
    /// Folder written by `grpo train-engagement`.
    #[schemars(extend("x-basic" = true))]
    model: PathBuf,
    /// Embedder in another location; one that makes other vectors is refused. Default: named by the
    /// model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    embedder: Option<EmbedderConfig>,
    /// Accept a model that did not pass its gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    accept_failed_gate: bool,
}

impl RewardSpec for LearnedConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        self.embedder.iter().try_for_each(EmbedderConfig::check)
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let model = EngagementModel::load(&self.model, self.embedder.as_ref(), device)?;
        if !self.accept_failed_gate {
            model.check_gate(&self.model)?;
        }
        Ok(Arc::new(LearnedReward::new(Arc::new(model))))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        // The description in the model folder names the default embedder.
        let named = EngagementDescription::load(&self.model).map_err(of_model)?.embedder;
        let mut files = self.embedder.as_ref().unwrap_or(&named).files()?;
        files.extend(folder_files("engagement_model", &self.model)?);
        Ok(files)
    }
}

/// Scores replies with an engagement model.
///
/// The reply is the completion, and the tweet is read from the `tweet` field of the prompt. Scores
/// are between 0 and 1. The score of an empty reply is 0.
///
/// The model was trained on replies written by humans. A policy that is optimized against it can
/// find replies with undeservedly high scores. To limit this, combine it with a second reward
/// (`hybrid`), use a KL penalty, and read the generated replies.
#[derive(Clone, Debug)]
pub struct LearnedReward {
    model: Arc<EngagementModel>,
}

const PART: &str = "learned";
const TWEET: &str = "tweet";

impl LearnedReward {
    /// Creates a reward from a model.
    pub fn new(model: Arc<EngagementModel>) -> Self {
        Self { model }
    }
}

impl Reward for LearnedReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        // Each entry is either a pair to be scored or a final outcome.
        let pairs: Vec<Result<(&str, &str), Outcome>> = samples
            .iter()
            .map(|sample| {
                let tweet = text_field(&sample.fields, TWEET).map_err(Outcome::failed)?;
                match sample.text.trim() {
                    "" => Err(scored(0.0)),
                    _ => Ok((tweet, sample.text.as_str())),
                }
            })
            .collect();
        let open: Vec<(&str, &str)> =
            pairs.iter().filter_map(|pair| pair.as_ref().ok()).copied().collect();
        let mut outcomes = self.predict(&open).into_iter();
        pairs
            .into_iter()
            .map(|pair| match pair {
                Ok(_) => outcomes.next().expect("there is one outcome per pair"),
                Err(settled) => settled,
            })
            .collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec![PART.into()]
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        text_field(fields, TWEET).map(drop)
    }
}

impl LearnedReward {
    fn predict(&self, pairs: &[(&str, &str)]) -> Vec<Outcome> {
        match self.model.predict(pairs) {
            Ok(scores) => scores.into_iter().map(scored_or_failed).collect(),
            // Retry each pair separately, because one bad text fails the entire batch.
            Err(_) if pairs.len() > 1 => {
                pairs.iter().flat_map(|pair| self.predict(&[*pair])).collect()
            }
            Err(error) => pairs.iter().map(|_| Outcome::failed(error.to_string())).collect(),
        }
    }
}

fn scored(value: f64) -> Outcome {
    Outcome::Scored(Scored::new(vec![(1.0, value)], vec![(PART.into(), value)]))
}

fn scored_or_failed(value: f64) -> Outcome {
    match value.is_finite() {
        true => scored(value),
        false => Outcome::failed(format!(
            "the engagement model returned {value}; expected a number between 0 and 1"
        )),
    }
}
