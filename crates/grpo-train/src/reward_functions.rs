//! Rewards from multiple functions, along with their weights.

use grpo_core::Aggregation;
use grpo_data::{Bonus, Group, Sample};

/// Rewards `[group][completion][function]` and weights `[function]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RewardFunctions {
    pub(crate) rewards: Vec<Vec<Vec<Option<f64>>>>,
    pub(crate) weights: Vec<f64>,
}

impl RewardFunctions {
    /// Collects rewards for the given aggregation. If terms are normalised separately, each term is
    /// a reward function. Otherwise, the sum of the reward and the bonus is the only one.
    ///
    /// # Panics
    /// Panics if the weight of a term differs between completions.
    pub(crate) fn new(groups: &[Group], aggregation: Aggregation) -> Self {
        let samples = || groups.iter().flat_map(|group| &group.samples);
        let bonus_weight = samples().find_map(|sample| Some(sample.bonus?.weight));
        let functions = |sample: &Sample| -> Option<Vec<(f64, Option<f64>)>> {
            let scored = sample.scored()?;
            Some(match aggregation {
                Aggregation::SumThenNormalize => {
                    let bonus = sample.bonus.map_or(0.0, Bonus::total);
                    vec![(1.0, Some(scored.total + bonus))]
                }
                Aggregation::NormalizeThenSum => {
                    let terms = scored.terms.iter().map(|&(weight, value)| (weight, Some(value)));
                    let bonus = sample.bonus.map(|bonus| bonus.value);
                    terms.chain(bonus_weight.map(|weight| (weight, bonus))).collect()
                }
            })
        };
        let first = samples().find_map(functions).unwrap_or(vec![(1.0, None)]);
        let weights: Vec<f64> = first.into_iter().map(|(weight, _)| weight).collect();
        let rewards = |sample: &Sample| match functions(sample) {
            Some(functions) => {
                let (own, values): (Vec<f64>, Vec<Option<f64>>) = functions.into_iter().unzip();
                assert_eq!(own, weights, "all completions must have the same reward functions");
                values
            }
            None => vec![None; weights.len()],
        };
        let rewards = groups.iter().map(|group| group.samples.iter().map(rewards).collect());
        Self { rewards: rewards.collect(), weights }
    }

    /// Adds a reward function with weight `−coef` and one value per completion, in order.
    /// Completions that have not been scored remain unscored.
    pub(crate) fn subtract(&mut self, coef: f64, of_completions: &[f64]) {
        self.weights.push(-coef);
        for (rewards, &value) in self.rewards.iter_mut().flatten().zip(of_completions) {
            let is_scored = rewards.iter().any(Option::is_some);
            rewards.push(is_scored.then_some(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_groups::group;
    use grpo_data::{Outcome, Scored};

    fn scored(terms: &[(f64, f64)]) -> Outcome {
        Outcome::Scored(Scored::new(terms.to_vec(), vec![]))
    }

    #[test]
    fn a_total_or_its_terms() {
        let groups = [group(vec![scored(&[(0.7, 0.5), (0.3, 1.0)]), Outcome::abstained()])];
        let total = RewardFunctions::new(&groups, Aggregation::SumThenNormalize);
        assert_eq!(total.rewards, [[vec![Some(0.7 * 0.5 + 0.3)], vec![None]]]);
        assert_eq!(total.weights, [1.0]);
        let terms = RewardFunctions::new(&groups, Aggregation::NormalizeThenSum);
        assert_eq!(terms.rewards, [[vec![Some(0.5), Some(1.0)], vec![None, None]]]);
        assert_eq!(terms.weights, [0.7, 0.3]);
    }

    /// The bonus is either added to the total or kept as a separate term, which is missing for
    /// completions without a bonus.
    #[test]
    fn adds_the_bonus_to_the_reward() {
        let mut groups = [group(vec![scored(&[(1.0, 0.5)]), scored(&[(1.0, 0.25)])])];
        groups[0].samples[1].bonus = Some(Bonus { weight: 0.1, value: 3.0 });
        let total = RewardFunctions::new(&groups, Aggregation::SumThenNormalize);
        assert_eq!(total.rewards, [[[Some(0.5)], [Some(0.25 + 0.1 * 3.0)]]]);
        let terms = RewardFunctions::new(&groups, Aggregation::NormalizeThenSum);
        assert_eq!(terms.rewards, [[[Some(0.5), None], [Some(0.25), Some(3.0)]]]);
        assert_eq!(terms.weights, [1.0, 0.1]);
    }

    #[test]
    fn a_penalty_is_one_more_function() {
        let outcomes = vec![scored(&[(1.0, 0.5)]), Outcome::abstained(), scored(&[(1.0, 2.0)])];
        let mut rewards = RewardFunctions::new(&[group(outcomes)], Aggregation::SumThenNormalize);
        rewards.subtract(0.1, &[3.0, 4.0, 5.0]);
        assert_eq!(rewards.weights, [1.0, -0.1]);
        let expected = [vec![Some(0.5), Some(3.0)], vec![None, None], vec![Some(2.0), Some(5.0)]];
        assert_eq!(rewards.rewards, [expected]);
    }
}
