//! `grpo train`: GRPO from a model folder, with a look before and after.

use std::path::{Path, PathBuf};

use anyhow::Context;
use grpo_data::{ChatOptions, Codec, Completion, EpochOrder, Prompt, PromptFile};
use grpo_model::{CausalLm, Frozen, LoraConfig, Policy, WeightPrecision};
use grpo_rewards::{Outcome, RewardConfig};
use grpo_run::{CompletionRecord, DataFile, JsonLinesWriter, RunFolder};
use grpo_train::{
    AdvantageSettings, Grpo, GrpoConfig, LossSettings, Metrics, OptimizerConfig, Parts,
    SamplingConfig, ScheduleConfig, StepReport, TrainConfig, TrainError, TrainObserver,
    unconditional_prompts,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::look::{Look, comparison};
use crate::models::{Loaded, Trained, Writer, load};
use crate::output::{Progress, say};
use crate::run_files::{create_run, observer_error};
use crate::{config, device};

/// Configuration of `grpo train`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainFile {
    /// Folder of the run.
    run: PathBuf,
    /// Model folder that the training begins at.
    model: PathBuf,
    /// Adapter folder to go on training, on the model as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adapter: Option<PathBuf>,
    /// What holds the policy back.
    #[serde(default)]
    reference: Reference,
    /// How the matrices of a model that only an adapter is trained on are held.
    #[serde(default)]
    base_precision: WeightPrecision,
    seed: u64,
    /// A new adapter to train, on the model as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lora: Option<LoraConfig>,
    /// Prompts; without them the model says what it will from its beginning mark on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<DataSection>,
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

/// What holds the policy back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reference {
    /// The policy as it is at the start.
    #[default]
    Start,
    /// The model without an adapter.
    Base,
}

/// The section `[data]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataSection {
    /// `.jsonl`, `.jsonl.gz` or `.parquet`.
    file: PathBuf,
    /// Prompts of more tokens are left out; without it, those that leave no room for a completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_prompt_tokens: Option<usize>,
    /// The chat template's switch for thinking before the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EvalSection {
    /// Completions drawn before and after.
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
            reward: self.reward.clone(),
            advantage: self.advantage,
            loss: self.loss,
            optimizer: self.optimizer,
            schedule: self.schedule,
        }
    }

    /// What of the model is trained.
    fn trained(&self) -> anyhow::Result<Trained<'_>> {
        trained(self.adapter.as_deref(), self.lora.as_ref(), self.base_precision, self.seed)
    }
}

/// What of a model is trained, as a configuration says it.
pub(crate) fn trained<'a>(
    adapter: Option<&'a Path>,
    lora: Option<&'a LoraConfig>,
    base_precision: WeightPrecision,
    seed: u64,
) -> anyhow::Result<Trained<'a>> {
    match (adapter, lora) {
        (Some(_), Some(_)) => anyhow::bail!(
            "the configuration has both `adapter` and [lora]; an adapter that is gone on with has its settings already, so leave one of them out"
        ),
        (Some(adapter), None) => Ok(Trained::Adapter(adapter)),
        (None, Some(lora)) => Ok(Trained::NewAdapter(lora, seed)),
        (None, None) => {
            anyhow::ensure!(
                base_precision == WeightPrecision::F32,
                "base_precision is for a model that only an adapter is trained on; add [lora] or `adapter`, or leave it out"
            );
            Ok(Trained::Whole)
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
    let trained = file.trained()?;
    let loaded = load(&file.model, trained, file.base_precision, &device::device().autodiff())
        .with_context(|| format!("model = \"{}\"", file.model.display()))?;
    let codec = loaded.spec.codec.clone();
    let mut prompts = Prompts::new(&file, &loaded)?;
    let mut data = loaded.data_files()?;
    data.extend(
        file.data
            .iter()
            .map(|data| DataFile::measure("prompts", &data.file))
            .collect::<Result<Vec<_>, _>>()?,
    );
    let look = Look::new(&codec, prompts.for_look(file.eval.samples), file.grpo(), file.seed);
    let kind = loaded.kind();
    let writer = Writer { spec: loaded.spec.clone(), adapter: loaded.adapter.clone() };
    let mut grpo = Grpo::new(parts(loaded, &file, &prompts)?, file.grpo(), file.seed)?;
    let text = config::resolved(&file.resolved()?)?;
    let info = config::run_info(file.seed, data);
    let folder = create_run(&file.run, arguments.force, &text, &info)?;
    say(format_args!("run folder   {}", folder.path().display()));
    if let Some(report) = &prompts.report {
        say(format_args!("prompts      {report}"));
    }

    let before = look.at(grpo.policy())?;
    let steps = u64::from(file.train.steps);
    let mut observer = Observer {
        metrics: folder.metrics_from(1)?,
        completions: folder.completions_from(1)?,
        progress: Progress::new(steps),
        folder,
        save: file.save.clone(),
        writer: writer.clone(),
    };
    let of_step = |_step| prompts.next(file.train.prompts_per_step);
    let trained = grpo_train::train(&mut grpo, of_step, &mut observer);
    observer.progress.finish();
    // What was learned before a failure is not lost; where both fail, the training's reason is the one to know.
    let target = observer.folder.path().join(kind);
    let saved = writer.save(&target, grpo.policy());
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    saved?;

    let after = look.at(grpo.policy())?;
    say(format_args!("{}", comparison(&before, &after)));
    say(format_args!("{kind:<12} {}", target.display()));
    say(format_args!("metrics      {}", observer.folder.metrics_path().display()));
    Ok(())
}

/// What the training begins with.
fn parts(loaded: Loaded, file: &TrainFile, prompts: &Prompts) -> anyhow::Result<Parts<Policy>> {
    let Loaded { spec, policy, .. } = loaded;
    let reference = match (file.reference, &policy) {
        (Reference::Start, _) => Frozen::snapshot(&policy),
        // Shares the base with the policy.
        (Reference::Base, Policy::Adapted(adapted)) => {
            Frozen::snapshot(&Policy::Whole(adapted.base().clone()))
        }
        (Reference::Base, Policy::Whole(_)) => anyhow::bail!(
            "reference = \"base\" is the model without its adapter, and there is none; leave it out, or add [lora] or `adapter`"
        ),
    };
    let codec = spec.codec;
    Ok(Parts {
        policy,
        reference,
        end_ids: codec.end_ids().to_vec(),
        longest_prompt: prompts.longest(),
        decode: Box::new(move |ids: &[u32]| codec.decode(ids)),
    })
}

/// The prompts of a training, each once an epoch in a shuffled order.
struct Prompts {
    source: Source,
    report: Option<String>,
}

enum Source {
    /// The beginning mark alone.
    Unconditional(u32),
    File {
        prompts: Vec<Prompt>,
        order: EpochOrder,
    },
}

impl Prompts {
    fn new(file: &TrainFile, loaded: &Loaded) -> anyhow::Result<Self> {
        let codec: &Codec = &loaded.spec.codec;
        let Some(data) = &file.data else {
            let begin = codec.begin_id().with_context(|| {
                format!(
                    "{} has no id that begins a text, so the training needs prompts: a section [data] with `file`",
                    file.model.display()
                )
            })?;
            return Ok(Self { source: Source::Unconditional(begin), report: None });
        };
        anyhow::ensure!(
            codec.vocabulary().is_none(),
            "data.file: {} writes molecules from its beginning mark on and takes no prompts; leave [data] out",
            file.model.display()
        );
        let context = loaded.policy.context_length();
        let room = (context + 1).saturating_sub(file.sampling.max_new_tokens);
        let longest = data.max_prompt_tokens.unwrap_or(room);
        let options = ChatOptions { add_generation_prompt: true, enable_thinking: data.thinking };
        let read = PromptFile::read(&data.file, codec, &options, longest)?;
        let order = EpochOrder::new(file.seed, read.prompts.len());
        Ok(Self {
            source: Source::File { prompts: read.prompts, order },
            report: Some(format!("{}: {}", data.file.display(), read.report)),
        })
    }

    /// Those of the next step.
    fn next(&mut self, count: u32) -> Vec<Prompt> {
        match &mut self.source {
            Source::Unconditional(begin) => unconditional_prompts(count, *begin),
            // The index is of the step: two prompts of it never share random numbers.
            Source::File { prompts, order } => (0..count)
                .map(|index| Prompt { index, ..prompts[order.next_item()].clone() })
                .collect(),
        }
    }

    /// Those to look at before and after: the first of the file, or as many beginnings.
    fn for_look(&self, count: u32) -> Vec<Prompt> {
        match &self.source {
            Source::Unconditional(begin) => unconditional_prompts(count, *begin),
            Source::File { prompts, .. } => prompts.iter().take(count as usize).cloned().collect(),
        }
    }

    /// Tokens of the longest one.
    fn longest(&self) -> usize {
        match &self.source {
            Source::Unconditional(_) => 1,
            Source::File { prompts, .. } => {
                prompts.iter().map(|prompt| prompt.ids.len()).max().unwrap_or(1)
            }
        }
    }
}

/// Writes metrics, completions and models, and moves the bar.
struct Observer {
    metrics: JsonLinesWriter,
    completions: JsonLinesWriter,
    progress: Progress,
    folder: RunFolder,
    save: SaveSection,
    writer: Writer,
}

impl TrainObserver<Policy> for Observer {
    fn step(
        &mut self,
        report: &StepReport,
        metrics: &Metrics,
        policy: &Policy,
    ) -> Result<(), TrainError> {
        self.metrics.append(metrics).map_err(observer_error)?;
        let done = report.step + 1;
        if is_due(done, self.save.completions_every) {
            for record in records(report) {
                self.completions.append(&record).map_err(observer_error)?;
            }
        }
        if is_due(done, self.save.every) {
            self.folder
                .write_checkpoint(u64::from(done), |folder| self.writer.fill(folder, policy))
                .map_err(observer_error)?;
        }
        let value = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
        let valid = metrics.get("rewards/valid/mean").map(|valid| format!("  valid {valid:.2}"));
        self.progress.step(format!(
            "reward {:.3}{}  KL {:.3}  {:.0} tokens/s",
            value("reward"),
            valid.unwrap_or_default(),
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
