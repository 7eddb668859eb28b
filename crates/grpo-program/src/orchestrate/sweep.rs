//! `grpo sweep`: trains a configuration with several values and seeds, samples from each model, and
//! compares the results. The work is described by a pipeline file, so a sweep resumes like a
//! pipeline.
#![expect(clippy::disallowed_methods, reason = "a temporary folder of this process")]

mod variants;

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use grpo_data::{FileKind, OwnFolder, regular_file};
use grpo_report::command_of;
use grpo_run::atomic_write;
use grpo_task::config;
use grpo_task::output::{create_folder, say};
use grpo_task::task::Tasks;
use grpo_task::training_runs::{TrainedRun, TrainingRuns};
use grpo_task::written_by::result_of;
use serde::Serialize;
use toml::Table;

use crate::args;
use crate::orchestrate::pipeline;
use crate::orchestrate::pipeline::PipelineArguments;
use variants::{MAX_RUNS, Variant, seeds, variants};

/// Folder of the samples.
const SAMPLES: &str = "samples";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo sweep configs/molecules/grpo.toml --seeds 3 --set loss.kl_coef=0.01,0.05 -o runs/kl
  grpo sweep configs/replies/grpo.toml --seeds 42,123,456 -o runs/seeds -- --tweets test.jsonl -n 10

Options after `--` are those of `grpo sample`. The results of an interrupted sweep are kept: the same command continues it.")]
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
    /// Used instead of `set`.
    #[arg(skip)]
    variants: Option<Vec<Variant>>,
    /// Command that the user ran.
    #[arg(skip = "grpo sweep")]
    command: &'static str,
}

/// Trains all runs, one after another, except those that are finished. Returns them ordered by variant and
/// seed.
pub(crate) fn train_all(all: TrainingRuns, tasks: &Tasks) -> anyhow::Result<Vec<TrainedRun>> {
    let variants = all.variants.into_iter().map(|(name, set)| Variant { name, set }).collect();
    let arguments = SweepArguments {
        configuration: all.configuration,
        seeds: all.seeds,
        set: Vec::new(),
        output: all.output,
        train_only: true,
        check: all.check,
        plain: false,
        sample: Vec::new(),
        threads: all.threads,
        quiet: all.quiet,
        variants: Some(variants),
        command: all.command,
    };
    run(&arguments, tasks, &args::program(tasks).0)?;
    let keys = config::load::<Table>(&arguments.configuration, &[])?.value;
    let mut runs = Vec::new();
    for variant in arguments.variants.iter().flatten() {
        for seed in seeds(&arguments.seeds, &keys)? {
            let run = Run { arguments: &arguments, tasks, variant, seed };
            runs.push(TrainedRun { variant: variant.name.clone(), seed, folder: run.folder() });
        }
    }
    Ok(runs)
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
    let sweep = sweep(arguments, tasks)?;
    if let Some(sample) = sweep.stages.iter().find(|stage| stage.command == "sample") {
        let words = [std::slice::from_ref(&sample.command), &sample.arguments[..]].concat();
        pipeline::check_command(commands, &words, tasks)
            .context("the options after `--`, which are those of `grpo sample`")?;
    }
    let written = toml::to_string(&sweep).context("a pipeline is TOML")?;
    let text = format!("# Written by `{}`, which also resumes it.\n\n{written}", arguments.command);
    let found = regular_file::read_to_string(&path).ok();
    // Seeds and values can be added, and samples drawn in another way. A sweep that trained nothing,
    // for example because of a wrong key, leaves nothing to keep.
    let has_results = || -> anyhow::Result<bool> {
        let own = [path.clone(), folder.join(SAMPLES)];
        let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        Ok(entries.iter().any(|entry| !own.contains(&entry.path())))
    };
    ensure!(
        found.is_none() || is_part(found.as_deref(), &text) || !has_results()?,
        "{} is of runs with other options; choose another folder with -o, or delete this one",
        path.display()
    );
    let is_used = |mut entries: std::fs::ReadDir| entries.next().is_some();
    ensure!(
        found.is_some() || !folder.exists() || !std::fs::read_dir(folder).is_ok_and(is_used),
        "{} exists, but `{}` did not write it; choose another folder with -o",
        folder.display(),
        arguments.command
    );
    let mut pipeline = PipelineArguments::of_file(path, arguments.threads, arguments.quiet);
    pipeline.plain = arguments.plain;
    pipeline.command = Some(arguments.command);
    if arguments.check {
        // A check writes nothing into the folder.
        let temporary = tempfile::tempdir().context("cannot create a temporary folder")?;
        pipeline.pipeline = temporary.path().join("sweep.toml");
        pipeline.check = true;
        std::fs::write(&pipeline.pipeline, text).context("cannot write a temporary file")?;
        return pipeline::run(&pipeline, commands, tasks);
    }
    create_folder(folder)?;
    let own =
        OwnFolder::open(folder).with_context(|| format!("cannot open {}", folder.display()))?;
    refuse_links(&own)?;
    own.create_folders(SAMPLES)?;
    remove_changed(&own, found.as_deref().unwrap_or_default(), &text)?;
    atomic_write(&pipeline.pipeline, text.as_bytes())?;
    pipeline::run(&pipeline, commands, tasks)?;
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

/// Returns an error if a folder of runs or samples is a link, through which they would be written
/// elsewhere.
fn refuse_links(folder: &OwnFolder) -> anyhow::Result<()> {
    for (name, kind) in folder.entries("")? {
        match kind {
            FileKind::Folder => {
                for (below, kind) in folder.entries(&name)? {
                    if kind == FileKind::Link {
                        folder.is_kind(Path::new(&name).join(below), FileKind::Folder)?;
                    }
                }
            }
            FileKind::Link => {
                folder.is_kind(&name, FileKind::Folder)?;
            }
            FileKind::File | FileKind::Special => {}
        }
    }
    Ok(())
}

/// Removes the samples of stages that have changed, so that they are drawn again. Files outside of
/// the folder are kept: the earlier pipeline may come from somebody else.
fn remove_changed(folder: &OwnFolder, found: &str, of: &str) -> anyhow::Result<()> {
    let all = stages(of);
    for stage in stages(found).iter().filter(|stage| !is_training(stage) && !all.contains(stage)) {
        for path in stage.get("outputs").and_then(toml::Value::as_array).into_iter().flatten() {
            let name =
                path.as_str().and_then(|path| Path::new(path).strip_prefix(folder.path()).ok());
            let Some(name) = name.filter(|name| name.components().all(is_normal)) else { continue };
            if folder.kind(name)? == Some(FileKind::File) {
                folder.remove_file(name)?;
            }
        }
    }
    Ok(())
}

fn is_normal(component: Component<'_>) -> bool {
    matches!(component, Component::Normal(_))
}

/// Returns the stages of a sweep: all runs, then all samples, then the comparison.
fn sweep(arguments: &SweepArguments, tasks: &Tasks) -> anyhow::Result<Sweep> {
    let keys = config::load::<Table>(&arguments.configuration, &[])?.value;
    let path = arguments.configuration.display();
    ensure!(
        command_of(&keys) != "run",
        "{path} is a pipeline, and a sweep repeats a single training run; use the configuration of one of its stages, or `grpo run {path}`"
    );
    let seeds = seeds(&arguments.seeds, &keys)?;
    let variants = match &arguments.variants {
        Some(variants) => variants.clone(),
        None => variants(&arguments.set, MAX_RUNS / seeds.len())?,
    };
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
        self.folder().join(result_of(keys))
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
