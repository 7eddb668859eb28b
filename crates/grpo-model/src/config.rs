//! The `config.json` file of a model directory.

use serde_json::{Map, Value};

use crate::ModelError;
use crate::description::{Description, HeadKind};
use crate::families::{FamilyKind, Fields};
use crate::names::Names;
use crate::quantised::fault_of_method;

/// Name of the output layer in checkpoints of transformers.
const STORED_HEAD: &str = "lm_head.weight";

/// The contents of a supported `config.json`. Unrecognised keys are preserved when it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    family: &'static FamilyKind,
    description: Description,
    json: Map<String, Value>,
}

impl ModelConfig {
    /// Creates a configuration from the contents of a `config.json` file of this family.
    ///
    /// # Errors
    /// Returns an error if a key is missing or unsupported, or if the sizes are inconsistent.
    pub fn new(family: &'static FamilyKind, json: Map<String, Value>) -> Result<Self, String> {
        // Older versions of compressed-tensors have another key.
        let quantised = ["quantization_config", "compression_config"].map(|key| json.get(key));
        if let Some(found) = quantised.into_iter().flatten().find(|value| !value.is_null()) {
            return Err(fault_of_method(found.get("quant_method").and_then(Value::as_str)));
        }
        let description = (family.describe)(&Fields::new(&json))?;
        let description = description.checked().map_err(|error| error.to_string())?;
        Ok(Self { family, description, json })
    }

    /// Adds keys to the configuration.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if the result is not a valid configuration.
    pub fn with_keys(self, keys: Map<String, Value>) -> Result<Self, ModelError> {
        let json = self.json.into_iter().chain(keys).collect();
        Self::new(self.family, json).map_err(ModelError::Unfit)
    }

    /// Returns whether `tie_word_embeddings` ties the output layer to the token embedding.
    /// Checkpoints of such a family can contain an output layer all the same.
    pub(crate) fn ties_stored_head(&self) -> bool {
        let ignores_head = (self.names().ignored)(STORED_HEAD);
        self.description.head == HeadKind::Tied && ignores_head
    }

    /// Returns the configuration with an output layer that is not tied to the token embedding.
    pub(crate) fn untied(self) -> Result<Self, ModelError> {
        self.with_keys(Map::from_iter([("tie_word_embeddings".to_owned(), false.into())]))
    }

    /// Returns the model family.
    pub fn family(&self) -> &'static FamilyKind {
        self.family
    }

    /// Returns the model description derived from this configuration.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the tensor names used by the model family.
    pub fn names(&self) -> Names {
        self.family.names
    }

    /// Returns all keys of the configuration file.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Serialises the configuration for weights stored as `dtype`.
    pub(crate) fn to_json(&self, dtype: &str) -> String {
        let mut json = self.json.clone();
        // transformers 5 writes `dtype`, older versions `torch_dtype`. Models of tasks have neither key.
        for key in ["dtype", "torch_dtype"] {
            if json.contains_key(key) {
                json.insert(key.to_owned(), dtype.into());
            }
        }
        serde_json::to_string_pretty(&json).expect("it was JSON") + "\n"
    }
}
