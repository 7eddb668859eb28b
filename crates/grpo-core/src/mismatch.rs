//! Importance ratio levels, and corrections for differences between the sampler's and the trainer's
//! probabilities.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero, at_least_zero};

/// Whether `π_θ / π_old` is computed per token or per sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// Each token has its own ratio (GRPO).
    #[default]
    Token,
    /// All tokens share the geometric mean over the sequence (GSPO; Zheng et al. 2025, equation 7).
    Sequence,
}

impl RatioLevel {
    /// Returns the number of consecutive tokens that share a ratio in a sequence of `length`
    /// tokens.
    pub(crate) fn tokens_sharing(self, length: usize) -> usize {
        match self {
            Self::Token => 1,
            Self::Sequence => length.max(1),
        }
    }
}

/// Multiplies the surrogate by `π_old / π_sampler`, limited to the given bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MismatchCorrection {
    /// Ratio π_old / π_sampler per token, or its product over a completion; `sequence` is refused
    /// with `vespo`.
    pub level: RatioLevel,
    /// What happens outside the bounds: the ratio becomes the bound (`truncate`) or 0 (`mask`).
    pub mode: MismatchMode,
    /// Lower bound of the ratio, at most `max`.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min: f64,
    /// Upper bound of the ratio.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max: f64,
}

/// How quotients outside the bounds are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MismatchMode {
    /// Clamps the quotient to the bounds (truncated importance sampling; Yao et al. 2025).
    Truncate,
    /// Sets the quotient to 0, which removes the token or sequence from the surrogate (masked
    /// importance sampling, "IcePop").
    Mask,
}

impl MismatchCorrection {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        at_least_zero("mismatch.min", self.min)?;
        above_zero("mismatch.max", self.max)?;
        if self.min > self.max {
            let Self { min, max, .. } = self;
            let problem = format!("mismatch.min = {min} is above mismatch.max = {max}");
            return Err(ConfigError::new("mismatch.min", problem));
        }
        Ok(())
    }

    /// Applies the bounds to a quotient.
    pub(crate) fn apply(&self, quotient: f64) -> f64 {
        match self.mode {
            MismatchMode::Truncate => quotient.clamp(self.min, self.max),
            MismatchMode::Mask if (self.min..=self.max).contains(&quotient) => quotient,
            MismatchMode::Mask => 0.0,
        }
    }
}

/// Returns the number of consecutive tokens that share `π_old / π_sampler`, or 1 if there is no
/// correction.
pub(crate) fn tokens_per_quotient(correction: Option<&MismatchCorrection>, length: usize) -> usize {
    correction.map_or(1, |correction| correction.level.tokens_sharing(length))
}
