//! A setting that cannot be used.

use std::fmt;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// A fault of a configuration: where it is, what is wrong, and how to fix it.
///
/// The one type for all crates. What checks a setting knows its key; what read the files adds the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// Path of the key, for example `guards[1].watch`; empty where no single key is at fault.
    pub key: String,
    /// `file:line` of the key, or the argument that sets it, where known.
    pub place: Option<String>,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub remedy: String,
}

impl ConfigFault {
    /// A fault of `key` whose place is not known yet.
    pub fn new(
        key: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { key: key.into(), place: None, message: message.into(), remedy: remedy.into() }
    }

    /// From a sentence that ends with its remedy: `what is wrong; how to fix it`.
    pub fn from_sentence(key: impl Into<String>, sentence: impl AsRef<str>) -> Self {
        let sentence = sentence.as_ref();
        let (message, remedy) = sentence.rsplit_once("; ").unwrap_or((sentence, ""));
        Self::new(key, message, remedy)
    }

    /// [`Self::from_sentence`] where no single key is at fault, as the `Err` of a check.
    ///
    /// # Errors
    /// Always.
    pub fn refuse<T>(sentence: impl AsRef<str>) -> Result<T, Self> {
        Err(Self::from_sentence("", sentence))
    }

    /// The number `value` of `key`, which is outside of `expected`.
    pub fn out_of_range(key: impl Into<String>, value: f64, expected: &str) -> Self {
        let key = key.into();
        let message = format!("{key} = {value} is out of range");
        Self::new(key, message, format!("expected {expected}"))
    }

    /// The same fault, seen from the table that has the section as `section`.
    #[must_use]
    pub fn below(self, section: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { key: format!("{section}{dot}{}", self.key), ..self }
    }

    /// The same fault with its place.
    #[must_use]
    pub fn at(self, place: String) -> Self {
        Self { place: Some(place), ..self }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for ConfigFault {}

/// Reads the settings of a section; a fault names the key.
///
/// # Errors
/// An unknown key, a missing one, or a value of another type.
pub fn deserialize_settings<T: DeserializeOwned>(table: Table) -> Result<T, ConfigFault> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let key = error.path().to_string();
        ConfigFault::new(if key == "." { "" } else { &key }, error.inner().message(), "")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_message_and_remedy_in_this_order() {
        let fault = ConfigFault::out_of_range("train.steps", 0.0, "1 to 10");
        assert_eq!(fault.to_string(), "train.steps = 0 is out of range; expected 1 to 10");
        let fault = ConfigFault::from_sentence("a.b", "a.b is wrong; really; leave it out");
        assert_eq!((&*fault.message, &*fault.remedy), ("a.b is wrong; really", "leave it out"));
        let placed = fault.at("run.toml:3".into()).to_string();
        assert_eq!(placed, "run.toml:3: a.b is wrong; really; leave it out");
        assert_eq!(ConfigFault::from_sentence("", "no remedy").to_string(), "no remedy");
    }
}
