//! Tests that completions, log-probabilities and kept sets are bit-for-bit identical for batch
//! sizes of 1, 7 and 64 and for 1, 2 and 3 threads. Samples slightly over 100,000 tokens from
//! various small models, and some from models that are wide enough for matrix products, attention
//! and activations to be split between threads.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::{Completion, Finish, SampleKey, SampledUnder};
use grpo_logprob::SamplingSettings;
use grpo_model::{
    Adapted, Adapter, Frozen, LanguageModel, LoraConfig, ModelConfig, Policy, Transformer,
    WeightPrecision,
};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings};
use serde_json::{Value, json};

use crate::support::{END, KEY, completions, in_pool, other, prompt, shaken, shakes};

/// Prompt lengths around the cache page size: one token, just under a page, one page, just over a
/// page, and more than two pages.
const LENGTHS: [usize; 8] = [1, 1, 40, 15, 16, 3, 17, 33];

/// What to sample from a model.
struct Sampled {
    group_size: usize,
    max_new_tokens: usize,
    sampling: SamplingSettings,
}

fn plain(group_size: usize, max_new_tokens: usize) -> Sampled {
    Sampled { group_size, max_new_tokens, sampling: SamplingSettings::default() }
}

fn truncated(group_size: usize, max_new_tokens: usize) -> Sampled {
    let sampling = SamplingSettings {
        temperature: 1.2,
        top_p: Some(0.97),
        repetition_penalty: Some(1.1),
        ..SamplingSettings::default()
    };
    Sampled { group_size, max_new_tokens, sampling }
}

/// A completion without its policy version. Log-probabilities are compared as bits.
#[derive(Debug, PartialEq)]
struct Exactly {
    key: SampleKey,
    finish: Finish,
    ids: Vec<u32>,
    logprobs: Vec<u32>,
    under: SampledUnder,
}

impl From<&Completion> for Exactly {
    fn from(completion: &Completion) -> Self {
        Self {
            key: completion.key(),
            finish: completion.finish(),
            ids: completion.ids().to_vec(),
            logprobs: completion.sampling_logprobs().unwrap().iter().map(|l| l.to_bits()).collect(),
            under: completion.sampled_under().clone(),
        }
    }
}

/// Samples with all batch sizes and numbers of threads. Returns the number of tokens sampled with
/// each.
#[track_caller]
fn check(policy: &Policy, what: &Sampled) -> usize {
    let vocabulary = policy.vocabulary_size();
    let prompts: Vec<_> = LENGTHS
        .iter()
        .zip(0_u32..)
        .map(|(&length, index)| {
            let id = |t: u32| (t * 7 + index * 3 + 1) % vocabulary as u32;
            prompt(index, &(0..length as u32).map(id).collect::<Vec<u32>>())
        })
        .collect();
    let frozen = Frozen::snapshot(policy);
    let of = |batch_size, threads| -> Vec<Exactly> {
        let settings = RolloutSettings {
            group_size: what.group_size,
            max_new_tokens: what.max_new_tokens,
            end_ids: vec![END],
            distribution: what.sampling.clone().checked(vocabulary).unwrap(),
            batch_size,
        };
        let rollout = Autoregressive::new(settings, policy, 40).unwrap();
        let groups = in_pool(threads, || rollout.sample(&frozen, &prompts, KEY)).unwrap();
        completions(&groups).map(Exactly::from).collect()
    };
    let expected = of(1, 1);
    for (batch_size, threads) in [(7, 1), (64, 1), (1, 2), (7, 2), (64, 2), (64, 3)] {
        let got = of(batch_size, threads);
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got, expected, "batches of {batch_size} with {threads} threads");
        }
    }
    expected.iter().map(|completion| completion.logprobs.len()).sum()
}

fn with_own_head(vocabulary: usize, width: usize, heads: usize) -> Transformer {
    let config = other(json!({
        "vocab_size": vocabulary, "block_size": 96, "n_layer": 2, "n_head": heads, "n_embd": width,
    }));
    shaken(config, 2.0, 0.4, WeightPrecision::F32)
}

fn of_json(json: &Value, precision: WeightPrecision) -> Policy {
    let config = ModelConfig::from_json(&json.to_string()).unwrap();
    Policy::Whole(shaken(config, 2.0, 0.4, precision))
}

fn llama(width: usize, heads: usize, inner: usize, vocabulary: usize) -> Value {
    json!({
        "model_type": "llama", "vocab_size": vocabulary, "max_position_embeddings": 96,
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 2,
        "num_attention_heads": heads, "num_key_value_heads": heads / 2, "rms_norm_eps": 1e-5,
        "rope_theta": 100.0,
    })
}

fn gpt2(width: usize, heads: usize, vocabulary: usize) -> Value {
    json!({
        "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": 96, "n_embd": width,
        "n_layer": 2, "n_head": heads, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
    })
}

/// Adds an adapter to `model` in which no matrix is 0.
fn adapted(model: &Transformer, rank: usize) -> Policy {
    struct Shake<I>(I);
    impl<I: Iterator<Item = f32>> ModuleMapper for Shake<I> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|value| {
                let shape = value.dims();
                let away: Vec<f32> = self.0.by_ref().take(value.shape().num_elements()).collect();
                let away = Tensor::from_data(TensorData::new(away, shape), &value.device());
                value + away * 0.4
            })
        }
    }
    let config = LoraConfig { rank, alpha: 8.0, dropout: 0.3, ..LoraConfig::default() };
    let adapter = Adapter::random(&config, model, 1, &Device::flex()).unwrap();
    Policy::Adapted(Adapted::new(model, adapter.map(&mut Shake(shakes()))))
}

#[test]
fn a_hundred_thousand_tokens_of_small_models() {
    let qwen3 = json!({
        "model_type": "qwen3", "vocab_size": 29, "max_position_embeddings": 96, "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 100.0, "head_dim": 10,
    });
    let small = with_own_head(30, 18, 3);
    let models = [
        (Policy::Whole(small.clone()), plain(88, 40)),
        (adapted(&small, 2), truncated(88, 40)),
        (of_json(&gpt2(24, 3, 31), WeightPrecision::F32), plain(88, 40)),
        (of_json(&llama(24, 4, 40, 29), WeightPrecision::F32), plain(88, 40)),
        (of_json(&qwen3, WeightPrecision::F32), truncated(88, 40)),
        (of_json(&llama(24, 4, 40, 29), WeightPrecision::Bf16), plain(88, 40)),
    ];
    let counts: Vec<usize> = models.iter().map(|(policy, what)| check(policy, what)).collect();
    assert!(counts.iter().sum::<usize>() >= 100_000, "{counts:?}");
}

/// Wide enough that products of 160 × 640 and 640 × 160 and a head with 300 columns are split into
/// panels, with partial sums of 128 terms. Activations of 64 · 640 numbers are split into chunks,
/// and attention of 64 · 4 heads into tasks.
#[test]
fn models_so_wide_that_work_is_cut() {
    let wide = with_own_head(300, 160, 4);
    check(&Policy::Whole(wide.clone()), &plain(9, 12));
    check(&adapted(&wide, 8), &plain(9, 12));
    check(&of_json(&llama(160, 4, 424, 300), WeightPrecision::Bf16), &truncated(9, 12));
}

/// Too many weights for one engine per thread, so all threads work on the same pass. The head is
/// the transposed token embedding.
#[test]
fn a_model_that_one_engine_samples_with_all_threads() {
    let policy = of_json(&gpt2(160, 4, 53_000), WeightPrecision::F32);
    assert!(policy.parameters() > 8 << 20);
    check(&policy, &plain(9, 3));
}
