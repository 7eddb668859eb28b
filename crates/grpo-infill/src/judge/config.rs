//! Settings of the training of a judge.

use grpo_data::ConfigFault;
use grpo_logprob::SamplingSettings;
use grpo_train::{StepsConfig, TransferConfig, distribution_fault, in_range};
use serde::{Deserialize, Serialize};

use super::report::{JudgeGate, JudgeValidationConfig};
use super::scaling::JudgeScaling;

/// Settings of the training of a judge.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeConfig {
    /// Steps, batches, AdamW.
    pub steps: StepsConfig,
    /// Part of the training texts that nothing is replaced in.
    pub natural_share: f64,
    /// How the infiller fills blanks.
    pub fill: FillSettings,
    /// What the loss is multiplied by.
    pub scaling: JudgeScaling,
    /// What becomes of the trunk that the judge begins with.
    pub transfer: TransferConfig,
    /// What a look at the validation split is made of.
    pub validation: JudgeValidationConfig,
    /// What the judge needs to be a reward.
    pub gate: JudgeGate,
}

impl JudgeConfig {
    /// Checks ranges and combinations once.
    ///
    /// # Errors
    /// The first key that is out of its range, or that has no effect.
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

/// How the infiller fills the blanks that a judge learns from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FillSettings {
    /// Divides the logits.
    pub temperature: f32,
    /// The most probable characters that are drawn from.
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
