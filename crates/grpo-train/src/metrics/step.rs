//! Metrics of a step: rewards, loss and completions.

use std::collections::BTreeMap;

use grpo_core::{CORRECTION, LossConfig, MeanAndStd};
use grpo_data::statistics::mean;
use grpo_data::{Completion, Finish, Group, Outcome, Sample};
use grpo_metrics::{MetricSpec, Role};

use super::evaluation::{EVALUATION_GROUPS, EVALUATIONS};
use super::machine::{EXTERNAL_REWARD, LINUX};
use super::values::{Metrics, mean_and_std, unique_share};
use crate::reward_shares::reward_shares;
use crate::{GrpoConfig, LearnResult, StepReport};

/// A step with several reward terms.
pub(crate) const TERMS: &str = "a reward with several terms";
const KL_IN_REWARD: &str = "loss.kl_placement = \"reward\" and a positive loss.kl_coef";
const ENTROPY_BONUS: &str = "loss.entropy_bonus";
const CORRECTED: &str = "sampler_check.above = \"correct\"";

const REWARD: &str = "Reward";
const COMPONENT: &str = "Reward component: NAME";
const LENGTH: &str = "Completion length";
const UNIQUE: &str = "Unique completions";
const LOSSES: &str = "Loss";

pub(super) static REWARDS: [MetricSpec; 13] = [
    MetricSpec::new("step", "from 1", "steps completed, including this one").hidden(),
    MetricSpec::new("reward", "", "mean reward of the scored completions, without KL penalty and diversity bonus")
        .curve(REWARD, "training"),
    MetricSpec::new("reward_std", "≥ 0", "sample standard deviation of the same rewards over all groups")
        .in_chart(REWARD, Role::Deviation),
    MetricSpec::new("reward_min", "", "smallest reward of the scored completions"),
    MetricSpec::new("reward_max", "", "largest reward of the scored completions"),
    MetricSpec::new("rewards/NAME/mean", "", "mean of a reward component, over the completions that have it ([components](#reward-components)). `valid` is that of all completions whose validity the task knows, i.e. of all molecules, with or without a score")
        .label("NAME")
        .curve(COMPONENT, "training"),
    MetricSpec::new("rewards/NAME/std", "≥ 0", "standard deviation of the same component").hidden(),
    MetricSpec::new("rewards/abstained", "count", "completions without a reward because it abstained; those beyond `train.max_reward_calls` count as abstained"),
    MetricSpec::new("rewards/failed", "count", "completions without a reward because it failed")
        .above("completions whose reward failed do not contribute to training"),
    MetricSpec::new("reward_share/NAME", "shares sum to 1", "share of a weighted term `t` in the variance of the total `r` within groups, Σ t r / Σ r² after subtracting the group mean from both. Negative for a term that opposes the others; 0 for all terms if `r` is constant in every group")
        .requires(TERMS),
    MetricSpec::new("reward_dominance", "≥ 0", "largest absolute `reward_share`; near 1, one term alone decides")
        .requires(TERMS),
    MetricSpec::new("advantage_max", "≥ 0", "largest absolute advantage |Â|"),
    MetricSpec::new("frac_reward_zero_std", "0 to 1", "fraction of completions in groups whose rewards are all equal, or in which no completion has a reward; relative to their own mean, they teach nothing. A group in which a single completion has a reward is not counted, as in TRL: its standard deviation is undefined. Includes a KL penalty in the reward. With `normalize_then_sum` it compares the sums of normalised rewards. Unlike TRL's, it always counts per group")
        .label("equal groups")
        .curve("Groups without signal", "")
        .above("nearly all groups have equal rewards or none, so there is almost no training signal"),
];

pub(super) static DIVERGENCE: [MetricSpec; 3] = [
    MetricSpec::new(
        "reward_kl",
        "nats",
        "mean over completions of Σ_t KL, before multiplying by β",
    )
    .requires(KL_IN_REWARD)
    .curve("KL to the reference", "in the reward"),
    MetricSpec::new("kl_coef", "≥ 0", "β").curve("KL coefficient", ""),
    MetricSpec::new(
        "reference_age",
        "count",
        "number of earlier steps that used the same reference",
    ),
];

pub(super) static POLICY: [MetricSpec; 1] =
    [MetricSpec::new("entropy_coef", "≥ 0", "α of the last update").requires(ENTROPY_BONUS)];

pub(super) static SAMPLER: [MetricSpec; 1] = [MetricSpec::new(
    "sampling/corrected",
    "0 or 1",
    "1 if a token differed by more than 0.001 nats and the step was corrected",
)
.requires(CORRECTED)];

pub(super) static LOSS: [MetricSpec; 5] = [
    MetricSpec::new("loss", "", "mean loss of the updates. With a clipped surrogate and ρ = 1 its value is close to β · `kl` regardless of what is learned: it is not a measure of progress")
        .curve(LOSSES, "total"),
    MetricSpec::new("policy_loss", "", "surrogate part of the GRPO loss. It is near 0 and need not fall: advantages have mean 0 in each group, so the loss measures how a step pushes, not how good the policy is. Watch `reward` and the evaluations")
        .curve(LOSSES, "surrogate"),
    MetricSpec::new("kl_penalty", "", "KL part of the GRPO loss, with β and the weights of the reduction; 0 if the penalty is in the reward. `loss` is `policy_loss` + `kl_penalty` − entropy bonus, unless there is a combined loss. With an entropy bonus, TRL's `policy_loss` is the sum of both parts")
        .curve(LOSSES, "KL penalty"),
    MetricSpec::new("grad_norm", "≥ 0", "mean over the optimizer steps of the global gradient norm before clipping, including steps with examples only")
        .label("gradient")
        .curve("Gradient norm", ""),
    MetricSpec::new("learning_rate", "", "learning rate of the updates").curve("Learning rate", ""),
];

pub(super) static COMPLETIONS: [MetricSpec; 11] = [
    MetricSpec::new("completions/mean_length", "tokens", "mean number of tokens of a completion")
        .label("length")
        .curve(LENGTH, "training"),
    MetricSpec::new("completions/min_length", "tokens", "smallest number of tokens of a completion")
        .in_chart(LENGTH, Role::Minimum),
    MetricSpec::new("completions/max_length", "tokens", "largest number of tokens of a completion")
        .in_chart(LENGTH, Role::Maximum),
    MetricSpec::new("completions/mean_terminated_length", "tokens", "`mean_length` over completions that ended with an end token or a stop string; 0 if none did"),
    MetricSpec::new("completions/min_terminated_length", "tokens", "`min_length` over the same completions"),
    MetricSpec::new("completions/max_terminated_length", "tokens", "`max_length` over the same completions"),
    MetricSpec::new("completions/clipped_ratio", "0 to 1", "fraction of completions that reached `max_new_tokens` without an end token or a stop string")
        .curve("Truncated completions", "")
        .above("few completions reach an end token; sampling.max_new_tokens is too small, or the policy has unlearned the end token"),
    MetricSpec::new("completions/mean_characters", "characters", "characters per completion"),
    MetricSpec::new("completions/unique_ratio", "0 to 1", "fraction of distinct texts, compared as strings rather than as molecules")
        .curve(UNIQUE, "in a step")
        .below("mode collapse: the policy samples the same completions again and again"),
    MetricSpec::new("completions/collapsed_groups", "0 to 1", "fraction of groups whose completions all have one text, the same in each of these groups; 0 if all prompts of the step are equal")
        .curve(UNIQUE, "equal groups")
        .above("mode collapse: the policy gives one answer to all prompts, so nothing more can be learned; try a lower optimizer.learning_rate, schedule.warmup_steps or more train.prompts_per_step"),
    MetricSpec::new("num_tokens", "count", "tokens sampled in the run so far").hidden(),
];

impl GrpoConfig {
    /// Returns whether a run with this configuration and this loss measures a metric of
    /// `step_metrics`. Which terms and components a reward has is not known here.
    pub(crate) fn measures(&self, loss: &LossConfig, metric: &MetricSpec) -> bool {
        let corrects = self.sampler_check.corrects(loss);
        match metric.requires {
            // Rewards of programs and servers are only known when the reward has been created.
            "" | TERMS | EXTERNAL_REWARD | LINUX => true,
            KL_IN_REWARD => loss.kl.in_reward(),
            ENTROPY_BONUS => loss.entropy_bonus.is_some(),
            CORRECTED => corrects,
            EVALUATIONS => self.eval.every > 0,
            EVALUATION_GROUPS => self.eval.every > 0 && self.eval.group_size > 1,
            CORRECTION if corrects => true,
            of_loss => loss.fulfils(of_loss).expect("each requirement is known"),
        }
    }
}

impl Metrics {
    /// Measures a step, see [`Metrics::of`].
    pub(super) fn of_step(report: &StepReport, num_tokens: u64) -> Self {
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
        metrics.push_parts(report.samples(), "", report.names.bonus);
        for &(metric, value) in &report.extensions {
            metrics.push_declared(metric, value);
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
        metrics
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
    /// with these metrics, and the number of completions without a reward. Names begin with `prefix`.
    pub(super) fn push_parts<'a>(
        &mut self,
        samples: impl Iterator<Item = &'a Sample> + Clone,
        prefix: &str,
        bonus: Option<[&'static MetricSpec; 2]>,
    ) {
        let mut parts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let outcomes = samples.clone().filter_map(|sample| sample.outcome.as_ref());
        for (name, value) in outcomes.flat_map(Outcome::parts) {
            parts.entry(name).or_default().push(value);
        }
        for (name, values) in parts {
            let (mean, std) = mean_and_std(&values);
            self.push(format!("{prefix}rewards/{name}/mean"), mean);
            self.push(format!("{prefix}rewards/{name}/std"), std);
        }
        let bonuses: Vec<f64> = samples.clone().filter_map(|s| Some(s.bonus?.total())).collect();
        if let Some([of_mean, of_std]) = bonus.filter(|_| !bonuses.is_empty()) {
            let (mean, std) = mean_and_std(&bonuses);
            self.push_declared(of_mean, mean);
            self.push_declared(of_std, std);
        }
        let count = |what: fn(&Outcome) -> bool| {
            samples.clone().filter(|s| s.outcome.as_ref().is_some_and(what)).count() as f64
        };
        let (abstained, failed) = (
            count(|outcome| matches!(outcome, Outcome::Abstained { .. })),
            count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        );
        self.push(format!("{prefix}rewards/abstained"), abstained);
        self.push(format!("{prefix}rewards/failed"), failed);
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
