//! Base models stored with reduced precision.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, bf16};
use grpo_kernels::computes_in;
use grpo_model::{
    Adapter, Dropout, Frozen, KvCache, LanguageModel, ModelFolder, Policy, Prepared,
    ProductPrecision, TokenBatch, Transformer, WeightPrecision, linear_weights,
};
use serde_json::json;

use crate::adapters::{adapted, lora, shaken_adapter};
use crate::configs::{config, formats, gpt2, llama, with};
use crate::support::{
    IDS, assert_same, device, host, largest, logits, named_tensors, shaken, weights, write_model,
};

/// A model whose matrices have rows of 32, 16, 64 and 40 (five blocks of 8).
fn wide() -> serde_json::Value {
    with(
        llama(),
        json!({"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}),
    )
}

fn held(json: &serde_json::Value, precision: WeightPrecision) -> Transformer {
    let config = config(json);
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path(), &config, &shaken(&config, 1, &device()));
    ModelFolder::load_in(folder.path(), &formats(), precision, &device()).unwrap().model
}

/// Returns the formats in fewer bits that the device has.
fn narrow() -> impl Iterator<Item = WeightPrecision> {
    let all = [WeightPrecision::Bf16, WeightPrecision::Q8, WeightPrecision::Q4];
    all.into_iter().filter(|precision| precision.check_on(&device()).is_ok())
}

/// Returns the data type of each parameter.
fn kinds(model: &Transformer) -> Vec<(String, DType)> {
    struct Kinds(Vec<String>, Vec<(String, DType)>);
    impl ModuleVisitor for Kinds {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push((self.0.join("."), param.val().dtype()));
        }
    }
    let mut kinds = Kinds(vec![], vec![]);
    model.visit(&mut kinds);
    kinds.1
}

fn is_block_matrix(path: &str) -> bool {
    path.starts_with("blocks.") && path.ends_with(".weight") && !path.contains("norm")
}

#[test]
fn a_format_that_the_device_does_not_have_is_refused() {
    match WeightPrecision::Bf16.check_on(&device()) {
        Ok(()) => assert!(computes_in(&device(), DType::BF16)),
        Err(error) => {
            assert!(!computes_in(&device(), DType::BF16));
            assert_eq!(
                error.to_string(),
                "weights cannot be stored in bf16: this device does not have it (see `grpo devices`); use \"f32\", or \"q8\" to save memory"
            );
        }
    }
    for precision in [WeightPrecision::F32, WeightPrecision::Q8, WeightPrecision::Q4] {
        precision.check_on(&device()).unwrap();
    }
}

#[test]
fn matrices_of_blocks_are_held_in_fewer_bits_and_nothing_else() {
    for precision in [WeightPrecision::F32].into_iter().chain(narrow()) {
        for (path, kind) in kinds(&held(&wide(), precision)) {
            let as_expected = match (is_block_matrix(&path), precision) {
                (true, WeightPrecision::Bf16) => kind == DType::BF16,
                (true, WeightPrecision::Q8 | WeightPrecision::Q4) => {
                    matches!(kind, DType::QFloat(_))
                }
                _ => kind == DType::F32,
            };
            assert!(as_expected, "{path} is {kind:?} in {precision:?}");
        }
    }
}

#[test]
fn rows_that_cannot_be_cut_stay_as_they_are() {
    // 24 outputs are three blocks of 8, whereas 12 and 42 cannot be divided into blocks.
    let json = with(llama(), json!({"intermediate_size": 42}));
    let kinds = kinds(&held(&json, WeightPrecision::Q8));
    for (path, kind) in kinds.iter().filter(|(path, _)| is_block_matrix(path)) {
        let whole = ["inputs.1", "inputs.2", "gate", "up"].iter().any(|part| path.contains(part));
        assert_eq!(*kind == DType::F32, whole, "{path} is {kind:?}");
    }
}

/// Returns the largest deviation of the logits from those in f32, relative to the largest logit.
fn error(precision: WeightPrecision) -> f64 {
    let batch = TokenBatch::from_iter([IDS.as_slice()]);
    let expected = logits(&held(&wide(), WeightPrecision::F32), &batch);
    let got = logits(&held(&wide(), precision), &batch);
    let apart: Vec<f64> = got.iter().zip(&expected).map(|(a, b)| a - b).collect();
    largest(&apart) / largest(&expected)
}

/// Returns the number of bytes of each block matrix.
fn bytes_of_matrices(precision: WeightPrecision) -> usize {
    struct Bytes(Vec<String>, usize);
    impl ModuleVisitor for Bytes {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if is_block_matrix(&self.0.join(".")) {
                self.1 += param.val().into_data().as_bytes().len();
            }
        }
    }
    let model = held(&wide(), precision);
    let mut bytes = Bytes(vec![], 0);
    model.visit(&mut bytes);
    assert_eq!(
        model.parameters(),
        held(&wide(), WeightPrecision::F32).parameters(),
        "packing does not change the number of parameters"
    );
    bytes.1
}

/// A scale takes four bytes for 32 or 16 numbers.
#[test]
fn four_bits_take_half_of_eight() {
    let [f32, q8, q4] =
        [WeightPrecision::F32, WeightPrecision::Q8, WeightPrecision::Q4].map(bytes_of_matrices);
    assert!(q8 < f32 / 3 && 10 * q4 < 7 * q8, "{f32}, {q8}, {q4}");
}

/// The measured errors are 0.0084, 0.019 and 0.45. Random weights are the worst case: their
/// rounding errors are 2⁻⁹ of a weight for bf16, and ½/127 and ½/7 of the largest weight in a block
/// otherwise.
#[test]
fn logits_are_near_those_of_f32() {
    if WeightPrecision::Bf16.check_on(&device()).is_ok() {
        let bf16 = error(WeightPrecision::Bf16);
        assert!((0.003..0.012).contains(&bf16), "{bf16}");
    }
    let [q8, q4] = [WeightPrecision::Q8, WeightPrecision::Q4].map(error);
    assert!((0.007..0.027).contains(&q8), "{q8}");
    // The quantisation step is 127/7 = 18 times larger, and no longer small.
    assert!((10.0..30.0).contains(&(q4 / q8)), "{q4} and {q8}");
}

/// Products in bf16 have errors of the same size, those in f16 an eighth of it. They do not change the
/// weights.
#[test]
fn products_in_16_bits_are_near_those_in_f32() {
    let plain = held(&wide(), WeightPrecision::F32);
    let before = weights(&plain);
    let batch = TokenBatch::from_iter([IDS.as_slice()]);
    let expected = logits(&plain, &batch);
    for (precision, errors) in
        [(ProductPrecision::Bf16, 0.003..0.02), (ProductPrecision::F16, 0.000_4..0.002_5)]
    {
        let rounded = plain.clone().with_product_precision(precision);
        let got = logits(&rounded, &batch);
        let apart: Vec<f64> = got.iter().zip(&expected).map(|(a, b)| a - b).collect();
        let error = largest(&apart) / largest(&expected);
        assert!(errors.contains(&error), "{precision:?}: {error}");
        assert!(weights(&rounded) == before);
        let exact = rounded.with_product_precision(ProductPrecision::F32);
        assert_eq!(logits(&exact, &batch), expected);
    }
}

/// Sampling is independent of the batch and of the form of the weights, also under an adapter.
#[test]
fn sequences_are_independent_with_products_in_16_bits() {
    let rows: [&[u32]; 3] = [&IDS, &[4, 1, 2, 3], &[9, 8, 7, 6, 5, 4, 3, 2]];
    let plain = held(&wide(), WeightPrecision::F32);
    let adapter = shaken_adapter(&plain, 0.0, &device());
    let policies = [adapted(&plain, adapter), Policy::Whole(plain)];
    let prepared = |model: &Frozen<Policy>| {
        let batch = TokenBatch::from_iter(rows);
        let of = |model: Prepared<Policy>| {
            let mut cache = KvCache::new();
            let slots: Vec<_> = rows.iter().map(|_| cache.open()).collect();
            host(model.extend(&batch, &mut cache, &slots))
        };
        (of(model.prepared()), of(model.unpacked()))
    };
    let of = |policy| [ProductPrecision::Bf16, ProductPrecision::F16].map(|half| (policy, half));
    for (policy, precision) in policies.iter().flat_map(of) {
        let exact = Frozen::snapshot(policy);
        let frozen = exact.clone().with_product_precision(precision);
        let together = extended(&frozen, &rows);
        assert_ne!(together, extended(&exact, &rows));
        for (ids, together) in rows.iter().zip(&together) {
            assert_same(&extended(&frozen, &[ids])[0], together, "in 16 bits");
        }
        let (packed, unpacked) = prepared(&frozen);
        assert_eq!(packed, unpacked);
        assert_ne!(packed, prepared(&exact).0);
    }
}

/// Computes hidden states using a cache: `ids` in one piece, followed by three of its tokens one at
/// a time.
fn extended<M: LanguageModel>(model: &Frozen<M>, sequences: &[&[u32]]) -> Vec<Vec<f64>> {
    let mut cache = KvCache::new();
    let slots: Vec<_> = sequences.iter().map(|_| cache.open()).collect();
    let mut states = vec![Vec::new(); sequences.len()];
    let pieces = |piece: usize| {
        sequences.iter().map(move |ids| if piece == 0 { ids } else { &ids[piece..=piece] })
    };
    for piece in 0..=3 {
        let batch: TokenBatch = pieces(piece).collect();
        let got = host(model.extend(&batch, &mut cache, &slots));
        let width = got.len() / batch.tokens();
        for (sequence, states) in states.iter_mut().enumerate() {
            let rows = batch.rows(sequence);
            states.extend(&got[rows.start * width..rows.end * width]);
        }
    }
    states
}

#[test]
fn a_rounded_snapshot_computes_what_a_model_held_so_computes() {
    let rows: [&[u32]; 3] = [&IDS, &[4, 1, 2, 3], &[9, 8, 7, 6, 5, 4, 3, 2]];
    let plain = held(&wide(), WeightPrecision::F32);
    let before = weights(&plain);
    let exact = extended(&Frozen::snapshot(&plain), &rows);
    for precision in narrow() {
        let snapshot = Frozen::snapshot_in(&plain, precision);
        let got = extended(&snapshot, &rows);
        assert_eq!(got, extended(&Frozen::snapshot(&held(&wide(), precision)), &rows));
        assert_ne!(got, exact, "{precision}");
        for (ids, together) in rows.iter().zip(&got) {
            assert_same(&extended(&snapshot, &[ids])[0], together, &precision.to_string());
        }
        // Adapters are not rounded, and a base that is already rounded stays the same.
        let new = shaken_adapter(&plain, 0.0, &device());
        let policy = adapted(&plain, new.clone());
        let rounded = extended(&Frozen::snapshot_in(&policy, precision), &rows);
        let base = held(&wide(), narrow().next().expect("all devices have q8"));
        let policy = adapted(&held(&wide(), precision), new.clone());
        assert_eq!(rounded, extended(&Frozen::snapshot(&policy), &rows), "{precision}");
        let policy = adapted(&base, new);
        let in_f32 = Frozen::snapshot_in(&policy, WeightPrecision::F32);
        assert_eq!(extended(&in_f32, &rows), extended(&Frozen::snapshot(&policy), &rows));
    }
    assert!(weights(&plain) == before, "a snapshot changes no model");
}

#[test]
fn held_numbers_are_the_nearest_ones() {
    let plain = weights(&held(&wide(), WeightPrecision::F32));
    let is_matrix = |name: &str| name.starts_with("model.layers.") && name.contains("_proj");
    if WeightPrecision::Bf16.check_on(&device()).is_ok() {
        let halves = weights(&held(&wide(), WeightPrecision::Bf16));
        for (name, (_, values)) in &plain {
            let expected: Vec<f32> = match is_matrix(name) {
                true => values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect(),
                false => values.clone(),
            };
            assert!(halves[name].1 == expected, "{name}");
        }
    }
    for (precision, steps) in [(WeightPrecision::Q8, 127.0), (WeightPrecision::Q4, 7.0)] {
        let model = held(&wide(), precision);
        for (name, data) in named_tensors(&model).into_iter().filter(|(name, _)| is_matrix(name)) {
            // In memory as `[in, out]` with blocks along the outputs, on disk as `[out, in]`.
            let got: Vec<f32> = data.iter().collect();
            let (shape, expected) = &plain[&name];
            let (outputs, inputs) = (shape[0], shape[1]);
            let block = if outputs.is_multiple_of(32) { 32 } else { 16 };
            for input in 0..inputs {
                for start in (0..outputs).step_by(block) {
                    let places = (start..start + block).map(|output| output * inputs + input);
                    let most = places.clone().map(|p| expected[p].abs()).fold(0.0, f32::max);
                    for p in places {
                        let apart = (got[p] - expected[p]).abs();
                        assert!(
                            apart <= 0.5001 * most / steps,
                            "{name}, {precision:?}: {apart} of {most}"
                        );
                    }
                }
            }
        }
    }
}

/// Gradients of an adapter on a rounded base are available, and merging the adapter doesn't change
/// the output.
#[test]
fn adapters_on_held_bases() {
    let batch = TokenBatch::from_iter([IDS.as_slice()]);
    let device = device().autodiff();
    for precision in narrow() {
        for json in [wide(), gpt2()] {
            let base = held(&json, precision);
            let adapter = Adapter::random(&lora(0.0), &base, 1, &device).unwrap();
            let policy = adapted(&base, adapter.clone());
            let hidden = policy.hidden(&batch, &mut Dropout::off());
            let gradients = hidden.clone().square().sum().backward();
            let found = GradientsParams::from_grads(gradients, &policy);
            assert_eq!(found.len(), linear_weights(&policy).len());
            let expected = crate::support::host(base.hidden(&batch, &mut Dropout::off()));
            assert_eq!(crate::support::host(hidden), expected, "B = 0");
            assert_eq!(logits(&base.merged(&adapter), &batch), logits(&base, &batch));
        }
    }
}
