//! Errors for invalid sampling distributions.

/// Error returned if a sampling distribution is invalid.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("{problem}")]
pub struct DistributionError {
    setting: String,
    problem: String,
}

impl DistributionError {
    pub(crate) fn new(setting: &str, problem: impl Into<String>) -> Self {
        Self { setting: setting.to_owned(), problem: problem.into() }
    }

    /// Returns the name of the invalid field in [`SamplingSettings`](crate::SamplingSettings).
    pub fn setting(&self) -> &str {
        &self.setting
    }
}
