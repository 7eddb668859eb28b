//! Errors for invalid sampling distributions.

/// Error returned if a sampling distribution is invalid.
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

    /// Returns the name of the invalid field in [`SamplingSettings`](crate::SamplingSettings).
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}
