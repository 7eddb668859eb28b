//! Sections of `grpo train` that all tasks share.

use std::path::PathBuf;

use grpo_core::KlController;
use grpo_model::{LoraConfig, WeightPrecision};
use grpo_report::SuccessCriteria;
use grpo_train::{
    AdvantageSettings, CombinedConfig, DiversityBonusConfig, DiversityFilterConfig, EvalConfig,
    GuardConfig, LossSettings, OptimizerConfig, ReferenceSettings, SamplerCheck, SamplingConfig,
    ScheduleConfig, TrainConfig,
};
use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointSection;
use crate::preflight::PreflightSection;

/// Sections of `grpo train` that all tasks share.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Folder of the run.
    pub(crate) run: PathBuf,
    /// Folder of the initial model.
    pub(crate) model: PathBuf,
    /// Adapter folder to continue training, on the unchanged model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adapter: Option<PathBuf>,
    /// Precision of a base model if only an adapter is trained.
    #[serde(default)]
    pub(crate) base_precision: WeightPrecision,
    pub(crate) seed: u64,
    /// A new adapter to train, on the unchanged model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lora: Option<LoraConfig>,
    pub(crate) train: TrainConfig,
    /// The sampling distribution.
    pub sampling: SamplingConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) diversity_bonus: Option<DiversityBonusConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) diversity_filter: Option<DiversityFilterConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) combined: Option<CombinedConfig>,
    #[serde(default)]
    pub(crate) advantage: AdvantageSettings,
    #[serde(default)]
    pub(crate) loss: LossSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kl_controller: Option<KlController>,
    /// The reference policy and when it is updated.
    #[serde(default)]
    pub(crate) reference: ReferenceSettings,
    #[serde(default)]
    pub(crate) sampler_check: SamplerCheck,
    pub(crate) optimizer: OptimizerConfig,
    #[serde(default)]
    pub(crate) schedule: ScheduleConfig,
    /// Actions on metrics that leave their range; an empty list for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guards: Option<Vec<GuardConfig>>,
    #[serde(default)]
    pub(crate) preflight: PreflightSection,
    #[serde(default)]
    /// When the policy is evaluated, and on what.
    pub eval: EvalSection,
    #[serde(default)]
    pub(crate) save: SaveSection,
    /// Success criteria of the report; no effect on training.
    #[serde(default)]
    pub(crate) success: SuccessCriteria,
}

/// The section `[eval]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSection {
    /// Completions of an evaluation; 0 for none.
    pub(crate) samples: u32,
    /// Held-out prompts; default: the first training prompts.
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
    /// Returns the number of prompts for these completions.
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
    /// Steps between checkpoints; 0 for only by time and at the end.
    pub(crate) every: u32,
    /// Minutes after which a checkpoint is written at the end of a step; 0 for never.
    pub(crate) every_minutes: f64,
    /// Number of newest checkpoints to keep, besides that of the best evaluation.
    pub(crate) keep_last: usize,
    /// Steps between recorded completions; 0 for none.
    pub(crate) completions_every: u32,
}

impl SaveSection {
    /// Returns the settings of checkpoints.
    pub(crate) fn checkpoints(&self) -> CheckpointSection {
        let &Self { every, every_minutes, keep_last, .. } = self;
        CheckpointSection { every, every_minutes, keep_last }
    }
}

impl Default for SaveSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2, completions_every: 10 }
    }
}
