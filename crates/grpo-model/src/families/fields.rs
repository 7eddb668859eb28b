//! Typed access to `config.json` keys.

use serde_json::{Map, Value};

/// Keys of a `config.json` or of a nested object. Errors are sentences that name the key.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// Gives access to the keys of an object.
    pub fn new(json: &'a Map<String, Value>) -> Self {
        Self(json)
    }

    /// Returns the object.
    pub fn json(&self) -> &'a Map<String, Value> {
        self.0
    }

    /// Returns a required non-negative integer.
    pub fn size(&self, key: &str) -> Result<usize, String> {
        self.optional_size(key)?.ok_or_else(|| format!("missing key '{key}'"))
    }

    /// Returns a required non-negative integer that is not larger than `most`.
    pub fn size_up_to(&self, key: &str, most: usize) -> Result<usize, String> {
        match self.size(key)? {
            size if size > most => {
                Err(format!("{key} = {size} is out of range; expected at most {most}"))
            }
            size => Ok(size),
        }
    }

    /// Returns a non-negative integer, or `None` if the key is missing or null.
    pub fn optional_size(&self, key: &str) -> Result<Option<usize>, String> {
        self.read(key, "a non-negative integer", |value| {
            value.as_u64().and_then(|value| usize::try_from(value).ok())
        })
    }

    /// Returns a finite number, or `None` if the key is missing or null.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>, String> {
        self.read(key, "a finite number", |value| value.as_f64().filter(|value| value.is_finite()))
    }

    /// Returns a positive finite number. The key is required if there is no default.
    pub fn positive(&self, key: &str, default: Option<f64>) -> Result<f64, String> {
        match (self.optional_number(key)?, default) {
            (Some(value), _) if value > 0.0 => Ok(value),
            (Some(value), _) => {
                Err(format!("{key} = {value} is out of range; expected more than 0"))
            }
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("missing key '{key}'")),
        }
    }

    /// Returns `initializer_range`, the standard deviation of the initial weights.
    pub fn initial_deviation(&self) -> Result<f64, String> {
        match self.positive("initializer_range", Some(0.02))? {
            // Smaller values could make all weights zero.
            value if (1e-9..=10.0).contains(&value) => Ok(value),
            value => {
                Err(format!("initializer_range = {value:e} is out of range; expected 1e-9 to 10"))
            }
        }
    }

    /// Returns a boolean.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// Returns a string.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        self.read(key, "a string", Value::as_str)
    }

    /// Returns a nested object.
    pub fn object(&self, key: &str) -> Result<Option<Self>, String> {
        self.read(key, "an object", |value| value.as_object().map(Self))
    }

    /// Returns an error if a flag enables an unsupported feature.
    pub fn refuse(&self, key: &str, expected: bool) -> Result<(), String> {
        match self.flag(key, expected)? == expected {
            true => Ok(()),
            false => Err(format!("{key} = {} is not supported", !expected)),
        }
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match convert(value) {
                Some(value) => Ok(Some(value)),
                None => Err(format!("{key} = {value}; expected {expected}")),
            },
        }
    }
}
