//! Each command that the program suggests works as printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Ended, Place};
use crate::{conditions, engagement, infill_parts, infilling, pipelines, replies, training_texts};

/// Returns the commands that an output suggests: the lines after `next` and `train longer`, and
/// those in backticks that are complete, i.e. have an argument.
fn suggested(stdout: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut is_list = false;
    for line in stdout.lines() {
        let (title, listed) = line.split_at_checked(13).unwrap_or_default();
        is_list = ["next         ", "train longer "].contains(&title)
            || is_list && title.len() == 13 && title.trim().is_empty();
        let is_command =
            |command: &&str| command.starts_with("grpo ") || command.starts_with("cd ");
        let listed = is_list.then_some(listed).filter(is_command);
        commands.extend(listed.map(|command| command.split("   #").next().unwrap().to_owned()));
        let quoted = line.split('`').skip(1).step_by(2);
        let is_whole =
            |command: &&str| command.starts_with("grpo ") && command.split(' ').count() > 2;
        commands.extend(quoted.filter(is_whole).map(str::to_owned));
    }
    commands
}

/// Runs a line in a shell, in which `grpo` is the tested program.
fn shell(folder: &Path, line: &str) -> Ended {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_grpo"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.current_dir(folder).env("PATH", path).args(["-c", line]);
    Ended::of_command(&mut command)
}

/// Runs a command and then each one that it suggests, and those that they suggest.
#[track_caller]
fn check(place: &Place, arguments: &[&str], at_least: usize) -> Vec<String> {
    let ended = place.succeed(arguments);
    let commands = suggested(&ended.stdout);
    assert!(commands.len() >= at_least, "{arguments:?} suggests {commands:?}: {}", ended.stdout);
    for command in &commands {
        let ended = shell(&place.path(""), command);
        assert_eq!(ended.code, Some(0), "{command}: {}{}", ended.stdout, ended.stderr);
    }
    commands
}

/// A run with everything that it suggests, and what a finished one suggests.
#[track_caller]
fn check_run(place: &Place, config: &str, run: &str, first: &str) {
    let commands = check(place, &["train", config, "--run", run], 3);
    assert!(commands[0].starts_with(first), "{commands:?}");
    check(place, &["train", "--resume", run], 1);
    // Nothing is recorded, so there is no step to explain.
    let unrecorded = format!("{run}-2");
    let sets =
        ["--set", "save.completions_every=0", "--set", "eval.samples=0", "--set", "eval.every=0"];
    check(place, &[&["train", config, "--run", &unrecorded], &sets[..]].concat(), 3);
}

#[test]
fn of_a_run_on_molecules() {
    // The folder has a space and a quote, which the shell must not interpret.
    let place = Place::for_training();
    check_run(&place, "train.toml", "it's a run", "grpo sample --model 'it'\\''s a run/model'");
}

#[test]
fn of_a_run_with_conditions() {
    let place = conditions::trainable();
    check_run(&place, "train.toml", "run", "grpo sample --model run/model --condition=");
}

#[test]
fn of_a_run_on_prompts() {
    let place = training_texts::place("llama");
    let text = "grpo sample --model m --adapter run/adapter '--prompt=two and two are'";
    check_run(&place, "train.toml", "run", text);
    for (name, line, expected) in [
        ("chat", "{\"prompt\": [{\"role\": \"user\", \"content\": \"-2 + 'a'\"}]}", "--chat "),
        (
            "turns",
            "{\"prompt\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"a\"}]}",
            "--prompts turns.jsonl",
        ),
        ("lines", "{\"prompt\": \"a\\nb\"}", "--prompts lines.jsonl"),
        ("ids", "{\"prompt_ids\": [1, 2, 3]}", "--prompt"),
    ] {
        place.write(&format!("{name}.jsonl"), format!("{line}\n"));
        let file = format!("data.file={name}.jsonl");
        let sets = ["--set", &file, "--set", "train.steps=1", "--run", name];
        let commands = check(&place, &[&["train", "train.toml"], &sets[..]].concat(), 3);
        assert!(commands[0].contains(expected), "{commands:?}");
    }
    // `grpo sample` does not know the columns of the configuration.
    place.write("columns.jsonl", "{\"q\": \"a\\nb\"}\n");
    let sets = [
        "--set",
        "data.file=columns.jsonl",
        "--set",
        "data.columns={ prompt = \"q\" }",
        "--set",
        "train.steps=1",
        "--run",
        "columns",
    ];
    let commands = check(&place, &[&["train", "train.toml"], &sets[..]].concat(), 2);
    assert!(commands.iter().all(|command| !command.contains(" sample ")), "{commands:?}");
}

#[test]
fn of_a_run_on_replies() {
    let place = replies::place();
    check(&place, &["pretrain", "supervised.toml"], 0);
    // `--tweet` has another instruction than this run, whose prompt would be too long.
    let commands = check(&place, &["train", "grpo.toml", "--run", "run"], 2);
    assert!(commands[0].starts_with("grpo report "), "{commands:?}");
    check(&place, &["train", "--resume", "run"], 1);

    let bundled = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data/replies/model");
    let config = place.read("grpo.toml").replace("instruction = \"the user asks\"\n", "");
    let config = config.replace("adapter = \"supervised/adapter\"\n", "");
    place.write("bundled.toml", config + "\n[lora]\nrank = 2\nalpha = 4\n");
    let model = format!("model={}", bundled.display());
    let sets = ["--set", &model, "--set", "train.prompts_per_step=2", "--run", "bundled"];
    let commands = check(&place, &[&["train", "bundled.toml"], &sets[..]].concat(), 3);
    assert!(commands[0].contains("--adapter bundled/adapter '--tweet="), "{commands:?}");
}

#[test]
fn of_a_run_on_blanks() {
    let place = infilling::place();
    check_run(&place, "train.toml", "run", "grpo fill run/model --held-out=text.txt --unit=lines");
}

/// Commands that train models for other commands, and those that write data.
#[test]
fn of_commands_that_prepare_something() {
    let place = Place::for_pretraining();
    check(&place, &["pretrain", "pretrain.toml"], 0);
    let place = infill_parts::place();
    check(&place, &["pretrain", "infiller.toml"], 0);
    check(&place, &["train-judge", "judge.toml"], 0);
    let place = engagement::place();
    check(&place, &["train-engagement", "engagement.toml"], 0);
    check(&place, &["split-data", "--input", "pairs.jsonl", "--output-dir", "split"], 0);
    let place = Place::new();
    place.write("qwen.yaml", "model_name_or_path: a/b\ndataset_name: c/d\nmax_steps: 10\n");
    place.succeed(&["import-trl", "qwen.yaml"]);
}

#[test]
fn of_a_trial() {
    let place = Place::for_training();
    let sets = ["--set", "optimizer.learning_rate=1e-4", "--set", "success.min_validity=0.3"];
    check(&place, &[&["trial", "train.toml", "--steps", "10"], &sets[..]].concat(), 3);
}

#[test]
fn of_a_pipeline() {
    let place = pipelines::place();
    check(&place, &["run", "pipeline.toml", "--plain"], 3);
}

/// The suggested runs take minutes, so only their configurations are checked here. Tests of the
/// shipped configurations run them.
#[test]
fn of_a_new_project() {
    let place = Place::new();
    let ended = place.succeed(&["init-project", "a demo"]);
    let commands = suggested(&ended.stdout);
    let [folder, runs @ ..] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((folder.as_str(), runs.len()), ("cd 'a demo'", 3));
    for run in runs {
        let ended = shell(&place.path(""), &format!("{folder} && {run} --check"));
        assert_eq!(ended.code, Some(0), "{run}: {}", ended.stderr);
    }
}
