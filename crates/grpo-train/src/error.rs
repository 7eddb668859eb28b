//! Training errors.

use burn::tensor::Tensor;
use grpo_core::AdvantageError;
use grpo_data::{ConfigFault, Sample};
use grpo_model::{LanguageModel, ModelError, ModelSetting, ProductPrecision};
use grpo_rollout::RolloutError;
use grpo_runtime::RankError;

pub use grpo_data::in_range;

/// An error that ends a training run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// A text could not be embedded.
    #[error(transparent)]
    Embed(#[from] grpo_eval::EmbedError),
    /// Sampling failed.
    #[error("sampling: {0}")]
    Rollout(RolloutError),
    /// Advantages could not be computed from the rewards.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// The reward failed for too many completions.
    #[error(
        "the reward failed for {failed} of {all} completions of {of}, more than train.max_failed_rewards = {most} allows; raise it, or set on_failure = \"abstain\" in the section of an external reward to leave such completions out; first failure: {reason}"
    )]
    Reward {
        /// Number of completions whose reward failed.
        failed: usize,
        /// Total number of completions.
        all: usize,
        /// Step or evaluation in which the failures occurred.
        of: String,
        /// Fraction of completions that may fail.
        most: f64,
        /// First failure reason.
        reason: String,
    },
    /// The saved state belongs to a different training run.
    #[error("{0}")]
    OtherState(String),
    /// A step has no completions.
    #[error("a step needs at least one prompt with a completion")]
    Empty,
    /// Training was interrupted.
    #[error("training was interrupted")]
    Interrupted,
    /// Log-probabilities from the sampler and the trainer differ.
    #[error("step {step}: the sampler recorded log-probability {sampler:.6} at position {position} of prompt {prompt}, sample {sample}, but the trainer computes {trainer:.6} with the same weights, which exceeds the tolerance of {tolerance}; {}", what_to_do(*sampler, *trainer))]
    SamplerMismatch {
        /// Step, counted from 1.
        step: u64,
        /// Prompt index within the step.
        prompt: u32,
        /// Completion index within the group.
        sample: u32,
        /// Token index in the sequence, including the prompt.
        position: usize,
        /// Log-probability recorded by the sampler.
        sampler: f64,
        /// Log-probability computed by the trainer.
        trainer: f64,
        /// Maximum allowed difference.
        tolerance: f64,
    },
    /// A value is not finite. The weights from the previous step are unchanged.
    #[error(
        "training diverged: the {what} became {value}; lower the learning rate, or check the data and the rewards"
    )]
    Diverged {
        /// Name of the quantity, e.g. `loss`.
        what: &'static str,
        /// NaN or an infinity.
        value: f64,
    },
    /// A number that the model computed is not finite, and products are in f16.
    #[error(
        "{0}. With precision = \"f16\", weights and activations of 65,520 or more overflow: if \"f32\" does not fail, keep it, or use \"bf16\""
    )]
    MaybeOverflow(Box<Self>),
    /// The data cannot be used for training.
    #[error(transparent)]
    Data(#[from] grpo_data::DataError),
    /// The training objective does not support the data.
    #[error(transparent)]
    Objective(Box<dyn std::error::Error + Send + Sync>),
    /// The logits do not define a probability distribution.
    #[error(transparent)]
    Logits(#[from] grpo_logprob::NotFinite),
    /// The ranks have different policies.
    #[error(
        "rank {rank} has different weights from rank 0 at the beginning of step {step}; its processor or GPU rounds differently, or it runs another program: use machines of the same type and the same program"
    )]
    OtherWeights {
        /// Number of the rank.
        rank: usize,
        /// Step, counted from 1.
        step: u64,
    },
    /// The ranks of the run could not exchange their results.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// The reference could not be updated from the policy.
    #[error(transparent)]
    Reference(#[from] ModelError),
    /// An extension of the steps failed.
    #[error("{name}: {source}")]
    Extension {
        /// Name of the extension.
        name: &'static str,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The observer returned an error, e.g. because a checkpoint could not be written.
    #[error(transparent)]
    Observer(Box<dyn std::error::Error + Send + Sync>),
}

impl TrainError {
    /// Returns whether a step failed because of a value that is not finite.
    pub(crate) fn is_not_finite(&self) -> bool {
        matches!(self, Self::Advantage(AdvantageError::NotFinite { .. })) || self.is_of_model()
    }

    /// Returns whether the model computed a number that is not finite.
    fn is_of_model(&self) -> bool {
        match self {
            Self::Diverged { .. } | Self::Rollout(RolloutError::Diverged(_)) | Self::Logits(_) => {
                true
            }
            Self::SamplerMismatch { sampler, trainer, .. } => !(sampler - trainer).is_finite(),
            _ => false,
        }
    }

    /// Adds to a number that is not finite that it may have been too large, if products are in f16.
    #[must_use]
    pub fn with_products_in(self, precision: ProductPrecision) -> Self {
        match precision == ProductPrecision::F16 && self.is_of_model() {
            true => Self::MaybeOverflow(Box::new(self)),
            false => self,
        }
    }
}

/// Suggests how to resolve a sampler mismatch.
fn what_to_do(sampler: f64, trainer: f64) -> &'static str {
    if (sampler - trainer).is_finite() {
        "find the difference, or set sampler_check.above = \"correct\" to weight the tokens of such a step by their ratio"
    } else {
        "no weight can correct this: the model or its implementation is broken"
    }
}

/// Checks that `model` follows a setting of the key, if it `is_set`.
///
/// # Errors
/// Returns an error that contains `key` if the model would ignore it.
pub(crate) fn supported(
    model: &impl LanguageModel,
    key: &str,
    setting: ModelSetting,
    is_set: bool,
) -> Result<(), ConfigFault> {
    if !is_set || model.supports(setting) {
        return Ok(());
    }
    Err(ConfigFault::new(key, format!("this model does not support {key}"), "remove the key"))
}

/// Returns the value of a loss, `[1]`.
///
/// # Errors
/// Returns an error if the loss is not finite.
pub fn finite_loss(loss: Tensor<1>) -> Result<f64, TrainError> {
    finite(f64::from(loss.into_scalar::<f32>()))
}

/// Checks that a loss is finite and returns it.
///
/// # Errors
/// Returns an error if the loss is not finite.
pub(crate) fn finite(value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::Diverged { what: "loss", value }) }
}

/// Creates the error for an invalid sampling setting in `section`.
pub fn distribution_fault(section: &str, fault: &grpo_logprob::DistributionError) -> ConfigFault {
    let key = format!("{section}.{}", fault.setting());
    ConfigFault::from_sentence(key, format!("{section}: {fault}"))
}

impl TrainError {
    /// Creates the error for a saved state that does not match the trainer.
    pub(crate) fn other_state(fault: String) -> Self {
        Self::OtherState(format!("trainer state does not match this run: {fault}"))
    }
}

impl From<RolloutError> for TrainError {
    fn from(error: RolloutError) -> Self {
        match error {
            RolloutError::Interrupted => Self::Interrupted,
            RolloutError::Sampling(fault) => distribution_fault("sampling", &fault).into(),
            error => Self::Rollout(error),
        }
    }
}

/// Creates an error for `max_new_tokens` in `section`. It is used if prompts and completions exceed
/// the context length of the model.
pub(crate) fn length_fault(section: &str, fault: &RolloutError) -> ConfigFault {
    let key = format!("{section}.max_new_tokens");
    ConfigFault::from_sentence(key, format!("{section}: {fault}"))
}

/// Checks that rewards failed for at most the fraction `most` of the samples. `of` describes the
/// step or evaluation in the error message.
///
/// # Errors
/// Returns [`TrainError::Reward`] if more rewards failed.
pub(crate) fn refuse_failures<'a>(
    samples: impl Iterator<Item = &'a Sample> + Clone,
    most: f64,
    of: impl Fn() -> String,
) -> Result<(), TrainError> {
    let mut failures = samples.clone().filter_map(Sample::failure);
    let Some(reason) = failures.next() else { return Ok(()) };
    let (failed, all) = (1 + failures.count(), samples.count());
    if failed as f64 <= most * all as f64 {
        return Ok(());
    }
    Err(TrainError::Reward { failed, all, of: of(), most, reason: reason.to_owned() })
}

/// Creates an error for `key` in the guard with this index, counted from 0.
pub(crate) fn guard_fault(guard: usize, key: &str, sentence: &str) -> ConfigFault {
    let message = format!("guards[{guard}]: {sentence}");
    ConfigFault::from_sentence(format!("guards[{guard}].{key}"), &message)
}
