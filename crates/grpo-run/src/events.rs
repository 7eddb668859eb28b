//! `events.jsonl`: the event log of a run.

use serde::{Deserialize, Deserializer, Serialize};

/// An event during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Number of completed training steps, as in `metrics.jsonl`. 0 before the first step.
    pub step: u64,
    /// UTC time of the event, e.g. `2026-01-31T12:00:00Z`.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub what: EventKind,
}

/// An event together with hashes of run files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProvenEvent {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Hashes at the time of the event.
    #[serde(flatten)]
    pub proof: EventProof,
}

/// Hashes of run files at the time of an event. Events written by older versions have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventProof {
    /// SHA-256 of `run.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// SHA-256 of the ledger line for the step of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    /// Folder that was written, e.g. `model` or `checkpoints/step-3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// SHA-256 of the folder's `manifest.json`, which lists the hashes of all files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// Steps of all checkpoints kept by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<u64>>,
}

/// Kinds of events, with their details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The run started.
    Started {},
    /// The run was resumed from the checkpoint of this step.
    Resumed {
        /// Device that computes from here on. `None` in runs of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// Name of its GPU, as in `run.json`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<String>,
    },
    /// The run was interrupted by a signal and can be resumed.
    Interrupted {},
    /// A checkpoint was written.
    Checkpoint {
        /// Whether the evaluation after this step is the best so far.
        best: bool,
    },
    /// The reference policy was updated.
    Reference {
        /// Weight of the policy in the update (α in TR-DPO). 1 means that the policy was copied.
        mix: f64,
        /// Hash of the new reference weights, as in `ledger.jsonl`.
        weights: String,
    },
    /// A guard was triggered.
    Guard {
        /// Name of the watched metric, or `not_finite`.
        watch: String,
        /// Value of the metric, or `None` if it was not finite.
        value: Option<f64>,
        /// The bound that was exceeded.
        bound: Option<f64>,
        /// Number of consecutive steps out of range.
        steps: u32,
        /// Action taken: `warn`, `stop` or `roll_back`.
        action: String,
        /// Description for the user.
        message: String,
    },
    /// The run was rolled back to an earlier checkpoint.
    RolledBack {
        /// Number of roll-backs so far, including this one.
        number: u32,
        /// Number of completed steps before the roll-back.
        from_step: u64,
        /// Factor applied to learning rates after the roll-back.
        learning_rate_factor: f64,
        /// KL coefficient after the roll-back.
        kl_coef: f64,
    },
    /// The trained weights were saved.
    Saved {},
    /// The evaluation with the highest mean reward. Written at the end of runs with evaluations.
    Best {
        /// Number of training steps completed at that evaluation.
        best_step: u64,
        /// Mean reward of the evaluation.
        reward: f64,
        /// Path of the checkpoint inside the run folder, or `None` if it was not kept.
        checkpoint: Option<String>,
    },
    /// The run ended before completing all steps.
    Stopped {
        /// Reason for the early end.
        reason: String,
    },
    /// The run completed all steps, was ended by an extension, or no longer improved. In the last
    /// case, `stopped` precedes it.
    Finished {
        /// The extension that ended the run, if one did. Older versions wrote a number of `calls`.
        #[serde(
            default,
            alias = "calls",
            deserialize_with = "EndedBy::written",
            skip_serializing_if = "Option::is_none"
        )]
        ended_by: Option<EndedBy>,
    },
}

/// The extension that ended a run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedBy {
    /// Name of the extension.
    pub extension: String,
    /// Why, as a sentence.
    pub reason: String,
}

impl EndedBy {
    /// Creates the ending of a run whose reward has scored as many completions as it may.
    pub fn calls_used(calls: u64) -> Self {
        let reason =
            format!("the reward has scored {calls} distinct completions (train.max_reward_calls)");
        Self { extension: "archive".to_owned(), reason }
    }

    fn written<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Self>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            EndedBy(EndedBy),
            Calls(u64),
        }
        let written: Option<Written> = Option::deserialize(from)?;
        Ok(written.map(|written| match written {
            Written::EndedBy(ended_by) => ended_by,
            Written::Calls(calls) => Self::calls_used(calls),
        }))
    }
}

/// Returns the last event that says whether a run is at work or why it ended. Others, such as `saved`, may
/// follow it.
pub fn last_state(events: Vec<Event>) -> Option<EventKind> {
    use EventKind::{Finished, Interrupted, Resumed, Started, Stopped};
    let mut kinds = events.into_iter().rev().map(|event| event.what);
    kinds.find(|what| {
        matches!(
            what,
            Finished { .. } | Interrupted {} | Resumed { .. } | Started {} | Stopped { .. }
        )
    })
}

/// Returns whether the last event is that a guard stopped the run, and not an error or a missing
/// improvement.
pub fn was_stopped_by_guard(events: &[Event]) -> bool {
    let Some(Event { step, what: EventKind::Stopped { .. }, .. }) = events.last() else {
        return false;
    };
    let is_cause = |event: &Event| match &event.what {
        EventKind::Guard { action, .. } => event.step == *step && action != "warn",
        _ => false,
    };
    events.iter().any(is_cause)
}
