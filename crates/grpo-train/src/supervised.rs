//! Supervised training: [`SupervisedTrainer`] trains any [`Objective`].
//!
//! The trainer owns the model, the optimizer, the schedule, early stopping and guards. An objective
//! defines the data of a step, the loss, and the measures on held-out data. Each step is a function
//! of the seed, the step number and the saved state, so a resumed run is bit-identical to an
//! uninterrupted one.

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
    Validation,
};
