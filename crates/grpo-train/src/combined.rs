//! Auxiliary losses: supervised examples and completion diversity.

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

/// The `[combined]` section. Minimises `α · cross-entropy + β · L_GRPO − λ · D`.
///
/// The cross-entropy is computed on a batch of examples. D is the mean diversity of the completions
/// for a prompt. Its gradient is estimated from the completions in the step, as in polychromic
/// supervised training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CombinedConfig {
    /// Path to the examples, in the same format as for supervised training.
    pub file: PathBuf,
    /// Cross-entropy weight α.
    #[serde(default = "default_supervised")]
    pub supervised_weight: f64,
    /// GRPO weight β.
    #[serde(default = "default_grpo")]
    pub grpo_weight: f64,
    /// Diversity weight λ.
    #[serde(default = "default_diversity")]
    pub diversity_weight: f64,
    /// Diversity measure.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Text embedder, required by the `semantic` measure.
    pub embedder: Option<EmbedderConfig>,
    /// Number of examples per optimizer step.
    #[serde(default = "default_batch_size")]
    pub batch_size: usize,
    /// Interval between optimizer steps that include all three terms. The other steps only use the
    /// cross-entropy and don't need completions.
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
        // Sampling is pointless without GRPO. Use supervised training instead.
        in_range("combined.grpo_weight", self.grpo_weight, 1e-6..=1e6)?;
        in_range("combined.diversity_weight", self.diversity_weight, 0.0..=1e6)?;
        in_range("combined.batch_size", self.batch_size as f64, 1.0..=1e6)?;
        in_range("combined.every", f64::from(self.every), 1.0..=1e4)?;
        if self.every > 1 && self.supervised_weight == 0.0 {
            let every = self.every;
            return Err(ConfigFault::new(
                "",
                format!(
                    "combined.every = {every} adds optimizer steps that use only examples; they have no effect with combined.supervised_weight = 0"
                ),
                "set combined.every = 1 or a positive combined.supervised_weight",
            ));
        }
        // The gradient estimate for D is only valid for the policy that sampled the completions.
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

    /// Builds the auxiliary losses. If an embedder is configured, its model is loaded on `device`.
    ///
    /// # Errors
    /// Returns an error if `examples` is empty or the embedder cannot be built.
    pub fn build(&self, examples: Vec<Example>, device: &Device) -> Result<Combined, TrainError> {
        if examples.is_empty() {
            let message = format!("combined.file: {} contains no examples", self.file.display());
            return Err(ConfigFault::new("", message, "").into());
        }
        let diversity =
            diversity_measure::build(SECTION, self.measure, self.embedder.as_ref(), device)?;
        Ok(Combined { config: self.clone(), examples, diversity })
    }
}

/// Auxiliary losses configured by [`CombinedConfig`].
#[derive(Clone)]
pub struct Combined {
    config: CombinedConfig,
    examples: Vec<Example>,
    diversity: Diversity,
}

/// Loss terms in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CombinedTerms {
    /// Mean cross-entropy in nats per token, over the examples in the optimizer step that uses
    /// completions.
    pub supervised_loss: f64,
    /// Mean cross-entropy over all optimizer steps, including those with examples only.
    pub mean_supervised_loss: f64,
    /// GRPO loss.
    pub grpo_loss: f64,
    /// Diversity D of the completions.
    pub diversity: f64,
}

impl Combined {
    pub(crate) fn config(&self) -> &CombinedConfig {
        &self.config
    }

    /// Returns the weighted sum `α · cross-entropy + β · L_GRPO − λ · D`.
    pub(crate) fn loss(&self, terms: &CombinedTerms) -> f64 {
        let CombinedConfig { supervised_weight, grpo_weight, diversity_weight, .. } = &self.config;
        supervised_weight * terms.supervised_loss + grpo_weight * terms.grpo_loss
            - diversity_weight * terms.diversity
    }

    /// Computes the cross-entropy on batch `index` of the run. Adds its gradient, multiplied by α.
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
        // Dropout is disabled, as in the GRPO loss.
        let taught = cross_entropy(policy, &batch, weights, cut, &mut Dropout::off(), gradients)?;
        Ok(taught.loss)
    }

    /// Computes the diversity D of the completions. Adds the gradient of −λ·D.
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

    /// Returns batch `index` of the run. Examples are shuffled in each epoch.
    fn batch(&self, seed: u64, index: u64) -> Vec<&Example> {
        let (size, length) = (self.config.batch_size as u64, self.examples.len());
        let position = OrderPosition::after(index * size, length);
        let mut order = EpochOrder::resume(seed, length, position)
            .expect("the remainder is less than the number of examples");
        (0..size).map(|_| &self.examples[order.next_item()]).collect()
    }
}
