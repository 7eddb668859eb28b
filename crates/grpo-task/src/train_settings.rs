//! What `grpo train` needs besides the sections of the trainer (`grpo_train::GrpoConfig`).

use std::path::PathBuf;

use grpo_model::{LoraConfig, WeightPrecision};
use grpo_report::SuccessCriteria;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkpoint::CheckpointSection;
use crate::preflight::PreflightSection;

// Together with those of the trainer, `grpo_train::GrpoConfig`.
/// Sections of the `grpo train` configuration that all tasks share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Run folder, new or empty.
    #[schemars(extend("x-basic" = true))]
    pub run: PathBuf,
    /// Model to start from: a folder, a GGUF file, or a name of the Hugging Face hub such as `org/name` or
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
    /// The `[preflight]` section.
    #[serde(default)]
    pub preflight: PreflightSection,
    /// The `[save]` section.
    #[serde(default)]
    pub save: SaveSection,
    /// Success criteria for the report. They do not affect training.
    #[serde(default)]
    pub success: SuccessCriteria,
}

// Three keys are those of `CheckpointSection`, the section of supervised runs. They are repeated, because
// serde can neither name the key of a wrong value nor list the known keys of a flattened struct.
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
