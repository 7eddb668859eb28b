//! `config.json` of a model folder.

use std::path::Path;

use grpo_data::{parse_json, regular_file};
use serde_json::{Map, Value};

use crate::description::Description;
use crate::families::{Family, read_infiller};
use crate::names::Names;
use crate::{InfillerConfig, ModelError, MolGptConfig};

/// A supported `config.json`. It is written with all its original keys.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    family: Family,
    description: Description,
    json: Map<String, Value>,
}

impl ModelConfig {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not JSON, if the family is unknown, if a
    /// key is missing or unsupported, or if sizes do not fit together.
    pub fn from_json_file(path: &Path) -> Result<Self, ModelError> {
        let text = regular_file::read_to_string(path)
            .map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        Self::from_json(&text).map_err(|message| ModelError::in_file(path, message))
    }

    /// Parses a `config.json`.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let json: Map<String, Value> = parse_json(text)?;
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
    /// [`ModelError::Unfit`] for a size of 0, heads that do not divide the width, or implausibly
    /// large sizes.
    pub fn molgpt(sizes: &MolGptConfig) -> Result<Self, ModelError> {
        let json = serde_json::to_string(sizes).expect("numbers are JSON");
        Self::from_json(&json).map_err(ModelError::Unfit)
    }

    /// Creates an infiller configuration.
    ///
    /// # Errors
    /// [`ModelError::Unfit`] for a size of 0, heads that do not divide the width, or implausibly
    /// large sizes.
    pub fn infiller(sizes: &InfillerConfig) -> Result<Self, ModelError> {
        Self::of_infiller(sizes, Family::Infiller)
    }

    /// Creates a sequence scorer configuration, without a critic.
    ///
    /// # Errors
    /// As [`Self::infiller`].
    pub fn sequence_scorer(sizes: &InfillerConfig) -> Result<Self, ModelError> {
        Self::of_infiller(sizes, Family::SequenceScorer)
    }

    fn of_infiller(sizes: &InfillerConfig, family: Family) -> Result<Self, ModelError> {
        let json = serde_json::to_string(&sizes.to_json(family)).expect("it is JSON");
        Self::from_json(&json).map_err(ModelError::Unfit)
    }

    /// Returns the family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the description of the model.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the tensor names of the family.
    pub fn names(&self) -> Names {
        self.family.names()
    }

    /// Returns the keys of the file.
    pub fn json(&self) -> &Map<String, Value> {
        &self.json
    }

    /// Returns the text of the file for weights stored as `dtype`.
    pub(crate) fn to_json(&self, dtype: &str) -> String {
        let mut json = self.json.clone();
        // transformers 5 writes `dtype`, earlier ones `torch_dtype`; a MolGPT has neither.
        for key in ["dtype", "torch_dtype"] {
            if json.contains_key(key) {
                json.insert(key.to_owned(), dtype.into());
            }
        }
        serde_json::to_string_pretty(&json).expect("it was JSON") + "\n"
    }
}

impl InfillerConfig {
    /// Returns the sizes in `config` if it is an infiller or a sequence scorer.
    pub fn of(config: &ModelConfig) -> Option<Self> {
        match config.family() {
            family @ (Family::Infiller | Family::SequenceScorer) => Some(
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
