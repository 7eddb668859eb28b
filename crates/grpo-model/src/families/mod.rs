//! Model families. Each is one file: a description of its layers, derived from `config.json`, and a
//! table of the names of its tensors.

mod bert;
mod family;
mod fields;
mod gpt2;
mod llama;
mod registry;

pub use bert::BERT;
pub use family::{FamilyKind, VocabularyFile};
pub use fields::Fields;
pub use gpt2::GPT2;
pub use llama::{LLAMA, QWEN2, QWEN3};
pub(crate) use registry::family_name;
pub use registry::{Families, ModelFormats};
