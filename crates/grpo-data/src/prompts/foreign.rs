//! Records in other programs' formats, and how to convert them.

use serde_json::{Map, Value};

/// Keys of other formats that can contain the prompt.
const PROMPTS: [&str; 8] =
    ["question", "problem", "instruction", "query", "input", "task", "user", "conversations"];

/// Returns how to name the prompt's column of a record, if its keys are those of a known format.
pub(super) fn remedy(keys: &Map<String, Value>) -> Option<String> {
    let has = |key: &&str| keys.get(*key).is_some_and(|value| !value.is_null());
    let key = PROMPTS.into_iter().find(has)?;
    Some(format!(
        "name its column with data.columns = {{ prompt = \"{key}\" }} or data.template, or rename it with `jq -c '.prompt = .{key} | del(.{key})' OLD > NEW`"
    ))
}

/// Returns the text of a message's `content` that is a list of parts, as in multimodal chats.
///
/// # Errors
/// Returns the index of the first part that is not text.
pub(super) fn joined_parts(parts: &[Value]) -> Result<String, usize> {
    let text = |(index, part): (usize, &Value)| {
        let of_object = || match part.get("type").and_then(Value::as_str) {
            None | Some("text") => part.get("text")?.as_str(),
            Some(_) => None,
        };
        part.as_str().or_else(of_object).map(str::to_owned).ok_or(index)
    };
    parts.iter().enumerate().map(text).collect()
}

/// Returns the text of a message's `content`: a string, or the joined parts of a list of texts.
pub fn message_text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) if !parts.is_empty() => joined_parts(parts).ok(),
        _ => None,
    }
}

/// Returns the value at `path`: the key of this name or, if there is none, the value of a nested
/// object, with the keys separated by dots (`reward_model.ground_truth`).
pub fn nested_field<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| {
        let inner = fields.get(&path[..dot])?.as_object()?;
        nested_field(inner, &path[dot + 1..])
    })
}
