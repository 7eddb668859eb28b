//! `completions/completions.jsonl`: what the policy wrote, and what it got for it.

use crate::{RunError, read_json_lines};
use grpo_data::Finish;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// One sampled completion. Numbers that were NaN or infinite read back as `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionRecord {
    /// The training step, from 1 as in `metrics.jsonl`.
    pub step: u64,
    /// The prompt's place in the step.
    pub prompt: u32,
    /// The decoded prompt, without marks, where there was more than a beginning mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
    /// The completion's place in its group.
    pub sample: u32,
    /// The decoded actions, without marks.
    pub text: String,
    /// The total reward; `None` where the reward abstained or failed.
    pub reward: Option<f64>,
    /// The parts of the reward, by name.
    pub parts: BTreeMap<String, Option<f64>>,
    /// The advantage, in units of the configured normalisation.
    pub advantage: Option<f64>,
    /// How many tokens the policy chose.
    pub actions: u32,
    /// Those tokens.
    #[serde(default)]
    pub completion_ids: Vec<u32>,
    /// The log-probability that each was sampled with, in nats; the shortest decimals that are this number in f32 and no
    /// other.
    #[serde(default)]
    pub sampling_logprobs: Vec<f32>,
    /// Sum of the log-probabilities that the actions were sampled with, in nats.
    pub sampling_logprob: Option<f64>,
    /// Why it stopped.
    pub finish: Finish,
    /// Optimizer steps that the policy had behind it.
    pub policy_version: u64,
}

/// The completions of a run, in the order in which they were written.
///
/// # Errors
/// The file cannot be read, or a finished line is no such record.
pub fn read_completions(path: &Path) -> Result<Vec<CompletionRecord>, RunError> {
    read_json_lines(path)
}
