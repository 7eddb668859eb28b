//! Settings of the advantage computation.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, at_least_zero};

/// Settings of the advantage computation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageConfig {
    /// How several reward functions are aggregated.
    pub aggregation: Aggregation,
    /// What is subtracted from a reward.
    pub baseline: Baseline,
    /// What the centred rewards are divided by.
    pub scale: RewardScale,
    /// Estimator of the standard deviation.
    pub deviation: Deviation,
    /// Added to the standard deviation before the division.
    pub epsilon: f64,
    /// Limits advantages to `−c..c`; `None` for no limit. With the group's own deviation, no
    /// advantage exceeds `(n − 1)/√n` (sample) or `√(n − 1)` (population).
    pub clip: Option<f64>,
}

impl Default for AdvantageConfig {
    /// GRPO as published: group mean and group sample deviation.
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

/// How several reward functions are aggregated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// `r = Σ_k w_k R_k`, which is then centred and scaled.
    #[default]
    SumThenNormalize,
    /// GDPO (Liu et al. 2026): centres and scales each function within the group, then their
    /// weighted sum over the whole batch. Neither [`AdvantageConfig::scale`] nor a batch baseline
    /// applies.
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

/// Divisor of the centred rewards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardScale {
    /// The group's standard deviation (GRPO).
    #[default]
    Group,
    /// The standard deviation over all groups of the step.
    Batch,
    /// No scaling (Dr. GRPO).
    None,
}

/// Estimator of a standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deviation {
    /// Divides by n − 1.
    #[default]
    Sample,
    /// Divides by n.
    Population,
}

impl AdvantageConfig {
    /// Checks ranges and combinations.
    ///
    /// # Errors
    /// Returns an error if epsilon is negative or not finite, if clip is not positive, or if a
    /// batch baseline is combined with group scaling or [`Aggregation::NormalizeThenSum`].
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
