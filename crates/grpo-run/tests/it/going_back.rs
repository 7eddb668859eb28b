//! What a roll-back undoes and what it keeps.

use std::fs;

use grpo_run::{Event, EventKind, Existing, RunError, RunFolder, verify};
use tempfile::{TempDir, tempdir};

use crate::folder::create;
use crate::{listing, names};

fn run() -> (TempDir, RunFolder) {
    let place = tempdir().unwrap();
    let (run, _) = create(&place.path().join("run"), Existing::Refuse).unwrap();
    (place, run)
}

fn line(step: u64) -> String {
    format!("{{\"step\":{step},\"kl\":0.5}}\n")
}

#[test]
fn what_was_undone_is_set_aside_and_twice_is_once() {
    let (_place, run) = run();
    for path in [run.metrics_path(), run.ledger_path()] {
        fs::write(path, (1..=4).map(line).collect::<String>()).unwrap();
    }
    for step in 1..=4 {
        fs::write(run.completions_path(step), step.to_string()).unwrap();
    }
    fs::write(run.path().join("completions/note.txt"), "mine").unwrap();
    let aside = run.set_aside(2, 1).unwrap();
    assert_eq!(aside, run.path().join("rolled-back/1"));
    let undone = line(3) + &line(4);
    let expected = [
        ("completions/", ""),
        ("completions/step-3.parquet", "3"),
        ("completions/step-4.parquet", "4"),
        ("ledger.jsonl", &undone),
        ("metrics.jsonl", &undone),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let mut found = listing(&aside);
    found.remove("manifest.json").unwrap();
    assert_eq!(found, expected.into());
    verify(&aside).unwrap();
    assert_eq!(run.completion_steps().unwrap(), [1, 2]);
    assert!(run.path().join("completions/note.txt").exists());
    // The lines are not removed until the files are opened for the next step.
    assert_eq!(run.read_metrics().unwrap().len(), 4);

    let once = listing(run.path());
    assert_eq!(run.set_aside(2, 1).unwrap(), aside);
    assert_eq!(listing(run.path()), once);
}

#[test]
fn a_run_without_files_sets_nothing_aside() {
    let (_place, run) = run();
    fs::remove_dir(run.path().join("completions")).unwrap();
    assert_eq!(names(&run.set_aside(0, 3).unwrap()), ["completions/", "manifest.json"]);
}

#[test]
fn events_of_before_the_last_roll_back_stay() {
    let (_place, run) = run();
    let back = |number| EventKind::RolledBack {
        number,
        from_step: 6,
        learning_rate_factor: 0.5,
        kl_coef: 0.0,
    };
    let checkpoint = || EventKind::Checkpoint { best: false };
    let steps = [(5, checkpoint()), (3, back(1)), (6, checkpoint()), (2, back(2))];
    let steps = steps.into_iter().chain([2, 3, 4].map(|step| (step, checkpoint())));
    let events: Vec<Event> =
        steps.map(|(step, what)| Event { step, at: String::new(), what }).collect();
    let mut written = run.events_from(1, 0).unwrap();
    events.iter().for_each(|event| written.append(event).unwrap());
    drop(written);
    // Steps 3 and 4 will be repeated, so their events after the last roll-back are removed.
    drop(run.events_from(3, 2).unwrap());
    assert_eq!(run.read_events().unwrap(), events[..5]);
    drop(run.events_from(1, 2).unwrap());
    assert_eq!(run.read_events().unwrap(), events[..4]);
    // The process was killed after writing the event, but before the roll-back was complete. It
    // will be repeated.
    drop(run.events_from(3, 1).unwrap());
    assert_eq!(run.read_events().unwrap(), events[..2]);
}

#[test]
fn leftovers_of_a_killed_process_go() {
    let (_place, run) = run();
    fs::write(run.metrics_path(), line(1)).unwrap();
    fs::write(run.path().join(".hidden"), "mine").unwrap();
    let before = listing(run.path());
    fs::write(run.path().join(".metrics.jsonl.tmp-12"), "half").unwrap();
    fs::write(run.path().join("completions/.step-1.parquet.tmp-7"), "half").unwrap();
    fs::create_dir(run.path().join(".model.tmp-3")).unwrap();
    fs::write(run.path().join(".model.tmp-3/config.json"), "half").unwrap();
    run.clear_leftovers().unwrap();
    assert_eq!(listing(run.path()), before);
    fs::remove_dir(run.path().join("completions")).unwrap();
    run.clear_leftovers().unwrap();
}

#[test]
fn one_process_has_a_run() {
    let (_place, run) = run();
    let lock = run.lock().unwrap();
    match run.lock() {
        Err(RunError::RunLocked { path }) => assert_eq!(path, run.path()),
        other => panic!("{other:?}"),
    }
    drop(lock);
    run.lock().unwrap();
}
