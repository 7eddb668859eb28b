//! Compares model families with transformers 5.23 (see `fixtures/hub_families/make.py`).

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use grpo_kernels::is_cpu;
use grpo_model::{
    Dropout, Families, Forward, Frozen, KvCache, LanguageModel, ModelConfig, ModelFolder, Policy,
    TokenBatch, Transformer,
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::support::{
    IntoGradients, Weights, assert_close, bits_of, device, host, logits, shakes, weights,
    write_folder,
};

const IDS: [u32; 25] =
    [3, 18, 0, 7, 7, 11, 2, 16, 5, 9, 1, 22, 4, 4, 13, 6, 21, 10, 8, 12, 0, 19, 3, 17, 15];

/// The cases of each family.
pub(crate) const FAMILIES: [&str; 7] = [
    include_str!("../fixtures/hub_families/mistral.json"),
    include_str!("../fixtures/hub_families/ministral.json"),
    include_str!("../fixtures/hub_families/granite.json"),
    include_str!("../fixtures/hub_families/smollm3.json"),
    include_str!("../fixtures/hub_families/olmo2.json"),
    include_str!("../fixtures/hub_families/olmo3.json"),
    include_str!("../fixtures/hub_families/gemma3_text.json"),
];

/// A model in transformers.
#[derive(Deserialize)]
struct Case {
    config: Value,
    /// The configuration as transformers writes it.
    saved: Value,
    shapes: BTreeMap<String, Vec<usize>>,
    /// Log-probabilities of [`IDS`] after the first.
    logps: Vec<f64>,
    /// Derivative of the mean negative log-probability along a direction in each tensor, and the root
    /// of the sum of squares of its terms.
    gradients: BTreeMap<String, [f64; 2]>,
    /// What follows the first five [`IDS`].
    greedy: Vec<u32>,
}

fn cases() -> impl Iterator<Item = Case> {
    FAMILIES.iter().flat_map(|text| serde_json::from_str::<Vec<Case>>(text).unwrap())
}

impl Case {
    fn config(&self) -> ModelConfig {
        Families::default().parse(&self.config.to_string()).unwrap()
    }

    /// Returns the weights of `make.py`.
    fn weights(&self) -> Weights {
        let is_around_one = self.config["model_type"] == "gemma3_text";
        let of = |(name, shape): (&String, &Vec<usize>)| {
            let (factor, base) = match shape.as_slice() {
                _ if name.contains("norm") => (0.5, if is_around_one { 0.0 } else { 1.0 }),
                [_, inputs] if !name.contains("embed") => {
                    ((4.0 / (*inputs as f64).sqrt()) as f32, 0.0)
                }
                _ => (1.0, 0.0),
            };
            let values = shakes(name).take(shape.iter().product());
            (name.clone(), (shape.clone(), values.map(|shake| shake * factor + base).collect()))
        };
        self.shapes.iter().map(of).collect()
    }

    fn model(&self, device: &burn::tensor::Device) -> Transformer {
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &self.config(), &self.weights());
        ModelFolder::load_model(folder.path(), &Families::default(), device).unwrap()
    }
}

/// Returns the log-probabilities of the tokens after the first.
fn taken(logits: &[f64], ids: &[u32]) -> Vec<f64> {
    let rows = logits.chunks(logits.len() / ids.len());
    let of = |(row, &id): (&[f64], &u32)| {
        let most = row.iter().fold(f64::NEG_INFINITY, |most, value| value.max(most));
        let total: f64 = row.iter().map(|value| (value - most).exp()).sum();
        row[id as usize] - most - total.ln()
    };
    rows.zip(&ids[1..]).map(of).collect()
}

#[test]
fn log_probabilities_are_those_of_transformers() {
    for case in cases() {
        let model = case.model(&device());
        let found = logits(&model, &TokenBatch::from_iter([IDS.as_slice()]));
        assert_close(&taken(&found, &IDS), &case.logps, 2e-5);
    }
}

#[test]
fn gradients_are_those_of_transformers() {
    let device = device().autodiff();
    for case in cases() {
        let policy = Policy::Whole(case.model(&device));
        let tokens = TokenBatch::from_iter([IDS.as_slice()]);
        for checkpointing in [false, true] {
            let forward = match checkpointing {
                true => policy.checkpointed(&tokens, &mut Dropout::off()),
                false => Forward::kept(policy.hidden(&tokens, &mut Dropout::off())),
            };
            let logits = policy.head().logits(forward.hidden.clone());
            let [rows, vocabulary] = logits.dims();
            let picked: Vec<f32> = (0..rows * vocabulary)
                .map(|at| {
                    let target = IDS.get(at / vocabulary + 1).map(|&id| id as usize);
                    let is_taken = target == Some(at % vocabulary);
                    if is_taken { -1.0 / (rows - 1) as f32 } else { 0.0 }
                })
                .collect();
            let picked = Tensor::from_data(
                TensorData::new(picked, [rows, vocabulary]),
                &device.clone().inner(),
            );
            let logps = burn::tensor::activation::log_softmax(logits, 1);
            let loss = (logps * Tensor::from_inner(picked)).sum();
            let parts = forward.backward(loss, &policy);
            let Policy::Whole(gradients) = policy.clone().map(&mut IntoGradients(parts)) else {
                panic!("a whole model")
            };
            let found = weights(&gradients);
            assert_eq!(found.len(), case.gradients.len(), "{}", case.config);
            for (name, [expected, scale]) in &case.gradients {
                let direction = format!("towards {name}");
                let products = found[name].1.iter().zip(shakes(&direction));
                let got: f64 = products.map(|(&g, d)| f64::from(g) * f64::from(d)).sum();
                let error = (got - expected).abs();
                assert!(
                    error <= 1e-4 * scale + 1e-7,
                    "{name}: {got}, {expected} of {}",
                    case.config
                );
            }
        }
    }
}

#[test]
fn greedy_texts_are_those_of_transformers() {
    for case in cases() {
        let model = Frozen::snapshot(&case.model(&device()));
        let mut cache = KvCache::new();
        let slot = cache.open();
        let mut ids = IDS[..5].to_vec();
        let mut new = ids.clone();
        for _ in 0..case.greedy.len() {
            let tokens = TokenBatch::from_iter([new.as_slice()]);
            let all = host(model.logits(model.extend(&tokens, &mut cache, &[slot])));
            let last = &all[all.len() - all.len() / new.len()..];
            let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
            new = vec![best as u32];
            ids.push(best as u32);
        }
        assert_eq!(ids[5..], case.greedy, "{}", case.config);
    }
}

#[test]
fn saved_configurations_describe_the_same_model() {
    for case in cases() {
        let saved = Families::default().parse(&case.saved.to_string());
        assert_eq!(saved.unwrap().description(), case.config().description(), "{}", case.config);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Sampling extends a cache token by token and in parts, next to other sequences. Training packs
    /// sequences, and completions continue a shared prompt.
    #[test]
    fn sampled_and_packed_tokens_have_the_same_bits(
        which in 0..FAMILIES.len(), case: prop::sample::Index, prompt in prop::collection::vec(0..23_u32, 1..30),
        completions in prop::collection::vec(prop::collection::vec(0..23_u32, 1..20), 1..4),
    ) {
        if !is_cpu(&device()) {
            return Ok(());
        }
        let all: Vec<Case> = serde_json::from_str(FAMILIES[which]).unwrap();
        let model = case.get(&all).model(&device());
        let frozen = Frozen::snapshot(&model);
        let mut cache = KvCache::new();
        let first = cache.open();
        frozen.extend(&TokenBatch::from_iter([prompt.as_slice()]), &mut cache, &[first]);
        let slots: Vec<_> = completions.iter().map(|_| cache.fork(first)).collect();
        let mut sampled = vec![Vec::new(); completions.len()];
        for step in 0..completions.iter().map(Vec::len).max().unwrap() {
            let open: Vec<usize> = (0..completions.len()).filter(|&i| step < completions[i].len()).collect();
            let tokens = TokenBatch::from_iter(open.iter().map(|&i| &completions[i][step..=step]));
            let at: Vec<_> = open.iter().map(|&i| slots[i]).collect();
            let hidden = bits_of(frozen.extend(&tokens, &mut cache, &at));
            let width = hidden.len() / open.len();
            for (&i, row) in open.iter().zip(hidden.chunks(width)) {
                sampled[i].extend_from_slice(row);
            }
        }
        for (completion, sampled) in completions.iter().zip(&sampled) {
            let whole = [prompt.as_slice(), completion].concat();
            let others = [&whole[..], &prompt[..], &whole[..whole.len() / 2 + 1]];
            let packed = bits_of(model.hidden(&TokenBatch::from_iter(others), &mut Dropout::off()));
            let width = sampled.len() / completion.len();
            let of_completion = &packed[prompt.len() * width..whole.len() * width];
            prop_assert_eq!(of_completion, &sampled[..]);
        }
    }
}
