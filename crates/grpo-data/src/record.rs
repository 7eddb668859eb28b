//! Prompts and sampled completions.

use crate::TokenSet;
use crate::{CounterRng, Purpose};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The context of a group of completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Index among the prompts of the step; a coordinate of the random numbers.
    pub index: u32,
    /// Token ids of the prompt, including the beginning mark.
    pub ids: Vec<u32>,
    /// Other fields of the record, for rewards.
    #[serde(default)]
    pub fields: Map<String, Value>,
}

impl Prompt {
    /// Creates a prompt from ids.
    pub fn of_ids(index: u32, ids: Vec<u32>) -> Self {
        Self { index, ids, fields: Map::new() }
    }
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model sampled an end mark, which is the last action.
    EndToken,
    /// A stop string or another rule.
    Stop,
    /// The token limit.
    Length,
    /// All masked positions were filled in one pass.
    Filled,
}

/// The coordinates of a completion. Together with a position they identify a random number, so the
/// completion can be sampled again alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKey {
    /// The run's seed.
    pub seed: u64,
    /// The training step, from 0.
    pub step: u32,
    /// [`Prompt::index`].
    pub prompt: u32,
    /// Index in the group, from 0.
    pub sample: u32,
}

impl SampleKey {
    /// Returns the number, uniform in `[0, 1)`, that decides the token at `position`.
    pub fn uniform(&self, purpose: Purpose, position: u32) -> f64 {
        CounterRng::new(self.seed, purpose).uniform(self.counter(position))
    }

    /// Returns the counter of `position` for a [`CounterRng`] of [`Self::seed`].
    pub fn counter(&self, position: u32) -> [u32; 4] {
        [position, self.sample, self.prompt, self.step]
    }
}

/// The distribution from which actions were sampled; scoring must use the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledUnder {
    /// Divisor of the logits, finite and above 0.
    pub temperature: f32,
    /// Repetition penalty, finite and above 0; 1 for none. Before the temperature, it divides
    /// positive logits of tokens that occurred in the sequence and multiplies the others.
    pub repetition_penalty: f32,
    /// Ids that are never sampled.
    pub forbidden: Vec<u32>,
    /// For each action of truncated sampling (top-k, top-p, min-p), the kept ids, over which
    /// probabilities sum to 1. `None`: all ids that are not forbidden.
    pub kept: Option<Vec<TokenSet>>,
    /// The mask id at the positions of all actions, if they were sampled together from the text on
    /// both sides. `None`: each action was sampled after its predecessors.
    #[serde(default)]
    pub mask_id: Option<u32>,
}

impl Default for SampledUnder {
    /// The model's own next-token distribution: temperature 1, no penalty, no forbidden ids, no
    /// truncation.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            repetition_penalty: 1.0,
            forbidden: Vec::new(),
            kept: None,
            mask_id: None,
        }
    }
}

impl SampledUnder {
    /// Checks that `actions` are possible under this distribution.
    fn check(&self, actions: &[u32]) -> Result<(), String> {
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return Err(format!(
                "a completion was sampled at temperature {}; expected a finite number above 0",
                self.temperature
            ));
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return Err(format!(
                "a completion was sampled with a repetition penalty of {}; expected a finite number above 0",
                self.repetition_penalty
            ));
        }
        if let Some(id) = actions.iter().find(|id| self.forbidden.contains(id)) {
            return Err(format!("a completion has the action {id}, which was forbidden"));
        }
        if let Some(id) = self.mask_id.filter(|id| actions.contains(id)) {
            return Err(format!("a completion has the action {id}, which is the mask token"));
        }
        if self.mask_id.is_some() && self.repetition_penalty != 1.0 {
            return Err(
                "a completion was filled in with a repetition penalty, but masked positions have no preceding tokens"
                    .to_owned(),
            );
        }
        let Some(kept) = &self.kept else { return Ok(()) };
        if kept.len() != actions.len() {
            return Err(format!(
                "a completion of {} actions has {} kept sets",
                actions.len(),
                kept.len()
            ));
        }
        match actions.iter().zip(kept).find(|(id, kept)| !kept.contains(**id)) {
            Some((id, _)) => {
                Err(format!("a completion has the action {id}, which is not in its kept set"))
            }
            None => Ok(()),
        }
    }
}

/// The fields of a [`Completion`] before validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletionParts {
    /// Token ids `[t]` of prompt and completion, without padding.
    pub ids: Vec<u32>,
    /// `[t]`, true for tokens that the policy chose: a suffix, masked positions or several turns.
    pub action_mask: Vec<bool>,
    /// Log-probability of each action under [`Self::sampled_under`], by position.
    pub sampling_logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
    /// Its coordinates.
    pub key: SampleKey,
    /// Optimizer steps of the sampling policy.
    pub policy_version: u64,
    /// The distribution from which it was sampled.
    pub sampled_under: SampledUnder,
}

/// An immutable sampled sequence. [`crate::Sample`] adds what later stages compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "CompletionParts", try_from = "CompletionParts")]
pub struct Completion(CompletionParts);

impl Completion {
    /// Validates `parts`.
    ///
    /// # Panics
    /// Panics if the mask and the ids differ in length, if no token is an action, if
    /// log-probabilities or kept sets are not one per action, if a log-probability is not finite or
    /// is positive, if temperature or repetition penalty are not finite and positive, or if an
    /// action is forbidden or not kept: the sampler has a bug. Deserialization returns an error
    /// instead.
    pub fn new(parts: CompletionParts) -> Self {
        Self::try_from(parts).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Returns the token ids `[t]` of prompt and completion.
    pub fn ids(&self) -> &[u32] {
        &self.0.ids
    }

    /// Returns `[t]`, true for tokens that the policy chose.
    pub fn action_mask(&self) -> &[bool] {
        &self.0.action_mask
    }

    /// Returns the recorded log-probability of each action, by position.
    pub fn sampling_logprobs(&self) -> &[f32] {
        &self.0.sampling_logprobs
    }

    /// Returns the ids that the policy chose, by position, including a sampled end mark.
    pub fn action_ids(&self) -> impl Iterator<Item = u32> {
        let chosen = self.0.ids.iter().zip(&self.0.action_mask);
        chosen.filter_map(|(&id, &action)| action.then_some(id))
    }

    /// Returns the ids of its text: the actions, or the whole filled text.
    pub fn text_ids(&self) -> Vec<u32> {
        match self.0.sampled_under.mask_id {
            Some(_) => self.0.ids.clone(),
            None => self.action_ids().collect(),
        }
    }

    /// Returns the number of actions, at least 1.
    pub fn actions(&self) -> usize {
        self.0.sampling_logprobs.len()
    }

    /// Returns why it ended.
    pub fn finish(&self) -> Finish {
        self.0.finish
    }

    /// Returns its coordinates.
    pub fn key(&self) -> SampleKey {
        self.0.key
    }

    /// Returns the number of optimizer steps of the sampling policy.
    pub fn policy_version(&self) -> u64 {
        self.0.policy_version
    }

    /// Returns the distribution from which it was sampled.
    pub fn sampled_under(&self) -> &SampledUnder {
        &self.0.sampled_under
    }
}

impl TryFrom<CompletionParts> for Completion {
    type Error = String;

    /// Returns an error if [`Completion::new`] would panic.
    fn try_from(parts: CompletionParts) -> Result<Self, String> {
        let (tokens, mask) = (parts.ids.len(), parts.action_mask.len());
        if tokens != mask {
            return Err(format!("a completion of {tokens} tokens has an action mask of {mask}"));
        }
        let chosen = parts.ids.iter().zip(&parts.action_mask).filter(|(_, action)| **action);
        let action_ids: Vec<u32> = chosen.map(|(&id, _)| id).collect();
        let actions = action_ids.len();
        if actions == 0 {
            return Err(format!("a completion of {tokens} tokens has no action"));
        }
        let logprobs = parts.sampling_logprobs.len();
        if actions != logprobs {
            return Err(format!(
                "a completion of {actions} actions has {logprobs} log-probabilities"
            ));
        }
        let wrong = |logprob: &&f32| !(logprob.is_finite() && **logprob <= 0.0);
        if let Some(found) = parts.sampling_logprobs.iter().find(wrong) {
            return Err(format!(
                "a sampling log-probability is {found}; expected a finite number of at most 0"
            ));
        }
        parts.sampled_under.check(&action_ids)?;
        Ok(Self(parts))
    }
}

impl From<Completion> for CompletionParts {
    fn from(completion: Completion) -> Self {
        completion.0
    }
}
