//! GGUF files as models.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use grpo_model::{ModelFolder, ModelFormats, ModelSpec, StoredAs, StoredTensors, is_gguf_file};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-gguf/tests/fixtures").join(name)
}

fn load(path: &Path) -> Result<ModelFolder, String> {
    let loaded = ModelFolder::load(path, &ModelFormats::default(), &Device::flex());
    loaded.map_err(|error| error.to_string())
}

#[test]
fn a_gguf_file_is_loaded_like_the_folder_that_it_stands_for() {
    let place = tempfile::tempdir().unwrap();
    // As Ollama names its blobs.
    let blob = place.path().join("sha256-0123");
    std::fs::copy(fixture("small.gguf"), &blob).unwrap();
    assert!(is_gguf_file(&blob) && !is_gguf_file(place.path()));
    let loaded = load(&blob).unwrap();
    let folder = place.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    loaded.spec.write(&folder, &loaded.model, StoredAs::F32).unwrap();
    let again = load(&folder).unwrap();
    let [one, other] = [&loaded, &again].map(|loaded| StoredTensors::of(&loaded.model).read());
    assert_eq!(one, other);
    assert_eq!(loaded.spec.codec.files(), again.spec.codec.files());
    assert_eq!(loaded.spec.codec.end_ids(), [0, 1]);
    let spec = ModelSpec::load(&blob, &ModelFormats::default()).unwrap();
    assert!(spec.codec.has_chat_template());
    assert_eq!(spec.config.description().vocabulary, 15);
}

#[test]
fn a_damaged_gguf_file_is_refused_with_its_path() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("model.gguf");
    let whole = std::fs::read(fixture("small.gguf")).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let message = load(&path).unwrap_err();
    let expected = format!("{}: tensor `blk.0.", path.display());
    assert!(message.starts_with(&expected) && message.contains("lies outside"), "{message}");
}
