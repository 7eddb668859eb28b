//! Access to the fields of a prompt.

use grpo_data::nested_field;
use serde_json::{Map, Value};

/// Returns the value of a text field. Dots in `key` separate the keys of nested objects.
///
/// # Errors
/// Returns an error with the name of the field if it is missing or is not text.
pub fn text_field<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match nested_field(fields, key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("field '{key}' of the prompt's record is not a string")),
        None => Err(format!("the prompt's record is missing field '{key}'")),
    }
}
