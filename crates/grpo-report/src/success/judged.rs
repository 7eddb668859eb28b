//! A criterion and its result.

use std::borrow::Cow;

use serde::Serialize;

/// Result of checking a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The criterion is met.
    Passed,
    /// The criterion is not met.
    Failed,
    /// The run does not have the required data.
    NotJudged,
    /// The reader should know it, but it does not change the overall result.
    Warning,
}

/// A criterion and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// Short name of the criterion.
    pub name: Cow<'static, str>,
    /// Whether the criterion is met.
    pub outcome: Outcome,
    /// The numbers on which the result is based, in one sentence.
    pub sentence: String,
    /// How the quantity changed, if the criterion is about a change.
    #[serde(skip)]
    pub(crate) trend: Option<Trend>,
}

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trend {
    Rose,
    /// The change may be due to chance.
    Unclear,
    Fell,
}

impl Judged {
    /// Creates the result of a criterion.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        outcome: Outcome,
        sentence: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), outcome, sentence: sentence.into(), trend: None }
    }

    pub(super) fn with_trend(self, trend: Trend) -> Self {
        Self { trend: Some(trend), ..self }
    }

    /// Returns [`Outcome::NotJudged`] instead of [`Outcome::Failed`] if `is_open` is true for the trend.
    pub(super) fn open_if(self, is_open: impl Fn(Option<Trend>) -> bool) -> Self {
        match self.outcome {
            Outcome::Failed if is_open(self.trend) => {
                Self::open(self.name, format!("so far {}", self.sentence))
            }
            _ => self,
        }
    }

    pub(super) fn open(name: impl Into<Cow<'static, str>>, why: impl Into<String>) -> Self {
        Self::new(name, Outcome::NotJudged, why)
    }

    pub(super) fn of(
        name: impl Into<Cow<'static, str>>,
        is_passed: bool,
        sentence: String,
    ) -> Self {
        Self::new(name, if is_passed { Outcome::Passed } else { Outcome::Failed }, sentence)
    }
}
