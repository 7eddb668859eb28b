//! Configuration errors.

use std::fmt;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::plain_words::in_plain_words;
use crate::strict::Strict;

/// An invalid setting, with its location and a suggestion for fixing it.
///
/// This type is shared by all crates. The code that checks a setting knows its key. The location is
/// added by the code that parsed the configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// Path of the key, e.g. `guards[1].watch`. Empty if the error does not concern a single key.
    pub key: String,
    /// Location of the key as `file:line`, or the command-line argument that sets it, if known.
    pub place: Option<String>,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub remedy: String,
}

impl ConfigFault {
    /// Creates an error for `key` without a location.
    pub fn new(
        key: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { key: key.into(), place: None, message: message.into(), remedy: remedy.into() }
    }

    /// Creates an error from a message with a remedy, formatted as `what is wrong; how to fix it`.
    pub fn from_sentence(key: impl Into<String>, sentence: impl AsRef<str>) -> Self {
        let sentence = sentence.as_ref();
        let (message, remedy) = sentence.rsplit_once("; ").unwrap_or((sentence, ""));
        Self::new(key, message, remedy)
    }

    /// Returns `Err` with an error created by [`Self::from_sentence`] without a key.
    ///
    /// # Errors
    /// Always returns an error.
    pub fn refuse<T>(sentence: impl AsRef<str>) -> Result<T, Self> {
        Err(Self::from_sentence("", sentence))
    }

    /// Creates an error for a numeric `value` that is not in the `expected` range.
    pub fn out_of_range(key: impl Into<String>, value: f64, expected: &str) -> Self {
        let key = key.into();
        let message = format!("{key} = {} is out of range", short_number(value));
        Self::new(key, message, format!("expected {expected}"))
    }

    /// Prepends the name of the enclosing section to the key.
    #[must_use]
    pub fn below(self, section: &str) -> Self {
        let dot = if self.key.is_empty() { "" } else { "." };
        Self { key: format!("{section}{dot}{}", self.key), ..self }
    }

    /// Sets the location.
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

/// Deserializes the settings of a configuration section. Errors contain the key.
///
/// # Errors
/// Returns an error for unknown or missing keys and for values of the wrong type.
pub fn deserialize_settings<T: DeserializeOwned>(table: Table) -> Result<T, ConfigFault> {
    serde_path_to_error::deserialize(Strict(Value::Table(table))).map_err(|error| {
        let key = error.path().to_string();
        let message = in_plain_words(error.inner().message(), "table");
        ConfigFault::new(if key == "." { "" } else { &key }, message, "")
    })
}

/// Formats a number of things, such as `1 field` or `2 fields`.
pub fn counted(number: impl TryInto<u64>, thing: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Escapes control characters and truncates text to 100 characters.
pub fn short_text(text: &str) -> String {
    const MOST: usize = 100;
    let cut: String = text.chars().take(MOST).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", cut.escape_debug())
}

/// Formats a number as a user would write it, using scientific notation for very large and very small
/// ones. A setting that is stored with 32 bits, such as 0.1, has no digits of its rounding, and neither
/// has a sum such as 0.1 + 0.2.
pub fn short_number(value: impl Into<f64>) -> String {
    let value = value.into();
    // A count such as 9223372036854775807, which is not exact here.
    let is_count = value.fract() == 0.0 && (1e15..=i64::MAX as f64).contains(&value.abs());
    if is_count && format!("{value:e}").len() > 12 {
        return (value as i64).to_string();
    }
    let single = value as f32;
    if value.is_finite() && f64::from(single) == value {
        return match is_extreme(value) {
            true => format!("{single:e}"),
            false => single.to_string(),
        };
    }
    // Numbers that are not rounded have at most 15 digits.
    let rounded = format!("{value:.14e}").parse().unwrap_or(value);
    let is_sum = format!("{rounded:e}").len() + 2 <= format!("{value:e}").len();
    let shown = if is_sum { rounded } else { value };
    match is_extreme(shown) {
        true => format!("{shown:e}"),
        false => shown.to_string(),
    }
}

fn is_extreme(value: f64) -> bool {
    let size = value.abs();
    size.is_finite() && (size >= 1e15 || size > 0.0 && size < 1e-9)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_have_no_hundred_zeros() {
        for (value, expected) in [
            (1e300, "1e300"),
            (-2.5e20, "-2.5e20"),
            (1e9, "1000000000"),
            (1e-8, "0.00000001"),
            (-1e-320, "-1e-320"),
            (0.0, "0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(short_number(value), expected);
        }
        assert_eq!([short_number(1e30_f32), short_number(0.1_f32)], ["1e30", "0.1"]);
    }

    #[test]
    fn numbers_are_those_that_the_user_wrote() {
        for (value, expected) in [
            (f64::from(1e-6_f32), "0.000001"),
            (f64::from(0.3_f32), "0.3"),
            (f64::from(16_777_217_u32), "16777217"),
            (1.0 + 0.1 + 0.2, "1.3"),
            (0.1 + 0.2, "0.3"),
            (1.0 / 3.0, "0.3333333333333333"),
            (1e300, "1e300"),
            (i64::MAX as f64, "9223372036854775807"),
            (1e18, "1e18"),
        ] {
            assert_eq!(short_number(value), expected);
        }
    }

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
