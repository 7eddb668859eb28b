//! Untrained infillers and judges, and invalid folders.

use std::fs;

use snapbox::{Data, str};

use crate::infill_parts::with_infiller;
use crate::infilling;
use crate::support::{Place, small_model};

const SIZES: &str = r#""vocab_size": 8, "block_size": 16, "n_layer": 1, "n_head": 2, "n_embd": 8"#;

/// Five characters and the tokens MASK, PAD and CLS.
const CHARACTERS: &str = r#"{"characters": "=CNOc", "mask": 5, "pad": 6, "cls": 7}"#;

/// Creates a place for training with the untrained models `infiller` and `judge`.
fn place() -> Place {
    let place = Place::for_training();
    place.write("characters.json", CHARACTERS);
    for (name, family) in [("infiller", "infiller"), ("judge", "sequence_scorer")] {
        let config = format!("{name}.json");
        place.write(&config, format!(r#"{{"model_type": "{family}", {SIZES}}}"#));
        place.succeed(&["init", &config, "-o", name]);
    }
    place
}

#[test]
fn a_new_character_model_copies_its_list() {
    let place = place();
    for name in ["infiller", "judge"] {
        let written: serde_json::Value =
            serde_json::from_str(&place.read(&format!("{name}/characters.json"))).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(CHARACTERS).unwrap());
    }
    fs::remove_file(place.path("characters.json")).unwrap();
    place.refuse(
        &["init", "judge.json", "-o", "other"],
        str![". is missing characters.json, which lists the tokens of sequence_scorer models; create it from the training text, as `grpo pretrain` does"],
    );
    place.write("characters.json", r#"{"characters": "=CNO", "mask": 4, "pad": 5, "cls": 6}"#);
    place.refuse(
        &["init", "judge.json", "-o", "other"],
        str![".: characters.json has 7 tokens, but config.json has vocab_size = 8; they belong to different models"],
    );
}

/// The wrong kind of model is reported before anything is written.
#[test]
fn refuses_folders_that_are_not_judges() {
    let place = infilling::place();
    let check = |set: &[String], expected: Data| {
        let set = set.iter().flat_map(|set| ["--set", set.as_str()]);
        let arguments: Vec<&str> = ["train", "train.toml"].into_iter().chain(set).collect();
        place.refuse(&arguments, expected);
    };
    let judge = |folder: &str| format!("reward.judge={folder}");
    check(
        &[judge("nowhere")],
        str![
            "reward.judge: folder nowhere does not exist; a judge folder contains config.json, characters.json and model.safetensors, as written by `grpo train-judge`"
        ].into(),
    );
    check(
        &[judge("infiller/model")],
        str![
            "reward.judge: infiller/model is not a judge: its model family is infiller; expected sequence_scorer, as written by `grpo train-judge`"
        ].into(),
    );
    let molgpt = small_model().display();
    check(
        &[format!("reward.second_judge={molgpt}")],
        format!(
            "reward.second_judge: {molgpt} is not a judge: its model family is molgpt; expected sequence_scorer, as written by `grpo train-judge`"
        ).into(),
    );
    check(
        &["reward.recovery_weight=0.5".to_owned()],
        str![
            "--set reward.recovery_weight=0.5: reward.judge_weight and reward.recovery_weight must be at least 0 and sum to 1, but they sum to 1.5"
        ].into(),
    );
    check(
        &["reward.second_judge=judge/model".to_owned()],
        str![
            "--set reward.second_judge=judge/model: reward.judge and reward.second_judge are both judge/model; a second judge is useful only if it is a different one"
        ].into(),
    );
    // The judge was modified.
    let config = place.read("judge/model/config.json");
    place.write("judge/model/config.json", format!("{config} "));
    check(
        &[],
        format!(
            "`judge/model/config.json` is damaged: it has {} bytes, but the manifest has {}; use another checkpoint",
            config.len() + 1,
            config.len()
        ).into(),
    );
}

/// The command that writes a missing model is in the configurations of the project.
#[test]
fn missing_models_are_named_with_the_command_that_writes_them() {
    let place = infilling::place();
    place.write("later.toml", "run = \"later\"\n[judge]\nsteps = 1\n");
    let check = ["train", "train.toml", "--check", "--set", "reward.judge=later/model"];
    let note = "note         reward.judge: folder later/model does not exist; `grpo train-judge later.toml` writes it\n";
    let checked = place.succeed(&check).stdout;
    assert!(checked.contains(note), "{checked}");
    // Commands without a configuration read those of the project.
    fs::create_dir_all(place.path("configs/infill")).unwrap();
    place.write("configs/infill/g.toml", "run = \"runs/g\"\n[masked_lm]\nsteps = 1\n");
    place.refuse(
        &["fill", "runs/g/model", "--text", "a_c"],
        str!["model folder runs/g/model does not exist; `grpo pretrain configs/infill/g.toml` writes it"],
    );
    // A run whose model is missing.
    let place = with_infiller();
    fs::remove_dir_all(place.path("infiller/model")).unwrap();
    place.refuse(
        &["fill", "infiller/model", "--text", "a_c"],
        str!["model folder infiller/model does not exist; a model folder contains config.json, characters.json and model.safetensors; `grpo pretrain --resume infiller` finishes the run and writes it"],
    );
}
