//! The interface of engines: prompts in, groups of completions out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::Frozen;

use crate::{Decode, RolloutError};

/// Coordinates of a step's random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKey {
    /// The run's seed.
    pub seed: u64,
    /// Training or evaluation, which use different random numbers.
    pub purpose: Purpose,
    /// The step, from 0.
    pub step: u32,
    /// Optimizer steps of the policy so far.
    pub policy_version: u64,
}

/// An engine that samples completions from a frozen policy.
///
/// Each token is a function of (seed, purpose, step, prompt, sample, position) and the policy, bit
/// for bit. Other completions, their number and the number of threads affect only speed.
pub trait Rollout<M>: fmt::Debug + Send + Sync {
    /// Samples a group for each prompt.
    ///
    /// # Errors
    /// [`RolloutError::Diverged`], [`RolloutError::Interrupted`]; also if a prompt is not valid for
    /// the policy or longer than the engine's limit.
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError>;

    /// Samples one completion again, alone, bit-identical to [`Self::sample`].
    ///
    /// # Errors
    /// As [`Self::sample`].
    ///
    /// # Panics
    /// As [`Self::sample`].
    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError>;

    /// Returns the same engine, which ends with [`RolloutError::Interrupted`] soon after `flag`
    /// becomes true.
    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Rollout<M>>;
}

/// The actions of a policy, which determine the engine.
pub trait Actions<M>: Send + Sync {
    /// Creates the engine for a model of this kind.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or does not fit the model.
    fn rollout(
        &self,
        policy: &M,
        request: &RolloutRequest<'_>,
    ) -> Result<Arc<dyn Rollout<M>>, RolloutError>;
}

/// Settings of a new engine.
#[derive(Clone, Copy)]
pub struct RolloutRequest<'a> {
    /// Completions per prompt (k).
    pub group_size: usize,
    /// Length of the longest prompt in tokens.
    pub longest_prompt: usize,
    /// The sampling distribution; the engine adds ids that it never draws.
    pub sampling: &'a SamplingSettings,
    /// Largest length of a completion in tokens.
    pub max_new_tokens: usize,
    /// Completions sampled at the same time.
    pub batch_size: usize,
    /// Strings that end a completion.
    pub stop: &'a [String],
    /// Decodes the ids in which `stop` is searched.
    pub decode: &'a Decode,
}

impl RolloutRequest<'_> {
    /// Returns the distribution over a vocabulary, without the `forbidden` ids.
    ///
    /// # Errors
    /// As [`SamplingSettings::checked`].
    pub fn distribution(
        &self,
        vocabulary: usize,
        forbidden: &[u32],
    ) -> Result<SamplingDistribution, RolloutError> {
        let forbidden = [&self.sampling.forbidden, forbidden].concat();
        Ok(SamplingSettings { forbidden, ..self.sampling.clone() }.checked(vocabulary)?)
    }
}
