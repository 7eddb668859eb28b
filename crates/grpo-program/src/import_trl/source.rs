//! Reads a TRL configuration and converts its values to the expected types.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, bail};
use grpo_data::{parse_json, regular_file, short_number};
use serde_json::Value;

use super::yaml::parse_yaml;

/// Maximum size of a file in bytes. A complete dump of all arguments takes less than 20 kB.
const LARGEST: usize = 1 << 20;

/// Old key names and their current names.
const RENAMED: &[(&str, &str)] = &[
    ("torch_dtype", "dtype"),
    ("evaluation_strategy", "eval_strategy"),
    ("gradient_checkpointing", "activation_checkpointing"),
    ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
];

/// The keys of a TRL configuration under their current names. A key whose value is `null` counts as
/// not set and has TRL's default.
#[derive(Debug)]
pub(super) struct Given {
    /// Path of the file, for messages.
    file: String,
    values: BTreeMap<String, Value>,
}

impl Given {
    /// Reads a YAML or JSON file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is larger than 1 MiB, or is not a mapping with
    /// distinct keys.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let parse: fn(&str) -> Result<Value, String> = match ending.as_deref() {
            Some("json") => parse_json,
            Some("yaml" | "yml") => parse_yaml,
            _ => bail!(
                "{file}: unknown file type; expected a name that ends in .yaml, .yml or .json"
            ),
        };
        let text = regular_file::read_to_string(path)
            .with_context(|| format!("cannot read the TRL configuration {file}"))?;
        anyhow::ensure!(
            text.len() <= LARGEST,
            "{file}: the file is larger than 1 MiB; expected a TRL configuration"
        );
        let value = parse(&text).map_err(|reason| anyhow::anyhow!("{file}: {reason}"))?;
        Self::new(&file.to_string(), value)
    }

    /// Collects the keys of a parsed file.
    pub(super) fn new(file: &str, value: Value) -> anyhow::Result<Self> {
        let Value::Object(entries) = value else {
            bail!(
                "{file}: the file is {}, not a mapping; expected keys with values, such as `learning_rate: 1e-6`",
                kind_of(&value)
            );
        };
        let mut values: BTreeMap<String, Value> = entries.into_iter().collect();
        for (old, new) in RENAMED {
            let Some(value) = values.remove(*old).filter(|value| !value.is_null()) else {
                continue;
            };
            let current = values.insert((*new).to_owned(), value.clone());
            // A complete dump has both names.
            anyhow::ensure!(
                current.is_none_or(|current| current.is_null() || current == value),
                "{file}: {old} is the old name of {new}; remove one of the two"
            );
        }
        Ok(Self { file: file.to_owned(), values })
    }

    /// Returns the names of all keys, including those without a value, in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Returns the value of a key, if it has one.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Returns whether the key has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns a finite number. Like TRL, accepts numbers in quotes.
    pub(super) fn number(&self, key: &str) -> anyhow::Result<Option<f64>> {
        let parse = |value: &Value| match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        self.typed(key, "a number", |value| parse(value).filter(|number| number.is_finite()))
    }

    /// Returns a whole number.
    pub(super) fn integer(&self, key: &str) -> anyhow::Result<Option<i64>> {
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 1e15).then_some(number);
        let parse = |value: &Value| match value {
            Value::Number(number) => {
                number.as_i64().or_else(|| Some(whole(number.as_f64()?)? as i64))
            }
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        self.typed(key, "a whole number", parse)
    }

    /// Returns a whole number in a range, or `default`.
    pub(super) fn count(
        &self,
        key: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> anyhow::Result<u64> {
        let Some(value) = self.integer(key)? else { return Ok(default) };
        match u64::try_from(value) {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => bail!(
                "{}: {key} = {value} is out of range; expected {} to {}",
                self.file,
                range.start(),
                short_number(*range.end() as f64)
            ),
        }
    }

    /// Returns a Boolean.
    pub(super) fn boolean(&self, key: &str) -> anyhow::Result<Option<bool>> {
        let parse = |value: &Value| match value {
            Value::Bool(value) => Some(*value),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" => Some(true),
                "false" | "no" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        self.typed(key, "true or false", parse)
    }

    /// Returns a string.
    pub(super) fn text(&self, key: &str) -> anyhow::Result<Option<String>> {
        self.typed(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// Returns one of the strings in `choices`, or the first one if the key is not set.
    pub(super) fn choice(
        &self,
        key: &str,
        choices: &[&'static str],
    ) -> anyhow::Result<&'static str> {
        // In YAML, `no` without quotes is false.
        if self.get(key) == Some(&Value::Bool(false)) && choices.contains(&"no") {
            return Ok("no");
        }
        let Some(text) = self.text(key)? else { return Ok(choices[0]) };
        let found = choices.iter().find(|choice| **choice == text);
        found.copied().with_context(|| {
            format!(
                "{}: {key} = {text:?} is unknown; expected one of {}",
                self.file,
                choices.join(", ")
            )
        })
    }

    /// Returns a list of strings. A single string counts as a list.
    pub(super) fn texts(&self, key: &str) -> anyhow::Result<Option<Vec<String>>> {
        self.typed(key, "a list of strings", |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            _ => None,
        })
    }

    /// Returns a list of numbers. A single number counts as a list.
    pub(super) fn numbers(&self, key: &str) -> anyhow::Result<Option<Vec<f64>>> {
        self.typed(key, "a list of numbers", |value| match value {
            Value::Array(items) => items.iter().map(Value::as_f64).collect(),
            value => value.as_f64().map(|number| vec![number]),
        })
    }

    /// Returns an error that names the file.
    pub(super) fn fault(&self, sentence: &str) -> anyhow::Error {
        anyhow::anyhow!("{}: {sentence}", self.file)
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&Value) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match parse(value) {
            Some(value) => Ok(Some(value)),
            None => bail!("{}: {key} is {}; expected {expected}", self.file, described(value)),
        }
    }
}

/// Returns whether a key is the old name of another.
#[cfg(test)]
pub(super) fn is_renamed(key: &str) -> bool {
    RENAMED.iter().any(|(old, _)| *old == key)
}

/// Formats a value for a message, truncated if it is long.
pub(super) fn described(value: &Value) -> String {
    grpo_task::output::shortened(&value.to_string(), 60)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Array(_) => "a list",
        _ => "a single value",
    }
}
