//! Tweets and their replies as a task: records, splits, cleaning, what training reads of them, rewards, and subcommands.
//!
//! - [`Replies`] registers all of it with the program.
//! - [`read_pairs`] reads tweets with their replies, and says of every other line why it is not a pair.
//! - [`split_by_tweet`] and [`split_phases`] keep the replies to a tweet together.
//! - [`CleaningPlan`] keeps the pairs that are worth training on.
//! - [`EngagementHeadObjective`] trains what says how well a reply is received.
//! - [`ReplyTemplate`] puts a tweet to a model; [`ReplyPrompts`] and [`ReplyExamples`] are what a training run reads.

mod cleaning;
mod commands;
mod engagement;
mod error;
mod pair;
mod phases;
mod read;
mod rewards;
mod split;
mod summary;
mod task;
mod template;
mod training;

pub use cleaning::{
    CleanedPairs, CleaningPlan, CleaningReport, CleaningRules, CollectionFilter, Reason,
    RejectedPair, ValidationRules, clean_reply, quality,
};
pub use engagement::{
    EngagementConfig, EngagementData, EngagementHeadObjective, EngagementReply, EngagementTraining,
    engagement_score, measure_engagement,
};
pub use error::RepliesError;
pub use pair::PairRecord;
pub use phases::{
    MOST_DIFFERENCE, PhaseSplit, PhaseStatistics, PhaseSummary, QuartileShares, split_phases,
};
pub use read::{PairFault, PairFile, SkippedLine, read_pairs};
pub use rewards::{
    DEFAULT_GENERIC_WORDS, EngagementDescription, EngagementError, EngagementGate,
    EngagementMeasures, EngagementModel, EngagementObjective, EngagementReport, GenericWords,
    HeuristicReward, HeuristicWeights, LearnedReward, engagement_features, reward_kinds,
};
pub use split::split_by_tweet;
pub use summary::PairSummary;
pub use task::Replies;
pub use template::ReplyTemplate;
pub use training::{PairReport, ReplyExamples, ReplyPrompts};
