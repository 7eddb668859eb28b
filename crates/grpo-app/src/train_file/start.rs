//! Creates the initial state of a training run. Shared by `grpo train` and `grpo replay`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{Codec, Prompt};
use grpo_model::{AdapterConfig, Frozen, Policy};
use grpo_rewards::Reward;
use grpo_rollout::{EngineContext, EpisodeFactory};
use grpo_train::{AboveTolerance, Combined, EngineFactory, Parts, ReferenceFrom, StepExtensions};

use crate::dashboard::announce;
use crate::device;
use crate::generate::decoder;
use crate::models::{ADAPTER_FILES, Loaded, Trained, Writer, check_causal, check_folder, read};
use crate::output::{remove_at_exit, say};
use crate::prompts::{CombinedExamples, Prompts};
use crate::task::Tasks;
use crate::train_file::TrainFile;

impl TrainFile {
    /// Loads everything that the configuration refers to.
    pub(crate) fn start(&self, tasks: &Tasks) -> anyhow::Result<Start> {
        let loaded = self.load(tasks)?;
        let of_reward = self.reward_files()?;
        let longest = self.sampling.max_new_tokens;
        let reward = self.reward.build(&device::device()?)?;
        let reward = tasks.identified(reward, &loaded.spec.codec);
        for warning in self.reward.spec().admit()? {
            say(format_args!("{warning}"));
        }
        let prompts = match &self.source {
            Some(source) => Prompts::from_source(&**source, &loaded, &*reward, self.seed)?,
            None => Prompts::new(self.data.as_ref(), &loaded, longest, &*reward, self.seed)?,
        };
        let mut files = loaded.files.clone();
        files.extend(of_reward);
        files.extend(self.rollout.config().files());
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
                "eval.file requires a training run with prompts; add [data], or remove eval.file"
            ),
        };
        Ok(Start {
            kind: loaded.kind(),
            writer: Writer { spec: loaded.spec.clone(), adapter: loaded.adapter.clone() },
            parts: self.parts(tasks, loaded, &prompts, reward, examples)?,
            prompts,
            of_evaluation,
            files,
            reports,
        })
    }

    /// Returns what is trained.
    ///
    /// # Errors
    /// Returns an error if the keys of adapters and their base exclude each other.
    pub(crate) fn trained(&self) -> anyhow::Result<Trained<'_>> {
        let (adapter, lora) = (self.adapter.as_deref(), self.lora.as_ref());
        Trained::of(adapter, lora, self.base_precision, self.seed)
    }

    /// Loads the model and, if configured, its adapter.
    fn load(&self, tasks: &Tasks) -> anyhow::Result<Loaded> {
        let adapter = self.adapter.as_deref();
        let trained = self.trained()?;
        let load = || {
            match &self.source {
                Some(source) => source.check_model(&self.model)?,
                None => check_causal(&self.model)?,
            }
            if let Some(adapter) = adapter.filter(|adapter| !adapter.is_dir()) {
                check_folder(adapter, "adapter", ADAPTER_FILES)
                    .with_context(|| format!("adapter = \"{}\"", adapter.display()))?;
            }
            read(
                &self.model,
                &tasks.codecs(),
                trained,
                self.base_precision,
                &device::device()?.autodiff(),
            )
        };
        load().with_context(|| format!("model = \"{}\"", self.model.display()))
    }

    /// Returns the files of the embedders that measure diversity.
    fn embedder_files(&self) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
        let of_bonus = self.diversity_bonus.iter().filter_map(|bonus| bonus.embedder.as_ref());
        let of_combined = self.combined.iter().filter_map(|combined| combined.embedder.as_ref());
        let mut files = Vec::new();
        for embedder in of_bonus.chain(of_combined) {
            files.extend(embedder.files()?);
        }
        Ok(files)
    }

    /// Describes the files of the reward and of embedders that are missing or cannot be read.
    pub(crate) fn missing_reward_files(&self) -> Vec<String> {
        let of_reward = self.reward.spec().files().map_err(anyhow::Error::from);
        let mut problems = Vec::new();
        for files in [of_reward, self.embedder_files()] {
            match files {
                Ok(files) => {
                    let missing = files.into_iter().filter(|(_, file)| !file.exists());
                    let said =
                        |(_, file): (_, PathBuf)| format!("{} does not exist yet", file.display());
                    problems.extend(missing.map(said));
                }
                Err(error) => problems.push(format!("{error:#}")),
            }
        }
        problems
    }

    /// Verifies and returns the model files used by the reward.
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
        tasks: &Tasks,
        loaded: Loaded,
        prompts: &Prompts,
        reward: Arc<dyn Reward>,
        examples: Option<CombinedExamples>,
    ) -> anyhow::Result<Parts<Policy>> {
        let Loaded { spec, policy, adapter, .. } = loaded;
        let similarity = tasks.similarity(&spec.codec);
        let (identify, variation) = (tasks.identify(&spec.codec), tasks.variation(&spec.codec));
        let mut extensions: StepExtensions<Policy> = Vec::new();
        if let Some(archive) = self.grpo().score_archive(identify, variation, self.seed)? {
            extensions.push(Box::new(archive));
        }
        if let Some(bonus) = &self.diversity_bonus {
            extensions.push(Box::new(bonus.build(&device::device()?, similarity)?));
        }
        if let Some(filter) = &self.diversity_filter {
            extensions.push(Box::new(tasks.filter(filter)?));
        }
        let reference = match (self.reference.from, &policy) {
            (ReferenceFrom::Start, _) => Frozen::snapshot(&policy),
            // The reference shares the base weights with the policy.
            (ReferenceFrom::Base, Policy::Adapted(adapted)) => {
                Frozen::snapshot(&Policy::Whole(adapted.base().clone()))
            }
            (ReferenceFrom::Base, Policy::Whole(_)) => anyhow::bail!(
                "reference.from = \"base\" requires an adapter; remove it, or add [lora] or `adapter`"
            ),
        };
        let codec = spec.codec;
        anyhow::ensure!(
            self.sampling.stop.is_empty() || codec.is_text(),
            "sampling.stop requires a tokenizer, but `{}` has no tokenizer.json; remove sampling.stop, or add the model's tokenizer.json to the folder",
            self.model.display()
        );
        let engine = self.engine(adapter, &codec)?;
        Ok(Parts {
            policy,
            reference,
            engine,
            reward,
            extensions,
            combined: self.combined(examples)?,
            longest_prompt: prompts.longest(),
            epoch: prompts.epoch(),
            decode: decoder(&codec),
        })
    }

    /// Creates the engine that `[rollout]` selects.
    fn engine(
        &self,
        adapter: Option<AdapterConfig>,
        codec: &Codec,
    ) -> anyhow::Result<Arc<dyn EngineFactory<Policy>>> {
        let sampler_check = self.sampler_check.resolved(self.loss.resolve()?.mismatch);
        let engine = self.rollout.config().build(EngineContext {
            local: self.local_engine(codec),
            codec,
            adapter,
            tolerance: sampler_check.tolerance,
            corrects_differences: sampler_check.above == Some(AboveTolerance::Correct),
            notify: Arc::new(|message| announce(&format!("warning      {message}"))),
            remove_at_exit,
        })?;
        let Some(episode) = &self.episode else { return Ok(engine) };
        Ok(Arc::new(EpisodeFactory::new(engine, episode.config().build(codec)?)))
    }

    /// Reads the examples of auxiliary losses, if configured.
    fn examples(&self, loaded: &Loaded) -> anyhow::Result<Option<CombinedExamples>> {
        let Some(combined) = &self.combined else { return Ok(None) };
        let data = self
            .data
            .as_ref()
            .context("[combined] requires prompts; add [data], or remove [combined]")?;
        let examples = data.examples(&combined.file, loaded, self.seed);
        examples
            .map(Some)
            .with_context(|| format!("combined.file = \"{}\"", combined.file.display()))
    }

    /// Builds the auxiliary losses, if configured.
    fn combined(&self, read: Option<CombinedExamples>) -> anyhow::Result<Option<Combined>> {
        let Some((combined, read)) = self.combined.as_ref().zip(read) else { return Ok(None) };
        Ok(Some(combined.build(read.examples, &device::device()?)?))
    }
}

/// Initial state of a training run.
pub(crate) struct Start {
    pub(crate) parts: Parts<Policy>,
    pub(crate) prompts: Prompts,
    /// Prompts used for evaluations.
    pub(crate) of_evaluation: Vec<Prompt>,
    /// Writer for model or adapter folders.
    pub(crate) writer: Writer,
    /// Name of the trained weights' folder.
    pub(crate) kind: &'static str,
    /// All files that were read, with their roles.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
    /// Summaries of the prompts and examples, with their roles.
    pub(crate) reports: Vec<(&'static str, String)>,
}
