//! What engines have in common: prompts go in, groups of completions come out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::Frozen;

use crate::{Decode, RolloutError};

/// Which step of which run is sampled: the coordinates of its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKey {
    /// The run's seed.
    pub seed: u64,
    /// Training or evaluation, which share no random numbers.
    pub purpose: Purpose,
    /// The step, from 0.
    pub step: u32,
    /// Optimizer steps that the policy has behind it.
    pub policy_version: u64,
}

/// An engine: samples completions from a frozen policy.
///
/// Each token is a function of (seed, purpose, step, prompt, sample, position) and the policy, bit for bit: the completions
/// next to it, their number and the number of threads decide nothing but speed.
pub trait Rollout<M>: fmt::Debug + Send + Sync {
    /// Samples a group for each prompt.
    ///
    /// # Errors
    /// [`RolloutError::Diverged`], [`RolloutError::Interrupted`]; a prompt that the policy cannot read, or that is longer than what the engine was made for.
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError>;

    /// Samples one completion of a group once more, alone: the same as [`Self::sample`] gives, bit for bit.
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

    /// Returns the same engine, whose sampling ends with [`RolloutError::Interrupted`] soon after `flag` becomes true.
    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Rollout<M>>;
}

/// What a policy chooses, which decides the engine that samples it.
pub trait Actions<M>: Send + Sync {
    /// Makes the engine for a model of this kind.
    ///
    /// # Errors
    /// Settings that are out of range or do not fit the model.
    fn rollout(
        &self,
        policy: &M,
        request: &RolloutRequest<'_>,
    ) -> Result<Arc<dyn Rollout<M>>, RolloutError>;
}

/// What an engine is asked for.
#[derive(Clone, Copy)]
pub struct RolloutRequest<'a> {
    /// Completions of each prompt (k).
    pub group_size: usize,
    /// Tokens of the longest prompt.
    pub longest_prompt: usize,
    /// The distribution that tokens are drawn from; the engine adds ids that it never draws.
    pub sampling: &'a SamplingSettings,
    /// Longest completion, in tokens.
    pub max_new_tokens: usize,
    /// Completions sampled at the same time.
    pub batch_size: usize,
    /// Strings that end a completion.
    pub stop: &'a [String],
    /// From ids to the text that `stop` is looked for in.
    pub decode: &'a Decode,
}

impl RolloutRequest<'_> {
    /// The distribution over a vocabulary, without the ids of `forbidden`.
    ///
    /// # Errors
    /// What [`SamplingSettings::checked`] refuses.
    pub fn distribution(
        &self,
        vocabulary: usize,
        forbidden: &[u32],
    ) -> Result<SamplingDistribution, RolloutError> {
        let forbidden = [&self.sampling.forbidden, forbidden].concat();
        Ok(SamplingSettings { forbidden, ..self.sampling.clone() }.checked(vocabulary)?)
    }
}
