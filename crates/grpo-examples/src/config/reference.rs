//! All keys of all configuration files, read from their JSON schemas.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Map, Value};

use super::words::{choices, number, range, type_name};
use crate::files::FILES;

/// The schema of the files of a command.
pub(super) struct File {
    /// Name, such as `train`.
    pub(super) name: String,
    /// The command, such as `grpo train`.
    pub(super) command: String,
    schema: Value,
}

impl File {
    /// Takes a schema with its name.
    pub(super) fn new(name: String, schema: Value) -> Self {
        let command = schema["title"].as_str().unwrap_or(&name).to_owned();
        Self { name, command, schema }
    }
}

const FOLDER: &str = "configs/schema/";

/// Returns the names of the schemas that the program contains: training first, then the others.
///
/// # Errors
/// Returns an error if it contains none.
pub(super) fn names() -> anyhow::Result<Vec<&'static str>> {
    let name = |path: &'static str| path.strip_prefix(FOLDER)?.strip_suffix(".json");
    let mut names: Vec<&str> = FILES.iter().filter_map(|file| name(file.path)).collect();
    let first = |name: &str| !["train", "pretrain"].contains(&name);
    names.sort_by_key(|name| (first(name), *name == "pretrain", *name));
    anyhow::ensure!(
        !names.is_empty(),
        "this program was built without {FOLDER}*.json, which describe the keys; build it in a complete checkout"
    );
    Ok(names)
}

/// Returns the text of a schema.
pub(super) fn schema_text(name: &str) -> anyhow::Result<String> {
    let path = format!("{FOLDER}{name}.json");
    let file = FILES.iter().find(|file| file.path == path);
    let file = file.with_context(|| format!("the program does not contain {path}"))?;
    Ok(String::from_utf8(file.content()?)?)
}

/// A table, or one of its forms, with its keys.
pub(super) struct Section {
    /// Index in [`Reference::files`].
    pub(super) kind: usize,
    /// Keys that lead to it, such as `pretrain.optimizer`, and empty for the top level.
    pub(super) path: String,
    /// Whether the path leads to a list of such tables.
    pub(super) is_list: bool,
    /// Name and value of the key that selects this form, such as `type` and `molecule`.
    pub(super) form: Option<(String, String)>,
    pub(super) meaning: String,
    /// The section with the same keys, if they were listed before.
    pub(super) same_as: Option<String>,
    pub(super) keys: Vec<Key>,
}

/// A key.
pub(super) struct Key {
    pub(super) name: String,
    pub(super) type_name: String,
    /// The default, or an empty string.
    pub(super) default: String,
    pub(super) range: String,
    pub(super) choices: Vec<(String, String)>,
    pub(super) meaning: String,
    pub(super) is_required: bool,
    pub(super) is_basic: bool,
}

impl Section {
    /// Returns the path of a key, e.g. `train.steps`.
    pub(super) fn path_of(&self, key: &Key) -> String {
        joined(&self.path, &key.name)
    }
}

/// All sections of all files.
pub(super) struct Reference {
    pub(super) files: Vec<File>,
    /// Sections, in the order of the files.
    pub(super) sections: Vec<Section>,
}

impl Reference {
    /// Reads the schemas that the program contains.
    ///
    /// # Errors
    /// Returns an error if the program contains no schemas, or is damaged.
    pub(super) fn read() -> anyhow::Result<Self> {
        let read = |name: &'static str| {
            let schema = serde_json::from_str(&schema_text(name)?)?;
            Ok::<_, anyhow::Error>(File::new(name.to_owned(), schema))
        };
        Ok(Self::new(names()?.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Lists the sections of all files.
    pub(super) fn new(files: Vec<File>) -> Self {
        let mut sections = Vec::new();
        let mut listed = BTreeMap::new();
        for (kind, file) in files.iter().enumerate() {
            let root = &file.schema;
            let mut walk = Walk { root, kind, sections: &mut sections, listed: &mut listed };
            let place = Place { path: String::new(), is_list: false, required: &root["then"] };
            walk.table(&place, None, root, String::new());
        }
        // Forms of a table stand together, before the tables below them.
        let mut paths: Vec<(usize, String)> = Vec::new();
        for Section { kind, path, .. } in &sections {
            if !paths.iter().any(|(known, first)| known == kind && first == path) {
                paths.push((*kind, path.clone()));
            }
        }
        sections.sort_by_key(|Section { kind, path, .. }| {
            paths.iter().position(|(known, first)| known == kind && first == path)
        });
        Self { files, sections }
    }

    /// Returns the command that reads the file of a section.
    pub(super) fn command(&self, section: &Section) -> &str {
        &self.files[section.kind].command
    }

    /// Returns all keys with their sections.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&Section, &Key)> {
        self.sections.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)))
    }
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Where a table stands.
struct Place<'a> {
    path: String,
    is_list: bool,
    /// The part of the schema that says which keys are required.
    required: &'a Value,
}

struct Walk<'a> {
    root: &'a Value,
    kind: usize,
    sections: &'a mut Vec<Section>,
    /// Definitions that were listed, with their content and their path.
    listed: &'a mut BTreeMap<String, Vec<(Value, String)>>,
}

impl<'a> Walk<'a> {
    /// Follows references. Returns the name of the definition, if there is one, and its content.
    fn resolve(&self, schema: &'a Value) -> (Option<&'a str>, &'a Value) {
        let target = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"));
        match target.and_then(Value::as_str).and_then(|path| path.strip_prefix("#/definitions/")) {
            Some(name) => (Some(name), &self.root["definitions"][name]),
            None => (None, schema),
        }
    }

    /// Adds a table and the tables below it.
    fn table(
        &mut self,
        place: &Place<'a>,
        form: Option<(String, String)>,
        schema: &'a Value,
        meaning: String,
    ) {
        let index = self.sections.len();
        let Place { path, is_list, required } = place;
        self.sections.push(Section {
            kind: self.kind,
            path: path.clone(),
            is_list: *is_list,
            form: form.clone(),
            meaning,
            same_as: None,
            keys: Vec::new(),
        });
        let names = |schema: &'a Value| schema["required"].as_array().into_iter().flatten();
        let properties = schema["properties"].as_object().into_iter().flat_map(Map::iter);
        for (name, property) in properties {
            if form.as_ref().is_some_and(|(tag, _)| tag == name) || name == "extends" {
                continue;
            }
            let is_required = names(required).chain(names(schema)).any(|known| known == name);
            let below = &required["properties"][name];
            if let Some(key) = self.property(&joined(path, name), name, property, below) {
                let key = Key { is_required, ..key };
                self.sections[index].keys.push(key);
            }
        }
    }

    /// Adds the tables of a property. Returns the key, unless it is a table that is listed alone.
    fn property(
        &mut self,
        path: &str,
        name: &str,
        property: &'a Value,
        required: &'a Value,
    ) -> Option<Key> {
        let (definition, target) = self.resolve(property);
        let text = |schema: &Value| schema["description"].as_str().map(str::to_owned);
        let meaning = text(property).or_else(|| text(target)).unwrap_or_default();
        let (item_definition, item) = self.resolve(&target["items"]);
        let is_list = !item.is_null() && (is_table(item) || forms(item).is_some());
        let (definition, table) =
            if is_list { (item_definition, item) } else { (definition, target) };
        let has_forms = forms(table).is_some();
        let place = Place { path: path.to_owned(), is_list, required };
        let first = definition.and_then(|definition| self.listed_before(definition, table, path));
        if first.is_none() {
            match forms(table) {
                Some(forms) => {
                    for Form { tag, value, keys } in forms {
                        let meaning = text(keys).unwrap_or_default();
                        self.table(&place, Some((tag, value)), keys, meaning);
                    }
                }
                None if is_table(table) => self.table(&place, None, table, meaning.clone()),
                None => {}
            }
        } else if is_table(table) {
            self.sections.push(Section {
                kind: self.kind,
                path: path.to_owned(),
                is_list,
                form: None,
                meaning: meaning.clone(),
                same_as: first.clone(),
                keys: Vec::new(),
            });
        }
        if is_table(table) {
            return None;
        }
        let resolve = |schema: &'a Value| self.resolve(schema).1;
        let mut type_name = type_name(target, &resolve);
        if has_forms {
            let known = first.filter(|first| first != path);
            let like = known.map_or(String::new(), |first| format!(", like `{first}`"));
            type_name = format!("{}{like}", if is_list { "list of tables" } else { "table" });
        }
        let default = property.get("default").or_else(|| target.get("default"));
        Some(Key {
            name: name.to_owned(),
            type_name,
            default: default.map_or(String::new(), shown),
            range: range(property).or_else(|| range(target)).unwrap_or_default(),
            choices: choices(target),
            meaning,
            is_required: false,
            is_basic: property["x-basic"] == true,
        })
    }

    /// Returns the path where the same definition is listed, or remembers it with this path.
    fn listed_before(&mut self, name: &str, schema: &Value, path: &str) -> Option<String> {
        if !is_table(schema) && forms(schema).is_none() {
            return None;
        }
        let listed = self.listed.entry(name.to_owned()).or_default();
        if let Some((_, first)) = listed.iter().find(|(known, _)| known == schema) {
            return Some(first.clone());
        }
        listed.push((schema.clone(), path.to_owned()));
        None
    }
}

/// Returns whether a schema is a table of fixed keys.
fn is_table(schema: &Value) -> bool {
    schema["properties"].is_object()
}

/// A form of a table that a key such as `type` selects.
struct Form<'a> {
    /// Name of the key.
    tag: String,
    /// Its value.
    value: String,
    /// Schema of all keys of this form.
    keys: &'a Value,
}

/// Returns the forms of a table.
fn forms(schema: &Value) -> Option<Vec<Form<'_>>> {
    let form = |form: &'_ Value| -> Option<(String, String)> {
        let properties = form.get("properties")?.as_object()?;
        let tag = |(tag, value): (&String, &Value)| {
            Some((tag.clone(), value.get("const")?.as_str()?.to_owned()))
        };
        properties.iter().find_map(tag)
    };
    let variants = schema.get("oneOf")?.as_array()?;
    // A table without the key has no keys of its own.
    let variants = variants.iter().filter(|variant| variant.get("not").is_none());
    variants.map(|keys| form(keys).map(|(tag, value)| Form { tag, value, keys })).collect()
}

/// Formats a value as in TOML.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(value) => number(value.as_f64().unwrap_or_default()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(keys) => {
            let key = |(key, value): (&String, &Value)| format!("{key} = {}", shown(value));
            format!("{{ {} }}", keys.iter().map(key).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
