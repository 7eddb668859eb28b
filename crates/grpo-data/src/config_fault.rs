//! A fault in a configuration.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// A section of a configuration that cannot be used: which key, and a sentence that says why and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigFault {
    /// The key, as `parts[1].weight`; relative to the section where the section was read alone, and empty for all of it.
    pub key: String,
    /// What is wrong, and how to mend it.
    pub message: String,
}

impl ConfigFault {
    /// A fault of a section as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self::at("", message)
    }

    /// A fault of a key.
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }

    /// The same fault, seen from the table that has the section as `section`.
    #[must_use]
    pub fn below(self, section: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { key: format!("{section}{dot}{}", self.key), ..self }
    }
}

/// Reads the settings of a section; a fault names the key.
///
/// # Errors
/// An unknown key, a missing one, or a value of another type.
pub fn deserialize_settings<T: DeserializeOwned>(table: Table) -> Result<T, ConfigFault> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let key = error.path().to_string();
        let key = if key == "." { String::new() } else { key };
        ConfigFault { key, message: error.inner().message().to_owned() }
    })
}
