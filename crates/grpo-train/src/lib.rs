#![doc = include_str!("../README.md")]
//!
//! Start reading at [`Grpo::step`], which shows the whole algorithm on one page. This crate never
//! prints, reads arguments or writes files. Progress is reported to an observer.

mod ahead;
mod archive;
mod batches;
mod best_samples;
mod collate;
mod combined;
mod conditional_metrics;
mod config;
mod distributed_gradients;
mod diversity_bonus;
mod diversity_filter;
mod diversity_measure;
mod ending;
mod error;
mod eval_config;
mod evaluation;
mod extension;
mod extension_config;
mod group_diversity;
mod guard_config;
mod guards;
mod learner;
mod loss_settings;
mod metric_names;
mod metrics;
mod micro_batch_state;
mod optimizer;
mod pretrain;
mod probe;
mod reference;
mod replay;
mod reward_functions;
mod reward_shares;
mod sampler_check;
mod schedule;
mod schedule_config;
mod score_archive;
mod similar_texts;
mod state;
mod step;
mod supervised;
#[cfg(test)]
mod test_groups;
mod token_trace;
mod train;
mod transfer;
mod usual_ranges;

pub use ahead::{AheadConfig, SamplingAhead, Staleness};
pub use archive::{Archive, ArchivedCall};
pub use batches::EpochBatches;
pub use best_samples::BestSamples;
pub use combined::{Combined, CombinedConfig};
pub use config::{GrpoConfig, SamplingConfig, TrainConfig};
pub use diversity_bonus::{BonusMeasure, DiversityBonus, DiversityBonusConfig};
pub use diversity_filter::{
    BucketFn, BucketPenalty, Bucketing, DiversityFilter, DiversityFilterConfig,
};
pub use ending::Ending;
pub use error::{TrainError, distribution_fault, finite_loss, in_range};
pub use eval_config::{EvalConfig, Evaluations};
pub use evaluation::{Evaluated, Evaluation, GroupDiversity};
pub use extension::{
    Added, PolicyUpdate, Sampled, ScoredStep, Snapshot, StepExtension, StepExtensions, StepSampler,
    StepScorer, UpdatedStep,
};
pub use extension_config::{
    BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionMetrics,
    ExtensionParts, ParseExtension, ReadExamples, as_section, extension_kinds, section,
};
pub use grpo_rollout::{Actions, Decode, NextTokens};
pub use guard_config::{Action, GuardAction, GuardConfig, default_guards};
pub use guards::{GuardTrigger, Guards, GuardsState};
pub use learner::{FurtherUpdate, LearnResult, Learner, Update};
pub use loss_settings::{AdvantageSettings, LossSettings};
pub use metrics::Metrics;
pub use optimizer::{Decayed, Optimizer, OptimizerConfig};
pub use pretrain::{
    ConditionDropout, DiversityConfig, LimitAction, LossLimits, NextTokenObjective, PretrainConfig,
    PretrainMeasures, PretrainProgress, SampleRow, SampledEvalConfig, SampledMeasures,
    ScoreFunctionConfig,
};
pub use probe::{LearnTimes, Observed, Phases};
pub use reference::{ReferenceFrom, ReferenceSettings};
pub use replay::{ReplayConfig, Variation};
pub use sampler_check::{AboveTolerance, SamplerCheck};
pub use schedule::{Decay, Schedule};
pub use schedule_config::ScheduleConfig;
pub use score_archive::{ArchiveConfig, CallLimit, ScoreArchive};
pub use similar_texts::{NewSimilarTexts, SimilarTexts};
pub use state::{SavedState, StateNumbers, TrainerState};
pub use step::{Grpo, RewardNames, StepReport};
pub use supervised::{
    CompletedStep, Cut, EarlyStopping, GradientSum, Objective, Review, ScheduleUnit, StepGradients,
    StepsConfig, StopCause, SupervisedEnding, SupervisedObserver, SupervisedPlan,
    SupervisedProgress, SupervisedState, SupervisedStep, SupervisedTrainer, Validation, by_tokens,
};
pub use train::{
    Parts, StepDone, TrainObserver, Training, TrainingProgress, unconditional_prompts,
};
pub use transfer::TransferConfig;
