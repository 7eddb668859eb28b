//! Duration and learning rates of a supervised run.

use grpo_data::{ConfigFault, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervised::EarlyStopping;
use crate::{Decay, OptimizerConfig, Schedule, TransferConfig};

/// Validated settings that don't depend on the objective.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisedPlan {
    /// Seed for dropout.
    pub seed: u64,
    /// Number of optimizer steps.
    pub steps: u64,
    /// Number of steps between validations. The last step is always validated.
    pub eval_every: u64,
    /// Dropout probability.
    pub dropout: f32,
    /// AdamW settings.
    pub optimizer: OptimizerConfig,
    /// Learning-rate schedule.
    pub schedule: Schedule,
    /// Time unit of the schedule.
    pub schedule_unit: ScheduleUnit,
    /// When to stop early.
    pub early_stopping: EarlyStopping,
    /// How a pre-trained trunk is treated.
    pub transfer: TransferConfig,
}

/// Time unit of a learning-rate schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleUnit {
    /// Optimizer steps.
    Steps,
    /// Tokens ([`StepGradients::tokens`](super::StepGradients::tokens)).
    Tokens,
}

/// Settings for a supervised run whose duration is given in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct StepsConfig {
    /// Optimizer steps.
    #[schemars(range(min = 1, max = 1e9), extend("x-basic" = true))]
    pub steps: u64,
    /// Passages per step.
    #[schemars(range(min = 1, max = 1e6), extend("x-basic" = true))]
    pub batch_size: usize,
    /// Tokens computed at the same time. Affects memory, and the result only by rounding, unless
    /// there is dropout, whose masks are per micro-batch. A longer text is computed alone. Default:
    /// the whole step.
    #[schemars(range(min = 1, max = 1e9))]
    pub micro_batch_tokens: Option<usize>,
    /// Steps of linear warm-up, at most `steps`.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Minimum learning rate after the warm-up, as a fraction of the maximum.
    #[serde(default = "default_floor")]
    #[schemars(range(min = 0, max = 1))]
    pub learning_rate_floor: f64,
    /// Shape of the decay, as in [`[schedule]`](#schedule).
    #[serde(default)]
    pub learning_rate_decay: Decay,
    /// Dropout in embeddings, attention and residual branches.
    #[serde(default)]
    #[schemars(range(min = 0, max = 0.9))]
    pub dropout: f32,
    /// Steps between validations, plus one at the end; the model with the lowest validation loss is
    /// kept.
    #[schemars(range(min = 1, max = 1e9))]
    pub eval_every: u64,
    /// End training after this many consecutive evaluations without an improvement; 0 for never.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub patience: u32,
    /// Minimum improvement over the last loss that counted; needs `patience`.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_gain: f64,
    /// AdamW settings.
    pub optimizer: OptimizerConfig,
}

fn default_floor() -> f64 {
    0.1
}

impl StepsConfig {
    /// Validates the settings. `section` is the name of the configuration section.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("{section}.{name}");
        self.check_ranges(section)?;
        if self.warmup_steps > self.steps {
            let expected = format!(
                "0 to {0} ({section}.steps); for a short run, add --set {1}=0",
                self.steps,
                key("warmup_steps")
            );
            let warmup = self.warmup_steps as f64;
            return Err(ConfigFault::out_of_range(key("warmup_steps"), warmup, &expected));
        }
        self.learning_rate_decay.check(&key("learning_rate_decay"))?;
        self.early_stopping().check(section)?;
        self.optimizer.check(&key("optimizer"))
    }

    fn early_stopping(&self) -> EarlyStopping {
        EarlyStopping { patience: self.patience, min_gain: self.min_gain }
    }

    /// Creates the plan for a run.
    pub fn plan(&self, transfer: &TransferConfig, seed: u64) -> SupervisedPlan {
        SupervisedPlan {
            seed,
            steps: self.steps,
            eval_every: self.eval_every,
            dropout: self.dropout,
            optimizer: self.optimizer,
            schedule: Schedule {
                warmup: self.warmup_steps as f64,
                total: self.steps as f64,
                floor: self.learning_rate_floor,
                decay: self.learning_rate_decay,
            },
            schedule_unit: ScheduleUnit::Steps,
            early_stopping: self.early_stopping(),
            transfer: *transfer,
        }
    }
}
