//! Configuration of supervised training.

use grpo_data::ConfigFault;
use grpo_eval::DiversityMeasure;
use grpo_logprob::SamplingSettings;
use grpo_model::ProductPrecision;
use grpo_rewards::EmbedderConfig;
use serde::{Deserialize, Serialize};

use super::condition_dropout::ConditionDropout;
use crate::diversity_measure;
use crate::error::in_range;
use crate::supervised::{Cut, EarlyStopping};
use crate::{Decay, OptimizerConfig};

/// Supervised training settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Number of epochs.
    pub epochs: u32,
    /// Number of examples per optimizer step.
    pub batch_size: usize,
    /// Maximum number of tokens per micro-batch. By default, a batch is not split. This setting
    /// affects memory usage, and the result only through rounding and dropout masks. An example
    /// that exceeds the limit is processed alone.
    pub micro_batch_tokens: Option<usize>,
    /// Recomputes transformer blocks in the backward pass. Uses less memory but takes about a third
    /// longer.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Precision of the matrix products with the weights.
    #[serde(default, skip_serializing_if = "ProductPrecision::is_f32")]
    pub precision: ProductPrecision,
    /// Warm-up length as a fraction of the tokens in one epoch.
    #[serde(default = "default_warmup")]
    pub warmup_epochs: f64,
    /// Lowest learning rate after warm-up, as a fraction of the maximum.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// How the learning rate decreases after the warm-up.
    #[serde(default)]
    pub learning_rate_decay: Decay,
    /// Dropout probability for embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Number of optimizer steps between evaluations. 0 evaluates once per epoch. The last step is
    /// always followed by an evaluation.
    #[serde(default)]
    pub eval_every: u64,
    /// Number of consecutive evaluations with an improvement below `min_gain` after which training
    /// stops. 0 disables early stopping.
    #[serde(default)]
    pub patience: u32,
    /// Minimum decrease in validation loss that counts as an improvement.
    #[serde(default)]
    pub min_gain: f64,
    /// AdamW settings.
    pub optimizer: OptimizerConfig,
    /// Limits for the training and validation losses.
    pub limits: Option<LossLimits>,
    /// Sampling during evaluations.
    pub eval: Option<SampledEvalConfig>,
    /// Removal of conditions from examples.
    pub condition_dropout: Option<ConditionDropout>,
    /// Diversity term in the loss.
    pub diversity: Option<DiversityConfig>,
}

/// Loss limits in nats per token, checked in each evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossLimits {
    /// Maximum difference between the validation loss and the training loss since the last
    /// evaluation. Guards against overfitting.
    pub max_gap: Option<f64>,
    /// Lower limit for the validation loss. A smaller loss suggests that validation examples were
    /// memorised or leaked into the training data.
    pub min_valid_loss: Option<f64>,
    /// Upper limit for the validation loss.
    pub max_valid_loss: Option<f64>,
    /// What to do if a limit is exceeded.
    pub action: LimitAction,
}

/// What to do if a limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitAction {
    /// Prints a warning once per limit.
    Warn,
    /// Stops training.
    Stop,
}

/// Settings for sampling during evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampledEvalConfig {
    /// Number of validation prompts. They are distinct and spread evenly over the validation set.
    pub prompts: usize,
    /// Number of completions per prompt.
    pub generations: usize,
    /// Number of completions to show. One completion is shown for each of the first prompts.
    pub rows: usize,
    /// Softmax temperature.
    pub temperature: f32,
    /// Only samples from the smallest set of most probable tokens whose total probability reaches
    /// this value.
    pub top_p: f32,
    /// Maximum completion length in tokens.
    pub max_new_tokens: usize,
    /// Text embedder. If omitted, semantic diversity is not measured.
    pub embedder: Option<EmbedderConfig>,
}

impl Default for SampledEvalConfig {
    fn default() -> Self {
        Self {
            prompts: 50,
            generations: 5,
            rows: 5,
            temperature: 0.7,
            top_p: 0.9,
            max_new_tokens: 100,
            embedder: None,
        }
    }
}

/// The `[pretrain.diversity]` section. The loss becomes cross-entropy − `weight` · D.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "term", rename_all = "snake_case", deny_unknown_fields)]
pub enum DiversityConfig {
    /// D is the expected diversity of sampled completions, with a score-function gradient estimate.
    ScoreFunction(ScoreFunctionConfig),
    /// D is the mean entropy of the next-token distribution in nats, over target tokens.
    Entropy {
        /// Weight λ.
        weight: f64,
    },
}

/// Settings for [`DiversityConfig::ScoreFunction`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreFunctionConfig {
    /// Weight λ. If it is 0, diversity is measured but not optimised.
    pub weight: f64,
    /// Diversity measure.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Text embedder, required by the `semantic` measure.
    pub embedder: Option<EmbedderConfig>,
    /// Number of completions per prompt (N).
    #[serde(default = "default_generations")]
    pub generations: usize,
    /// Number of prompts per step.
    #[serde(default = "default_max_examples")]
    pub max_examples: usize,
    /// Interval between optimizer steps that include the term, starting with the first step.
    #[serde(default = "default_every")]
    pub every: u64,
    /// Softmax temperature.
    #[serde(default = "default_temperature")]
    pub temperature: f32,
    /// Only samples from the smallest set of most probable tokens whose total probability reaches
    /// this value.
    #[serde(default = "default_top_p")]
    pub top_p: f32,
    /// Maximum completion length in tokens.
    #[serde(default = "default_max_new_tokens")]
    pub max_new_tokens: usize,
    /// Whether to limit the cost to at most 3 completions of at most 80 tokens, in at most every
    /// tenth step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe_mode: bool,
}

impl ScoreFunctionConfig {
    /// Returns the effective settings, limited by [`Self::safe_mode`] if it is enabled.
    #[must_use]
    pub fn limited(&self) -> Self {
        let mut limited = self.clone();
        if self.safe_mode {
            limited.generations = self.generations.min(3);
            limited.max_new_tokens = self.max_new_tokens.min(80);
            limited.every = self.every.max(10);
        }
        limited
    }
}

fn default_warmup() -> f64 {
    0.1
}
fn default_floor() -> f64 {
    0.1
}
fn default_top_p() -> f32 {
    0.9
}
fn default_max_new_tokens() -> usize {
    100
}
fn default_generations() -> usize {
    3
}
fn default_max_examples() -> usize {
    4
}
fn default_every() -> u64 {
    1
}
fn default_temperature() -> f32 {
    0.9
}

impl PretrainConfig {
    /// Returns how to split a batch into micro-batches.
    pub(super) fn cut(&self) -> Cut {
        Cut { tokens: self.micro_batch_tokens, checkpointing: self.activation_checkpointing }
    }

    pub(super) fn early_stopping(&self) -> EarlyStopping {
        EarlyStopping { patience: self.patience, min_gain: self.min_gain }
    }

    /// Validates the settings without reading any files.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        in_range("pretrain.epochs", f64::from(self.epochs), 1.0..=1e6)?;
        in_range("pretrain.batch_size", self.batch_size as f64, 1.0..=1e6)?;
        let micro = self.micro_batch_tokens.unwrap_or(1);
        in_range("pretrain.micro_batch_tokens", micro as f64, 1.0..=1e9)?;
        in_range("pretrain.warmup_epochs", self.warmup_epochs, 0.0..=f64::from(self.epochs))?;
        in_range("pretrain.learning_rate_floor", self.learning_rate_floor, 0.0..=1.0)?;
        self.learning_rate_decay.check("pretrain.learning_rate_decay")?;
        in_range("pretrain.dropout", f64::from(self.dropout), 0.0..=0.9)?;
        self.condition_dropout.unwrap_or_default().check()?;
        self.early_stopping().check("pretrain")?;
        self.limits.iter().try_for_each(LossLimits::check)?;
        self.eval.iter().try_for_each(SampledEvalConfig::check)?;
        self.diversity.iter().try_for_each(DiversityConfig::check)?;
        self.optimizer.check("pretrain.optimizer")
    }
}

impl PretrainConfig {
    /// Returns all embedders without duplicates.
    pub fn embedders(&self) -> Vec<&EmbedderConfig> {
        let of_diversity = self.diversity.as_ref().and_then(|diversity| match diversity {
            DiversityConfig::ScoreFunction(term) => term.embedder.as_ref(),
            DiversityConfig::Entropy { .. } => None,
        });
        let of_eval = self.eval.as_ref().and_then(|eval| eval.embedder.as_ref());
        let mut all: Vec<&EmbedderConfig> = of_diversity.into_iter().collect();
        all.extend(of_eval.filter(|embedder| Some(*embedder) != of_diversity));
        all
    }
}

impl LossLimits {
    fn check(&self) -> Result<(), ConfigFault> {
        let limits = [
            ("pretrain.limits.max_gap", self.max_gap),
            ("pretrain.limits.min_valid_loss", self.min_valid_loss),
            ("pretrain.limits.max_valid_loss", self.max_valid_loss),
        ];
        if limits.iter().all(|(_, limit)| limit.is_none()) {
            return Err(ConfigFault::new(
                "pretrain.limits",
                "pretrain.limits has no limit",
                "set max_gap, min_valid_loss or max_valid_loss, or remove the section",
            ));
        }
        limits
            .iter()
            .filter_map(|(key, limit)| Some((key, (*limit)?)))
            .try_for_each(|(key, limit)| in_range(key, limit, 0.0..=f64::MAX))
    }
}

impl SampledEvalConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        in_range("pretrain.eval.prompts", self.prompts as f64, 1.0..=1e6)?;
        in_range("pretrain.eval.generations", self.generations as f64, 1.0..=1e4)?;
        let tokens = self.max_new_tokens as f64;
        in_range("pretrain.eval.max_new_tokens", tokens, 1.0..=1e6)?;
        check_sampling("pretrain.eval", self.temperature, self.top_p)?;
        let Some(embedder) = &self.embedder else { return Ok(()) };
        diversity_measure::check_measure("pretrain.eval", DiversityMeasure::Semantic, Some(embedder))
    }
}

impl DiversityConfig {
    /// Returns the weight λ.
    pub fn weight(&self) -> f64 {
        match self {
            Self::ScoreFunction(term) => term.weight,
            Self::Entropy { weight } => *weight,
        }
    }

    fn check(&self) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("pretrain.diversity.{name}");
        in_range(&key("weight"), self.weight(), 0.0..=1e3)?;
        let Self::ScoreFunction(term) = self else { return Ok(()) };
        // Diversity is undefined for a single text.
        in_range(&key("generations"), term.generations as f64, 2.0..=1e4)?;
        in_range(&key("max_examples"), term.max_examples as f64, 1.0..=1e6)?;
        in_range(&key("every"), term.every as f64, 1.0..=1e9)?;
        in_range(&key("max_new_tokens"), term.max_new_tokens as f64, 1.0..=1e6)?;
        check_sampling("pretrain.diversity", term.temperature, term.top_p)?;
        diversity_measure::check_measure("pretrain.diversity", term.measure, term.embedder.as_ref())
    }
}

fn check_sampling(section: &str, temperature: f32, top_p: f32) -> Result<(), ConfigFault> {
    in_range(&format!("{section}.temperature"), f64::from(temperature), 1e-3..=1e3)?;
    in_range(&format!("{section}.top_p"), f64::from(top_p), 1e-6..=1.0)
}

/// Returns the sampling settings.
pub(super) fn sampling(temperature: f32, top_p: f32) -> SamplingSettings {
    SamplingSettings { temperature, top_p: Some(top_p), ..SamplingSettings::default() }
}
