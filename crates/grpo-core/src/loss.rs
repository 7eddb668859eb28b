//! The loss of GRPO, on one page.

use burn::tensor::Tensor;

use crate::{KlEstimator, LossConfig};

/// What the loss is computed from. All but `logprobs` are constants.
///
/// `b` sequences padded to `t` tokens; what stands in padded places (weight 0) counts for nothing.
#[derive(Clone, Debug)]
pub struct LossInputs {
    /// `log π_θ` of each token, `[b, t]`, differentiated.
    pub logprobs: Tensor<2>,
    /// `log π_old`, `[b, t]`; `None` on the first update after sampling, where π_old is π_θ.
    pub old_logprobs: Option<Tensor<2>>,
    /// `log π_ref`, `[b, t]`; needed where the KL penalty has weight.
    pub ref_logprobs: Option<Tensor<2>>,
    /// Â of each sequence, `[b, 1]`.
    pub advantages: Tensor<2>,
    /// Weight of each token in the loss, `[b, t]`: see [`crate::token_weights`].
    pub weights: Tensor<2>,
}

/// `Σ w · (−min(ρ Â, clip(ρ, 1 − ε_low, 1 + ε_high) Â) + β · KL)`, `[1]`
/// (Shao et al. 2024, equations 3 and 4).
///
/// # Panics
/// Where the penalty has weight and the reference's log-probabilities are missing.
pub fn grpo_loss(inputs: LossInputs, config: &LossConfig) -> Tensor<1> {
    let LossInputs { logprobs, old_logprobs, ref_logprobs, advantages, weights } = inputs;
    // On the first update ρ is exactly 1, and only its derivative counts.
    let old_logprobs = old_logprobs.unwrap_or_else(|| logprobs.clone().detach()); // [b, t]
    // Padding is cut off before exp: 0 · ∞ is not 0.
    let padding = weights.clone().equal_elem(0.0); // [b, t]
    let ratio = (logprobs.clone() - old_logprobs).mask_fill(padding.clone(), 0.0).exp(); // ρ
    let clipped = ratio.clone().clamp(1.0 - config.epsilon_low, 1.0 + config.epsilon_high);
    let surrogate = (ratio.clone() * advantages.clone()).min_pair(clipped * advantages);
    let mut loss = surrogate.neg(); // [b, t]

    if config.kl.coef > 0.0 {
        let ref_logprobs = ref_logprobs.expect("a KL penalty has a reference");
        let e = (ref_logprobs - logprobs).mask_fill(padding, 0.0);
        let mut kl = kl_estimate(e, config.kl.estimator);
        if config.kl.bias_correction {
            kl = kl * ratio;
        }
        loss = loss + kl * config.kl.coef;
    }
    // Row by row: a sum over all at once is cut by the number of threads.
    (loss * weights).sum_dim(1).sum()
}

/// See [`KlEstimator`]; `e = log π_ref − log π_θ`.
fn kl_estimate(e: Tensor<2>, estimator: KlEstimator) -> Tensor<2> {
    match estimator {
        KlEstimator::K1 => e.neg(),
        KlEstimator::K2 => e.square() * 0.5,
        KlEstimator::K3 => e.clone().exp() - e - 1.0,
    }
}
