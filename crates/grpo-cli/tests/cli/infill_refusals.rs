//! Invalid inputs of `grpo pretrain` for infillers and of `grpo train-judge`.

use std::fs;

use serde_json::Value;
use snapbox::{IntoData, str};

use crate::infill_parts::{JUDGE, OWN_TRUNK, text, with_infiller};
use crate::support::Place;

/// Checks the error message of a command that would create the run `new`.
#[track_caller]
fn refuse(place: &Place, arguments: &[&str], expected: impl IntoData) {
    place.refuse(&[arguments, &["--run", "new"]].concat(), expected);
}

#[test]
fn bad_settings_of_an_infiller_are_refused() {
    let place = with_infiller();
    for (set, expected) in [
        (
            "masked_lm.steps=0",
            str![
                "--set masked_lm.steps=0: masked_lm.steps = 0 is out of range; expected 1 to 1000000000"
            ],
        ),
        (
            "data.length=1000",
            str![
                "data: the whole text of `text.txt` has only 960 characters, but a passage needs 1000 (`length`); use a longer text or a smaller `length`"
            ],
        ),
        (
            "masking.stages=[{type=\"random\",max_ratio=1.5}]",
            str![[
                r#"--set masking.stages=[{type="random",max_ratio=1.5}]: masking: `stages[0].max_ratio` is 1.5; expected a number above 0 and at most 1"#
            ]],
        ),
        (
            "masking.stages=[{type=\"line\",min_ratio=0.1,max_ratio=0.5}]",
            str![[
                r#"--set masking.stages=[{type="line",min_ratio=0.1,max_ratio=0.5}]: masking.stages[0] replaces whole lines and leaves nothing to fill in; it is only valid for judges, so remove it"#
            ]],
        ),
        (
            "transfer.freeze_trunk=true",
            str![
                "--set transfer.freeze_trunk=true: transfer.freeze_trunk = true leaves nothing to train: an infiller's head is its character table; add [critic] with a model that has one, or transfer.unfreeze_at_step"
            ],
        ),
        (
            "critic.alpha=0.5",
            str![
                "--set critic.alpha=0.5: [critic] requires a model with a critic; set model.critic = true, or remove the section"
            ],
        ),
        (
            "modifiers.entropy.scale=-1",
            str![
                "--set modifiers.entropy.scale=-1: modifiers.entropy.scale = -1 is out of range; expected 0 to 1000"
            ],
        ),
        (
            "validation.batches=0",
            str![
                "--set validation.batches=0: validation.batches = 0 is out of range; expected 1 to 1000000"
            ],
        ),
        (
            "masking.stages=[{type=\"random\",max_ratio=1e-12}]",
            str![[
                r#"--set masking.stages=[{type="random",max_ratio=1e-12}]: masking: stage 0 of the masking, `random`, masked nothing in 1000 consecutive passages; increase its ratio"#
            ]],
        ),
        (
            "start=infiller/model",
            str![
                "the configuration has both `start` and [model]; keep `start` to train an existing model, or [model] to create a new one"
            ],
        ),
    ] {
        refuse(&place, &["pretrain", "infiller.toml", "--set", set], expected);
    }
    assert!(!place.path("new").exists(), "nothing is written before all is checked");
}

#[test]
fn bad_settings_of_a_judge_are_refused() {
    let place = with_infiller();
    for (set, expected) in [
        (
            "natural_share=1.5",
            str![
                "--set natural_share=1.5: natural_share = 1.5 is out of range; expected 0 to 0.99"
            ],
        ),
        (
            "masking.corruption=\"bert\"",
            str![[
                r#"--set masking.corruption="bert": a judge learns from blanks that the infiller fills, but masking.corruption = "bert" also inserts random characters; remove it"#
            ]],
        ),
        (
            "data.length=17",
            str![
                "data.length = 17 exceeds the context of 16 characters (block_size) of infiller/model; lower it"
            ],
        ),
        (
            "start_from_infiller=false",
            str![
                "start_from_infiller = false creates a new judge and requires its sizes; add [model]"
            ],
        ),
        (
            "model={n_layer=1,n_head=1,n_embd=8}",
            str![
                "a judge that starts from the infiller has the infiller's sizes; remove [model], or set start_from_infiller = false"
            ],
        ),
        (
            "masked_lm={steps=1,batch_size=1,eval_every=1,optimizer={learning_rate=0.1}}",
            str![
                "--set masked_lm={steps=1,batch_size=1,eval_every=1,optimizer={learning_rate=0.1}}: [masked_lm] is only valid for a judge trained from scratch; remove it, or set start_from_infiller = false"
            ],
        ),
        (
            "fill.top_k=0",
            str!["--set fill.top_k=0: fill.top_k = 0 is out of range; expected 1 or more"],
        ),
        (
            "gate.max_zero_p90=2",
            str![
                "--set gate.max_zero_p90=2: gate.max_zero_p90 = 2 is out of range; expected 0 to 1"
            ],
        ),
    ] {
        refuse(&place, &["train-judge", "judge.toml", "--set", set], expected);
    }
    let own = JUDGE.replace("natural_share", "start_from_infiller = false\nnatural_share");
    place.write("own.toml", format!("{own}{OWN_TRUNK}"));
    let lines = "masking.stages=[{type=\"line\",min_ratio=0.1,max_ratio=0.9}]";
    refuse(
        &place,
        &["train-judge", "own.toml", "--set", lines],
        str![
            "[masked_lm] fills blanks, but [masking] only replaces lines: `stages` is an empty list; expected at least one stage"
        ],
    );
    assert!(!place.path("new").exists(), "nothing is written before all is checked");
}

#[test]
fn refuses_bad_transfer_and_masking_settings_of_a_judge() {
    let place = with_infiller();
    for (set, expected) in [
        (
            "transfer.unfreeze_at_step=3",
            str![
                "--set transfer.unfreeze_at_step=3: transfer.unfreeze_at_step has no effect without transfer.freeze_trunk = true; remove it, or freeze the trunk"
            ],
        ),
        (
            "transfer={freeze_trunk=true,unfreeze_at_step=20}",
            str![
                "--set transfer={freeze_trunk=true,unfreeze_at_step=20}: transfer.unfreeze_at_step = 20 is out of range; expected 0 to 19"
            ],
        ),
        (
            "transfer={freeze_trunk=true,unfreeze_learning_rate_factor=0.5}",
            str![
                "--set transfer={freeze_trunk=true,unfreeze_learning_rate_factor=0.5}: transfer.unfreeze_learning_rate_factor has no effect without transfer.unfreeze_at_step; remove it, or set the step at which the trunk is unfrozen"
            ],
        ),
        (
            "masking.stages=[{type=\"random\",max_ratio=1e-12}]",
            str![[
                r#"--set masking.stages=[{type="random",max_ratio=1e-12}]: masking: stage 0 of the masking, `random`, masked nothing in 1000 consecutive passages; increase its ratio"#
            ]],
        ),
    ] {
        refuse(&place, &["train-judge", "judge.toml", "--set", set], expected);
    }
    assert!(!place.path("new").exists(), "nothing is written before all is checked");
}

#[test]
fn refuses_folders_of_the_wrong_kind() {
    let place = with_infiller();
    place.copy_model();
    // Wrong model family.
    refuse(
        &place,
        &["train-judge", "judge.toml", "--set", "infiller=model"],
        str![[
            r#"infiller = "model": model is not an infiller: its model belongs to the family molgpt; `grpo pretrain` with a [masked_lm] section creates an infiller"#
        ]],
    );
    refuse(
        &place,
        &["pretrain", "infiller.toml", "--set", "modifiers.judge.model=infiller/model"],
        str![
            "modifiers.judge.model: infiller/model is not a judge: its model family is infiller; expected sequence_scorer, as written by `grpo train-judge`"
        ],
    );
    refuse(
        &place,
        &["train-judge", "judge.toml", "--set", "infiller=nowhere"],
        str![[
            r#"infiller = "nowhere": model folder nowhere does not exist; a model folder contains config.json, characters.json and model.safetensors; check the path"#
        ]],
    );
    // Characters that are not in the infiller's vocabulary.
    place.write("other.txt", text().replace('g', "z"));
    refuse(
        &place,
        &["train-judge", "judge.toml", "--set", "data.file=other.txt"],
        str![[
            r#"data: other.txt:1: 'z' (character 7 of "abcdefz\n") is not one of the 8 characters of the model; replace it, or train a model on text that has it"#
        ]],
    );
    // A vocabulary without a MASK token.
    let characters = place.read("infiller/model/characters.json");
    let mut json: Value = serde_json::from_str(&characters).unwrap();
    json.as_object_mut().unwrap().remove("mask");
    place.write("infiller/model/characters.json", json.to_string());
    fs::remove_file(place.path("infiller/model/manifest.json")).unwrap();
    refuse(
        &place,
        &["train-judge", "judge.toml"],
        str![[
            r#"infiller = "infiller/model": `mask` in `infiller/model/characters.json` is missing; expected 8: MASK, PAD and CLS have distinct ids after those of the 8 characters"#
        ]],
    );
}
