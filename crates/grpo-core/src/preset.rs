//! Presets for published GRPO variants.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    KlConfig, KlEstimator, KlPlacement, LossConfig, RatioLevel, Reduction, RewardScale, Surrogate,
};

/// A named set of defaults. Individual settings can be overridden in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Shao et al. 2024, "DeepSeekMath": ε = 0.2, averaged over each sequence, then over sequences.
    #[default]
    Grpo,
    /// Liu et al. 2025, "Understanding R1-Zero-like training": unscaled advantages, and a constant
    /// divisor that does not favour long answers.
    DrGrpo,
    /// Yu et al. 2025, "DAPO": ε_high = 0.28, averaged over all tokens in the optimizer batch.
    Dapo,
    /// Averaged over all tokens in each micro-batch, like `bnpo` in TRL.
    Bnpo,
    /// Zheng et al. 2025, "Group Sequence Policy Optimization": one ratio per sequence and
    /// correspondingly tighter clipping bounds.
    Gspo,
    /// MiniMax-M1, 2025: clipped importance weights that keep the gradient, averaged over all
    /// tokens.
    Cispo,
    /// Qwen, 2025, "Soft Adaptive Policy Optimization".
    Sapo,
    /// "VESPO", 2026: a smooth weight per sequence, averaged over all tokens.
    Vespo,
    /// "Length-Unbiased Sequence Policy Optimization", 2026: one ratio per sequence, summed over
    /// its tokens.
    Luspo,
    /// `−A log π`, averaged over each sequence, then over sequences.
    Reinforce,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 10] = [
        Self::Grpo,
        Self::DrGrpo,
        Self::Dapo,
        Self::Bnpo,
        Self::Gspo,
        Self::Cispo,
        Self::Sapo,
        Self::Vespo,
        Self::Luspo,
        Self::Reinforce,
    ];

    /// Returns the loss settings for this preset. The KL penalty is disabled.
    pub fn config(self) -> LossConfig {
        let clipped = |epsilon_low, epsilon_high| Surrogate::Clipped {
            epsilon_low,
            epsilon_high,
            delta: None,
        };
        let sapo = Surrogate::Sapo { temperature_positive: 1.0, temperature_negative: 1.05 };
        let vespo = Surrogate::Vespo {
            k_positive: 2.0,
            lambda_positive: 3.0,
            k_negative: 3.0,
            lambda_negative: 2.0,
        };
        let (token, sequence) = (RatioLevel::Token, RatioLevel::Sequence);
        let (surrogate, ratio_level, reduction) = match self {
            Self::Grpo => (clipped(0.2, 0.2), token, Reduction::SequenceMean),
            Self::DrGrpo => (clipped(0.2, 0.2), token, Reduction::Constant),
            Self::Dapo => (clipped(0.2, 0.28), token, Reduction::TokenMean),
            Self::Bnpo => (clipped(0.2, 0.2), token, Reduction::MicroBatchTokenMean),
            Self::Gspo => (clipped(3e-4, 4e-4), sequence, Reduction::SequenceMean),
            Self::Cispo => (Surrogate::Cispo { cap: 5.0 }, token, Reduction::TokenMean),
            Self::Sapo => (sapo, token, Reduction::SequenceMean),
            Self::Vespo => (vespo, token, Reduction::TokenMean),
            Self::Luspo => (clipped(3e-4, 4e-4), sequence, Reduction::SequenceSum),
            Self::Reinforce => (Surrogate::Reinforce {}, token, Reduction::SequenceMean),
        };
        let kl = KlConfig {
            coef: 0.0,
            estimator: KlEstimator::K3,
            placement: KlPlacement::Loss,
            bias_correction: true,
        };
        LossConfig {
            surrogate,
            ratio_level,
            kl,
            reduction,
            off_policy_threshold: None,
            high_entropy_share: None,
            mismatch: None,
            entropy_bonus: None,
        }
    }

    /// Returns the reward scale for this preset.
    pub fn reward_scale(self) -> RewardScale {
        match self {
            Self::DrGrpo => RewardScale::None,
            _ => RewardScale::Group,
        }
    }
}

impl fmt::Display for Preset {
    /// Writes the name used in configuration files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
