//! Reads and creates the completion records of a run.

use anyhow::Context;
use grpo_data::{Bonus, Codec, Group, Outcome, Sample};
use grpo_run::{CompletionRecord, RecordedOutcome, RunFolder};
use grpo_train::StepReport;

use crate::train_file::TrainFile;

/// Creates the records for the completions of a step.
///
/// # Panics
/// Panics if the report contains no token traces.
pub(crate) fn records(report: &StepReport, codec: &Codec) -> Vec<CompletionRecord> {
    let of_group = |group: &Group| -> Vec<CompletionRecord> {
        let prompt =
            Some(group.prompt.text(|ids| codec.decode(ids))).filter(|text| !text.is_empty());
        let step = u64::from(report.step) + 1;
        // The model reads conditions before the ids, so the ids alone are not the prompt.
        let ids = if group.prompt.prefix.is_empty() { &group.prompt.ids[..] } else { &[] };
        let prompt = (prompt, ids);
        group.samples.iter().map(|sample| record(step, prompt.clone(), sample)).collect()
    };
    report.groups.iter().flat_map(of_group).collect()
}

fn record(
    step: u64,
    (prompt_text, prompt_ids): (Option<String>, &[u32]),
    sample: &Sample,
) -> CompletionRecord {
    let completion = &sample.completion;
    let trace = sample.trace.as_ref().expect("stored samples have a trace");
    let outcome = sample.outcome.as_ref().expect("stored samples have an outcome");
    CompletionRecord {
        step,
        prompt: completion.key().prompt,
        prompt_text,
        prompt_ids: prompt_ids.to_vec(),
        sample: completion.key().sample,
        text: sample.text.clone(),
        reward: sample.reward(),
        bonus: sample.bonus.map(Bonus::total),
        outcome: match outcome {
            Outcome::Scored(_) => RecordedOutcome::Scored,
            Outcome::Abstained { .. } => RecordedOutcome::Abstained,
            Outcome::Failed { .. } => RecordedOutcome::Failed,
        },
        reason: outcome.failure().map(str::to_owned),
        info: sample.info.clone(),
        parts: outcome.parts().map(|(name, value)| (name.to_string(), value)).collect(),
        advantage: sample.advantage,
        actions: completion.actions() as u32,
        finish: completion.finish(),
        policy_version: completion.policy_version(),
        completion_ids: completion.action_ids().collect(),
        sampling_logprobs: completion.recorded_logprobs().into_owned(),
        tokens: trace.numbers.map(|value| *value as f32),
        outcomes: trace.outcomes.clone(),
    }
}

/// Reads the completion records of a step.
pub(crate) fn of_step(
    folder: &RunFolder,
    file: &TrainFile,
    step: u64,
) -> anyhow::Result<Vec<CompletionRecord>> {
    let (steps, every) = (folder.completion_steps()?, file.settings.save.completions_every);
    let remedy = if every == 1 { "" } else { "; 1 records every step" };
    anyhow::ensure!(
        steps.contains(&step),
        "the completions of step {step} were not recorded (save.completions_every = {every}{remedy}); recorded steps: {}",
        listed(&steps)
    );
    Ok(folder.completions_of(step)?)
}

/// Selects one completion from the `records` of a step.
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
            "`{}` has no row for prompt {prompt}, sample {sample}, although it has other rows of that step; restore the file from a copy",
            folder.completions_path(step).display()
        )
    })
}

/// Formats a list of steps. Long lists are abbreviated to the first and the last step.
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
