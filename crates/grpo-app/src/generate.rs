//! Completions out of a model.

use std::sync::Arc;

use anyhow::Context;
use grpo_data::{Codec, Group, Prompt, Purpose};
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Decode, Rollout, RolloutSettings, StepKey};
use grpo_sampling::SamplingSettings;
use grpo_train::Actions;

/// How completions are drawn outside of training.
pub(crate) struct Generation {
    pub(crate) seed: u64,
    pub(crate) sampling: SamplingSettings,
    pub(crate) max_new_tokens: usize,
    /// Strings that end a completion.
    pub(crate) stop: Vec<String>,
    pub(crate) batch_size: usize,
}

/// Draws `number` completions of each prompt. Equal seeds give equal random numbers to each of them, whatever the
/// model.
pub(crate) fn generate<M: LanguageModel>(
    model: &M,
    codec: &Codec,
    prompts: &[Prompt],
    number: u32,
    generation: &Generation,
) -> anyhow::Result<Vec<Group>> {
    let distribution = generation.sampling.clone().checked(model.vocabulary_size())?;
    let settings = RolloutSettings {
        group_size: number as usize,
        max_new_tokens: generation.max_new_tokens,
        end_ids: codec.end_ids().to_vec(),
        distribution,
        batch_size: generation.batch_size,
    };
    let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
    let rollout = Rollout::new(settings, model, longest)
        .and_then(|rollout| rollout.stopping_at(&generation.stop, &decoder(codec)))
        .context("sampling")?;
    let key =
        StepKey { seed: generation.seed, purpose: Purpose::Evaluation, step: 0, policy_version: 0 };
    Ok(rollout.sample(&Frozen::snapshot(model), prompts, key)?)
}

/// What a policy with this vocabulary chooses.
pub(crate) fn actions(codec: &Codec) -> Actions {
    match codec.characters() {
        Some(characters) => Actions::Blanks {
            mask_id: characters.mask_id(),
            forbidden: characters.specials().to_vec(),
        },
        None => Actions::Next { end_ids: codec.end_ids().to_vec() },
    }
}

/// What turns ids into the text that rewards and stop strings are about.
pub(crate) fn decoder(codec: &Codec) -> Decode {
    let codec = codec.clone();
    Arc::new(move |ids| codec.decode(ids))
}

/// The completions of groups as text, group by group.
pub(crate) fn texts(codec: &Codec, groups: &[Group]) -> Vec<String> {
    let completions = groups.iter().flat_map(Group::completions);
    completions.map(|c| codec.decode(&c.text_ids())).collect()
}
