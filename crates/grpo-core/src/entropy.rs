//! Entropy of tokens in the loss: a mask and a bonus.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, at_least_zero};

/// The tokens of an optimizer batch that the high-entropy mask keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighEntropy {
    /// Smallest entropy that is kept. It is the entropy of a token, so the comparison does not
    /// depend on rounding.
    pub threshold: f64,
    /// Number of tokens kept.
    pub tokens: usize,
}

impl HighEntropy {
    /// Keeps the tokens at or above the `1 − share` quantile of all action tokens of the optimizer
    /// batch, with linear interpolation as in NumPy and PyTorch.
    ///
    /// # Panics
    /// Panics if an entropy is NaN.
    pub fn of(mut entropies: Vec<f64>, share: f64) -> Self {
        assert!(!entropies.iter().any(|entropy| entropy.is_nan()), "an entropy is not a number");
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
        entropy.expect("a high-entropy mask has entropies") < self.threshold
    }
}

/// `loss −= coef · mean entropy`, over the tokens that the high-entropy mask keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EntropyBonus {
    /// A constant coefficient.
    Static {
        /// The coefficient.
        coef: f64,
    },
    /// A coefficient that rises while the entropy is at or below its target. Above the target it
    /// falls and is not applied (He et al. 2025, "Skywork Open Reasoner 1", §3.3).
    Adaptive {
        /// The coefficient before the first update.
        initial: f64,
        /// Mean entropy in nats, over the tokens that the high-entropy mask keeps.
        target: f64,
        /// Change of the coefficient after each update.
        delta: f64,
        /// Smallest coefficient.
        min: f64,
        /// Largest coefficient.
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

/// The coefficient of an [`EntropyBonus`], updated after each optimizer step. This is its whole
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntropyController {
    bonus: EntropyBonus,
    coef: f64,
    last_entropy: Option<f64>,
}

impl EntropyController {
    /// Creates the controller before the first update.
    pub fn new(bonus: EntropyBonus) -> Self {
        let coef = match bonus {
            EntropyBonus::Static { coef } => coef,
            EntropyBonus::Adaptive { initial, .. } => initial,
        };
        Self { bonus, coef, last_entropy: None }
    }

    /// Returns the coefficient of the next update. An adaptive coefficient is 0 unless the entropy
    /// of the last update was at or below the target, and 0 before the first update.
    pub fn coef(&self) -> f64 {
        match self.bonus {
            EntropyBonus::Static { .. } => self.coef,
            EntropyBonus::Adaptive { target, .. } => match self.last_entropy {
                Some(entropy) if entropy <= target => self.coef,
                _ => 0.0,
            },
        }
    }

    /// Updates the coefficient from the mean entropy of an update.
    pub fn observe(&mut self, entropy: f64) {
        if let EntropyBonus::Adaptive { target, delta, min, max, .. } = self.bonus {
            let change = if entropy <= target { delta } else { -delta };
            self.coef = (self.coef + change).clamp(min, max);
        }
        self.last_entropy = Some(entropy);
    }
}
