//! `grpo train-engagement`: a small head learns from past replies how well a reply to a tweet will be received.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{PairRecord, SplitFractions, read_pairs, split_by_tweet};
use grpo_model::EngagementHead;
use grpo_rewards::{
    EmbedderConfig, EngagementDescription, EngagementGate, EngagementMeasures, EngagementModel,
    EngagementObjective, EngagementReport, engagement_features,
};
use grpo_run::{DataFile, Existing, write_folder_atomically, write_manifest};
use grpo_train::{
    EngagementConfig, EngagementData, EngagementTraining, Validated, measure_engagement,
    train_engagement,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::infill::StepsFiles;
use crate::output::{say, say_checked};
use crate::run_files::create_run;
use crate::task::TaskCommand;
use crate::{config, device};

/// Configuration of `grpo train-engagement`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngagementFile {
    /// Folder of the run.
    run: PathBuf,
    seed: u64,
    /// Sizes of the head's hidden layers.
    #[serde(default = "default_hidden")]
    hidden: [usize; 2],
    data: PairSection,
    /// What makes the vectors; it learns nothing.
    embedder: EmbedderConfig,
    #[serde(default)]
    objective: EngagementObjective,
    training: EngagementTraining,
    #[serde(default)]
    gate: EngagementGate,
}

fn default_hidden() -> [usize; 2] {
    EngagementHead::HIDDEN
}

/// Which pairs, and what part of their tweets is for what.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairSection {
    /// A file of pairs, or a folder of such files.
    file: PathBuf,
    #[serde(default = "default_train")]
    train: f64,
    #[serde(default = "default_held_out")]
    validation: f64,
    #[serde(default = "default_held_out")]
    test: f64,
}

fn default_train() -> f64 {
    0.7
}
fn default_held_out() -> f64 {
    0.15
}

/// The subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Train an engagement model, which says how well a reply to a tweet will be received",
        "A small head learns from past replies and their likes, on vectors of a frozen embedder. On held-out tweets it is held against the gate of the configuration: the exit code is 0 where it passes, and 1 where it may not be a reward.",
    ];
    TaskCommand::new("train-engagement", &about, "pretrain", |_, arguments| run(arguments))
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = config::load::<EngagementFile>(&arguments.config, &arguments.set)?;
    let origin = loaded.origin;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.run.clone_from(run);
    }
    let settings = EngagementConfig {
        objective: file.objective,
        training: file.training,
        gate: file.gate.or_default(&file.objective),
    };
    settings.check().map_err(|error| origin.explain(error))?;
    file.embedder
        .check()
        .map_err(|error| anyhow::anyhow!("{}{error}", origin.place("embedder")))?;
    // What could be trained, but not be read again, is not begun.
    let check_sizes = |width| {
        let place = origin.place(if width > EngagementDescription::MOST_NUMBERS {
            "embedder.width"
        } else {
            "hidden"
        });
        let checked = EngagementDescription::check_sizes(width, file.hidden);
        checked.map_err(|fault| anyhow::anyhow!("{place}{fault}"))
    };
    if let EmbedderConfig::HashedNgrams { width } = file.embedder {
        check_sizes(width)?;
    }
    let PairSection { train, validation, test, .. } = file.data;
    let fractions = SplitFractions { train, validation, test };
    fractions.check().with_context(|| format!("{}data", origin.place("data")))?;
    if arguments.check {
        say_checked(&arguments.config);
        return Ok(());
    }
    let device = device::device().autodiff();
    let embedder = file.embedder.build(&device.clone().inner())?;
    check_sizes(embedder.width())?;
    let read = read_pairs(&file.data.file)?;
    say(format_args!("{}: {read}", file.data.file.display()));
    read.unsaid().into_iter().for_each(|unsaid| say(format_args!("  {unsaid}")));
    let split = split_by_tweet(&read.pairs, &fractions, file.seed)
        .with_context(|| format!("{}data", origin.place("data")))?;
    let texts: Vec<(&str, &str)> = read.pairs.iter().map(texts).collect();
    let features = engagement_features(&*embedder, &texts)?;
    let data = EngagementData::new(&read.pairs, features, &split);
    data.check(&settings.objective).map_err(|error| origin.explain(error))?;
    let mut files = Vec::new();
    for path in &read.files {
        files.push(DataFile::measure("pairs", path)?);
    }
    for (role, path) in file.embedder.files()? {
        files.push(DataFile::measure(role, &path)?);
    }
    let info = config::run_info(file.seed, files);
    let folder = create_run(&file.run, arguments.force, &config::resolved(&file)?, &info)?;
    let description = EngagementDescription {
        embedder: file.embedder.clone(),
        embedder_identity: embedder.identity(),
        width: embedder.width(),
        hidden: file.hidden,
        objective: file.objective,
        report: None,
    };
    let target = folder.path().join("model");
    let mut chosen = None;
    // Without a report until the end: a training that ends early leaves no model that has passed.
    let save = |validated: &Validated<EngagementMeasures>, head: &EngagementHead| {
        chosen = Some((head.clone(), validated.train_step));
        save_model(&target, &description, head)
    };
    let mut observer = StepsFiles::new(&folder.metrics_path(), words, Some(save))?;
    let head = EngagementHead::random(2 * embedder.width(), file.hidden, file.seed, &device);
    let trained = train_engagement(head, &data, &settings, file.seed, &mut observer);
    observer.finish();
    drop(observer);
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    let (head, train_step) = chosen.expect("the first look is the best so far");
    let test = measure_engagement(&head, &data, &settings)?;
    let passed = settings.gate.passes(&test);
    let report = EngagementReport { passed, gate: settings.gate, test, train_step };
    let description = EngagementDescription { report: Some(report), ..description };
    save_model(&target, &description, &head)?;
    verdict(&report, &target)
}

fn texts(pair: &PairRecord) -> (&str, &str) {
    (&pair.tweet, &pair.reply)
}

/// Puts a model's folder, with the hashes of its files, in the place of the one that may be there.
fn save_model(
    target: &Path,
    description: &EngagementDescription,
    head: &EngagementHead,
) -> anyhow::Result<()> {
    write_folder_atomically(target, Existing::Replace, |folder| {
        EngagementModel::write(folder, description, head)?;
        anyhow::Ok(write_manifest(folder)?)
    })
}

fn words(measures: &EngagementMeasures) -> String {
    let EngagementMeasures { eval_loss, pearson, pearson_score, spearman, pair_accuracy, .. } =
        measures;
    let pairs = pair_accuracy.map(|part| format!(", pairs right {:.1} %", 100.0 * part));
    format!(
        "loss {eval_loss:.4}, Pearson {pearson:.3} (of scores {pearson_score:.3}), Spearman {spearman:.3}{}",
        pairs.unwrap_or_default()
    )
}

/// Says whether the model may be a reward; where it may not, that is how the command ends.
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
        "the engagement model did not pass, so it is no reward: {found}; train it on more replies"
    );
    say(format_args!("{:<12} {found}", "passed"));
    Ok(())
}
