//! Simpler schemas: TOML has no null, and numbers and texts are those of the configuration.

use serde_json::{Map, Value};

/// Removes what has no meaning in TOML, and rounds numbers of 32 bits.
pub(super) fn simplify(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(simplify),
        Value::Object(object) => {
            object.values_mut().for_each(simplify);
            simplify_object(object);
        }
        _ => {}
    }
}

fn simplify_object(object: &mut Map<String, Value>) {
    let is_null = |value: &Value| value.get("type").is_some_and(|name| name == "null");
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [name] = &types[..] {
            let name = name.clone();
            object.insert("type".to_owned(), name);
        }
    }
    // Formats of integers, such as "uint32".
    if object.get("format").is_some_and(Value::is_string) {
        object.shift_remove("format");
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.shift_remove("default");
    }
    // A section that is missing has the defaults of its keys.
    let is_section = |default: &Map<String, Value>| !default.contains_key("type");
    if object.get("default").and_then(Value::as_object).is_some_and(is_section) {
        object.shift_remove("default");
    }
    // A value that stands for a missing one.
    let number = |key: &str| object.get(key).and_then(Value::as_f64);
    if let (Some(default), Some(low)) = (number("default"), number("minimum"))
        && default < low
    {
        object.shift_remove("default");
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(default) = object.get_mut("default") {
        round(default);
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = without_paths(text);
    }
    for key in ["anyOf", "allOf"] {
        let Some(Value::Array(mut variants)) = object.shift_remove(key) else { continue };
        variants.retain(|variant| !is_null(variant));
        match &variants[..] {
            // Keywords next to a reference have no effect in this version of JSON Schema.
            [only] if only.get("$ref").is_none() || object.is_empty() => {
                let only = variants.remove(0);
                for (key, value) in only.as_object().into_iter().flatten() {
                    object.entry(key).or_insert_with(|| value.clone());
                }
            }
            [_] => {
                object.insert("allOf".to_owned(), variants.into());
            }
            _ => {
                object.insert(key.to_owned(), variants.into());
            }
        }
    }
}

/// Replaces numbers of 32 bits by the shortest decimals.
fn round(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(object) => object.values_mut().for_each(round),
        Value::Number(number) => {
            let Some(double) = number.as_f64().filter(|_| number.is_f64()) else { return };
            let single = double as f32;
            if f64::from(single) == double
                && let Ok(decimal) = single.to_string().parse::<f64>()
            {
                *value = decimal.into();
            }
        }
        _ => {}
    }
}

/// Replaces links to Rust items, such as [`simplify`], by their names. Links with a target stay.
fn without_paths(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        plain.push_str(before);
        rest = after;
        match after.split_once("`]") {
            Some((name, behind)) if !behind.starts_with('(') && !name.contains("](") => {
                plain.extend(["`", name, "`"]);
                rest = behind;
            }
            _ => plain.push_str("[`"),
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_their_brackets() {
        for (text, expected) in [
            ("See [`Item`].", "See `Item`."),
            ("See [`a::Item`], [`b`](#b) and [`C`]", "See `a::Item`, [`b`](#b) and `C`"),
            ("as in [`[schedule]`](#schedule).", "as in [`[schedule]`](#schedule)."),
            ("`[\"x\"]` and [text](a.md)", "`[\"x\"]` and [text](a.md)"),
            ("[`a` b](c) and [`D`]", "[`a` b](c) and `D`"),
            ("open [`", "open [`"),
        ] {
            assert_eq!(without_paths(text), expected);
        }
    }
}
