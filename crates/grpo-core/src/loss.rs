//! The loss of GRPO, on one page.

use burn::tensor::Tensor;

use crate::reduction::token_weights;
use crate::surrogate::{SurrogateInputs, surrogate_loss};
use crate::{BatchTotals, LossConfig, LossInputs, Surrogate};

/// The part that these sequences add to the loss of the optimizer batch, `[1]` (Shao et al. 2024, equations 3
/// and 4, and the variants that [`LossConfig`] names):
/// `Σ w · (surrogate × masks × mismatch + β · KL) − entropy bonus`.
///
/// Works in the precision of its tensors. A ratio `π_θ / π_old`, or `π_ref / π_θ` in k3, that is above the 0.9th
/// power of their largest number (5e34 in f32) counts as that power, which has no gradient.
///
/// `config` is taken as it is: [`LossConfig::checked`] refuses what cannot be meant, an uncorrected k1 among it.
///
/// # Panics
/// Where an input that the configuration needs is missing.
pub fn grpo_loss(inputs: LossInputs, config: &LossConfig, totals: &BatchTotals) -> Tensor<1> {
    let entropy_coef = inputs.entropy_coef;
    let active = inputs.without_padding();
    let log_ratio = active.logprobs.clone() - active.old_logprobs.clone(); // [b, t]
    let ratio = active.ratio(log_ratio.clone(), config.ratio_level); // ρ
    let mismatch = config.mismatch.map(|correction| active.mismatch(&correction));

    let mut loss = surrogate_loss(
        &config.surrogate,
        SurrogateInputs {
            logprobs: active.logprobs.clone(),
            ratio: ratio.clone(),
            log_ratio,
            mismatch: mismatch.clone(),
            advantages: active.advantages.clone(),
        },
    ); // [b, t]
    if let Some(threshold) = config.off_policy_threshold {
        let dropped = active.off_policy(threshold, config.mismatch.is_some());
        loss = loss.mask_fill(dropped, 0.0);
    }
    let dropped = config.high_entropy_share.map(|_| active.low_entropy(totals));
    if let Some(dropped) = dropped.clone() {
        loss = loss.mask_fill(dropped, 0.0);
    }
    // VESPO has it in its weight of the sequence.
    if let Some(mismatch) =
        mismatch.filter(|_| !matches!(config.surrogate, Surrogate::Vespo { .. }))
    {
        loss = loss * mismatch;
    }
    if config.kl.in_loss() {
        loss = loss + active.kl(&config.kl, ratio) * config.kl.coef;
    }
    // Row by row: a sum over all at once is cut by the number of threads.
    let total = (loss * token_weights(&active.mask, config.reduction, totals)).sum_dim(1).sum();

    if entropy_coef == 0.0 {
        return total;
    }
    // Multiplied, not divided: Burn 0.22.1 takes the derivative of a division by a number in f32.
    let weight = entropy_coef / totals.bonus_tokens().max(1) as f64;
    total - active.sum_of_entropies(dropped) * weight
}
