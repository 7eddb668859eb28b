//! Token statistics, computed on the host in f64 and accumulated over micro-batches.

mod metrics;

pub use metrics::{CORRECTION, REFERENCE_METRICS};

use crate::terms::{LossTerms, SequenceTerms, TokenTerms};

/// Token statistics for one or more updates. Metrics without any values are omitted instead of
/// being NaN.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenStatistics {
    kl: Mean,
    kl_of_sequence: Mean,
    /// All values are kept, because quantiles cannot be merged.
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
    /// Adds all tokens in a micro-batch.
    pub fn add(&mut self, terms: &LossTerms) {
        let sequences = terms.sequences.iter();
        sequences.filter(|sequence| !sequence.tokens.is_empty()).for_each(|s| self.add_sequence(s));
    }

    /// Merges the statistics in `other` into `self`.
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

    fn add_sequence(&mut self, sequence: &SequenceTerms) {
        for token in &sequence.tokens {
            self.ratio.add(token.ratio);
            self.ratios.0.push(token.ratio);
            self.entropy.extend(token.entropy);
            self.kept_entropy.extend(token.entropy.filter(|_| !token.is_low_entropy));
            self.kl.extend(token.kl);
            self.kls.0.extend(token.kl);
        }
        let kls = sequence.tokens.iter().map(|token| token.kl);
        self.kl_of_sequence.extend(kls.sum::<Option<f64>>());
        self.phi.extend(sequence.vespo_phi);
        self.dropped.extend(sequence.is_off_policy.map(indicator));
        // Averages over tokens. If the tokens in a sequence share a ratio, the sequence counts
        // once.
        let share = |flag: &dyn Fn(&TokenTerms) -> Option<bool>| {
            let mut share = Mean::default();
            let counted = sequence.tokens.iter().step_by(sequence.tokens_per_ratio);
            counted.for_each(|token| share.extend(flag(token).map(indicator)));
            share
        };
        let low = share(&|token| Some(token.clipping?.low));
        let high = share(&|token| Some(token.clipping?.high));
        self.clipped_low_of_sequence.extend(low.value());
        self.clipped_high_of_sequence.extend(high.value());
        self.clipped_low.merge(low);
        self.clipped_high.merge(high);
        self.capped.merge(share(&|token| token.is_capped));
        self.add_sampling(sequence);
    }

    fn add_sampling(&mut self, sequence: &SequenceTerms) {
        let tokens = || sequence.tokens.iter().filter_map(|token| token.sampling);
        for token in tokens() {
            self.sampling_entropy.add(-token.logprob);
            self.sampling_difference.add(token.log_quotient.abs());
            self.largest_sampling_difference.add(token.log_quotient.abs());
        }
        for token in tokens().step_by(sequence.tokens_per_quotient) {
            self.raw_mismatch.add(token.quotient);
            self.raw_mismatch_range.add(token.quotient);
            self.mismatch.extend(token.weight);
            self.mismatch_range.extend(token.weight);
        }
    }

    /// Returns the number of action tokens. A token is counted once per update.
    pub fn tokens(&self) -> u64 {
        self.ratios.0.len() as u64
    }

    /// Returns the `kl` metric, i.e. the mean KL estimate per token with the configured estimator
    /// and bias correction. Returns `None` if there is no reference.
    pub fn kl(&self) -> Option<f64> {
        self.kl.value()
    }

    /// Returns the `entropy` metric: mean entropy per token in nats, or `None` if there are no
    /// tokens.
    pub fn entropy(&self) -> Option<f64> {
        self.entropy.value()
    }

    /// Returns the mean entropy over tokens that the high-entropy mask keeps. Pass this value to
    /// [`crate::EntropyController::observe`].
    pub fn kept_entropy(&self) -> Option<f64> {
        self.kept_entropy.value()
    }

    /// Returns the smallest and the largest ratio `π_θ / π_old`, or `None` if there are no tokens.
    pub fn ratio_range(&self) -> Option<[f64; 2]> {
        self.ratio.0
    }
}

fn indicator(flag: bool) -> f64 {
    f64::from(u8::from(flag))
}

/// A running mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.merge(Self { sum: value, count: 1 });
    }

    fn extend(&mut self, value: Option<f64>) {
        value.into_iter().for_each(|value| self.add(value));
    }

    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// All observed values, used to compute quantiles.
#[derive(Clone, Debug, Default, PartialEq)]
struct Values(Vec<f64>);

impl Values {
    /// Returns a quantile with linear interpolation, as in NumPy and PyTorch. NaN sorts last.
    fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        // `total_cmp` would sort a negative NaN first.
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

/// Minimum and maximum.
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
