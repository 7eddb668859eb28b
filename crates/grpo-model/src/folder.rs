//! Model directories, which contain a `config.json`, weights and a codec, and GGUF files, which
//! contain all of these.
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

use std::path::Path;

use burn::tensor::Device;
use grpo_data::{Codec, parse_model_json, regular_file};
use serde_json::{Map, Value};

use crate::checkpoint::{Checkpoint, WEIGHTS_FILE};
use crate::description::HeadKind;
use crate::families::family_name;
use crate::gguf_file::{GgufFile, is_gguf_file};
use crate::parameters::Parameters;
use crate::stored::{StoredAs, StoredTensors};
use crate::{
    Families, ModelConfig, ModelError, ModelFormats, Transformer, VocabularyFile, WeightPrecision,
    WeightsDigest,
};

const CONFIG_FILE: &str = "config.json";

/// A loaded model with its configuration and codec.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    /// Configuration and codec.
    pub spec: ModelSpec,
    /// The model.
    pub model: Transformer,
    /// Hash of the weights as stored on disk. It does not depend on the precision in memory.
    pub digest: WeightsDigest,
}

/// A model's configuration and codec.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// Configuration.
    pub config: ModelConfig,
    /// Codec.
    pub codec: Codec,
}

impl ModelSpec {
    /// Loads a model directory, or a GGUF file, without its weights.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid, or if the vocabulary does not match the
    /// model.
    pub fn load(folder: &Path, formats: &ModelFormats) -> Result<Self, ModelError> {
        if is_gguf_file(folder) {
            let (_guard, unpacked) = GgufFile::open(folder)?.unpacked()?;
            return Self::load(&unpacked, formats);
        }
        Self::new(formats.families.read(&folder.join(CONFIG_FILE))?, folder, formats)
    }

    /// Combines a configuration with the codec stored in `folder`.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid, or if the vocabulary does not match the
    /// model.
    pub fn new(
        config: ModelConfig,
        folder: &Path,
        formats: &ModelFormats,
    ) -> Result<Self, ModelError> {
        let codec = formats.codecs.read(folder)?;
        if let Some(VocabularyFile { name, required: Some(how) }) = config.family().vocabulary
            && codec.file() != name
        {
            let family = config.family().name;
            let problem =
                format!(" is missing {name}, which lists the tokens of {family} models; {how}");
            return Err(ModelError::file(folder, problem));
        }
        let expected = config.description().vocabulary;
        // Embedding tables are often padded beyond the vocabulary for speed.
        let tokens = codec.token_count().unwrap_or(expected);
        let fits = tokens == expected || (!codec.is_own() && tokens < expected);
        if !fits {
            return Err(ModelError::Unfit(format!(
                "{}: {} has {tokens} tokens, but config.json has vocab_size = {expected}; they belong to different models",
                folder.display(),
                codec.file()
            )));
        }
        let codec = codec.for_model(expected);
        Ok(Self { config, codec })
    }

    /// Returns the name of the model family in `config.json` or in a GGUF file, whether it is known or not. No
    /// other file is read.
    ///
    /// # Errors
    /// Returns an error if the file is missing or invalid, or names no family.
    pub fn family_name(folder: &Path) -> Result<String, ModelError> {
        if is_gguf_file(folder) {
            let file = GgufFile::open(folder)?;
            return Ok(file.family_name().unwrap_or_default().to_owned());
        }
        let path = folder.join(CONFIG_FILE);
        let text = regular_file::read_to_string(&path)
            .map_err(|source| ModelError::Read { path: path.clone(), source })?;
        let json: Map<String, Value> =
            parse_model_json(&text).map_err(|message| ModelError::in_file(&path, message))?;
        let name = family_name(&json).and_then(Value::as_str);
        name.map(str::to_owned).ok_or_else(|| ModelError::in_file(&path, "missing model_type"))
    }

    /// Returns the configuration of a model that adapters have changed: its output layer may no longer be
    /// tied to the token embedding.
    ///
    /// # Errors
    /// Returns an error if the family cannot have an output layer of its own.
    pub fn config_of(&self, model: &Transformer) -> Result<ModelConfig, ModelError> {
        let heads = [self.config.description().head, model.description().head];
        match heads {
            [HeadKind::Tied, HeadKind::Own] => self.config.clone().untied(),
            _ => Ok(self.config.clone()),
        }
    }

    /// Writes a model directory. Weights are written one tensor at a time.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(
        &self,
        folder: &Path,
        model: &Transformer,
        stored_as: StoredAs,
    ) -> Result<(), ModelError> {
        let dtype = match stored_as {
            StoredAs::F32 => "float32",
            StoredAs::Bf16 => "bfloat16",
        };
        let config = self.config_of(model)?;
        let mut files = vec![(CONFIG_FILE.to_owned(), config.to_json(dtype).into_bytes())];
        files.extend(self.codec.files().iter().cloned());
        for (name, bytes) in files {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(|error| ModelError::write(&path, &error))?;
        }
        let note = self.codec.sha256().map(|hash| (VOCABULARY_KEY, hash));
        StoredTensors::of(model).write(&folder.join(WEIGHTS_FILE), stored_as, note)
    }
}

impl ModelFolder {
    /// Loads a model directory.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid, or if the vocabulary does not match
    /// the model.
    pub fn load(
        folder: &Path,
        formats: &ModelFormats,
        device: &Device,
    ) -> Result<Self, ModelError> {
        Self::load_in(folder, formats, WeightPrecision::F32, device)
    }

    /// Loads a model directory, or a GGUF file, and stores the block matrices in `precision`.
    ///
    /// # Errors
    /// See [`ModelFolder::load`]. Also returns an error if the device does not have the format.
    pub fn load_in(
        folder: &Path,
        formats: &ModelFormats,
        precision: WeightPrecision,
        device: &Device,
    ) -> Result<Self, ModelError> {
        precision.check_on(device)?;
        if is_gguf_file(folder) {
            let mut spec = ModelSpec::load(folder, formats)?;
            let file = GgufFile::open(folder)?;
            let checkpoint = Checkpoint::of_converted(Box::new(file));
            let (model, digest) = weights(&mut spec.config, checkpoint, precision, device)?;
            return Ok(Self { spec, model, digest });
        }
        let mut spec = ModelSpec::load(folder, formats)?;
        let checkpoint = Checkpoint::of_folder(folder)?;
        // A vocabulary with reordered tokens has the same size, so compare its hash. Weights
        // written by other programs have no hash.
        match (checkpoint.metadata(VOCABULARY_KEY), spec.codec.sha256()) {
            (Some(of_weights), Some(of_codec)) if of_weights != of_codec => {
                return Err(ModelError::Unfit(format!(
                    "{}: model.safetensors was trained with a different vocabulary than {}; use both from the same model",
                    folder.display(),
                    spec.codec.file()
                )));
            }
            _ => {}
        }
        let (model, digest) = weights(&mut spec.config, checkpoint, precision, device)?;
        Ok(Self { spec, model, digest })
    }

    /// Loads the configuration and weights of a model directory, without its codec.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid.
    pub fn load_model(
        folder: &Path,
        families: &Families,
        device: &Device,
    ) -> Result<Transformer, ModelError> {
        let mut config = families.read(&folder.join(CONFIG_FILE))?;
        let checkpoint = Checkpoint::of_folder(folder)?;
        Ok(weights(&mut config, checkpoint, WeightPrecision::F32, device)?.0)
    }
}

/// Reads the weights. If the checkpoint has an output layer of its own although `config` ties it to
/// the token embedding, `config` is changed to what the model computes.
fn weights(
    config: &mut ModelConfig,
    checkpoint: Checkpoint,
    precision: WeightPrecision,
    device: &Device,
) -> Result<(Transformer, WeightsDigest), ModelError> {
    let mut parameters = Parameters::of(checkpoint, config.names(), precision, device);
    if config.ties_stored_head() && parameters.has_own_head()? {
        *config = config.clone().untied()?;
    }
    let model = Transformer::new(config, &mut parameters)?;
    let digest = parameters.finish(config.description().layers)?;
    let digest = digest.expect("parameters read from a checkpoint have a digest");
    Ok((model, digest))
}

/// Metadata key under which the vocabulary hash is stored.
const VOCABULARY_KEY: &str = "vocabulary_sha256";
