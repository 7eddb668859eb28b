//! Sections of the `grpo train` configuration that all tasks share.

use std::path::PathBuf;

use grpo_core::KlController;
use grpo_data::Ranges;
use grpo_model::{LoraConfig, WeightPrecision};
use grpo_report::SuccessCriteria;
use grpo_train::{
    AdvantageSettings, EvalConfig, GuardConfig, LossSettings, OptimizerConfig, ReferenceSettings,
    SamplerCheck, SamplingConfig, ScheduleConfig, TrainConfig,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointSection;
use crate::preflight::PreflightSection;

/// Sections of the `grpo train` configuration that all tasks share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Run folder, new or empty.
    #[schemars(extend("x-basic" = true))]
    pub run: PathBuf,
    /// Model to start from: a folder, or a name of the Hugging Face hub such as `org/name` or
    /// `org/name@revision`, which is downloaded.
    #[schemars(extend("x-basic" = true))]
    pub model: PathBuf,
    /// Adapter (PEFT format), a folder or a name of the hub, to continue training on the unchanged
    /// `model`; excludes `[lora]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    pub adapter: Option<PathBuf>,
    /// Storage of the block matrices of a base model under an adapter: `f32`, `bf16`, `q8`, `q4`.
    #[serde(default)]
    pub base_precision: WeightPrecision,
    /// Determines all random numbers.
    #[schemars(extend("x-basic" = true))]
    pub seed: u64,
    /// Configuration of a new adapter on top of the frozen model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
    /// The `[train]` section.
    pub train: TrainConfig,
    /// The `[sampling]` section.
    pub sampling: SamplingConfig,
    /// The `[advantage]` section.
    #[serde(default)]
    pub advantage: AdvantageSettings,
    /// The `[loss]` section.
    #[serde(default)]
    pub loss: LossSettings,
    /// The `[kl_controller]` section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_controller: Option<KlController>,
    /// Choice and update schedule of the reference policy.
    #[serde(default)]
    pub reference: ReferenceSettings,
    /// The `[sampler_check]` section.
    #[serde(default)]
    pub sampler_check: SamplerCheck,
    /// The `[optimizer]` section.
    pub optimizer: OptimizerConfig,
    /// The `[schedule]` section.
    #[serde(default)]
    pub schedule: ScheduleConfig,
    /// Actions to take when a metric leaves its range. An empty list disables the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<Vec<GuardConfig>>,
    /// The `[preflight]` section.
    #[serde(default)]
    pub preflight: PreflightSection,
    #[serde(default)]
    /// When and on which prompts the policy is evaluated.
    pub eval: EvalSection,
    /// The `[save]` section.
    #[serde(default)]
    pub save: SaveSection,
    /// Success criteria for the report. They do not affect training.
    #[serde(default)]
    pub success: SuccessCriteria,
}

/// The `[eval]` section.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSection {
    /// Completions per evaluation; 0 disables evaluations and the table. With `[data]`: the first
    /// `samples / group_size` prompts.
    #[schemars(range(min = 0, max = 1e6), extend("x-basic" = true))]
    pub samples: u32,
    /// Prompts in the format of `data.file`; without it, those of `data.file`, which the policy
    /// trains on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-basic" = true))]
    pub file: Option<PathBuf>,
    /// Steps between evaluations, plus one at the last step; 0 for none in between. Results are the
    /// `eval_*` [metrics](metrics.md#evaluations).
    #[schemars(extend("x-basic" = true))]
    pub every: u32,
    /// End the run after this many consecutive evaluations without a new best mean reward; 0 for
    /// never. Needs `every`.
    pub patience: u32,
    /// Minimum improvement for a new best; needs `every`.
    #[schemars(range(min = 0))]
    pub min_gain: f64,
    /// Completions per prompt; with 2 or more, diversity is measured (`eval_self_bleu`,
    /// `eval_distinct_2`).
    #[schemars(range(min = 1, max = 1000))]
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
    pub fn prompts(&self) -> u32 {
        self.samples.div_ceil(u32::try_from(self.group_size.max(1)).unwrap_or(u32::MAX))
    }

    /// Returns the settings that the trainer needs.
    pub fn config(&self) -> EvalConfig {
        let &Self { every, patience, min_gain, group_size, .. } = self;
        EvalConfig { every, patience, min_gain, group_size }
    }
}

/// The `[save]` section.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveSection {
    /// Steps between checkpoints; 0 for none by steps.
    pub every: u32,
    /// Write a checkpoint at the end of the first step this many minutes after the last one; 0 for
    /// none by time.
    #[schemars(range(min = 0, max = 1e6), extend("x-basic" = true))]
    pub every_minutes: f64,
    /// Number of newest checkpoints to keep, in addition to that of the best evaluation.
    #[schemars(range(min = 1))]
    pub keep_last: usize,
    /// [Record the completions](files.md#recorded-completions) of every N-th step; 0 for never.
    /// Does not change training; a recorded step takes slightly longer. `grpo explain` and `grpo
    /// replay` need them; `replay` retrains steps unless `every` kept the policy of the preceding
    /// step.
    #[schemars(extend("x-basic" = true))]
    pub completions_every: u32,
    /// Runs on molecules: number of molecules in [`best.csv`](files.md#bestcsv-and-bestsdf); 0 for
    /// no such file.
    #[schemars(extend("x-basic" = true))]
    pub best: usize,
}

impl SaveSection {
    /// Returns the settings in the form shared with supervised runs.
    pub fn checkpoints(&self) -> CheckpointSection {
        let &Self { every, every_minutes, keep_last, .. } = self;
        CheckpointSection { every, every_minutes, keep_last }
    }
}

impl Default for SaveSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2, completions_every: 10, best: 1000 }
    }
}
