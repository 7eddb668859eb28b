//! Runs that were started from a model which another command replaces later.

use std::fs;

use grpo_run::RunFolder;

use crate::resume::{configuration, wait_for};
use crate::support::{Ended, MOLECULES, PRETRAIN_TOML, Place, signal, train_toml};

/// Trains `b` from the model of another run.
fn train_from(place: &Place, model: &str) -> Ended {
    place.write("b.toml", train_toml());
    let set = format!("model={model}");
    place.succeed(&["train", "b.toml", "--set", &set, "--run", "runs/b"])
}

/// Checks that all files and steps of `b` are as they were, with the model of another name.
#[track_caller]
fn check_b(place: &Place, was: &str, is: &str) {
    let note = format!(
        "note         {was} was replaced after the run started from it; the run uses the earlier one, which is now {is}\n"
    );
    let verified = place.succeed(&["train", "--resume", "runs/b", "--verify"]);
    assert!(verified.stdout.contains(&note), "{}", verified.stdout);
    let replay = ["replay", "runs/b", "--step", "1", "--prompt", "0", "--sample", "0"];
    assert!(place.succeed(&replay).stdout.contains(&note));
    let audited = place.succeed(&["audit", "runs/b"]).stdout;
    assert!(!audited.contains("VIOLATED"), "{audited}");
}

#[test]
#[cfg(unix)]
fn a_supervised_run_keeps_the_model_from_which_another_run_started() {
    let place = Place::new();
    place.write("molecules.smi", MOLECULES);
    place.write("a.toml", PRETRAIN_TOML.replace("epochs = 30", "epochs = 100"));
    let child = place.spawn(&["pretrain", "a.toml", "--run", "runs/a"]);
    place.wait_for_lines("runs/a/metrics.jsonl", 20);
    signal(&child, "-INT");
    assert_eq!(Ended::wait_for(child).code, Some(130));
    let unfinished = "runs/a/model belongs to an unfinished run and is not its final result; resume the run to finish it\n";
    let trained = train_from(&place, "runs/a/model");
    assert!(trained.stderr.contains(&format!("warning: {unfinished}")), "{}", trained.stderr);
    let check = ["train", "b.toml", "--set", "model=runs/a/model", "--check"];
    let checked = place.succeed(&check).stdout;
    assert!(checked.contains(&format!("note         {unfinished}")), "{checked}");
    let lock = RunFolder::open(&place.path("runs/a")).unwrap().lock().unwrap();
    let training = "runs/a/model belongs to a run that is still training and is not its final result; wait until it has finished\n";
    let checked = place.succeed(&check).stdout;
    assert!(checked.contains(&format!("note         {training}")), "{checked}");
    drop(lock);
    let resumed = place.succeed(&["pretrain", "--resume", "runs/a"]);
    let note = "note: runs/b was started from runs/a/model, which is kept as runs/a/model.old-1; it resumes with that one\n";
    assert_eq!(resumed.stderr.matches(note).count(), 1, "{}", resumed.stderr);
    assert!(place.path("runs/a/model/manifest.json").is_file());
    assert!(!place.path("runs/a/model.old-2").exists());
    check_b(&place, "runs/a/model", "runs/a/model.old-1");
    assert!(!place.succeed(&check).stdout.contains("unfinished"));
    // The copy is checked like the model.
    fs::remove_file(place.path("runs/a/model.old-1/vocabulary.json")).unwrap();
    let refused = place.run(&["train", "--resume", "runs/b", "--verify"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("is not the file that the run was started with"));
}

/// The name of a file that `grpo run --force` renamed no longer ends in that of its format.
#[test]
#[cfg(unix)]
fn a_run_resumes_with_a_data_file_that_a_pipeline_renamed() {
    let place = Place::new();
    let molecules = MOLECULES.lines().filter_map(|line| line.split_whitespace().next());
    let table: Vec<&str> = ["smiles"].into_iter().chain(molecules).collect();
    place.write("mine.csv", table.join("\n") + "\n");
    let config = PRETRAIN_TOML.replace("molecules.smi", "mine.csv");
    place.write("a.toml", config.replace("epochs = 30", "epochs = 100"));
    let child = place.spawn(&["pretrain", "a.toml", "--run", "runs/a"]);
    place.wait_for_lines("runs/a/metrics.jsonl", 20);
    signal(&child, "-INT");
    assert_eq!(Ended::wait_for(child).code, Some(130));
    place.write("p.toml", crate::pipeline_refusals::MAKE);
    place.succeed(&["run", "p.toml", "--force"]);
    assert!(place.path("mine.csv.old-1").is_file());
    let resumed = place.succeed(&["pretrain", "--resume", "runs/a"]).stdout;
    let note = "note         mine.csv was replaced after the run started from it; the run uses the earlier one, which is now mine.csv.old-1\n";
    assert!(resumed.contains(note), "{resumed}");
}

#[test]
#[cfg(unix)]
fn a_run_keeps_the_checkpoint_from_which_another_run_started() {
    let place = Place::new();
    place.write("a.toml", configuration(12));
    let child = place.spawn(&["train", "a.toml", "--run", "runs/a"]);
    wait_for(&place.path("runs/a/checkpoints/step-2"));
    signal(&child, "-INT");
    assert_eq!(Ended::wait_for(child).code, Some(130));
    let metrics = place.read("runs/a/metrics.jsonl");
    let last = format!("runs/a/checkpoints/step-{}", metrics.lines().count());
    train_from(&place, &last);
    place.succeed(&["train", "--resume", "runs/a"]);
    assert_eq!(fs::read_dir(place.path("runs/a/checkpoints")).unwrap().count(), 3);
    place.succeed(&["train", "--resume", "runs/b", "--verify"]);
    for run in ["runs/a", "runs/b"] {
        let audited = place.succeed(&["audit", run]).stdout;
        assert!(!audited.contains("VIOLATED"), "{audited}");
    }
}

#[test]
fn force_keeps_a_model_from_which_a_run_started() {
    let place = Place::new();
    place.write("a.toml", train_toml() + "\n[lora]\nrank = 2\nalpha = 4\n");
    place.succeed(&["train", "a.toml", "--run", "runs/a"]);
    let model = crate::support::small_model().display().to_string();
    let merge = ["merge", "--model", &model, "--adapter", "runs/a/adapter", "-o", "runs/merged"];
    place.succeed(&merge);
    train_from(&place, "runs/merged");
    let again = place.succeed(&[&merge[..], &["--force", "--dtype", "bf16"]].concat());
    let note = "note: runs/b was started from runs/merged, which is kept as runs/merged.old-1; it resumes with that one\n";
    assert!(again.stderr.contains(note), "{}", again.stderr);
    check_b(&place, "runs/merged", "runs/merged.old-1");
    // A model that no run uses is replaced.
    place.succeed(&[&merge[..], &["--force"]].concat());
    assert!(!place.path("runs/merged.old-2").exists());

    // `train --force` renames the whole run.
    place.succeed(&["train", "b.toml", "--run", "runs/start"]);
    fs::remove_dir_all(place.path("runs/b")).unwrap();
    train_from(&place, "runs/start/model");
    place.succeed(&["train", "b.toml", "--run", "runs/start", "--force", "--set", "seed=2"]);
    check_b(&place, "runs/start", "runs/start.old-1");
}
