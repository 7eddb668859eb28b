//! Reading and writing of [`TrainFile`]s.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use grpo_data::{ConfigFault, Shortened, deserialize_settings, keys_of};
use grpo_rewards::{IdentifiedReward, Reward, RewardConfig};
use grpo_rollout::{EpisodeKind, EpisodeSection};
use grpo_run::{RenamedInput, RunFolder};
use grpo_task::config;
use grpo_task::config::Origin;
use grpo_task::device;
use grpo_task::eval::RowFormat;
use grpo_task::run_files::{config_with_inputs, or_changed_config, refuse_other_command};
use grpo_task::task::Tasks;
use grpo_task::used_inputs::renamed_inputs;
use grpo_train::{GrpoConfig, TrainError};
use toml::{Table, Value};

use super::{OpenSettings, TrainFile};
use crate::train_file::extensions::Extensions;
use crate::train_file::folders::with_folders;
use crate::train_file::prompts::PromptSection;

impl TrainFile {
    /// Reads a configuration file and applies `--set` overrides.
    ///
    /// # Errors
    /// Returns an error if the file belongs to a different command or contains an invalid key or
    /// value.
    pub(crate) fn read(
        path: &Path,
        set: &[String],
        tasks: &Tasks,
    ) -> anyhow::Result<config::Loaded<Self>> {
        let mut layers = config::load::<Table>(path, set)?;
        if path.with_file_name("run.json").is_file() {
            config::drop_removed(&mut layers.value);
        }
        refuse_other_command(&layers.value, path, "train")?;
        Self::parse(layers, tasks)
    }

    /// Reads the configuration recorded by a run.
    ///
    /// # Errors
    /// Returns an error if the run belongs to a different command or its configuration was not
    /// written by `grpo train`.
    pub(crate) fn of_run(
        folder: &RunFolder,
        tasks: &Tasks,
    ) -> anyhow::Result<config::Loaded<Self>> {
        Self::of_run_with(folder, tasks, &renamed_inputs(folder))
    }

    /// Like [`Self::of_run`], if the renamed inputs of the run are known.
    ///
    /// # Errors
    /// Returns an error if [`Self::of_run`] fails.
    pub(crate) fn of_run_with(
        folder: &RunFolder,
        tasks: &Tasks,
        renamed: &[RenamedInput],
    ) -> anyhow::Result<config::Loaded<Self>> {
        let run = folder.path().display();
        let layers = config_with_inputs(folder, "train", renamed)?;
        Self::parse(layers, tasks)
            .with_context(|| format!("`{run}` is not a run of `grpo train`"))
            .map_err(|error| or_changed_config(folder, error))
    }

    /// Parses the sections of tasks first, then the shared ones.
    pub(crate) fn parse(
        layers: config::Loaded<Table>,
        tasks: &Tasks,
    ) -> anyhow::Result<config::Loaded<Self>> {
        let config::Loaded { value: mut table, origin } = layers;
        config::refuse_removed(&mut table, &origin)?;
        let explain = |fault: ConfigFault| origin.misread(&fault);
        let reward = reward_of(&mut table, &origin, tasks)?;
        let data = section(&mut table, "data")
            .map_err(explain)?
            .map(|data| PromptSection::parse(data, &tasks.data_formats()))
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
        let rollout = section(&mut table, "rollout")
            .and_then(|section| tasks.engines().parse(section))
            .map_err(|fault| explain(fault.below("rollout")))?;
        let episode = episode_of(&mut table, tasks).map_err(explain)?;
        let extensions = Extensions::take(&mut table, tasks).map_err(explain)?;
        let open = OpenSettings::take(&mut table).map_err(explain)?;
        let of_trainer = keys_of::<GrpoConfig>().iter();
        let trainer: Table = of_trainer.filter_map(|name| table.remove_entry(*name)).collect();
        let explain = |fault: ConfigFault| explain(with_all_keys(fault, tasks));
        let settings = deserialize_settings(table).map_err(explain)?;
        let trainer = deserialize_settings(trainer).map_err(explain)?;
        let value =
            Self { settings, trainer, reward, data, rollout, episode, extensions, open, source };
        Ok(config::Loaded { value, origin })
    }

    /// Returns the configuration with all defaults and preset values filled in.
    pub(crate) fn resolved(&self) -> anyhow::Result<Table> {
        let (trainer, loss) = (self.trainer.clone(), self.trainer.loss.resolved()?);
        let trainer = GrpoConfig {
            advantage: trainer.advantage.resolved(loss.preset),
            loss,
            sampler_check: trainer.sampler_check.resolved(loss.mismatch),
            reference: trainer.reference.resolved(),
            guards: Some(self.grpo().guards()),
            ..trainer
        };
        let mut table = Table::try_from(&self.settings)?;
        table.extend(Table::try_from(&trainer)?);
        table.insert("reward".to_owned(), Value::Table(self.reward.table().clone()));
        if let Some(data) = &self.data {
            table.insert("data".to_owned(), Value::Table(data.settings()?));
        }
        if let Some(rollout) = self.rollout.settings() {
            table.insert("rollout".to_owned(), Value::Table(rollout));
        }
        if let Some(episode) = &self.episode {
            table.insert("episode".to_owned(), Value::Table(episode.settings()));
        }
        self.extensions.add_settings(&mut table);
        table.extend(self.source.iter().flat_map(|source| source.settings()));
        Ok(table)
    }
}

/// Adds the keys that serde does not know to the expected ones of an unknown key: sections of the
/// program, of tasks and of extensions.
fn with_all_keys(fault: ConfigFault, tasks: &Tasks) -> ConfigFault {
    if !fault.message.starts_with("unknown key") {
        return fault;
    }
    let section = fault.key.rsplit_once('.').map_or("", |(section, _)| section);
    let mut known = Extensions::known_keys(tasks, section);
    if section == "train" {
        known.push("epochs");
    }
    if section.is_empty() {
        known.extend(keys_of::<GrpoConfig>());
        known.extend(["reward", "data", "rollout"]);
        known.extend((!tasks.episodes().is_empty()).then_some("episode"));
        let sources = tasks.iter().flat_map(|task| task.sources());
        known.extend(sources.flat_map(|kind| kind.sections));
    }
    let more: String = known.iter().map(|key| format!(", `{key}`")).collect();
    ConfigFault { message: format!("{}{more}", fault.message), ..fault }
}

/// Removes and parses the `[reward]` section.
fn reward_of(table: &mut Table, origin: &Origin, tasks: &Tasks) -> anyhow::Result<RewardConfig> {
    let rewards = tasks.rewards();
    let explain = |fault: ConfigFault| origin.misread(&fault);
    let Some(reward) = section(table, "reward").map_err(explain)? else {
        let keys: Vec<String> = table.keys().cloned().collect();
        if let Some(key) = keys.iter().find(|key| strsim::damerau_levenshtein(key, "reward") <= 2) {
            let message = format!("unknown key `{key}`, expected `reward`");
            return Err(explain(ConfigFault::from_sentence("", message)));
        }
        anyhow::bail!(
            "{}section [reward] is missing; add it and set `type` to one of {}",
            origin.place(""),
            rewards.type_names().join(", ")
        );
    };
    rewards.parse(reward).map_err(|fault| explain(fault.below("reward")))
}

/// Removes and parses the section `[episode]`. Without registered episodes, it stays as an unknown key.
fn episode_of(table: &mut Table, tasks: &Tasks) -> Result<Option<EpisodeSection>, ConfigFault> {
    let kinds = tasks.episodes();
    if kinds.is_empty() {
        return Ok(None);
    }
    let parsed = section(table, "episode")?.map(|section| EpisodeKind::parse(&kinds, section));
    parsed.transpose().map_err(|fault| fault.below("episode"))
}

/// Removes a section.
fn section(table: &mut Table, name: &str) -> Result<Option<Table>, ConfigFault> {
    match table.remove(name) {
        Some(Value::Table(section)) => Ok(Some(section)),
        Some(other) => {
            let found = other.to_string();
            let message = format!("found {}; expected a table", Shortened(&found));
            Err(ConfigFault::from_sentence(name, message))
        }
        None => Ok(None),
    }
}

/// Reads the layers of what `--reward` names: a configuration file, or the type of a reward that needs no
/// other keys or gets them from `set`.
///
/// # Errors
/// Returns an error if it is neither, or if the file cannot be read.
pub(crate) fn reward_layers(
    reward: &Path,
    command: &config::Command,
    set: &[String],
    tasks: &Tasks,
) -> anyhow::Result<config::Loaded<Table>> {
    let name = reward.to_string_lossy();
    let rewards = tasks.rewards();
    let types = rewards.type_names();
    if reward.exists() || name.contains(['.', '/']) {
        return config::load_for(reward, command, set);
    }
    anyhow::ensure!(
        types.contains(&&*name),
        "--reward {name} is neither a configuration file nor a type of reward; expected a file such as configs/text/grpo.toml, or one of {}",
        types.join(", ")
    );
    let text = format!("[reward]\ntype = \"{name}\"\n");
    config::of_text_for(Path::new(&format!("--reward {name}")), text, command, set)
}

/// The reward of a configuration file.
pub(crate) struct LoadedReward {
    pub(crate) config: RewardConfig,
    reward: Arc<dyn Reward>,
}

impl LoadedReward {
    /// Creates the reward. Other sections are ignored, so the file can consist of a `[reward]` section
    /// alone.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or the reward is invalid.
    pub(crate) fn read(path: &Path, set: &[String], tasks: &Tasks) -> anyhow::Result<Self> {
        Self::of(config::load::<Table>(path, set)?, tasks)
    }

    /// Creates the reward of the layers of a configuration.
    ///
    /// # Errors
    /// Returns an error if the reward is invalid.
    pub(crate) fn of(layers: config::Loaded<Table>, tasks: &Tasks) -> anyhow::Result<Self> {
        let config::Loaded { value: mut table, origin } = layers;
        let config = with_folders(reward_of(&mut table, &origin, tasks)?, tasks)?;
        let reward = config.build(&device::device()?);
        let reward = reward.map_err(|fault| origin.explain(TrainError::Config(fault)))?;
        Ok(Self { config, reward })
    }

    /// Returns how to read the completions of a file, or of an option if it is `None`, and the reward that
    /// knows what the task knows about them.
    pub(crate) fn for_completions(
        &self,
        file: Option<&Path>,
        tasks: &Tasks,
    ) -> (RowFormat, Arc<dyn Reward>) {
        let format = tasks.row_format(file, self.config.type_name());
        let reward = Arc::clone(&self.reward);
        let reward = match format.identify {
            Some(identify) => IdentifiedReward::wrap(reward, identify),
            None => reward,
        };
        (format, reward)
    }
}
