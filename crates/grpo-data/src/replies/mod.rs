//! Tweets and their replies: records, splits, and what training reads of them.

mod assign;
mod cleaning;
mod pair;
mod phases;
mod quartiles;
mod read;
mod samples_compared;
mod split;
mod summary;
mod template;
mod training;

pub use cleaning::{
    CleanedPairs, CleaningPlan, CleaningReport, CleaningRules, CollectionFilter, Reason,
    RejectedPair, ValidationRules, clean_reply, quality,
};
pub use pair::PairRecord;
pub use phases::{
    MOST_DIFFERENCE, PhaseSplit, PhaseStatistics, PhaseSummary, QuartileShares, split_phases,
};
pub use quartiles::Quartiles;
pub use read::{PairFault, PairFile, SkippedLine, read_pairs};
pub use samples_compared::TestResult;
pub use split::{PairSplit, SplitFractions, split_by_tweet};
pub use summary::{PairSummary, Spread};
pub use template::ReplyTemplate;
pub use training::{PairReport, ReplyExamples, ReplyPrompts};
