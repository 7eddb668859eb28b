//! Creates the initial state of a training run. Shared by `grpo train` and `grpo replay`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{Codec, Prompt};
use grpo_extensions::ExtensionParts;
use grpo_model::{AdapterConfig, Frozen, Policy};
use grpo_rewards::Reward;
use grpo_rollout::{Decode, EngineContext, EpisodeFactory};
use grpo_task::device;
use grpo_task::generate::decoder;
use grpo_task::hub;
use grpo_task::models::{
    ADAPTER_FILES, Loaded, Trained, Writer, check_causal, check_folder, read, warn_if_unfinished,
};
use grpo_task::output::{note_of_name, remove_at_exit, say, sentence};
use grpo_task::task::Tasks;
use grpo_task::written_by::{with_writer, writer};
use grpo_train::{AboveTolerance, EngineFactory, Evaluation, Parts, ReferenceFrom, StepExtensions};

use crate::train::dashboard::announce;
use crate::train_file::TrainFile;
use crate::train_file::prompts::{Prompts, ReadExamples};

impl TrainFile {
    /// Loads everything that the configuration refers to.
    pub(crate) fn start(&self, tasks: &Tasks) -> anyhow::Result<Start> {
        let loaded = self.load(tasks)?;
        let longest = self.trainer.sampling.max_new_tokens;
        let (reward, of_reward) = self.load_reward(tasks, &loaded.spec.codec)?;
        let prompts = match &self.source {
            Some(source) => Prompts::from_source(&**source, &loaded, &*reward, self.settings.seed)?,
            None => {
                Prompts::new(self.data.as_ref(), &loaded, longest, &*reward, self.settings.seed)?
            }
        };
        let mut files = loaded.files.clone();
        files.extend(of_reward);
        files.extend(self.rollout_files());
        files.extend(self.extensions.files()?);
        let mut examples = Vec::new();
        let extensions = self.build_extensions(tasks, &loaded, &mut examples)?;
        let of_examples = examples.iter().flat_map(|read| &read.files);
        files.extend(of_examples.map(|file| ("examples", file.clone())));
        files.extend(prompts.files.clone());
        let mut reports = Vec::new();
        reports.extend(prompts.report.clone().map(|report| ("prompts", report)));
        reports.extend(examples.iter().map(|read| ("examples", read.report.clone())));
        let of_evaluation = match (&self.trainer.eval.file, &self.data) {
            (None, _) => prompts.of_evaluation(self.trainer.eval.prompts())?,
            (Some(file), Some(data)) => {
                let held_out = data.with_files(file.clone());
                let held_out =
                    Prompts::new(Some(&held_out), &loaded, longest, &*reward, self.settings.seed)?;
                let read = held_out.files.iter().map(|(_, file)| ("evaluation", file.clone()));
                files.extend(read);
                reports.extend(held_out.report.clone().map(|report| ("held out", report)));
                held_out.of_evaluation(self.trainer.eval.prompts())?
            }
            (Some(_), None) => anyhow::bail!(
                "eval.file requires a training run with prompts; add [data], or remove eval.file"
            ),
        };
        Ok(Start {
            kind: loaded.kind(),
            writer: Writer { spec: loaded.spec.clone(), adapter: loaded.adapter.clone() },
            parts: self.parts(loaded, &prompts, reward, extensions)?,
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
        let (adapter, lora) = (self.settings.adapter.as_deref(), self.settings.lora.as_ref());
        Trained::of(adapter, lora, self.settings.base_precision, self.settings.seed)
    }

    /// Loads what an evaluation with up to `most` prompts of `data.file` needs.
    pub(crate) fn start_evaluation(
        &self,
        tasks: &Tasks,
        most: u32,
    ) -> anyhow::Result<StartedEvaluation> {
        let loaded = self.load(tasks)?;
        let longest = self.trainer.sampling.max_new_tokens;
        let (reward, _) = self.load_reward(tasks, &loaded.spec.codec)?;
        let prompts =
            Prompts::new(self.data.as_ref(), &loaded, longest, &*reward, self.settings.seed)?;
        let of_evaluation = prompts.first(most)?;
        let Loaded { spec, policy, adapter, .. } = loaded;
        let engine = self.engine(adapter, &spec.codec)?;
        let (decode, seed) = (decoder(&spec.codec), self.settings.seed);
        let evaluation = Evaluation::new(
            of_evaluation,
            &policy,
            &self.grpo(),
            &*engine,
            Arc::clone(&reward),
            Arc::clone(&decode),
            seed,
        )?;
        Ok(StartedEvaluation { evaluation, policy, prompts, reward, decode })
    }

    /// Loads the reward, and returns it with the files that it reads.
    fn load_reward(
        &self,
        tasks: &Tasks,
        codec: &Codec,
    ) -> anyhow::Result<(Arc<dyn Reward>, Files)> {
        let files = self.reward_files()?;
        let reward = tasks.identified(self.reward.build(&device::device()?)?, codec);
        for warning in self.reward.spec().admit()? {
            say(format_args!("{warning}"));
        }
        Ok((reward, files))
    }

    /// Loads the model and, if configured, its adapter.
    fn load(&self, tasks: &Tasks) -> anyhow::Result<Loaded> {
        let adapter = self.settings.adapter.as_deref();
        let trained = self.trained()?;
        let load = || {
            match &self.source {
                Some(source) => source.check_model(&self.settings.model, &tasks.families())?,
                None => check_causal(&self.settings.model, &tasks.families())?,
            }
            if let Some(adapter) = adapter.filter(|adapter| !adapter.is_dir()) {
                check_folder(adapter, "adapter", ADAPTER_FILES)
                    .with_context(|| format!("adapter = \"{}\"", adapter.display()))?;
            }
            read(
                &self.settings.model,
                &tasks.formats(),
                trained,
                self.settings.base_precision,
                &device::device()?.autodiff(),
            )
        };
        let loaded =
            load().with_context(|| format!("model = \"{}\"", self.settings.model.display()))?;
        std::iter::once(&*self.settings.model).chain(adapter).for_each(warn_if_unfinished);
        Ok(loaded)
    }

    /// Returns the files that the engine and the episode read, with their roles.
    fn rollout_files(&self) -> Vec<(&'static str, PathBuf)> {
        let of_episode = self.episode.iter().flat_map(|episode| episode.config().files());
        self.rollout.config().files().into_iter().chain(of_episode).collect()
    }

    /// Describes the files of the reward, the prompt source, the engine, the episode and the extensions that
    /// are missing or cannot be read, and what writes them according to the configurations next to this one.
    pub(crate) fn missing_files(&self, configuration: &Path) -> Vec<String> {
        let names = hub::model_names(self.reward.table());
        let of_reward = match names.is_empty() {
            true => self.reward.spec().files().map_err(anyhow::Error::from),
            false => Ok(Vec::new()),
        };
        let mut problems: Vec<String> = names.iter().map(|name| note_of_name(name)).collect();
        let of_extensions = self.extensions.files().map_err(anyhow::Error::from);
        let examples = self.extensions.example_files().into_iter().map(|file| ("examples", file));
        let of_source = self.source.iter().flat_map(|source| source.files());
        let others = examples.chain(of_source).chain(self.rollout_files()).collect();
        for files in [of_reward, of_extensions, Ok(others)] {
            match files {
                Ok(files) => {
                    let missing = files.into_iter().filter(|(_, file)| !file.exists());
                    let said = |(_, file): (_, PathBuf)| {
                        let writer = writer(configuration, &file);
                        let remedy = writer.unwrap_or_else(|| "check the path".to_owned());
                        format!("{} does not exist yet; {remedy}", file.display())
                    };
                    problems.extend(missing.map(said));
                }
                Err(error) => problems.push(sentence(&with_writer(error, Some(configuration)))),
            }
        }
        problems
    }

    /// Verifies and returns the model files used by the reward.
    fn reward_files(&self) -> anyhow::Result<Files> {
        let files = self.reward.spec().files()?;
        for (_, file) in &files {
            if let (Some(folder), true) = (file.parent(), file.ends_with("manifest.json")) {
                grpo_run::verify(folder)?;
            }
        }
        Ok(files)
    }

    /// Creates the extensions. Examples that they read are added to `read`.
    fn build_extensions(
        &self,
        tasks: &Tasks,
        loaded: &Loaded,
        read: &mut Vec<ReadExamples>,
    ) -> anyhow::Result<StepExtensions<Policy>> {
        let codec = &loaded.spec.codec;
        let mut examples = |key: &str, file: &Path| {
            let context = || format!("{key} = \"{}\"", file.display());
            let data = self.data.as_ref().with_context(|| {
                let section = key.split('.').next().unwrap_or(key);
                format!("[{section}] requires prompts; add [data], or remove [{section}]")
            })?;
            let (examples, of_file) =
                data.examples(file, loaded, self.settings.seed).with_context(context)?;
            read.push(of_file);
            Ok(examples)
        };
        self.extensions.build(&mut ExtensionParts {
            device: &device::device()?,
            seed: self.settings.seed,
            config: &self.grpo(),
            similarity: tasks.similarity(codec),
            identify: tasks.identify(codec),
            variation: tasks.variation(codec),
            examples: &mut examples,
        })
    }

    fn parts(
        &self,
        loaded: Loaded,
        prompts: &Prompts,
        reward: Arc<dyn Reward>,
        extensions: StepExtensions<Policy>,
    ) -> anyhow::Result<Parts<Policy>> {
        let Loaded { spec, policy, adapter, .. } = loaded;
        let reference = match (self.trainer.reference.from, &policy) {
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
        let engine = self.engine(adapter, &codec)?;
        Ok(Parts {
            policy,
            reference,
            engine,
            reward,
            extensions,
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
        anyhow::ensure!(
            self.trainer.sampling.stop.is_empty() || codec.is_text(),
            "sampling.stop requires a tokenizer, but `{}` has no tokenizer.json; remove sampling.stop, or add the model's tokenizer.json to the folder",
            self.settings.model.display()
        );
        let sampler_check =
            self.trainer.sampler_check.resolved(self.trainer.loss.resolve()?.mismatch);
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
}

/// Files that were read, with their roles.
type Files = Vec<(&'static str, PathBuf)>;

/// An evaluation without training.
pub(crate) struct StartedEvaluation {
    pub(crate) evaluation: Evaluation<Policy>,
    pub(crate) policy: Policy,
    pub(crate) prompts: Prompts,
    pub(crate) reward: Arc<dyn Reward>,
    pub(crate) decode: Decode,
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
