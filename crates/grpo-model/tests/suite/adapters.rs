//! Adapters on a base model that stays unchanged.

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::Device;
use grpo_model::{
    Adapted, Adapter, AdapterConfig, AdapterFolder, Dropout, Frozen, KvCache, LanguageModel,
    LoraConfig, Policy, TokenBatch, Transformer, linear_weights, write_adapter,
};
use serde_json::json;

use crate::configs::{config, gpt2, language_models, llama, qwen3, with};
use crate::gradients::write_pairs;
use crate::support::{
    IDS, Weights, assert_close, device, host, largest, logits, named_tensors, read_safetensors,
    safetensors_bytes, shaken, shakes,
};

/// α divided by the rank in [`lora`].
pub(crate) const SCALE: f64 = 5.0 / 3.0;

pub(crate) fn lora(dropout: f64) -> LoraConfig {
    LoraConfig { rank: 3, alpha: 5.0, dropout, ..LoraConfig::default() }
}

/// Returns an adapter in which all matrices are nonzero.
pub(crate) fn shaken_adapter(model: &Transformer, dropout: f64, device: &Device) -> Adapter {
    let folder = tempfile::tempdir().unwrap();
    let adapter = Adapter::random(&lora(dropout), model, 1, device).unwrap();
    let config = AdapterConfig::new(&lora(dropout), model, "base");
    write_adapter(&adapter, &config, folder.path(), model).unwrap();
    let path = folder.path().join("adapter_model.safetensors");
    let mut pairs = read_safetensors(&path);
    for (name, (_, values)) in &mut pairs {
        values.iter_mut().zip(shakes(name)).for_each(|(value, shake)| *value += 0.3 * shake);
    }
    std::fs::write(&path, safetensors_bytes(&pairs)).unwrap();
    AdapterFolder::load(folder.path(), model, device).unwrap().adapter
}

pub(crate) fn adapted(model: &Transformer, adapter: Adapter) -> Policy {
    Policy::Adapted(Adapted::new(model, adapter))
}

/// Returns the matrices of an adapter under the names used by PEFT.
pub(crate) fn pairs(adapter: &Adapter, base: &Transformer) -> Weights {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(adapter, folder.path(), base);
    read_safetensors(&folder.path().join("adapter_model.safetensors"))
}

fn batch() -> TokenBatch {
    TokenBatch::from_iter([IDS.as_slice(), &IDS[3..7], &IDS[2..3]])
}

fn policy_logits(policy: &Policy, dropout: &mut Dropout) -> Vec<f64> {
    host(policy.logits(policy.hidden(&batch(), dropout)))
}

#[test]
fn a_new_adapter_changes_nothing() {
    for json in language_models() {
        let model = shaken(&config(&json), 1, &device());
        let adapter = Adapter::random(&lora(0.5), &model, 1, &device()).unwrap();
        let policy = adapted(&model, adapter.clone());
        let expected = logits(&model, &batch());
        assert_eq!(policy_logits(&policy, &mut Dropout::off()), expected);
        // Dropout in front of B = 0 makes no difference.
        assert_eq!(policy_logits(&policy, &mut Dropout::new(1, 0, 0.0)), expected);
        assert_eq!(logits(&model.merged(&adapter), &batch()), expected);
    }
}

#[test]
fn a_separate_adapter_equals_a_merged_one() {
    for json in language_models() {
        let model = shaken(&config(&json), 1, &device());
        let adapter = shaken_adapter(&model, 0.5, &device());
        let expected = logits(&model.merged(&adapter), &batch());
        let got = policy_logits(&adapted(&model, adapter), &mut Dropout::off());
        assert_close(&got, &expected, 1e-5 * largest(&expected));
        let apart: Vec<f64> =
            got.iter().zip(logits(&model, &batch())).map(|(a, b)| a - b).collect();
        assert!(largest(&apart) > 0.1 * largest(&expected), "the adapter changes next to nothing");
    }
}

#[test]
fn an_adapted_policy_samples_with_its_adapter() {
    let model = shaken(&config(&qwen3()), 1, &device());
    let policy = adapted(&model, shaken_adapter(&model, 0.0, &device()));
    let full = host(policy.hidden(&TokenBatch::from_iter([IDS.as_slice()]), &mut Dropout::off()));
    let frozen = Frozen::snapshot(&policy);
    let mut cache = KvCache::new();
    let slot = cache.open();
    let mut step =
        |ids: &[u32]| host(frozen.extend(&TokenBatch::from_iter([ids]), &mut cache, &[slot]));
    let parts = [step(&IDS[..4]), step(&IDS[4..5]), step(&IDS[5..])].concat();
    assert_close(&parts, &full, 1e-6 * largest(&full));
}

#[test]
fn dropout_of_an_adapter_acts_where_dropout_is_on() {
    let model = shaken(&config(&llama()), 1, &device());
    let with = adapted(&model, shaken_adapter(&model, 0.4, &device()));
    let without = adapted(&model, shaken_adapter(&model, 0.0, &device()));
    let off = policy_logits(&without, &mut Dropout::off());
    assert_eq!(policy_logits(&with, &mut Dropout::off()), off);
    assert_eq!(policy_logits(&without, &mut Dropout::new(1, 0, 0.0)), off);
    let on = policy_logits(&with, &mut Dropout::new(1, 0, 0.0));
    assert_ne!(on, off);
    assert_eq!(policy_logits(&with, &mut Dropout::new(1, 0, 0.0)), on);
    assert_ne!(policy_logits(&with, &mut Dropout::new(1, 1, 0.0)), on);
}

#[test]
fn only_the_pairs_are_parameters() {
    let device = device().autodiff();
    for (json, linears) in [
        // (in, out) for each linear layer of a block. There are two blocks.
        (llama(), vec![(24, 24), (24, 12), (24, 12), (24, 24), (24, 40), (24, 40), (40, 24)]),
        (qwen3(), vec![(24, 40), (24, 20), (24, 20), (40, 24), (24, 40), (24, 40), (40, 24)]),
        (gpt2(), vec![(24, 72), (24, 24), (24, 96), (96, 24)]),
    ] {
        let model = shaken(&config(&json), 1, &device);
        let policy = adapted(&model, Adapter::random(&lora(0.0), &model, 1, &device).unwrap());
        let expected: usize = linears.iter().map(|(input, output)| 2 * 3 * (input + output)).sum();
        assert_eq!(policy.num_params(), expected);
        assert_eq!(linear_weights(&policy).len(), 2 * 2 * linears.len());
        // Targets match the end of a path. GPT-2 has two layers called c_proj.
        let target = if linears.len() == 4 { "c_proj" } else { "o_proj" };
        let config = LoraConfig { targets: vec![target.to_owned()], ..lora(0.0) };
        let pairs = pairs(&Adapter::random(&config, &model, 1, &device).unwrap(), &model);
        assert_eq!(pairs.len(), 2 * 2 * if linears.len() == 4 { 2 } else { 1 });
        assert!(pairs.keys().all(|name| name.contains(target)), "{:?}", pairs.keys());
    }
}

#[test]
fn a_step_moves_the_adapter_and_no_bit_of_the_base() {
    let device = device().autodiff();
    let model = shaken(&config(&llama()), 1, &device);
    let policy = adapted(&model, shaken_adapter(&model, 0.0, &device));
    let before = named_tensors(policy.parts().0);
    let pairs_before = pairs(policy.parts().1.unwrap(), &model);
    let loss = policy.logits(policy.hidden(&batch(), &mut Dropout::off())).square().mean();
    let gradients = GradientsParams::from_grads(loss.backward(), &policy);
    assert_eq!(gradients.len(), 2 * 2 * 7);
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
    let after = optimizer.step(1e-2, policy.clone(), gradients);
    assert_eq!(named_tensors(after.parts().0), before);
    assert_eq!(named_tensors(&model), before);
    let pairs_after = pairs(after.parts().1.unwrap(), &model);
    for (name, (_, values)) in &pairs_before {
        assert_ne!(*values, pairs_after[name].1, "{name}");
    }
    // The policy from before the step is unaffected.
    assert_eq!(pairs(policy.parts().1.unwrap(), &model), pairs_before);
}

#[test]
fn a_frozen_adapted_policy_is_off_the_tape() {
    let device = device().autodiff();
    let model = shaken(&config(&llama()), 1, &device);
    let policy = adapted(&model, shaken_adapter(&model, 0.0, &device));
    assert!(policy.hidden(&batch(), &mut Dropout::off()).is_autodiff());
    assert!(!policy.parts().0.device().is_autodiff());
    let frozen = Frozen::snapshot(&policy);
    assert!(!frozen.hidden(&batch()).is_autodiff());
    assert!(!frozen.head().weight.is_autodiff());
}

#[test]
fn seeds_give_adapters() {
    let model = shaken(&config(&llama()), 1, &device());
    let of = |seed| pairs(&Adapter::random(&lora(0.0), &model, seed, &device()).unwrap(), &model);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    // Divided by 1/√in, A is uniformly distributed within ±1.
    let mut all: Vec<f64> = vec![];
    let mut firsts: Vec<f64> = vec![];
    for (name, (shape, values)) in of(1) {
        if name.ends_with("lora_B.weight") {
            assert!(values.iter().all(|&value| value == 0.0), "{name}");
            continue;
        }
        let root = (shape[1] as f64).sqrt();
        let of_layer: Vec<f64> = values.iter().map(|&value| f64::from(value) * root).collect();
        assert!(!firsts.contains(&of_layer[0]), "{name} is as another");
        firsts.push(of_layer[0]);
        all.extend(of_layer);
    }
    assert!(all.iter().all(|value| value.abs() <= 1.0 + 1e-6));
    let n = all.len() as f64;
    let variance = all.iter().map(|value| value * value).sum::<f64>() / n;
    // Five standard errors of the mean square.
    let error = (4.0 / 45.0 / n).sqrt();
    assert!((variance - 1.0 / 3.0).abs() < 5.0 * error && 5.0 * error < 0.06, "{variance} {error}");
}

#[test]
fn settings_out_of_range() {
    let model = shaken(&config(&llama()), 1, &device());
    let refusal = |config: LoraConfig| {
        Adapter::random(&config, &model, 1, &device()).unwrap_err().to_string()
    };
    for (config, expected) in [
        (LoraConfig { rank: 0, ..lora(0.0) }, "lora.rank = 0 is out of range; expected 1 to 65536"),
        (
            LoraConfig { alpha: f64::NAN, ..lora(0.0) },
            "lora.alpha = NaN is out of range; expected more than 0",
        ),
        (lora(1.0), "lora.dropout = 1 is out of range; expected 0 or more and less than 1"),
        (
            LoraConfig { targets: vec!["q_proj".into(), "proj".into()], ..lora(0.0) },
            "lora.targets: no linear layer is named 'proj'; available: down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; also embed_tokens, lm_head",
        ),
    ] {
        assert_eq!(refusal(config), expected);
    }
    // A full path is also a valid target, and matches no other layer.
    let one = LoraConfig { targets: vec!["model.layers.1.self_attn.k_proj".into()], ..lora(0.0) };
    let adapter = Adapter::random(&one, &model, 1, &device()).unwrap();
    assert_eq!(adapter.num_params(), 3 * (24 + 12));
}

#[test]
fn rslora_scales_by_the_root_of_the_rank() {
    let model = shaken(&config(&with(llama(), json!({"num_hidden_layers": 1}))), 1, &device());
    let config = LoraConfig { rslora: true, ..lora(0.0) };
    let folder = tempfile::tempdir().unwrap();
    let adapter = shaken_adapter(&model, 0.0, &device());
    write_adapter(&adapter, &AdapterConfig::new(&config, &model, ""), folder.path(), &model)
        .unwrap();
    let read = AdapterFolder::load(folder.path(), &model, &device()).unwrap().adapter;
    let change = |adapter: &Adapter| {
        let merged = named_tensors(&model.merged(adapter));
        let plain = named_tensors(&model);
        let name = "model.layers.0.mlp.up_proj.weight";
        let pairs = merged[name].iter::<f64>().zip(plain[name].iter::<f64>());
        pairs.map(|(merged, plain)| merged - plain).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = change(&adapter).iter().map(|x| x * 3.0_f64.sqrt()).collect();
    assert_close(&change(&read), &expected, 1e-6 * largest(&expected));
}
