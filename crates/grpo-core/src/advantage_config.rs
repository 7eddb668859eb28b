//! Advantage settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero, at_least_zero};

/// How advantages are computed from rewards. In the section `[advantage]`, which is a type of its own, the
/// scale and the level of the quantile may be missing; here, the preset and the defaults have filled them in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdvantageConfig {
    /// How multiple reward functions are combined.
    pub aggregation: Aggregation,
    /// Value subtracted from each reward.
    pub baseline: Baseline,
    /// Level K of [`Baseline::Quantile`], above 0 and at most 1. It has no effect otherwise.
    pub quantile: f64,
    /// Value that the centred rewards are divided by.
    pub scale: RewardScale,
    /// Estimator of the standard deviation.
    pub deviation: Deviation,
    /// Added to the standard deviation to avoid division by zero.
    pub epsilon: f64,
    /// Clips advantages to `[−c, c]`; `None` disables clipping. With group scaling, an advantage
    /// never exceeds `(n − 1)/√n` (sample deviation) or `√(n − 1)` (population deviation).
    pub clip: Option<f64>,
}

impl Default for AdvantageConfig {
    /// Returns the published GRPO settings: group mean and group sample deviation.
    fn default() -> Self {
        Self {
            aggregation: Aggregation::SumThenNormalize,
            baseline: Baseline::Group,
            quantile: 0.4,
            scale: RewardScale::Group,
            deviation: Deviation::Sample,
            epsilon: 1e-4,
            clip: None,
        }
    }
}

/// How multiple reward functions are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Computes `r = Σ_k w_k R_k`, then centres and scales the sum.
    #[default]
    SumThenNormalize,
    /// Normalises each reward function within the group, then the weighted sum over the whole batch
    /// (GDPO; Liu et al. 2026). `scale` is ignored, and a batch baseline is rejected.
    NormalizeThenSum,
}

/// Value subtracted from each reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Group mean (GRPO).
    #[default]
    Group,
    /// Mean over all groups in the step.
    Batch,
    /// Mean of the *other* completions in the group (RLOO; Kool et al. 2019).
    LeaveOneOut,
    /// Quantile of the group: its smallest reward that at least the fraction K of its rewards does not
    /// exceed (Wu et al. 2025, "Quantile advantage estimation", arXiv:2509.22611). Their default of K is
    /// 0.4.
    Quantile,
    /// Nothing: the advantage is the reward (REINFORCE; Williams 1992). Requires `scale = "none"`.
    None,
}

/// Value that the centred rewards are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RewardScale {
    /// Standard deviation within the group (GRPO).
    #[default]
    Group,
    /// Standard deviation over all groups in the step.
    Batch,
    /// No scaling (Dr. GRPO).
    None,
}

/// Standard deviation estimator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deviation {
    /// Divides by n − 1.
    #[default]
    Sample,
    /// Divides by n.
    Population,
}

impl AdvantageConfig {
    /// Validates the settings and returns them.
    ///
    /// # Errors
    /// Returns an error if `epsilon` is negative or not finite, if `clip` is not positive and finite, if `quantile` is
    /// out of range, if a batch baseline is combined with group scaling, if a batch or quantile baseline is
    /// combined with [`Aggregation::NormalizeThenSum`], or if rewards without a baseline are scaled.
    pub fn checked(self) -> Result<Self, ConfigError> {
        at_least_zero("epsilon", self.epsilon)?;
        if let Some(clip) = self.clip {
            above_zero("clip", clip)?;
        }
        if !(self.quantile > 0.0 && self.quantile <= 1.0) {
            return Err(ConfigError::out_of_range(
                "quantile",
                self.quantile,
                "above 0 and at most 1",
            ));
        }
        let is_normalized_first = self.aggregation == Aggregation::NormalizeThenSum;
        if is_normalized_first && matches!(self.baseline, Baseline::Batch | Baseline::Quantile) {
            return Err(ConfigError::new(
                "baseline",
                "aggregation = \"normalize_then_sum\" centres each reward function around its mean within the group; use baseline = \"group\" or \"leave_one_out\"",
            ));
        }
        if self.baseline == Baseline::Batch && self.scale == RewardScale::Group {
            return Err(ConfigError::new(
                "baseline",
                "a batch baseline cannot be scaled by the group's deviation, which is 0 for equal rewards; use scale = \"batch\" or \"none\"",
            ));
        }
        let is_scaled = self.scale != RewardScale::None || is_normalized_first;
        if self.baseline == Baseline::None && is_scaled {
            return Err(ConfigError::new(
                "baseline",
                "baseline = \"none\" leaves the rewards as they are; use it with scale = \"none\" and aggregation = \"sum_then_normalize\"",
            ));
        }
        Ok(self)
    }
}
