//! The loss once more, in f64 loops written from the formulas.

use grpo_core::{BatchTotals, KlEstimator, LossConfig, Reduction};

use crate::support::Batch;

/// The loss with respect to `old` (Shao et al. 2024, equations 3 and 4).
///
/// `old` is given apart, since it does not move where the log-probabilities are perturbed.
pub(crate) fn loss(
    batch: &Batch,
    old: &[Vec<f64>],
    config: &LossConfig,
    totals: &BatchTotals,
) -> f64 {
    let mut total = 0.0;
    for b in 0..batch.rows() {
        let mut sum = 0.0;
        let mut length = 0.0;
        for t in 0..batch.width() {
            if batch.mask[b][t] {
                length += 1.0;
                let ratio = (batch.logprobs[b][t] - old[b][t]).exp();
                sum -= surrogate(ratio, batch.advantages[b], config);
                if let Some(reference) = &batch.reference {
                    let log_quotient = batch.logprobs[b][t] - reference[b][t];
                    sum += config.kl.coef * penalty(log_quotient, ratio, config);
                }
            }
        }
        let sequences = totals.sequences as f64;
        total += match config.reduction {
            Reduction::SequenceMean if length == 0.0 => 0.0,
            Reduction::SequenceMean => sum / length / sequences,
            Reduction::TokenMean => sum / totals.tokens as f64,
            Reduction::Constant => sum / (sequences * totals.max_completion_length as f64),
        };
    }
    total
}

/// The derivative of [`loss`] by central differences.
pub(crate) fn gradient(batch: &Batch, config: &LossConfig, totals: &BatchTotals) -> Vec<Vec<f64>> {
    let old = batch.old.clone().unwrap_or_else(|| batch.logprobs.clone());
    let at = |b: usize, t: usize, step: f64| {
        let mut moved = batch.clone();
        moved.logprobs[b][t] += step;
        loss(&moved, &old, config, totals)
    };
    let step = 1e-5;
    let derivative = |b, t| (at(b, t, step) - at(b, t, -step)) / (2.0 * step);
    let row = |b| (0..batch.width()).map(|t| derivative(b, t)).collect();
    (0..batch.rows()).map(row).collect()
}

/// Whether some ratio is so near a bound that a difference quotient would step over it.
pub(crate) fn near_a_bound(batch: &Batch, config: &LossConfig) -> bool {
    let Some(old) = &batch.old else { return false };
    batch.places(true).into_iter().any(|(b, t)| {
        let ratio = (batch.logprobs[b][t] - old[b][t]).exp();
        let bounds = [1.0 - config.epsilon_low, 1.0 + config.epsilon_high];
        bounds.iter().any(|bound| (ratio - bound).abs() < 1e-3)
    })
}

/// Only the bound that holds the policy back counts, and which one that is depends on the sign.
fn surrogate(ratio: f64, advantage: f64, config: &LossConfig) -> f64 {
    let (lowest, highest) = (1.0 - config.epsilon_low, 1.0 + config.epsilon_high);
    if advantage >= 0.0 && ratio > highest {
        highest * advantage
    } else if advantage < 0.0 && ratio < lowest {
        lowest * advantage
    } else {
        ratio * advantage
    }
}

/// `x = log π − log π_ref` (Schulman 2020).
fn penalty(x: f64, ratio: f64, config: &LossConfig) -> f64 {
    let estimate = match config.kl.estimator {
        KlEstimator::K1 => x,
        KlEstimator::K2 => 0.5 * x.powi(2),
        KlEstimator::K3 => (-x).exp() + x - 1.0,
    };
    if config.kl.bias_correction { ratio * estimate } else { estimate }
}
