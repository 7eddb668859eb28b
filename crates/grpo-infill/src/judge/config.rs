//! Judge training configuration.

use grpo_data::{ConfigFault, Ranges};
use grpo_logprob::SamplingSettings;
use grpo_train::{StepsConfig, TransferConfig, in_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::{JudgeGate, JudgeValidationConfig};
use super::scaling::JudgeScaling;

/// Judge training configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeConfig {
    /// Steps, batches and optimizer settings.
    pub steps: StepsConfig,
    /// Fraction of training texts that are left unmodified.
    pub natural_share: f64,
    /// How the infiller fills blanks.
    pub fill: FillSettings,
    /// Factors applied to the loss.
    pub scaling: JudgeScaling,
    /// Settings for starting from a pretrained trunk.
    pub transfer: TransferConfig,
    /// Texts used for validation.
    pub validation: JudgeValidationConfig,
    /// Requirements for using the judge as a reward.
    pub gate: JudgeGate,
}

impl JudgeConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// Returns an error that names the first key that is out of range or has no effect.
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

/// Sampling settings that the infiller uses to fill the blanks in training text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct FillSettings {
    /// Divides the infiller's logits.
    #[schemars(range(min = 0.001, max = 1000))]
    pub temperature: f32,
    /// Number of characters to sample from.
    #[schemars(range(min = 1))]
    pub top_k: usize,
}

impl Default for FillSettings {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 50 }
    }
}

impl FillSettings {
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("fill")
    }

    pub(super) fn settings(&self) -> SamplingSettings {
        SamplingSettings {
            temperature: self.temperature,
            top_k: Some(self.top_k),
            ..SamplingSettings::default()
        }
    }
}
