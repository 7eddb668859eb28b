//! Molecules out of a model, as text.

use std::path::Path;

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{Completion, Purpose, Vocabulary};
use grpo_model::{CausalLm, Frozen, ModelFolder};
use grpo_rollout::{Rollout, RolloutSettings, StepKey};
use grpo_sampling::SamplingSettings;
use grpo_train::unconditional_prompts;

/// Reads a model folder; one that has a manifest (a checkpoint) is checked against it first.
pub(crate) fn load_model(path: &Path, device: &Device) -> anyhow::Result<ModelFolder> {
    anyhow::ensure!(
        path.is_dir(),
        "there is no model folder {}; a model folder holds config.json, vocabulary.json and model.safetensors",
        path.display()
    );
    if path.join("manifest.json").exists() {
        grpo_run::verify(path)?;
    }
    Ok(ModelFolder::load(path, device)?)
}

/// How molecules are drawn outside of training.
pub(crate) struct Generation {
    pub(crate) seed: u64,
    pub(crate) sampling: SamplingSettings,
    pub(crate) max_new_tokens: usize,
    pub(crate) batch_size: usize,
}

/// Draws `number` molecules. Equal seeds give equal random numbers to each of them, whatever the model.
pub(crate) fn generate<M: CausalLm>(
    model: &M,
    vocabulary: &Vocabulary,
    number: u32,
    generation: &Generation,
) -> anyhow::Result<Vec<String>> {
    let distribution = generation.sampling.clone().checked(model.vocabulary_size())?;
    let settings = RolloutSettings {
        group_size: 1,
        max_new_tokens: generation.max_new_tokens,
        end_ids: vec![vocabulary.boundary()],
        distribution,
        batch_size: generation.batch_size,
    };
    let rollout = Rollout::new(settings, model, 1).context("sampling")?;
    let key =
        StepKey { seed: generation.seed, purpose: Purpose::Evaluation, step: 0, policy_version: 0 };
    let prompts = unconditional_prompts(number, vocabulary.boundary());
    let groups = rollout.sample(&Frozen::snapshot(model), &prompts, key)?;
    let completions = groups.iter().flat_map(|group| &group.completions);
    Ok(completions.map(|completion| text(vocabulary, completion)).collect())
}

fn text(vocabulary: &Vocabulary, completion: &Completion) -> String {
    vocabulary.decode(&completion.action_ids().collect::<Vec<u32>>())
}
