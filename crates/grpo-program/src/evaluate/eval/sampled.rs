//! `grpo eval --model`: samples completions of held-out prompts, scores them and measures how good they are.
//!
//! They are sampled and scored as by the evaluations of `grpo train`, and measured as a file of them would be.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{
    DataFiles, Group, Prompt, PromptSource, Sample, counted, nested_field, short_text,
};
use grpo_model::Policy;
use grpo_rewards::{Outcome, Reward, RewardInput};
use grpo_task::eval::{Columns, Generations, Measured, SuiteOptions, accuracy};
use grpo_task::generate::show_finished;
use grpo_task::output::{FileInPlace, JSON_LINES, reason_line, say_aside};
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;
use grpo_train::Evaluation;
use serde_json::{Map, Value, json};

use super::arguments::{EvalArguments, Gate, SampledArguments};
use super::output::{checked, end, entry, report};
use super::rewarded::Rewarded;
use super::tables::{show_accuracy, show_groups};
use crate::evaluate::completion_line::{Line, Settings, take_references};
use crate::evaluate::score::Source;
use crate::train_file::TrainFile;
use crate::train_file::evaluated_file::Evaluated;
use crate::train_file::prompts::{PromptSection, Prompts};

/// Evaluates a model.
pub(super) fn run(
    arguments: &EvalArguments,
    model: &Path,
    gates: &[Gate],
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let SampledArguments { adapter, data, samples, .. } = &arguments.sampled;
    let reward = arguments.reward.as_deref().context("--model requires --reward")?;
    let file = TrainFile::of_evaluation(
        Evaluated {
            reward,
            model,
            adapter: adapter.as_deref(),
            data: data.as_deref(),
            options: arguments.sampled.keys(arguments.options.seed, &arguments.set),
            set: &arguments.set,
        },
        tasks,
    )?;
    let options = options_for(&arguments.options, file.trainer.eval.group_size)?;
    let phase = Phase::begin(format!("loading {}", model.display()));
    let started = file.start_evaluation(tasks, samples.unwrap_or(u32::MAX))?;
    drop(phase);
    let evaluation = started.evaluation;
    if let Some(field) = &arguments.by {
        check_field(field, evaluation.prompts(), &started.prompts)?;
    }
    let prompts = file.data.as_ref().map(PromptSection::files);
    let path = PathBuf::from(prompts.map(DataFiles::to_string).unwrap_or_default());
    let output = arguments.create_output()?;
    let inputs = prompts.into_iter().flat_map(DataFiles::paths).map(PathBuf::as_path);
    let inputs: Vec<&Path> = inputs.chain([reward]).collect();
    let create =
        |path: &&PathBuf| FileInPlace::create_beside(path, JSON_LINES, &inputs, arguments.force);
    let completions = arguments.outputs().1.first().map(create).transpose()?;
    let settings = Settings::new(
        model,
        adapter.as_deref(),
        file.settings.seed,
        &file.trainer.sampling.settings(&[]),
        file.trainer.sampling.max_new_tokens,
        &file.trainer.sampling.stop,
    );
    started.prompts.report.iter().for_each(|of| say_aside(format_args!("prompts      {of}")));
    say_plan(&evaluation, &file);
    say_doubts(evaluation.prompts(), &*started.reward);
    let groups = sampled(evaluation, &started.policy)?;
    let lines = lines(&groups, &settings, &*started.decode)?;
    if let Some(mut file) = completions {
        let written = lines.iter().try_for_each(|line| file.write_all(line));
        written.with_context(|| format!("cannot write {}", file.path().display()))?;
        file.finish()?;
    }
    // What a file of these lines would be read as.
    let records = lines.iter().map(|line| serde_json::from_slice(line));
    let records = records.collect::<Result<Vec<Map<String, Value>>, _>>()?;
    let columns = Columns { whole: true, ..Columns::default() };
    let (all, indices) = Generations::of_records(&path, &records, &columns)?;
    let options = options.with_pass_for(all.are_judged());
    let mut measured = accuracy(&all, &options)?;
    let format = tasks.row_format(None, file.reward.type_name());
    let (inputs, outcomes) = scored(&groups);
    let mut of_prompts = vec![Vec::new(); all.prompts.len()];
    for ((index, input), outcome) in indices.iter().zip(&inputs).zip(outcomes) {
        of_prompts[*index].push((input, outcome));
    }
    Rewarded::of_outcomes(&*started.reward, &format, Source::Eval(&path), of_prompts)?
        .add_to(&mut measured, &options)?;
    measured.add_intervals(options.seed)?;
    let subject = vec![
        ("model", json!(model)),
        ("data", json!(path)),
        ("settings", arguments.settings(&options)),
        ("sampling", json!(settings)),
    ];
    shown(arguments, gates, subject, &all, &measured, &options, output)
}

/// Prints what is sampled.
fn say_plan(evaluation: &Evaluation<Policy>, file: &TrainFile) {
    say_aside(format_args!(
        "sampling     {}: {} for each of {}, temperature {}, at most {}, seed {}",
        counted(evaluation.count(), "completion"),
        file.trainer.eval.group_size,
        counted(evaluation.prompts().len(), "prompt"),
        file.trainer.sampling.temperature,
        counted(file.trainer.sampling.max_new_tokens, "token"),
        file.settings.seed
    ));
}

/// Writes and shows the metrics.
fn shown(
    arguments: &EvalArguments,
    gates: &[Gate],
    subject: Vec<(&str, Value)>,
    all: &Generations,
    measured: &Measured,
    options: &SuiteOptions,
    output: Option<FileInPlace>,
) -> anyhow::Result<()> {
    let groups = arguments.groups(all, measured)?;
    let model = arguments.sampled.model.as_deref().unwrap_or(Path::new(""));
    let gates = checked(gates, measured, model)?;
    let entry = entry(subject, measured, groups.as_ref(), &gates);
    let result = report(arguments, vec![entry], output, || {
        show_accuracy(measured, all.prompts.len(), options.pass_name());
        if let Some((field, groups)) = &groups {
            show_groups(None, field, groups);
        }
    })?;
    end(&result)
}

/// Warns of prompts for which no completion can be right.
fn say_doubts(prompts: &[Prompt], reward: &dyn Reward) {
    let doubts: Vec<String> =
        prompts.iter().filter_map(|prompt| reward.doubt(&prompt.fields)).collect();
    if let Some(first) = doubts.first() {
        say_aside(format_args!(
            "warning      no completion can be right for {} of {}; first reason: {first}",
            doubts.len(),
            counted(prompts.len(), "prompt")
        ));
    }
}

/// Returns the options with the numbers of completions for Pass@k, of which each prompt has `number`.
fn options_for(options: &SuiteOptions, number: usize) -> anyhow::Result<SuiteOptions> {
    if let Some(k) = options.k.iter().find(|k| !(1..=number).contains(k)) {
        anyhow::bail!(
            "-k {k} is out of range; expected 1 to {number}, the number of completions per prompt, which -n sets"
        );
    }
    let mut k = options.ks(number);
    if options.k.is_empty() && !k.contains(&number) {
        k.push(number);
    }
    Ok(SuiteOptions { k, ..options.clone() })
}

/// Refuses a field of `--by` that the record of a prompt lacks.
fn check_field(field: &str, prompts: &[Prompt], read: &Prompts) -> anyhow::Result<()> {
    for prompt in prompts {
        let mut fields = prompt.fields.clone();
        take_references(&mut fields);
        if nested_field(&fields, field).is_none() {
            let place = read.places().get(prompt.index as usize).map_or("", String::as_str);
            let names: Vec<String> = fields.keys().cloned().collect();
            anyhow::bail!(
                "--by {field}: {place}: the record has no field `{field}`; it has {}",
                short_text(&names.join(", "))
            );
        }
    }
    Ok(())
}

/// Samples and scores the completions, and shows how many are finished.
fn sampled(evaluation: Evaluation<Policy>, policy: &Policy) -> anyhow::Result<Vec<Group>> {
    let all = evaluation.count();
    let _phase = Phase::begin(format!("sampling and scoring {}", counted(all, "completion")));
    Ok(evaluation.reporting(show_finished(all)).of(policy)?.groups)
}

/// Returns the lines of the file of completions.
fn lines(
    groups: &[Group],
    settings: &Settings<'_>,
    decode: &dyn Fn(&[u32]) -> String,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    for group in groups {
        let prompt = PromptSource::Text(group.prompt.text(decode));
        let mut fields = group.prompt.fields.clone();
        let references = take_references(&mut fields);
        // A record of the prompt may be a scored completion itself.
        fields.retain(|key, _| key != REASON && !key.starts_with(COMPONENT));
        for sample in &group.samples {
            let line = Line {
                references: &references,
                fields: &fields,
                text: Some(sample.text.clone()),
                scores: scores(sample),
                ..Line::new(Some(&prompt), &group.prompt.ids, &sample.completion, settings)
            };
            let mut line = serde_json::to_vec(&line).context("a completion is not valid JSON")?;
            line.push(b'\n');
            lines.push(line);
        }
    }
    Ok(lines)
}

/// Key of the reason why a completion has no reward.
const REASON: &str = "reason";
/// Beginning of the keys of components, as in recorded completions.
const COMPONENT: &str = "rewards/";

/// Returns the reward of a completion and its components.
fn scores(sample: &Sample) -> Map<String, Value> {
    let mut scores = Map::from_iter([("reward".to_owned(), json!(sample.reward()))]);
    let parts = sample.outcome.iter().flat_map(Outcome::parts);
    scores.extend(parts.map(|(name, value)| (format!("{COMPONENT}{name}"), json!(value))));
    let reason = sample.failure().map(|reason| reason_line(reason).into());
    scores.extend(reason.map(|reason| (REASON.to_owned(), reason)));
    scores
}

/// Returns what the reward saw of each completion, and its outcome.
fn scored(groups: &[Group]) -> (Vec<RewardInput>, Vec<Outcome>) {
    let samples = groups.iter().flat_map(|group| {
        group.samples.iter().map(move |sample| {
            let (text, fields) = (sample.text.clone(), group.prompt.fields.clone());
            let input = RewardInput { text, fields, ..RewardInput::default() };
            (input, sample.outcome.clone().unwrap_or_else(Outcome::abstained))
        })
    });
    samples.unzip()
}
