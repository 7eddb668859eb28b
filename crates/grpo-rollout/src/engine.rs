//! Interface between the trainer and sampling engines.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use grpo_data::{Completion, Group, Prompt, Purpose};
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::{Frozen, RolloutActivations};

use crate::{Decode, RolloutError};

/// Identifies the random numbers used in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepKey {
    /// Seed of the run.
    pub seed: u64,
    /// Purpose of sampling. Training and evaluation use different random numbers.
    pub purpose: Purpose,
    /// Step number, counted from 0.
    pub step: u32,
    /// Number of optimizer steps applied to the policy so far.
    pub policy_version: u64,
}

/// A turn of one completion.
#[derive(Clone, Copy, Debug)]
pub struct TurnRequest<'a> {
    /// The prompt, with all earlier turns and observations among its ids.
    pub context: &'a Prompt,
    /// Index of the completion in its group.
    pub sample: u32,
    /// Number of earlier turns.
    pub turn: usize,
}

/// Called for each finished completion.
pub type Report = Arc<dyn Fn() + Send + Sync>;

/// Samples completions from a frozen policy.
///
/// Each token of an engine that repeats completions is determined by the policy and by (seed, purpose,
/// step, prompt, sample, position), bit for bit. Other completions in the batch and the number of threads
/// only affect speed.
pub trait Engine<M>: fmt::Debug + Send + Sync {
    /// Samples a group of completions for each prompt.
    ///
    /// # Errors
    /// Returns [`RolloutError::Diverged`] if the logits are not finite and
    /// [`RolloutError::Interrupted`] if sampling is interrupted. Also returns an error if a prompt
    /// is invalid for the policy or longer than the engine supports.
    fn sample(
        &self,
        policy: &Frozen<M>,
        prompts: &[Prompt],
        key: StepKey,
    ) -> Result<Vec<Group>, RolloutError>;

    /// Samples a single completion again. The result is bit-identical to the one from
    /// [`Self::sample`].
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::sample`], or if the engine does not repeat
    /// completions ([`crate::EngineConfig::repeats`]).
    ///
    /// # Panics
    /// Panics under the same conditions as [`Self::sample`].
    fn again(
        &self,
        policy: &Frozen<M>,
        prompt: &Prompt,
        sample: u32,
        key: StepKey,
    ) -> Result<Completion, RolloutError>;

    /// Samples one turn for each request, in their order. By default, the turns are sampled one after
    /// another by [`Self::again`].
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::sample`].
    fn take_turns(
        &self,
        policy: &Frozen<M>,
        requests: &[TurnRequest<'_>],
        key: StepKey,
    ) -> Result<Vec<Completion>, RolloutError> {
        let turn =
            |request: &TurnRequest<'_>| self.again(policy, request.context, request.sample, key);
        requests.iter().map(turn).collect()
    }

    /// Returns a copy of the engine that stops with [`RolloutError::Interrupted`] shortly after
    /// `flag` is set.
    fn interrupted_by(&self, flag: Arc<AtomicBool>) -> Arc<dyn Engine<M>>;

    /// Returns a copy of the engine that calls `report` whenever [`Self::sample`] has finished a completion,
    /// perhaps from several threads, if it can. Only for displays.
    fn reporting(&self, report: Report) -> Option<Arc<dyn Engine<M>>> {
        let _ = report;
        None
    }

    /// Returns a copy of the engine that keeps the activations of completions for training, if it can.
    /// Those of a rollout replace those of the one before.
    fn keeping(&self, activations: RolloutActivations) -> Option<Arc<dyn Engine<M>>> {
        let _ = activations;
        None
    }
}

/// Creates engines for a policy: those of this process, which know the policy's actions, or others.
pub trait EngineFactory<M>: Send + Sync {
    /// Creates an engine for the given model.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range or incompatible with the model.
    fn create(
        &self,
        policy: &M,
        request: &EngineRequest<'_>,
    ) -> Result<Arc<dyn Engine<M>>, RolloutError>;

    /// Returns the maximum number of turns of a completion, each of which can have
    /// [`EngineRequest::max_new_tokens`] tokens.
    fn max_turns(&self) -> usize {
        1
    }
}

/// Settings for creating an engine.
#[derive(Clone, Copy)]
pub struct EngineRequest<'a> {
    /// Number of completions per prompt (k).
    pub group_size: usize,
    /// Maximum prompt length in tokens.
    pub longest_prompt: usize,
    /// Sampling settings. Engines may exclude additional ids.
    pub sampling: &'a SamplingSettings,
    /// Maximum length of a turn in tokens; completions of one turn have no other.
    pub max_new_tokens: usize,
    /// Number of completions sampled at the same time.
    pub batch_size: usize,
    /// Strings that end a completion.
    pub stop: &'a [String],
    /// Decodes ids to text, which is searched for `stop`.
    pub decode: &'a Decode,
}

impl EngineRequest<'_> {
    /// Returns the distribution over `vocabulary` tokens, excluding the `forbidden` ids.
    ///
    /// # Errors
    /// Returns an error if [`SamplingSettings::checked`] fails.
    pub fn distribution(
        &self,
        vocabulary: usize,
        forbidden: &[u32],
    ) -> Result<SamplingDistribution, RolloutError> {
        let forbidden = [&self.sampling.forbidden, forbidden].concat();
        Ok(SamplingSettings { forbidden, ..self.sampling.clone() }.checked(vocabulary)?)
    }
}
