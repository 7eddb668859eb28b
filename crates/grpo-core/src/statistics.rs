//! What a loss was made of: sums over tokens, on the host in f64, that add up over micro-batches.

use crate::range::LARGEST_EXPONENT;
use crate::surrogate::{VESPO_LARGEST, VESPO_SMALLEST_WEIGHT};
use crate::{BatchTotals, KlEstimator, LossConfig, MismatchCorrection, RatioLevel, Surrogate};

/// The tokens of one micro-batch on the host, `[b][t]` by rows, as [`crate::grpo_loss`] saw them.
#[derive(Clone, Copy, Debug)]
pub struct HostTokens<'a> {
    /// `log π_θ`.
    pub logprobs: &'a [f64],
    /// `log π_old`; `None` on the first update.
    pub old_logprobs: Option<&'a [f64]>,
    /// `log π_ref`, where there is one.
    pub ref_logprobs: Option<&'a [f64]>,
    /// What the sampler recorded, where it did.
    pub sampling_logprobs: Option<&'a [f64]>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, where the estimator is [`KlEstimator::Exact`].
    pub exact_kl: Option<&'a [f64]>,
    /// Entropy of the distribution at each token, in nats.
    pub entropies: &'a [f64],
    /// True for action tokens.
    pub mask: &'a [Vec<bool>],
    /// Â of each sequence.
    pub advantages: &'a [f64],
}

/// Sums over the tokens of one or more updates. A mean over nothing is left out, never NaN.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenStatistics {
    kl: Mean,
    kl_of_sequence: Mean,
    /// Of each token: a quantile is of all tokens of the step, and cannot be merged from those of its parts.
    kls: Values,
    ratios: Values,
    entropy: Mean,
    kept_entropy: Mean,
    clipped_low: Mean,
    clipped_high: Mean,
    clipped_low_of_sequence: Range,
    clipped_high_of_sequence: Range,
    ratio: Range,
    capped: Mean,
    phi: Mean,
    dropped: Mean,
    sampling_entropy: Mean,
    sampling_difference: Mean,
    largest_sampling_difference: Range,
    raw_mismatch: Mean,
    raw_mismatch_range: Range,
    mismatch: Mean,
    mismatch_range: Range,
}

impl TokenStatistics {
    /// Adds the tokens of a micro-batch.
    ///
    /// # Panics
    /// For [`KlEstimator::Exact`] with a reference where `exact_kl` is missing.
    pub fn add(&mut self, tokens: &HostTokens<'_>, config: &LossConfig, totals: &BatchTotals) {
        for row in 0..tokens.mask.len() {
            let sequence = Sequence::of(tokens, row);
            if !sequence.places.is_empty() {
                self.add_sequence(&sequence, config, totals);
            }
        }
    }

    /// Adds what `other` has seen.
    pub fn merge(&mut self, other: &Self) {
        let means = [
            (&mut self.kl, other.kl),
            (&mut self.kl_of_sequence, other.kl_of_sequence),
            (&mut self.entropy, other.entropy),
            (&mut self.kept_entropy, other.kept_entropy),
            (&mut self.clipped_low, other.clipped_low),
            (&mut self.clipped_high, other.clipped_high),
            (&mut self.capped, other.capped),
            (&mut self.phi, other.phi),
            (&mut self.dropped, other.dropped),
            (&mut self.sampling_entropy, other.sampling_entropy),
            (&mut self.sampling_difference, other.sampling_difference),
            (&mut self.raw_mismatch, other.raw_mismatch),
            (&mut self.mismatch, other.mismatch),
        ];
        means.into_iter().for_each(|(mean, other)| mean.merge(other));
        let ranges = [
            (&mut self.clipped_low_of_sequence, other.clipped_low_of_sequence),
            (&mut self.clipped_high_of_sequence, other.clipped_high_of_sequence),
            (&mut self.ratio, other.ratio),
            (&mut self.largest_sampling_difference, other.largest_sampling_difference),
            (&mut self.raw_mismatch_range, other.raw_mismatch_range),
            (&mut self.mismatch_range, other.mismatch_range),
        ];
        for (range, other) in ranges {
            other.0.into_iter().flatten().for_each(|end| range.add(end));
        }
        self.kls.0.extend(&other.kls.0);
        self.ratios.0.extend(&other.ratios.0);
    }

    fn add_sequence(&mut self, sequence: &Sequence<'_>, config: &LossConfig, totals: &BatchTotals) {
        let tokens = sequence.tokens;
        let ratios = sequence.ratios(config.ratio_level);
        let mut kl_of_sequence = 0.0;
        for (&i, &ratio) in sequence.places.iter().zip(&ratios) {
            self.ratio.add(ratio);
            self.ratios.0.push(ratio);
            let entropy = tokens.entropies[i];
            self.entropy.add(entropy);
            if totals.high_entropy.is_none_or(|kept| entropy >= kept.threshold) {
                self.kept_entropy.add(entropy);
            }
            if let Some(reference) = tokens.ref_logprobs {
                let exact = match config.kl.estimator {
                    KlEstimator::Exact => tokens.exact_kl.expect("the exact KL is given")[i],
                    _ => 0.0,
                };
                let kl = config.kl.at(reference[i] - tokens.logprobs[i], exact, ratio);
                self.kl.add(kl);
                self.kls.0.push(kl);
                kl_of_sequence += kl;
            }
        }
        if tokens.ref_logprobs.is_some() {
            self.kl_of_sequence.add(kl_of_sequence);
        }
        // A mean over tokens, or over sequences where these have one ratio.
        let counted = match config.ratio_level {
            RatioLevel::Token => &ratios[..],
            RatioLevel::Sequence => &ratios[..1],
        };
        self.add_clipping(sequence, counted, config);
        self.add_sampling(sequence, config.mismatch.as_ref());
        if let Some(threshold) = config.off_policy_threshold {
            let distance = sequence.mean_distance(config.mismatch.is_some());
            let dropped = sequence.advantage < 0.0 && distance > threshold;
            self.dropped.add(f64::from(u8::from(dropped)));
        }
    }

    fn add_clipping(&mut self, sequence: &Sequence<'_>, ratios: &[f64], config: &LossConfig) {
        let advantage = sequence.advantage;
        let share = |of: &dyn Fn(f64) -> bool| {
            let mut share = Mean::default();
            ratios.iter().for_each(|&ratio| share.add(f64::from(u8::from(of(ratio)))));
            share
        };
        match config.surrogate {
            Surrogate::Clipped { epsilon_low, epsilon_high, .. } => {
                let low = share(&|ratio| ratio < 1.0 - epsilon_low && advantage < 0.0);
                let high = share(&|ratio| ratio > 1.0 + epsilon_high && advantage > 0.0);
                self.clipped_low_of_sequence.extend(low.value());
                self.clipped_high_of_sequence.extend(high.value());
                self.clipped_low.merge(low);
                self.clipped_high.merge(high);
            }
            Surrogate::Cispo { cap } => {
                self.capped.merge(share(&|ratio| ratio > cap && advantage > 0.0));
            }
            Surrogate::Vespo { .. } => self.phi.add(sequence.vespo_phi(config)),
            Surrogate::Sapo { .. } | Surrogate::Reinforce {} => {}
        }
    }

    fn add_sampling(&mut self, sequence: &Sequence<'_>, correction: Option<&MismatchCorrection>) {
        let Some(sampling) = sequence.tokens.sampling_logprobs else { return };
        sequence.places.iter().for_each(|&i| self.sampling_entropy.add(-sampling[i]));
        let log_quotients = sequence.log_mismatch(sampling);
        for difference in &log_quotients {
            self.sampling_difference.add(difference.abs());
            self.largest_sampling_difference.add(difference.abs());
        }
        let raw: Vec<f64> = match correction.map(|correction| correction.level) {
            Some(RatioLevel::Sequence) => vec![log_quotients.iter().sum::<f64>().exp()],
            Some(RatioLevel::Token) | None => log_quotients.iter().map(|x| x.exp()).collect(),
        };
        for quotient in raw {
            self.raw_mismatch.add(quotient);
            self.raw_mismatch_range.add(quotient);
            if let Some(correction) = correction {
                let weight = correction.apply(quotient);
                self.mismatch.add(weight);
                self.mismatch_range.add(weight);
            }
        }
    }

    /// Action tokens seen, once for each update.
    pub fn tokens(&self) -> u64 {
        self.entropy.count
    }

    /// Metric `kl`: mean estimate over tokens, with the configured estimator and correction; `None` without
    /// a reference.
    pub fn kl(&self) -> Option<f64> {
        self.kl.value()
    }

    /// Metric `entropy`: mean over tokens, in nats; `None` without tokens.
    pub fn entropy(&self) -> Option<f64> {
        self.entropy.value()
    }

    /// Mean entropy over the tokens that the high-entropy mask keeps: what the entropy bonus is of, and what
    /// [`crate::EntropyController::observe`] takes.
    pub fn kept_entropy(&self) -> Option<f64> {
        self.kept_entropy.value()
    }

    /// Smallest and largest ratio `π_θ / π_old`; `None` without tokens.
    pub fn ratio_range(&self) -> Option<[f64; 2]> {
        self.ratio.0
    }

    /// Names, as TRL has them, and values of all that was measured. `docs/algorithm.md` defines each.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let region = match (self.clipped_low.value(), self.clipped_high.value()) {
            (Some(low), Some(high)) => Some(low + high),
            _ => None,
        };
        let [lowest_ratio, highest_ratio] = self.ratio.ends();
        let [low_min, _] = self.clipped_low_of_sequence.ends();
        let [_, high_max] = self.clipped_high_of_sequence.ends();
        let [_, largest_difference] = self.largest_sampling_difference.ends();
        let [mismatch_min, mismatch_max] = self.mismatch_range.ends();
        let [raw_min, raw_max] = self.raw_mismatch_range.ends();
        let measured = [
            ("kl", self.kl()),
            ("kl_p99", self.kls.quantile(0.99)),
            ("kl_max", self.kls.quantile(1.0)),
            ("kl_sequence", self.kl_of_sequence.value()),
            ("entropy", self.entropy()),
            ("ratio/min", lowest_ratio),
            ("ratio/max", highest_ratio),
            ("ratio/p99", self.ratios.quantile(0.99)),
            ("clip_ratio/low_mean", self.clipped_low.value()),
            ("clip_ratio/low_min", low_min),
            ("clip_ratio/high_mean", self.clipped_high.value()),
            ("clip_ratio/high_max", high_max),
            ("clip_ratio/region_mean", region),
            ("cispo_clip_ratio", self.capped.value()),
            ("vespo/phi_seq_mean", self.phi.value()),
            ("off_policy/dropped_ratio", self.dropped.value()),
            ("sampling/entropy", self.sampling_entropy.value()),
            ("sampling/sampling_logp_difference/mean", self.sampling_difference.value()),
            ("sampling/sampling_logp_difference/max", largest_difference),
            ("sampling/raw_importance_sampling_ratio/min", raw_min),
            ("sampling/raw_importance_sampling_ratio/mean", self.raw_mismatch.value()),
            ("sampling/raw_importance_sampling_ratio/max", raw_max),
            ("sampling/importance_sampling_ratio/min", mismatch_min),
            ("sampling/importance_sampling_ratio/mean", self.mismatch.value()),
            ("sampling/importance_sampling_ratio/max", mismatch_max),
        ];
        measured.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The metric of this name, where it was measured.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// The action tokens of one sequence.
pub(crate) struct Sequence<'a> {
    pub(crate) tokens: &'a HostTokens<'a>,
    /// Indices into the flat slices.
    pub(crate) places: Vec<usize>,
    pub(crate) advantage: f64,
}

impl<'a> Sequence<'a> {
    pub(crate) fn of(tokens: &'a HostTokens<'a>, row: usize) -> Self {
        let mask = &tokens.mask[row];
        let first = row * mask.len();
        let places = (0..mask.len()).filter(|&t| mask[t]).map(|t| first + t).collect();
        Self { tokens, places, advantage: tokens.advantages[row] }
    }

    /// `log π_θ − log π_old` of each token.
    fn log_ratios(&self) -> Vec<f64> {
        match self.tokens.old_logprobs {
            Some(old) => self.places.iter().map(|&i| self.tokens.logprobs[i] - old[i]).collect(),
            None => vec![0.0; self.places.len()],
        }
    }

    pub(crate) fn ratios(&self, level: RatioLevel) -> Vec<f64> {
        let log_ratios = self.log_ratios();
        match level {
            RatioLevel::Token => log_ratios.into_iter().map(bounded_exp).collect(),
            RatioLevel::Sequence => {
                let mean = log_ratios.iter().sum::<f64>() / log_ratios.len() as f64;
                vec![bounded_exp(mean); log_ratios.len()]
            }
        }
    }

    /// `log π_old − log π_sampler` of each token.
    pub(crate) fn log_mismatch(&self, sampling: &[f64]) -> Vec<f64> {
        let old = self.tokens.old_logprobs.unwrap_or(self.tokens.logprobs);
        self.places.iter().map(|&i| old[i] - sampling[i]).collect()
    }

    /// Mean of `log π_behaviour − log π_θ`.
    pub(crate) fn mean_distance(&self, behaviour_is_sampler: bool) -> f64 {
        let tokens = self.tokens;
        let behaviour = if behaviour_is_sampler { tokens.sampling_logprobs } else { None };
        let behaviour = behaviour.or(tokens.old_logprobs).unwrap_or(tokens.logprobs);
        let sum: f64 = self.places.iter().map(|&i| behaviour[i] - tokens.logprobs[i]).sum();
        sum / self.places.len() as f64
    }

    /// φ of the VESPO surrogate, which is 0 where it is no finite number, and where there is another surrogate.
    pub(crate) fn vespo_phi(&self, config: &LossConfig) -> f64 {
        let Surrogate::Vespo { k_positive, lambda_positive, k_negative, lambda_negative } =
            config.surrogate
        else {
            return 0.0;
        };
        let (k, lambda) = match self.advantage >= 0.0 {
            true => (k_positive, lambda_positive),
            false => (k_negative, lambda_negative),
        };
        let log_weight = self.vespo_log_weight(config.mismatch.as_ref());
        let phi = (lambda + k * log_weight - lambda * log_weight.exp()).exp();
        if phi.is_finite() { phi } else { 0.0 }
    }

    pub(crate) fn vespo_log_weight(&self, correction: Option<&MismatchCorrection>) -> f64 {
        let bounded = |x: f64| x.clamp(-VESPO_LARGEST, VESPO_LARGEST);
        let mut log_weight: f64 = self.log_ratios().into_iter().map(bounded).sum();
        if let (Some(correction), Some(sampling)) = (correction, self.tokens.sampling_logprobs) {
            let log_mismatch = self.log_mismatch(sampling);
            let log_of = |x: f64| correction.apply(x.exp()).max(VESPO_SMALLEST_WEIGHT).ln();
            let terms = log_mismatch.into_iter().map(|x| log_of(x).min(VESPO_LARGEST));
            log_weight += terms.sum::<f64>();
        }
        log_weight.clamp(VESPO_SMALLEST_WEIGHT.ln(), VESPO_LARGEST)
    }
}

/// Cut as in the loss, in the range of f64.
fn bounded_exp(exponent: f64) -> f64 {
    exponent.min(LARGEST_EXPONENT).exp()
}

/// A mean that can be added to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.merge(Self { sum: value, count: 1 });
    }

    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Every value, where a mean does not say enough.
#[derive(Clone, Debug, Default, PartialEq)]
struct Values(Vec<f64>);

impl Values {
    /// Linear between neighbours, as NumPy and PyTorch take it. What is not a number counts as the largest.
    fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        // NaN has a sign, which would make it the smallest.
        let number = |value: &f64| if value.is_nan() { f64::NAN.abs() } else { *value };
        let mut values: Vec<f64> = self.0.iter().map(number).collect();
        let rank = share * last as f64;
        let below = rank.floor() as usize;
        let (_, &mut low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
        let part = rank - below as f64;
        if part == 0.0 {
            return Some(low);
        }
        let high = above.iter().copied().min_by(f64::total_cmp)?;
        Some(low + (high - low) * part)
    }
}

/// Smallest and largest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Range(Option<[f64; 2]>);

impl Range {
    fn add(&mut self, value: f64) {
        let [low, high] = self.0.unwrap_or([value, value]);
        self.0 = Some([low.min(value), high.max(value)]);
    }

    fn extend(&mut self, value: Option<f64>) {
        value.into_iter().for_each(|value| self.add(value));
    }

    fn ends(&self) -> [Option<f64>; 2] {
        [self.0.map(|[low, _]| low), self.0.map(|[_, high]| high)]
    }
}
