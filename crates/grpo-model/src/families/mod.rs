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
pub(crate) use registry::family_name;
pub use registry::{Families, ModelFormats};

impl Default for Families {
    fn default() -> Self {
        use llama::{LLAMA, QWEN2, QWEN3};
        Self::none().with([&gpt2::GPT2, &LLAMA, &QWEN2, &QWEN3, &BERT])
    }
}
