//! Which embedder a configuration asks for.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_text::{Embedder, HashedNgrams};
use serde::{Deserialize, Serialize};

use crate::RewardConfigError;

/// What makes a vector of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EmbedderConfig {
    /// Words and pieces of words.
    HashedNgrams {
        /// Numbers of a vector.
        #[serde(default = "default_width")]
        width: usize,
    },
}

fn default_width() -> usize {
    384
}

impl EmbedderConfig {
    /// The embedder.
    ///
    /// # Errors
    /// Never, for now.
    pub fn build(&self, _device: &Device) -> Result<Arc<dyn Embedder>, RewardConfigError> {
        match self {
            Self::HashedNgrams { width } => Ok(Arc::new(HashedNgrams::new(*width))),
        }
    }

    /// Its files.
    ///
    /// # Errors
    /// Never, for now.
    pub fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, RewardConfigError> {
        Ok(Vec::new())
    }

    /// Looks at the settings.
    ///
    /// # Errors
    /// Never, for now.
    pub fn check(&self) -> Result<(), RewardConfigError> {
        Ok(())
    }
}
