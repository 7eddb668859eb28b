//! Tweets and their replies: records, splits, and what training reads of them.

mod assign;
mod pair;
mod quartiles;
mod read;
mod split;
mod summary;
mod template;
mod training;

pub use pair::PairRecord;
pub use quartiles::Quartiles;
pub use read::{PairFault, PairFile, SkippedLine, read_pairs};
pub use split::{PairSplit, SplitFractions, split_by_tweet};
pub use summary::{PairSummary, Spread};
pub use template::ReplyTemplate;
pub use training::{PairReport, ReplyExamples, ReplyPrompts};
