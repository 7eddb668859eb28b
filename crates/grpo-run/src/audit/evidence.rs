//! What the files of a run say, and what the run was to do.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Event, EventKind, LedgerCompletion, LedgerStep};

/// What the files of a run say.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// `ledger.jsonl`, with one line or more.
    pub ledger: Vec<LedgerStep>,
    /// The steps of `metrics.jsonl`, in the order of its lines.
    pub metrics: Vec<u64>,
    /// `events.jsonl`.
    pub events: Vec<Event>,
    /// `config.toml`.
    pub plan: Plan,
    /// The entries of recorded completions, by step; none for a completion whose ids were not recorded.
    pub recorded: BTreeMap<u64, Vec<LedgerCompletion>>,
    /// What the checkpoints hold, by step.
    pub checkpoints: BTreeMap<u64, StoredWeights>,
    /// What the run left at its end; `None` where it left nothing.
    pub trained: Option<StoredWeights>,
    /// The model that the adapter was trained on, as it is now; `None` where all was trained.
    pub base: Option<StoredWeights>,
}

/// What a run was to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Steps of the run.
    pub steps: u64,
    /// Groups of a step.
    pub prompts_per_step: u32,
    /// Completions of a group.
    pub group_size: u32,
    /// Optimizer steps on each rollout (μ).
    pub updates_per_rollout: usize,
    /// Optimizer steps behind those that have examples, and no completions.
    pub supervised_updates: usize,
    /// The completions of each so manieth step are written down; 0 for none.
    pub completions_every: u64,
    /// What holds the policy back.
    pub reference: ReferencePlan,
}

/// What the configuration says of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferencePlan {
    /// Whether it is the model that an adapter is trained on at the beginning, and not the policy.
    pub from_base: bool,
    /// When it changes; `None`: never.
    pub update: Option<ReferenceUpdate>,
}

/// When the reference changes, and to what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferenceUpdate {
    /// When.
    pub every: Period,
    /// Part of the policy in the new one.
    pub mix: f64,
}

/// A distance between changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// After the steps that are multiples of this one.
    Steps(u64),
    /// After so many passes over the prompts; the run's files do not say in which steps those end.
    Epochs(u64),
}

impl Period {
    /// Whether there is a change after `step`; `None` where one cannot know.
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
    /// They are not what was written, and why one knows.
    Damaged(String),
    /// They could not be loaded, and why.
    Unknown(String),
}

/// The line that a step goes on from.
pub(super) enum Before<'a> {
    /// The step is the first.
    Start,
    Line(&'a LedgerStep),
    /// The line is missing, which is another property's violation.
    Unknown,
}

impl Evidence {
    pub(super) fn line(&self, step: u64) -> Option<&LedgerStep> {
        // Where it should be; only a damaged ledger is searched.
        let place = usize::try_from(step.saturating_sub(1)).unwrap_or(usize::MAX);
        let is_it = |line: &&LedgerStep| line.step == step;
        self.ledger.get(place).filter(is_it).or_else(|| self.ledger.iter().find(is_it))
    }

    /// The step before: a run that goes back takes the lines of what it undid out of the ledger.
    pub(super) fn before(&self, line: &LedgerStep) -> Before<'_> {
        let step = line.step.saturating_sub(1);
        match self.line(step) {
            _ if step == 0 => Before::Start,
            Some(line) => Before::Line(line),
            None => Before::Unknown,
        }
    }

    /// The events since the run was resumed or went back, whichever it did last: those before may be of steps that were
    /// done again.
    pub(super) fn latest_events(&self) -> &[Event] {
        let again = |event: &Event| {
            matches!(event.what, EventKind::Resumed {} | EventKind::RolledBack { .. })
        };
        let first = self.events.iter().rposition(again).map_or(0, |place| place + 1);
        &self.events[first..]
    }

    /// Whether the run was ended while it went back, with files of what it undoes still in their places and others gone.
    pub(super) fn is_going_back(&self) -> bool {
        self.events.last().is_some_and(|event| event.what.begins_roll_back())
    }

    /// Whether something happened that only happens when all files of a step are written.
    pub(super) fn was_written_whole(&self, step: u64) -> bool {
        self.latest_events().iter().filter(|event| event.step >= step).any(|event| {
            match &event.what {
                EventKind::Finished {}
                | EventKind::Interrupted {}
                | EventKind::Guard { .. }
                | EventKind::Reference { .. } => true,
                // Where one of these files could not be written, the sentence names it.
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

    /// Hash of the policy's weights after a step; after step 0 it is where the run began.
    pub(super) fn weights_after(&self, step: u64) -> Option<&String> {
        match step {
            0 => self.line(1).map(|line| &line.rollout.weights),
            _ => self.line(step).map(LedgerStep::weights_after),
        }
    }
}

impl EventKind {
    /// Whether files are moved and cut after it until the next event.
    pub(super) fn begins_roll_back(&self) -> bool {
        match self {
            Self::RolledBack { .. } => true,
            Self::Guard { action, .. } => action == "roll_back",
            _ => false,
        }
    }
}

impl LedgerStep {
    /// Hash of the policy's weights after the step.
    pub(super) fn weights_after(&self) -> &String {
        self.updates.last().map_or(&self.rollout.weights, |update| &update.weights)
    }

    /// Optimizer steps that the policy has behind it after the step.
    pub(super) fn version_after(&self) -> u64 {
        self.updates.last().map_or(self.rollout.policy_version, |update| update.version)
    }

    /// Hash of the reference after the step.
    pub(super) fn reference_after(&self) -> &String {
        self.reference_changed.as_ref().map_or(&self.reference, |change| &change.weights)
    }
}
