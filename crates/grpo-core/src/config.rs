//! The independent choices that make a loss. Each is an enum that is matched once; familiar names for sets of
//! them are in [`crate::Preset`].

use serde::{Deserialize, Serialize};

use crate::{KlConfig, MismatchCorrection, Reduction, Surrogate};

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

/// What the ratio `π_θ / π_old` is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token has its own (GRPO).
    #[default]
    Token,
    /// The geometric mean over a sequence's tokens, shared by them (GSPO; Zheng et al. 2025, equation 7).
    Sequence,
}

/// `loss −= coef · mean entropy`, over the tokens that the high-entropy mask keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EntropyBonus {
    /// One coefficient.
    Static {
        /// It.
        coef: f64,
    },
    /// A coefficient that rises while the entropy is at or below its target and falls above it, where it
    /// counts for nothing (He et al. 2025, "Skywork Open Reasoner 1", §3.3).
    Adaptive {
        /// The coefficient before the first update.
        initial: f64,
        /// Mean entropy in nats, over the tokens that the high-entropy mask keeps.
        target: f64,
        /// The change of the coefficient after each update.
        delta: f64,
        /// Its smallest value.
        min: f64,
        /// Its largest value.
        max: f64,
    },
}

impl RatioLevel {
    /// Neighbouring tokens that share one ratio in a sequence of `length` tokens.
    pub(crate) fn tokens_sharing(self, length: usize) -> usize {
        match self {
            Self::Token => 1,
            Self::Sequence => length.max(1),
        }
    }
}

impl LossConfig {
    /// Checks ranges and combinations once, so that nothing later has to.
    ///
    /// # Errors
    /// A number out of its range; a combination that cannot be what is meant (see [`ConfigError`]).
    pub fn checked(self) -> Result<Self, ConfigError> {
        self.surrogate.check()?;
        self.kl.check()?;
        if let Some(threshold) = self.off_policy_threshold {
            at_least_zero("off_policy_threshold", threshold)?;
        }
        if let Some(share) =
            self.high_entropy_share.filter(|share| !(*share > 0.0 && *share <= 1.0))
        {
            let expected = "above 0, and at most 1";
            return Err(ConfigError::Range { name: "high_entropy_share", value: share, expected });
        }
        if let Some(mismatch) = &self.mismatch {
            mismatch.check()?;
            let sequence_weight = matches!(self.surrogate, Surrogate::Vespo { .. });
            if sequence_weight && mismatch.level == RatioLevel::Sequence {
                return Err(ConfigError::VespoWithSequenceCorrection);
            }
        }
        if let Some(bonus) = &self.entropy_bonus {
            bonus.check()?;
        }
        Ok(self)
    }

    /// Whether the loss needs the entropies of tokens.
    pub fn needs_entropies(&self) -> bool {
        self.high_entropy_share.is_some() || self.entropy_bonus.is_some()
    }
}

impl EntropyBonus {
    fn check(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Static { coef } => at_least_zero("entropy_bonus.coef", coef),
            Self::Adaptive { initial, target, delta, min, max } => {
                at_least_zero("entropy_bonus.target", target)?;
                at_least_zero("entropy_bonus.delta", delta)?;
                at_least_zero("entropy_bonus.min", min)?;
                at_least_zero("entropy_bonus.max", max)?;
                if !(min..=max).contains(&initial) {
                    return Err(ConfigError::Range {
                        name: "entropy_bonus.initial",
                        value: initial,
                        expected: "between entropy_bonus.min and entropy_bonus.max",
                    });
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn at_least_zero(name: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=f64::MAX).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::Range { name, value, expected: "0 or more, and finite" })
}

pub(crate) fn above_zero(name: &'static str, value: f64) -> Result<(), ConfigError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(ConfigError::Range { name, value, expected: "above 0, and finite" })
}

/// Settings that cannot be what is meant.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Outside its range.
    #[error("{name} = {value} is out of range; it must be {expected}")]
    Range {
        /// The key.
        name: &'static str,
        /// What it was.
        value: f64,
        /// The range in words.
        expected: &'static str,
    },
    /// A penalty that would only add noise.
    #[error(
        "kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero as a loss: it adds noise and holds nothing back; use k3, switch the correction on, or put the penalty into the reward"
    )]
    UncorrectedK1,
    /// Nothing to correct.
    #[error(
        "kl_bias_correction has no meaning {}; leave it out", if *.in_reward { "for a penalty in the reward, which is not differentiated" } else { "for the exact KL, which is not estimated from the sampled token" }
    )]
    NothingToCorrect {
        /// Whether because of its placement.
        in_reward: bool,
    },
    /// VESPO weighs sequences by the product of token ratios.
    #[error(
        "the vespo surrogate folds the sampler mismatch of each token into its sequence weight, so a correction of sequence level would count it twice; use mismatch.level = \"token\""
    )]
    VespoWithSequenceCorrection,
    /// Differences between groups, divided by the spread within one.
    #[error(
        "a batch baseline divided by the group's deviation: a group of equal rewards would be divided by epsilon alone; use scale = \"batch\" or \"none\""
    )]
    BatchBaselineOverGroup,
    /// Each function is normalised within its group first.
    #[error(
        "aggregation = \"normalize_then_sum\" centres each reward function within its group, so it has no batch baseline; use baseline = \"group\" or \"leave_one_out\""
    )]
    BatchBaselineOfParts,
    /// The lower bound of a correction is above its upper one.
    #[error("mismatch.min = {min} is above mismatch.max = {max}")]
    EmptyRange {
        /// Lower bound.
        min: f64,
        /// Upper bound.
        max: f64,
    },
}

impl ConfigError {
    /// The key of its section that has to change, `mismatch.min` for one of a table in it.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Range { name, .. } => name,
            Self::UncorrectedK1 => "kl_estimator",
            Self::NothingToCorrect { .. } => "kl_bias_correction",
            Self::VespoWithSequenceCorrection => "mismatch.level",
            Self::BatchBaselineOverGroup | Self::BatchBaselineOfParts => "baseline",
            Self::EmptyRange { .. } => "mismatch.min",
        }
    }
}
