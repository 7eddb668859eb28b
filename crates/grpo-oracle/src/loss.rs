//! GRPO loss.

use grpo_core::{BatchTotals, LossConfig, Reduction, Surrogate};

use crate::LossCase;
use crate::frozen::{Frozen, ratios};
use crate::kl::penalty;

/// Returns the contribution of a case to the loss of the optimizer batch.
///
/// # Panics
/// Panics if a required input is missing.
pub fn loss(case: &LossCase, config: &LossConfig, totals: &BatchTotals) -> f64 {
    value(case, &Frozen::at(case, config, totals), config, totals)
}

/// Returns the loss for `case`, using the constants in `frozen`.
pub(super) fn value(
    case: &LossCase,
    frozen: &Frozen,
    config: &LossConfig,
    totals: &BatchTotals,
) -> f64 {
    let mut total = 0.0;
    for b in 0..case.rows() {
        let c = ratios(case, &frozen.old, b, config.ratio_level);
        let mut sum = 0.0;
        for t in case.active(b) {
            let mut token = surrogate(case, frozen, b, t, c[t], config);
            if frozen.dropped[b] {
                token = 0.0;
            }
            if !frozen.kept[b][t] {
                token = 0.0;
            }
            if !matches!(config.surrogate, Surrogate::Vespo { .. }) {
                token *= frozen.mismatch[b][t];
            }
            if config.kl.in_loss() {
                token += config.kl.coef * penalty(case, b, t, c[t], config);
            }
            sum += token;
        }
        total += sum * row_weight(case, b, config.reduction, totals);
    }
    total - case.entropy_coef * mean_entropy(case, frozen, totals)
}

fn surrogate(
    case: &LossCase,
    frozen: &Frozen,
    b: usize,
    t: usize,
    c: f64,
    config: &LossConfig,
) -> f64 {
    let (advantage, logprob) = (case.advantages[b], case.logprobs[b][t]);
    match config.surrogate {
        Surrogate::Clipped { epsilon_low, epsilon_high, delta } => {
            let clipped = c.max(1.0 - epsilon_low).min(1.0 + epsilon_high);
            let bounded = delta.map_or(c, |delta| c.min(delta));
            -(bounded * advantage).min(clipped * advantage)
        }
        Surrogate::Sapo { temperature_positive, temperature_negative } => {
            let tau = if advantage > 0.0 { temperature_positive } else { temperature_negative };
            -(4.0 / tau) / (1.0 + (-tau * (c - 1.0)).exp()) * advantage
        }
        Surrogate::Cispo { .. } | Surrogate::Vespo { .. } | Surrogate::Reinforce {} => {
            -frozen.weight[b][t] * advantage * logprob
        }
    }
}

/// Returns the weight of each token in sequence `b`.
fn row_weight(case: &LossCase, b: usize, reduction: Reduction, totals: &BatchTotals) -> f64 {
    let length = case.active(b).len().max(1) as f64;
    let sequences = totals.sequences.max(1) as f64;
    match reduction {
        Reduction::SequenceMean => 1.0 / (length * sequences),
        Reduction::SequenceSum => 1.0 / sequences,
        Reduction::TokenMean => 1.0 / totals.tokens.max(1) as f64,
        // The fraction of sequences in this micro-batch, divided equally between its tokens.
        Reduction::MicroBatchTokenMean => {
            case.rows() as f64 / sequences / case.tokens().max(1) as f64
        }
        Reduction::Constant => 1.0 / (sequences * totals.max_completion_length.max(1) as f64),
    }
}

/// Returns the contribution of a case to the mean entropy over the tokens kept in the optimizer
/// batch.
fn mean_entropy(case: &LossCase, frozen: &Frozen, totals: &BatchTotals) -> f64 {
    // Entropies may be missing if the coefficient is 0.
    if case.entropy_coef == 0.0 {
        return 0.0;
    }
    let tokens = totals.high_entropy.map_or(totals.tokens, |high| high.tokens);
    let mut sum = 0.0;
    for b in 0..case.rows() {
        for t in case.active(b) {
            if frozen.kept[b][t] {
                sum += case.entropies[b][t];
            }
        }
    }
    sum / tokens.max(1) as f64
}
