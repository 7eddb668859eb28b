//! Tasks extend the program with rewards, codecs, data formats, sampling and subcommands.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgMatches, Args, FromArgMatches};
use grpo_data::schema::Keys;
use grpo_data::{Codec, CodecKind, Codecs, PromptSource};
use grpo_extensions::{Bucketing, ExtensionKind, NewSimilarTexts, Variation, extension_kinds};
use grpo_model::{Families, FamilyKind, ModelFormats, ModelSpec, Policy, is_gguf_file};
use grpo_report::Drawing;
use grpo_rewards::{IdentifiedReward, Identify, Outcome, Reward, RewardKind, RewardRegistry};
use grpo_rollout::{EngineKind, EngineRegistry, EpisodeKind, episode_kinds};
use grpo_run::BestTable;
use grpo_servers::{engine_kinds, reward_kinds};
use grpo_train::{MetricGroup, MetricTable, pretrain_metrics, step_metrics, supervised_metrics};
use toml::Table;

use crate::args::RunArguments;
use crate::data::DataFormat;
use crate::eval::{CompletionRow, RowFormat, Suite, TEXT_ROWS, TEXT_SUITE};
use crate::models::Loaded;
use crate::output::Formats;
use crate::source::SourceKind;
use crate::training_runs::{TrainedRun, TrainingRuns};

/// A task to train models for, e.g. generating molecules, writing replies or filling blanks. All
/// methods except `name` have defaults. Lower-level crates do not depend on tasks.
pub trait Task: Sync {
    /// Returns the name of the task, which is a single word.
    fn name(&self) -> &'static str;

    /// Returns the reward types for the `[reward]` section.
    fn rewards(&self) -> Vec<RewardKind> {
        Vec::new()
    }

    /// Returns the model families that the task adds.
    fn families(&self) -> Vec<&'static FamilyKind> {
        Vec::new()
    }

    /// Returns the model folder that commands read if none is given.
    fn default_model(&self) -> Option<&'static str> {
        None
    }

    /// Returns the codecs for model folders.
    fn codecs(&self) -> Vec<CodecKind> {
        Vec::new()
    }

    /// Returns the file formats for the `[data]` section of `grpo train` and `grpo pretrain`.
    fn data_formats(&self) -> Vec<DataFormat> {
        Vec::new()
    }

    /// Returns the prompt sources for `grpo train`.
    fn sources(&self) -> Vec<SourceKind> {
        Vec::new()
    }

    /// Returns the engines for the `[rollout]` section.
    fn engines(&self) -> Vec<EngineKind> {
        Vec::new()
    }

    /// Returns the episodes for the `[episode]` section.
    fn episodes(&self) -> Vec<EpisodeKind> {
        Vec::new()
    }

    /// Returns the subcommands.
    fn commands(&self) -> Vec<TaskCommand> {
        Vec::new()
    }

    /// Returns an additional training objective for `grpo pretrain`.
    fn pretraining(&self) -> Option<Pretraining> {
        None
    }

    /// Returns an extension of `grpo sample`.
    fn sampling(&self) -> Option<&dyn TaskSampling> {
        None
    }

    /// Returns the measures shown in the before/after table. By default, the table shows the reward
    /// components.
    fn measures(&self, _codec: &Codec) -> Option<Measures> {
        None
    }

    /// Returns the suites for `grpo eval`.
    fn suites(&self) -> Vec<Suite> {
        Vec::new()
    }

    /// Returns how `grpo score` reads a file, or completions on the command line, for a reward of the
    /// given type, if they are completions of this task.
    fn rows(&self, _file: Option<&Path>, _reward: &str) -> Option<RowFormat> {
        None
    }

    /// Returns the extensions of steps that a configuration can ask for.
    fn extensions(&self) -> Vec<ExtensionKind<Policy>> {
        Vec::new()
    }

    /// Returns the metrics of its supervised training commands. If the sections of several of them are in
    /// one configuration, the first ones describe the run.
    fn metrics(&self) -> Vec<MetricGroup> {
        Vec::new()
    }

    /// Returns ways to assign samples to buckets of the diversity filter.
    fn bucketings(&self) -> Vec<Bucketing> {
        Vec::new()
    }

    /// Returns the similarity measure that the diversity bonus can use for completions of a model
    /// with this codec.
    fn similarity(&self, _codec: &Codec) -> Option<NewSimilarTexts> {
        None
    }

    /// Returns how to tell which completions of a model with this codec are valid and which are
    /// equivalent. Used by external rewards.
    fn identify(&self, _codec: &Codec) -> Option<Identify> {
        None
    }

    /// Returns how completions of a model with this codec are written and varied, for replay.
    fn variation(&self, _codec: &Codec) -> Option<Arc<dyn Variation>> {
        None
    }

    /// Returns how the best completions of a run are written. By default, they are not written.
    fn best_files(&self, _codec: &Codec) -> Option<BestFiles> {
        None
    }

    /// Returns the name of the prompt record field that is displayed instead of the prompt.
    fn prompt_field(&self) -> Option<&'static str> {
        None
    }

    /// Returns how reports draw samples of a model with this codec.
    fn drawing(&self, _codec: &Codec) -> Option<Drawing> {
        None
    }
}

/// Table rows, each with a name and a value.
pub type MeasureRows = Vec<(&'static str, f64)>;

/// Measures computed on a set of samples.
#[derive(Clone, Copy)]
pub struct Measures {
    /// Plural noun for the samples.
    pub samples: &'static str,
    /// Names of the rows that measure diversity. Higher values mean more diversity.
    pub diversity: &'static [&'static str],
    /// Computes the rows from sample texts and reward outcomes.
    pub measure: fn(&[String], &[Outcome]) -> MeasureRows,
}

/// How the best completions of a run are written.
#[derive(Clone, Copy)]
pub struct BestFiles {
    /// Column of `best.csv` that contains the completions.
    pub column: &'static str,
    /// Identifies equal completions.
    pub identify: Identify,
    /// Name and contents of another file, written at the end of the run.
    pub other: (&'static str, fn(&BestTable) -> String),
}

/// A training objective of `grpo pretrain` that is selected by a section.
#[derive(Clone, Copy)]
pub struct Pretraining {
    /// Name of the section.
    pub section: &'static str,
    /// What it trains, as one word.
    pub trains: &'static str,
    /// Keys of its configuration files.
    pub schema: Keys,
    /// Function that runs the training.
    pub run: fn(&Tasks, &RunArguments) -> anyhow::Result<()>,
}

/// An extension of `grpo sample`.
pub trait TaskSampling {
    /// Adds options to the command.
    fn options(&self, command: clap::Command) -> clap::Command {
        command
    }

    /// Returns the prompts defined by the task's options.
    ///
    /// # Errors
    /// Returns an error if a file with prompts cannot be read.
    fn prompts(&self, _options: &ArgMatches) -> anyhow::Result<Vec<TaskPrompt>> {
        Ok(Vec::new())
    }

    /// Returns the files that the task's options name, which no output may replace.
    fn inputs(&self, _options: &ArgMatches) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns what is written about a model of this task without prompts, or `None` if the folder
    /// contains another model.
    fn outputs(&self, _options: &ArgMatches, _model: &Path) -> Option<Formats> {
        None
    }

    /// Rejects options that have no effect because [`Self::sampler`] is not used.
    ///
    /// # Errors
    /// Returns an error if an option has no effect.
    fn check_unused(&self, _options: &ArgMatches) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns the sampler for models of this task, which is used if no prompts are given.
    fn sampler(&self, _codec: &Codec) -> Option<Sampler> {
        None
    }
}

/// A prompt defined by an option of a task.
pub struct TaskPrompt {
    /// The option to mention in errors.
    pub option: String,
    /// The prompt.
    pub source: PromptSource,
    /// What the prompt is about, which is the same for every template.
    pub key: String,
    /// Reference completions, which are written next to the sampled ones.
    pub references: Vec<String>,
}

/// Draws samples without prompts and writes the results.
pub type Sampler = fn(&Sampling<'_>) -> anyhow::Result<()>;

/// Parameters of a [`Sampler`].
pub struct Sampling<'a> {
    /// Options shared by all tasks.
    pub arguments: &'a crate::args::SampleArguments,
    /// All parsed options, including the task's own.
    pub options: &'a ArgMatches,
    /// The loaded model.
    pub loaded: &'a Loaded,
}

/// A group of commands in the help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandGroup {
    /// Where new users start.
    Start,
    /// Commands that train a model.
    Train,
    /// Commands that use or convert a model.
    Use,
    /// Commands that inspect a run.
    Inspect,
    /// Commands that measure generated text.
    Evaluate,
    /// Commands that read or write data.
    Prepare,
    /// Commands about the program itself.
    Other,
}

impl CommandGroup {
    /// All groups with their titles, in display order.
    pub const TITLES: [(Self, &'static str); 7] = [
        (Self::Start, "Start"),
        (Self::Train, "Train"),
        (Self::Use, "Use a model"),
        (Self::Inspect, "Inspect a run"),
        (Self::Evaluate, "Evaluate"),
        (Self::Prepare, "Prepare data"),
        (Self::Other, "This program"),
    ];
}

/// A subcommand defined by a task.
pub struct TaskCommand {
    /// Arguments and help text.
    pub command: clap::Command,
    /// Group in the help text.
    pub group: CommandGroup,
    /// Keys of the configuration files that it reads.
    #[cfg_attr(not(feature = "schema"), expect(dead_code, reason = "only schemas are made of it"))]
    pub configuration: Keys,
    run: Box<Run>,
    runs_stages: fn(&ArgMatches) -> bool,
}

type Run = dyn Fn(&Tasks, &ArgMatches) -> anyhow::Result<()> + Send + Sync;

impl TaskCommand {
    /// Creates a subcommand with the arguments `A`. `about` contains the paragraphs of the help
    /// text, starting with a one-line summary.
    pub fn new<A: Args + FromArgMatches + 'static>(
        name: &'static str,
        about: &[&'static str],
        group: CommandGroup,
        run: fn(&Tasks, &A) -> anyhow::Result<()>,
    ) -> Self {
        let run = move |tasks: &Tasks, matches: &ArgMatches| {
            // Clap has already validated the arguments.
            run(tasks, &A::from_arg_matches(matches).unwrap_or_else(|error| error.exit()))
        };
        let command = A::augment_args(clap::Command::new(name)).about(about[0]);
        let command = match about.len() {
            1 => command.long_about(None),
            _ => command.long_about(about.join("\n\n")),
        };
        let configuration = Keys::none();
        Self { command, group, configuration, run: Box::new(run), runs_stages: |_| false }
    }

    /// Sets the keys of the configuration files that the command reads.
    #[must_use]
    pub fn with_configuration(self, configuration: Keys) -> Self {
        Self { configuration, ..self }
    }

    /// Adds examples below the options in the help text.
    #[must_use]
    pub fn with_examples(self, examples: &'static str) -> Self {
        Self { command: self.command.after_help(examples), ..self }
    }

    /// Declares when the command trains in processes of their own ([`TrainingRuns`]), which
    /// receive the signals that end the program.
    #[must_use]
    pub fn running_stages(self, runs_stages: fn(&ArgMatches) -> bool) -> Self {
        Self { runs_stages, ..self }
    }

    /// Returns whether the command trains in processes of their own.
    pub fn runs_stages(&self, matches: &ArgMatches) -> bool {
        (self.runs_stages)(matches)
    }

    /// Runs the command.
    pub fn run(&self, tasks: &Tasks, matches: &ArgMatches) -> anyhow::Result<()> {
        (self.run)(tasks, matches)
    }
}

/// All tasks of the program.
#[derive(Clone, Copy)]
pub struct Tasks {
    tasks: &'static [&'static dyn Task],
    train_runs: TrainRuns,
}

/// How a program trains several runs.
pub type TrainRuns = fn(TrainingRuns, &Tasks) -> anyhow::Result<Vec<TrainedRun>>;

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tasks.iter().map(|task| task.name())).finish()
    }
}

impl Tasks {
    /// Creates the set of tasks of a program that trains several runs with `train_runs`.
    pub fn new(tasks: &'static [&'static dyn Task], train_runs: TrainRuns) -> Self {
        Self { tasks, train_runs }
    }

    /// Trains all runs, one after another, except those that are finished. Returns them ordered by
    /// variant and seed.
    ///
    /// # Errors
    /// Returns an error if a configuration is invalid, if the folder contains something else, or if a
    /// run fails.
    pub fn train(&self, runs: TrainingRuns) -> anyhow::Result<Vec<TrainedRun>> {
        (self.train_runs)(runs, self)
    }

    /// Returns an iterator over the tasks in registration order.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Task> {
        self.tasks.iter().copied()
    }

    /// Returns the reward types of all tasks.
    ///
    /// # Panics
    /// Panics if two tasks define the same reward type.
    pub fn rewards(&self) -> RewardRegistry {
        let own = self.iter().flat_map(|task| task.rewards());
        RewardRegistry::default().with(reward_kinds()).with(own)
    }

    /// Returns the engines of the program and of all tasks.
    ///
    /// # Panics
    /// Panics if two engines have the same name.
    pub fn engines(&self) -> EngineRegistry {
        let own = self.iter().flat_map(|task| task.engines());
        EngineRegistry::default().with(engine_kinds()).with(own)
    }

    /// Returns the episodes of the program and of all tasks.
    pub fn episodes(&self) -> Vec<EpisodeKind> {
        episode_kinds().into_iter().chain(self.iter().flat_map(|task| task.episodes())).collect()
    }

    /// Returns all suites for `grpo eval`.
    pub fn suites(&self) -> Vec<Suite> {
        std::iter::once(TEXT_SUITE).chain(self.iter().flat_map(|task| task.suites())).collect()
    }

    /// Returns how the completions of a file are read for a reward of the given type.
    pub fn row_format(&self, file: Option<&Path>, reward: &str) -> RowFormat {
        self.iter().find_map(|task| task.rows(file, reward)).unwrap_or(TEXT_ROWS)
    }

    /// Adds the fields that a task's prompts have in training, e.g. the tweet, which samples have as the
    /// key of the prompt. The prompt itself is another text: the template's.
    pub fn with_prompt_fields(&self, mut row: CompletionRow) -> CompletionRow {
        let fields = &mut row.input.fields;
        if let Some(key) = fields.get("prompt_key").cloned() {
            for field in self.iter().filter_map(|task| task.prompt_field()) {
                fields.entry(field).or_insert_with(|| key.clone());
            }
        }
        row
    }

    /// Returns the model families of the program and of all tasks.
    ///
    /// # Panics
    /// Panics if two of them have the same name.
    pub fn families(&self) -> Families {
        Families::default().with(self.iter().flat_map(|task| task.families()))
    }

    /// Returns what a model folder can contain.
    pub fn formats(&self) -> ModelFormats {
        ModelFormats { families: self.families(), codecs: self.codecs() }
    }

    /// Returns the codecs of all tasks.
    pub fn codecs(&self) -> Codecs {
        Codecs::new(self.iter().flat_map(|task| task.codecs()).collect())
    }

    /// Returns the similarity measure for a model's completions, if a task defines one.
    pub fn similarity(&self, codec: &Codec) -> Option<NewSimilarTexts> {
        self.iter().find_map(|task| task.similarity(codec))
    }

    /// Returns how a model's completions are identified, if a task defines it.
    pub fn identify(&self, codec: &Codec) -> Option<Identify> {
        self.iter().find_map(|task| task.identify(codec))
    }

    /// Returns how a model's completions are varied, if a task defines it.
    pub fn variation(&self, codec: &Codec) -> Option<Arc<dyn Variation>> {
        self.iter().find_map(|task| task.variation(codec))
    }

    /// Returns all ways to assign samples to buckets.
    pub fn bucketings(&self) -> Vec<Bucketing> {
        self.iter().flat_map(|task| task.bucketings()).chain([Bucketing::TEXT]).collect()
    }

    /// Returns the kinds of extensions, in the order in which a step calls them.
    ///
    /// # Panics
    /// Panics if two of them have the same name or key.
    pub fn extensions(&self) -> Vec<ExtensionKind<Policy>> {
        let of_tasks = self.iter().flat_map(|task| task.extensions());
        let kinds: Vec<_> = extension_kinds().into_iter().chain(of_tasks).collect();
        for (place, kind) in kinds.iter().enumerate() {
            let is_taken = |other: &ExtensionKind<Policy>| {
                other.name == kind.name || other.keys.iter().any(|key| kind.keys.contains(key))
            };
            assert!(
                !kinds[..place].iter().any(is_taken),
                "two extensions are called {}",
                kind.name
            );
        }
        kinds
    }

    /// Returns the metrics of all kinds of runs.
    pub fn metrics(&self) -> MetricTable {
        let of_kinds = self.extensions().into_iter().map(|kind| kind.metric_group());
        let of_tasks = self.iter().flat_map(|task| task.metrics());
        let supervised = [supervised_metrics()].into_iter().chain(pretrain_metrics());
        MetricTable::new(step_metrics().chain(of_kinds).chain(supervised).chain(of_tasks))
    }

    /// Returns the `[data]` file formats of all tasks.
    pub fn data_formats(&self) -> Vec<DataFormat> {
        self.iter().flat_map(|task| task.data_formats()).collect()
    }

    /// Returns the `grpo sample` extensions of all tasks.
    pub fn sampling(&self) -> impl Iterator<Item = &'static dyn TaskSampling> {
        self.iter().filter_map(|task| task.sampling())
    }

    /// Returns the training objective selected by the configuration, if it belongs to a task.
    pub fn pretraining(&self, configuration: &Table) -> Option<Pretraining> {
        let mut all = self.iter().filter_map(|task| task.pretraining());
        all.find(|pretraining| configuration.contains_key(pretraining.section))
    }

    /// Returns how to draw samples of a model with this codec.
    pub fn drawing(&self, codec: &Codec) -> Option<Drawing> {
        self.iter().find_map(|task| task.drawing(codec))
    }

    /// Returns how the best completions of a run are written, or `None` if they are not collected.
    pub fn best_files(&self, codec: &Codec) -> Option<BestFiles> {
        self.iter().find_map(|task| task.best_files(codec))
    }

    /// Wraps a model's reward so that it can use what tasks know about the completions.
    pub fn identified(&self, reward: Arc<dyn Reward>, codec: &Codec) -> Arc<dyn Reward> {
        match self.identify(codec) {
            Some(identify) => IdentifiedReward::wrap(reward, identify),
            None => reward,
        }
    }

    /// Reads the codec of a model folder.
    pub fn codec(&self, folder: &Path) -> Option<Codec> {
        match is_gguf_file(folder) {
            true => Some(ModelSpec::load(folder, &self.formats()).ok()?.codec),
            false => self.codecs().read(folder).ok(),
        }
    }
}
