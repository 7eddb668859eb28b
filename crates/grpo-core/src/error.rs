//! Configuration errors.

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct ConfigError {
    setting: &'static str,
    problem: String,
}

impl ConfigError {
    pub(crate) fn new(setting: &'static str, problem: impl Into<String>) -> Self {
        Self { setting, problem: problem.into() }
    }

    /// Creates an error for a number outside its valid range, which is described by `expected`.
    pub(crate) fn out_of_range(setting: &'static str, value: f64, expected: &str) -> Self {
        Self::new(setting, format!("{setting} = {value} is out of range; it must be {expected}"))
    }

    /// Returns the configuration key that needs to change, e.g. `mismatch.min`.
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}

pub(crate) fn at_least_zero(name: &'static str, value: f64) -> Result<(), ConfigError> {
    match (0.0..=f64::MAX).contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::out_of_range(name, value, "0 or more and finite")),
    }
}

pub(crate) fn above_zero(name: &'static str, value: f64) -> Result<(), ConfigError> {
    match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => Err(ConfigError::out_of_range(name, value, "above 0 and finite")),
    }
}
