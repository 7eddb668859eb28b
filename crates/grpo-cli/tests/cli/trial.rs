//! `grpo trial`: short runs that test a configuration before a long run.

use std::fs;

use serde_json::{Value, json};
use snapbox::str;

use crate::resume::{metrics, wait_for};
use crate::support::{Ended, Place, signal, small_model, train_toml};
use crate::training_texts;

/// Creates a place with `train.toml` for the small model, which generates short, mostly valid
/// molecules.
fn place() -> Place {
    let place = Place::new();
    let long = train_toml().replace("steps = 3", "steps = 300");
    // The model is too small to generate only valid molecules.
    place.write(
        "train.toml",
        long.replace("learning_rate = 1e-2", "learning_rate = 1e-4") + VALIDITY,
    );
    place
}

const VALIDITY: &str = "\n[success]\nmin_validity = 0.3\n";

/// Adds guards to `train.toml`.
fn add_guards(place: &Place, guards: &[&str]) {
    let tables =
        guards.iter().map(|guard| format!("\n[[guards]]\n{}\n", guard.replace("; ", "\n")));
    place.write("train.toml", place.read("train.toml") + &tables.collect::<String>());
}

const SHORT: [&str; 4] = ["trial", "train.toml", "--steps", "12"];

/// Runs a trial that fails with exit code 1 and the given message. `#` stands for numbers, which
/// may depend on the machine.
#[track_caller]
fn refused(place: &Place, arguments: &[&str], expected: &str) -> Ended {
    let ended = place.run(&[&SHORT[..], arguments].concat());
    let said = ended.stderr.lines().find(|line| line.starts_with("error: "));
    let said = said.unwrap_or_else(|| panic!("no error: {}", ended.stdout));
    let words: Vec<&str> = expected.split('#').collect();
    let mut rest = said.strip_prefix("error: ").unwrap();
    for (place, word) in words.iter().enumerate() {
        if place > 0 {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        }
        rest = rest.strip_prefix(word).unwrap_or_else(|| panic!("{said}, not {expected}"));
    }
    assert_eq!(rest, "", "{said}");
    assert_eq!(ended.code, Some(1));
    ended
}

/// Returns the line of a criterion.
#[track_caller]
fn line<'a>(ended: &'a Ended, criterion: &str) -> &'a str {
    let found = ended.stdout.lines().find(|line| line.contains(&format!(" {criterion}: ")));
    found.unwrap_or_else(|| panic!("no {criterion}: {}", ended.stdout)).trim()
}

fn table(place: &Place, file: &str) -> toml::Table {
    place.read(file).parse().unwrap()
}

#[test]
fn a_sound_configuration_can_begin() {
    let place = place();
    let ended = place.succeed(&SHORT);
    let audit = "passed      Audit: ";
    for (criterion, words) in [
        ("Reward has not fallen", "passed      Reward has not fallen: from "),
        ("KL stays small", "passed      KL stays small: at most "),
        ("Validity is kept", "passed      Validity is kept: from "),
        (
            "Signal is consistent",
            "passed      Signal is consistent: enough groups had differing rewards in ",
        ),
        ("No guard stopped it", "passed      No guard stopped it: none in 12 steps"),
        (
            "Resume is exact",
            "passed      Resume is exact: steps 10 to 12, repeated from the checkpoint of step 9, are equal bit for bit: metrics, completions, weights",
        ),
        ("Audit", audit),
    ] {
        assert!(line(&ended, criterion).starts_with(words), "{}", ended.stdout);
    }
    assert!(line(&ended, "Audit").ends_with(" properties proven, none violated"));
    let verdict = "verdict      go ahead: no problem found\n";
    assert!(ended.stdout.ends_with(verdict), "{}", ended.stdout);
    for stage in ["\n 1–1 ", "\n 2–6 ", "\n 7–12 "] {
        assert!(ended.stdout.contains(stage), "{stage}: {}", ended.stdout);
    }
    // Only the run folder is left behind.
    let left = fs::read_dir(place.path("")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["run-trial", "train.toml"]);
    // A trial is a regular run.
    place.succeed(&["audit", "run-trial"]);
    let report = place.succeed(&["report", "run-trial"]);
    assert!(report.stdout.contains(line(&ended, "KL stays small")), "{}", report.stdout);
    place.succeed(&["explain", "run-trial", "--step", "3"]);
    // Resuming repeats the verdict.
    let again = place.succeed(&["trial", "--resume", "run-trial", "--no-resume-check"]);
    assert!(
        again
            .stdout
            .ends_with("verdict      go ahead: no problem found; not judged: Resume is exact\n"),
        "{}",
        again.stdout
    );
    assert_eq!(line(&again, "Reward has not fallen"), line(&ended, "Reward has not fallen"));
}

#[test]
fn a_trial_sets_its_own_keys_under_those_of_the_user() {
    let place = place();
    let file = place.read("train.toml").replace(VALIDITY, "");
    place.write(
        "train.toml",
        format!(
            "{file}\n[schedule]\nwarmup_steps = 50\nkl_coef_end = 0.01\ncoef_steps = 100\n\n[success]\nmax_kl = 0.3\ncomponents = {{ qed = \"rises\", sa = \"falls\" }}\n"
        ),
    );
    add_guards(
        &place,
        &[
            "watch = \"kl\"; above = 0.02; action = \"roll_back\"; kl_coef_factor = 2.0",
            "watch = \"entropy\"; below = 0.01; steps = 4; action = \"warn\"",
        ],
    );
    let sets = ["train.group_size=5", "save.every=4", "success.min_validity=0.1"];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> =
        SHORT.into_iter().chain(sets).chain(["--run", "other", "--no-resume-check"]).collect();
    place.run(&arguments);
    let config = table(&place, "other/config.toml");
    let value = |section: &str, key: &str| serde_json::to_value(&config[section][key]).unwrap();
    for (section, key, expected) in [
        ("train", "steps", json!(12)),
        ("train", "prompts_per_step", json!(2)),
        ("train", "group_size", json!(5)),
        ("optimizer", "learning_rate", json!(1e-4)),
        ("loss", "kl_coef", json!(0.05)),
        ("schedule", "warmup_steps", json!(2)),
        ("schedule", "coef_steps", json!(4)),
        ("save", "every", json!(4)),
        ("save", "keep_last", json!(6)),
        ("eval", "every", json!(1)),
        ("eval", "samples", json!(20)),
        ("success", "reward_rise", json!(-4.0)),
        ("success", "max_kl", json!(0.3)),
        ("success", "min_validity", json!(0.1)),
        ("success", "max_validity_drop", json!(0.05)),
        ("success", "components", json!({"qed": "does_not_fall", "sa": "does_not_rise"})),
    ] {
        assert_eq!(value(section, key), expected, "{section}.{key}");
    }
    let guards = config["guards"].as_array().unwrap().iter();
    let guards: Vec<Value> = guards.map(|guard| serde_json::to_value(guard).unwrap()).collect();
    let guard = |watch: &str, side: &str, bound: f64, steps: u32, action: &str| json!({"watch": watch, side: bound, "steps": steps, "from_step": 1, "action": action});
    // A guard that would roll back stops a trial.
    let expected =
        [guard("kl", "above", 0.02, 1, "stop"), guard("entropy", "below", 0.01, 4, "warn")];
    assert_eq!(guards, expected);
}

/// A trial says something about the long run only if it takes the same steps.
#[test]
fn a_trial_takes_the_steps_of_the_file() {
    for (place, rate) in [(place(), "1e-3"), (training_texts::place("llama"), "2e-2")] {
        let rate = format!("optimizer.learning_rate={rate}");
        let sets = ["--set", &rate, "--set", "train.steps=12", "--set", "eval.every=0"];
        place.run(&[&["trial", "train.toml", "--no-resume-check"], &sets[..]].concat());
        place.succeed(&[&["train", "train.toml"], &sets[..]].concat());
        let [trial, whole] = ["run-trial", "run"].map(|run| metrics(&place.path(run)));
        assert_eq!(trial.len(), 12);
        for (trial, whole) in trial.iter().zip(&whole) {
            assert_eq!(trial, whole);
        }
    }
}

#[test]
fn a_policy_that_runs_away_is_stopped() {
    let place = place();
    add_guards(&place, &["watch = \"kl\"; above = 0.1; action = \"roll_back\""]);
    let fast = ["--set", "optimizer.learning_rate=0.1", "--no-resume-check"];
    let ended = place.run(&[&SHORT[..], &fast].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("error: not yet: "), "{}", ended.stderr);
    assert!(ended.stdout.contains("\n 2–6, 1 done "), "{}", ended.stdout);
    let kl = line(&ended, "KL stays small");
    assert!(kl.starts_with("failed") && kl.ends_with("in step 2 (required: below 0.1)"), "{kl}");
    let end = line(&ended, "No guard stopped it");
    let stopped = "failed      No guard stopped it: stopped after step 2: kl was ";
    assert!(end.starts_with(stopped), "{end}");
    assert_eq!(
        line(&ended, "Resume is exact"),
        "not judged  Resume is exact: skipped by --no-resume-check"
    );
}

#[test]
fn a_model_that_writes_no_molecules_is_stopped() {
    let place = place();
    fs::create_dir(place.path("blank")).unwrap();
    for file in ["config.json", "vocabulary.json"] {
        fs::copy(small_model().join(file), place.path("blank").join(file)).unwrap();
    }
    place.succeed(&["init", "blank/config.json", "-o", "untrained"]);
    add_guards(
        &place,
        &["watch = \"rewards/valid/mean\"; below = 0.5; steps = 3; action = \"stop\""],
    );
    let signal = ["--set", "model=untrained", "--set", "success.max_zero_std=1"];
    let ended = place.run(&[&SHORT[..], &signal].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let end = line(&ended, "No guard stopped it");
    assert!(
        end.contains(": rewards/valid/mean was ") && end.ends_with(", below 0.5, 3 steps in a row"),
        "{end}"
    );
    assert!(line(&ended, "Validity is kept").starts_with("failed"), "{}", ended.stdout);
    assert_eq!(
        line(&ended, "Resume is exact"),
        "not judged  Resume is exact: the run did not reach its last step, so there is no final state to compare"
    );
}

#[test]
fn a_training_that_diverges_is_stopped() {
    let place = place();
    let message = "training diverged: the gradient norm became NaN; lower the learning rate, or check the data and the rewards";
    // The run failed after some steps. They are shown and judged.
    let sets = [
        "loss.kl_coef=3e38",
        "optimizer.learning_rate=1",
        "guards=[{watch=\"not_finite\", action=\"stop\"}]",
        "success.max_zero_std=1",
        "success.max_kl=1e9",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let expected = format!(
        "not yet: No guard stopped it: stopped after step #: step #: the step failed: {message}: a non-finite value gives no useful training signal"
    );
    refused(&place, &sets, &expected);
    // Such a large penalty has no gradient while policy and reference are equal, and a non-finite
    // one later.
    refused(&place, &["--force", "--set", "loss.kl_coef=1e300"], &expected);
    // The run failed in the first step, so there is nothing to judge.
    let sets = ["--force", "--set", "loss.entropy_bonus={type=\"static\",coef=1e300}"];
    let expected = format!("training run run-trial ended early: {message}");
    let ended = refused(&place, &sets, &expected);
    assert!(!ended.stdout.contains("equal groups"), "{}", ended.stdout);
}

/// An interrupted trial can be resumed and gets the same verdict.
#[test]
#[cfg(unix)]
fn an_interrupted_trial_goes_on() {
    let place = place();
    let trial = ["trial", "train.toml", "--steps", "120", "--set", "save.every=2"];
    let child = place.spawn(&trial);
    wait_for(&place.path("run-trial/checkpoints/step-2"));
    signal(&child, "-INT");
    let ended = Ended::wait_for(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let said = "resume with `grpo train --resume run-trial`\nuse `grpo trial --resume run-trial` to also get the verdict\n";
    assert!(ended.stdout.ends_with(said), "{}", ended.stdout);
    let resumed = place.run(&["trial", "--resume", "run-trial"]);
    let whole = place.run(&[&trial[..], &["--run", "whole"]].concat());
    for criterion in ["Reward has not fallen", "KL stays small", "Resume is exact"] {
        assert_eq!(line(&resumed, criterion), line(&whole, criterion));
    }
    assert!(line(&whole, "Resume is exact").starts_with("passed"), "{}", whole.stdout);
}

#[test]
fn what_is_not_the_same_when_it_is_resumed_is_named() {
    let place = place();
    place.succeed(&[&SHORT[..], &["--no-resume-check"]].concat());
    let metrics = place.read("run-trial/metrics.jsonl");
    let ledger = place.read("run-trial/ledger.jsonl");
    let mut lines: Vec<Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines[10]["grad_norm"] = json!(0.125);
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    place.write("run-trial/metrics.jsonl", text.join("\n") + "\n");
    let again = place.run(&["trial", "--resume", "run-trial"]);
    assert!(
        line(&again, "Resume is exact")
            .contains("step 11 does not match the record: `grad_norm` was 0.125 and is "),
        "{}",
        again.stdout
    );
    assert_eq!(again.code, Some(1));
    // A metric that exists in only one of the runs.
    lines[10] = serde_json::from_str(metrics.lines().nth(10).unwrap()).unwrap();
    lines[10].as_object_mut().unwrap().remove("grad_norm");
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    place.write("run-trial/metrics.jsonl", text.join("\n") + "\n");
    let again = place.run(&["trial", "--resume", "run-trial"]);
    assert!(
        line(&again, "Resume is exact")
            .contains("step 11 does not match the record: `grad_norm` was null and is "),
        "{}",
        again.stdout
    );

    place.write("run-trial/metrics.jsonl", metrics);
    // The hash of the weights after the last update.
    let mut steps: Vec<Value> =
        ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    steps[11]["updates"][0]["weights"] = json!("0".repeat(64));
    let text: Vec<String> = steps.iter().map(Value::to_string).collect();
    place.write("run-trial/ledger.jsonl", text.join("\n") + "\n");
    let again = place.run(&["trial", "--resume", "run-trial"]);
    assert_eq!(
        line(&again, "Resume is exact"),
        "failed      Resume is exact: step 12 does not match the record: its metrics are equal, but the hashes of its weights or completions in ledger.jsonl differ"
    );
    assert!(line(&again, "Audit").starts_with("failed      Audit: violated: "), "{}", again.stdout);
    assert_eq!(again.code, Some(1));
}

#[test]
fn reports_a_trial_without_an_earlier_checkpoint() {
    let place = place();
    let none = ["--set", "save.every=0", "--set", "eval.every=0", "--set", "save.every_minutes=0"];
    refused(
        &place,
        &none,
        "not yet: Resume is exact: no intact checkpoint from before the last step is left to resume from; set save.every, or increase save.keep_last",
    );
}

#[test]
fn a_trial_of_texts_uses_the_settings_of_the_file() {
    let place = training_texts::place("llama");
    let trial = ["trial", "train.toml", "--steps", "10", "--force"];
    let sets = ["--set", "success.max_zero_std=1", "--set", "success.max_kl_sequence=5"];
    let slow = ["--set", "optimizer.learning_rate=1e-4"];
    let ended = place.run(&[&trial[..], &sets, &slow].concat());
    assert_eq!(ended.code, Some(0), "{} {}", ended.stderr, ended.stdout);
    let kl = line(&ended, "Sequence KL stays small");
    assert!(kl.ends_with("(required: below 5)"), "{kl}");
    assert!(kl.starts_with("passed"), "{kl}");
    assert!(line(&ended, "Validity is kept").starts_with("not judged"));
    assert!(
        ended.stdout.contains("┆ KL of a sequence ┆") || ended.stdout.contains("KL of a sequence")
    );
    let config = place.read("run-trial/config.toml");
    assert!(!config.contains("rewards/valid/mean"), "{config}");

    let fast = ["--set", "optimizer.learning_rate=0.5"];
    let ended = place.run(&[&trial[..], &sets, &fast].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(line(&ended, "Sequence KL stays small").starts_with("failed"), "{}", ended.stdout);
    // A rate that only the file sets counts as well.
    place.write("train.toml", place.read("train.toml").replace("2e-2", "0.5"));
    let ended = place.run(&[&trial[..], &sets].concat());
    assert!(line(&ended, "Sequence KL stays small").starts_with("failed"), "{}", ended.stdout);
}

#[test]
fn refuses_invalid_trials_before_they_start() {
    let place = place();
    place.refuse(
        &["trial", "train.toml", "--steps", "9"],
        str!["a trial of 9 steps is too short; expected at least 10"],
    );
    place.refuse(
        &["trial", "train.toml", "--set", "train.steps=5"],
        str!["a trial of 5 steps is too short; expected at least 10"],
    );
    place.refuse(
        &["trial", "train.toml", "--steps", "20", "--set", "train.steps=20"],
        str!["--steps and --set train.steps set the same value; remove one of them"],
    );
    // An error in the long run that does not affect the trial.
    place.refuse(
        &["trial", "train.toml", "--set", "schedule.floor=2"],
        str!["--set schedule.floor=2: schedule.floor = 2 is out of range; expected 0 to 1"],
    );
}
