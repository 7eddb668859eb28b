//! Language models as judges: prompts, parsing of their answers, and the results.
//!
//! Nothing here sends a request. [`Pair::questions`] and [`score_question`] return what to ask,
//! [`JudgedPair`] and [`ScoredText`] parse the answers, [`PairwiseSummary`] and [`ScoreSummary`]
//! summarise them.

mod pairwise;
mod parsed_answer;
mod prompts;
mod scores;

pub use pairwise::{JudgeAgreement, JudgedPair, PairOutcome, PairwiseSummary, check_same_pairs};
pub use parsed_answer::{JudgeAnswer, ParsedAnswer, Verdict, parse_score, parse_verdict};
pub use prompts::{Pair, score_question};
pub use scores::{ScoreSummary, ScoredText};
