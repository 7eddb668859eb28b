//! Settings of a loss. Each is an enum; [`crate::Preset`] names common combinations.

use serde::{Deserialize, Serialize};

use crate::error::at_least_zero;
use crate::{
    ConfigError, EntropyBonus, KlConfig, MismatchCorrection, RatioLevel, Reduction, Surrogate,
};

/// Settings of a loss: surrogate × ratio × penalty × masks × reduction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// Function of a token's importance ratio and advantage.
    pub surrogate: Surrogate,
    /// Whether each token or each sequence has an importance ratio.
    pub ratio_level: RatioLevel,
    /// KL penalty to the reference policy; `coef` 0 for none.
    pub kl: KlConfig,
    /// How token losses are reduced to a number.
    pub reduction: Reduction,
    /// Drops a sequence with a negative advantage if its mean of `log π_behaviour − log π_θ`
    /// exceeds this threshold (DeepSeek-V3.2, "off-policy sequence masking"). The behaviour policy
    /// is the sampler if a mismatch correction is on, else π_old.
    pub off_policy_threshold: Option<f64>,
    /// ρ: only this fraction of the optimizer batch's tokens, those with the highest entropy, keeps
    /// its surrogate (Wang et al. 2025, "Beyond the 80/20 rule"). See [`crate::HighEntropy`].
    pub high_entropy_share: Option<f64>,
    /// Correction for a sampler whose probabilities differ from the trainer's.
    pub mismatch: Option<MismatchCorrection>,
    /// Entropy bonus. [`crate::EntropyController::coef`] is the coefficient of a step.
    pub entropy_bonus: Option<EntropyBonus>,
}

impl LossConfig {
    /// Checks ranges and combinations.
    ///
    /// # Errors
    /// Returns an error if a number is out of range or a combination is not supported.
    pub fn checked(self) -> Result<Self, ConfigError> {
        self.surrogate.check()?;
        self.kl.check()?;
        if let Some(threshold) = self.off_policy_threshold {
            at_least_zero("off_policy_threshold", threshold)?;
        }
        if let Some(share) =
            self.high_entropy_share.filter(|share| !(*share > 0.0 && *share <= 1.0))
        {
            let (name, expected) = ("high_entropy_share", "above 0, and at most 1");
            return Err(ConfigError::out_of_range(name, share, expected));
        }
        if let Some(mismatch) = &self.mismatch {
            mismatch.check()?;
            let sequence_weight = matches!(self.surrogate, Surrogate::Vespo { .. });
            if sequence_weight && mismatch.level == RatioLevel::Sequence {
                return Err(ConfigError::new(
                    "mismatch.level",
                    "the vespo surrogate folds the sampler mismatch of each token into its sequence weight, so a correction of sequence level would count it twice; use mismatch.level = \"token\"",
                ));
            }
        }
        if let Some(bonus) = &self.entropy_bonus {
            bonus.check()?;
        }
        Ok(self)
    }
}
