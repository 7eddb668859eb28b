//! `grpo score`: computes the reward of given completions with its components.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_report::transforms;
use grpo_rewards::{Outcome, Reward, RewardConfig, RewardInput};
use grpo_run::column_of_part;
use serde_json::{Map, Value};

use crate::commands::report::transform_curves;
use crate::eval::{CompletionRow, RowFormat, completion_rows};
use crate::output::{FileInPlace, one_line, refuse_same, say, say_aside, short_decimals, table};
use crate::phase::Phase;
use crate::task::Tasks;
use crate::train_file::LoadedReward;
use crate::visible::{data_output, number_cell, text_cell, visible};

/// Number of completions that are scored at once.
pub(crate) const BLOCK: usize = 1024;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo score configs/molecules/grpo.toml molecules.smi -o scores.csv
  grpo score my.toml known-actives.csv --plot transforms.svg | head
  grpo score configs/replies/grpo.toml data/replies/held-out.jsonl -o scores.csv
  grpo score configs/replies/grpo.toml --field tweet='I love tea' --completion 'Green or black?'")]
pub(crate) struct ScoreArguments {
    /// Configuration file with a [reward] section
    config: PathBuf,
    /// Completions: JSON lines, Parquet, CSV, SMILES (.smi), lines of text (.txt), or a run folder,
    /// whose completions have no other keys of their records
    #[arg(required_unless_present = "completion")]
    file: Option<PathBuf>,
    /// Completion to score in place of a file; repeatable
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with_all = ["file", "column", "output"],
        allow_hyphen_values = true,
        help_heading = "Input"
    )]
    completion: Vec<String>,
    /// Key of the record that the reward reads, e.g. the tweet or the answer; repeatable
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "file", help_heading = "Input")]
    field: Vec<String>,
    /// Override a configuration key; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Input")]
    set: Vec<String>,
    /// Key or column with the completions [default: the first of completion, text, reply, smiles …]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    column: Option<String>,
    /// Output file (CSV), compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Draw the transforms of the components to this file (SVG)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

pub(crate) fn run(arguments: &ScoreArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let loaded = LoadedReward::read(&arguments.config, &arguments.set, tasks)?;
    let (format, reward) = loaded.for_completions(arguments.file.as_deref(), tasks);
    let config = &loaded.config;
    let Some(file) = &arguments.file else {
        let inputs = inputs_of_options(arguments)?;
        let plot = plot(arguments, config, &[&arguments.config])?;
        show(&*reward, &format, &inputs)?;
        return FileInPlace::finish_all(plot);
    };
    let mut rows = completion_rows(&format, file, arguments.column.as_deref())?.peekable();
    anyhow::ensure!(rows.peek().is_some(), "{} contains no {}", file.display(), format.holds);
    let rows = rows.map(|row| row.map(|row| tasks.with_prompt_fields(row)));
    refuse_same(&[("--output", arguments.output.as_ref()), ("--plot", arguments.plot.as_ref())])?;
    let inputs: [&Path; 2] = [file, &arguments.config];
    let create = |path: &PathBuf| FileInPlace::create_beside(path, &inputs, arguments.force);
    let output = arguments.output.as_ref().map(create).transpose()?;
    let plot = plot(arguments, config, &inputs)?;
    let phase = Phase::begin(format!("scoring {}", file.display()));
    let scored = match output {
        Some(mut file) => {
            let place = file.path().display().to_string();
            let scored = score_all(&*reward, &format, rows, &mut file, &place)?;
            if scored.rows > 0 {
                FileInPlace::finish_all([Some(file), plot].into_iter().flatten())?;
            }
            scored
        }
        None => {
            let scored = score_all(&*reward, &format, rows, data_output(), "standard output")?;
            FileInPlace::finish_all(plot)?;
            scored
        }
    };
    drop(phase);
    scored.summarize(format.holds)
}

/// Writes the file for `--plot`, which gets its name after the scores.
fn plot(
    arguments: &ScoreArguments,
    config: &RewardConfig,
    inputs: &[&Path],
) -> anyhow::Result<Option<FileInPlace>> {
    let Some(path) = &arguments.plot else { return Ok(None) };
    let curves = transform_curves(config);
    anyhow::ensure!(
        !curves.is_empty(),
        "reward type `{}` has no transforms to plot; remove --plot",
        config.type_name()
    );
    FileInPlace::with_text(path, inputs, arguments.force, &transforms(&curves)).map(Some)
}

/// Returns the completions of `--completion`, each with the fields of `--field`.
fn inputs_of_options(arguments: &ScoreArguments) -> anyhow::Result<Vec<RewardInput>> {
    let mut fields = Map::new();
    for field in &arguments.field {
        let (key, value) = field.split_once('=').with_context(|| {
            format!("--field {field} is not a pair; write KEY=VALUE, e.g. tweet='I love tea'")
        })?;
        let known = fields.insert(key.trim().to_owned(), value.into());
        anyhow::ensure!(known.is_none(), "--field {} is given twice; remove one", key.trim());
    }
    let prompt = fields.get("prompt").and_then(Value::as_str).unwrap_or_default().to_owned();
    let input = |text: &String| RewardInput {
        fields: fields.clone(),
        prompt: prompt.clone(),
        ..text.as_str().into()
    };
    Ok(arguments.completion.iter().map(input).collect())
}

/// Prints a table with a column per completion.
fn show(reward: &dyn Reward, format: &RowFormat, inputs: &[RewardInput]) -> anyhow::Result<()> {
    let outcomes = reward.score(inputs);
    let reasons = inputs.iter().zip(&outcomes);
    let reasons = reasons.map(|(input, outcome)| reason(&input.text, outcome, format));
    let reasons: Vec<String> = reasons.map(|reason| visible(&reason).into_owned()).collect();
    let cell = |value: Option<f64>| value.map_or_else(String::new, short_decimals);
    let row = |name: &str, value: &dyn Fn(&Outcome) -> Option<f64>| -> Vec<String> {
        let cells = outcomes.iter().map(|outcome| cell(value(outcome)));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let mut rows = vec![row("score", &Outcome::total)];
    rows.extend(reward.parts().iter().map(|part| row(part, &|outcome| outcome.part(part))));
    if reasons.iter().any(|reason| !reason.is_empty()) {
        rows.push(std::iter::once("reason".to_owned()).chain(reasons.iter().cloned()).collect());
    }
    let names = inputs.iter().map(|input| one_line(&visible(&input.text)));
    let header: Vec<String> = std::iter::once(String::new()).chain(names).collect();
    say(format_args!("{}", table(header, rows, 1..=inputs.len())));
    let first = reasons.iter().find(|reason| !reason.is_empty());
    anyhow::ensure!(
        outcomes.iter().any(|outcome| outcome.total().is_some()),
        "no completion has a score; first reason: {}",
        first.map_or("", String::as_str)
    );
    Ok(())
}

/// Summary of the scores.
#[derive(Default)]
struct Scored {
    /// Number of rows with a score.
    rows: u64,
    /// Number of empty completions.
    empty: u64,
    /// Number of completions without a score.
    unscored: u64,
    /// Sum of all scores.
    sum: f64,
    /// Why the first of them has none.
    first_reason: Option<String>,
}

impl Scored {
    fn summarize(&self, holds: &str) -> anyhow::Result<()> {
        let &Self { rows, empty, unscored, sum, ref first_reason } = self;
        say_aside(format_args!("scored       {rows:>8}"));
        if empty > 0 {
            say_aside(format_args!("empty        {empty:>8}"));
        }
        let first = visible(first_reason.as_deref().unwrap_or_default());
        anyhow::ensure!(rows > 0, "none of the {holds} has a score; first reason: {first}");
        if unscored > 0 {
            say_aside(format_args!("no score     {unscored:>8}; first reason: {first}"));
        }
        say_aside(format_args!("mean score   {:>8.4}", sum / rows as f64));
        Ok(())
    }
}

fn score_all(
    reward: &dyn Reward,
    format: &RowFormat,
    mut rows: impl Iterator<Item = anyhow::Result<CompletionRow>>,
    output: impl Write,
    place: &str,
) -> anyhow::Result<Scored> {
    let failed = || format!("cannot write scores to {place}");
    let mut table = csv::Writer::from_writer(output);
    let parts = reward.parts();
    let own = [format.column, "score", "reason", format.label];
    let columns = parts.iter().map(|part| column_of_part(part, &own));
    let columns = own[..2].iter().map(|name| (*name).to_owned()).chain(columns);
    let columns = columns.chain(own[2..].iter().map(|name| (*name).to_owned()));
    table.write_record(columns).with_context(failed)?;
    let mut scored = Scored::default();
    loop {
        let block: Vec<CompletionRow> = rows.by_ref().take(BLOCK).collect::<anyhow::Result<_>>()?;
        if block.is_empty() {
            break;
        }
        let (inputs, labels): (Vec<RewardInput>, Vec<String>) =
            block.into_iter().map(|row| (row.input, row.label)).unzip();
        let outcomes = reward.score(&inputs);
        for ((input, label), outcome) in inputs.iter().zip(&labels).zip(&outcomes) {
            let value = |value: Option<f64>| value.map_or_else(String::new, number_cell);
            let mut row = vec![text_cell(&input.text), value(outcome.total())];
            row.extend(parts.iter().map(|part| value(outcome.part(part))));
            let reason = reason(&input.text, outcome, format);
            row.extend([text_cell(&reason), text_cell(label)]);
            table.write_record(row).with_context(failed)?;
            match outcome.total() {
                Some(total) => (scored.rows, scored.sum) = (scored.rows + 1, scored.sum + total),
                None => {
                    scored.unscored += 1;
                    scored.first_reason.get_or_insert(reason);
                }
            }
            scored.empty += u64::from(input.text.is_empty());
        }
    }
    table.flush().with_context(failed)?;
    Ok(scored)
}

/// Returns why a completion has no score or a score of 0.
fn reason(text: &str, outcome: &Outcome, format: &RowFormat) -> String {
    let invalid = || format.invalid.and_then(|why| why(text)).unwrap_or_default();
    match outcome {
        Outcome::Failed { reason } => reason.clone(),
        Outcome::Abstained => "the reward abstained".to_owned(),
        Outcome::Scored(scored) if scored.uncounted => "it does not pass a filter".to_owned(),
        Outcome::Scored(_) if outcome.part("valid") == Some(0.0) => invalid(),
        Outcome::Scored(_) => String::new(),
    }
}
