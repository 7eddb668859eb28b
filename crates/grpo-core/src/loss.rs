//! The loss of GRPO, on one page.

use burn::tensor::Tensor;

use crate::kl::kl_estimate;
use crate::range::within_range;
use crate::reduction::token_weights;
use crate::surrogate::{SurrogateInputs, surrogate_loss};
use crate::{BatchTotals, LossConfig, RatioLevel, Surrogate};

/// What the loss is computed from. `logprobs`, `entropies` and `exact_kl` are differentiated, the others are
/// constants.
///
/// `b` sequences padded to `t` tokens; what stands in padded places (mask 0) counts for nothing, be it NaN.
#[derive(Clone, Debug)]
pub struct LossInputs {
    /// `log π_θ` of each token, `[b, t]`.
    pub logprobs: Tensor<2>,
    /// 1 for action tokens, 0 elsewhere, `[b, t]`.
    pub mask: Tensor<2>,
    /// Â of each sequence, `[b, 1]`.
    pub advantages: Tensor<2>,
    /// `log π_old`, `[b, t]`; `None` on the first update after sampling, where π_old is π_θ.
    pub old_logprobs: Option<Tensor<2>>,
    /// `log π_ref`, `[b, t]`; needed for a penalty in the loss.
    pub ref_logprobs: Option<Tensor<2>>,
    /// What the sampler recorded, `[b, t]`; needed for a mismatch correction.
    pub sampling_logprobs: Option<Tensor<2>>,
    /// `KL(π_θ ‖ π_ref)` over the vocabulary, `[b, t]`; needed for a penalty with [`crate::KlEstimator::Exact`].
    pub exact_kl: Option<Tensor<2>>,
    /// Entropy of π_θ at each token in nats, `[b, t]`; needed for the high-entropy mask and the bonus.
    pub entropies: Option<Tensor<2>>,
    /// Weight of the entropy bonus in this update: [`crate::EntropyController::coef`], or 0.
    pub entropy_coef: f64,
}

impl LossInputs {
    /// Those of a first update without a reference; the other fields can be set one by one.
    pub fn on_policy(logprobs: Tensor<2>, mask: Tensor<2>, advantages: Tensor<2>) -> Self {
        Self {
            logprobs,
            mask,
            advantages,
            old_logprobs: None,
            ref_logprobs: None,
            sampling_logprobs: None,
            exact_kl: None,
            entropies: None,
            entropy_coef: 0.0,
        }
    }
}

/// The part that these sequences add to the loss of the optimizer batch, `[1]` (Shao et al. 2024, equations 3
/// and 4, and the variants that [`LossConfig`] names):
/// `Σ w · (surrogate × masks × mismatch + β · KL) − entropy bonus`.
///
/// Works in the precision of its tensors. A ratio `π_θ / π_old`, or `π_ref / π_θ` in k3, that is above the 0.9th
/// power of their largest number (5e34 in f32) counts as that power, which has no gradient.
///
/// # Panics
/// Where an input that the configuration needs is missing.
pub fn grpo_loss(inputs: LossInputs, config: &LossConfig, totals: &BatchTotals) -> Tensor<1> {
    let [b, t] = inputs.logprobs.dims();
    // Padding is cut off before anything is computed of it: 0 · ∞ is not 0.
    let padding = inputs.mask.clone().equal_elem(0.0); // [b, t]
    let active = |values: Tensor<2>| values.mask_fill(padding.clone(), 0.0);
    let mask = padding.clone().bool_not().float().cast(inputs.logprobs.dtype());
    let logprobs = active(inputs.logprobs);
    let advantages = inputs.advantages.expand([b, t]);
    let entropies = inputs.entropies.map(active);
    // On the first update ρ is exactly 1, and only its derivative counts.
    let old_logprobs = inputs.old_logprobs.map_or_else(|| logprobs.clone().detach(), active);
    let sampling_logprobs = inputs.sampling_logprobs.map(active);

    let lengths = mask.clone().sum_dim(1).clamp_min(1.0); // [b, 1]
    let log_ratio = logprobs.clone() - old_logprobs.clone(); // [b, t]
    let ratio = within_range(match config.ratio_level {
        RatioLevel::Token => log_ratio.clone(),
        RatioLevel::Sequence => (log_ratio.clone().sum_dim(1) / lengths.clone()).expand([b, t]),
    })
    .exp(); // [b, t]
    let mismatch = config.mismatch.map(|correction| {
        let sampling = sampling_logprobs.clone().expect("a mismatch correction has the sampler's");
        let weights = correction.weights(old_logprobs.clone() - sampling); // [b, t]
        // The bounds may leave 1 out, and padded places are no tokens to correct.
        weights.mask_fill(padding.clone(), 1.0)
    });

    let mut loss = surrogate_loss(
        &config.surrogate,
        SurrogateInputs {
            logprobs: logprobs.clone(),
            ratio: ratio.clone(),
            log_ratio,
            mismatch: mismatch.clone(),
            advantages: advantages.clone(),
        },
    ); // [b, t]
    if let Some(threshold) = config.off_policy_threshold {
        let behaviour = match config.mismatch {
            Some(_) => sampling_logprobs.expect("a mismatch correction has the sampler's"),
            None => old_logprobs,
        };
        let distance = (behaviour - logprobs.clone().detach()).sum_dim(1) / lengths; // [b, 1]
        let stale = distance.greater_elem(threshold).expand([b, t]);
        let dropped = stale.bool_and(advantages.lower_elem(0.0));
        loss = loss.mask_fill(dropped, 0.0);
    }
    let kept = config.high_entropy_share.map(|_| {
        let threshold = totals.high_entropy.expect("a high-entropy mask has a threshold").threshold;
        let entropies = entropies.clone().expect("a high-entropy mask has entropies");
        entropies.greater_equal_elem(threshold) // [b, t]
    });
    if let Some(kept) = kept.clone() {
        loss = loss.mask_fill(kept.bool_not(), 0.0);
    }
    if let (Some(mismatch), false) = (mismatch, matches!(config.surrogate, Surrogate::Vespo { .. }))
    {
        loss = loss * mismatch;
    }
    if config.kl.in_loss() {
        let reference = inputs.ref_logprobs.map(&active).expect("a KL penalty has a reference");
        let exact = inputs.exact_kl.map(&active);
        let mut kl = kl_estimate(reference - logprobs, exact, config.kl.estimator); // [b, t]
        if config.kl.bias_correction {
            kl = kl * ratio;
        }
        loss = loss + kl * config.kl.coef;
    }
    // Row by row: a sum over all at once is cut by the number of threads.
    let total = (loss * token_weights(&mask, config.reduction, totals)).sum_dim(1).sum();

    if inputs.entropy_coef == 0.0 {
        return total;
    }
    let entropies = entropies.expect("an entropy bonus has entropies");
    let entropies = match kept {
        Some(kept) => entropies.mask_fill(kept.bool_not(), 0.0),
        None => entropies,
    };
    // Multiplied, not divided: Burn 0.22.1 takes the derivative of a division by a number in f32.
    let weight = inputs.entropy_coef / totals.bonus_tokens().max(1) as f64;
    total - entropies.sum_dim(1).sum() * weight
}
