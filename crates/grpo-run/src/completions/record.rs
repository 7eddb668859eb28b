//! A row of a file of completions.

use grpo_data::Finish;
use std::collections::BTreeMap;

/// A sampled completion, one row of its step's file. Lists have one entry per action.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRecord {
    /// The training step, from 1 as in `metrics.jsonl`.
    pub step: u64,
    /// Index of the prompt in the step.
    pub prompt: u32,
    /// The decoded prompt without special tokens, if it has more than a beginning mark.
    pub prompt_text: Option<String>,
    /// Index of the completion in its group.
    pub sample: u32,
    /// The decoded actions without special tokens.
    pub text: String,
    /// The total reward; present only for [`RecordedOutcome::Scored`].
    pub reward: Option<f64>,
    /// The bonus added to the reward before advantages were computed, if any. Older versions
    /// include it in `reward`.
    pub bonus: Option<f64>,
    /// Whether the reward scored the completion.
    pub outcome: RecordedOutcome,
    /// Why the reward failed; present only if it did.
    pub reason: Option<String>,
    /// The components of the reward by name: the columns `rewards/NAME`.
    pub parts: BTreeMap<String, f64>,
    /// The advantage after normalisation.
    pub advantage: f64,
    /// Number of action tokens.
    pub actions: u32,
    /// Why the completion ended.
    pub finish: Finish,
    /// Optimizer steps of the sampling policy.
    pub policy_version: u64,
    /// Action tokens.
    pub completion_ids: Vec<u32>,
    /// Log-probabilities recorded by the sampler, in nats.
    pub sampling_logprobs: Vec<f32>,
    /// Log-probabilities of the trainer in the first update (`log π_old`), in nats.
    pub logprobs: Vec<f32>,
    /// Log-probabilities of the reference, in nats.
    pub ref_logprobs: Vec<f32>,
    /// Entropies of the policy in the first update, in nats.
    pub entropies: Vec<f32>,
    /// ∂loss/∂log π_θ of each token, summed over the updates of the step; negative if the step
    /// makes the token more probable.
    pub gradients: Vec<f32>,
    /// The same of the surrogate alone, without the KL penalty.
    pub surrogate_gradients: Vec<f32>,
    /// Outcome of each token: `moved`, or why not. One word if it is equal in all updates of the
    /// step, else one word per update, separated by `+`.
    pub fates: Vec<String>,
}

/// Whether a reward scored a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// The reward is a number.
    Scored,
    /// The reward abstained.
    Abstained,
    /// The reward failed.
    Failed,
}

impl RecordedOutcome {
    pub(super) const ALL: [Self; 3] = [Self::Scored, Self::Abstained, Self::Failed];

    /// Returns the name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::Abstained => "abstained",
            Self::Failed => "failed",
        }
    }
}
