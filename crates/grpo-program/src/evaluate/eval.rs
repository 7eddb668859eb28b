//! `grpo eval`: computes metrics of files of generated text.

mod rewarded;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::statistics::{mean, standard_error};
use grpo_eval::stats::Direction;
use grpo_task::config::nearest;
use grpo_task::eval::{
    Columns, DEFAULT_PASS, Generations, Measured, Suite, SuiteOptions, TEXT_SUITE,
};
use grpo_task::output::{FileInPlace, JSON, say, say_aside, table};
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;
use grpo_task::visible::data_output;
use serde_json::{Map, Value, json};

use crate::train_file::LoadedReward;
use rewarded::Rewarded;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo sample --model runs/replies/model --prompts test.jsonl -n 10 -o replies.jsonl
  grpo eval replies.jsonl --pass quality,relevance:0.1 -o replies.json
  grpo eval sums.jsonl --pass answer --extract '#### (-?[0-9.]+)' --reference-column solution
  grpo eval molecules.smi --suite molecules --references test.smi --training train.smi
  grpo eval replies.jsonl --reward configs/replies/grpo-hybrid.toml
  grpo eval greedy.jsonl --gate 'rouge_l > 0.3' -o gate.json")]
pub(crate) struct EvalArguments {
    /// Files of generated text: JSON lines, Parquet, CSV, or one text per line (.smi, .txt)
    #[arg(required = true, value_name = "FILE", help_heading = "Input")]
    files: Vec<PathBuf>,
    /// Metrics to compute [default: what fits the file: `molecules` for .smi files,
    /// columns named smiles, and texts that are SMILES, `infill` for the output of `grpo fill`, otherwise `text`]
    #[arg(long, value_name = "NAME", help_heading = "Metrics")]
    suite: Option<String>,
    #[command(flatten)]
    options: SuiteOptions,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Configuration file with a [reward] section: the texts are scored, and each component is a metric
    #[arg(long, value_name = "CONFIG", conflicts_with = "score_column", help_heading = "Metrics")]
    reward: Option<PathBuf>,
    /// Bound of a metric, for example 'rouge_l > 0.3'; the exit code is 1 if it does not hold;
    /// repeatable
    #[arg(long, value_name = "BOUND", help_heading = "Metrics")]
    gate: Vec<String>,
    /// Write the metrics to this file (JSON)
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Print the metrics as JSON instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    force: bool,
}

impl EvalArguments {
    /// Creates the output file, if any.
    fn create_output(&self) -> anyhow::Result<Option<FileInPlace>> {
        let inputs = self.files.iter().chain(&self.reward).chain(self.options.files());
        let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
        let create = |path: &PathBuf| FileInPlace::create_beside(path, JSON, &inputs, self.force);
        self.output.as_ref().map(create).transpose()
    }

    /// Checks the values that do not depend on the files.
    pub(crate) fn check(&self, tasks: &Tasks) -> anyhow::Result<()> {
        self.gate.iter().try_for_each(|gate| Gate::parse(gate).map(drop))?;
        self.output.iter().try_for_each(|path| JSON.require("-o", path).map(drop))?;
        self.suite.iter().try_for_each(|name| suite_named(tasks, name).map(drop))
    }

    /// Returns the options that affect the metrics and differ from their defaults, as words of a command
    /// line.
    fn settings(&self) -> Value {
        let reward = self.reward.iter().map(|path| format!("--reward={}", path.display()));
        let words = self.columns.words().into_iter().chain(self.options.words()).chain(reward);
        words.collect::<Vec<String>>().into()
    }
}

/// Names of keys or columns.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ColumnArguments {
    /// Key or column with the generated text [default: the first of completion, text, reply, smiles …]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    column: Option<String>,
    /// Key or column with the prompt [default: the first of prompt, prompt_text, messages, tweet …]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    prompt_column: Option<String>,
    /// Key or column with the reference [default: the first of reference, references, answer, target]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    reference_column: Option<String>,
    /// Key or column with the score [default: the first of reward, score, Score, total_score]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    score_column: Option<String>,
}

impl ColumnArguments {
    /// Returns the options as words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let options = [
            ("--column", &self.column),
            ("--prompt-column", &self.prompt_column),
            ("--reference-column", &self.reference_column),
            ("--score-column", &self.score_column),
        ];
        let word = |(option, value): (&str, &Option<String>)| {
            Some(format!("{option}={}", value.as_ref()?))
        };
        options.into_iter().filter_map(word).collect()
    }

    /// Returns the columns with the keys that suites read.
    pub(crate) fn columns(&self, tasks: &Tasks) -> Columns {
        let kept = tasks.suites().iter().flat_map(|suite| suite.keys).copied().collect();
        Columns { kept, ..self.plain() }
    }

    pub(crate) fn plain(&self) -> Columns {
        let Self { column, prompt_column, reference_column, score_column } = self.clone();
        Columns {
            completion: column,
            prompt: prompt_column,
            reference: reference_column,
            score: score_column,
            ..Columns::default()
        }
    }
}

/// A bound of a metric.
struct Gate {
    metric: String,
    passes: Direction,
    bound: f64,
}

impl Gate {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let parts = [('>', Direction::HigherIsBetter), ('<', Direction::LowerIsBetter)];
        let found = parts.into_iter().find_map(|(sign, passes)| {
            let (metric, bound) = text.split_once(sign)?;
            let bound = bound.trim().parse().ok().filter(|bound: &f64| bound.is_finite())?;
            Some(Self { metric: metric.trim().to_owned(), passes, bound })
        });
        found.with_context(|| {
            format!("--gate '{text}' is not a bound; write a metric, < or > (not <= or >=) and a number, e.g. 'rouge_l > 0.3'")
        })
    }

    /// Returns the JSON entry and whether the gate is passed.
    fn check(&self, measured: &Measured, file: &Path) -> anyhow::Result<(Value, bool)> {
        let value = *measured.metrics.get(&self.metric).with_context(|| {
            let known: Vec<String> = measured.metrics.keys().cloned().collect();
            let hint = match nearest(&known, &self.metric) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("known: {}", known.join(", ")),
            };
            format!("--gate: {} has no metric `{}`; {hint}", file.display(), self.metric)
        })?;
        let passed = self.passes.oriented(value) > self.passes.oriented(self.bound);
        let Self { metric, passes, bound } = self;
        let sign = if *passes == Direction::HigherIsBetter { ">" } else { "<" };
        let entry = json!({"metric": metric, "value": value, "bound": format!("{sign} {bound}"), "passed": passed});
        Ok((entry, passed))
    }
}

/// Returns the suite with this name, or the one that fits the generations.
///
/// # Errors
/// Returns an error if there is no such suite.
pub(crate) fn suite(
    tasks: &Tasks,
    name: Option<&str>,
    generations: &Generations,
) -> anyhow::Result<Suite> {
    let suites = tasks.suites();
    let is_default = |suite: &&Suite| {
        let column = generations.column.as_deref();
        suite.of_endings.contains(&generations.ending.as_str())
            || suite
                .of_model_files
                .iter()
                .any(|name| generations.model_files.iter().any(|f| f == name))
            || column.is_some_and(|column| {
                suite.of_columns.iter().any(|of| of.eq_ignore_ascii_case(column))
            })
    };
    let by_contents = || {
        let suite = suites.iter().find(|suite| generations.is_of(suite))?;
        say_aside(format_args!(
            "suite        {}, which fits the contents; choose another with --suite",
            suite.name
        ));
        Some(suite)
    };
    let default = || {
        let suite = suites.iter().find(is_default).or_else(by_contents);
        suite.map_or(TEXT_SUITE.name, |suite| suite.name)
    };
    suite_named(tasks, name.unwrap_or_else(default))
}

/// Returns the suite with this name.
///
/// # Errors
/// Returns an error if there is no such suite.
pub(crate) fn suite_named(tasks: &Tasks, name: &str) -> anyhow::Result<Suite> {
    let suites = tasks.suites();
    suites.iter().find(|suite| suite.name == name).copied().with_context(|| {
        let known = suites.iter().map(|suite| format!("{} ({})", suite.name, suite.about));
        format!(
            "--suite {name}: unknown suite; expected one of: {}",
            known.collect::<Vec<_>>().join("; ")
        )
    })
}

pub(crate) fn run(arguments: &EvalArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let gates =
        arguments.gate.iter().map(|gate| Gate::parse(gate)).collect::<Result<Vec<_>, _>>()?;
    let whole = arguments.reward.is_some();
    let columns = Columns { whole, ..arguments.columns.columns(tasks) };
    let reward = arguments.reward.as_deref();
    let reward = reward.map(|path| LoadedReward::read(path, &[], tasks)).transpose()?;
    let output = arguments.create_output()?;
    let mut entries = Vec::new();
    let mut all = Vec::new();
    let mut passed = true;
    for file in &arguments.files {
        let _phase = Phase::begin(format!("evaluating {}", file.display()));
        let mut generations = Generations::read(file, &columns)?;
        let suite = suite(tasks, arguments.suite.as_deref(), &generations)?;
        suite.prepare(file, &mut generations)?;
        suite.warn_of_other_texts(file, &generations);
        let rewarded = reward.as_ref();
        let rewarded = rewarded.map(|reward| Rewarded::new(reward, file, &mut generations, tasks));
        let rewarded = rewarded.transpose()?;
        let measure = || -> anyhow::Result<Measured> {
            let mut measured = (suite.measure)(&generations, &arguments.options)?;
            if let Some(rewarded) = &rewarded {
                rewarded.add_to(&mut measured);
                measured.add_intervals(arguments.options.seed)?;
            }
            Ok(measured)
        };
        let measured = measure().with_context(|| file.display().to_string())?;
        let checked = gates.iter().map(|gate| gate.check(&measured, file));
        let checked = checked.collect::<anyhow::Result<Vec<_>>>()?;
        passed &= checked.iter().all(|(_, passed)| *passed);
        entries.push(entry(file, &suite, &measured, &checked, arguments));
        all.push((file, suite, measured));
    }
    let mut result = match entries.len() {
        1 => entries.remove(0),
        _ => Map::from_iter([("files".to_owned(), entries.into())]),
    };
    if !gates.is_empty() {
        result.insert("passed".to_owned(), passed.into());
    }
    let text = serde_json::to_string_pretty(&result).context("the metrics are finite")? + "\n";
    if let Some(file) = output {
        file.write_text(&text)?;
    }
    match arguments.json {
        true => data_output().write_all(text.as_bytes()).context("cannot write the metrics")?,
        false => show(&all),
    }
    if arguments.options.pass != DEFAULT_PASS {
        all.iter()
            .filter_map(|(file, _, measured)| passed_line(file, measured))
            .for_each(|line| say_aside(format_args!("{line}")));
    }
    for gate in gate_lines(&result) {
        say_aside(format_args!("{gate}"));
    }
    anyhow::ensure!(passed, "the evaluation did not pass its gates");
    Ok(())
}

/// Returns the fraction of completions that pass, with its standard error over the prompts.
fn passed_line(file: &Path, measured: &Measured) -> Option<String> {
    let of_prompts = measured.per_prompt.get("pass_at_1").filter(|of| of.len() > 1)?;
    let n = of_prompts.len();
    Some(format!(
        "{}: {:.1} ± {:.1} % of completions pass (mean ± standard error over {n} prompts)",
        file.display(),
        100.0 * mean(of_prompts),
        100.0 * standard_error(of_prompts)
    ))
}

/// Returns a line for each gate.
fn gate_lines(result: &Map<String, Value>) -> Vec<String> {
    let gates_of = |entry: &Value, file: &str| -> Vec<(String, Value)> {
        let gates = entry["gates"].as_array().into_iter().flatten();
        gates.map(|gate| (file.to_owned(), gate.clone())).collect()
    };
    let gates: Vec<(String, Value)> = match result.get("files").and_then(Value::as_array) {
        None => gates_of(&Value::Object(result.clone()), ""),
        Some(files) => {
            let name = |entry: &Value| format!("{}: ", entry["file"].as_str().unwrap_or_default());
            files.iter().flat_map(|entry| gates_of(entry, &name(entry))).collect()
        }
    };
    gates
        .iter()
        .map(|(file, gate)| {
            let verdict = if gate["passed"] == true { "passed" } else { "failed" };
            format!(
                "gate {verdict}  {file}{} = {} (bound {})",
                gate["metric"].as_str().unwrap_or_default(),
                gate["value"],
                gate["bound"].as_str().unwrap_or_default()
            )
        })
        .collect()
}

/// Returns the JSON entry of a file.
fn entry(
    file: &Path,
    suite: &Suite,
    measured: &Measured,
    gates: &[(Value, bool)],
    arguments: &EvalArguments,
) -> Map<String, Value> {
    let Measured { metrics, intervals, per_prompt, per_text: _ } = measured;
    let mut entry = Map::from_iter([
        ("file".to_owned(), file.to_string_lossy().into()),
        ("suite".to_owned(), suite.name.into()),
        ("settings".to_owned(), arguments.settings()),
        ("metrics".to_owned(), json!(metrics)),
        ("intervals".to_owned(), json!(intervals)),
        ("standard_errors".to_owned(), json!(standard_errors(per_prompt))),
        ("per_prompt".to_owned(), json!(per_prompt)),
    ]);
    if !gates.is_empty() {
        let gates: Vec<&Value> = gates.iter().map(|(entry, _)| entry).collect();
        entry.insert("gates".to_owned(), json!(gates));
    }
    entry
}

/// Returns the standard errors of metrics that are means over prompts.
fn standard_errors(per_prompt: &BTreeMap<String, Vec<f64>>) -> BTreeMap<&str, f64> {
    let several = per_prompt.iter().filter(|(_, values)| values.len() > 1);
    several.map(|(name, values)| (name.as_str(), standard_error(values))).collect()
}

/// Prints a table with a column per file.
fn show(all: &[(&PathBuf, Suite, Measured)]) {
    let mut names: Vec<&String> = all.iter().flat_map(|(.., of)| of.metrics.keys()).collect();
    names.sort();
    names.dedup();
    let file_names = all.iter().map(|(file, ..)| {
        let name = |file: &PathBuf| file.file_name().map(OsStr::to_os_string);
        let is_unique = all.iter().filter(|(other, ..)| name(other) == name(file)).count() < 2;
        let short = name(file).filter(|_| is_unique);
        short.unwrap_or_else(|| file.as_os_str().to_owned()).to_string_lossy().into_owned()
    });
    let header: Vec<String> = std::iter::once("metric".to_owned())
        .chain(file_names)
        .chain(["better", "unit or range"].map(str::to_owned))
        .collect();
    let rows = names.iter().map(|name| {
        let cell = |suite: &Suite, of: &Measured| {
            let shown = |value: &f64| suite.shown(name, *value);
            match (of.metrics.get(*name), of.intervals.get(*name)) {
                (Some(value), Some([low, high])) => {
                    format!("{} [{}, {}]", shown(value), shown(low), shown(high))
                }
                (Some(value), None) => shown(value),
                (None, _) => String::new(),
            }
        };
        let suite = all.iter().find(|(.., of)| of.metrics.contains_key(*name));
        let better = match suite.and_then(|(_, suite, _)| suite.direction(name)) {
            Some(Direction::HigherIsBetter) => "↑ higher",
            Some(Direction::LowerIsBetter) => "↓ lower",
            None => "",
        };
        let unit = suite.and_then(|(_, suite, _)| suite.unit(name)).unwrap_or_default();
        std::iter::once((*name).clone())
            .chain(all.iter().map(|(_, suite, of)| cell(suite, of)))
            .chain([better, unit].map(str::to_owned))
            .collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    say(format_args!("{}", table(header, rows, 1..=all.len())));
}
