//! Required keys. A file that extends another one may leave them to it.

use serde_json::{Map, Value, json};

/// Adds the key `extends`, and requires keys only in a file without it.
pub(super) fn allow_layers(schema: &mut Value, is_train: bool) {
    let mut required = required_keys(schema, schema);
    if is_train {
        // They follow from the size of the model, and from the number of prompts.
        remove(&mut required, "", "optimizer");
        remove(&mut required, "/properties/optimizer", "learning_rate");
        remove(&mut required, "/properties/train", "steps");
        required["properties"]["train"]["anyOf"] =
            json!([{ "required": ["steps"] }, { "required": ["epochs"] }]);
    }
    let mut names = Vec::new();
    referred(&schema.clone(), &schema.clone(), &mut names);
    schema.as_object_mut().map(|root| root.shift_remove("required"));
    for name in names {
        if let Some(Value::Object(section)) = schema["definitions"].get_mut(&name) {
            section.shift_remove("required");
        }
    }
    let extends = json!({
        "description": "Another configuration file, relative to this one, whose keys this file overrides.",
        "type": "string",
    });
    schema["properties"]["extends"] = extends;
    schema["if"] = json!({ "not": { "required": ["extends"] } });
    schema["then"] = required;
}

/// Returns the section that a property refers to, if it is a table of fixed keys.
fn section<'a>(root: &'a Value, property: &'a Value) -> Option<(&'a str, &'a Value)> {
    let target = property.get("$ref").or_else(|| property.pointer("/allOf/0/$ref"))?.as_str()?;
    let name = target.strip_prefix("#/definitions/")?;
    let section = &root["definitions"][name];
    section.get("properties").is_some().then_some((name, section))
}

fn required_keys(root: &Value, table: &Value) -> Value {
    let mut found = Map::new();
    if let Some(names) = table.get("required") {
        found.insert("required".to_owned(), names.clone());
    }
    let mut below = Map::new();
    for (key, property) in table["properties"].as_object().into_iter().flatten() {
        let Some((_, section)) = section(root, property) else { continue };
        let keys = required_keys(root, section);
        if keys.as_object().is_some_and(|keys| !keys.is_empty()) {
            below.insert(key.clone(), keys);
        }
    }
    if !below.is_empty() {
        found.insert("properties".to_owned(), below.into());
    }
    found.into()
}

/// Lists the definitions that are sections.
fn referred(root: &Value, table: &Value, names: &mut Vec<String>) {
    for property in table["properties"].as_object().into_iter().flat_map(Map::values) {
        if let Some((name, section)) = section(root, property)
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
            referred(root, section, names);
        }
    }
}

fn remove(required: &mut Value, place: &str, key: &str) {
    let names = required.pointer_mut(place).and_then(|table| table.get_mut("required"));
    if let Some(Value::Array(names)) = names {
        names.retain(|name| name != key);
    }
}
