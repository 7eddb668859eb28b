//! The contents of run files and the planned course of the run.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::{EndedBy, Event, EventKind, LedgerCompletion, LedgerStep};

/// Contents of a run's files.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Lines of `ledger.jsonl`, at least one.
    pub ledger: Vec<LedgerStep>,
    /// Steps in `metrics.jsonl`, in file order.
    pub metrics: Vec<u64>,
    /// Events in `events.jsonl`.
    pub events: Vec<Event>,
    /// Settings in `config.toml`.
    pub plan: Plan,
    /// Recorded completions of each step as ledger entries. Completions without recorded token ids
    /// are omitted.
    pub recorded: BTreeMap<u64, Vec<LedgerCompletion>>,
    /// Weights of each checkpoint, by step.
    pub checkpoints: BTreeMap<u64, StoredWeights>,
    /// Weights saved at the end of the run.
    pub trained: Option<StoredWeights>,
    /// Current weights of the adapter's base model. `None` if all weights are trained.
    pub base: Option<StoredWeights>,
}

/// Expected course of a run according to its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Total number of steps.
    pub steps: u64,
    /// Number of groups per step.
    pub prompts_per_step: u32,
    /// Number of completions per group.
    pub group_size: u32,
    /// Maximum number of steps between the policy that samples and the one that learns.
    pub staleness: u64,
    /// Number of policy updates per rollout (μ).
    pub updates_per_rollout: usize,
    /// Optimizer steps that extensions add to each step, in their order.
    pub further_updates: Vec<FurtherUpdates>,
    /// How extensions may end the run before its last step.
    pub endings: Vec<EndedBy>,
    /// Whether the run may finish before its last step, because its evaluations no longer improve.
    pub may_end_early: bool,
    /// Number of steps between recorded completions; 0 for none.
    pub completions_every: u64,
    /// Settings of the reference policy.
    pub reference: ReferencePlan,
}

/// Optimizer steps that an extension adds to each step. They do not use the completions of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FurtherUpdates {
    /// Key of the configuration that adds them.
    pub key: &'static str,
    /// Number of them.
    pub count: usize,
    /// Whether they use replayed completions. A step may leave out all of these, because there may be
    /// nothing to replay.
    pub replay: bool,
}

/// Settings of the reference policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferencePlan {
    /// Whether the initial reference is the adapter's base model instead of the policy.
    pub from_base: bool,
    /// How the reference is updated. `None` if it is fixed.
    pub update: Option<ReferenceUpdate>,
}

/// Update schedule of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferenceUpdate {
    /// Time between updates.
    pub every: Period,
    /// Weight of the policy in the updated reference.
    pub mix: f64,
}

/// Time between updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Updates after each multiple of this number of steps.
    Steps(u64),
    /// Updates after this number of epochs. Run files do not record when epochs end.
    Epochs(u64),
}

impl Period {
    /// Returns whether an update is due after `step`, or `None` if this is not known.
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

/// The weights found in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredWeights {
    /// Hash of the weights.
    Hash(String),
    /// The folder was modified. Contains the error.
    Damaged(String),
    /// The weights could not be loaded. Contains the error.
    Unknown(String),
}

/// The ledger line that precedes a step.
pub(super) enum Before<'a> {
    /// The step is the first one.
    Start,
    Line(&'a LedgerStep),
    /// The line is missing, which violates a different property.
    Unknown,
}

impl Plan {
    /// Returns the number of optimizer steps that extensions add, with or without replayed completions.
    pub(super) fn further(&self, replay: bool) -> usize {
        let of_kind = self.further_updates.iter().filter(|further| further.replay == replay);
        of_kind.map(|further| further.count).sum()
    }
}

impl Evidence {
    pub(super) fn line(&self, step: u64) -> Option<&LedgerStep> {
        // Try the expected index first. Only damaged ledgers need a search.
        let place = usize::try_from(step.saturating_sub(1)).unwrap_or(usize::MAX);
        let is_it = |line: &&LedgerStep| line.step == step;
        self.ledger.get(place).filter(is_it).or_else(|| self.ledger.iter().find(is_it))
    }

    /// Returns the previous line. A roll-back removes the lines of undone steps from the ledger.
    pub(super) fn before(&self, line: &LedgerStep) -> Before<'_> {
        let step = line.step.saturating_sub(1);
        match self.line(step) {
            _ if step == 0 => Before::Start,
            Some(line) => Before::Line(line),
            None => Before::Unknown,
        }
    }

    /// Returns the steps after which the policy may have sampled a step.
    pub(super) fn sampled_after(&self, line: &LedgerStep) -> RangeInclusive<u64> {
        let previous = line.step.saturating_sub(1);
        previous.saturating_sub(self.plan.staleness)..=previous
    }

    /// Returns the last resumption or roll-back and all events after it. Earlier events may refer
    /// to steps that were repeated.
    pub(super) fn latest_events(&self) -> &[Event] {
        let again = |event: &Event| {
            matches!(event.what, EventKind::Resumed { .. } | EventKind::RolledBack { .. })
        };
        let first = self.events.iter().rposition(again).map_or(0, |place| place + 1);
        &self.events[first..]
    }

    /// Returns the step after which files may be inconsistent, because the run was killed during a
    /// roll-back or while resuming.
    pub(super) fn rewritten_after(&self) -> Option<u64> {
        let last = self.events.last()?;
        last.what.rewritten_after(last.step)
    }

    /// Returns whether files of `step` may be inconsistent ([`Self::rewritten_after`]).
    pub(super) fn is_rewritten(&self, step: u64) -> bool {
        self.rewritten_after().is_some_and(|after| step > after)
    }

    /// Returns whether early stopping ended the run after `step`: such an end is recorded as `stopped`
    /// and then as `finished`.
    pub(super) fn has_ended_early(&self, step: u64) -> bool {
        let is_end = |pair: &[Event]| {
            matches!(
                pair,
                [
                    Event { step: stopped, what: EventKind::Stopped { .. }, .. },
                    Event { step: finished, what: EventKind::Finished { ended_by: None }, .. },
                ] if (*stopped, *finished) == (step, step)
            )
        };
        self.plan.may_end_early && self.latest_events().windows(2).any(is_end)
    }

    /// Returns whether events prove that all files of a step were written.
    pub(super) fn was_written_whole(&self, step: u64) -> bool {
        self.latest_events().iter().filter(|event| event.step >= step).any(|event| {
            match &event.what {
                EventKind::Finished { .. }
                | EventKind::Interrupted {}
                | EventKind::Guard { .. }
                | EventKind::Reference { .. } => true,
                // If one of these files could not be written, the reason mentions it.
                EventKind::Stopped { reason } => {
                    !reason.contains("metrics.jsonl") && !reason.contains("completions/")
                }
                EventKind::Started {}
                | EventKind::Resumed { .. }
                | EventKind::Saved {}
                | EventKind::RolledBack { .. }
                | EventKind::Best { .. }
                | EventKind::Checkpoint { .. } => false,
            }
        })
    }

    /// Returns the policy version after a step. Step 0 stands for the initial policy.
    pub(super) fn version_after(&self, step: u64) -> Option<u64> {
        match step {
            0 => Some(0),
            _ => self.line(step).map(LedgerStep::version_after),
        }
    }

    /// Returns the hash of the policy weights after a step. Step 0 stands for the initial policy.
    pub(super) fn weights_after(&self, step: u64) -> Option<&String> {
        match step {
            0 => self.line(1).map(|line| &line.rollout.weights),
            _ => self.line(step).map(LedgerStep::weights_after),
        }
    }
}

impl EventKind {
    /// Returns the step after which files are moved and truncated between this event, recorded at
    /// `step`, and the next one. Returns `None` for most events. After a guard event, it is not
    /// known yet how far the run will be rolled back.
    pub(super) fn rewritten_after(&self, step: u64) -> Option<u64> {
        match self {
            Self::Resumed { .. } | Self::RolledBack { .. } => Some(step),
            Self::Guard { action, .. } => (action == "roll_back").then_some(0),
            _ => None,
        }
    }
}

impl LedgerStep {
    /// Returns the hash of the policy weights after the step.
    pub(super) fn weights_after(&self) -> &String {
        self.updates.last().map_or(&self.rollout.weights, |update| &update.weights)
    }

    /// Returns the policy version after the step, i.e. its number of optimizer steps.
    pub(super) fn version_after(&self) -> u64 {
        self.updates.last().map_or(self.rollout.policy_version, |update| update.version)
    }

    /// Returns the hash of the reference weights after the step.
    pub(super) fn reference_after(&self) -> &String {
        self.reference_changed.as_ref().map_or(&self.reference, |change| &change.weights)
    }
}
