//! Metrics for each step. The names follow TRL so that existing dashboards work.

mod evaluation;
mod machine;
mod step;
mod values;

pub(crate) use step::TERMS;
pub use values::Metrics;

use grpo_core::TokenStatistics;
use grpo_metrics::{MetricGroup, MetricSpec, MetricTable};

use crate::{Evaluated, StepReport};

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

fn table() -> MetricTable {
    MetricTable::new(step_metrics())
}

impl Metrics {
    /// Computes the metrics for a step. `num_tokens` is the total number of tokens in the run so
    /// far.
    ///
    /// With the same seed, all metrics are reproducible except those for which [`Self::is_of_machine`]
    /// returns true.
    pub fn of(report: &StepReport, num_tokens: u64) -> Self {
        Self::of_step(report, num_tokens).declared_by(&table())
    }

    /// Creates metrics from name-value pairs.
    pub(crate) fn of_pairs(pairs: &[(&str, f64)]) -> Self {
        let mut metrics = Self::default();
        pairs.iter().for_each(|(name, value)| metrics.push(*name, *value));
        metrics.declared_by(&table())
    }
}

impl Evaluated {
    /// Returns the evaluation metrics. Names have the prefix `eval_`.
    pub fn metrics(&self) -> Metrics {
        Metrics::of_evaluation(self).declared_by(&table())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_declared_once() {
        let all: Vec<&MetricSpec> = table().specs().collect();
        for (place, spec) in all.iter().enumerate() {
            let same = all.iter().position(|other| other.is_named(spec.name)).unwrap();
            assert_eq!(same, place, "{} is declared twice", spec.name);
            assert!(!spec.meaning.is_empty() && !spec.meaning.ends_with('.'), "{}", spec.name);
        }
    }
}
