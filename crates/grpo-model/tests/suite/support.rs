//! Shared small models, comparisons and file helpers.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{Codec, TextCodec};
use grpo_infill::Characters;
use grpo_kernels::is_cpu;
use grpo_model::{ModelConfig, ModelFolder, ModelSpec, StoredAs, StoredTensors, Transformer};
use safetensors::tensor::{Dtype, TensorView};

use crate::configs::families;

/// Returns the device under test: the one that Burn's environment variable `BURN_DEVICE` names, or the
/// CPU in a build without a GPU.
pub(crate) fn device() -> Device {
    Device::default()
}

/// Shapes and values of tensors by their names on disk.
pub(crate) type Weights = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Returns the tensors of a model by their names on disk.
pub(crate) fn named_tensors(model: &Transformer) -> BTreeMap<String, TensorData> {
    StoredTensors::of(model).read()
}

/// Like [`named_tensors`], but in a form that can be modified.
pub(crate) fn weights(model: &Transformer) -> Weights {
    let values = |data: TensorData| (data.shape().to_vec(), data.iter::<f32>().collect());
    named_tensors(model).into_iter().map(|(name, data)| (name, values(data))).collect()
}

/// Returns pseudorandom numbers between −½ and ½ that depend only on the name.
pub(crate) fn shakes(name: &str) -> impl Iterator<Item = f32> {
    let mut state = name.bytes().map(u64::from).sum::<u64>() * 7919 + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    })
}

/// Returns a model in which every parameter differs from its initial value, so that each one
/// matters.
pub(crate) fn shaken(config: &ModelConfig, seed: u64, device: &Device) -> Transformer {
    // Keep norm scales near 1. Larger scales make attention so sharp that rounding errors dominate.
    shaken_by(config, seed, |shape| if shape.len() > 1 { 5.0 } else { 1.0 }, device)
}

/// Like [`shaken`], but multiplies parameters by a factor that depends on their shape.
pub(crate) fn shaken_by(
    config: &ModelConfig,
    seed: u64,
    factor: impl Fn(&[usize]) -> f32,
    device: &Device,
) -> Transformer {
    let mut weights = weights(&Transformer::random(config, seed, &Device::flex()).unwrap());
    for (name, (shape, values)) in &mut weights {
        let shaken = values.iter_mut().zip(shakes(name));
        shaken.for_each(|(value, shake)| *value = *value * factor(shape) + shake * 0.3);
    }
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), config, &weights);
    ModelFolder::load_model(folder.path(), &families(), device).unwrap()
}

/// Writes a model directory without a vocabulary, except for character models, which require one.
pub(crate) fn write_folder(folder: &Path, config: &ModelConfig, weights: &Weights) {
    let json = serde_json::to_string(config.json()).unwrap();
    std::fs::write(folder.join("config.json"), json).unwrap();
    if grpo_infill::FAMILIES.contains(&config.family()) {
        std::fs::write(folder.join("characters.json"), characters(config).to_json()).unwrap();
    }
    std::fs::write(folder.join("model.safetensors"), safetensors_bytes(weights)).unwrap();
}

/// Like [`write_folder`], but takes a model instead of weights.
pub(crate) fn write_model(folder: &Path, config: &ModelConfig, model: &Transformer) {
    let spec = ModelSpec { config: config.clone(), codec: Codec::of_ids(Default::default()) };
    spec.write(folder, model, StoredAs::F32).unwrap();
}

/// Returns a vocabulary with as many IDs as the model, including MASK, PAD and CLS.
pub(crate) fn characters(config: &ModelConfig) -> Characters {
    let number = u32::try_from(config.description().vocabulary).unwrap() - 3;
    let text: String = (0..number).map(|i| char::from_u32(u32::from('a') + i).unwrap()).collect();
    Characters::from_texts([text.as_str()]).unwrap()
}

/// Returns the contents of a safetensors file with f32 tensors.
pub(crate) fn safetensors_bytes(weights: &Weights) -> Vec<u8> {
    let typed = weights.iter().map(|(name, (shape, values))| {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        (name.clone(), Dtype::F32, shape.clone(), bytes)
    });
    typed_safetensors(typed.collect())
}

/// Returns the contents of a safetensors file with arbitrary tensors, given by name, data type,
/// shape and bytes.
pub(crate) fn typed_safetensors(tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[track_caller]
pub(crate) fn assert_close(got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len());
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() <= tolerance, "element {i}: {g}, expected {e}");
    }
}

/// Compares bit for bit on the CPU. On a GPU, the order of sums can depend on the other rows.
#[track_caller]
pub(crate) fn assert_same(got: &[f64], expected: &[f64], case: &str) {
    if is_cpu(&device()) {
        assert_eq!(got, expected, "{case}");
    }
    assert_close(got, expected, 2e-6 * largest(expected));
}

/// Returns the largest absolute value.
pub(crate) fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}

/// Reads a safetensors file with f32 tensors.
pub(crate) fn read_safetensors(path: &Path) -> Weights {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let values = |data: &[u8]| {
        let (whole, _) = data.as_chunks::<4>();
        whole.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    file.iter()
        .map(|(name, view)| (name.to_owned(), (view.shape().to_vec(), values(view.data()))))
        .collect()
}
