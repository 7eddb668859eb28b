//! Prompts, and completions as they were sampled.

use crate::TokenSet;
use crate::{CounterRng, Purpose};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The context that a group of completions shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Its place in the step's list of prompts; a coordinate of the random numbers.
    pub index: u32,
    /// Token ids in front of the first sampled one, the beginning mark among them.
    pub ids: Vec<u32>,
    /// What else its record says, for rewards.
    #[serde(default)]
    pub fields: Map<String, Value>,
}

impl Prompt {
    /// A prompt of ids alone.
    pub fn of_ids(index: u32, ids: Vec<u32>) -> Self {
        Self { index, ids, fields: Map::new() }
    }
}

/// Why a completion stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model gave its end mark, which is the last action.
    EndToken,
    /// A stop string, or another rule, ended it.
    Stop,
    /// The limit of tokens was reached first.
    Length,
    /// All of its masked positions were filled, in one pass.
    Filled,
}

/// Which sample of a run a completion is. With a position it names one random number, so the
/// completion can be drawn again alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKey {
    /// The run's seed.
    pub seed: u64,
    /// The training step, from 0.
    pub step: u32,
    /// [`Prompt::index`].
    pub prompt: u32,
    /// Its place in the group, from 0.
    pub sample: u32,
}

impl SampleKey {
    /// The number uniform in `[0, 1)` that decides the token at `position` of the sequence.
    pub fn uniform(&self, purpose: Purpose, position: u32) -> f64 {
        CounterRng::new(self.seed, purpose).uniform(self.counter(position))
    }

    /// The counter of `position` for a [`CounterRng`] of [`Self::seed`].
    pub fn counter(&self, position: u32) -> [u32; 4] {
        [position, self.sample, self.prompt, self.step]
    }
}

/// The distribution that actions were drawn from, which is the one to score them under.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledUnder {
    /// Logits were divided by this; finite and above 0.
    pub temperature: f32,
    /// Before that, positive logits of tokens that the sequence had already were divided by this and
    /// the others of them multiplied by it; finite and above 0, 1 where there was no such penalty.
    pub repetition_penalty: f32,
    /// Ids that could not be drawn, at any position.
    pub forbidden: Vec<u32>,
    /// With truncated sampling (top-k, top-p, min-p): for each action the ids that could be drawn,
    /// over which the probabilities sum to 1. `None`: all ids that are not forbidden.
    pub kept: Option<Vec<TokenSet>>,
    /// The id that stood in the place of each action when they were drawn, all of them from one look at the text before and
    /// behind. `None`: each action was drawn after those in front of it.
    #[serde(default)]
    pub mask_id: Option<u32>,
}

impl Default for SampledUnder {
    /// The model's own distribution of the next token: temperature 1, no penalty, nothing forbidden, nothing cut.
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
    /// The fault, where `actions` cannot have been drawn under this.
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
            return Err(format!(
                "a completion has the action {id}, which stands for a masked position"
            ));
        }
        if self.mask_id.is_some() && self.repetition_penalty != 1.0 {
            return Err(
                "a completion was filled in with a repetition penalty, and nothing is in front of a masked position"
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

/// The fields of a [`Completion`], before they are checked and frozen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletionParts {
    /// Token ids `[t]` of the whole sequence, prompt and sampled tokens, without padding.
    pub ids: Vec<u32>,
    /// `[t]`, true where the policy chose the token: a suffix, masked positions or several turns.
    pub action_mask: Vec<bool>,
    /// Log-probability of each action under [`Self::sampled_under`], in the order of positions.
    pub sampling_logprobs: Vec<f32>,
    /// Why it stopped.
    pub finish: Finish,
    /// Which sample of the run it is.
    pub key: SampleKey,
    /// Optimizer steps that the policy had behind it when it was sampled.
    pub policy_version: u64,
    /// The distribution that it was drawn from.
    pub sampled_under: SampledUnder,
}

/// A sampled sequence, immutable. What is known about it besides is in its [`crate::Sample`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "CompletionParts", try_from = "CompletionParts")]
pub struct Completion(CompletionParts);

impl Completion {
    /// Freezes `parts`.
    ///
    /// # Panics
    /// If the mask is not as long as the ids, no token is an action, the log-probabilities or kept
    /// sets are not one for each action, a log-probability is NaN, infinite or positive, the
    /// temperature or the repetition penalty is not finite and positive, or an action is forbidden or
    /// not in its kept set: the sampler is wrong. Reading a stored completion through serde gives an
    /// error instead.
    pub fn new(parts: CompletionParts) -> Self {
        Self::try_from(parts).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Token ids `[t]` of the whole sequence, prompt and sampled tokens.
    pub fn ids(&self) -> &[u32] {
        &self.0.ids
    }

    /// `[t]`, true where the policy chose the token.
    pub fn action_mask(&self) -> &[bool] {
        &self.0.action_mask
    }

    /// Log-probability of each action when it was sampled, in the order of positions.
    pub fn sampling_logprobs(&self) -> &[f32] {
        &self.0.sampling_logprobs
    }

    /// The ids that the policy chose, in the order of positions; the end mark is the last one
    /// where the model gave it.
    pub fn action_ids(&self) -> impl Iterator<Item = u32> {
        let chosen = self.0.ids.iter().zip(&self.0.action_mask);
        chosen.filter_map(|(&id, &action)| action.then_some(id))
    }

    /// The ids that are its text for a reader: those that the policy chose, or the whole filled-in text.
    pub fn text_ids(&self) -> Vec<u32> {
        match self.0.sampled_under.mask_id {
            Some(_) => self.0.ids.clone(),
            None => self.action_ids().collect(),
        }
    }

    /// How many tokens the policy chose; at least 1.
    pub fn actions(&self) -> usize {
        self.0.sampling_logprobs.len()
    }

    /// Why it stopped.
    pub fn finish(&self) -> Finish {
        self.0.finish
    }

    /// Which sample of the run it is.
    pub fn key(&self) -> SampleKey {
        self.0.key
    }

    /// Optimizer steps that the policy had behind it when it was sampled.
    pub fn policy_version(&self) -> u64 {
        self.0.policy_version
    }

    /// The distribution that it was drawn from.
    pub fn sampled_under(&self) -> &SampledUnder {
        &self.0.sampled_under
    }
}

impl TryFrom<CompletionParts> for Completion {
    type Error = String;

    /// The fault, where [`Completion::new`] would panic.
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
