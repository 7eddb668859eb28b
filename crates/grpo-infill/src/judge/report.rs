//! Evaluation results of judges, and the gate for using them as rewards.

use grpo_data::ConfigFault;
use grpo_train::in_range;
use serde::{Deserialize, Serialize};

/// Number of validation texts. Every validation uses the same texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeValidationConfig {
    /// Number of natural texts, on which `zero_mean` and `zero_p90` are measured.
    pub natural: usize,
    /// Number of texts for the correlations, with replaced fractions from 0 to 0.9. One in ten is
    /// natural.
    pub spread: usize,
}

impl Default for JudgeValidationConfig {
    fn default() -> Self {
        Self { natural: 200, spread: 500 }
    }
}

impl JudgeValidationConfig {
    pub(super) fn check(&self, section: &str) -> Result<(), ConfigFault> {
        in_range(&format!("{section}.natural"), self.natural as f64, 1.0..=1e4)?;
        in_range(&format!("{section}.spread"), self.spread as f64, 2.0..=1e4)
    }
}

/// Results on held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeMeasures {
    /// Mean squared error over all texts.
    pub eval_loss: f64,
    /// Mean output for natural texts.
    pub zero_mean: f64,
    /// 90th percentile of the outputs for natural texts.
    pub zero_p90: f64,
    /// Pearson correlation between outputs and replaced fractions, or 0 if the outputs are
    /// constant.
    pub pearson: f64,
    /// Spearman correlation between outputs and replaced fractions.
    pub spearman: f64,
}

/// Requirements for using a judge as a reward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeGate {
    /// Maximum `zero_p90`. It ensures that natural texts aren't mistaken for corrupted ones.
    pub max_zero_p90: f64,
    /// Minimum `spearman`. It ensures that outputs increase with the replaced fraction.
    pub min_spearman: f64,
}

impl Default for JudgeGate {
    fn default() -> Self {
        Self { max_zero_p90: 0.1, min_spearman: 0.8 }
    }
}

impl JudgeGate {
    /// Validates the thresholds.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        in_range("gate.max_zero_p90", self.max_zero_p90, 0.0..=1.0)?;
        in_range("gate.min_spearman", self.min_spearman, -1.0..=1.0)
    }

    /// Returns whether these results meet the requirements.
    pub fn passes(&self, measures: &JudgeMeasures) -> bool {
        measures.zero_p90 <= self.max_zero_p90 && measures.spearman >= self.min_spearman
    }
}

/// Contents of `judge.json`, which is stored next to a judge's weights. The results are measured on
/// texts that had no influence on model selection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeReport {
    /// Whether the judge may be used as a reward.
    pub passed: bool,
    /// Requirements that were checked.
    pub gate: JudgeGate,
    /// Results on held-out text.
    pub validation: JudgeMeasures,
    /// Number of texts used.
    pub texts: JudgeValidationConfig,
    /// Optimizer step at which the judge was saved.
    pub train_step: u64,
}
