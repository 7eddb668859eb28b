//! `grpo train-engagement`: trains a model on past replies that predicts how well a reply is
//! received.

use std::path::{Path, PathBuf};

use crate::{
    EngagementConfig, EngagementData, EngagementHeadObjective, EngagementTraining, PairRecord,
    measure_engagement, read_pairs, split_by_tweet,
};
use crate::{
    EngagementDescription, EngagementGate, EngagementMeasures, EngagementModel,
    EngagementObjective, EngagementReport, engagement_features,
};
use anyhow::Context;
use grpo_data::SplitFractions;
use grpo_data::schema::Keys;
use grpo_model::Perceptron;
use grpo_rewards::EmbedderConfig;
use grpo_run::VerifiedFolder;
use grpo_train::GuardConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use grpo_task::args::RunArguments;
use grpo_task::checkpoint::CheckpointSection;
use grpo_task::config::Origin;
use grpo_task::device;
use grpo_task::output::{say, say_checked, say_embedders_checked};
use grpo_task::phase::Phase;
use grpo_task::supervised_run::{ModelFiles, Request};
use grpo_task::task::{CommandGroup, TaskCommand};

/// The configuration file of `grpo train-engagement`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EngagementFile {
    /// Run folder, new or empty.
    #[schemars(extend("x-basic" = true))]
    run: PathBuf,
    /// Determines all random numbers.
    #[schemars(extend("x-basic" = true))]
    seed: u64,
    /// Sizes of the hidden layers.
    #[serde(default = "default_hidden")]
    #[schemars(inner(range(min = 1, max = 65536)))]
    hidden: [usize; 2],
    data: PairSection,
    /// The embedder, which is frozen.
    embedder: EmbedderConfig,
    #[serde(default)]
    objective: EngagementObjective,
    training: EngagementTraining,
    #[serde(default)]
    gate: EngagementGate,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<GuardConfig>,
    #[serde(default)]
    save: CheckpointSection,
}

fn default_hidden() -> [usize; 2] {
    Perceptron::HIDDEN
}

/// The pairs and the fraction of tweets in each split.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PairSection {
    /// File or folder of [pairs](#tweets-and-replies).
    #[schemars(extend("x-basic" = true))]
    file: PathBuf,
    /// Fraction of the pairs for training, by whole tweets; the three fractions sum to 1.
    #[serde(default = "default_train")]
    train: f64,
    /// Fraction for validation, at least 30 replies.
    #[serde(default = "default_held_out")]
    validation: f64,
    /// Fraction for the gate, at least 30 replies.
    #[serde(default = "default_held_out")]
    test: f64,
}

fn default_train() -> f64 {
    0.7
}
fn default_held_out() -> f64 {
    0.15
}

const EXAMPLES: &str = "Examples:
  grpo train-engagement configs/replies/engagement.toml
  grpo train-engagement --resume runs/replies/engagement";

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Train an engagement model that scores replies to tweets",
        "Trains a small head on top of a frozen embedder to predict how much engagement past replies received, then tests it on held-out tweets. The exit code is 0 if the model passes the gate in the configuration, and 1 if it must not be used as a reward.",
    ];
    TaskCommand::new("train-engagement", &about, CommandGroup::Train, |_, arguments| run(arguments))
        .with_examples(EXAMPLES)
        .with_configuration(Keys::of::<EngagementFile>())
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let Request { file, origin, start } =
        Request::read(arguments, "train-engagement", |file: &mut EngagementFile| &mut file.run)?;
    let settings = file.settings(&origin)?;
    if arguments.check {
        let inputs = [("data", &file.data.file)];
        say_checked(arguments.configuration()?, &file.run, arguments.force, inputs)?;
        say_embedders_checked([&file.embedder]);
        return Ok(());
    }
    let device = device::device()?.autodiff();
    let embedder = file.embedder.build(&device.clone().inner())?;
    file.check_sizes(embedder.width(), &origin)?;
    let read = read_pairs(&file.data.file)?;
    say(format_args!("{}: {read}", file.data.file.display()));
    read.unsaid().into_iter().for_each(|unsaid| say(format_args!("  {unsaid}")));
    let split = split_by_tweet(&read.pairs, &file.data.fractions(), file.seed)
        .with_context(|| format!("{}data", origin.place("data")))?;
    let texts: Vec<(&str, &str)> = read.pairs.iter().map(texts).collect();
    let phase = Phase::begin(format!("embedding {} replies", texts.len()));
    let features = engagement_features(&*embedder, &texts)?;
    drop(phase);
    let data = EngagementData::new(&read.pairs, features, &split);
    let head = Perceptron::random(2 * embedder.width(), file.hidden, file.seed, &device);
    let trainer = EngagementHeadObjective::trainer(head, &data, &settings, file.seed);
    let trainer = trainer.and_then(|trainer| trainer.with_guards(&file.guards));
    let mut trainer = trainer.map_err(|error| origin.explain(error))?;
    let pairs = read.files.iter().map(|path| ("pairs", path.clone()));
    let files: Vec<_> = pairs.chain(file.embedder.files()?).collect();
    let run = start.folder(&file, &file.run, file.seed, &files)?;
    // The report is only added at the end. If a run is interrupted, the model it leaves behind has
    // no report and therefore never counts as passed.
    let mut files = EngagementDescription {
        embedder: file.embedder.clone(),
        embedder_identity: embedder.identity(),
        width: embedder.width(),
        hidden: file.hidden,
        objective: file.objective,
        report: None,
    };
    let ending = run.train(&mut trainer, &mut files, &file.save)?;
    run.refuse_stopped(ending)?;
    let (head, train_step) = run.best(&trainer, &files)?;
    let test = measure_engagement(&head, &data, &settings)?;
    let passed = settings.gate.passes(&test);
    let report = EngagementReport { passed, gate: settings.gate, test, train_step };
    files.report = Some(report);
    let target = run.save("model", |folder| files.write(folder, &head))?;
    verdict(&report, &target)
}

impl EngagementFile {
    /// Returns the training settings after all checks that don't require data.
    fn settings(&self, origin: &Origin) -> anyhow::Result<EngagementConfig> {
        let settings = EngagementConfig {
            objective: self.objective,
            training: self.training,
            gate: self.gate.or_default(&self.objective),
        };
        settings.check().map_err(|error| origin.explain(error))?;
        let embedder = self.embedder.check();
        embedder.map_err(|error| anyhow::anyhow!("{}{error}", origin.place("embedder")))?;
        if let EmbedderConfig::HashedNgrams { width } = self.embedder {
            self.check_sizes(width, origin)?;
        }
        let fractions = self.data.fractions();
        fractions.check().with_context(|| format!("{}data", origin.place("data")))?;
        self.save.check(origin)?;
        Ok(settings)
    }

    /// Rejects sizes that could be trained but could not be loaded again.
    fn check_sizes(&self, width: usize, origin: &Origin) -> anyhow::Result<()> {
        let is_wide = width > EngagementDescription::MOST_NUMBERS;
        let place = origin.place(if is_wide { "embedder.width" } else { "hidden" });
        let checked = EngagementDescription::check_sizes(width, self.hidden);
        checked.map_err(|fault| anyhow::anyhow!("{place}{fault}"))
    }
}

impl PairSection {
    fn fractions(&self) -> SplitFractions {
        let Self { train, validation, test, .. } = *self;
        SplitFractions { train, validation, test }
    }
}

fn texts(pair: &PairRecord) -> (&str, &str) {
    (&pair.tweet, &pair.reply)
}

impl<'a> ModelFiles<EngagementHeadObjective<'a>> for EngagementDescription {
    const SECTION: &'static str = "training";

    fn write(&self, folder: &Path, head: &Perceptron) -> anyhow::Result<()> {
        Ok(EngagementModel::write(folder, self, head)?)
    }

    fn read(&self, folder: &VerifiedFolder, like: &Perceptron) -> anyhow::Result<Perceptron> {
        Ok(EngagementModel::load_head(folder.path(), like)?)
    }

    fn words(&self, measures: &EngagementMeasures) -> String {
        words(measures)
    }
}

fn words(measures: &EngagementMeasures) -> String {
    let EngagementMeasures { eval_loss, pearson, pearson_score, spearman, pair_accuracy, .. } =
        measures;
    let pairs = pair_accuracy.map(|part| format!(", pair accuracy {:.1} %", 100.0 * part));
    format!(
        "loss {eval_loss:.4}, Pearson {pearson:.3} (scores {pearson_score:.3}), Spearman {spearman:.3}{}",
        pairs.unwrap_or_default()
    )
}

/// Reports whether the model can be used as a reward. Returns an error if it cannot.
fn verdict(report: &EngagementReport, target: &Path) -> anyhow::Result<()> {
    let EngagementReport { passed, gate, test, .. } = report;
    say(format_args!("{:<12} {}", "engagement", target.display()));
    say(format_args!(
        "{:<12} {} replies to {} tweets: {}",
        "test",
        test.replies,
        test.tweets,
        words(test)
    ));
    let found = gate.against(test);
    anyhow::ensure!(
        passed,
        "the engagement model failed its gate and must not be used as a reward: {found}; train it on more replies"
    );
    say(format_args!("{:<12} {found}", "passed"));
    Ok(())
}
