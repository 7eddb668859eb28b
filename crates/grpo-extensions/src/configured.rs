//! Sections of a configuration that ask for extensions.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::schema::Keys;
use grpo_data::{ConfigFault, Example, Shortened, deserialize_settings};
use grpo_rewards::Identify;
use grpo_run::Plan;
use grpo_train::{
    ExtensionRole, GrpoConfig, GuardConfig, MetricGroup, MetricSpec, RunMetrics, StepExtension,
    StepExtensions, refuse_conflicts, roles_of,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::{Bucketing, NewSimilarTexts, Variation};

/// A kind of extension that a configuration can ask for. A program that knows the kind reads its
/// keys, checks them, records them, and adds the extension to the run.
pub struct ExtensionKind<M> {
    /// Name, usually that of the section.
    pub name: &'static str,
    /// Sections and keys that belong to it, e.g. `replay` or `train.max_reward_calls`. Any of them asks
    /// for the extension.
    pub keys: &'static [&'static str],
    /// What these keys are, in tables nested as in the file.
    pub schema: Keys,
    /// Its metrics, which guards can watch.
    pub metrics: &'static [MetricSpec],
    /// Reads these keys, in tables nested as in the file. `Bucketing`s are those of the program's tasks.
    /// Returns `None` if their values ask for nothing. Errors name the whole key.
    pub parse: ParseExtension<M>,
}

/// See [`ExtensionKind::parse`].
pub type ParseExtension<M> =
    fn(Table, &[Bucketing]) -> Result<Option<Arc<dyn ExtensionConfig<M>>>, ConfigFault>;

impl<M> Clone for ExtensionKind<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for ExtensionKind<M> {}

impl<M> fmt::Debug for ExtensionKind<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionKind").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<M> ExtensionKind<M> {
    /// Returns the metrics of the kind as a group of its name.
    pub fn metric_group(&self) -> MetricGroup {
        MetricGroup { name: self.name, section: "train", metrics: self.metrics }
    }

    /// Removes the keys of the kind from a configuration. Returns `None` if it has none of them.
    pub fn take(&self, configuration: &mut Table) -> Option<Table> {
        let mut own = Table::new();
        for key in self.keys {
            match key.split_once('.') {
                None => own.extend(configuration.remove_entry(*key)),
                Some((section, key)) => {
                    let Some(Value::Table(of_file)) = configuration.get_mut(section) else {
                        continue;
                    };
                    if let Some(entry) = of_file.remove_entry(key) {
                        let empty = || Value::Table(Table::new());
                        let nested = own.entry(section).or_insert_with(empty);
                        nested.as_table_mut().expect("it is one").extend([entry]);
                    }
                }
            }
        }
        (!own.is_empty()).then_some(own)
    }
}

/// What a configuration says about an extension. It has been read, and its own values are in range.
pub trait ExtensionConfig<M>: fmt::Debug + Send + Sync {
    /// Returns the name of its kind.
    fn name(&self) -> &'static str;

    /// Returns its keys with all defaults, in tables nested as in the file.
    fn settings(&self) -> Table;

    /// Returns the roles of the extension that [`Self::build`] creates.
    fn roles(&self) -> &'static [ExtensionRole] {
        &[]
    }

    /// Checks it together with the rest of the configuration. Roles are compared by [`check_extensions`].
    ///
    /// # Errors
    /// Returns an error that names the key if they contradict each other.
    fn check(&self, run: &ConfiguredRun<'_>) -> Result<(), ConfigFault>;

    /// Returns whether the run measures this metric of the kind.
    fn measures(&self, metric: &str) -> bool {
        let _ = metric;
        true
    }

    /// Checks that a recorded step can be replayed.
    ///
    /// # Errors
    /// Returns an error that names the key if it cannot.
    fn check_replay(&self) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// Checks that several processes can share it.
    ///
    /// # Errors
    /// Returns an error that names the key if they cannot.
    fn check_ranks(&self) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// See [`StepExtension::looks_ahead`].
    fn looks_ahead(&self) -> u32 {
        0
    }

    /// Returns the guards that a run has by default because of it.
    fn guards(&self) -> Vec<GuardConfig> {
        Vec::new()
    }

    /// Returns the files that it reads, except for examples, with their roles.
    ///
    /// # Errors
    /// Returns an error if a folder of files cannot be read.
    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        Ok(Vec::new())
    }

    /// Returns the files of examples that it reads ([`ExtensionParts::examples`]).
    fn example_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Describes how it moves the policy in addition to the rewards, e.g. `cross-entropy of examples
    /// (combined.supervised_weight)`.
    fn pulls(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Adds what an audit expects of the run.
    fn plan(&self, plan: &mut Plan) {
        let _ = plan;
    }

    /// Creates the extension.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or the task cannot do what the extension needs.
    fn build(&self, parts: &mut ExtensionParts<'_>) -> BuiltExtension<M>;
}

/// See [`ExtensionConfig::build`].
pub type BuiltExtension<M> = Result<Box<dyn StepExtension<M>>, Box<dyn Error + Send + Sync>>;

/// The configuration that an extension is part of.
#[derive(Clone, Copy)]
pub struct ConfiguredRun<'a> {
    /// Sections that every run has.
    pub config: &'a GrpoConfig,
    /// Names of all extensions.
    pub extensions: &'a [&'static str],
    /// Whether prompts come from a file or a task, rather than being empty.
    pub has_prompts: bool,
}

/// Checks the extensions that a run uses with its configuration and with each other. `has_prompts` is
/// that of [`ConfiguredRun`].
///
/// # Errors
/// Returns an error that names the key if two of them contradict each other.
pub fn check_extensions<M>(
    used: &[Arc<dyn ExtensionConfig<M>>],
    config: &GrpoConfig,
    has_prompts: bool,
) -> Result<(), ConfigFault> {
    let names: Vec<&'static str> = used.iter().map(|extension| extension.name()).collect();
    let run = ConfiguredRun { config, extensions: &names, has_prompts };
    used.iter().try_for_each(|extension| extension.check(&run))?;
    let roles = used.iter().map(|extension| (extension.name(), extension.roles().to_vec()));
    refuse_conflicts(&roles.collect::<Vec<_>>())
}

/// Creates the extensions that a run uses.
///
/// # Errors
/// Returns an error if a file cannot be read, if the task cannot do what an extension needs, or if an
/// extension has another name or other roles, or looks further ahead, than its configuration says.
pub fn build_extensions<M>(
    used: &[Arc<dyn ExtensionConfig<M>>],
    parts: &mut ExtensionParts<'_>,
) -> Result<StepExtensions<M>, Box<dyn Error + Send + Sync>> {
    let mut extensions = StepExtensions::new();
    for config in used {
        let mut extension = config.build(parts)?;
        let (ahead, declared_ahead) = (extension.looks_ahead(), config.looks_ahead());
        let (name, roles) = (extension.name(), roles_of(&mut *extension));
        let (of_config, declared) = (config.name(), config.roles());
        if (name, &*roles, ahead) != (of_config, declared, declared_ahead) {
            let fault = format!(
                "the extension {name} has the roles {roles:?} and looks {ahead} steps ahead, but its configuration {of_config} declares {declared:?} and {declared_ahead}; correct ExtensionConfig"
            );
            return Err(fault.into());
        }
        extensions.push(extension);
    }
    Ok(extensions)
}

/// Checks that none of the `extensions` of a run is one of `names`.
///
/// # Errors
/// Returns an error that names `key` and the other one.
pub fn refuse_with(
    key: &str,
    extensions: &[&'static str],
    names: &[&str],
) -> Result<(), ConfigFault> {
    match extensions.iter().find(|name| names.contains(name)) {
        None => Ok(()),
        Some(other) => {
            let message = format!("{key} and {other} cannot be combined; remove one of them");
            Err(ConfigFault::from_sentence(key, message))
        }
    }
}

/// What an extension can be created from.
pub struct ExtensionParts<'a> {
    /// Device for models, without autodiff.
    pub device: &'a Device,
    /// Seed of the run.
    pub seed: u64,
    /// Sections that every run has.
    pub config: &'a GrpoConfig,
    /// How the task compares completions, if it does.
    pub similarity: Option<NewSimilarTexts>,
    /// How the task tells which completions are equivalent, if it does.
    pub identify: Option<Identify>,
    /// How the task writes and varies completions, if it does.
    pub variation: Option<Arc<dyn Variation>>,
    /// Reads a file of examples. The key is named in errors.
    pub examples: &'a mut ReadExamples<'a>,
}

/// See [`ExtensionParts::examples`].
pub type ReadExamples<'a> =
    dyn FnMut(&str, &Path) -> Result<Vec<Example>, Box<dyn Error + Send + Sync>> + 'a;

/// Sorts the metrics of all `kinds` by whether a run with these extensions measures them.
pub fn metrics_of_kinds<M>(
    kinds: &[ExtensionKind<M>],
    used: &[Arc<dyn ExtensionConfig<M>>],
) -> RunMetrics {
    let mut metrics = RunMetrics::default();
    for kind in kinds {
        let config = used.iter().find(|config| config.name() == kind.name);
        metrics
            .add(kind.metrics, |metric| config.is_some_and(|config| config.measures(metric.name)));
    }
    metrics
}

/// Parses the section `name` of a kind's keys.
///
/// # Errors
/// Returns an error that names the whole key.
pub fn section<T: DeserializeOwned>(keys: &mut Table, name: &str) -> Result<T, ConfigFault> {
    match keys.remove(name) {
        Some(Value::Table(section)) => {
            deserialize_settings(section).map_err(|fault| fault.below(name))
        }
        found => {
            let found = found.map_or_else(String::new, |value| value.to_string());
            let message = format!("found {}; expected a table", Shortened(&found));
            Err(ConfigFault::from_sentence(name, message))
        }
    }
}

/// Returns `settings` as the section `name`.
pub fn as_section<T: Serialize>(name: &str, settings: &T) -> Table {
    let section = Value::try_from(settings).expect("settings consist of texts, numbers and tables");
    [(name.to_owned(), section)].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are found in their sections, and nothing else is removed.
    #[test]
    fn a_kind_takes_its_keys() {
        let kind: ExtensionKind<()> = ExtensionKind {
            name: "memory",
            keys: &["memory", "train.limit"],
            schema: Keys::none(),
            metrics: &[],
            parse: |_, _| unreachable!(),
        };
        let file = "seed = 1\n[train]\nsteps = 2\nlimit = 5\n[memory]\nsize = 3";
        let mut table: Table = toml::from_str(file).unwrap();
        let own: Table = toml::from_str("[train]\nlimit = 5\n[memory]\nsize = 3").unwrap();
        assert_eq!(kind.take(&mut table), Some(own));
        assert_eq!(table, toml::from_str("seed = 1\n[train]\nsteps = 2").unwrap());
        assert_eq!(kind.take(&mut table), None);
        // What is not a table is left to the reader of the section.
        let mut wrong: Table = toml::from_str("train = 3").unwrap();
        assert_eq!(kind.take(&mut wrong), None);
        assert_eq!(wrong.len(), 1);
    }
}
