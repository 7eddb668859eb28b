//! Prompts and sampled completions.

use std::borrow::Cow;

use crate::{CounterRng, Prefix, Purpose, TokenSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The prompt for a group of completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Index of the prompt in the step. Random numbers depend on it.
    pub index: u32,
    /// Token ids, including the begin token.
    pub ids: Vec<u32>,
    /// Conditions that the model reads before the ids.
    #[serde(default, skip_serializing_if = "Prefix::is_empty")]
    pub prefix: Prefix,
    /// [`Self::prefix`] in words. Empty if there are no conditions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix_text: String,
    /// Remaining fields of the record, which rewards can use.
    #[serde(default)]
    pub fields: Map<String, Value>,
}

impl Prompt {
    /// Creates a prompt from token ids, without fields.
    pub fn of_ids(index: u32, ids: Vec<u32>) -> Self {
        Self {
            index,
            ids,
            prefix: Prefix::default(),
            prefix_text: String::new(),
            fields: Map::new(),
        }
    }

    /// Returns the prompt as text: its conditions in words or, if it has none, its decoded ids.
    pub fn text(&self, decode: impl FnOnce(&[u32]) -> String) -> String {
        if self.prefix_text.is_empty() { decode(&self.ids) } else { self.prefix_text.clone() }
    }
}

/// The reason why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model sampled an end token, which is the last action.
    EndToken,
    /// A stop string occurred, or another stopping criterion was met.
    Stop,
    /// The token limit was reached.
    Length,
    /// All masked positions were filled in a single pass.
    Filled,
}

/// The coordinates of a completion. Together with a token position, they identify a random number,
/// so a single completion can be sampled again in isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKey {
    /// Seed of the run.
    pub seed: u64,
    /// Training step, starting at 0.
    pub step: u32,
    /// [`Prompt::index`].
    pub prompt: u32,
    /// Index in the group, starting at 0.
    pub sample: u32,
}

impl SampleKey {
    /// Returns the random number that determines the token at `position`, uniform in `[0, 1)`.
    pub fn uniform(&self, purpose: Purpose, position: u32) -> f64 {
        CounterRng::new(self.seed, purpose).uniform(self.counter(position))
    }

    /// Returns the counter for `position`, to be used with a [`CounterRng`] created from
    /// [`Self::seed`].
    pub fn counter(&self, position: u32) -> [u32; 4] {
        [position, self.sample, self.prompt, self.step]
    }
}

/// The distribution from which the actions were sampled. Log-probabilities must be computed under
/// the same distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledUnder {
    /// Divisor of the logits. Must be finite and greater than 0.
    pub temperature: f32,
    /// Repetition penalty, finite and greater than 0. A value of 1 disables it. It is applied
    /// before the temperature to all tokens that already occurred in the sequence: positive logits
    /// are divided by it, and negative logits are multiplied by it.
    pub repetition_penalty: f32,
    /// Token ids that cannot be sampled.
    pub forbidden: Vec<u32>,
    /// The ids kept by truncated sampling (top-k, top-p, min-p), one set per action. Probabilities
    /// sum to 1 over the kept ids. `None` if all ids are kept, except the forbidden ones.
    pub kept: Option<Vec<TokenSet>>,
    /// The mask token, if all actions were sampled at the same time from the context on both sides.
    /// The input contains this id at their positions. `None` if actions were sampled from left to
    /// right.
    #[serde(default)]
    pub mask_id: Option<u32>,
}

impl Default for SampledUnder {
    /// Returns the model's unmodified next-token distribution: temperature 1, no penalty, no
    /// forbidden ids, no truncation.
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
    /// Returns an error if `actions` cannot have been sampled from this distribution.
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
    /// Conditions that the model reads before the ids.
    #[serde(default, skip_serializing_if = "Prefix::is_empty")]
    pub prefix: Prefix,
    /// Token ids `[t]` of the prompt and the completion, without padding.
    pub ids: Vec<u32>,
    /// Mask `[t]` of the tokens chosen by the policy. These can be a suffix, masked positions, or
    /// several turns.
    pub action_mask: Vec<bool>,
    /// Log-probability of each action under [`Self::sampled_under`], in order of position. `None` if the
    /// completion was not sampled, e.g. if it is replayed from an archive in another spelling.
    pub sampling_logprobs: Option<Vec<f32>>,
    /// The reason why the completion ended.
    pub finish: Finish,
    /// The coordinates of the completion.
    pub key: SampleKey,
    /// Number of optimizer steps that the sampling policy had been trained for.
    pub policy_version: u64,
    /// The distribution from which the actions were sampled.
    pub sampled_under: SampledUnder,
}

/// An immutable sampled sequence. [`crate::Sample`] adds the data computed in later stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "CompletionParts", try_from = "CompletionParts")]
pub struct Completion(CompletionParts);

impl Completion {
    /// Creates a completion from its validated parts.
    ///
    /// # Panics
    /// Panics if any of these conditions is violated, which indicates a bug in the sampler:
    /// - `ids` and `action_mask` have the same length, and there is at least one action.
    /// - There is exactly one log-probability and, if present, one kept set for each action.
    /// - All log-probabilities are finite and not positive.
    /// - Temperature and repetition penalty are finite and positive.
    /// - No action is forbidden or missing from its kept set.
    ///
    /// Deserialization returns an error instead.
    pub fn new(parts: CompletionParts) -> Self {
        Self::try_from(parts).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Returns the conditions that the model reads before the ids.
    pub fn prefix(&self) -> &Prefix {
        &self.0.prefix
    }

    /// Returns the token ids `[t]` of the prompt and the completion.
    pub fn ids(&self) -> &[u32] {
        &self.0.ids
    }

    /// Returns the mask `[t]` of the tokens chosen by the policy.
    pub fn action_mask(&self) -> &[bool] {
        &self.0.action_mask
    }

    /// Returns the log-probability of each action at sampling time, in order of position, or `None` if
    /// the completion was not sampled.
    pub fn sampling_logprobs(&self) -> Option<&[f32]> {
        self.0.sampling_logprobs.as_deref()
    }

    /// Returns [`Self::sampling_logprobs`] as they are recorded: 0 for each action if the completion was
    /// not sampled.
    pub fn recorded_logprobs(&self) -> Cow<'_, [f32]> {
        let none = || vec![0.0; self.actions()].into();
        self.sampling_logprobs().map_or_else(none, Cow::from)
    }

    /// Returns the ids chosen by the policy in order of position, including a sampled end token.
    pub fn action_ids(&self) -> impl Iterator<Item = u32> {
        let chosen = self.0.ids.iter().zip(&self.0.action_mask);
        chosen.filter_map(|(&id, &action)| action.then_some(id))
    }

    /// Returns the ids to decode: all from the first action on, with what was observed between turns or,
    /// if masked positions were filled, the entire sequence.
    pub fn text_ids(&self) -> Vec<u32> {
        let first = self.0.action_mask.iter().position(|action| *action);
        match (self.0.sampled_under.mask_id, first) {
            (None, Some(first)) => self.0.ids[first..].to_vec(),
            _ => self.0.ids.clone(),
        }
    }

    /// Returns the number of actions, at least 1.
    pub fn actions(&self) -> usize {
        self.0.action_mask.iter().filter(|action| **action).count()
    }

    /// Returns the reason why the completion ended.
    pub fn finish(&self) -> Finish {
        self.0.finish
    }

    /// Returns the coordinates of the completion.
    pub fn key(&self) -> SampleKey {
        self.0.key
    }

    /// Returns the number of optimizer steps that the sampling policy had been trained for.
    pub fn policy_version(&self) -> u64 {
        self.0.policy_version
    }

    /// Returns the distribution from which the actions were sampled.
    pub fn sampled_under(&self) -> &SampledUnder {
        &self.0.sampled_under
    }
}

impl TryFrom<CompletionParts> for Completion {
    type Error = String;

    /// Returns an error in the cases in which [`Completion::new`] panics.
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
        if let Some(logprobs) = &parts.sampling_logprobs {
            if actions != logprobs.len() {
                return Err(format!(
                    "a completion of {actions} actions has {} log-probabilities",
                    logprobs.len()
                ));
            }
            let wrong = |logprob: &&f32| !(logprob.is_finite() && **logprob <= 0.0);
            if let Some(found) = logprobs.iter().find(wrong) {
                return Err(format!(
                    "a sampling log-probability is {found}; expected a finite number of at most 0"
                ));
            }
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
