//! Access to record keys that are only used for cleaning.
//!
//! These keys are not validated when a file is read. If a value has the wrong type, the pair is
//! dropped.

use grpo_data::described;
use serde_json::Value;

use super::outcome::Reason;
use crate::PairRecord;

/// Returns the value of a key. Null values are treated as missing.
fn value<'a>(pair: &'a PairRecord, key: &str) -> Option<&'a Value> {
    pair.fields.get(key).filter(|value| !value.is_null())
}

fn wrong(key: &str, found: &Value, expected: &str) -> Reason {
    let found = described(found);
    Reason::new("wrong_value", format_args!("`{key}` is {found}; expected {expected}"))
}

/// Returns a boolean that may be stored as 1 or 0. Missing values are treated as false.
pub(super) fn flag(pair: &PairRecord, key: &str) -> Result<bool, Reason> {
    match value(pair, key) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::Number(number)) if number.as_f64() == Some(0.0) => Ok(false),
        Some(Value::Number(number)) if number.as_f64() == Some(1.0) => Ok(true),
        Some(other) => Err(wrong(key, other, "true or false")),
    }
}

/// Returns `true` if the value is a non-empty list.
pub(super) fn is_listed(pair: &PairRecord, key: &str) -> Result<bool, Reason> {
    match value(pair, key) {
        None => Ok(false),
        Some(Value::Array(list)) => Ok(!list.is_empty()),
        Some(other) => Err(wrong(key, other, "a list")),
    }
}

/// Returns the language of the texts, e.g. `en` or `en-GB`.
pub(super) fn lang(pair: &PairRecord) -> Result<Option<&str>, Reason> {
    match value(pair, "lang") {
        None => Ok(None),
        Some(Value::String(lang)) => Ok(Some(lang)),
        Some(other) => Err(wrong("lang", other, "a string such as \"en\"")),
    }
}

/// Returns the toxicity of the reply, between 0 and 1.
pub(super) fn toxicity(pair: &PairRecord) -> Result<Option<f64>, Reason> {
    let Some(found) = value(pair, "toxicity") else { return Ok(None) };
    let toxicity = found.as_f64().filter(|toxicity| (0.0..=1.0).contains(toxicity));
    toxicity.map(Some).ok_or_else(|| wrong("toxicity", found, "a number from 0 to 1"))
}
