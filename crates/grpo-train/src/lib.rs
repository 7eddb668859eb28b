#![doc = include_str!("../README.md")]
//!
//! Start reading at [`Grpo::step`], which shows the whole algorithm on one page. This crate never
//! prints, reads arguments or writes files. Progress is reported to an observer.

mod batches;
mod best_samples;
mod collate;
mod config;
mod config_check;
mod distributed_gradients;
mod diversity_measure;
mod ending;
mod error;
mod eval_config;
mod evaluated;
mod evaluation;
mod extension;
mod extension_roles;
mod group_diversity;
mod guard_config;
mod guards;
mod learner;
mod loss_settings;
mod metrics;
mod micro_batch_state;
mod optimizer;
mod pretrain;
mod probe;
mod reference;
mod reward_functions;
mod reward_shares;
mod run_metrics;
mod sampler_check;
mod schedule;
mod schedule_config;
mod state;
mod step;
mod step_report;
mod supervised;
#[cfg(test)]
mod test_groups;
mod token_trace;
mod train;
mod transfer;
mod usual_ranges;

pub use batches::EpochBatches;
pub use best_samples::BestSamples;
pub use config::{GrpoConfig, MOST_KEPT_ACTIVATIONS, SamplingConfig, TrainConfig};
pub use diversity_measure::{build_measure, check_measure, no_embedder};
pub use ending::Ending;
pub use error::{TrainError, distribution_fault, finite_loss, in_range};
pub use eval_config::{EvalConfig, Evaluations};
pub use evaluated::{Evaluated, GroupDiversity};
pub use evaluation::Evaluation;
pub use extension::{
    Added, AuxiliaryLoss, PolicyUpdate, Sampled, ScoreKeeper, ScoredStep, Snapshot, StepExtension,
    StepExtensions, StepSampler, StepScorer, UpdatedStep, roles_of,
};
pub use extension_roles::{ExtensionRole, refuse_conflicts};
pub use group_diversity::Contributions;
pub use grpo_metrics::{MetricGroup, MetricSpec, MetricTable};
pub use grpo_rollout::{Decode, EngineFactory, NextTokens};
pub use guard_config::{Action, GuardAction, GuardConfig, default_guards};
pub use guards::{GuardTrigger, Guards, GuardsState};
pub use learner::{FurtherUpdate, LearnResult, Learner, Update};
pub use loss_settings::{AdvantageSettings, LossSettings};
pub use metrics::{Metrics, step_metrics};
pub use optimizer::{Decayed, Optimizer, OptimizerConfig};
pub use pretrain::{
    ConditionDropout, CrossEntropy, DiversityConfig, LimitAction, LossLimits, LossWeights,
    NextTokenObjective, PretrainConfig, PretrainMeasures, PretrainProgress, SampleRow,
    SampledEvalConfig, SampledMeasures, ScoreFunctionConfig, cross_entropy, pretrain_metrics,
};
pub use probe::{LearnTimes, Observed, Phases};
pub use reference::{ReferenceFrom, ReferenceSettings};
pub use run_metrics::RunMetrics;
pub use sampler_check::{AboveTolerance, SamplerCheck};
pub use schedule::{Decay, Schedule};
pub use schedule_config::ScheduleConfig;
pub use state::{SavedState, StateNumbers, TrainerState};
pub use step::Grpo;
pub use step_report::{RewardNames, StepReport};
pub use supervised::{
    CompletedStep, Cut, EarlyStopping, GradientSum, Objective, Review, ScheduleUnit, StepGradients,
    StepsConfig, StopCause, SupervisedEnding, SupervisedObserver, SupervisedPlan,
    SupervisedProgress, SupervisedState, SupervisedStep, SupervisedTrainer, Validation, by_tokens,
    supervised_metrics,
};
pub use train::{
    Parts, StepDone, TrainObserver, Training, TrainingProgress, unconditional_prompts,
};
pub use transfer::TransferConfig;
