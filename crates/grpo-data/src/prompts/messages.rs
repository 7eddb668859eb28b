//! Interprets conversations, in the formats of OpenAI and of ShareGPT.

use super::foreign::joined_parts;
use super::values::{text, wrong};
use crate::Message;
use crate::chat::TOOL_CALLS;
use serde_json::{Map, Value};

/// Roles of ShareGPT's `from`, and those of messages.
const SHAREGPT_ROLES: [(&str, &str); 11] = [
    ("human", "user"),
    ("user", "user"),
    ("gpt", "assistant"),
    ("chatgpt", "assistant"),
    ("model", "assistant"),
    ("assistant", "assistant"),
    ("system", "system"),
    ("developer", "developer"),
    ("tool", "tool"),
    ("observation", "tool"),
    ("function_response", "tool"),
];

/// Returns the messages of a conversation: `{role, content}`, ShareGPT's `{from, value}` or turns
/// `{input, output}`, perhaps as JSON in a string, as Parquet files have it.
pub(super) fn messages(key: &str, value: Value) -> Result<Vec<Message>, String> {
    match parsed_list(value) {
        Value::Array(list) if !list.is_empty() => {
            let mut all = Vec::with_capacity(list.len());
            for (at, value) in list.into_iter().enumerate() {
                let key = format!("{key}[{at}]");
                match turn(&value) {
                    Some([input, output]) => {
                        all.push(Message::new(
                            "user",
                            text(&format!("{key}.input"), input, "a text")?,
                        ));
                        let output = text(&format!("{key}.output"), output, "a text")?;
                        all.push(Message::new("assistant", output));
                    }
                    None => all.push(message(&key, value)?),
                }
            }
            Ok(all)
        }
        other => Err(wrong(key, "a list of messages {role, content}", &other)),
    }
}

/// Returns a list that is JSON in a string, or the value as it is.
pub(super) fn parsed_list(value: Value) -> Value {
    match &value {
        Value::String(text) if text.trim_start().starts_with('[') => {
            serde_json::from_str(text).ok().filter(Value::is_array).unwrap_or(value)
        }
        _ => value,
    }
}

/// Returns the sides of a turn that is one object.
fn turn(value: &Value) -> Option<[Value; 2]> {
    let fields = value.as_object()?;
    let is_message = fields.contains_key("role") || fields.contains_key("from");
    let sides = ["input", "output"].map(|side| fields.get(side).cloned());
    match sides {
        [Some(input), Some(output)] if !is_message => Some([input, output]),
        _ => None,
    }
}

fn message(key: &str, value: Value) -> Result<Message, String> {
    let Value::Object(mut fields) = value else {
        return Err(wrong(key, "a message {role, content}", &value));
    };
    let is_sharegpt = !fields.contains_key("role") && fields.contains_key("from");
    if is_sharegpt && fields.get("content").is_some_and(|content| !content.is_null()) {
        return Err(format!("`{key}` has both `value` and `content`; keep one of them"));
    }
    let names = if is_sharegpt { ["from", "value"] } else { ["role", "content"] };
    let [role, content] = names.map(|name| fields.shift_remove(name).unwrap_or_default());
    let [role_key, content_key] = names.map(|name| format!("{key}.{name}"));
    let role = text(&role_key, role, "a text")?;
    let role = if is_sharegpt { sharegpt_role(&role_key, &role)?.to_owned() } else { role };
    let mut more = more(fields);
    for calls in TOOL_CALLS {
        if let Some(value) = more.get_mut(calls) {
            *value = with_arguments(parsed_list(value.take()));
        }
    }
    let content = match &content {
        Value::Null if TOOL_CALLS.iter().any(|calls| more.contains_key(*calls)) => String::new(),
        Value::Array(parts) if !parts.is_empty() => joined_parts(parts).map_err(|index| {
            wrong(
                &format!("{content_key}[{index}]"),
                "a part {\"type\": \"text\", \"text\": …}, because only text is supported",
                &parts[index],
            )
        })?,
        _ => text(&content_key, content, "a text")?,
    };
    Ok(Message { role, content, more })
}

/// Returns calls of tools with their arguments as objects, which chat templates expect. OpenAI's format has them
/// as JSON in a string.
fn with_arguments(mut calls: Value) -> Value {
    let each = match &mut calls {
        Value::Array(list) => list.as_mut_slice(),
        call => std::slice::from_mut(call),
    };
    for call in each {
        let function = match call.get("function") {
            Some(Value::Object(_)) => &mut call["function"],
            _ => call,
        };
        if let Some(arguments) = function.get_mut("arguments")
            && let Some(text) = arguments.as_str()
            && let Ok(object @ Value::Object(_)) = serde_json::from_str(text)
        {
            *arguments = object;
        }
    }
    calls
}

/// Returns the keys that are not empty. Every value of a Parquet struct has all fields.
fn more(fields: Map<String, Value>) -> Map<String, Value> {
    let is_empty = |key: &str, value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => TOOL_CALLS.contains(&key) && matches!(text.trim(), "" | "[]"),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    fields.into_iter().filter(|(key, value)| !is_empty(key, value)).collect()
}

fn sharegpt_role(key: &str, from: &str) -> Result<&'static str, String> {
    let known = SHAREGPT_ROLES.iter().find(|(name, _)| *name == from);
    known.map(|(_, role)| *role).ok_or_else(|| {
        let expected = "`human`, `gpt`, `system` or `tool`";
        wrong(key, expected, &Value::from(from))
    })
}
