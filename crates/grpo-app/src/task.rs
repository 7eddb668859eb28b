//! What a task adds to the program: rewards, codecs, data, ways to show samples, and subcommands of its own.

use std::fmt;
use std::path::Path;

use clap::{ArgMatches, Args, FromArgMatches};
use grpo_data::{Codec, CodecKind, Codecs, PromptSource};
use grpo_report::Drawing;
use grpo_rewards::{Outcome, RewardKind, RewardRegistry};
use grpo_train::{GuardAction, GuardConfig};
use toml::Table;

use crate::args::RunArguments;
use crate::data::DataFormat;
use crate::models::Loaded;
use crate::source::SourceKind;

/// Something that models are trained for: molecules, replies, blanks to fill. Every method has a default, and what is below
/// this crate knows none of them.
pub trait Task: Sync {
    /// Returns the name of the task, in one word.
    fn name(&self) -> &'static str;

    /// Returns the types of the section `[reward]` that it adds.
    fn rewards(&self) -> Vec<RewardKind> {
        Vec::new()
    }

    /// Returns the ways to write text as ids that model folders of it have.
    fn codecs(&self) -> Vec<CodecKind> {
        Vec::new()
    }

    /// Returns the files that the section `[data]` of `grpo train` and `grpo pretrain` can name besides files of prompts and
    /// completions.
    fn data_formats(&self) -> Vec<DataFormat> {
        Vec::new()
    }

    /// Returns the sections of `grpo train` that give prompts in place of `[data]`.
    fn sources(&self) -> Vec<SourceKind> {
        Vec::new()
    }

    /// Returns its subcommands.
    fn commands(&self) -> Vec<TaskCommand> {
        Vec::new()
    }

    /// Returns its objective for `grpo pretrain`, if it has one besides the next token.
    fn pretraining(&self) -> Option<Pretraining> {
        None
    }

    /// Returns how it samples with `grpo sample`, if it does so in ways of its own.
    fn sampling(&self) -> Option<&dyn TaskSampling> {
        None
    }

    /// Returns what is measured of the samples of a model with this codec, in the table before and after training. Without
    /// it, that table shows the components of the reward.
    fn measures(&self, _codec: &Codec) -> Option<Measures> {
        None
    }

    /// Returns the key of a prompt's record whose text is shown in place of the prompt, with its name.
    fn prompt_field(&self) -> Option<&'static str> {
        None
    }

    /// Returns how a report draws samples that were scored by a reward of this type.
    fn drawing(&self, _reward_type: &str) -> Option<Drawing> {
        None
    }

    /// Returns the limits of `grpo trial` for a reward of this type, where those of texts do not fit.
    fn trial_limits(&self, _reward_type: &str) -> Option<TrialLimits> {
        None
    }
}

/// Rows of a name and a number.
pub type MeasureRows = Vec<(&'static str, f64)>;

/// What is measured of a set of samples.
#[derive(Clone, Copy)]
pub struct Measures {
    /// What a sample is called, in the plural.
    pub samples: &'static str,
    /// The names of the rows that measure diversity. Larger values are more diverse.
    pub diversity: &'static [&'static str],
    /// Returns rows of a name and a number, from texts and what the reward says of each.
    pub measure: fn(&[String], &[Outcome]) -> MeasureRows,
}

/// Limits of a trial run.
#[derive(Clone, Debug)]
pub struct TrialLimits {
    /// The key of `[success]` that limits the distance from the reference, and its limit.
    pub max_distance: (&'static str, f64),
    /// The guards that end the run, besides the one for numbers that are not finite.
    pub guards: Vec<GuardConfig>,
}

impl TrialLimits {
    /// Makes a guard that ends the run where a metric leaves its range in so many steps one after another.
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

/// A way to pretrain that a section of the configuration selects.
#[derive(Clone, Copy)]
pub struct Pretraining {
    /// The section whose presence selects it.
    pub section: &'static str,
    /// Runs it.
    pub run: fn(&Tasks, &RunArguments) -> anyhow::Result<()>,
}

/// What a task adds to `grpo sample`.
pub trait TaskSampling {
    /// Adds options of its own.
    fn options(&self, command: clap::Command) -> clap::Command {
        command
    }

    /// Returns the prompts that its options ask for, each with the option that is named where one is refused.
    fn prompts(&self, _options: &ArgMatches) -> Vec<(String, PromptSource)> {
        Vec::new()
    }

    /// Refuses options of its own that do not fit what is sampled; called where [`Self::sampler`] is not.
    ///
    /// # Errors
    /// An option without effect.
    fn check_unused(&self, _options: &ArgMatches) -> anyhow::Result<()> {
        Ok(())
    }

    /// Returns what draws and writes samples without a prompt, if those of this codec are the task's own.
    fn sampler(&self, _codec: &Codec) -> Option<Sampler> {
        None
    }
}

/// Draws and writes samples without a prompt; it fails with what the model, the options or the output refuse.
pub type Sampler = fn(&Sampling<'_>) -> anyhow::Result<()>;

/// What a task samples from.
pub struct Sampling<'a> {
    /// The options that all tasks share.
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
    /// Makes a subcommand that takes the arguments `A`. `about` has the paragraphs of its help; the first one is a summary in
    /// one line, which the list of all commands shows in `group`.
    pub fn new<A: Args + FromArgMatches + 'static>(
        name: &'static str,
        about: &[&'static str],
        group: CommandGroup,
        run: fn(&Tasks, &A) -> anyhow::Result<()>,
    ) -> Self {
        let run = move |tasks: &Tasks, matches: &ArgMatches| {
            // Clap has checked them already.
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
    /// Makes the tasks of a program.
    pub fn new(tasks: &'static [&'static dyn Task]) -> Self {
        Self(tasks)
    }

    /// Returns them in the order in which they were registered.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Task> {
        self.0.iter().copied()
    }

    /// Returns the types of rewards that there are.
    ///
    /// # Panics
    /// Two tasks have rewards of the same type.
    pub fn rewards(&self) -> RewardRegistry {
        RewardRegistry::default().with(self.iter().flat_map(|task| task.rewards()))
    }

    /// Returns the codecs that model folders can have.
    pub fn codecs(&self) -> Codecs {
        Codecs::new(self.iter().flat_map(|task| task.codecs()).collect())
    }

    /// Returns the kinds of files that the section `[data]` can name.
    pub(crate) fn data_formats(&self) -> Vec<DataFormat> {
        self.iter().flat_map(|task| task.data_formats()).collect()
    }

    /// Returns the ways in which tasks sample.
    pub(crate) fn sampling(&self) -> impl Iterator<Item = &'static dyn TaskSampling> {
        self.iter().filter_map(|task| task.sampling())
    }

    /// Returns the objective that the configuration asks for, if it is that of a task.
    pub(crate) fn pretraining(&self, configuration: &Table) -> Option<Pretraining> {
        let mut all = self.iter().filter_map(|task| task.pretraining());
        all.find(|pretraining| configuration.contains_key(pretraining.section))
    }

    /// Returns what draws samples of a reward.
    pub(crate) fn drawing(&self, reward_type: &str) -> Option<Drawing> {
        self.iter().find_map(|task| task.drawing(reward_type))
    }

    /// Reads the codec of a model folder.
    pub(crate) fn codec(&self, folder: &Path) -> Option<Codec> {
        self.codecs().read(folder).ok()
    }
}
