//! Episodes that a configuration selects with `episode.type`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use grpo_data::schema::Keys;
use grpo_data::{Codec, ConfigFault, deserialize_settings};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::{Episode, RolloutError};

/// An episode: the value of `episode.type`, and the parser for the other keys of its section.
#[derive(Clone, Copy)]
pub struct EpisodeKind {
    name: &'static str,
    keys: Keys,
    parse: fn(Table) -> Result<Arc<dyn EpisodeConfig>, ConfigFault>,
}

/// The settings of an episode.
pub trait EpisodeConfig: fmt::Debug + Send + Sync {
    /// Returns the keys of the section with all defaults, without `type`.
    fn settings(&self) -> Table;

    /// Checks the settings. Keys of errors are relative to the section.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range.
    fn check(&self) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// Returns the files that the episode reads, with their roles. Their hashes are recorded.
    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        Vec::new()
    }

    /// Creates the episode for a model with this codec.
    ///
    /// # Errors
    /// Returns an error if the model is not suitable.
    fn build(&self, codec: &Codec) -> Result<Arc<dyn Episode>, RolloutError>;
}

impl EpisodeKind {
    /// Creates a kind whose settings are the keys of the section `[episode]`.
    pub const fn from_settings<T>(name: &'static str) -> Self
    where
        T: EpisodeConfig + DeserializeOwned + JsonSchema + 'static,
    {
        let keys = Keys::of::<T>();
        Self { name, keys, parse: |table| Ok(Arc::new(deserialize_settings::<T>(table)?)) }
    }

    /// Returns the name that selects the episode.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the keys of its section, without `type`.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// Parses the section `[episode]` with the kind of `kinds` that it names. Keys of errors are relative
    /// to the section.
    ///
    /// # Errors
    /// Returns an error if `type` is missing or unknown, or if a key is unknown or of another type.
    pub fn parse(kinds: &[Self], mut section: Table) -> Result<EpisodeSection, ConfigFault> {
        let known = || {
            let names = kinds.iter().map(|kind| format!("\"{}\"", kind.name));
            format!("use one of {}", names.collect::<Vec<_>>().join(", "))
        };
        let Some(name) = section.remove("type") else {
            return Err(ConfigFault::new("", "missing key `type`", known()));
        };
        match kinds.iter().find(|kind| name.as_str() == Some(kind.name)) {
            Some(kind) => Ok(EpisodeSection { kind: *kind, config: (kind.parse)(section)? }),
            None => Err(ConfigFault::new("type", format!("unknown episode {name}"), known())),
        }
    }
}

impl fmt::Debug for EpisodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EpisodeKind").field(&self.name).finish()
    }
}

/// A parsed section `[episode]`.
#[derive(Clone, Debug)]
pub struct EpisodeSection {
    kind: EpisodeKind,
    config: Arc<dyn EpisodeConfig>,
}

impl EpisodeSection {
    /// Returns the settings.
    pub fn config(&self) -> &dyn EpisodeConfig {
        &*self.config
    }

    /// Returns the section with all defaults.
    pub fn settings(&self) -> Table {
        let kind = ("type".to_owned(), self.kind.name.into());
        [kind].into_iter().chain(self.config.settings()).collect()
    }
}
