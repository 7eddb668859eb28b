//! Checks that folders with weights and their configuration files have not been modified.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::event_lines::{EventLine, after_roll_back};
use super::finding::{Finding, Violation, count};
use crate::folder::ROLLED_BACK;
use crate::{EventKind, RunError, RunFolder, sha256_of_manifest, verify};

/// Checks that checkpoints and final weights exist and match the recorded manifests.
pub(super) fn saved_folders(
    run: &RunFolder,
    events: &[EventLine],
    trained: Option<&str>,
    is_chained: bool,
) -> Result<Finding, RunError> {
    const PROPERTY: &str = "saved folders";
    let mut violations = Vec::new();
    let mut violated = |step, what: String| violations.push(Violation { step, what });
    let mut checked = 0;
    let there: BTreeMap<u64, _> = (run.checkpoints()?.into_iter())
        .map(|checkpoint| (checkpoint.step, checkpoint.path))
        .collect();
    for step in kept(events) {
        if !there.contains_key(&step) {
            violated(
                Some(step),
                "its checkpoint is missing, although events.jsonl records it".to_owned(),
            );
        }
    }
    let manifests = manifests(events);
    let rewritten = being_rewritten(events);
    for &step in there.keys().filter(|_| is_chained) {
        if !manifests.contains_key(&step) && rewritten.is_none_or(|first| step < first) {
            violated(
                Some(step),
                "events.jsonl does not record its checkpoint: the checkpoint was added, or lines of events.jsonl were removed"
                    .to_owned(),
            );
        }
    }
    for name in run.foreign_checkpoints()? {
        violated(None, format!("`checkpoints/{name}` is not a checkpoint of the run"));
    }
    for (step, manifest) in manifests {
        let Some(path) = there.get(&step) else { continue };
        match sha256_of_manifest(path).ok().as_ref() == Some(manifest) {
            true => checked += 1,
            false => violated(
                Some(step),
                "the manifest of its checkpoint changed after the run wrote it (events.jsonl has its SHA-256)"
                    .to_owned(),
            ),
        }
    }
    for undone in all_undone_steps(run, events) {
        match undone {
            Ok(()) => checked += 1,
            Err(what) => violated(None, what),
        }
    }
    for name in foreign_roll_backs(run, events)? {
        let what = "it was added, or lines of events.jsonl were removed";
        violated(None, format!("events.jsonl has no roll-back for `rolled-back/{name}`: {what}"));
    }
    for other in ["model", "adapter"].into_iter().filter(|_| is_chained) {
        if trained.is_some_and(|trained| trained != other) && run.has(other)? {
            violated(None, format!("`{other}` is not a folder of this run: it was added"));
        }
    }
    if let Some(folder) = trained {
        match saved_at_end(&run.path().join(folder), folder, events, is_chained) {
            Ok(is_checked) => checked += usize::from(is_checked),
            Err(what) => violated(None, what),
        }
    }
    Ok(match (checked, violations.is_empty()) {
        (0, true) if !is_chained => Finding::not_recorded(
            PROPERTY,
            "created by an older version: changes to the configuration or tokenizer next to the weights cannot be detected if the manifest was rewritten",
        ),
        (0, true) => Finding::not_recorded(PROPERTY, "the run wrote none"),
        _ => Finding::new(PROPERTY, count(checked, "folder"), violations),
    })
}

/// Checks the undone steps of all roll-backs.
fn all_undone_steps(run: &RunFolder, events: &[EventLine]) -> Vec<Result<(), String>> {
    let undone = |event: &EventLine| match (&event.what, &event.proof.manifest) {
        (EventKind::RolledBack { number, .. }, Some(manifest)) => {
            Some(undone_steps(run, *number, manifest))
        }
        _ => None,
    };
    // The last event may belong to a roll-back that is being undone.
    events.iter().rev().skip(1).filter_map(undone).collect()
}

/// Returns the names in `rolled-back/` that do not belong to a roll-back in the events.
fn foreign_roll_backs(run: &RunFolder, events: &[EventLine]) -> Result<Vec<String>, RunError> {
    let number = |event: &EventLine| match event.what {
        EventKind::RolledBack { number, .. } => Some(number),
        _ => None,
    };
    let mut known: BTreeSet<u32> = events.iter().filter_map(number).collect();
    // A run writes the folder between the guard event and the roll-back event. If it was killed in
    // between, the folder belongs to a roll-back without an event.
    let ends = |event: &&EventLine| {
        !matches!(
            event.what,
            EventKind::Started {}
                | EventKind::Resumed { .. }
                | EventKind::RolledBack { .. }
                | EventKind::Stopped { .. }
                | EventKind::Finished { .. }
        )
    };
    let is_going_back = events.iter().rev().take_while(ends).any(
        |event| matches!(&event.what, EventKind::Guard { action, .. } if action == "roll_back"),
    );
    if is_going_back {
        let latest = events.iter().rev().find_map(number);
        known.insert(latest.unwrap_or(0).saturating_add(1));
    }
    let is_known = |name: &String| known.iter().any(|number| number.to_string() == *name);
    let entries = run.folder.entries(ROLLED_BACK);
    let entries = entries.map_err(RunError::read(&run.file(ROLLED_BACK)))?;
    let names = entries.into_iter().map(|(name, _)| name);
    Ok(names.filter(|name| !is_known(name)).collect())
}

/// Checks the records of the steps undone by roll-back `number`.
fn undone_steps(run: &RunFolder, number: u32, manifest: &str) -> Result<(), String> {
    let folder = run.rolled_back_path(number);
    let name = format!("rolled-back/{number}");
    match sha256_of_manifest(&folder) {
        Ok(now) if now == manifest => verify(&folder).map(drop).map_err(|fault| fault.to_string()),
        Ok(_) => Err(format!(
            "the manifest of `{name}` changed after the run wrote it (events.jsonl has its SHA-256)"
        )),
        Err(_) => Err(format!(
            "events.jsonl records that the run kept the rolled-back steps in `{name}`, but its manifest is missing"
        )),
    }
}

/// Returns the steps whose checkpoints must exist.
fn kept(events: &[EventLine]) -> Vec<u64> {
    let events = after_roll_back(events);
    // Between the event of a roll-back and its checkpoint, any checkpoint may be missing.
    let last = events.iter().rposition(|event| matches!(event.what, EventKind::Checkpoint { .. }));
    let Some(place) = last else { return Vec::new() };
    let last = &events[place];
    let mut kept = last.proof.kept.clone().unwrap_or(vec![last.step]);
    if place + 1 == events.len() {
        // The run may have been killed before renaming the folder.
        kept.retain(|step| *step != last.step);
    }
    kept
}

/// Returns the first step whose checkpoint may lack an event, because roll-backs write the event
/// after the folder.
fn being_rewritten(events: &[EventLine]) -> Option<u64> {
    let last = events.last().filter(|event| matches!(event.what, EventKind::RolledBack { .. }))?;
    Some(last.step)
}

/// Returns the latest recorded manifest hash of each checkpoint.
fn manifests(events: &[EventLine]) -> BTreeMap<u64, &String> {
    let mut manifests = BTreeMap::new();
    for event in events {
        match (&event.what, &event.proof.manifest) {
            (EventKind::Checkpoint { .. }, Some(manifest)) => {
                manifests.insert(event.step, manifest);
            }
            // This checkpoint will be rewritten, and later ones are deleted.
            (EventKind::RolledBack { .. }, _) => manifests.retain(|step, _| *step < event.step),
            _ => {}
        }
    }
    manifests
}

/// Returns whether the final weights match their event. Returns false if there is no such event.
fn saved_at_end(
    path: &Path,
    folder: &str,
    events: &[EventLine],
    is_chained: bool,
) -> Result<bool, String> {
    let resumed = |event: &EventLine| {
        matches!(event.what, EventKind::Resumed { .. } | EventKind::RolledBack { .. })
    };
    let latest = &events[events.iter().rposition(resumed).unwrap_or(0)..];
    let has_finished = latest.iter().any(|event| matches!(event.what, EventKind::Finished { .. }));
    let is_saved = |event: &&EventLine| event.what == EventKind::Saved {};
    let saved = latest.iter().rev().find(is_saved);
    let was_saved = || {
        let now = sha256_of_manifest(path).ok();
        events.iter().filter(is_saved).any(|event| now.is_some() && event.proof.manifest == now)
    };
    // The event is written before the folder.
    let may_lack = events.last().is_some_and(|event| event.what == EventKind::Saved {});
    match saved {
        _ if has_finished && !path.is_dir() => Err(format!(
            "events.jsonl records that the run finished, but its `{folder}` was removed"
        )),
        None if has_finished && is_chained => Err(format!(
            "events.jsonl records that the run finished, but not that it saved its `{folder}`: the event `saved` was removed"
        )),
        None if is_chained && path.is_dir() && !was_saved() => Err(format!(
            "events.jsonl does not record that the run saved its `{folder}`: the folder was added or changed, or lines of events.jsonl were removed"
        )),
        None => Ok(false),
        Some(_) if may_lack && !path.is_dir() => Ok(false),
        Some(_) if !path.is_dir() => Err(format!(
            "events.jsonl records that the run saved its `{folder}`, but the folder is missing"
        )),
        Some(saved) => {
            let name = saved.proof.folder.as_deref();
            let now = sha256_of_manifest(path).ok();
            match name == Some(folder) && now == saved.proof.manifest {
                true => Ok(true),
                false => Err(format!(
                    "the manifest of `{folder}` changed after the run wrote it (events.jsonl has its SHA-256)"
                )),
            }
        }
    }
}
