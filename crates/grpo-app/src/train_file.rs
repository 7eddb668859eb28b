//! The configuration of `grpo train`, and what a training with it begins with: for `grpo train` itself, and for `grpo
//! replay`, which goes back into a run.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_core::KlController;
use grpo_data::{Codec, ConfigFault, Prompt, deserialize_settings};
use grpo_model::{Frozen, LanguageModel, LoraConfig, Policy, WeightPrecision};
use grpo_report::{SuccessCriteria, command_of};
use grpo_rewards::{Reward, RewardConfig};
use grpo_run::RunFolder;
use grpo_train::{
    Actions, AdvantageSettings, Combined, CombinedConfig, DiversityBonusConfig, EvalConfig,
    GrpoConfig, GuardConfig, LossSettings, OptimizerConfig, Parts, ReferenceFrom,
    ReferenceSettings, SamplerCheck, SamplingConfig, ScheduleConfig, TrainConfig,
};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::checkpoint::CheckpointSection;
use crate::config::{self, Origin};
use crate::device;
use crate::generate::decoder;
use crate::models::{Loaded, Trained, Writer, check_causal, read};
use crate::output::say;
use crate::preflight::PreflightSection;
use crate::prompts::{CombinedExamples, PromptSection, Prompts};
use crate::run_files::config_of_run;
use crate::source::Source;
use crate::task::Tasks;

/// The configuration of `grpo train`.
#[derive(Clone, Debug)]
pub struct TrainFile {
    /// The sections that are the same for all tasks.
    settings: TrainSettings,
    /// What is maximised.
    pub reward: RewardConfig,
    /// Prompts of a file; without them the model says what it will from its beginning mark on.
    pub data: Option<PromptSection>,
    /// Prompts of a task, in place of those of a file.
    pub source: Option<Arc<dyn Source>>,
}

impl Deref for TrainFile {
    type Target = TrainSettings;

    fn deref(&self) -> &TrainSettings {
        &self.settings
    }
}

impl DerefMut for TrainFile {
    fn deref_mut(&mut self) -> &mut TrainSettings {
        &mut self.settings
    }
}

/// The sections of a [`TrainFile`] that are the same for all tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Folder of the run.
    pub(crate) run: PathBuf,
    /// Model folder that the training begins at.
    pub(crate) model: PathBuf,
    /// Adapter folder to go on training, on the model as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adapter: Option<PathBuf>,
    /// How the matrices of a model that only an adapter is trained on are held.
    #[serde(default)]
    pub(crate) base_precision: WeightPrecision,
    pub(crate) seed: u64,
    /// A new adapter to train, on the model as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lora: Option<LoraConfig>,
    pub(crate) train: TrainConfig,
    /// What tokens are drawn from.
    pub sampling: SamplingConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) diversity_bonus: Option<DiversityBonusConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) combined: Option<CombinedConfig>,
    #[serde(default)]
    pub(crate) advantage: AdvantageSettings,
    #[serde(default)]
    pub(crate) loss: LossSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kl_controller: Option<KlController>,
    /// What holds the policy back, and when that changes.
    #[serde(default)]
    pub(crate) reference: ReferenceSettings,
    #[serde(default)]
    pub(crate) sampler_check: SamplerCheck,
    pub(crate) optimizer: OptimizerConfig,
    #[serde(default)]
    pub(crate) schedule: ScheduleConfig,
    /// What is done where a metric leaves its range; an empty list for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guards: Option<Vec<GuardConfig>>,
    #[serde(default)]
    pub(crate) preflight: PreflightSection,
    #[serde(default)]
    /// When the policy is evaluated, and on what.
    pub eval: EvalSection,
    #[serde(default)]
    pub(crate) save: SaveSection,
    /// What the run is judged by; decides nothing in the training.
    #[serde(default)]
    pub(crate) success: SuccessCriteria,
}

/// The section `[eval]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSection {
    /// Completions of an evaluation; 0 for none.
    pub(crate) samples: u32,
    /// Prompts that nothing is learned from. Without it, the first ones of the training's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// See [`EvalConfig`].
    every: u32,
    patience: u32,
    min_gain: f64,
    group_size: usize,
}

impl Default for EvalSection {
    fn default() -> Self {
        let EvalConfig { every, patience, min_gain, group_size } = EvalConfig::default();
        Self { samples: 1000, file: None, every, patience, min_gain, group_size }
    }
}

impl EvalSection {
    /// How many prompts have so many completions.
    fn prompts(&self) -> u32 {
        self.samples.div_ceil(u32::try_from(self.group_size.max(1)).unwrap_or(u32::MAX))
    }

    fn config(&self) -> EvalConfig {
        let &Self { every, patience, min_gain, group_size, .. } = self;
        EvalConfig { every, patience, min_gain, group_size }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SaveSection {
    /// Steps from one checkpoint to the next; 0 for only by time and at the end.
    pub(crate) every: u32,
    /// Minutes after which a checkpoint is written at the next end of a step; 0 for never.
    pub(crate) every_minutes: f64,
    /// Checkpoints that are kept: the newest ones, and the one of the best evaluation.
    pub(crate) keep_last: usize,
    /// Completions are written after each so many steps; 0 for never.
    pub(crate) completions_every: u32,
}

impl SaveSection {
    /// Returns what it says of checkpoints.
    pub(crate) fn checkpoints(&self) -> CheckpointSection {
        let &Self { every, every_minutes, keep_last, .. } = self;
        CheckpointSection { every, every_minutes, keep_last }
    }
}

impl Default for SaveSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2, completions_every: 10 }
    }
}

impl TrainFile {
    /// A configuration file, with what `--set` changes.
    ///
    /// # Errors
    /// It is one of another command, or has a key or value that is none.
    pub(crate) fn read(
        path: &Path,
        set: &[String],
        tasks: &Tasks,
    ) -> anyhow::Result<config::Loaded<Self>> {
        let layers = config::load::<Table>(path, set)?;
        let (command, path) = (command_of(&layers.value), path.display());
        anyhow::ensure!(
            command == "train",
            "{path} is a configuration of `grpo {command}`: say `grpo {command} {path}`"
        );
        Self::parse(layers, tasks)
    }

    /// The configuration of a run.
    ///
    /// # Errors
    /// It is a run of another command, or its file is not what `grpo train` wrote.
    pub(crate) fn of_run(
        folder: &RunFolder,
        tasks: &Tasks,
    ) -> anyhow::Result<config::Loaded<Self>> {
        let run = folder.path().display();
        let layers = config_of_run(folder, "train")?;
        Self::parse(layers, tasks).with_context(|| format!("`{run}` is no run of `grpo train`"))
    }

    /// Gives each task its sections, and reads the others.
    pub(crate) fn parse(
        layers: config::Loaded<Table>,
        tasks: &Tasks,
    ) -> anyhow::Result<config::Loaded<Self>> {
        let config::Loaded { value: mut table, origin } = layers;
        let explain = |fault: ConfigFault| origin.misread(&fault);
        let mut section = |name: &str| match table.remove(name) {
            Some(Value::Table(section)) => Ok(Some(section)),
            Some(other) => {
                let found = other.type_str();
                let message = format!("invalid type: {found}, expected a table");
                Err(explain(ConfigFault::from_sentence(name, message)))
            }
            None => Ok(None),
        };
        let reward = section("reward")?
            .ok_or_else(|| explain(ConfigFault::from_sentence("", "missing field `reward`")))?;
        let reward =
            tasks.rewards().parse(reward).map_err(|fault| explain(fault.below("reward")))?;
        let data = section("data")?
            .map(|data| PromptSection::parse(data, tasks))
            .transpose()
            .map_err(|fault| explain(fault.below("data")))?;
        let mut source = None;
        for kind in tasks.iter().flat_map(|task| task.sources()) {
            let own: Table =
                kind.sections.iter().filter_map(|name| table.remove_entry(*name)).collect();
            if !own.is_empty() {
                source = Some((kind.parse)(own).map_err(explain)?);
            }
        }
        let settings = deserialize_settings(table).map_err(|fault: ConfigFault| {
            // Names that serde does not know of, for the hint.
            let is_top = fault.message.starts_with("unknown field") && !fault.key.contains('.');
            let own: Vec<&str> = tasks
                .iter()
                .flat_map(|task| task.sources())
                .flat_map(|kind| kind.sections)
                .copied()
                .collect();
            let message = match is_top {
                true => format!("{}, `reward`, `data`, `{}`", fault.message, own.join("`, `")),
                false => fault.message,
            };
            explain(ConfigFault { message, ..fault })
        })?;
        let value = Self { settings, reward, data, source };
        Ok(config::Loaded { value, origin })
    }

    /// As a configuration file in which everything is written out: defaults, and what the preset stands for.
    pub(crate) fn resolved(&self) -> anyhow::Result<Table> {
        let (advantage, loss) = (self.advantage.resolved(self.loss.preset), self.loss.resolved()?);
        let sampler_check = self.sampler_check.resolved(loss.mismatch);
        let (reference, guards) = (self.reference.resolved(), Some(self.grpo().guards()));
        let settings = self.settings.clone();
        let settings =
            TrainSettings { advantage, loss, reference, guards, sampler_check, ..settings };
        let mut table = Table::try_from(&settings)?;
        table.insert("reward".to_owned(), Value::Table(self.reward.table().clone()));
        if let Some(data) = &self.data {
            table.insert("data".to_owned(), Value::Table(data.settings()?));
        }
        table.extend(self.source.iter().flat_map(|source| source.settings()));
        Ok(table)
    }

    /// Whether evaluations, of which there are some between the first step and the last, are of prompts that the policy
    /// is trained on. What begins with nothing but a mark has no such prompts.
    pub(crate) fn trains_on_evaluation(&self) -> bool {
        self.data.is_some() && self.eval.file.is_none() && self.eval.every > 0
    }

    pub(crate) fn grpo(&self) -> GrpoConfig {
        GrpoConfig {
            train: self.train,
            sampling: self.sampling(),
            diversity_bonus: self.diversity_bonus.clone(),
            combined: self.combined.clone(),
            advantage: self.advantage,
            loss: self.loss,
            kl_controller: self.kl_controller,
            reference: self.reference,
            guards: self.guards.clone(),
            sampler_check: self.sampler_check,
            optimizer: self.optimizer,
            schedule: self.schedule,
            eval: self.eval.config(),
        }
    }

    /// Where a source says how many tokens are chosen, the section does not.
    fn sampling(&self) -> SamplingConfig {
        let mut sampling = self.sampling.clone();
        if let Some(source) = &self.source {
            sampling.max_new_tokens = source.max_new_tokens();
        }
        sampling
    }

    /// Refuses what does not go with where the prompts come from.
    fn check_prompts(&self) -> Result<(), ConfigFault> {
        if let Some(source) = &self.source {
            return source.check(self);
        }
        if let Some(restriction) = self.reward.spec().restriction() {
            return Err(ConfigFault::from_sentence("reward", restriction.without_section));
        }
        if self.sampling.max_new_tokens == 0 {
            return Err(ConfigFault::from_sentence(
                "sampling",
                "sampling.max_new_tokens is missing or 0: it says how many tokens a completion may have, from 1 to 1000000",
            ));
        }
        self.data.as_ref().map_or(Ok(()), PromptSection::check)
    }

    /// Refuses what is out of range, with the place of the key.
    pub(crate) fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        self.check_prompts().map_err(|fault| origin.locate(fault))?;
        self.grpo().check().map_err(|error| origin.explain(error))?;
        if let Some(lora) = &self.lora {
            lora.check().map_err(|error| anyhow::anyhow!("{}{error}", origin.place("lora")))?;
        }
        anyhow::ensure!(
            self.reference.every_epochs.is_none() || self.data.is_some(),
            "{}reference.every_epochs counts passes over a file of prompts, and there is none; use reference.every_steps, or add [data]",
            origin.place("reference.every_epochs")
        );
        self.preflight.check(origin)?;
        let reward = self.reward.spec().check();
        reward.map_err(|fault| origin.locate(fault.below("reward")))?;
        self.success.check().map_err(|error| {
            anyhow::anyhow!("{}{error}", origin.place(&format!("success.{}", error.key)))
        })?;
        anyhow::ensure!(
            self.eval.samples <= MOST_SAMPLES,
            "{}eval.samples = {} is out of range; expected 0 to {MOST_SAMPLES}",
            origin.place("eval.samples"),
            self.eval.samples
        );
        anyhow::ensure!(
            self.eval.samples > 0 || self.eval.every == 0,
            "{}eval.every = {} asks for evaluations, and eval.samples = 0 leaves nothing to evaluate; set one of the two",
            origin.place("eval.every"),
            self.eval.every
        );
        self.save.checkpoints().check(origin)
    }

    /// Reads what a training with this begins with.
    pub(crate) fn start(&self, tasks: &Tasks) -> anyhow::Result<Start> {
        let loaded = self.load(tasks)?;
        let of_reward = self.reward_files()?;
        let (longest, reward) =
            (self.sampling.max_new_tokens, self.reward.build(&device::device())?);
        if let Some(warning) = crate::infill::check_judges(&self.reward)? {
            say(format_args!("{warning}"));
        }
        let prompts = match &self.source {
            Some(source) => Prompts::from_source(&**source, &loaded, &*reward, self.seed)?,
            None => Prompts::new(self.data.as_ref(), &loaded, longest, &*reward, self.seed)?,
        };
        let mut files = loaded.files.clone();
        files.extend(of_reward);
        files.extend(self.embedder_files()?);
        let examples = self.examples(&loaded)?;
        let of_examples = examples.iter().flat_map(|read| &read.files);
        files.extend(of_examples.map(|file| ("examples", file.clone())));
        files.extend(prompts.files.clone());
        let mut reports = Vec::new();
        reports.extend(prompts.report.clone().map(|report| ("prompts", report)));
        reports.extend(examples.iter().map(|read| ("examples", read.report.clone())));
        let of_evaluation = match (&self.eval.file, &self.data) {
            (None, _) => prompts.of_evaluation(self.eval.prompts())?,
            (Some(file), Some(data)) => {
                let held_out = data.with_file(file);
                let held_out =
                    Prompts::new(Some(&held_out), &loaded, longest, &*reward, self.seed)?;
                let read = held_out.files.iter().map(|(_, file)| ("evaluation", file.clone()));
                files.extend(read);
                reports.extend(held_out.report.clone().map(|report| ("held out", report)));
                held_out.of_evaluation(self.eval.prompts())?
            }
            (Some(_), None) => anyhow::bail!(
                "eval.file holds prompts, and a training without [data] has none; leave it out"
            ),
        };
        Ok(Start {
            kind: loaded.kind(),
            writer: Writer { spec: loaded.spec.clone(), adapter: loaded.adapter.clone() },
            parts: self.parts(loaded, &prompts, reward, examples)?,
            prompts,
            of_evaluation,
            files,
            reports,
        })
    }

    /// Reads the model, and the adapter that is trained on it.
    fn load(&self, tasks: &Tasks) -> anyhow::Result<Loaded> {
        let adapter = self.adapter.as_deref();
        let trained = Trained::of(adapter, self.lora.as_ref(), self.base_precision, self.seed)?;
        let load = || {
            match &self.source {
                Some(source) => source.check_model(&self.model)?,
                None => check_causal(&self.model)?,
            }
            read(&self.model, tasks, trained, self.base_precision, &device::device().autodiff())
        };
        load().with_context(|| format!("model = \"{}\"", self.model.display()))
    }

    /// What a policy with this codec chooses.
    pub(crate) fn actions(&self, codec: &Codec) -> Actions {
        match &self.source {
            Some(source) => source.actions(codec),
            None => Actions::Next { end_ids: codec.end_ids().to_vec() },
        }
    }

    /// The files of the embedders that diversity is measured with.
    fn embedder_files(&self) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
        let of_bonus = self.diversity_bonus.iter().filter_map(|bonus| bonus.embedder.as_ref());
        let of_combined = self.combined.iter().filter_map(|combined| combined.embedder.as_ref());
        let mut files = Vec::new();
        for embedder in of_bonus.chain(of_combined) {
            files.extend(embedder.files()?);
        }
        Ok(files)
    }

    /// The files of the models that the reward asks, which are what their manifests say.
    fn reward_files(&self) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
        let files = self.reward.spec().files()?;
        for (_, file) in &files {
            if let (Some(folder), true) = (file.parent(), file.ends_with("manifest.json")) {
                grpo_run::verify(folder)?;
            }
        }
        Ok(files)
    }

    fn parts(
        &self,
        loaded: Loaded,
        prompts: &Prompts,
        reward: Arc<dyn Reward>,
        examples: Option<CombinedExamples>,
    ) -> anyhow::Result<Parts<Policy>> {
        let Loaded { spec, policy, .. } = loaded;
        let bonus = self.diversity_bonus.as_ref().map(|bonus| bonus.build(&device::device()));
        let bonus = bonus.transpose()?;
        let reference = match (self.reference.from, &policy) {
            (ReferenceFrom::Start, _) => Frozen::snapshot(&policy),
            // Shares the base with the policy.
            (ReferenceFrom::Base, Policy::Adapted(adapted)) => {
                Frozen::snapshot(&Policy::Whole(adapted.base().clone()))
            }
            (ReferenceFrom::Base, Policy::Whole(_)) => anyhow::bail!(
                "reference.from = \"base\" is the model without its adapter, and there is none; leave it out, or add [lora] or `adapter`"
            ),
        };
        let codec = spec.codec;
        anyhow::ensure!(
            self.sampling.stop.is_empty() || codec.is_text(),
            "sampling.stop is looked for in text, and `{}` has no tokenizer.json; leave it out, or put the model's own beside its weights",
            self.model.display()
        );
        Ok(Parts {
            policy,
            reference,
            actions: self.actions(&codec),
            reward,
            bonus,
            combined: self.combined(examples)?,
            longest_prompt: prompts.longest(),
            epoch: prompts.epoch(),
            decode: decoder(&codec),
        })
    }

    /// The examples of what is learned besides, where something is: read as those of supervised training are.
    fn examples(&self, loaded: &Loaded) -> anyhow::Result<Option<CombinedExamples>> {
        let Some(combined) = &self.combined else { return Ok(None) };
        let (codec, context) = (&loaded.spec.codec, loaded.policy.context_length());
        let data = self.data.as_ref().context(
            "[combined] goes with prompts, and there are none; add [data], or leave it out",
        )?;
        let examples = data.examples(&combined.file, codec, context, self.seed);
        examples
            .map(Some)
            .with_context(|| format!("combined.file = \"{}\"", combined.file.display()))
    }

    /// What is learned besides, where something is.
    fn combined(&self, read: Option<CombinedExamples>) -> anyhow::Result<Option<Combined>> {
        let both = self.combined.as_ref().zip(read);
        let build = |(combined, read): (&CombinedConfig, CombinedExamples)| {
            combined.build(read.examples, &device::device())
        };
        Ok(both.map(build).transpose()?)
    }
}

/// What a training begins with.
pub(crate) struct Start {
    pub(crate) parts: Parts<Policy>,
    pub(crate) prompts: Prompts,
    /// Those of evaluations.
    pub(crate) of_evaluation: Vec<Prompt>,
    /// What writes the policy.
    pub(crate) writer: Writer,
    /// How what is trained is called.
    pub(crate) kind: &'static str,
    /// The files that were read, and what each is.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
    /// What was read and left out of the files of prompts and examples, and what each is for.
    pub(crate) reports: Vec<(&'static str, String)>,
}

/// Molecules of the table before and after, at most: more would only take time.
const MOST_SAMPLES: u32 = 1_000_000;
