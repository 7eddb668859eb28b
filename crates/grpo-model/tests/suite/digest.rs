//! Tests of what the weight hash depends on, and what it doesn't depend on.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::Codec;
use grpo_model::{
    Adapted, Families, Frozen, LanguageModel, ModelFolder, ModelSpec, Policy, StoredAs,
    Transformer, WeightPrecision, weights_digest,
};
use proptest::prelude::*;

use crate::adapters::shaken_adapter;
use crate::configs::{config, gpt2, llama};
use crate::support::shaken;

/// A module with two matrices, and a vector in a submodule.
#[derive(Module, Debug)]
struct Small {
    first: Param<Tensor<2>>,
    second: Param<Tensor<2>>,
    inner: Vec<Inner>,
}

#[derive(Module, Debug)]
struct Inner {
    bias: Param<Tensor<1>>,
}

fn tensor<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::from_data(TensorData::new(values.to_vec(), shape), device))
}

fn small(values: &[f32], device: &Device) -> Small {
    Small {
        first: tensor(&values[..6], [2, 3], device),
        second: tensor(&values[6..12], [3, 2], device),
        inner: vec![Inner { bias: tensor(&values[12..], [2], device) }],
    }
}

fn values() -> Vec<f32> {
    (0..14).map(|i| i as f32 * 0.37 - 2.0).collect()
}

/// Computes the hash from manually encoded bytes.
fn expected(values: &[f32]) -> String {
    let mut bytes: Vec<u8> = Vec::new();
    let parts: [(&str, &[u64], &[f32]); 3] = [
        ("first", &[2, 3], &values[..6]),
        ("second", &[3, 2], &values[6..12]),
        ("inner.0.bias", &[2], &values[12..]),
    ];
    for (path, shape, numbers) in parts {
        bytes.extend((path.len() as u64).to_le_bytes());
        bytes.extend(path.bytes());
        bytes.extend((shape.len() as u64).to_le_bytes());
        shape.iter().for_each(|length| bytes.extend(length.to_le_bytes()));
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    }
    blake3::hash(&bytes).to_string()
}

#[test]
fn it_is_of_paths_shapes_and_numbers() {
    let values = values();
    for device in [Device::flex(), Device::flex().autodiff()] {
        let module = small(&values, &device);
        assert_eq!(weights_digest(&module).to_string(), expected(&values));
        // The parameter IDs differ.
        assert_eq!(weights_digest(&small(&values, &device)), weights_digest(&module));
    }
}

#[test]
fn it_is_not_of_how_a_tensor_lies() {
    let values = values();
    let device = Device::flex();
    let mut module = small(&values, &device);
    let hash = weights_digest(&module);
    // The same matrix, stored column by column.
    let columns = [0, 3, 1, 4, 2, 5].map(|i| values[i]);
    let turned = tensor(&columns, [3, 2], &device).val().transpose();
    assert_eq!(turned.dims(), [2, 3]);
    module.first = Param::from_tensor(turned);
    assert_eq!(weights_digest(&module), hash);
    // A slice of a larger tensor.
    let larger: Vec<f32> = (0..4).map(|_| 9.0).chain(values[6..12].iter().copied()).collect();
    let part = tensor(&larger, [5, 2], &device).val().slice([2..5, 0..2]);
    module.second = Param::from_tensor(part);
    assert_eq!(weights_digest(&module), hash);
    // The same data with a different shape is a different matrix.
    module.first = tensor(&values[..6], [3, 2], &device);
    assert_ne!(weights_digest(&module), hash);
}

proptest! {
    #[test]
    fn every_bit_counts(place in 0..14_usize, bit in 0..32_u32) {
        let device = Device::flex();
        let mut changed = values();
        changed[place] = f32::from_bits(changed[place].to_bits() ^ (1 << bit));
        let hash = weights_digest(&small(&values(), &device));
        prop_assert_ne!(weights_digest(&small(&changed, &device)), hash);
        prop_assert_eq!(weights_digest(&small(&changed, &device)).to_string(), expected(&changed));
    }

    #[test]
    fn every_place_counts(a in 0..14_usize, b in 0..14_usize) {
        prop_assume!(a != b);
        let device = Device::flex();
        let mut changed = values();
        changed.swap(a, b);
        let hash = weights_digest(&small(&values(), &device));
        prop_assert_ne!(weights_digest(&small(&changed, &device)), hash);
    }
}

fn large(device: &Device) -> Transformer {
    // Some tensors are large enough to be hashed by several threads.
    let config = grpo_model::ModelConfig::from_json(
        r#"{"model_type": "llama", "vocab_size": 300, "max_position_embeddings": 64,
            "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 2,
            "num_attention_heads": 4}"#,
    );
    Transformer::random(&config.unwrap(), 1, device).unwrap()
}

#[test]
fn threads_decide_nothing() {
    let model = large(&Device::flex());
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| weights_digest(&model))
    };
    let one = with(1);
    for threads in [2, 3, 8] {
        assert_eq!(with(threads), one);
    }
    let mut numbers: Vec<f32> = Vec::new();
    visit(&model, &mut numbers);
    assert!(numbers.len() > 1_000_000, "{} numbers are not a large model", numbers.len());
}

fn visit(model: &Transformer, numbers: &mut Vec<f32>) {
    for (_, data) in grpo_model::StoredTensors::of(model).read() {
        numbers.extend(data.iter::<f32>());
    }
}

#[test]
fn models_from_disk_have_the_hash_that_they_had() {
    let device = Device::flex().autodiff();
    for json in [gpt2(), llama()] {
        let model = shaken(&config(&json), 3, &device);
        let hash = weights_digest(&model);
        assert_eq!(Frozen::snapshot(&model).digest(), hash);
        let folder = tempfile::tempdir().unwrap();
        let spec = ModelSpec { config: config(&json), codec: Codec::of_ids(Default::default()) };
        spec.write(folder.path(), &model, StoredAs::F32).unwrap();
        // The loaded model has no autodiff, and different parameter IDs.
        let loaded =
            ModelFolder::load_model(folder.path(), &Families::default(), &Device::flex()).unwrap();
        assert_eq!(weights_digest(&loaded), hash);
        assert_ne!(weights_digest(&shaken(&config(&json), 4, &device)), hash);
    }
}

#[test]
fn an_adapted_policy_has_two() {
    let device = Device::flex().autodiff();
    let bases = [3, 4].map(|seed| shaken(&config(&llama()), seed, &device));
    let adapter = shaken_adapter(&bases[0], 0.0, &device);
    let on = |base: &Transformer| Policy::Adapted(Adapted::new(base, adapter.clone()));
    let [first, second] = bases.each_ref().map(on);
    assert_eq!(weights_digest(&first), weights_digest(&second));
    assert_ne!(first.base_digest(), second.base_digest());
    // The base without an adapter, as used for a reference policy.
    let whole = Policy::Whole(bases[0].clone());
    assert_eq!(first.base_digest(), Some(Frozen::snapshot(&whole).digest()));
    assert_eq!(whole.base_digest(), None);
    let other = Policy::Adapted(Adapted::new(
        &bases[0],
        grpo_model::Adapter::random(&crate::adapters::lora(0.0), &bases[0], 1, &device).unwrap(),
    ));
    assert_ne!(weights_digest(&other), weights_digest(&first));
    // Rounding the weights changes the hash.
    for precision in [WeightPrecision::Bf16, WeightPrecision::Q8, WeightPrecision::Q4] {
        let rounded = Frozen::snapshot_in(&whole, precision);
        assert_ne!(rounded.digest(), weights_digest(&whole));
        assert_eq!(rounded.digest(), Frozen::snapshot_in(&whole, precision).digest());
    }
}
