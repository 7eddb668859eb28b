//! Kinds of model families.

use std::fmt;

use super::Fields;
use crate::description::Description;
use crate::names::Names;

/// A model family: everything that loading, writing, adapters, sampling and training have to know of
/// its checkpoints. Each is a constant in one file, made from [`FamilyKind::new`].
pub struct FamilyKind {
    /// Value of `model_type` in `config.json`.
    pub name: &'static str,
    /// Which models it has, for people who look for theirs.
    pub models: &'static str,
    /// Options that a `config.json` of this family can have and that are refused. Empty if there are none.
    pub refuses: &'static str,
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
        let (models, refuses) = ("", "");
        Self { name, models, refuses, not_causal: None, vocabulary: None, names, describe }
    }

    /// Says which models the family has, and which of their options are refused.
    #[must_use]
    pub const fn with_models(self, models: &'static str, refuses: &'static str) -> Self {
        Self { models, refuses, ..self }
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
