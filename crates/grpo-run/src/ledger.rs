//! `ledger.jsonl`: records which weights sampled each completion and which updates used it.

use crate::CompletionRecord;
use crate::manifest::sha256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;

/// The ledger line of a step. Weight hashes have 64 hexadecimal digits and only cover trained
/// weights. For an adapter, the base model is not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerStep {
    /// Training step, starting at 1 as in `metrics.jsonl`.
    pub step: u64,
    /// The sampled completions.
    pub rollout: LedgerRollout,
    /// Policy updates of the step, in order.
    pub updates: Vec<LedgerUpdate>,
    /// Hash of the reference policy used in this step.
    pub reference: String,
    /// The new reference policy after the updates, or `None` if it did not change.
    pub reference_changed: Option<ReferenceChange>,
    /// Hash of the adapter's base model at the start of the run. `None` if all weights are trained.
    pub base: Option<String>,
    /// Hashes of the step's other records. `None` before they are written and in runs created by
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedHashes>,
    /// SHA-256 of the previous line, added by [`crate::ChainWriter`]. `None` before the line is
    /// written and in runs created by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

/// SHA-256 hashes of a step's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedHashes {
    /// Hash of the `metrics.jsonl` line, excluding times and memory usage.
    pub metrics: String,
    /// Hash of the completions file, or `None` if no completions were recorded.
    pub completions: Option<String>,
}

impl RecordedHashes {
    /// Hashes a `metrics.jsonl` line. Metrics for which `is_of_machine` returns true are excluded,
    /// because they differ when a run is repeated. Returns `None` if the text is not a JSON object.
    pub fn of_metrics(text: &str, is_of_machine: impl Fn(&str) -> bool) -> Option<String> {
        Some(Self::of_metrics_line(serde_json::from_str(text).ok()?, is_of_machine))
    }

    /// Hashes a parsed `metrics.jsonl` line. See [`Self::of_metrics`].
    pub(crate) fn of_metrics_line(
        mut line: Map<String, Value>,
        is_of_machine: impl Fn(&str) -> bool,
    ) -> String {
        line.retain(|name, _| !is_of_machine(name));
        sha256(serde_json::to_string(&line).expect("parsed JSON serializes to JSON").as_bytes())
    }

    /// Hashes a completions file.
    pub fn of_completions(file: &[u8]) -> String {
        sha256(file)
    }
}

/// The rollout of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRollout {
    /// Number of optimizer steps taken by the sampling policy.
    pub policy_version: u64,
    /// Hash of the weights used for sampling. If they were rounded (`sampling.weights`), this is
    /// the hash before rounding.
    pub weights: String,
    /// All sampled completions, ordered by group.
    pub completions: Vec<LedgerCompletion>,
}

/// An optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerUpdate {
    /// Number of optimizer steps taken by the policy, including this one.
    pub version: u64,
    /// Hash of the policy weights after this optimizer step.
    pub weights: String,
    /// Learning rate of this optimizer step.
    pub learning_rate: f64,
    /// Completions that contributed gradients, in micro-batch order.
    pub completions: Vec<LedgerCompletion>,
    /// Hash of the token ids of replayed completions, if the step used them instead of sampled ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<String>,
}

impl LedgerUpdate {
    /// Hashes the token ids of replayed completions.
    pub fn replayed<I: Iterator<Item = u32>>(completions: impl Iterator<Item = I>) -> String {
        let mut bytes = Vec::new();
        for ids in completions {
            let ids: Vec<u32> = ids.collect();
            bytes.extend((ids.len() as u64).to_le_bytes());
            ids.iter().for_each(|id| bytes.extend(id.to_le_bytes()));
        }
        sha256(&bytes)
    }
}

/// An update of the reference policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceChange {
    /// Weight of the policy in the update (α in TR-DPO). 1 means that the policy was copied.
    pub mix: f64,
    /// Hash of the new reference weights.
    pub weights: String,
}

/// A completion, serialized as `[prompt, sample, policy_version, digest]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u64, CompletionDigest)", into = "(u32, u32, u64, CompletionDigest)")]
pub struct LedgerCompletion {
    /// Index of the prompt within the step.
    pub prompt: u32,
    /// Index of the completion within its group.
    pub sample: u32,
    /// Number of optimizer steps taken by the sampling policy.
    pub policy_version: u64,
    /// Hash of the completion's position and contents.
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
    /// Creates the entry for a completion of `step`, which starts at 1.
    ///
    /// All arguments contribute to the digest, so completions of different steps never share a
    /// digest.
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

    /// Creates the entry for a recorded completion. Returns `None` if its token ids and
    /// log-probabilities were not recorded.
    pub fn of_record(record: &CompletionRecord) -> Option<Self> {
        (!record.completion_ids.is_empty()).then(|| {
            let (ids, logprobs) =
                (record.completion_ids.iter().copied(), &record.sampling_logprobs);
            let place = [record.prompt, record.sample];
            Self::of(record.step, place, record.policy_version, ids, logprobs)
        })
    }
}

/// The first 8 bytes of a SHA-256 hash, serialized as 16 hexadecimal digits.
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
