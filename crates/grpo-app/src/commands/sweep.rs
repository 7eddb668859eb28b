//! `grpo sweep`: trains a configuration with several values and seeds, samples from each model, and
//! compares the results. The work is described by a pipeline file, so a sweep resumes like a
//! pipeline.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use grpo_data::regular_file;
use grpo_report::command_of;
use grpo_run::atomic_write;
use serde::Serialize;
use toml::Table;

use crate::config;
use crate::output::say;
use crate::pipeline::{self, PipelineArguments};
use crate::task::Tasks;

/// Maximum number of runs of a sweep.
const MAX_RUNS: usize = 1000;
/// Maximum number of seeds that are counted. A larger number was probably meant as a seed.
const MAX_COUNT: u64 = 20;
/// Maximum length of a combination's name in characters.
const MAX_NAME: usize = 100;
/// Folder of the samples.
const SAMPLES: &str = "samples";
/// Seed of the first run if the configuration has none.
const SEED: u64 = 42;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo sweep configs/molecules/grpo.toml --seeds 3 --set loss.kl_coef=0.01,0.05 -o runs/kl
  grpo sweep configs/replies/grpo.toml --seeds 42,123,456 -o runs/seeds -- --tweets test.jsonl -n 10

Options after `--` are those of `grpo sample`. The results of an interrupted sweep are kept: the same command
continues it.")]
pub(crate) struct SweepArguments {
    /// Configuration of `grpo train` or `grpo pretrain` (TOML)
    #[arg(value_name = "FILE")]
    configuration: PathBuf,
    /// Number of seeds, counted from the configuration's seed, or the seeds, separated by commas
    /// (`42,` for a single one)
    #[arg(long, value_name = "SEEDS", default_value = "1", help_heading = "Runs")]
    seeds: String,
    /// Values of a key, separated by commas, e.g. --set loss.kl_coef=0.01,0.1; repeatable: all
    /// combinations are trained
    #[arg(long, value_name = "KEY=VALUES", help_heading = "Runs")]
    set: Vec<String>,
    /// Folder for runs, samples and the comparison
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    output: PathBuf,
    /// Only train, without sampling and comparing
    #[arg(long, conflicts_with = "sample", help_heading = "Output")]
    train_only: bool,
    /// Check all configurations and list what would run, then exit
    #[arg(long, help_heading = "Runs")]
    check: bool,
    /// Plain progress lines instead of the live screen
    #[arg(long, help_heading = "Display")]
    plain: bool,
    /// Options of `grpo sample`
    #[arg(last = true, value_name = "OPTIONS")]
    sample: Vec<String>,
    #[arg(from_global)]
    threads: Option<usize>,
    #[arg(from_global)]
    quiet: bool,
}

/// A combination of values.
#[derive(Clone, Debug, Default, PartialEq)]
struct Variant {
    /// Unique name, which is also that of a folder.
    name: String,
    /// `KEY=VALUE` pairs.
    set: Vec<String>,
}

/// A stage of the pipeline file.
#[derive(Debug, Default, Serialize)]
struct Stage {
    name: String,
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    arguments: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
    outputs: Vec<String>,
    independent: bool,
}

#[derive(Serialize)]
struct Sweep {
    stages: Vec<Stage>,
    summary: Vec<Summary>,
}

#[derive(Serialize)]
struct Summary {
    command: String,
    arguments: Vec<String>,
}

pub(crate) fn run(
    arguments: &SweepArguments,
    tasks: &Tasks,
    commands: &clap::Command,
) -> anyhow::Result<()> {
    let folder = &arguments.output;
    let path = folder.join("sweep.toml");
    // Files of a method are separated by commas.
    ensure!(
        !folder.to_string_lossy().contains(','),
        "-o {}: the folder's name contains a comma; choose another one",
        folder.display()
    );
    let written = toml::to_string(&sweep(arguments, tasks)?).context("a pipeline is TOML")?;
    let text = format!("# Written by `grpo sweep`. Run: grpo run {}\n\n{written}", path.display());
    let found = regular_file::read_to_string(&path).ok();
    // Seeds and values can be added, and samples drawn in another way. A sweep that trained nothing, for example because of a wrong
    // key, leaves nothing to keep.
    let has_results = || -> anyhow::Result<bool> {
        let own = [path.clone(), folder.join(SAMPLES)];
        let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        Ok(entries.iter().any(|entry| !own.contains(&entry.path())))
    };
    ensure!(
        found.is_none() || is_part(found.as_deref(), &text) || !has_results()?,
        "{} is from a sweep with other options; choose another folder with -o, or delete this one",
        path.display()
    );
    let is_used = |mut entries: std::fs::ReadDir| entries.next().is_some();
    ensure!(
        found.is_some() || !folder.exists() || !std::fs::read_dir(folder).is_ok_and(is_used),
        "{} exists and is not from a sweep; choose another folder with -o",
        folder.display()
    );
    let mut pipeline = PipelineArguments::of_file(path, arguments.threads, arguments.quiet);
    pipeline.plain = arguments.plain;
    if arguments.check {
        // A check writes nothing into the folder.
        let temporary = tempfile::tempdir().context("cannot create a temporary folder")?;
        pipeline.pipeline = temporary.path().join("sweep.toml");
        pipeline.check = true;
        std::fs::write(&pipeline.pipeline, text).context("cannot write a temporary file")?;
        return pipeline::run(&pipeline, commands);
    }
    let samples = folder.join(SAMPLES);
    std::fs::create_dir_all(&samples)
        .with_context(|| format!("cannot create {}", samples.display()))?;
    remove_changed(found.as_deref().unwrap_or_default(), &text)?;
    atomic_write(&pipeline.pipeline, text.as_bytes())?;
    pipeline::run(&pipeline, commands)?;
    if !arguments.train_only {
        let shown = ["comparison.html", "metrics.json"].map(|name| folder.join(name));
        if let Some(path) = shown.iter().find(|path| path.exists()) {
            say(format_args!("results      {}", path.display()));
        }
    }
    Ok(())
}

/// Returns the stages of a pipeline file.
fn stages(text: &str) -> Vec<toml::Value> {
    let table: Table = text.parse().unwrap_or_default();
    table.get("stages").and_then(toml::Value::as_array).cloned().unwrap_or_default()
}

fn is_training(stage: &toml::Value) -> bool {
    stage.get("config").is_some()
}

/// Returns whether all training stages of a pipeline file are in another one.
fn is_part(found: Option<&str>, of: &str) -> bool {
    let all = stages(of);
    let mut found =
        found.map(stages).unwrap_or_default().into_iter().filter(is_training).peekable();
    found.peek().is_some() && found.all(|stage| all.contains(&stage))
}

/// Removes the samples of stages that have changed, so that they are drawn again.
fn remove_changed(found: &str, of: &str) -> anyhow::Result<()> {
    let all = stages(of);
    for stage in stages(found).iter().filter(|stage| !is_training(stage) && !all.contains(stage)) {
        for path in stage.get("outputs").and_then(toml::Value::as_array).into_iter().flatten() {
            let Some(path) = path.as_str().map(Path::new).filter(|path| path.is_file()) else {
                continue;
            };
            std::fs::remove_file(path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the stages of a sweep: all runs, then all samples, then the comparison.
fn sweep(arguments: &SweepArguments, tasks: &Tasks) -> anyhow::Result<Sweep> {
    let keys = config::load::<Table>(&arguments.configuration, &[])?.value;
    let seeds = seeds(&arguments.seeds, &keys)?;
    let variants = variants(&arguments.set, MAX_RUNS / seeds.len())?;
    let (mut runs, mut samples, mut methods) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &variants {
        let mut files = Vec::new();
        for seed in &seeds {
            let one = Run { arguments, tasks, variant, seed: *seed };
            let keys = config::load::<Table>(&arguments.configuration, &one.set())?.value;
            runs.push(one.stage(&keys));
            let sample = one.sample_stage(&keys)?;
            files.push(sample.outputs[0].clone());
            samples.push(sample);
        }
        methods.push(format!("{}={}", variant.name, files.join(",")));
    }
    if arguments.train_only {
        return Ok(Sweep { stages: runs, summary: Vec::new() });
    }
    let stages: Vec<Stage> = runs.into_iter().chain(samples).collect();
    let mut options = vec!["--force".to_owned()];
    for ending in ["html", "md", "json"] {
        let file = arguments.output.join(format!("comparison.{ending}"));
        options.push(format!("--output={}", file.display()));
    }
    let summary = match methods.len() {
        1 => {
            let files = stages.iter().filter(|stage| stage.command == "sample");
            let files = files.map(|stage| stage.outputs[0].clone());
            let output = arguments.output.join("metrics.json").display().to_string();
            let options = [format!("--output={output}"), "--force".to_owned()];
            Summary { command: "eval".to_owned(), arguments: files.chain(options).collect() }
        }
        _ => Summary { command: "compare".to_owned(), arguments: [methods, options].concat() },
    };
    Ok(Sweep { stages, summary: vec![summary] })
}

/// A run of a sweep.
struct Run<'a> {
    arguments: &'a SweepArguments,
    tasks: &'a Tasks,
    variant: &'a Variant,
    seed: u64,
}

impl Run<'_> {
    fn folder(&self) -> PathBuf {
        self.arguments.output.join(&self.variant.name).join(format!("seed-{}", self.seed))
    }

    fn set(&self) -> Vec<String> {
        let run = toml::Value::String(self.folder().display().to_string());
        let own = [format!("seed={}", self.seed), format!("run={run}")];
        self.variant.set.iter().cloned().chain(own).collect()
    }

    /// Returns the folder with the trained model or adapter.
    fn result(&self, keys: &Table) -> PathBuf {
        let is_adapter = keys.contains_key("lora") || keys.contains_key("adapter");
        self.folder().join(if is_adapter { "adapter" } else { "model" })
    }

    /// Returns the training stage.
    fn stage(&self, keys: &Table) -> Stage {
        Stage {
            name: format!("{}/seed-{}", self.variant.name, self.seed),
            command: command_of(keys).to_owned(),
            config: Some(self.arguments.configuration.display().to_string()),
            arguments: self.set().iter().map(|pair| format!("--set={pair}")).collect(),
            outputs: vec![self.result(keys).join("manifest.json").display().to_string()],
            independent: true,
            ..Stage::default()
        }
    }

    /// Returns the stage that samples from the trained model.
    fn sample_stage(&self, keys: &Table) -> anyhow::Result<Stage> {
        let result = self.result(keys);
        let start = ["model", "start"].iter().find_map(|key| keys.get(*key)?.as_str());
        let model = match (result.ends_with("adapter"), start) {
            (false, _) => vec![format!("--model={}", result.display())],
            (true, Some(start)) => {
                vec![format!("--model={start}"), format!("--adapter={}", result.display())]
            }
            (true, None) => bail!(
                "{} trains an adapter, but has no `model` or `start`; add it",
                self.arguments.configuration.display()
            ),
        };
        let is_line_of_text = match start {
            Some(folder) if Path::new(folder).is_dir() => {
                let codec = self.tasks.codecs().read(Path::new(folder))?;
                self.tasks.sampling().any(|task| task.sampler(&codec).is_some())
            }
            // A model that is trained from scratch generates molecules, unless it gets prompts.
            _ => {
                let is_prompt = |word: &String| {
                    ["--prompt", "--tweets"].iter().any(|option| word.starts_with(option))
                };
                start.is_none() && !self.arguments.sample.iter().any(is_prompt)
            }
        };
        let ending = if is_line_of_text { "smi" } else { "jsonl" };
        let name = format!("{}-seed-{}.{ending}", self.variant.name, self.seed);
        let output = self.arguments.output.join(SAMPLES).join(name).display().to_string();
        let own = [format!("--output={output}")];
        Ok(Stage {
            name: format!("{}/sample-{}", self.variant.name, self.seed),
            command: "sample".to_owned(),
            arguments: [&model[..], &self.arguments.sample[..], &own].concat(),
            inputs: vec![result.join("manifest.json").display().to_string()],
            outputs: vec![output],
            independent: true,
            ..Stage::default()
        })
    }
}

/// Parses `--seeds`.
fn seeds(text: &str, keys: &Table) -> anyhow::Result<Vec<u64>> {
    let wrong = || {
        format!(
            "--seeds {text}: expected a number of seeds, e.g. 3, or seeds separated by commas, e.g. 42,123,456"
        )
    };
    let is_list = text.contains(',');
    let words = text.strip_suffix(',').unwrap_or(text);
    let numbers: Result<Vec<u64>, _> = words.split(',').map(|word| word.trim().parse()).collect();
    let numbers = numbers.with_context(wrong)?;
    if let ([count], false) = (&numbers[..], is_list) {
        let count = *count;
        ensure!(count > 0, wrong());
        ensure!(
            count <= MAX_COUNT,
            "--seeds {count} would train {count} runs of each combination; write `--seeds {count},` for the seed {count}"
        );
        let first = keys.get("seed").and_then(toml::Value::as_integer);
        let first = first.and_then(|seed| u64::try_from(seed).ok()).unwrap_or(SEED);
        return Ok((0..count).map(|index| first.wrapping_add(index)).collect());
    }
    let is_double = |(index, seed): (usize, &u64)| numbers[..index].contains(seed);
    ensure!(!numbers.iter().enumerate().any(is_double), "--seeds {text} lists a seed twice");
    Ok(numbers)
}

/// Returns all combinations of the values of `--set`, at most `most`.
fn variants(set: &[String], most: usize) -> anyhow::Result<Vec<Variant>> {
    let mut variants = vec![Variant::default()];
    let key_of = |text: &String| text.split('=').next().unwrap_or_default().trim().to_owned();
    let last_of = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    for text in set {
        let (key, values) = text.split_once('=').with_context(|| {
            format!("--set {text}: expected KEY=VALUES, e.g. loss.kl_coef=0.01,0.1")
        })?;
        let values = listed(values);
        ensure!(values.iter().all(|value| !value.is_empty()), "--set {text} has an empty value");
        ensure!(
            !["run", "seed"].contains(&key.trim()),
            "--set {key}: the sweep sets it itself; use {}",
            if key.trim() == "run" { "-o" } else { "--seeds" }
        );
        ensure!(
            variants.len() * values.len() <= most,
            "the sweep has more than {MAX_RUNS} runs; use fewer values or seeds"
        );
        // The last part of the key names a folder, if no other key ends like it.
        let last = last_of(key.trim());
        let is_same = |other: &&String| last_of(&key_of(other)) == last;
        let name_of_key =
            if set.iter().filter(is_same).count() > 1 { key.trim() } else { last.as_str() };
        let with = |variant: &Variant, quoted: &str| {
            let plain =
                |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
            let value = quoted.trim_matches(['"', '\'']);
            let own: String = format!("{name_of_key}-{value}").chars().map(plain).collect();
            let name = match values.len() {
                1 => variant.name.clone(),
                _ if variant.name.is_empty() => own,
                _ => format!("{}+{own}", variant.name),
            };
            let name: String = name.chars().take(MAX_NAME).collect();
            let name = name.trim_end_matches('.').to_owned();
            let pair = format!("{key}={quoted}");
            Variant { name, set: variant.set.iter().cloned().chain([pair]).collect() }
        };
        variants = variants
            .iter()
            .flat_map(|variant| values.iter().map(|value| with(variant, value)).collect::<Vec<_>>())
            .collect();
    }
    for index in 0..variants.len() {
        if variants[index].name.is_empty() {
            variants[index].name = "baseline".to_owned();
        }
        ensure!(
            variants[..index]
                .iter()
                .all(|other| !other.name.eq_ignore_ascii_case(&variants[index].name)),
            "two combinations are named {}; change a value: names of folders keep only letters, digits, `.`, `_` and `-`",
            variants[index].name
        );
    }
    Ok(variants)
}

/// Splits values at commas outside of brackets and quotes.
fn listed(values: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut depth, mut quote) = (0_i32, None);
    for letter in values.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        all.last_mut().expect("the list is never empty").push(letter);
    }
    all.into_iter().map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(set: &[&str]) -> Vec<String> {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let all = variants(&set, 100).unwrap().into_iter();
        all.map(|of| format!("{}: {}", of.name, of.set.join(" "))).collect()
    }

    #[test]
    fn all_combinations_are_trained() {
        assert_eq!(named(&[]), ["baseline: "]);
        assert_eq!(named(&["a.b=1"]), ["baseline: a.b=1"]);
        assert_eq!(
            named(&["a.b=1,2", "c=x", "d=[1,2],\"e,f\""]),
            [
                "b-1+d-_1_2_: a.b=1 c=x d=[1,2]",
                "b-1+d-e_f: a.b=1 c=x d=\"e,f\"",
                "b-2+d-_1_2_: a.b=2 c=x d=[1,2]",
                "b-2+d-e_f: a.b=2 c=x d=\"e,f\"",
            ]
        );
        let fault = |set: &str| variants(&[set.to_owned()], 3).unwrap_err().to_string();
        assert_eq!(fault("a=1,"), "--set a=1, has an empty value");
        assert_eq!(fault("seed=1,2"), "--set seed: the sweep sets it itself; use --seeds");
        assert!(fault("a=x,X").starts_with("two combinations are named a-"));
        assert!(fault("a=1,2,3,4").starts_with("the sweep has more than 1000 runs"));
        assert_eq!(named(&["a.x=1,2", "b.x=3"]), ["a.x-1: a.x=1 b.x=3", "a.x-2: a.x=2 b.x=3"]);
    }

    #[test]
    fn seeds_are_counted_or_listed() {
        let keys: Table = toml::from_str("seed = 7").unwrap();
        assert_eq!(seeds("3", &keys).unwrap(), [7, 8, 9]);
        assert_eq!(seeds("2", &Table::new()).unwrap(), [42, 43]);
        assert_eq!(seeds("42, 5", &keys).unwrap(), [42, 5]);
        assert_eq!(seeds("42,", &keys).unwrap(), [42]);
        for wrong in ["0", "x", "1,1", "", "-1", "42", ","] {
            assert!(seeds(wrong, &keys).is_err(), "{wrong}");
        }
    }
}
