//! Duration and learning rates of a supervised run.

use grpo_data::ConfigFault;
use serde::{Deserialize, Serialize};

use crate::error::in_range;
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsConfig {
    /// Number of optimizer steps.
    pub steps: u64,
    /// Number of passages per step.
    pub batch_size: usize,
    /// Maximum number of tokens per micro-batch. By default, a batch is not split. This setting
    /// affects memory usage, and the result only through rounding and dropout masks. A passage that
    /// exceeds the limit is processed alone.
    pub micro_batch_tokens: Option<usize>,
    /// Number of warm-up steps.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Lowest learning rate after warm-up, as a fraction of the maximum.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// How the learning rate decreases after the warm-up.
    #[serde(default)]
    pub learning_rate_decay: Decay,
    /// Dropout probability for embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Number of steps between validations. The last step is always validated.
    pub eval_every: u64,
    /// See [`EarlyStopping::patience`].
    #[serde(default)]
    pub patience: u32,
    /// See [`EarlyStopping::min_gain`].
    #[serde(default)]
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
        in_range(&key("steps"), self.steps as f64, 1.0..=1e9)?;
        in_range(&key("batch_size"), self.batch_size as f64, 1.0..=1e6)?;
        let micro = self.micro_batch_tokens.unwrap_or(1);
        in_range(&key("micro_batch_tokens"), micro as f64, 1.0..=1e9)?;
        if self.warmup_steps > self.steps {
            let expected = format!(
                "0 to {0} ({section}.steps); for a short run, add --set {1}=0",
                self.steps,
                key("warmup_steps")
            );
            let warmup = self.warmup_steps as f64;
            return Err(ConfigFault::out_of_range(key("warmup_steps"), warmup, &expected));
        }
        in_range(&key("learning_rate_floor"), self.learning_rate_floor, 0.0..=1.0)?;
        self.learning_rate_decay.check(&key("learning_rate_decay"))?;
        in_range(&key("dropout"), f64::from(self.dropout), 0.0..=0.9)?;
        in_range(&key("eval_every"), self.eval_every as f64, 1.0..=1e9)?;
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
