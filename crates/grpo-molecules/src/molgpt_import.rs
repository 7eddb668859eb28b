//! Imports MolGPT checkpoints written by PyTorch.

use std::path::Path;

use burn::tensor::Device;
use grpo_model::{Families, ModelConfig, ModelError, TorchFile, Transformer};
use serde_json::{Value, json};

use crate::MOLGPT;
use crate::molgpt_weights::{MolGptSizes, MolGptWeights};

/// Settings that cannot be inferred from the weights of a MolGPT checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct MolGptImport {
    /// Number of attention heads.
    pub n_head: usize,
    /// Context length, for checkpoints without position embeddings.
    pub block_size: Option<usize>,
    /// Contents of `conditions` in `config.json`, for models with conditions.
    pub conditions: Option<Value>,
}

/// An imported model.
#[derive(Clone, Debug)]
pub struct ImportedMolGpt {
    /// Configuration with the sizes inferred from the weights.
    pub config: ModelConfig,
    /// The model.
    pub model: Transformer,
    /// Differences between the checkpoint and the model, one sentence each.
    pub notes: Vec<String>,
}

impl MolGptImport {
    /// Imports a file written by `torch.save`. No code in the file is run.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if it contains anything but a state dict, if it
    /// is not a MolGPT checkpoint, or if the number of heads does not divide the width.
    pub fn read(&self, path: &Path, device: &Device) -> Result<ImportedMolGpt, ModelError> {
        let mut weights = MolGptWeights::recognise(TorchFile::open(path)?, self.block_size)?;
        let notes = std::mem::take(&mut weights.notes);
        let config = Families::from(&MOLGPT)
            .parse(&self.json(weights.sizes).to_string())
            .map_err(|message| ModelError::in_file(path, message))?;
        let model = Transformer::from_converted(&config, Box::new(weights), device)?;
        Ok(ImportedMolGpt { config, model, notes })
    }

    /// Returns the contents of `config.json`.
    fn json(&self, sizes: MolGptSizes) -> Value {
        let mut json = json!({
            "architecture": "molgpt",
            "vocab_size": sizes.vocab_size,
            "block_size": sizes.block_size,
            "n_layer": sizes.n_layer,
            "n_head": self.n_head,
            "n_embd": sizes.n_embd,
        });
        if sizes.num_props > 0 {
            json["num_props"] = sizes.num_props.into();
        }
        if sizes.scaffold_maxlen > 0 || sizes.lstm_layers > 0 {
            json["scaffold"] = true.into();
            json["scaffold_maxlen"] = sizes.scaffold_maxlen.into();
        }
        if sizes.lstm_layers > 0 {
            json["lstm"] = true.into();
            json["lstm_layers"] = sizes.lstm_layers.into();
        }
        if let Some(conditions) = &self.conditions {
            json["conditions"] = conditions.clone();
        }
        json
    }
}
