//! Typed access to `config.json` keys.

use serde_json::{Map, Value};

/// Keys of a `config.json` or of a nested object.
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

/// An error in a `config.json`.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) String);

impl Fields<'_> {
    /// Returns a required non-negative integer.
    pub(super) fn size(&self, key: &str) -> Result<usize, Fault> {
        self.optional_size(key)?.ok_or_else(|| Fault(format!("missing key '{key}'")))
    }

    /// Returns a non-negative integer, or `None` if the key is missing or null.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>, Fault> {
        self.read(key, "a non-negative integer", |value| {
            value.as_u64().and_then(|value| usize::try_from(value).ok())
        })
    }

    /// Returns a finite number, or `None` if the key is missing or null.
    pub(super) fn optional_number(&self, key: &str) -> Result<Option<f64>, Fault> {
        self.read(key, "a finite number", |value| value.as_f64().filter(|value| value.is_finite()))
    }

    /// Returns a positive finite number. The key is required if there is no default.
    pub(super) fn positive(&self, key: &str, default: Option<f64>) -> Result<f64, Fault> {
        match (self.optional_number(key)?, default) {
            (Some(value), _) if value > 0.0 => Ok(value),
            (Some(value), _) => {
                Err(Fault(format!("{key} = {value} is out of range; expected more than 0")))
            }
            (None, Some(default)) => Ok(default),
            (None, None) => Err(Fault(format!("missing key '{key}'"))),
        }
    }

    /// Returns `initializer_range`, the standard deviation of the initial weights.
    pub(super) fn initial_deviation(&self) -> Result<f64, Fault> {
        match self.positive("initializer_range", Some(0.02))? {
            // Smaller values could make all weights zero.
            value if (1e-9..=10.0).contains(&value) => Ok(value),
            value => Err(Fault(format!(
                "initializer_range = {value:e} is out of range; expected 1e-9 to 10"
            ))),
        }
    }

    /// Returns a boolean.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool, Fault> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// Returns a string.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        self.read(key, "a string", Value::as_str)
    }

    /// Returns a nested object.
    pub(super) fn object(&self, key: &str) -> Result<Option<Fields<'_>>, Fault> {
        self.read(key, "an object", |value| value.as_object().map(Fields))
    }

    /// Returns an error if a flag enables an unsupported feature.
    pub(super) fn refuse(&self, key: &str, expected: bool) -> Result<(), Fault> {
        match self.flag(key, expected)? == expected {
            true => Ok(()),
            false => Err(Fault(format!("{key} = {} is not supported", !expected))),
        }
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match convert(value) {
                Some(value) => Ok(Some(value)),
                None => Err(Fault(format!("{key} = {value}; expected {expected}"))),
            },
        }
    }
}
