//! The stages of a trial: what a run did in its beginning, its middle and its end.

use grpo_data::statistics::{mean, standard_error};
use serde_json::{Map, Value};

use crate::series::values_of;

/// Means over the steps of a stage. `None` where none of its steps has the metric as a finite number.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The first step, from 1.
    pub first: u64,
    /// The last step that it was to have; a run that ended early did not do it.
    pub last: u64,
    /// Steps of it that were done.
    pub done: usize,
    /// `reward`.
    pub reward: Option<f64>,
    /// The standard error of that mean, from the scatter of the steps; `None` for less than two.
    pub reward_error: Option<f64>,
    /// `kl`, in nats a token.
    pub kl: Option<f64>,
    /// `kl_sequence`, in nats a completion.
    pub kl_sequence: Option<f64>,
    /// `rewards/valid/mean`.
    pub validity: Option<f64>,
    /// `entropy`, in nats a token.
    pub entropy: Option<f64>,
    /// `completions/mean_length`, in tokens.
    pub length: Option<f64>,
    /// `frac_reward_zero_std`.
    pub zero_std: Option<f64>,
    /// `grad_norm`, before it is clipped.
    pub grad_norm: Option<f64>,
}

/// The stages of a run of `steps` steps: the first tenth, then up to the half, then the rest. `metrics` are the lines of its
/// `metrics.jsonl`.
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
    let of = |name: &str| Some(finite(name)).filter(|values| !values.is_empty()).map(|v| mean(&v));
    let rewards = finite("reward");
    let error = || standard_error(&rewards);
    Stage {
        first,
        last,
        done: values("reward").len(),
        reward: of("reward"),
        reward_error: (rewards.len() > 1).then(error),
        kl: of("kl"),
        kl_sequence: of("kl_sequence"),
        validity: of("rewards/valid/mean"),
        entropy: of("entropy"),
        length: of("completions/mean_length"),
        zero_std: of("frac_reward_zero_std"),
        grad_norm: of("grad_norm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(steps: u64) -> Vec<Map<String, Value>> {
        let line = |step: u64| {
            // As they stand in the file, where a mean of no rewards is null.
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
        // No stage without a step.
        assert_eq!(bounds(4), [(1, 2), (3, 4)]);
        assert_eq!(bounds(1), [(1, 1)]);
    }

    #[test]
    fn means_of_the_steps_that_are_there() {
        let stages = stages(&lines(7), 20);
        let [first, second, third] = stages.as_slice() else { panic!("{stages:?}") };
        // Steps 1 and 2: (1 + 4)/2, and a deviation of √4.5 over √2.
        assert_eq!((first.done, first.reward, first.reward_error), (2, Some(2.5), Some(1.5)));
        assert_eq!(first.kl, Some(0.015));
        // Steps 3 to 7, of which 3 has no reward: (16 + 25 + 36 + 49)/4.
        assert_eq!((second.done, second.reward), (5, Some(31.5)));
        assert_eq!(second.kl.map(|kl| (kl * 1e9).round()), Some(5e7));
        assert_eq!((third.done, third.reward, third.reward_error, third.kl), (0, None, None, None));
        assert_eq!((first.validity, first.grad_norm), (None, None));
    }

    #[test]
    fn one_step_has_no_error() {
        assert_eq!(stages(&lines(1), 10)[0].reward_error, None);
    }
}
