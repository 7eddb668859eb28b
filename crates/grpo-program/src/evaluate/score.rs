//! `grpo score`: computes the reward of given completions with its components.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use comfy_table::Table;
use grpo_data::{FileOrigin, counted};
use grpo_report::transforms;
use grpo_rewards::{Outcome, PartName, Reward, RewardConfig, RewardInput};
use grpo_run::column_of_part;
use grpo_task::eval::{CompletionRow, RowFormat};
use grpo_task::output::{
    CSV, FileInPlace, SVG, four_decimals, reason_line, refuse_same, say, say_aside, shortened,
    table,
};
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;
use grpo_task::visible::{data_output, number_cell, text_cell, visible};
use serde_json::{Map, Value};
use unicode_width::UnicodeWidthStr;

use crate::inspect::report::transform_curves;
use crate::train_file::LoadedReward;

/// Key of the prompt, and name of its column in tables of scores.
const PROMPT: &str = "prompt";

/// Number of completions that are scored at once.
pub(crate) const BLOCK: usize = 1024;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo score configs/molecules/grpo.toml molecules.smi -o scores.csv
  grpo score my.toml known-actives.csv --plot transforms.svg | head
  grpo score configs/replies/grpo.toml data/replies/held-out.jsonl -o scores.csv
  grpo score configs/replies/grpo.toml --field tweet='I love tea' --completion 'Green or black?'
  grpo score configs/replies/grpo.toml --field tweet='I love tea' replies.txt")]
pub(crate) struct ScoreArguments {
    /// Configuration file with a [reward] section
    config: PathBuf,
    /// Completions: JSON lines, Parquet, CSV, SMILES (.smi), lines of text (.txt), or a run folder,
    /// which does not record the other keys of its prompts
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
    /// Key that the reward reads, e.g. the tweet or the answer, for each completion; replaces the key
    /// of a record; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Input")]
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
    refuse_exchanged(arguments)?;
    anyhow::ensure!(
        arguments.file.is_some() || !arguments.completion.is_empty(),
        "missing completions; add a FILE (JSON lines, Parquet, CSV, .smi, .txt or a run folder), or --completion TEXT"
    );
    let fields = fields(arguments)?;
    let loaded = LoadedReward::read(&arguments.config, &arguments.set, tasks)?;
    let (format, reward) = loaded.for_completions(arguments.file.as_deref(), tasks);
    let [output, plot] = outputs(arguments, &loaded.config)?;
    let Some(file) = &arguments.file else {
        let inputs = arguments.completion.iter().map(|text| text.as_str().into());
        let inputs: Vec<RewardInput> = inputs.map(|input| with_fields(input, &fields)).collect();
        show(&*reward, &format, &inputs)?;
        return FileInPlace::finish_all(plot);
    };
    let mut rows = (format.open)(file, arguments.column.as_deref())?.peekable();
    anyhow::ensure!(rows.peek().is_some(), "{} contains no {}", file.display(), format.holds);
    let replaced = RefCell::new(Replaced::default());
    let rows = rows.map(|row| {
        let CompletionRow { input, label } = tasks.with_prompt_fields(row?);
        replaced.borrow_mut().add(&input, &fields);
        let input = with_fields(input, &fields);
        let is_given = format.label == PROMPT && fields.contains_key(PROMPT);
        let label = if is_given { input.prompt.clone() } else { label };
        Ok(CompletionRow { input, label })
    });
    let phase = Phase::begin(format!("scoring {}", file.display()));
    let scoring = Scoring { reward: &*reward, format: &format, file };
    let scored = match output {
        Some(mut file) => {
            let place = file.path().display().to_string();
            let scored = score_all(&scoring, rows, &mut file, &place)?;
            if scored.is_useful() {
                FileInPlace::finish_all([Some(file), plot].into_iter().flatten())?;
            }
            scored
        }
        None => {
            let scored = score_all(&scoring, rows, data_output(), "standard output")?;
            FileInPlace::finish_all(plot)?;
            scored
        }
    };
    drop(phase);
    replaced.into_inner().say();
    scored.summarize(format.holds)
}

/// Refuses a configuration and a file that were exchanged.
fn refuse_exchanged(arguments: &ScoreArguments) -> anyhow::Result<()> {
    let ending = |path: &Path| FileOrigin::new(path).1;
    let config = &arguments.config;
    let named = arguments.file.as_deref().filter(|file| ending(file) == "toml");
    let holds_completions = config.is_dir() && named.is_some()
        || ["smi", "csv", "jsonl", "json", "parquet", "txt"].contains(&ending(config).as_str());
    anyhow::ensure!(
        !holds_completions,
        "expected a configuration as the first argument, found {0}; write `grpo score {1} {0}`",
        config.display(),
        named.unwrap_or(Path::new("CONFIG.toml")).display()
    );
    Ok(())
}

/// Creates the output files. That of `--plot` is already written, but gets its name after the scores.
fn outputs(
    arguments: &ScoreArguments,
    config: &RewardConfig,
) -> anyhow::Result<[Option<FileInPlace>; 2]> {
    let ScoreArguments { output, plot, force, .. } = arguments;
    refuse_same(&[("--output", output.as_ref()), ("--plot", plot.as_ref())])?;
    let inputs = std::iter::once(&arguments.config).chain(&arguments.file);
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
    let output = output.as_ref().map(|path| FileInPlace::create_beside(path, CSV, &inputs, *force));
    let output = output.transpose()?;
    let Some(path) = plot else { return Ok([output, None]) };
    let curves = transform_curves(config);
    anyhow::ensure!(
        !curves.is_empty(),
        "reward type `{}` has no transforms to plot; remove --plot",
        config.type_name()
    );
    let plot = FileInPlace::create_for("--plot", path, SVG, &inputs, *force)?;
    Ok([output, Some(plot.with_text(&transforms(&curves))?)])
}

/// Returns the fields of `--field`.
fn fields(arguments: &ScoreArguments) -> anyhow::Result<Map<String, Value>> {
    let mut fields = Map::new();
    for field in &arguments.field {
        let (key, value) = field.split_once('=').with_context(|| {
            format!("--field {field} is not a pair; write KEY=VALUE, e.g. tweet='I love tea'")
        })?;
        let known = fields.insert(key.trim().to_owned(), value.into());
        anyhow::ensure!(known.is_none(), "--field {} is given twice; remove one", key.trim());
    }
    Ok(fields)
}

/// Returns a completion with these fields in addition to its own.
fn with_fields(mut input: RewardInput, fields: &Map<String, Value>) -> RewardInput {
    input.fields.extend(fields.clone());
    if let Some(prompt) = fields.get(PROMPT).and_then(Value::as_str) {
        prompt.clone_into(&mut input.prompt);
    }
    input
}

/// The records with values that `--field` replaced by others.
#[derive(Default)]
struct Replaced {
    records: u64,
    /// The keys of these values.
    keys: BTreeSet<String>,
}

impl Replaced {
    /// Counts a completion if it has a value of one of these fields that is not the same text.
    fn add(&mut self, input: &RewardInput, fields: &Map<String, Value>) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let differs = |(key, value): &(&String, &Value)| {
            let own = input.fields.get(*key).filter(|own| !own.is_null()).map(&text);
            let prompt =
                || (*key == PROMPT && !input.prompt.is_empty()).then(|| input.prompt.clone());
            own.or_else(prompt).is_some_and(|own| own != text(value))
        };
        let differing: Vec<_> = fields.iter().filter(differs).map(|(key, _)| key).collect();
        self.records += u64::from(!differing.is_empty());
        self.keys.extend(differing.into_iter().cloned());
    }

    /// Prints the number of records and the keys.
    fn say(self) {
        if self.records > 0 {
            say_aside(format_args!(
                "replaced     {} had another value of {}, which --field replaced",
                counted(self.records, "record"),
                self.keys.into_iter().collect::<Vec<_>>().join(" or ")
            ));
        }
    }
}

/// Where the completions come from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// `--completion`.
    Options,
    /// A file of `grpo score`.
    Score(&'a Path),
    /// A file of `grpo eval`, which has no `--field`, or its prompts.
    Eval(&'a Path),
}

/// Returns what to do about a completion that cannot be scored because its record lacks a field, as the
/// end of a message. It is empty if the record has all fields.
pub(crate) fn remedy(reward: &dyn Reward, input: &RewardInput, source: Source<'_>) -> String {
    if reward.check(&input.fields).is_ok() {
        return String::new();
    }
    let of_file = |file: &Path| {
        let what = match FileOrigin::new(file).1.as_str() {
            _ if file.is_dir() => "a run folder does not record the other keys of its prompts",
            "txt" | "smi" => "lines of text have no keys",
            _ => return format!("add the key to the records of {}", file.display()),
        };
        format!("use JSON lines with this key, because {what}")
    };
    match source {
        Source::Options => "; set it with --field KEY=VALUE".to_owned(),
        Source::Score(file) => {
            format!("; set it for all completions with --field KEY=VALUE, or {}", of_file(file))
        }
        Source::Eval(file) => format!("; {}", of_file(file)),
    }
}

/// Width of a terminal that tables fit into.
const WIDTH: usize = 80;

/// Prints the scores of completions.
fn show(reward: &dyn Reward, format: &RowFormat, inputs: &[RewardInput]) -> anyhow::Result<()> {
    let outcomes = reward.score(inputs);
    let words = |input: &RewardInput| input.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let texts: Vec<String> = inputs.iter().map(|of| visible(&words(of)).into_owned()).collect();
    tables(&reward.parts(), &texts, &outcomes)
        .iter()
        .for_each(|table| say(format_args!("{table}")));
    let mut reasons = Vec::new();
    let mut asked = Asked::new(reward);
    for (index, (input, outcome)) in inputs.iter().zip(&outcomes).enumerate() {
        let reason = reason(&input.text, outcome, format);
        let why = || format!("{reason}{}", remedy(reward, input, Source::Options));
        asked.add(&input.text, outcome, format, why);
        if !reason.is_empty() {
            let name = match inputs.len() {
                1 => "reason".to_owned(),
                _ => format!("reason {}", index + 1),
            };
            say(format_args!("{name:<12} {}", visible(&reason_line(&reason))));
            reasons.push(why());
        }
    }
    anyhow::ensure!(
        outcomes.iter().any(|outcome| outcome.total().is_some()),
        "no completion has a score; first reason: {}",
        reasons.first().map_or("", String::as_str)
    );
    asked.check(format.holds)
}

/// Returns tables with a column per completion that fit into [`WIDTH`]. If the completions are too
/// long for that, columns have numbers, which the last table explains.
fn tables(parts: &[PartName], texts: &[String], outcomes: &[Outcome]) -> Vec<Table> {
    let cell = |value: Option<f64>| value.map_or_else(String::new, four_decimals);
    let row = |outcomes: &[Outcome], name: &str, value: &dyn Fn(&Outcome) -> Option<f64>| {
        let cells = outcomes.iter().map(|outcome| cell(value(outcome)));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let of = |names: &[String], outcomes: &[Outcome]| {
        let mut rows = vec![row(outcomes, "score", &Outcome::total)];
        rows.extend(parts.iter().map(|part| row(outcomes, part, &|outcome| outcome.part(part))));
        let header: Vec<String> =
            std::iter::once(String::new()).chain(names.iter().cloned()).collect();
        table(header, rows, 1..=outcomes.len())
    };
    let width = |table: &Table| {
        table.to_string().lines().map(UnicodeWidthStr::width).max().unwrap_or_default()
    };
    let whole = of(texts, outcomes);
    if width(&whole) <= WIDTH {
        return vec![whole];
    }
    let numbers: Vec<String> = (1..=texts.len()).map(|number| number.to_string()).collect();
    let of_names = width(&of(&[], &[]));
    let of_column = |at: usize| width(&of(&numbers[at..=at], &outcomes[at..=at])) - of_names;
    let widest = (0..texts.len()).map(of_column).max().unwrap_or(1);
    let fitting = (WIDTH.saturating_sub(of_names) / widest).max(1);
    let mut tables: Vec<Table> = numbers
        .chunks(fitting)
        .zip(outcomes.chunks(fitting))
        .map(|(names, outcomes)| of(names, outcomes))
        .collect();
    let rows =
        numbers.into_iter().zip(texts).map(|(number, text)| [number, shortened(text, WIDTH - 10)]);
    tables.push(table(["", "completion"], rows, ..1));
    tables
}

/// What the reward said about the completions that it had to score: those that are valid and pass the
/// filters. All others may have a score of 0 whether the reward works or not.
#[derive(Default)]
pub(crate) struct Asked {
    /// Whether it had to score invalid completions too.
    scores_invalid: bool,
    /// Whether one of them has a score.
    is_answered: bool,
    /// Why the first of those without a score has none.
    first_reason: Option<String>,
}

impl Asked {
    pub(crate) fn new(reward: &dyn Reward) -> Self {
        Self { scores_invalid: reward.scores_invalid(), ..Self::default() }
    }

    /// Counts a completion. `why` says why it has no score.
    pub(crate) fn add(
        &mut self,
        text: &str,
        outcome: &Outcome,
        format: &RowFormat,
        why: impl FnOnce() -> String,
    ) {
        let scores_invalid = self.scores_invalid;
        let is_invalid =
            || !scores_invalid && format.invalid.is_some_and(|why| why(text).is_some());
        // One score is enough to know that the reward works.
        if self.is_answered || !outcome.was_due(scores_invalid) || is_invalid() {
            return;
        }
        match outcome.total() {
            Some(_) => self.is_answered = true,
            None if self.first_reason.is_none() => self.first_reason = Some(why()),
            None => {}
        }
    }

    /// Returns why the first of them has no score if none of them has one.
    fn fault(&self) -> Option<&str> {
        self.first_reason.as_deref().filter(|_| !self.is_answered)
    }

    /// Returns an error if none of them has a score. `holds` is a plural noun for completions.
    pub(crate) fn check(&self, holds: &str) -> anyhow::Result<()> {
        match self.fault() {
            None => Ok(()),
            Some(first) => anyhow::bail!(
                "the reward gave no score for any of the {holds} that it had to score; first reason: {}",
                visible(first)
            ),
        }
    }
}

/// Summary of the scores.
#[derive(Default)]
struct Scored {
    /// Whether the reward works.
    asked: Asked,
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
    /// Returns whether the table is worth writing.
    fn is_useful(&self) -> bool {
        self.rows > 0 && self.asked.fault().is_none()
    }

    fn summarize(&self, holds: &str) -> anyhow::Result<()> {
        let &Self { rows, empty, unscored, sum, ref asked, ref first_reason } = self;
        say_aside(format_args!("scored       {rows:>8}"));
        if empty > 0 {
            say_aside(format_args!("empty        {empty:>8}"));
        }
        let first = visible(first_reason.as_deref().unwrap_or_default());
        anyhow::ensure!(rows > 0, "none of the {holds} has a score; first reason: {first}");
        asked.check(holds)?;
        if unscored > 0 {
            say_aside(format_args!(
                "no score     {unscored:>8}; first reason: {}",
                reason_line(&first)
            ));
        }
        let mean = four_decimals(sum / rows as f64);
        let of = if unscored > 0 { " of those with a score" } else { "" };
        say_aside(format_args!("mean score   {mean:>8}{of}"));
        Ok(())
    }
}

/// How the completions of a file are scored.
struct Scoring<'a> {
    reward: &'a dyn Reward,
    format: &'a RowFormat,
    file: &'a Path,
}

fn score_all(
    scoring: &Scoring<'_>,
    mut rows: impl Iterator<Item = anyhow::Result<CompletionRow>>,
    output: impl Write,
    place: &str,
) -> anyhow::Result<Scored> {
    let &Scoring { reward, format, file } = scoring;
    let failed = || format!("cannot write scores to {place}");
    let mut table = csv::Writer::from_writer(output);
    let parts = reward.parts();
    let own = [format.column, "score", "reason", format.label];
    let columns = parts.iter().map(|part| column_of_part(part, &own));
    let columns = own[..2].iter().map(|name| (*name).to_owned()).chain(columns);
    let columns = columns.chain(own[2..].iter().map(|name| (*name).to_owned()));
    let mut scored = Scored { asked: Asked::new(reward), ..Scored::default() };
    let mut next = || rows.by_ref().take(BLOCK).collect::<anyhow::Result<Vec<CompletionRow>>>();
    // A file that cannot be read does not begin a table.
    let mut block = next()?;
    table.write_record(columns).with_context(failed)?;
    while !block.is_empty() {
        let (inputs, labels): (Vec<RewardInput>, Vec<String>) =
            block.into_iter().map(|row| (row.input, row.label)).unzip();
        let outcomes: Vec<Outcome> =
            reward.score(&inputs).into_iter().map(Outcome::bounded).collect();
        for ((input, label), outcome) in inputs.iter().zip(&labels).zip(&outcomes) {
            let value = |value: Option<f64>| value.map_or_else(String::new, number_cell);
            let mut row = vec![text_cell(&input.text), value(outcome.total())];
            row.extend(parts.iter().map(|part| value(outcome.part(part))));
            let reason = reason(&input.text, outcome, format);
            row.extend([text_cell(&reason_line(&reason)), text_cell(label)]);
            table.write_record(row).with_context(failed)?;
            let why = || format!("{reason}{}", remedy(reward, input, Source::Score(file)));
            scored.asked.add(&input.text, outcome, format, why);
            match outcome.total() {
                Some(total) => (scored.rows, scored.sum) = (scored.rows + 1, scored.sum + total),
                None => {
                    scored.unscored += 1;
                    scored.first_reason.get_or_insert_with(why);
                }
            }
            scored.empty += u64::from(input.text.is_empty());
        }
        block = next()?;
    }
    table.flush().with_context(failed)?;
    Ok(scored)
}

/// Returns why a completion has no score or a score of 0.
pub(crate) fn reason(text: &str, outcome: &Outcome, format: &RowFormat) -> String {
    let invalid = || format.invalid.and_then(|why| why(text)).unwrap_or_default();
    match outcome {
        Outcome::Failed { reason, .. } => reason.clone(),
        Outcome::Abstained { .. } => "the reward abstained".to_owned(),
        Outcome::Scored(scored) if scored.uncounted => "it does not pass a filter".to_owned(),
        Outcome::Scored(_) if outcome.part("valid") == Some(0.0) => invalid(),
        Outcome::Scored(_) => String::new(),
    }
}
