//! `grpo eval`: computes metrics of files of generated text, or of a model's completions.

mod rewarded;
mod sampled;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::FileOrigin;
use grpo_data::statistics::{mean, standard_error};
use grpo_eval::stats::Direction;
use grpo_task::config::{self, nearest};
use grpo_task::eval::{
    Columns, FieldGroup, Generations, Measured, Suite, SuiteOptions, TEXT_SUITE, by_field,
};
use grpo_task::output::{FileInPlace, Formats, JSON, say_aside};
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;
use grpo_task::visible::data_output;
use serde_json::{Map, Value, json};

use self::rewarded::Rewarded;
use self::sampled::SampledArguments;
use self::tables::{show, show_groups};
use crate::train_file::{LoadedReward, reward_layers};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo sample --model runs/replies/model --prompts test.jsonl -n 10 -o replies.jsonl
  grpo eval replies.jsonl --pass quality,relevance:0.1 -o replies.json
  grpo eval sums.jsonl --pass answer --extract '#### (-?[0-9.]+)' --reference-column solution
  grpo eval molecules.smi --suite molecules --references test.smi --training train.smi
  grpo eval replies.jsonl --reward configs/replies/grpo-hybrid.toml
  grpo eval greedy.jsonl --gate 'rouge_l > 0.3' -o gate.json
  grpo eval --model runs/text/model --reward configs/text/grpo.toml --data held-out.jsonl -n 8 --by level -o scored.jsonl
  grpo eval --model Qwen/Qwen3-0.6B --data hf://datasets/openai/gsm8k/main/test-00000-of-00001.parquet --reward answer --set reward.extract='####' --samples 200")]
pub(crate) struct EvalArguments {
    /// Files of generated text: JSON lines, Parquet, CSV, or one text per line (.smi, .txt)
    #[arg(required_unless_present = "model", value_name = "FILE", help_heading = "Input")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    sampled: SampledArguments,
    /// Metrics to compute [default: what fits the file: `molecules` for .smi files,
    /// columns named smiles, and texts that are SMILES, `infill` for the output of `grpo fill`, otherwise `text`]
    #[arg(long, value_name = "NAME", help_heading = "Metrics")]
    suite: Option<String>,
    #[command(flatten)]
    options: SuiteOptions,
    #[command(flatten)]
    columns: ColumnArguments,
    /// Configuration file with a [reward] section, or a type of reward such as `answer`: the texts are
    /// scored, and each component is a metric. With --model, the sections [data], [sampling],
    /// [rollout] and [eval] of the file apply too
    #[arg(
        long,
        value_name = "CONFIG|TYPE",
        conflicts_with = "score_column",
        help_heading = "Metrics"
    )]
    reward: Option<PathBuf>,
    /// Override a key of the configuration of --reward, e.g. reward.extract='####'; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "reward", help_heading = "Metrics")]
    set: Vec<String>,
    /// Show the scores and Pass@k for each value of this key of the records, e.g. `level`; a dot leads
    /// into nested objects
    #[arg(long, value_name = "FIELD", help_heading = "Metrics")]
    by: Option<String>,
    /// Bound of a metric, for example 'rouge_l > 0.3'; the exit code is 1 if it does not hold;
    /// repeatable
    #[arg(long, value_name = "BOUND", help_heading = "Metrics")]
    gate: Vec<String>,
    /// Write the metrics (.json) or, with --model, the scored completions (.jsonl) to this file;
    /// repeatable
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Vec<PathBuf>,
    /// Print the metrics as JSON instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    force: bool,
}

impl EvalArguments {
    /// Returns the model and the adapter, which may be names of the hub.
    pub(crate) fn models(&mut self) -> Vec<&mut PathBuf> {
        self.sampled.models()
    }

    /// Returns the files of metrics among those of `-o`, and the others.
    fn outputs(&self) -> (Vec<&PathBuf>, Vec<&PathBuf>) {
        self.output.iter().partition(|path| FileOrigin::new(path).1 != "jsonl")
    }

    /// Creates the file of metrics, if any.
    fn create_output(&self) -> anyhow::Result<Option<FileInPlace>> {
        let named = [&self.sampled.data, &self.reward].into_iter().flatten();
        let inputs = self.files.iter().chain(named).chain(self.options.files());
        let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
        let create = |path: &&PathBuf| FileInPlace::create_beside(path, JSON, &inputs, self.force);
        self.outputs().0.first().map(create).transpose()
    }

    /// Checks the values that do not depend on the files.
    pub(crate) fn check(&self, tasks: &Tasks) -> anyhow::Result<()> {
        self.gate.iter().try_for_each(|gate| Gate::parse(gate).map(drop))?;
        let formats = if self.sampled.model.is_some() { METRICS_OR_COMPLETIONS } else { JSON };
        let (metrics, completions) = self.outputs();
        let json = if completions.is_empty() || self.sampled.model.is_none() {
            self.output.iter().collect()
        } else {
            metrics.clone()
        };
        json.iter().try_for_each(|path| formats.require("-o", path).map(drop))?;
        for of_kind in [metrics, completions] {
            if let [one, other, ..] = of_kind[..] {
                anyhow::bail!(
                    "-o {} and -o {} would have the same contents; remove one",
                    one.display(),
                    other.display()
                );
            }
        }
        self.sampled.check(self.reward.is_some(), &self.options)?;
        self.suite.iter().try_for_each(|name| suite_named(tasks, name).map(drop))
    }

    /// Reads the reward of `--reward`.
    fn read_reward(&self, tasks: &Tasks) -> anyhow::Result<Option<LoadedReward>> {
        let none = config::Command { name: "", keys: Vec::new() };
        let read = |reward: &PathBuf| {
            LoadedReward::of(reward_layers(reward, &none, &self.set, tasks)?, tasks)
        };
        self.reward.as_ref().map(read).transpose()
    }

    /// Returns the options that affect the metrics and differ from their defaults, as words of a command
    /// line.
    fn settings(&self, options: &SuiteOptions) -> Value {
        let reward = self.reward.iter().map(|path| format!("--reward={}", path.display()));
        let set = self.set.iter().map(|pair| format!("--set={pair}"));
        let words =
            self.columns.words().into_iter().chain(options.words()).chain(reward).chain(set);
        words.collect::<Vec<String>>().into()
    }

    /// Returns the groups of `--by`, if it is given.
    fn groups(&self, all: &Generations, measured: &Measured) -> anyhow::Result<Option<Groups>> {
        let of = |field: &String| Ok((field.clone(), by_field(all, field, measured)?));
        self.by.as_ref().map(of).transpose()
    }
}

/// A field and the metrics for each of its values.
type Groups = (String, Vec<FieldGroup>);

/// Contents of the files of `-o` with `--model`.
const METRICS_OR_COMPLETIONS: Formats = Formats {
    written: "metrics in JSON, or completions in JSON lines",
    endings: &["json", "jsonl"],
};

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

    /// Returns the JSON entry, which says whether the gate is passed.
    fn check(&self, measured: &Measured, file: &Path) -> anyhow::Result<Value> {
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
        Ok(
            json!({"metric": metric, "value": value, "bound": format!("{sign} {bound}"), "passed": passed}),
        )
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
    arguments.check(tasks)?;
    let gates =
        arguments.gate.iter().map(|gate| Gate::parse(gate)).collect::<Result<Vec<_>, _>>()?;
    match &arguments.sampled.model {
        Some(model) => sampled::run(arguments, model, &gates, tasks),
        None => of_files(arguments, &gates, tasks),
    }
}

/// Evaluates files.
fn of_files(arguments: &EvalArguments, gates: &[Gate], tasks: &Tasks) -> anyhow::Result<()> {
    let whole = arguments.reward.is_some() || arguments.by.is_some();
    let columns = Columns { whole, ..arguments.columns.columns(tasks) };
    let reward = arguments.read_reward(tasks)?;
    let output = arguments.create_output()?;
    let mut entries = Vec::new();
    let mut all = Vec::new();
    for file in &arguments.files {
        let _phase = Phase::begin(format!("evaluating {}", file.display()));
        let mut generations = Generations::read(file, &columns)?;
        let suite = suite(tasks, arguments.suite.as_deref(), &generations)?;
        suite.prepare(file, &mut generations)?;
        suite.warn_of_other_texts(file, &generations);
        let rewarded = reward.as_ref();
        let rewarded = rewarded.map(|reward| Rewarded::new(reward, file, &mut generations, tasks));
        let rewarded = rewarded.transpose()?;
        let are_judged = suite.name == TEXT_SUITE.name && generations.are_judged();
        let options = arguments.options.with_pass_for(are_judged);
        let measure = || -> anyhow::Result<(Measured, Option<Groups>)> {
            let mut measured = (suite.measure)(&generations, &options)?;
            if let Some(rewarded) = &rewarded {
                rewarded.add_to(&mut measured, &options)?;
                measured.add_intervals(options.seed)?;
            }
            let groups = arguments.groups(&generations, &measured)?;
            Ok((measured, groups))
        };
        let (measured, groups) = measure().with_context(|| file.display().to_string())?;
        let subject = vec![
            ("file", file.to_string_lossy().into()),
            ("suite", suite.name.into()),
            ("settings", arguments.settings(&options)),
        ];
        entries.push(entry(subject, &measured, groups.as_ref(), &checked(gates, &measured, file)?));
        let passed = options.pass.and_then(|_| passed_line(file, &measured));
        all.push((file, suite, measured, groups, passed));
    }
    let result = report(arguments, entries, output, || {
        let shown: Vec<_> =
            all.iter().map(|(file, suite, measured, ..)| (*file, suite, measured)).collect();
        show(&shown);
        for (file, .., groups, _) in &all {
            if let Some((field, groups)) = groups {
                let title = (all.len() > 1).then(|| file.display().to_string());
                show_groups(title.as_deref(), field, groups);
            }
        }
    })?;
    let passed = all.iter().filter_map(|(.., passed)| passed.as_ref());
    passed.for_each(|line| say_aside(format_args!("{line}")));
    end(&result)
}

/// Checks the gates of a file or model.
fn checked(gates: &[Gate], measured: &Measured, of: &Path) -> anyhow::Result<Vec<Value>> {
    gates.iter().map(|gate| gate.check(measured, of)).collect()
}

/// Writes the metrics of all entries, and prints them or calls `show`. Returns what was written.
fn report(
    arguments: &EvalArguments,
    mut entries: Vec<Map<String, Value>>,
    output: Option<FileInPlace>,
    show: impl FnOnce(),
) -> anyhow::Result<Map<String, Value>> {
    let gates = |entry: &Map<String, Value>| entry.get("gates").and_then(Value::as_array).cloned();
    let gates: Vec<Value> = entries.iter().filter_map(gates).flatten().collect();
    let mut result = match entries.len() {
        1 => entries.remove(0),
        _ => Map::from_iter([("files".to_owned(), entries.into())]),
    };
    if !gates.is_empty() {
        let passed = gates.iter().all(|gate| gate["passed"] == true);
        result.insert("passed".to_owned(), passed.into());
    }
    let text = serde_json::to_string_pretty(&result).context("the metrics are finite")? + "\n";
    if let Some(file) = output {
        file.write_text(&text)?;
    }
    match arguments.json {
        true => data_output().write_all(text.as_bytes()).context("cannot write the metrics")?,
        false => show(),
    }
    Ok(result)
}

/// Prints the gates.
///
/// # Errors
/// Returns an error if one is not passed.
fn end(result: &Map<String, Value>) -> anyhow::Result<()> {
    for gate in gate_lines(result) {
        say_aside(format_args!("{gate}"));
    }
    let failed = result.get("passed").is_some_and(|passed| passed == false);
    anyhow::ensure!(!failed, "the evaluation did not pass its gates");
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

/// Returns the JSON entry of a file or model, which begins with the keys of `subject`.
fn entry(
    subject: Vec<(&str, Value)>,
    measured: &Measured,
    groups: Option<&Groups>,
    gates: &[Value],
) -> Map<String, Value> {
    let errors = measured.standard_errors();
    let Measured { metrics, intervals, per_prompt, .. } = measured;
    let of_all = [
        ("metrics", json!(metrics)),
        ("intervals", json!(intervals)),
        ("standard_errors", json!(errors)),
        ("per_prompt", json!(per_prompt)),
    ];
    let keys = subject.into_iter().chain(of_all);
    let mut entry: Map<String, Value> = keys.map(|(key, value)| (key.to_owned(), value)).collect();
    if let Some((field, groups)) = groups {
        let group = |group: &FieldGroup| {
            let of = |index: usize| -> Map<String, Value> {
                let means = group.means.iter().filter(|(_, of)| of[index].is_finite());
                means.map(|(name, of)| (name.clone(), of[index].into())).collect()
            };
            let value =
                json!({"prompts": group.prompts, "metrics": of(0), "standard_errors": of(1)});
            (group.value.clone(), value)
        };
        let groups: Map<String, Value> = groups.iter().map(group).collect();
        entry.insert("by".to_owned(), json!({field: groups}));
    }
    if !gates.is_empty() {
        entry.insert("gates".to_owned(), json!(gates));
    }
    entry
}
