//! Transformers as policies: what they compute, what they remember while sampling, and how their weights
//! go to and come from disk.
//!
//! A family is a description in its own file ([`MolGpt`]); the layers it is made of are shared. Sampling
//! and training see a family only through [`CausalLm`].

mod causal;
mod dropout;
mod error;
mod folder;
mod layers;
mod molgpt;
mod weights;

pub use causal::{CausalLm, Frozen, KvCache};
pub use dropout::Dropout;
pub use error::ModelError;
pub use folder::{ModelFolder, ModelFolderError};
pub use molgpt::{Architecture, MolGpt, MolGptConfig};
pub use weights::{Parameters, WEIGHTS_FILE, linear_weights, named_tensors, to_safetensors};
