//! `ledger.jsonl`: which weights sampled each completion, and which update used it.

use crate::CompletionRecord;
use crate::manifest::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;

/// A step of a run. Hashes of weights have 64 hexadecimal digits and cover what is trained: of an
/// adapter, without its base model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerStep {
    /// The training step, from 1 as in `metrics.jsonl`.
    pub step: u64,
    /// The sampled completions.
    pub rollout: LedgerRollout,
    /// The optimizer steps on them, in order.
    pub updates: Vec<LedgerUpdate>,
    /// Hash of the reference in this step.
    pub reference: String,
    /// The reference after the updates; `None` if it did not change.
    pub reference_changed: Option<ReferenceChange>,
    /// Hash of an adapter's base model at the start of the run; `None` for full training.
    pub base: Option<String>,
    /// Hashes of the step's records; `None` before they are written, and in older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedHashes>,
    /// SHA-256 of the previous line, written by [`crate::ChainWriter`]; `None` before, and in older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

/// SHA-256 of a step's records other than its ledger line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedHashes {
    /// Hash of the step's line in `metrics.jsonl` without times and memory.
    pub metrics: String,
    /// Hash of the file of its completions; `None` if they were not recorded.
    pub completions: Option<String>,
}

impl RecordedHashes {
    /// Returns the hash of a line of `metrics.jsonl` without the metrics for which `is_machine` is
    /// true, which differ in a repeated run; `None` if the text is not a JSON object.
    pub fn of_metrics(text: &str, is_machine: fn(&str) -> bool) -> Option<String> {
        let mut line: Map<String, Value> = serde_json::from_str(text).ok()?;
        line.retain(|name, _| !is_machine(name));
        Some(sha256(
            serde_json::to_string(&line).expect("parsed JSON serializes to JSON").as_bytes(),
        ))
    }

    /// Returns the hash of a file of completions.
    pub fn of_completions(file: &[u8]) -> String {
        sha256(file)
    }
}

/// The completions of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRollout {
    /// Optimizer steps of the sampling policy.
    pub policy_version: u64,
    /// Hash of the sampling weights. For rounded weights (`sampling.weights`), of the weights
    /// before rounding.
    pub weights: String,
    /// The completions, group by group.
    pub completions: Vec<LedgerCompletion>,
}

/// An optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerUpdate {
    /// Optimizer steps of the policy after this one.
    pub version: u64,
    /// Hash of the policy after this step.
    pub weights: String,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// The completions whose gradients were added, in micro-batch order.
    pub completions: Vec<LedgerCompletion>,
}

/// A change of the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceChange {
    /// Weight of the policy (α of TR-DPO); 1 for a copy of the policy.
    pub mix: f64,
    /// Hash of the new reference.
    pub weights: String,
}

/// A completion, as `[prompt, sample, policy_version, digest]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u64, CompletionDigest)", into = "(u32, u32, u64, CompletionDigest)")]
pub struct LedgerCompletion {
    /// Index of the prompt in the step.
    pub prompt: u32,
    /// Index of the completion in its group.
    pub sample: u32,
    /// Optimizer steps of the sampling policy.
    pub policy_version: u64,
    /// Hash of position and content.
    pub digest: CompletionDigest,
}

impl From<(u32, u32, u64, CompletionDigest)> for LedgerCompletion {
    fn from((prompt, sample, policy_version, digest): (u32, u32, u64, CompletionDigest)) -> Self {
        Self { prompt, sample, policy_version, digest }
    }
}

impl From<LedgerCompletion> for (u32, u32, u64, CompletionDigest) {
    fn from(completion: LedgerCompletion) -> Self {
        let LedgerCompletion { prompt, sample, policy_version, digest } = completion;
        (prompt, sample, policy_version, digest)
    }
}

impl LedgerCompletion {
    /// Creates the entry of a completion of `step`, from 1, with these actions and sampling
    /// log-probabilities.
    ///
    /// The digest covers all of it, so completions of different steps never have the same one.
    pub fn of(
        step: u64,
        [prompt, sample]: [u32; 2],
        policy_version: u64,
        completion_ids: impl IntoIterator<Item = u32>,
        sampling_logprobs: &[f32],
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(step.to_le_bytes());
        hash.update(prompt.to_le_bytes());
        hash.update(sample.to_le_bytes());
        hash.update(policy_version.to_le_bytes());
        hash.update((sampling_logprobs.len() as u64).to_le_bytes());
        sampling_logprobs.iter().for_each(|logprob| hash.update(logprob.to_bits().to_le_bytes()));
        completion_ids.into_iter().for_each(|id| hash.update(id.to_le_bytes()));
        let hash: [u8; 32] = hash.finalize().into();
        let (first, _) =
            hash.split_first_chunk().expect("a 32-byte hash has a first chunk of 8 bytes");
        let digest = CompletionDigest(u64::from_be_bytes(*first));
        Self { prompt, sample, policy_version, digest }
    }

    /// Creates the entry of a recorded completion; `None` if its ids and log-probabilities were not
    /// recorded.
    pub fn of_record(record: &CompletionRecord) -> Option<Self> {
        (!record.completion_ids.is_empty()).then(|| {
            let (ids, logprobs) =
                (record.completion_ids.iter().copied(), &record.sampling_logprobs);
            let place = [record.prompt, record.sample];
            Self::of(record.step, place, record.policy_version, ids, logprobs)
        })
    }
}

/// The first 8 bytes of a SHA-256, written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CompletionDigest(u64);

impl fmt::Display for CompletionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<CompletionDigest> for String {
    fn from(digest: CompletionDigest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for CompletionDigest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digest = u64::from_str_radix(&text, 16).map(Self);
        let is_ours = |digest: &Self| digest.to_string() == text;
        digest.ok().filter(is_ours).ok_or_else(|| {
            format!("`{text}` is not a completion digest; expected 16 hexadecimal digits")
        })
    }
}
