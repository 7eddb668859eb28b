//! Events together with their hashes.

use serde::Deserialize;

use crate::chain::{ChainLine, read_chain};
use crate::folder::EVENTS;
use crate::{Event, EventKind, EventProof, RunError, RunFolder};

/// A parsed line of `events.jsonl`.
pub(super) struct EventLine {
    pub(super) line: ChainLine,
    pub(super) step: u64,
    pub(super) what: EventKind,
    pub(super) proof: EventProof,
}

/// Reads `events.jsonl`. Lines that are not events are left out, and their errors are returned too.
/// Returns nothing if the file does not exist.
pub(super) fn read_events(run: &RunFolder) -> (Vec<EventLine>, Vec<RunError>) {
    let path = run.events_path();
    let event = |line: ChainLine| {
        let value = serde_json::Value::Object(line.record.clone());
        let event = Event::deserialize(&value).map_err(RunError::line(&path, line.number))?;
        let proof = EventProof::deserialize(&value).map_err(RunError::line(&path, line.number))?;
        Ok(EventLine { line, step: event.step, what: event.what, proof })
    };
    let (lines, mut faults) = read_chain(&run.folder, EVENTS.as_ref());
    let events = lines.into_iter().map(event).filter_map(|event| match event {
        Ok(event) => Some(event),
        Err(fault) => {
            faults.push(fault);
            None
        }
    });
    let events = events.collect();
    (events, faults)
}

/// Returns the last roll-back and all events after it. Earlier events may refer to steps that were
/// undone.
pub(super) fn after_roll_back(events: &[EventLine]) -> &[EventLine] {
    let went_back = |event: &EventLine| matches!(event.what, EventKind::RolledBack { .. });
    &events[events.iter().rposition(went_back).unwrap_or(0)..]
}
