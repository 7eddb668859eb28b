//! Completions of a run as they are stored, written and found again.

use anyhow::Context;
use grpo_core::TokenOutcome;
use grpo_data::{Codec, Completion};
use grpo_rewards::Outcome;
use grpo_run::{CompletionRecord, RecordedOutcome, RunFolder};
use grpo_train::{StepReport, TokenRecord};

use crate::train_file::TrainFile;

/// The completions of a step as they are stored.
///
/// # Panics
/// Where the step was taken without a record of its tokens.
pub(crate) fn records(report: &StepReport, codec: &Codec) -> Vec<CompletionRecord> {
    let prompts: Vec<String> =
        report.groups.iter().map(|group| codec.decode(&group.prompt.ids)).collect();
    let of_groups = report.groups.iter().zip(&prompts);
    let completions = of_groups.flat_map(|(group, prompt)| {
        group.completions.iter().map(move |completion| (completion, prompt))
    });
    let advantages: Vec<f64> = report.advantages.groups.concat();
    let tokens = report.token_records.as_ref().expect("what is stored was recorded");
    completions
        .enumerate()
        .map(|(i, (completion, prompt))| CompletionRecord {
            step: u64::from(report.step) + 1,
            prompt_text: Some(prompt.clone()).filter(|text| !text.is_empty()),
            text: report.texts[i].clone(),
            advantage: advantages[i],
            ..of_tokens(completion, &report.outcomes[i], &tokens[i])
        })
        .collect()
}

fn of_tokens(completion: &Completion, outcome: &Outcome, tokens: &TokenRecord) -> CompletionRecord {
    let (kind, parts) = match outcome {
        Outcome::Scored(scored) => (RecordedOutcome::Scored, scored.parts.as_slice()),
        Outcome::Abstained => (RecordedOutcome::Abstained, &[][..]),
        Outcome::Failed { .. } => (RecordedOutcome::Failed, &[][..]),
    };
    let f32s = |values: &[f64]| values.iter().map(|&value| value as f32).collect();
    CompletionRecord {
        step: 0,
        prompt: completion.key().prompt,
        prompt_text: None,
        sample: completion.key().sample,
        text: String::new(),
        reward: outcome.total(),
        outcome: kind,
        reason: outcome.failure().map(str::to_owned),
        parts: parts.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
        advantage: 0.0,
        actions: completion.actions() as u32,
        finish: completion.finish(),
        policy_version: completion.policy_version(),
        completion_ids: completion.action_ids().collect(),
        sampling_logprobs: completion.sampling_logprobs().to_vec(),
        logprobs: f32s(&tokens.logprobs),
        ref_logprobs: f32s(&tokens.ref_logprobs),
        entropies: f32s(&tokens.entropies),
        gradients: f32s(&tokens.gradients),
        surrogate_gradients: f32s(&tokens.surrogate_gradients),
        fates: tokens.outcomes.iter().map(|fates| folded(fates)).collect(),
    }
}

/// The fates of a token in the updates of a step in one word, or one word each where they differ.
fn folded(fates: &[TokenOutcome]) -> String {
    let is_one = fates.windows(2).all(|pair| pair[0] == pair[1]);
    let told = if is_one { &fates[..1] } else { fates };
    told.iter().map(|fate| fate.name()).collect::<Vec<_>>().join("+")
}

/// The fates of a token, from what [`folded`] made of them.
///
/// # Errors
/// A word that is none of them.
pub(crate) fn unfolded(words: &str) -> Result<Vec<TokenOutcome>, String> {
    words.split('+').map(str::parse).collect()
}

/// What the run wrote down of a step.
pub(crate) fn of_step(
    folder: &RunFolder,
    file: &TrainFile,
    step: u64,
) -> anyhow::Result<Vec<CompletionRecord>> {
    let steps = folder.completion_steps()?;
    anyhow::ensure!(
        steps.contains(&step),
        "the completions of step {step} were not recorded (save.completions_every = {}); recorded are {}",
        file.save.completions_every,
        listed(&steps)
    );
    Ok(folder.completions_of(step)?)
}

/// The one completion of `records`, which are of a step.
pub(crate) fn one_of(
    folder: &RunFolder,
    records: Vec<CompletionRecord>,
    step: u64,
    prompt: u32,
    sample: u32,
) -> anyhow::Result<CompletionRecord> {
    let found =
        records.into_iter().find(|record| (record.prompt, record.sample) == (prompt, sample));
    found.with_context(|| {
        format!(
            "`{}` has no row of prompt {prompt}, sample {sample}, though it has others of the step; restore the file from a copy",
            folder.completions_path(step).display()
        )
    })
}

/// Steps in words; of many the first and the last.
pub(crate) fn listed(steps: &[u64]) -> String {
    const MOST: usize = 12;
    let words =
        |steps: &[u64]| steps.iter().map(u64::to_string).collect::<Vec<String>>().join(", ");
    match steps {
        [] => "none".to_owned(),
        [.., last] if steps.len() > MOST => format!("{}, …, {last}", words(&steps[..MOST - 1])),
        all => words(all),
    }
}
