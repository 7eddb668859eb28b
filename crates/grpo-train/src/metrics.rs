//! Metrics for each step. The names follow TRL so that existing dashboards work.

use std::collections::{BTreeMap, BTreeSet};

use grpo_core::MeanAndStd;
use grpo_data::statistics::{mean, sample_variance};
use grpo_data::{Completion, Finish, Group, Outcome, Sample};
use grpo_rewards::ExternalCalls;
use serde::{Serialize, Serializer};

use crate::metric_names::is_of_machine;
use crate::reward_shares::reward_shares;
use crate::{Evaluated, GroupDiversity, LearnResult, Phases, RewardNames, StepReport};

/// Metric names and values in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    values: Vec<(String, f64)>,
    /// Metrics that may be missing in this step but present in others.
    possible: Vec<String>,
}

impl Metrics {
    /// Returns the value of a metric, or `None` if it was not measured.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns whether a step in this run can have the metric. It may be missing from the current
    /// step, e.g. if no completion was scored.
    pub fn is_of_run(&self, name: &str) -> bool {
        self.get(name).is_some() || self.possible.iter().any(|possible| possible == name)
    }

    /// Returns whether the metric is a measurement of time, speed or memory, which differs between
    /// machines.
    pub fn is_machine(name: &str) -> bool {
        is_of_machine(name)
    }

    /// Returns an iterator over names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Creates metrics from name-value pairs.
    pub fn of_pairs(pairs: &[(&str, f64)]) -> Self {
        let values = pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Self { values, possible: Vec::new() }
    }

    /// Declares metrics that other steps in the run can have.
    pub(crate) fn and_possible(mut self, names: &[&str]) -> Self {
        self.possible = names.iter().map(|name| name.to_string()).collect();
        self
    }

    fn push(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value));
    }

    /// Computes the metrics for a step. `num_tokens` is the total number of tokens in the run so
    /// far.
    ///
    /// With the same seed, all metrics are reproducible except those for which [`Self::is_machine`]
    /// returns true.
    pub fn of(report: &StepReport, num_tokens: u64) -> Self {
        let mut metrics = Self::default();
        let learned = &report.learned;
        metrics.push("step", f64::from(report.step + 1));
        // Excludes the bonus and the KL penalty.
        let rewards: Vec<f64> = report.samples().filter_map(Sample::reward).collect();
        let reward = MeanAndStd::of(&rewards);
        metrics.push("reward", reward.mean);
        metrics.push("reward_std", reward.std);
        let ends = [
            ("reward_min", rewards.iter().copied().reduce(f64::min)),
            ("reward_max", rewards.iter().copied().reduce(f64::max)),
        ];
        for (name, end) in ends {
            end.into_iter().for_each(|end| metrics.push(name, end));
        }
        metrics.push_shares(report);
        let advantages = report.samples().map(|sample| sample.advantage.abs());
        metrics.push("advantage_max", advantages.fold(0.0, f64::max));
        metrics.push("frac_reward_zero_std", learned.zero_std_share);
        metrics.push_parts(report.samples(), report.names.bonus);
        for (name, value) in &report.extensions {
            metrics.push(*name, *value);
        }
        metrics.push_tokens(learned);
        metrics.push("loss", learned.loss());
        metrics.push("policy_loss", learned.policy_loss());
        metrics.push("kl_penalty", learned.kl_penalty());
        metrics.push("grad_norm", learned.grad_norm());
        metrics.push("learning_rate", report.learning_rate);
        metrics.push_lengths(report);
        let characters = report.samples().map(|sample| sample.text.chars().count() as f64);
        metrics.push("completions/mean_characters", mean(&characters.collect::<Vec<f64>>()));
        metrics.push("completions/unique_ratio", unique_share(report.samples()));
        metrics.push("completions/collapsed_groups", collapsed_share(&report.groups));
        metrics.push("num_tokens", num_tokens as f64);
        metrics.push_times(report);
        metrics.possible = reward_metrics(&report.names);
        metrics
    }

    /// Computes the metrics of an evaluation. Names have the prefix `eval_`, except for
    /// `time/eval`. The mean reward requires at least one scored completion, and the standard
    /// deviation two.
    pub(crate) fn of_evaluation(evaluated: &Evaluated) -> Self {
        let mut seen = Self::default();
        let rewards: Vec<f64> = evaluated.samples().filter_map(Sample::reward).collect();
        let reward = MeanAndStd::of(&rewards);
        if !rewards.is_empty() {
            seen.push("reward", reward.mean);
        }
        if rewards.len() > 1 {
            seen.push("reward_std", reward.std);
        }
        seen.push_parts(evaluated.samples(), None);
        let lengths = evaluated.samples().map(|sample| sample.completion.actions() as f64);
        seen.push("completions/mean_length", mean_and_std(&lengths.collect::<Vec<f64>>()).0);
        seen.push("completions/unique_ratio", unique_share(evaluated.samples()));
        if let Some(groups) = evaluated.diversity() {
            let mean = |of: fn(&GroupDiversity) -> f64| {
                groups.iter().map(of).sum::<f64>() / groups.len() as f64
            };
            seen.push("self_bleu", mean(|group| group.self_bleu));
            seen.push("distinct_2", mean(|group| group.distinct_2));
            seen.push("empty", evaluated.empty());
        }
        let named = seen.values.into_iter().map(|(name, value)| (format!("eval_{name}"), value));
        let mut metrics = Self { values: named.collect(), possible: Vec::new() };
        metrics.push("time/eval", evaluated.time.as_secs_f64());
        metrics
    }

    /// Appends the metrics in `more`.
    pub(crate) fn extend(&mut self, more: Self) {
        self.values.extend(more.values);
    }

    /// Adds `reward_share/{term}` and `reward_dominance` if the reward has multiple terms.
    fn push_shares(&mut self, report: &StepReport) {
        let Some(shares) = reward_shares(&report.groups) else { return };
        for (place, share) in shares.iter().enumerate() {
            let names = &report.names.terms;
            let name =
                names.get(place).map_or_else(|| format!("{}", place + 1), |name| name.to_string());
            self.push(format!("reward_share/{name}"), *share);
        }
        self.push(
            "reward_dominance",
            shares.iter().fold(0.0, |most: f64, share| most.max(share.abs())),
        );
    }

    /// Adds the mean and standard deviation of each reward component and of the bonus, if there is one
    /// of this name, and the number of completions without a reward.
    fn push_parts<'a>(
        &mut self,
        samples: impl Iterator<Item = &'a Sample> + Clone,
        bonus: Option<&str>,
    ) {
        let mut parts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let outcomes = samples.clone().filter_map(|sample| sample.outcome.as_ref());
        for (name, value) in outcomes.flat_map(Outcome::parts) {
            parts.entry(name).or_default().push(value);
        }
        for (name, values) in parts {
            self.push_mean_and_std(&format!("rewards/{name}"), &values);
        }
        let bonuses: Vec<f64> = samples.clone().filter_map(|s| Some(s.bonus?.total())).collect();
        if let Some(bonus) = bonus.filter(|_| !bonuses.is_empty()) {
            self.push_mean_and_std(bonus, &bonuses);
        }
        let count = |what: fn(&Outcome) -> bool| {
            samples.clone().filter(|s| s.outcome.as_ref().is_some_and(what)).count() as f64
        };
        self.push("rewards/abstained", count(|o| matches!(o, Outcome::Abstained { .. })));
        self.push("rewards/failed", count(|o| matches!(o, Outcome::Failed { .. })));
    }

    fn push_mean_and_std(&mut self, name: &str, values: &[f64]) {
        let (mean, std) = mean_and_std(values);
        self.push(format!("{name}/mean"), mean);
        self.push(format!("{name}/std"), std);
    }

    fn push_tokens(&mut self, learned: &LearnResult) {
        for (name, value) in learned.tokens().metrics() {
            self.push(name, value);
        }
        if let Some(corrected) = learned.corrected {
            self.push("sampling/corrected", f64::from(u8::from(corrected)));
        }
        self.push("kl_coef", learned.kl_coef);
        self.push("reference_age", learned.reference_age as f64);
        if let Some(kl) = learned.reward_kl {
            self.push("reward_kl", kl);
        }
        if let Some(coef) = learned.entropy_coef() {
            self.push("entropy_coef", coef);
        }
    }

    /// Adds `completions/{mean, min, max}_length`, the same statistics for terminated completions,
    /// and the fraction of completions that were cut off.
    fn push_lengths(&mut self, report: &StepReport) {
        let completions: Vec<&Completion> =
            report.samples().map(|sample| &sample.completion).collect();
        let lengths = |which: &dyn Fn(&Completion) -> bool| -> Vec<f64> {
            let chosen = completions.iter().filter(|completion| which(completion));
            chosen.map(|completion| completion.actions() as f64).collect()
        };
        let ended = |completion: &Completion| completion.finish() != Finish::Length;
        for (kind, lengths) in
            [("length", lengths(&|_| true)), ("terminated_length", lengths(&ended))]
        {
            let mean = if lengths.is_empty() { 0.0 } else { mean_and_std(&lengths).0 };
            let min = lengths.iter().copied().reduce(f64::min).unwrap_or(0.0);
            let max = lengths.iter().copied().reduce(f64::max).unwrap_or(0.0);
            self.push(format!("completions/mean_{kind}"), mean);
            self.push(format!("completions/min_{kind}"), min);
            self.push(format!("completions/max_{kind}"), max);
        }
        let cut = completions.iter().filter(|completion| !ended(completion)).count();
        self.push("completions/clipped_ratio", cut as f64 / completions.len() as f64);
    }

    fn push_times(&mut self, report: &StepReport) {
        let observed = &report.observed;
        let Phases { rollout, reward, update } = observed.times;
        let all = (rollout + reward + update).as_secs_f64();
        self.push("step_time", all);
        self.push("time/rollout", rollout.as_secs_f64());
        self.push("time/reward", reward.as_secs_f64());
        self.push("time/update", update.as_secs_f64());
        let parts = report.learned.times;
        self.push("time/reference", parts.reference.as_secs_f64());
        self.push("time/forward", parts.forward.as_secs_f64());
        self.push("time/backward", parts.backward.as_secs_f64());
        self.push("time/optimizer", parts.optimizer.as_secs_f64());
        self.push("time/reused", report.learned.reused);
        self.push("tokens_per_second", report.actions() as f64 / all);
        observed.calls.iter().for_each(|calls| self.push_calls(calls));
        if let Some(memory) = observed.memory {
            self.push("memory/rss", memory.now as f64);
            self.push("memory/peak", memory.peak as f64);
        }
        if let Some(after) = observed.phase_memory {
            self.push("memory/rollout", after.rollout as f64);
            self.push("memory/reward", after.reward as f64);
            self.push("memory/update", after.update as f64);
        }
    }
    /// Adds the times of the completions that an external reward scored, and the number of those
    /// that it did not need to score again.
    fn push_calls(&mut self, calls: &ExternalCalls) {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            let seconds = calls.quantile(share);
            seconds.into_iter().for_each(|it| self.push(format!("time/reward_item/{name}"), it));
        }
        if let Some(slowest) = calls.slowest() {
            self.push("time/reward_item/slowest_prompt", f64::from(slowest.group));
            self.push("time/reward_item/slowest_sample", f64::from(slowest.sample));
        }
        self.push("reward_cache/hits", calls.cache_hits as f64);
    }
}

impl Evaluated {
    /// Returns the evaluation metrics. Names have the prefix `eval_`.
    pub fn metrics(&self) -> Metrics {
        Metrics::of_evaluation(self)
    }
}

/// Returns the names of metrics that depend on the number of scored completions.
pub(crate) fn reward_metrics(names: &RewardNames) -> Vec<String> {
    let ends = ["reward_min", "reward_max"].map(str::to_owned);
    let RewardNames { terms, parts, extensions, .. } = names;
    let parts = parts.iter().map(|part| format!("rewards/{part}"));
    let parts = parts.flat_map(|name| ["mean", "std"].map(|of| format!("{name}/{of}")));
    let shares = terms.iter().map(|term| format!("reward_share/{term}"));
    let shares = shares.chain(["reward_dominance".to_owned()]).filter(|_| terms.len() > 1);
    ends.into_iter().chain(parts).chain(extensions.iter().cloned()).chain(shares).collect()
}

/// Returns the fraction of distinct texts.
fn unique_share<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let texts: Vec<&str> = samples.map(|sample| &*sample.text).collect();
    texts.iter().collect::<BTreeSet<_>>().len() as f64 / texts.len() as f64
}

/// Returns the fraction of groups whose completions all have one text, the same in each of these
/// groups. If all prompts are equal, it is 0, because their answer may be the right one.
fn collapsed_share(groups: &[Group]) -> f64 {
    let mut of_text: BTreeMap<&str, usize> = BTreeMap::new();
    for group in groups {
        let mut texts = group.samples.iter().map(|sample| &*sample.text);
        let Some(first) = texts.next() else { continue };
        if texts.all(|text| text == first) {
            *of_text.entry(first).or_default() += 1;
        }
    }
    let are_equal = groups.iter().all(|group| group.prompt.ids == groups[0].prompt.ids);
    let most = of_text.into_values().max().filter(|_| !are_equal).unwrap_or(0);
    most as f64 / groups.len() as f64
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.values.iter().map(|(name, value)| (name, Number(*value))))
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
