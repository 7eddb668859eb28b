//! The independent choices that make a GRPO loss, and the familiar names for sets of them.

use serde::{Deserialize, Serialize};

use crate::{Reduction, RewardScale};

/// A loss: bounds of the ratio × penalty × reduction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// The ratio is cut below `1 − epsilon_low` (where the advantage is negative).
    pub epsilon_low: f64,
    /// The ratio is cut above `1 + epsilon_high` (where the advantage is positive).
    pub epsilon_high: f64,
    /// The KL penalty; `coef` 0 for none.
    pub kl: KlConfig,
    /// How the losses of tokens become one number.
    pub reduction: Reduction,
}

/// The penalty for leaving the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlConfig {
    /// β, its weight in the loss.
    pub coef: f64,
    /// How it is estimated from one token.
    pub estimator: KlEstimator,
    /// Multiplies the estimate by the differentiated ratio, so that its gradient is unbiased for the policy
    /// as it is and not as it was when the token was sampled.
    pub bias_correction: bool,
}

/// Estimators of `KL(π ‖ π_ref)` from a sampled token, with `e = log π_ref − log π` (Schulman 2020,
/// "Approximating KL divergence").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// `−e`. As a differentiated loss its expected gradient is 0, so it needs the bias correction.
    K1,
    /// `e² / 2`.
    K2,
    /// `exp(e) − e − 1`, never negative.
    K3,
}

/// Names that the field uses for sets of choices; a configuration may name one and then change parts of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Shao et al. 2024: ε = 0.2, mean over each sequence, then over sequences.
    #[default]
    Grpo,
    /// Liu et al. 2025, "Understanding R1-Zero-like training": a constant divisor, so that long answers are
    /// not favoured, and advantages that are not scaled.
    DrGrpo,
    /// Yu et al. 2025, "DAPO": ε_high = 0.28, mean over all tokens.
    Dapo,
}

impl Preset {
    /// The choices behind the name, without a KL penalty.
    pub fn config(self) -> LossConfig {
        let (epsilon_high, reduction) = match self {
            Self::Grpo => (0.2, Reduction::SequenceMean),
            Self::DrGrpo => (0.2, Reduction::Constant),
            Self::Dapo => (0.28, Reduction::TokenMean),
        };
        let kl = KlConfig { coef: 0.0, estimator: KlEstimator::K3, bias_correction: true };
        LossConfig { epsilon_low: 0.2, epsilon_high, kl, reduction }
    }

    /// What advantages are divided by under this name.
    pub fn reward_scale(self) -> RewardScale {
        match self {
            Self::Grpo | Self::Dapo => RewardScale::Group,
            Self::DrGrpo => RewardScale::None,
        }
    }
}

impl LossConfig {
    /// Checks ranges once, so that nothing later has to.
    ///
    /// # Errors
    /// A bound or weight that is negative or not finite; an uncorrected k1 penalty.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let ranges = [
            ("epsilon_low", self.epsilon_low, 1.0),
            ("epsilon_high", self.epsilon_high, f64::MAX),
            ("kl_coef", self.kl.coef, f64::MAX),
        ];
        for (name, value, most) in ranges {
            if !(0.0..=most).contains(&value) {
                return Err(ConfigError::Range { name, value });
            }
        }
        if self.kl.coef > 0.0 && self.kl.estimator == KlEstimator::K1 && !self.kl.bias_correction {
            return Err(ConfigError::UncorrectedK1);
        }
        Ok(self)
    }
}

/// A loss that cannot be what is meant.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Outside its range.
    #[error("{name} = {value} is out of range; it must be finite and at least 0{}", if *name == "epsilon_low" { ", and at most 1" } else { "" })]
    Range {
        /// The key.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// A penalty that would only add noise.
    #[error(
        "kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero: it adds noise and holds nothing back; use k3, or switch the correction on"
    )]
    UncorrectedK1,
}
