//! Sections of the `grpo train` configuration that all tasks share.

use std::path::PathBuf;

use grpo_core::KlController;
use grpo_model::{LoraConfig, WeightPrecision};
use grpo_report::SuccessCriteria;
use grpo_train::{
    AdvantageSettings, EvalConfig, GuardConfig, LossSettings, OptimizerConfig, ReferenceSettings,
    SamplerCheck, SamplingConfig, ScheduleConfig, TrainConfig,
};
use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointSection;
use crate::preflight::PreflightSection;

/// Sections of the `grpo train` configuration that all tasks share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Run folder.
    pub(crate) run: PathBuf,
    /// Folder of the initial model.
    pub(crate) model: PathBuf,
    /// Folder of an adapter to continue training on top of the frozen model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adapter: Option<PathBuf>,
    /// Weight precision of the base model if only an adapter is trained.
    #[serde(default)]
    pub(crate) base_precision: WeightPrecision,
    pub(crate) seed: u64,
    /// Configuration of a new adapter on top of the frozen model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lora: Option<LoraConfig>,
    pub(crate) train: TrainConfig,
    /// The `[sampling]` section.
    pub sampling: SamplingConfig,
    #[serde(default)]
    pub(crate) advantage: AdvantageSettings,
    #[serde(default)]
    pub(crate) loss: LossSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kl_controller: Option<KlController>,
    /// Choice and update schedule of the reference policy.
    #[serde(default)]
    pub(crate) reference: ReferenceSettings,
    #[serde(default)]
    pub(crate) sampler_check: SamplerCheck,
    pub(crate) optimizer: OptimizerConfig,
    #[serde(default)]
    pub(crate) schedule: ScheduleConfig,
    /// Actions to take when a metric leaves its range. An empty list disables the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guards: Option<Vec<GuardConfig>>,
    #[serde(default)]
    pub(crate) preflight: PreflightSection,
    #[serde(default)]
    /// When and on which prompts the policy is evaluated.
    pub eval: EvalSection,
    #[serde(default)]
    pub(crate) save: SaveSection,
    /// Success criteria for the report. They do not affect training.
    #[serde(default)]
    pub(crate) success: SuccessCriteria,
}

/// The `[eval]` section.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSection {
    /// Number of completions per evaluation; 0 for none.
    pub(crate) samples: u32,
    /// File with held-out prompts. Defaults to the first training prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// See [`EvalConfig`].
    pub(crate) every: u32,
    patience: u32,
    pub(crate) min_gain: f64,
    group_size: usize,
}

impl Default for EvalSection {
    fn default() -> Self {
        let EvalConfig { every, patience, min_gain, group_size } = EvalConfig::default();
        Self { samples: 1000, file: None, every, patience, min_gain, group_size }
    }
}

impl EvalSection {
    /// Returns the number of prompts needed for `samples` completions.
    pub(crate) fn prompts(&self) -> u32 {
        self.samples.div_ceil(u32::try_from(self.group_size.max(1)).unwrap_or(u32::MAX))
    }

    pub(crate) fn config(&self) -> EvalConfig {
        let &Self { every, patience, min_gain, group_size, .. } = self;
        EvalConfig { every, patience, min_gain, group_size }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SaveSection {
    /// Number of steps between checkpoints. If 0, checkpoints are written only at timed intervals
    /// and at the end.
    pub(crate) every: u32,
    /// Minutes between checkpoints, which are written at the end of a step. 0 disables this.
    pub(crate) every_minutes: f64,
    /// Number of most recent checkpoints to keep, in addition to the one for the best evaluation.
    pub(crate) keep_last: usize,
    /// Number of steps between recorded completions; 0 for none.
    pub(crate) completions_every: u32,
    /// Number of best completions in `best.csv`; 0 for none.
    pub(crate) best: usize,
}

impl SaveSection {
    /// Returns the settings in the form shared with supervised runs.
    pub(crate) fn checkpoints(&self) -> CheckpointSection {
        let &Self { every, every_minutes, keep_last, .. } = self;
        CheckpointSection { every, every_minutes, keep_last }
    }
}

impl Default for SaveSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2, completions_every: 10, best: 1000 }
    }
}
