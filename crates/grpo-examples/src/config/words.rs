//! Types, ranges and numbers in words.

use serde_json::Value;

/// Returns the name of the type of a value. `resolve` follows references.
pub(super) fn type_name<'a>(schema: &'a Value, resolve: &dyn Fn(&'a Value) -> &'a Value) -> String {
    for key in ["anyOf", "oneOf"] {
        let Some(variants) = schema[key].as_array() else { continue };
        let mut names: Vec<String> = Vec::new();
        for variant in variants {
            let name = type_name(resolve(variant), resolve);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        return names.join(" or ");
    }
    match schema["type"].as_str() {
        Some("array") => {
            let item = type_name(resolve(&schema["items"]), resolve);
            match schema["maxItems"].as_u64() {
                Some(count) if schema["minItems"] == count => format!("{count} {item}s"),
                _ => format!("list of {}s", item.replace(" or ", "s or ")),
            }
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            let item = type_name(resolve(&schema["additionalProperties"]), resolve);
            format!("table of {item}s")
        }
        Some("object") | None if schema["enum"].is_null() => "table".to_owned(),
        Some(name) => name.to_owned(),
        None => "string".to_owned(),
    }
}

/// Returns the values of a string, each with its meaning.
pub(super) fn choices(schema: &Value) -> Vec<(String, String)> {
    let own = schema["oneOf"].as_array().into_iter().flatten().chain([schema]);
    let values = own.flat_map(|schema| {
        let meaning = match schema.get("const") {
            Some(_) => schema["description"].as_str().unwrap_or_default(),
            None => "",
        };
        let words = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
        words.filter_map(Value::as_str).map(|word| (word.to_owned(), meaning.to_owned()))
    });
    values.collect()
}

/// Returns the range of a number, or of the numbers of a list.
pub(super) fn range(schema: &Value) -> Option<String> {
    let bound = |key: &str| schema.get(key)?.as_f64().map(number);
    let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"].map(bound);
    match bounds {
        [Some(low), Some(high), ..] => Some(format!("{low} to {high}")),
        [Some(low), _, _, Some(high)] => Some(format!("{low} or more, below {high}")),
        [_, Some(high), Some(low), _] => Some(format!("above {low}, at most {high}")),
        [_, _, Some(low), Some(high)] => Some(format!("above {low}, below {high}")),
        [Some(low), ..] => Some(format!("{low} or more")),
        [_, _, Some(low), _] => Some(format!("above {low}")),
        [_, Some(high), ..] => Some(format!("at most {high}")),
        [.., Some(high)] => Some(format!("below {high}")),
        _ => range(schema.get("items")?),
    }
}

/// Formats a number as people write it.
pub(super) fn number(value: f64) -> String {
    let plain = value.to_string();
    let exponent = format!("{value:e}");
    if exponent.len() < plain.len() && plain.len() > 5 { exponent } else { plain }
}

/// Returns the first sentence.
pub(super) fn first_sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.match_indices(". ").map(|(at, _)| at).find(|at| !text[..*at].ends_with("e.g"));
    end.map_or(text.clone(), |end| text[..=end].to_owned())
}

/// Replaces Markdown links by their texts.
pub(super) fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, behind)) = after.split_once(')') else { break };
        match before.rfind('[') {
            Some(open) => {
                plain.push_str(&before[..open]);
                plain.push_str(&before[open + 1..]);
            }
            None => plain.push_str(before),
        }
        rest = behind;
    }
    plain.push_str(rest);
    plain
}
