//! Auxiliary losses of a GRPO step: supervised examples, and diversity of completions.

use grpo_data::ConfigFault;
use std::path::PathBuf;

use burn::tensor::Device;
use grpo_data::{EpochOrder, Example, Group, OrderPosition};
use grpo_eval::{Diversity, DiversityMeasure};
use grpo_model::{Dropout, LanguageModel};
use grpo_rewards::EmbedderConfig;
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::group_diversity::Contributions;
use crate::pretrain::{Weights, cross_entropy};
use crate::supervised::{Cut, GradientSum};
use crate::{TrainError, diversity_measure};

/// The section `[combined]`: minimises `α · cross-entropy + β · L_GRPO − λ · D`.
///
/// The cross-entropy is that of a batch of examples. D is the mean diversity of a prompt's
/// completions; its gradient is estimated from the completions of the step, as in polychromic
/// supervised training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CombinedConfig {
    /// File of examples, as in supervised training.
    pub file: PathBuf,
    /// α.
    #[serde(default = "default_supervised")]
    pub supervised_weight: f64,
    /// β.
    #[serde(default = "default_grpo")]
    pub grpo_weight: f64,
    /// λ.
    #[serde(default = "default_diversity")]
    pub diversity_weight: f64,
    /// The measure of diversity.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Embedder of texts, for the measure `semantic`.
    pub embedder: Option<EmbedderConfig>,
    /// Examples per optimizer step.
    #[serde(default = "default_batch_size")]
    pub batch_size: usize,
    /// Only one of this many optimizer steps has all three terms. The other steps have the
    /// cross-entropy alone and need no completions.
    #[serde(default = "default_every")]
    pub every: u32,
}

fn default_supervised() -> f64 {
    0.3
}
fn default_grpo() -> f64 {
    0.5
}
fn default_diversity() -> f64 {
    0.2
}
fn default_batch_size() -> usize {
    16
}
fn default_every() -> u32 {
    1
}

const SECTION: &str = "combined";

impl CombinedConfig {
    pub(crate) fn check(&self, updates_per_rollout: u32) -> Result<(), ConfigFault> {
        in_range("combined.supervised_weight", self.supervised_weight, 0.0..=1e6)?;
        // Without GRPO there is nothing to sample for; supervised training does that.
        in_range("combined.grpo_weight", self.grpo_weight, 1e-6..=1e6)?;
        in_range("combined.diversity_weight", self.diversity_weight, 0.0..=1e6)?;
        in_range("combined.batch_size", self.batch_size as f64, 1.0..=1e6)?;
        in_range("combined.every", f64::from(self.every), 1.0..=1e4)?;
        if self.every > 1 && self.supervised_weight == 0.0 {
            let every = self.every;
            return Err(ConfigFault::new(
                "",
                format!(
                    "combined.every = {every} asks for optimizer steps of examples alone, and combined.supervised_weight = 0 leaves nothing to learn in them"
                ),
                "set combined.every to 1, or give the examples a weight",
            ));
        }
        // The estimate of D's gradient is valid for the sampling policy, which an update changes.
        if updates_per_rollout != 1 {
            return Err(ConfigFault::new(
                "",
                format!(
                    "train.updates_per_rollout = {updates_per_rollout} is not possible with [combined]: its diversity term is valid only for samples of the current policy, so each rollout has one update"
                ),
                "set it to 1, and use combined.every for more optimizer steps",
            ));
        }
        diversity_measure::check(SECTION, self.measure, self.embedder.as_ref())
    }

    /// Builds the auxiliary losses. The model of an embedder is loaded on `device`.
    ///
    /// # Errors
    /// Returns an error if there are no examples or if the embedder cannot be built.
    pub fn build(&self, examples: Vec<Example>, device: &Device) -> Result<Combined, TrainError> {
        if examples.is_empty() {
            let message = format!("combined.file: {} has no example", self.file.display());
            return Err(ConfigFault::new("", message, "").into());
        }
        let diversity =
            diversity_measure::build(SECTION, self.measure, self.embedder.as_ref(), device)?;
        Ok(Combined { config: self.clone(), examples, diversity })
    }
}

/// See [`CombinedConfig`].
#[derive(Clone)]
pub struct Combined {
    config: CombinedConfig,
    examples: Vec<Example>,
    diversity: Diversity,
}

/// Values of the terms of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CombinedTerms {
    /// Mean cross-entropy of the examples in the step with completions, in nats per token.
    pub supervised_loss: f64,
    /// The same over all optimizer steps of the step, including those with examples alone.
    pub mean_supervised_loss: f64,
    /// The GRPO loss.
    pub grpo_loss: f64,
    /// D of the step's completions.
    pub diversity: f64,
}

impl Combined {
    pub(crate) fn config(&self) -> &CombinedConfig {
        &self.config
    }

    /// Returns `α · cross-entropy + β · L_GRPO − λ · D`.
    pub(crate) fn loss(&self, terms: &CombinedTerms) -> f64 {
        let CombinedConfig { supervised_weight, grpo_weight, diversity_weight, .. } = &self.config;
        supervised_weight * terms.supervised_loss + grpo_weight * terms.grpo_loss
            - diversity_weight * terms.diversity
    }

    /// Returns the cross-entropy of batch `index` of the run and adds α times its gradient.
    pub(crate) fn supervise<M: LanguageModel>(
        &self,
        policy: &M,
        seed: u64,
        index: u64,
        cut: Cut,
        gradients: &mut GradientSum,
    ) -> Result<f64, TrainError> {
        let batch = self.batch(seed, index);
        let weights = Weights { loss: self.config.supervised_weight, entropy: None };
        // Without dropout, as in the GRPO loss.
        let taught = cross_entropy(policy, &batch, weights, cut, &mut Dropout::off(), gradients)?;
        Ok(taught.loss)
    }

    /// Returns D of the step's completions and adds the gradient of −λ·D.
    pub(crate) fn diversify<M: LanguageModel>(
        &self,
        policy: &M,
        groups: &[Group],
        cut: Cut,
        gradients: &mut GradientSum,
    ) -> Result<f64, TrainError> {
        let contributions = Contributions::of(groups, &self.diversity)?;
        let weight = self.config.diversity_weight;
        contributions.add_gradients(policy, groups, weight, cut, gradients)?;
        Ok(contributions.score)
    }

    /// Returns batch `index` of the run. Epochs of shuffled examples follow each other.
    fn batch(&self, seed: u64, index: u64) -> Vec<&Example> {
        let (size, length) = (self.config.batch_size as u64, self.examples.len());
        let position = OrderPosition::after(index * size, length);
        let mut order = EpochOrder::resume(seed, length, position)
            .expect("a remainder is below the number of examples");
        (0..size).map(|_| &self.examples[order.next_item()]).collect()
    }
}
