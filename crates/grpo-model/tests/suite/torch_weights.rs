//! Weights that torch wrote: `pytorch_model.bin`, its shards, and `adapter_model.bin`.
//!
//! The files are those of `tests/peers/torch/make_model_weights.py`, made from the safetensors files of
//! `tests/fixtures/stored_head`.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use grpo_model::{AdapterFolder, LoraMatrices, ModelFolder, parameters};
use tempfile::TempDir;

use crate::configs::formats;
use crate::support::{read_safetensors, safetensors_bytes};

const FILE: &str = "pytorch_model.bin";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Returns a model directory with the configuration of a family, and these files of torch under their
/// names in a model directory.
fn folder(family: &str, files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        std::fs::copy(fixture(from), folder.path().join(to)).unwrap();
    };
    copy(&format!("stored_head/{family}/config.json"), "config.json");
    files.iter().for_each(|(from, to)| copy(&format!("torch_models/{from}"), to));
    folder
}

fn load(folder: &Path) -> Result<ModelFolder, String> {
    let loaded = ModelFolder::load(folder, &formats(), &Device::flex());
    loaded.map_err(|error| error.to_string().replace(&format!("{}/", folder.display()), ""))
}

/// Returns the hash of the safetensors file of a family.
fn expected(family: &str) -> String {
    load(&fixture("stored_head").join(family)).unwrap().digest.to_string()
}

#[test]
fn the_weights_are_those_of_safetensors() {
    for (family, file) in [
        ("qwen2", "qwen2.bin"),
        ("qwen2", "qwen2-views.bin"),
        ("qwen3", "qwen3.bin"),
        ("llama", "llama-legacy.bin"),
    ] {
        let folder = folder(family, &[(file, FILE)]);
        assert_eq!(load(folder.path()).unwrap().digest.to_string(), expected(family), "{file}");
    }
}

const SHARDS: [&str; 3] = [
    "pytorch_model.bin.index.json",
    "pytorch_model-00001-of-00002.bin",
    "pytorch_model-00002-of-00002.bin",
];

#[test]
fn shards_are_read_by_their_index() {
    let folder = folder("gpt2", &SHARDS.map(|name| (name, name)));
    assert_eq!(load(folder.path()).unwrap().digest.to_string(), expected("gpt2"));
    // The second shard is a copy of the first.
    std::fs::copy(folder.path().join(SHARDS[1]), folder.path().join(SHARDS[2])).unwrap();
    let error = load(folder.path()).unwrap_err();
    assert!(error.starts_with("pytorch_model.bin.index.json: tensor '"), "{error}");
    assert!(error.ends_with("' is listed in more than one file"), "{error}");
    std::fs::remove_file(folder.path().join(SHARDS[2])).unwrap();
    assert_eq!(
        load(folder.path()).unwrap_err(),
        format!("cannot read {}: No such file or directory (os error 2)", SHARDS[2])
    );
}

#[test]
fn an_output_layer_that_is_the_embedding_stays_tied() {
    let folder = folder("llama", &[("llama-tied.bin", FILE)]);
    let tied = load(folder.path()).unwrap();
    assert_eq!(tied.spec.config.json()["tie_word_embeddings"], true);
    let mut weights = read_safetensors(&fixture("stored_head/llama/model.safetensors"));
    weights.remove("lm_head.weight").unwrap();
    // If there are several files, safetensors are read.
    std::fs::write(folder.path().join("model.safetensors"), safetensors_bytes(&weights)).unwrap();
    std::fs::write(folder.path().join(FILE), "damaged").unwrap();
    assert_eq!(load(folder.path()).unwrap().digest, tied.digest);
}

#[test]
fn files_with_code_or_eight_bit_numbers_are_refused_in_a_sentence() {
    let refusal = |file: &str| load(folder("llama", &[(file, FILE)]).path()).unwrap_err();
    assert_eq!(
        refusal("llama-code.bin"),
        "pytorch_model.bin: it refers to `posix.system`, which is not part of a state dict and could run code; if you trust the file, load it in Python and save only model.state_dict()"
    );
    assert_eq!(
        refusal("llama-f8.bin"),
        "pytorch_model.bin: it has tensors of the type torch.float8_e4m3fn; supported: float32, bfloat16, float16; use the model's weights in one of these"
    );
}

#[test]
fn damaged_weights_are_an_error() {
    let folder = folder("qwen2", &[("qwen2.bin", FILE)]);
    let bytes = std::fs::read(folder.path().join(FILE)).unwrap();
    for length in [0, 3, 100, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(folder.path().join(FILE), &bytes[..length]).unwrap();
        let error = load(folder.path()).unwrap_err();
        assert!(error.starts_with("pytorch_model.bin: it is "), "{error}");
    }
    // The weights of another family.
    std::fs::copy(fixture("torch_models/llama-legacy.bin"), folder.path().join(FILE)).unwrap();
    let error = load(folder.path()).unwrap_err();
    assert!(error.starts_with("pytorch_model.bin is missing tensor '"), "{error}");
}

#[test]
fn adapters_of_old_versions_of_peft_are_read() {
    let adapter = tempfile::tempdir().unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"] {
        std::fs::copy(fixture("torch_models").join(name), adapter.path().join(name)).unwrap();
    }
    let base = load(&fixture("stored_head/qwen2")).unwrap().model;
    let read = || {
        let matrices = LoraMatrices::read(adapter.path()).unwrap();
        let loaded = AdapterFolder::load(adapter.path(), &base, &Device::flex()).unwrap();
        let values = parameters(&loaded.adapter).into_iter();
        let values: Vec<Vec<f32>> =
            values.map(|parameter| parameter.value().into_data().iter().collect()).collect();
        (matrices, values)
    };
    let expected = read();
    assert_eq!(expected.0.len(), 1);
    std::fs::remove_file(adapter.path().join("adapter_model.safetensors")).unwrap();
    assert_eq!(read(), expected);
}
