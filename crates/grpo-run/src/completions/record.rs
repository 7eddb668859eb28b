//! A row of a file of completions.

use grpo_data::Finish;
use std::collections::BTreeMap;

/// One sampled completion: a row of the file of its step. Lists are of its actions, one entry each.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRecord {
    /// The training step, from 1 as in `metrics.jsonl`.
    pub step: u64,
    /// The prompt's place in the step.
    pub prompt: u32,
    /// The decoded prompt, without marks, where there was more than a beginning mark.
    pub prompt_text: Option<String>,
    /// The completion's place in its group.
    pub sample: u32,
    /// The decoded actions, without marks.
    pub text: String,
    /// The total reward; there exactly where the outcome is [`RecordedOutcome::Scored`].
    pub reward: Option<f64>,
    /// What was added to the reward before advantages were computed, if anything was. Files of older versions have it in
    /// `reward` instead.
    pub bonus: Option<f64>,
    /// Whether the reward had an answer.
    pub outcome: RecordedOutcome,
    /// Why the reward failed; there exactly where it did.
    pub reason: Option<String>,
    /// The parts of the reward that this completion has, by name: the columns `rewards/NAME`.
    pub parts: BTreeMap<String, f64>,
    /// The advantage, in units of the configured normalisation.
    pub advantage: f64,
    /// How many tokens the policy chose.
    pub actions: u32,
    /// Why it stopped.
    pub finish: Finish,
    /// Optimizer steps that the policy had behind it.
    pub policy_version: u64,
    /// The tokens that the policy chose.
    pub completion_ids: Vec<u32>,
    /// The log-probability that each was sampled with, in nats.
    pub sampling_logprobs: Vec<f32>,
    /// The trainer's own in the first update (`log π_old`), in nats.
    pub logprobs: Vec<f32>,
    /// Those of the reference, in nats.
    pub ref_logprobs: Vec<f32>,
    /// Entropies of the policy's distributions in the first update, in nats.
    pub entropies: Vec<f32>,
    /// ∂loss/∂log π_θ of each token, summed over the updates of the step: below 0 where the step makes it likelier.
    pub gradients: Vec<f32>,
    /// The same of the surrogate alone, without the KL penalty.
    pub surrogate_gradients: Vec<f32>,
    /// What became of each token: `moved`, or why not. One word where it is the same in all updates of the step, else
    /// one word an update with `+` between them.
    pub fates: Vec<String>,
}

/// Whether a reward had an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// A number.
    Scored,
    /// It had nothing to say.
    Abstained,
    /// It could not be computed.
    Failed,
}

impl RecordedOutcome {
    pub(super) const ALL: [Self; 3] = [Self::Scored, Self::Abstained, Self::Failed];

    /// As it stands in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::Abstained => "abstained",
            Self::Failed => "failed",
        }
    }
}
