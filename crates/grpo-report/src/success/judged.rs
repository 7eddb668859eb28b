//! A criterion and its result.

use serde::Serialize;

/// The result of a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Reached.
    Passed,
    /// Missed.
    Failed,
    /// The run lacks the numbers it needs.
    NotJudged,
}

/// A criterion and its result for a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The criterion in a few words.
    pub name: &'static str,
    /// Its result.
    pub outcome: Outcome,
    /// The numbers behind the result, in one sentence.
    pub sentence: String,
}

impl Judged {
    pub(super) fn new(name: &'static str, outcome: Outcome, sentence: impl Into<String>) -> Self {
        Self { name, outcome, sentence: sentence.into() }
    }

    pub(super) fn open(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Outcome::NotJudged, why)
    }

    pub(super) fn of(name: &'static str, is_passed: bool, sentence: String) -> Self {
        Self::new(name, if is_passed { Outcome::Passed } else { Outcome::Failed }, sentence)
    }
}
