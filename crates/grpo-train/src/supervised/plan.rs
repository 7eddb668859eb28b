//! How long a supervised training run is, and at which learning rates.

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
