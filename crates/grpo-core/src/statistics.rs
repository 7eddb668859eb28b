//! What a loss was made of: sums over tokens, on the host, that add up over micro-batches.

use crate::{KlEstimator, LossConfig};

/// The tokens of one micro-batch on the host, `[b][t]` by rows, as [`crate::grpo_loss`] saw them.
#[derive(Clone, Copy, Debug)]
pub struct HostTokens<'a> {
    /// `log π_θ`.
    pub logprobs: &'a [f32],
    /// `log π_old`; `None` on the first update.
    pub old_logprobs: Option<&'a [f32]>,
    /// `log π_ref`, where there is one.
    pub ref_logprobs: Option<&'a [f32]>,
    /// Entropy of the distribution at each token, in nats.
    pub entropies: &'a [f32],
    /// True for action tokens.
    pub mask: &'a [Vec<bool>],
    /// Â of each sequence.
    pub advantages: &'a [f64],
}

/// Sums over action tokens; divide by [`TokenStatistics::tokens`] through the methods.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenStatistics {
    /// Action tokens seen.
    pub tokens: u64,
    kl: f64,
    has_reference: bool,
    entropy: f64,
    clipped_low: u64,
    clipped_high: u64,
    clip_low_min: f64,
    clip_high_max: f64,
    ratio_min: f64,
    ratio_max: f64,
}

impl Default for TokenStatistics {
    fn default() -> Self {
        Self {
            tokens: 0,
            kl: 0.0,
            has_reference: false,
            entropy: 0.0,
            clipped_low: 0,
            clipped_high: 0,
            clip_low_min: f64::INFINITY,
            clip_high_max: f64::NEG_INFINITY,
            ratio_min: f64::INFINITY,
            ratio_max: f64::NEG_INFINITY,
        }
    }
}

impl TokenStatistics {
    /// Adds the tokens of a micro-batch.
    pub fn add(&mut self, tokens: &HostTokens<'_>, config: &LossConfig) {
        self.has_reference |= tokens.ref_logprobs.is_some();
        let width = tokens.mask.first().map_or(0, Vec::len);
        for (row, (mask, &advantage)) in tokens.mask.iter().zip(tokens.advantages).enumerate() {
            let (mut active, mut low, mut high) = (0_u64, 0_u64, 0_u64);
            for t in (0..width).filter(|&t| mask[t]) {
                let i = row * width + t;
                let logprob = f64::from(tokens.logprobs[i]);
                let ratio = match tokens.old_logprobs {
                    Some(old) => (logprob - f64::from(old[i])).exp(),
                    None => 1.0,
                };
                active += 1;
                low += u64::from(ratio < 1.0 - config.epsilon_low && advantage < 0.0);
                high += u64::from(ratio > 1.0 + config.epsilon_high && advantage > 0.0);
                self.ratio_min = self.ratio_min.min(ratio);
                self.ratio_max = self.ratio_max.max(ratio);
                self.entropy += f64::from(tokens.entropies[i]);
                if let Some(reference) = tokens.ref_logprobs {
                    self.kl += kl(f64::from(reference[i]) - logprob, ratio, config);
                }
            }
            if active > 0 {
                self.tokens += active;
                self.clipped_low += low;
                self.clipped_high += high;
                self.clip_low_min = self.clip_low_min.min(low as f64 / active as f64);
                self.clip_high_max = self.clip_high_max.max(high as f64 / active as f64);
            }
        }
    }

    /// Metric `kl`: mean estimate over tokens, with the configured estimator and correction; `None` without
    /// a reference.
    pub fn kl(&self) -> Option<f64> {
        self.has_reference.then(|| self.kl / self.tokens as f64)
    }

    /// Metric `entropy`: mean over tokens, in nats.
    pub fn entropy(&self) -> f64 {
        self.entropy / self.tokens as f64
    }

    /// Metrics `clip_ratio/{low_mean, low_min, high_mean, high_max, region_mean}`, in this order.
    pub fn clip_ratios(&self) -> [f64; 5] {
        let share = |count: u64| count as f64 / self.tokens as f64;
        [
            share(self.clipped_low),
            self.clip_low_min,
            share(self.clipped_high),
            self.clip_high_max,
            share(self.clipped_low + self.clipped_high),
        ]
    }

    /// Smallest and largest ratio `π_θ / π_old`.
    pub fn ratio_range(&self) -> [f64; 2] {
        [self.ratio_min, self.ratio_max]
    }
}

fn kl(e: f64, ratio: f64, config: &LossConfig) -> f64 {
    let estimate = match config.kl.estimator {
        KlEstimator::K1 => -e,
        KlEstimator::K2 => e * e / 2.0,
        KlEstimator::K3 => e.exp_m1() - e,
    };
    estimate * if config.kl.bias_correction { ratio } else { 1.0 }
}
