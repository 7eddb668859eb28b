//! Models, settings and prompts that are shared by several tests.

use burn::tensor::Device;
use grpo_data::{Codec, Completion, Group, Prompt, Purpose};
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::{
    Frozen, ModelConfig, ModelFolder, ModelFormats, ModelSpec, StoredAs, Transformer,
    WeightPrecision,
};
use grpo_rollout::{Autoregressive, Engine, RolloutSettings, StepKey};
use serde_json::{Value, json};

use crate::other_family::OTHER;

pub(crate) const VOCABULARY: usize = 12;
pub(crate) const CONTEXT: usize = 20;
pub(crate) const END: u32 = 0;
pub(crate) const KEY: StepKey =
    StepKey { seed: 7, purpose: Purpose::SAMPLING, step: 3, policy_version: 5 };

/// Returns the configuration of a model of [`OTHER`]. It takes tokens and two values if `num_props`
/// is 2.
pub(crate) fn other(sizes: Value) -> ModelConfig {
    let Value::Object(mut json) = sizes else { panic!("an object") };
    json.insert("model_type".to_owned(), OTHER.name.into());
    ModelConfig::new(&OTHER, json).unwrap()
}

/// Creates a small model whose probabilities are far from uniform.
pub(crate) fn model() -> Transformer {
    scaled(2.0)
}

/// Creates a model whose initial weights are scaled by `scale` and then perturbed.
pub(crate) fn scaled(scale: f32) -> Transformer {
    let config = other(json!({
        "vocab_size": VOCABULARY, "block_size": CONTEXT, "n_layer": 2, "n_head": 2, "n_embd": 16,
    }));
    shaken(config, scale, 0.4, WeightPrecision::F32)
}

/// Creates a model whose initial weights are scaled by `scale` and perturbed by up to `shake / 2`.
pub(crate) fn shaken(
    config: ModelConfig,
    scale: f32,
    shake: f32,
    precision: WeightPrecision,
) -> Transformer {
    let device = Device::flex();
    let folder = tempfile::tempdir().unwrap();
    let model = Transformer::random(&config, 1, &device).unwrap();
    let formats = ModelFormats { families: config.family().into(), ..ModelFormats::default() };
    let spec = ModelSpec { config, codec: Codec::of_ids(Default::default()) };
    spec.write(folder.path(), &model, StoredAs::F32).unwrap();
    let path = folder.path().join("model.safetensors");
    let mut file = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    for (number, away) in file[header..].chunks_exact_mut(4).zip(shakes()) {
        let value = f32::from_le_bytes((&*number).try_into().unwrap());
        number.copy_from_slice(&(scale * value + shake * away).to_le_bytes());
    }
    std::fs::write(&path, file).unwrap();
    ModelFolder::load_in(folder.path(), &formats, precision, &device).unwrap().model
}

/// Returns numbers between −½ and ½.
pub(crate) fn shakes() -> impl Iterator<Item = f32> {
    (0_u32..).map(|i| (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0 - 0.5)
}

pub(crate) fn forbidding(forbidden: &[u32]) -> SamplingSettings {
    SamplingSettings { forbidden: forbidden.to_vec(), ..SamplingSettings::default() }
}

pub(crate) fn distribution(settings: &SamplingSettings) -> SamplingDistribution {
    settings.clone().checked(VOCABULARY).unwrap()
}

/// Settings that truncate or rescale the distribution.
pub(crate) fn bent() -> [SamplingSettings; 4] {
    let plain = SamplingSettings::default;
    [
        SamplingSettings { top_p: Some(0.8), ..plain() },
        SamplingSettings { min_p: Some(0.2), ..plain() },
        SamplingSettings { repetition_penalty: Some(1.6), ..plain() },
        SamplingSettings {
            temperature: 1.4,
            top_k: Some(9),
            top_p: Some(0.95),
            min_p: Some(0.05),
            repetition_penalty: Some(1.2),
            forbidden: vec![3],
        },
    ]
}

pub(crate) fn settings() -> RolloutSettings {
    RolloutSettings {
        group_size: 9,
        max_new_tokens: 12,
        end_ids: vec![END],
        distribution: distribution(&SamplingSettings::default()),
        batch_size: 64,
    }
}

pub(crate) fn prompt(index: u32, ids: &[u32]) -> Prompt {
    Prompt::of_ids(index, ids.to_vec())
}

/// Prompts of different lengths, some of which have the same length as their neighbour.
pub(crate) fn prompts() -> Vec<Prompt> {
    let ids: [&[u32]; 6] = [&[0], &[0], &[0, 3], &[0, 5, 7, 2], &[0], &[0, 2, 1]];
    ids.iter().zip(0..).map(|(ids, index)| prompt(index, ids)).collect()
}

pub(crate) fn sample(settings: RolloutSettings, prompts: &[Prompt], key: StepKey) -> Vec<Group> {
    let model = model();
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap();
    let rollout = Autoregressive::new(settings, &model, longest).unwrap();
    rollout.sample(&Frozen::snapshot(&model), prompts, key).unwrap()
}

pub(crate) fn completions(groups: &[Group]) -> impl Iterator<Item = &Completion> {
    groups.iter().flat_map(Group::completions)
}

pub(crate) fn all_ids(groups: &[Group]) -> Vec<&[u32]> {
    completions(groups).map(Completion::ids).collect()
}

/// Runs `f` in a thread pool with this number of threads.
pub(crate) fn in_pool<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(f)
}
