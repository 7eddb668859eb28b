//! What cannot be sampled from.

/// A distribution that cannot be sampled, in one sentence.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("{problem}")]
pub struct DistributionError {
    setting: &'static str,
    problem: String,
}

impl DistributionError {
    pub(crate) fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self { setting, problem: problem.into() }
    }

    /// The field of [`SamplingSettings`](crate::SamplingSettings) that is at fault.
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}
