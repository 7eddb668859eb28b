//! Training: supervised stages, and the GRPO loop of collect → score → update.
//!
//! Start reading at [`Grpo::step`], which is the algorithm on one page. Nothing here prints, reads arguments
//! or writes files: progress goes to an observer.

mod batches;
mod collate;
mod config;
mod error;
mod metrics;
mod optimizer;
mod pretrain;
mod schedule;
mod step;
mod train;

pub use config::{
    AdvantageSettings, GrpoConfig, LossSettings, SamplingConfig, ScheduleConfig, TrainConfig,
};
pub use error::TrainError;
pub use metrics::Metrics;
pub use optimizer::{Optimizer, OptimizerConfig};
pub use pretrain::{PretrainConfig, PretrainEpoch, PretrainObserver, PretrainStep, pretrain};
pub use schedule::WarmupCosine;
pub use step::{Decode, Grpo, PhaseTimes, StepReport};
pub use train::{TrainObserver, train, unconditional_prompts};
