//! `events.jsonl`: events of a run.

use serde::{Deserialize, Serialize};

/// An event after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Training steps done, as in `metrics.jsonl`; 0 before the first.
    pub step: u64,
    /// Time in UTC, as `2026-01-31T12:00:00Z`.
    pub at: String,
    /// Kind of event.
    #[serde(flatten)]
    pub what: EventKind,
}

/// An event with hashes of the run's files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProvenEvent {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// The hashes.
    #[serde(flatten)]
    pub proof: EventProof,
}

/// Hashes of files at the time of an event. Lines of older versions have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventProof {
    /// SHA-256 of `run.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// SHA-256 of the event's line in `ledger.jsonl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    /// The written folder, such as `model` or `checkpoints/step-3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// SHA-256 of its `manifest.json`, which has the hash of each of its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The steps of the checkpoints that the run keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<u64>>,
}

/// Kinds of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The run started.
    Started {},
    /// The run resumed from the checkpoint of this step.
    Resumed {},
    /// A signal interrupted the run, which can be resumed.
    Interrupted {},
    /// A checkpoint was written.
    Checkpoint {
        /// Whether the evaluation after this step was the best so far.
        best: bool,
    },
    /// The reference was updated.
    Reference {
        /// Weight of the policy in the update (α of TR-DPO); 1 for a copy of the policy.
        mix: f64,
        /// Hash of its new weights, as in `ledger.jsonl`.
        weights: String,
    },
    /// A guard triggered.
    Guard {
        /// The watched metric, or `not_finite`.
        watch: String,
        /// Value of the metric; `None` if it was not finite.
        value: Option<f64>,
        /// The exceeded bound, if any.
        bound: Option<f64>,
        /// Consecutive steps out of range.
        steps: u32,
        /// The action: `warn`, `stop` or `roll_back`.
        action: String,
        /// Description.
        message: String,
    },
    /// The run rolled back to an earlier checkpoint.
    RolledBack {
        /// Number of roll-backs so far.
        number: u32,
        /// The step before the roll-back.
        from_step: u64,
        /// Factor for later learning rates.
        learning_rate_factor: f64,
        /// Later coefficient of the KL penalty.
        kl_coef: f64,
    },
    /// The trained weights were saved.
    Saved {},
    /// The evaluation with the highest mean reward, written at the end of an evaluated run.
    Best {
        /// Training steps done.
        best_step: u64,
        /// Its mean reward.
        reward: f64,
        /// Folder of its policy in the run; `None` if it was not kept.
        checkpoint: Option<String>,
    },
    /// The run ended before its last step.
    Stopped {
        /// The reason.
        reason: String,
    },
    /// All steps completed.
    Finished {},
}
