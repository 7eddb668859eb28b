//! Which embedder a configuration asks for.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_eval::{Embedder, HashedNgrams};
use serde::{Deserialize, Serialize};

use crate::{FolderError, SentenceTransformers};

/// What makes vectors of texts: a key `embedder`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EmbedderConfig {
    /// An encoder from a folder of sentence-transformers. See [`SentenceTransformers`].
    SentenceTransformers {
        /// The folder.
        folder: PathBuf,
    },
    /// Counts of words and pieces of words, without a model. See [`HashedNgrams`].
    HashedNgrams {
        /// Numbers of a vector.
        #[serde(default = "default_width")]
        width: usize,
    },
}

/// That of all-MiniLM-L6-v2.
fn default_width() -> usize {
    384
}

/// With more, a vector is megabytes.
const LARGEST_WIDTH: usize = 1 << 20;

impl Default for EmbedderConfig {
    /// The one that needs no files.
    fn default() -> Self {
        Self::HashedNgrams { width: default_width() }
    }
}

impl EmbedderConfig {
    /// Looks at the settings, and at no file.
    ///
    /// # Errors
    /// A width of 0, or beyond a million.
    pub fn check(&self) -> Result<(), ConfigFault> {
        match *self {
            Self::HashedNgrams { width } if !(1..=LARGEST_WIDTH).contains(&width) => {
                let fault = format!("embedder.width = {width} must be from 1 to {LARGEST_WIDTH}");
                ConfigFault::refuse(fault)
            }
            Self::HashedNgrams { .. } | Self::SentenceTransformers { .. } => Ok(()),
        }
    }

    /// The embedder that is asked for; a model is read, and lives on `device`.
    ///
    /// # Errors
    /// As [`Self::check`], and a folder that is missing or holds no encoder that can be run.
    pub fn build(&self, device: &Device) -> Result<Arc<dyn Embedder>, ConfigFault> {
        self.check()?;
        Ok(match self {
            Self::HashedNgrams { width } => Arc::new(HashedNgrams::new(*width)),
            Self::SentenceTransformers { folder } => {
                Arc::new(SentenceTransformers::load(folder, device).map_err(of_folder)?)
            }
        })
    }

    /// The files that it is made of, each with the key that names them.
    ///
    /// # Errors
    /// A folder that is missing or cannot be read.
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
