//! The metrics that a run measures.

use grpo_data::ConfigFault;
use grpo_metrics::MetricSpec;

use crate::error::guard_fault;

/// Metrics, sorted by whether a run measures them. Guards can watch those that it does.
#[derive(Clone, Debug, Default)]
pub struct RunMetrics {
    /// Those that the run measures.
    pub measured: Vec<&'static MetricSpec>,
    /// Those that other runs measure.
    pub missing: Vec<&'static MetricSpec>,
}

impl RunMetrics {
    /// Adds metrics.
    pub fn add(
        &mut self,
        metrics: impl IntoIterator<Item = &'static MetricSpec>,
        is_measured: impl Fn(&MetricSpec) -> bool,
    ) {
        for metric in metrics {
            let list = if is_measured(metric) { &mut self.measured } else { &mut self.missing };
            list.push(metric);
        }
    }

    /// Checks that the guard with this index, counted from 0, can watch this metric. A `hint` may follow
    /// the suggestion for an unknown name.
    pub(crate) fn check_watched(
        &self,
        guard: usize,
        watch: &str,
        hint: &str,
    ) -> Result<(), ConfigFault> {
        let refuse = |fault: &str| Err(guard_fault(guard, "watch", fault));
        let all = || self.measured.iter().chain(&self.missing);
        match all().find(|metric| metric.is_named(watch)) {
            Some(metric) if metric.is_of_machine => refuse(&format!(
                "watch = \"{watch}\" depends on the machine and cannot control a run; watch a metric that is reproducible with the same seed"
            )),
            Some(_) if self.measured.iter().any(|metric| metric.is_named(watch)) => Ok(()),
            Some(metric) => refuse(&format!(
                "watch = \"{watch}\": this run has no such metric; it requires {}",
                metric.requires
            )),
            None => {
                let names = all().filter(|metric| !metric.is_of_machine).map(|metric| metric.name);
                let near = nearest(watch, names).unwrap_or("none");
                refuse(&format!(
                    "watch = \"{watch}\" is not a metric that a guard can watch; did you mean '{near}'?{hint}"
                ))
            }
        }
    }
}

/// Returns the name in `among` that is most similar to `name`.
pub(crate) fn nearest<'a>(name: &str, among: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &&str| strsim::jaro_winkler(known, name);
    among.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_metrics;

    #[test]
    fn suggests_the_nearest_name() {
        let mut metrics = RunMetrics::default();
        metrics.add(step_metrics().flat_map(|group| group.metrics), |_| true);
        for (slip, meant) in [
            ("ratio_p99", "ratio/p99"),
            ("klp99", "kl_p99"),
            ("completion/unique_ratio", "completions/unique_ratio"),
            ("entrpy", "entropy"),
            ("rewards//mean", "rewards/NAME/mean"),
        ] {
            let error = metrics.check_watched(0, slip, "").unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean '{meant}'?")), "{error}");
        }
    }
}
