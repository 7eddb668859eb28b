//! Checks that the reference policy is updated as configured.

use super::evidence::{Before, Evidence, Period, ReferenceUpdate};
use super::finding::{Finding, Violation, count, short};
use crate::{LedgerStep, ReferenceChange};

/// Checks that each step uses the reference of the previous step, and that it changes as
/// configured.
pub(super) fn reference(evidence: &Evidence) -> Finding {
    let plan = evidence.plan.reference;
    let mut violations = Vec::new();
    let mut changes = 0;
    for line in &evidence.ledger {
        let mut violated =
            |what: String| violations.push(Violation { step: Some(line.step), what });
        let expected = match (evidence.before(line), plan.from_base) {
            (Before::Line(before), _) => Some((before.reference_after(), "the previous step left")),
            (Before::Start, false) => {
                evidence.weights_after(0).map(|weights| (weights, "the policy started as"))
            }
            (Before::Start, true) => {
                line.base.as_ref().map(|base| (base, "the base of the adapter is"))
            }
            (Before::Unknown, _) => None,
        };
        if let Some((expected, whose)) =
            expected.filter(|(expected, _)| *expected != &line.reference)
        {
            violated(format!(
                "the reference is {}, but {whose} {}",
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
        0 => format!("unchanged in {}", count(evidence.ledger.len(), "step")),
        _ => format!("{} in {}", count(changes, "change"), count(evidence.ledger.len(), "step")),
    };
    Finding::new("reference", checked, violations)
}

/// If the reference is updated by epochs, returns a finding that explains what cannot be checked.
/// Otherwise, returns `None`.
pub(super) fn epochs(evidence: &Evidence) -> Option<Finding> {
    let every = evidence.plan.reference.update?.every;
    matches!(every, Period::Epochs(_)).then(|| {
        let reason = format!(
            "the reference changes {every}, but the run does not record the number of prompts, so the expected steps are unknown"
        );
        Finding::not_recorded("reference epochs", reason)
    })
}

/// Describes what is wrong with an update or with its absence.
fn fault_of_change(
    change: Option<&ReferenceChange>,
    line: &LedgerStep,
    steps: u64,
    plan: Option<ReferenceUpdate>,
) -> Option<String> {
    let is_due = plan.map_or(Some(false), |plan| plan.every.is_due(line.step));
    match (change, plan) {
        (None, None) => None,
        // A reference update after the last step would have no effect and is optional.
        (None, Some(_)) if line.step == steps => None,
        (None, Some(plan)) => (is_due == Some(true)).then(|| {
            format!(
                "the reference did not change, but the configuration requires a change {}",
                plan.every
            )
        }),
        (Some(_), None) => {
            Some("the reference changed, but the configuration does not allow changes".to_owned())
        }
        (Some(_), Some(plan)) if is_due == Some(false) => Some(format!(
            "the reference changed, but the configuration allows changes only {}",
            plan.every
        )),
        (Some(change), Some(plan)) if change.mix != plan.mix => Some(format!(
            "the reference was mixed with {} of the policy, but the configuration has {}",
            change.mix, plan.mix
        )),
        (Some(change), Some(_)) => {
            let policy = line.weights_after();
            (change.mix == 1.0 && change.weights != *policy).then(|| {
                format!(
                    "the reference became {}, but the policy is {}",
                    short(&change.weights),
                    short(policy)
                )
            })
        }
    }
}
