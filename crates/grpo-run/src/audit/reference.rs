//! That the reference is the one that the configuration says.

use super::{Before, Evidence, Finding, Violation, count, short};
use crate::{LedgerStep, ReferenceChange};
use std::fmt;

/// What the configuration says of the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReferencePlan {
    /// What it is at the beginning.
    pub from: ReferenceStart,
    /// When it changes; `None`: never.
    pub update: Option<ReferenceUpdate>,
}

/// What the reference is at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceStart {
    /// The policy.
    Policy,
    /// The model that an adapter is trained on.
    Base,
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
    fn is_due(self, step: u64) -> Option<bool> {
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

/// The reference of a step is the one that the step before left, and it changes where it should and to what it should.
pub(super) fn reference(evidence: &Evidence) -> Finding {
    let plan = evidence.plan.reference;
    let mut violations = Vec::new();
    let mut changes = 0;
    for line in &evidence.ledger {
        let mut violated =
            |what: String| violations.push(Violation { step: Some(line.step), what });
        let expected = match (evidence.before(line), plan.from) {
            (Before::Line(before), _) => Some((before.reference_after(), "the step before left")),
            (Before::Start, ReferenceStart::Policy) => {
                evidence.weights_after(0).map(|weights| (weights, "the policy began as"))
            }
            (Before::Start, ReferenceStart::Base) => {
                line.base.as_ref().map(|base| (base, "the base of the adapter is"))
            }
            (Before::Unknown, _) => None,
        };
        if let Some((expected, whose)) =
            expected.filter(|(expected, _)| *expected != &line.reference)
        {
            violated(format!(
                "the reference is {}, and {whose} {}",
                short(&line.reference),
                short(expected)
            ));
        }
        changes += usize::from(line.reference_changed.is_some());
        let change = line.reference_changed.as_ref();
        if let Some(fault) = fault_of_change(change, line, evidence.plan.steps, plan.update) {
            violated(fault);
        }
    }
    let checked = match changes {
        0 => format!("the same in {}", count(evidence.ledger.len(), "step")),
        _ => format!("{} in {}", count(changes, "change"), count(evidence.ledger.len(), "step")),
    };
    Finding::new("reference", checked, violations)
}

/// What is not said of the steps after which a reference changes that counts passes over the prompts; nothing of any other.
pub(super) fn epochs(evidence: &Evidence) -> Option<Finding> {
    let every = evidence.plan.reference.update?.every;
    matches!(every, Period::Epochs(_)).then(|| {
        let reason = format!(
            "the reference changes {every}, and no file of the run says how many prompts there were, so that one cannot tell after which steps it should"
        );
        Finding::not_recorded("reference epochs", reason)
    })
}

/// What is wrong with a change, or with there being none.
fn fault_of_change(
    change: Option<&ReferenceChange>,
    line: &LedgerStep,
    steps: u64,
    plan: Option<ReferenceUpdate>,
) -> Option<String> {
    let is_due = plan.map_or(Some(false), |plan| plan.every.is_due(line.step));
    match (change, plan) {
        (None, None) => None,
        // Nothing comes after the last step that a change would be for.
        (None, Some(_)) if line.step == steps => None,
        (None, Some(plan)) => (is_due == Some(true)).then(|| {
            format!(
                "the reference did not change; the configuration says that it does {}",
                plan.every
            )
        }),
        (Some(_), None) => {
            Some("the reference changed; the configuration says that it never does".to_owned())
        }
        (Some(_), Some(plan)) if is_due == Some(false) => Some(format!(
            "the reference changed; the configuration says that it does {}",
            plan.every
        )),
        (Some(change), Some(plan)) if change.mix != plan.mix => Some(format!(
            "the reference was mixed with {} of the policy; the configuration says {}",
            change.mix, plan.mix
        )),
        (Some(change), Some(_)) => {
            let policy = line.weights_after();
            (change.mix == 1.0 && change.weights != *policy).then(|| {
                format!(
                    "the reference became {}, and the policy is {}",
                    short(&change.weights),
                    short(policy)
                )
            })
        }
    }
}
