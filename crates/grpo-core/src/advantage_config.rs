//! The independent choices that turn rewards into advantages.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, at_least_zero};

/// How rewards become advantages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageConfig {
    /// How several reward functions become one number.
    pub aggregation: Aggregation,
    /// What is subtracted.
    pub baseline: Baseline,
    /// What the centred rewards are divided by.
    pub scale: RewardScale,
    /// Which standard deviation that is.
    pub deviation: Deviation,
    /// Added to a standard deviation before dividing.
    pub epsilon: f64,
    /// Advantages are cut to `−c..c`; `None` leaves them. With the group's own deviation none is larger than
    /// `(n − 1)/√n` (sample) or `√(n − 1)` (population) anyway.
    pub clip: Option<f64>,
}

impl Default for AdvantageConfig {
    /// GRPO as published: the group's mean and sample deviation.
    fn default() -> Self {
        Self {
            aggregation: Aggregation::SumThenNormalize,
            baseline: Baseline::Group,
            scale: RewardScale::Group,
            deviation: Deviation::Sample,
            epsilon: 1e-4,
            clip: None,
        }
    }
}

/// How several reward functions become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// `r = Σ_k w_k R_k`, which is centred and scaled.
    #[default]
    SumThenNormalize,
    /// GDPO (Liu et al. 2026): each function is centred and scaled within the group, and the weighted sum
    /// of these over the whole batch. Neither [`AdvantageConfig::scale`] nor a batch baseline applies.
    NormalizeThenSum,
}

/// What is subtracted from a reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The mean of the group (GRPO).
    #[default]
    Group,
    /// The mean over all groups of the step.
    Batch,
    /// The mean of the *other* completions of the group (RLOO; Kool et al. 2019).
    LeaveOneOut,
}

/// What the centred rewards of a group are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardScale {
    /// The group's standard deviation (GRPO).
    #[default]
    Group,
    /// The standard deviation over all groups of the step.
    Batch,
    /// Nothing (Dr. GRPO): a group with small differences stays small.
    None,
}

/// Which standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deviation {
    /// Over n − 1.
    #[default]
    Sample,
    /// Over n.
    Population,
}

impl AdvantageConfig {
    /// Checks ranges and combinations once.
    ///
    /// # Errors
    /// An epsilon that is negative or not finite; a clip that is not positive; a batch baseline divided by a
    /// group's deviation, or together with [`Aggregation::NormalizeThenSum`].
    pub fn checked(self) -> Result<Self, ConfigError> {
        at_least_zero("epsilon", self.epsilon)?;
        if let Some(clip) = self.clip.filter(|clip| clip.is_nan() || *clip <= 0.0) {
            return Err(ConfigError::out_of_range("clip", clip, "above 0"));
        }
        if self.baseline == Baseline::Batch {
            if self.aggregation == Aggregation::NormalizeThenSum {
                return Err(ConfigError::new(
                    "baseline",
                    "aggregation = \"normalize_then_sum\" centres each reward function within its group, so it has no batch baseline; use baseline = \"group\" or \"leave_one_out\"",
                ));
            }
            if self.scale == RewardScale::Group {
                return Err(ConfigError::new(
                    "baseline",
                    "a batch baseline divided by the group's deviation: a group of equal rewards would be divided by epsilon alone; use scale = \"batch\" or \"none\"",
                ));
            }
        }
        Ok(self)
    }
}
