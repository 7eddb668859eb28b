//! Weight files: single files and shards, all number formats, and errors for invalid files.

use std::path::Path;

use burn::tensor::{Device, bf16, f16};
use grpo_data::Codec;
use grpo_model::{ModelFolder, StoredAs, StoredTensors, Transformer};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::configs::{bert, config, formats, gpt2, language_models, llama, qwen2, with};
use crate::support::{
    Weights, named_tensors, safetensors_bytes, shaken, typed_safetensors, weights, write_folder,
    write_model,
};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const NORM: &str = "model.norm.weight";

/// Returns a model directory with a single-block Llama, along with its weights.
fn folder() -> (TempDir, Weights) {
    let config = config(&with(llama(), json!({"num_hidden_layers": 1})));
    let weights = weights(&shaken(&config, 1, &Device::flex()));
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &config, &weights);
    (folder, weights)
}

fn load(folder: &Path) -> Result<Transformer, String> {
    let loaded = ModelFolder::load(folder, &formats(), &Device::flex());
    let folder = format!("{}/", folder.display());
    loaded.map(|folder| folder.model).map_err(|error| error.to_string().replace(&folder, ""))
}

#[track_caller]
fn check_refused(folder: &Path, expected: &str) {
    assert_eq!(load(folder).unwrap_err(), expected);
}

/// Splits the weights into two shards and writes their index.
fn shard(folder: &Path, weights: &Weights) -> Value {
    let mut map = serde_json::Map::new();
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    for (i, name) in names.into_iter().enumerate() {
        let part = weights.iter().enumerate().filter(|(place, _)| place % 2 == i);
        let part: Weights = part.map(|(_, (k, v))| (k.clone(), v.clone())).collect();
        map.extend(part.keys().map(|tensor| (tensor.clone(), name.into())));
        std::fs::write(folder.join(name), safetensors_bytes(&part)).unwrap();
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    std::fs::write(folder.join(INDEX), index.to_string()).unwrap();
    index
}

#[test]
fn weights_in_two_files_are_the_weights() {
    let (folder, weights) = folder();
    let expected = named_tensors(&load(folder.path()).unwrap());
    std::fs::remove_file(folder.path().join(FILE)).unwrap();
    shard(folder.path(), &weights);
    assert_eq!(named_tensors(&load(folder.path()).unwrap()), expected);
    // If both exist, the single file takes precedence.
    std::fs::write(folder.path().join(FILE), [0; 3]).unwrap();
    check_refused(
        folder.path(),
        "model.safetensors is not a complete safetensors file: the file has only 3 bytes",
    );
}

#[test]
fn lists_that_are_not_true() {
    let (folder, weights) = folder();
    let at = folder.path();
    std::fs::remove_file(at.join(FILE)).unwrap();
    let index = shard(at, &weights);
    let listed = |tensor: &str, file: &str| {
        let mut index = index.clone();
        index["weight_map"][tensor] = file.into();
        std::fs::write(at.join(INDEX), index.to_string()).unwrap();
    };
    for file in ["../elsewhere.safetensors", "a/b.safetensors", "/etc/passwd", "..", ".", "", "a/"]
    {
        listed(NORM, file);
        check_refused(
            at,
            &format!(
                "model.safetensors.index.json: '{file}' is not a file name in the same folder"
            ),
        );
    }
    listed(NORM, "absent.safetensors");
    check_refused(at, "cannot read absent.safetensors: No such file or directory (os error 2)");
    // The tensor is in a different file than the one in the index.
    let place = index["weight_map"][NORM].as_str().unwrap();
    let other = if place.contains("00001") {
        "model-00002-of-00002.safetensors"
    } else {
        "model-00001-of-00002.safetensors"
    };
    listed(NORM, other);
    check_refused(
        at,
        &format!(
            "model.safetensors.index.json: tensor '{NORM}' is listed in {other} but missing from it"
        ),
    );
    listed("model.extra.weight", other);
    check_refused(
        at,
        &format!(
            "model.safetensors.index.json: tensor 'model.extra.weight' is listed in {other} but missing from it"
        ),
    );
    // The tensor is in both files.
    std::fs::write(at.join(other), safetensors_bytes(&weights)).unwrap();
    listed(NORM, place);
    let twice = index["weight_map"].as_object().unwrap().iter().filter(|(_, file)| *file != other);
    let names: Vec<&String> = twice.map(|(name, _)| name).collect();
    let message = load(at).unwrap_err();
    let named = |name: &&&String| {
        message
            == format!(
                "model.safetensors.index.json: tensor '{name}' is listed in more than one file"
            )
    };
    assert!(names.iter().any(|name| named(&name)), "{message}");
    std::fs::write(at.join(INDEX), "{\"weight_map\": 3}").unwrap();
    check_refused(
        at,
        "model.safetensors.index.json: found 3; expected an object at line 1 column 16; copy the file from the original again",
    );
    std::fs::write(at.join(INDEX), "{\"weight_map\": {}}").unwrap();
    check_refused(
        at,
        "model.safetensors.index.json is missing tensor 'layers.0.input_layernorm.weight'; is it a checkpoint of this model family?",
    );
}

#[test]
fn halves_are_read_exactly() {
    let (folder, weights) = folder();
    type Round = fn(f32) -> (f32, [u8; 2]);
    let kinds: [(Dtype, Round); 2] = [
        (Dtype::BF16, |x| (bf16::from_f32(x).to_f32(), bf16::from_f32(x).to_le_bytes())),
        (Dtype::F16, |x| (f16::from_f32(x).to_f32(), f16::from_f32(x).to_le_bytes())),
    ];
    for (dtype, round) in kinds {
        let stored = weights.iter().map(|(name, (shape, values))| {
            let bytes = values.iter().flat_map(|&value| round(value).1).collect();
            (name.clone(), dtype, shape.clone(), bytes)
        });
        std::fs::write(folder.path().join(FILE), typed_safetensors(stored.collect())).unwrap();
        let read = crate::support::weights(&load(folder.path()).unwrap());
        for (name, (_, values)) in &read {
            let expected = weights[name].1.iter().map(|&value| round(value).0);
            assert!(values.iter().copied().eq(expected), "{name} in {dtype:?}");
            assert_ne!(
                *values, weights[name].1,
                "{name} needs no rounding: the test shows nothing"
            );
        }
    }
}

#[test]
fn numbers_of_other_kinds_are_refused() {
    let (folder, weights) = folder();
    for (dtype, size) in [(Dtype::F64, 8), (Dtype::I64, 8), (Dtype::I8, 1), (Dtype::F8_E4M3, 1)] {
        let stored = weights.iter().map(|(name, (shape, values))| {
            let (dtype, size) = if name == NORM { (dtype, size) } else { (Dtype::F32, 4) };
            (name.clone(), dtype, shape.clone(), vec![0; size * values.len()])
        });
        std::fs::write(folder.path().join(FILE), typed_safetensors(stored.collect())).unwrap();
        check_refused(
            folder.path(),
            &format!(
                "model.safetensors: tensor '{NORM}' holds {dtype:?} values; supported: F32, BF16, F16; use the model's weights in one of these"
            ),
        );
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (folder, mut weights) = folder();
        *weights.get_mut(NORM).unwrap().1.last_mut().unwrap() = bad;
        std::fs::write(folder.path().join(FILE), safetensors_bytes(&weights)).unwrap();
        check_refused(
            folder.path(),
            &format!("model.safetensors: tensor '{NORM}' holds a non-finite value"),
        );
    }
}

#[test]
fn tensors_that_are_missing_unknown_or_of_another_shape() {
    let (folder, weights) = folder();
    let write = |change: &dyn Fn(&mut Weights)| {
        let mut weights = weights.clone();
        change(&mut weights);
        std::fs::write(folder.path().join(FILE), safetensors_bytes(&weights)).unwrap();
    };
    for name in weights.keys() {
        write(&|weights| drop(weights.remove(name)));
        check_refused(
            folder.path(),
            &format!(
                "model.safetensors is missing tensor '{name}'; is it a checkpoint of this model family?"
            ),
        );
        // The number of elements is the same, but a reshaped matrix is a different matrix.
        let (shape, _) = &weights[name];
        let reshaped = match shape.as_slice() {
            [rows, columns] => vec![rows * 2, columns / 2],
            other => [other, &[1]].concat(),
        };
        write(&|weights| weights.get_mut(name).unwrap().0.clone_from(&reshaped));
        check_refused(
            folder.path(),
            &format!(
                "model.safetensors: tensor '{name}' has shape {reshaped:?}, but config.json requires {shape:?}"
            ),
        );
    }
    write(&|weights| {
        drop(weights.insert("model.layers.1.mlp.up_proj.weight".into(), (vec![1], vec![0.5])))
    });
    check_refused(
        folder.path(),
        "model.safetensors: unexpected tensor 'model.layers.1.mlp.up_proj.weight': config.json has 1 layer, but the weights have more; use the config.json that belongs to them",
    );
    write(&|weights| {
        drop(weights.insert("model.layers.0.mlp.third_proj.weight".into(), (vec![1], vec![0.5])))
    });
    check_refused(
        folder.path(),
        "model.safetensors: unexpected tensor 'model.layers.0.mlp.third_proj.weight': this model family does not use it",
    );
}

#[test]
fn tensors_that_hold_nothing_learned_are_passed_over() {
    for (json, names) in [
        (llama(), vec!["model.layers.0.self_attn.rotary_emb.inv_freq"]),
        (gpt2(), vec!["transformer.h.1.attn.bias", "transformer.h.0.attn.masked_bias"]),
        (
            bert(),
            vec![
                "bert.embeddings.position_ids",
                "cls.predictions.bias",
                "bert.pooler.dense.bias",
                "classifier.weight",
            ],
        ),
    ] {
        let config = config(&json);
        let model = shaken(&config, 1, &Device::flex());
        let mut weights = weights(&model);
        names
            .iter()
            .for_each(|name| drop(weights.insert((*name).to_owned(), (vec![2], vec![1.0, 2.0]))));
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &config, &weights);
        assert_eq!(named_tensors(&load(folder.path()).unwrap()), named_tensors(&model));
    }
}

/// Headless models are stored without the prefix (`GPT2Model`, and BERT in sentence-transformers).
#[test]
fn checkpoints_without_their_prefix() {
    for (json, prefix) in [(gpt2(), "transformer."), (bert(), "bert."), (qwen2(), "model.")] {
        let config = config(&json);
        let model = shaken(&config, 1, &Device::flex());
        let bare = weights(&model).into_iter();
        let bare: Weights =
            bare.map(|(name, w)| (name.strip_prefix(prefix).unwrap().to_owned(), w)).collect();
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &config, &bare);
        assert_eq!(named_tensors(&load(folder.path()).unwrap()), named_tensors(&model));
        // A mixture of both is an error.
        let mut half = bare.clone();
        let (name, first) = half.pop_first().unwrap();
        half.insert(format!("{prefix}{name}"), first);
        write_folder(folder.path(), &config, &half);
        assert!(load(folder.path()).unwrap_err().contains("is missing tensor"));
    }
}

#[test]
fn files_that_were_cut_anywhere() {
    let (folder, _) = folder();
    let path = folder.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let places = (0..10).chain([header / 2, header - 1, header, header + 1, whole.len() - 1]);
    for end in places {
        std::fs::write(&path, &whole[..end]).unwrap();
        let message = load(folder.path()).unwrap_err();
        let expected = match end {
            0..8 => format!("the file has only {end} bytes"),
            _ if end < header - 8 => {
                format!("the header size is {} bytes, but the file has only {end}", header - 8)
            }
            // The file is less than eight bytes too short, which is detected while reading.
            _ if end < header => format!("the file has only {end} bytes"),
            _ => format!(
                "the header declares {} bytes of tensor data, but the file has {}",
                whole.len() - header,
                end - header
            ),
        };
        assert_eq!(
            message,
            format!("model.safetensors is not a complete safetensors file: {expected}")
        );
    }
    std::fs::write(&path, [whole.as_slice(), &[0]].concat()).unwrap();
    let promised = whole.len() - header;
    check_refused(
        folder.path(),
        &format!(
            "model.safetensors is not a complete safetensors file: the header declares {promised} bytes of tensor data, but the file has {}",
            promised + 1
        ),
    );
}

#[test]
fn headers_that_lie() {
    let (folder, _) = folder();
    let path = folder.path().join(FILE);
    let whole = std::fs::read(&path).unwrap();
    let claim = |size: u64| {
        let mut bytes = whole.clone();
        bytes[..8].copy_from_slice(&size.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
    };
    for size in [u64::MAX, 1 << 62, 100_000_001, whole.len() as u64 + 1] {
        claim(size);
        check_refused(
            folder.path(),
            &format!(
                "model.safetensors is not a complete safetensors file: the header size is {size} bytes, but the file has only {}",
                whole.len()
            ),
        );
    }
    claim(0);
    check_refused(
        folder.path(),
        "model.safetensors is not a complete safetensors file: it is empty",
    );
    let header = |tensors: Value| {
        let text = tensors.to_string();
        let bytes = [&(text.len() as u64).to_le_bytes(), text.as_bytes(), &[0; 16]].concat();
        std::fs::write(&path, bytes).unwrap();
    };
    let huge = usize::MAX / 2;
    for (tensor, expected) in [
        (json!({"dtype": "F32", "shape": [huge, 4], "data_offsets": [0, 16]}), "overflow"),
        (json!({"dtype": "F32", "shape": [huge], "data_offsets": [0, 16]}), "overflow"),
        (
            json!({"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}),
            "span 16 bytes, but its shape [5] in f32 needs 20",
        ),
        (json!({"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}), "end before they begin"),
        (json!({"dtype": "F32", "shape": [4], "data_offsets": [4, 20]}), "leave 4 unused bytes"),
        (
            json!({"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}),
            "found -4; expected a whole number",
        ),
        (json!({"dtype": "F31", "shape": [4], "data_offsets": [0, 16]}), "unknown value"),
    ] {
        header(json!({ NORM: tensor }));
        let message = load(folder.path()).unwrap_err();
        let start = "model.safetensors is not a complete safetensors file: ";
        let said = message.strip_prefix(start).unwrap_or_else(|| panic!("{message}"));
        assert!(said.to_lowercase().contains(expected), "{tensor}: {said}");
    }
}

#[test]
fn a_folder_without_weights() {
    let (folder, _) = folder();
    std::fs::remove_file(folder.path().join(FILE)).unwrap();
    let expected = format!(
        "{} has neither model.safetensors nor model.safetensors.index.json nor pytorch_model.bin; convert other formats with transformers' save_pretrained",
        folder.path().display()
    );
    check_refused(folder.path(), &expected);
}

#[test]
fn every_family_survives_the_way_out_and_in() {
    for json in language_models().into_iter().chain([bert()]) {
        let config = config(&json);
        let model = shaken(&config, 1, &Device::flex());
        let folder = tempfile::tempdir().unwrap();
        write_model(folder.path(), &config, &model);
        assert_eq!(named_tensors(&load(folder.path()).unwrap()), named_tensors(&model));
        let read = grpo_model::ModelSpec::load(folder.path(), &formats()).unwrap();
        assert_eq!(read.config, config);
    }
}

#[test]
fn weights_are_written_in_halves_where_that_is_asked_for() {
    let config = config(&with(llama(), json!({"dtype": "float32", "torch_dtype": "float32"})));
    let model = shaken(&config, 1, &Device::flex());
    let folder = tempfile::tempdir().unwrap();
    let spec = grpo_model::ModelSpec { config, codec: Codec::of_ids(Default::default()) };
    spec.write(folder.path(), &model, StoredAs::Bf16).unwrap();
    let read = ModelFolder::load(folder.path(), &formats(), &Device::flex()).unwrap();
    let json = read.spec.config.json();
    assert_eq!((&json["dtype"], &json["torch_dtype"]), (&"bfloat16".into(), &"bfloat16".into()));
    let read = weights(&read.model);
    for (name, (_, values)) in weights(&model) {
        let halves: Vec<f32> = values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect();
        assert_eq!(read[&name].1, halves, "{name}");
    }
    let size = |stored_as| {
        let file = folder.path().join("size.safetensors");
        StoredTensors::of(&model).write(&file, stored_as, None).unwrap();
        std::fs::read(file).unwrap().len()
    };
    let numbers: usize = weights(&model).values().map(|(_, values)| values.len()).sum();
    let (wide, half) = (size(StoredAs::F32), size(StoredAs::Bf16));
    assert!((wide - half).abs_diff(2 * numbers) < 100, "{wide} and {half}");
}
