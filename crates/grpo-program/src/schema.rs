//! JSON schemas of all configuration files, derived from the types that read them and from what tasks
//! register. The program contains the results, `configs/schema/*.json`, which a test keeps up to date.

mod layers;
mod plain;

use grpo_data::schema::{Keys, add_keys, reference};
use grpo_extensions::ExtensionKind;
use grpo_logprob::SamplingSettings;
use grpo_task::task::{Task, Tasks};
use grpo_task::train_settings::TrainSettings;
use grpo_train::GrpoConfig;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::orchestrate::pipeline::PipelineFile;
use crate::train::pretrain::{DataKeys, PretrainFile};
use crate::train_file::OpenKeys;
use crate::train_file::prompts::PromptKeys;

/// Returns the schemas of the files of all commands, each with its name: that of the command, and what it
/// trains if a task defines that.
pub fn schemas(tasks: &'static [&'static dyn Task]) -> Vec<(String, Value)> {
    let tasks = &crate::tasks_of(tasks);
    let mut schemas = vec![train(tasks), pretrain(tasks)];
    for pretraining in tasks.iter().filter_map(|task| task.pretraining()) {
        let trains = pretraining.trains;
        let title = format!("grpo pretrain ({trains})");
        schemas.extend(of_file(&format!("pretrain-{trains}"), &title, pretraining.schema));
    }
    for command in tasks.iter().flat_map(|task| task.commands()) {
        let name = command.command.get_name();
        schemas.extend(of_file(name, &format!("grpo {name}"), command.configuration));
    }
    schemas.extend(of_file("run", "grpo run", Keys::of::<PipelineFile>()));
    schemas
}

/// Returns the schema of a file whose keys are all in one type, if it has keys.
fn of_file(name: &str, title: &str, keys: Keys) -> Option<(String, Value)> {
    let mut generator = generator();
    let root = keys.schema(&mut generator)?;
    Some((name.to_owned(), finished(generator, root, title, Map::new())))
}

fn train(tasks: &Tasks) -> (String, Value) {
    let mut generator = generator();
    let mut root = keys_of(Keys::of::<TrainSettings>(), &mut generator);
    add_keys(&mut root, keys_of(Keys::of::<GrpoConfig>(), &mut generator));
    let mut data = keys_of(Keys::of::<PromptKeys>(), &mut generator);
    let formats = tasks.data_formats();
    let of_formats = formats.iter().filter(|format| format.has_prompts).map(|format| format.schema);
    add_optional(&mut data, of_formats, &mut generator);
    let mut properties = json!({
        "reward": reference("Reward"),
        "data": reference("Data"),
        "rollout": reference("Rollout"),
    });
    let episode = episode(tasks, &mut generator);
    if episode.is_some() {
        properties["episode"] = reference("Episode").into();
    }
    let sections = schemars::json_schema!({ "properties": properties, "required": ["reward"] });
    add_keys(&mut root, sections);
    let open = keys_of(Keys::in_section::<OpenKeys>("train"), &mut generator);
    add_nested(&mut root, open, &mut generator);
    let distribution = keys_of(Keys::in_section::<SamplingSettings>("sampling"), &mut generator);
    add_nested(&mut root, distribution, &mut generator);
    for kind in tasks.extensions() {
        let ExtensionKind { schema, .. } = kind;
        let keys = keys_of(schema, &mut generator);
        add_nested(&mut root, keys, &mut generator);
    }
    let sources = tasks.iter().flat_map(|task| task.sources());
    for source in sources {
        let keys = keys_of(source.schema, &mut generator);
        add_nested(&mut root, keys, &mut generator);
    }
    let about_data = "Prompts. Without this section, generation starts at the model's start token.";
    let mut definitions = Map::from_iter([
        ("Reward".to_owned(), rewards(tasks, &mut generator)),
        ("Data".to_owned(), described(data, about_data)),
        ("Rollout".to_owned(), rollout(tasks, &mut generator)),
    ]);
    definitions.extend(episode.map(|episode| ("Episode".to_owned(), episode)));
    ("train".to_owned(), finished(generator, root, "grpo train", definitions))
}

fn pretrain(tasks: &Tasks) -> (String, Value) {
    let mut generator = generator();
    let root = keys_of(Keys::of::<PretrainFile>(), &mut generator);
    let mut data = keys_of(Keys::of::<DataKeys>(), &mut generator);
    let formats = tasks.data_formats();
    add_optional(&mut data, formats.iter().map(|format| format.schema), &mut generator);
    let data = described(data, "The training data.");
    let definitions = Map::from_iter([("Data".to_owned(), data)]);
    ("pretrain".to_owned(), finished(generator, root, "grpo pretrain", definitions))
}

/// Returns the schema of `[reward]`: one of the types with its keys.
fn rewards(tasks: &Tasks, generator: &mut SchemaGenerator) -> Value {
    let registry = tasks.rewards();
    let types = registry.kinds().iter().map(|kind| form(kind.type_name(), kind.keys(), generator));
    let types: Vec<Value> = types.collect();
    json!({ "description": "What a completion is worth. `type` selects the reward.", "oneOf": types })
}

/// Returns the schema of `[episode]`: one of the types with its keys. There is no such section if no
/// episode is registered.
fn episode(tasks: &Tasks, generator: &mut SchemaGenerator) -> Option<Value> {
    let kinds = tasks.episodes();
    let types = kinds.iter().map(|kind| form(kind.name(), kind.keys(), generator));
    let types: Vec<Value> = types.collect();
    let about = "What follows a completion. `type` selects the episode, which a program registers.";
    (!types.is_empty()).then(|| json!({ "description": about, "oneOf": types }))
}

/// Returns the schema of a table with `keys` in which `type` is `name`.
fn form(name: &str, keys: Keys, generator: &mut SchemaGenerator) -> Value {
    let keys = keys_of(keys, generator).to_value();
    let own = keys.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let tag = ("type".to_owned(), json!({ "const": name }));
    let properties: Map<String, Value> = [tag].into_iter().chain(own).collect();
    let own = keys.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let required: Vec<Value> = [json!("type")].into_iter().chain(own).collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if let Some(description) = keys.get("description") {
        schema["description"] = description.clone();
    }
    schema
}

/// Returns the schema of `[rollout]`, whose `engine` selects whether the other keys are used.
fn rollout(tasks: &Tasks, generator: &mut SchemaGenerator) -> Value {
    let engines = tasks.engines();
    let names: Vec<&str> = engines.kinds().iter().map(|kind| kind.name()).collect();
    let engine = json!({
        "description": "What samples: this program (`local`), or an engine that the program knows by this name. With `local`, the other keys have no effect.",
        "type": "string",
        "enum": names,
        "default": "local",
    });
    let mut schema = schemars::json_schema!({
        "type": "object",
        "properties": { "engine": engine },
        "additionalProperties": false,
    });
    add_optional(&mut schema, engines.kinds().iter().map(|kind| kind.keys()), generator);
    described(schema, "Where completions are sampled.")
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft07().into_generator()
}

fn keys_of(keys: Keys, generator: &mut SchemaGenerator) -> Schema {
    keys.schema(generator).unwrap_or_default()
}

/// Adds keys that only some of the files need.
fn add_optional(
    schema: &mut Schema,
    keys: impl IntoIterator<Item = Keys>,
    generator: &mut SchemaGenerator,
) {
    for keys in keys {
        let mut keys = keys_of(keys, generator);
        keys.remove("required");
        add_keys(schema, keys);
    }
}

/// Adds sections, and keys of sections that the file already has.
fn add_nested(root: &mut Schema, keys: Schema, generator: &mut SchemaGenerator) {
    let Some(Value::Object(sections)) = keys.get("properties").cloned() else { return };
    for (name, section) in sections {
        let of_file = root.get("properties").and_then(|all| all.get(&name)).and_then(target);
        let definitions = generator.definitions_mut();
        let own = target(&section).and_then(|own| definitions.get(own).cloned());
        let (Some(of_file), Some(own)) = (of_file, own) else {
            let added = json!({ "properties": { name: section } });
            add_keys(root, added.try_into().expect("an object is a schema"));
            continue;
        };
        let keys = own["properties"].as_object().cloned().unwrap_or_default();
        let known = &mut definitions[of_file]["properties"];
        // The alternative of a key stands next to it.
        let first = known.as_object().and_then(|known| known.keys().next().cloned());
        let mut all = Map::new();
        for (key, value) in known.as_object().into_iter().flatten() {
            all.insert(key.clone(), value.clone());
            if keys.contains_key("epochs") && Some(key) == first.as_ref() {
                all.extend(keys.clone());
            }
        }
        all.extend(keys);
        *known = all.into();
        if let Some(own) = target(&section) {
            definitions.shift_remove(own);
        }
    }
}

/// Returns the name of the definition that a property refers to.
fn target(property: &Value) -> Option<&str> {
    let of_option = property.pointer("/anyOf/0/$ref");
    let reference =
        property.get("$ref").or(of_option).or_else(|| property.pointer("/allOf/0/$ref"));
    reference?.as_str()?.strip_prefix("#/definitions/")
}

fn described(mut schema: Schema, description: &str) -> Value {
    schema.insert("description".to_owned(), description.into());
    schema.into()
}

/// Returns the schema of a file with all definitions that it refers to.
fn finished(
    mut generator: SchemaGenerator,
    root: Schema,
    title: &str,
    others: Map<String, Value>,
) -> Value {
    // With the definitions, so that it is transformed like them.
    const ROOT: &str = "Root";
    generator.definitions_mut().insert(ROOT.to_owned(), root.into());
    generator.definitions_mut().extend(others);
    let mut definitions = generator.take_definitions(true);
    let mut schema = definitions.shift_remove(ROOT).expect("it was inserted");
    schema["definitions"] = definitions.into();
    plain::simplify(&mut schema);
    layers::allow_layers(&mut schema, title == "grpo train");
    let keys = schema.as_object().cloned().unwrap_or_default();
    let first = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "title": title });
    let first = first.as_object().cloned().unwrap_or_default();
    let mut finished: Map<String, Value> = first.into_iter().chain(keys).collect();
    // Not that of the type.
    finished["title"] = title.into();
    finished.into()
}
