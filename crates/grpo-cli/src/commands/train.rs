//! `grpo train`: GRPO from a model folder, with a look before and after.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use grpo_data::{Completion, Vocabulary};
use grpo_eval::MoleculeSummary;
use grpo_model::{ModelFolder, MolGpt, MolGptConfig};
use grpo_rewards::{Outcome, RewardConfig, RewardRunner};
use grpo_run::{CompletionRecord, DataFile, JsonLinesWriter, RunError, RunFolder};
use grpo_train::{
    AdvantageSettings, Grpo, GrpoConfig, LossSettings, Metrics, OptimizerConfig, SamplingConfig,
    ScheduleConfig, StepReport, TrainConfig, TrainError, TrainObserver, unconditional_prompts,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::generate::{Generation, generate, load_model};
use crate::output::{Progress, say};
use crate::run_files::{create_run, observer_error, save_model, write_model};
use crate::{config, device};

/// Configuration of `grpo train`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainFile {
    /// Folder of the run.
    run: PathBuf,
    /// Model folder that the training begins at; also the reference.
    model: PathBuf,
    seed: u64,
    train: TrainConfig,
    sampling: SamplingConfig,
    reward: RewardConfig,
    #[serde(default)]
    advantage: AdvantageSettings,
    #[serde(default)]
    loss: LossSettings,
    optimizer: OptimizerConfig,
    #[serde(default)]
    schedule: ScheduleConfig,
    #[serde(default)]
    eval: EvalSection,
    #[serde(default)]
    save: SaveSection,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EvalSection {
    /// Molecules drawn before and after.
    samples: u32,
}

impl Default for EvalSection {
    fn default() -> Self {
        Self { samples: 1000 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SaveSection {
    /// The model is saved after each so many steps; 0 for only at the end.
    every: u32,
    /// Completions are written after each so many steps; 0 for never.
    completions_every: u32,
}

impl Default for SaveSection {
    fn default() -> Self {
        Self { every: 0, completions_every: 10 }
    }
}

impl TrainFile {
    /// With what the preset stands for written out.
    fn resolved(&self) -> anyhow::Result<Self> {
        let (advantage, loss) = (self.advantage.resolved(self.loss.preset), self.loss.resolved()?);
        Ok(Self { advantage, loss, ..self.clone() })
    }

    fn grpo(&self) -> GrpoConfig {
        GrpoConfig {
            train: self.train,
            sampling: self.sampling,
            reward: self.reward,
            advantage: self.advantage,
            loss: self.loss,
            optimizer: self.optimizer,
            schedule: self.schedule,
        }
    }
}

/// Molecules of the table before and after, at most: more would only take time.
const MOST_SAMPLES: u32 = 1_000_000;

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = config::load::<TrainFile>(&arguments.config, &arguments.set)?;
    let origin = loaded.origin;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.run.clone_from(run);
    }
    file.grpo().check().map_err(|error| origin.explain(error))?;
    anyhow::ensure!(
        file.eval.samples <= MOST_SAMPLES,
        "{}eval.samples = {} is out of range; expected 0 to {MOST_SAMPLES}",
        origin.place("eval.samples"),
        file.eval.samples
    );
    // Everything that can be refused is refused before the run has a folder.
    let ModelFolder { config, vocabulary, model } =
        load_model(&file.model, &device::device().autodiff())
            .with_context(|| format!("model = \"{}\"", file.model.display()))?;
    let boundary = vocabulary.boundary();
    let decoder = vocabulary.clone();
    let decode = Box::new(move |ids: &[u32]| decoder.decode(ids));
    let mut grpo = Grpo::new(model, file.grpo(), file.seed, boundary, 1, decode)?;
    let data = model_files(&file)?;
    let text = config::resolved(&file.resolved()?)?;
    let info = config::run_info(file.seed, data);
    let folder = create_run(&file.run, arguments.force, &text, &info)?;
    say(format_args!("run folder   {}", folder.path().display()));

    let before = evaluate(grpo.policy(), &vocabulary, &file)?;
    let steps = u64::from(file.train.steps);
    let mut observer = Observer {
        metrics: folder.metrics_from(1)?,
        completions: folder.completions_from(1)?,
        progress: Progress::new(steps),
        folder,
        file: &file,
        config: &config,
        vocabulary: &vocabulary,
    };
    let prompts = |_step| unconditional_prompts(file.train.prompts_per_step, boundary);
    let trained = grpo_train::train(&mut grpo, prompts, &mut observer);
    observer.progress.finish();
    // What was learned before a failure is not lost; where both fail, the training's reason is the one to know.
    let target = observer.folder.path().join("model");
    let saved = save_model(&target, &config, &vocabulary, grpo.policy());
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    saved?;

    let after = evaluate(grpo.policy(), &vocabulary, &file)?;
    say(format_args!("{}", comparison(&before, &after)));
    say(format_args!("model        {}", target.display()));
    say(format_args!("metrics      {}", observer.folder.metrics_path().display()));
    Ok(())
}

fn model_files(file: &TrainFile) -> Result<Vec<DataFile>, RunError> {
    ["config.json", "vocabulary.json", "model.safetensors"]
        .into_iter()
        .map(|name| DataFile::measure("model", &file.model.join(name)))
        .collect()
}

/// Draws molecules with the same random numbers each time, and scores them with the reward of the training.
fn evaluate(
    model: &MolGpt,
    vocabulary: &Vocabulary,
    file: &TrainFile,
) -> anyhow::Result<Option<MoleculeSummary>> {
    if file.eval.samples == 0 {
        return Ok(None);
    }
    let generation = Generation {
        seed: file.seed,
        sampling: file.sampling.settings(),
        max_new_tokens: file.sampling.max_new_tokens,
        batch_size: file.sampling.batch_size,
    };
    let drawn = generate(model, vocabulary, file.eval.samples, &generation)?;
    // As much time for each molecule as in a step of the training, and no less altogether.
    let completions = f64::from(file.train.prompts_per_step) * file.train.group_size as f64;
    let share = (f64::from(file.eval.samples) / completions).max(1.0);
    let limit = Duration::from_secs_f64(file.train.reward_time_limit * share);
    let outcomes = RewardRunner::new(file.reward.build()?, limit).score(drawn.clone());
    let failed: Vec<&str> = outcomes.iter().filter_map(Outcome::failure).collect();
    if failed.len() as f64 > file.train.max_failed_rewards * drawn.len() as f64 {
        anyhow::bail!(
            "the reward failed for {} of the {} molecules of the table; the first reason: {}",
            failed.len(),
            drawn.len(),
            failed[0]
        );
    }
    Ok(Some(MoleculeSummary::of(&drawn, &outcomes, None)))
}

/// A row of the table: its name, and which number it shows.
type Measure = (&'static str, fn(&MoleculeSummary) -> f64);

fn comparison(before: &Option<MoleculeSummary>, after: &Option<MoleculeSummary>) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return "no comparison: eval.samples = 0".to_owned();
    };
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let title = format!("{} molecules", before.samples);
    table.set_header([title.as_str(), "before", "after", "change"]);
    let rows: [Measure; 8] = [
        ("validity", |summary| summary.validity),
        ("uniqueness (of valid)", |summary| summary.uniqueness),
        ("scaffolds for each molecule", |summary| summary.scaffold_diversity),
        ("mean reward, all", |summary| summary.reward),
        ("  its standard error", |summary| summary.reward_error),
        ("mean reward, valid", |summary| summary.reward_valid),
        ("mean QED, valid", |summary| summary.qed),
        ("mean SA, valid (1 easy, 10 hard)", |summary| summary.sa),
    ];
    for (name, value) in rows {
        let (old, new) = (value(before), value(after));
        table.add_row([
            name.to_owned(),
            format!("{old:.4}"),
            format!("{new:.4}"),
            format!("{:+.4}", new - old),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Writes metrics, completions and models, and moves the bar.
struct Observer<'a> {
    metrics: JsonLinesWriter,
    completions: JsonLinesWriter,
    progress: Progress,
    folder: RunFolder,
    file: &'a TrainFile,
    config: &'a MolGptConfig,
    vocabulary: &'a Vocabulary,
}

impl TrainObserver<MolGpt> for Observer<'_> {
    fn step(
        &mut self,
        report: &StepReport,
        metrics: &Metrics,
        policy: &MolGpt,
    ) -> Result<(), TrainError> {
        self.metrics.append(metrics).map_err(observer_error)?;
        let done = report.step + 1;
        if is_due(done, self.file.save.completions_every) {
            for record in records(report) {
                self.completions.append(&record).map_err(observer_error)?;
            }
        }
        if is_due(done, self.file.save.every) {
            self.folder
                .write_checkpoint(u64::from(done), |folder| {
                    write_model(folder, self.config, self.vocabulary, policy)
                })
                .map_err(observer_error)?;
        }
        let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
        self.progress.step(format!(
            "reward {:.3}  valid {:.2}  KL {:.3}  {:.0} tokens/s",
            value("reward"),
            value("rewards/valid/mean"),
            value("kl"),
            value("tokens_per_second"),
        ));
        Ok(())
    }
}

fn is_due(done: u32, every: u32) -> bool {
    every > 0 && done.is_multiple_of(every)
}

/// The completions of a step as they are stored.
fn records(report: &StepReport) -> Vec<CompletionRecord> {
    let completions: Vec<&Completion> =
        report.groups.iter().flat_map(|group| &group.completions).collect();
    let advantages: Vec<f64> = report.advantages.groups.concat();
    (0..completions.len())
        .map(|i| {
            let (completion, outcome) = (completions[i], &report.outcomes[i]);
            let parts = match outcome {
                Outcome::Scored(scored) => scored.parts.as_slice(),
                Outcome::Abstained | Outcome::Failed { .. } => &[],
            };
            CompletionRecord {
                step: u64::from(report.step) + 1,
                prompt: completion.key().prompt,
                sample: completion.key().sample,
                text: report.texts[i].clone(),
                reward: outcome.total(),
                parts: parts.iter().map(|(name, v)| ((*name).to_owned(), Some(*v))).collect(),
                advantage: Some(advantages[i]),
                actions: completion.actions() as u32,
                sampling_logprob: Some(
                    completion.sampling_logprobs().iter().map(|&l| f64::from(l)).sum(),
                ),
                finish: completion.finish(),
                policy_version: completion.policy_version(),
            }
        })
        .collect()
}
