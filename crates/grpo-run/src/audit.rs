//! What a run's files prove of it: that it learned from its own policy's completions, at once, and from each no more often
//! than it should.

mod policy;
mod reference;
mod stored;
mod updates;

use crate::{Event, EventKind, LedgerCompletion, LedgerStep};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

pub use reference::{Period, ReferencePlan, ReferenceStart, ReferenceUpdate};
pub use stored::StoredWeights;

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

/// A property of the run, and whether the files prove it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub property: &'static str,
    /// What was looked at, in words.
    pub checked: String,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// All that was looked at is as it should be.
    Proven,
    /// There is nothing to look at.
    NotRecorded {
        /// Why.
        reason: String,
    },
    /// Something is not as it should be.
    Violated {
        /// What; one or more.
        violations: Vec<Violation>,
    },
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The training step, from 1; `None` where it is of the whole run.
    pub step: Option<u64>,
    /// In one sentence.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Finding {
    /// What is not as it should be.
    pub fn violations(&self) -> &[Violation] {
        match &self.verdict {
            Verdict::Violated { violations } => violations,
            Verdict::Proven | Verdict::NotRecorded { .. } => &[],
        }
    }

    fn new(property: &'static str, checked: String, violations: Vec<Violation>) -> Self {
        let verdict = match violations.is_empty() {
            true => Verdict::Proven,
            false => Verdict::Violated { violations },
        };
        Self { property, checked, verdict }
    }

    fn not_recorded(property: &'static str, reason: impl Into<String>) -> Self {
        let verdict = Verdict::NotRecorded { reason: reason.into() };
        Self { property, checked: String::new(), verdict }
    }
}

/// Checks everything that the files can prove, one property after the other.
pub fn audit(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = vec![
        steps(evidence),
        policy::version_match(evidence),
        policy::immediate_update(evidence),
        updates::whole_groups(evidence),
        updates::own_completions(evidence),
        updates::no_reuse(evidence),
        reference::reference(evidence),
    ];
    findings.extend(reference::epochs(evidence));
    findings.extend(stored::base(evidence));
    findings.extend([
        stored::recorded_completions(evidence),
        stored::checkpoints(evidence),
        stored::trained(evidence),
    ]);
    findings
}

/// Both files have the steps 1, 2, 3, …, and a run that finished has all of its own.
fn steps(evidence: &Evidence) -> Finding {
    let mut violations = Vec::new();
    let ledger: Vec<u64> = evidence.ledger.iter().map(|line| line.step).collect();
    for (file, steps) in [("ledger.jsonl", &ledger), ("metrics.jsonl", &evidence.metrics)] {
        let mut before = 0;
        for &step in steps {
            if step != before + 1 {
                let what = match before {
                    0 => format!("{file} begins with step {step}; expected step 1"),
                    _ => format!(
                        "{file} goes from step {before} to step {step}; expected step {}",
                        before + 1
                    ),
                };
                violations.push(Violation { step: Some(step), what });
            }
            before = step;
        }
    }
    let mut checked = format!("{} in ledger.jsonl and metrics.jsonl", count(ledger.len(), "step"));
    let (last, of_metrics) = (ledger.last(), evidence.metrics.last());
    let (last, of_metrics) = (last.copied().unwrap_or(0), of_metrics.copied().unwrap_or(0));
    if last == of_metrics + 1 && !evidence.was_written_whole(last) {
        // The ledger's line is written first.
        checked += &format!("; the run was ended in the middle of writing step {last}");
    } else if last != of_metrics {
        let what =
            format!("ledger.jsonl ends with step {last}, and metrics.jsonl with step {of_metrics}");
        violations.push(Violation { step: None, what });
    }
    let finished =
        evidence.latest_events().iter().find(|event| event.what == EventKind::Finished {});
    let steps = evidence.plan.steps;
    if let Some(event) = finished.filter(|event| (event.step, last) != (steps, steps)) {
        let what = format!(
            "events.jsonl says that the run finished after step {}, and ledger.jsonl ends with step {last}; train.steps is {steps}",
            event.step
        );
        violations.push(Violation { step: None, what });
    }
    Finding::new("steps", checked, violations)
}

/// The line that a step goes on from.
enum Before<'a> {
    /// The step is the first.
    Start,
    Line(&'a LedgerStep),
    /// The line is missing, which is another property's violation.
    Unknown,
}

impl Evidence {
    fn line(&self, step: u64) -> Option<&LedgerStep> {
        // Where it should be; only a damaged ledger is searched.
        let place = usize::try_from(step.saturating_sub(1)).unwrap_or(usize::MAX);
        let is_it = |line: &&LedgerStep| line.step == step;
        self.ledger.get(place).filter(is_it).or_else(|| self.ledger.iter().find(is_it))
    }

    /// The step before: a run that goes back takes the lines of what it undid out of the ledger.
    fn before(&self, line: &LedgerStep) -> Before<'_> {
        let step = line.step.saturating_sub(1);
        match self.line(step) {
            _ if step == 0 => Before::Start,
            Some(line) => Before::Line(line),
            None => Before::Unknown,
        }
    }

    /// The events since the run was resumed or went back, whichever it did last: those before may be of steps that were
    /// done again.
    fn latest_events(&self) -> &[Event] {
        let again = |event: &Event| {
            matches!(event.what, EventKind::Resumed {} | EventKind::RolledBack { .. })
        };
        let first = self.events.iter().rposition(again).map_or(0, |place| place + 1);
        &self.events[first..]
    }

    /// Whether something happened that only happens when all files of a step are written.
    fn was_written_whole(&self, step: u64) -> bool {
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
                EventKind::Resumed {}
                | EventKind::RolledBack { .. }
                | EventKind::Checkpoint { .. } => false,
            }
        })
    }

    /// Hash of the policy's weights after a step; after step 0 it is where the run began.
    fn weights_after(&self, step: u64) -> Option<&String> {
        match step {
            0 => self.line(1).map(|line| &line.rollout.weights),
            _ => self.line(step).map(LedgerStep::weights_after),
        }
    }
}

impl LedgerStep {
    /// Hash of the policy's weights after the step.
    fn weights_after(&self) -> &String {
        self.updates.last().map_or(&self.rollout.weights, |update| &update.weights)
    }

    /// Optimizer steps that the policy has behind it after the step.
    fn version_after(&self) -> u64 {
        self.updates.last().map_or(self.rollout.policy_version, |update| update.version)
    }

    /// Hash of the reference after the step.
    fn reference_after(&self) -> &String {
        self.reference_changed.as_ref().map_or(&self.reference, |change| &change.weights)
    }
}

/// Enough of a hash to find it in the file.
fn short(hash: &str) -> String {
    hash.chars().take(12).chain(['…']).collect()
}

/// `3 steps`, `1 step`.
fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", thousands(number)),
    }
}

/// `20,480`
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_words() {
        assert_eq!(count(1, "step"), "1 step");
        assert_eq!(count(0, "step"), "0 steps");
        assert_eq!(count(999, "step"), "999 steps");
        assert_eq!(count(20_480, "step"), "20,480 steps");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
