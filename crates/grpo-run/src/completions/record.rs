//! The schema of a completions file.

use std::collections::BTreeMap;

use grpo_data::{Finish, TokenColumns};

/// A sampled completion, stored as a row in the completions file of its step. Lists contain one
/// entry per action token.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRecord {
    /// Training step, starting at 1 as in `metrics.jsonl`.
    pub step: u64,
    /// Index of the prompt within the step.
    pub prompt: u32,
    /// Decoded prompt without special tokens. `None` if the prompt is only the
    /// beginning-of-sequence token.
    pub prompt_text: Option<String>,
    /// Token ids of the prompt. Empty for prompts with conditions, which are not token ids. Missing
    /// in files written by older versions.
    pub prompt_ids: Vec<u32>,
    /// Index of the completion within its group.
    pub sample: u32,
    /// Decoded action tokens without special tokens.
    pub text: String,
    /// Total reward. Only present if the outcome is [`RecordedOutcome::Scored`].
    pub reward: Option<f64>,
    /// Bonus added to the reward before advantages were computed. Older versions include it in
    /// `reward`.
    pub bonus: Option<f64>,
    /// Whether the reward scored the completion.
    pub outcome: RecordedOutcome,
    /// Error message of the reward function, if it failed.
    pub reason: Option<String>,
    /// What an external reward said about the completion. Missing in files written by older
    /// versions.
    pub info: Option<String>,
    /// Reward components by name, stored in the columns `rewards/NAME`.
    pub parts: BTreeMap<String, f64>,
    /// Normalised advantage.
    pub advantage: f64,
    /// Number of action tokens.
    pub actions: u32,
    /// Why the completion ended.
    pub finish: Finish,
    /// Number of optimizer steps taken by the sampling policy.
    pub policy_version: u64,
    /// Ids of the action tokens.
    pub completion_ids: Vec<u32>,
    /// Log-probabilities under the sampling policy, as recorded by the sampler, in nats.
    pub sampling_logprobs: Vec<f32>,
    /// Other numbers per token, each stored in a column of its name: `logprobs` (`log π_old`),
    /// `ref_logprobs` and `entropies` in nats, `gradients` (∂loss/∂log π_θ, summed over the updates of the
    /// step; negative if the step makes the token more likely), `surrogate_gradients` (the same without
    /// the KL penalty), and what else the trainer traces.
    pub tokens: TokenColumns<f32>,
    /// Outcome of each token: `moved`, or the reason why it was not. If it varies between the
    /// updates of the step, there is one word per update, separated by `+`.
    pub outcomes: Vec<String>,
}

/// The result of scoring a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// The reward function returned a number.
    Scored,
    /// The reward function abstained.
    Abstained,
    /// The reward function failed.
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
