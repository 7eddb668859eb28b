//! KL penalty.

use grpo_core::{KlEstimator, LossConfig};

use crate::LossCase;

/// Returns the KL estimate at a position. With bias correction, it is multiplied by the ratio `c`.
///
/// # Panics
/// Panics if the case has no reference, or if the estimator requires an exact KL that is missing.
pub(super) fn penalty(case: &LossCase, b: usize, t: usize, c: f64, config: &LossConfig) -> f64 {
    let reference = case.reference.as_ref().expect("a reference");
    let e = reference[b][t] - case.logprobs[b][t];
    let exact = case.exact_kl.as_ref().map(|exact| exact[b][t]);
    let estimate = estimate(config.kl.estimator, e, exact);
    if config.kl.bias_correction { c * estimate } else { estimate }
}

/// Returns `Σ_t KL` for a completion. The slices contain one value per action token.
///
/// # Panics
/// Panics if the estimator is exact and `exact` is `None`.
pub fn sequence_kl(
    estimator: KlEstimator,
    logprobs: &[f64],
    reference: &[f64],
    exact: Option<&[f64]>,
) -> f64 {
    let mut sum = 0.0;
    for t in 0..logprobs.len() {
        sum += estimate(estimator, reference[t] - logprobs[t], exact.map(|exact| exact[t]));
    }
    sum
}

/// Computes the estimate from `e = log π_ref − log π` (Schulman 2020).
fn estimate(estimator: KlEstimator, e: f64, exact: Option<f64>) -> f64 {
    match estimator {
        KlEstimator::K1 => -e,
        KlEstimator::K2 => e.powi(2) / 2.0,
        KlEstimator::K3 => e.exp() - e - 1.0,
        KlEstimator::Exact => exact.expect("the case has the exact KL of every position"),
    }
}
