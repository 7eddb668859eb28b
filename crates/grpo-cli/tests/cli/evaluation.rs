//! Evaluations during training.

use std::io::{BufRead, BufReader};

use serde_json::{Map, Value};
use snapbox::str;

use crate::support::{Ended, Place, signal};
use crate::training_texts;

fn metrics(place: &Place, run: &str) -> Vec<Map<String, Value>> {
    let text = place.read(&format!("{run}/metrics.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const NOTICE: &str = "evaluation   on training prompts because eval.file is not set;";

/// Each evaluation uses the same held-out prompts and random numbers, and does not affect training.
#[test]
fn held_out_prompts_are_evaluated() {
    let place = training_texts::place("llama");
    place.write("other.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"the\"}\n");
    let train = ["train", "train.toml", "--set", "eval.every=2", "--set", "train.steps=3"];
    let held_out = ["--set", "eval.file=other.jsonl", "--run", "held-out"];
    let ended = place.succeed(&[&train[..], &held_out].concat());
    assert!(!ended.stdout.contains(NOTICE), "{}", ended.stdout);
    let ended_without = place.succeed(&[&train[..], &["--run", "same"]].concat());
    assert!(ended_without.stdout.contains(NOTICE), "{}", ended_without.stdout);

    let with = metrics(&place, "held-out");
    let evaluated: Vec<bool> = with.iter().map(|line| line.contains_key("eval_reward")).collect();
    assert_eq!(evaluated, [false, true, true]);
    let info: Value = serde_json::from_str(&place.read("held-out/run.json")).unwrap();
    // The revision of the program, not of the working directory.
    assert_eq!(info["git_revision"].as_str(), option_env!("GRPO_REVISION"));
    let files = info["data"].as_array().unwrap();
    assert!(files.iter().any(|file| file["role"] == "evaluation" && file["path"] == "other.jsonl"));
    // Evaluations do not affect training.
    let learned = |line: &Map<String, Value>| (line["loss"].clone(), line["grad_norm"].clone());
    let without: Vec<_> = metrics(&place, "same").iter().map(learned).collect();
    assert_eq!(with.iter().map(learned).collect::<Vec<_>>(), without);
}

/// `model/` contains the policy of the last step, and a checkpoint contains the best one.
#[test]
fn reports_the_best_evaluation_at_the_end() {
    let place = Place::for_training();
    let ended = place.succeed(&["train", "train.toml", "--set", "eval.every=1"]);
    let events = place.read("run/events.jsonl");
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [.., best, saved, finished] = &events[..] else { panic!("{events:?}") };
    let names = [best, saved, finished].map(|event| event["event"].as_str().unwrap());
    assert_eq!(names, ["best", "saved", "finished"]);
    let checkpoint = best["checkpoint"].as_str().unwrap();
    assert_eq!(checkpoint, format!("checkpoints/step-{}", best["best_step"]));
    let line = format!("\nbest         step {}, mean reward ", best["best_step"]);
    assert!(ended.stdout.contains(&line), "{}", ended.stdout);
    let folder = format!("run/{checkpoint}");
    assert!(ended.stdout.contains(&format!(": {folder}\n")), "{}", ended.stdout);
    place.succeed(&["sample", "--model", &folder, "-n", "2"]);
    place.succeed(&["report", "run"]);
    assert!(place.read("run/report.html").contains("best evaluation"));
    place.succeed(&["audit", "run"]);
}

/// Starts a run with large evaluations and sends a signal as soon as it prints `line`.
#[cfg(unix)]
fn interrupted(place: &Place, run: &str, line: &str, name: &str) -> Ended {
    let arguments = ["train", "train.toml", "--set", "eval.samples=4000", "--run", run];
    let mut child = place.spawn(&arguments);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|said| said.unwrap().contains(line)), "{run} never says {line}");
    signal(&child, name);
    Ended::wait_for(child)
}

/// A signal in the evaluation after training keeps everything else. A resumed run only does what is
/// missing, with the same result.
#[test]
#[cfg(unix)]
fn an_interrupted_evaluation_is_completed() {
    let place = Place::for_training();
    let samples = ["--set", "eval.samples=4000"];
    place.succeed(&[&["train", "train.toml", "--run", "whole"], &samples[..]].concat());
    let before = place.read("whole/evaluation-before.jsonl");
    assert_eq!(before.lines().count(), 4000);
    let after = "4000 completions after training";
    for (run, signal, is_damaged) in
        [("a", "-INT", false), ("b", "-TERM", false), ("c", "-TERM", true)]
    {
        let ended = interrupted(&place, run, after, signal);
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        let said = format!(
            "interrupted  in the evaluation after training; everything else is saved, and `grpo train --resume {run}` does the rest\n"
        );
        assert!(ended.stderr.ends_with(&said), "{}", ended.stderr);
        assert!(place.path(run).join("model/model.safetensors").exists());
        assert!(!place.path(run).join("comparison.json").exists());
        let kept = format!("{run}/evaluation-before.jsonl");
        assert!(place.read(&kept) == before);
        if is_damaged {
            place.write(&kept, &before[..before.len() / 2]);
        }
        let resumed = place.succeed(&["train", "--resume", run]).stdout;
        let evaluates = resumed.contains("evaluating   4000 completions before training");
        assert_eq!(evaluates, is_damaged, "{resumed}");
        let reads = format!("evaluated    4000 completions before training, kept in {kept}\n");
        assert_eq!(resumed.contains(&reads), !is_damaged, "{resumed}");
        let comparison = format!("{run}/comparison.json");
        assert!(place.read(&comparison) == place.read("whole/comparison.json"), "{run}");
        assert!(place.read(&kept) == before);
        place.succeed(&["audit", run]);
        let again = place.succeed(&["train", "--resume", run]).stdout;
        assert!(again.starts_with(&format!("finished     {run}: ")), "{again}");
    }
    // In the evaluation before training, there are no steps yet.
    let ended = interrupted(&place, "d", "4000 completions before training", "-TERM");
    let said = "interrupted  in the evaluation before training; start it again with `grpo train --resume d`\n";
    assert!(ended.stderr.ends_with(said), "{}", ended.stderr);
    place.succeed(&["train", "--resume", "d"]);
    assert!(place.read("d/comparison.json") == place.read("whole/comparison.json"));
}

#[test]
fn refuses_invalid_evaluations() {
    let place = Place::for_training();
    for (sets, expected) in [
        (
            ["eval.samples=0", "eval.every=2"],
            str![
                "--set eval.every=2: eval.every = 2 has no effect with eval.samples = 0; increase eval.samples, or set eval.every = 0"
            ],
        ),
        (
            ["eval.samples=5", "eval.min_gain=0.1"],
            str![
                "--set eval.min_gain=0.1: eval.min_gain has no effect with eval.every = 0, which runs no evaluations during training; set eval.every to a number of steps"
            ],
        ),
        (
            ["eval.samples=5", "eval.patience=2"],
            str![
                "train.toml: eval.patience has no effect with eval.every = 0, which runs no evaluations during training; set eval.every to a number of steps"
            ],
        ),
        (
            ["eval.samples=5", "eval.file=more.jsonl"],
            str!["eval.file requires a training run with prompts; add [data], or remove eval.file"],
        ),
        (
            ["eval.samples=5", "save.keep_last=0"],
            str!["--set save.keep_last=0: save.keep_last = 0 is out of range; expected 1 or more"],
        ),
        (
            ["eval.samples=5", "save.every_minutes=-1"],
            str![
                "--set save.every_minutes=-1: save.every_minutes = -1 is out of range; expected 0 to 1000000"
            ],
        ),
    ] {
        place.refuse(&["train", "train.toml", "--set", sets[0], "--set", sets[1]], expected);
    }
}
