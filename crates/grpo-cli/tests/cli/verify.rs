//! `grpo train --resume RUN --verify`.

use serde_json::Value;

use crate::resume::place;

#[test]
fn a_run_is_verified() {
    let place = place(4);
    place.succeed(&["train", "train.toml"]);
    let files = place.files();
    let ended = place.succeed(&["train", "--resume", "run", "--verify"]);
    assert!(ended.stdout.contains("verified     step 4 matches the record\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("finished     run: all 4 steps are done"), "{}", ended.stdout);
    assert_eq!(place.files(), files);

    let path = "run/metrics.jsonl";
    let text = place.read(path);
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let last = last.replace("\"reward_std\":0.", "\"reward_std\":1.");
    place.write(path, format!("{before}\n{last}\n"));
    let ended = place.run(&["train", "--resume", "run", "--verify"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("step 4 does not match the record: `reward_std` was 1."),
        "{}",
        ended.stderr
    );
}

#[test]
fn verifying_leaves_a_run_as_it_is() {
    let place = place(4);
    place.succeed(&["train", "train.toml"]);
    let path = "run/ledger.jsonl";
    let text = place.read(path);
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let mut last: Value = serde_json::from_str(last).unwrap();
    last["updates"][1]["weights"] = "0".repeat(64).into();
    place.write(path, format!("{before}\n{last}\n"));
    let files = place.files();
    let ended = place.run(&["train", "--resume", "run", "--verify"]);
    assert!(
        ended.stderr.contains(
            "step 4 does not match the record: its metrics are equal, but the hashes of its weights or completions in ledger.jsonl differ"
        ),
        "{}",
        ended.stderr
    );
    assert_eq!(place.files(), files);

    place.write(path, format!("{before}\n"));
    let ended = place.run(&["train", "--resume", "run", "--verify"]);
    assert!(
        ended.stderr.contains(
            "step 4 cannot be verified: metrics.jsonl or ledger.jsonl has no line for it"
        ),
        "{}",
        ended.stderr
    );
}

/// A run that was killed between the record of a step and its checkpoint continues behind the verified
/// steps, and has all checkpoints that are due.
#[test]
fn the_checkpoint_of_the_last_verified_step_is_written() {
    let place = place(6);
    let configuration = place.read("train.toml").replace("every = 1\n", "every = 4\n");
    place.write("train.toml", configuration);
    place.succeed(&["train", "train.toml"]);
    for name in ["metrics.jsonl", "ledger.jsonl"] {
        let path = format!("run/{name}");
        let lines: Vec<String> =
            place.read(&path).lines().take(4).map(|line| format!("{line}\n")).collect();
        place.write(&path, lines.concat());
    }
    let events = place.read("run/events.jsonl");
    let started: Vec<&str> = events.split_inclusive('\n').collect();
    let first = started.iter().position(|line| line.contains("\"checkpoint\"")).unwrap();
    place.write("run/events.jsonl", started[..first].concat());
    for folder in ["checkpoints", "model"] {
        std::fs::remove_dir_all(place.path("run").join(folder)).unwrap();
    }
    std::fs::create_dir(place.path("run/checkpoints")).unwrap();
    std::fs::remove_file(place.path("run/comparison.json")).unwrap();
    place.succeed(&["train", "--resume", "run", "--verify"]);
    let audited = place.run(&["audit", "run"]);
    assert_eq!(audited.code, Some(0), "{}{}", audited.stdout, audited.stderr);
}
