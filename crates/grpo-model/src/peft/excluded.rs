//! The `exclude_modules` setting of an adapter.

use grpo_data::regex_reason;
use regex::Regex;
use serde_json::{Map, Value};

use crate::lora::Adaptable;

/// Target layers that are excluded from adaptation.
pub(super) enum Excluded {
    /// Excludes layers with a path ending in one of these names.
    Named(Vec<String>),
    /// Excludes layers with a path that matches this expression in full.
    Pattern(Regex),
}

impl Excluded {
    pub(super) fn of(json: &Map<String, Value>) -> Result<Self, String> {
        let value = match json.get("exclude_modules") {
            None | Some(Value::Null) => return Ok(Self::Named(Vec::new())),
            Some(value) => value,
        };
        let expected =
            || format!("exclude_modules = {value}; expected a list of names or a pattern");
        match value {
            Value::String(pattern) => {
                let pattern = Regex::new(&format!("^(?:{pattern})$"));
                pattern
                    .map(Self::Pattern)
                    .map_err(|error| format!("{}: {}", expected(), regex_reason(&error)))
            }
            Value::Array(names) => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                Ok(Self::Named(names.collect::<Option<_>>().ok_or_else(expected)?))
            }
            _ => Err(expected()),
        }
    }

    pub(super) fn has(&self, layer: &Adaptable) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|name| layer.is_named(name)),
            Self::Pattern(pattern) => pattern.is_match(&layer.stored),
        }
    }
}
