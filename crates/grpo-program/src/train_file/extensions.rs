//! Extensions of the steps that a configuration asks for.

use std::path::PathBuf;
use std::sync::Arc;

use grpo_data::ConfigFault;
use grpo_extensions::{
    ExtensionConfig, ExtensionKind, ExtensionParts, build_extensions, check_extensions,
    metrics_of_kinds,
};
use grpo_model::Policy;
use grpo_run::Plan;
use grpo_task::task::Tasks;
use grpo_train::{
    GrpoConfig, GuardConfig, MetricTable, StepExtensions, default_guards, step_metrics,
};
use toml::{Table, Value};

/// Extensions of a run, in the order in which a step calls them.
#[derive(Clone, Debug)]
pub(crate) struct Extensions {
    used: Vec<Arc<dyn ExtensionConfig<Policy>>>,
    /// All kinds that the program knows.
    kinds: Vec<ExtensionKind<Policy>>,
}

impl Extensions {
    /// Removes the keys of extensions from a configuration and reads them.
    ///
    /// # Errors
    /// Returns an error that names the key of an invalid value.
    pub(crate) fn take(configuration: &mut Table, tasks: &Tasks) -> Result<Self, ConfigFault> {
        let (kinds, bucketings) = (tasks.extensions(), tasks.bucketings());
        let taken = kinds.iter().filter_map(|kind| Some((kind, kind.take(configuration)?)));
        let used = taken.map(|(kind, keys)| (kind.parse)(keys, &bucketings));
        let used = used.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Self { used, kinds })
    }

    /// Returns the sections of all kinds, and their keys in `section`.
    pub(crate) fn known_keys(tasks: &Tasks, section: &str) -> Vec<&'static str> {
        let keys = tasks.extensions().into_iter().flat_map(|kind| kind.keys);
        keys.filter_map(|key| match key.split_once('.') {
            None => section.is_empty().then_some(*key),
            Some((of, key)) => (of == section).then_some(key),
        })
        .collect()
    }

    /// Adds the keys with all defaults to a configuration.
    pub(crate) fn add_settings(&self, configuration: &mut Table) {
        for (section, settings) in self.used.iter().flat_map(|extension| extension.settings()) {
            match (configuration.get_mut(&section), settings) {
                (Some(Value::Table(of_file)), Value::Table(own)) => of_file.extend(own),
                (_, settings) => drop(configuration.insert(section, settings)),
            }
        }
    }

    /// Checks the configuration of a run with its extensions.
    ///
    /// # Errors
    /// Returns an error that names the key if a value is out of range or two contradict each other.
    pub(crate) fn check(&self, config: &GrpoConfig, has_prompts: bool) -> Result<(), ConfigFault> {
        config.check_with(metrics_of_kinds(&self.kinds, &self.used))?;
        check_extensions(&self.used, config, has_prompts)
    }

    /// Returns the metrics of runs with any extensions.
    pub(crate) fn metrics(&self) -> MetricTable {
        MetricTable::new(step_metrics().chain(self.kinds.iter().map(ExtensionKind::metric_group)))
    }

    /// Checks that a recorded step can be replayed.
    pub(crate) fn check_replay(&self) -> Result<(), ConfigFault> {
        self.used.iter().try_for_each(|extension| extension.check_replay())
    }

    /// Returns the files of examples that the extensions read.
    pub(crate) fn example_files(&self) -> Vec<PathBuf> {
        self.used.iter().flat_map(|extension| extension.example_files()).collect()
    }

    /// Checks that several processes can share the extensions.
    pub(crate) fn check_ranks(&self) -> Result<(), ConfigFault> {
        self.used.iter().try_for_each(|extension| extension.check_ranks())
    }

    /// Returns whether steps are sampled before the policy has learned from the ones before them.
    pub(crate) fn look_ahead(&self) -> bool {
        self.used.iter().any(|extension| extension.looks_ahead() > 0)
    }

    /// Returns the guards of a run that configures none.
    pub(crate) fn default_guards(&self) -> Vec<GuardConfig> {
        let of_extensions = self.used.iter().flat_map(|extension| extension.guards());
        default_guards().into_iter().chain(of_extensions).collect()
    }

    /// Returns the files that the extensions read, except for examples, with their roles.
    pub(crate) fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        let files = self.used.iter().map(|extension| extension.files());
        Ok(files.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// See [`ExtensionConfig::pulls`].
    pub(crate) fn pulls(&self) -> Vec<&'static str> {
        self.used.iter().flat_map(|extension| extension.pulls()).collect()
    }

    /// Adds what an audit expects of the run.
    pub(crate) fn plan(&self, plan: &mut Plan) {
        self.used.iter().for_each(|extension| extension.plan(plan));
    }

    /// Creates the extensions.
    pub(crate) fn build(
        &self,
        parts: &mut ExtensionParts<'_>,
    ) -> anyhow::Result<StepExtensions<Policy>> {
        build_extensions(&self.used, parts).map_err(anyhow::Error::from_boxed)
    }
}
