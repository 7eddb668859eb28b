//! Tests that sampling and training compute the same log-probabilities, bit for bit, for every kind of
//! model, although one reads pages of a cache in small batches and the other packed sequences.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use grpo_core::KlEstimator;
use grpo_data::{Prefix, Prompt};
use grpo_model::{
    Adapted, Adapter, LanguageModel, LoraConfig, ModelConfig, Policy, ProductPrecision,
    Transformer, WeightPrecision,
};
use grpo_molecules::MolGptConfig;
use grpo_train::{Grpo, GrpoConfig, Metrics, NextTokens, Parts, SamplerCheck, SamplingConfig};
use serde_json::{Value, json};

use crate::support::{
    SEED, chains, config, ids, molecules, parameters, parts, shaken, shaken_with, timeless,
};

/// Prompt lengths below and above that of a shared prompt, and around the size of a page.
const LENGTHS: [usize; 5] = [1, 3, 5, 16, 33];

/// Without any tolerance, a step fails if a single log-probability has another bit.
fn exact() -> GrpoConfig {
    let mut config = config();
    config.train.group_size = 5;
    config.train.micro_batch_tokens = 130;
    config.sampler_check = SamplerCheck { above: None, tolerance: 0.0 };
    config
}

fn truncated() -> SamplingConfig {
    SamplingConfig {
        temperature: 1.3,
        top_p: Some(0.95),
        repetition_penalty: Some(1.1),
        max_new_tokens: 20,
        batch_size: 7,
        ..SamplingConfig::default()
    }
}

pub(crate) fn prompts(vocabulary: usize) -> Vec<Prompt> {
    let id = |t: usize, index: u32| ((t * 7 + index as usize * 3 + 1) % vocabulary) as u32;
    let of = |(&length, index)| {
        Prompt::of_ids(index, (0..length).map(|t| id(t, index)).collect::<Vec<u32>>())
    };
    LENGTHS.iter().zip(0..).map(of).collect()
}

/// Takes two steps, the second one with weights that the first one has moved, in all precisions, and
/// with two ways of sampling. One of them is repeated with the activations of the rollout.
#[track_caller]
pub(crate) fn check(name: &str, policy: &Policy, prompts: &[Prompt]) {
    for precision in [ProductPrecision::F32, ProductPrecision::Bf16, ProductPrecision::F16] {
        let whole = SamplingConfig { max_new_tokens: 20, ..config().sampling };
        for (sampling, kl) in [(whole, KlEstimator::Exact), (truncated(), KlEstimator::K3)] {
            let mut config = GrpoConfig { sampling, ..exact() };
            config.loss.kl_estimator = Some(kl);
            // Other ways through the first pass of an update.
            config.train.activation_checkpointing = kl == KlEstimator::K3;
            config.train.updates_per_rollout = 2;
            let of =
                |reused: u64| take_steps(name, policy, prompts, config.clone(), precision, reused);
            let computed = of(0);
            if kl == KlEstimator::Exact {
                // This is not enough for all activations of the wide models.
                assert_eq!(of(1_000_000), computed, "{name}, {precision:?}");
            }
        }
    }
}

/// Returns all metrics, and the parameters at the end. At most `reused` bytes of activations are kept for
/// the tokens that are found; with 0, all of them are computed.
fn take_steps(
    name: &str,
    policy: &Policy,
    prompts: &[Prompt],
    mut config: GrpoConfig,
    precision: ProductPrecision,
    reused: u64,
) -> (Vec<Vec<(String, f64)>>, Vec<f32>) {
    config.train.precision = precision;
    config.train.prompts_per_step = prompts.len() as u32;
    let actions = Arc::new(NextTokens { end_ids: vec![0] });
    let parts = parts(actions, molecules(0.7), policy.clone(), chains());
    let parts = Parts { longest_prompt: 33, ..parts };
    let config_reuses = config.keeps_activations();
    let mut grpo = Grpo::new(parts, config, SEED).unwrap();
    grpo.learner().limit_reuse(reused);
    let mut metrics = Vec::new();
    for step in 0..2 {
        let report = grpo.step(prompts, step).unwrap_or_else(|error| {
            panic!("{name}, {precision:?}: {error}");
        });
        let tokens = &report.learned.updates[0].tokens;
        for (metric, expected) in [
            ("sampling/sampling_logp_difference/max", 0.0),
            ("sampling/raw_importance_sampling_ratio/min", 1.0),
            ("sampling/raw_importance_sampling_ratio/max", 1.0),
        ] {
            assert_eq!(tokens.metric(metric), Some(expected), "{name}, {precision:?}: {metric}");
        }
        // The first step computes everything, and so do sequences behind conditions.
        let is_reused =
            step > 0 && config_reuses && prompts.iter().all(|prompt| prompt.prefix.is_empty());
        let reused = if is_reused { 1.0 } else { 0.0 };
        assert_eq!(report.learned.reused, reused, "{name}, {precision:?}, step {step}");
        metrics.push(timeless(&Metrics::of(&report, 0)));
    }
    (metrics, parameters(grpo.policy()))
}

fn of_json(json: &Value) -> Transformer {
    shaken(ModelConfig::from_json(&json.to_string()).unwrap(), 2.0)
}

/// GPT-2 has a tied head. The MLP of the wider one adds more than 512 terms.
fn gpt2(width: usize, heads: usize, vocabulary: usize) -> Transformer {
    of_json(&json!({
        "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": 64, "n_embd": width,
        "n_layer": 2, "n_head": heads, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
    }))
}

/// Grouped queries, RMS norms and rotary positions.
fn qwen3(tied: bool) -> Transformer {
    of_json(&json!({
        "model_type": "qwen3", "vocab_size": 75, "max_position_embeddings": 64, "hidden_size": 40,
        "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 100.0, "head_dim": 20,
        "tie_word_embeddings": tied,
    }))
}

fn adapted(base: &Transformer) -> Policy {
    let config = LoraConfig { rank: 3, alpha: 6.0, dropout: 0.3, ..LoraConfig::default() };
    let adapter = Adapter::random(&config, base, 1, &Device::flex().autodiff()).unwrap();
    Policy::Adapted(Adapted::new(base, adapter))
}

#[test]
fn whole_models() {
    let molgpt = |vocabulary, heads, width| {
        shaken(MolGptConfig::new(vocabulary, 64, 2, heads, width).to_config().unwrap(), 2.0)
    };
    for (name, model) in [
        ("MolGPT", molgpt(30, 3, 18)),
        ("wide MolGPT", molgpt(300, 4, 160)),
        ("GPT-2", gpt2(24, 3, 31)),
        ("wide GPT-2", gpt2(160, 4, 2100)),
        ("Qwen3", qwen3(false)),
        ("Qwen3, tied", qwen3(true)),
    ] {
        let vocabulary = model.vocabulary_size();
        check(name, &Policy::Whole(model), &prompts(vocabulary));
    }
}

/// Windows that are shorter and longer than a page and than the prompts, factors, layers without
/// positions, and norms behind and around the sublayers.
#[test]
fn families_with_options_of_their_own() {
    let sizes = json!({
        "vocab_size": 75, "max_position_embeddings": 64, "hidden_size": 40, "intermediate_size": 72,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
    });
    for (family, options) in [
        ("mistral", json!({"sliding_window": 3})),
        (
            "ministral",
            json!({"sliding_window": 18, "layer_types": ["full_attention", "sliding_attention"]}),
        ),
        (
            "granite",
            json!({"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 2.0}),
        ),
        ("smollm3", json!({"no_rope_layers": [1, 0]})),
        ("olmo2", json!({})),
        ("olmo3", json!({"sliding_window": 7})),
        (
            "gemma3_text",
            json!({"sliding_window": 16, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20}),
        ),
    ] {
        let mut json = sizes.as_object().unwrap().clone();
        json.insert("model_type".to_owned(), family.into());
        json.extend(options.as_object().unwrap().clone());
        let model = of_json(&Value::Object(json));
        check(family, &Policy::Whole(model.clone()), &prompts(75));
        check(&format!("adapter of {family}"), &adapted(&model), &prompts(75));
    }
}

#[test]
fn adapters_on_bases_of_every_precision() {
    let base = qwen3(true);
    for precision in
        [WeightPrecision::F32, WeightPrecision::Bf16, WeightPrecision::Q8, WeightPrecision::Q4]
    {
        let base = base.valid().with_weights_in(precision);
        check(&format!("adapter, {precision}"), &adapted(&base), &prompts(75));
    }
}

/// DoRA, embeddings, the output layer, and modules that are trained in full.
#[test]
fn adapters_of_every_kind() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
    for (name, base, config) in [
        ("DoRA", qwen3(true), LoraConfig { dora: true, ..lora.clone() }),
        (
            "ends",
            qwen3(true),
            LoraConfig { targets: names(&["v_proj", "embed_tokens", "lm_head"]), ..lora.clone() },
        ),
        (
            "DoRA of the ends",
            gpt2(24, 3, 31),
            LoraConfig { dora: true, targets: names(&["c_fc", "wte", "lm_head"]), ..lora.clone() },
        ),
        (
            "saved",
            qwen3(true),
            LoraConfig {
                targets: names(&["q_proj"]),
                modules_to_save: names(&["embed_tokens", "norm", "down_proj"]),
                ..lora.clone()
            },
        ),
        (
            "saved head",
            gpt2(24, 3, 31),
            LoraConfig { modules_to_save: names(&["lm_head"]), ..lora },
        ),
    ] {
        let vocabulary = base.vocabulary_size();
        let device = Device::flex().autodiff();
        let adapter = Adapter::random(&config, &base, 1, &device).unwrap();
        check(name, &Policy::Adapted(Adapted::new(&base, adapter)), &prompts(vocabulary));
    }
}

#[test]
fn models_with_conditions() {
    for lstm in [false, true] {
        let mut sizes = MolGptConfig::new(30, 64, 2, 2, 16);
        (sizes.num_props, sizes.partial_props, sizes.scaffold) = (2, true, true);
        (sizes.lstm, sizes.lstm_layers) = (lstm, if lstm { 2 } else { 0 });
        let model = shaken_with(ids(), sizes.to_config().unwrap(), 2.0);
        let prefixes = [
            Prefix { ids: vec![5, 1, 9], values: vec![Some(1.0), None] },
            Prefix::default(),
            Prefix { ids: vec![], values: vec![Some(-0.5), Some(2.0)] },
            Prefix { ids: vec![7; 18], values: vec![] },
            Prefix { ids: vec![7], values: vec![Some(0.25), Some(0.25)] },
        ];
        let with = |(prompt, prefix)| Prompt { prefix, ..prompt };
        let prompts: Vec<Prompt> = prompts(30).into_iter().zip(prefixes).map(with).collect();
        check(&format!("conditions, LSTM {lstm}"), &Policy::Whole(model), &prompts);
    }
}
