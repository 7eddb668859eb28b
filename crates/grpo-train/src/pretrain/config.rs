//! Configuration of supervised training.

use grpo_data::{ConfigFault, Ranges};
use grpo_eval::DiversityMeasure;
use grpo_logprob::SamplingSettings;
use grpo_model::ProductPrecision;
use grpo_rewards::EmbedderConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition_dropout::ConditionDropout;
use crate::diversity_measure;
use crate::error::in_range;
use crate::supervised::{Cut, EarlyStopping};
use crate::{Decay, OptimizerConfig};

/// Supervised training settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Passes over the training data.
    #[schemars(range(min = 1, max = 1e6), extend("x-basic" = true))]
    pub epochs: u32,
    /// Molecules or records per optimizer step.
    #[schemars(range(min = 1, max = 1e6), extend("x-basic" = true))]
    pub batch_size: usize,
    /// Tokens computed at the same time. Affects memory, and the result only by rounding, unless
    /// there is dropout, whose masks are per micro-batch. A longer record is computed alone.
    /// Default: the whole step.
    #[schemars(range(min = 1, max = 1e9))]
    pub micro_batch_tokens: Option<usize>,
    /// Recompute each block in the backward pass: less memory, more time, [the same
    /// gradient](decisions/0011-recomputing-by-blocks.md).
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Factors of the matrix products with the weights of the blocks, as in `train.precision`.
    #[serde(default, skip_serializing_if = "ProductPrecision::is_f32")]
    pub precision: ProductPrecision,
    /// Length of the warm-up in epochs, at most `epochs`.
    #[serde(default = "default_warmup")]
    #[schemars(extend("minimum" = 0))]
    pub warmup_epochs: f64,
    /// Minimum learning rate after the warm-up, as a fraction of the maximum.
    #[serde(default = "default_floor")]
    #[schemars(range(min = 0, max = 1))]
    pub learning_rate_floor: f64,
    /// Shape of the decay.
    #[serde(default)]
    pub learning_rate_decay: Decay,
    /// Dropout in embeddings, attention and residual branches; adapters have `lora.dropout`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 0.9))]
    pub dropout: f32,
    /// Optimizer steps between evaluations, plus one at the end; 0 for one per epoch. The model
    /// with the lowest validation loss is kept.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub eval_every: u64,
    /// End training after this many consecutive evaluations without an improvement; 0 for never.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub patience: u32,
    /// Minimum improvement over the last loss that counted; needs `patience`.
    #[serde(default)]
    #[schemars(range(min = 0))]
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct LossLimits {
    /// Maximum difference of validation loss and training loss since the last evaluation; more is
    /// overfitting.
    #[schemars(range(min = 0))]
    pub max_gap: Option<f64>,
    /// Minimum validation loss; less means memorised or leaked data.
    #[schemars(range(min = 0))]
    pub min_valid_loss: Option<f64>,
    /// Maximum validation loss.
    #[schemars(range(min = 0))]
    pub max_valid_loss: Option<f64>,
    /// Warn once, or end training with an error; the best model is kept.
    pub action: LimitAction,
}

/// What to do if a limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitAction {
    /// Prints a warning once per limit.
    Warn,
    /// Stops training.
    Stop,
}

/// Settings for sampling during evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct SampledEvalConfig {
    /// Distinct prompts, evenly spaced over the validation examples.
    #[schemars(range(min = 1, max = 1e6))]
    pub prompts: usize,
    /// Completions per prompt.
    #[schemars(range(min = 1, max = 1e4))]
    pub generations: usize,
    /// Prompts whose first completion is recorded and shown.
    #[schemars(range(min = 0))]
    pub rows: usize,
    /// Divides the logits.
    #[schemars(range(min = 0.001, max = 1000))]
    pub temperature: f32,
    /// Sample from the fewest most probable tokens with at least this total probability; 1 for all
    /// tokens.
    #[schemars(range(min = 1e-6, max = 1))]
    pub top_p: f32,
    /// Maximum length of a completion.
    #[schemars(range(min = 1, max = 1e6))]
    pub max_new_tokens: usize,
    /// Vectors for the semantic diversity, which is not measured without it.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct ScoreFunctionConfig {
    /// λ, weight of D; with 0, D is measured without changing training.
    #[schemars(range(min = 0, max = 1000))]
    pub weight: f64,
    /// What D is: mean pairwise 1 − cosine, 1 − self-BLEU of bigrams, or distinct-2.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Vectors for `semantic`, refused otherwise.
    pub embedder: Option<EmbedderConfig>,
    /// Completions per prompt (N).
    #[serde(default = "default_generations")]
    #[schemars(range(min = 2, max = 1e4))]
    pub generations: usize,
    /// Examples of a step whose prompts are sampled.
    #[serde(default = "default_max_examples")]
    #[schemars(range(min = 1, max = 1e6))]
    pub max_examples: usize,
    /// Optimizer steps from one with the term to the next, starting with the first.
    #[serde(default = "default_every")]
    #[schemars(range(min = 1, max = 1e9))]
    pub every: u64,
    /// Divides the logits.
    #[serde(default = "default_temperature")]
    #[schemars(range(min = 0.001, max = 1000))]
    pub temperature: f32,
    /// Sample from the fewest most probable tokens with at least this total probability; 1 for all
    /// tokens.
    #[serde(default = "default_top_p")]
    #[schemars(range(min = 1e-6, max = 1))]
    pub top_p: f32,
    /// Maximum length of a completion; prompt and completion must fit into the context.
    #[serde(default = "default_max_new_tokens")]
    #[schemars(range(min = 1, max = 1e6))]
    pub max_new_tokens: usize,
    /// Limit the cost: at most 3 completions of at most 80 tokens, in every tenth step or more
    /// rarely.
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
        self.check_ranges("pretrain")?;
        in_range("pretrain.warmup_epochs", self.warmup_epochs, 0.0..=f64::from(self.epochs))?;
        self.learning_rate_decay.check("pretrain.learning_rate_decay")?;
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
        if [self.max_gap, self.min_valid_loss, self.max_valid_loss].iter().all(Option::is_none) {
            return Err(ConfigFault::new(
                "pretrain.limits",
                "pretrain.limits has no limit",
                "set max_gap, min_valid_loss or max_valid_loss, or remove the section",
            ));
        }
        self.check_ranges("pretrain.limits")
    }
}

impl SampledEvalConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("pretrain.eval")?;
        let Some(embedder) = &self.embedder else { return Ok(()) };
        diversity_measure::check_measure(
            "pretrain.eval",
            DiversityMeasure::Semantic,
            Some(embedder),
        )
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
        let term = match self {
            Self::ScoreFunction(term) => term,
            Self::Entropy { weight } => {
                return in_range("pretrain.diversity.weight", *weight, 0.0..=1e3);
            }
        };
        term.check_ranges("pretrain.diversity")?;
        diversity_measure::check_measure("pretrain.diversity", term.measure, term.embedder.as_ref())
    }
}

/// Returns the sampling settings.
pub(super) fn sampling(temperature: f32, top_p: f32) -> SamplingSettings {
    SamplingSettings { temperature, top_p: Some(top_p), ..SamplingSettings::default() }
}
