//! Metrics of evaluations.

use grpo_core::MeanAndStd;
use grpo_data::Sample;
use grpo_metrics::MetricSpec;

use super::values::{Metrics, mean_and_std, unique_share};
use crate::{Evaluated, GroupDiversity};

pub(super) const EVALUATIONS: &str = "eval.every";
pub(super) const EVALUATION_GROUPS: &str = "eval.every and an eval.group_size above 1";

/// In the lines of steps with an evaluation.
pub(super) static METRICS: [MetricSpec; 12] = [
    MetricSpec::new("eval_reward", "", "`reward` over the completions of the evaluation")
        .requires(EVALUATIONS)
        .curve("Reward", "held out"),
    MetricSpec::new("eval_reward_std", "≥ 0", "`reward_std` over the same completions")
        .requires(EVALUATIONS),
    MetricSpec::new("eval_rewards/NAME/mean", "", "`rewards/NAME/mean` over the same completions")
        .requires(EVALUATIONS)
        .curve("Reward component: NAME", "held out"),
    MetricSpec::new("eval_rewards/NAME/std", "≥ 0", "`rewards/NAME/std` over the same completions")
        .requires(EVALUATIONS),
    MetricSpec::new("eval_rewards/abstained", "count", "`rewards/abstained` in the evaluation")
        .requires(EVALUATIONS),
    MetricSpec::new("eval_rewards/failed", "count", "`rewards/failed` in the evaluation")
        .requires(EVALUATIONS),
    MetricSpec::new(
        "eval_completions/mean_length",
        "tokens",
        "`completions/mean_length` in the evaluation",
    )
    .requires(EVALUATIONS)
    .curve("Completion length", "held out"),
    MetricSpec::new(
        "eval_completions/unique_ratio",
        "0 to 1",
        "`completions/unique_ratio` in the evaluation",
    )
    .requires(EVALUATIONS),
    MetricSpec::new(
        "eval_self_bleu",
        "0 to 1",
        "mean over prompts of self-BLEU (4-grams) of a prompt's completions",
    )
    .requires(EVALUATION_GROUPS),
    MetricSpec::new(
        "eval_distinct_2",
        "0 to 1",
        "mean over prompts of distinct-2 of a prompt's completions",
    )
    .requires(EVALUATION_GROUPS),
    MetricSpec::new(
        "eval_empty",
        "0 to 1",
        "fraction of completions without a word. Self-BLEU treats them as unlike all others",
    )
    .requires(EVALUATION_GROUPS),
    MetricSpec::new("time/eval", "seconds", "duration of the evaluation")
        .requires(EVALUATIONS)
        .of_machine(),
];

impl Metrics {
    /// Computes the metrics of an evaluation. Names have the prefix `eval_`, except for
    /// `time/eval`. The mean reward requires at least one scored completion, and the standard
    /// deviation two.
    pub(super) fn of_evaluation(evaluated: &Evaluated) -> Self {
        let mut metrics = Self::default();
        let rewards: Vec<f64> = evaluated.samples().filter_map(Sample::reward).collect();
        let reward = MeanAndStd::of(&rewards);
        if !rewards.is_empty() {
            metrics.push("eval_reward", reward.mean);
        }
        if rewards.len() > 1 {
            metrics.push("eval_reward_std", reward.std);
        }
        metrics.push_parts(evaluated.samples(), "eval_", None);
        let lengths = evaluated.samples().map(|sample| sample.completion.actions() as f64);
        metrics
            .push("eval_completions/mean_length", mean_and_std(&lengths.collect::<Vec<f64>>()).0);
        metrics.push("eval_completions/unique_ratio", unique_share(evaluated.samples()));
        if let Some(groups) = evaluated.diversity() {
            let mean = |of: fn(&GroupDiversity) -> f64| {
                groups.iter().map(of).sum::<f64>() / groups.len() as f64
            };
            metrics.push("eval_self_bleu", mean(|group| group.self_bleu));
            metrics.push("eval_distinct_2", mean(|group| group.distinct_2));
            metrics.push("eval_empty", evaluated.empty());
        }
        metrics.push("time/eval", evaluated.time.as_secs_f64());
        metrics
    }
}

#[cfg(test)]
mod tests {
    use grpo_data::Outcome;

    use super::*;

    #[test]
    fn an_evaluation_without_rewards_has_no_mean_of_them() {
        let metrics = |outcomes: &[Outcome]| {
            let one = |outcome: &Outcome| crate::test_groups::group(vec![outcome.clone()]);
            let groups = outcomes.iter().map(one).collect();
            Metrics::of_evaluation(&Evaluated { groups, time: std::time::Duration::ZERO })
        };
        let scored = || Outcome::Scored(grpo_data::Scored::new(vec![(1.0, 0.5)], vec![]));
        let has = |outcomes: &[Outcome]| {
            let metrics = metrics(outcomes);
            assert!(metrics.iter().all(|(_, value)| value.is_finite()), "{metrics:?}");
            ["eval_reward", "eval_reward_std"].map(|name| metrics.get(name).is_some())
        };
        assert_eq!(has(&[Outcome::abstained(), Outcome::abstained()]), [false, false]);
        assert_eq!(has(&[scored(), Outcome::abstained()]), [true, false]);
        assert_eq!(has(&[scored(), scored()]), [true, true]);
    }
}
