//! Checkpoints with an output layer although `tie_word_embeddings` ties it to the token embedding.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor, bf16};
use grpo_model::{
    Frozen, HeadKind, ModelError, ModelFolder, StoredAs, StoredTensors, score_completions,
};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::configs::{config, formats, gpt2, llama, qwen2, qwen3, with};
use crate::support::{
    Weights, named_tensors, read_safetensors, shaken, typed_safetensors, weights, write_folder,
};

const FAMILIES: [&str; 4] = ["gpt2", "llama", "qwen2", "qwen3"];

fn load(folder: &Path) -> Result<ModelFolder, ModelError> {
    ModelFolder::load(folder, &formats(), &Device::flex())
}

/// Returns the log-probabilities that transformers computes, and those of this crate.
fn scores(expected: &Value, folder: &ModelFolder) -> (Vec<f64>, Vec<f64>) {
    let ids = |key: &str| -> Vec<u32> { serde_json::from_value(expected[key].clone()).unwrap() };
    let (prompt, completion) = (ids("prompt"), ids("completion"));
    let model = Frozen::snapshot(&folder.model);
    let found = score_completions(&model, &[(&prompt, &completion)], 1.0).remove(0).logprobs;
    (serde_json::from_value(expected["logprobs"].clone()).unwrap(), found)
}

/// The folders and values are those of `tests/peers/transformers/make_stored_heads.py`.
#[test]
fn an_output_layer_that_differs_is_used_as_in_transformers() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stored_head");
    for family in FAMILIES {
        let folder = fixtures.join(family);
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let loaded = load(&folder).unwrap();
        let (theirs, ours) = scores(&expected, &loaded);
        for (theirs, ours) in theirs.iter().zip(&ours) {
            assert!((theirs - ours).abs() < 2e-5, "{family}: {theirs} and {ours}");
        }
        // A copy of the model is the same model, without the contradiction.
        assert_eq!(loaded.spec.config.json()["tie_word_embeddings"], false, "{family}");
        let copy = tempfile::tempdir().unwrap();
        loaded.spec.write(copy.path(), &loaded.model, StoredAs::F32).unwrap();
        let copied = load(copy.path()).unwrap();
        assert_eq!(scores(&expected, &copied).1, ours, "{family}");
        assert_eq!(copied.digest, loaded.digest, "{family}");
    }
}

#[test]
fn an_output_layer_that_equals_the_embedding_stays_tied() {
    let tied = json!({"tie_word_embeddings": true});
    for json in [gpt2(), llama(), qwen2(), qwen3()] {
        let config = config(&with(json, tied.clone()));
        let model = shaken(&config, 1, &Device::flex());
        let mut weights = weights(&model);
        let is_table =
            |name: &&String| name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight");
        let table = weights.keys().find(is_table).unwrap().clone();
        let copy = weights[&table].clone();
        weights.insert("lm_head.weight".into(), copy);
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &config, &weights);
        let loaded = load(folder.path()).unwrap();
        assert_eq!(loaded.spec.config.description().head, HeadKind::Tied);
        assert_eq!(named_tensors(&loaded.model), named_tensors(&model));
        // The values count, not the format in which they are stored.
        let rounded =
            |values: &[f32]| values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
        let stored = weights.iter().map(|(name, (shape, values))| {
            let values = rounded(values);
            let (dtype, bytes) = match name == "lm_head.weight" {
                true => (Dtype::BF16, values.iter().flat_map(|x| x.to_le_bytes()).collect()),
                false => {
                    (Dtype::F32, values.iter().flat_map(|x| x.to_f32().to_le_bytes()).collect())
                }
            };
            (name.clone(), dtype, shape.clone(), bytes)
        });
        let file = folder.path().join("model.safetensors");
        std::fs::write(file, typed_safetensors(stored.collect())).unwrap();
        assert_eq!(load(folder.path()).unwrap().spec.config.description().head, HeadKind::Tied);
    }
}

#[test]
fn an_output_layer_of_another_size_is_refused() {
    let config = config(&qwen2());
    let mut weights: Weights = weights(&shaken(&config, 1, &Device::flex()));
    weights.insert("lm_head.weight".into(), (vec![2], vec![1.0, 2.0]));
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &config, &weights);
    let message = load(folder.path()).unwrap_err().to_string();
    assert!(
        message
            .ends_with("tensor 'lm_head.weight' has shape [2], but config.json requires [19, 24]"),
        "{message}"
    );
}

#[test]
fn values_that_are_not_finite_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensor = |value: f32| {
        let of = |values: &[f32]| Tensor::<1>::from_floats(values, &Device::flex());
        let tensors = [("fine".to_owned(), of(&[0.0])), ("w".to_owned(), of(&[1.0, value]))];
        StoredTensors::named(tensors)
    };
    // The largest f32 is infinite in bf16.
    for (value, stored_as) in [
        (f32::NAN, StoredAs::F32),
        (f32::INFINITY, StoredAs::F32),
        (f32::NEG_INFINITY, StoredAs::Bf16),
        (f32::MAX, StoredAs::Bf16),
    ] {
        let refused = tensor(value).write(&path, stored_as, None).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "model.safetensors is not written: tensor 'w' has values that are not finite"
        );
        assert!(!path.exists());
    }
    tensor(f32::MAX).write(&path, StoredAs::F32, None).unwrap();
    assert_eq!(read_safetensors(&path)["w"].1, [1.0, f32::MAX]);
}
