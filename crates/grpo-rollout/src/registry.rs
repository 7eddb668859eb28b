//! Engines that a configuration selects with `rollout.engine`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use grpo_data::schema::Keys;
use grpo_data::{Codec, ConfigFault, deserialize_settings};
use grpo_model::{AdapterConfig, Policy, WeightPrecision};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::{EngineFactory, RolloutError};

/// An engine: the value of `rollout.engine`, and the parser for the other keys of its section.
#[derive(Clone, Copy)]
pub struct EngineKind {
    name: &'static str,
    description: &'static str,
    keys: Keys,
    parse: fn(Table) -> Result<Arc<dyn EngineConfig>, ConfigFault>,
}

/// The engine of this process, which is used if a configuration names none. It ignores the keys of other
/// engines, which may stay in the file.
pub const LOCAL: EngineKind = EngineKind {
    name: "local",
    description: "engines of this process",
    keys: Keys::none(),
    parse: |_| Ok(Arc::new(Local)),
};

impl EngineKind {
    /// Creates a kind whose settings are the keys of the section `[rollout]`. `description` says in
    /// messages what samples, as a noun in the plural.
    pub const fn from_settings<T>(name: &'static str, description: &'static str) -> Self
    where
        T: EngineConfig + DeserializeOwned + JsonSchema + 'static,
    {
        let keys = Keys::of::<T>();
        Self {
            name,
            description,
            keys,
            parse: |table| Ok(Arc::new(deserialize_settings::<T>(table)?)),
        }
    }

    /// Returns the name that selects the engine.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the keys of its section, without `engine`.
    pub fn keys(&self) -> Keys {
        self.keys
    }
}

impl fmt::Debug for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EngineKind").field(&self.name).finish()
    }
}

/// The settings of an engine. The defaults of the methods are those of an engine of this process.
pub trait EngineConfig: fmt::Debug + Send + Sync {
    /// Returns the keys of the section with all defaults.
    fn settings(&self) -> Table;

    /// Checks the settings without accessing files, and whether the engine can sample for the run. Keys of
    /// errors are relative to the section. That of the choice of the engine is `engine`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the run needs another engine.
    fn check(&self, _run: &EngineRun<'_>) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// Creates what creates the engines of a run. The settings have been checked.
    ///
    /// # Errors
    /// Returns an error if a file, a folder or a variable of the environment cannot be used.
    fn build(
        &self,
        context: EngineContext<'_>,
    ) -> Result<Arc<dyn EngineFactory<Policy>>, RolloutError>;

    /// Returns the files that the engine reads, with their roles. Their hashes are recorded.
    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        Vec::new()
    }

    /// Returns the settings with other URLs of servers, or `None` if the engine uses no servers.
    fn with_urls(&self, _urls: &[String]) -> Option<Arc<dyn EngineConfig>> {
        None
    }

    /// Returns whether the engine samples the same completions again, bit for bit.
    fn repeats(&self) -> bool {
        true
    }

    /// Returns whether each of several processes can sample a part of the prompts.
    fn supports_ranks(&self) -> bool {
        true
    }

    /// Returns whether the policy samples in the memory of this process.
    fn samples_here(&self) -> bool {
        true
    }

    /// Describes the engine in a few words for the first screen of a run, or returns `None` if there is
    /// nothing to say.
    fn summary(&self) -> Option<String> {
        None
    }
}

/// What is known about a run before its models are loaded.
#[derive(Clone, Copy, Debug)]
pub struct EngineRun<'a> {
    /// The task's sections that provide the prompts. If there are any, the prompts may be more than token
    /// ids, and the policy may do something other than continue them.
    pub prompt_sections: &'a [String],
    /// Whether the policy is an adapter.
    pub is_adapter: bool,
    /// Precision of the weights that sampling uses.
    pub weights: WeightPrecision,
}

/// Receives messages for the user, e.g. that a server is left out.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;

/// What a run offers to its engine.
pub struct EngineContext<'a> {
    /// The engines of this process for the actions of the policy.
    pub local: Arc<dyn EngineFactory<Policy>>,
    /// Text to ids and back.
    pub codec: &'a Codec,
    /// Configuration of the trained adapter, in PEFT's format.
    pub adapter: Option<AdapterConfig>,
    /// Largest difference between the log-probabilities of sampler and trainer, in nats.
    pub tolerance: f64,
    /// Whether a larger difference is corrected instead of ending the run.
    pub corrects_differences: bool,
    /// Receives messages for the user, on any thread.
    pub notify: Notify,
    /// Removes a folder if a signal ends the process, and returns its path.
    pub remove_at_exit: fn(PathBuf) -> PathBuf,
}

#[derive(Debug)]
struct Local;

impl EngineConfig for Local {
    fn settings(&self) -> Table {
        Table::new()
    }

    fn build(
        &self,
        context: EngineContext<'_>,
    ) -> Result<Arc<dyn EngineFactory<Policy>>, RolloutError> {
        Ok(context.local)
    }
}

/// The available engines. The first is [`LOCAL`].
#[derive(Clone, Debug)]
pub struct EngineRegistry(Vec<EngineKind>);

impl EngineRegistry {
    /// Creates a registry without any engines.
    pub(crate) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Registers additional engines.
    ///
    /// # Panics
    /// Panics if two engines have the same name.
    #[must_use]
    pub fn with(mut self, kinds: impl IntoIterator<Item = EngineKind>) -> Self {
        for kind in kinds {
            let name = kind.name;
            assert!(self.kind(name).is_none(), "two engines have the name {name:?}");
            self.0.push(kind);
        }
        self
    }

    /// Returns all engines, in the order of their registration.
    pub fn kinds(&self) -> &[EngineKind] {
        &self.0
    }

    fn kind(&self, name: &str) -> Option<EngineKind> {
        self.0.iter().find(|kind| kind.name == name).copied()
    }

    /// Parses the section `[rollout]`, if there is one. Keys of errors are relative to it.
    ///
    /// # Errors
    /// Returns an error if the engine is unknown, or if a key is unknown or of another type.
    pub fn parse(&self, section: Option<Table>) -> Result<EngineSection, ConfigFault> {
        let mut section = section.unwrap_or_default();
        let kind = match (section.remove("engine"), section.keys().next()) {
            (Some(name), _) => name.as_str().and_then(|name| self.kind(name)).ok_or_else(|| {
                let message = format!("unknown engine {name}");
                ConfigFault::new("engine", message, format!("use {}", names(&self.0)))
            })?,
            (None, None) => LOCAL,
            (None, Some(key)) => {
                let remedy = format!("remove it, or set rollout.engine = {}", names(&self.0[1..]));
                let message = "has no effect with the local engine";
                return Err(ConfigFault::new(key, message, remedy));
            }
        };
        Ok(EngineSection { kind, config: (kind.parse)(section)? })
    }
}

/// Lists names for a sentence: `"a", "b" or "c"`.
fn names(kinds: &[EngineKind]) -> String {
    let names: Vec<String> = kinds.iter().map(|kind| format!("\"{}\"", kind.name)).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// A parsed section `[rollout]`.
#[derive(Clone, Debug)]
pub struct EngineSection {
    kind: EngineKind,
    config: Arc<dyn EngineConfig>,
}

impl EngineSection {
    /// Returns the settings of the engine.
    pub fn config(&self) -> &dyn EngineConfig {
        &*self.config
    }

    /// Returns the value of `rollout.engine`.
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Returns what samples, as a noun in the plural.
    pub fn description(&self) -> &'static str {
        self.kind.description
    }

    /// Returns the section with all defaults. There is none for the local engine.
    pub fn settings(&self) -> Option<Table> {
        (self.kind.name != LOCAL.name).then(|| {
            let engine = ("engine".to_owned(), self.kind.name.into());
            self.config.settings().into_iter().chain([engine]).collect()
        })
    }

    /// Returns the section with other URLs of servers, or `None` if the engine uses no servers.
    #[must_use]
    pub fn with_urls(&self, urls: &[String]) -> Option<Self> {
        Some(Self { kind: self.kind, config: self.config.with_urls(urls)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Remote {
        place: String,
    }

    impl EngineConfig for Remote {
        fn settings(&self) -> Table {
            Table::from_iter([("place".to_owned(), self.place.clone().into())])
        }

        fn build(
            &self,
            _context: EngineContext<'_>,
        ) -> Result<Arc<dyn EngineFactory<Policy>>, RolloutError> {
            Err(RolloutError::Unfit(format!("nothing is at {}", self.place)))
        }

        fn with_urls(&self, urls: &[String]) -> Option<Arc<dyn EngineConfig>> {
            Some(Arc::new(Self { place: urls.concat() }))
        }
    }

    fn registry() -> EngineRegistry {
        EngineRegistry::default().with([EngineKind::from_settings::<Remote>("far", "servers")])
    }

    fn parse(section: &str) -> Result<EngineSection, String> {
        let parsed = registry().parse(Some(toml::from_str(section).unwrap()));
        parsed.map_err(|fault| format!("{}: {fault}", fault.key))
    }

    #[test]
    fn engines_by_name() {
        let far = parse("engine = 'far'\nplace = 'here'").unwrap();
        let section = toml::from_str("engine = 'far'\nplace = 'here'").unwrap();
        assert_eq!((far.settings(), far.description()), (Some(section), "servers"));
        let moved = far.with_urls(&["there".to_owned()]).unwrap().settings().unwrap();
        assert_eq!(moved["place"].as_str(), Some("there"));
        // The keys of another engine may stay.
        for section in ["", "engine = 'local'", "engine = 'local'\nplace = 'here'"] {
            let local = parse(section).unwrap();
            assert!(local.settings().is_none() && local.config().repeats());
            assert!(local.with_urls(&["there".to_owned()]).is_none());
        }
        assert!(registry().parse(None).unwrap().settings().is_none());
    }

    #[test]
    fn refused_sections() {
        let check = |section: &str, expected: &str| {
            assert_eq!(parse(section).unwrap_err(), expected);
        };
        check("engine = 'near'", "engine: unknown engine \"near\"; use \"local\" or \"far\"");
        check("engine = 3", "engine: unknown engine 3; use \"local\" or \"far\"");
        check(
            "place = 'here'",
            "place: has no effect with the local engine; remove it, or set rollout.engine = \"far\"",
        );
        check("engine = 'far'", ": missing key `place`");
    }
}
