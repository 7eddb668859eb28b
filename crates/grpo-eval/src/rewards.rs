//! Mean rewards and their changes.

use std::collections::BTreeMap;

use grpo_data::statistics::{mean, standard_error};
use grpo_data::{Outcome, PartName};

/// Summary of the rewards of a set of completions.
#[derive(Clone, Debug, PartialEq)]
pub struct RewardSummary {
    /// Number of completions.
    pub samples: usize,
    /// Mean reward over all scored completions.
    pub reward: f64,
    /// Standard error of the mean reward.
    pub reward_error: f64,
    /// Mean of each reward component over the completions that have it. Validity is that of all
    /// completions, whether they have a score or not.
    pub parts: BTreeMap<PartName, f64>,
}

impl RewardSummary {
    /// Computes the means. The mean of an empty set of values is NaN.
    pub fn of(outcomes: &[Outcome]) -> Self {
        let rewards: Vec<f64> = outcomes.iter().filter_map(Outcome::total).collect();
        let mut parts: BTreeMap<PartName, Vec<f64>> = BTreeMap::new();
        for (name, value) in outcomes.iter().flat_map(Outcome::parts) {
            parts.entry(name.clone()).or_default().push(value);
        }
        Self {
            samples: outcomes.len(),
            reward: mean(&rewards),
            reward_error: standard_error(&rewards),
            parts: parts.into_iter().map(|(name, values)| (name, mean(&values))).collect(),
        }
    }
}

/// Reward changes between two evaluations of the same prompts.
#[derive(Clone, Debug, PartialEq)]
pub struct RewardChange {
    /// Change of the total reward.
    pub reward: Change,
    /// Change of each reward component that occurs in both evaluations.
    pub parts: BTreeMap<PartName, Change>,
}

/// Difference of two means. The completions of a prompt are not independent, so the error is that
/// of the prompts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Mean after − mean before.
    pub mean: f64,
    /// Standard error of the difference. If all completions have values in both evaluations, it is
    /// that of the paired differences, which does not include the variance between prompts.
    pub error: f64,
}

impl RewardChange {
    /// Compares two evaluations with the same prompts in the same order and `group_size`
    /// completions per prompt.
    ///
    /// # Panics
    /// Panics if `before` and `after` have different lengths.
    pub fn of(before: &[Outcome], after: &[Outcome], group_size: usize) -> Self {
        assert_eq!(before.len(), after.len(), "outcomes belong to the same prompts");
        let change = |of: &dyn Fn(&Outcome) -> Option<f64>| {
            Change::of_values([before, after].map(|outcomes| outcomes.iter().map(of)), group_size)
        };
        let names = RewardSummary::of(before).parts.into_keys();
        let of_part = |name: PartName| {
            let change = change(&|outcome: &Outcome| outcome.part(&name));
            (name, change)
        };
        Self { reward: change(&Outcome::total), parts: names.map(of_part).collect() }
    }
}

impl Change {
    /// Computes the change from the values of all completions before and after, prompt by prompt.
    /// It always equals the difference of the two means. If a completion has no value, e.g. because
    /// its molecule is invalid, there are no pairs, so the errors of both means are added.
    fn of_values<I: Iterator<Item = Option<f64>>>(values: [I; 2], group_size: usize) -> Self {
        let [before, after] = values.map(Iterator::collect::<Vec<_>>);
        let of_prompts = |values: &[Option<f64>]| -> Vec<f64> {
            let groups = values.chunks(group_size);
            let groups = groups.map(|group| group.iter().flatten().copied().collect::<Vec<_>>());
            groups.filter(|group| !group.is_empty()).map(|group| mean(&group)).collect()
        };
        let [of_before, of_after] = [&before, &after].map(|values| of_prompts(values));
        if before.iter().chain(&after).all(Option::is_some) {
            return Self::of_pairs(of_before.into_iter().zip(of_after));
        }
        let [first, last] =
            [&before, &after].map(|all| mean(&all.iter().flatten().copied().collect::<Vec<_>>()));
        let [of_before, of_after] = [of_before, of_after].map(|prompts| standard_error(&prompts));
        Self { mean: last - first, error: of_before.hypot(of_after) }
    }

    /// Computes the change from a (before, after) pair for each prompt.
    pub fn of_pairs(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let differences: Vec<f64> = pairs.map(|(before, after)| after - before).collect();
        Self { mean: mean(&differences), error: standard_error(&differences) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grpo_data::Scored;

    #[test]
    fn complete_changes_are_of_pairs() {
        let scored = |value: f64| Outcome::Scored(Scored::new(vec![(1.0, value)], vec![]));
        let [before, after] = [[0.1, 0.9], [0.2, 1.2]].map(|values| values.map(scored));
        let change = RewardChange::of(&before, &after, 1).reward;
        // The differences are 0.1 and 0.3. Their standard deviation is √0.02, so the standard error
        // is √0.01.
        assert!((change.mean - 0.2).abs() < 1e-12, "{change:?}");
        assert!((change.error - 0.1).abs() < 1e-12, "{change:?}");
    }

    /// The change in a table is the difference of the two means beside it, also if different
    /// completions have a value.
    #[test]
    fn a_change_is_the_difference_of_the_means() {
        let scored = |value: f64, (name, part): (&'static str, f64)| {
            Outcome::Scored(Scored::new(vec![(1.0, value)], vec![(name.into(), part)]))
        };
        let before = [scored(0.1, ("a", 1.0)), scored(0.9, ("a", 2.0)), Outcome::abstained()];
        let after = [scored(0.2, ("a", 3.0)), scored(1.2, ("b", 0.0)), scored(1.0, ("a", 1.0))];
        let change = RewardChange::of(&before, &after, 1);
        let [old, new] = [&before, &after].map(|outcomes| RewardSummary::of(outcomes));
        assert!((change.reward.mean - (new.reward - old.reward)).abs() < 1e-12, "{change:?}");
        assert_eq!(change.parts["a"].mean, new.parts["a"] - old.parts["a"]);
        // The means are 1.5 ± 0.5 and 2 ± 1.
        assert!((change.parts["a"].error - 1.25f64.sqrt()).abs() < 1e-12, "{change:?}");
        assert_eq!(change.parts.len(), 1);
    }

    /// Two prompts with two completions each. Their means are 0.1 and 0.5 before, 0.4 and 1.0
    /// after, so the differences are 0.3 and 0.5.
    #[test]
    fn completions_of_a_prompt_are_one_number() {
        let scored = |value: f64| Outcome::Scored(Scored::new(vec![(1.0, value)], vec![]));
        let before = [scored(0.0), scored(0.2), scored(0.5), scored(0.5)];
        let after = [scored(0.4), scored(0.4), scored(1.5), scored(0.5)];
        let change = RewardChange::of(&before, &after, 2).reward;
        assert!((change.mean - 0.4).abs() < 1e-12, "{change:?}");
        assert!((change.error - 0.1).abs() < 1e-12, "{change:?}");
        // An abstention: the means are 0.7/3 and 0.7, with prompts 0.1, 0.5 and 0.4, 1.0.
        let before = [scored(0.0), scored(0.2), scored(0.5), Outcome::abstained()];
        let change = RewardChange::of(&before, &after, 2).reward;
        assert!((change.mean - (0.7 - 0.7 / 3.0)).abs() < 1e-12, "{change:?}");
        assert!((change.error - 0.2f64.hypot(0.3)).abs() < 1e-12, "{change:?}");
    }

    #[test]
    fn means_are_over_those_that_have_a_number() {
        let scored = |value: f64, parts: Vec<(&'static str, f64)>| {
            let parts = parts.into_iter().map(|(name, part)| (name.into(), part));
            Outcome::Scored(Scored::new(vec![(1.0, value)], parts.collect()))
        };
        let outcomes = [
            scored(1.0, vec![("correct", 1.0)]),
            scored(0.0, vec![("correct", 0.0), ("answered", 1.0)]),
            Outcome::abstained(),
        ];
        let summary = RewardSummary::of(&outcomes);
        assert_eq!((summary.samples, summary.reward), (3, 0.5));
        assert!((summary.reward_error - 0.5).abs() < 1e-12, "{summary:?}");
        assert_eq!(summary.parts, [("answered".into(), 1.0), ("correct".into(), 0.5)].into());
        assert!(RewardSummary::of(&[]).reward.is_nan());
    }
}
