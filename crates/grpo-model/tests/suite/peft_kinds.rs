//! Adapters of more kinds than plain LoRA, compared with PEFT.
//!
//! The folders and numbers are those of `tests/peers/transformers/make_models.py`. `grpo selftest`
//! compares their logits; here are gradients, sampling, merging and files.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::Device;
use grpo_model::{
    Adapted, Adapter, AdapterConfig, AdapterFolder, Dropout, Forward, Frozen, KvCache,
    LanguageModel, LoraConfig, ModelFolder, Policy, StoredAs, TokenBatch, linear_weights,
    write_adapter,
};
use serde_json::{Value, json};

use crate::adapters::lora;
use crate::configs::{config, formats, gpt2, llama, qwen3, with};
use crate::peft::{CONFIG, FILE, change, check_refused, edit, load, read_json};
use crate::support::{
    IDS, IntoGradients, assert_close, assert_same, host, largest, logits, read_safetensors, shaken,
};

const FOLDERS: [&str; 6] = [
    "dora-gpt2",
    "dora-qwen3",
    "saved-gpt2",
    "saved-qwen2",
    "tied-embedding-qwen2",
    "tied-head-qwen2",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-selftest/fixtures/models").join(name)
}

/// An adapter of PEFT with its base.
struct OfPeft {
    folder: PathBuf,
    base: ModelFolder,
    ids: Vec<u32>,
    logits: Vec<f64>,
    gradient_norms: Vec<f64>,
}

impl OfPeft {
    fn read(name: &str) -> Self {
        let folder = fixture(name);
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let base = fixture(expected["base"].as_str().unwrap());
        let logits: Vec<Vec<f64>> = serde_json::from_value(expected["logits"].clone()).unwrap();
        Self {
            folder,
            base: ModelFolder::load(&base, &formats(), &Device::flex()).unwrap(),
            ids: serde_json::from_value(expected["input_ids"].clone()).unwrap(),
            logits: logits.concat(),
            gradient_norms: serde_json::from_value(expected["gradient_norms"].clone()).unwrap(),
        }
    }

    fn adapter(&self, device: &Device) -> AdapterFolder {
        AdapterFolder::load(&self.folder, &self.base.model, device).unwrap()
    }

    fn policy(&self, device: &Device) -> Policy {
        Policy::Adapted(Adapted::new(&self.base.model, self.adapter(device).adapter))
    }

    fn batch(&self) -> TokenBatch {
        TokenBatch::from_iter([self.ids.as_slice()])
    }
}

/// Returns the log-probabilities of each row of logits.
fn log_softmax(logits: &[f64], vocabulary: usize) -> Vec<f64> {
    let of_row = |row: &[f64]| {
        let most = row.iter().copied().fold(f64::MIN, f64::max);
        let sum = row.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln() + most;
        row.iter().map(|logit| logit - sum).collect::<Vec<_>>()
    };
    logits.chunks(vocabulary).flat_map(of_row).collect()
}

fn policy_logits(policy: &Policy, tokens: &TokenBatch) -> Vec<f64> {
    host(policy.logits(policy.hidden(tokens, &mut Dropout::off())))
}

#[test]
fn log_probabilities_are_those_of_peft() {
    for name in FOLDERS {
        let of = OfPeft::read(name);
        let vocabulary = of.base.model.description().vocabulary;
        let expected = log_softmax(&of.logits, vocabulary);
        let got = policy_logits(&of.policy(&Device::flex()), &of.batch());
        assert_close(&log_softmax(&got, vocabulary), &expected, 1e-5);
        let without = log_softmax(&logits(&of.base.model, &of.batch()), vocabulary);
        let apart: Vec<f64> = without.iter().zip(&expected).map(|(a, b)| a - b).collect();
        assert!(largest(&apart) > 0.1, "{name} hardly changes anything");
        let adapter = of.adapter(&Device::flex()).adapter;
        assert!(of.base.model.is_changed_by(&adapter), "{name}");
        assert!(adapter.beyond_lora().is_some(), "{name}");
    }
}

/// PEFT's gradients of the mean square of the logits, for each trained tensor. They show that DoRA's
/// norm is a constant.
#[test]
fn gradients_are_those_of_peft() {
    let device = Device::flex().autodiff();
    for name in FOLDERS {
        let of = OfPeft::read(name);
        let policy = of.policy(&device);
        for checkpointing in [false, true] {
            let forward = match checkpointing {
                true => policy.checkpointed(&of.batch(), &mut Dropout::off()),
                false => Forward::kept(policy.hidden(&of.batch(), &mut Dropout::off())),
            };
            let loss = policy.head().logits(forward.hidden.clone()).square().mean();
            let parts = forward.backward(loss, &policy);
            let gradients = policy.clone().map(&mut IntoGradients(parts));
            let norm = |parameter: &grpo_model::Parameter| {
                let values: Vec<f64> = parameter.value().into_data().iter::<f64>().collect();
                values.iter().map(|value| value * value).sum::<f64>().sqrt()
            };
            let mut norms: Vec<f64> = grpo_model::parameters(&gradients).iter().map(norm).collect();
            norms.sort_by(f64::total_cmp);
            assert_eq!(norms.len(), of.gradient_norms.len(), "{name}");
            for (got, expected) in norms.iter().zip(&of.gradient_norms) {
                let apart = (got - expected).abs();
                assert!(
                    apart < 1e-4 * expected + 1e-7,
                    "{name}, {checkpointing}: {got} {expected}"
                );
            }
        }
    }
}

/// Sampling prepares the weights, in few and in many rows, and has the bits of training.
#[test]
fn sampling_has_the_bits_of_training() {
    for name in FOLDERS {
        let of = OfPeft::read(name);
        let policy = of.policy(&Device::flex().autodiff());
        let expected = policy_logits(&policy, &of.batch());
        let frozen = Frozen::snapshot(&policy);
        for (prepared, kind) in [(frozen.prepared(), "prepared"), (frozen.unpacked(), "unpacked")] {
            let mut cache = KvCache::new();
            let slot = cache.open();
            let mut got = Vec::new();
            for ids in [&of.ids[..7], &of.ids[7..8], &of.ids[8..]] {
                let tokens = TokenBatch::from_iter([ids]);
                let hidden = prepared.extend(&tokens, &mut cache, &[slot]);
                got.extend(host(prepared.invariant_logits(hidden)));
            }
            assert_same(&got, &expected, &format!("{name}, {kind}"));
        }
        let mut cache = KvCache::new();
        let slot = cache.open();
        let hidden = frozen.extend(&of.batch(), &mut cache, &[slot]);
        assert_same(&host(frozen.invariant_logits(hidden)), &expected, name);
    }
}

#[test]
fn merged_models_are_written_with_their_own_output_layer() {
    for name in FOLDERS {
        let of = OfPeft::read(name);
        let merged = of.base.model.merged(&of.adapter(&Device::flex()).adapter);
        let folder = tempfile::tempdir().unwrap();
        of.base.spec.write(folder.path(), &merged, StoredAs::F32).unwrap();
        let read = ModelFolder::load(folder.path(), &formats(), &Device::flex()).unwrap();
        assert_close(&logits(&read.model, &of.batch()), &of.logits, 2e-5);
        let is_untied = read.spec.config.json()["tie_word_embeddings"] == false;
        assert_eq!(is_untied, name != "dora-gpt2", "{name}");
    }
}

#[test]
fn they_survive_the_way_out_and_in() {
    for name in FOLDERS {
        let of = OfPeft::read(name);
        let read = of.adapter(&Device::flex().autodiff());
        let folder = tempfile::tempdir().unwrap();
        read.write(folder.path(), &of.base.model).unwrap();
        let written = read_safetensors(&folder.path().join(FILE));
        let mut expected = read_safetensors(&of.folder.join(FILE));
        // PEFT stores unchanged embeddings next to what adapts them.
        expected.retain(|name, _| !name.ends_with(".base_layer.weight"));
        assert_eq!(written, expected, "{name}");
        let settings = |folder: &Path| -> Value {
            serde_json::from_str(&std::fs::read_to_string(folder.join(CONFIG)).unwrap()).unwrap()
        };
        assert_eq!(settings(folder.path()), settings(&of.folder), "{name}");
    }
}

/// All kinds of trained tensors in one new adapter.
fn every_kind() -> LoraConfig {
    LoraConfig {
        dora: true,
        targets: ["q_proj", "down_proj", "embed_tokens"].map(str::to_owned).to_vec(),
        modules_to_save: ["lm_head", "norm", "up_proj"].map(str::to_owned).to_vec(),
        ..lora(0.0)
    }
}

#[test]
fn a_new_adapter_changes_nothing_until_it_is_trained() {
    let device = Device::flex().autodiff();
    for json in [qwen3(), with(qwen3(), json!({"tie_word_embeddings": true})), llama()] {
        let model = shaken(&config(&json), 1, &device);
        let adapter = Adapter::random(&every_kind(), &model, 1, &device).unwrap();
        assert!(!model.is_changed_by(&adapter));
        let policy = Policy::Adapted(Adapted::new(&model, adapter));
        let tokens = TokenBatch::from_iter([IDS.as_slice()]);
        let expected = logits(&model.valid(), &tokens);
        // The copy of a tied output layer may have another order of its values in memory.
        assert_close(&policy_logits(&policy, &tokens), &expected, 1e-6 * largest(&expected));
        let loss = policy.logits(policy.hidden(&tokens, &mut Dropout::off())).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &policy);
        let names = grpo_model::parameters(&policy).len();
        assert_eq!(gradients.len(), names);
        let mut optimizer = AdamWConfig::new().init();
        let trained = optimizer.step(1e-2, policy.clone(), gradients);
        let after = policy_logits(&trained, &tokens);
        let moved: Vec<f64> = after.iter().zip(&expected).map(|(a, b)| a - b).collect();
        assert!(largest(&moved) > 1e-3 * largest(&expected));
        let Policy::Adapted(trained) = &trained else { unreachable!() };
        assert!(model.is_changed_by(trained.adapter()));
        // Pairs, `up_proj` and `lm_head` decay; lengths, scales and tables do not.
        assert_eq!(linear_weights(&policy).len(), 2 * (2 * 2 + 1) + 2 + 1);
        // What was trained is read again.
        let folder = tempfile::tempdir().unwrap();
        let config = AdapterConfig::new(&every_kind(), &model, "base");
        write_adapter(trained.adapter(), &config, folder.path(), &model).unwrap();
        let read = load(folder.path(), &model).unwrap().adapter;
        let values = |adapter: &Adapter| -> Vec<Vec<f32>> {
            let found = grpo_model::parameters(adapter);
            found.iter().map(|of| of.value().into_data().iter().collect()).collect()
        };
        assert_eq!(values(&read), values(trained.adapter()));
    }
}

/// An average of a reference and a policy starts from an adapter without effect.
#[test]
fn a_plain_model_gets_the_parameters_of_every_kind() {
    let device = Device::flex().autodiff();
    let model = shaken(&config(&qwen3()), 1, &device);
    let adapter = Adapter::random(&every_kind(), &model, 1, &device).unwrap();
    let policy = Policy::Adapted(Adapted::new(&model, adapter));
    let tokens = TokenBatch::from_iter([IDS.as_slice()]);
    let loss = policy.logits(policy.hidden(&tokens, &mut Dropout::off())).square().mean();
    let gradients = GradientsParams::from_grads(loss.backward(), &policy);
    let policy = AdamWConfig::new().init().step(1e-2, policy, gradients);
    let plain = Policy::Whole(model.valid());
    let same = plain.clone().with_parameters_of(&policy);
    let expected = policy_logits(&plain, &tokens);
    assert_close(&policy_logits(&same, &tokens), &expected, 1e-6 * largest(&expected));
    let mixed = Frozen::snapshot(&Policy::Whole(model)).mixed(&policy, 0.5).unwrap();
    assert_ne!(host(mixed.hidden(&tokens)), host(Frozen::snapshot(&policy).hidden(&tokens)));
}

#[test]
fn settings_that_do_not_fit() {
    let model = shaken(&config(&llama()), 1, &Device::flex());
    let refusal = |config: LoraConfig| {
        Adapter::random(&config, &model, 1, &Device::flex()).unwrap_err().to_string()
    };
    let saved = |name: &str| LoraConfig { modules_to_save: vec![name.to_owned()], ..lora(0.0) };
    for name in ["heads", ""] {
        assert_eq!(
            refusal(saved(name)),
            format!(
                "lora.modules_to_save: the model has no module named '{name}'; for example lm_head, embed_tokens or norm"
            )
        );
    }
    assert_eq!(
        refusal(saved("q_proj")),
        "lora.modules_to_save: model.layers.0.self_attn.q_proj also has low-rank matrices; list other names in lora.targets, or remove it here"
    );
}

#[test]
fn files_that_contradict_their_settings() {
    let of = OfPeft::read("dora-qwen3");
    let model = &of.base.model;
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        for file in [CONFIG, FILE] {
            std::fs::copy(of.folder.join(file), folder.path().join(file)).unwrap();
        }
        folder
    };
    let prefix = "base_model.model.";
    let folder = fresh();
    change(folder.path(), json!({"use_dora": false}));
    check_refused(
        folder.path(),
        model,
        &format!(
            "{FILE}: the file has '{prefix}model.layers.0.self_attn.q_proj.lora_magnitude_vector', but adapter_config.json does not have use_dora = true; use both files from the same adapter"
        ),
    );
    let folder = fresh();
    let head = format!("{prefix}lm_head.base_layer.weight");
    edit(folder.path(), |weights| weights.get_mut(&head).unwrap().1[3] += 1.0);
    check_refused(
        folder.path(),
        model,
        &format!(
            "{FILE}: tensor '{head}' differs from that of the model, but modules_to_save of adapter_config.json does not name it; merge the adapter with PEFT, and use the merged model"
        ),
    );
    let folder = fresh();
    change(folder.path(), json!({"modules_to_save": ["score"]}));
    check_refused(
        folder.path(),
        model,
        &format!(
            "{FILE}: modules_to_save of adapter_config.json names score, which this model does not have; was the adapter trained on a different base model?"
        ),
    );
    let folder = fresh();
    change(folder.path(), json!({"modules_to_save": ["norm"]}));
    check_refused(
        folder.path(),
        model,
        &format!(
            "{FILE} is missing tensor '{prefix}model.layers.0.input_layernorm.weight'; is it a checkpoint of this model family?"
        ),
    );
    let folder = fresh();
    let gone = format!("{prefix}model.embed_tokens.lora_magnitude_vector");
    edit(folder.path(), |weights| drop(weights.remove(&gone)));
    check_refused(
        folder.path(),
        model,
        &format!("{FILE} is missing tensor '{gone}'; is it a checkpoint of this model family?"),
    );
}

#[test]
fn an_adapter_with_a_scale_of_0_changes_nothing() {
    let model = shaken(&config(&gpt2()), 1, &Device::flex());
    let folder = crate::peft::folder(&model);
    assert!(model.is_changed_by(&load(folder.path(), &model).unwrap().adapter));
    change(folder.path(), json!({"lora_alpha": 0}));
    let adapter = load(folder.path(), &model).unwrap().adapter;
    assert!(!model.is_changed_by(&adapter));
    assert_eq!(read_json(folder.path())["lora_alpha"], 0);
}
