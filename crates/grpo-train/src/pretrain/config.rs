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

/// Settings of a pre-training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainConfig {
    /// Passes over the training examples.
    pub epochs: u32,
    /// Examples of one optimizer step.
    pub batch_size: usize,
    /// Tokens that are computed at the same time; decides memory, and the result only by the rounding of a sum and by
    /// the masks of dropout. All of the step's where it is left out; an example that has more is computed alone.
    pub micro_batch_tokens: Option<usize>,
    /// What is in a block of the model is computed once more on the way back, instead of being kept: less memory, a
    /// third more time.
    #[serde(default)]
    pub activation_checkpointing: bool,
    /// Length of the warm-up, as a part of one epoch's tokens.
    #[serde(default = "default_warmup")]
    pub warmup_epochs: f64,
    /// The learning rate never falls below this part of its highest value after the warm-up.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// Probability of dropping an element, in embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Optimizer steps from one evaluation to the next, with one after the last step; 0 for one after each epoch.
    #[serde(default)]
    pub eval_every: u64,
    /// The training ends after so many evaluations in a row that gained less than `min_gain`; 0 for never.
    #[serde(default)]
    pub patience: u32,
    /// By how much the validation loss has to be lower than the last one that counted, to count itself.
    #[serde(default)]
    pub min_gain: f64,
    /// AdamW.
    pub optimizer: OptimizerConfig,
    /// What an evaluation may find, where there are limits.
    pub limits: Option<LossLimits>,
    /// What is sampled in an evaluation, where something is.
    pub eval: Option<SampledEvalConfig>,
    /// The term of the loss that keeps completions different from one another, where there is one.
    pub diversity: Option<DiversityConfig>,
}

/// Limits of the losses that an evaluation finds, in nats a token.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossLimits {
    /// The validation loss may be so much above the training loss since the last evaluation: more is overfitting.
    pub max_gap: Option<f64>,
    /// The lowest validation loss: less is learned by heart, or was trained on.
    pub min_valid_loss: Option<f64>,
    /// The highest validation loss.
    pub max_valid_loss: Option<f64>,
    /// What is done beyond a limit.
    pub action: LimitAction,
}

/// What is done where an evaluation is beyond a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitAction {
    /// It is said once for each limit.
    Warn,
    /// The training ends.
    Stop,
}

/// What is sampled in an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampledEvalConfig {
    /// Prompts of validation examples that are continued; each distinct one once, evenly spread where there are more.
    pub prompts: usize,
    /// Completions of each.
    pub generations: usize,
    /// Rows of the table of completions: the first of each of the first prompts.
    pub rows: usize,
    /// Logits are divided by this.
    pub temperature: f32,
    /// Draws are from the fewest most probable tokens that have this probability together.
    pub top_p: f32,
    /// Longest completion, in tokens.
    pub max_new_tokens: usize,
    /// What semantic diversity is measured by; without it, it is not.
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
    /// D is the expected diversity of completions that the model samples, and its gradient is estimated from them.
    ScoreFunction(ScoreFunctionConfig),
    /// D is the mean entropy of the next token over the tokens of the step that are learned, in nats.
    Entropy {
        /// λ.
        weight: f64,
    },
}

/// The term [`DiversityConfig::ScoreFunction`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreFunctionConfig {
    /// λ; 0 measures the diversity and learns nothing of it.
    pub weight: f64,
    /// What diversity is.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// What `semantic` compares texts by; only with it.
    pub embedder: Option<EmbedderConfig>,
    /// Completions of each prompt (N).
    #[serde(default = "default_generations")]
    pub generations: usize,
    /// Prompts of a step.
    #[serde(default = "default_max_examples")]
    pub max_examples: usize,
    /// Optimizer steps from one that has the term to the next, the first among them.
    #[serde(default = "default_every")]
    pub every: u64,
    /// Logits are divided by this.
    #[serde(default = "default_temperature")]
    pub temperature: f32,
    /// Draws are from the fewest most probable tokens that have this probability together.
    #[serde(default = "default_top_p")]
    pub top_p: f32,
    /// Longest completion, in tokens.
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
    /// How batches are cut.
    pub(super) fn cut(&self) -> Cut {
        Cut { tokens: self.micro_batch_tokens, checkpointing: self.activation_checkpointing }
    }

    pub(super) fn early_stopping(&self) -> EarlyStopping {
        EarlyStopping { patience: self.patience, min_gain: self.min_gain }
    }

    /// Checks ranges once; looks at no file.
    ///
    /// # Errors
    /// The first key that is out of its range.
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
    /// What texts are compared by, each once.
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
        // One text alone is no more or less diverse than another.
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

/// What is drawn from at these settings.
pub(super) fn sampling(temperature: f32, top_p: f32) -> SamplingSettings {
    SamplingSettings { temperature, top_p: Some(top_p), ..SamplingSettings::default() }
}
