//! Settings of supervised training.

use grpo_data::ConfigFault;
use grpo_eval::DiversityMeasure;
use grpo_logprob::SamplingSettings;
use grpo_rewards::EmbedderConfig;
use serde::{Deserialize, Serialize};

use crate::OptimizerConfig;
use crate::diversity_measure;
use crate::error::in_range;
use crate::supervised::{Cut, EarlyStopping};

/// Settings of supervised training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Epochs.
    pub epochs: u32,
    /// Examples per optimizer step.
    pub batch_size: usize,
    /// Tokens of a micro-batch; default: the whole step. Affects memory, and the result only
    /// through the rounding of a sum and the masks of dropout. A longer example is computed alone.
    pub micro_batch_tokens: Option<usize>,
    /// Recomputes the blocks of the model in the backward pass: less memory, a third more time.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Length of the warm-up as a fraction of the tokens of an epoch.
    #[serde(default = "default_warmup")]
    pub warmup_epochs: f64,
    /// Lowest learning rate after the warm-up as a fraction of the highest.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// Dropout probability in embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Optimizer steps between evaluations, with one after the last step; 0 for one per epoch.
    #[serde(default)]
    pub eval_every: u64,
    /// Training ends after this many consecutive evaluations that gained less than `min_gain`; 0
    /// for never.
    #[serde(default)]
    pub patience: u32,
    /// Smallest decrease of the validation loss that counts as a gain.
    #[serde(default)]
    pub min_gain: f64,
    /// AdamW.
    pub optimizer: OptimizerConfig,
    /// Limits of the losses.
    pub limits: Option<LossLimits>,
    /// Sampling in evaluations.
    pub eval: Option<SampledEvalConfig>,
    /// The diversity term of the loss.
    pub diversity: Option<DiversityConfig>,
}

/// Limits of the losses in an evaluation, in nats per token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossLimits {
    /// Largest difference of the validation loss to the training loss since the last evaluation,
    /// against overfitting.
    pub max_gap: Option<f64>,
    /// Lowest validation loss, against memorised or leaked validation examples.
    pub min_valid_loss: Option<f64>,
    /// The highest validation loss.
    pub max_valid_loss: Option<f64>,
    /// Action beyond a limit.
    pub action: LimitAction,
}

/// Action beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitAction {
    /// Prints a warning once per limit.
    Warn,
    /// Ends the training.
    Stop,
}

/// Sampling in evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampledEvalConfig {
    /// Number of validation prompts to continue: distinct ones, evenly spaced.
    pub prompts: usize,
    /// Completions per prompt.
    pub generations: usize,
    /// Rows of the table of completions: the first completion of each of the first prompts.
    pub rows: usize,
    /// Divisor of the logits.
    pub temperature: f32,
    /// Samples from the fewest most probable tokens with this total probability.
    pub top_p: f32,
    /// Largest length of a completion in tokens.
    pub max_new_tokens: usize,
    /// Embedder for semantic diversity, which is not measured without it.
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

/// The section `[pretrain.diversity]`: the loss is the cross-entropy − `weight` · D.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "term", rename_all = "snake_case", deny_unknown_fields)]
pub enum DiversityConfig {
    /// D is the expected diversity of sampled completions; its gradient is estimated from them.
    ScoreFunction(ScoreFunctionConfig),
    /// D is the mean entropy of the next token over the learned tokens of the step, in nats.
    Entropy {
        /// λ.
        weight: f64,
    },
}

/// The term [`DiversityConfig::ScoreFunction`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreFunctionConfig {
    /// λ; with 0 the diversity is only measured.
    pub weight: f64,
    /// The measure of diversity.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Embedder for the measure `semantic`.
    pub embedder: Option<EmbedderConfig>,
    /// Completions per prompt (N).
    #[serde(default = "default_generations")]
    pub generations: usize,
    /// Prompts per step.
    #[serde(default = "default_max_examples")]
    pub max_examples: usize,
    /// Optimizer steps between steps with the term, starting at the first.
    #[serde(default = "default_every")]
    pub every: u64,
    /// Divisor of the logits.
    #[serde(default = "default_temperature")]
    pub temperature: f32,
    /// Samples from the fewest most probable tokens with this total probability.
    #[serde(default = "default_top_p")]
    pub top_p: f32,
    /// Largest length of a completion in tokens.
    #[serde(default = "default_max_new_tokens")]
    pub max_new_tokens: usize,
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
    /// Returns how batches are split.
    pub(super) fn cut(&self) -> Cut {
        Cut { tokens: self.micro_batch_tokens, checkpointing: self.activation_checkpointing }
    }

    pub(super) fn early_stopping(&self) -> EarlyStopping {
        EarlyStopping { patience: self.patience, min_gain: self.min_gain }
    }

    /// Checks ranges, without reading files.
    ///
    /// # Errors
    /// Returns the first key that is out of range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        in_range("pretrain.epochs", f64::from(self.epochs), 1.0..=1e6)?;
        in_range("pretrain.batch_size", self.batch_size as f64, 1.0..=1e6)?;
        let micro = self.micro_batch_tokens.unwrap_or(1);
        in_range("pretrain.micro_batch_tokens", micro as f64, 1.0..=1e9)?;
        in_range("pretrain.warmup_epochs", self.warmup_epochs, 0.0..=f64::from(self.epochs))?;
        in_range("pretrain.learning_rate_floor", self.learning_rate_floor, 0.0..=1.0)?;
        in_range("pretrain.dropout", f64::from(self.dropout), 0.0..=0.9)?;
        self.early_stopping().check("pretrain")?;
        self.limits.iter().try_for_each(LossLimits::check)?;
        self.eval.iter().try_for_each(SampledEvalConfig::check)?;
        self.diversity.iter().try_for_each(DiversityConfig::check)?;
        self.optimizer.check("pretrain.optimizer")
    }
}

impl PretrainConfig {
    /// Returns the distinct embedders.
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
                "set max_gap, min_valid_loss or max_valid_loss, or leave the section out",
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
        diversity_measure::check("pretrain.eval", DiversityMeasure::Semantic, Some(embedder))
    }
}

impl DiversityConfig {
    /// λ.
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
        // A single text has no diversity.
        in_range(&key("generations"), term.generations as f64, 2.0..=1e4)?;
        in_range(&key("max_examples"), term.max_examples as f64, 1.0..=1e6)?;
        in_range(&key("every"), term.every as f64, 1.0..=1e9)?;
        in_range(&key("max_new_tokens"), term.max_new_tokens as f64, 1.0..=1e6)?;
        check_sampling("pretrain.diversity", term.temperature, term.top_p)?;
        diversity_measure::check("pretrain.diversity", term.measure, term.embedder.as_ref())
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
