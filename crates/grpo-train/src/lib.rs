#![doc = include_str!("../README.md")]
//!
//! Start reading at [`Grpo::step`], which is the algorithm on one page. Nothing here prints, reads arguments
//! or writes files: progress goes to an observer.

mod actions;
mod batches;
mod collate;
mod combined;
mod config;
mod diversity_bonus;
mod diversity_measure;
mod engagement;
mod error;
mod evaluation;
mod fill;
mod group_diversity;
mod guard_config;
mod guards;
mod judge;
mod learner;
mod ledger;
mod loss_settings;
mod masked_lm;
mod metric_names;
mod metrics;
mod micro_batch_state;
mod optimizer;
mod pretrain;
mod probe;
mod reference;
mod reward_functions;
mod reward_shares;
mod sampler_check;
mod schedule;
mod state;
mod step;
mod supervised;
#[cfg(test)]
mod test_groups;
mod token_trace;
mod train;
mod transfer;

pub use actions::Actions;
pub use batches::EpochBatches;
pub use combined::{Combined, CombinedConfig, CombinedTerms};
pub use config::{GrpoConfig, SamplingConfig, ScheduleConfig, TrainConfig};
pub use diversity_bonus::{DiversityBonus, DiversityBonusConfig};
pub use engagement::{
    EngagementConfig, EngagementData, EngagementHeadObjective, EngagementReply, EngagementTraining,
    engagement_score, measure_engagement,
};
pub use error::{TrainError, finite_loss, in_range};
pub use evaluation::{EvalConfig, Evaluated, Evaluation, Evaluations, GroupDiversity};
pub use grpo_rollout::Decode;
pub use guard_config::{GuardAction, GuardConfig, default_guards};
pub use guards::{Action, Guards, GuardsState, Trip};
pub use judge::{
    CorrelationScaling, FillSettings, JudgeConfig, JudgeData, JudgeGate, JudgeMeasures,
    JudgeObjective, JudgeReport, JudgeScaling, JudgeValidationConfig, VarianceScaling,
    corruption_target, measure_judge,
};
pub use learner::{LearnResult, Learner, SupervisedUpdate, Update};
pub use loss_settings::{AdvantageSettings, LossSettings};
pub use masked_lm::{
    CriticConfig, CriticScope, DEFAULT_EVAL_BATCHES, EntropyWeighting, JudgeWeighting,
    MaskRatioWeighting, MaskedData, MaskedLmConfig, MaskedLmMeasures, MaskedLmObjective,
    ModifierConfig,
};
pub use metrics::Metrics;
pub use optimizer::{Decayed, Optimizer, OptimizerConfig};
pub use pretrain::{
    DiversityConfig, LimitAction, LossLimits, NextTokenObjective, PretrainConfig, PretrainMeasures,
    PretrainProgress, SampleRow, SampledEvalConfig, SampledMeasures,
};
pub use probe::{LearnTimes, Observed, PhaseMemory, PhaseTimes};
pub use reference::{ReferenceFrom, ReferenceSettings};
pub use sampler_check::{AboveTolerance, SamplerCheck};
pub use schedule::WarmupCosine;
pub use state::{SavedState, StateNumbers, TrainerState, TrainingProgress};
pub use step::{Grpo, RewardNames, StepReport};
pub use supervised::{
    CompletedStep, Cut, EarlyStopping, GradientSum, Objective, Review, ScheduleUnit, StepGradients,
    StepsConfig, StopCause, SupervisedEnding, SupervisedObserver, SupervisedPlan,
    SupervisedProgress, SupervisedState, SupervisedStep, SupervisedTrainer, Validation, by_tokens,
};
pub use train::{Ending, Parts, StepDone, TrainObserver, Training, unconditional_prompts};
pub use transfer::TransferConfig;
