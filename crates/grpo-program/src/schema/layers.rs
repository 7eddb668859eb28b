//! Required keys. A file that extends another one may leave them to it.

use std::collections::BTreeMap;

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
    let (mut names, mut with_forms) = (Vec::new(), BTreeMap::new());
    referred(schema, schema, &mut names, &mut with_forms);
    schema.as_object_mut().map(|root| root.shift_remove("required"));
    for name in names {
        if let Some(Value::Object(section)) = schema["definitions"].get_mut(&name) {
            section.shift_remove("required");
        }
    }
    // The key that selects a form may be that of the other file.
    for (name, tag) in with_forms {
        if let Some(Value::Array(forms)) = schema["definitions"][&name].get_mut("oneOf") {
            forms.push(json!({ "type": "object", "not": { "required": [tag] } }));
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

/// Returns the definition that a property refers to.
fn definition<'a>(root: &'a Value, property: &'a Value) -> Option<(&'a str, &'a Value)> {
    let target = property.get("$ref").or_else(|| property.pointer("/allOf/0/$ref"))?.as_str()?;
    let name = target.strip_prefix("#/definitions/")?;
    Some((name, &root["definitions"][name]))
}

/// Returns the section that a property refers to, if it is a table of fixed keys.
fn section<'a>(root: &'a Value, property: &'a Value) -> Option<(&'a str, &'a Value)> {
    definition(root, property).filter(|(_, section)| section.get("properties").is_some())
}

/// Returns the section that a property refers to, if one of its keys selects the others, and that key.
fn forms<'a>(root: &'a Value, property: &'a Value) -> Option<(&'a str, &'a str)> {
    let (name, section) = definition(root, property)?;
    let properties = section["oneOf"].get(0)?.get("properties")?.as_object()?;
    let (tag, _) = properties.iter().find(|(_, value)| value.get("const").is_some())?;
    Some((name, tag))
}

fn required_keys(root: &Value, table: &Value) -> Value {
    let mut found = Map::new();
    if let Some(names) = table.get("required") {
        found.insert("required".to_owned(), names.clone());
    }
    let mut below = Map::new();
    for (key, property) in table["properties"].as_object().into_iter().flatten() {
        let keys = match (section(root, property), forms(root, property)) {
            (Some((_, section)), _) => required_keys(root, section),
            (None, Some((_, tag))) => json!({ "required": [tag] }),
            (None, None) => continue,
        };
        if keys.as_object().is_some_and(|keys| !keys.is_empty()) {
            below.insert(key.clone(), keys);
        }
    }
    if !below.is_empty() {
        found.insert("properties".to_owned(), below.into());
    }
    found.into()
}

/// Lists the definitions that are sections, and those with forms together with the key that selects one.
fn referred(
    root: &Value,
    table: &Value,
    names: &mut Vec<String>,
    with_forms: &mut BTreeMap<String, String>,
) {
    for property in table["properties"].as_object().into_iter().flat_map(Map::values) {
        if let Some((name, tag)) = forms(root, property) {
            with_forms.insert(name.to_owned(), tag.to_owned());
        }
        if let Some((name, section)) = section(root, property)
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
            referred(root, section, names, with_forms);
        }
    }
}

fn remove(required: &mut Value, place: &str, key: &str) {
    let names = required.pointer_mut(place).and_then(|table| table.get_mut("required"));
    if let Some(Value::Array(names)) = names {
        names.retain(|name| name != key);
    }
}
