//! JSON schemas of parts of a configuration, derived from the types that read them.
//!
//! The program contains the finished schemas as files. Only the feature `schema`, which tests enable, can
//! make them: without it, [`Keys`] is empty, and nothing in a program refers to the code of a schema.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// Returns the schema of a part of a configuration.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Keys of a configuration that belong to a registered kind, e.g. of a reward or an extension.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    #[cfg(feature = "schema")]
    of: Option<SchemaOf>,
    #[cfg(feature = "schema")]
    section: Option<&'static str>,
}

impl Keys {
    /// Returns no keys.
    pub const fn none() -> Self {
        Self {
            #[cfg(feature = "schema")]
            of: None,
            #[cfg(feature = "schema")]
            section: None,
        }
    }

    /// Returns the fields of `T` as keys.
    pub const fn of<T: JsonSchema>() -> Self {
        Self {
            #[cfg(feature = "schema")]
            of: Some(T::json_schema),
            #[cfg(feature = "schema")]
            section: None,
        }
    }

    /// Returns one key, the section `name`, whose keys are the fields of `T`.
    pub const fn in_section<T: JsonSchema>(name: &'static str) -> Self {
        let _ = name;
        Self {
            #[cfg(feature = "schema")]
            of: Some(|generator| generator.subschema_for::<T>()),
            #[cfg(feature = "schema")]
            section: Some(name),
        }
    }

    /// Returns the schema of a table with these keys, and `None` if there are none.
    #[cfg(feature = "schema")]
    pub fn schema(self, generator: &mut SchemaGenerator) -> Option<Schema> {
        let schema = self.of?(generator);
        Some(match self.section {
            None => schema,
            Some(name) => {
                let properties = Map::from_iter([(name.to_owned(), Value::from(schema))]);
                schemars::json_schema!({ "type": "object", "properties": properties })
            }
        })
    }
}

/// The fields of two structs as keys of one table.
pub struct Both<T, U>(PhantomData<(T, U)>);

impl<T: JsonSchema, U: JsonSchema> JsonSchema for Both<T, U> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}With{}", T::schema_name(), U::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (mut schema, other) = (T::json_schema(generator), U::json_schema(generator));
        add_keys(&mut schema, other);
        schema
    }
}

/// Adds the keys of another schema.
pub fn add_keys(schema: &mut Schema, mut other: Schema) {
    if let Some(Value::Object(keys)) = other.remove("properties") {
        let own = schema.ensure_object().entry("properties").or_insert_with(|| Map::new().into());
        own.as_object_mut().expect("properties are an object").extend(keys);
    }
    if let Some(Value::Array(names)) = other.remove("required") {
        let own =
            schema.ensure_object().entry("required").or_insert_with(|| Value::Array(Vec::new()));
        own.as_array_mut().expect("names are a list").extend(names);
    }
}

/// Returns a reference to a definition that is added when all parts are known.
pub fn reference(name: &str) -> Schema {
    schemars::json_schema!({ "$ref": format!("#/definitions/{name}") })
}
