//! How long a supervised training run is, and at which learning rates.

use grpo_data::ConfigFault;
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::supervised::EarlyStopping;
use crate::{OptimizerConfig, TransferConfig, WarmupCosine};

/// The settings of a supervised training run that do not depend on what is learned. They are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisedPlan {
    /// Seed of dropout.
    pub seed: u64,
    /// Optimizer steps.
    pub steps: u64,
    /// Steps from one validation to the next; there is one after the last step too.
    pub eval_every: u64,
    /// Probability of dropping an element.
    pub dropout: f32,
    /// AdamW.
    pub optimizer: OptimizerConfig,
    /// What the learning rate is multiplied by.
    pub schedule: WarmupCosine,
    /// What the schedule counts.
    pub schedule_unit: ScheduleUnit,
    /// When the run ends before its last step.
    pub early_stopping: EarlyStopping,
    /// How the trunk is treated that the run begins with.
    pub transfer: TransferConfig,
}

/// What a learning-rate schedule counts.
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
    /// Passages of one step.
    pub batch_size: usize,
    /// Tokens that are computed at the same time; decides memory, and the result only by the rounding of a sum and by
    /// the masks of dropout. All of the step's where it is left out; a passage that has more is computed alone.
    pub micro_batch_tokens: Option<usize>,
    /// Steps over which the learning rate rises.
    #[serde(default)]
    pub warmup_steps: u64,
    /// The learning rate never falls below this part of its highest value after the warm-up.
    #[serde(default = "default_floor")]
    pub learning_rate_floor: f64,
    /// Probability of dropping an element, in embeddings, attention and residual branches.
    #[serde(default)]
    pub dropout: f32,
    /// Steps from one validation to the next; there is one after the last step too.
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
    /// Checks ranges once; `section` names the place in the configuration.
    ///
    /// # Errors
    /// The first key that is out of its range.
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

    /// Returns the plan of a run with these settings.
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
