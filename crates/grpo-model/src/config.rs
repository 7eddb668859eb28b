//! The `config.json` file of a model directory.

use std::path::Path;

use grpo_data::{parse_model_json, regular_file};
use serde_json::{Map, Value};

use crate::description::{Description, HeadKind};
use crate::families::{Family, read_infiller};
use crate::names::Names;
use crate::{InfillerConfig, ModelError, MolGptConfig};

/// Name of the output layer in checkpoints of transformers.
const STORED_HEAD: &str = "lm_head.weight";

/// The contents of a supported `config.json`. Unrecognised keys are preserved when it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    family: Family,
    description: Description,
    json: Map<String, Value>,
}

impl ModelConfig {
    /// Reads a `config.json` file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not valid JSON, if the model family is
    /// unknown, if a key is missing or unsupported, or if the sizes are inconsistent.
    pub fn from_json_file(path: &Path) -> Result<Self, ModelError> {
        let text = regular_file::read_to_string(path)
            .map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        Self::from_json(&text).map_err(|message| ModelError::in_file(path, message))
    }

    /// Parses the contents of a `config.json` file.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let json: Map<String, Value> = parse_model_json(text)?;
        let family = family(&json)?;
        if json.get("quantization_config").is_some_and(|value| !value.is_null()) {
            return Err("quantized weights are not supported (quantization_config); use the bf16 or f32 checkpoint and let the run quantize it"
                .to_owned());
        }
        let description = family.describe(&json).map_err(|fault| fault.0)?;
        let description = description.checked().map_err(|error| error.to_string())?;
        Ok(Self { family, description, json })
    }

    /// Creates a MolGPT configuration.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if a size is 0 or implausibly large, or if the width is not a
    /// multiple of the number of heads.
    pub fn molgpt(sizes: &MolGptConfig) -> Result<Self, ModelError> {
        let json = serde_json::to_string(sizes).expect("numbers are JSON");
        Self::from_json(&json).map_err(ModelError::Unfit)
    }

    /// Adds keys to the configuration.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if the result is not a valid configuration.
    pub fn with_keys(self, keys: Map<String, Value>) -> Result<Self, ModelError> {
        let json: Map<String, Value> = self.json.into_iter().chain(keys).collect();
        let json = serde_json::to_string(&json).expect("it was JSON");
        Self::from_json(&json).map_err(ModelError::Unfit)
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

    /// Creates an infiller configuration.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if a size is 0 or implausibly large, or if the width is not a
    /// multiple of the number of heads.
    pub fn infiller(sizes: &InfillerConfig) -> Result<Self, ModelError> {
        Self::of_infiller(sizes, Family::Infiller)
    }

    /// Creates a configuration for a sequence scorer, without a critic head.
    ///
    /// # Errors
    /// See [`Self::infiller`].
    pub fn sequence_scorer(sizes: &InfillerConfig) -> Result<Self, ModelError> {
        Self::of_infiller(sizes, Family::SequenceScorer)
    }

    /// Creates a configuration for a token classifier with [`InfillerConfig::classes`] classes,
    /// without a critic head.
    ///
    /// # Errors
    /// Returns [`ModelError::Unfit`] if the number of classes is missing or less than 2. See also
    /// [`Self::infiller`].
    pub fn token_classifier(sizes: &InfillerConfig) -> Result<Self, ModelError> {
        Self::of_infiller(sizes, Family::TokenClassifier)
    }

    fn of_infiller(sizes: &InfillerConfig, family: Family) -> Result<Self, ModelError> {
        let json = serde_json::to_string(&sizes.to_json(family)).expect("it is JSON");
        Self::from_json(&json).map_err(ModelError::Unfit)
    }

    /// Returns the model family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the model description derived from this configuration.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the tensor names used by the model family.
    pub fn names(&self) -> Names {
        self.family.names()
    }

    /// Returns all keys of the configuration file.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Serialises the configuration for weights stored as `dtype`.
    pub(crate) fn to_json(&self, dtype: &str) -> String {
        let mut json = self.json.clone();
        // transformers 5 writes `dtype`, older versions `torch_dtype`. MolGPT has neither key.
        for key in ["dtype", "torch_dtype"] {
            if json.contains_key(key) {
                json.insert(key.to_owned(), dtype.into());
            }
        }
        serde_json::to_string_pretty(&json).expect("it was JSON") + "\n"
    }
}

impl InfillerConfig {
    /// Returns the sizes in `config`, or `None` if it belongs to another architecture.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        match config.family() {
            family if family.reads_characters() => Some(
                read_infiller(family, config.json()).expect("the configuration was parsed before"),
            ),
            _ => None,
        }
    }
}

fn family(json: &Map<String, Value>) -> Result<Family, String> {
    let known = || Family::ALL.map(Family::name).join(", ");
    let name = match (json.get("model_type"), json.get("architecture")) {
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => {
            return Err(format!(
                "missing model_type (transformers) or architecture (MolGPT); supported model families: {}",
                known()
            ));
        }
    };
    let found = Family::ALL.into_iter().find(|family| name.as_str() == Some(family.name()));
    found.ok_or_else(|| {
        format!("unknown model family {name}; supported model families: {}", known())
    })
}
