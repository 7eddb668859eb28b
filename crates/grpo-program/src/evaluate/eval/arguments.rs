//! Arguments of `grpo eval`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_data::FileOrigin;
use grpo_eval::stats::Direction;
use grpo_task::config::{self, nearest};
use grpo_task::eval::{Columns, FieldGroup, Generations, Measured, Suite, SuiteOptions, by_field};
use grpo_task::output::{FileInPlace, Formats, JSON};
use grpo_task::task::Tasks;
use serde_json::{Value, json};

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
    pub(super) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) sampled: SampledArguments,
    /// Metrics to compute [default: what fits the file: `molecules` for .smi files,
    /// columns named smiles, and texts that are SMILES, `infill` for the output of `grpo fill`, otherwise `text`]
    #[arg(long, value_name = "NAME", help_heading = "Metrics")]
    pub(super) suite: Option<String>,
    #[command(flatten)]
    pub(super) options: SuiteOptions,
    #[command(flatten)]
    pub(super) columns: ColumnArguments,
    /// Configuration file with a [reward] section, or a type of reward such as `answer`: the texts are
    /// scored, and each component is a metric. With --model, the sections [data], [sampling],
    /// [rollout] and [eval] of the file apply too
    #[arg(
        long,
        value_name = "CONFIG|TYPE",
        conflicts_with = "score_column",
        help_heading = "Metrics"
    )]
    pub(super) reward: Option<PathBuf>,
    /// Override a key of the configuration of --reward, e.g. reward.extract='####'; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "reward", help_heading = "Metrics")]
    pub(super) set: Vec<String>,
    /// Show the scores and Pass@k for each value of this key of the records, e.g. `level`; a dot leads
    /// into nested objects
    #[arg(long, value_name = "FIELD", help_heading = "Metrics")]
    pub(super) by: Option<String>,
    /// Bound of a metric, for example 'rouge_l > 0.3'; the exit code is 1 if it does not hold;
    /// repeatable
    #[arg(long, value_name = "BOUND", help_heading = "Metrics")]
    pub(super) gate: Vec<String>,
    /// Write the metrics (.json) or, with --model, the scored completions (.jsonl) to this file;
    /// repeatable
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(super) output: Vec<PathBuf>,
    /// Print the metrics as JSON instead of a table
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    pub(super) force: bool,
}

impl EvalArguments {
    /// Returns the model and the adapter, which may be names of the hub.
    pub(crate) fn models(&mut self) -> Vec<&mut PathBuf> {
        self.sampled.models()
    }

    /// Returns the files of metrics among those of `-o`, and the others.
    pub(super) fn outputs(&self) -> (Vec<&PathBuf>, Vec<&PathBuf>) {
        self.output.iter().partition(|path| FileOrigin::new(path).1 != "jsonl")
    }

    /// Creates the file of metrics, if any.
    pub(super) fn create_output(&self) -> anyhow::Result<Option<FileInPlace>> {
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
    pub(super) fn read_reward(&self, tasks: &Tasks) -> anyhow::Result<Option<LoadedReward>> {
        let none = config::Command { name: "", keys: Vec::new() };
        let read = |reward: &PathBuf| {
            LoadedReward::of(reward_layers(reward, &none, &self.set, tasks)?, tasks)
        };
        self.reward.as_ref().map(read).transpose()
    }

    /// Returns the options that affect the metrics and differ from their defaults, as words of a command
    /// line.
    pub(super) fn settings(&self, options: &SuiteOptions) -> Value {
        let reward = self.reward.iter().map(|path| format!("--reward={}", path.display()));
        let set = self.set.iter().map(|pair| format!("--set={pair}"));
        let words =
            self.columns.words().into_iter().chain(options.words()).chain(reward).chain(set);
        words.collect::<Vec<String>>().into()
    }

    /// Returns the groups of `--by`, if it is given.
    pub(super) fn groups(
        &self,
        all: &Generations,
        measured: &Measured,
    ) -> anyhow::Result<Option<Groups>> {
        let of = |field: &String| Ok((field.clone(), by_field(all, field, measured)?));
        self.by.as_ref().map(of).transpose()
    }
}

/// A field and the metrics for each of its values.
pub(super) type Groups = (String, Vec<FieldGroup>);

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
pub(super) struct Gate {
    metric: String,
    passes: Direction,
    bound: f64,
}

impl Gate {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
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
    pub(super) fn check(&self, measured: &Measured, file: &Path) -> anyhow::Result<Value> {
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

/// Heading of the options.
const MODEL: &str = "Evaluation of a model";

/// Largest number of completions per prompt.
const MOST: u32 = 1000;

#[derive(Debug, Args)]
pub(super) struct SampledArguments {
    /// Model whose completions of prompts are sampled and scored, in place of files: a folder, or a name
    /// of the Hugging Face hub (org/name); requires --reward
    #[arg(
        long,
        value_name = "FOLDER|NAME",
        conflicts_with_all = [
            "files", "suite", "references", "training", "bertscore", "column", "prompt_column",
            "reference_column", "score_column",
        ],
        help_heading = MODEL
    )]
    pub(super) model: Option<PathBuf>,
    /// Adapter (PEFT format) of the model: a folder, or a name of the hub
    #[arg(
        long,
        value_name = "FOLDER|NAME",
        requires = "model",
        help_heading = MODEL
    )]
    pub(super) adapter: Option<PathBuf>,
    /// Held-out prompts (JSON lines or Parquet), or hf://datasets/org/name/path [default: eval.file of
    /// the configuration]
    #[arg(long, value_name = "FILE|NAME", requires = "model", help_heading = MODEL)]
    pub(super) data: Option<PathBuf>,
    /// Number of prompts, the first of the file [default: all]
    #[arg(long, value_name = "N", requires = "model", help_heading = MODEL)]
    pub(super) samples: Option<u32>,
    /// Completions per prompt [default: eval.group_size of the configuration, or 1]
    #[arg(short = 'n', long = "number", value_name = "N", requires = "model", help_heading = MODEL)]
    pub(super) number: Option<u32>,
    /// Sampling temperature [default: that of the configuration, or 1]
    #[arg(
        long,
        value_name = "T",
        requires = "model",
        allow_negative_numbers = true,
        help_heading = MODEL
    )]
    pub(super) temperature: Option<f32>,
    /// Maximum length of a completion in tokens [default: that of the configuration, or 256]
    #[arg(long, value_name = "N", requires = "model", help_heading = MODEL)]
    pub(super) max_new_tokens: Option<u32>,
}

impl SampledArguments {
    pub(super) fn models(&mut self) -> Vec<&mut PathBuf> {
        self.model.iter_mut().chain(&mut self.adapter).collect()
    }

    /// Checks the values that do not depend on model and data.
    pub(super) fn check(&self, has_reward: bool, options: &SuiteOptions) -> anyhow::Result<()> {
        if self.model.is_none() {
            return Ok(());
        }
        anyhow::ensure!(
            has_reward,
            "--model requires --reward; add a configuration with a [reward] section, or a type such as `answer`"
        );
        anyhow::ensure!(self.samples != Some(0), "--samples 0 is out of range; expected 1 or more");
        if let Some(number) = self.number {
            anyhow::ensure!(
                (1..=MOST).contains(&number),
                "-n {number} is out of range; expected 1 to {MOST}"
            );
        }
        anyhow::ensure!(
            i64::try_from(options.seed).is_ok(),
            "--seed {} is out of range; expected 0 to {}",
            options.seed,
            i64::MAX
        );
        options.check()
    }

    /// Returns the options that set keys of the configuration.
    pub(super) fn keys(
        &self,
        seed: u64,
        set: &[String],
    ) -> Vec<(&'static str, &'static str, toml::Value)> {
        let whole = |option, key, value: Option<u32>| {
            value.map(|value| (option, key, toml::Value::from(i64::from(value))))
        };
        // The shortest number that is the same f32, as in a file.
        let temperature = self.temperature.map(|temperature| {
            let value: f64 = temperature.to_string().parse().unwrap_or(temperature.into());
            ("--temperature", "sampling.temperature", toml::Value::from(value))
        });
        // `--seed` has a default, which `--set seed` replaces.
        let seed = (!config::is_set(set, "seed")).then(|| {
            let seed = i64::try_from(seed).expect("it was checked");
            ("--seed", "seed", toml::Value::from(seed))
        });
        let number = whole("-n", "eval.group_size", self.number);
        let longest = whole("--max-new-tokens", "sampling.max_new_tokens", self.max_new_tokens);
        [number, longest, temperature, seed].into_iter().flatten().collect()
    }
}
