//! The configuration of `grpo train`.

pub(crate) mod evaluated_file;
pub(crate) mod extensions;
mod folders;
pub(crate) mod open_settings;
pub(crate) mod prompts;
mod reading;
mod start;
pub(crate) mod trial;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{Codec, ConfigFault, DataFiles};
use grpo_model::Policy;
use grpo_rewards::RewardConfig;
use grpo_rollout::{EngineRun, EngineSection, EpisodeSection};
use grpo_task::config::Origin;
use grpo_task::hub;
use grpo_task::source::Source;
use grpo_task::task::Tasks;
use grpo_task::train_settings::TrainSettings;
use grpo_train::{EngineFactory, GrpoConfig, NextTokens, SamplingConfig};

use self::folders::with_folders;
#[cfg(feature = "schema")]
pub(crate) use self::open_settings::OpenKeys;
pub(crate) use self::open_settings::{ModelSize, OpenSettings};
pub(crate) use self::reading::{LoadedReward, reward_layers};
pub(crate) use self::start::Start;
use crate::train_file::extensions::Extensions;
use crate::train_file::prompts::PromptSection;

/// Configuration of `grpo train`.
#[derive(Clone, Debug)]
pub(crate) struct TrainFile {
    /// What is trained, and what a run writes.
    pub settings: TrainSettings,
    /// Sections of the trainer, as the file has them.
    pub trainer: GrpoConfig,
    /// The `[reward]` section.
    pub reward: RewardConfig,
    /// The `[data]` section. Without prompts, the model generates from its beginning-of-sequence
    /// token.
    pub data: Option<PromptSection>,
    /// The `[rollout]` section, which selects the engine.
    pub rollout: EngineSection,
    /// The `[episode]` section, if completions have several turns.
    pub episode: Option<EpisodeSection>,
    /// Extensions of the steps.
    pub(crate) extensions: Extensions,
    /// What is only known when model and prompts are loaded.
    pub(crate) open: OpenSettings,
    /// Prompt source of a task, used instead of a file.
    pub source: Option<Arc<dyn Source>>,
}

impl TrainFile {
    /// Returns whether intermediate evaluations use training prompts. This is only possible if
    /// there are prompts.
    pub(crate) fn trains_on_evaluation(&self) -> bool {
        self.data.is_some() && self.trainer.eval.file.is_none() && self.trainer.eval.every > 0
    }

    /// Returns the paths of models and data, with their roles.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let adapter = self.settings.adapter.iter().map(|path| ("adapter", path));
        let prompts = self.data.as_ref().map(PromptSection::files);
        let data = prompts.into_iter().chain(&self.trainer.eval.file).flat_map(DataFiles::paths);
        let data = data.map(|path| ("data", path));
        std::iter::once(("model", &self.settings.model)).chain(adapter).chain(data)
    }

    /// Replaces names of the hub by paths in its cache. Files that the cache lacks are downloaded.
    pub(crate) fn find_on_hub(&mut self, tasks: &Tasks) -> anyhow::Result<()> {
        let said = |key: &str, path: &Path| format!("{key} = \"{}\"", path.display());
        let TrainSettings { model, adapter, .. } = &mut self.settings;
        *model = hub::model_folder(model).with_context(|| said("model", model))?;
        if let Some(adapter) = adapter {
            *adapter = hub::model_folder(adapter).with_context(|| said("adapter", adapter))?;
        }
        self.reward = with_folders(self.reward.clone(), tasks)?;
        if let Some(files) = &mut self.trainer.eval.file {
            *files = hub::data_files("eval.file", files)?;
        }
        if let Some(data) = &mut self.data {
            *data = data.with_files(hub::data_files("data.file", data.files())?);
            // A pattern may stand for several files.
            data.check()?;
        }
        Ok(())
    }

    /// Returns the sections of the trainer with what the prompt source and the extensions decide.
    pub(crate) fn grpo(&self) -> GrpoConfig {
        let guards = self.trainer.guards.clone();
        let guards = guards.or_else(|| Some(self.extensions.default_guards()));
        GrpoConfig { sampling: self.sampling(), guards, ..self.trainer.clone() }
    }

    /// Returns the sampling settings. The prompt source of a task sets the maximum number of
    /// actions.
    fn sampling(&self) -> SamplingConfig {
        let mut sampling = self.trainer.sampling.clone();
        let of_source = self.source.as_ref().and_then(|source| source.max_new_tokens());
        sampling.max_new_tokens = of_source.unwrap_or(sampling.max_new_tokens);
        sampling
    }

    /// Checks the settings that depend on the prompt source.
    fn check_prompts(&self) -> Result<(), ConfigFault> {
        if let Some(source) = &self.source {
            source.check(&self.trainer, self.data.is_some())?;
            if source.max_new_tokens().is_some() {
                return Ok(());
            }
        }
        if let Some(restriction) = self.reward.spec().restriction() {
            return Err(ConfigFault::from_sentence("reward", restriction.without_section));
        }
        if self.trainer.sampling.max_new_tokens == 0 {
            return Err(ConfigFault::from_sentence(
                "sampling",
                "sampling.max_new_tokens is missing or 0; set the maximum number of tokens per completion, from 1 to 1000000",
            ));
        }
        self.data.as_ref().map_or(Ok(()), PromptSection::check)
    }

    /// Checks the settings of engine and episode, and whether they can sample for this run.
    fn check_rollout(&self) -> Result<(), ConfigFault> {
        let sections = self.source.iter().flat_map(|source| source.settings());
        let prompt_sections: Vec<String> = sections.map(|(name, _)| name).collect();
        let run = EngineRun {
            prompt_sections: &prompt_sections,
            is_adapter: self.settings.lora.is_some() || self.settings.adapter.is_some(),
            weights: self.trainer.sampling.weights,
        };
        self.rollout.config().check(&run).map_err(|fault| fault.below("rollout"))?;
        let Some(episode) = &self.episode else { return Ok(()) };
        if self.source.as_ref().is_some_and(|source| source.fills_prompt()) {
            let message = "[episode] continues completions, but this task fills its prompts";
            return Err(ConfigFault::new("episode", message, "remove [episode]"));
        }
        episode.config().check().map_err(|fault| fault.below("episode"))
    }

    /// Replaces the URLs of the servers, unless `urls` is empty.
    pub(crate) fn replace_servers(&mut self, urls: &[String]) -> anyhow::Result<()> {
        if urls.is_empty() {
            return Ok(());
        }
        self.rollout = self.rollout.with_urls(urls).with_context(|| {
            format!(
                "--rollout-url has no effect, because the run samples with rollout.engine = \"{}\"; remove it",
                self.rollout.name()
            )
        })?;
        self.check_rollout().map_err(|fault| anyhow::anyhow!("--rollout-url: {fault}"))
    }

    /// Refuses a command that has to repeat the sampled completions.
    pub(crate) fn refuse_unrepeatable(&self, what: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.rollout.config().repeats(),
            "{what} has to sample the same completions again, but {} do not repeat them bit for bit; use it with runs of rollout.engine = \"local\"",
            self.rollout.description()
        );
        Ok(())
    }

    /// Checks the sections of the trainer together with those of the extensions.
    pub(super) fn check_extensions(&self) -> Result<(), ConfigFault> {
        let has_prompts = self.data.is_some() || self.source.is_some();
        self.extensions.check(&self.grpo(), has_prompts)
    }

    /// Checks that all values are in range. Errors contain the location of the key.
    pub(crate) fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        self.check_prompts().map_err(|fault| origin.locate(fault))?;
        self.check_rollout().map_err(|fault| origin.locate(fault))?;
        self.check_extensions().map_err(|fault| origin.explain(fault))?;
        if let Some(lora) = &self.settings.lora {
            lora.check().map_err(|error| anyhow::anyhow!("{}{error}", origin.place("lora")))?;
        }
        let has_epochs =
            self.data.is_some() || self.source.as_ref().is_some_and(|source| source.has_epochs());
        anyhow::ensure!(
            self.trainer.reference.every_epochs.is_none() || has_epochs,
            "{}reference.every_epochs requires a file of prompts or conditions, because an epoch is one pass over that file; add one, or use reference.every_steps",
            origin.place("reference.every_epochs")
        );
        self.settings.preflight.check(origin)?;
        let reward = self.reward.spec().check();
        reward.map_err(|fault| origin.locate(fault.below("reward")))?;
        self.settings.success.check().map_err(|fault| origin.locate(fault))?;
        self.settings.save.checkpoints().check(origin)
    }

    /// Returns the local engine of a policy that uses `codec`.
    pub(crate) fn local_engine(&self, codec: &Codec) -> Arc<dyn EngineFactory<Policy>> {
        match &self.source {
            Some(source) => source.local_engine(codec),
            None => Arc::new(NextTokens { end_ids: codec.end_ids().to_vec() }),
        }
    }
}
