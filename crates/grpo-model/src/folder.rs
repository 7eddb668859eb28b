//! A model folder: `config.json`, weights, and what turns text into ids.

use std::path::Path;

use burn::tensor::Device;
use grpo_data::{Codec, Codecs};

use crate::checkpoint::{Checkpoint, WEIGHTS_FILE};
use crate::parameters::Parameters;
use crate::stored::{StoredAs, StoredTensors};
use crate::{Family, ModelConfig, ModelError, Transformer, WeightPrecision, WeightsDigest};

const CONFIG_FILE: &str = "config.json";
/// What the ids of families are whose models read characters.
const CHARACTERS_FILE: &str = "characters.json";

/// A model and all that is needed to use it.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    /// Everything but the weights.
    pub spec: ModelSpec,
    /// The model.
    pub model: Transformer,
    /// Hash of the numbers in the files of its weights: which model it is, in whatever precision it is held.
    pub digest: WeightsDigest,
}

/// What a model folder has besides weights.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// Sizes.
    pub config: ModelConfig,
    /// From text to ids and back.
    pub codec: Codec,
}

impl ModelSpec {
    /// Reads a model folder without its weights; `codecs` are those that it can have besides a tokenizer.
    ///
    /// # Errors
    /// A file that is missing or wrong; tokens that the model has no logits for.
    pub fn load(folder: &Path, codecs: &Codecs) -> Result<Self, ModelError> {
        Self::new(ModelConfig::from_json_file(&folder.join(CONFIG_FILE))?, folder, codecs)
    }

    /// A model of this configuration, whose text is that of `folder`.
    ///
    /// # Errors
    /// A file that is missing or wrong; tokens that the model has no logits for.
    pub fn new(config: ModelConfig, folder: &Path, codecs: &Codecs) -> Result<Self, ModelError> {
        let codec = codecs.read(folder)?;
        let family = config.family();
        if family.reads_characters() && codec.file() != CHARACTERS_FILE {
            return Err(ModelError::Unfit(format!(
                "{} has no characters.json: ids of the family {} are characters, MASK, PAD and CLS, and that file lists them; take it from the text that the model is trained on, as `grpo pretrain` does",
                folder.display(),
                family.name()
            )));
        }
        let expected = config.description().vocabulary;
        // Tables of text models are often a little larger than their vocabularies, for speed.
        let tokens = codec.token_count().unwrap_or(expected);
        let fits = tokens == expected || (!codec.is_own() && tokens < expected);
        if !fits {
            return Err(ModelError::Unfit(format!(
                "{}: {} has {tokens} tokens, but config.json says vocab_size = {expected}; they are not of the same model",
                folder.display(),
                codec.file()
            )));
        }
        let codec = codec.for_model(expected);
        Ok(Self { config, codec })
    }

    /// The family of the model in a folder, of which nothing else is read.
    ///
    /// # Errors
    /// A `config.json` that is missing or wrong.
    pub fn family_of(folder: &Path) -> Result<Family, ModelError> {
        ModelConfig::from_json_file(&folder.join(CONFIG_FILE)).map(|config| config.family())
    }

    /// Writes the files of a model folder into `folder`, the weights one tensor at a time.
    ///
    /// # Errors
    /// A file cannot be written.
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
        let mut files = vec![(CONFIG_FILE.to_owned(), self.config.to_json(dtype).into_bytes())];
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
    /// Reads a model folder.
    ///
    /// # Errors
    /// A file that is missing or wrong; a vocabulary of another size than the model's.
    pub fn load(folder: &Path, codecs: &Codecs, device: &Device) -> Result<Self, ModelError> {
        Self::load_in(folder, codecs, WeightPrecision::F32, device)
    }

    /// Reads a model folder, and holds the matrices of its blocks in `precision`.
    ///
    /// # Errors
    /// As [`ModelFolder::load`].
    pub fn load_in(
        folder: &Path,
        codecs: &Codecs,
        precision: WeightPrecision,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let spec = ModelSpec::load(folder, codecs)?;
        let checkpoint = Checkpoint::of_folder(folder)?;
        // Tokens in another order are another vocabulary, although it is of the same size. Weights of other
        // programs carry no hash.
        match (checkpoint.metadata(VOCABULARY_KEY), spec.codec.sha256()) {
            (Some(of_weights), Some(of_codec)) if of_weights != of_codec => {
                return Err(ModelError::Unfit(format!(
                    "{}: model.safetensors was trained with another vocabulary than {}; take both from the same model",
                    folder.display(),
                    spec.codec.file()
                )));
            }
            _ => {}
        }
        let (model, digest) = weights(&spec.config, checkpoint, precision, device)?;
        Ok(Self { spec, model, digest })
    }

    /// Reads `config.json` and the weights of a model folder, and nothing that turns text into ids.
    ///
    /// # Errors
    /// A file that is missing or wrong.
    pub fn load_model(folder: &Path, device: &Device) -> Result<Transformer, ModelError> {
        let config = ModelConfig::from_json_file(&folder.join(CONFIG_FILE))?;
        let checkpoint = Checkpoint::of_folder(folder)?;
        Ok(weights(&config, checkpoint, WeightPrecision::F32, device)?.0)
    }
}

fn weights(
    config: &ModelConfig,
    checkpoint: Checkpoint,
    precision: WeightPrecision,
    device: &Device,
) -> Result<(Transformer, WeightsDigest), ModelError> {
    let mut parameters = Parameters::of(checkpoint, config.names(), precision, device);
    let model = Transformer::new(config, &mut parameters)?;
    let digest = parameters.finish()?.expect("they are of a checkpoint");
    Ok((model, digest))
}

/// Key of the vocabulary's hash in the metadata of the weights.
const VOCABULARY_KEY: &str = "vocabulary_sha256";
