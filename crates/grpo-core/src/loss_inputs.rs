//! What a loss is computed from, and what is made of it before the formula.

use burn::tensor::{Bool, Tensor};

use crate::kl::kl_estimate;
use crate::range::within_range;
use crate::{BatchTotals, KlConfig, MismatchCorrection, RatioLevel};

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

/// [`LossInputs`] with 0 in padded places, all `[b, t]`, and their parts of the formula.
pub(crate) struct Active {
    pub(crate) logprobs: Tensor<2>,
    pub(crate) old_logprobs: Tensor<2>,
    pub(crate) advantages: Tensor<2>,
    pub(crate) mask: Tensor<2>,
    padding: Tensor<2, Bool>,
    ref_logprobs: Option<Tensor<2>>,
    sampling_logprobs: Option<Tensor<2>>,
    exact_kl: Option<Tensor<2>>,
    entropies: Option<Tensor<2>>,
}

impl LossInputs {
    /// Padding is cut off before anything is computed of it: 0 · ∞ is not 0.
    pub(crate) fn without_padding(self) -> Active {
        let shape = self.logprobs.dims();
        let padding = self.mask.equal_elem(0.0); // [b, t]
        let active = |values: Tensor<2>| values.mask_fill(padding.clone(), 0.0);
        let mask = padding.clone().bool_not().float().cast(self.logprobs.dtype());
        let logprobs = active(self.logprobs);
        Active {
            // On the first update ρ is exactly 1, and only its derivative counts.
            old_logprobs: self.old_logprobs.map_or_else(|| logprobs.clone().detach(), active),
            advantages: self.advantages.expand(shape),
            ref_logprobs: self.ref_logprobs.map(active),
            sampling_logprobs: self.sampling_logprobs.map(active),
            exact_kl: self.exact_kl.map(active),
            entropies: self.entropies.map(active),
            logprobs,
            mask,
            padding,
        }
    }
}

impl Active {
    /// ρ, from `log π_θ − log π_old`.
    pub(crate) fn ratio(&self, log_ratio: Tensor<2>, level: RatioLevel) -> Tensor<2> {
        let exponent = match level {
            RatioLevel::Token => log_ratio,
            RatioLevel::Sequence => self.mean_of_sequence(log_ratio),
        };
        within_range(exponent).exp()
    }

    /// The corrected `π_old / π_sampler`.
    pub(crate) fn mismatch(&self, correction: &MismatchCorrection) -> Tensor<2> {
        let weights = correction.weights(self.old_logprobs.clone() - self.sampling());
        // The bounds may leave 1 out, and padded places are no tokens to correct.
        weights.mask_fill(self.padding.clone(), 1.0)
    }

    /// True for sequences that are worse than others and that the policy has left behind: the mean of
    /// `log π_behaviour − log π_θ` is above `threshold`.
    pub(crate) fn off_policy(&self, threshold: f64, sampler_differs: bool) -> Tensor<2, Bool> {
        let behaviour = if sampler_differs { self.sampling() } else { self.old_logprobs.clone() };
        let distance = self.mean_of_sequence(behaviour - self.logprobs.clone().detach());
        distance.greater_elem(threshold).bool_and(self.advantages.clone().lower_elem(0.0))
    }

    /// True for tokens that the high-entropy mask drops.
    pub(crate) fn low_entropy(&self, totals: &BatchTotals) -> Tensor<2, Bool> {
        let kept = totals.high_entropy.expect("a high-entropy mask has a threshold");
        let entropies = self.entropies.clone().expect("a high-entropy mask has entropies");
        entropies.lower_elem(kept.threshold)
    }

    /// The penalty of each token, without its weight.
    pub(crate) fn kl(&self, config: &KlConfig, ratio: Tensor<2>) -> Tensor<2> {
        let reference = self.ref_logprobs.clone().expect("a KL penalty has a reference");
        let e = reference - self.logprobs.clone();
        let kl = kl_estimate(e, self.exact_kl.clone(), config.estimator);
        if config.bias_correction { kl * ratio } else { kl }
    }

    /// `Σ entropy`, over tokens that are not `dropped`.
    pub(crate) fn sum_of_entropies(&self, dropped: Option<Tensor<2, Bool>>) -> Tensor<1> {
        let entropies = self.entropies.clone().expect("an entropy bonus has entropies");
        let entropies = match dropped {
            Some(dropped) => entropies.mask_fill(dropped, 0.0),
            None => entropies,
        };
        entropies.sum_dim(1).sum()
    }

    fn sampling(&self) -> Tensor<2> {
        self.sampling_logprobs.clone().expect("a mismatch correction has the sampler's")
    }

    /// Of each sequence, at each of its places.
    fn mean_of_sequence(&self, values: Tensor<2>) -> Tensor<2> {
        let shape = values.dims();
        let lengths = self.mask.clone().sum_dim(1).clamp_min(1.0); // [b, 1]
        (values.sum_dim(1) / lengths).expand(shape)
    }
}
