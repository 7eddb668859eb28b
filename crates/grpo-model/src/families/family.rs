//! Kinds of model families, and the registry in which a `config.json` finds its own.

use std::fmt;
use std::path::Path;

use grpo_data::{Codecs, parse_model_json, regular_file};
use serde_json::{Map, Value};

use super::{BERT, Fields, GPT2, LLAMA, QWEN2, QWEN3};
use crate::names::Names;
use crate::{Description, ModelConfig, ModelError};

/// A model family: everything that loading, writing, adapters, sampling and training have to know of
/// its checkpoints. Each is a constant in one file, made from [`FamilyKind::new`].
pub struct FamilyKind {
    /// Value of `model_type` in `config.json`.
    pub name: &'static str,
    /// What its models are instead, and how they are used, if they do not continue text from left to
    /// right: for example "an encoder (bert), which does not predict next tokens".
    pub not_causal: Option<&'static str>,
    /// The vocabulary file of a task that its models read instead of a tokenizer.
    pub vocabulary: Option<VocabularyFile>,
    /// Names and layouts of the tensors in its checkpoints.
    pub names: Names,
    /// Derives the description of a model from its `config.json`. Refuses every key that enables
    /// something that is not implemented, with a sentence that names the key.
    pub describe: fn(&Fields<'_>) -> Result<Description, String>,
}

/// A vocabulary file that the models of a family read.
#[derive(Clone, Copy, Debug)]
pub struct VocabularyFile {
    /// Name of the file.
    pub name: &'static str,
    /// How to create the file, if a model cannot be loaded without it. Otherwise, such a model reads
    /// token ids only.
    pub required: Option<&'static str>,
}

impl FamilyKind {
    /// Creates a family of causal language models with tokenizers.
    pub const fn new(
        name: &'static str,
        names: Names,
        describe: fn(&Fields<'_>) -> Result<Description, String>,
    ) -> Self {
        Self { name, not_causal: None, vocabulary: None, names, describe }
    }

    /// Returns whether the models continue text from left to right.
    pub fn is_causal(&self) -> bool {
        self.not_causal.is_none()
    }
}

impl PartialEq for FamilyKind {
    /// Names are unique in a registry.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for FamilyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A registry of model families. By default, it contains those of this crate.
#[derive(Clone, Debug)]
pub struct Families(Vec<&'static FamilyKind>);

impl Default for Families {
    fn default() -> Self {
        Self(vec![&GPT2, &LLAMA, &QWEN2, &QWEN3, &BERT])
    }
}

impl From<&'static FamilyKind> for Families {
    /// Creates a registry of this family only.
    fn from(kind: &'static FamilyKind) -> Self {
        Self(vec![kind])
    }
}

impl Families {
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
        self.iter().find(|kind| name.as_str() == Some(kind.name)).ok_or_else(|| {
            format!("unknown model family {name}; supported model families: {}", known())
        })
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
