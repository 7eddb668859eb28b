//! Which tokens share a ratio of probabilities, and corrections for a sampler whose probabilities are not the trainer's.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero, at_least_zero};

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

impl RatioLevel {
    /// Neighbouring tokens that share one ratio in a sequence of `length` tokens.
    pub(crate) fn tokens_sharing(self, length: usize) -> usize {
        match self {
            Self::Token => 1,
            Self::Sequence => length.max(1),
        }
    }
}

/// Multiplies the surrogate by `π_old / π_sampler`, kept within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MismatchCorrection {
    /// A quotient for each token, or the product of a sequence's for all of them.
    pub level: RatioLevel,
    /// What is done outside the bounds.
    pub mode: MismatchMode,
    /// Lower bound; 0 for none.
    #[serde(default)]
    pub min: f64,
    /// Upper bound.
    pub max: f64,
}

/// What is done with a quotient outside its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchMode {
    /// It becomes the bound (truncated importance sampling; Yao et al. 2025).
    Truncate,
    /// It becomes 0: the token, or the sequence, has no surrogate (masked importance sampling, "IcePop").
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

    /// A quotient after the correction.
    pub(crate) fn apply(&self, quotient: f64) -> f64 {
        match self.mode {
            MismatchMode::Truncate => quotient.clamp(self.min, self.max),
            MismatchMode::Mask if (self.min..=self.max).contains(&quotient) => quotient,
            MismatchMode::Mask => 0.0,
        }
    }
}

/// Neighbouring tokens of a sequence that share one `π_old / π_sampler`; each has its own without a correction.
pub(crate) fn tokens_per_quotient(correction: Option<&MismatchCorrection>, length: usize) -> usize {
    correction.map_or(1, |correction| correction.level.tokens_sharing(length))
}
