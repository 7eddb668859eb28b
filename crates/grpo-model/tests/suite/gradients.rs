//! Compares gradients with central differences of the f64 loops, and a checkpointed pass with a
//! regular one.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use grpo_model::{
    Adapter, AdapterConfig, Dropout, Forward, LanguageModel, LoraConfig, Policy, ProductPrecision,
    TokenBatch, Transformer, write_adapter,
};
use serde_json::{Value, json};

use crate::adapters::{SCALE, adapted, pairs, shaken_adapter};
use crate::configs::{config, gpt2, language_models, llama, other, qwen2, qwen3, with};
use crate::oracle::Oracle;
use crate::support::{IntoGradients, Weights, check_gradients, device, shaken, shakes, weights};

const ROWS: [&[u32]; 3] = [&[3, 18, 0, 7, 7], &[11, 2], &[16, 5, 9, 1]];

/// Returns a full or adapted policy with autodiff, based on a model with perturbed weights.
fn policy(json: &Value, is_adapted: bool, dropout: f64) -> Policy {
    let device = device().autodiff();
    let model = shaken(&config(json), 1, &device);
    if !is_adapted {
        return Policy::Whole(model);
    }
    let adapter = shaken_adapter(&model, dropout, &device);
    adapted(&model, adapter)
}

/// Computes `Σ w · logits` over all tokens, and its gradients by the parameter names on disk.
fn gradients(policy: &Policy, checkpointing: bool, mut dropout: Dropout) -> (f64, Weights) {
    let tokens = TokenBatch::from_iter(ROWS);
    let forward = match checkpointing {
        true => policy.checkpointed(&tokens, &mut dropout),
        false => Forward::kept(policy.hidden(&tokens, &mut dropout)),
    };
    let logits = policy.head().logits(forward.hidden.clone());
    let [places, vocabulary] = logits.dims();
    let weight: Vec<f32> = factors(vocabulary).take(places).flatten().collect();
    let weight =
        Tensor::from_data(TensorData::new(weight, [places, vocabulary]), &policy.device().inner());
    let loss = (logits * Tensor::from_inner(weight)).sum();
    let value = loss.clone().into_data().iter::<f64>().next().unwrap();
    let parts = forward.backward(loss, policy);
    let gradients = policy.clone().map(&mut IntoGradients(parts));
    let named = match &gradients {
        Policy::Whole(model) => weights(model),
        Policy::Adapted(adapted) => pairs(adapted.adapter(), adapted.base()),
    };
    (value, named)
}

/// The weights of each token's logits in the loss.
fn factors(vocabulary: usize) -> impl Iterator<Item = Vec<f32>> {
    let mut shakes = shakes("loss");
    std::iter::repeat_with(move || shakes.by_ref().take(vocabulary).collect())
}

/// Computes the same loss in f64.
fn loss(oracle: &Oracle, vocabulary: usize) -> f64 {
    let logits: Vec<f64> = ROWS.iter().flat_map(|row| oracle.logits(row)).collect();
    let pairs = logits.chunks(vocabulary).zip(factors(vocabulary));
    pairs.map(|(logits, w)| logits.iter().zip(w).map(|(l, w)| l * f64::from(w)).sum::<f64>()).sum()
}

/// Rounding to bf16 changes each factor by at most 2⁻⁹, and to f16 by 2⁻¹², so gradients hardly change
/// their directions.
#[test]
fn gradients_of_products_in_16_bits() {
    for is_adapted in [false, true] {
        let plain = policy(&llama(), is_adapted, 0.0);
        let (_, exact) = gradients(&plain, false, Dropout::off());
        for (precision, least, checkpointing) in [
            (ProductPrecision::Bf16, 0.999, false),
            (ProductPrecision::Bf16, 0.999, true),
            (ProductPrecision::F16, 0.999_98, false),
            (ProductPrecision::F16, 0.999_98, true),
        ] {
            let rounded = plain.clone().with_product_precision(precision);
            let (_, rounded) = gradients(&rounded, checkpointing, Dropout::off());
            assert!(rounded != exact);
            for (name, (_, rounded)) in &rounded {
                let exact = &exact[name].1;
                let dot = |a: &[f32], b: &[f32]| -> f64 {
                    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
                };
                let lengths = (dot(rounded, rounded) * dot(exact, exact)).sqrt();
                let cosine = dot(rounded, exact) / lengths;
                assert!(cosine > least, "{name}, {precision:?}: {cosine}");
            }
        }
    }
}

#[test]
fn gradients_of_whole_models_are_those_of_the_definition() {
    for json in [
        llama(),
        with(
            llama(),
            json!({"tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true}),
        ),
        qwen2(),
        qwen3(),
        gpt2(),
    ] {
        let config = config(&json);
        let policy = policy(&json, false, 0.0);
        let (value, gradients) = gradients(&policy, false, Dropout::off());
        let oracle = Oracle::of(&config, policy.parts().0);
        let of = |tensors: &BTreeMap<String, Vec<f64>>| {
            loss(&Oracle::of_numbers(&config, tensors.clone()), 19)
        };
        let expected = of(&oracle.tensors);
        assert!((value - expected).abs() < 1e-4, "{value}, expected {expected}");
        check_gradients(&gradients, &oracle.tensors, of);
    }
}

#[test]
fn gradients_of_adapters_are_those_of_the_definition() {
    for json in [llama(), with(llama(), json!({"tie_word_embeddings": true})), qwen3(), gpt2()] {
        let config = config(&json);
        let policy = policy(&json, true, 0.0);
        let (_, gradients) = gradients(&policy, false, Dropout::off());
        let (base, adapter) = policy.parts();
        let base = weights(base);
        let adapter = pairs(adapter.unwrap(), policy.parts().0);
        let of = |numbers: &BTreeMap<String, Vec<f64>>| {
            let mut oracle = Oracle::of_weights(&config, &base);
            for (name, a) in numbers.iter().filter(|(name, _)| name.ends_with("lora_A.weight")) {
                let b = &numbers[&name.replace("lora_A", "lora_B")];
                let module = name.strip_prefix("base_model.model.").unwrap();
                let module = module.strip_suffix(".lora_A.weight").unwrap();
                oracle.add_pair(module, a, b, adapter[name].0[0], SCALE);
            }
            loss(&oracle, 19)
        };
        let wide = |(name, (_, values)): (&String, &(Vec<usize>, Vec<f32>))| {
            (name.clone(), values.iter().map(|&value| f64::from(value)).collect())
        };
        check_gradients(&gradients, &adapter.iter().map(wide).collect(), of);
    }
}

#[test]
fn a_checkpointed_pass_has_the_loss_and_the_gradients_of_the_kept_tape() {
    let tied = with(llama(), json!({"tie_word_embeddings": true}));
    for json in language_models().into_iter().chain([tied]) {
        for is_adapted in [false, true] {
            let policy = policy(&json, is_adapted, 0.3);
            for dropout in [Dropout::off(), Dropout::new(5, 2, 0.0), Dropout::new(5, 2, 0.25)] {
                let of = |checkpointing| gradients(&policy, checkpointing, dropout.clone());
                let ((kept, kept_gradients), (recomputed, gradients)) = (of(false), of(true));
                assert_eq!(kept, recomputed, "{json}");
                assert_eq!(kept_gradients.len(), gradients.len());
                // Bit for bit, because the operations and their inputs are the same, and at most
                // two parts are added up.
                assert_eq!(kept_gradients, gradients, "{json}");
                for (name, (_, gradient)) in gradients {
                    // Without rotary positions, the key bias adds a constant to all scores of a
                    // query.
                    let idle = name.ends_with("key.bias");
                    assert!(idle || gradient.iter().any(|g| g.abs() > 1e-4), "{name} of {json}");
                }
            }
        }
    }
}

/// Dropout is effective in the test above, because other masks change the loss.
#[test]
fn dropout_is_part_of_a_checkpointed_pass() {
    for is_adapted in [false, true] {
        let policy = policy(&other(), is_adapted, 0.3);
        let of = |dropout| gradients(&policy, true, dropout).0;
        let losses = [
            of(Dropout::off()),
            of(Dropout::new(5, 2, 0.25)),
            of(Dropout::new(5, 3, 0.25)),
            of(Dropout::new(6, 2, 0.25)),
        ];
        for (i, a) in losses.iter().enumerate() {
            assert!(losses[..i].iter().all(|b| a != b), "{losses:?}");
        }
    }
}

/// After a checkpointed pass, the dropout state is the same as after a regular one.
#[test]
fn dropout_goes_on_behind_a_checkpointed_pass_as_behind_a_kept_one() {
    let policy = policy(&gpt2(), true, 0.3);
    let tokens = TokenBatch::from_iter(ROWS);
    let after = |checkpointing| {
        let mut dropout = Dropout::new(5, 2, 0.25);
        match checkpointing {
            true => drop(policy.checkpointed(&tokens, &mut dropout)),
            false => drop(policy.hidden(&tokens, &mut dropout)),
        }
        dropout.apply(Tensor::<1>::ones([64], &device())).into_data()
    };
    assert_eq!(after(true), after(false));
}

/// Writes the matrices of an adapter. The configuration doesn't affect them.
pub(crate) fn write_pairs(adapter: &Adapter, folder: &std::path::Path, base: &Transformer) {
    let config = LoraConfig { rank: 1, alpha: 1.0, ..LoraConfig::default() };
    write_adapter(adapter, &AdapterConfig::new(&config, base, "base"), folder, base).unwrap();
}
