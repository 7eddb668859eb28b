//! Loss configuration. [`crate::Preset`] provides common combinations.

use serde::{Deserialize, Serialize};

use crate::error::at_least_zero;
use crate::{
    ConfigError, EntropyBonus, KlConfig, MismatchCorrection, RatioLevel, Reduction, Surrogate,
};

/// Loss settings. The section `[loss]` is a type of its own, because it names a preset and overrides parts of
/// it; here, every choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// Surrogate objective, a function of the importance ratio and the advantage.
    pub surrogate: Surrogate,
    /// Whether the importance ratio is computed per token or per sequence.
    pub ratio_level: RatioLevel,
    /// KL penalty to the reference policy. Disabled if `coef` is 0.
    pub kl: KlConfig,
    /// How token losses are aggregated into a scalar.
    pub reduction: Reduction,
    /// Drops a sequence with a negative advantage if the mean of `log π_behaviour − log π_θ`
    /// exceeds this threshold (DeepSeek-V3.2, "off-policy sequence masking"). The behaviour policy
    /// is the sampler if mismatch correction is enabled, and π_old otherwise.
    pub off_policy_threshold: Option<f64>,
    /// ρ: fraction of tokens in the optimizer batch that keep their surrogate. The tokens with the
    /// highest entropy are kept (Wang et al. 2025, "Beyond the 80/20 rule"). See
    /// [`crate::HighEntropy`].
    pub high_entropy_share: Option<f64>,
    /// Correction for differences between the sampler's and the trainer's probabilities.
    pub mismatch: Option<MismatchCorrection>,
    /// Entropy bonus. [`crate::EntropyController::coef`] returns the coefficient for each step.
    pub entropy_bonus: Option<EntropyBonus>,
}

impl LossConfig {
    /// Validates the settings and returns them.
    ///
    /// # Errors
    /// Returns an error if a value is out of range or a combination is unsupported.
    pub fn checked(self) -> Result<Self, ConfigError> {
        self.surrogate.check()?;
        self.kl.check()?;
        if let Some(threshold) = self.off_policy_threshold {
            at_least_zero("off_policy_threshold", threshold)?;
        }
        if let Some(share) =
            self.high_entropy_share.filter(|share| !(*share > 0.0 && *share <= 1.0))
        {
            let (name, expected) = ("high_entropy_share", "above 0 and at most 1");
            return Err(ConfigError::out_of_range(name, share, expected));
        }
        if let Some(mismatch) = &self.mismatch {
            mismatch.check()?;
            let sequence_weight = matches!(self.surrogate, Surrogate::Vespo { .. });
            if sequence_weight && mismatch.level == RatioLevel::Sequence {
                return Err(ConfigError::new(
                    "mismatch.level",
                    "the vespo surrogate folds the sampler mismatch of each token into its sequence weight, so a sequence-level correction would count it twice; use mismatch.level = \"token\"",
                ));
            }
        }
        if let Some(bonus) = &self.entropy_bonus {
            bonus.check()?;
        }
        Ok(self)
    }
}
