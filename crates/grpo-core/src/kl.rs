//! KL penalty to the reference policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dual::{Dual, largest_exponent};
use crate::error::{ConfigError, at_least_zero};

/// Settings for the KL penalty to the reference policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlConfig {
    /// Penalty weight β.
    pub coef: f64,
    /// KL estimator.
    pub estimator: KlEstimator,
    /// Whether the penalty is added to the loss or subtracted from the reward.
    pub placement: KlPlacement,
    /// Multiplies the estimate by the importance ratio, with its derivative. This makes the
    /// gradient unbiased for the current policy instead of the sampling policy.
    pub bias_correction: bool,
}

/// Per-token estimators of `KL(π ‖ π_ref)`, where `e = log π_ref − log π` for the sampled token
/// (Schulman 2020, "Approximating KL divergence").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// `−e`. As a loss, its expected gradient is 0 unless bias correction is enabled.
    K1,
    /// `e² / 2`.
    K2,
    /// `exp(e) − e − 1`, never negative.
    K3,
    /// `Σ_v π(v) (log π(v) − log π_ref(v))`, the exact value over the whole vocabulary.
    Exact,
}

/// Where the KL penalty is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlPlacement {
    /// Adds `β · KL` to each token loss (GRPO).
    #[default]
    Loss,
    /// Subtracts `β · Σ_t KL` from the reward of each completion before the advantages are
    /// computed. See [`sequence_kl`].
    Reward,
}

impl KlEstimator {
    /// Returns whether the estimator requires log-probabilities over the whole vocabulary.
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
                true => "on a penalty in the reward, which is not differentiated",
                false => "on the exact KL, which is not estimated from the sampled token",
            };
            return Err(ConfigError::new(
                "kl_bias_correction",
                format!("kl_bias_correction has no effect {problem}; remove it"),
            ));
        }
        let uncorrected_loss = !in_reward && !self.bias_correction;
        if self.coef > 0.0 && self.estimator == KlEstimator::K1 && uncorrected_loss {
            return Err(ConfigError::new(
                "kl_estimator",
                "kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero, so as a loss it only adds noise; use k3, enable the correction, or apply the penalty to the reward",
            ));
        }
        Ok(())
    }

    /// Returns whether the penalty is part of the loss.
    pub fn in_loss(&self) -> bool {
        self.coef > 0.0 && self.placement == KlPlacement::Loss
    }

    /// Returns whether the penalty is part of the reward.
    pub fn in_reward(&self) -> bool {
        self.coef > 0.0 && self.placement == KlPlacement::Reward
    }

    /// Returns the KL estimate for one token, including bias correction if enabled. The mean of
    /// these estimates is reported as the `kl` metric.
    ///
    /// `e` is `log π_ref − log π` for the sampled token, and `exact` is the exact KL.
    ///
    /// # Panics
    /// Panics if the estimator is [`KlEstimator::Exact`] and `exact` is `None`.
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

    /// Returns the term that an estimate adds to the loss.
    pub(crate) fn penalty(&self, estimate: Option<Dual>) -> Dual {
        match self.in_loss() {
            true => estimate.expect("a KL penalty requires a reference") * self.coef,
            false => Dual::default(),
        }
    }
}

/// Returns `Σ_t KL` for one completion. With [`KlPlacement::Reward`], `β` times this value is
/// subtracted from the reward. For k1, the sum is `log π(o|q) − log π_ref(o|q)`, which yields the
/// reward of the KL-regularised objective (Ouyang et al. 2022, equation 2).
///
/// If there are multiple reward functions, the penalty acts like another function with weight `−β`.
///
/// # Shapes
/// - logprobs: `[actions]`, from the sampling policy
/// - ref_logprobs: `[actions]`, from the reference policy
/// - exact: `[actions]`, required by [`KlEstimator::Exact`]
///
/// # Panics
/// Panics if the lengths differ, or if the estimator requires `exact` and it is `None`.
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
