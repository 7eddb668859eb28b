//! A model family that is registered from outside of its crate.

use burn::module::Module;
use burn::tensor::Device;
use grpo_data::Codec;
use grpo_model::{
    Adapted, Adapter, Description, Dropout, FamilyKind, LanguageModel, LayerAttention, LoraConfig,
    ModelConfig, ModelFolder, ModelFormats, ModelSpec, Policy, StoredAs, StoredTensors, TokenBatch,
    Transformer, weights_digest,
};

use crate::same_bits::{check, prompts};
use crate::support::shaken;

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/family.rs"]
mod example;

const IDS: [u32; 7] = [3, 1, 4, 1, 0, 2, 2];

#[test]
fn two_steps_with_a_family_from_outside() {
    let mut rewards = Vec::new();
    example::train(|metrics| {
        for (metric, expected) in [
            ("sampling/sampling_logp_difference/max", 0.0),
            ("sampling/raw_importance_sampling_ratio/min", 1.0),
        ] {
            assert_eq!(metrics.get(metric), Some(expected), "{metric}");
        }
        rewards.push(metrics.get("reward").unwrap());
    })
    .unwrap();
    assert_eq!(rewards.len(), 2);
}

/// In all precisions, with recomputed blocks, known activations and an adapter.
#[test]
fn its_log_probabilities_are_those_of_the_sampler() {
    let model = shaken(example::config().unwrap(), 2.0);
    check("squared", &Policy::Whole(model.clone()), &prompts(30));
    let lora = LoraConfig {
        rank: 3,
        alpha: 6.0,
        targets: vec!["qkv_proj".to_owned(), "down_proj".to_owned()],
        ..LoraConfig::default()
    };
    let adapter = Adapter::random(&lora, &model, 1, &Device::flex().autodiff()).unwrap();
    check("adapted", &Policy::Adapted(Adapted::new(&model, adapter)), &prompts(30));
}

fn hidden(model: &Transformer, rows: &[&[u32]]) -> Vec<f32> {
    let tokens = TokenBatch::from_iter(rows.iter().copied());
    model.hidden(&tokens, &mut Dropout::off()).into_data().iter::<f32>().collect()
}

/// Compares one layer with plain f64 loops.
#[test]
fn its_block_is_its_definition() {
    let config = example::config().unwrap();
    let mut json = config.json().clone();
    json.insert("num_hidden_layers".to_owned(), 1.into());
    let config = ModelConfig::new(&example::SQUARED, json).unwrap();
    let model = shaken(config, 2.0).valid();
    let tensors = StoredTensors::of(&model).read();
    let read = |name: &str| -> Vec<f64> { tensors[name].iter::<f64>().collect() };
    let linear = |x: &[f64], name: &str| -> Vec<f64> {
        let weight = read(&format!("model.layers.0.{name}.weight"));
        weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    };
    let norm = |x: &[f64], name: &str| -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = read(&format!("model.{name}.weight"));
        x.iter().zip(scale).map(|(x, scale)| scale * x / (mean + 1e-6).sqrt()).collect()
    };
    let plus = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
    // A single token attends to itself only, at position 0, so attention is its value.
    for id in 0..5_usize {
        let x = read("model.embed_tokens.weight")[16 * id..][..16].to_vec();
        let value = linear(&x, "self_attn.qkv_proj")[32..].to_vec();
        let attended = linear(&value, "self_attn.o_proj");
        let x = plus(&x, &norm(&attended, "layers.0.post_attention_layernorm"));
        let up: Vec<f64> = linear(&x, "mlp.up_proj").iter().map(|x| x.max(0.0).powi(2)).collect();
        let down = linear(&up, "mlp.down_proj");
        let x = plus(&x, &norm(&down, "layers.0.post_feedforward_layernorm"));
        let got = hidden(&model, &[&[id as u32]]);
        for (got, expected) in got.iter().zip(norm(&x, "norm")) {
            assert!((f64::from(*got) - expected).abs() < 1e-5, "{got}, expected {expected}");
        }
    }
}

#[test]
fn its_folders_are_read_where_it_is_registered() {
    let config = example::config().unwrap();
    let model = shaken(config.clone(), 2.0).valid();
    let folder = tempfile::tempdir().unwrap();
    let spec = ModelSpec { config, codec: Codec::of_ids(Default::default()) };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let mut formats = ModelFormats::default();
    let refused = ModelFolder::load(folder.path(), &formats, &Device::flex()).unwrap_err();
    let said = "unknown model family \"squared\"; supported model families: gpt2, llama";
    assert!(refused.to_string().contains(said), "{refused}");
    formats.families = formats.families.with([&example::SQUARED]);
    let read = ModelFolder::load(folder.path(), &formats, &Device::flex()).unwrap();
    assert_eq!(weights_digest(&read.model), weights_digest(&model));
    assert_eq!(read.spec.config, spec.config);
}

/// The same family without any positions.
static UNROTATED: FamilyKind = FamilyKind::new("unrotated", example::SQUARED.names, |fields| {
    let squared = (example::SQUARED.describe)(fields)?;
    let layer_attention = vec![LayerAttention::with_rotation(false); squared.layers];
    Ok(Description { layer_attention, ..squared })
});

/// Without positions, a token in the first layer cannot tell in which order the others precede it.
#[test]
fn layers_without_positions_do_not_know_the_order() {
    let swapped: Vec<u32> = [&IDS[1..2], &IDS[..1], &IDS[2..]].concat();
    for (family, depends) in [(&example::SQUARED, true), (&UNROTATED, false)] {
        let mut json = example::config().unwrap().json().clone();
        json.insert("num_hidden_layers".to_owned(), 1.into());
        json.insert("model_type".to_owned(), family.name.into());
        let model = shaken(ModelConfig::new(family, json).unwrap(), 2.0).valid();
        let [one, other] = [&IDS[..], &swapped].map(|ids| hidden(&model, &[ids]));
        let apart = one[6 * 16..].iter().zip(&other[6 * 16..]);
        let apart = apart.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(apart > 1e-4, depends, "{}: {apart}", family.name);
        // Packed together, neither sees the other.
        assert_eq!(hidden(&model, &[&IDS, &swapped]), [one, other].concat());
    }
}
