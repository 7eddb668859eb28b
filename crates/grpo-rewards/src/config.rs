//! Which reward a configuration asks for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{LogpWindow, MoleculeReward, Reward};

/// The section `[reward]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RewardConfig {
    /// A weighted mean of molecular properties; 0 for what is no molecule. See [`MoleculeReward`].
    Molecule {
        /// Weight of QED.
        #[serde(default)]
        qed: f64,
        /// Weight of ease of synthesis, (10 − SA)/9.
        #[serde(default)]
        sa: f64,
        /// Weight of the closeness of logP to `logp_centre`.
        #[serde(default)]
        logp: f64,
        /// The wanted logP.
        #[serde(default = "default_logp_centre")]
        logp_centre: f64,
        /// Distance from the centre at which the logP part is 0.
        #[serde(default = "default_logp_half_width")]
        logp_half_width: f64,
    },
}

fn default_logp_centre() -> f64 {
    2.5
}
fn default_logp_half_width() -> f64 {
    2.0
}

impl RewardConfig {
    /// The reward that is asked for.
    ///
    /// # Errors
    /// Weights that are negative or do not sum to 1; an empty window.
    pub fn build(&self) -> Result<Arc<dyn Reward>, RewardConfigError> {
        let Self::Molecule { qed, sa, logp, logp_centre, logp_half_width } = *self;
        let weights = [qed, sa, logp];
        let sum: f64 = weights.iter().sum();
        // So written that NaN is refused as well.
        let is_mean = weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() <= 1e-6;
        if !is_mean {
            return Err(RewardConfigError::Weights { sum });
        }
        if !(logp_half_width > 0.0 && logp_half_width.is_finite() && logp_centre.is_finite()) {
            return Err(RewardConfigError::LogpWindow { half_width: logp_half_width });
        }
        let window = LogpWindow { centre: logp_centre, half_width: logp_half_width };
        Ok(Arc::new(MoleculeReward { qed, sa, logp, window }))
    }
}

/// A reward that cannot be what is meant.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardConfigError {
    /// The total would not be in 0..1.
    #[error(
        "reward.qed, reward.sa and reward.logp must each be at least 0 and sum to 1, so that the reward is between 0 and 1; they sum to {sum}"
    )]
    Weights {
        /// Their sum.
        sum: f64,
    },
    /// No logP would be near the centre.
    #[error(
        "reward.logp_half_width = {half_width} must be a finite number above 0, and reward.logp_centre a finite number"
    )]
    LogpWindow {
        /// What it was.
        half_width: f64,
    },
}
