//! Uses the files of a run to check that each step trained on completions from its own policy,
//! immediately and no more often than configured.

mod complete;
mod event_lines;
mod evidence;
mod finding;
mod plan;
mod policy;
mod records;
mod reference;
mod saved;
mod stored;
mod updates;

use crate::{EndedBy, EventKind};

pub use evidence::{
    Evidence, FurtherUpdates, Period, Plan, ReferencePlan, ReferenceUpdate, StoredWeights,
};
use finding::count;
pub use finding::{Finding, Verdict, Violation, thousands};
pub use plan::RecordPlan;
pub use records::{INPUTS, audit_records, unreadable};

/// Checks all properties that can be proven from files.
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

/// Checks that both files contain the steps 1, 2, 3, …, and that a finished run contains all of
/// them.
fn steps(evidence: &Evidence) -> Finding {
    let mut violations = Vec::new();
    let ledger: Vec<u64> = evidence.ledger.iter().map(|line| line.step).collect();
    for (file, steps) in [("ledger.jsonl", &ledger), ("metrics.jsonl", &evidence.metrics)] {
        let mut before: u64 = 0;
        for &step in steps {
            let expected = before.saturating_add(1);
            if step != expected || step == before {
                let what = match before {
                    0 => format!("{file} starts with step {step}; expected step 1"),
                    _ => format!(
                        "{file} jumps from step {before} to step {step}; expected step {expected}"
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
    if of_metrics.checked_add(1) == Some(last) && !evidence.was_written_whole(last) {
        // The ledger line is written first.
        checked += &format!("; the run ended while writing step {last}");
    } else if last != of_metrics
        && evidence.rewritten_after().is_some_and(|step| step <= last.min(of_metrics))
    {
        checked += "; the run was killed during a roll-back or while resuming";
    } else if last != of_metrics {
        let what =
            format!("ledger.jsonl ends with step {last}, but metrics.jsonl with step {of_metrics}");
        violations.push(Violation { step: None, what });
    }
    let finished = evidence.latest_events().iter().find_map(|event| match event.what {
        EventKind::Finished { ref ended_by } => Some((event.step, ended_by.as_ref())),
        _ => None,
    });
    let steps = evidence.plan.steps;
    if last == steps && finished.is_none() && !checked.contains(';') {
        checked += "; events.jsonl does not record that the run finished";
    }
    let endings = &evidence.plan.endings;
    match finished {
        // An extension may end the run in any step.
        Some((step, Some(ending))) if step == last && endings.contains(ending) => {}
        Some((step, Some(EndedBy { extension, reason }))) => {
            let expected: Vec<&str> = endings.iter().map(|of| of.reason.as_str()).collect();
            let expected = match expected.as_slice() {
                [] => "never ends runs early".to_owned(),
                _ => format!("ends runs early only if {}", expected.join(" or if ")),
            };
            let what = format!(
                "events.jsonl records that `{extension}` ended the run after step {step} because {reason}, but ledger.jsonl ends with step {last}, and its configuration {expected}"
            );
            violations.push(Violation { step: None, what });
        }
        Some((step, None)) if step == last && evidence.has_ended_early(step) => {}
        Some((step, None)) if (step, last) != (steps, steps) => violations.push(Violation {
            step: None,
            what: format!(
                "events.jsonl records that the run finished after step {step}, but ledger.jsonl ends with step {last}; train.steps is {steps}"
            ),
        }),
        _ => {}
    }
    Finding::new("steps", checked, violations)
}
