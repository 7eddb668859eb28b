//! Training: supervised stages, and the GRPO loop of collect → score → update.
//!
//! Nothing here prints, reads arguments or writes files: progress goes to an observer.

mod batches;
mod error;
mod optimizer;
mod pretrain;
mod schedule;

pub use error::TrainError;
pub use optimizer::{Optimizer, OptimizerConfig};
pub use pretrain::{PretrainConfig, PretrainEpoch, PretrainObserver, PretrainStep, pretrain};
pub use schedule::WarmupCosine;
