//! Fields of a prompt's record.

use serde_json::{Map, Value};

/// Returns the text of a field.
///
/// # Errors
/// Returns an error that names the field if it is missing or not a text.
pub fn text_field<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match fields.get(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("field '{key}' of the prompt's record is not a string")),
        None => Err(format!("the prompt's record is missing field '{key}'")),
    }
}
