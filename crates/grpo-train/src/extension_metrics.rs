//! Metrics of extensions.

use std::collections::BTreeSet;

/// A metric of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Name in `metrics.jsonl`.
    pub name: &'static str,
    /// What a configuration needs so that a run measures it, e.g. `a [combined] section`.
    pub requires: &'static str,
    above: Option<&'static str>,
    below: Option<&'static str>,
}

impl MetricSpec {
    /// Creates a metric of runs whose configuration has what it `requires`.
    pub const fn new(name: &'static str, requires: &'static str) -> Self {
        Self { name, requires, above: None, below: None }
    }

    /// Adds what it means if the metric is above a guard's bound, which the guard then says.
    #[must_use]
    pub const fn if_above(self, meaning: &'static str) -> Self {
        Self { above: Some(meaning), ..self }
    }

    /// Adds what it means if the metric is below a guard's bound, which the guard then says.
    #[must_use]
    pub const fn if_below(self, meaning: &'static str) -> Self {
        Self { below: Some(meaning), ..self }
    }

    /// Returns what it means if the metric is above or below a guard's bound.
    pub(crate) fn meaning(&self, is_above: bool) -> Option<&'static str> {
        if is_above { self.above } else { self.below }
    }
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
