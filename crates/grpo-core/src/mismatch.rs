//! Levels of importance ratios, and corrections for a sampler whose probabilities differ from the
//! trainer's.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero, at_least_zero};

/// Whether tokens or sequences have a ratio `π_θ / π_old`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioLevel {
    /// One ratio per token (GRPO).
    #[default]
    Token,
    /// The geometric mean over a sequence's tokens (GSPO; Zheng et al. 2025, equation 7).
    Sequence,
}

impl RatioLevel {
    /// Returns how many neighbouring tokens share a ratio in a sequence of `length` tokens.
    pub(crate) fn tokens_sharing(self, length: usize) -> usize {
        match self {
            Self::Token => 1,
            Self::Sequence => length.max(1),
        }
    }
}

/// Multiplies the surrogate by a bounded `π_old / π_sampler`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MismatchCorrection {
    /// One quotient per token, or the product over a sequence for all its tokens.
    pub level: RatioLevel,
    /// Treatment of quotients outside the bounds.
    pub mode: MismatchMode,
    /// Lower bound; 0 for none.
    #[serde(default)]
    pub min: f64,
    /// Upper bound.
    pub max: f64,
}

/// Treatment of a quotient outside its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchMode {
    /// Limits the quotient to the bound (truncated importance sampling; Yao et al. 2025).
    Truncate,
    /// Sets the quotient to 0, which removes the surrogate of the token or sequence (masked
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

    /// Returns the corrected quotient.
    pub(crate) fn apply(&self, quotient: f64) -> f64 {
        match self.mode {
            MismatchMode::Truncate => quotient.clamp(self.min, self.max),
            MismatchMode::Mask if (self.min..=self.max).contains(&quotient) => quotient,
            MismatchMode::Mask => 0.0,
        }
    }
}

/// Returns how many neighbouring tokens share `π_old / π_sampler`; 1 without a correction.
pub(crate) fn tokens_per_quotient(correction: Option<&MismatchCorrection>, length: usize) -> usize {
    correction.map_or(1, |correction| correction.level.tokens_sharing(length))
}
