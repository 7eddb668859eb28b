//! Contents of a run's files, and the plan of the run.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Event, EventKind, LedgerCompletion, LedgerStep};

/// Contents of a run's files.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// `ledger.jsonl`, with at least one line.
    pub ledger: Vec<LedgerStep>,
    /// The steps of `metrics.jsonl`, in line order.
    pub metrics: Vec<u64>,
    /// `events.jsonl`.
    pub events: Vec<Event>,
    /// `config.toml`.
    pub plan: Plan,
    /// Ledger entries of recorded completions by step; without completions whose ids were not
    /// recorded.
    pub recorded: BTreeMap<u64, Vec<LedgerCompletion>>,
    /// Weights of the checkpoints by step.
    pub checkpoints: BTreeMap<u64, StoredWeights>,
    /// Weights saved at the end of the run, if any.
    pub trained: Option<StoredWeights>,
    /// Current weights of the adapter's base model; `None` for full training.
    pub base: Option<StoredWeights>,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of steps.
    pub steps: u64,
    /// Groups per step.
    pub prompts_per_step: u32,
    /// Completions per group.
    pub group_size: u32,
    /// Optimizer steps per rollout (μ).
    pub updates_per_rollout: usize,
    /// Additional optimizer steps on examples alone.
    pub supervised_updates: usize,
    /// Steps between recorded completions; 0 for none.
    pub completions_every: u64,
    /// The reference policy.
    pub reference: ReferencePlan,
}

/// Configuration of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferencePlan {
    /// Whether the initial reference is the base model of an adapter instead of the policy.
    pub from_base: bool,
    /// Updates of the reference, if any.
    pub update: Option<ReferenceUpdate>,
}

/// Updates of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferenceUpdate {
    /// Interval.
    pub every: Period,
    /// Weight of the policy in the new reference.
    pub mix: f64,
}

/// An interval between updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Steps that are multiples of this number.
    Steps(u64),
    /// Passes over the prompts. The run's files do not contain the steps in which passes end.
    Epochs(u64),
}

impl Period {
    /// Returns whether an update follows `step`; `None` if unknown.
    pub(super) fn is_due(self, step: u64) -> Option<bool> {
        match self {
            Self::Steps(every) => Some(step.is_multiple_of(every)),
            Self::Epochs(_) => None,
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (every, what) = match self {
            Self::Steps(every) => (*every, "step"),
            Self::Epochs(every) => (*every, "epoch"),
        };
        match every {
            1 => write!(f, "after every {what}"),
            _ => write!(f, "after every {every} {what}s"),
        }
    }
}

/// Weights in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredWeights {
    /// Their hash.
    Hash(String),
    /// They differ from what was written, with the reason.
    Damaged(String),
    /// They could not be loaded, with the reason.
    Unknown(String),
}

/// The ledger line before a step.
pub(super) enum Before<'a> {
    /// There is none before the first step.
    Start,
    Line(&'a LedgerStep),
    /// The line is missing, which is a violation of another property.
    Unknown,
}

impl Evidence {
    pub(super) fn line(&self, step: u64) -> Option<&LedgerStep> {
        // The expected index; only a damaged ledger needs a search.
        let place = usize::try_from(step.saturating_sub(1)).unwrap_or(usize::MAX);
        let is_it = |line: &&LedgerStep| line.step == step;
        self.ledger.get(place).filter(is_it).or_else(|| self.ledger.iter().find(is_it))
    }

    /// Returns the previous step. A roll-back removes the lines of undone steps from the ledger.
    pub(super) fn before(&self, line: &LedgerStep) -> Before<'_> {
        let step = line.step.saturating_sub(1);
        match self.line(step) {
            _ if step == 0 => Before::Start,
            Some(line) => Before::Line(line),
            None => Before::Unknown,
        }
    }

    /// Returns the events since the last resume or roll-back. Earlier events may refer to repeated
    /// steps.
    pub(super) fn latest_events(&self) -> &[Event] {
        let again = |event: &Event| {
            matches!(event.what, EventKind::Resumed {} | EventKind::RolledBack { .. })
        };
        let first = self.events.iter().rposition(again).map_or(0, |place| place + 1);
        &self.events[first..]
    }

    /// Returns whether the run ended during a roll-back, so that some files of undone steps may be
    /// missing.
    pub(super) fn is_going_back(&self) -> bool {
        self.events.last().is_some_and(|event| event.what.begins_roll_back())
    }

    /// Returns whether an event proves that all files of a step were written.
    pub(super) fn was_written_whole(&self, step: u64) -> bool {
        self.latest_events().iter().filter(|event| event.step >= step).any(|event| {
            match &event.what {
                EventKind::Finished {}
                | EventKind::Interrupted {}
                | EventKind::Guard { .. }
                | EventKind::Reference { .. } => true,
                // The message names one of these files if it could not be written.
                EventKind::Stopped { reason } => {
                    !reason.contains("metrics.jsonl") && !reason.contains("completions/")
                }
                EventKind::Started {}
                | EventKind::Resumed {}
                | EventKind::Saved {}
                | EventKind::RolledBack { .. }
                | EventKind::Best { .. }
                | EventKind::Checkpoint { .. } => false,
            }
        })
    }

    /// Returns the hash of the policy after a step; after step 0, of the initial policy.
    pub(super) fn weights_after(&self, step: u64) -> Option<&String> {
        match step {
            0 => self.line(1).map(|line| &line.rollout.weights),
            _ => self.line(step).map(LedgerStep::weights_after),
        }
    }
}

impl EventKind {
    /// Returns whether files are moved and cut between this event and the next.
    pub(super) fn begins_roll_back(&self) -> bool {
        match self {
            Self::RolledBack { .. } => true,
            Self::Guard { action, .. } => action == "roll_back",
            _ => false,
        }
    }
}

impl LedgerStep {
    /// Returns the hash of the policy after the step.
    pub(super) fn weights_after(&self) -> &String {
        self.updates.last().map_or(&self.rollout.weights, |update| &update.weights)
    }

    /// Returns the number of optimizer steps of the policy after the step.
    pub(super) fn version_after(&self) -> u64 {
        self.updates.last().map_or(self.rollout.policy_version, |update| update.version)
    }

    /// Returns the hash of the reference after the step.
    pub(super) fn reference_after(&self) -> &String {
        self.reference_changed.as_ref().map_or(&self.reference, |change| &change.weights)
    }
}
