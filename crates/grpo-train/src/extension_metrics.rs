//! Metrics of extensions.

use std::collections::BTreeSet;

/// A metric of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Name in `metrics.jsonl`.
    pub name: &'static str,
    /// What a configuration needs so that a run measures it, e.g. `a [combined] section`.
    pub requires: &'static str,
}

/// Metrics of extensions that the guards of a run can name.
#[derive(Clone, Debug, Default)]
pub struct ExtensionMetrics {
    /// Names of those that the run measures.
    pub measured: BTreeSet<String>,
    /// Those that other runs measure.
    pub missing: Vec<MetricSpec>,
}

impl ExtensionMetrics {
    /// Returns what a metric requires that the run does not measure.
    pub(crate) fn requirement(&self, name: &str) -> Option<&'static str> {
        self.missing.iter().find(|metric| metric.name == name).map(|metric| metric.requires)
    }
}
