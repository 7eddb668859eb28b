//! Configuration of text embedders.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_eval::{Embedder, HashedNgrams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FolderError, SentenceTransformers};

/// The text embedder selected by an `embedder` key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EmbedderConfig {
    /// An encoder in the sentence-transformers format.
    SentenceTransformers {
        /// The folder that contains the encoder, or its name on the Hugging Face hub (`org/name`).
        folder: PathBuf,
    },
    /// Hashed counts of words and character n-grams. Requires no model.
    HashedNgrams {
        /// Length of the embedding vectors.
        #[serde(default = "default_width")]
        width: usize,
    },
}

/// The default is the width of all-MiniLM-L6-v2.
fn default_width() -> usize {
    384
}

/// Maximum width. Larger vectors would need megabytes of memory each.
const LARGEST_WIDTH: usize = 1 << 20;

impl Default for EmbedderConfig {
    /// Returns the embedder that requires no files.
    fn default() -> Self {
        Self::HashedNgrams { width: default_width() }
    }
}

impl EmbedderConfig {
    /// Validates the settings without accessing files.
    ///
    /// # Errors
    /// Returns an error if the width is 0 or too large.
    pub fn check(&self) -> Result<(), ConfigFault> {
        match *self {
            Self::HashedNgrams { width } if !(1..=LARGEST_WIDTH).contains(&width) => {
                let fault = format!(
                    "embedder.width = {width} is out of range; expected 1 to {LARGEST_WIDTH}"
                );
                ConfigFault::refuse(fault)
            }
            Self::HashedNgrams { .. } | Self::SentenceTransformers { .. } => Ok(()),
        }
    }

    /// Creates the embedder, loading models onto `device`.
    ///
    /// # Errors
    /// Returns an error if [`Self::check`] fails, or if the folder is missing or contains no
    /// supported encoder.
    pub fn build(&self, device: &Device) -> Result<Arc<dyn Embedder>, ConfigFault> {
        self.check()?;
        Ok(match self {
            Self::HashedNgrams { width } => Arc::new(HashedNgrams::new(*width)),
            Self::SentenceTransformers { folder } => {
                Arc::new(SentenceTransformers::load(folder, device).map_err(of_folder)?)
            }
        })
    }

    /// Returns the files that the embedder reads, each with the key that refers to it.
    ///
    /// # Errors
    /// Returns an error if the folder is missing or cannot be read.
    pub fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        match self {
            Self::HashedNgrams { .. } => Ok(Vec::new()),
            Self::SentenceTransformers { folder } => {
                let files = SentenceTransformers::files(folder).map_err(of_folder)?.into_iter();
                Ok(files.map(|path| ("embedder", path)).collect())
            }
        }
    }
}

fn of_folder(error: FolderError) -> ConfigFault {
    ConfigFault::from_sentence("", format!("embedder.folder: {error}"))
}
