//! Loss metrics, named as in TRL.

use std::collections::BTreeMap;

use grpo_core::{BatchTotals, LossConfig, RatioLevel, Surrogate};

use crate::LossCase;
use crate::frozen::{Frozen, bounded, ratios};
use crate::kl::penalty;

/// Returns the metrics for a case by name. Undefined metrics are omitted.
///
/// Means are taken over tokens, or over sequences if all tokens in a sequence share a ratio.
/// `clip_ratio/low_min` and `clip_ratio/high_max` are extremes over sequences.
pub fn metrics(
    case: &LossCase,
    config: &LossConfig,
    totals: &BatchTotals,
) -> BTreeMap<&'static str, f64> {
    let frozen = Frozen::at(case, config, totals);
    let mut seen = Lists::default();
    for b in (0..case.rows()).filter(|&b| !case.active(b).is_empty()) {
        let c = ratios(case, &frozen.old, b, config.ratio_level);
        let mut kl = 0.0;
        for t in case.active(b) {
            seen.push("entropy", case.entropies[b][t]);
            seen.push("ratio", c[t]);
            if case.reference.is_some() {
                seen.push("kl", penalty(case, b, t, c[t], config));
                kl += penalty(case, b, t, c[t], config);
            }
        }
        if case.reference.is_some() {
            seen.push("kl of sequence", kl);
        }
        clipping(&mut seen, case, b, &c, config);
        if let Surrogate::Vespo { .. } = config.surrogate {
            seen.push("vespo/phi_seq_mean", frozen.weight[b][case.active(b)[0]]);
        }
        if config.off_policy_threshold.is_some() {
            seen.push("off_policy/dropped_ratio", truth(frozen.dropped[b]));
        }
        if let Some(recorded) = &case.sampling {
            for t in case.active(b) {
                seen.push("sampling/entropy", -recorded[b][t]);
            }
            sampling(&mut seen, &frozen.log_mismatch(case, b), config);
        }
    }
    seen.summary()
}

fn clipping(seen: &mut Lists, case: &LossCase, b: usize, c: &[f64], config: &LossConfig) {
    let counted = match config.ratio_level {
        RatioLevel::Token => case.active(b),
        RatioLevel::Sequence => case.active(b)[..1].to_vec(),
    };
    let (positive, negative) = (case.advantages[b] > 0.0, case.advantages[b] < 0.0);
    match config.surrogate {
        Surrogate::Clipped { epsilon_low, epsilon_high, .. } => {
            let (mut low, mut high) = (0.0, 0.0);
            for &t in &counted {
                let is_low = truth(negative && c[t] < 1.0 - epsilon_low);
                let is_high = truth(positive && c[t] > 1.0 + epsilon_high);
                seen.push("clip_ratio/low_mean", is_low);
                seen.push("clip_ratio/high_mean", is_high);
                seen.push("clip_ratio/region_mean", is_low.max(is_high));
                low += is_low / counted.len() as f64;
                high += is_high / counted.len() as f64;
            }
            seen.push("clip_ratio/low of sequence", low);
            seen.push("clip_ratio/high of sequence", high);
        }
        Surrogate::Cispo { cap } => {
            for &t in &counted {
                seen.push("cispo_clip_ratio", truth(positive && c[t] > cap));
            }
        }
        Surrogate::Sapo { .. } | Surrogate::Vespo { .. } | Surrogate::Reinforce {} => {}
    }
}

/// Adds sampler metrics for one sequence, given `log π_old − log π_sampler` for each token.
fn sampling(seen: &mut Lists, logs: &[f64], config: &LossConfig) {
    for log in logs {
        seen.push("sampling/sampling_logp_difference", log.abs());
    }
    let of_sequence = config.mismatch.is_some_and(|it| it.level == RatioLevel::Sequence);
    let quotients: Vec<f64> = if of_sequence {
        vec![logs.iter().sum::<f64>().exp()]
    } else {
        logs.iter().map(|log| log.exp()).collect()
    };
    for quotient in quotients {
        seen.push("sampling/raw_importance_sampling_ratio", quotient);
        if let Some(correction) = config.mismatch {
            seen.push("sampling/importance_sampling_ratio", bounded(quotient, correction));
        }
    }
}

/// Equivalent to `numpy.quantile(values, 0.99)`.
fn percentile_99(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("a metric is not NaN"));
    let place = 0.99 * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

/// All observed values by metric name.
#[derive(Default)]
struct Lists(BTreeMap<&'static str, Vec<f64>>);

impl Lists {
    fn push(&mut self, name: &'static str, value: f64) {
        self.0.entry(name).or_default().push(value);
    }

    fn summary(&self) -> BTreeMap<&'static str, f64> {
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |v: &[f64]| v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut all = BTreeMap::new();
        for (metric, quantity, of) in [
            ("kl", "kl", &mean as &dyn Fn(&[f64]) -> f64),
            ("kl_p99", "kl", &percentile_99),
            ("kl_max", "kl", &most),
            ("kl_sequence", "kl of sequence", &mean),
            ("ratio/p99", "ratio", &percentile_99),
            ("entropy", "entropy", &mean),
            ("ratio/min", "ratio", &least),
            ("ratio/max", "ratio", &most),
            ("clip_ratio/low_mean", "clip_ratio/low_mean", &mean),
            ("clip_ratio/low_min", "clip_ratio/low of sequence", &least),
            ("clip_ratio/high_mean", "clip_ratio/high_mean", &mean),
            ("clip_ratio/high_max", "clip_ratio/high of sequence", &most),
            ("clip_ratio/region_mean", "clip_ratio/region_mean", &mean),
            ("cispo_clip_ratio", "cispo_clip_ratio", &mean),
            ("vespo/phi_seq_mean", "vespo/phi_seq_mean", &mean),
            ("off_policy/dropped_ratio", "off_policy/dropped_ratio", &mean),
            ("sampling/entropy", "sampling/entropy", &mean),
            ("sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference", &mean),
            ("sampling/sampling_logp_difference/max", "sampling/sampling_logp_difference", &most),
            (RAW_MIN, RAW, &least),
            (RAW_MEAN, RAW, &mean),
            (RAW_MAX, RAW, &most),
            (CORRECTED_MIN, CORRECTED, &least),
            (CORRECTED_MEAN, CORRECTED, &mean),
            (CORRECTED_MAX, CORRECTED, &most),
        ] {
            if let Some(values) = self.0.get(quantity) {
                all.insert(metric, of(values));
            }
        }
        all
    }
}

const RAW: &str = "sampling/raw_importance_sampling_ratio";
const RAW_MIN: &str = "sampling/raw_importance_sampling_ratio/min";
const RAW_MEAN: &str = "sampling/raw_importance_sampling_ratio/mean";
const RAW_MAX: &str = "sampling/raw_importance_sampling_ratio/max";
const CORRECTED: &str = "sampling/importance_sampling_ratio";
const CORRECTED_MIN: &str = "sampling/importance_sampling_ratio/min";
const CORRECTED_MEAN: &str = "sampling/importance_sampling_ratio/mean";
const CORRECTED_MAX: &str = "sampling/importance_sampling_ratio/max";
