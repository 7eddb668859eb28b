//! Invalid model folders.

use std::fs;

use snapbox::{IntoData, str};

use crate::support::{Place, small_model};

/// Loads a model folder after applying `damage` to it.
#[track_caller]
fn check(damage: impl Fn(&Place), expected: impl IntoData) {
    let place = Place::for_training();
    place.copy_model();
    damage(&place);
    let expected = expected.into_data();
    place.refuse(&["sample", "--model", "model", "-n", "3"], &expected);
    let arguments = ["train", "train.toml", "--set", "model=model"];
    place.refuse_after("model = \"model\": ", &arguments, expected);
}

#[test]
fn refuses_incomplete_model_folders() {
    check(
        |place| fs::remove_dir_all(place.path("model")).unwrap(),
        str![
            "model folder model does not exist; a model folder contains config.json and model.safetensors; check the path"
        ],
    );
    check(
        |place| fs::remove_file(place.path("model/model.safetensors")).unwrap(),
        str![
            "model has neither model.safetensors nor model.safetensors.index.json nor pytorch_model.bin; convert other formats with transformers' save_pretrained"
        ],
    );
    check(
        |place| fs::remove_file(place.path("model/vocabulary.json")).unwrap(),
        str!["`model/vocabulary.json` does not exist; check the path"],
    );
}

#[test]
fn refuses_another_vocabulary() {
    check(
        |place| place.write("model/vocabulary.json", r#"{"<": 0, "C": 1, "O": 2}"#),
        str![
            "model: vocabulary.json has 3 tokens, but config.json has vocab_size = 9; they belong to different models"
        ],
    );
}

/// The vocabulary has the same size, but a different order.
#[test]
fn refuses_a_reordered_vocabulary() {
    check(
        |place| {
            let tokens = place.read("model/vocabulary.json");
            assert!(tokens.contains("\"C\": 6") && tokens.contains("\"N\": 7"), "{tokens}");
            let swapped = tokens.replace("\"C\": 6", "\"C\": 7").replace("\"N\": 7", "\"N\": 6");
            place.write("model/vocabulary.json", swapped);
        },
        str![
            "model: model.safetensors was trained with a different vocabulary than vocabulary.json; use both from the same model"
        ],
    );
}

/// Folders with a manifest are verified.
#[test]
fn refuses_an_altered_file() {
    check(
        |place| {
            let manifest = small_model().join("manifest.json");
            fs::copy(manifest, place.path("model/manifest.json")).unwrap();
            let config = place.read("model/config.json");
            place.write("model/config.json", format!("{config} "));
        },
        format!(
            "`model/config.json` is damaged: it has {} bytes, but the manifest has {}; use another checkpoint",
            config_bytes() + 1,
            config_bytes()
        ),
    );
}

fn config_bytes() -> u64 {
    fs::metadata(small_model().join("config.json")).unwrap().len()
}

#[test]
fn refuses_weights_of_another_size() {
    check(
        |place| {
            let wide = place.read("model/config.json").replace("\"n_embd\": 16", "\"n_embd\": 32");
            place.write("model/config.json", wide);
        },
        str![
            "model/model.safetensors: tensor 'blocks.0.ln1.weight' has shape [16], but config.json requires [32]"
        ],
    );
    check(
        |place| {
            let odd = place.read("model/config.json").replace("\"n_head\": 2", "\"n_head\": 3");
            place.write("model/config.json", odd);
        },
        str!["model/config.json: n_embd = 16 is not a multiple of n_head = 3"],
    );
}

#[test]
fn refuses_truncated_weights() {
    let place = Place::new();
    place.copy_model();
    let whole = fs::read(place.path("model/model.safetensors")).unwrap();
    for end in [0, 100, whole.len() / 2, whole.len() - 1] {
        place.write("model/model.safetensors", &whole[..end]);
        let ended = place.run(&["sample", "--model", "model", "-n", "3"]);
        assert_eq!(ended.code, Some(1));
        let expected = "error: model/model.safetensors is not a complete safetensors file: ";
        assert!(ended.stderr.starts_with(expected), "cut at {end}: {}", ended.stderr);
        assert_eq!((ended.stderr.lines().count(), ended.stdout.as_str()), (1, ""));
    }
}
