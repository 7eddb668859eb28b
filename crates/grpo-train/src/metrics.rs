//! Metrics for each step. The names follow TRL so that existing dashboards work.

mod evaluation;
mod machine;
mod step;

pub(crate) use step::TERMS;

use grpo_core::TokenStatistics;
use grpo_data::statistics::{mean, sample_variance};
use grpo_metrics::{MetricGroup, MetricSpec};
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

/// Returns the metrics of the steps of a run, except for those of its extensions.
pub fn step_metrics() -> impl Iterator<Item = MetricGroup> {
    let before_tokens = [group("rewards", &step::REWARDS)];
    let after_tokens = [
        group("divergence", &step::DIVERGENCE),
        group("policy", &step::POLICY),
        group("sampler", &step::SAMPLER),
        group("loss", &step::LOSS),
        group("completions", &step::COMPLETIONS),
        group("evaluations", &evaluation::METRICS),
        group("machine", &machine::METRICS),
    ];
    before_tokens.into_iter().chain(TokenStatistics::metric_groups()).chain(after_tokens)
}

const fn group(name: &'static str, metrics: &'static [MetricSpec]) -> MetricGroup {
    MetricGroup { name, section: "train", metrics }
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

    /// Creates metrics from name-value pairs.
    pub(crate) fn of_pairs(pairs: &[(&str, f64)]) -> Self {
        let mut metrics = Self::default();
        pairs.iter().for_each(|(name, value)| metrics.push(*name, *value));
        metrics
    }

    /// Adds a metric of a step that is declared in [`step_metrics`].
    fn push(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        let mut declared = step_metrics().flat_map(|group| group.metrics);
        let spec = declared.find(|spec| spec.is_named(&name));
        self.0.push(Metric { name, value, spec });
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
fn mean_and_std(values: &[f64]) -> (f64, f64) {
    (mean(values), if values.len() > 1 { sample_variance(values).sqrt() } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_sample_deviation() {
        assert_eq!(mean_and_std(&[1.0, 2.0, 3.0, 6.0]), (3.0, (14.0_f64 / 3.0).sqrt()));
        assert_eq!(mean_and_std(&[5.0]), (5.0, 0.0));
    }

    #[test]
    fn each_metric_is_declared_once() {
        let all: Vec<&MetricSpec> = step_metrics().flat_map(|group| group.metrics).collect();
        for (place, spec) in all.iter().enumerate() {
            let same = all.iter().position(|other| other.is_named(spec.name)).unwrap();
            assert_eq!(same, place, "{} is declared twice", spec.name);
            assert!(!spec.meaning.is_empty() && !spec.meaning.ends_with('.'), "{}", spec.name);
        }
    }
}
