//! Supervised training. [`SupervisedTrainer`] can train any [`Objective`].
//!
//! The trainer manages the model, the optimizer, the learning-rate schedule, early stopping and
//! guards. The objective provides data, computes the loss, and evaluates the model on held-out
//! data. Each step only depends on the seed, the step number and the saved state. A resumed run is
//! therefore bit-identical to an uninterrupted one.

mod early_stopping;
mod gradients;
mod objective;
mod plan;
mod state;
mod trainer;

pub use early_stopping::EarlyStopping;
pub use gradients::{Cut, GradientSum, by_tokens};
pub use objective::{Objective, Review, StepGradients};
pub use plan::{ScheduleUnit, StepsConfig, SupervisedPlan};
pub use state::{StopCause, SupervisedProgress, SupervisedState};
pub use trainer::{
    CompletedStep, SupervisedEnding, SupervisedObserver, SupervisedStep, SupervisedTrainer,
    Validation, supervised_metrics,
};
