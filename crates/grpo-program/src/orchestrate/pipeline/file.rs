//! Reads and validates pipeline files.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use grpo_report::command_of;
use grpo_task::config;
use grpo_task::config::Origin;
use grpo_task::output::{command_line, sentence};
use grpo_task::task::Tasks;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Table;

use super::arguments::{check_values, inputs};
use super::earlier::Earlier;
use super::parsed::{Input, Parsed};
use super::section::{StageSection, check_seeds, has_seed, joined_seeds};
use super::stage_config::StageConfig;
use super::written::Written;

/// Contents of a pipeline file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineFile {
    /// Whether to run the stages with the command `train`.
    #[serde(default = "yes")]
    use_grpo: bool,
    /// Seeds for which stages whose name contains `{seed}` are repeated; at most 1,000, each once.
    #[serde(default)]
    seeds: Vec<u64>,
    /// The stages, in order.
    stages: Vec<StageSection>,
    /// Commands to run each time all stages are finished.
    #[serde(default)]
    summary: Vec<SummarySection>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SummarySection {
    /// Command of `grpo`.
    command: String,
    /// Its arguments. What follows `=` becomes a list of all `seeds` if it contains `{seed}`.
    #[serde(default)]
    arguments: Vec<String>,
}

/// A validated pipeline.
pub(super) struct Pipeline {
    pub(super) stages: Vec<Stage>,
    pub(super) summary: Vec<SummaryCommand>,
}

impl Pipeline {
    /// Returns the width of the column of names in lists of stages.
    pub(super) fn name_width(&self) -> usize {
        let names = self.stages.iter().map(|stage| stage.section.name.chars().count());
        names.max().unwrap_or_default().max(12)
    }
}

/// A command that runs each time all stages are finished.
pub(super) struct SummaryCommand {
    pub(super) words: Vec<String>,
    /// Values of its options, except for outputs.
    pub(super) read: Vec<PathBuf>,
    pub(super) written: Written,
}

impl SummaryCommand {
    /// Returns whether the command has to replace files. Those in the folder of another command are its
    /// own.
    pub(super) fn replaces(&self, is_own_folder: bool) -> anyhow::Result<bool> {
        match is_own_folder {
            true => Ok(self.written.accepts_force()),
            false => {
                let writer = format!("the summary `grpo {}`", self.words[0]);
                self.written.replaces(&writer, false)
            }
        }
    }
}

/// A stage and the options supported by its command.
pub(super) struct Stage {
    pub(super) section: StageSection,
    pub(super) config: Option<StageConfig>,
    /// `KEY=VALUE` pairs of the command line. Only the last stage has any, in all its repetitions.
    pub(super) set: Vec<String>,
    /// Values of the command's options, except for outputs.
    read: Vec<PathBuf>,
    /// What the command writes, except for a run folder.
    pub(super) written: Written,
    /// Names of all options that the command accepts.
    options: Vec<String>,
}

/// Options that only `grpo run` may pass to commands.
const OWN_OPTIONS: [&str; 5] = ["--force", "--resume", "--check", "--plain", "--run"];

impl Pipeline {
    /// Reads and validates a pipeline file. `set` changes the configuration of the last stage.
    pub(super) fn read(
        path: &Path,
        commands: &clap::Command,
        tasks: &Tasks,
        set: &[String],
    ) -> anyhow::Result<Self> {
        config::of_sets::<Table>(set)?;
        ensure!(
            !config::is_set(set, "run"),
            "--set run=… would separate the last stage from the outputs and the summary of the pipeline; change `run` in its configuration"
        );
        let keys = config::load::<Table>(path, &[])?;
        let command = command_of(&keys.value);
        let is_stage = ["run", "extends", "train", "reward", "data"];
        ensure!(
            keys.value.contains_key("stages")
                || !is_stage.iter().any(|key| keys.value.contains_key(*key)),
            "{0} configures a single training run, not a pipeline; run `grpo {command} {0}`",
            path.display()
        );
        let loaded = keys.parse::<PipelineFile>()?;
        let (file, origin) = (loaded.value, loaded.origin);
        ensure!(
            !file.stages.is_empty(),
            "{}stages is empty; add a [[stages]] table with a name, a command and its config",
            origin.place("stages")
        );
        check_seeds(&file.seeds, &file.stages)
            .map_err(|fault| anyhow::anyhow!("{}{fault}", origin.place("seeds")))?;
        let used = used_stages(file.stages, file.use_grpo, &file.seeds, set, &origin)?;
        let last = used.last().map(|(key, _)| key.clone()).unwrap_or_default();
        let mut earlier = Earlier::default();
        let mut stages: Vec<Stage> = Vec::new();
        for (key, section) in used {
            let set = if key == last { set.to_vec() } else { Vec::new() };
            let (stage, parsed) = Stage::new(section, set, commands, &key, &origin)?;
            check_arguments(&parsed, tasks, &earlier, &key, &origin)?;
            earlier.add(&stage.section, stage.config.as_ref(), &stage.written, &key, &origin)?;
            stages.push(stage);
        }
        let mut summary = Vec::new();
        for (index, section) in file.summary.into_iter().enumerate() {
            let key = format!("summary[{index}]");
            let mut words = vec![section.command];
            ensure!(
                !file.seeds.is_empty() || !section.arguments.iter().any(|word| has_seed(word)),
                "{}the summary has {{seed}} in its arguments, but there are no seeds; add a list `seeds` at the top of the file",
                origin.place(&format!("{key}.arguments"))
            );
            words.extend(section.arguments.iter().map(|word| joined_seeds(word, &file.seeds)));
            let parsed = parse(commands, &words, &key, &origin)?;
            check_arguments(&parsed, tasks, &earlier, &key, &origin)?;
            let written = Written::of_command(&parsed, &words, &[]);
            earlier.add_summary(&written, &key, &origin)?;
            summary.push(SummaryCommand { words, read: parsed.read(), written });
        }
        Ok(Self { stages, summary })
    }
}

impl Stage {
    fn new(
        section: StageSection,
        set: Vec<String>,
        commands: &clap::Command,
        key: &str,
        origin: &Origin,
    ) -> anyhow::Result<(Self, Parsed)> {
        let place = |name: &str| origin.place(&format!("{key}.{name}"));
        let StageSection { name, command, config, arguments, outputs, metrics, .. } = &section;
        let mut words = vec![command.clone()];
        words.extend(config.iter().map(|path| path.display().to_string()));
        words.extend(arguments.iter().cloned());
        let parsed = parse(commands, &words, key, origin)?;
        if let Some(word) = arguments.iter().find(|word| is_own_option(word)) {
            bail!(
                "{}{word} is set by `grpo run` itself; remove it (the `run` key of the configuration sets the run folder)",
                place("arguments")
            );
        }
        ensure!(
            config.is_some() || !outputs.is_empty(),
            "{}stage `{name}` has neither config nor outputs, so its completion cannot be detected; add the files that it writes as outputs",
            place("name")
        );
        ensure!(
            config.is_some() || metrics.is_empty(),
            "{}metrics require a run, but stage `{name}` has no config; remove metrics",
            place("metrics")
        );
        let read = |path: &PathBuf| {
            StageConfig::read(path.clone(), [sets(arguments), set.clone()].concat())
                .with_context(|| format!("{}stage `{name}`", place("config")))
        };
        let config = config.as_ref().map(read).transpose()?;
        let written = Written::of_command(&parsed, &words, &section.outputs);
        let (read, options) = (parsed.read(), parsed.options());
        Ok((Self { section, config, set, read, written, options }, parsed))
    }

    /// Returns whether the command accepts an option.
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }

    /// Returns all paths that may be inputs, except for those in the stage's configuration.
    pub(super) fn read(&self) -> impl Iterator<Item = &PathBuf> {
        let config = self.config.iter().map(|config| &config.path);
        self.section.inputs.iter().chain(config).chain(&self.read)
    }

    /// Returns the run folder. For stages without one, this is the first output.
    pub(super) fn place(&self) -> &Path {
        match &self.config {
            Some(config) => &config.run,
            None => &self.section.outputs[0],
        }
    }
}

/// Collects the `KEY=VALUE` pairs of all `--set` options.
pub(super) fn sets(arguments: &[String]) -> Vec<String> {
    let mut words = arguments.iter();
    let mut sets = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix("--set") {
            Some("") => sets.extend(words.next().cloned()),
            Some(pair) => sets.extend(pair.strip_prefix('=').map(str::to_owned)),
            None => {}
        }
    }
    sets
}

/// Returns the options that set `KEY=VALUE` pairs: the inverse of [`sets`].
pub(super) fn set_options(set: &[String]) -> impl Iterator<Item = String> {
    set.iter().map(|pair| format!("--set={pair}"))
}

fn is_own_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    OWN_OPTIONS.contains(&name)
}

/// Returns the stages that are run, each with its key in the file.
fn used_stages(
    sections: Vec<StageSection>,
    use_grpo: bool,
    seeds: &[u64],
    set: &[String],
    origin: &Origin,
) -> anyhow::Result<Vec<(String, StageSection)>> {
    let is_used = |section: &StageSection| use_grpo || section.command != "train";
    let last = sections.iter().rfind(|section| is_used(section));
    if let (Some(pair), Some(last)) = (
        set.iter().find(|pair| config::is_set(std::slice::from_ref(*pair), "seed")),
        last.filter(|last| last.is_repeated()),
    ) {
        bail!(
            "--set {pair} would give all repetitions of the last stage, `{}`, the same seed; change `seeds` in the pipeline file instead",
            last.name
        );
    }
    let mut used = Vec::new();
    for (index, section) in sections.into_iter().enumerate() {
        let key = format!("stages[{index}]");
        if is_used(&section) {
            let each = section.for_seeds(seeds).map_err(|fault| {
                anyhow::anyhow!("{}{fault}", origin.place(&format!("{key}.name")))
            })?;
            used.extend(each.into_iter().map(|section| (key.clone(), section)));
        }
    }
    ensure!(
        !used.is_empty(),
        "{}use_grpo = false leaves no stage; remove it",
        origin.place("use_grpo")
    );
    Ok(used)
}

/// Checks the arguments of a command after those before it.
fn check_arguments(
    parsed: &Parsed,
    tasks: &Tasks,
    earlier: &Earlier,
    key: &str,
    origin: &Origin,
) -> anyhow::Result<()> {
    let place = || origin.place(&format!("{key}.arguments"));
    let name = parsed.command().map_or("", |(name, _)| name);
    check_values(parsed, tasks)
        .map_err(|error| anyhow::anyhow!("{}`grpo {name}`: {}", place(), sentence(&error)))?;
    for input in inputs(parsed) {
        ensure!(
            input.path.exists() || earlier.writes(&input.path),
            "{}`grpo {name}`: {input} does not exist, and no earlier stage writes it; correct the path",
            place()
        );
    }
    Ok(())
}

/// Checks the arguments of a command that runs later, other than its model, which does not exist yet.
///
/// # Errors
/// Returns an error if the command would refuse an argument.
pub(crate) fn check_command(
    commands: &clap::Command,
    words: &[String],
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let command = commands.find_subcommand(&words[0]).context("there is such a command")?;
    let parsed =
        Parsed::new(commands, command, words).map_err(|error| first_line(&error, &words[0]))?;
    check_values(&parsed, tasks)?;
    let is_model = |input: &Input| matches!(input.option.as_deref(), Some("--model" | "--adapter"));
    for input in inputs(&parsed).iter().filter(|input| !is_model(input)) {
        ensure!(input.path.exists(), "{input} does not exist; check the path");
    }
    Ok(())
}

/// Returns the sentence of an error of clap.
fn first_line(error: &clap::Error, command: &str) -> anyhow::Error {
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    anyhow::anyhow!("{sentence}; see `grpo {command} --help`")
}

/// Validates a command line.
fn parse(
    commands: &clap::Command,
    words: &[String],
    key: &str,
    origin: &Origin,
) -> anyhow::Result<Parsed> {
    let place = |name: &str| origin.place(&format!("{key}.{name}"));
    let name = words[0].as_str();
    let Some(command) = commands.find_subcommand(name).filter(|_| name != "run") else {
        let names: Vec<&str> = commands
            .get_subcommands()
            .map(clap::Command::get_name)
            .filter(|name| *name != "run")
            .collect();
        bail!(
            "{}`{name}` is not a command that a pipeline can run; expected one of {}",
            place("command"),
            names.join(", ")
        );
    };
    Parsed::new(commands, command, words).map_err(|error| {
        let sentence = first_line(&error, name);
        anyhow::anyhow!("{}`grpo {}`: {sentence}", place("command"), command_line(words))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    /// Returns the built-in commands and one task command.
    fn commands() -> clap::Command {
        let input = clap::Arg::new("input").long("input");
        Arguments::command().subcommand(clap::Command::new("split").arg(input))
    }

    /// Reads a pipeline in a folder with one configuration file and checks the result.
    #[track_caller]
    fn check(pipeline: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let config = at("grpo.toml");
        std::fs::write(&config, "run = \"runs/a\"\n").unwrap();
        std::fs::write(at("empty.toml"), "seed = 1\n").unwrap();
        let here = folder.path().display().to_string();
        std::fs::write(at("pipeline.toml"), pipeline.replace("HERE", &here)).unwrap();
        let read = Pipeline::read(&at("pipeline.toml"), &commands(), &crate::tasks_of(&[]), &[]);
        let found = read.map_or_else(
            |error| grpo_task::output::sentence(&error),
            |read| {
                let place =
                    |stage: &Stage| format!("{}: {}", stage.section.name, stage.place().display());
                read.stages.iter().map(place).collect::<Vec<_>>().join(", ")
            },
        );
        assert_eq!(found.replace(&here, "HERE"), expected);
    }

    const TRAIN: &str =
        "[[stages]]\nname = \"a\"\ncommand = \"train\"\nconfig = \"HERE/grpo.toml\"\n";

    #[test]
    fn pipelines_that_are_well_formed() {
        check(TRAIN, "a: runs/a");
        let moved = format!(
            "{TRAIN}[[stages]]\nname = \"b\"\ncommand = \"train\"\nconfig = \"HERE/grpo.toml\"\narguments = [\"--set\", \"run=b\", \"--set=seed=7\"]\ninputs = [\"runs/a/model\"]\n"
        );
        check(&moved, "a: runs/a, b: b");
        let split = "[[stages]]\nname = \"split\"\ncommand = \"split\"\narguments = [\"--input=x\"]\noutputs = [\"d/a.json\"]\n[[summary]]\ncommand = \"report\"\narguments = [\"runs/a\"]\n";
        check(&format!("{TRAIN}{split}"), "a: runs/a, split: d/a.json");
    }

    #[test]
    fn a_bad_pipeline_is_refused_in_one_sentence() {
        check(
            "stages = []",
            "HERE/pipeline.toml:1: stages is empty; add a [[stages]] table with a name, a command and its config",
        );
        check(
            &TRAIN.replace("command", "comand"),
            "HERE/pipeline.toml:3: unknown key 'stages[0].comand'; did you mean 'command'?",
        );
        let unknown =
            Pipeline::read(Path::new("nowhere.toml"), &commands(), &crate::tasks_of(&[]), &[])
                .err()
                .unwrap();
        assert!(
            grpo_task::output::sentence(&unknown)
                .starts_with("configuration file nowhere.toml does not exist; check the path")
        );
        check(
            &TRAIN.replace("\"train\"", "\"trian\"").replace("pipeline", ""),
            &format!(
                "HERE/pipeline.toml:3: `trian` is not a command that a pipeline can run; expected one of {}",
                commands()
                    .get_subcommands()
                    .map(|command| command.get_name().to_owned())
                    .filter(|name| name != "run")
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        );
        check(
            &format!("{TRAIN}arguments = [\"--sets\", \"a=1\"]"),
            "HERE/pipeline.toml:3: `grpo train HERE/grpo.toml --sets a=1`: unexpected argument '--sets' found; see `grpo train --help`",
        );
        check(
            &format!("{TRAIN}arguments = [\"--run=b\"]"),
            "HERE/pipeline.toml:5: --run=b is set by `grpo run` itself; remove it (the `run` key of the configuration sets the run folder)",
        );
        check(
            "[[stages]]\nname = \"a\"\ncommand = \"split\"\narguments = [\"--input=x\"]\n",
            "HERE/pipeline.toml:2: stage `a` has neither config nor outputs, so its completion cannot be detected; add the files that it writes as outputs",
        );
        check(
            "[[stages]]\nname = \"a\"\ncommand = \"split\"\narguments = [\"--input=x\"]\noutputs = [\"y\"]\nmetrics = [\"kl\"]\n",
            "HERE/pipeline.toml:6: metrics require a run, but stage `a` has no config; remove metrics",
        );
        check(
            &TRAIN.replace("grpo.toml", "empty.toml"),
            "HERE/pipeline.toml:4: stage `a`: HERE/empty.toml: the key `run` (run folder) is missing; add it, or pass the file under arguments",
        );
    }

    #[test]
    fn a_stage_is_repeated_for_each_seed() {
        let seeded = "[[stages]]\nname = \"a-{seed}\"\ncommand = \"train\"\nconfig = \"HERE/grpo.toml\"\narguments = [\"--set=seed={seed}\", \"--set=run='runs/{seed}'\"]\n";
        check(&format!("seeds = [3, 14]\n{seeded}"), "a-3: runs/3, a-14: runs/14");
        check(
            seeded,
            "HERE/pipeline.toml:2: stage `a-{seed}` is repeated for each of the seeds, but there are none; add a list `seeds` at the top of the file",
        );
        check(
            &format!("seeds = [3]\n{}", seeded.replace("a-{seed}", "a")),
            "HERE/pipeline.toml:3: stage `a` has {seed} in its arguments but not in its name; add it to the name, so that the stage is repeated for each of the seeds",
        );
    }

    /// Outputs of options count, whether or not the stage lists them.
    #[test]
    fn a_stage_reads_what_an_earlier_one_writes() {
        let stage = |name: &str, command: &str, arguments: &str, output: &str| {
            format!(
                "[[stages]]\nname = \"{name}\"\ncommand = \"{command}\"\narguments = {arguments}\noutputs = [\"{output}\"]\n"
            )
        };
        let eval =
            |file: &str| stage("b", "eval", &format!("[\"{file}\", \"-o=e.json\"]"), "e.json");
        let first = |output: &str| {
            stage("a", "eval", "[\"HERE/grpo.toml\", \"-o=reports/d.json\"]", output)
        };
        check(
            &format!("{}{}", first("data/a.jsonl"), eval("reports/d.json")),
            "a: data/a.jsonl, b: e.json",
        );
        // The command may write more files next to a listed one.
        check(&format!("{}{}", first("a.jsonl"), eval("more.csv")), "a: a.jsonl, b: e.json");
        check(
            &format!("{}{}", first("data/a.jsonl"), eval("elsewhere/d.json")),
            "HERE/pipeline.toml:9: `grpo eval`: elsewhere/d.json does not exist, and no earlier stage writes it; correct the path",
        );
    }

    #[test]
    fn stages_fit_those_before_them() {
        check(
            &format!("{TRAIN}{TRAIN}"),
            "HERE/pipeline.toml:6: two stages are named `a`; use a different name for each",
        );
        check(
            &format!("{TRAIN}{}", TRAIN.replace("\"a\"", "\"b\"")),
            "HERE/pipeline.toml:8: stages `a` and `b` both write runs/a; use a different folder for each",
        );
        check(
            &format!("{TRAIN}[[summary]]\ncommand = \"report\"\narguments = [\"runs/b\"]\n"),
            "HERE/pipeline.toml:7: `grpo report`: runs/b does not exist, and no earlier stage writes it; correct the path",
        );
        check(
            &format!("{TRAIN}inputs = [\"HERE/nothing\"]"),
            "HERE/pipeline.toml:5: HERE/nothing does not exist, and no earlier stage writes it; correct the path, or list it under outputs of the stage that writes it",
        );
    }
}
