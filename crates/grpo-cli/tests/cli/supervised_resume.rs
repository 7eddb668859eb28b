//! Killed, interrupted and damaged supervised runs, and how they are resumed.

use std::fs;
use std::time::Instant;

use snapbox::{Data, str};

use crate::infill_parts::{INFILLER, JUDGE, OWN_TRUNK, with_infiller};
use crate::polychromic::{self, POLYCHROMIC};
use crate::resume::{Result, files, kill_and_resume, kills, result, wait_for};
use crate::support::{Ended, Place, signal};
use crate::texts::objects;
use crate::{engagement, resume};

/// All results of a run that do not depend on timing.
#[derive(Debug, PartialEq)]
struct Whole {
    result: Option<Result>,
    kept: Vec<(std::path::PathBuf, Vec<u8>)>,
    trainer: Vec<(std::path::PathBuf, Vec<u8>)>,
    samples: Vec<u8>,
}

fn whole(place: &Place, last: u64) -> Whole {
    let run = place.path("run");
    let is_adapter = run.join("adapter").exists();
    Whole {
        result: (!is_adapter).then(|| result(&run)),
        kept: files(&run.join(if is_adapter { "adapter" } else { "model" })),
        trainer: files(&run.join(format!("checkpoints/step-{last}/trainer"))),
        samples: fs::read(run.join("samples.jsonl")).unwrap_or_default(),
    }
}

/// Trains, resets the run to the checkpoint of step `to` and resumes. The result must be the same.
#[track_caller]
fn cut_and_resume(place: &Place, arguments: &[&str], [to, last]: [u64; 2]) {
    let save = ["--run", "run", "--set", "save.every=1", "--set", "save.keep_last=99"];
    let expected_code = place.run(&[arguments, &save[..]].concat()).code;
    let expected = whole(place, last);
    for step in to + 1..=last {
        fs::remove_dir_all(place.path(&format!("run/checkpoints/step-{step}"))).unwrap();
    }
    let ended = place.run(&[arguments[0], "--resume", "run"]);
    assert_eq!(ended.code, expected_code, "{}", ended.stderr);
    let said = format!("resuming     after step {to} of {last}\n");
    assert!(ended.stdout.contains(&said), "{}", ended.stdout);
    assert!(whole(place, last) == expected, "{arguments:?}: other bytes");
    let events = objects(&place.read("run/events.jsonl"));
    assert_eq!(events.last().unwrap()["event"], "finished");
    assert!(events.iter().any(|event| event["event"] == "resumed"));
    place.succeed(&["report", "run"]);
    assert!(place.read("run/report.html").contains("<h3>Supervised loss</h3>"));
}

#[test]
fn resumes_training_on_molecules() {
    let place = Place::for_pretraining();
    let sets = ["--set", "pretrain.epochs=2", "--set", "pretrain.dropout=0.2"];
    cut_and_resume(&place, &[&["pretrain", "pretrain.toml"], &sets[..]].concat(), [5, 16]);
}

#[test]
fn resumes_training_in_16_bits() {
    for precision in ["pretrain.precision=bf16", "pretrain.precision=f16"] {
        let place = Place::for_pretraining();
        let once = ["pretrain", "pretrain.toml", "--set", "pretrain.epochs=2"];
        cut_and_resume(&place, &[&once[..], &["--set", precision]].concat(), [5, 16]);
        place.succeed(&[&once[..], &["--run", "plain"]].concat());
        let weights =
            |run: &str| fs::read(place.path(run).join("model/model.safetensors")).unwrap();
        assert!(weights("run") != weights("plain"), "{precision} has no effect");
    }
}

/// Random SMILES are a function of the seed, the molecule and the epoch.
#[test]
fn resumes_training_on_random_smiles() {
    let place = Place::for_pretraining();
    let sets = ["--set", "pretrain.epochs=2", "--set", "data.randomize=0.5"];
    let arguments = [&["pretrain", "pretrain.toml"], &sets[..]].concat();
    cut_and_resume(&place, &arguments, [5, 16]);
    place.succeed(&["pretrain", "pretrain.toml", "--set", "pretrain.epochs=2", "--run", "plain"]);
    let weights = |run: &str| fs::read(place.path(run).join("model/model.safetensors")).unwrap();
    assert!(weights("run") != weights("plain"), "no molecule was written differently");
}

/// An adapter with dropout, a diversity term, samples and early stopping.
#[test]
fn resumes_training_on_texts() {
    let place = polychromic::place();
    place.write("polychromic.toml", POLYCHROMIC);
    let sets = ["--set", "lora.dropout=0.3", "--set", "pretrain.epochs=2"];
    let arguments = [&["pretrain", "polychromic.toml"], &sets[..]].concat();
    place.succeed(&[&arguments[..], &["--run", "first"]].concat());
    let steps = objects(&place.read("first/metrics.jsonl"));
    let last = steps.last().unwrap()["train_step"].as_u64().unwrap();
    cut_and_resume(&place, &arguments, [last / 2, last]);
}

#[test]
fn resumes_infiller_training() {
    let place = with_infiller();
    place.write(
        "critic.toml",
        INFILLER.replace("[masked_lm]", "critic = true\n\n[critic]\n\n[masked_lm]"),
    );
    let sets = ["--set", "masked_lm.steps=8", "--set", "masked_lm.eval_every=3"];
    cut_and_resume(&place, &[&["pretrain", "critic.toml"], &sets[..]].concat(), [4, 8]);
}

#[test]
fn resumes_judge_training() {
    let place = with_infiller();
    place.write("judge.toml", JUDGE);
    cut_and_resume(&place, &["train-judge", "judge.toml"], [12, 20]);

    // The trunk is trained in a stage of the run, which has separate checkpoints.
    let own = JUDGE.replace("natural_share", "start_from_infiller = false\nnatural_share");
    place.write("own.toml", format!("{own}{OWN_TRUNK}"));
    fs::remove_dir_all(place.path("run")).unwrap();
    cut_and_resume(&place, &["train-judge", "own.toml"], [7, 20]);
    let expected = result(&place.path("run"));
    let trunk = result_of_trunk(&place);
    fs::remove_dir_all(place.path("run/checkpoints")).unwrap();
    fs::create_dir(place.path("run/checkpoints")).unwrap();
    for step in 31..=60 {
        fs::remove_dir_all(place.path(&format!("run/trunk/checkpoints/step-{step}"))).unwrap();
    }
    let ended = place.run(&["train-judge", "--resume", "run"]);
    assert!(ended.stdout.contains("resuming     after step 30 of 60\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("resuming     after step 0 of 20\n"), "{}", ended.stdout);
    assert!(result(&place.path("run")) == expected && result_of_trunk(&place) == trunk);
    // The run records a resume of its stage too, because the device of a later resume depends on it.
    let events = objects(&place.read("run/events.jsonl"));
    assert_eq!(events.iter().filter(|event| event["event"] == "resumed").count(), 2);
}

fn result_of_trunk(place: &Place) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    files(&place.path("run/trunk/checkpoints/step-60/trainer"))
}

#[test]
fn resumes_engagement_training() {
    let place = engagement::place();
    let sets = ["--set", "training.epochs=4", "--set", "training.patience=9"];
    let arguments = [&["train-engagement", "engagement.toml"], &sets[..]].concat();
    cut_and_resume(&place, &arguments, [13, 36]);
}

/// Acceptance test 14 for supervised training: a killed run has exactly the same result as one that
/// is not.
#[test]
fn a_killed_supervised_run_ends_as_one_that_was_not() {
    let place = Place::for_pretraining();
    let pretrain = place.read("pretrain.toml").replace("epochs = 30", "epochs = 8");
    place.write("pretrain.toml", format!("{pretrain}\n[save]\nevery = 2\n"));
    let begun = Instant::now();
    place.succeed(&["pretrain", "pretrain.toml", "--run", "whole"]);
    let whole = begun.elapsed();
    let expected = result(&place.path("whole"));
    kill_and_resume(&place, "pretrain", kills().div_ceil(2), 7, whole, &expected);
}

#[test]
#[cfg(unix)]
fn an_interrupted_supervised_run_says_how_to_go_on() {
    let place = Place::for_pretraining();
    let arguments = ["pretrain", "pretrain.toml", "--run", "run", "--set", "save.every=1"];
    let long = [&arguments[..], &["--set", "pretrain.epochs=300"]].concat();
    let child = place.spawn(&long);
    wait_for(&place.path("run/checkpoints/step-2"));
    signal(&child, "-INT");
    let ended = Ended::wait_for(child);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let metrics = objects(&place.read("run/metrics.jsonl"));
    let steps = metrics.last().unwrap()["train_step"].as_u64().unwrap();
    let said = format!(
        "interrupted  after step {steps} of 2400; resume with `grpo pretrain --resume run`\n"
    );
    assert!(ended.stdout.ends_with(&said), "{}", ended.stdout);
    assert!(place.path(&format!("run/checkpoints/step-{steps}")).exists());
}

/// The trainer has ended when the last validation is measured, and the test of the judge follows it.
#[test]
#[cfg(unix)]
fn a_judge_that_is_interrupted_in_its_last_validation_is_finished_by_a_resume() {
    let place = with_infiller();
    let sets = ["judge.steps=2", "judge.eval_every=2", "validation.spread=600", "save.every=1"];
    let sets: Vec<&str> = sets.iter().flat_map(|pair| ["--set", *pair]).collect();
    let train = [&["train-judge", "judge.toml"], &sets[..]].concat();
    place.succeed(&[&train[..], &["--run", "whole"]].concat());
    let rest = "interrupted  after the last step; everything is saved, and `grpo train-judge --resume run` does the rest\n";
    // The second step may still be running at first.
    let is_in_validation = (0..6).any(|attempt| {
        let child = place.spawn(&[&train[..], &["--run", "run", "--force"]].concat());
        place.wait_for_lines("run/metrics.jsonl", 1);
        std::thread::sleep(std::time::Duration::from_millis(100 << attempt));
        signal(&child, "-INT");
        let ended = Ended::wait_for(child);
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        ended.stdout.ends_with(rest)
    });
    assert!(is_in_validation, "every signal came too early");
    place.succeed(&["train-judge", "--resume", "run"]);
    assert_eq!(files(&place.path("run/model")), files(&place.path("whole/model")));
}

#[test]
fn damaged_checkpoints_of_a_supervised_run_are_passed_over() {
    let place = Place::for_pretraining();
    let sets = ["--set", "pretrain.epochs=1", "--set", "save.every=1"];
    place.succeed(&[&["pretrain", "pretrain.toml", "--run", "run"], &sets[..]].concat());
    let expected = resume::result(&place.path("run"));
    let weights = "run/checkpoints/step-8/model.safetensors";
    let mut bytes = fs::read(place.path(weights)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.write(weights, &bytes);
    let ended = place.succeed(&["pretrain", "--resume", "run"]);
    let said = format!("checkpoint   `{weights}` is damaged: its SHA-256 is ");
    assert!(ended.stdout.contains(&said), "{}", ended.stdout);
    assert!(ended.stdout.contains("checkpoint   using the one from step 7 instead\n"));
    assert_eq!(resume::result(&place.path("run")), expected);
}

#[test]
fn supervised_runs_that_cannot_be_resumed() {
    let place = Place::for_pretraining();
    place.succeed(&["pretrain", "pretrain.toml", "--run", "run", "--set", "pretrain.epochs=1"]);
    place.refuse(
        &["pretrain", "--resume", "nowhere"],
        str!["`nowhere` is not a run folder (no `run.json`); check the path"],
    );
    let both = place.run(&["pretrain", "--resume", "run", "pretrain.toml"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    let none = place.run(&["train-judge"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    let other = "`run` is a run of `grpo pretrain`; expected a run of `grpo";
    let refused = |arguments: &[&str], expected: Data| {
        place.run(arguments).assert_refused(expected);
    };
    refused(&["train-judge", "--resume", "run"], format!("{other} train-judge`").into());
    refused(&["train-engagement", "--resume", "run"], format!("{other} train-engagement`").into());
    refused(&["train", "--resume", "run"], format!("{other} train`").into());

    let molecules = place.read("molecules.smi");
    place.write("molecules.smi", format!("{molecules}CCCCCCC\n"));
    let ended = place.run(&["pretrain", "--resume", "run"]);
    let said = "error: `molecules.smi` is not the file that the run was started with: it has ";
    assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
    place.write("molecules.smi", molecules);

    let config = place.read("run/config.toml");
    place.write("run/config.toml", config.replace("epochs = 1", "epochs = 2"));
    refused(
        &["pretrain", "--resume", "run"],
        str![
            "`run/config.toml` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"
        ].into(),
    );
    let (before, _) = config.split_once("[save]").unwrap();
    place.write("run/config.toml", before);
    refused(
        &["pretrain", "--resume", "run"],
        str![
            "`run` was written by an older version of this program, which saved no checkpoints of such runs; start a new run in another folder with `grpo pretrain run/config.toml --run`"
        ].into(),
    );
}
