//! What a loss makes of the entropy of tokens: a mask and a bonus.

use serde::{Deserialize, Serialize};

use crate::EntropyBonus;

/// Which tokens of an optimizer batch the high-entropy mask keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighEntropy {
    /// The smallest entropy that is kept. It is that of a token, so that the comparison does not hang on
    /// rounding.
    pub threshold: f64,
    /// How many tokens are kept.
    pub tokens: usize,
}

impl HighEntropy {
    /// Keeps the tokens at or above the `1 − share` quantile (linear between neighbours, as NumPy and PyTorch
    /// take it) of all action tokens of the optimizer batch.
    ///
    /// # Panics
    /// Where an entropy is NaN.
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
}

impl HighEntropy {
    /// Whether the mask drops a token of this entropy.
    pub(crate) fn drops(&self, entropy: Option<f64>) -> bool {
        entropy.expect("a high-entropy mask has entropies") < self.threshold
    }
}

/// The coefficient of an [`EntropyBonus`] from update to update: all its state, to be saved with a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntropyController {
    bonus: EntropyBonus,
    coef: f64,
    last_entropy: Option<f64>,
}

impl EntropyController {
    /// Before the first update.
    pub fn new(bonus: EntropyBonus) -> Self {
        let coef = match bonus {
            EntropyBonus::Static { coef } => coef,
            EntropyBonus::Adaptive { initial, .. } => initial,
        };
        Self { bonus, coef, last_entropy: None }
    }

    /// The coefficient of the next update. An adaptive one is 0 unless the last update's entropy was at or
    /// below its target; before the first update none is known, and it is 0.
    pub fn coef(&self) -> f64 {
        match self.bonus {
            EntropyBonus::Static { .. } => self.coef,
            EntropyBonus::Adaptive { target, .. } => match self.last_entropy {
                Some(entropy) if entropy <= target => self.coef,
                _ => 0.0,
            },
        }
    }

    /// Takes note of an update's mean entropy over the tokens that the bonus is of.
    pub fn observe(&mut self, entropy: f64) {
        if let EntropyBonus::Adaptive { target, delta, min, max, .. } = self.bonus {
            let change = if entropy <= target { delta } else { -delta };
            self.coef = (self.coef + change).clamp(min, max);
        }
        self.last_entropy = Some(entropy);
    }
}
