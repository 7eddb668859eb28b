//! The `target_modules` and `layers_to_transform` settings of an adapter.

use std::fmt;

use regex::Regex;
use serde_json::{Map, Value};

use crate::lora::Adaptable;

/// The layers that an adapter targets.
pub(super) enum Targets {
    /// Layers with a path ending in one of these names, optionally restricted to certain blocks.
    /// The weights file must contain a pair for each of them.
    Named { names: Vec<String>, blocks: Option<Vec<u64>> },
    /// Layers with a path that matches this expression in full. The weights file may omit some of
    /// them.
    Pattern(Regex),
    /// All linear layers. The weights file may omit some of them.
    Any,
}

impl Targets {
    pub(super) fn from_json(json: &Map<String, Value>) -> Result<Self, String> {
        match json.get("target_modules") {
            None | Some(Value::Null) => Ok(Self::Any),
            Some(Value::String(all)) if all == "all-linear" => Ok(Self::Any),
            Some(Value::String(pattern)) => {
                Regex::new(&format!("^(?:{pattern})$")).map(Self::Pattern).map_err(|_| {
                    format!("target_modules = {pattern:?} is not a valid regular expression; copy the file from the adapter again")
                })
            }
            Some(targets @ Value::Array(names)) => {
                let name = |name: &Value| name.as_str().map(str::to_owned);
                let names: Option<Vec<String>> = names.iter().map(name).collect();
                let names =
                    names.ok_or_else(|| format!("target_modules = {targets}; expected names"))?;
                Ok(Self::Named { names, blocks: blocks(json)? })
            }
            Some(other) => Err(format!("target_modules = {other}; expected a list of names")),
        }
    }

    /// Returns whether the weights file must contain a pair for this layer.
    pub(super) fn needs(&self, layer: &Adaptable) -> bool {
        matches!(self, Self::Named { .. }) && self.allows(layer)
    }

    /// Returns whether the weights file may contain a pair for this layer.
    pub(super) fn allows(&self, layer: &Adaptable) -> bool {
        match self {
            Self::Named { names, blocks } => {
                let is_in = |blocks: &Vec<u64>| blocks.iter().any(|&block| layer.is_in(block));
                names.iter().any(|name| layer.is_named(name)) && blocks.as_ref().is_none_or(is_in)
            }
            Self::Pattern(pattern) => pattern.is_match(&layer.stored),
            Self::Any => true,
        }
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named { names, .. } => f.write_str(&names.join(", ")),
            Self::Pattern(pattern) => {
                let pattern = pattern.as_str();
                f.write_str(
                    pattern
                        .strip_prefix("^(?:")
                        .and_then(|p| p.strip_suffix(")$"))
                        .unwrap_or(pattern),
                )
            }
            Self::Any => f.write_str("all linear layers"),
        }
    }
}

/// Parses `layers_to_transform`, which is a single block index or a list of them.
fn blocks(json: &Map<String, Value>) -> Result<Option<Vec<u64>>, String> {
    let blocks = match json.get("layers_to_transform") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(blocks)) => blocks.iter().map(Value::as_u64).collect(),
        Some(block) => block.as_u64().map(|block| vec![block]),
    };
    let found = &json["layers_to_transform"];
    let expected = || format!("layers_to_transform = {found}; expected a list of block indices");
    Ok(Some(blocks.ok_or_else(expected)?))
}
