//! The infiller: comparison with plain f64 loops, visibility of tokens, the critic, initial values,
//! and model files.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use grpo_data::{Codec, TextCodec};
use grpo_infill::{Characters, InfillerConfig, formats};
use grpo_model::{
    Adapter, Dropout, Forward, LanguageModel, LoraConfig, ModelFolder, ModelSpec, Policy, StoredAs,
    TokenBatch, Transformer, linear_weights, parameters, weights_digest,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::configs::{config, with};
use crate::oracle::Oracle;
use crate::sizes::{characters, infiller};
use crate::support::{
    IDS, IntoGradients, assert_close, check_gradients, device, host, largest, logits,
    named_tensors, shaken, shakes, weights,
};

const ROWS: [&[u32]; 3] = [&[3, 18, 0, 7, 7], &[11], &[16, 5, 9, 1]];

fn critic(model: &Transformer, batch: &TokenBatch) -> Vec<f64> {
    host(model.critic(model.hidden(batch, &mut Dropout::off())).unwrap())
}

fn check_definition(json: &Value, seed: u64) {
    let config = config(json);
    let model = shaken(&config, seed, &device());
    let oracle = Oracle::of(&config, &model);
    let vocabulary = config.description().vocabulary as u32;
    let ids: Vec<u32> = IDS.iter().map(|id| id % vocabulary).collect();
    let rows: [&[u32]; 3] = [&ids, &ids[4..5], &ids[2..8]];
    let batch = TokenBatch::from_iter(rows);
    let expected: Vec<f64> = rows.iter().flat_map(|row| oracle.logits(row)).collect();
    assert_close(&logits(&model, &batch), &expected, 2e-5 * largest(&expected));
    if config.description().critic {
        let expected: Vec<f64> = rows.iter().flat_map(|row| oracle.critic(row)).collect();
        assert_close(&critic(&model, &batch), &expected, 2e-5 * largest(&expected).max(1.0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_small_infiller_is_its_definition(
        layers in 1..=3_usize, heads in 1..=3_usize, half in 1..=5_usize, vocabulary in 4..=23_usize,
        theta in 20.0..20_000.0_f64, critic: bool, seed in 0..1000_u64,
    ) {
        let sizes = json!({
            "vocab_size": vocabulary, "n_layer": layers, "n_head": heads, "n_embd": heads * 2 * half,
            "rope_theta": theta, "critic": critic,
        });
        check_definition(&with(infiller(), sizes), seed);
    }
}

/// In a causal model, the first character would not see later ones.
#[test]
fn the_first_character_sees_the_last() {
    let model = shaken(&config(&infiller()), 1, &device());
    let of = |ids: &[u32]| logits(&model, &TokenBatch::from_iter([ids]))[..19].to_vec();
    let (one, other) = (of(&[3, 18, 0, 7]), of(&[3, 18, 0, 8]));
    let apart: Vec<f64> = one.iter().zip(&other).map(|(a, b)| a - b).collect();
    assert!(largest(&apart) > 1e-2 * largest(&one), "{apart:?}");
}

/// Equal characters at different positions have different hidden states.
#[test]
fn characters_know_their_places() {
    let model = shaken(&config(&infiller()), 1, &device());
    let of = |ids: &[u32]| logits(&model, &TokenBatch::from_iter([ids]));
    let (one, other) = (of(&[3, 18, 0, 7]), of(&[3, 0, 18, 7]));
    let apart: Vec<f64> = one[..19].iter().zip(&other[..19]).map(|(a, b)| a - b).collect();
    assert!(largest(&apart) > 1e-3 * largest(&one), "{apart:?}");
}

/// The loss is `Σ w · logits + Σ w' · critic`. Both terms are also tested separately, so that
/// neither can mask an error in the other.
#[test]
fn gradients_are_those_of_the_definition() {
    let config = config(&infiller());
    let policy = Policy::Whole(shaken(&config, 1, &device().autodiff()));
    let model = policy.parts().0;
    let batch = TokenBatch::from_iter(ROWS);
    let (tokens, vocabulary) = (batch.tokens(), 19);
    let of_logits: Vec<f32> = shakes("logits").take(tokens * vocabulary).collect();
    let of_critic: Vec<f32> = shakes("critic").take(tokens).collect();
    for checkpointing in [false, true] {
        let forward: Forward<Policy> = policy.forward(&batch, &mut Dropout::off(), checkpointing);
        let weight = |values: &[f32]| {
            let values = TensorData::new(values.to_vec(), [values.len()]);
            Tensor::<1>::from_inner(Tensor::from_data(values, &device()))
        };
        let hidden = forward.hidden.clone();
        let logits = policy.logits(hidden.clone()).reshape([tokens * vocabulary]);
        let critic = model.critic(hidden).unwrap();
        let loss = (logits * weight(&of_logits)).sum() + (critic * weight(&of_critic)).sum();
        let gradients = policy.clone().map(&mut IntoGradients(forward.backward(loss, &policy)));
        let of = |numbers: &std::collections::BTreeMap<String, Vec<f64>>| -> f64 {
            let oracle = Oracle::of_numbers(&config, numbers.clone());
            let sum = |values: Vec<f64>, weights: &[f32]| -> f64 {
                values.iter().zip(weights).map(|(v, &w)| v * f64::from(w)).sum()
            };
            let logits = ROWS.iter().flat_map(|row| oracle.logits(row)).collect();
            let critic = ROWS.iter().flat_map(|row| oracle.critic(row)).collect();
            sum(logits, &of_logits) + sum(critic, &of_critic)
        };
        check_gradients(&weights(gradients.parts().0), &Oracle::of(&config, model).tensors, of);
    }
}

#[test]
fn a_model_without_a_critic_has_none() {
    let json = with(infiller(), json!({"critic": false}));
    let model = shaken(&config(&json), 1, &device());
    let hidden = model.hidden(&TokenBatch::from_iter(ROWS), &mut Dropout::off());
    assert!(model.critic(hidden).is_none());
}

/// The critic of an adapted base gets no gradient, but still works with autodiff.
#[test]
fn an_adapter_leaves_the_critic_alone() {
    let with_autodiff = device().autodiff();
    let base = shaken(&config(&infiller()), 1, &device());
    let lora = LoraConfig { rank: 2, alpha: 2.0, ..LoraConfig::default() };
    let adapter = Adapter::random(&lora, &base, 1, &with_autodiff).unwrap();
    let policy = Policy::Adapted(grpo_model::Adapted::new(&base, adapter));
    let batch = TokenBatch::from_iter(ROWS);
    let hidden = policy.hidden(&batch, &mut Dropout::off());
    assert!(hidden.is_autodiff());
    // A new adapter has no effect.
    assert_eq!(host(policy.logits(hidden.clone())), logits(&base, &batch));
    let on_tape = policy.parts().0.critic(hidden).unwrap();
    assert!(on_tape.is_autodiff());
    assert_eq!(host(on_tape), critic(&base, &batch));
    let trained = parameters(&policy);
    assert!(trained.iter().all(|parameter| parameter.path.contains("adapter")), "{:?}", {
        trained.iter().map(|parameter| &parameter.path).collect::<Vec<_>>()
    });
    // A pair for each of the six linear layers in each block.
    assert_eq!(trained.len(), 2 * 2 * 6);
}

#[test]
fn layers_that_add_to_the_residual_stream_begin_smaller() {
    let sizes = InfillerConfig { critic: true, ..InfillerConfig::new(70, 64, 8, 4, 64) };
    for config in [sizes.infiller(), sizes.sequence_scorer()] {
        let model = Transformer::random(&config.unwrap(), 1, &device()).unwrap();
        let tensors = named_tensors(&model);
        let deviation = |name: &str| {
            let values: Vec<f64> = tensors[name].iter::<f64>().collect();
            let n = values.len() as f64;
            ((values.iter().map(|w| w * w).sum::<f64>() / n).sqrt(), 5.0 / (2.0 * n).sqrt())
        };
        let small = 0.02 / 16_f64.sqrt();
        for (name, expected) in [
            ("tok_emb.weight", 0.02),
            ("blocks.7.attn.query.weight", 0.02),
            ("blocks.0.mlp.up.weight", 0.02),
            ("blocks.0.attn.proj.weight", small),
            ("blocks.7.mlp.down.weight", small),
        ] {
            let (found, tolerance) = deviation(name);
            assert!((found / expected - 1.0).abs() < tolerance, "{name}: {found}, not {expected}");
        }
    }
}

#[test]
fn stored_names_are_those_of_the_family() {
    let config = config(&with(infiller(), json!({"n_layer": 1})));
    let model = Transformer::random(&config, 0, &device()).unwrap();
    let listed: Vec<String> = named_tensors(&model)
        .iter()
        .map(|(name, data)| format!("{name} {:?}", data.shape().to_vec()))
        .collect();
    let expected = "\
blocks.0.attn.key.bias [24]
blocks.0.attn.key.weight [24, 24]
blocks.0.attn.proj.bias [24]
blocks.0.attn.proj.weight [24, 24]
blocks.0.attn.query.bias [24]
blocks.0.attn.query.weight [24, 24]
blocks.0.attn.value.bias [24]
blocks.0.attn.value.weight [24, 24]
blocks.0.ln1.bias [24]
blocks.0.ln1.weight [24]
blocks.0.ln2.bias [24]
blocks.0.ln2.weight [24]
blocks.0.mlp.down.bias [24]
blocks.0.mlp.down.weight [24, 96]
blocks.0.mlp.up.bias [96]
blocks.0.mlp.up.weight [96, 24]
critic.bias [1]
critic.weight [1, 24]
ln_f.bias [24]
ln_f.weight [24]
tok_emb.weight [19, 24]";
    assert_eq!(listed.join("\n"), expected);
    // Six matrices in the block, and the critic. The head is the embedding table, which has no
    // weight decay.
    assert_eq!(linear_weights(&model).len(), 7);
}

#[test]
fn an_infiller_survives_the_way_out_and_in() {
    let device = device().autodiff();
    let config = config(&infiller());
    let model = shaken(&config, 3, &device);
    let folder = tempfile::tempdir().unwrap();
    let codec = Codec::from_text_codec(characters(&config));
    let spec = ModelSpec { config, codec };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let again = ModelFolder::load(folder.path(), &formats(), &device).unwrap();
    assert_eq!(again.spec.config, spec.config);
    assert_eq!(again.spec.codec.own::<Characters>(), spec.codec.own::<Characters>());
    assert_eq!(weights_digest(&again.model), weights_digest(&model));
    assert_eq!(InfillerConfig::of(&again.spec.config).unwrap().rope_theta, 50.0);
}

#[test]
fn a_folder_without_its_characters_is_refused() {
    let config = config(&infiller());
    let model = shaken(&config, 3, &device());
    let folder = tempfile::tempdir().unwrap();
    let codec = Codec::from_text_codec(characters(&config));
    ModelSpec { config, codec }.write(folder.path(), &model, StoredAs::F32).unwrap();
    let refusal =
        || ModelFolder::load(folder.path(), &formats(), &device()).unwrap_err().to_string();
    let list = folder.path().join("characters.json");
    let fewer = grpo_infill::Characters::from_texts(["abc"]).unwrap();
    std::fs::write(&list, fewer.to_json()).unwrap();
    assert!(
        refusal().ends_with("characters.json has 6 tokens, but config.json has vocab_size = 19; they belong to different models")
    );
    let others = grpo_infill::Characters::from_texts(["ABCDEFGHIJKLMNOP"]).unwrap();
    std::fs::write(&list, others.to_json()).unwrap();
    assert!(refusal().contains("was trained with a different vocabulary than characters.json"));
    std::fs::remove_file(&list).unwrap();
    assert!(refusal().contains("is missing characters.json"), "{}", refusal());
}
