//! Why training cannot start or cannot go on.

use std::ops::RangeInclusive;

use burn::tensor::Tensor;
use grpo_core::AdvantageError;
use grpo_data::{ConfigFault, Sample, short_number};
use grpo_model::ModelError;
use grpo_rollout::RolloutError;

/// A training that ended with a reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A setting that cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// A text that cannot be compared with others.
    #[error(transparent)]
    Embed(#[from] grpo_eval::EmbedError),
    /// Settings that cannot be sampled with, or a policy that cannot be sampled any more.
    #[error("sampling: {0}")]
    Rollout(RolloutError),
    /// Rewards that no advantage can be made of.
    #[error(transparent)]
    Advantage(#[from] AdvantageError),
    /// Too many rewards failed.
    #[error(
        "the reward failed for {failed} of {all} completions of {of}; the first reason: {reason}"
    )]
    Reward {
        /// Completions that were not scored because of a failure.
        failed: usize,
        /// All completions.
        all: usize,
        /// The step or the evaluation that sampled them.
        of: String,
        /// The first failure.
        reason: String,
    },
    /// A saved state that is not of this training, in one sentence.
    #[error("{0}")]
    OtherState(String),
    /// The training was asked to end.
    #[error("the training was interrupted")]
    Interrupted,
    /// The sampler computes something else than the trainer.
    #[error("step {step}: the sampler recorded the log-probability {sampler:.6} at position {position} of prompt {prompt}, sample {sample}, and with the same weights the trainer computes {trainer:.6}, which is further than sampler_check.tolerance = {tolerance}; {}", what_to_do(*sampler, *trainer))]
    SamplerMismatch {
        /// Step, from 1.
        step: u64,
        /// The prompt's place in the step, from 0.
        prompt: u32,
        /// The completion's place in its group, from 0.
        sample: u32,
        /// The token's place in the sequence, from 0, behind the prompt's.
        position: usize,
        /// What was recorded.
        sampler: f64,
        /// What it should be.
        trainer: f64,
        /// How far apart the two may be.
        tolerance: f64,
    },
    /// A number that is not finite any more. The weights of the step before are whole.
    #[error(
        "the {what} became {value}: training has diverged; lower the learning rate, or look at the data and the rewards"
    )]
    Diverged {
        /// What.
        what: &'static str,
        /// NaN or infinite.
        value: f64,
    },
    /// Texts that nothing can be learned from.
    #[error(transparent)]
    Data(#[from] grpo_data::DataError),
    /// Data that the objective of a task can learn nothing from.
    #[error(transparent)]
    Objective(Box<dyn std::error::Error + Send + Sync>),
    /// Logits that nothing can be drawn from.
    #[error(transparent)]
    Logits(#[from] grpo_logprob::NotFinite),
    /// A reference that cannot follow the policy.
    #[error(transparent)]
    Reference(#[from] ModelError),
    /// What the caller does with progress (writing a line, saving a checkpoint) failed.
    #[error(transparent)]
    Observer(Box<dyn std::error::Error + Send + Sync>),
}

/// What helps against a sampler that is not the trainer.
fn what_to_do(sampler: f64, trainer: f64) -> &'static str {
    if (sampler - trainer).is_finite() {
        "find out in what the two differ, or set sampler_check.above = \"correct\" to weigh the tokens of such a step by the quotient of the two"
    } else {
        "no weight corrects that: the model, or what computes it, is broken"
    }
}

/// Checks one number of a configuration.
///
/// # Errors
/// It is outside of `range`; the error names `key`.
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
/// It is not finite.
pub fn finite_loss(loss: Tensor<1>) -> Result<f64, TrainError> {
    finite(f64::from(loss.into_scalar::<f32>()))
}

/// Returns the value of a loss.
///
/// # Errors
/// It is not finite.
pub(crate) fn finite(value: f64) -> Result<f64, TrainError> {
    if value.is_finite() { Ok(value) } else { Err(TrainError::Diverged { what: "loss", value }) }
}

/// Returns the fault of a setting of `section` that tokens cannot be drawn with.
pub fn distribution_fault(section: &str, fault: &grpo_logprob::DistributionError) -> ConfigFault {
    let key = format!("{section}.{}", fault.setting());
    ConfigFault::from_sentence(key, format!("{section}: {fault}"))
}

impl TrainError {
    /// What does not fit in the state of a trainer.
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

/// The fault of the `max_new_tokens` of `section`: prompts with completions do not fit the model.
pub(crate) fn length_fault(section: &str, fault: &RolloutError) -> ConfigFault {
    let key = format!("{section}.max_new_tokens");
    ConfigFault::from_sentence(key, format!("{section}: {fault}"))
}

/// Refuses samples of which more than the fraction `most` have a reward that failed; `of` says whose they are.
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
