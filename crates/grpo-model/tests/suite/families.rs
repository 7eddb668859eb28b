//! Compares every model family with plain f64 loops.

use grpo_model::{Dropout, LanguageModel, Policy, SentenceEncoder, TokenBatch};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::configs::{bert, config, gpt2, llama, qwen2, qwen3, rotations, with};
use crate::oracle::{Oracle, WEIGHTS};
use crate::support::{IDS, assert_close, attention, device, host, largest, logits, shaken};

/// Compares the logits (or, for encoders, the hidden states) of a single sequence.
#[track_caller]
fn check(json: &Value, seed: u64) {
    let config = config(json);
    let model = shaken(&config, seed, &device());
    let oracle = Oracle::of(&config, &model);
    let vocabulary = config.description().vocabulary as u32;
    let ids: Vec<u32> = IDS.iter().map(|id| id % vocabulary).collect();
    let batch = TokenBatch::from_iter([ids.as_slice()]);
    let (got, expected) = if config.description().causal {
        (logits(&model, &batch), oracle.logits(&ids))
    } else {
        let mean = SentenceEncoder::new(model).unwrap().mean_pooled(&batch);
        let states = oracle.hidden(&ids);
        let of = |i: usize| states.iter().map(|x| x[i]).sum::<f64>() / states.len() as f64;
        (host(mean), (0..states[0].len()).map(of).collect())
    };
    assert_close(&got, &expected, 2e-5 * largest(&expected));
}

#[test]
fn llama_is_its_definition() {
    check(&llama(), 1);
    check(&with(llama(), json!({"attention_bias": true, "mlp_bias": true})), 2);
    check(&with(llama(), json!({"tie_word_embeddings": true, "head_dim": 14})), 3);
    check(&with(llama(), json!({"num_key_value_heads": 1})), 4);
    check(&with(llama(), json!({"num_key_value_heads": 4, "num_hidden_layers": 3})), 5);
}

#[test]
fn qwen_is_its_definition() {
    check(&qwen2(), 1);
    check(&with(qwen2(), json!({"tie_word_embeddings": false})), 2);
    check(&qwen3(), 3);
    check(&with(qwen3(), json!({"tie_word_embeddings": true, "attention_bias": true})), 4);
}

#[test]
fn gpt2_is_its_definition() {
    check(&gpt2(), 1);
    check(&with(gpt2(), json!({"tie_word_embeddings": false, "n_inner": 50})), 2);
    check(&with(gpt2(), json!({"activation_function": "gelu"})), 3);
}

#[test]
fn bert_is_its_definition() {
    check(&bert(), 1);
    check(&with(bert(), json!({"hidden_act": "gelu_new", "type_vocab_size": 1})), 2);
}

#[test]
fn rotary_positions_are_their_definitions() {
    for rope in rotations() {
        check(&with(llama(), json!({"rope_parameters": rope})), 1);
        check(&with(qwen3(), json!({"rope_parameters": rope})), 2);
    }
}

/// All variants give different logits, so a mix-up would be detected.
#[test]
fn rotary_positions_differ() {
    let of = |rope: &Value| {
        let config = config(&with(llama(), json!({"rope_parameters": rope})));
        logits(&shaken(&config, 1, &device()), &TokenBatch::from_iter([IDS.as_slice()]))
    };
    let all = rotations().map(|rope| of(&rope));
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            assert!(largest(&apart) > 1e-2 * largest(a));
        }
    }
}

/// Dropout applies after the embeddings, to the attention weights, and to both branches of a block.
#[test]
fn dropout_is_in_its_places() {
    let config = config(&llama());
    let model = shaken(&config, 1, &device());
    let batch = TokenBatch::from_iter([IDS.as_slice()]);
    let dropout = || Dropout::new(7, 3, 0.3);
    let got = host(model.logits(model.hidden(&batch, &mut dropout())));
    let expected = Oracle::of(&config, &model).dropping(dropout()).logits(&IDS);
    assert_close(&got, &expected, 2e-5 * largest(&expected));
}

#[test]
fn attention_weights_are_those_of_the_definition() {
    for json in [gpt2(), qwen3()] {
        let config = config(&json);
        let model = shaken(&config, 3, &device());
        let ids = &IDS[..7];
        WEIGHTS.with_borrow_mut(Vec::clear);
        Oracle::of(&config, &model).hidden(ids);
        assert_close(&attention(&model, ids), &WEIGHTS.take(), 2e-6);
    }
}

#[test]
fn a_whole_policy_is_its_model() {
    let model = shaken(&config(&qwen3()), 1, &device());
    let batch = TokenBatch::from_iter([IDS.as_slice()]);
    let policy = Policy::Whole(model.clone());
    let got = host(policy.logits(policy.hidden(&batch, &mut Dropout::off())));
    assert_eq!(got, logits(&model, &batch));
    assert_eq!(policy.vocabulary_size(), 19);
    assert_eq!(policy.context_length(), 64);
}

fn any_config() -> impl Strategy<Value = Value> {
    let sizes = (1..=3_usize, 1..=3_usize, 1..=3_usize, 1..=5_usize, 5..=23_usize);
    (0..5_usize, sizes, any::<[bool; 3]>(), 0..rotations().len()).prop_map(
        |(family, (layers, kv_heads, group, half, vocabulary), [tied, bias, tanh], rope)| {
            let heads = kv_heads * group;
            let width = heads * 2 * half;
            let rotary = json!({
                "vocab_size": vocabulary, "hidden_size": width, "num_hidden_layers": layers,
                "intermediate_size": 3 * half + 7, "num_attention_heads": heads,
                "num_key_value_heads": kv_heads, "head_dim": 2 * half, "attention_bias": bias,
                "mlp_bias": bias, "tie_word_embeddings": tied, "rope_parameters": rotations()[rope],
            });
            match family {
                0 => with(llama(), rotary),
                1 => with(qwen2(), rotary),
                2 => with(qwen3(), rotary),
                3 => with(
                    gpt2(),
                    json!({
                        "vocab_size": vocabulary, "n_embd": width, "n_head": heads, "n_layer": layers,
                        "tie_word_embeddings": tied,
                        "activation_function": if tanh { "gelu_pytorch_tanh" } else { "gelu" },
                    }),
                ),
                _ => with(
                    bert(),
                    json!({
                        "vocab_size": vocabulary, "hidden_size": width, "num_attention_heads": heads,
                        "num_hidden_layers": layers, "intermediate_size": 3 * half + 7,
                    }),
                ),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_small_model_is_its_definition(json in any_config(), seed in 0..1000_u64) {
        check(&json, seed);
    }
}
