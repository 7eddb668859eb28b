//! How a policy acts: it continues a prompt, or fills the blanks of a text.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt};
use grpo_model::{Frozen, LanguageModel};

use crate::{Infilling, Rollout, RolloutError, StepKey};

/// What turns prompts into groups of completions.
#[derive(Clone, Debug)]
pub enum Sampler {
    /// Token by token, behind the prompt.
    Continuation(Rollout),
    /// All blanks of the prompt at once.
    Infilling(Infilling),
}

impl Sampler {
    /// Sampling ends with [`RolloutError::Interrupted`] soon after `flag` becomes true.
    #[must_use]
    pub fn interrupted_by(self, flag: Arc<AtomicBool>) -> Self {
        match self {
            Self::Continuation(rollout) => Self::Continuation(rollout.interrupted_by(flag)),
            Self::Infilling(infilling) => Self::Infilling(infilling.interrupted_by(flag)),
        }
    }

    /// Samples a group for each prompt.
    ///
    /// # Errors
    /// As [`Rollout::sample`] and [`Infilling::sample`].
    ///
    /// # Panics
    /// Where a prompt has conditions.
    pub fn sample<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError> {
        match self {
            Self::Continuation(rollout) => rollout.sample(policy, prompts, key),
            Self::Infilling(infilling) => infilling.sample(policy, prompts, key),
        }
    }

    /// Samples one completion of a group once more, alone: the same as [`Self::sample`] gives, to the last bit.
    ///
    /// # Errors
    /// As [`Self::sample`].
    ///
    /// # Panics
    /// As [`Self::sample`].
    pub fn again<M: LanguageModel>(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError> {
        match self {
            Self::Continuation(rollout) => rollout.again(policy, prompt, sample, key),
            Self::Infilling(infilling) => infilling.again(policy, prompt, sample, key),
        }
    }
}
