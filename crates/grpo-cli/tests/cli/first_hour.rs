//! Mistakes that new users make, and the resulting error messages.

use std::path::{Path, PathBuf};

use crate::support::{Place, small_model, train_toml};

#[test]
fn a_tweet_needs_a_chat_template() {
    let place = Place::new();
    place.copy_model();
    place.refuse(
        &["sample", "--model", "model", "--tweet", "hi"],
        "--tweet requires a model with a chat template, but model has none; choose another model with --model",
    );
}

#[test]
fn a_configuration_of_another_command_is_refused_with_the_right_command() {
    let place = Place::for_training();
    place.refuse(
        &["run", "train.toml"],
        "train.toml configures a single training run, not a pipeline; run `grpo train train.toml`",
    );
    let stage = "[[stages]]\nname = \"a\"\ncommand = \"train\"\nconfig = \"train.toml\"\n";
    place.write("pipeline.toml", stage);
    place.refuse(
        &["train", "pipeline.toml"],
        "pipeline.toml is a configuration of `grpo run`; run `grpo run pipeline.toml`",
    );
    place.refuse(
        &["sample", "--model", "."],
        ". has no config.json, so it is not a model folder; a model folder contains config.json and model.safetensors",
    );
    place.refuse(
        &["sweep", "pipeline.toml", "-o", "sweep"],
        "pipeline.toml is a pipeline, and a sweep repeats a single training run; use the configuration of one of its stages, or `grpo run pipeline.toml`",
    );
    place.refuse(
        &["clean-data", "--config", "train.toml", "--input", "a.jsonl", "-o", "b.jsonl"],
        "train.toml is a configuration of `grpo train`; run `grpo train train.toml`",
    );
}

#[test]
fn a_missing_reward_is_named_with_its_types() {
    let place = Place::new();
    let text = train_toml();
    let (before, _) = text.split_once("[reward]").unwrap();
    place.write("train.toml", before);
    let ended = place.run(&["train", "train.toml"]);
    let expected = "error: train.toml: section [reward] is missing; add it and set `type` to one of answer, command, components, composite, ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    place.write("train.toml", text.replace("type = \"molecule\"\n", ""));
    let ended = place.run(&["train", "train.toml"]);
    assert!(ended.stderr.starts_with("error: train.toml:"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("missing key `type`; expected one of answer, "),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_missing_adapter_is_refused_with_its_key() {
    let place = Place::for_training();
    place.refuse(
        &["train", "train.toml", "--set", "adapter=\"nowhere\""],
        format!(
            "model = \"{}\": adapter = \"nowhere\": adapter folder nowhere does not exist; an adapter folder contains adapter_config.json and adapter_model.safetensors; `grpo pretrain` and `grpo train` write one to the run folder if the configuration has a [lora] section",
            small_model().display()
        ),
    );
}

#[test]
fn negative_numbers_are_values_of_options() {
    let place = Place::new();
    place.copy_model();
    let ended = place.run(&["sample", "--model", "model", "--temperature", "-1"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("temperature = -1 is out of range; expected 0.001 to 1000"),
        "{}",
        ended.stderr
    );
}

#[test]
fn existing_outputs_are_kept() {
    let place = Place::new();
    place.copy_model();
    place.write("a.smi", "C methane\n");
    place.write("a.jsonl", "{\"prompt_ids\": [0], \"completion_ids\": [1]}\n");
    place.write("old", "kept");
    place.write("old.parquet", "kept");
    let message = |name: &str| {
        format!("{name} already exists; choose another file, or replace it with --force")
    };
    for (arguments, name) in [
        (&["describe", "a.smi", "-o", "old"][..], "old"),
        (&["sample", "--model", "model", "-n", "3", "-o", "old"], "old"),
        (&["logprob", "--model", "model", "--input", "a.jsonl", "-o", "old"], "old"),
        (
            &["logprob", "--model", "model", "--input", "a.jsonl", "--full", "old.parquet"],
            "old.parquet",
        ),
    ] {
        place.refuse(arguments, message(name));
        assert_eq!(place.read(name), "kept");
        place.succeed(&[arguments, &["--force"]].concat());
        assert_ne!(std::fs::read(place.path(name)).unwrap(), b"kept");
        place.write(name, "kept");
    }
}

#[test]
fn names_of_molecules_are_described() {
    let place = Place::new();
    place.write("a.csv", "Name;smiles\nmethane;C\n=ethane;CC\n;CCC\n");
    let rows = place.succeed(&["describe", "a.csv"]).stdout;
    let last = |row: &str| row.rsplit_once(',').unwrap().1.to_owned();
    assert_eq!(rows.lines().map(last).collect::<Vec<_>>(), ["name", "methane", "'=ethane", ""]);
    place.write("empty.smi", "\n");
    place.write("nothing.smi", "");
    place.refuse(&["describe", "nothing.smi"], "nothing.smi contains no molecules");
    place.write("blank.smi", "\n\n");
    place.refuse(&["describe", "blank.smi"], "blank.smi contains no molecules");
    place.write("later.smi", "\n\nC\n");
    let described = place.succeed(&["describe", "later.smi"]).stdout;
    assert_eq!(described.lines().count(), 4, "{described}");
    place.refuse(&["describe", "nothing.smi", "-o", "a.out"], "nothing.smi contains no molecules");
}

/// Tables only have borders on a terminal.
#[test]
fn tables_have_frames_if_they_are_forced() {
    let place = Place::new();
    let shown = |value: &str| {
        let mut command = place.command(&["selftest"]);
        let output = command.env("CLICOLOR_FORCE", value).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(shown("1").starts_with('┌'));
    assert!(!shown("0").contains(['┌', '│', '═']));
}

/// All configurations in the repository work with the files that `grpo init-project` creates.
#[test]
fn examples_name_files_that_exist_or_that_runs_write() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    for task in ["molecules", "replies", "infill"] {
        for entry in std::fs::read_dir(root.join("configs").join(task)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let table: toml::Table = text.parse().unwrap();
            let model = table.get("model").or(table.get("start")).and_then(toml::Value::as_str);
            let Some(model) = model.map(Path::new) else { continue };
            let is_made = model.starts_with("runs");
            assert!(is_made || root.join(model).is_dir(), "{}: {model:?}", path.display());
        }
    }
}
