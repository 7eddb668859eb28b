//! Shared small models, comparisons and file helpers.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::Codec;
use grpo_kernels::is_cpu;
use grpo_model::{
    Dropout, LanguageModel, ModelConfig, ModelFolder, ModelSpec, StoredAs, StoredTensors,
    TokenBatch, Transformer,
};
use safetensors::tensor::{Dtype, TensorView};

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
    ModelFolder::load_model(folder.path(), &config.family().into(), device).unwrap()
}

/// Writes a model directory without a vocabulary.
pub(crate) fn write_folder(folder: &Path, config: &ModelConfig, weights: &Weights) {
    let json = serde_json::to_string(config.json()).unwrap();
    std::fs::write(folder.join("config.json"), json).unwrap();
    std::fs::write(folder.join("model.safetensors"), safetensors_bytes(weights)).unwrap();
}

/// Like [`write_folder`], but takes a model instead of weights.
pub(crate) fn write_model(folder: &Path, config: &ModelConfig, model: &Transformer) {
    let spec = ModelSpec { config: config.clone(), codec: Codec::of_ids(Default::default()) };
    spec.write(folder, model, StoredAs::F32).unwrap();
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

/// Returns the values of a tensor as bits.
pub(crate) fn bits_of<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
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

pub(crate) const IDS: [u32; 11] = [3, 18, 0, 7, 7, 11, 2, 16, 5, 9, 1];

pub(crate) fn logits(model: &Transformer, batch: &TokenBatch) -> Vec<f64> {
    host(model.logits(model.hidden(batch, &mut Dropout::off())))
}

/// Returns the attention weights of a model by layer, query, head and key.
pub(crate) fn attention(model: &Transformer, ids: &[u32]) -> Vec<f64> {
    let mut found = Vec::new();
    for heads in model.attention_weights(ids, None) {
        for query in 0..ids.len() {
            let rows = heads.iter().flat_map(|head| &head[query * ids.len()..][..ids.len()]);
            found.extend(rows.map(|weight| f64::from(*weight)));
        }
    }
    found
}

/// Replaces each parameter with the sum of its gradients.
pub(crate) struct IntoGradients(pub(crate) Vec<GradientsParams>);

impl ModuleMapper for IntoGradients {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let of_parts = self.0.iter().filter_map(|part| part.get::<D>(param.id));
        let sum = of_parts.reduce(|a, b| a + b).unwrap_or_else(|| param.val().inner().zeros_like());
        Param::initialized(param.id, Tensor::from_inner(sum))
    }
}

/// Checks the derivative along one direction in each tensor. `oracle` computes the loss from f64
/// numbers.
#[track_caller]
pub(crate) fn check_gradients(
    gradients: &Weights,
    numbers: &BTreeMap<String, Vec<f64>>,
    loss: impl Fn(&BTreeMap<String, Vec<f64>>) -> f64,
) {
    const STEP: f64 = 1e-5;
    for (name, (_, gradient)) in gradients {
        let direction: Vec<f64> =
            shakes(&format!("towards {name}")).map(f64::from).take(gradient.len()).collect();
        let moved = |step: f64| {
            let mut numbers = numbers.clone();
            let values = numbers.get_mut(name).unwrap().iter_mut().zip(&direction);
            values.for_each(|(value, d)| *value += step * d);
            loss(&numbers)
        };
        let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        let products = || gradient.iter().zip(&direction).map(|(&g, d)| f64::from(g) * d);
        let got: f64 = products().sum();
        let scale: f64 = products().map(|p| p * p).sum::<f64>().sqrt();
        assert!(
            (got - expected).abs() < 1e-5 * scale + 1e-7,
            "{name}: {got}, expected {expected} ({scale})"
        );
        assert!(scale > 1e-3, "{name} has no gradient: {scale}");
    }
}
