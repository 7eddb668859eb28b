//! Values of keys, and what is said of wrong ones.

use crate::error::described;
use serde_json::Value;

/// Returns the text of a key.
pub(super) fn text(key: &str, value: Value, expected: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(key, expected, &other)),
    }
}

/// Says that the value of a key is of another kind.
pub(super) fn wrong(key: &str, expected: &str, found: &Value) -> String {
    format!("`{key}` is {}; expected {expected}", described(found))
}
