//! `events.jsonl`: what happened to a run besides its steps.

use serde::{Deserialize, Serialize};

/// Something that happened after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Training steps that were done, as in `metrics.jsonl`; 0 before the first.
    pub step: u64,
    /// When, in UTC, as `2026-01-31T12:00:00Z`.
    pub at: String,
    /// What.
    #[serde(flatten)]
    pub what: EventKind,
}

/// An event as it is written, with what it proves of the files of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProvenEvent {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// What it proves.
    #[serde(flatten)]
    pub proof: EventProof,
}

/// Hashes of files at the moment of an event. Lines of older versions have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventProof {
    /// SHA-256 of `run.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// SHA-256 of the line of `ledger.jsonl` of the event's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    /// The folder that was written, as `model` or `checkpoints/step-3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// SHA-256 of its `manifest.json`, which has that of each of its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The steps of the checkpoints that the run keeps from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<u64>>,
}

/// What can happen to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The run began.
    Started {},
    /// The run goes on from the checkpoint of this step.
    Resumed {},
    /// A signal asked the run to end; it can be resumed.
    Interrupted {},
    /// A checkpoint was written.
    Checkpoint {
        /// Whether the evaluation after its step was the best so far.
        best: bool,
    },
    /// The reference became another one.
    Reference {
        /// Part of the policy in it (α of TR-DPO); 1 where it became the policy.
        mix: f64,
        /// Hash of its weights from now on, as in `ledger.jsonl`.
        weights: String,
    },
    /// A guard saw what it watches for.
    Guard {
        /// The metric that it watches, or `not_finite`.
        watch: String,
        /// What the metric was; `None` where it was no finite number.
        value: Option<f64>,
        /// The bound that it passed; `None` where there is none.
        bound: Option<f64>,
        /// Steps in a row that it did.
        steps: u32,
        /// What was done: `warn`, `stop` or `roll_back`.
        action: String,
        /// All of that in one sentence.
        message: String,
    },
    /// The run went back to an earlier checkpoint.
    RolledBack {
        /// How often it has by now.
        number: u32,
        /// The step that it went back from.
        from_step: u64,
        /// What learning rates are multiplied by from now on.
        learning_rate_factor: f64,
        /// What the coefficient of the KL penalty is from now on.
        kl_coef: f64,
    },
    /// What was trained was written.
    Saved {},
    /// At the end of a run that was evaluated: the evaluation with the highest mean reward.
    Best {
        /// Training steps that were done at it.
        best_step: u64,
        /// Its mean reward.
        reward: f64,
        /// The folder in the run's that has its policy, as a model or an adapter; `None` where none was kept.
        checkpoint: Option<String>,
    },
    /// The run ended before its last step, and why.
    Stopped {
        /// In one sentence.
        reason: String,
    },
    /// All steps are done.
    Finished {},
}
