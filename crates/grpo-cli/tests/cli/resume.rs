//! Killed, interrupted and damaged runs, and how they are resumed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use grpo_data::{CounterRng, Purpose};
use grpo_run::sha256_of_file;
use serde_json::{Map, Value, json};
use snapbox::str;

use crate::support::{Ended, Place, metric_table, signal, train_toml};
use crate::tampering_kinds::edit_json;
use crate::training_texts;

/// Two updates per rollout, several micro-batches, checkpoints after each step, and evaluations.
pub(crate) fn configuration(steps: u32) -> String {
    train_toml()
        .replace("steps = 3", &format!("steps = {steps}\nupdates_per_rollout = 2"))
        .replace("prompts_per_step = 2", "prompts_per_step = 4")
        .replace("micro_batch_tokens = 3", "micro_batch_tokens = 30")
        .replace("samples = 20", "samples = 20\nevery = 4")
        .replace("every = 2\ncompletions", "every = 1\ncompletions")
}

pub(crate) fn place(steps: u32) -> Place {
    let place = Place::new();
    place.write("train.toml", configuration(steps));
    place
}

/// All results of a run that do not depend on timing: model files, metrics and completions.
#[derive(Debug, PartialEq)]
pub(crate) struct Result {
    model: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) metrics: Vec<Map<String, Value>>,
    completions: Vec<(PathBuf, Vec<u8>)>,
    best: Option<String>,
}

pub(crate) fn result(run: &Path) -> Result {
    Result {
        model: files(&run.join("model")),
        metrics: metrics(run),
        completions: files(&run.join("completions")),
        best: fs::read_to_string(run.join("best.csv")).ok(),
    }
}

/// The lines of `metrics.jsonl` without what depends on the machine.
pub(crate) fn metrics(run: &Path) -> Vec<Map<String, Value>> {
    let table = metric_table();
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let line = |line| {
        let mut line: Map<String, Value> = serde_json::from_str(line).unwrap();
        line.retain(|name, _| !table.is_of_machine(name));
        line
    };
    text.lines().map(line).collect()
}

pub(crate) fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let named = |path: PathBuf| (path.file_name().unwrap().into(), fs::read(&path).unwrap());
    files.into_iter().map(named).collect()
}

/// Number of kills in the tests below. Can be increased with the environment variable `GRPO_KILLS`.
pub(crate) fn kills() -> u32 {
    std::env::var("GRPO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8)
}

/// Kills runs of `COMMAND.toml` at random times and resumes them. The results must be equal to
/// `expected` bit for bit, and runs of `grpo train` must pass the audit.
pub(crate) fn kill_and_resume(
    place: &Place,
    command: &str,
    kills: u32,
    seed: u64,
    whole: Duration,
    expected: &Result,
) {
    let rng = CounterRng::new(seed, Purpose::EVALUATION);
    for kill in 0..kills {
        let run = format!("run-{kill}");
        let configuration = format!("{command}.toml");
        let train = [command, &configuration, "--run", &run, "--force"];
        let mut child =
            place.command(&train).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(rng.uniform([kill, 0, 0, 0])));
        child.kill().unwrap();
        child.wait().unwrap();
        // If the run folder does not exist yet, there is nothing to resume.
        if place.path(&run).join("run.json").exists() {
            let agrees = if command == "train" { &["--run-reward"][..] } else { &[] };
            place.succeed(&[&[command, "--resume", &run], agrees].concat());
        } else {
            place.succeed(&train);
        }
        let found = result(&place.path(&run));
        let names = |files: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(found.metrics, expected.metrics, "kill {kill}");
        assert_eq!(names(&found.completions), names(&expected.completions), "kill {kill}");
        assert!(found == *expected, "kill {kill}: other bytes");
        if command == "train" {
            place.succeed(&["audit", &run]);
        }
        let left = fs::read_dir(place.path(&run).join("checkpoints")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
    }
}

/// Acceptance test 14: a run that is killed at random times (sampling, updating, writing) has
/// exactly the same result as one that is not.
#[test]
fn a_killed_run_ends_as_one_that_was_not() {
    let place = place(8);
    let begun = Instant::now();
    place.succeed(&["train", "train.toml", "--run", "whole"]);
    let whole = begun.elapsed();
    let expected = result(&place.path("whole"));
    assert_eq!(expected.metrics.len(), 8);

    kill_and_resume(&place, "train", kills(), 5, whole, &expected);
}

/// Checkpoints contain the rollouts that were sampled ahead.
#[test]
fn a_killed_run_with_stale_rollouts_ends_as_one_that_was_not() {
    let place = place(10);
    let stale = "updates_per_rollout = 2\nstaleness = 2";
    let text = configuration(10).replace("updates_per_rollout = 2", stale);
    place.write("train.toml", text + "\n[sampler_check]\nabove = \"correct\"\n");
    let started = Instant::now();
    place.succeed(&["train", "train.toml", "--run", "whole"]);
    let whole = started.elapsed();
    let expected = result(&place.path("whole"));
    let staleness = |line: &Map<String, Value>| line["sampling/staleness"].as_f64().unwrap();
    let staleness: Vec<f64> = expected.metrics.iter().map(staleness).collect();
    assert_eq!(staleness, [0.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]);
    kill_and_resume(&place, "train", kills(), 29, whole, &expected);
    place.succeed(&["train", "--resume", "whole", "--verify"]);
    place.refuse(
        &["replay", "whole", "--step", "1", "--prompt", "0", "--sample", "0"],
        str!["`grpo replay` cannot replay runs with train.staleness = 2, whose rollouts were sampled by earlier policies"],
    );
}

/// SIGINT and SIGTERM end a run after the current step with a checkpoint.
#[test]
#[cfg(unix)]
fn an_interrupted_run_says_how_to_go_on() {
    for name in ["-INT", "-TERM"] {
        let place = place(400);
        let child = place.spawn(&["train", "train.toml"]);
        wait_for(&place.path("run/checkpoints/step-2"));
        signal(&child, name);
        let ended = Ended::wait_for(child);
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupting "), "{}", ended.stderr);
        let steps = fs::read_to_string(place.path("run/metrics.jsonl")).unwrap().lines().count();
        let said = format!(
            "interrupted  after step {steps} of 400; resume with `grpo train --resume run`\n"
        );
        assert!(ended.stdout.ends_with(&said), "{}", ended.stdout);
        assert!(!place.path("run/model").exists());
        assert!(place.path(&format!("run/checkpoints/step-{steps}")).exists());
    }
}

/// A run that was started by `nohup` outlives the terminal.
#[test]
#[cfg(target_os = "linux")]
fn an_ignored_hangup_does_not_end_a_run() {
    let place = place(400);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" train train.toml", env!("CARGO_BIN_EXE_grpo")]);
    shell.current_dir(place.path(".")).stdin(Stdio::null());
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place.path("run/checkpoints/step-1"));
    signal(&child, "-HUP");
    wait_for(&place.path("run/checkpoints/step-3"));
    signal(&child, "-TERM");
    assert_eq!(Ended::wait_for(child).code, Some(130));
}

/// The trial batch and the evaluations would take minutes in this test.
#[test]
#[cfg(target_os = "linux")]
fn what_comes_before_the_first_step_is_interrupted_within_a_second() {
    let trial = ["train.group_size=100000", "preflight.samples=1000000"];
    let evaluation = ["preflight.samples=0", "eval.samples=1000000"];
    for long in [trial, evaluation] {
        let place = place(400);
        let mut child = place.spawn(&["train", "train.toml", "--set", long[0], "--set", long[1]]);
        wait_for_handler(child.id());
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(child.try_wait().unwrap(), None, "{long:?} is not long");
        let begun = Instant::now();
        signal(&child, "-INT");
        let ended = Ended::wait_for(child);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted "), "{}", ended.stderr);
    }
}

/// Waits until the process handles SIGINT, which is bit 1 of a hexadecimal mask.
#[cfg(target_os = "linux")]
fn wait_for_handler(pid: u32) {
    let begun = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
        if caught.is_some_and(|signals| signals & 2 != 0) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "SIGINT is never caught");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two processes must not write to the same run.
#[test]
#[cfg(unix)]
fn a_run_belongs_to_one_process() {
    let place = place(400);
    let mut child = place
        .command(&["train", "train.toml"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&place.path("run/checkpoints/step-1"));
    place.run(&["train", "--resume", "run"]).assert_refused(str![
        "another process is using run folder `run`; wait for it to finish, or stop it"
    ]);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Keeps the two newest checkpoints and the best one.
#[test]
fn keeps_the_configured_checkpoints() {
    let place = place(6);
    place.succeed(&["train", "train.toml"]);
    let mut kept: Vec<String> = fs::read_dir(place.path("run/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    let state = place.read("run/checkpoints/step-6/trainer/state.json");
    let state: Value = serde_json::from_str(&state).unwrap();
    let best = state["evaluations"]["best"][0].as_u64().unwrap();
    let mut expected = vec!["step-5".to_owned(), "step-6".to_owned(), format!("step-{best}")];
    expected.sort();
    expected.dedup();
    assert_eq!(kept, expected);
}

/// Damaged checkpoints are reported and skipped. If none is intact, nothing is loaded.
#[test]
fn damaged_checkpoints_are_never_loaded() {
    let place = place(4);
    place.succeed(&["train", "train.toml"]);
    let expected = result(&place.path("run"));
    let weights = "run/checkpoints/step-4/model.safetensors";
    let mut bytes = fs::read(place.path(weights)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.write(weights, &bytes);
    let ended = place.succeed(&["train", "--resume", "run"]);
    assert!(
        ended.stdout.contains(&format!("checkpoint   `{weights}` is damaged: its SHA-256 is ")),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("checkpoint   using the one from step 3 instead\n"));
    assert_eq!(result(&place.path("run")), expected);

    for step in [3, 4] {
        let state = format!("run/checkpoints/step-{step}/trainer/state.json");
        let text = place.read(&state);
        place.write(&state, &text[..text.len() / 2]);
    }
    // The best checkpoint may be a third one.
    let checkpoints = fs::read_dir(place.path("run/checkpoints")).unwrap().count();
    if checkpoints == 2 {
        place.run(&["train", "--resume", "run"]).assert_refused(
            str!["none of the 2 checkpoints of `run` is intact; start a new run in another folder with `grpo train run/config.toml --run`"],
        );
    }
}

/// `--verify` repeats the last step. The input files must exist and be unchanged.
#[test]
fn runs_that_cannot_be_resumed() {
    let place = place(2);
    place.refuse(
        &["train", "--resume", "nowhere"],
        str!["`nowhere` is not a run folder (no `run.json`); check the path"],
    );
    let ended = place.run(&["train", "--resume", "run", "train.toml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    place.refuse(
        &["train", "train.toml", "--verify"],
        str!["--verify requires --resume RUN; a new run has no recorded steps to verify"],
    );
}

/// Trains, resets the run to the checkpoint of step 3 and resumes. The result must be the same.
fn cut_and_resume(place: &Place, sets: &[&str]) {
    let sets = sets.iter().chain(&["train.steps=6", "save.every=1", "save.keep_last=9"]);
    let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
    place.succeed(&[&["train", "train.toml", "--force"], &sets[..]].concat());
    let kind = if place.path("run/adapter").exists() { "adapter" } else { "model" };
    let whole = |place: &Place| {
        (files(&place.path("run").join(kind)), files(&place.path("run/checkpoints/step-6/trainer")))
    };
    let expected = whole(place);
    fs::remove_dir_all(place.path("run").join(kind)).unwrap();
    for step in 4..=6 {
        fs::remove_dir_all(place.path(&format!("run/checkpoints/step-{step}"))).unwrap();
    }
    let ended = place.succeed(&["train", "--resume", "run"]);
    assert!(ended.stdout.contains("resuming     after step 3 of 6\n"), "{}", ended.stdout);
    // An untrained model samples ids that its tokenizer does not have.
    let mut warnings = ended.stdout.lines().filter(|line| line.contains("warning"));
    assert!(warnings.all(|line| line.contains("have no token")), "{}", ended.stdout);
    assert!(whole(place) == expected, "{sets:?}: other bytes");
    place.succeed(&["audit", "run"]);
}

/// Runs of earlier versions have keys that were removed. What such a key did is still done, so they are
/// resumed and replayed bit for bit.
#[test]
fn a_run_with_removed_keys_is_resumed_and_replayed() {
    let place = Place::for_training();
    let sets = ["eval.samples=0", "train.steps=6", "save.every=1", "save.keep_last=9"];
    let sets: Vec<&str> = sets.into_iter().flat_map(|set| ["--set", set]).collect();
    place.succeed(&[&["train", "train.toml"], &sets[..]].concat());
    let whole = |place: &Place| {
        (files(&place.path("run/model")), files(&place.path("run/checkpoints/step-6/trainer")))
    };
    let (expected, new) = (whole(&place), place.read("run/config.toml"));
    let make_old = |tolerance: &str| {
        let check = format!("\n[sampler_check]\ntolerance = {tolerance}\n");
        let old = new.replace("\n[train]\n", "\n[train]\nreuse_activations_mb = 64\n");
        let old = old.replace("\n[sampler_check]\n", &check);
        assert_eq!(old.lines().count(), new.lines().count() + 2);
        place.write("run/config.toml", old);
        let hash = sha256_of_file(&place.path("run/config.toml")).unwrap();
        edit_json(&place.path("run/run.json"), |info| info["config_sha256"] = json!(hash));
    };
    make_old("0.001");
    fs::remove_dir_all(place.path("run/model")).unwrap();
    for step in 4..=6 {
        fs::remove_dir_all(place.path(&format!("run/checkpoints/step-{step}"))).unwrap();
    }
    let ended = place.succeed(&["train", "--resume", "run"]);
    assert!(ended.stdout.contains("resuming     after step 3 of 6\n"), "{}", ended.stdout);
    assert!(whole(&place) == expected, "other bytes");
    let replay = ["replay", "run", "--step", "2", "--prompt", "0", "--sample", "0"];
    let ended = place.succeed(&replay);
    assert!(ended.stdout.contains("equal bit for bit"), "{}", ended.stdout);
    place.succeed(&["train", "run/config.toml", "--run", "new"]);
    // This version cannot repeat a run with another tolerance.
    make_old("0.5");
    let ended = place.run(&replay);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let refused =
        "this run was made with sampler_check.tolerance = 0.5, but this version has no such key";
    assert!(ended.stderr.contains(refused), "{}", ended.stderr);
    let ended = place.run(&["train", "run/config.toml", "--run", "other"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let refused = "this key was removed, so delete it: sampler_check.tolerance (it is 0.001";
    assert!(ended.stderr.contains(refused), "{}", ended.stderr);
}

/// All stateful components are restored: reference updates, controllers and schedules.
#[test]
fn resumes_from_every_state() {
    let molecules = Place::for_training();
    let texts = training_texts::place("llama");
    let follows = ["reference.every_steps=2", "reference.mix=0.6"];
    let controllers = [
        "kl_controller.target=0.01",
        "kl_controller.horizon=100",
        "loss.entropy_bonus={ type = \"adaptive\", target = 5.0, initial = 0.01, delta = 0.005, min = 0.0, max = 1.0 }",
        "schedule.warmup_steps=4",
        "schedule.floor=0.2",
    ];
    let filter = "diversity_filter={ bucket = \"smiles\", bucket_size = 1, min_reward = 0.0 }";
    let replay = "replay={ updates = 2, samples = 4, proposals = 2, mutation_rate = 0.5 }";
    let scaffolds = "diversity_filter={ bucket = \"scaffold\", bucket_size = 4, min_reward = 0.0 }";
    cut_and_resume(&molecules, &[filter]);
    cut_and_resume(&molecules, &[scaffolds]);
    cut_and_resume(&molecules, &[replay]);
    let penalized = [
        "loss.preset=dr_grpo",
        "loss.kl_placement=reward",
        "loss.kl_estimator=k1",
        "loss.kl_coef=0.01",
    ];
    cut_and_resume(&molecules, &[&[filter, replay][..], &penalized[..]].concat());
    cut_and_resume(&molecules, &follows);
    cut_and_resume(&molecules, &[replay, "train.precision=bf16"]);
    cut_and_resume(&molecules, &["train.precision=f16"]);
    cut_and_resume(&molecules, &controllers);
    cut_and_resume(&texts, &[&follows[..], &["reference.from=base"]].concat());
    cut_and_resume(&texts, &["reference.every_epochs=1"]);
    let every_kind = "lora={ rank = 2, alpha = 4, dora = true, targets = [\"q_proj\", \"embed_tokens\"], modules_to_save = [\"lm_head\", \"norm\"] }";
    cut_and_resume(&texts, &[&follows[..], &[every_kind]].concat());
}

/// A file size limit between those of the weights and the optimizer simulates a full disk. The
/// older checkpoint is unchanged, and the run can continue later.
#[test]
#[cfg(unix)]
fn a_full_disk_leaves_the_older_checkpoint() {
    let place = place(4);
    place.succeed(&["train", "train.toml", "--set", "save.keep_last=9"]);
    let expected = result(&place.path("run"));
    fs::remove_dir_all(place.path("run/model")).unwrap();
    for step in [3, 4] {
        fs::remove_dir_all(place.path(&format!("run/checkpoints/step-{step}"))).unwrap();
    }
    let limited = format!(
        "trap '' XFSZ; ulimit -f 48; exec {} train --resume run",
        env!("CARGO_BIN_EXE_grpo")
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &limited]).current_dir(place.path(".")).stdin(Stdio::null());
    let ended = Ended::of_command(&mut shell);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("optimizer.safetensors")
            && ended.stderr.contains("the file is too large"),
        "{}",
        ended.stderr
    );
    let mut left: Vec<_> = fs::read_dir(place.path("run/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["step-1", "step-2"]);
    let ended = place.succeed(&["train", "--resume", "run"]);
    assert!(ended.stdout.contains("resuming     after step 2 of 4\n"), "{}", ended.stdout);
    assert!(result(&place.path("run")) == expected);
}

/// `--verify` writes nothing until the check has passed.
#[test]
fn a_changed_configuration_is_refused() {
    let place = place(2);
    place.succeed(&["train", "train.toml"]);
    let config = place.read("run/config.toml");
    place.write("run/config.toml", config.replace("steps = 2", "steps = 3"));
    place.refuse(
        &["train", "--resume", "run"],
        str!["`run/config.toml` changed after the run started (run.json has its SHA-256); restore it, or start a new run with it"],
    );
}
