#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod cleaning;
mod commands;
mod engagement;
mod environment;
mod pair;
mod phases;
mod read;
mod rewards;
mod split;
mod split_files;
mod summary;
mod task;
mod template;
mod training;

pub use cleaning::{
    CleanedPairs, CleaningPlan, CleaningReport, CleaningRules, CollectionFilter, Reason,
    RejectedPair, ValidationRules, clean_reply, quality,
};
pub use engagement::{
    ENGAGEMENT_METRICS, EngagementConfig, EngagementData, EngagementHeadObjective, EngagementReply,
    EngagementTraining, engagement_score, measure_engagement,
};
pub use environment::{ReplyEnvironment, ReplyEvaluation, ReplyStep};
pub use pair::PairRecord;
pub use phases::{
    MOST_DIFFERENCE, PhaseSplit, PhaseStatistics, PhaseSummary, QuartileShares, split_phases,
};
pub use read::{MOST_LISTED, PairFile, RepeatedPair, SkippedLine, read_pairs};
pub use rewards::{
    DEFAULT_GENERIC_WORDS, EngagementDescription, EngagementGate, EngagementMeasures,
    EngagementModel, EngagementObjective, EngagementReport, GenericWords, HeuristicReward,
    LearnedReward, engagement_features, reward_kinds,
};
pub use split::split_by_tweet;
pub use summary::PairSummary;
pub use task::Replies;
pub use template::ReplyTemplate;
pub use training::{PairReport, ReplyExamples, ReplyPrompts};
