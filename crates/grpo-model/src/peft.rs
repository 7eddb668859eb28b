//! Adapters in PEFT's directory format: `adapter_config.json` and `adapter_model.safetensors`.
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

mod excluded;
mod matrices;
mod read;
mod scales;
mod targets;

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use grpo_data::{parse_model_json, regular_file};
use serde_json::{Map, Value, json};

use self::scales::{PREFIX, Scales};
use crate::checkpoint::Checkpoint;
use crate::lora::{Adapter, LoraConfig, last_names};
use crate::precision::off_tape;
use crate::saved::SavedKind;
use crate::stored::{StoredAs, StoredTensors};
use crate::{Frozen, ModelError, Policy, Transformer, WeightsDigest};

pub use matrices::LoraMatrices;

const CONFIG_FILE: &str = "adapter_config.json";
const WEIGHTS_FILE: &str = "adapter_model.safetensors";
/// Weights that old versions of PEFT wrote. They are read if there are no others, as in PEFT.
const TORCH_FILE: &str = "adapter_model.bin";

/// A loaded adapter and its configuration.
#[derive(Clone, Debug)]
pub struct AdapterFolder {
    /// The adapter.
    pub adapter: Adapter,
    /// Contents of `adapter_config.json`.
    pub config: AdapterConfig,
}

/// The contents of a supported `adapter_config.json`, together with the identity of the base model.
/// Unrecognised keys are preserved when it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterConfig {
    json: Map<String, Value>,
    /// [`crate::ModelFolder::digest`] of the base, if known. PEFT does not record it.
    base: Option<String>,
}

/// Metadata key for the base model's digest. It is not stored in `adapter_config.json`, because
/// older PEFT versions reject unknown keys there. PEFT ignores metadata.
const BASE_KEY: &str = "base_weights";

impl AdapterConfig {
    /// Creates the configuration of a new adapter. `base` is the path or name from which PEFT loads
    /// the base model.
    pub fn new(config: &LoraConfig, model: &Transformer, base: &str) -> Self {
        let layers = model.adaptable_layers();
        let targets =
            if config.targets.is_empty() { last_names(&layers) } else { config.targets.clone() };
        let mut json = json!({
            "base_model_name_or_path": base,
            "bias": "none",
            "fan_in_fan_out": model.names().conv1d,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": config.alpha,
            "lora_dropout": config.dropout,
            "peft_type": "LORA",
            "r": config.rank,
            "target_modules": targets,
            "task_type": "CAUSAL_LM",
            "use_dora": config.dora,
            "use_rslora": config.rslora,
        });
        if !config.modules_to_save.is_empty() {
            json["modules_to_save"] = json!(config.modules_to_save);
        }
        let Value::Object(json) = json else {
            unreachable!("the configuration serializes to an object")
        };
        Self { json, base: None }
    }

    /// Checks that the adapter was trained on this base model, and records the base if it was
    /// unknown. `adapter` and `model` are used in the error message.
    ///
    /// An adapter can be loaded on any base with the same shapes, but with the wrong weights, the
    /// result is meaningless.
    ///
    /// # Errors
    /// Returns an error if the adapter was trained on different weights.
    pub fn on_base(
        mut self,
        base: &WeightsDigest,
        adapter: &Path,
        model: &Path,
    ) -> Result<Self, ModelError> {
        let found = base.to_string();
        match self.base.replace(found.clone()) {
            Some(expected) if expected != found => {
                let trained_on = self.json.get("base_model_name_or_path").and_then(Value::as_str);
                // The first digits are enough to tell digests apart.
                let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
                let problem = format!(
                    " was trained on a different base model: {} with weights {}, but {} has weights {}; use the model it was trained on",
                    trained_on.unwrap_or("an unnamed model"),
                    short(&expected),
                    model.display(),
                    short(&found)
                );
                Err(ModelError::file(adapter, problem))
            }
            _ => Ok(self),
        }
    }
}

impl AdapterFolder {
    /// Loads an adapter for `model` onto `device`.
    ///
    /// # Errors
    /// Returns an error if a file is unreadable or damaged, if the adapter is of another kind than LoRA
    /// and DoRA, or if its tensors don't match the model's.
    pub fn load(folder: &Path, model: &Transformer, device: &Device) -> Result<Self, ModelError> {
        let path = folder.join(CONFIG_FILE);
        let text = regular_file::read_to_string(&path)
            .map_err(|source| ModelError::Read { path: path.clone(), source })?;
        let broken = |message: String| ModelError::in_file(&path, message);
        let json: Map<String, Value> = parse_model_json(&text).map_err(broken)?;
        let scales = Scales::of(&json).map_err(broken)?;
        let weights = weights(folder)?;
        let config = AdapterConfig { json, base: weights.metadata(BASE_KEY).map(str::to_owned) };
        let adapter = read::adapter(weights, &scales, model, device)?;
        Ok(Self { adapter, config })
    }

    /// Writes the configuration and the weights into `folder`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self, folder: &Path, model: &Transformer) -> Result<(), ModelError> {
        write_adapter(&self.adapter, &self.config, folder, model)
    }
}

/// Writes an adapter for `model` into `folder`.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write_adapter(
    adapter: &Adapter,
    config: &AdapterConfig,
    folder: &Path,
    model: &Transformer,
) -> Result<(), ModelError> {
    let path = folder.join(CONFIG_FILE);
    let text = serde_json::to_string_pretty(&config.json).expect("it is JSON") + "\n";
    std::fs::write(&path, text).map_err(|error| ModelError::write(&path, &error))?;
    let names = model.names();
    let mut tensors = StoredTensors::from_matrices(adapter.pairs().iter().flat_map(|pair| {
        let module = names.module(&pair.layer);
        // PyTorch stores matrices as `[out, in]`.
        let stored = |matrix: &Param<Tensor<2>>| off_tape(matrix.val()).transpose();
        [("A", &pair.a), ("B", &pair.b)]
            .map(|(part, matrix)| (read::pair_name(&pair.layer, &module, part), stored(matrix)))
    }));
    for pair in adapter.pairs() {
        if let Some(magnitude) = &pair.magnitude {
            let name = read::pair_name(&pair.layer, &names.module(&pair.layer), "magnitude");
            tensors.add(name, off_tape(magnitude.val()));
        }
    }
    for of in model.savable() {
        let Some((_, value)) = adapter.saved.values().find(|(path, _)| **path == of.path) else {
            continue;
        };
        let is_adapted = adapter
            .pairs()
            .iter()
            .any(|pair| of.path.strip_prefix(&pair.layer).is_some_and(|rest| rest == ".bias"));
        let name = match is_adapted {
            true => read::base_layer_name(&of.stored),
            false => format!("{PREFIX}{}", of.stored),
        };
        match (of.kind, names.is_swapped(&of.path)) {
            (SavedKind::Vector, _) => tensors.add(name, value),
            (SavedKind::Matrix, true) => {
                tensors.add(name, value.reshape([of.shape[0], of.shape[1]]).transpose());
            }
            _ => tensors.add(name, value.reshape([of.shape[0], of.shape[1]])),
        }
    }
    let note = config.base.clone().map(|base| (BASE_KEY, base));
    tensors.write(&folder.join(WEIGHTS_FILE), StoredAs::F32, note)
}

impl Frozen<Policy> {
    /// Writes the adapter into `folder`. See [`write_adapter`].
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    ///
    /// # Panics
    /// Panics if the policy has no adapter.
    pub fn write_adapter(&self, config: &AdapterConfig, folder: &Path) -> Result<(), ModelError> {
        let (base, adapter) = self.model().parts();
        write_adapter(adapter.expect("the policy has an adapter"), config, folder, base)
    }
}

/// Opens the weights of an adapter.
fn weights(folder: &Path) -> Result<Checkpoint, ModelError> {
    let [weights, torch] = [WEIGHTS_FILE, TORCH_FILE].map(|name| folder.join(name));
    Checkpoint::of_file(if weights.exists() || !torch.exists() { &weights } else { &torch })
}
