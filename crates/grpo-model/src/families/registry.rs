//! The registry in which a `config.json` finds its model family.

use std::path::Path;

use grpo_data::{Codecs, parse_model_json, regular_file};
use serde_json::{Map, Value};

use super::FamilyKind;
use crate::{ModelConfig, ModelError};

/// A registry of model families. By default, it contains those of this crate.
#[derive(Clone, Debug)]
pub struct Families(Vec<&'static FamilyKind>);

impl From<&'static FamilyKind> for Families {
    /// Creates a registry of this family only.
    fn from(kind: &'static FamilyKind) -> Self {
        Self(vec![kind])
    }
}

impl Families {
    /// Creates an empty registry.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds families.
    ///
    /// # Panics
    /// Panics if two families have the same name.
    #[must_use]
    pub fn with(mut self, kinds: impl IntoIterator<Item = &'static FamilyKind>) -> Self {
        for kind in kinds {
            assert!(!self.0.contains(&kind), "two model families are named {}", kind.name);
            self.0.push(kind);
        }
        self
    }

    /// Returns the families in the order of their registration.
    pub fn iter(&self) -> impl Iterator<Item = &'static FamilyKind> {
        self.0.iter().copied()
    }

    /// Parses the contents of a `config.json` file.
    ///
    /// # Errors
    /// Returns an error if the text is not valid JSON, if the model family is unknown, if a key is
    /// missing or unsupported, or if the sizes are inconsistent.
    pub fn parse(&self, text: &str) -> Result<ModelConfig, String> {
        let json: Map<String, Value> = parse_model_json(text)?;
        ModelConfig::new(self.find(&json)?, json)
    }

    /// Reads a `config.json` file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read. See also [`Self::parse`].
    pub fn read(&self, path: &Path) -> Result<ModelConfig, ModelError> {
        let text = regular_file::read_to_string(path)
            .map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        self.parse(&text).map_err(|message| ModelError::in_file(path, message))
    }

    /// Returns the family that a `config.json` names.
    fn find(&self, json: &Map<String, Value>) -> Result<&'static FamilyKind, String> {
        let known = || self.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let Some(name) = family_name(json) else {
            return Err(format!(
                "missing model_type (transformers) or architecture (models of tasks); supported model families: {}",
                known()
            ));
        };
        let kind = self.iter().find(|kind| name.as_str() == Some(kind.name));
        kind.ok_or_else(|| match json.get("text_config").is_some_and(Value::is_object) {
            true => format!(
                "model_type {name} has a text model next to other parts (text_config), such as vision or audio, which are not supported; use a model of text alone; supported model families: {}",
                known()
            ),
            false => format!("unknown model family {name}; supported model families: {}", known()),
        })
    }
}

impl ModelConfig {
    /// Parses the contents of a `config.json` file of a family of this crate. [`Families::parse`] knows
    /// others too.
    ///
    /// # Errors
    /// See [`Families::parse`].
    pub fn from_json(text: &str) -> Result<Self, String> {
        Families::default().parse(text)
    }
}

/// Returns the name of the family. Models of a task can have it under `architecture`.
pub(crate) fn family_name(json: &Map<String, Value>) -> Option<&Value> {
    json.get("model_type").or_else(|| json.get("architecture"))
}

/// What a model folder can contain: models of these families, with vocabularies of these codecs in
/// addition to tokenizers.
#[derive(Clone, Debug, Default)]
pub struct ModelFormats {
    /// Model families.
    pub families: Families,
    /// Codecs of tasks.
    pub codecs: Codecs,
}
