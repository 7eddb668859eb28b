//! Settings of judge training.

use grpo_data::ConfigFault;
use grpo_logprob::SamplingSettings;
use grpo_train::{StepsConfig, TransferConfig, distribution_fault, in_range};
use serde::{Deserialize, Serialize};

use super::report::{JudgeGate, JudgeValidationConfig};
use super::scaling::JudgeScaling;

/// Settings of judge training.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeConfig {
    /// Steps, batches, AdamW.
    pub steps: StepsConfig,
    /// Fraction of unmodified training texts.
    pub natural_share: f64,
    /// How the infiller fills blanks.
    pub fill: FillSettings,
    /// Factors of the loss.
    pub scaling: JudgeScaling,
    /// Treatment of a pre-trained trunk.
    pub transfer: TransferConfig,
    /// Texts of a validation.
    pub validation: JudgeValidationConfig,
    /// What the judge needs to be used as a reward.
    pub gate: JudgeGate,
}

impl JudgeConfig {
    /// Checks ranges and combinations.
    ///
    /// # Errors
    /// Returns the first key that is out of range or has no effect.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.steps.check("judge")?;
        in_range("natural_share", self.natural_share, 0.0..=0.99)?;
        self.fill.check()?;
        self.scaling.check("scaling")?;
        self.transfer.check("transfer", self.steps.steps)?;
        self.validation.check("validation")?;
        self.gate.check()
    }
}

/// How the infiller fills the blanks of training texts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FillSettings {
    /// Divisor of the logits.
    pub temperature: f32,
    /// Number of most probable characters to sample from.
    pub top_k: usize,
}

impl Default for FillSettings {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 50 }
    }
}

impl FillSettings {
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        self.settings().check().map_err(|fault| distribution_fault("fill", &fault))
    }

    pub(super) fn settings(&self) -> SamplingSettings {
        SamplingSettings {
            temperature: self.temperature,
            top_k: Some(self.top_k),
            ..SamplingSettings::default()
        }
    }
}
