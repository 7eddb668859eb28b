//! Loss terms behind a stop-gradient, evaluated at the current policy.

use grpo_core::{BatchTotals, LossConfig, MismatchCorrection, MismatchMode, RatioLevel, Surrogate};

use crate::{LossCase, Rows};

/// Values that stay constant when a log-probability or entropy is perturbed.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    /// `log π_old`, `[b][t]`.
    pub(super) old: Rows,
    /// Surrogate factor behind a stop-gradient, `[b][t]`: the CISPO ratio, the VESPO weight φ, or
    /// 1.
    pub(super) weight: Rows,
    /// Corrected `π_old / π_sampler`, `[b][t]`. 1 if there is no correction.
    pub(super) mismatch: Rows,
    /// `mean_t(log π_behaviour − log π_θ)` for each sequence, `[b]`.
    pub(super) distance: Vec<f64>,
    /// Whether the off-policy mask drops each sequence, `[b]`.
    pub(super) dropped: Vec<bool>,
    /// Whether the high-entropy mask keeps each token, `[b][t]`.
    pub(super) kept: Vec<Vec<bool>>,
}

impl Frozen {
    pub(super) fn at(case: &LossCase, config: &LossConfig, totals: &BatchTotals) -> Self {
        let old = case.old.clone().unwrap_or_else(|| case.logprobs.clone());
        let blank = vec![vec![1.0; case.width()]; case.rows()];
        let mut frozen = Self {
            old,
            weight: blank.clone(),
            mismatch: blank,
            distance: vec![0.0; case.rows()],
            dropped: vec![false; case.rows()],
            kept: case.mask.clone(),
        };
        for b in 0..case.rows() {
            if let Some(correction) = config.mismatch {
                frozen.mismatch[b] = frozen.corrected(case, b, correction);
            }
            frozen.weight[b] = frozen.weights(case, b, config);
            frozen.distance[b] = frozen.distance(case, b, config);
            if let Some(threshold) = config.off_policy_threshold {
                frozen.dropped[b] = case.advantages[b] < 0.0 && frozen.distance[b] > threshold;
            }
            if let Some(high) = totals.high_entropy {
                for t in case.active(b) {
                    frozen.kept[b][t] = case.entropies[b][t] >= high.threshold;
                }
            }
        }
        frozen
    }

    /// Returns `log π_old − log π_sampler` for the action tokens in sequence `b`.
    pub(super) fn log_mismatch(&self, case: &LossCase, b: usize) -> Vec<f64> {
        let sampling =
            case.sampling.as_ref().expect("the case has log-probabilities of the sampler");
        case.active(b).into_iter().map(|t| self.old[b][t] - sampling[b][t]).collect()
    }

    /// Returns the corrected quotient for each position, or 1 for padding.
    fn corrected(&self, case: &LossCase, b: usize, correction: MismatchCorrection) -> Vec<f64> {
        let logs = self.log_mismatch(case, b);
        let mut row = vec![1.0; case.width()];
        for (t, log) in case.active(b).into_iter().zip(&logs) {
            let quotient = match correction.level {
                RatioLevel::Token => log.exp(),
                RatioLevel::Sequence => logs.iter().sum::<f64>().exp(),
            };
            row[t] = bounded(quotient, correction);
        }
        row
    }

    fn weights(&self, case: &LossCase, b: usize, config: &LossConfig) -> Vec<f64> {
        let mut row = vec![1.0; case.width()];
        let ratios = ratios(case, &self.old, b, config.ratio_level);
        for t in case.active(b) {
            row[t] = match config.surrogate {
                Surrogate::Cispo { cap } => ratios[t].min(cap),
                Surrogate::Vespo { .. } => self.phi(case, b, config),
                Surrogate::Clipped { .. } | Surrogate::Sapo { .. } | Surrogate::Reinforce {} => 1.0,
            };
        }
        row
    }

    /// Returns `φ(W) = exp(λ + k ln W − λ W)` for a sequence. A non-finite result is replaced by 0.
    fn phi(&self, case: &LossCase, b: usize, config: &LossConfig) -> f64 {
        let Surrogate::Vespo { k_positive, lambda_positive, k_negative, lambda_negative } =
            config.surrogate
        else {
            return 1.0;
        };
        let smallest = 1e-8_f64.ln();
        let mut log_weight = 0.0;
        for t in case.active(b) {
            log_weight += (case.logprobs[b][t] - self.old[b][t]).clamp(-20.0, 20.0);
            if config.mismatch.is_some() {
                // ln 0 is −∞, which is clamped to the lower bound.
                log_weight += self.mismatch[b][t].ln().clamp(smallest, 20.0);
            }
        }
        let log_weight = log_weight.clamp(smallest, 20.0);
        let (k, lambda) = if case.advantages[b] < 0.0 {
            (k_negative, lambda_negative)
        } else {
            (k_positive, lambda_positive)
        };
        let phi = (lambda + k * log_weight - lambda * log_weight.exp()).exp();
        if phi.is_finite() { phi } else { 0.0 }
    }

    fn distance(&self, case: &LossCase, b: usize, config: &LossConfig) -> f64 {
        let behaviour = match (config.mismatch, &case.sampling) {
            (Some(_), Some(sampling)) => sampling,
            _ => &self.old,
        };
        let active = case.active(b);
        let mut sum = 0.0;
        for &t in &active {
            sum += behaviour[b][t] - case.logprobs[b][t];
        }
        sum / active.len().max(1) as f64
    }
}

/// Returns the ratio `c` for each position in sequence `b`, or 1 for padding.
pub(super) fn ratios(case: &LossCase, old: &Rows, b: usize, level: RatioLevel) -> Vec<f64> {
    let active = case.active(b);
    let d = |t: usize| case.logprobs[b][t] - old[b][t];
    let mean = active.iter().map(|&t| d(t)).sum::<f64>() / active.len().max(1) as f64;
    let mut row = vec![1.0; case.width()];
    for t in active {
        row[t] = match level {
            RatioLevel::Token => d(t).exp(),
            RatioLevel::Sequence => mean.exp(),
        };
    }
    row
}

/// Applies a mismatch correction to a quotient.
pub(super) fn bounded(quotient: f64, correction: MismatchCorrection) -> f64 {
    let MismatchCorrection { min, max, mode, .. } = correction;
    match mode {
        MismatchMode::Truncate => quotient.max(min).min(max),
        MismatchMode::Mask if quotient < min || quotient > max => 0.0,
        MismatchMode::Mask => quotient,
    }
}
