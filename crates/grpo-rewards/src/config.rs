//! Which reward a configuration asks for.

use std::sync::Arc;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::{AnswerReward, LogpWindow, MoleculeReward, PatternReward, Reward};

/// The section `[reward]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// 1 where the completion gives the answer that the prompt's record has, 0 elsewhere. See [`AnswerReward`].
    Answer {
        /// Key of the right answer in the record.
        #[serde(default = "default_answer_field")]
        field: String,
        /// Where in the completion the answer stands: the last match counts, of it the first group, or all of it
        /// where there is no group. Without it, the whole completion is the answer.
        #[serde(default)]
        extract: Option<String>,
    },
    /// 1 where the completion has a match of a pattern, 0 elsewhere. See [`PatternReward`].
    Pattern {
        /// A regular expression.
        pattern: String,
    },
}

fn default_answer_field() -> String {
    "answer".to_owned()
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
    /// Weights that are negative or do not sum to 1; an empty window; no regular expression.
    pub fn build(&self) -> Result<Arc<dyn Reward>, RewardConfigError> {
        match self {
            &Self::Molecule { qed, sa, logp, logp_centre, logp_half_width } => {
                let window = LogpWindow { centre: logp_centre, half_width: logp_half_width };
                molecule(MoleculeReward { qed, sa, logp, window })
            }
            Self::Answer { field, extract } => {
                let extract =
                    extract.as_deref().map(|text| pattern("extract", text)).transpose()?;
                Ok(Arc::new(AnswerReward { field: field.clone(), extract }))
            }
            Self::Pattern { pattern: text } => {
                Ok(Arc::new(PatternReward { pattern: pattern("pattern", text)? }))
            }
        }
    }
}

fn molecule(reward: MoleculeReward) -> Result<Arc<dyn Reward>, RewardConfigError> {
    let weights = [reward.qed, reward.sa, reward.logp];
    let sum: f64 = weights.iter().sum();
    // So written that NaN is refused as well.
    let is_mean = weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() <= 1e-6;
    if !is_mean {
        return Err(RewardConfigError::Weights { sum });
    }
    let LogpWindow { centre, half_width } = reward.window;
    if !(half_width > 0.0 && half_width.is_finite() && centre.is_finite()) {
        return Err(RewardConfigError::LogpWindow { half_width });
    }
    Ok(Arc::new(reward))
}

fn pattern(key: &'static str, text: &str) -> Result<Regex, RewardConfigError> {
    Regex::new(text).map_err(|error| {
        // The last line says why; those before it draw the place.
        let fault = error.to_string();
        let fault = fault.lines().last().unwrap_or_default();
        let fault = fault.trim_start_matches("error: ").to_owned();
        RewardConfigError::Pattern { key, pattern: text.to_owned(), fault }
    })
}

/// A reward that cannot be what is meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
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
    /// No regular expression.
    #[error("reward.{key} = '{pattern}' is no regular expression: {fault}")]
    Pattern {
        /// The key.
        key: &'static str,
        /// What it was.
        pattern: String,
        /// Why.
        fault: String,
    },
}
