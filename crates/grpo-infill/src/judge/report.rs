//! What is found of a judge, and what it needs to be a reward.

use grpo_data::ConfigFault;
use grpo_train::in_range;
use serde::{Deserialize, Serialize};

/// What a look at the validation split is made of; always the same texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeValidationConfig {
    /// Natural texts, for `zero_mean` and `zero_p90`.
    pub natural: usize,
    /// Texts of which 0 to 0.9 was replaced, for the correlations; every tenth of them is natural.
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

/// What a judge says of held-out texts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeMeasures {
    /// Mean squared error on all of them, natural ones and spread ones.
    pub eval_loss: f64,
    /// Mean output on natural texts.
    pub zero_mean: f64,
    /// 90th percentile of the outputs on natural texts.
    pub zero_p90: f64,
    /// Pearson's correlation of outputs with the part that was replaced; 0 where outputs are constant.
    pub pearson: f64,
    /// Spearman's.
    pub spearman: f64,
}

/// What a judge needs to be a reward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeGate {
    /// Largest `zero_p90`: natural texts are not taken for corrupted ones.
    pub max_zero_p90: f64,
    /// Smallest `spearman`: the more is replaced, the higher the output.
    pub min_spearman: f64,
}

impl Default for JudgeGate {
    fn default() -> Self {
        Self { max_zero_p90: 0.1, min_spearman: 0.8 }
    }
}

impl JudgeGate {
    /// Checks ranges once.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        in_range("gate.max_zero_p90", self.max_zero_p90, 0.0..=1.0)?;
        in_range("gate.min_spearman", self.min_spearman, -1.0..=1.0)
    }

    /// Whether a judge of these measures may be a reward.
    pub fn passes(&self, measures: &JudgeMeasures) -> bool {
        measures.zero_p90 <= self.max_zero_p90 && measures.spearman >= self.min_spearman
    }
}

/// What is written beside a judge's weights, in `judge.json`: of texts that had no part in which weights were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeReport {
    /// Whether the judge may be a reward.
    pub passed: bool,
    /// What it was held against.
    pub gate: JudgeGate,
    /// What was found.
    pub validation: JudgeMeasures,
    /// On how many texts.
    pub texts: JudgeValidationConfig,
    /// Optimizer steps behind it.
    pub train_step: u64,
}
