//! Names and values of metrics.

use std::collections::BTreeSet;

use grpo_data::Sample;
use grpo_data::statistics::{mean, sample_variance};
use grpo_metrics::{MetricSpec, MetricTable};
use serde::{Serialize, Serializer};

/// Metric names and values in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<Metric>);

/// A metric and its value.
#[derive(Clone, Debug, PartialEq)]
struct Metric {
    name: String,
    value: f64,
    /// `None` for a metric of a supervised objective, or of a test.
    spec: Option<&'static MetricSpec>,
}

impl Metrics {
    /// Returns the value of a metric, or `None` if it was not measured.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.find(name).map(|metric| metric.value)
    }

    /// Returns whether the metric depends on the machine ([`MetricSpec::is_of_machine`]).
    pub fn is_of_machine(&self, name: &str) -> bool {
        self.spec(name).is_some_and(|spec| spec.is_of_machine)
    }

    /// Returns the declaration of a measured metric.
    pub(crate) fn spec(&self, name: &str) -> Option<&'static MetricSpec> {
        self.find(name)?.spec
    }

    /// Returns an iterator over names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|metric| (metric.name.as_str(), metric.value))
    }

    fn find(&self, name: &str) -> Option<&Metric> {
        self.0.iter().find(|metric| metric.name == name)
    }

    /// Adds a metric whose declaration [`Self::declared_by`] finds.
    pub(super) fn push(&mut self, name: impl Into<String>, value: f64) {
        self.0.push(Metric { name: name.into(), value, spec: None });
    }

    /// Adds the declarations of metrics that have none yet.
    pub(super) fn declared_by(mut self, table: &MetricTable) -> Self {
        for metric in self.0.iter_mut().filter(|metric| metric.spec.is_none()) {
            metric.spec = table.spec(&metric.name);
        }
        self
    }

    /// Adds a metric that is declared elsewhere.
    pub fn push_declared(&mut self, spec: &'static MetricSpec, value: f64) {
        self.0.push(Metric { name: spec.name.to_owned(), value, spec: Some(spec) });
    }

    /// Appends the metrics in `more`.
    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, value)| (name, Number(value))))
    }
}

/// A number that is serialised without a decimal point if it is an integer.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < 1e15 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

/// Returns the mean and the sample standard deviation. The latter is 0 for a single value.
pub(super) fn mean_and_std(values: &[f64]) -> (f64, f64) {
    (mean(values), if values.len() > 1 { sample_variance(values).sqrt() } else { 0.0 })
}

/// Returns the fraction of distinct texts.
pub(super) fn unique_share<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let texts: Vec<&str> = samples.map(|sample| &*sample.text).collect();
    texts.iter().collect::<BTreeSet<_>>().len() as f64 / texts.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_sample_deviation() {
        assert_eq!(mean_and_std(&[1.0, 2.0, 3.0, 6.0]), (3.0, (14.0_f64 / 3.0).sqrt()));
        assert_eq!(mean_and_std(&[5.0]), (5.0, 0.0));
    }
}
