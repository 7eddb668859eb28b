//! The metrics of tokens: what each is, and its value.

use grpo_metrics::{MetricGroup, MetricSpec};

use super::TokenStatistics;
use crate::{LossConfig, Surrogate};

/// A metric with its value, `None` if it was not measured.
type TokenMetric = (MetricSpec, fn(&TokenStatistics) -> Option<f64>);

const CLIPPED: &str = "a loss with the surrogate `clipped`";
const CISPO: &str = "a loss with the surrogate `cispo`";
const VESPO: &str = "a loss with the surrogate `vespo`";
const THRESHOLD: &str = "loss.off_policy_threshold";
/// Requirement of metrics of corrected importance ratios between sampler and trainer.
pub const CORRECTION: &str = "loss.mismatch, or sampler_check.above = \"correct\"";

const CLIPPED_TOKENS: &str = "Clipped tokens";

/// Needs the log-probabilities of the reference.
const DIVERGENCE: [TokenMetric; 4] = [
    (
        MetricSpec::new("kl", "nats per token", "mean over tokens of the configured estimate of KL(π_θ ‖ π_ref), including its correction. If β = 0 and nothing else needs the reference, it is measured in the first, the last and every tenth step only, as are `kl_p99`, `kl_max` and `kl_sequence`; a guard on one of them that stops or rolls back, `[kl_controller]` and recorded tokens need it in each step")
            .label("KL")
            .curve("KL to the reference", "training")
            .above("on average, a token is more than {e^bound} more likely than under the reference"),
        |tokens| tokens.kl(),
    ),
    (
        MetricSpec::new("kl_p99", "nats per token", "0.99 quantile (linear interpolation) of the same estimate over all tokens of the step"),
        |tokens| tokens.kls.quantile(0.99),
    ),
    (
        MetricSpec::new("kl_max", "nats per token", "maximum of the same estimate over all tokens of the step"),
        |tokens| tokens.kls.quantile(1.0),
    ),
    (
        MetricSpec::new("kl_sequence", "nats per completion", "mean over completions of the sum over tokens").label("KL of a sequence"),
        |tokens| tokens.kl_of_sequence.value(),
    ),
];

const POLICY: [TokenMetric; 12] = [
    (
        MetricSpec::new("entropy", "nats per token", "mean entropy of the sampling distribution over all tokens")
            .curve("Entropy", "training")
            .below("the next token is almost certain; groups will soon contain copies of one completion"),
        |tokens| tokens.entropy(),
    ),
    (
        MetricSpec::new("ratio/min", "> 0", "smallest importance ratio ρ"),
        |tokens| tokens.ratio.ends()[0],
    ),
    (
        MetricSpec::new("ratio/max", "> 0", "largest importance ratio ρ"),
        |tokens| tokens.ratio.ends()[1],
    ),
    (
        MetricSpec::new("ratio/p99", "> 0", "0.99 quantile of ρ over all tokens; with `ratio_level = \"sequence\"` each token has the ratio of its sequence")
            .above("one token in a hundred moved by more than a factor of {bound} within a step"),
        |tokens| tokens.ratios.quantile(0.99),
    ),
    (
        MetricSpec::new("clip_ratio/low_mean", "0 to 1", "fraction of tokens with ρ < 1 − ε_low and Â < 0")
            .requires(CLIPPED)
            .curve(CLIPPED_TOKENS, "below"),
        |tokens| tokens.clipped_low.value(),
    ),
    (
        MetricSpec::new("clip_ratio/low_min", "0 to 1", "smallest such fraction of a completion").requires(CLIPPED),
        |tokens| tokens.clipped_low_of_sequence.ends()[0],
    ),
    (
        MetricSpec::new("clip_ratio/high_mean", "0 to 1", "fraction of tokens with ρ > 1 + ε_high and Â > 0")
            .requires(CLIPPED)
            .curve(CLIPPED_TOKENS, "above"),
        |tokens| tokens.clipped_high.value(),
    ),
    (
        MetricSpec::new("clip_ratio/high_max", "0 to 1", "largest such fraction of a completion").requires(CLIPPED),
        |tokens| tokens.clipped_high_of_sequence.ends()[1],
    ),
    (
        MetricSpec::new("clip_ratio/region_mean", "0 to 1", "`low_mean` + `high_mean`").requires(CLIPPED).hidden(),
        |tokens| Some(tokens.clipped_low.value()? + tokens.clipped_high.value()?),
    ),
    (
        MetricSpec::new("cispo_clip_ratio", "0 to 1", "fraction of tokens with ρ > cap and Â > 0")
            .requires(CISPO)
            .curve(CLIPPED_TOKENS, "CISPO"),
        |tokens| tokens.capped.value(),
    ),
    (
        MetricSpec::new("vespo/phi_seq_mean", "≥ 0", "mean over sequences of φ(W)").requires(VESPO),
        |tokens| tokens.phi.value(),
    ),
    (
        MetricSpec::new("off_policy/dropped_ratio", "0 to 1", "fraction of sequences that the threshold dropped").requires(THRESHOLD),
        |tokens| tokens.dropped.value(),
    ),
];

/// Over all actions, before any mask or bound.
const SAMPLER: [TokenMetric; 9] = [
    (
        MetricSpec::new("sampling/entropy", "nats", "mean of −log π_sampler over the sampled tokens. It estimates `entropy` before the first update and deviates if the sampler draws from a distribution other than the one it records"),
        |tokens| tokens.sampling_entropy.value(),
    ),
    (
        MetricSpec::new("sampling/sampling_logp_difference/mean", "nats", "mean absolute difference between the log-probability recorded while sampling and the one of the first update; 0 on the CPU, rounding on a GPU and with vLLM, unless something is wrong"),
        |tokens| tokens.sampling_difference.value(),
    ),
    (
        MetricSpec::new("sampling/sampling_logp_difference/max", "nats", "largest such difference"),
        |tokens| tokens.largest_sampling_difference.ends()[1],
    ),
    (
        MetricSpec::new("sampling/raw_importance_sampling_ratio/min", "> 0", "smallest π_old / π_sampler before any correction; the product over a sequence if `mismatch.level` is `sequence`"),
        |tokens| tokens.raw_mismatch_range.ends()[0],
    ),
    (
        MetricSpec::new("sampling/raw_importance_sampling_ratio/mean", "> 0", "mean of the same ratio"),
        |tokens| tokens.raw_mismatch.value(),
    ),
    (
        MetricSpec::new("sampling/raw_importance_sampling_ratio/max", "> 0", "largest such ratio"),
        |tokens| tokens.raw_mismatch_range.ends()[1],
    ),
    (
        MetricSpec::new("sampling/importance_sampling_ratio/min", "≥ 0", "smallest such ratio after truncation or masking; with `sampler_check`, only in a corrected step").requires(CORRECTION),
        |tokens| tokens.mismatch_range.ends()[0],
    ),
    (
        MetricSpec::new("sampling/importance_sampling_ratio/mean", "≥ 0", "mean of the ratio after truncation or masking").requires(CORRECTION),
        |tokens| tokens.mismatch.value(),
    ),
    (
        MetricSpec::new("sampling/importance_sampling_ratio/max", "≥ 0", "largest such ratio").requires(CORRECTION),
        |tokens| tokens.mismatch_range.ends()[1],
    ),
];

/// Metrics that need the log-probabilities of the reference.
pub static REFERENCE_METRICS: [MetricSpec; 4] = specs(&DIVERGENCE);
static POLICY_METRICS: [MetricSpec; 12] = specs(&POLICY);
static SAMPLER_METRICS: [MetricSpec; 9] = specs(&SAMPLER);

const fn specs<const N: usize>(metrics: &[TokenMetric; N]) -> [MetricSpec; N] {
    let mut specs = [metrics[0].0; N];
    let mut place = 1;
    while place < N {
        specs[place] = metrics[place].0;
        place += 1;
    }
    specs
}

impl TokenStatistics {
    /// Returns the declarations of all metrics. The names follow TRL.
    pub fn metric_groups() -> [MetricGroup; 3] {
        let group = |name, metrics| MetricGroup { name, section: "train", metrics };
        [
            group("divergence", &REFERENCE_METRICS),
            group("policy", &POLICY_METRICS),
            group("sampler", &SAMPLER_METRICS),
        ]
    }

    /// Returns the names and values of all measured metrics.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let all = DIVERGENCE.iter().chain(&POLICY).chain(&SAMPLER);
        all.filter_map(|(spec, value)| Some((spec.name, value(self)?))).collect()
    }

    /// Returns the metric called `name`, or `None` if it was not measured.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl LossConfig {
    /// Returns whether updates with this loss fulfil the requirement of a metric of tokens. A correction can
    /// also come from elsewhere ([`CORRECTION`]). Returns `None` for other requirements.
    pub fn fulfils(&self, requirement: &str) -> Option<bool> {
        Some(match requirement {
            CLIPPED => matches!(self.surrogate, Surrogate::Clipped { .. }),
            CISPO => matches!(self.surrogate, Surrogate::Cispo { .. }),
            VESPO => matches!(self.surrogate, Surrogate::Vespo { .. }),
            THRESHOLD => self.off_policy_threshold.is_some(),
            CORRECTION => self.mismatch.is_some(),
            _ => return None,
        })
    }
}
