//! `grpo train`: GRPO from a model folder, with a look before and after.

use std::path::PathBuf;

use anyhow::Context;
use grpo_data::{Codec, Completion};
use grpo_model::{Frozen, LoraConfig, Policy, WeightPrecision};
use grpo_rewards::{Outcome, RewardConfig};
use grpo_run::{CompletionRecord, DataFile, JsonLinesWriter, RunFolder};
use grpo_train::{
    AdvantageSettings, Grpo, GrpoConfig, LossSettings, Metrics, OptimizerConfig, Parts,
    SamplerCheck, SamplingConfig, ScheduleConfig, StepReport, TrainConfig, TrainError,
    TrainObserver,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::look::{Look, comparison};
use crate::models::{Loaded, Trained, Writer, load};
use crate::output::{Progress, say};
use crate::prompts::{PromptSection, Prompts};
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
    data: Option<PromptSection>,
    train: TrainConfig,
    sampling: SamplingConfig,
    reward: RewardConfig,
    #[serde(default)]
    advantage: AdvantageSettings,
    #[serde(default)]
    loss: LossSettings,
    #[serde(default)]
    sampler_check: SamplerCheck,
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
        let sampler_check = self.sampler_check.resolved(loss.mismatch);
        Ok(Self { advantage, loss, sampler_check, ..self.clone() })
    }

    fn grpo(&self) -> GrpoConfig {
        GrpoConfig {
            train: self.train,
            sampling: self.sampling,
            reward: self.reward.clone(),
            advantage: self.advantage,
            loss: self.loss,
            sampler_check: self.sampler_check,
            optimizer: self.optimizer,
            schedule: self.schedule,
        }
    }

    /// What of the model is trained.
    fn trained(&self) -> anyhow::Result<Trained<'_>> {
        let adapter = self.adapter.as_deref();
        Trained::of(adapter, self.lora.as_ref(), self.base_precision, self.seed)
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
    if let Some(lora) = &file.lora {
        lora.check().map_err(|error| anyhow::anyhow!("{}{error}", origin.place("lora")))?;
    }
    let reward = file.reward.build();
    let reward = reward.map_err(|error| anyhow::anyhow!("{}{error}", origin.place("reward")))?;
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
    let longest = file.sampling.max_new_tokens;
    let mut prompts = Prompts::new(file.data.as_ref(), &loaded, longest, &*reward, file.seed)?;
    let mut data = loaded.data_files()?;
    data.extend(
        file.data
            .iter()
            .map(|data| DataFile::measure("prompts", &data.file))
            .collect::<Result<Vec<_>, _>>()?,
    );
    let look = Look::new(&codec, prompts.for_look(file.eval.samples), file.grpo(), file.seed);
    let (kind, loaded_is_text) = (loaded.kind(), codec.is_text());
    let writer = Writer { spec: loaded.spec.clone(), adapter: loaded.adapter.clone() };
    let mut grpo = Grpo::new(parts(loaded, &file, &prompts)?, file.grpo(), file.seed)?;
    let text = config::resolved(&file.resolved()?)?;
    let info = config::run_info(file.seed, data);
    let folder = create_run(&file.run, arguments.force, &text, &info)?;
    say(format_args!("run folder   {}", folder.path().display()));
    if let Some(report) = &prompts.report {
        say(format_args!("prompts      {report}"));
    }

    if !loaded_is_text {
        say(format_args!("no tokenizer: the reward sees ids with spaces between them"));
    }
    if look.count() > 0 {
        say(format_args!("drawing {} completions, to compare with later", look.count()));
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
        idle_steps: 0,
    };
    let of_step = |_step| prompts.next(file.train.prompts_per_step);
    let trained = grpo_train::train(&mut grpo, of_step, &mut observer);
    observer.progress.finish();
    // What was learned before a failure is not lost; where both fail, the training's reason is the one to know.
    let target = observer.folder.path().join(kind);
    let saved = writer.save(&target, grpo.policy());
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    saved?;

    if 2 * observer.idle_steps > file.train.steps {
        say(format_args!(
            "in {} of {} steps the rewards of every group were equal, and nothing was learned from them",
            observer.idle_steps, file.train.steps
        ));
    }
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

/// Writes metrics, completions and models, and moves the bar.
struct Observer {
    metrics: JsonLinesWriter,
    completions: JsonLinesWriter,
    progress: Progress,
    folder: RunFolder,
    save: SaveSection,
    writer: Writer,
    /// Steps in which no group had a completion that was better than another.
    idle_steps: u32,
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
        self.idle_steps += u32::from(report.advantages.zero_std_share == 1.0);
        if is_due(done, self.save.completions_every) {
            for record in records(report, &self.writer.spec.codec) {
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
fn records(report: &StepReport, codec: &Codec) -> Vec<CompletionRecord> {
    let completions: Vec<&Completion> =
        report.groups.iter().flat_map(|group| &group.completions).collect();
    let prompts: Vec<String> = report
        .groups
        .iter()
        .flat_map(|group| vec![codec.decode(&group.prompt.ids); group.completions.len()])
        .collect();
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
                prompt_text: Some(prompts[i].clone()).filter(|text| !text.is_empty()),
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
