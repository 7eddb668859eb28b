//! Measures of judges, and the gate for their use as rewards.

use grpo_data::ConfigFault;
use grpo_train::in_range;
use serde::{Deserialize, Serialize};

/// Texts of a validation, always the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeValidationConfig {
    /// Number of natural texts, for `zero_mean` and `zero_p90`.
    pub natural: usize,
    /// Number of texts with 0 to 0.9 replaced, for the correlations; every tenth is natural.
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

/// Measures on held-out texts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeMeasures {
    /// Mean squared error on all texts.
    pub eval_loss: f64,
    /// Mean output on natural texts.
    pub zero_mean: f64,
    /// 90th percentile of the outputs on natural texts.
    pub zero_p90: f64,
    /// Pearson's correlation of outputs with the replaced fraction; 0 for constant outputs.
    pub pearson: f64,
    /// Spearman's correlation.
    pub spearman: f64,
}

/// What a judge needs to be used as a reward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeGate {
    /// Largest `zero_p90`, so that natural texts are not considered corrupted.
    pub max_zero_p90: f64,
    /// Smallest `spearman`, so that outputs increase with the replaced fraction.
    pub min_spearman: f64,
}

impl Default for JudgeGate {
    fn default() -> Self {
        Self { max_zero_p90: 0.1, min_spearman: 0.8 }
    }
}

impl JudgeGate {
    /// Checks ranges.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        in_range("gate.max_zero_p90", self.max_zero_p90, 0.0..=1.0)?;
        in_range("gate.min_spearman", self.min_spearman, -1.0..=1.0)
    }

    /// Returns whether a judge with these measures passes.
    pub fn passes(&self, measures: &JudgeMeasures) -> bool {
        measures.zero_p90 <= self.max_zero_p90 && measures.spearman >= self.min_spearman
    }
}

/// Content of `judge.json` next to a judge's weights, measured on texts that did not affect the
/// selection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeReport {
    /// Whether the judge may be used as a reward.
    pub passed: bool,
    /// The gate.
    pub gate: JudgeGate,
    /// The measures.
    pub validation: JudgeMeasures,
    /// Numbers of texts.
    pub texts: JudgeValidationConfig,
    /// Optimizer steps.
    pub train_step: u64,
}
