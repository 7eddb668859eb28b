//! Splits a trial into beginning, middle and end.

use std::collections::{BTreeMap, BTreeSet};

use grpo_data::statistics::{mean, standard_error};
use serde_json::{Map, Value};

use crate::series::values_of;

/// A range of consecutive steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// First step, starting at 1.
    pub first: u64,
    /// Last planned step. If the run ended early, it may not have been reached.
    pub last: u64,
    /// Number of completed steps.
    pub done: usize,
    /// Standard error of the mean reward, estimated from the variation between steps. `None` for
    /// fewer than two steps.
    pub reward_error: Option<f64>,
    means: BTreeMap<String, f64>,
}

impl Stage {
    /// Returns the mean of a metric over all steps with a finite value, or `None` if there are
    /// none.
    pub fn mean(&self, metric: &str) -> Option<f64> {
        self.means.get(metric).copied()
    }
}

/// Splits a run of `steps` steps into stages: the first tenth, the rest of the first half, and the
/// second half. `metrics` are the lines of `metrics.jsonl`.
pub fn stages(metrics: &[Map<String, Value>], steps: u64) -> Vec<Stage> {
    let ends = [0, steps / 10, steps / 2, steps];
    let pairs = ends.windows(2).filter(|pair| pair[0] < pair[1]);
    pairs.map(|pair| stage(metrics, pair[0] + 1, pair[1])).collect()
}

fn stage(metrics: &[Map<String, Value>], first: u64, last: u64) -> Stage {
    let values = |name: &str| -> Vec<f64> {
        let of_stage =
            values_of(metrics, name).into_iter().filter(|(step, _)| (first..=last).contains(step));
        of_stage.map(|(_, value)| value).collect()
    };
    let finite = |name: &str| -> Vec<f64> {
        values(name).into_iter().filter(|value| value.is_finite()).collect()
    };
    let names: BTreeSet<&String> = metrics.iter().flat_map(Map::keys).collect();
    let means = names.into_iter().filter_map(|name| {
        let values = finite(name);
        (!values.is_empty()).then(|| (name.clone(), mean(&values)))
    });
    let rewards = finite("reward");
    Stage {
        first,
        last,
        done: values("reward").len(),
        reward_error: (rewards.len() > 1).then(|| standard_error(&rewards)),
        means: means.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(steps: u64) -> Vec<Map<String, Value>> {
        let line = |step: u64| {
            // In the file, the mean of no rewards is `null`.
            let reward = if step == 3 { Value::Null } else { Value::from(step * step) };
            Map::from_iter([
                ("step".to_owned(), step.into()),
                ("reward".to_owned(), reward),
                ("kl".to_owned(), (step as f64 / 100.0).into()),
            ])
        };
        (1..=steps).map(line).collect()
    }

    fn bounds(steps: u64) -> Vec<(u64, u64)> {
        stages(&[], steps).iter().map(|stage| (stage.first, stage.last)).collect()
    }

    #[test]
    fn a_tenth_a_half_and_the_rest() {
        assert_eq!(bounds(100), [(1, 10), (11, 50), (51, 100)]);
        assert_eq!(bounds(25), [(1, 2), (3, 12), (13, 25)]);
        // Empty stages are omitted.
        assert_eq!(bounds(4), [(1, 2), (3, 4)]);
        assert_eq!(bounds(1), [(1, 1)]);
    }

    #[test]
    fn means_of_the_steps_that_are_there() {
        let stages = stages(&lines(7), 20);
        let [first, second, third] = stages.as_slice() else { panic!("{stages:?}") };
        // Steps 1 and 2: mean (1 + 4)/2, standard error √4.5/√2.
        assert_eq!(
            (first.done, first.mean("reward"), first.reward_error),
            (2, Some(2.5), Some(1.5))
        );
        assert_eq!(first.mean("kl"), Some(0.015));
        // Steps 3 to 7 without step 3, which has no reward: (16 + 25 + 36 + 49)/4.
        assert_eq!((second.done, second.mean("reward")), (5, Some(31.5)));
        assert_eq!(second.mean("kl").map(|kl| (kl * 1e9).round()), Some(5e7));
        assert_eq!((third.done, third.reward_error), (0, None));
        assert_eq!((third.mean("reward"), third.mean("kl")), (None, None));
        assert_eq!((first.mean("rewards/valid/mean"), first.mean("grad_norm")), (None, None));
    }

    #[test]
    fn one_step_has_no_error() {
        assert_eq!(stages(&lines(1), 10)[0].reward_error, None);
    }
}
