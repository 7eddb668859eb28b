//! Errors of training.

use std::ops::RangeInclusive;

use burn::tensor::Tensor;
use grpo_core::AdvantageError;
use grpo_data::{ConfigFault, Sample, short_number};
use grpo_model::ModelError;
use grpo_rollout::RolloutError;

/// An error that ends a training run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Invalid setting.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// A text cannot be embedded.
    #[error(transparent)]
    Embed(#[from] grpo_eval::EmbedError),
    /// Sampling failed.
    #[error("sampling: {0}")]
    Rollout(RolloutError),
    /// Advantages cannot be computed from the rewards.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// Too many rewards failed.
    #[error(
        "the reward failed for {failed} of {all} completions of {of}; the first reason: {reason}"
    )]
    Reward {
        /// Completions whose reward failed.
        failed: usize,
        /// All completions.
        all: usize,
        /// The step or evaluation.
        of: String,
        /// Reason of the first failure.
        reason: String,
    },
    /// A saved state belongs to another training run.
    #[error("{0}")]
    OtherState(String),
    /// Training was interrupted.
    #[error("the training was interrupted")]
    Interrupted,
    /// The sampler's log-probabilities differ from the trainer's.
    #[error("step {step}: the sampler recorded the log-probability {sampler:.6} at position {position} of prompt {prompt}, sample {sample}, and with the same weights the trainer computes {trainer:.6}, which is further than sampler_check.tolerance = {tolerance}; {}", what_to_do(*sampler, *trainer))]
    SamplerMismatch {
        /// Step, from 1.
        step: u64,
        /// Index of the prompt in the step.
        prompt: u32,
        /// Index of the completion in its group.
        sample: u32,
        /// Index of the token in the sequence, including the prompt.
        position: usize,
        /// Log-probability recorded by the sampler.
        sampler: f64,
        /// Log-probability computed by the trainer.
        trainer: f64,
        /// Largest allowed difference.
        tolerance: f64,
    },
    /// A number is not finite. The weights of the previous step are intact.
    #[error(
        "the {what} became {value}: training has diverged; lower the learning rate, or look at the data and the rewards"
    )]
    Diverged {
        /// The name of the number.
        what: &'static str,
        /// NaN or infinite.
        value: f64,
    },
    /// Nothing can be learned from the data.
    #[error(transparent)]
    Data(#[from] grpo_data::DataError),
    /// The objective of a task cannot use the data.
    #[error(transparent)]
    Objective(Box<dyn std::error::Error + Send + Sync>),
    /// The logits define no distribution.
    #[error(transparent)]
    Logits(#[from] grpo_logprob::NotFinite),
    /// The reference cannot follow the policy.
    #[error(transparent)]
    Reference(#[from] ModelError),
    /// The observer failed, for example while writing a checkpoint.
    #[error(transparent)]
    Observer(Box<dyn std::error::Error + Send + Sync>),
}

/// Returns a hint for a sampler mismatch.
fn what_to_do(sampler: f64, trainer: f64) -> &'static str {
    if (sampler - trainer).is_finite() {
        "find the difference, or set sampler_check.above = \"correct\" to weight the tokens of such a step by their ratio"
    } else {
        "no weight corrects that: the model, or what computes it, is broken"
    }
}

/// Checks that a number of the configuration is in `range`.
///
/// # Errors
/// The error names `key`.
pub fn in_range(key: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), ConfigFault> {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = (range.start(), range.end());
    let expected = if *high >= f64::MAX / 2.0 {
        format!("{low} or more")
    } else {
        format!("{low} to {}", short_number(*high))
    };
    Err(ConfigFault::out_of_range(key, value, &expected))
}

/// Returns the value of a loss, `[1]`.
///
/// # Errors
/// Returns an error if it is not finite.
pub fn finite_loss(loss: Tensor<1>) -> Result<f64, TrainError> {
    finite(f64::from(loss.into_scalar::<f32>()))
}

/// Returns the value of a loss.
///
/// # Errors
/// Returns an error if it is not finite.
pub(crate) fn finite(value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::Diverged { what: "loss", value }) }
}

/// Returns the error of an invalid sampling setting of `section`.
pub fn distribution_fault(section: &str, fault: &grpo_logprob::DistributionError) -> ConfigFault {
    let key = format!("{section}.{}", fault.setting());
    ConfigFault::from_sentence(key, format!("{section}: {fault}"))
}

impl TrainError {
    /// Returns the error of a state that does not fit the trainer.
    pub(crate) fn other_state(fault: String) -> Self {
        Self::OtherState(format!("the state of the trainer does not fit: {fault}"))
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

/// Returns the error of `max_new_tokens` in `section` if prompts and completions do not fit the
/// model.
pub(crate) fn length_fault(section: &str, fault: &RolloutError) -> ConfigFault {
    let key = format!("{section}.max_new_tokens");
    ConfigFault::from_sentence(key, format!("{section}: {fault}"))
}

/// Checks that rewards failed for at most the fraction `most` of the samples; `of` names the step
/// or evaluation.
///
/// # Errors
/// [`TrainError::Reward`].
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
    Err(TrainError::Reward { failed, all, of: of(), reason: reason.to_owned() })
}
