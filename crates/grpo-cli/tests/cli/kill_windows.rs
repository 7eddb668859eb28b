//! Runs killed between two writes that belong together.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::resume::{place, result};

/// A run killed between a checkpoint and its event repeats the step. Every kept checkpoint has an
/// event.
#[test]
fn a_checkpoint_without_its_event_is_not_resumed_from() {
    let place = place(4);
    place.succeed(&["train", "train.toml", "--run", "whole"]);
    let expected = result(&place.path("whole"));
    place.succeed(&["train", "train.toml"]);
    keep_steps(&place.path("run"), 3);
    keep_lines(&place.path("run/events.jsonl"), 2);
    let checkpoints = place.path("run/checkpoints");
    fs::rename(checkpoints.join("step-3"), checkpoints.join(".step-3.tmp-0")).unwrap();

    let ended = place.succeed(&["train", "--resume", "run"]);
    assert!(!ended.stdout.contains("after step 3"), "{}", ended.stdout);
    assert!(result(&place.path("run")) == expected);
    place.succeed(&["audit", "run"]);
}

/// A run killed while it was resumed: the event is written, but the files of later steps are not
/// truncated yet.
#[test]
fn a_run_killed_during_its_resumption_is_audited() {
    let place = place(4);
    place.succeed(&["train", "train.toml", "--set", "save.keep_last=9"]);
    let run = place.path("run");
    for later in ["checkpoints/step-4", "model"] {
        fs::remove_dir_all(run.join(later)).unwrap();
    }
    fs::remove_file(run.join("comparison.json")).unwrap();
    let copy = place.path("copy");
    crate::audit::copy(&run, &copy);
    place.succeed(&["train", "--resume", "copy"]);
    let resumed = fs::read_to_string(copy.join("events.jsonl")).unwrap();
    let end = resumed.find("\"event\":\"resumed\"").unwrap();
    let end = end + resumed[end..].find('\n').unwrap() + 1;
    fs::write(run.join("events.jsonl"), &resumed[..end]).unwrap();
    place.succeed(&["audit", "run"]);
    keep_lines(&run.join("metrics.jsonl"), 3);
    place.succeed(&["audit", "run"]);
    keep_lines(&run.join("ledger.jsonl"), 3);
    place.succeed(&["audit", "run"]);
    place.succeed(&["train", "--resume", "run"]);
    place.succeed(&["audit", "run"]);
}

/// Removes everything written after `step`.
fn keep_steps(run: &Path, step: u64) {
    for name in ["metrics.jsonl", "ledger.jsonl", "events.jsonl"] {
        keep_lines(&run.join(name), step);
    }
    fs::remove_dir_all(run.join("model")).unwrap();
    fs::remove_file(run.join("comparison.json")).unwrap();
    for later in fs::read_dir(run.join("checkpoints")).unwrap() {
        let later = later.unwrap().path();
        let of = later.file_name().unwrap().to_string_lossy().replace("step-", "");
        if of.parse::<u64>().unwrap() > step {
            fs::remove_dir_all(later).unwrap();
        }
    }
}

/// Removes the lines of all steps after `step`.
fn keep_lines(path: &Path, step: u64) {
    let text = fs::read_to_string(path).unwrap();
    let is_kept = |line: &&str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["step"].as_u64().unwrap() <= step
    };
    let kept: String = text.split_inclusive('\n').filter(is_kept).collect();
    fs::write(path, kept).unwrap();
}
