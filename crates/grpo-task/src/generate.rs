//! Sampling outside training.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use grpo_data::{Codec, Completion, Group, Prompt, Purpose, counted};
use grpo_logprob::SamplingSettings;
use grpo_model::{Frozen, LanguageModel};
use grpo_rollout::{Autoregressive, Decode, Engine, Report, RolloutSettings, StepKey};

use crate::args::SampleArguments;
use crate::models::Loaded;
use crate::phase::{Phase, progress};

/// Sampling settings outside training.
pub struct Generation {
    /// Random seed.
    pub seed: u64,
    /// Temperature, top-k and other settings of the sampling distribution.
    pub sampling: SamplingSettings,
    /// Maximum number of tokens per completion.
    pub max_new_tokens: usize,
    /// Strings that end a completion.
    pub stop: Vec<String>,
    /// Number of completions sampled in parallel.
    pub batch_size: usize,
}

impl Generation {
    /// Creates the settings for `prompts`. By default, the number of new tokens is limited by the
    /// context length minus the longest prompt, and by `most`.
    pub fn from_options(
        arguments: &SampleArguments,
        loaded: &Loaded,
        prompts: &[Prompt],
        most: usize,
    ) -> Self {
        let longest = prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1);
        // The last token is sampled but not fed to the model. Prompts that are too long are
        // rejected later.
        let room = (loaded.policy.context_length() + 1).saturating_sub(longest).max(1);
        Self {
            seed: arguments.seed,
            sampling: arguments.sampling(),
            max_new_tokens: arguments.max_new_tokens.unwrap_or(most.min(room)),
            stop: arguments.stop.clone(),
            batch_size: arguments.batch_size,
        }
    }
}

/// Samples `number` completions per prompt. Random numbers depend only on the seed, not on the
/// model.
pub fn generate<M: LanguageModel>(
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
    let rollout = Autoregressive::new(settings, model, longest)
        .and_then(|rollout| rollout.stopping_at(&generation.stop, &decoder(codec)))
        .context("sampling")?;
    let key =
        StepKey { seed: generation.seed, purpose: Purpose::EVALUATION, step: 0, policy_version: 0 };
    let count = prompts.len() * number as usize;
    let _phase = Phase::begin(format!("sampling {}", counted(count, "completion")));
    let policy = Frozen::snapshot(model);
    Ok(match Engine::<M>::reporting(&rollout, show_finished(count)) {
        Some(reporting) => reporting.sample(&policy, prompts, key)?,
        None => rollout.sample(&policy, prompts, key)?,
    })
}

/// Returns a report that shows how many of `all` completions are finished, as the progress of the current
/// phase.
pub fn show_finished(all: usize) -> Report {
    let finished = AtomicUsize::new(0);
    Arc::new(move || progress(finished.fetch_add(1, Ordering::Relaxed) + 1, all))
}

/// Says how many of the sampled ids have no token, or returns `None` if all have one. End tokens are not
/// text, so they are not counted.
pub fn ids_without_token(groups: &[Group], codec: &Codec) -> Option<String> {
    let ids = || groups.iter().flat_map(Group::completions).flat_map(Completion::action_ids);
    let is_without = |id: &u32| !codec.has_token(*id) && !codec.end_ids().contains(id);
    let without = ids().filter(is_without).count();
    (without > 0).then(|| {
        format!(
            "{without} of {} sampled ids have no token in {}; they decode to nothing",
            ids().count(),
            codec.file()
        )
    })
}

/// Returns the decoder used for rewards and stop strings.
pub fn decoder(codec: &Codec) -> Decode {
    let codec = codec.clone();
    Arc::new(move |ids| codec.decode_completion(ids))
}

/// Decodes the completions of all groups, in order.
pub fn texts(codec: &Codec, groups: &[Group]) -> Vec<String> {
    let completions = groups.iter().flat_map(Group::completions);
    completions.map(|c| codec.decode_completion(&c.text_ids())).collect()
}
