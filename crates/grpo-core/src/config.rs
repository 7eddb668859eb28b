//! The independent choices that make a loss. Each is an enum that is matched once; familiar names for sets of
//! them are in [`crate::Preset`].

use serde::{Deserialize, Serialize};

use crate::error::at_least_zero;
use crate::{
    ConfigError, EntropyBonus, KlConfig, MismatchCorrection, RatioLevel, Reduction, Surrogate,
};

/// A loss: surrogate × ratio × penalty × masks × reduction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// What is made of a token's ratio and advantage.
    pub surrogate: Surrogate,
    /// One ratio for each token, or one for each sequence.
    pub ratio_level: RatioLevel,
    /// The penalty for leaving the reference; `coef` 0 for none.
    pub kl: KlConfig,
    /// How the losses of tokens become one number.
    pub reduction: Reduction,
    /// A sequence with a negative advantage is dropped where the mean over its tokens of
    /// `log π_behaviour − log π_θ` is above this (DeepSeek-V3.2, "off-policy sequence masking"). The behaviour
    /// is the sampler where a mismatch correction is on, else π_old.
    pub off_policy_threshold: Option<f64>,
    /// ρ: only this share of the optimizer batch's tokens, those with the highest entropy, has a surrogate
    /// (Wang et al. 2025, "Beyond the 80/20 rule"). See [`crate::HighEntropy`].
    pub high_entropy_share: Option<f64>,
    /// What is done about a sampler whose probabilities are not the trainer's.
    pub mismatch: Option<MismatchCorrection>,
    /// Rewards entropy. The coefficient of a step is [`crate::EntropyController::coef`].
    pub entropy_bonus: Option<EntropyBonus>,
}

impl LossConfig {
    /// Checks ranges and combinations once, so that nothing later has to.
    ///
    /// # Errors
    /// A number out of its range; a combination that cannot be what is meant.
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
