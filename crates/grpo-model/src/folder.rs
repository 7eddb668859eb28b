//! A model folder: `config.json`, `vocabulary.json`, `model.safetensors`.

use std::path::Path;

use burn::tensor::Device;
use grpo_data::{DataError, Vocabulary};

use crate::weights::{WEIGHTS_FILE, read_metadata, to_safetensors};
use crate::{ModelError, MolGpt, MolGptConfig};

const CONFIG_FILE: &str = "config.json";
const VOCABULARY_FILE: &str = "vocabulary.json";

/// A model and all that is needed to use it.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    /// Sizes.
    pub config: MolGptConfig,
    /// Which token each id is.
    pub vocabulary: Vocabulary,
    /// The model.
    pub model: MolGpt,
}

impl ModelFolder {
    /// Reads a model folder.
    ///
    /// # Errors
    /// A file that is missing or wrong; a vocabulary of another size than the model's.
    pub fn load(path: &Path, device: &Device) -> Result<Self, ModelFolderError> {
        let config = MolGptConfig::from_json_file(&path.join(CONFIG_FILE))?;
        let vocabulary = Vocabulary::from_json_file(&path.join(VOCABULARY_FILE))?;
        if vocabulary.len() != config.vocab_size {
            return Err(ModelFolderError::VocabularySize {
                folder: path.display().to_string(),
                tokens: vocabulary.len(),
                expected: config.vocab_size,
            });
        }
        check_vocabulary_hash(path, &vocabulary)?;
        let model = MolGpt::load(&config, &path.join(WEIGHTS_FILE), device)?;
        Ok(Self { config, vocabulary, model })
    }

    /// The files of the folder, for the caller to write.
    pub fn files(
        config: &MolGptConfig,
        vocabulary: &Vocabulary,
        model: &MolGpt,
    ) -> [(&'static str, Vec<u8>); 3] {
        let config = serde_json::to_string_pretty(config).expect("numbers are JSON") + "\n";
        [
            (CONFIG_FILE, config.into_bytes()),
            (VOCABULARY_FILE, vocabulary.to_json().into_bytes()),
            (WEIGHTS_FILE, to_safetensors(model, [(VOCABULARY_KEY, vocabulary.sha256())].into())),
        ]
    }
}

/// Key of the vocabulary's hash in the metadata of the weights.
const VOCABULARY_KEY: &str = "vocabulary_sha256";

/// Tokens in another order are another vocabulary, although it is of the same size. Weights of other programs
/// carry no hash.
fn check_vocabulary_hash(path: &Path, vocabulary: &Vocabulary) -> Result<(), ModelFolderError> {
    let metadata = read_metadata(&path.join(WEIGHTS_FILE))?;
    match metadata.get(VOCABULARY_KEY) {
        Some(hash) if *hash != vocabulary.sha256() => {
            Err(ModelFolderError::OtherVocabulary { folder: path.display().to_string() })
        }
        _ => Ok(()),
    }
}

/// A model folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFolderError {
    /// Configuration or weights.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The vocabulary.
    #[error(transparent)]
    Vocabulary(#[from] DataError),
    /// The weights were trained with other tokens.
    #[error(
        "{folder}: model.safetensors was trained with another vocabulary than vocabulary.json; take both from the same model"
    )]
    OtherVocabulary {
        /// The folder.
        folder: String,
    },
    /// Vocabulary and model are not of one another.
    #[error(
        "{folder}: vocabulary.json has {tokens} tokens, but config.json says vocab_size = {expected}; they are not of the same model"
    )]
    VocabularySize {
        /// The folder.
        folder: String,
        /// In the vocabulary.
        tokens: usize,
        /// In the configuration.
        expected: usize,
    },
}
