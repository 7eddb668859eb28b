//! Evaluation results of judges, and the gate for using them as rewards.

use grpo_data::{ConfigFault, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of validation texts. Every validation uses the same texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeValidationConfig {
    /// Natural texts, for `zero_mean` and `zero_p90`.
    #[schemars(range(min = 1, max = 10000))]
    pub natural: usize,
    /// Texts with 0 to 0.9 replaced, for the correlations.
    #[schemars(range(min = 2, max = 10000))]
    pub spread: usize,
}

impl Default for JudgeValidationConfig {
    fn default() -> Self {
        Self { natural: 200, spread: 500 }
    }
}

impl JudgeValidationConfig {
    pub(super) fn check(&self, section: &str) -> Result<(), ConfigFault> {
        self.check_ranges(section)
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeGate {
    /// Maximum of the 90th percentile on natural texts.
    #[schemars(range(min = 0, max = 1))]
    pub max_zero_p90: f64,
    /// Minimum rank correlation of outputs and replaced fraction.
    #[schemars(range(min = -1, max = 1))]
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
        self.check_ranges("gate")
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
