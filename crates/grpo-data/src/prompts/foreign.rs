//! Records in other programs' formats, and how to convert them.

use serde_json::{Map, Value};

/// Keys of other formats that can contain the prompt, in lower case.
const PROMPTS: [&str; 9] = [
    "question",
    "problem",
    "instruction",
    "query",
    "input",
    "task",
    "user",
    "description",
    "conversations",
];

/// Keys without which a question is not complete.
pub(super) const CONTEXTS: [&str; 10] = [
    "choices",
    "options",
    "context",
    "passage",
    "input",
    "schema",
    "endings",
    "sentence",
    "body",
    "starter_code",
];

/// Keys of media, which the prompt would be read without.
const MEDIA: [&str; 6] = ["image", "images", "video", "videos", "audio", "audios"];

/// Returns whether a record has a value that says something.
pub(super) fn has(row: &Map<String, Value>, key: &str) -> bool {
    row.get(key).is_some_and(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => object.values().any(|value| !value.is_null()),
        _ => true,
    })
}

/// Says how to name the prompt of a record without one.
pub(super) fn remedy(row: &Map<String, Value>) -> String {
    let is_filled = |key: &&String| has(row, key);
    let find = |names: &[&str]| {
        let lower = |name: &&str| {
            row.keys()
                .filter(is_filled)
                .find(|key| key.to_lowercase() == **name)
                .map(String::as_str)
        };
        names.iter().find_map(lower)
    };
    let is_message = |value: &Value| value.get("role").or_else(|| value.get("from")).is_some();
    let messages = row.iter().find(|(_, value)| value.get(0).is_some_and(is_message));
    if let Some((key, _)) = messages {
        return format!("name its column with data.columns = {{ prompt = \"{key}\" }}");
    }
    let prompt = find(&PROMPTS);
    let context = find(&CONTEXTS).filter(|context| Some(*context) != prompt);
    match (prompt, context) {
        (Some(key), Some(context)) => {
            let text = match &row[context] {
                Value::String(_) => format!("{{{{ {context} }}}}\\n{{{{ {key} }}}}"),
                _ => format!("{{{{ {key} }}}}\\n{{{{ {context} }}}}"),
            };
            format!(
                "`{key}` needs `{context}`: write both with data.template, such as \"{text}\", or name one column with data.columns = {{ prompt = \"{key}\" }}"
            )
        }
        (Some(key), None) => format!(
            "name its column with data.columns = {{ prompt = \"{key}\" }} or data.template, or rename it with `jq -c '.prompt = .{key} | del(.{key})' OLD > NEW`"
        ),
        (None, _) => {
            "name its column with data.columns = { prompt = \"COLUMN\" }, or write it with data.template, such as \"{{ COLUMN }}\"".to_owned()
        }
    }
}

/// Refuses a record with media, unless the configuration says what the prompt is.
pub(super) fn refuse_media(row: &Map<String, Value>) -> Result<(), String> {
    match MEDIA.into_iter().find(|key| has(row, key)) {
        None => Ok(()),
        Some(key) => Err(format!(
            "the record has `{key}`, which a model of texts would not see; choose records without it, or say what the prompt is with data.columns.prompt or data.template"
        )),
    }
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
