//! Rewards as advantages take them: some functions of each completion, and what each counts.

use grpo_core::Aggregation;
use grpo_rewards::{Outcome, Scored};

/// Rewards `[completion][function]`, and weights `[function]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RewardFunctions {
    rewards: Vec<Vec<Option<f64>>>,
    weights: Vec<f64>,
}

impl RewardFunctions {
    /// One function, the total; or the terms of it, where these are normalised apart.
    ///
    /// # Panics
    /// Where completions have terms of other weights than the first scored one.
    pub(crate) fn new(outcomes: &[Outcome], aggregation: Aggregation) -> Self {
        let terms_of = |scored: &Scored| match aggregation {
            Aggregation::SumThenNormalize => vec![(1.0, scored.total)],
            Aggregation::NormalizeThenSum => scored.terms.clone(),
        };
        let scored = |outcome: &Outcome| match outcome {
            Outcome::Scored(scored) => Some(terms_of(scored)),
            Outcome::Abstained | Outcome::Failed { .. } => None,
        };
        let terms: Vec<Option<Vec<(f64, f64)>>> = outcomes.iter().map(scored).collect();
        let first = terms.iter().flatten().next().cloned().unwrap_or(vec![(1.0, 0.0)]);
        let weights: Vec<f64> = first.into_iter().map(|(weight, _)| weight).collect();
        let rewards = terms
            .into_iter()
            .map(|terms| match terms {
                Some(terms) => {
                    let (own, values): (Vec<f64>, Vec<f64>) = terms.into_iter().unzip();
                    assert_eq!(own, weights, "every completion has the same reward functions");
                    values.into_iter().map(Some).collect()
                }
                None => vec![None; weights.len()],
            })
            .collect();
        Self { rewards, weights }
    }

    /// Adds a function of weight `−coef`; a completion that no function scored stays without a reward.
    pub(crate) fn subtract(&mut self, coef: f64, of_completions: &[f64]) {
        self.weights.push(-coef);
        for (rewards, &value) in self.rewards.iter_mut().zip(of_completions) {
            let is_scored = rewards.iter().any(Option::is_some);
            rewards.push(is_scored.then_some(value));
        }
    }

    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// `[group][completion][function]`.
    pub(crate) fn by_group(&self, group_size: usize) -> Vec<Vec<Vec<Option<f64>>>> {
        self.rewards.chunks(group_size).map(<[_]>::to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(terms: &[(f64, f64)]) -> Outcome {
        Outcome::Scored(Scored::new(terms.to_vec(), vec![]))
    }

    #[test]
    fn a_total_or_its_terms() {
        let outcomes = [scored(&[(0.7, 0.5), (0.3, 1.0)]), Outcome::Abstained];
        let total = RewardFunctions::new(&outcomes, Aggregation::SumThenNormalize);
        assert_eq!(total.rewards, [vec![Some(0.7 * 0.5 + 0.3)], vec![None]]);
        assert_eq!(total.weights, [1.0]);
        let terms = RewardFunctions::new(&outcomes, Aggregation::NormalizeThenSum);
        assert_eq!(terms.rewards, [vec![Some(0.5), Some(1.0)], vec![None, None]]);
        assert_eq!(terms.weights, [0.7, 0.3]);
    }

    #[test]
    fn a_penalty_is_one_more_function() {
        let outcomes = [scored(&[(1.0, 0.5)]), Outcome::Abstained, scored(&[(1.0, 2.0)])];
        let mut rewards = RewardFunctions::new(&outcomes, Aggregation::SumThenNormalize);
        rewards.subtract(0.1, &[3.0, 4.0, 5.0]);
        assert_eq!(rewards.weights, [1.0, -0.1]);
        let expected = [vec![Some(0.5), Some(3.0)], vec![None, None], vec![Some(2.0), Some(5.0)]];
        assert_eq!(rewards.rewards, expected);
        assert_eq!(rewards.by_group(3), [expected.to_vec()]);
    }
}
