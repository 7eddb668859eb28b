//! Mean rewards of a set of completions, with their parts.

use std::collections::BTreeMap;

use grpo_rewards::Outcome;

use crate::means::{mean, standard_error};

/// Measures of completions of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct RewardSummary {
    /// Completions.
    pub samples: usize,
    /// Mean reward over those that have one.
    pub reward: f64,
    /// Its standard error.
    pub reward_error: f64,
    /// Mean of each part of the reward, over the completions that have it.
    pub parts: BTreeMap<&'static str, f64>,
}

impl RewardSummary {
    /// Means of nothing are NaN.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let rewards: Vec<f64> = outcomes.iter().filter_map(Outcome::total).collect();
        let mut parts: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for outcome in outcomes {
            if let Outcome::Scored(scored) = outcome {
                for (name, value) in &scored.parts {
                    parts.entry(name).or_default().push(*value);
                }
            }
        }
        Self {
            samples: outcomes.len(),
            reward: mean(&rewards),
            reward_error: standard_error(&rewards),
            parts: parts.into_iter().map(|(name, values)| (name, mean(&values))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grpo_rewards::Scored;

    #[test]
    fn means_are_over_those_that_have_a_number() {
        let scored = |value: f64, parts| Outcome::Scored(Scored::new(vec![(1.0, value)], parts));
        let outcomes = [
            scored(1.0, vec![("correct", 1.0)]),
            scored(0.0, vec![("correct", 0.0), ("answered", 1.0)]),
            Outcome::Abstained,
        ];
        let summary = RewardSummary::of(&outcomes);
        assert_eq!((summary.samples, summary.reward), (3, 0.5));
        assert!((summary.reward_error - 0.5).abs() < 1e-12, "{summary:?}");
        assert_eq!(summary.parts, [("answered", 1.0), ("correct", 0.5)].into());
        assert!(RewardSummary::of(&[]).reward.is_nan());
    }
}
