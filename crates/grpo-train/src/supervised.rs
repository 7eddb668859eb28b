//! Supervised training: one driver, [`SupervisedTrainer`], for everything that an [`Objective`] describes.
//!
//! The driver owns the model, the optimizer, the schedule, early stopping and guards. An objective says which data a step
//! has, what its loss is, and what is measured on held-out data. Each step is a function of the seed, the number of the
//! step and the saved state, so that a resumed run equals one that was never interrupted, bit for bit.

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
