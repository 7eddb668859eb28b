//! Language models as judges: prompts, parsing of their answers, and the results.
//!
//! Nothing here sends a request. [`Pair::questions`] and [`score_question`] return what to ask,
//! [`JudgedPair`] and [`ScoredText`] read the answers, [`PairwiseSummary`] and [`ScoreSummary`]
//! summarise them.

mod pairwise;
mod prompts;
mod reading;
mod scores;

pub use pairwise::{JudgeAgreement, JudgedPair, PairOutcome, PairwiseSummary};
pub use prompts::{Pair, score_question};
pub use reading::{Reading, Verdict, parse_score, parse_verdict};
pub use scores::{ScoreSummary, ScoredText};
