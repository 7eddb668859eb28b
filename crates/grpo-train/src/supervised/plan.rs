//! Length and learning rates of a supervised run.

use grpo_data::ConfigFault;
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::supervised::EarlyStopping;
use crate::{OptimizerConfig, TransferConfig, WarmupCosine};

/// Checked settings of a supervised run that do not depend on the objective.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisedPlan {
    /// Seed of dropout.
    pub seed: u64,
    /// Optimizer steps.
    pub steps: u64,
    /// Steps between validations; the last step is always validated.
    pub eval_every: u64,
    /// Dropout probability.
    pub dropout: f32,
    /// AdamW.
    pub optimizer: OptimizerConfig,
    /// Learning-rate schedule.
    pub schedule: WarmupCosine,
    /// Unit of the schedule.
    pub schedule_unit: ScheduleUnit,
    /// When the run ends early.
    pub early_stopping: EarlyStopping,
    /// Treatment of a pre-trained trunk.
    pub transfer: TransferConfig,
}

/// Unit of a learning-rate schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleUnit {
    /// Optimizer steps.
    Steps,
    /// Tokens ([`StepGradients::tokens`](super::StepGradients::tokens)).
    Tokens,
}

/// The settings of a supervised training run in steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsConfig {
    /// Optimizer steps.
    pub steps: u64,
    /// Passages per step.
    pub batch_size: usize,
    /// Tokens of a micro-batch; default: the whole step. Affects memory, and the result only
    /// through the rounding of a sum and the masks of dropout. A longer passage is computed alone.
    pub micro_batch_tokens: Option<usize>,
    /// Steps of warm-up.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Lowest learning rate after the warm-up as a fraction of the highest.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// Dropout probability in embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Steps between validations; the last step is always validated.
    pub eval_every: u64,
    /// See [`EarlyStopping::patience`].
    #[serde(default)]
    pub patience: u32,
    /// See [`EarlyStopping::min_gain`].
    #[serde(default)]
    pub min_gain: f64,
    /// AdamW.
    pub optimizer: OptimizerConfig,
}

fn default_floor() -> f64 {
    0.1
}

impl StepsConfig {
    /// Checks ranges; `section` is the name in the configuration.
    ///
    /// # Errors
    /// Returns the first key that is out of range.
    pub fn check(&self, section: &str) -> Result<(), ConfigFault> {
        let key = |name: &str| format!("{section}.{name}");
        in_range(&key("steps"), self.steps as f64, 1.0..=1e9)?;
        in_range(&key("batch_size"), self.batch_size as f64, 1.0..=1e6)?;
        let micro = self.micro_batch_tokens.unwrap_or(1);
        in_range(&key("micro_batch_tokens"), micro as f64, 1.0..=1e9)?;
        if self.warmup_steps > self.steps {
            let expected = format!("0 to {} ({section}.steps)", self.steps);
            let warmup = self.warmup_steps as f64;
            return Err(ConfigFault::out_of_range(key("warmup_steps"), warmup, &expected));
        }
        in_range(&key("learning_rate_floor"), self.learning_rate_floor, 0.0..=1.0)?;
        in_range(&key("dropout"), f64::from(self.dropout), 0.0..=0.9)?;
        in_range(&key("eval_every"), self.eval_every as f64, 1.0..=1e9)?;
        self.early_stopping().check(section)?;
        self.optimizer.check(&key("optimizer"))
    }

    fn early_stopping(&self) -> EarlyStopping {
        EarlyStopping { patience: self.patience, min_gain: self.min_gain }
    }

    /// Returns the plan of a run.
    pub fn plan(&self, transfer: &TransferConfig, seed: u64) -> SupervisedPlan {
        SupervisedPlan {
            seed,
            steps: self.steps,
            eval_every: self.eval_every,
            dropout: self.dropout,
            optimizer: self.optimizer,
            schedule: WarmupCosine {
                warmup: self.warmup_steps as f64,
                total: self.steps as f64,
                floor: self.learning_rate_floor,
            },
            schedule_unit: ScheduleUnit::Steps,
            early_stopping: self.early_stopping(),
            transfer: *transfer,
        }
    }
}
