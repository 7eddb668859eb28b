//! The KL penalty to the reference policy.

use serde::{Deserialize, Serialize};

use crate::dual::{Dual, largest_exponent};
use crate::error::{ConfigError, at_least_zero};

/// The KL penalty to the reference policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlConfig {
    /// β, the weight of the penalty.
    pub coef: f64,
    /// Estimator of the KL.
    pub estimator: KlEstimator,
    /// Whether the penalty is part of the loss or of the reward.
    pub placement: KlPlacement,
    /// Multiplies the estimate by the differentiated ratio, which makes its gradient unbiased for
    /// the current policy instead of the sampling policy.
    pub bias_correction: bool,
}

/// Estimators of `KL(π ‖ π_ref)` at a position, with `e = log π_ref − log π` of the sampled token (Schulman
/// 2020, "Approximating KL divergence").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// `−e`. Its expected gradient as a loss is 0 without the bias correction.
    K1,
    /// `e² / 2`.
    K2,
    /// `exp(e) − e − 1`, never negative.
    K3,
    /// `Σ_v π(v) (log π(v) − log π_ref(v))` over the whole vocabulary, which is exact.
    Exact,
}

/// Whether the penalty is part of the loss or of the reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlPlacement {
    /// Adds the differentiated `β · KL` of each token to the loss (GRPO).
    #[default]
    Loss,
    /// Subtracts `β · Σ_t KL` of a completion from its reward before advantages are computed. See
    /// [`sequence_kl`].
    Reward,
}

impl KlEstimator {
    /// Returns whether the estimator needs log-probabilities of the whole vocabulary.
    pub fn is_exact(self) -> bool {
        self == Self::Exact
    }
}

impl KlConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        at_least_zero("kl_coef", self.coef)?;
        let in_reward = self.placement == KlPlacement::Reward;
        if self.bias_correction && (in_reward || self.estimator.is_exact()) {
            let problem = match in_reward {
                true => "for a penalty in the reward, which is not differentiated",
                false => "for the exact KL, which is not estimated from the sampled token",
            };
            return Err(ConfigError::new(
                "kl_bias_correction",
                format!("kl_bias_correction has no meaning {problem}; leave it out"),
            ));
        }
        let uncorrected_loss = !in_reward && !self.bias_correction;
        if self.coef > 0.0 && self.estimator == KlEstimator::K1 && uncorrected_loss {
            return Err(ConfigError::new(
                "kl_estimator",
                "kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero as a loss: it only adds noise; use k3, switch the correction on, or put the penalty into the reward",
            ));
        }
        Ok(())
    }

    /// Returns whether the loss contains the penalty.
    pub fn in_loss(&self) -> bool {
        self.coef > 0.0 && self.placement == KlPlacement::Loss
    }

    /// Returns whether the reward contains the penalty.
    pub fn in_reward(&self) -> bool {
        self.coef > 0.0 && self.placement == KlPlacement::Reward
    }

    /// Returns the estimate at one position, with the bias correction if enabled. Its mean is the
    /// metric `kl`.
    ///
    /// `e` is `log π_ref − log π` of the sampled token, `exact` the exact KL.
    ///
    /// # Panics
    /// Panics for [`KlEstimator::Exact`] without `exact`.
    pub(crate) fn estimate(
        &self,
        e: Dual,
        exact: Option<Dual>,
        ratio: Dual,
        largest_exponent: f64,
    ) -> Dual {
        let estimate = match self.estimator {
            KlEstimator::K1 => -e,
            KlEstimator::K2 => e.square() * 0.5,
            KlEstimator::K3 => {
                let e = e.min(Dual::constant(largest_exponent));
                e.exp_m1() - e
            }
            KlEstimator::Exact => exact.expect("the exact KL of each position is given"),
        };
        if self.bias_correction { estimate * ratio } else { estimate }
    }

    /// Returns the contribution of an estimate to the loss.
    pub(crate) fn penalty(&self, estimate: Option<Dual>) -> Dual {
        match self.in_loss() {
            true => estimate.expect("a KL penalty has a reference") * self.coef,
            false => Dual::default(),
        }
    }
}

/// Returns `Σ_t KL` of one completion for [`KlPlacement::Reward`], which the reward loses `β`
/// times. Summed k1 is `log π(o|q) − log π_ref(o|q)`, which makes the reward that of the
/// KL-regularised objective (Ouyang et al. 2022, equation 2).
///
/// With several reward functions it is another function with weight `−β`.
///
/// # Shapes
/// - logprobs, ref_logprobs: `[actions]` of the sampling policy and of the reference
/// - exact: `[actions]`, required by [`KlEstimator::Exact`]
///
/// # Panics
/// Panics if the lengths differ, or if `exact` is required and missing.
pub fn sequence_kl(
    estimator: KlEstimator,
    logprobs: &[f64],
    ref_logprobs: &[f64],
    exact: Option<&[f64]>,
) -> f64 {
    assert_eq!(logprobs.len(), ref_logprobs.len(), "log-probabilities of policy and reference");
    let config =
        KlConfig { coef: 1.0, estimator, placement: KlPlacement::Reward, bias_correction: false };
    let tokens = logprobs.iter().zip(ref_logprobs).enumerate();
    let at = |(t, (logprob, reference)): (usize, (&f64, &f64))| {
        let exact = exact.map(|exact| Dual::constant(exact[t]));
        let e = Dual::constant(reference - logprob);
        config.estimate(e, exact, Dual::constant(1.0), largest_exponent(f64::MAX)).value
    };
    tokens.map(at).sum()
}
