//! High-entropy token mask and entropy bonus.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, at_least_zero};

/// High-entropy mask for an optimizer batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighEntropy {
    /// Smallest entropy that is kept. The threshold is always the entropy of some token, so
    /// comparisons are not affected by rounding.
    pub threshold: f64,
    /// Number of tokens that are kept.
    pub tokens: usize,
}

impl HighEntropy {
    /// Creates a mask that keeps tokens at or above the `1 − share` quantile of all action tokens
    /// in the optimizer batch. Quantiles are linearly interpolated as in NumPy and PyTorch.
    ///
    /// # Panics
    /// Panics if an entropy is NaN.
    pub fn of(mut entropies: Vec<f64>, share: f64) -> Self {
        assert!(!entropies.iter().any(|entropy| entropy.is_nan()), "an entropy is NaN");
        entropies.sort_by(f64::total_cmp);
        let Some(last) = entropies.len().checked_sub(1) else {
            return Self { threshold: 0.0, tokens: 0 };
        };
        let rank = (1.0 - share) * last as f64;
        let below = rank.floor() as usize;
        let above = (below + 1).min(last);
        let quantile =
            entropies[below] + (entropies[above] - entropies[below]) * (rank - below as f64);
        let first_kept = entropies.partition_point(|&entropy| entropy < quantile);
        Self { threshold: entropies[first_kept], tokens: entropies.len() - first_kept }
    }

    /// Returns whether the mask drops a token with this entropy.
    pub(crate) fn drops(&self, entropy: Option<f64>) -> bool {
        entropy.expect("a high-entropy mask requires entropies") < self.threshold
    }
}

/// Entropy bonus: `loss −= coef · mean entropy`, where the mean is over the tokens that the
/// high-entropy mask keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EntropyBonus {
    /// A constant coefficient.
    Static {
        /// The coefficient.
        coef: f64,
    },
    /// A coefficient that increases while the entropy is at or below its target. Above the target,
    /// the coefficient decreases and the bonus is disabled (He et al. 2025, "Skywork Open Reasoner
    /// 1", §3.3).
    Adaptive {
        /// Initial coefficient.
        initial: f64,
        /// Target for the mean entropy in nats, over tokens that the high-entropy mask keeps.
        target: f64,
        /// Amount by which the coefficient changes after each update.
        delta: f64,
        /// Lower bound for the coefficient.
        min: f64,
        /// Upper bound for the coefficient.
        max: f64,
    },
}

impl EntropyBonus {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        match *self {
            Self::Static { coef } => at_least_zero("entropy_bonus.coef", coef),
            Self::Adaptive { initial, target, delta, min, max } => {
                at_least_zero("entropy_bonus.target", target)?;
                at_least_zero("entropy_bonus.delta", delta)?;
                at_least_zero("entropy_bonus.min", min)?;
                at_least_zero("entropy_bonus.max", max)?;
                if !(min..=max).contains(&initial) {
                    return Err(ConfigError::out_of_range(
                        "entropy_bonus.initial",
                        initial,
                        "between entropy_bonus.min and entropy_bonus.max",
                    ));
                }
                Ok(())
            }
        }
    }
}

/// Coefficient of an [`EntropyBonus`], updated after each optimizer step. Contains all controller
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntropyController {
    bonus: EntropyBonus,
    coef: f64,
    last_entropy: Option<f64>,
}

impl EntropyController {
    /// Creates a controller in its initial state.
    pub fn new(bonus: EntropyBonus) -> Self {
        let coef = match bonus {
            EntropyBonus::Static { coef } => coef,
            EntropyBonus::Adaptive { initial, .. } => initial,
        };
        Self { bonus, coef, last_entropy: None }
    }

    /// Returns the coefficient for the next update. An adaptive coefficient is 0 before the first
    /// update, and also if the last entropy was above the target.
    pub fn coef(&self) -> f64 {
        match self.bonus {
            EntropyBonus::Static { .. } => self.coef,
            EntropyBonus::Adaptive { target, .. } => match self.last_entropy {
                Some(entropy) if entropy <= target => self.coef,
                _ => 0.0,
            },
        }
    }

    /// Updates the coefficient after an update with the given mean entropy.
    pub fn observe(&mut self, entropy: f64) {
        if let EntropyBonus::Adaptive { target, delta, min, max, .. } = self.bonus {
            let change = if entropy <= target { delta } else { -delta };
            self.coef = (self.coef + change).clamp(min, max);
        }
        self.last_entropy = Some(entropy);
    }
}
