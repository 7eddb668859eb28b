//! Tasks: rewards, codecs, data, samples and subcommands that extend the program.

use std::fmt;
use std::path::Path;

use clap::{ArgMatches, Args, FromArgMatches};
use grpo_data::{Codec, CodecKind, Codecs, ConfigFault, PromptSource};
use grpo_report::Drawing;
use grpo_rewards::{Outcome, RewardKind, RewardRegistry};
use grpo_train::{Bucketing, GuardAction, GuardConfig};
use toml::Table;

use crate::args::RunArguments;
use crate::data::DataFormat;
use crate::models::Loaded;
use crate::source::SourceKind;

/// A task that models are trained for: molecules, replies, blanks to fill. Every method has a
/// default; crates below this one know no tasks.
pub trait Task: Sync {
    /// Returns the name of the task, one word.
    fn name(&self) -> &'static str;

    /// Returns its types of the section `[reward]`.
    fn rewards(&self) -> Vec<RewardKind> {
        Vec::new()
    }

    /// Returns its codecs of model folders.
    fn codecs(&self) -> Vec<CodecKind> {
        Vec::new()
    }

    /// Returns its file formats of the section `[data]` in `grpo train` and `grpo pretrain`.
    fn data_formats(&self) -> Vec<DataFormat> {
        Vec::new()
    }

    /// Returns its prompt sources of `grpo train`.
    fn sources(&self) -> Vec<SourceKind> {
        Vec::new()
    }

    /// Returns its subcommands.
    fn commands(&self) -> Vec<TaskCommand> {
        Vec::new()
    }

    /// Returns its additional objective of `grpo pretrain`, if any.
    fn pretraining(&self) -> Option<Pretraining> {
        None
    }

    /// Returns its sampling in `grpo sample`, if any.
    fn sampling(&self) -> Option<&dyn TaskSampling> {
        None
    }

    /// Returns the measures of samples in the table before and after training. Without it, the
    /// table shows the components of the reward.
    fn measures(&self, _codec: &Codec) -> Option<Measures> {
        None
    }

    /// Returns ways to assign samples to buckets of the diversity filter.
    fn bucketings(&self) -> Vec<Bucketing> {
        Vec::new()
    }

    /// Returns the field of a prompt's record to show instead of the prompt, with its name.
    fn prompt_field(&self) -> Option<&'static str> {
        None
    }

    /// Returns how a report draws samples with a reward of this type.
    fn drawing(&self, _reward_type: &str) -> Option<Drawing> {
        None
    }

    /// Returns the limits of `grpo trial` for a reward of this type, if they differ from those of
    /// texts.
    fn trial_limits(&self, _reward_type: &str) -> Option<TrialLimits> {
        None
    }
}

/// Rows of names and numbers.
pub type MeasureRows = Vec<(&'static str, f64)>;

/// Measures of a set of samples.
#[derive(Clone, Copy)]
pub struct Measures {
    /// The name of samples, in the plural.
    pub samples: &'static str,
    /// The names of the rows that measure diversity. Larger values are more diverse.
    pub diversity: &'static [&'static str],
    /// Computes rows from texts and their outcomes.
    pub measure: fn(&[String], &[Outcome]) -> MeasureRows,
}

/// Limits of a trial.
#[derive(Clone, Debug)]
pub struct TrialLimits {
    /// The key of `[success]` that limits the distance to the reference, and its limit.
    pub max_distance: (&'static str, f64),
    /// Guards that end the run, besides the one for non-finite numbers.
    pub guards: Vec<GuardConfig>,
}

impl TrialLimits {
    /// Creates a guard that ends the run if a metric is out of range in this many consecutive
    /// steps.
    pub fn stop_guard(
        watch: &str,
        above: Option<f64>,
        below: Option<f64>,
        steps: u32,
    ) -> GuardConfig {
        GuardConfig {
            watch: watch.to_owned(),
            above,
            below,
            steps,
            from_step: 1,
            action: GuardAction::Stop,
            learning_rate_factor: None,
            kl_coef_factor: None,
        }
    }
}

/// An objective of `grpo pretrain`, selected by a section.
#[derive(Clone, Copy)]
pub struct Pretraining {
    /// The section that selects it.
    pub section: &'static str,
    /// Runs it.
    pub run: fn(&Tasks, &RunArguments) -> anyhow::Result<()>,
}

/// Extension of `grpo sample`.
pub trait TaskSampling {
    /// Adds options.
    fn options(&self, command: clap::Command) -> clap::Command {
        command
    }

    /// Returns the prompts of its options, each with the option to name in errors.
    fn prompts(&self, _options: &ArgMatches) -> Vec<(String, PromptSource)> {
        Vec::new()
    }

    /// Rejects options that do not fit the samples, if [`Self::sampler`] is not used.
    ///
    /// # Errors
    /// Returns an error for an option without effect.
    fn check_unused(&self, _options: &ArgMatches) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns the sampler without prompts, if the codec belongs to the task.
    fn sampler(&self, _codec: &Codec) -> Option<Sampler> {
        None
    }
}

/// Samples without prompts and writes the results.
pub type Sampler = fn(&Sampling<'_>) -> anyhow::Result<()>;

/// Inputs of a sampler.
pub struct Sampling<'a> {
    /// The shared options.
    pub arguments: &'a crate::args::SampleArguments,
    /// All options.
    pub options: &'a ArgMatches,
    /// The model.
    pub loaded: &'a Loaded,
}

/// A group of commands in the help of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandGroup {
    /// The first command of a new user.
    Start,
    /// Commands that train a model.
    Train,
    /// Commands that use a model or make one from another.
    Use,
    /// Commands that read a run.
    Inspect,
    /// Commands that read or write data.
    Prepare,
    /// Commands about the program itself.
    Other,
}

impl CommandGroup {
    /// All groups in their order, with their titles.
    pub(crate) const TITLES: [(Self, &'static str); 6] = [
        (Self::Start, "Start"),
        (Self::Train, "Train"),
        (Self::Use, "Use a model"),
        (Self::Inspect, "Inspect a run"),
        (Self::Prepare, "Prepare data"),
        (Self::Other, "This program"),
    ];
}

/// A subcommand of a task.
pub struct TaskCommand {
    /// Its arguments and help.
    pub(crate) command: clap::Command,
    /// Where it stands in the help of the program.
    pub(crate) group: CommandGroup,
    run: Box<Run>,
}

type Run = dyn Fn(&Tasks, &ArgMatches) -> anyhow::Result<()> + Send + Sync;

impl TaskCommand {
    /// Creates a subcommand with the arguments `A`. `about` contains the paragraphs of its help,
    /// the first of which is a one-line summary; it is listed after `behind`.
    pub fn new<A: Args + FromArgMatches + 'static>(
        name: &'static str,
        about: &[&'static str],
        group: CommandGroup,
        run: fn(&Tasks, &A) -> anyhow::Result<()>,
    ) -> Self {
        let run = move |tasks: &Tasks, matches: &ArgMatches| {
            // Clap has validated them.
            run(tasks, &A::from_arg_matches(matches).unwrap_or_else(|error| error.exit()))
        };
        let command = A::augment_args(clap::Command::new(name)).about(about[0]);
        let command = match about.len() {
            1 => command.long_about(None),
            _ => command.long_about(about.join("\n\n")),
        };
        Self { command, group, run: Box::new(run) }
    }

    /// The same command with examples below its options.
    #[must_use]
    pub fn with_examples(self, examples: &'static str) -> Self {
        Self { command: self.command.after_help(examples), ..self }
    }

    /// Runs it.
    pub(crate) fn run(&self, tasks: &Tasks, matches: &ArgMatches) -> anyhow::Result<()> {
        (self.run)(tasks, matches)
    }
}

/// The tasks of the program.
#[derive(Clone, Copy)]
pub struct Tasks(&'static [&'static dyn Task]);

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|task| task.name())).finish()
    }
}

impl Tasks {
    /// Creates the tasks of a program.
    pub fn new(tasks: &'static [&'static dyn Task]) -> Self {
        Self(tasks)
    }

    /// Returns the tasks in registration order.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Task> {
        self.0.iter().copied()
    }

    /// Returns the types of rewards.
    ///
    /// # Panics
    /// Panics if two tasks have the same type of reward.
    pub fn rewards(&self) -> RewardRegistry {
        RewardRegistry::default().with(self.iter().flat_map(|task| task.rewards()))
    }

    /// Returns the codecs of model folders.
    pub fn codecs(&self) -> Codecs {
        Codecs::new(self.iter().flat_map(|task| task.codecs()).collect())
    }

    /// Returns the file formats of the section `[data]`.
    /// Returns the bucketing with this name.
    ///
    /// # Errors
    /// Returns an error that lists the known names.
    pub(crate) fn bucketing(&self, name: &str) -> Result<Bucketing, ConfigFault> {
        let all = || self.iter().flat_map(|task| task.bucketings()).chain([Bucketing::TEXT]);
        all().find(|bucketing| bucketing.name == name).ok_or_else(|| {
            let known: Vec<String> =
                all().map(|bucketing| format!("\"{}\"", bucketing.name)).collect();
            ConfigFault::from_sentence(
                "diversity_filter.bucket",
                format!(
                    "diversity_filter.bucket = \"{name}\" is unknown; expected {}",
                    known.join(", ")
                ),
            )
        })
    }

    pub(crate) fn data_formats(&self) -> Vec<DataFormat> {
        self.iter().flat_map(|task| task.data_formats()).collect()
    }

    /// Returns the sampling extensions.
    pub(crate) fn sampling(&self) -> impl Iterator<Item = &'static dyn TaskSampling> {
        self.iter().filter_map(|task| task.sampling())
    }

    /// Returns the task's objective that the configuration selects, if any.
    pub(crate) fn pretraining(&self, configuration: &Table) -> Option<Pretraining> {
        let mut all = self.iter().filter_map(|task| task.pretraining());
        all.find(|pretraining| configuration.contains_key(pretraining.section))
    }

    /// Returns how samples of a reward are drawn.
    pub(crate) fn drawing(&self, reward_type: &str) -> Option<Drawing> {
        self.iter().find_map(|task| task.drawing(reward_type))
    }

    /// Reads the codec of a model folder.
    pub(crate) fn codec(&self, folder: &Path) -> Option<Codec> {
        self.codecs().read(folder).ok()
    }
}
