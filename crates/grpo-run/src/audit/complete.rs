//! Checks that no lines are missing at the end of `events.jsonl`, that its lines contain all
//! hashes, and that nothing follows the last line in the files of an ended run.

use super::event_lines::EventLine;
use super::finding::Violation;
use super::plan::RecordPlan;
use crate::comparison::COMPARISON;
use crate::json_lines::unfinished_bytes;
use crate::{EventKind, EventProof, RunFolder};

/// Returns the events in a chained run that lack a required hash.
pub(super) fn missing_hashes(events: &[EventLine], plan: &RecordPlan) -> Vec<Violation> {
    let missing = |event: &EventLine| {
        let EventProof { info, ledger, folder, manifest, kept } = &event.proof;
        let has_ledger = plan.trained.is_none() || event.step == 0 || ledger.is_some();
        let keys = match event.what {
            EventKind::Started {} => vec![("info", info.is_some())],
            EventKind::Checkpoint { .. } => vec![
                ("ledger", has_ledger),
                ("folder", folder.is_some()),
                ("manifest", manifest.is_some()),
                ("kept", kept.is_some()),
            ],
            EventKind::Saved {} | EventKind::RolledBack { .. } => {
                vec![("folder", folder.is_some()), ("manifest", manifest.is_some())]
            }
            EventKind::Finished { .. } => vec![("ledger", has_ledger)],
            _ => vec![],
        };
        let (key, _) = keys.into_iter().find(|(_, is_there)| !is_there)?;
        let what = format!("line {} of events.jsonl is missing key `{key}`", event.line.number);
        Some(Violation { step: Some(event.step), what })
    };
    events.iter().filter_map(missing).collect()
}

/// Returns what must have happened according to the other files of a chained run, but has no event.
pub(super) fn missing_events(
    run: &RunFolder,
    events: &[EventLine],
    ledger: &[u64],
    plan: &RecordPlan,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let last = ledger.iter().copied().max().unwrap_or(0);
    let went_back = |event: &EventLine| matches!(event.what, EventKind::RolledBack { .. });
    let undone = events.iter().rposition(went_back);
    // If the run was killed during a roll-back or while resuming, the ledger may not have been
    // truncated yet.
    let last = match events.last() {
        Some(event) if went_back(event) || matches!(event.what, EventKind::Resumed { .. }) => {
            last.min(event.step)
        }
        _ => last,
    };
    let is_recorded = |step: u64| {
        // Steps after the target of the roll-back were repeated.
        let since = undone.filter(|place| step > events[*place].step).unwrap_or(0);
        let is_it = |event: &EventLine| {
            event.step == step && matches!(event.what, EventKind::Checkpoint { .. })
        };
        events[since..].iter().any(is_it)
    };
    let every = plan.checkpoint_every;
    let is_due = |step: &u64| every > 0 && *step > 0 && step.is_multiple_of(every) && *step < last;
    for &step in ledger.iter().filter(|step| is_due(step) && !is_recorded(**step)) {
        let what = format!(
            "events.jsonl is missing the checkpoint after it (save.every = {every}): lines at its end were removed"
        );
        violations.push(Violation { step: Some(step), what });
    }
    let has_ended = |event: &EventLine| {
        matches!(event.what, EventKind::Finished { .. } | EventKind::Stopped { .. })
    };
    if run.has(COMPARISON).unwrap_or(false) && !events.iter().any(has_ended) {
        let what = "comparison.json was written at the end of the run, but events.jsonl does not record the end: lines at its end were removed";
        violations.push(Violation { step: None, what: what.to_owned() });
    }
    violations
}

/// Returns a violation if an ended run has bytes after the last line of a file. Only killed runs
/// may leave an incomplete line.
///
/// Returns nothing if the file cannot be read, which is a violation of its own.
pub(super) fn bytes_after_end(
    run: &RunFolder,
    name: &str,
    events: &[EventLine],
) -> Option<Violation> {
    let has_ended = events.last().is_some_and(|event| {
        matches!(event.what, EventKind::Finished { .. } | EventKind::Interrupted {})
    });
    let bytes = match has_ended {
        true => unfinished_bytes(&run.folder, name.as_ref()).unwrap_or(0),
        false => 0,
    };
    (bytes > 0).then(|| Violation {
        step: None,
        what: format!(
            "{name} has {bytes} bytes after its last line, although events.jsonl records the end of the run"
        ),
    })
}
